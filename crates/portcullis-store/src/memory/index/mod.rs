//! What is searched: all decisions in memory, by their words and by their meaning.
//!
//! A plain data structure that follows the table on disk: no threads, no locks, no clock. Every row has a
//! slot, whose words, vector and columns lie in the same place everywhere; a row that goes leaves its slot
//! to the next one, so nothing ever has to be cleaned up.
//!
//! While the filters admit few rows, each is looked at. Else candidates are found by words ([`words`]) and
//! in the neighbourhoods around the query's vector ([`neighbourhoods`]), and only those are weighed
//! ([`fuse`]).

#[cfg(feature = "bench")]
pub(super) mod bench;
mod best;
mod columns;
mod fuse;
mod neighbourhoods;
mod postings;
mod text;
mod vectors;
mod words;

#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashSet};

use portcullis_core::memory::{Decision, Filters, Outcome};

use columns::{Admitted, Columns};
pub use fuse::By;
use neighbourhoods::Vectors;
pub(crate) use neighbourhoods::{Limits, Moves, Neighbourhoods, Plan};
use vectors::Probe;
use words::{Wanted, Words};

/// How many candidates there are for every row that is wanted.
const CANDIDATES_PER_ROW: usize = 8;

/// How many rows are weighed first for every one that is wanted, before others are left out.
const FIRST_PER_ROW: usize = 8;

