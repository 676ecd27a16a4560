//! Finds which of many literals occur in a text, in one pass.
//!
//! A bitmap says for a four-byte window of the text whether some literal has such a window. Windows
//! are independent of each other, so the processor works on many at once, and the pass costs the
//! same for ten literals as for thousands. Only windows at even offsets are looked at: every
//! literal is known by two of its windows, one for each way it can lie. A window that is in the
//! bitmap is looked up, and the literal compared, ignoring ASCII case, together with the bytes beside
//! it. What takes the time there is waiting for memory, so that all it needs lies close together.

use std::collections::HashMap;
use std::ops::Range;

use super::PatternId;
use super::literals::{self, Literal, WINDOW};
use super::neighbours::{self, Neighbours, Sides};
use super::screen::ScreenId;

/// 2^20 bits: 128 KiB. Of few literals only a sixteenth is used, which is well inside the first-level
/// cache.
const BITMAP_WORDS: usize = 1 << 14;

/// With more windows all of it is used.
const FEW_WINDOWS: usize = 4 << 10;

/// The words of the bitmap that few literals use.
const FEW_WORDS: usize = BITMAP_WORDS / 16;

/// Bytes per step of the main loop.
const STRIDE: usize = 32;

/// The last window of a step reaches two bytes past it.
const STEP: usize = STRIDE + WINDOW - 2;

/// Windows per step.
const WINDOWS: usize = STRIDE / 2;

#[derive(Debug)]
pub(super) struct LiteralFilter {
    bitmap: Box<[u64]>,
    /// Of a word's number, the bits that count.
    words: usize,
    /// Sorted by the word of the bitmap that they are in.
    windows: Vec<Window>,
    /// Where the windows of each word start, and where the last ones end.
    starts: Vec<u32>,
    /// One for each literal.
    gates: Vec<Gate>,
    literals: Vec<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    folded: u32,
    literal: u32,
    /// Where the window starts in the literal; -1 if it starts a byte before.
    offset: i32,
}

/// What is looked at wherever a literal may stand: no more than the processor loads at once.
#[derive(Debug)]
#[repr(align(64))]
struct Gate {
    /// The first eight bytes, folded.
    head: u64,
    /// What may stand beside it, whatever it announces.
    neighbours: Neighbours,
    len: usize,
}

#[derive(Debug)]
struct Known {
    /// The last eight bytes, folded.
    tail: u64,
    literal: Literal,
    announces: Vec<Announced>,
}

/// The first eight bytes, folded; past the end there are zeros.
#[inline]
fn head(text: &[u8]) -> u64 {
    let bytes = text.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text);
        bytes
    });
    u64::from_le_bytes(bytes) | 0x2020_2020_2020_2020
}

/// What a filter looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Literals of ASCII, where only [plain](is_plain) bytes stand beside them.
    Plain,
    /// All others, and all where something else does.
    Other,
}

/// Whether all bytes are plain.
pub(super) fn is_all_plain(text: &[u8]) -> bool {
    /// Without a way out in between, the compiler compares many bytes at once.
    const BLOCK: usize = 64;
    let plain = |part: &[u8]| part.iter().fold(true, |all, byte| all & is_plain(*byte));
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    blocks.iter().all(|block| plain(block)) && plain(rest)
}

/// Whether a byte is ASCII, and no control character other than white space.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' '..=b'~')
}

/// What a literal announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) pattern: PatternId,
    /// What the text around the literal must pass.
    pub(super) screen: ScreenId,
    /// The most bytes of a match that can stand before it; `None` if there is no limit.
    pub(super) max_before: Option<u32>,
    pub(super) neighbours: Neighbours,
}

impl Gate {
    fn new(literal: &Literal, neighbours: Neighbours) -> Self {
        let bytes = literal.text.as_bytes();
        Self {
            head: head(bytes),
            neighbours,
            len: bytes.len(),
        }
    }

    /// Whether the literal may stand here, by its first eight bytes and what stands beside it.
    #[inline]
    fn is_open_at(&self, text: &[u8], from: usize) -> bool {
        const SIDE: usize = neighbours::SIDE;
        let to = from.wrapping_add(self.len.max(SIDE) + SIDE);
        let near = text.get(from.wrapping_sub(SIDE)..to);
        let Some((before, here)) = near.and_then(<[u8]>::split_first_chunk) else {
            return self.is_open_near_end(text, from);
        };
        let after = here.get(self.len..).and_then(<[u8]>::first_chunk);
        self.begins(here)
            && after.is_none_or(|after| self.neighbours.allow(&Sides::of(*before, *after)))
    }

