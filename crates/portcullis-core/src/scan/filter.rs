//! Finds which of many literals occur in a text, in one pass.
//!
//! A [bitmap](super::bitmap) says for a four-byte window of the text whether some literal has such a window. Only
//! windows at even offsets are looked at: every literal is known by two of its windows, one for each way it can
//! lie. Where a window is in the bitmap, the literal is compared, ignoring ASCII case, together with the bytes
//! beside it. Everyday words are literals too, so that there is something to compare every dozen bytes; what
//! stands near the window and beside the literal settles nearly all of it.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor at hand"
)]

use std::collections::HashMap;
use std::ops::Range;

use super::PatternId;
use super::bitmap::{Bitmap, Slot};
use super::literals::{self, Literal, WINDOW};
use super::neighbours::{self, Neighbours, Sides};
use super::screen::ScreenId;

#[derive(Debug)]
pub(super) struct LiteralFilter {
    bitmap: Bitmap,
    /// One for each bit that is set, then those that share a bit with another.
    windows: Vec<Window>,
    /// One for each literal.
    gates: Vec<Gate>,
    literals: Vec<Known>,
}

/// A window of a literal, and what else of the literal is near it.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Window {
    /// Eight bytes from [`BEFORE`] bytes before the window on, folded, as far as the literal has them.
    near: u64,
    /// The bits of them that count.
    counts: u64,
    literal: u32,
    /// Where the window starts in the literal; -1 if it starts a byte before.
    offset: i32,
    /// Another one with the same bit; 0 is none.
    next: u32,
    /// Whether these bytes are all of the literal.
    whole: bool,
}

/// So many bytes before a window are near.
const BEFORE: usize = 2;

impl Window {
    fn new(folded: &[u8], literal: u32, offset: i32) -> Self {
        let (mut near, mut counts) = ([0; 8], [0; 8]);
        for place in 0..near.len() {
            let at = usize::try_from(offset + place as i32 - BEFORE as i32).ok();
            if let Some(byte) = at.and_then(|at| folded.get(at)) {
                (near[place], counts[place]) = (byte | 0x20, u8::MAX);
            }
        }
        Self {
            near: u64::from_le_bytes(near),
            counts: u64::from_le_bytes(counts),
            literal,
            offset,
            next: 0,
            whole: counts.iter().filter(|byte| **byte != 0).count() == folded.len(),
        }
    }

    /// Whether its literal may stand where these bytes are near.
    #[inline(always)]
    fn may_be_near(&self, bytes: [u8; 8]) -> bool {
        const FOLD: u64 = 0x2020_2020_2020_2020;
        ((u64::from_le_bytes(bytes) | FOLD) ^ self.near) & self.counts == 0
    }
}

/// What is looked at wherever a literal seems to stand: no more than the processor loads at once.
#[derive(Debug)]
#[repr(align(64))]
struct Gate {
    /// What may stand beside it, whatever it announces.
    neighbours: Neighbours,
    len: usize,
}

#[derive(Debug)]
struct Known {
    literal: Literal,
    /// The bits of its bytes that do not count, because case does not.
    any_case: Box<[u8]>,
    announces: Vec<Announced>,
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
        Self {
            neighbours,
            len: literal.text.len(),
        }
    }

    /// Whether the literal may stand here, by what stands beside it.
    #[inline(always)]
    fn is_open_at(&self, text: &[u8], from: usize) -> bool {
        const SIDE: usize = neighbours::SIDE;
        let end = from.wrapping_add(self.len);
        let after = text.get(end..).and_then(<[u8]>::first_chunk);
        let before = || text.get(from.wrapping_sub(SIDE)..)?.first_chunk();
        let open = after.map(|after| {
            self.neighbours.allow_after(*after)
                && before().map_or_else(
                    || self.is_open_near_end(text, from..end),
                    |before| self.neighbours.allow_before(*before),
                )
        });
        open.unwrap_or_else(|| self.is_open_near_end(text, from..end))
    }

    #[cold]
    fn is_open_near_end(&self, text: &[u8], at: Range<usize>) -> bool {
        text.get(at.clone()).is_some() && self.neighbours.allow(&Sides::at(text, &at))
    }

    /// Calls `add` with what the window at this offset of the literal can be in a text.
    fn each_window(&self, folded: &[u8], offset: i32, beside: Beside, mut add: impl FnMut(u32)) {
        let mut bytes = [None; WINDOW];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = usize::try_from(offset + place as i32)
                .ok()
                .and_then(|at| folded.get(at).copied());
        }
        let mut add = |bytes: [u8; WINDOW]| add(u32::from_le_bytes(bytes));
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
                -1 => self.neighbours.may_be_before(any),
                _ => any == 0 || self.neighbours.may_be_after(any),
            };
            let folded = usize::from(any | 0x20);
            if wanted && possible && !seen[folded] {
                seen[folded] = true;
                add(bytes.map(|byte| byte.unwrap_or(any)));
            }
        }
    }
}

