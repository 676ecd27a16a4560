//! Finding by words: BM25 over the lists of those who have them.

use portcullis_core::memory::Decision;

use super::best::Best;
use super::columns::{Admitted, folded, labels};
use super::fuse::{self, Bm25};
use super::postings::{Chunk, Key, Kind, List, MAX_COUNT, Posting, Postings};
use super::text::terms;

/// The most words of a query that are looked for: the rarest.
const MAX_WANTED: usize = 64;

/// How many slots are looked at in one go. In tests few, so that there are many windows.
const WINDOW: usize = if cfg!(test) { 64 } else { 16384 };

/// How many of them are looked at at once.
const BLOCK: usize = 32;

/// How many slots of a window have a word at most that is called sparse.
const SPARSE: usize = if cfg!(test) { 4 } else { 64 };

/// How many slots are looked at first for every one that is wanted, of how many at most.
const SEEDS: usize = 4;
const SEEN: usize = 10_000;

/// What it costs to find a slot in a list, against adding one.
const SEEK_COST: usize = 8;

/// How many documents are fetched from memory at the same time.
const AHEAD: usize = 16;

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
        fuse::words(self.bm25(slot, wanted), wanted.once_each)
    }

    fn bm25(&self, slot: u32, wanted: &Wanted<'_>) -> f32 {
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
        sum
    }

    /// The share of the words that each of these slots has, by whichever way is shorter.
    pub(super) fn shares(&self, slots: &[u32], wanted: &Wanted<'_>) -> Vec<f32> {
        if wanted.terms.is_empty() {
            return vec![0.0; slots.len()];
        }
        let listed: usize = wanted.terms.iter().map(|term| term.list.len()).sum();
        if listed + self.lengths.len() / 4 > slots.len() * DOCUMENT_COST {
            let mut shares = Vec::with_capacity(slots.len());
            for slots in slots.chunks(AHEAD) {
                self.postings.fetch(slots);
                shares.extend(slots.iter().map(|slot| self.share(*slot, wanted)));
            }
            return shares;
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
        let mut best = Best::over(self.reached(wanted, admitted, most), most);
        let bm25 = wanted.bm25;
        let slots = self.lengths.len();
        let lists = wanted.terms.iter().map(|term| Cursor::new(term, slots));
        let mut lists: Vec<Cursor<'_>> = lists.collect();
        let mut sums = vec![0.0; WINDOW];
        let mut left = Vec::new();
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
                self.add_window(list, start, bm25, &mut sums);
            }
            left.clear();
            collect(&sums, best.least() - reach, &mut left);
            left.retain(|at| admitted.has((start + usize::from(*at)) as u32));
            for list in optional.iter_mut().rev() {
                let over = best.least() - list.reach;
                left.retain(|at| sums[usize::from(*at)] > over);
                if left.len() * SEEK_COST > list.length * WINDOW / self.lengths.len() {
                    self.add_window(list, start, bm25, &mut sums);
                    continue;
                }
                for at in &left {
                    let slot = start + usize::from(*at);
                    if let Some(count) = list.count(slot as u32) {
                        let part = bm25.part(count, self.lengths[slot]);
                        sums[usize::from(*at)] += list.rarity * part;
                    }
                }
            }
            for at in &left {
                let slot = start + usize::from(*at);
                best.put(slot as u32, sums[usize::from(*at)]);
            }
            sums.fill(0.0);
        }
        best
    }

    /// What so many slots reach at least: some that have the rarest words are looked at first, so that
    /// there is something to compare with from the beginning.
    fn reached(&self, wanted: &Wanted<'_>, admitted: &Admitted<'_>, most: usize) -> f32 {
        let mut rarest: Vec<&Term<'_>> = wanted.terms.iter().collect();
        rarest.sort_unstable_by_key(|term| term.list.len());
        let slots = rarest.into_iter().flat_map(|term| term.list.slots());
        let slots = slots.take(SEEN).filter(|slot| admitted.has(*slot));
        let mut slots: Vec<u32> = slots.take(most.saturating_mul(SEEDS)).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut best = Best::new(most);
        for slot in slots {
            best.put(slot, self.bm25(slot, wanted));
        }
        // A little less, because sums differ with their order.
        best.least() * 0.9999
    }

    /// Adds what a list has in a window, and moves it to the end of that.
    fn add_window(&self, list: &mut Cursor<'_>, start: usize, bm25: Bm25, sums: &mut [f32]) {
        let rarity = list.rarity;
        list.window(start as u32, (start + WINDOW) as u32, |postings| {
            self.add(postings, rarity, bm25, start, sums);
        });
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

/// Where the sums over something are.
fn collect(sums: &[f32], over: f32, found: &mut Vec<u16>) {
    for (block, sums) in sums.chunks(BLOCK).enumerate() {
        // All at once first: most blocks have nothing.
        if sums.iter().filter(|sum| **sum > over).count() == 0 {
            continue;
        }
        for (at, sum) in sums.iter().enumerate() {
            if *sum > over && *sum > 0.0 {
                found.push((block * BLOCK + at) as u16);
            }
        }
    }
}

/// A place in a list, which only moves on.
#[derive(Debug)]
struct Cursor<'a> {
    chunks: &'a [Chunk],
    at: usize,
    length: usize,
    is_sparse: bool,
    rarity: f32,
    /// The most that a slot of this window can get by the list.
    bound: f32,
    /// That, and what it can get by all lists with lower bounds.
    reach: f32,
}

