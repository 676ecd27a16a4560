//! Who has which term: lists of slots, changed in place.
//!
//! A list is cut into chunks that know the least and the most of what is in them, so that a search passes
//! over what cannot come into its answer, and so that taking a slot out of a list of a million moves two
//! kilobytes at most. What a slot had is kept with it, packed: nothing is left behind when it goes, and how
//! well a slot fits a query is known without looking through the lists.
//!
//! Terms are known by their hash under a key of this process. The words themselves are not kept: that two
//! of a million are taken for one has a chance of one in thirty million.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, RandomState};

use smallvec::SmallVec;

/// The most slots there are: a posting has 28 bits for its slot and 4 for its count.
pub(super) const MAX_SLOTS: usize = 1 << (u32::BITS - COUNT_BITS);
const COUNT_BITS: u32 = 4;

/// The highest count that makes a difference.
pub(super) const MAX_COUNT: u8 = (1 << COUNT_BITS) - 1;

/// The most postings of a chunk. In tests few, so that there are many chunks.
const CHUNK: usize = if cfg!(test) { 8 } else { 512 };

/// What a term is a term of. The same text is another term as another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Word,
    Title,
    Category,
    Agent,
    Tag,
}

/// The hash that stands for a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(u64);

/// That a slot has a term, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Posting(u32);

impl Posting {
    fn new(slot: u32, count: u8) -> Self {
        Self(slot << COUNT_BITS | u32::from(count.min(MAX_COUNT)))
    }

    pub(super) fn slot(self) -> u32 {
        self.0 >> COUNT_BITS
    }

    pub(super) fn count(self) -> u8 {
        (self.0 & u32::from(MAX_COUNT)) as u8
    }
}

/// A stretch of a list, in the order of slots.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) postings: SmallVec<[Posting; 4]>,
    /// No posting is before this slot.
    pub(super) first: u32,
    /// No document in it is shorter. It may have been, before something was taken out.
    pub(super) shortest: u16,
    /// No count in it is higher. It may have been.
    pub(super) highest: u8,
}

impl Chunk {
    fn new(posting: Posting, length: u16) -> Self {
        Self {
            postings: SmallVec::from_slice(&[posting]),
            first: posting.slot(),
            shortest: length,
            highest: posting.count(),
        }
    }

    fn put(&mut self, posting: Posting, length: u16) {
        let at = self.postings.partition_point(|other| *other < posting);
        self.postings.insert(at, posting);
        self.first = self.first.min(posting.slot());
        self.shortest = self.shortest.min(length);
        self.highest = self.highest.max(posting.count());
    }

    /// The half from here on, as a chunk of its own.
    fn split(&mut self, at: usize) -> Self {
        let after: SmallVec<[Posting; 4]> = self.postings.drain(at..).collect();
        Self {
            first: after.first().map_or(self.first, |posting| posting.slot()),
            postings: after,
            ..*self
        }
    }
}

/// Everything that has a term.
#[derive(Debug)]
pub(super) struct List {
    key: Key,
    length: u32,
    chunks: SmallVec<[Chunk; 1]>,
}

impl List {
    /// How many slots have it.
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    pub(super) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The slots that have it, in their order.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let postings = self.chunks.iter().flat_map(|chunk| &chunk.postings);
        postings.map(|posting| posting.slot())
    }

    fn put(&mut self, posting: Posting, length: u16) {
        self.length += 1;
        let chunks = self.chunks.len();
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first <= posting.slot());
        let Some(chunk) = self.chunks.get_mut(after.saturating_sub(1)) else {
            self.chunks.push(Chunk::new(posting, length));
            return;
        };
        if chunk.postings.len() < CHUNK {
            chunk.put(posting, length);
            return;
        }
        // New slots come at the end: what is full there stays full.
        if after == chunks && chunk.postings.last() < Some(&posting) {
            self.chunks.push(Chunk::new(posting, length));
            return;
        }
        let mut half = chunk.split(CHUNK / 2);
        if posting.slot() < half.first {
            chunk.put(posting, length);
        } else {
            half.put(posting, length);
        }
        self.chunks.insert(after.max(1), half);
    }

    fn remove(&mut self, slot: u32) {
        let after = self.chunks.partition_point(|chunk| chunk.first <= slot);
        let Some(chunk) = self.chunks.get_mut(after.saturating_sub(1)) else {
            return;
        };
        if let Ok(at) = chunk
            .postings
            .binary_search_by_key(&slot, |posting| posting.slot())
        {
            chunk.postings.remove(at);
            self.length -= 1;
            if chunk.postings.is_empty() {
                self.chunks.remove(after.saturating_sub(1));
            } else if chunk.postings.len() * 4 < chunk.postings.capacity() {
                chunk.postings.shrink_to_fit();
            }
        }
    }
}

/// All lists, and for every slot what it is in.
#[derive(Debug, Default)]
pub(super) struct Postings {
    keys: RandomState,
    terms: HashMap<Key, u32>,
    lists: Vec<List>,
    free: Vec<u32>,
    /// For every slot its terms and their counts, packed.
    had: Vec<Box<[u8]>>,
}

impl Postings {
    /// What stands for a term.
    pub(super) fn key(&self, kind: Kind, text: &str) -> Key {
        Key(self.keys.hash_one((kind, text)))
    }

    /// The number of a term, and who has it, if anybody does.
    pub(super) fn list(&self, key: Key) -> Option<(u32, &List)> {
        let term = *self.terms.get(&key)?;
        Some((term, self.lists.get(term as usize)?))
    }

