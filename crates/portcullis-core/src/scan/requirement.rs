//! What a match must contain besides being a match.
//!
//! An address or a card number has no literal that could announce it. It has digits, though, and
//! most texts do not have many close together: that a text may hold them is found in the same
//! pass as everything else, and a match without them does not count.

use std::ops::{ControlFlow, Range, RangeInclusive};

use serde::Serialize;

use super::features::{END, ends_in_brackets};
use super::runs::next_stretch;
use super::{Features, blocks};

/// The span within which digits, dots or colons must lie.
const SPAN: usize = 33;

/// What every match of a pattern contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// An `@`.
    At,
    /// Seven ASCII digits within 33 bytes.
    Digits,
    /// Four ASCII digits and three dots within 33 bytes.
    Dotted,
    /// Two colons within 33 bytes.
    Colons,
    /// 31 bytes without white space or a control character.
    Long,
    /// Two brackets among the last 64 bytes. For patterns that end where the text does.
    Brackets,
}

impl Requirement {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::At,
        Self::Digits,
        Self::Dotted,
        Self::Colons,
        Self::Long,
        Self::Brackets,
    ];

    /// The length of what is long.
    pub(super) const LONG: usize = 31;

    /// The name in data files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::At => "at",
            Self::Digits => "digits",
            Self::Dotted => "dotted",
            Self::Colons => "colons",
            Self::Long => "long",
            Self::Brackets => "brackets",
        }
    }

    /// What a text has that may contain it.
    pub(super) const fn feature(self) -> Features {
        match self {
            Self::At => Features::AT_SIGN,
            Self::Digits => Features::DIGITS,
            Self::Dotted => Features::DOTTED,
            Self::Colons => Features::COLONS,
            Self::Long => Features::LONG_RUN,
            Self::Brackets => Features::BRACKETS,
        }
    }

    /// Calls `spot` with the parts of the text, which has these features, that may contain it, in order. What contains it, begins
    /// before the end of such a part and ends after its start.
    pub(super) fn spots(self, text: &[u8], features: Features, mut spot: impl FnMut(Range<usize>)) {
        /// Parts that are closer to each other become one.
        const CLOSE: usize = 64;
        let mut last: Option<Range<usize>> = None;
        let mut join = |next: Range<usize>| match &mut last {
            Some(last) if next.start <= last.end + CLOSE => last.end = next.end,
            _ => {
                if let Some(done) = last.replace(next) {
                    spot(done);
                }
            }
        };
        match self {
            Self::Brackets => {
                if ends_in_brackets(text) {
                    join(text.len().saturating_sub(END)..text.len());
                }
            }
            Self::At => self.within(text, &mut join),
            Self::Digits | Self::Dotted | Self::Colons | Self::Long => {
                for zone in features.zones(text) {
                    let mut found = |range: Range<usize>| {
                        join(zone.start + range.start..zone.start + range.end);
                    };
                    self.within(&text[zone.clone()], &mut found);
                }
            }
        }
        if let Some(last) = last {
            spot(last);
        }
    }

    /// Calls `found` wherever it is in a text, or in a part of one, whatever stands around that.
    fn within(self, text: &[u8], found: &mut dyn FnMut(Range<usize>)) {
        match self {
            // Only the end of a text has them.
            Self::Brackets => {}
            Self::At => close_together::<1>(text, b'@'..=b'@', found),
            Self::Digits => close_together::<7>(text, b'0'..=b'9', found),
            Self::Dotted => close_together::<3>(text, b'.'..=b'.', found),
            Self::Colons => close_together::<2>(text, b':'..=b':', found),
            Self::Long => {
                let solid = |byte: u8| byte > b' ';
                let mut at = 0;
                while let Some(start) = next_stretch(text, at, Self::LONG, solid) {
                    let rest = &text[start + Self::LONG..];
                    let more = rest.iter().take_while(|byte| solid(**byte)).count();
                    at = start + Self::LONG + more;
                    found(start..at);
                }
            }
        }
    }

    /// Whether the text contains it.
    pub fn holds(self, text: &str) -> bool {
        let bytes = text.as_bytes();
        let within = |enough: fn(&[u8]) -> bool| {
            bytes.len() < SPAN && enough(bytes) || bytes.windows(SPAN).any(enough)
        };
        match self {
            Self::At => bytes.contains(&b'@'),
            Self::Long => bytes
                .split(|byte| *byte <= b' ')
                .any(|run| run.len() >= Self::LONG),
            Self::Brackets => ends_in_brackets(bytes),
            Self::Digits => within(|span| digits(span) >= 7),
            Self::Dotted => within(|span| {
                digits(span) >= 4 && span.iter().filter(|byte| **byte == b'.').nth(2).is_some()
            }),
            Self::Colons => {
                within(|span| span.iter().filter(|byte| **byte == b':').nth(1).is_some())
            }
        }
    }
}

/// Calls `found` wherever there are `N` such bytes within the span.
fn close_together<const N: usize>(
    text: &[u8],
    bytes: RangeInclusive<u8>,
    found: &mut dyn FnMut(Range<usize>),
) {
    let mut recent = [usize::MAX; N];
    let mut count = 0;
    blocks::each(text, bytes, |start, mut here| {
        while here != 0 {
            let at = start + here.trailing_zeros() as usize;
            here &= here - 1;
            recent[count % N] = at;
            count += 1;
            let first = recent[count % N];
            if first <= at && at - first < SPAN {
                found(first..at + 1);
            }
        }
        ControlFlow::<()>::Continue(())
    });
}

fn digits(span: &[u8]) -> usize {
    span.iter().filter(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A part of a text that has what is required, overlaps a spot.
        #[test]
        fn what_holds_is_at_a_spot(
            before in prop::sample::select(&[0, 0, 150, 700][..]),
            text in "([a-z. :@]{0,30}|[0-9]{1,9}|[!-~]{25,40}){0,8}",
            from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(),
        ) {
            let start = "and so it goes, ".len() * before;
            let (from, to) = (start + from.index(text.len() + 1), start + to.index(text.len() + 1));
            let text = "and so it goes, ".repeat(before) + &text;
            let part = from.min(to)..from.max(to);
            for requirement in Requirement::ALL {
                if requirement == Requirement::Brackets && part.end < text.len() {
                    continue;
                }
                let mut spots = Vec::new();
                requirement.spots(text.as_bytes(), Features::of(&text), |spot| spots.push(spot));
                prop_assert!(spots.is_sorted_by(|a, b| a.end < b.start), "{spots:?}");
                let overlaps = |spot: &Range<usize>| part.start < spot.end && spot.start < part.end;
                if requirement.holds(&text[part.clone()]) {
                    prop_assert!(spots.iter().any(overlaps), "{requirement:?} {part:?} {spots:?}");
                } else if part == (0..text.len()) && requirement != Requirement::Dotted {
                    prop_assert!(spots.is_empty(), "{requirement:?} {spots:?}");
                }
            }
        }
    }
}
