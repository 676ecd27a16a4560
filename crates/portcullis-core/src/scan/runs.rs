//! How long a match can be in a given text.
//!
//! `ignore\s+previous` has no longest match, but in a text whose blanks are never more than two in a
//! row it has.

use std::ops::ControlFlow;

use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

use super::blocks;

/// Where the next stretch of at least `len` such bytes begins, at or after `from`; none of them is blank. Looks closer only where so
/// many bytes follow each other without a blank.
pub(crate) fn next_stretch(
    bytes: &[u8],
    from: usize,
    len: usize,
    is: impl Fn(u8) -> bool,
) -> Option<usize> {
    let mut start = from;
    loop {
        start += next_solid(bytes.get(start..)?, len)?;
        let stretch = bytes.get(start..start + len)?;
        match stretch.iter().rposition(|byte| !is(*byte)) {
            None => return Some(start),
            // What stands behind it is not looked at again before there is something new.
            Some(other) => start += other + 1,
        }
    }
}

/// Where the first `len` bytes without a blank begin.
fn next_solid(bytes: &[u8], len: usize) -> Option<usize> {
    // Wherever a stretch lies that is all in one block, it takes in the middle.
    let middle = first_bits(len) & !first_bits(blocks::BLOCK.saturating_sub(len));
    // Solid bytes up to the block at hand.
    let mut before = 0;
    blocks::each(bytes, blocks::BLANK, |at, blank| {
        let ahead = before + blank.trailing_zeros() as usize;
        if ahead >= len {
            return ControlFlow::Break(at - before);
        }
        before = match blank {
            0 => ahead,
            _ => blank.leading_zeros() as usize,
        };
        let inside = if blank & middle == 0 {
            first_run(!blank, len)
        } else {
            None
        };
        inside.map_or(ControlFlow::Continue(()), |place| {
            ControlFlow::Break(at + place)
        })
    })
}

/// So many bits, from the lowest on.
const fn first_bits(count: usize) -> u32 {
    if count < blocks::BLOCK {
        (1 << count) - 1
    } else {
        u32::MAX
    }
}

/// Where the first `len` bits in a row begin.
fn first_run(bits: u32, len: usize) -> Option<usize> {
    // Each bit that is left begins so many.
    let (mut left, mut so_many) = (bits, 1);
    while so_many < len && left != 0 {
        let more = so_many.min(len - so_many);
        left &= left.checked_shr(more as u32).unwrap_or(0);
        so_many += more;
    }
    (left != 0).then(|| left.trailing_zeros() as usize)
}

/// A run that fills no block is shorter than two of them.
const BLOCK: usize = 16;

/// How many bytes of a kind follow each other in a text, at most. What is not ASCII counts as all
/// kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Runs {
    blank: usize,
    solid: usize,
    line: usize,
}

impl Runs {
    /// In whole blocks: a byte at a time this would take longer than everything else.
    pub(super) fn of(text: &str) -> Self {
        let longest = |is: fn(u8) -> bool| {
            let (mut longest, mut current) = (0, 0);
            for block in text.as_bytes().chunks(BLOCK) {
                let count: u8 = block.iter().map(|byte| u8::from(is(*byte))).sum();
                let full = usize::from(count) == block.len();
                current = if full { current + 1 } else { 0 };
                longest = longest.max(current);
            }
            (longest + 2) * BLOCK
        };
        Self {
            blank: longest(|byte| byte <= b' ' || !byte.is_ascii()),
            solid: longest(|byte| !matches!(byte, b' ' | b'\t'..=b'\r' | 0x1c..=0x1f)),
            line: text.split('\n').map(str::len).max().unwrap_or(0),
        }
    }
}

/// How long a match can be: so many bytes, and so many runs of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Length {
    bytes: usize,
    runs: Runs,
}

