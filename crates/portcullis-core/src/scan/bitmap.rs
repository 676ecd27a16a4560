//! Which four-byte windows of a text are among many.
//!
//! Windows are independent of each other, so the processor works on many at once, and the pass costs the
//! same for ten as for thousands. Only windows at even offsets are looked at.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor at hand"
)]

use pulp::Scalar;
#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

use super::literals::WINDOW;

/// 2^19 bits: 64 KiB. Of few windows only a sixteenth is used, which is well inside the first-level
/// cache.
const BYTES: usize = 1 << 16;

/// With more windows all of it is used.
const FEW: usize = 4 << 10;

/// The bytes that few windows use.
const FEW_BYTES: usize = BYTES / 16;

/// Bits are counted by words of so many bytes.
const WORD: usize = size_of::<u64>();

/// Bytes per step of the main loop.
const STRIDE: usize = 32;

/// The last window of a step reaches two bytes past it.
const STEP: usize = STRIDE + WINDOW - 2;

/// Windows per step.
const WINDOWS: usize = STRIDE / 2;

/// Steps after which the places are looked at that they gave.
const STEPS: usize = 16;

/// A set of windows, some more that share a bit with one of them, and how the bits are numbered.
#[derive(Debug)]
pub(super) struct Bitmap {
    bits: Box<[u8; BYTES]>,
    /// Of a byte's number, the bits that count.
    used: u16,
    /// How many bits are set in the words before each.
    ranks: Box<[u32; BYTES / WORD]>,
}

/// A bit of the bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    byte: u16,
    bit: u16,
}

impl Slot {
    /// Of a window. The upper bits of its hash are the good ones.
    #[inline]
    const fn of(window: u32, used: u16) -> Self {
        let hash = fold(window).wrapping_mul(FACTOR);
        Self {
            byte: (hash >> 16) as u16 & used,
            bit: (hash >> 13) as u16 & 7,
        }
    }
}

/// Makes upper and lower case ASCII letters equal, and some other pairs too, which does no harm in
/// a filter.
#[inline]
const fn fold(window: u32) -> u32 {
    window | FOLD
}

const FOLD: u32 = 0x2020_2020;

const FACTOR: u32 = 0x9E37_79B1;

impl Bitmap {
    /// With room for so many windows.
    #[expect(
        clippy::large_stack_arrays,
        reason = "on the heap at once, and of a known length, which is not checked at every look"
    )]
    pub(super) fn new(windows: usize) -> Self {
        let used = if windows <= FEW { FEW_BYTES } else { BYTES };
        Self {
            bits: Box::new([0; BYTES]),
            used: (used - 1) as u16,
            ranks: Box::new([0; BYTES / WORD]),
        }
    }

    /// The bit of a window.
    pub(super) fn slot(&self, window: u32) -> Slot {
        Slot::of(window, self.used)
    }

    /// Sets these bits, and numbers all that are set in the order of their slots.
    pub(super) fn set(&mut self, slots: impl Iterator<Item = Slot>) {
        for Slot { byte, bit } in slots {
            self.bits[usize::from(byte)] |= 1 << bit;
        }
        let mut rank = 0;
        let (words, _) = self.bits.as_chunks();
        for (before, word) in self.ranks.iter_mut().zip(words) {
            *before = rank;
            rank += u64::from_le_bytes(*word).count_ones();
        }
    }

    /// The number of a window's bit, which is set.
    #[inline(always)]
    pub(super) fn number(&self, window: u32) -> usize {
        let Slot { byte, bit } = Slot::of(window, self.used);
        let (words, _) = self.bits.as_chunks::<WORD>();
        let (word, bit) = (usize::from(byte) / WORD, byte % WORD as u16 * 8 + bit);
        let before = u64::from_le_bytes(words[word]) & ((1 << bit) - 1);
        (self.ranks[word] + before.count_ones()) as usize
    }

    /// Calls `look` with each place in the text where a window is in the set, in order. Past the end of the
    /// text there are zeros. What is inlined into `look` is compiled for the processor at hand.
    #[inline]
    pub(super) fn each_place(&self, text: &[u8], look: impl FnMut(usize)) {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = V3::try_new() {
            return self.each_place_with(simd, text, look);
        }
        self.each_place_with(Scalar, text, look);
    }

    /// Places are gathered first and then looked at one after the other: so the processor is not surprised
    /// by how many there are, and waits for the memory of several at once. Each is a function of its own: in one, what the
    /// one needs at hand is in the way of the other.
    #[inline(always)]
    fn each_place_with(&self, lanes: impl Lanes, text: &[u8], mut look: impl FnMut(usize)) {
        let mut places = [0; ROOM];
        for base in (0..text.len()).step_by(STEPS * STRIDE) {
            let count = lanes.run(
                #[inline(always)]
                || self.gather(lanes, &text[base..], &mut places),
            );
            let found = places.get(..count).unwrap_or_default();
            let look = &mut look;
            lanes.run(
                #[inline(always)]
                move || {
                    for window in found {
                        look(base + 2 * usize::from(*window));
                    }
                },
            );
        }
    }

    /// The windows of the next steps that are in the set, and how many.
    #[inline(always)]
    fn gather(&self, lanes: impl Lanes, text: &[u8], places: &mut [u8; ROOM]) -> usize {
        let table = Table {
            bits: &self.bits,
            used: self.used,
        };
        let (mut count, mut window) = (0, 0);
        let mut rest = text;
        for _ in 0..STEPS {
            let hits;
            (hits, rest) = match rest.first_chunk() {
                Some(step) => (lanes.hits(table, step), &rest[STRIDE..]),
                None => {
                    let mut step = [0; STEP];
                    step[..rest.len()].copy_from_slice(rest);
                    let hits = lanes.hits(table, &step) & first(rest.len().div_ceil(2));
                    (hits, rest.get(STRIDE..).unwrap_or_default())
                }
            };
            count = add(places, count, window, hits);
            window = window.wrapping_add(EACH * WINDOWS as u64);
            if rest.is_empty() {
                break;
            }
        }
        count
    }
}