    #[cold]
    fn is_open_near_end(&self, text: &[u8], from: usize) -> bool {
        let at = from..from.wrapping_add(self.len);
        text.get(at.clone()).is_some()
            && text.get(from..).is_some_and(|here| self.begins(here))
            && self.neighbours.allow(&Sides::at(text, &at))
    }

    /// Whether this begins with the first eight bytes.
    #[inline]
    fn begins(&self, here: &[u8]) -> bool {
        let mask = u64::MAX >> (64 - 8 * self.len.min(8));
        (head(here) ^ self.head) & mask == 0
    }
}

impl Known {
    /// Calls `found` with what the literal announces, if all of it stands here, and where it can be part
    /// of a match.
    #[inline(never)]
    fn announce(&self, text: &[u8], from: usize, found: &mut impl FnMut(Range<usize>, &Announced)) {
        let at = from..from + self.literal.text.len();
        if self.is_all_at(text, from) {
            let beside = Sides::at(text, &at);
            let announces = self.announces.iter();
            let allowed = announces.filter(|one| one.neighbours.allow(&beside));
            allowed.for_each(|one| found(at.clone(), one));
        }
    }

    fn is_all_at(&self, text: &[u8], from: usize) -> bool {
        let literal = &self.literal;
        let bytes = literal.text.as_bytes();
        let end = from + bytes.len();
        let Some(here) = text.get(from..end) else {
            return false;
        };
        match bytes.len() {
            _ if literal.exact => here == bytes,
            // What folding makes equal does no harm.
            ..=8 => true,
            9..=16 => head(&here[here.len() - 8..]) == self.tail,
            _ => here.eq_ignore_ascii_case(bytes),
        }
    }
}

impl LiteralFilter {
    /// A filter for these literals, each with what it announces, wherever such a byte may stand beside
    /// them.
    pub(super) fn new<'a>(
        literals: impl Iterator<Item = (Announced, &'a Literal)>,
        beside: Beside,
    ) -> Self {
        let mut filter = Self {
            bitmap: vec![0; BITMAP_WORDS].into_boxed_slice(),
            words: BITMAP_WORDS - 1,
            windows: Vec::new(),
            starts: Vec::new(),
            gates: Vec::new(),
            literals: Vec::new(),
        };
        for (gate, known) in together(literals) {
            filter.add(gate, known, beside);
        }
        if filter.windows.len() <= FEW_WINDOWS {
            filter.words = FEW_WORDS - 1;
        }
        filter.index();
        filter.windows.shrink_to_fit();
        filter.gates.shrink_to_fit();
        filter.literals.shrink_to_fit();
        filter
    }

    fn index(&mut self) {
        let words = self.words;
        for window in &self.windows {
            let (word, bit) = slot(window.folded, words);
            self.bitmap[word] |= 1 << bit;
        }
        let word = |window: &Window| slot(window.folded, words).0;
        self.windows.sort_by_key(word);
        self.starts = (0..=BITMAP_WORDS)
            .map(|start| self.windows.partition_point(|window| word(window) < start) as u32)
            .collect();
    }

    fn add(&mut self, gate: Gate, known: Known, beside: Beside) {
        let index = self.literals.len() as u32;
        let folded = known.literal.text.to_ascii_lowercase();
        let before = self.windows.len();
        for offset in literals::windows(folded.as_bytes()) {
            self.add_window(&gate, folded.as_bytes(), index, offset, beside);
        }
        if self.windows.len() > before {
            self.gates.push(gate);
            self.literals.push(known);
        }
    }

    fn add_window(&mut self, gate: &Gate, folded: &[u8], index: u32, offset: i32, beside: Beside) {
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
        let ascii = folded.is_ascii();
        if bytes.iter().all(Option::is_some) {
            if ascii == (beside == Beside::Plain) {
                add(bytes.map(Option::unwrap_or_default));
            }
            return;
        }
        // At most one byte of the window lies outside the literal. The end of the text reads as a zero.
        let mut seen = [false; 256];
        for any in 0..=u8::MAX {
            let wanted = match beside {
                Beside::Plain => any == 0 || is_plain(any),
                Beside::Other => !ascii || !is_plain(any),
            };
            let possible = match offset {
                -1 => gate.neighbours.may_be_before(any),
                _ => any == 0 || gate.neighbours.may_be_after(any),
            };
            let folded = usize::from(any | 0x20);
            if wanted && possible && !seen[folded] {
                seen[folded] = true;
                add(bytes.map(|byte| byte.unwrap_or(any)));
            }
        }
    }

