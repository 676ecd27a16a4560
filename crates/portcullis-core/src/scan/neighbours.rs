//! What stands right beside a literal.
//!
//! Most places where an everyday word announces a pattern are settled by the first two letters of the
//! word beside it. A set of bytes is one number here, so that this takes a few instructions and no
//! branch, where an automaton ([`screen`](super::screen)) would have to be asked.

use std::ops::Range;

use regex_syntax::hir::{Class, Hir, HirKind};

use super::literals::Edge;

/// What a pattern allows on both sides of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbours {
    before: Side,
    after: Side,
}

/// One side of a literal: sets of bytes, by [`BITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Side {
    /// The nearest byte, if it is not blank; and the nearest that is not blank, if there are blanks
    /// before it.
    first: [u64; 2],
    /// The byte next to that, whichever of the two it is.
    second: u64,
}

/// One side of a literal in a text.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Whether there are blanks before the first byte that is not blank.
    apart: bool,
    first: u64,
    second: u64,
}

/// So many bytes on each side are looked at, and one more, because four are read at once.
pub(super) const SIDE: usize = 4;

/// What a text has on both sides of a literal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides {
    before: Seen,
    after: Seen,
}

impl Seen {
    /// The bytes that are nearest, the nearest in the lowest bits.
    #[inline]
    fn of(nearest: u32) -> Self {
        let [nearest_one, ..] = nearest.to_le_bytes();
        let apart = is_blank(nearest_one);
        let [first, second, ..] = (nearest >> (8 * u32::from(apart))).to_le_bytes();
        let unknown = u64::from(is_blank(first)).wrapping_neg();
        Self {
            apart,
            first: FIRST_BITS[usize::from(first)],
            second: BITS[usize::from(second)] | unknown,
        }
    }

    /// The same near the end of a text, where every condition may hold.
    #[cold]
    fn at_end(mut nearest: impl Iterator<Item = u8>) -> Self {
        let mut bits = [u64::MAX; 3];
        let mut apart = false;
        for (place, bit) in bits.iter_mut().enumerate() {
            let Some(byte) = nearest.next() else { break };
            apart |= place == 0 && is_blank(byte);
            *bit = BITS[usize::from(byte)];
        }
        let at = usize::from(apart);
        let unknown = if bits[at] == BLANK { u64::MAX } else { 0 };
        Self {
            apart,
            first: bits[at] | unknown,
            second: bits[at + 1] | unknown,
        }
    }
}

impl Side {
    const ANY: Self = Self {
        first: [u64::MAX; 2],
        second: u64::MAX,
    };

    #[inline]
    fn allows(&self, seen: &Seen) -> bool {
        let first = self.first[usize::from(seen.apart)] & seen.first;
        first != 0 && self.second & seen.second != 0
    }

    /// The same for the nearest bytes themselves, the nearest in the lowest bits. Most places are settled by the first byte.
    #[inline]
    fn allows_bytes(&self, nearest: u32) -> bool {
        let [nearest_one, ..] = nearest.to_le_bytes();
        let apart = is_blank(nearest_one);
        let [first, second, ..] = (nearest >> (8 * u32::from(apart))).to_le_bytes();
        self.first[usize::from(apart)] & FIRST_BITS[usize::from(first)] != 0
            && (is_blank(first) || self.second & BITS[usize::from(second)] != 0)
    }

    /// Whether this may be the nearest byte.
    fn may_be(&self, nearest: u8) -> bool {
        if is_blank(nearest) {
            self.first[1] != 0
        } else {
            self.first[0] & BITS[usize::from(nearest)] != 0
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            first: [0, 1].map(|apart| self.first[apart] | other.first[apart]),
            second: self.second | other.second,
        }
    }
}

