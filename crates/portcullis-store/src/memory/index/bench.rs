//! A door for `examples/memory_index.rs`.

use portcullis_core::memory::{Decision, Filters};

use super::{Asked, By, Index};

/// The index, as far as it is measured.
#[derive(Debug)]
pub struct Bench(Index);

impl Bench {
    /// Of vectors that have so many numbers.
    pub fn new(dimension: usize) -> Self {
        Self(Index::new(dimension))
    }

    /// Puts a decision in.
    pub fn put(&mut self, row: i64, decision: &Decision, vector: &[f32]) {
        self.0.put(row, decision, Some(vector));
    }

    /// The nearest rows, and how many were admitted.
    pub fn search(
        &self,
        text: &str,
        vector: &[f32],
        filters: &Filters,
        limit: usize,
        by: By,
    ) -> (Vec<(i64, f32)>, usize) {
        let found = self.0.search(&Asked {
            text,
            vector: Some(vector),
            filters,
            limit,
            by,
        });
        (found.rows, found.total)
    }

    /// The latest rows.
    pub fn latest(&self, filters: &Filters, limit: usize) -> Vec<i64> {
        self.0.latest(filters, None, limit).rows
    }

    /// Makes neighbourhoods if it is time, and moves everything there, `most` rows at a time. `slice` hears
    /// of each part that needs a lock: its name, and when it is over.
    pub fn tidy(&mut self, most: usize, mut slice: impl FnMut(&'static str)) {
        let Some(plan) = self.0.plan() else {
            return;
        };
        slice("plan");
        let made = plan.make();
        slice("make");
        self.0.adopt(made);
        slice("adopt");
        loop {
            let moves = self.0.moves(most);
            slice("moves");
            if moves.is_empty() {
                return;
            }
            self.0.settle(&moves);
            slice("settle");
        }
    }

    /// From now on, every admitted row is looked at.
    pub fn look_at_all(&mut self, all: bool) {
        let usual = super::Limits::USUAL;
        let exact = if all { usize::MAX } else { usual.exact };
        self.0.limits = super::Limits { exact, ..usual };
    }
}
