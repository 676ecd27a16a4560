//! Where a match may have begun that the text so far does not decide.
//!
//! A stream may be cut anywhere, also inside a value. What may be passed on is what cannot be part
//! of a match any more, and for that one must know the earliest place from which the text so far is
//! the beginning of a match of some pattern. The set of beginnings of a pattern's matches is again a
//! regular language ([`beginnings`]). An automaton reads the text from each place in turn, which at nearly all places takes
//! two or three bytes, until there is one from which it reaches the end.
//!
//! Where that takes long, because much of the text could begin a match and then did not, another automaton reads the same
//! language backwards from the end, once and for all places. It is only asked then: what it learns of one ending of a
//! text is of no use for another, so that text that is always new costs it a millisecond each time.
//!
//! Rejected: holding back the length of the longest match always (a reader would wait for kilobytes
//! because private keys are long); watching for the literals only (a value is more than its prefix).

use std::fmt;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, HirKind, Repetition};

use super::automaton::{self, Reads};
use super::spares::Spares;

/// Repetitions up to this many times are followed exactly, longer ones as if they had no end: the
/// automata stay small, and a pattern's length says when a beginning has become too long. Following
/// more exactly holds back a few digits less, and makes the automata several times as large.
const MAX_EXACT: u32 = 1;

/// What an automaton may take in memory, for each stream that is looked at at the same time.
const MAX_CACHE_BYTES: usize = 16 << 20;

/// How many steps from place to place may take, for each byte and at least, before the text is read backwards instead. Text
/// takes three a byte.
const STEPS_A_BYTE: usize = 8;
const MIN_STEPS: usize = 1 << 10;

/// Finds where undecided matches begin.
pub(crate) struct Prefixes {
    /// `None` if the patterns are too large for automata.
    automata: Option<[Automaton; 2]>,
    /// How long a match of each pattern can be.
    longest: Vec<Longest>,
}

/// An automaton for the beginnings of all patterns.
struct Automaton {
    dfa: DFA,
    /// What one stream has learned serves the others: an answer may take minutes, and a look at it no time.
    spare: Spares<Cache, 4>,
}

/// How long a match can be; `None` if there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Longest {
    bytes: Option<usize>,
    characters: Option<usize>,
}

/// A search that an automaton gave up.
struct GaveUp;

impl Prefixes {
    /// For these patterns. If they are too large for an automaton, everything counts as undecided.
    pub(super) fn new(patterns: impl Iterator<Item = Hir>) -> Self {
        let (mut prefixes, mut longest) = (Vec::new(), Vec::new());
        for hir in patterns {
            longest.push(Longest {
                bytes: hir.properties().maximum_len(),
                characters: max_characters(&hir),
            });
            prefixes.push(beginnings(&hir));
        }
        let automaton = |reads| {
            Some(Automaton {
                dfa: automaton::lazy(&prefixes, reads, MAX_CACHE_BYTES)?,
                spare: Spares::default(),
            })
        };
        let automata = automaton(Reads::Forwards).zip(automaton(Reads::Backwards));
        Self {
            automata: automata.map(<[Automaton; 2]>::from),
            longest,
        }
    }

    /// The longest that a match can be, in bytes; `None` if there is no limit.
    pub(crate) fn max_len(&self) -> Option<usize> {
        self.longest
            .iter()
            .try_fold(0, |max, longest| Some(max.max(longest.bytes?)))
    }

    /// The earliest place at or after `from` where an undecided match may begin; the end of the text
    /// if there is none.
    pub(crate) fn earliest(&self, text: &str, from: usize) -> usize {
        if self.longest.is_empty() {
            return text.len();
        }
        let Some([forwards, backwards]) = &self.automata else {
            return from;
        };
        let found = forwards
            .search(|dfa, cache| self.place_by_place(dfa, cache, text, from))
            .or_else(|GaveUp| {
                backwards.search(|dfa, cache| self.backwards(dfa, cache, text, from))
            });
        found.unwrap_or(from)
    }

