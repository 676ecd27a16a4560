//! Finding by words: BM25 over the lists of those who have them.

use portcullis_core::memory::Decision;

use super::best::Best;
use super::columns::{Admitted, folded, labels};
use super::fuse::{self, Bm25};
use super::postings::{Chunk, Key, Kind, List, MAX_COUNT, Posting, Postings};
use super::text::terms;

/// The most words of a query that are looked for: the rarest.
const MAX_WANTED: usize = 64;

/// How many slots are looked at in one go.
const WINDOW: usize = 4096;

/// What it costs to see which words a document has, against seeing one entry of a list.
const DOCUMENT_COST: usize = 40;

/// The words of every slot.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) postings: Postings,
    lengths: Vec<u16>,
    total: u64,
}

/// The words of a query, as far as anybody has them.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    terms: Vec<Term<'a>>,
    bm25: Bm25,
    /// The BM25 of an average document that has each of them once.
    once_each: f32,
}

#[derive(Debug)]
struct Term<'a> {
    number: u32,
    list: &'a List,
    rarity: f32,
}

/// What is written about a decision. Its title says most, and counts twice.
pub(super) fn written<'d>(decision: &'d Decision, title: &'d str) -> impl Iterator<Item = &'d str> {
    decision.words().chain(std::iter::once(title))
}

impl Words {
    /// Gives a slot that has none its words and labels.
    pub(super) fn put(&mut self, slot: u32, decision: &Decision) {
        let mut keys = Vec::new();
        let title = decision.title();
        for text in written(decision, &title) {
            terms(text, |term| keys.push(self.postings.key(Kind::Word, term)));
        }
        let length = u16::try_from(keys.len()).unwrap_or(u16::MAX);
        keys.sort_unstable();
        let words = counted(&keys);
        let mut labels: Vec<Key> = labels(decision, &self.postings).collect();
        labels.sort_unstable();
        labels.dedup();
        let labels = labels.into_iter().map(|label| (label, 1));
        self.postings.put(slot, length, words.chain(labels));

        let at = slot as usize;
        if at >= self.lengths.len() {
            self.lengths.resize(at + 1, 0);
        }
        self.lengths[at] = length;
        self.total += u64::from(length);
    }

    /// Takes them from it.
    pub(super) fn remove(&mut self, slot: u32) {
        self.postings.remove(slot);
        let length = std::mem::take(&mut self.lengths[slot as usize]);
        self.total -= u64::from(length);
    }

    /// The words of a query, among so many documents.
    pub(super) fn wanted(&self, text: &str, documents: usize) -> Wanted<'_> {
        let mut keys = Vec::new();
        terms(text, |term| keys.push(self.postings.key(Kind::Word, term)));
        keys.sort_unstable();
        keys.dedup();
        let asked = keys.len();
        let bm25 = Bm25::new(documents, self.total);
        let known = keys.into_iter().filter_map(|key| self.postings.list(key));
        let mut terms: Vec<Term<'_>> = known
            .map(|(number, list)| Term {
                number,
                list,
                rarity: bm25.rarity(list.len()),
            })
            .collect();
        let unknown = (asked - terms.len()).min(MAX_WANTED.saturating_sub(terms.len()));
        terms.sort_unstable_by_key(|term| (term.list.len(), term.number));
        terms.truncate(MAX_WANTED);
        terms.sort_unstable_by_key(|term| term.number);
        let once_each = terms.iter().map(|term| term.rarity).sum::<f32>();
        Wanted {
            terms,
            bm25,
            once_each: once_each + unknown as f32 * bm25.rarity(0),
        }
    }

    /// The slots of this very title.
    pub(super) fn titled(&self, title: &str) -> impl Iterator<Item = u32> {
        let key = self.postings.key(Kind::Title, &folded(title));
        let list = self.postings.list(key);
        list.into_iter().flat_map(|(_, list)| list.slots())
    }

    /// The share of the words that a slot has.
    pub(super) fn share(&self, slot: u32, wanted: &Wanted<'_>) -> f32 {
        let mut left = wanted.terms.iter().peekable();
        let mut sum = 0.0;
        for (number, count) in self.postings.of(slot) {
            while left.next_if(|term| term.number < number).is_some() {}
            let Some(term) = left.peek() else {
                break;
            };
            if term.number == number {
                sum += term.rarity * wanted.bm25.part(count, self.lengths[slot as usize]);
            }
        }
        fuse::words(sum, wanted.once_each)
    }

    /// The share of the words that each of these slots has, by whichever way is shorter.
    pub(super) fn shares(&self, slots: &[u32], wanted: &Wanted<'_>) -> Vec<f32> {
        let listed: usize = wanted.terms.iter().map(|term| term.list.len()).sum();
        if listed + self.lengths.len() / 4 > slots.len() * DOCUMENT_COST {
            return slots.iter().map(|slot| self.share(*slot, wanted)).collect();
        }
        let mut sums = vec![0.0; self.lengths.len()];
        for term in &wanted.terms {
            for chunk in term.list.chunks() {
                self.add(&chunk.postings, term.rarity, wanted.bm25, 0, &mut sums);
            }
        }
        let share = |slot: &u32| fuse::words(sums[*slot as usize], wanted.once_each);
        slots.iter().map(share).collect()
    }

    /// The slots that have the most of the words. Whole windows, and within others the lists of common
    /// words, are passed over as soon as they cannot bring a slot among those (`MaxScore`).
    pub(super) fn top(&self, wanted: &Wanted<'_>, admitted: &Admitted<'_>, most: usize) -> Best {
        let mut best = Best::new(most);
        let bm25 = wanted.bm25;
        let mut lists: Vec<Cursor<'_>> = wanted.terms.iter().map(Cursor::new).collect();
        let mut sums = vec![0.0; WINDOW];
        for start in (0..self.lengths.len()).step_by(WINDOW) {
            let end = (start + WINDOW) as u32;
            for list in &mut lists {
                list.enter(start as u32, end, bm25);
            }
            lists.sort_unstable_by(|one, other| one.bound.total_cmp(&other.bound));
            let mut reach = 0.0;
            let mut optional = 0;
            for list in &mut lists {
                list.reach = reach + list.bound;
                if list.reach > best.least() {
                    break;
                }
                reach = list.reach;
                optional += 1;
            }
            let (optional, needed) = lists.split_at_mut(optional);
            if needed.is_empty() {
                continue;
            }
            for list in needed {
                let rarity = list.rarity;
                list.window(end, |postings| {
                    self.add(postings, rarity, bm25, start, &mut sums);
                });
            }
            let at_least = best.least() - reach;
            for (block, sums) in sums.chunks_mut(32).enumerate() {
                // All at once first: most blocks have nothing.
                if !sums.iter().fold(false, |any, sum| any | (*sum > at_least)) {
                    continue;
                }
                for (at, sum) in sums.iter().enumerate() {
                    let slot = (start + block * 32 + at) as u32;
                    if *sum > at_least && *sum > 0.0 && admitted.has(slot) {
                        let length = self.lengths[slot as usize];
                        best.put(slot, complete(*sum, slot, length, optional, &best, bm25));
                    }
                }
            }
            sums.fill(0.0);
        }
        best
    }

    /// Adds what postings are worth to the sums of their slots, which begin with the slot `start`.
    fn add(&self, postings: &[Posting], rarity: f32, bm25: Bm25, start: usize, sums: &mut [f32]) {
        let lengths = &self.lengths[start..];
        for posting in postings {
            let at = posting.slot() as usize - start;
            sums[at] += rarity * bm25.part(posting.count(), lengths[at]);
        }
    }
}

