//! Finds which of many literals occur in a text, in one pass.
//!
//! A bitmap says for a four-byte window of the text whether some literal has such a window. Windows
//! are independent of each other, so the processor works on many at once, and the pass costs the
//! same for ten literals as for a hundred; a thousand fill the bitmap enough to double it. Only windows at even offsets are looked at: every
//! literal is known by two of its windows, one for each way it can lie. A window that is in the
//! bitmap is looked up, and the literal compared in full, ignoring ASCII case.

use std::collections::HashMap;
use std::ops::Range;

use super::literals::{self, Literal, WINDOW};

/// 2^16 bits: 8 KiB, well inside the first-level cache.
const BITMAP_WORDS: usize = 1 << 10;

/// Bytes per step of the main loop.
const STRIDE: usize = 32;

/// Windows per step.
const WINDOWS: usize = STRIDE / 2;

#[derive(Debug)]
pub(super) struct LiteralFilter {
    bitmap: Box<[u64; BITMAP_WORDS]>,
    /// Sorted by the word of the bitmap that they are in.
    windows: Vec<Window>,
    /// Where the windows of each word start, and where the last ones end.
    starts: Vec<usize>,
    literals: Vec<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    folded: u32,
    literal: u32,
    /// Where the window starts in the literal; -1 if it starts a byte before.
    offset: i32,
}

#[derive(Debug)]
struct Known {
    literal: Literal,
    /// The factors that it is a literal of.
    factors: Vec<u16>,
}

impl Known {
    /// Whether the literal stands here.
    fn stands_at(&self, text: &[u8], from: usize) -> bool {
        let literal = &self.literal;
        let bytes = literal.text.as_bytes();
        let end = from + bytes.len();
        let Some(here) = text.get(from..end) else {
            return false;
        };
        let equal = if literal.exact {
            here == bytes
        } else {
            here.eq_ignore_ascii_case(bytes)
        };
        let is_word = |at: Option<usize>| {
            at.and_then(|at| text.get(at))
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        equal
            && !(literal.starts_word && is_word(from.checked_sub(1)))
            && !(literal.ends_word && is_word(Some(end)))
    }
}

impl LiteralFilter {
    /// A filter for the literals of each factor in turn.
    pub(super) fn new<'a>(factors: impl Iterator<Item = &'a [Literal]>) -> Self {
        let mut filter = Self {
            bitmap: Box::new([0; BITMAP_WORDS]),
            windows: Vec::new(),
            starts: Vec::new(),
            literals: Vec::new(),
        };
        let mut known = HashMap::new();
        for (factor, literals) in factors.enumerate() {
            for literal in literals {
                filter.add(literal, factor as u16, &mut known);
            }
        }
        let word = |window: &Window| slot(window.folded).0;
        filter.windows.sort_by_key(word);
        filter.starts = (0..=BITMAP_WORDS)
            .map(|start| {
                filter
                    .windows
                    .partition_point(|window| word(window) < start)
            })
            .collect();
        filter
    }

    fn add<'a>(
        &mut self,
        literal: &'a Literal,
        factor: u16,
        known: &mut HashMap<&'a Literal, usize>,
    ) {
        if let Some(index) = known.get(literal) {
            let factors = &mut self.literals[*index].factors;
            if !factors.contains(&factor) {
                factors.push(factor);
            }
            return;
        }
        let index = self.literals.len();
        known.insert(literal, index);
        let folded = literal.text.to_ascii_lowercase();
        for offset in literals::windows(folded.as_bytes()) {
            self.add_window(folded.as_bytes(), index as u32, offset);
        }
        self.literals.push(Known {
            literal: literal.clone(),
            factors: vec![factor],
        });
    }

    fn add_window(&mut self, literal: &[u8], index: u32, offset: i32) {
        let mut bytes = [None; WINDOW];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = usize::try_from(offset + place as i32)
                .ok()
                .and_then(|at| literal.get(at).copied());
        }
        // At most one byte of the window lies outside the literal, and can be anything there, the
        // end of the text included. Folding leaves half of the possible bytes.
        let outside = bytes.iter().any(Option::is_none);
        for any in 0..=u8::MAX {
            let folded = fold(u32::from_le_bytes(bytes.map(|byte| byte.unwrap_or(any))));
            let (word, bit) = slot(folded);
            self.bitmap[word] |= 1 << bit;
            let entry = Window {
                folded,
                literal: index,
                offset,
            };
            if any & 0x20 != 0 || !outside {
                self.windows.push(entry);
            }
            if !outside {
                break;
            }
        }
    }

    /// Calls `found` with each factor that has a literal in this part of the text, perhaps more than
    /// once. The part begins at an even place. A literal that lies across its ends is found in one of
    /// the parts.
    pub(super) fn scan(&self, text: &[u8], part: Range<usize>, mut found: impl FnMut(u16)) {
        if self.windows.is_empty() {
            return;
        }
        let mut base = part.start;
        // The last window of a step reaches two bytes past it.
        while base + STRIDE <= part.end
            && let Some(step) = text
                .get(base..)
                .and_then(<[u8]>::first_chunk::<{ STRIDE + 2 }>)
        {
            let mut hits = 0u32;
            for i in 0..WINDOWS {
                let at = 2 * i;
                let window =
                    u32::from_le_bytes([step[at], step[at + 1], step[at + 2], step[at + 3]]);
                let (word, bit) = slot(fold(window));
                hits |= ((self.bitmap[word] >> bit) as u32 & 1) << i;
            }
            while hits != 0 {
                let at = 2 * hits.trailing_zeros() as usize;
                self.check(text, base + at, &mut found);
                hits &= hits - 1;
            }
            base += STRIDE;
        }
        for start in (base..part.end).step_by(2) {
            let (word, bit) = slot(window_at(text, start));
            if (self.bitmap[word] >> bit) & 1 != 0 {
                self.check(text, start, &mut found);
            }
        }
    }

    #[cold]
    fn check(&self, text: &[u8], start: usize, found: &mut impl FnMut(u16)) {
        let folded = window_at(text, start);
        let (word, _) = slot(folded);
        let windows = &self.windows[self.starts[word]..self.starts[word + 1]];
        for window in windows.iter().filter(|window| window.folded == folded) {
            let known = &self.literals[window.literal as usize];
            let from = start.checked_add_signed(-window.offset as isize);
            if from.is_some_and(|from| known.stands_at(text, from)) {
                known.factors.iter().copied().for_each(&mut *found);
            }
        }
    }
}

/// The window that starts here; past the end there are zeros.
#[inline]
fn window_at(text: &[u8], start: usize) -> u32 {
    let here = &text[start..];
    let bytes = here.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; WINDOW];
        bytes[..here.len()].copy_from_slice(here);
        bytes
    });
    fold(u32::from_le_bytes(bytes))
}

/// Makes upper and lower case ASCII letters equal, and some other pairs too, which does no harm in
/// a filter.
#[inline]
const fn fold(window: u32) -> u32 {
    window | 0x2020_2020
}

#[inline]
const fn slot(folded: u32) -> (usize, u32) {
    let hash = folded.wrapping_mul(0x9E37_79B1) >> 16;
    ((hash >> 6) as usize, hash & 63)
}
