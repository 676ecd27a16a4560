//! The same pass with wide registers.
//!
//! What a byte is, is looked up by its upper and by its lower four bits: it is of those kinds that both
//! allow.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor at hand"
)]

use std::arch::x86_64::__m256i;

use pulp::x86::V3;

use super::{
    BLOCK, Features, HALF, MIN_COLONS, MIN_DIGITS, MIN_DOTTED, MIN_GAPS, MIN_LEET, SEPARATORS,
    Zones, leet_places,
};

/// The kinds of bytes, each a bit.
const DIGIT: u8 = 1;
const DOT: u8 = 1 << 1;
const COLON: u8 = 1 << 2;
const AT_SIGN: u8 = 1 << 3;
const ESCAPE: u8 = 1 << 4;
/// `$` and `!`.
const LEET_SIGN: u8 = 1 << 5;
const CONTROL: u8 = 1 << 6;
const LOW_CONTROL: u8 = 1 << 7;

/// Each kind with the upper and the lower halves of its bytes. A backslash and what is at the very end of
/// ASCII fit no such table.
const KINDS: [(u8, &[u8], &[u8]); 8] = [
    (DIGIT, &[3], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    (DOT, &[2], &[0xE]),
    (COLON, &[3], &[0xA]),
    (AT_SIGN, &[4], &[0]),
    (ESCAPE, &[2], &[5, 6]),
    (LEET_SIGN, &[2], &[1, 4]),
    (
        CONTROL,
        &[1],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF],
    ),
    (LOW_CONTROL, &[0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 0xE, 0xF]),
];

/// The bytes that separate letters: a blank and `* - . /`, `_`, `|`.
const SEPARATING: [(u8, &[u8], &[u8]); 3] = [
    (1, &[2], &[0, 0xA, 0xD, 0xE, 0xF]),
    (1 << 1, &[5], &[0xF]),
    (1 << 2, &[7], &[0xC]),
];

/// The kinds of each upper half, and of each lower half.
struct Halves {
    upper: [u8; HALF],
    lower: [u8; HALF],
}

impl Halves {
    const fn of(kinds: &[(u8, &[u8], &[u8])]) -> Self {
        let mut halves = Self {
            upper: [0; HALF],
            lower: [0; HALF],
        };
        let mut k = 0;
        while k < kinds.len() {
            let (kind, upper, lower) = kinds[k];
            let mut i = 0;
            while i < upper.len() {
                halves.upper[upper[i] as usize] |= kind;
                i += 1;
            }
            let mut i = 0;
            while i < lower.len() {
                halves.lower[lower[i] as usize] |= kind;
                i += 1;
            }
            k += 1;
        }
        halves
    }
}

/// The features of these blocks of a text, and of what is left of it after them.
pub(super) fn of(
    simd: V3,
    blocks: &[[u8; BLOCK]],
    last: Option<&[u8; BLOCK]>,
    text: &[u8],
) -> Features {
    simd.vectorize(
        #[inline(always)]
        || Pass::new(simd, text.len()).all(blocks, last, text),
    )
}

struct Pass {
    simd: V3,
    kinds: Tables,
    separating: Tables,
    features: Features,
    /// The kinds there were in some block.
    seen: __m256i,
    /// All bytes together, for the bits that tell what is not ASCII.
    bytes: __m256i,
    backslash: __m256i,
    delete: __m256i,
    leet: u32,
    shift: u32,
}

/// [`Halves`], ready to look up.
#[derive(Clone, Copy)]
struct Tables {
    upper: __m256i,
    lower: __m256i,
}

impl Tables {
    #[inline(always)]
    fn new(simd: V3, halves: &Halves) -> Self {
        let twice = |half: [u8; HALF]| simd.avx2._mm256_broadcastsi128_si256(pulp::cast(half));
        Self {
            upper: twice(halves.upper),
            lower: twice(halves.lower),
        }
    }

    /// What these bytes are, given their upper halves. What is not ASCII is nothing.
    #[inline(always)]
    fn look_up(self, simd: V3, bytes: __m256i, upper: __m256i) -> __m256i {
        let avx2 = simd.avx2;
        avx2._mm256_and_si256(
            avx2._mm256_shuffle_epi8(self.lower, bytes),
            avx2._mm256_shuffle_epi8(self.upper, upper),
        )
    }
}

impl Pass {
    #[inline(always)]
    fn new(simd: V3, len: usize) -> Self {
        const OF_KINDS: Halves = Halves::of(&KINDS);
        const OF_SEPARATING: Halves = Halves::of(&SEPARATING);
        let none = simd.avx._mm256_setzero_si256();
        Self {
            simd,
            kinds: Tables::new(simd, &OF_KINDS),
            separating: Tables::new(simd, &OF_SEPARATING),
            features: Features::default(),
            seen: none,
            bytes: none,
            backslash: none,
            delete: none,
            leet: 0,
            shift: Zones::shift(len),
        }
    }

