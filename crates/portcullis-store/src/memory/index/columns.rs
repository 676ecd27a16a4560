//! What filters ask for, a column for each, and which slots they admit.

use std::borrow::Cow;

use jiff::Timestamp;
use portcullis_core::guardrails::Stakes;
use portcullis_core::memory::{Decision, Filters, Outcome, Status};

use super::postings::{Key, Kind, Postings};

/// As many slots as a number has bits.
const WORD: usize = u64::BITS as usize;

/// What is known of every slot, besides its words and its vector.
#[derive(Debug, Default)]
pub(super) struct Columns {
    rows: Vec<i64>,
    dates: Vec<i64>,
    /// Not a number if there is none.
    confidences: Vec<f64>,
    traits: Vec<Traits>,
    /// A bit for every slot, set if something is in it.
    taken: Vec<u64>,
    count: usize,
}

impl Columns {
    /// How many slots are taken.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// How many slots there are, taken or not.
    pub(super) fn slots(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn row(&self, slot: u32) -> i64 {
        self.rows[slot as usize]
    }

    /// What the latest comes by.
    pub(super) fn age(&self, slot: u32) -> (i64, i64) {
        (self.dates[slot as usize], self.rows[slot as usize])
    }

    /// How sure somebody was and how it turned out, if both are known.
    pub(super) fn track_record(&self, slot: u32) -> Option<(f64, Outcome)> {
        let confidence = self.confidences[slot as usize];
        let outcome = self.traits[slot as usize].outcome()?;
        (!confidence.is_nan()).then_some((confidence, outcome))
    }

    /// Fills a slot that is free, or the one after the last.
    pub(super) fn put(&mut self, slot: u32, row: i64, decision: &Decision) {
        let at = slot as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, 0);
            self.dates.resize(at + 1, 0);
            self.confidences.resize(at + 1, f64::NAN);
            self.traits.resize(at + 1, Traits(0));
            self.taken.resize(at / WORD + 1, 0);
        }
        self.rows[at] = row;
        self.dates[at] = nanoseconds(decision.date);
        self.confidences[at] = decision.confidence.unwrap_or(f64::NAN);
        self.traits[at] = Traits::of(decision);
        self.taken[at / WORD] |= 1 << (at % WORD);
        self.count += 1;
    }

    /// Empties a slot that is taken.
    pub(super) fn remove(&mut self, slot: u32) {
        let at = slot as usize;
        self.taken[at / WORD] &= !(1 << (at % WORD));
        self.count -= 1;
    }

    /// Which slots come into question. Labels know who has them, so they are asked first.
    pub(super) fn admitted(&self, filters: &Filters, postings: &Postings) -> Admitted<'_> {
        if filters.is_empty() {
            return Admitted {
                bits: Cow::Borrowed(&self.taken),
                count: self.count,
            };
        }
        let mut bits = self.labelled(filters, postings);
        let traits = Traits::admitted(filters);
        if traits.contains(&false) {
            keep(&mut bits, &self.traits, |it| traits[usize::from(it.0)]);
        }
        if filters.date_after.is_some() || filters.date_before.is_some() {
            let after = filters.date_after.map_or(i64::MIN, nanoseconds);
            let last = |before| nanoseconds(before).saturating_sub(1);
            let last = filters.date_before.map_or(i64::MAX, last);
            keep(&mut bits, &self.dates, |date| after <= date && date <= last);
        }
        if filters.min_confidence.is_some() || filters.max_confidence.is_some() {
            let least = filters.min_confidence.unwrap_or(f64::NEG_INFINITY);
            let most = filters.max_confidence.unwrap_or(f64::INFINITY);
            keep(&mut bits, &self.confidences, |it| least <= it && it <= most);
        }
        Admitted {
            count: bits.iter().map(|word| word.count_ones() as usize).sum(),
            bits: Cow::Owned(bits),
        }
    }

    /// The slots that have all labels which the filters name; all that are taken if they name none.
    fn labelled(&self, filters: &Filters, postings: &Postings) -> Vec<u64> {
        let labels = [
            filters.category.as_deref().map(|it| (Kind::Category, it)),
            filters.agent.as_deref().map(|it| (Kind::Agent, it)),
        ];
        let tags = filters.tags.iter().map(|tag| (Kind::Tag, tag.as_str()));
        let mut bits = None;
        for (kind, label) in labels.into_iter().flatten().chain(tags) {
            let mut having = vec![0; self.taken.len()];
            if let Some((_, list)) = postings.list(postings.key(kind, label)) {
                for slot in list.slots() {
                    having[slot as usize / WORD] |= 1 << (slot as usize % WORD);
                }
            }
            bits = Some(match bits {
                None => having,
                Some(bits) => and(bits, &having),
            });
        }
        bits.unwrap_or_else(|| self.taken.clone())
    }
}

