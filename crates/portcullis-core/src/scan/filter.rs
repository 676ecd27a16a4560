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

/// 2^20 bits: 128 KiB. Of few literals only a sixteenth is used, which is well inside the first-level
/// cache.
const BITMAP_WORDS: usize = 1 << 14;

/// With more windows all of it is used.
const FEW_WINDOWS: usize = 4 << 10;

/// Leaves 20 bits of a hash.
const FULL_SHIFT: u32 = 12;

/// Bytes per step of the main loop.
const STRIDE: usize = 32;

/// Windows per step.
const WINDOWS: usize = STRIDE / 2;

#[derive(Debug)]
pub(super) struct LiteralFilter {
    bitmap: Box<[u64]>,
    /// How much of a hash names a bit.
    shift: u32,
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
    /// A filter for these literals, each with the number of a factor that it is one of.
    pub(super) fn new<'a>(literals: impl Iterator<Item = (u16, &'a Literal)>) -> Self {
        let mut filter = Self {
            bitmap: vec![0; BITMAP_WORDS].into_boxed_slice(),
            shift: FULL_SHIFT,
            windows: Vec::new(),
            starts: Vec::new(),
            literals: Vec::new(),
        };
        let mut known = HashMap::new();
        for (factor, literal) in literals {
            filter.add(literal, factor, &mut known);
        }
        if filter.windows.len() <= FEW_WINDOWS {
            filter.shift += 4;
        }
        filter.index();
        filter
    }

    fn index(&mut self) {
        let shift = self.shift;
        for window in &self.windows {
            let (word, bit) = slot(window.folded, shift);
            self.bitmap[word] |= 1 << bit;
        }
        let word = |window: &Window| slot(window.folded, shift).0;
        self.windows.sort_by_key(word);
        self.starts = (0..=BITMAP_WORDS)
            .map(|start| self.windows.partition_point(|window| word(window) < start))
            .collect();
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
            self.add_window(literal, folded.as_bytes(), index as u32, offset);
        }
        self.literals.push(Known {
            literal: literal.clone(),
            factors: vec![factor],
        });
    }

    fn add_window(&mut self, literal: &Literal, folded: &[u8], index: u32, offset: i32) {
        let mut bytes = [None; WINDOW];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = usize::try_from(offset + place as i32)
                .ok()
                .and_then(|at| folded.get(at).copied());
        }
        let mut add = |bytes: [u8; WINDOW]| {
            self.windows.push(Window {
                folded: fold(u32::from_le_bytes(bytes)),
                literal: index,
                offset,
            });
        };
        if bytes.iter().all(Option::is_some) {
            return add(bytes.map(Option::unwrap_or_default));
        }
        // At most one byte of the window lies outside the literal. It can be anything there, the end
        // of the text included, but no part of a word where the literal has none beside it.
        let beside_word = match offset {
            -1 => !literal.starts_word,
            _ => !literal.ends_word,
        };
        let mut seen = [false; 256];
        for any in 0..=u8::MAX {
            let folded = usize::from(any | 0x20);
            let possible = beside_word || !(any.is_ascii_alphanumeric() || any == b'_');
            if possible && !seen[folded] {
                seen[folded] = true;
                add(bytes.map(|byte| byte.unwrap_or(any)));
            }
        }
    }

    /// Calls `found` with each factor that has a literal in this part of the text, and where, perhaps
    /// more than once. The part begins at an even place. A literal that lies across its ends is found in one of
    /// the parts.
    pub(super) fn scan(
        &self,
        text: &[u8],
        part: Range<usize>,
        mut found: impl FnMut(u16, usize, bool),
    ) {
        if self.windows.is_empty() {
            return;
        }
        let shift = self.shift;
        let Some(bitmap) = self.bitmap.first_chunk::<BITMAP_WORDS>() else {
            return;
        };
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
                let (word, bit) = slot(fold(window), shift);
                hits |= ((bitmap[word] >> bit) as u32 & 1) << i;
            }
            while hits != 0 {
                let at = 2 * hits.trailing_zeros() as usize;
                self.check(text, base + at, &mut found);
                hits &= hits - 1;
            }
            base += STRIDE;
        }
        for start in (base..part.end).step_by(2) {
            let (word, bit) = slot(window_at(text, start), shift);
            if (bitmap[word] >> bit) & 1 != 0 {
                self.check(text, start, &mut found);
            }
        }
    }

    #[cold]
    fn check(&self, text: &[u8], start: usize, found: &mut impl FnMut(u16, usize, bool)) {
        let folded = window_at(text, start);
        let (word, _) = slot(folded, self.shift);
        let windows = &self.windows[self.starts[word]..self.starts[word + 1]];
        for window in windows.iter().filter(|window| window.folded == folded) {
            let known = &self.literals[window.literal as usize];
            if let Some(from) = start.checked_add_signed(-window.offset as isize)
                && known.stands_at(text, from)
            {
                for factor in &known.factors {
                    found(*factor, from, known.literal.first);
                }
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
const fn slot(folded: u32, shift: u32) -> (usize, u32) {
    let hash = folded.wrapping_mul(0x9E37_79B1) >> shift;
    ((hash >> 6) as usize % BITMAP_WORDS, hash & 63)
}
