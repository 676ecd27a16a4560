//! What a text has in it, told by one cheap pass, so that costly searches run only where they can
//! find something.
//!
//! The pass never says no wrongly. It may say yes too often: blocks stand in for exact spans.
//!
//! A table gives for each byte what it counts for, and a block's counts are one sum: each in a few
//! bits of the same word. Where the processor has wide registers they are used instead ([`wide`]).
//!
//! Rejected: to let the compiler find the vectors. It loses them with every second edit, and at its best was
//! no faster than the table.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
mod wide;

/// Bytes per step.
const BLOCK: usize = 32;

/// Bytes per half step.
const HALF: usize = 16;

/// Digits in two neighbouring blocks that may make a number worth checking.
const MIN_DIGITS: u64 = 7;

/// Digits and dots in two neighbouring blocks that may make a dotted address.
const MIN_DOTTED: (u64, u64) = (4, 3);

/// Colons in two neighbouring blocks that may make a colon-separated address.
const MIN_COLONS: u64 = 2;

/// Separators in half a block that may stand between single letters. Of twelve such letters one half
/// has twelve bytes or more, and four that may be anything.
const SEPARATORS: std::ops::RangeInclusive<u64> = 6..=10;

/// Of these, how many have something else right after them. Indentation has one.
const MIN_GAPS: usize = 5;

/// Places in a text where a digit or symbol may stand for a letter, before that is looked into.
const MIN_LEET: u32 = 3;

/// What a text may have in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    bits: u16,
    zones: Zones,
}

/// Where in a text numbers, colons and long runs may be: a bit for each of its zones, which are 64 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Zones(u64);

impl Zones {
    /// How many blocks make a zone of a text of this length, as a power of two.
    #[inline]
    const fn shift(len: usize) -> u32 {
        let blocks = len.div_ceil(BLOCK);
        blocks
            .div_ceil(u64::BITS as usize)
            .next_power_of_two()
            .ilog2()
    }

    /// Takes in the block that begins here.
    #[inline]
    const fn mark(&mut self, at: usize, shift: u32) {
        self.0 |= 1 << (((at / BLOCK) >> shift) % u64::BITS as usize);
    }

    /// The parts of a text of this length that they are, with what is beside each, in order.
    fn parts(self, len: usize) -> impl Iterator<Item = Range<usize>> {
        let zone = BLOCK << Self::shift(len);
        let mut left = self.0 | self.0 << 1 | self.0 >> 1;
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            let last = first + left.checked_shr(first)?.trailing_ones();
            left &= u64::MAX.checked_shl(last).unwrap_or(0);
            Some(first as usize * zone..len.min(last as usize * zone))
        })
    }
}

impl Features {
    /// A byte outside ASCII.
    pub const NON_ASCII: Self = Self::bit(1);
    /// An ASCII control character other than white space.
    pub const CONTROL: Self = Self::bit(1 << 1);
    /// An `@`.
    pub const AT_SIGN: Self = Self::bit(1 << 2);
    /// Seven ASCII digits within 33 bytes.
    pub const DIGITS: Self = Self::bit(1 << 3);
    /// Four digits and three dots within 33 bytes.
    pub const DOTTED: Self = Self::bit(1 << 4);
    /// Two colons within 33 bytes.
    pub const COLONS: Self = Self::bit(1 << 5);
    /// A `%`, `&` or `\`.
    pub const ESCAPES: Self = Self::bit(1 << 6);
    /// 31 bytes without white space or a control character.
    pub const LONG_RUN: Self = Self::bit(1 << 7);
    /// Twelve single letters, each divided from the next by a blank or one of `. - _ * | /`.
    pub const SPACED: Self = Self::bit(1 << 8);
    /// Three places where a digit, `@` or `$` stands beside an ASCII letter, or a `!` before one.
    pub const LEET: Self = Self::bit(1 << 9);
    /// Two brackets among the last 64 bytes.
    pub const BRACKETS: Self = Self::bit(1 << 10);

    /// What is not ASCII, or a control character.
    pub(crate) const UNUSUAL: Self = Self::NON_ASCII.union(Self::CONTROL);

    const fn bit(bits: u16) -> Self {
        Self {
            bits,
            zones: Zones(0),
        }
    }

    /// The parts of a text with these features in which numbers, colons and long runs lie, in order. There are none elsewhere.
    pub(super) fn zones(self, text: &[u8]) -> impl Iterator<Item = Range<usize>> {
        self.zones.parts(text.len())
    }