    #[inline(always)]
    fn all(mut self, blocks: &[[u8; BLOCK]], last: Option<&[u8; BLOCK]>, text: &[u8]) -> Features {
        let mut before = self.seen;
        for (index, block) in blocks.iter().enumerate() {
            before = self.step(block, before, text, index * BLOCK);
        }
        if let Some(last) = last {
            self.step(last, before, text, blocks.len() * BLOCK);
        }
        self.end()
    }

    /// One block, given the kinds of the one before.
    #[inline(always)]
    fn step(&mut self, block: &[u8; BLOCK], before: __m256i, text: &[u8], at: usize) -> __m256i {
        let simd = self.simd;
        let (avx, avx2) = (simd.avx, simd.avx2);
        let bytes = pulp::cast(*block);
        let upper = avx2._mm256_and_si256(avx2._mm256_srli_epi16::<4>(bytes), each(simd, 0x0F));
        let kinds = self.kinds.look_up(simd, bytes, upper);
        self.bytes = avx2._mm256_or_si256(self.bytes, bytes);
        self.seen = avx2._mm256_or_si256(self.seen, kinds);
        let is = |byte| avx2._mm256_cmpeq_epi8(bytes, each(simd, byte));
        (self.backslash, self.delete) = (
            avx2._mm256_or_si256(self.backslash, is(b'\\')),
            avx2._mm256_or_si256(self.delete, is(0x7F)),
        );

        let not_above = avx2._mm256_min_epu8(bytes, each(simd, b' '));
        let blank = mask(simd, avx2._mm256_cmpeq_epi8(not_above, bytes));
        if blank as u16 == 0 || blank >> HALF == 0 {
            self.features.set_if(true, Features::LONG_RUN);
            self.features.zones.mark(at, self.shift);
        }

        let separating = self.separating.look_up(simd, bytes, upper);
        let none = avx._mm256_setzero_si256();
        let separators = mask(simd, avx2._mm256_cmpgt_epi8(separating, none));
        let gaps = separators & !(separators >> 1) & 0x7FFF_7FFF;
        if is_spaced(separators as u16, gaps as u16)
            || is_spaced((separators >> HALF) as u16, (gaps >> HALF) as u16)
        {
            self.features.set_if(true, Features::SPACED);
        }

        // Most blocks of a text are settled by one look.
        let both = avx2._mm256_or_si256(kinds, before);
        let has = |kinds, sought: u8| avx._mm256_testz_si256(kinds, each(simd, sought)) == 0;
        if has(both, DIGIT | COLON | AT_SIGN | LEET_SIGN) {
            if has(both, DIGIT | COLON) {
                self.numbers(kinds, before, at);
            }
            if self.leet < MIN_LEET && has(kinds, DIGIT | AT_SIGN | LEET_SIGN) {
                self.leet += leet_places(block, text, at);
            }
        }
        kinds
    }

    /// What this block and the one before have together.
    #[inline(always)]
    fn numbers(&mut self, kinds: __m256i, before: __m256i, at: usize) {
        let simd = self.simd;
        let avx2 = simd.avx2;
        let both = |here, before| {
            u64::from(mask(simd, here).count_ones() + mask(simd, before).count_ones())
        };
        let digits = both(
            avx2._mm256_slli_epi16::<7>(kinds),
            avx2._mm256_slli_epi16::<7>(before),
        );
        let dots = both(
            avx2._mm256_slli_epi16::<6>(kinds),
            avx2._mm256_slli_epi16::<6>(before),
        );
        let colons = both(
            avx2._mm256_slli_epi16::<5>(kinds),
            avx2._mm256_slli_epi16::<5>(before),
        );
        let dotted = digits >= MIN_DOTTED.0 && dots >= MIN_DOTTED.1;
        self.features.set_numbers(
            [digits >= MIN_DIGITS, dotted, colons >= MIN_COLONS],
            at,
            self.shift,
        );
    }

    #[inline(always)]
    fn end(mut self) -> Features {
        let simd = self.simd;
        let avx = simd.avx;
        let seen = |kind: u8| avx._mm256_testz_si256(self.seen, each(simd, kind)) == 0;
        let any = |those| mask(simd, those) != 0;
        let found = [
            (any(self.bytes), Features::NON_ASCII),
            (
                seen(CONTROL | LOW_CONTROL) || any(self.delete),
                Features::CONTROL,
            ),
            (seen(AT_SIGN), Features::AT_SIGN),
            (seen(ESCAPE) || any(self.backslash), Features::ESCAPES),
            (self.leet >= MIN_LEET, Features::LEET),
        ];
        for (found, feature) in found {
            self.features.set_if(found, feature);
        }
        self.features
    }
}

#[inline(always)]
fn each(simd: V3, byte: u8) -> __m256i {
    simd.avx._mm256_set1_epi8(byte.cast_signed())
}

/// The highest bit of each byte.
#[inline(always)]
fn mask(simd: V3, bytes: __m256i) -> u32 {
    simd.avx2._mm256_movemask_epi8(bytes).cast_unsigned()
}

#[inline(always)]
fn is_spaced(separators: u16, gaps: u16) -> bool {
    gaps.count_ones() as usize >= MIN_GAPS
        && SEPARATORS.contains(&u64::from(separators.count_ones()))
}