/// What is looked up, apart from the rest: so it is not fetched again for every step.
#[derive(Clone, Copy)]
struct Table<'b> {
    bits: &'b [u8; BYTES],
    used: u16,
}

impl Table<'_> {
    fn slot(self, window: u32) -> Slot {
        Slot::of(window, self.used)
    }
}

/// The bits of the first so many windows of a step.
const fn first(windows: usize) -> u16 {
    if windows < WINDOWS {
        (1 << windows) - 1
    } else {
        u16::MAX
    }
}

/// What a processor does with several windows at once.
trait Lanes: Copy {
    /// Runs what is compiled for the processor at hand.
    fn run<R>(self, work: impl FnOnce() -> R) -> R;

    /// Which windows of a step are in the bitmap, the first in the lowest bit.
    fn hits(self, table: Table<'_>, step: &[u8; STEP]) -> u16;
}

impl Lanes for Scalar {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    fn hits(self, table: Table<'_>, step: &[u8; STEP]) -> u16 {
        (0..WINDOWS).fold(0, |hits, number| {
            let window = std::array::from_fn(|byte| step[2 * number + byte]);
            let Slot { byte, bit } = table.slot(u32::from_le_bytes(window));
            hits | u16::from(table.bits[usize::from(byte)] >> bit & 1) << number
        })
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for V3 {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        self.vectorize(work)
    }

    /// Every second window lies right behind the one before. The others go into the upper halves of the same
    /// lanes, so that all are in order.
    #[inline(always)]
    fn hits(self, table: Table<'_>, step: &[u8; STEP]) -> u16 {
        let (sse2, avx, avx2) = (self.sse2, self.avx, self.avx2);
        let all = |value: u32| avx._mm256_set1_epi32(value.cast_signed());
        let both = |lower, upper, mask: u32| {
            avx2._mm256_or_si256(
                avx2._mm256_and_si256(lower, all(mask)),
                avx2._mm256_and_si256(upper, all(mask << 16)),
            )
        };
        let hash = |skip: usize| {
            let windows = step[skip..].first_chunk::<STRIDE>().copied();
            let windows = pulp::cast(windows.unwrap_or([0; STRIDE]));
            avx2._mm256_mullo_epi32(avx2._mm256_or_si256(windows, all(FOLD)), all(FACTOR))
        };
        let (even, odd) = (hash(0), hash(2));
        let used = u32::from(table.used);
        let numbers = both(avx2._mm256_srli_epi32::<16>(even), odd, used);
        let numbers: [u16; WINDOWS] = pulp::cast(numbers);
        // Not `map`, which the compiler leaves as a call.
        let mut bytes = [0; WINDOWS];
        for (byte, number) in bytes.iter_mut().zip(numbers) {
            *byte = table.bits[usize::from(number)];
        }
        let bits = both(
            avx2._mm256_srli_epi32::<13>(even),
            avx2._mm256_slli_epi32::<3>(odd),
            7,
        );
        let bits = sse2._mm_packus_epi16(
            avx2._mm256_extracti128_si256::<0>(bits),
            avx2._mm256_extracti128_si256::<1>(bits),
        );
        let powers = sse2._mm_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
        let bits = self.ssse3._mm_shuffle_epi8(powers, bits);
        let set = sse2._mm_cmpeq_epi8(sse2._mm_and_si128(pulp::cast(bytes), bits), bits);
        sse2._mm_movemask_epi8(set).cast_unsigned() as u16
    }
}

/// So many places are written down at once, whatever there are.
const AT_ONCE: usize = 8;

/// Room for those of all steps.
const ROOM: usize = STEPS * WINDOWS + AT_ONCE;

/// A one in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;

/// Which bits a byte has, each in a byte.
static BITS: [u64; 256] = {
    let mut bits = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 != 0 {
                bits[byte] |= bit << (8 * count);
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    bits
};

/// Adds the places of a step behind so many others, and gives how many there are then. The step's first window is in each
/// byte of `window`.
#[inline(always)]
fn add(places: &mut [u8; ROOM], count: usize, window: u64, hits: u16) -> usize {
    let [lower, upper] = hits.to_le_bytes();
    let halves = [(lower, window), (upper, window + EACH * AT_ONCE as u64)];
    halves.into_iter().fold(count, |count, (hits, window)| {
        let next = places.get_mut(count..);
        if let Some(next) = next.and_then(<[u8]>::first_chunk_mut) {
            *next = (BITS[usize::from(hits)] + window).to_le_bytes();
        }
        count + hits.count_ones() as usize
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(text: &[u8], at: usize) -> u32 {
        let byte = |place: usize| text.get(at + place).copied().unwrap_or(0);
        u32::from_le_bytes(std::array::from_fn(byte))
    }

    fn bitmap(windows: &[[u8; WINDOW]], room: usize) -> Bitmap {
        let mut bitmap = Bitmap::new(room);
        let slots: Vec<Slot> = windows
            .iter()
            .map(|window| bitmap.slot(u32::from_le_bytes(*window)))
            .collect();
        bitmap.set(slots.into_iter());
        bitmap
    }

    proptest! {
        /// Every way to look gives the places whose windows have a bit that is set, and no others; and bits
        /// are numbered in the order of their slots.
        #[test]
        fn every_processor_finds_the_same_places(
            windows in prop::collection::vec(any::<[u8; WINDOW]>(), 0..40),
            few in any::<bool>(),
            parts in prop::collection::vec(
                prop_oneof![any::<Vec<u8>>(), "[a-e ]{0,9}".prop_map(String::into_bytes)], 0..30),
            seed in any::<usize>(),
        ) {
            let bitmap = bitmap(&windows, if few { 0 } else { FEW + 1 });
            let mut text = parts.concat();
            for (index, window) in windows.iter().enumerate().skip(windows.len() / 2) {
                let at = seed.wrapping_mul(index + 1) % (text.len() + 1);
                text.splice(at..at, window.to_ascii_uppercase());
            }
            let mut slots: Vec<Slot> =
                windows.iter().map(|window| bitmap.slot(u32::from_le_bytes(*window))).collect();
            slots.sort_unstable();
            slots.dedup();
            let is_set = |at: &usize| slots.contains(&bitmap.slot(window(&text, *at)));
            let expected: Vec<usize> = (0..text.len()).step_by(2).filter(is_set).collect();
            let (mut found, mut plainly) = (Vec::new(), Vec::new());
            bitmap.each_place(&text, |at| found.push(at));
            bitmap.each_place_with(Scalar, &text, |at| plainly.push(at));
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(&plainly, &expected);
            for at in expected {
                let window = window(&text, at);
                prop_assert_eq!(slots[bitmap.number(window)], bitmap.slot(window));
            }
        }
    }
}