impl Sides {
    /// What stands beside a part of the text.
    #[inline]
    pub(super) fn at(text: &[u8], at: &Range<usize>) -> Self {
        let before = match text[..at.start].last_chunk() {
            Some(nearest) => Seen::of(u32::from_be_bytes(*nearest)),
            None => Seen::at_end(text[..at.start].iter().rev().copied()),
        };
        let after = match text[at.end..].first_chunk() {
            Some(nearest) => Seen::of(u32::from_le_bytes(*nearest)),
            None => Seen::at_end(text[at.end..].iter().copied()),
        };
        Self { before, after }
    }
}

impl Default for Neighbours {
    /// Any.
    fn default() -> Self {
        Self {
            before: Side::ANY,
            after: Side::ANY,
        }
    }
}

impl Neighbours {
    /// Of what a pattern has before and after a literal; `None` is anything.
    pub(super) fn of(before: Option<&Hir>, after: Option<&Hir>) -> Self {
        let side = |outline: Option<&Hir>, end: End| match outline {
            Some(outline) => Reading::all(outline, end),
            None => Side::ANY,
        };
        Self {
            before: side(before, End::Last),
            after: side(after, End::First),
        }
    }

    /// Whether a match can have its literal where the text has these.
    #[inline]
    pub(super) fn allow(&self, sides: &Sides) -> bool {
        self.before.allows(&sides.before) & self.after.allows(&sides.after)
    }

    /// Whether it can have these bytes after its literal.
    #[inline]
    pub(super) fn allow_after(&self, after: [u8; SIDE]) -> bool {
        self.after.allows_bytes(u32::from_le_bytes(after))
    }

    /// Whether it can have these before it.
    #[inline]
    pub(super) fn allow_before(&self, before: [u8; SIDE]) -> bool {
        self.before.allows_bytes(u32::from_be_bytes(before))
    }

    /// Whether a match can have this byte right before its literal.
    pub(super) fn may_be_before(&self, byte: u8) -> bool {
        self.before.may_be(byte)
    }

    /// Whether it can have this byte right after it.
    pub(super) fn may_be_after(&self, byte: u8) -> bool {
        self.after.may_be(byte)
    }

    /// What either allows.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            before: self.before.or(other.before),
            after: self.after.or(other.after),
        }
    }

    /// The same where words end so around the literal.
    pub(super) fn apart_from_words(mut self, before: Edge, after: Edge) -> Self {
        for (side, edge) in [(&mut self.before, before), (&mut self.after, after)] {
            side.first[0] &= match edge {
                Edge::None => u64::MAX,
                Edge::Part => !WORD | UNDERSCORE,
                Edge::Word => !WORD,
            };
        }
        self
    }
}

/// Which end of a text is the nearest.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    First,
    Last,
}

const fn is_blank(byte: u8) -> bool {
    byte <= b' '
}

/// The bit of blanks.
const BLANK: u64 = 1 << 37;

/// The bits of ASCII letters, digits and the underscore.
const WORD: u64 = (1 << 37) - 1;

/// The bit of the underscore.
const UNDERSCORE: u64 = 1 << 36;

/// A bit for each byte. Letters share one with their other case, and rare signs with others.
static BITS: [u64; 256] = {
    let mut bits = [0; 256];
    let (mut byte, mut signs) = (0, 0);
    while byte < 256 {
        let b = byte as u8;
        bits[byte] = match b {
            b'a'..=b'z' => 1 << (b - b'a'),
            b'A'..=b'Z' => 1 << (b - b'A'),
            b'0'..=b'9' => 1 << (26 + b - b'0'),
            b'_' => UNDERSCORE,
            0x80.. => 1 << 38,
            _ if is_blank(b) => BLANK,
            _ => {
                signs += 1;
                1 << (39 + signs % 25)
            }
        };
        byte += 1;
    }
    bits
};

/// The same of the first byte that is not blank. After two blanks nobody looks further: it may be any.
static FIRST_BITS: [u64; 256] = {
    let mut bits = BITS;
    let mut byte = 0;
    while byte < 256 {
        if is_blank(byte as u8) {
            bits[byte] = u64::MAX;
        }
        byte += 1;
    }
    bits
};

