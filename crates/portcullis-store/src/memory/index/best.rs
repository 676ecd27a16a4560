//! The best of many.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A slot and how well it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scored {
    pub(super) score: f32,
    pub(super) slot: u32,
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scored {}

/// As many of the best as are wanted, of those over zero.
#[derive(Debug)]
pub(super) struct Best {
    most: usize,
    heap: BinaryHeap<Reverse<Scored>>,
    least: f32,
}

impl Best {
    pub(super) fn new(most: usize) -> Self {
        Self::over(0.0, most)
    }

    /// Those over more than zero.
    pub(super) fn over(least: f32, most: usize) -> Self {
        Self {
            most,
            heap: BinaryHeap::with_capacity(most.min(1 << 10)),
            least: if most == 0 { f32::INFINITY } else { least },
        }
    }

    /// What a score has to be over to come among them.
    pub(super) fn least(&self) -> f32 {
        self.least
    }

    pub(super) fn put(&mut self, slot: u32, score: f32) {
        if score <= self.least || score.is_nan() {
            return;
        }
        self.heap.push(Reverse(Scored { score, slot }));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
        if self.heap.len() == self.most
            && let Some(Reverse(worst)) = self.heap.peek()
        {
            self.least = worst.score;
        }
    }

    /// In no order.
    pub(super) fn into_slots(self) -> impl Iterator<Item = u32> {
        self.heap.into_iter().map(|Reverse(scored)| scored.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept() {
        let mut best = Best::new(3);
        for (slot, score) in [0.1, 0.5, -1.0, 0.3, f32::NAN, 0.9, 0.2, 0.0]
            .into_iter()
            .enumerate()
        {
            best.put(slot as u32, score);
        }
        assert_eq!(best.least(), 0.3);
        let mut slots: Vec<u32> = best.into_slots().collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 3, 5]);
    }

    #[test]
    fn none_are_kept_of_none_wanted() {
        let mut best = Best::new(0);
        best.put(1, 1.0);
        assert_eq!(best.into_slots().count(), 0);
    }
}
