//! Patterns as they are searched for in text of one kind.
//!
//! In text that is all ASCII no other character can match: without them a pattern has a fraction of the states, and the
//! automaton that is made of it as it goes fits into its memory. And any text is first searched for something smaller that
//! matches wherever the pattern does: most patterns are never needed in full.

use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind,
    Look, LookSet, Repetition,
};

/// What matches in text that is all ASCII exactly where this does.
pub(super) fn for_ascii(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty | HirKind::Class(Class::Bytes(_)) => hir.clone(),
        HirKind::Literal(literal) if literal.0.is_ascii() => hir.clone(),
        HirKind::Literal(_) => Hir::fail(),
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            class.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            look => *look,
        }),
        HirKind::Repetition(repetition) => match for_ascii(&repetition.sub) {
            // What cannot be there is left out: a part that may be there need not.
            sub if !can_match(&sub) && repetition.min == 0 => Hir::empty(),
            sub => Hir::repetition(Repetition {
                sub: Box::new(sub),
                ..*repetition
            }),
        },
        HirKind::Capture(capture) => Hir::capture(Capture {
            sub: Box::new(for_ascii(&capture.sub)),
            ..capture.clone()
        }),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(for_ascii).collect()),
        HirKind::Alternation(branches) => {
            let branches = branches.iter().map(for_ascii).filter(can_match);
            Hir::alternation(branches.collect())
        }
    }
}

/// Whether anything matches it. To `regex-syntax`, a repetition of what cannot match cannot either, so there must be none that may
/// also be empty.
fn can_match(hir: &Hir) -> bool {
    hir.properties().minimum_len().is_some()
}

/// What matches wherever this does, and perhaps elsewhere, but is small: long repetitions have no end, beyond ASCII a
/// large class takes any character, and there are no Unicode word boundaries.
pub(super) fn coarse(hir: &Hir) -> Hir {
    let bounded = with_ascii_boundaries(hir);
    coarse_parts(bounded.as_ref().unwrap_or(hir))
}

/// Classes of so many characters beyond ASCII are taken as they are: white space, and those that spell a word.
const SPELLED: usize = 32;

/// Repetitions are counted up to this many times, to be enough and to be too many. An automaton has a state for every count
/// and every beginning of a gap, and there is a limit already to how far anybody looks.
const MAX_MIN: u32 = 32;
const MAX_MAX: u32 = 4;

fn coarse_parts(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(coarse_parts).collect();
    match hir.kind() {
        HirKind::Empty
        | HirKind::Literal(_)
        | HirKind::Look(_)
        | HirKind::Class(Class::Bytes(_)) => hir.clone(),
        HirKind::Class(Class::Unicode(class)) => {
            let mut ascii = class.clone();
            ascii.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')]));
            let mut other = class.clone();
            other.difference(&ascii);
            if other.iter().map(ClassUnicodeRange::len).sum::<usize>() <= SPELLED {
                return hir.clone();
            }
            let mut marks =
                ClassUnicode::new(MARKS.map(|(start, end)| ClassUnicodeRange::new(start, end)));
            marks.intersect(&other);
            let ascii = Hir::class(Class::Unicode(ascii));
            Hir::alternation(vec![ascii, any_other(!marks.ranges().is_empty())])
        }
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            min: repetition.min.min(MAX_MIN),
            max: repetition.max.filter(|max| *max <= MAX_MAX),
            greedy: repetition.greedy,
            sub: Box::new(coarse_parts(&repetition.sub)),
        }),
        HirKind::Capture(capture) => coarse_parts(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(each(parts)),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
    }
}

/// Dashes, quotation marks, dots: what English text has beyond ASCII, and words do not.
const MARKS: [(char, char); 2] = [('\u{2010}', '\u{2027}'), ('\u{2030}', '\u{205e}')];

/// Any character beyond ASCII, or all but the block of those marks.
fn any_other(marks: bool) -> Hir {
    let bytes = |ranges: &[(u8, u8)]| {
        let ranges = ranges
            .iter()
            .map(|(start, end)| ClassBytesRange::new(*start, *end));
        Hir::class(Class::Bytes(ClassBytes::new(ranges)))
    };
    let follow = || bytes(&[(0x80, 0xbf)]);
    let follows = Hir::repetition(Repetition {
        min: 1,
        max: Some(3),
        greedy: true,
        sub: Box::new(follow()),
    });
    if marks {
        return Hir::concat(vec![bytes(&[(0xc2, 0xf4)]), follows]);
    }
    // Theirs begin with e2 80 and e2 81.
    Hir::alternation(vec![
        Hir::concat(vec![bytes(&[(0xc2, 0xe1), (0xe3, 0xf4)]), follows]),
        Hir::concat(vec![
            bytes(&[(0xe2, 0xe2)]),
            bytes(&[(0x82, 0xbf)]),
            follow(),
        ]),
    ])
}

/// The same without Unicode word boundaries, if it has one. Beside an ASCII letter an ASCII boundary stands wherever
/// a Unicode one does; elsewhere anything may stand.
pub(super) fn with_ascii_boundaries(hir: &Hir) -> Option<Hir> {
    hir.properties()
        .look_set()
        .contains_word_unicode()
        .then(|| ascii_boundaries(hir))
}