/// All decisions, to be searched.
#[derive(Debug)]
pub(crate) struct Index {
    limits: Limits,
    slots: BTreeMap<i64, u32>,
    free: Vec<u32>,
    /// The slots that came without a vector. One without any meaning is one all the same.
    lacking: HashSet<u32>,
    columns: Columns,
    words: Words,
    vectors: Vectors,
}

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Its words.
    pub(crate) text: &'a str,
    /// Its meaning, if there is a model.
    pub(crate) vector: Option<&'a [f32]>,
    /// Among which rows.
    pub(crate) filters: &'a Filters,
    /// How many rows at most.
    pub(crate) limit: usize,
    /// Which half decides.
    pub(crate) by: By,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nearest {
    /// Rows and their distances, the nearest first, and of the equally near the newest.
    pub(crate) rows: Vec<(i64, f32)>,
    /// How many rows the filters admit.
    pub(crate) total: usize,
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Latest {
    /// The latest first.
    pub(crate) rows: Vec<i64>,
    /// How many rows the filters admit.
    pub(crate) total: usize,
    /// Whether there are any after these.
    pub(crate) more: bool,
}

impl Index {
    /// Of vectors that have so many numbers.
    pub(crate) fn new(dimension: usize) -> Self {
        Self::with_limits(dimension, Limits::USUAL)
    }

    pub(crate) fn with_limits(dimension: usize, limits: Limits) -> Self {
        Self {
            limits,
            slots: BTreeMap::new(),
            free: Vec::new(),
            lacking: HashSet::new(),
            columns: Columns::default(),
            words: Words::default(),
            vectors: Vectors::new(dimension),
        }
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// How many of them have no vector.
    pub(crate) fn unembedded(&self) -> usize {
        self.lacking.len()
    }

    /// Puts a decision in, or in the place of what had its row. A vector that is all zeros or not of the
    /// right length is as good as none.
    pub(crate) fn put(&mut self, row: i64, decision: &Decision, vector: Option<&[f32]>) {
        self.remove(row);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.columns.slots() < postings::MAX_SLOTS => self.columns.slots() as u32,
            // A quarter of a billion rows: those after them are kept on disk and not found.
            None => return,
        };
        self.slots.insert(row, slot);
        self.columns.put(slot, row, decision);
        self.words.put(slot, decision);
        match vector {
            Some(vector) => self.vectors.put(slot, vector),
            None => {
                self.lacking.insert(slot);
            }
        }
    }

    /// Takes a row out, if it is there.
    pub(crate) fn remove(&mut self, row: i64) {
        if let Some(slot) = self.slots.remove(&row) {
            self.columns.remove(slot);
            self.words.remove(slot);
            self.vectors.remove(slot);
            self.lacking.remove(&slot);
            self.free.push(slot);
        }
    }

    /// The nearest rows. What has neither a word nor a direction in common is not among them.
    pub(crate) fn search(&self, asked: &Asked<'_>) -> Nearest {
        let admitted = self.columns.admitted(asked.filters, &self.words.postings);
        let total = admitted.len();
        let (text, vector) = match asked.by {
            By::Both => (asked.text, asked.vector),
            By::Words => (asked.text, None),
            By::Meaning => ("", asked.vector),
        };
        let probe = vector.and_then(|vector| self.vectors.probe(vector));
        let wanted = self.words.wanted(text, self.len());
        let slots = if total <= self.limits.exact {
            admitted.slots().collect()
        } else {
            self.candidates(&wanted, probe.as_ref(), &admitted, asked.limit)
        };
        let titled = match asked.by {
            By::Both => self.titled(text, &admitted),
            By::Words | By::Meaning => Vec::new(),
        };
        let mut rows = self.weigh(asked, &slots, &wanted, probe.as_ref());
        if !titled.is_empty() {
            rows.retain(|(slot, _)| titled.binary_search(slot).is_err());
            rows.extend(titled.into_iter().map(|slot| (slot, 0.0)));
        }
        let rows = rows.into_iter();
        let mut rows: Vec<(i64, f32)> = rows
            .map(|(slot, distance)| (self.columns.row(slot), distance))
            .collect();
        if rows.len() > asked.limit {
            rows.select_nth_unstable_by(asked.limit, nearer);
            rows.truncate(asked.limit);
        }
        rows.sort_unstable_by(nearer);
        Nearest { rows, total }
    }

    /// The latest first, by date and then by row; only what comes after the row `after` in that order,
    /// which is nothing if there is no such row.
    pub(crate) fn latest(&self, filters: &Filters, after: Option<i64>, limit: usize) -> Latest {
        let admitted = self.columns.admitted(filters, &self.words.postings);
        let total = admitted.len();
        let before = match after {
            None => (i64::MAX, i64::MAX),
            Some(row) => match self.slots.get(&row) {
                Some(slot) => self.columns.age(*slot),
                None => (i64::MIN, i64::MIN),
            },
        };
        let mut latest = BinaryHeap::new();
        let mut oldest = (i64::MIN, i64::MIN);
        for slot in admitted.slots() {
            let age = self.columns.age(slot);
            if age <= oldest || age >= before && after.is_some() {
                continue;
            }
            latest.push(Reverse(age));
            // One more than wanted, to know whether there is one.
            if latest.len() > limit.saturating_add(1) {
                latest.pop();
                oldest = latest.peek().map_or(oldest, |Reverse(age)| *age);
            }
        }
        let more = latest.len() > limit;
        let mut rows = latest.into_sorted_vec();
        rows.truncate(limit);
        Latest {
            rows: rows.into_iter().map(|Reverse((_, row))| row).collect(),
            total,
            more,
        }
    }

    /// How sure agents were and how it turned out, for every reviewed row that had a confidence.
    pub(crate) fn track_record(&self, filters: &Filters) -> Vec<(f64, Outcome)> {
        let admitted = self.columns.admitted(filters, &self.words.postings);
        let slots = admitted.slots();
        slots
            .filter_map(|slot| self.columns.track_record(slot))
            .collect()
    }

    /// Whether vectors are searched in neighbourhoods rather than one by one.
    pub(crate) fn is_approximate(&self) -> bool {
        self.vectors.is_approximate()
    }

    /// Whether it is time for better neighbourhoods.
    pub(crate) fn is_plan_due(&self) -> bool {
        self.vectors.is_plan_due(&self.limits)
    }

    /// What better neighbourhoods would be made of, if it is time for some. With [`Plan::make`] out of any
    /// lock, and the rest in small steps, searches hardly notice:
    ///
    /// ```text
    /// if let Some(plan) = index.read().plan() {
    ///     let made = plan.make();
    ///     index.write().adopt(made);
    ///     loop {
    ///         let moves = index.read().moves(128);
    ///         if moves.is_empty() {
    ///             break;
    ///         }
    ///         index.write().settle(&moves);
    ///     }
    /// }
    /// ```
    pub(crate) fn plan(&self) -> Option<Plan> {
        self.vectors.plan(&self.limits)
    }

    /// Takes new neighbourhoods in use. False if the last ones are still being moved to.
    pub(crate) fn adopt(&mut self, neighbourhoods: Neighbourhoods) -> bool {
        self.vectors.adopt(neighbourhoods)
    }

    /// Where at most so many rows belong that are still where they were before. None when all is done.
    pub(crate) fn moves(&self, most: usize) -> Moves {
        self.vectors.moves(most)
    }

    /// Moves them there, in a microsecond each. What has changed since is left as it is.
    pub(crate) fn settle(&mut self, moves: &Moves) {
        self.vectors.settle(moves);
    }

    /// The slots that are worth being weighed.
    fn candidates(
        &self,
        wanted: &Wanted<'_>,
        probe: Option<&Probe>,
        admitted: &Admitted<'_>,
        limit: usize,
    ) -> Vec<u32> {
        let wide = limit.saturating_mul(CANDIDATES_PER_ROW);
        let by_words = wide.max(self.limits.by_words);
        let by_words = self.words.top(wanted, admitted, by_words).into_slots();
        let by_meaning = probe.map(|probe| {
            let most = wide.max(self.limits.by_meaning);
            let best = self.vectors.top(probe, admitted, most, &self.limits);
            best.into_slots()
        });
        let mut slots: Vec<u32> = by_words.chain(by_meaning.into_iter().flatten()).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The distance of each slot that has one, and that may come among the nearest.
    fn weigh(
        &self,
        asked: &Asked<'_>,
        slots: &[u32],
        wanted: &Wanted<'_>,
        probe: Option<&Probe>,
    ) -> Vec<(u32, f32)> {
        let Some(probe) = probe else {
            let shares = self.words.shares(slots, wanted);
            let both = slots.iter().zip(shares);
            let weighed = both.map(|(slot, share)| (*slot, fuse::distance(asked.by, None, share)));
            return weighed.filter_map(|(slot, it)| Some((slot, it?))).collect();
        };
        let cosines = self.vectors.cosines(probe, slots);
        // Words take longer than cosines. Those that point most alike first; of the rest only those that
        // come near enough if they had every word.
        let first = asked.limit.saturating_mul(FIRST_PER_ROW);
        let alike = if first < cosines.len() {
            let mut sorted = cosines.clone();
            *sorted
                .select_nth_unstable_by(first, |one, other| other.total_cmp(one))
                .1
        } else {
            f32::NEG_INFINITY
        };
        let both = slots.iter().copied().zip(cosines);
        let (both, rest): (Vec<_>, Vec<_>) = both.partition(|(_, cosine)| *cosine >= alike);
        let mut weighed = self.distances(asked.by, &both, wanted);
        if weighed.len() > asked.limit && asked.limit > 0 {
            weighed.select_nth_unstable_by(asked.limit - 1, |one, other| one.1.total_cmp(&other.1));
        }
        let farthest = match weighed.get(asked.limit.wrapping_sub(1)) {
            Some((_, distance)) => *distance,
            None => f32::INFINITY,
        };
        let near = |(_, cosine): &(u32, f32)| {
            let best = fuse::distance(asked.by, Some(*cosine), 1.0);
            best.is_some_and(|best| best <= farthest)
        };
        let rest: Vec<(u32, f32)> = rest.into_iter().filter(near).collect();
        weighed.extend(self.distances(asked.by, &rest, wanted));
        weighed
    }

    /// The distance of each slot that has one, by its cosine.
    fn distances(&self, by: By, slots: &[(u32, f32)], wanted: &Wanted<'_>) -> Vec<(u32, f32)> {
        let only: Vec<u32> = slots.iter().map(|(slot, _)| *slot).collect();
        let both = slots.iter().zip(self.words.shares(&only, wanted));
        let distances = both.map(|((slot, cosine), share)| {
            let distance = fuse::distance(by, Some(*cosine), share)?;
            Some((*slot, distance))
        });
        distances.flatten().collect()
    }

    /// The admitted slots of this very title, in their order.
    fn titled(&self, title: &str, admitted: &Admitted<'_>) -> Vec<u32> {
        if title.trim().is_empty() {
            return Vec::new();
        }
        let slots = self.words.titled(title);
        slots.filter(|slot| admitted.has(*slot)).collect()
    }
}

/// The nearest first, and of the equally near the newest.
fn nearer(one: &(i64, f32), other: &(i64, f32)) -> Ordering {
    one.1.total_cmp(&other.1).then(other.0.cmp(&one.0))
}