impl<'a> Cursor<'a> {
    fn new(term: &Term<'a>, slots: usize) -> Self {
        Self {
            is_sparse: term.list.len() * WINDOW < slots * SPARSE,
            chunks: term.list.chunks(),
            at: 0,
            length: term.list.len(),
            rarity: term.rarity,
            bound: 0.0,
            reach: 0.0,
        }
    }

    /// Moves to the first posting from this slot on.
    fn seek(&mut self, slot: u32) -> Option<Posting> {
        self.approach(slot);
        let chunk = self.chunks.first()?;
        let end = self.chunks.get(1).map(|next| next.first);
        self.at = find(&chunk.postings, self.at, chunk.first, end, slot);
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

    /// Moves to the chunk where a slot would be, without a look into it.
    fn approach(&mut self, slot: u32) {
        while let Some(next) = self.chunks.get(1)
            && next.first <= slot
        {
            self.chunks = &self.chunks[1..];
            self.at = 0;
        }
    }

    /// Sees what can be had in a window. Where there are few in a window, whether there are any is looked
    /// up; of others, only the chunks are known until somebody needs more.
    fn enter(&mut self, start: u32, end: u32, bm25: Bm25) {
        self.approach(start);
        let has_any = !self.is_sparse || self.seek(start).is_some_and(|it| it.slot() < end);
        let within = self.chunks.iter().take_while(|chunk| chunk.first < end);
        let parts = within.map(|chunk| bm25.part(chunk.highest, chunk.shortest));
        let highest = if has_any {
            parts.fold(0.0, f32::max)
        } else {
            0.0
        };
        self.bound = self.rarity * highest;
    }

    /// Hands over what a window has, and moves to its end.
    fn window(&mut self, start: u32, end: u32, mut each: impl FnMut(&'a [Posting])) {
        self.seek(start);
        while let Some(chunk) = self.chunks.first() {
            let left = &chunk.postings[self.at..];
            if self.chunks.get(1).is_none_or(|next| next.first > end) {
                let within = left.partition_point(|posting| posting.slot() < end);
                each(&left[..within]);
                self.at += within;
                return;
            }
            each(left);
            self.chunks = &self.chunks[1..];
            self.at = 0;
        }
    }
}

/// Where the first posting from a slot on is, not before `from`. Slots are spread about evenly between
/// the first one and `end`, so a guess is near, and what is near is read in one go.
fn find(postings: &[Posting], from: usize, first: u32, end: Option<u32>, slot: u32) -> usize {
    let is_before = |at: usize| {
        postings
            .get(at)
            .is_some_and(|posting| posting.slot() < slot)
    };
    if !is_before(from) {
        return from;
    }
    let guess = match end {
        Some(end) if slot > first => {
            let (of, before) = ((end - first).max(1), slot - first);
            before as usize * postings.len() / of as usize
        }
        _ => from,
    };
    let (mut low, mut high) = (from, guess.clamp(from, postings.len()));
    let mut step = 4;
    if is_before(high) {
        while is_before(high) {
            low = high;
            high += step;
            step *= 2;
        }
    } else {
        while high - low > step && !is_before(high - step) {
            high -= step;
            step *= 2;
        }
        low = low.max(high.saturating_sub(step));
    }
    let high = high.min(postings.len());
    low + postings[low..high].partition_point(|posting| posting.slot() < slot)
}

/// Each key once, with how often it is there.
fn counted(sorted: &[Key]) -> impl Iterator<Item = (Key, u8)> {
    sorted.chunk_by(PartialEq::eq).map(|same| {
        let count = u8::try_from(same.len()).unwrap_or(u8::MAX);
        (same[0], count.min(MAX_COUNT))
    })
}