impl Known {
    /// Calls `found` with what the literal announces, if all of it stands here, which may be known, and
    /// where it can be part of a match.
    #[inline(never)]
    fn announce(
        &self,
        text: &[u8],
        from: usize,
        whole: bool,
        found: &mut impl FnMut(Range<usize>, &Announced),
    ) {
        let at = from..from + self.literal.text.len();
        // What folding makes equal does no harm.
        if !(whole && !self.literal.exact || self.is_all_at(text, from)) {
            return;
        }
        // Of one alone the gate knows all.
        if let [one] = self.announces.as_slice() {
            return found(at, one);
        }
        match (text[..from].last_chunk(), text[at.end..].first_chunk()) {
            (Some(before), Some(after)) => {
                for one in &self.announces {
                    if one.neighbours.allow_after(*after) && one.neighbours.allow_before(*before) {
                        found(at.clone(), one);
                    }
                }
            }
            _ => {
                let beside = Sides::at(text, &at);
                let announces = self.announces.iter();
                let allowed = announces.filter(|one| one.neighbours.allow(&beside));
                allowed.for_each(|one| found(at.clone(), one));
            }
        }
    }

    fn new(literal: &Literal, announced: Announced) -> Self {
        let any_case = |byte: u8| {
            let counts = literal.exact || !byte.is_ascii_alphabetic();
            if counts { 0 } else { 0x20 }
        };
        Self {
            literal: literal.clone(),
            any_case: literal.text.bytes().map(any_case).collect(),
            announces: vec![announced],
        }
    }

    fn is_all_at(&self, text: &[u8], from: usize) -> bool {
        let bytes = self.literal.text.as_bytes();
        text.get(from..from + bytes.len()).is_some_and(|here| {
            let each = here.iter().zip(bytes).zip(&self.any_case);
            // Without a way out in between: it is nearly always all there.
            each.fold(0, |other, ((here, byte), any)| {
                other | (here | any) ^ (byte | any)
            }) == 0
        })
    }
}

impl LiteralFilter {
    /// A filter for these literals, each with what it announces, wherever such a byte may stand beside
    /// them.
    pub(super) fn new<'a>(
        literals: impl Iterator<Item = (Announced, &'a Literal)>,
        beside: Beside,
    ) -> Self {
        let (mut gates, mut known) = (Vec::new(), Vec::new());
        let mut windows = Vec::new();
        for (gate, literal) in together(literals) {
            let folded = literal.literal.text.to_ascii_lowercase();
            let before = windows.len();
            for offset in literals::windows(folded.as_bytes()) {
                let window = Window::new(folded.as_bytes(), known.len() as u32, offset);
                gate.each_window(folded.as_bytes(), offset, beside, |bytes| {
                    windows.push((bytes, window));
                });
            }
            if windows.len() > before {
                gates.push(gate);
                known.push(literal);
            }
        }
        let mut bitmap = Bitmap::new(windows.len());
        let windows = windows.into_iter();
        let windows = windows.map(|(bytes, window)| (bitmap.slot(bytes), window));
        let windows = by_number(windows.collect(), &mut bitmap);
        gates.shrink_to_fit();
        known.shrink_to_fit();
        Self {
            bitmap,
            windows,
            gates,
            literals: known,
        }
    }