    /// Calls `found` with each literal in the text, where it is and what it announces there, in no order.
    pub(super) fn scan(&self, text: &[u8], mut found: impl FnMut(Range<usize>, &Announced)) {
        if self.windows.is_empty() {
            return;
        }
        let Some(bitmap) = self.bitmap.first_chunk::<BITMAP_WORDS>() else {
            return;
        };
        let mut base = 0;
        while let Some(step) = text.get(base..).and_then(<[u8]>::first_chunk::<STEP>) {
            let hits = windows_in(bitmap, step, self.words);
            self.check_all(text, base, hits, &mut found);
            base += STRIDE;
        }
        // Past the end there are zeros, and no window begins there.
        while base < text.len() {
            let mut step = [0; STEP];
            let rest = &text[base..text.len().min(base + STEP)];
            step[..rest.len()].copy_from_slice(rest);
            let hits = windows_in(bitmap, &step, self.words) & first(rest.len().div_ceil(2));
            self.check_all(text, base, hits, &mut found);
            base += STRIDE;
        }
    }

    #[inline]
    fn check_all(
        &self,
        text: &[u8],
        base: usize,
        mut hits: u32,
        found: &mut impl FnMut(Range<usize>, &Announced),
    ) {
        while hits != 0 {
            let at = 2 * hits.trailing_zeros() as usize;
            self.check(text, base + at, found);
            hits &= hits - 1;
        }
    }

    #[inline]
    fn check(&self, text: &[u8], start: usize, found: &mut impl FnMut(Range<usize>, &Announced)) {
        let folded = window_at(text, start);
        let (word, _) = slot(folded, self.words);
        let (Some(first), Some(end)) = (self.starts.get(word), self.starts.get(word + 1)) else {
            return;
        };
        let windows = self.windows.get(*first as usize..*end as usize);
        for window in windows.unwrap_or_default() {
            if window.folded != folded {
                continue;
            }
            let literal = window.literal as usize;
            let from = start.wrapping_add_signed(-window.offset as isize);
            if self.gates[literal].is_open_at(text, from) {
                self.literals[literal].announce(text, from, found);
            }
        }
    }
}

/// Each literal once, with all it announces.
fn together<'a>(literals: impl Iterator<Item = (Announced, &'a Literal)>) -> Vec<(Gate, Known)> {
    let mut all: Vec<(Gate, Known)> = Vec::new();
    let mut places = HashMap::new();
    for (announced, literal) in literals {
        let neighbours = announced
            .neighbours
            .apart_from_words(literal.starts_word, literal.ends_word);
        let place = *places.entry(literal).or_insert(all.len());
        let Some((gate, known)) = all.get_mut(place) else {
            let bytes = literal.text.as_bytes();
            let known = Known {
                tail: head(&bytes[bytes.len().saturating_sub(8)..]),
                literal: literal.clone(),
                announces: vec![announced],
            };
            all.push((Gate::new(literal, neighbours), known));
            continue;
        };
        gate.neighbours = gate.neighbours.or(neighbours);
        let same = |one: &&mut Announced| {
            (one.pattern, one.screen) == (announced.pattern, announced.screen)
        };
        match known.announces.iter_mut().find(same) {
            Some(one) => {
                let both = one.max_before.zip(announced.max_before);
                one.max_before = both.map(|(one, other)| one.max(other));
                one.neighbours = one.neighbours.or(announced.neighbours);
            }
            None => known.announces.push(announced),
        }
    }
    all
}

/// Which windows of a step are in the bitmap, the first in the lowest bit.
#[inline]
fn windows_in(bitmap: &[u64; BITMAP_WORDS], step: &[u8; STEP], words: usize) -> u32 {
    (0..WINDOWS).rev().fold(0, |hits, window| {
        let at = 2 * window;
        let window = u32::from_le_bytes([step[at], step[at + 1], step[at + 2], step[at + 3]]);
        let (word, bit) = slot(fold(window), words);
        hits << 1 | (bitmap[word] >> bit) as u32 & 1
    })
}

/// The bits of the first so many windows of a step.
const fn first(windows: usize) -> u32 {
    if windows < WINDOWS {
        (1 << windows) - 1
    } else {
        u32::MAX
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

/// The word of the bitmap that a window is in, and its bit there.
#[inline]
const fn slot(folded: u32, words: usize) -> (usize, u32) {
    /// The upper bits of a hash are the good ones.
    const WORD_SHIFT: u32 = u32::BITS - BITMAP_WORDS.trailing_zeros();
    let hash = folded.wrapping_mul(0x9E37_79B1);
    let word = (hash >> WORD_SHIFT) as usize & words;
    (
        word,
        (hash >> (WORD_SHIFT - u64::BITS.trailing_zeros())) & (u64::BITS - 1),
    )
}
