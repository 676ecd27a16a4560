//! Which patterns ask for the beginning or the end of a text.
//!
//! Short texts are searched together, with [`BETWEEN`] between them. `(?:^|[^0-9])` takes that as well as the beginning: what
//! such a pattern matches in a text, it matches among others too. Of one that is content with nothing but the
//! beginning, that cannot be said.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// What stands between texts that are searched together: the end of a line and of a sentence, so that nearly all
/// that may stand before the first word may be found in it.
pub(crate) const BETWEEN: &str = "\n.\n";

/// Whether a pattern may match a text, and not where the text stands between others.
pub(super) fn knows_ends(hir: &Hir) -> bool {
    let looks = hir.properties().look_set();
    if !looks.contains(Look::Start) && !looks.contains(Look::End) {
        return false;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => false,
        HirKind::Look(look) => matches!(look, Look::Start | Look::End),
        HirKind::Repetition(repetition) => knows_ends(&repetition.sub),
        HirKind::Capture(capture) => knows_ends(&capture.sub),
        HirKind::Concat(parts) => parts.iter().any(knows_ends),
        HirKind::Alternation(branches) => {
            let between = BETWEEN.as_bytes();
            let mut lengths = 1..=between.len();
            let starts = lengths.clone().map(|len| &between[between.len() - len..]);
            let start = starts.fold(false, |any, text| any || takes_one(branches, text));
            let end = lengths.any(|len| takes_one(branches, &between[..len]));
            branches.iter().any(|branch| match branch.kind() {
                HirKind::Look(Look::Start) => !start,
                HirKind::Look(Look::End) => !end,
                _ => knows_ends(branch),
            })
        }
    }
}

/// Whether one of them takes a text, all of it.
fn takes_one(branches: &[Hir], text: &[u8]) -> bool {
    let all = 1 << text.len();
    branches.iter().any(|one| ends(one, text, 1) & all != 0)
}

/// Where a part of a pattern may end in a short text, given where it may begin: a bit for each place. Looks around are
/// taken for what fails.
fn ends(hir: &Hir, text: &[u8], begins: u8) -> u8 {
    let after = |len: usize, is: &dyn Fn(usize) -> bool| {
        let places = (0..text.len()).filter(|at| begins >> at & 1 != 0 && is(*at));
        places.fold(0, |ends, at| ends | 1 << (at + len))
    };
    match hir.kind() {
        HirKind::Empty => begins,
        HirKind::Look(_) => 0,
        HirKind::Literal(literal) => {
            after(literal.0.len(), &|at| text[at..].starts_with(&literal.0))
        }
        HirKind::Class(Class::Unicode(class)) => after(1, &|at| {
            let mut ranges = class.iter();
            ranges.any(|range| (range.start()..=range.end()).contains(&char::from(text[at])))
        }),
        HirKind::Class(Class::Bytes(class)) => after(1, &|at| {
            let mut ranges = class.iter();
            ranges.any(|range| (range.start()..=range.end()).contains(&text[at]))
        }),
        HirKind::Repetition(repetition) => {
            let (mut places, mut reached) = (begins, 0);
            // More rounds than the text has bytes lead nowhere new.
            let most = repetition.max.unwrap_or(u32::MAX);
            let rounds = text.len() as u32 + repetition.min;
            for round in 0..=most.min(rounds) {
                if round >= repetition.min {
                    reached |= places;
                }
                places = ends(&repetition.sub, text, places);
            }
            reached
        }
        HirKind::Capture(capture) => ends(&capture.sub, text, begins),
        HirKind::Concat(parts) => parts
            .iter()
            .fold(begins, |begins, part| ends(part, text, begins)),
        HirKind::Alternation(branches) => branches
            .iter()
            .fold(0, |all, branch| all | ends(branch, text, begins)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_unless_what_stands_between_texts_will_do() {
        for (pattern, expected) in [
            ("abc", false),
            (r"\babc\b", false),
            ("(?m)^abc$", false),
            ("^abc", true),
            (r"abc\z", true),
            ("(?:^|[^0-9])[0-9]{4}", false),
            ("(?:^|[^0-9] ?)[0-9]{4}", false),
            ("(?:^|[^0-9] )[0-9]{4}", true),
            (r"(?:^|[.!?]\s{0,3})abc", false),
            (r"(?:^|[.!?]\s{2,3})abc", true),
            (r"(?:^|\s{3})abc", true),
            (r"(?:^|\s[.]\s)abc", false),
            ("(?:^|x)abc", true),
            ("(?:^|(?:^|[^0-9]) |[a-z])abc", true),
            (r"(?:^|(?:^|[^0-9]) |\s)abc", false),
            (r"abc(?:\s|$|[;&])", false),
            (r"abc(?:[;&]|$)", true),
            (r"abc(?:\.|$)", true),
            ("(?:(?:abc|^def)|x)", true),
        ] {
            let hir = regex_syntax::parse(pattern).unwrap();
            assert_eq!(knows_ends(&hir), expected, "{pattern}");
        }
    }
}