    /// Calls `found` with each literal in the text, where it is and what it announces there, in no order.
    pub(super) fn scan(&self, text: &[u8], mut found: impl FnMut(Range<usize>, &Announced)) {
        if !self.windows.is_empty() {
            self.bitmap.each_place(
                text,
                #[inline(always)]
                |place| self.look(text, place, &mut found),
            );
        }
    }

    /// Looks at one place where a window is in the bitmap.
    #[inline(always)]
    fn look(&self, text: &[u8], start: usize, found: &mut impl FnMut(Range<usize>, &Announced)) {
        let near = text.get(start.wrapping_sub(BEFORE)..);
        let Some(near) = near.and_then(<[u8]>::first_chunk) else {
            return self.look_near_end(text, start, found);
        };
        let [_, _, a, b, c, d, _, _] = *near;
        for window in self.windows_of(u32::from_le_bytes([a, b, c, d])) {
            let literal = window.literal as usize;
            let from = start.wrapping_add_signed(-window.offset as isize);
            if window.may_be_near(*near) && self.gates[literal].is_open_at(text, from) {
                self.literals[literal].announce(text, from, window.whole, found);
            }
        }
    }

    #[cold]
    fn look_near_end(
        &self,
        text: &[u8],
        start: usize,
        found: &mut impl FnMut(Range<usize>, &Announced),
    ) {
        for window in self.windows_of(window_at(text, start)) {
            let literal = window.literal as usize;
            let from = start.wrapping_add_signed(-window.offset as isize);
            if self.gates[literal].is_open_at(text, from) {
                self.literals[literal].announce(text, from, false, found);
            }
        }
    }

    /// The windows of literals that have the same bit as this one.
    #[inline(always)]
    fn windows_of(&self, window: u32) -> impl Iterator<Item = &Window> {
        let first = self.windows.get(self.bitmap.number(window));
        std::iter::successors(first, |window| match window.next {
            0 => None,
            next => self.windows.get(next as usize),
        })
    }
}

/// One window for each bit, by its number, and then those that share it with another. Sets the bits.
fn by_number(mut windows: Vec<(Slot, Window)>, bitmap: &mut Bitmap) -> Vec<Window> {
    let key = |(slot, window): &(Slot, Window)| (*slot, window.literal, window.offset);
    windows.sort_by_key(key);
    windows.dedup_by_key(|window| key(window));
    let groups = || windows.chunk_by(|a, b| a.0 == b.0);
    bitmap.set(groups().map(|group| group[0].0));
    let bits = groups().count();
    let (mut first, mut others) = (Vec::with_capacity(windows.len()), Vec::new());
    for group in groups() {
        let next = group[1..].iter().fold(0, |next, (_, window)| {
            others.push(Window { next, ..*window });
            (bits + others.len() - 1) as u32
        });
        first.push(Window { next, ..group[0].1 });
    }
    first.append(&mut others);
    first
}

/// Each literal once, with all it announces, however words end around it there.
fn together<'a>(literals: impl Iterator<Item = (Announced, &'a Literal)>) -> Vec<(Gate, Known)> {
    let mut all: Vec<(Gate, Known)> = Vec::new();
    let mut places = HashMap::new();
    for (mut announced, literal) in literals {
        let neighbours = announced.neighbours;
        announced.neighbours = neighbours.apart_from_words(literal.before, literal.after);
        let place = *places
            .entry((&*literal.text, literal.exact))
            .or_insert(all.len());
        let Some((gate, known)) = all.get_mut(place) else {
            let known = Known::new(literal, announced);
            all.push((Gate::new(literal, announced.neighbours), known));
            continue;
        };
        gate.neighbours = gate.neighbours.or(announced.neighbours);
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

/// The window that starts here; past the end there are zeros.
#[inline]
fn window_at(text: &[u8], start: usize) -> u32 {
    let here = &text[start..];
    let bytes = here.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; WINDOW];
        bytes[..here.len()].copy_from_slice(here);
        bytes
    });
    u32::from_le_bytes(bytes)
}