    /// The features of a text. One pass, no allocation.
    pub fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut features = Self::in_blocks(bytes);
        features.set_if(ends_in_brackets(bytes), Self::BRACKETS);
        features
    }

    fn in_blocks(bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        // Blanks after the end break every run, are nobody's neighbour and, as ends of lines, separate
        // no letters: they add no feature that the text has not.
        let last = (!rest.is_empty()).then(|| {
            let mut block = [b'\n'; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            block
        });
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return wide::of(simd, blocks, last.as_ref(), bytes);
        }
        Pass::all(blocks.iter().chain(&last), bytes)
    }

    /// Whether all features of `other` are among these.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }

    /// Whether some feature of `other` is among these.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.bits & other.bits != 0
    }

    /// These features and those of `other`.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
            zones: Zones(self.zones.0 | other.zones.0),
        }
    }

    /// What the block that begins here and the one before have together: digits, dots among digits, colons.
    #[inline]
    fn set_numbers(&mut self, [digits, dotted, colons]: [bool; 3], at: usize, shift: u32) {
        self.set_if(digits, Self::DIGITS);
        self.set_if(dotted, Self::DOTTED);
        self.set_if(colons, Self::COLONS);
        if digits | dotted | colons {
            self.zones.mark(at, shift);
            self.zones.mark(at.saturating_sub(BLOCK), shift);
        }
    }

    #[inline]
    fn set_if(&mut self, condition: bool, feature: Self) {
        self.bits |= feature.bits * u16::from(condition);
    }
}

/// Where the end of a text begins. So many bytes are two registers, or four.
pub(super) const END: usize = 64;

/// Brackets at the end of a text before they are looked into.
const MIN_BRACKETS: u8 = 2;

/// Whether the end of a text has several brackets, be they pairs or not. A shorter text has no end.
#[inline]
pub(super) fn ends_in_brackets(bytes: &[u8]) -> bool {
    let Some(end) = bytes.last_chunk::<END>() else {
        return false;
    };
    // `(` and `)` differ in the last bit, `[` and `{` as well as `]` and `}` in the one for capitals.
    let is_bracket = |byte: &u8| byte & !1 == b'(' || matches!(byte | 0x20, b'{' | b'}');
    let brackets: u8 = end.iter().map(|byte| u8::from(is_bracket(byte))).sum();
    brackets >= MIN_BRACKETS
}

/// Bits of a count. A block has no more than 32 bytes of a kind.
const COUNT_BITS: u32 = 6;

/// What a byte counts as.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Kind {
    Separator,
    Blank,
    Digit,
    Dot,
    Colon,
    NonAscii,
    Control,
    AtSign,
    Escape,
    Leet,
}

/// How many bytes there are of each [`Kind`].
#[derive(Clone, Copy, Default)]
struct Counts(u64);

impl Counts {
    #[inline]
    const fn of(self, kind: Kind) -> u64 {
        (self.0 >> (kind as u32 * COUNT_BITS)) & ((1 << COUNT_BITS) - 1)
    }

    #[inline]
    const fn has(self, kind: Kind) -> bool {
        self.of(kind) > 0
    }

    #[inline]
    fn in_half(half: &[u8; HALF]) -> Self {
        Self(half.iter().map(|b| KINDS[usize::from(*b)]).sum())
    }
}

/// The counts of digits and colons.
const NUMBERS: u64 = (((1 << COUNT_BITS) - 1) << (Kind::Digit as u32 * COUNT_BITS))
    | (((1 << COUNT_BITS) - 1) << (Kind::Colon as u32 * COUNT_BITS));

/// For each byte a one in the count of each of its kinds.
static KINDS: [u64; 256] = {
    let mut kinds = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let white = matches!(b, b'\t'..=b'\r');
        let of = [
            (Kind::Separator, is_separator(b)),
            (Kind::Blank, b <= b' '),
            (Kind::Digit, b.is_ascii_digit()),
            (Kind::Dot, b == b'.'),
            (Kind::Colon, b == b':'),
            (Kind::NonAscii, !b.is_ascii()),
            (Kind::Control, b.is_ascii_control() && !white),
            (Kind::AtSign, b == b'@'),
            (Kind::Escape, matches!(b, b'%' | b'&' | b'\\')),
            (Kind::Leet, is_leet(b) || b == b'!'),
        ];
        let mut k = 0;
        while k < of.len() {
            kinds[i] |= (of[k].1 as u64) << (of[k].0 as u32 * COUNT_BITS);
            k += 1;
        }
        i += 1;
    }
    kinds
};

/// Where the pass stands.
#[derive(Default)]
struct Pass {
    features: Features,
    /// The kinds there were in some block; the numbers mean nothing.
    seen: Counts,
    /// The block before.
    before: Counts,
    leet: u32,
    shift: u32,
}

