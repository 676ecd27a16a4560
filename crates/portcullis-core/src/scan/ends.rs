//! Which patterns ask for the beginning or the end of a text.
//!
//! Short texts are searched together, with [`BETWEEN`] before each and [`BEHIND`] behind it. `(?:^|[^0-9])` takes that as
//! well as the beginning: what such a pattern matches in a text, it matches among others too. Of one that is content with
//! nothing but the beginning, that cannot be said.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// What stands before each of the texts that are searched together, and at last: the end of a line and of a sentence, so
/// that nearly all that may stand before the first word may be found in it.
pub(crate) const BETWEEN: &str = "\n.\n";

/// What is certain to stand behind each.
const BEHIND: &str = "\n";

/// Whether a pattern may match a text, and not where the text stands between others.
pub(super) fn knows_ends(hir: &Hir) -> bool {
    match hir.kind() {
        _ if !has_ends(hir) => false,
        HirKind::Capture(capture) => knows_ends(&capture.sub),
        HirKind::Alternation(branches) => branches.iter().any(knows_ends),
        // Only what comes first can stand at the beginning, and only what comes last at the end.
        HirKind::Concat(parts) => match parts.as_slice() {
            [first, middle @ .., last] => {
                !takes_instead(first, Edge::Start)
                    || !takes_instead(last, Edge::End)
                    || middle.iter().any(has_ends)
            }
            _ => true,
        },
        _ => true,
    }
}

fn has_ends(hir: &Hir) -> bool {
    let looks = hir.properties().look_set();
    looks.contains(Look::Start) || looks.contains(Look::End)
}

/// A side of a text.
#[derive(Clone, Copy)]
enum Edge {
    Start,
    End,
}

/// Whether the first or last part of a pattern takes what stands beside the text wherever it takes this edge of it, and knows
/// nothing of the other edge.
fn takes_instead(hir: &Hir, edge: Edge) -> bool {
    match hir.kind() {
        _ if !has_ends(hir) => true,
        HirKind::Capture(capture) => takes_instead(&capture.sub, edge),
        HirKind::Concat(parts) => {
            let ((Edge::Start, [outer, others @ ..]) | (Edge::End, [others @ .., outer])) =
                (edge, parts.as_slice())
            else {
                return true;
            };
            takes_instead(outer, edge) && !others.iter().any(has_ends)
        }
        HirKind::Alternation(branches) => branches.iter().all(|branch| match branch.kind() {
            HirKind::Look(look) => {
                let (this, beside) = match edge {
                    Edge::Start => (Look::Start, BETWEEN.as_bytes()),
                    Edge::End => (Look::End, BEHIND.as_bytes()),
                };
                let mut lengths = 1..=beside.len();
                *look == this
                    && lengths.any(|len| match edge {
                        Edge::Start => takes_one(branches, &beside[beside.len() - len..]),
                        Edge::End => takes_one(branches, &beside[..len]),
                    })
            }
            _ => takes_instead(branch, edge),
        }),
        _ => false,
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
            (r"abc(?:\s?[.!]|$)", true),
            (r"abc(?:\s[.]|$)", true),
            (r"abc(?:x|y(?:\s|$))", false),
            (r"abc(?:\s|$)?", true),
            (r"\b(?:^|\s)abc", true),
            (r"(?:^|\s){2}abc", true),
            (r"(?:^|\s)(?:^|\s)abc", true),
            (r"abc(?:\s|$)\b", true),
            (r"(?:^|\s)abc|(?:^|[^a])def", false),
            (r"(?:$|\s)abc", true),
            ("(?:(?:abc|^def)|x)", true),
        ] {
            let hir = regex_syntax::parse(pattern).unwrap();
            assert_eq!(knows_ends(&hir), expected, "{pattern}");
        }
    }
}
