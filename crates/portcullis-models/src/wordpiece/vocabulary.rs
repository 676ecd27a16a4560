//! Which number a token has, in a table that needs no building.
//!
//! Tokens lie one behind the other; a hash table of their numbers lies beside them, both as plain bytes, so
//! that the built-in model's are used where they are in the binary. A `HashMap` of 30,000 strings would take
//! milliseconds and megabytes at every start.

use std::borrow::Cow;
use std::ops::ControlFlow;

/// What a token starts with that goes on with a word.
pub(super) const CONTINUES: &str = "##";

/// A number as it lies in the asset: little-endian, wherever it comes to lie in memory.
pub(crate) type Word = [u8; 4];

/// Tokens and their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Vocabulary {
    /// By hash: 0 for nothing, else a token's number plus one. As many as a power of two.
    slots: Cow<'static, [Word]>,
    /// Where each token starts, and where the last one ends.
    offsets: Cow<'static, [Word]>,
    tokens: Cow<'static, [u8]>,
    /// The longest token's bytes.
    longest: usize,
}

impl Vocabulary {
    /// Takes parts that lie ready. What does not fit together in them leads to tokens that are not found.
    pub(crate) const fn from_parts(
        slots: &'static [Word],
        offsets: &'static [Word],
        tokens: &'static [u8],
        longest: usize,
    ) -> Self {
        Self {
            slots: Cow::Borrowed(slots),
            offsets: Cow::Borrowed(offsets),
            tokens: Cow::Borrowed(tokens),
            longest,
        }
    }