/// Adds the lists that were left out, until it is clear that the slot does not come among the best.
fn complete(
    mut sum: f32,
    slot: u32,
    length: u16,
    optional: &mut [Cursor<'_>],
    best: &Best,
    bm25: Bm25,
) -> f32 {
    for list in optional.iter_mut().rev() {
        if sum + list.reach <= best.least() {
            return 0.0;
        }
        if let Some(count) = list.count(slot) {
            sum += list.rarity * bm25.part(count, length);
        }
    }
    sum
}

/// A place in a list, which only moves on.
#[derive(Debug)]
struct Cursor<'a> {
    chunks: &'a [Chunk],
    at: usize,
    rarity: f32,
    /// The most that a slot of this window can get by the list.
    bound: f32,
    /// That, and what it can get by all lists with lower bounds.
    reach: f32,
}

impl<'a> Cursor<'a> {
    fn new(term: &Term<'a>) -> Self {
        Self {
            chunks: term.list.chunks(),
            at: 0,
            rarity: term.rarity,
            bound: 0.0,
            reach: 0.0,
        }
    }

    /// Moves to the first posting from this slot on.
    fn seek(&mut self, slot: u32) -> Option<Posting> {
        while let Some(next) = self.chunks.get(1)
            && next.first <= slot
        {
            self.chunks = &self.chunks[1..];
            self.at = 0;
        }
        let chunk = self.chunks.first()?;
        let left = &chunk.postings[self.at..];
        self.at += left.partition_point(|posting| posting.slot() < slot);
        if let Some(posting) = chunk.postings.get(self.at) {
            return Some(*posting);
        }
        self.chunks = &self.chunks[1..];
        self.at = 0;
        self.chunks.first()?.postings.first().copied()
    }

    fn count(&mut self, slot: u32) -> Option<u8> {
        let posting = self.seek(slot)?;
        (posting.slot() == slot).then(|| posting.count())
    }

    /// Moves to a window and sees what can be had there.
    fn enter(&mut self, start: u32, end: u32, bm25: Bm25) {
        self.bound = 0.0;
        if self.seek(start).is_some_and(|posting| posting.slot() < end) {
            let within = self.chunks.iter().take_while(|chunk| chunk.first < end);
            let parts = within.map(|chunk| bm25.part(chunk.highest, chunk.shortest));
            self.bound = self.rarity * parts.fold(0.0, f32::max);
        }
    }

    /// Hands over what the window still has, and moves to its end.
    fn window(&mut self, end: u32, mut each: impl FnMut(&'a [Posting])) {
        while let Some(chunk) = self.chunks.first() {
            let left = &chunk.postings[self.at..];
            let within = left.partition_point(|posting| posting.slot() < end);
            each(&left[..within]);
            self.at += within;
            if within < left.len() {
                return;
            }
            self.chunks = &self.chunks[1..];
            self.at = 0;
        }
    }
}

/// Each key once, with how often it is there.
fn counted(sorted: &[Key]) -> impl Iterator<Item = (Key, u8)> {
    sorted.chunk_by(PartialEq::eq).map(|same| {
        let count = u8::try_from(same.len()).unwrap_or(u8::MAX);
        (same[0], count.min(MAX_COUNT))
    })
}