impl Length {
    /// Of a pattern's matches; `None` if no text limits them.
    pub(super) fn of(hir: &Hir) -> Option<Self> {
        if let Some(bytes) = hir.properties().maximum_len() {
            return Some(Self {
                bytes,
                ..Self::default()
            });
        }
        match hir.kind() {
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Concat(parts) => parts.iter().try_fold(Self::default(), |sum, part| {
                Some(sum.zip(Self::of(part)?, usize::saturating_add))
            }),
            HirKind::Alternation(parts) => parts.iter().try_fold(Self::default(), |max, part| {
                Some(max.zip(Self::of(part)?, usize::max))
            }),
            HirKind::Repetition(repetition) => match (repetition.max, repetition.sub.kind()) {
                (Some(max), _) => {
                    let round = Self::of(&repetition.sub)?;
                    Some(round.zip(round, |len, _| len.saturating_mul(max as usize)))
                }
                (None, HirKind::Class(Class::Unicode(class))) => Self::of_run(class),
                (None, _) => None,
            },
            HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => None,
        }
    }

    /// Of a run of such characters.
    fn of_run(class: &ClassUnicode) -> Option<Self> {
        let ascii = || ('\0'..='\x7f').filter(|c| has(class, *c));
        let mut runs = Runs::default();
        if ascii().all(is_blank) {
            runs.blank = 1;
        } else if !ascii().any(is_blank) {
            runs.solid = 1;
        } else if !has(class, '\n') {
            runs.line = 1;
        } else {
            return None;
        }
        Some(Self { bytes: 0, runs })
    }

    fn zip(self, other: Self, with: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            bytes: with(self.bytes, other.bytes),
            runs: Runs {
                blank: with(self.runs.blank, other.runs.blank),
                solid: with(self.runs.solid, other.runs.solid),
                line: with(self.runs.line, other.runs.line),
            },
        }
    }

    /// In bytes, in a text with these runs.
    pub(super) fn within(self, text: Runs) -> usize {
        let Self { bytes, runs } = self;
        bytes
            .saturating_add(runs.blank.saturating_mul(text.blank))
            .saturating_add(runs.solid.saturating_mul(text.solid))
            .saturating_add(runs.line.saturating_mul(text.line))
    }
}

fn has(class: &ClassUnicode, c: char) -> bool {
    class
        .iter()
        .any(|range| range.start() <= c && c <= range.end())
}

/// Whether `\s` takes it, of ASCII.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r' | '\x1c'..='\x1f')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn max(regex: &str, text: &str) -> Option<usize> {
        let length = Length::of(&regex_syntax::parse(regex).unwrap())?;
        Some(length.within(Runs::of(text)))
    }

    #[test]
    fn a_text_limits_what_has_no_end() {
        let text = "two  blanks\nand awordofseventeenlettersthenmore";
        let max = |regex: &str| max(regex, text);
        assert_eq!(max(r"a\s+b"), Some(2 + 2 * BLOCK));
        assert_eq!(max(r"(\w+\s){2}"), Some(2 * (4 * BLOCK + 3)));
        assert_eq!(max("a.*b|c"), Some(2 + 35));
        assert_eq!(max("(?s)a.*b"), None);
        assert_eq!(max("(?:ab)+"), None);
    }

    const PATTERNS: &[&str] = &[r"a\s+b", r"\w+\s*b", "a.*b", r"(?:a\s+|[^ b\n]+)é", r"\S+"];

    proptest! {
        #[test]
        fn the_next_stretch_is_the_first_that_is_long_enough(
            text in "([a ]{0,40}|a{10,40}| ){0,6}",
            from in 0usize..10,
            len in prop_oneof![1usize..6, 12usize..36],
        ) {
            let from = from.min(text.len());
            let found = next_stretch(text.as_bytes(), from, len, |byte| byte == b'a');
            let expected = text[from..].find(&"a".repeat(len)).map(|at| from + at);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_match_is_longer(
            text in "([ab\n\té\u{a0}_]{0,20}|[ \u{a0}]{0,40}|[a_é]{0,40}){0,4}",
            pattern in prop::sample::select(PATTERNS.to_vec()),
        ) {
            let max = max(pattern, &text).unwrap();
            for found in regex::Regex::new(pattern).unwrap().find_iter(&text) {
                prop_assert!(found.len() <= max, "{} in {:?}", pattern, text);
            }
        }
    }
}
