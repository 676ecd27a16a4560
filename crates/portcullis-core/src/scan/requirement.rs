//! What a match must contain besides being a match.
//!
//! An address or a card number has no literal that could announce it. It has digits, though, and
//! most texts do not have many close together: that a text may hold them is found in the same
//! pass as everything else, and a match without them does not count.

use serde::Serialize;

use super::Features;

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
}

impl Requirement {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::At,
        Self::Digits,
        Self::Dotted,
        Self::Colons,
        Self::Long,
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

fn digits(span: &[u8]) -> usize {
    span.iter().filter(|byte| byte.is_ascii_digit()).count()
}