    /// The first place from which the text to its end is a beginning.
    fn place_by_place(
        &self,
        dfa: &DFA,
        cache: &mut Cache,
        text: &str,
        from: usize,
    ) -> Result<usize, GaveUp> {
        let bytes = text.as_bytes();
        let begin = Input::new("").anchored(Anchored::Yes);
        let mut steps = (bytes.len() - from) * STEPS_A_BYTE + MIN_STEPS;
        'places: for place in from..bytes.len() {
            // Not once for all: what is learned on the way may take the place of everything that was known.
            let state = dfa.start_state_forward(cache, &begin);
            let mut state = state.map_err(|_| GaveUp)?;
            for byte in &bytes[place..] {
                state = dfa.next_state(cache, state, *byte).map_err(|_| GaveUp)?;
                steps = steps.checked_sub(1).ok_or(GaveUp)?;
                if state.is_tagged() {
                    if state.is_dead() {
                        continue 'places;
                    } else if state.is_quit() {
                        return Err(GaveUp);
                    }
                }
            }
            let state = dfa.next_eoi_state(cache, state).map_err(|_| GaveUp)?;
            if state.is_match() && self.admits(dfa, cache, state, &bytes[place..]) {
                return Ok(place);
            }
        }
        Ok(bytes.len())
    }

    /// The same, by one walk from the end of the text.
    fn backwards(
        &self,
        dfa: &DFA,
        cache: &mut Cache,
        text: &str,
        from: usize,
    ) -> Result<usize, GaveUp> {
        let bytes = text.as_bytes();
        let input = Input::new(bytes).range(from..).anchored(Anchored::Yes);
        let mut earliest = bytes.len();
        let start = dfa.start_state_reverse(cache, &input);
        let mut state = start.map_err(|_| GaveUp)?;
        for at in (from..bytes.len()).rev() {
            // The automaton reports a match one byte late.
            state = dfa
                .next_state(cache, state, bytes[at])
                .map_err(|_| GaveUp)?;
            if state.is_tagged() {
                if state.is_match() {
                    if self.admits(dfa, cache, state, &bytes[at + 1..]) {
                        earliest = at + 1;
                    }
                } else if state.is_dead() {
                    return Ok(earliest);
                } else if state.is_quit() {
                    return Err(GaveUp);
                }
            }
        }
        let state = match from.checked_sub(1) {
            Some(before) => dfa.next_state(cache, state, bytes[before]),
            None => dfa.next_eoi_state(cache, state),
        };
        let state = state.map_err(|_| GaveUp)?;
        if state.is_match() && self.admits(dfa, cache, state, &bytes[from..]) {
            earliest = from;
        }
        Ok(earliest)
    }

    /// Whether some pattern of which this is a beginning may be so long.
    fn admits(&self, dfa: &DFA, cache: &Cache, state: LazyStateID, beginning: &[u8]) -> bool {
        (0..dfa.match_len(cache, state)).any(|index| {
            let pattern = dfa.match_pattern(cache, state, index);
            self.longest[pattern.as_usize()].admits(beginning)
        })
    }
}

impl Automaton {
    fn search<T>(&self, search: impl FnOnce(&DFA, &mut Cache) -> T) -> T {
        let mut cache = self.spare.take_or(|| self.dfa.create_cache());
        let found = search(&self.dfa, &mut cache);
        self.spare.keep(cache);
        found
    }
}

impl Longest {
    fn admits(self, text: &[u8]) -> bool {
        let characters = || text.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        let fits = |max: Option<usize>, len: usize| max.is_none_or(|max| len <= max);
        // There are no more characters than bytes, so that they need not be counted as a rule.
        fits(self.characters, text.len())
            || (fits(self.bytes, text.len()) && fits(self.characters, characters()))
    }
}

/// How many characters a match can have; `None` if there is no limit.
fn max_characters(hir: &Hir) -> Option<usize> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(0),
        HirKind::Literal(literal) => Some(
            std::str::from_utf8(&literal.0).map_or(literal.0.len(), |text| text.chars().count()),
        ),
        HirKind::Class(_) => Some(1),
        HirKind::Capture(capture) => max_characters(&capture.sub),
        HirKind::Concat(parts) => parts
            .iter()
            .try_fold(0usize, |sum, part| sum.checked_add(max_characters(part)?)),
        HirKind::Alternation(parts) => parts
            .iter()
            .try_fold(0, |max, part| Some(max_characters(part)?.max(max))),
        HirKind::Repetition(repetition) => {
            max_characters(&repetition.sub)?.checked_mul(repetition.max? as usize)
        }
    }
}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefixes")
            .field("patterns", &self.longest.len())
            .finish_non_exhaustive()
    }
}

/// Everything that a match can begin with, whole matches included, and perhaps more.
fn beginnings(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => text.chars().rev().fold(Hir::empty(), |rest, c| {
                let mut bytes = [0; 4];
                let c = Hir::literal(c.encode_utf8(&mut bytes).as_bytes());
                optional(Hir::concat(vec![c, rest]))
            }),
            Err(_) => optional(hir.clone()),
        },
        HirKind::Class(_) => optional(hir.clone()),
        HirKind::Capture(capture) => beginnings(&capture.sub),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(beginnings).collect()),
        HirKind::Repetition(repetition) => {
            // As `widened` has it: what can be begun is what can be gone on with.
            let exact = repetition.max.filter(|max| *max <= MAX_EXACT);
            let before = Repetition {
                min: 0,
                max: exact.map(|max| max.saturating_sub(1)),
                greedy: true,
                sub: repetition.sub.clone(),
            };
            let before = widened(&Hir::repetition(before));
            Hir::concat(vec![before, beginnings(&repetition.sub)])
        }
        HirKind::Concat(parts) => parts.iter().rev().fold(Hir::empty(), |rest, part| {
            let further = Hir::concat(vec![widened(part), rest]);
            Hir::alternation(vec![beginnings(part), further])
        }),
    }
}

