//! The layout of the built-in model, written by `scripts/embedding_asset.py`.
//!
//! ```text
//! magic       8 bytes   PCEMBED\0
//! numbers     7 × u32   version, dimension, tokens, slots, bytes of tokens, unknown token, longest token
//! slots       u32 each  hash table: 0, or a token's number plus one
//! offsets     u32 each  where a token starts; one more for the end
//! scales      f32 each  what a row's numbers are multiplied with
//! tokens      UTF-8, one behind the other
//! rows        i8 each   `dimension` for a token
//! ```
//!
//! All numbers are little-endian. Nothing is read before it is needed, so that of eight megabytes only those
//! pages come to memory that hold the words of a text.

use crate::wordpiece::Word;

const MAGIC: &[u8; 8] = b"PCEMBED\0";
const VERSION: u32 = 1;
/// Far above any model's.
const MOST: u32 = 1 << 24;

/// The parts of the asset, where they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asset<'a> {
    pub(super) dimension: usize,
    pub(super) unknown: u32,
    pub(super) longest: usize,
    pub(super) slots: &'a [Word],
    pub(super) offsets: &'a [Word],
    pub(super) scales: &'a [Word],
    pub(super) tokens: &'a [u8],
    pub(super) rows: &'a [u8],
}

impl<'a> Asset<'a> {
    /// Finds the parts. `const`, so that an asset of another layout does not compile.
    pub(super) const fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let Some((magic, bytes)) = bytes.split_first_chunk::<8>() else {
            return Err("too short for a header");
        };
        if u64::from_le_bytes(*magic) != u64::from_le_bytes(*MAGIC) {
            return Err("not an asset of embeddings");
        }
        let Some((numbers, bytes)) = words(bytes, 7) else {
            return Err("too short for a header");
        };
        if number(numbers, 0) != VERSION {
            return Err("of another version");
        }
        let (dimension, count, slots) =
            (number(numbers, 1), number(numbers, 2), number(numbers, 3));
        if dimension == 0 || dimension > MOST || count > MOST || slots > MOST {
            return Err("of an impossible size");
        }
        if !slots.is_power_of_two() || slots <= count || number(numbers, 5) >= count {
            return Err("of sizes that do not fit each other");
        }
        let (token_bytes, longest) = (number(numbers, 4) as usize, number(numbers, 6) as usize);
        let count = count as usize;
        let Some((slots, bytes)) = words(bytes, slots as usize) else {
            return Err("cut off in the hash table");
        };
        let Some((offsets, bytes)) = words(bytes, count + 1) else {
            return Err("cut off in the offsets");
        };
        let Some((scales, bytes)) = words(bytes, count) else {
            return Err("cut off in the scales");
        };
        let Some((tokens, rows)) = bytes.split_at_checked(token_bytes) else {
            return Err("cut off in the tokens");
        };
        if rows.len() as u64 != count as u64 * dimension as u64 {
            return Err("of rows that are too few or too many");
        }
        Ok(Self {
            dimension: dimension as usize,
            unknown: number(numbers, 5),
            longest,
            slots,
            offsets,
            scales,
            tokens,
            rows,
        })
    }

    /// A token's scale and numbers; the numbers are signed.
    pub(super) fn row(&self, token: u32) -> Option<(f32, &'a [u8])> {
        let scale = f32::from_le_bytes(*self.scales.get(token as usize)?);
        let start = token as usize * self.dimension;
        Some((scale, self.rows.get(start..start + self.dimension)?))
    }
}

const fn words(bytes: &[u8], count: usize) -> Option<(&[Word], &[u8])> {
    match bytes.split_at_checked(count * size_of::<Word>()) {
        Some((words, rest)) => Some((words.as_chunks().0, rest)),
        None => None,
    }
}

const fn number(words: &[Word], index: usize) -> u32 {
    u32::from_le_bytes(words[index])
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `[UNK]` and `a`, of two numbers each.
    pub(in crate::builtin) fn small() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        // `a` is found by going through all four slots at most.
        for number in [VERSION, 2, 2, 4, 6, 0, 5, 2, 2, 2, 0, 0, 5, 6] {
            bytes.extend(number.to_le_bytes());
        }
        for scale in [1.0_f32, 0.5] {
            bytes.extend(scale.to_le_bytes());
        }
        bytes.extend(b"[UNK]a");
        bytes.extend([1_u8, 2, 6, 0xf8]);
        bytes
    }

    #[test]
    fn the_parts_are_found() {
        let bytes = small();
        let asset = Asset::parse(&bytes).unwrap();
        assert_eq!(asset.tokens, b"[UNK]a");
        assert_eq!(asset.row(1), Some((0.5, &[6, 0xf8][..])));
        assert_eq!(asset.row(2), None);
    }

    #[test]
    fn what_is_cut_off_is_refused_at_every_byte() {
        let bytes = small();
        for end in 0..bytes.len() {
            assert!(Asset::parse(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Asset::parse(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn another_kind_or_version_is_refused() {
        let mut bytes = small();
        bytes[8] = 2;
        assert_eq!(Asset::parse(&bytes).unwrap_err(), "of another version");
        bytes[0] = b'Q';
        assert_eq!(
            Asset::parse(&bytes).unwrap_err(),
            "not an asset of embeddings"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_asset_or_an_error(
            bytes: Vec<u8>, place in 0_usize..200, other: u8, token: u32,
        ) {
            let _ = Asset::parse(&bytes);
            let mut changed = small();
            if let Some(byte) = changed.get_mut(place) {
                *byte = other;
            }
            if let Ok(asset) = Asset::parse(&changed) {
                let _ = asset.row(token % 4);
            }
        }
    }
}