/// How far a pattern has been read: several at once, since it can go on in several ways.
type States = u8;

/// Nothing yet.
const START: States = 1;
/// Blanks only.
const BLANKS: States = 2;
/// One byte that is not blank.
const ONE: States = 4;
/// Enough.
const DONE: States = 8;

/// More rounds of a repetition than this lead nowhere else.
const ROUNDS: u32 = 4;

/// Collects what a pattern allows, from the nearest byte on.
struct Reading {
    side: Side,
    end: End,
}

impl Reading {
    fn all(outline: &Hir, end: End) -> Side {
        let mut reading = Self {
            side: Side {
                first: [0; 2],
                second: 0,
            },
            end,
        };
        let left_in = reading.read(outline, START);
        let Self { mut side, .. } = reading;
        // After the pattern anything may stand.
        if left_in & START != 0 {
            return Side::ANY;
        }
        if left_in & BLANKS != 0 {
            side.first[1] = u64::MAX;
        }
        if left_in & (BLANKS | ONE) != 0 {
            side.second = u64::MAX;
        }
        side
    }

    fn read(&mut self, hir: &Hir, states: States) -> States {
        if states & !DONE == 0 {
            return states;
        }
        match hir.kind() {
            HirKind::Empty => states,
            // What must stand at the end of the text may have blanks before it, or nothing at all.
            HirKind::Look(_) | HirKind::Class(Class::Unicode(_)) => {
                self.side = Side::ANY;
                DONE
            }
            HirKind::Literal(literal) => {
                let bits = literal.0.iter().map(|byte| BITS[usize::from(*byte)]);
                match self.end {
                    End::First => bits.fold(states, |states, bit| self.step(states, bit)),
                    End::Last => bits
                        .rev()
                        .fold(states, |states, bit| self.step(states, bit)),
                }
            }
            HirKind::Class(Class::Bytes(class)) => {
                let bytes = class.iter().flat_map(|range| range.start()..=range.end());
                let set = bytes.fold(0, |set, byte| set | BITS[usize::from(byte)]);
                self.step(states, set)
            }
            HirKind::Repetition(repetition) => {
                let mut states = states;
                for _ in 0..repetition.min.min(ROUNDS) {
                    states = self.read(&repetition.sub, states);
                }
                loop {
                    let further = states | self.read(&repetition.sub, states);
                    if further == states || repetition.max == Some(repetition.min) {
                        return states;
                    }
                    states = further;
                }
            }
            HirKind::Capture(capture) => self.read(&capture.sub, states),
            HirKind::Alternation(parts) => parts
                .iter()
                .fold(0, |all, part| all | self.read(part, states)),
            HirKind::Concat(parts) => match self.end {
                End::First => parts
                    .iter()
                    .fold(states, |states, part| self.read(part, states)),
                End::Last => parts
                    .iter()
                    .rev()
                    .fold(states, |states, part| self.read(part, states)),
            },
        }
    }

    /// Reads one byte of this set.
    fn step(&mut self, states: States, set: u64) -> States {
        let (solid, blank) = (set & !BLANK, set & BLANK != 0);
        let mut next = states & DONE;
        if states & START != 0 {
            self.side.first[0] |= solid;
        }
        if states & BLANKS != 0 {
            self.side.first[1] |= solid;
        }
        if states & (START | BLANKS) != 0 {
            next |= if blank { BLANKS } else { 0 };
            next |= if solid != 0 { ONE } else { 0 };
        }
        if states & ONE != 0 {
            self.side.second |= set;
            next |= DONE;
        }
        next
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange};

    use super::*;

    fn parse(pattern: &str) -> Hir {
        let mut parser = regex_syntax::ParserBuilder::new();
        let parser = parser.unicode(false).utf8(false);
        parser.build().parse(pattern).unwrap()
    }