impl Pass {
    fn all<'b>(blocks: impl Iterator<Item = &'b [u8; BLOCK]>, text: &[u8]) -> Features {
        let mut pass = Self {
            shift: Zones::shift(text.len()),
            ..Self::default()
        };
        for (index, block) in blocks.enumerate() {
            pass.step(block, text, index * BLOCK);
        }
        pass.end()
    }

    #[inline]
    fn step(&mut self, block: &[u8; BLOCK], text: &[u8], at: usize) {
        let (halves, _) = block.as_chunks::<HALF>();
        let mut here = Counts::default();
        for half in halves {
            let counts = Counts::in_half(half);
            if !counts.has(Kind::Blank) {
                self.features.set_if(true, Features::LONG_RUN);
                self.features.zones.mark(at, self.shift);
            }
            if SEPARATORS.contains(&counts.of(Kind::Separator)) {
                self.features.set_if(is_spaced(half), Features::SPACED);
            }
            here.0 += counts.0;
        }
        self.seen.0 |= here.0;
        if here.has(Kind::Leet) && self.leet < MIN_LEET {
            self.leet += leet_places(block, text, at);
        }
        if self.before.0 & NUMBERS != 0 || here.0 & NUMBERS != 0 {
            self.numbers(here, at);
        }
        self.before = here;
    }

    /// What this block and the one before have together. A span of 33 bytes touches two at most.
    fn numbers(&mut self, here: Counts, at: usize) {
        let both = |kind| here.of(kind) + self.before.of(kind);
        let (digits, dots) = (both(Kind::Digit), both(Kind::Dot));
        let dotted = digits >= MIN_DOTTED.0 && dots >= MIN_DOTTED.1;
        self.features.set_numbers(
            [
                digits >= MIN_DIGITS,
                dotted,
                both(Kind::Colon) >= MIN_COLONS,
            ],
            at,
            self.shift,
        );
    }

    fn end(mut self) -> Features {
        for (kind, feature) in [
            (Kind::NonAscii, Features::NON_ASCII),
            (Kind::Control, Features::CONTROL),
            (Kind::AtSign, Features::AT_SIGN),
            (Kind::Escape, Features::ESCAPES),
        ] {
            self.features.set_if(self.seen.has(kind), feature);
        }
        self.features.set_if(self.leet >= MIN_LEET, Features::LEET);
        self.features
    }
}

/// Whether enough separators have something else right after them.
#[cold]
fn is_spaced(half: &[u8; HALF]) -> bool {
    let gaps = half
        .windows(2)
        .filter(|pair| is_separator(pair[0]) && !is_separator(pair[1]));
    gaps.count() >= MIN_GAPS
}

/// Places of the block where a digit or symbol may stand for a letter.
fn leet_places(block: &[u8; BLOCK], text: &[u8], at: usize) -> u32 {
    let is_letter = |at: Option<usize>| {
        let byte = at.and_then(|at| text.get(at));
        u32::from(byte.is_some_and(u8::is_ascii_alphabetic))
    };
    let letters = mask(block, |b| b.is_ascii_alphabetic());
    let before = letters << 1 | is_letter(at.checked_sub(1));
    let after = letters >> 1 | is_letter(Some(at + BLOCK)) << (BLOCK - 1);
    let leet = mask(block, is_leet) & (before | after);
    let bang = mask(block, |b| b == b'!') & after;
    (leet | bang).count_ones()
}