    /// Gives a slot that has none its terms, each named once, with their counts.
    pub(super) fn put(&mut self, slot: u32, length: u16, terms: impl Iterator<Item = (Key, u8)>) {
        let mut has: Vec<(u32, u8)> = terms
            .map(|(key, count)| {
                let posting = Posting::new(slot, count);
                let term = self.term(key);
                self.lists[term as usize].put(posting, length);
                (term, posting.count())
            })
            .collect();
        has.sort_unstable();
        let at = slot as usize;
        if at >= self.had.len() {
            self.had.resize_with(at + 1, Box::default);
        }
        self.had[at] = pack(&has);
    }

    /// Takes all of its terms from a slot.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(had) = self.had.get_mut(slot as usize) else {
            return;
        };
        let had = std::mem::take(had);
        for (term, _) in unpack(&had) {
            let list = &mut self.lists[term as usize];
            list.remove(slot);
            if list.length == 0 {
                self.terms.remove(&list.key);
                self.free.push(term);
            }
        }
    }

    /// The terms of a slot by their numbers, ascending, with their counts.
    pub(super) fn of(&self, slot: u32) -> impl Iterator<Item = (u32, u8)> {
        let packed = self.had.get(slot as usize);
        unpack(packed.map_or(&[], |packed| packed))
    }

    /// Touches what these slots have, so that all of it is on its way from memory before the first is
    /// looked at.
    pub(super) fn fetch(&self, slots: &[u32]) {
        let first = |slot: &u32| self.had.get(*slot as usize)?.first().copied();
        let touched = slots.iter().filter_map(first);
        std::hint::black_box(touched.fold(0, |all, byte| all ^ byte));
    }

    fn term(&mut self, key: Key) -> u32 {
        let entry = match self.terms.entry(key) {
            Entry::Occupied(entry) => return *entry.get(),
            Entry::Vacant(entry) => entry,
        };
        let list = List {
            key,
            length: 0,
            chunks: SmallVec::new(),
        };
        let term = match self.free.pop() {
            Some(term) => {
                self.lists[term as usize] = list;
                term
            }
            None => {
                self.lists.push(list);
                (self.lists.len() - 1) as u32
            }
        };
        *entry.insert(term)
    }
}

/// Terms as the distance to the one before, seven bits a byte, the lowest first; the lowest of all says
/// whether a count over one follows.
fn pack(terms: &[(u32, u8)]) -> Box<[u8]> {
    let mut packed = Vec::with_capacity(terms.len() * 2);
    let mut before = 0;
    for (term, count) in terms {
        let mut left = u64::from(term - before) << 1 | u64::from(*count > 1);
        before = *term;
        while left >= 0x80 {
            packed.push(left as u8 | 0x80);
            left >>= 7;
        }
        packed.push(left as u8);
        if *count > 1 {
            packed.push(*count);
        }
    }
    packed.into_boxed_slice()
}

fn unpack(packed: &[u8]) -> impl Iterator<Item = (u32, u8)> {
    let mut bytes = packed.iter().copied();
    let mut term = 0;
    std::iter::from_fn(move || {
        let mut byte = bytes.next()?;
        let mut delta = u64::from(byte & 0x7f);
        let mut shift = 7;
        while byte >= 0x80 {
            byte = bytes.next()?;
            delta |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        term += (delta >> 1) as u32;
        let count = match delta & 1 {
            0 => 1,
            _ => bytes.next()?,
        };
        Some((term, count))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_packed_is_unpacked(terms in prop::collection::btree_map(any::<u32>(), 1..=MAX_COUNT, 0..50)) {
            let terms: Vec<(u32, u8)> = terms.into_iter().collect();
            prop_assert_eq!(unpack(&pack(&terms)).collect::<Vec<_>>(), terms);
        }

        #[test]
        fn lists_are_what_slots_have(
            steps in prop::collection::vec((0..3000_u32, any::<bool>(), 1..=MAX_COUNT), 1..3000),
        ) {
            let mut postings = Postings::default();
            let mut model = BTreeMap::new();
            let everywhere = postings.key(Kind::Word, "everywhere");
            for (slot, put, count) in steps {
                postings.remove(slot);
                model.remove(&slot);
                if put {
                    let own = postings.key(Kind::Tag, &(slot % 7).to_string());
                    postings.put(slot, 1, [(everywhere, count), (own, 1)].into_iter());
                    model.insert(slot, count);
                }
            }
            let found = postings.list(everywhere).map_or(Vec::new(), |(_, list)| {
                let postings = list.chunks().iter().flat_map(|chunk| &chunk.postings);
                postings.map(|posting| (posting.slot(), posting.count())).collect()
            });
            prop_assert_eq!(found, model.iter().map(|(slot, count)| (*slot, *count)).collect::<Vec<_>>());
            if let Some((_, list)) = postings.list(everywhere) {
                prop_assert_eq!(list.len(), model.len());
                for chunk in list.chunks() {
                    prop_assert!(chunk.postings.len() <= CHUNK && !chunk.postings.is_empty());
                    prop_assert!(chunk.first <= chunk.postings[0].slot());
                }
            }
            for slot in model.keys() {
                prop_assert_eq!(postings.of(*slot).count(), 2);
            }
        }
    }

    #[test]
    fn terms_that_nobody_has_are_forgotten() {
        let mut postings = Postings::default();
        for n in 0..1000 {
            let key = postings.key(Kind::Word, &n.to_string());
            postings.remove(0);
            postings.put(0, 1, [(key, 1)].into_iter());
        }
        assert!(postings.lists.len() <= 2 && postings.terms.len() == 1);
    }
}