/// The same without conditions on what stands around it, and with long repetitions as endless ones.
fn widened(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(widened).collect();
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
        HirKind::Capture(capture) => widened(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Repetition(repetition) => {
            let exact = repetition.max.is_some_and(|max| max <= MAX_EXACT);
            let (min, max) = if exact {
                (repetition.min, repetition.max)
            } else {
                (repetition.min.min(1), None)
            };
            Hir::repetition(Repetition {
                min,
                max,
                greedy: true,
                sub: Box::new(widened(&repetition.sub)),
            })
        }
    }
}

fn optional(hir: Hir) -> Hir {
    Hir::repetition(Repetition {
        min: 0,
        max: Some(1),
        greedy: true,
        sub: Box::new(hir),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefixes(patterns: &[&str]) -> Prefixes {
        let hirs: Vec<Hir> = patterns
            .iter()
            .map(|pattern| regex_syntax::parse(pattern).unwrap())
            .collect();
        Prefixes::new(hirs.iter().cloned())
    }

    fn held<'t>(prefixes: &Prefixes, text: &'t str) -> &'t str {
        &text[prefixes.earliest(text, 0)..]
    }

    #[test]
    fn what_may_be_the_beginning_of_a_match_is_held() {
        let key = prefixes(&["AKIA[0-9A-Z]{16}", r"\bsk-[a-z]{20,}\b", r"\d{3}-\d{4}"]);
        for (text, expected) in [
            ("nothing here", ""),
            ("the end is A", "A"),
            ("an AKIA12", "AKIA12"),
            ("an AKIA1234567890123456", "AKIA1234567890123456"),
            ("an AKIA12345678901234567", "01234567"),
            ("AKIA12 and more", ""),
            ("task", "sk"),
            ("task-abc", "sk-abc"),
            ("call 555-", "555-"),
            ("call 555-12345", "55-12345"),
            ("é555", "555"),
        ] {
            assert_eq!(held(&key, text), expected, "{text}");
        }
    }

    #[test]
    fn no_patterns_hold_nothing() {
        assert_eq!(held(&prefixes(&[]), "AKIA"), "");
        assert_eq!(prefixes(&[]).max_len(), Some(0));
    }

    #[test]
    fn the_longest_match_is_known_unless_there_is_none() {
        assert_eq!(prefixes(&["abc", "a{7}"]).max_len(), Some(7));
        assert_eq!(prefixes(&["abc", "a{7,}"]).max_len(), None);
    }

    #[test]
    fn a_match_that_is_limited_in_characters_is_not_held_for_as_many_times_their_bytes() {
        let gap = prefixes(&[r"set .{0,8}: x"]);
        assert_eq!(held(&gap, "set 12345678"), "set 12345678");
        assert_eq!(held(&gap, "set 1234567890abcdef"), "");
        assert_eq!(held(&gap, "set éééééééé"), "set éééééééé");
        assert_eq!(gap.max_len(), Some(4 + 8 * 4 + 3));
    }

    #[test]
    fn text_whose_every_place_could_begin_a_match_is_read_backwards() {
        let line = prefixes(&["[a-z]{1,4000}=", r"sk-\d+"]);
        let text = "a".repeat(3000) + "! and sk-1";
        assert_eq!(held(&line, &text), "sk-1");
        let [forwards, _] = line.automata.as_ref().unwrap();
        let gave_up = forwards.search(|dfa, cache| line.place_by_place(dfa, cache, &text, 0));
        assert!(gave_up.is_err());
    }

    const PATTERNS: &[&str] = &[
        "a(b|cd)*e",
        r"\bab{2,12}c\b",
        "(?:ab|ba){3}",
        "é[a-c]{2}é",
        "(a|b)?c",
    ];

    proptest! {
        /// Which way the text is read is a matter of time, not of the answer.
        #[test]
        fn both_ways_of_reading_find_the_same_place(
            text in "[abcdeé ]{0,40}",
            from in any::<prop::sample::Index>(),
        ) {
            let all = prefixes(PATTERNS);
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let from = places[from.index(places.len())];
            let [forwards, backwards] = all.automata.as_ref().unwrap();
            let one = forwards.search(|dfa, cache| all.place_by_place(dfa, cache, &text, from).ok());
            let other = backwards.search(|dfa, cache| all.backwards(dfa, cache, &text, from).ok());
            prop_assert!(one.is_some());
            prop_assert_eq!(one, other);
        }

        /// If some continuation makes a match that starts here, here is held.
        #[test]
        fn nothing_that_can_become_a_match_is_let_go(
            text in "[abcdeé ]{0,24}",
            cut in any::<prop::sample::Index>(),
            pattern in prop::sample::select(PATTERNS.to_vec()),
        ) {
            let regex = regex::Regex::new(pattern).unwrap();
            let prefixes = prefixes(&[pattern]);
            let boundaries: Vec<usize> =
                (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
            let cut = boundaries[cut.index(boundaries.len())];
            let earliest = prefixes.earliest(&text[..cut], 0);
            for found in regex.find_iter(&text) {
                let undecided = found.start() < cut && found.end() > cut;
                prop_assert!(!undecided || earliest <= found.start());
            }
        }
    }
}