/// The labels of a decision: what its filters and its title find it by.
pub(super) fn labels(decision: &Decision, postings: &Postings) -> impl Iterator<Item = Key> {
    let title = [postings.key(Kind::Title, &folded(&decision.title()))];
    let category = decision.category.as_deref();
    let category = category.map(|it| postings.key(Kind::Category, it));
    let agent = decision.agent.as_deref();
    let agent = agent.map(|it| postings.key(Kind::Agent, it));
    let tags = decision.tags.iter();
    let tags = tags.map(|tag| postings.key(Kind::Tag, tag));
    title.into_iter().chain(category).chain(agent).chain(tags)
}

/// A title as far as it matters whether two are the same.
pub(super) fn folded(title: &str) -> String {
    title.trim().to_lowercase()
}

/// Slots that come into question.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    bits: Cow<'a, [u64]>,
    count: usize,
}

impl Admitted<'_> {
    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether they are all that there are.
    pub(super) fn is_all(&self) -> bool {
        matches!(self.bits, Cow::Borrowed(_))
    }

    /// Whether this one is among them.
    pub(super) fn has(&self, slot: u32) -> bool {
        let word = self.bits.get(slot as usize / WORD);
        word.is_some_and(|word| word >> (slot as usize % WORD) & 1 == 1)
    }

    /// All of them, the last first.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let words = self.bits.iter().enumerate().rev();
        words.flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.checked_ilog2()?;
                left ^= 1 << bit;
                Some((at * WORD) as u32 + bit)
            })
        })
    }
}

/// What is at stake and how it turned out, which is all that there are few kinds of.
#[derive(Debug, Clone, Copy)]
struct Traits(u8);

impl Traits {
    const OUTCOMES: usize = Outcome::ALL.len() + 1;
    const KINDS: usize = Stakes::ALL.len() * Self::OUTCOMES;

    fn of(decision: &Decision) -> Self {
        let stakes = place(&Stakes::ALL, &decision.stakes);
        let outcome = decision
            .outcome()
            .map_or(0, |it| place(&Outcome::ALL, &it) + 1);
        Self((stakes * Self::OUTCOMES + outcome) as u8)
    }

    fn outcome(self) -> Option<Outcome> {
        let outcome = (usize::from(self.0) % Self::OUTCOMES).checked_sub(1)?;
        Outcome::ALL.get(outcome).copied()
    }

    /// Which of them the filters admit.
    fn admitted(filters: &Filters) -> [bool; Self::KINDS] {
        std::array::from_fn(|kind| {
            let stakes = Stakes::ALL[kind / Self::OUTCOMES];
            let outcome = Self(kind as u8).outcome();
            let status = match outcome {
                None => Status::Pending,
                Some(_) => Status::Reviewed,
            };
            (filters.stakes.is_empty() || filters.stakes.contains(&stakes))
                && (filters.status.is_empty() || filters.status.contains(&status))
                && (filters.outcome.is_empty()
                    || outcome.is_some_and(|it| filters.outcome.contains(&it)))
        })
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|it| it == one).unwrap_or_default()
}

/// A moment as a number. Those before 1678 are one, and those after 2262.
fn nanoseconds(moment: Timestamp) -> i64 {
    let nanoseconds = moment.as_nanosecond();
    let clamped = nanoseconds.clamp(i64::MIN.into(), i64::MAX.into());
    clamped as i64
}

fn and(mut bits: Vec<u64>, others: &[u64]) -> Vec<u64> {
    for (word, other) in bits.iter_mut().zip(others) {
        *word &= other;
    }
    bits
}

/// Leaves the bits whose values do.
fn keep<T: Copy>(bits: &mut [u64], values: &[T], does: impl Fn(T) -> bool) {
    for (word, values) in bits.iter_mut().zip(values.chunks(WORD)) {
        if *word == 0 {
            continue;
        }
        let mut kept = 0;
        for (at, value) in values.iter().enumerate() {
            kept |= u64::from(does(*value)) << at;
        }
        *word &= kept;
    }
}