fn ascii_boundaries(hir: &Hir) -> Hir {
    let each = |parts: &[Hir]| parts.iter().map(ascii_boundaries).collect();
    match hir.kind() {
        HirKind::Look(look) if LookSet::singleton(*look).contains_word_unicode() => Hir::empty(),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(ascii_boundaries(&repetition.sub)),
            ..*repetition
        }),
        HirKind::Capture(capture) => ascii_boundaries(&capture.sub),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)),
        HirKind::Concat(parts) => {
            let beside = |index: usize| {
                let before = index.checked_sub(1).map(|before| &parts[before]);
                before.is_some_and(|before| is_word_at(before, <[Hir]>::last))
                    || parts
                        .get(index + 1)
                        .is_some_and(|after| is_word_at(after, <[Hir]>::first))
            };
            let parts = parts
                .iter()
                .enumerate()
                .map(|(index, part)| match part.kind() {
                    HirKind::Look(Look::WordUnicode) if beside(index) => Hir::look(Look::WordAscii),
                    _ => ascii_boundaries(part),
                });
            Hir::concat(parts.collect())
        }
    }
}

/// Whether every match has an ASCII letter or digit at this end.
fn is_word_at(hir: &Hir, end: fn(&[Hir]) -> Option<&Hir>) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.iter().all(u8::is_ascii_alphanumeric),
        HirKind::Class(Class::Unicode(class)) => class.iter().all(|range| {
            range.end().is_ascii()
                && (range.start()..=range.end()).all(|c| c.is_ascii_alphanumeric())
        }),
        HirKind::Capture(capture) => is_word_at(&capture.sub, end),
        HirKind::Repetition(repetition) => repetition.min > 0 && is_word_at(&repetition.sub, end),
        HirKind::Concat(parts) => end(parts).is_some_and(|part| is_word_at(part, end)),
        HirKind::Alternation(parts) => parts.iter().all(|part| is_word_at(part, end)),
        HirKind::Class(Class::Bytes(_)) | HirKind::Empty | HirKind::Look(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use regex_automata::{Anchored, Input, meta};

    use super::super::search::Search;
    use super::*;

    fn matches(hir: &Hir, text: &str) -> Vec<std::ops::Range<usize>> {
        let regex = meta::Regex::builder().build_from_hir(hir).unwrap();
        regex.find_iter(text).map(|found| found.range()).collect()
    }

    fn found_by(sieve: &Search, input: &Input<'_>) -> bool {
        sieve.with(|regex, cache| regex.search_half_with(cache, input).is_some())
    }

    #[test]
    fn a_part_that_ascii_cannot_have_need_not_be_there() {
        for (pattern, text) in [
            ("(?:don’?t|do not) tell", "dont tell"),
            (r"yok\s{1,3}say(?:ın|ınız)?|x", "yok say"),
            ("(?:é*|ü)a", "a"),
            ("(?i)(é)?k", "K"),
        ] {
            let hir = regex_syntax::parse(pattern).unwrap();
            let all = 0..text.len();
            assert_eq!(matches(&for_ascii(&hir), text), [all], "{pattern}");
        }
    }

    fn pattern() -> impl Strategy<Value = String> {
        let leaf = select(vec![
            "a",
            "b",
            "é",
            "ab",
            "éa",
            "[aé]",
            "[^a]",
            ".",
            r"\s",
            r"\w",
            r"\b",
            r"\B",
            "(?i:k)",
            "_",
            " ",
            "^",
            "$",
            r"\p{Cyrillic}",
            r"[^\x00-\x7f]",
            "a{33}",
            ".{2,5}",
            r"\w{0,9}",
        ]);
        leaf.prop_map(str::to_owned)
            .prop_recursive(4, 24, 4, |inner| {
                let parts = || prop::collection::vec(inner.clone(), 1..4);
                prop_oneof![
                    parts().prop_map(|parts| parts.concat()),
                    parts().prop_map(|parts| format!("(?:{})", parts.join("|"))),
                    (
                        inner.clone(),
                        select(vec!["?", "*", "{1,2}", "+?", "{0,2}"])
                    )
                        .prop_map(|(part, times)| format!("({part}){times}")),
                ]
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// In text that is all ASCII a pattern matches as it does without what only other text can have.
        #[test]
        fn ascii_text_is_matched_the_same(pattern in pattern(), text in "[abkK_ .]{0,10}") {
            if let Ok(hir) = regex_syntax::parse(&pattern) {
                prop_assert_eq!(matches(&for_ascii(&hir), &text), matches(&hir, &text), "{}", pattern);
            }
        }

        /// A sieve lets every match through, whether all that is known is where it ends at the latest, or where it begins too.
        #[test]
        fn a_sieve_lets_every_match_through(pattern in pattern(), text in "[abkKéж’_ .\u{212a}\u{1f600}]{0,12}|a{30,40}") {
            if let Ok(hir) = regex_syntax::parse(&pattern) {
                let sieve = Search::new(&coarse(&hir)).unwrap();
                for found in matches(&hir, &text) {
                    let known = Input::new(&text).range(found.clone()).anchored(Anchored::Yes);
                    prop_assert!(found_by(&sieve, &known), "{} in {:?} at {:?}", pattern, text, found);
                    let before = Input::new(&text).range(..found.end);
                    prop_assert!(found_by(&sieve, &before), "{} in {:?} at {:?}", pattern, text, found);
                }
            }
        }
    }
}