    /// Numbers tokens from 0. Of two equal ones the first counts.
    ///
    /// Nothing if they are too many to number.
    pub(super) fn new<'a>(list: impl ExactSizeIterator<Item = &'a str>) -> Option<Self> {
        let count = u32::try_from(list.len()).ok()?.checked_add(1)? as usize;
        let mut vocabulary = Self {
            slots: Cow::Owned(vec![
                [0; 4];
                count.checked_mul(2)?.checked_next_power_of_two()?
            ]),
            offsets: Cow::Owned(vec![[0; 4]]),
            tokens: Cow::default(),
            longest: 0,
        };
        for (number, token) in (0..).zip(list) {
            let taken = vocabulary.number(token).is_some();
            vocabulary.tokens.to_mut().extend(token.as_bytes());
            let end = u32::try_from(vocabulary.tokens.len()).ok()?;
            vocabulary.offsets.to_mut().push(end.to_le_bytes());
            vocabulary.longest = vocabulary.longest.max(token.len());
            if !taken {
                vocabulary.put(Hash::of(token.as_bytes()), number);
            }
        }
        Some(vocabulary)
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// A token's number.
    pub(crate) fn number(&self, token: &str) -> Option<u32> {
        self.find(Hash::of(token.as_bytes()), "", token.as_bytes())
    }

    /// The longest token that `rest` starts with, and how many bytes of `rest` it takes. After the start of a
    /// word, only tokens that continue one count.
    pub(super) fn longest_prefix(&self, rest: &[u8], continues: bool) -> Option<(u32, usize)> {
        let marker = if continues { CONTINUES } else { "" };
        let mut hash = Hash::of(marker.as_bytes());
        let mut end = rest.len().min(self.longest.saturating_sub(marker.len()));
        for &byte in &rest[..end] {
            hash.add(byte);
        }
        while end > 0 {
            // In the middle of a character no token ends.
            if rest.get(end).is_none_or(|next| next & 0xc0 != 0x80)
                && let Some(number) = self.find(hash, marker, &rest[..end])
            {
                return Some((number, end));
            }
            end -= 1;
            hash.remove(rest[end]);
        }
        None
    }

    /// The number of the token `marker` + `rest`.
    fn find(&self, hash: Hash, marker: &str, rest: &[u8]) -> Option<u32> {
        let found = self.probe(hash, |number| {
            self.token(number)
                .and_then(|token| token.strip_prefix(marker.as_bytes()))
                == Some(rest)
        });
        found.break_value()?
    }

    /// Goes along the slots where a token of this hash can be, to the first that is free or `is_it`.
    fn probe(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> ControlFlow<Option<u32>> {
        let mask = self.slots.len().wrapping_sub(1);
        let start = hash.folded();
        // As many steps as slots: a table without a free one, which we do not write, ends too.
        for step in 0..self.slots.len() {
            let slot = self.slots.get(start.wrapping_add(step) & mask);
            let Some(number) = slot.and_then(|slot| u32::from_le_bytes(*slot).checked_sub(1))
            else {
                return ControlFlow::Break(None);
            };
            if is_it(number) {
                return ControlFlow::Break(Some(number));
            }
        }
        ControlFlow::Continue(())
    }

    fn put(&mut self, hash: Hash, number: u32) {
        let mask = self.slots.len().wrapping_sub(1);
        let slots = self.slots.to_mut();
        let mut place = hash.folded() & mask;
        // The table has twice as many slots as tokens.
        while slots[place] != [0; 4] {
            place = (place + 1) & mask;
        }
        slots[place] = (number + 1).to_le_bytes();
    }

    fn token(&self, number: u32) -> Option<&[u8]> {
        let at = |index: usize| Some(u32::from_le_bytes(*self.offsets.get(index)?) as usize);
        self.tokens
            .get(at(number as usize)?..at(number as usize + 1)?)
    }
}

/// FNV-1a: it can be taken back byte by byte, so that every prefix of a word costs one step. Somebody who
/// picks words that meet in a slot walks past tokens of the vocabulary, which does not grow by that.
#[derive(Clone, Copy)]
struct Hash(u32);

impl Hash {
    const PRIME: u32 = 0x0100_0193;
    /// What undoes a multiplication with the prime, modulo 2³².
    const INVERSE: u32 = 0x359c_449b;

    fn of(bytes: &[u8]) -> Self {
        let mut hash = Self(0x811c_9dc5);
        for &byte in bytes {
            hash.add(byte);
        }
        hash
    }

    fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(Self::PRIME);
    }

    fn remove(&mut self, byte: u8) {
        self.0 = self.0.wrapping_mul(Self::INVERSE) ^ u32::from(byte);
    }

    fn folded(self) -> usize {
        (self.0 ^ (self.0 >> 15)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_its_number_and_nothing_else_has() {
        let tokens: Vec<String> = (0..5000).map(|number| format!("t{number}")).collect();
        let vocabulary = Vocabulary::new(tokens.iter().map(String::as_str)).unwrap();
        assert_eq!(vocabulary.len(), 5000);
        for (number, token) in (0..).zip(&tokens) {
            assert_eq!(vocabulary.number(token), Some(number));
        }
        assert_eq!(vocabulary.number("t5000"), None);
        assert_eq!(vocabulary.number(""), None);
    }

    #[test]
    fn of_two_equal_tokens_the_first_counts() {
        let vocabulary = Vocabulary::new(["a", "b", "a"].into_iter()).unwrap();
        assert_eq!(vocabulary.number("a"), Some(0));
        assert_eq!(vocabulary.len(), 3);
    }

    #[test]
    fn the_longest_prefix_wins_and_ends_between_characters() {
        let vocabulary = Vocabulary::new(["a", "ab", "##é", "##b", "abcd"].into_iter()).unwrap();
        let longest = |rest: &str, continues| vocabulary.longest_prefix(rest.as_bytes(), continues);
        assert_eq!(longest("abc", false), Some((1, 2)));
        assert_eq!(longest("abcd", false), Some((4, 4)));
        assert_eq!(longest("éb", true), Some((2, 2)));
        assert_eq!(longest("éb", false), None);
        assert_eq!(longest("a", true), None);
        assert_eq!(longest("", true), None);
    }

    #[test]
    fn a_byte_taken_back_leaves_the_hash_as_it_was() {
        let mut hash = Hash::of(b"ab");
        hash.remove(b'b');
        assert_eq!(hash.0, Hash::of(b"a").0);
    }

    #[test]
    fn a_table_of_nonsense_finds_nothing_and_ends() {
        let full: &[Word] = &[[9, 0, 0, 0]; 4];
        let vocabulary = Vocabulary::from_parts(full, &[[0; 4], [255; 4]], b"ab", 2);
        assert_eq!(vocabulary.number("ab"), None);
        assert_eq!(Vocabulary::from_parts(&[], &[], b"", 9).number("a"), None);
    }
}
