//! Where decisions lie: a plain one that looks at each.

use std::collections::{BTreeMap, HashSet};

use portcullis_core::memory::{Decision, Filters, Outcome};

/// What decisions are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Words and meaning.
    #[default]
    Both,
    /// Words alone.
    Words,
    /// Meaning alone.
    Meaning,
}

/// What is asked for.
pub(crate) struct Asked<'a> {
    pub(crate) text: &'a str,
    pub(crate) vector: Option<&'a [f32]>,
    pub(crate) filters: &'a Filters,
    pub(crate) limit: usize,
    pub(crate) by: By,
}

/// Rows and their distances, the nearest first.
pub(crate) struct Nearest {
    pub(crate) rows: Vec<(i64, f32)>,
    pub(crate) total: usize,
}

/// Rows, the latest first.
pub(crate) struct Latest {
    pub(crate) rows: Vec<i64>,
    pub(crate) total: usize,
    pub(crate) more: bool,
}

/// All decisions, in memory.
pub(crate) struct Index {
    dimension: usize,
    entries: BTreeMap<i64, Entry>,
    unembedded: usize,
}

struct Entry {
    decision: Decision,
    words: HashSet<String>,
    vector: Option<Vec<f32>>,
}

impl Index {
    pub(crate) fn new(dimension: usize) -> Self {
        Self {
            dimension,
            entries: BTreeMap::new(),
            unembedded: 0,
        }
    }

    pub(crate) fn put(&mut self, row: i64, decision: &Decision, vector: Option<&[f32]>) {
        let entry = Entry {
            decision: decision.clone(),
            words: decision.words().flat_map(words).collect(),
            vector: vector
                .filter(|vector| vector.len() == self.dimension)
                .map(<[f32]>::to_vec),
        };
        self.remove(row);
        self.unembedded += usize::from(entry.vector.is_none());
        self.entries.insert(row, entry);
    }

    pub(crate) fn remove(&mut self, row: i64) {
        if let Some(entry) = self.entries.remove(&row) {
            self.unembedded -= usize::from(entry.vector.is_none());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn unembedded(&self) -> usize {
        self.unembedded
    }

    #[expect(clippy::unused_self, reason = "another kind of index may be")]
    pub(crate) fn is_approximate(&self) -> bool {
        false
    }

    pub(crate) fn search(&self, asked: &Asked<'_>) -> Nearest {
        let wanted: HashSet<String> = words(asked.text).collect();
        let vector = asked.vector.filter(|_| asked.by != By::Words);
        let title = asked.text.trim();
        let distance = |entry: &Entry| {
            if entry.decision.title() == title {
                return 0.0;
            }
            let shared = wanted.intersection(&entry.words).count() as f32;
            let by_words = 1.0 - shared / wanted.len().max(1) as f32;
            let by_meaning = vector.zip(entry.vector.as_ref()).map(|(a, b)| {
                let cosine: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                (1.0 - cosine).clamp(0.0, 1.0)
            });
            match asked.by {
                By::Meaning => by_meaning.unwrap_or(1.0),
                _ => by_words.min(by_meaning.unwrap_or(1.0)),
            }
        };
        let admitted = self.admitted(asked.filters);
        let mut rows: Vec<_> = admitted
            .map(|(row, entry)| (row, distance(entry)))
            .collect();
        let total = rows.len();
        rows.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        rows.truncate(asked.limit);
        Nearest { rows, total }
    }

    pub(crate) fn latest(&self, filters: &Filters, after: Option<i64>, limit: usize) -> Latest {
        let place = |row, entry: &Entry| (entry.decision.date, row);
        let mut rows: Vec<_> = self
            .admitted(filters)
            .map(|(row, entry)| place(row, entry))
            .collect();
        let total = rows.len();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(after) = after {
            let after = self.entries.get(&after).map(|entry| place(after, entry));
            rows.retain(|place| after.is_some_and(|after| *place < after));
        }
        Latest {
            more: rows.len() > limit,
            rows: rows.into_iter().take(limit).map(|(_, row)| row).collect(),
            total,
        }
    }

    pub(crate) fn track_record(&self, filters: &Filters) -> Vec<(f64, Outcome)> {
        let admitted = self.admitted(filters).map(|(_, entry)| &entry.decision);
        admitted
            .filter_map(|decision| decision.confidence.zip(decision.outcome()))
            .collect()
    }

    fn admitted<'a>(&'a self, filters: &'a Filters) -> impl Iterator<Item = (i64, &'a Entry)> {
        let entries = self.entries.iter();
        entries
            .filter(|(_, entry)| filters.admit(&entry.decision))
            .map(|(row, entry)| (*row, entry))
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}