    fn allows(before: &str, after: &str, text: &str) -> bool {
        let at = text.find('#').unwrap();
        let (before, after) = (parse(before), parse(after));
        let beside = Sides::at(text.as_bytes(), &(at..at + 1));
        Neighbours::of(Some(&before), Some(&after)).allow(&beside)
    }

    #[test]
    fn the_first_two_letters_beside_a_literal_settle_most() {
        for (before, after, text, expected) in [
            ("not ", " this", "do not # this one", true),
            ("not ", " this", "do not # THAT one", true),
            ("not ", " this", "do not # two of them", false),
            ("not ", " this", "do not # a few", false),
            ("not ", " this", "do not #this one", false),
            ("not ", " this", "but # this one", false),
            ("not ", " this", "knot # this one", true),
            ("not ", " this", "not   #   any", true),
            ("not ", "(?: this)?", "do not #", true),
            ("", "[a-z]+ (?:is|was)", "#s are", true),
            ("", "[a-z]+ (?:is|was)", "# are", false),
            ("", "[a-z]* (?:is|was)", "# are", false),
            ("", " {0,3}[0-9]{4}", "#  2024", true),
            ("", " {0,3}[0-9]{4}", "# 2 0", false),
            ("", " {0,3}[0-9]{4}", "# 2", true),
            ("", "$", "# 2", true),
        ] {
            assert_eq!(
                allows(before, after, text),
                expected,
                "{before:?} {after:?} {text:?}"
            );
        }
    }

    #[test]
    fn every_letter_digit_and_underscore_has_a_bit_of_its_own() {
        for byte in 0..=u8::MAX {
            let word = byte.is_ascii_alphanumeric() || byte == b'_';
            assert_eq!(BITS[usize::from(byte)] & WORD != 0, word, "{byte}");
            assert_eq!(BITS[usize::from(byte)] == BLANK, is_blank(byte), "{byte}");
        }
    }

    pub(in crate::scan) fn outline() -> impl Strategy<Value = Hir> {
        let class = |bytes: &[u8]| {
            let ranges = bytes.iter().map(|byte| ClassBytesRange::new(*byte, *byte));
            Hir::class(Class::Bytes(ClassBytes::new(ranges)))
        };
        let leaf = prop_oneof![
            "[ab. ]{0,3}".prop_map(|text| Hir::literal(text.into_bytes())),
            prop::collection::vec(prop::sample::select(b"abc. \n".to_vec()), 1..4)
                .prop_map(move |bytes| class(&bytes)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let parts = || prop::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                parts().prop_map(Hir::concat),
                parts().prop_map(Hir::alternation),
                (inner.clone(), 0u32..3, prop::option::of(0u32..3)).prop_map(|(sub, min, more)| {
                    Hir::repetition(regex_syntax::hir::Repetition {
                        min,
                        max: more.map(|more| min + more),
                        greedy: true,
                        sub: Box::new(sub),
                    })
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// Wherever a pattern matches right beside a literal, it is allowed there.
        #[test]
        fn what_matches_beside_a_literal_is_allowed(
            before in outline(),
            after in outline(),
            text in "[abc. \n]{0,8}#[abc. \n]{0,8}",
        ) {
            let at = text.find('#').unwrap();
            let regex = |hirs: Vec<Hir>| {
                regex_automata::meta::Regex::builder()
                    .configure(regex_automata::meta::Config::new().utf8_empty(false))
                    .build_from_hir(&Hir::concat(hirs))
                    .unwrap()
            };
            let both = regex(vec![before.clone(), Hir::literal(*b"#"), after.clone()]);
            if both.is_match(&text) {
                let beside = Sides::at(text.as_bytes(), &(at..at + 1));
                prop_assert!(Neighbours::of(Some(&before), Some(&after)).allow(&beside));
            }
        }
    }
}
