//! Something for each run, bounded: when there are too many, the oldest is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::effects::relock;

#[derive(Debug)]
pub(crate) struct RunMap<T> {
    max_runs: usize,
    /// Lets the usual case, nothing in it ever, skip the lock.
    any: AtomicBool,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    by_run: HashMap<Arc<str>, T>,
    /// Oldest first.
    order: VecDeque<Arc<str>>,
}

impl<T: Default> RunMap<T> {
    pub(crate) fn new(max_runs: usize) -> Self {
        Self {
            max_runs,
            any: AtomicBool::new(false),
            state: Mutex::new(State {
                by_run: HashMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    /// What there is for a run, if anything.
    pub(crate) fn read<R>(&self, run_id: &str, read: impl FnOnce(&T) -> R) -> Option<R> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        relock(&self.state).by_run.get(run_id).map(read)
    }

    /// Changes what there is for a run.
    pub(crate) fn update<R>(&self, run_id: &str, update: impl FnOnce(&mut T) -> R) -> R {
        let mut state = relock(&self.state);
        let State { by_run, order } = &mut *state;
        self.any.store(true, Ordering::Release);
        if let Some(known) = by_run.get_mut(run_id) {
            return update(known);
        }
        if order.len() >= self.max_runs
            && let Some(oldest) = order.pop_front()
        {
            by_run.remove(&oldest);
        }
        let run_id: Arc<str> = run_id.into();
        order.push_back(Arc::clone(&run_id));
        update(by_run.entry(run_id).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_run_is_forgotten() {
        let map: RunMap<u32> = RunMap::new(2);
        assert_eq!(map.read("a", |n| *n), None);
        for run in ["a", "b", "a", "c"] {
            map.update(run, |n| *n += 1);
        }
        let counts = ["a", "b", "c"].map(|run| map.read(run, |n| *n));
        assert_eq!(counts, [None, Some(1), Some(1)]);
    }
}
