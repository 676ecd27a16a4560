//! Where a match may have begun that the text so far does not decide.
//!
//! A stream may be cut anywhere, also inside a value. What may be passed on is what cannot be part
//! of a match any more, and for that one must know the earliest place from which the text so far is
//! the beginning of a match of some pattern. The set of beginnings of a pattern's matches is again a
//! regular language ([`beginnings`]); an automaton that reads it backwards from the end of the text
//! finds the place, and stops as soon as nothing further back can matter.
//!
//! Rejected: holding back the length of the longest match always (a reader would wait for kilobytes
//! because private keys are long); watching for the literals only (a value is more than its prefix).

use std::fmt;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, HirKind, Repetition};

use super::automaton::{self, Reads};
use super::spares::Spares;

/// Repetitions up to this many times are followed exactly, longer ones as if they had no end: the
/// automaton stays small, and a pattern's length says when a beginning has become too long. Following
/// more exactly holds back a few digits less, and makes the automaton several times as large.
const MAX_EXACT: u32 = 1;

/// What the automaton may take in memory, for each stream that is looked at at the same time.
const MAX_CACHE_BYTES: usize = 32 << 20;

/// Finds where undecided matches begin.
pub(crate) struct Prefixes {
    /// `None` if there are no patterns.
    dfa: Option<DFA>,
    /// How long a match of each pattern can be.
    max_len: Vec<Option<usize>>,
    /// What one stream has learned serves the others: an answer may take minutes, and a look at it no time.
    spare: Spares<Cache, 4>,
}

impl Prefixes {
    /// For these patterns. If they are too large for an automaton, everything counts as undecided.
    pub(super) fn new(patterns: impl Iterator<Item = Hir>) -> Self {
        let (mut prefixes, mut max_len) = (Vec::new(), Vec::new());
        for hir in patterns {
            max_len.push(hir.properties().maximum_len());
            prefixes.push(beginnings(&hir));
        }
        let dfa = (!prefixes.is_empty())
            .then(|| automaton::lazy(&prefixes, Reads::Backwards, MAX_CACHE_BYTES))
            .flatten();
        Self {
            dfa,
            max_len,
            spare: Spares::default(),
        }
    }

    /// The longest that a match can be; `None` if there is no limit.
    pub(crate) fn max_len(&self) -> Option<usize> {
        self.max_len
            .iter()
            .try_fold(0, |max, len| Some(max.max((*len)?)))
    }

    /// The earliest place at or after `from` where an undecided match may begin; the end of the text
    /// if there is none.
    pub(crate) fn earliest(&self, text: &str, from: usize) -> usize {
        if self.max_len.is_empty() {
            return text.len();
        }
        let Some(dfa) = &self.dfa else {
            return from;
        };
        let mut cache = self.spare.take_or(|| dfa.create_cache());
        let earliest = self.walk(dfa, &mut cache, text.as_bytes(), from);
        self.spare.keep(cache);
        earliest.unwrap_or(from)
    }

    fn walk(&self, dfa: &DFA, cache: &mut Cache, text: &[u8], from: usize) -> Option<usize> {
        let input = Input::new(text).range(from..).anchored(Anchored::Yes);
        let mut earliest = text.len();
        let mut state = dfa.start_state_reverse(cache, &input).ok()?;
        for at in (from..text.len()).rev() {
            // The automaton reports a match one byte late.
            state = dfa.next_state(cache, state, text[at]).ok()?;
            if state.is_tagged() {
                if state.is_match() {
                    earliest = self.admit(dfa, cache, state, at + 1, text.len(), earliest);
                } else if state.is_dead() {
                    return Some(earliest);
                } else if state.is_quit() {
                    return None;
                }
            }
        }
        state = match from.checked_sub(1) {
            Some(before) => dfa.next_state(cache, state, text[before]).ok()?,
            None => dfa.next_eoi_state(cache, state).ok()?,
        };
        if state.is_match() {
            earliest = self.admit(dfa, cache, state, from, text.len(), earliest);
        }
        Some(earliest)
    }

    /// `start`, if some pattern that begins there is not yet too long; else what was earliest before.
    fn admit(
        &self,
        dfa: &DFA,
        cache: &Cache,
        state: regex_automata::hybrid::LazyStateID,
        start: usize,
        end: usize,
        earliest: usize,
    ) -> usize {
        let len = end - start;
        let fits = (0..dfa.match_len(cache, state)).any(|index| {
            let pattern = dfa.match_pattern(cache, state, index);
            self.max_len[pattern.as_usize()].is_none_or(|max| len <= max)
        });
        if fits { start } else { earliest }
    }
}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefixes")
            .field("patterns", &self.max_len.len())
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
            ("an AKIA12345678901234567", "12345678901234567"),
            ("AKIA12 and more", ""),
            ("task", "sk"),
            ("task-abc", "sk-abc"),
            ("call 555-", "555-"),
            ("call 555-12345", "555-12345"),
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

    const PATTERNS: &[&str] = &[
        "a(b|cd)*e",
        r"\bab{2,12}c\b",
        "(?:ab|ba){3}",
        "é[a-c]{2}é",
        "(a|b)?c",
    ];

    proptest! {
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
