//! How long a stretch without white space is in every match of a pattern.

use regex_syntax::hir::{Class, Hir, HirKind};

/// The fewest characters without a blank that follow each other in every match.
pub(super) fn longest(hir: &Hir) -> usize {
    let (longest, _, _) = unbroken_runs(hir);
    longest
}

/// The longest run anywhere, the one at the start and the one at the end; a part that is one run has
/// its length in all three.
fn unbroken_runs(hir: &Hir) -> (usize, usize, usize) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => (0, 0, 0),
        HirKind::Literal(literal) => {
            let blank = literal.0.iter().any(|byte| *byte <= b' ');
            let len = if blank { 0 } else { literal.0.len() };
            (len, len, len)
        }
        HirKind::Class(Class::Unicode(class)) => {
            let blank = class.iter().any(|range| range.start() <= ' ');
            let len = usize::from(!blank);
            (len, len, len)
        }
        HirKind::Capture(capture) => unbroken_runs(&capture.sub),
        HirKind::Repetition(repetition) => {
            let min = repetition.min as usize;
            let sub = &repetition.sub;
            let one = unbroken_runs(sub);
            let whole = is_unbroken(sub);
            match min {
                0 => (0, 0, 0),
                _ if whole => {
                    let all = one.0.saturating_mul(min);
                    (all, all, all)
                }
                _ => one,
            }
        }
        HirKind::Alternation(branches) => {
            let runs = branches.iter().map(unbroken_runs);
            let least = |a: (usize, usize, usize), b: (usize, usize, usize)| {
                (a.0.min(b.0), a.1.min(b.1), a.2.min(b.2))
            };
            runs.reduce(least).unwrap_or_default()
        }
        HirKind::Concat(parts) => {
            let (mut longest, mut start, mut end) = (0, 0, 0);
            let mut all = true;
            for part in parts {
                let (inside, first, last) = unbroken_runs(part);
                longest = longest.max(inside).max(end + first);
                let whole = is_unbroken(part);
                if all {
                    start += first;
                }
                end = if whole { end + last } else { last };
                all &= whole;
            }
            (longest, start, end)
        }
    }
}

/// Whether no match has a blank in it, so that what stands around it goes on through it.
fn is_unbroken(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => literal.0.iter().all(|byte| *byte > b' '),
        HirKind::Class(Class::Unicode(class)) => class.iter().all(|range| range.start() > ' '),
        HirKind::Class(_) => false,
        HirKind::Capture(capture) => is_unbroken(&capture.sub),
        HirKind::Repetition(repetition) => is_unbroken(&repetition.sub),
        HirKind::Alternation(parts) | HirKind::Concat(parts) => parts.iter().all(is_unbroken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_characters_that_follow_each_other_are_counted() {
        for (pattern, expected) in [
            ("abc", 3),
            (r"[A-Z]{40}\b", 40),
            ("key=[A-Z]{20,}", 24),
            (r"(?:ab|[0-9]{9})x", 3),
            (r"a\s?bcd", 3),
            ("(?:ab-){10}", 30),
            ("(?:a b){10}", 0),
            ("x?abc", 3),
        ] {
            let hir = regex_syntax::parse(pattern).unwrap();
            assert_eq!(longest(&hir), expected, "{pattern}");
        }
    }
}
