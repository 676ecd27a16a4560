//! SHA-256 digests, written as 64 lowercase hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lowercase hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// Before the first entry there is none: this stands for it.
    pub const ZERO: Self = Self([0; 32]);

    /// From its bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its digits.
    pub(crate) fn hex(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        write_hex(&self.0, &mut digits);
        digits
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All of them are ASCII.
        f.write_str(str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        read_hex(text, &mut bytes).ok_or(DigestError)?;
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.hex();
        serializer.serialize_str(str::from_utf8(&digits).unwrap_or_default())
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Two digits for each byte.
pub(super) fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 0xF)];
    }
}

/// Nothing unless the text is exactly as many lowercase digits as the bytes need.
pub(super) fn read_hex(text: &str, bytes: &mut [u8]) -> Option<()> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != bytes.len() * 2 {
        return None;
    }
    for (pair, byte) in text.as_bytes().chunks_exact(2).zip(bytes) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        let digest = Digest::new(std::array::from_fn(|n| n as u8 * 7));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().as_bytes(), digest.hex());
        assert_eq!(Digest::ZERO.to_string(), "0".repeat(64));
        for text in ["", "00", &"0".repeat(63), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError), "{text}");
        }
    }
}