/// A bit for each byte that is so. Not inlined, because only so does the compiler see a vector here.
#[inline(never)]
fn mask(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u32 {
    let bits = block.iter().enumerate();
    bits.fold(0, |bits, (i, b)| bits | u32::from(is(*b)) << i)
}

const fn is_separator(b: u8) -> bool {
    matches!(b, b' ' | b'.' | b'-' | b'_' | b'*' | b'|' | b'/')
}

const fn is_leet(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'@' | b'$')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// The same questions, answered exactly and slowly.
    fn reference(text: &str) -> Features {
        let bytes = text.as_bytes();
        let mut features = Features::default();
        let has = |is: fn(u8) -> bool| bytes.iter().any(|b| is(*b));
        features.set_if(!text.is_ascii(), Features::NON_ASCII);
        features.set_if(
            has(|b| b.is_ascii_control() && !b"\t\n\x0b\x0c\r".contains(&b)),
            Features::CONTROL,
        );
        features.set_if(has(|b| b == b'@'), Features::AT_SIGN);
        features.set_if(has(|b| b"%&\\".contains(&b)), Features::ESCAPES);
        for start in 0..bytes.len() {
            let span = &bytes[start..bytes.len().min(start + 33)];
            let count = |is: fn(u8) -> bool| span.iter().filter(|b| is(**b)).count();
            let digits = count(|b| b.is_ascii_digit());
            features.set_if(digits >= 7, Features::DIGITS);
            features.set_if(digits >= 4 && count(|b| b == b'.') >= 3, Features::DOTTED);
            features.set_if(count(|b| b == b':') >= 2, Features::COLONS);
            let run = bytes[start..].iter().take_while(|b| **b > b' ').count();
            features.set_if(run >= 31, Features::LONG_RUN);
            features.set_if(spaced_letters(&bytes[start..]) >= 12, Features::SPACED);
        }
        let letter = |at: Option<usize>| {
            at.and_then(|at| bytes.get(at))
                .is_some_and(u8::is_ascii_alphabetic)
        };
        let places = (0..bytes.len()).filter(|at| match bytes[*at] {
            b'0'..=b'9' | b'@' | b'$' => letter(at.checked_sub(1)) || letter(Some(at + 1)),
            b'!' => letter(Some(at + 1)),
            _ => false,
        });
        features.set_if(places.count() >= 3, Features::LEET);
        features
    }

    fn spaced_letters(bytes: &[u8]) -> usize {
        let letters = bytes.iter().step_by(2);
        let separators = bytes.iter().skip(1).step_by(2);
        let pairs = separators
            .take_while(|b| b" .-_*|/".contains(b))
            .zip(
                letters
                    .clone()
                    .skip(1)
                    .take_while(|b| b.is_ascii_alphabetic()),
            )
            .count();
        if bytes.first().is_some_and(u8::is_ascii_alphabetic) {
            pairs + 1
        } else {
            0
        }
    }

    #[test]
    fn ordinary_prose_has_no_feature() {
        for text in [
            "",
            "The quick brown fox jumps over the lazy dog, and nobody minded at all.",
            "    indented\n        twice, and then\n                        much deeper",
            "Hello! How are you! Fine. It's a well-known state-of-the-art thing.",
        ] {
            assert_eq!(Features::of(text), Features::default(), "{text}");
        }
    }

    #[test]
    fn each_feature_is_seen() {
        for (text, feature) in [
            ("na\u{ef}ve", Features::NON_ASCII),
            ("a\u{8}b", Features::CONTROL),
            ("a@b", Features::AT_SIGN),
            ("call 555-12-34", Features::DIGITS),
            ("at 10.0.0.12 now", Features::DOTTED),
            ("fe80::1", Features::COLONS),
            ("100%", Features::ESCAPES),
            ("abcdefghijklmnopqrstuvwxyzabcdefg", Features::LONG_RUN),
            ("well: i g n o r e t h e m a l l", Features::SPACED),
            ("1gn0re pr3vious", Features::LEET),
            (
                "so many words that there is an end, and two brackets in it: ( and ]",
                Features::BRACKETS,
            ),
        ] {
            assert!(Features::of(text).contains(feature), "{text}");
        }
    }

    proptest! {
        /// Whatever the processor, a text has the same features.
        #[test]
        fn every_processor_says_the_same(text in prop_oneof![
            any::<String>(),
            "([ -~]{0,20}|[ .*_|/-]{1,4}|[a-z]([ .*_|/-][a-z]){9,14}|[0-9.:]{1,12}|[\\x00-\\x1f\\x7f]|[!-~]{14,40}){0,8}",
        ]) {
            let mut blocks = text.as_bytes().to_vec();
            blocks.resize(blocks.len().next_multiple_of(BLOCK), b'\n');
            let plainly = Pass::all(blocks.as_chunks().0.iter(), text.as_bytes());
            prop_assert_eq!(Features::in_blocks(text.as_bytes()), plainly);
        }

        #[test]
        fn the_pass_misses_nothing(pieces in prop::collection::vec(select(&[
            "a", "Z", "word", " ", ".", "-", "_", "|", "/", "*", "1", "42", ":", "@", "$", "!", "%",
            "&", "\\", "\n", "\t", "\u{7}", "\u{7f}", "é", "10.0.0.1", "4111 1111", "i g n o r e ",
            "p.r.e.v.i", "abcdefghijklmnopqrst", "        ", "l33t",
        ][..]), 0..60)) {
            let text = pieces.concat();
            let (fast, exact) = (Features::of(&text), reference(&text));
            prop_assert!(fast.contains(exact), "{text:?}: {fast:?} lacks some of {exact:?}");
        }

        #[test]
        fn spaced_letters_are_seen_wherever_they_stand(
            before in "[ -~]{0,40}", after in "[ -~]{0,40}", separator in select(&[" ", "-", "."][..])
        ) {
            let spaced = ["a"; 12].join(separator);
            let text = format!("{before}{spaced}{after}");
            prop_assert!(Features::of(&text).contains(Features::SPACED));
        }
    }
}
