//! What waits to be written, together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes may wait, however few entries they are.
const MOST_BYTES: usize = 64 << 20;
/// How much is written at once.
const BATCH_ENTRIES: usize = 2048;
const BATCH_BYTES: usize = 8 << 20;

/// Why something may not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

/// A bounded queue from which one thread takes all there is.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    bound: usize,
    state: Mutex<State<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    /// How many the thread waits for; none, while it does not wait.
    wanted: Option<usize>,
    nudged: bool,
    closing: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: usize,
    since: Instant,
}

/// What was taken.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) items: Vec<T>,
    /// Whether nothing more will come.
    pub(crate) finished: bool,
}

/// How long to wait for more than one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    pub(crate) entries: usize,
    pub(crate) at_most: Duration,
}

impl Gather {
    /// Takes what there is at once.
    pub(crate) const NOTHING: Self = Self {
        entries: 1,
        at_most: Duration::ZERO,
    };
}

impl<T> Queue<T> {
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            bound,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                bytes: 0,
                wanted: None,
                nudged: false,
                closing: false,
            }),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn push(&self, item: T, bytes: usize) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closing {
            return Err(Refused::Closed);
        }
        // One by itself may be as large as it likes: its memory is taken already.
        let heavy = !state.waiting.is_empty() && state.bytes + bytes > MOST_BYTES;
        if state.waiting.len() >= self.bound || heavy {
            return Err(Refused::Full);
        }
        state.bytes += bytes;
        state.waiting.push_back(Waiting {
            item,
            bytes,
            since: Instant::now(),
        });
        // Waking is a system call, so it is left out where nobody sleeps.
        let wake = state
            .wanted
            .is_some_and(|wanted| state.waiting.len() >= wanted);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Lets the thread look around, though nothing waits.
    pub(crate) fn nudge(&self) {
        self.lock().nudged = true;
        self.wake.notify_one();
    }

    /// Lets nothing more in.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// How many wait, and since when the first does.
    pub(crate) fn waiting(&self) -> (usize, Option<Instant>) {
        let state = self.lock();
        (
            state.waiting.len(),
            state.waiting.front().map(|first| first.since),
        )
    }

    /// Takes what there is, or, after `patience`, nothing.
    ///
    /// Those who were answered together come back one after the other. To write the first of them alone would
    /// let all others wait for two writes instead of one, so `gather` gives them a moment.
    pub(crate) fn take(&self, patience: Duration, gather: Gather) -> Taken<T> {
        let state = self.lock();
        let idle = |state: &State<T>| state.waiting.is_empty() && !state.nudged && !state.closing;
        let state = self.wait(state, 1, patience, idle);
        let few = |state: &State<T>| {
            let len = state.waiting.len();
            0 < len && len < gather.entries && !state.closing
        };
        let mut state = self.wait(state, gather.entries, gather.at_most, few);
        state.nudged = false;
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
            let Some(next) = state.waiting.pop_front() else {
                break;
            };
            bytes += next.bytes;
            items.push(next.item);
        }
        state.bytes -= bytes;
        Taken {
            items,
            finished: state.closing && state.waiting.is_empty(),
        }
    }

    fn wait<'q>(
        &self,
        mut state: MutexGuard<'q, State<T>>,
        wanted: usize,
        at_most: Duration,
        still: impl Fn(&State<T>) -> bool,
    ) -> MutexGuard<'q, State<T>> {
        if !still(&state) || at_most.is_zero() {
            return state;
        }
        state.wanted = Some(wanted);
        let waited = self
            .wake
            .wait_timeout_while(state, at_most, |state| still(state));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted = None;
        state
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing here panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn what_waits_is_taken_in_order_and_all_at_once() {
        let queue = Queue::new(3);
        assert!(queue.take(SOON, Gather::NOTHING).items.is_empty());
        for n in 0..3 {
            queue.push(n, 1).unwrap();
        }
        assert_eq!(queue.push(3, 1), Err(Refused::Full));
        assert_eq!(queue.waiting().0, 3);
        assert_eq!(queue.take(SOON, Gather::NOTHING).items, [0, 1, 2]);
        queue.push(4, 1).unwrap();
        queue.close();
        assert_eq!(queue.push(5, 1), Err(Refused::Closed));
        let taken = queue.take(SOON, Gather::NOTHING);
        assert!(taken.items == [4] && taken.finished);
    }

    #[test]
    fn memory_is_bounded_and_so_is_a_batch() {
        let queue = Queue::new(usize::MAX);
        for _ in 0..8 {
            queue.push((), MOST_BYTES / 8).unwrap();
        }
        assert_eq!(queue.push((), 1), Err(Refused::Full));
        assert_eq!(queue.take(SOON, Gather::NOTHING).items.len(), 1);
        queue.push((), 1).unwrap();
        for _ in 0..7 {
            queue.take(SOON, Gather::NOTHING);
        }
        for _ in 0..=BATCH_ENTRIES {
            queue.push((), 1).unwrap();
        }
        assert_eq!(queue.take(SOON, Gather::NOTHING).items.len(), BATCH_ENTRIES);
    }

    #[test]
    fn those_who_come_together_are_waited_for() {
        let queue = Queue::new(100);
        let gather = Gather {
            entries: 3,
            at_most: Duration::from_mins(1),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|n| queue.push(n, 1).unwrap()));
            assert_eq!(queue.take(Duration::from_mins(1), gather).items.len(), 3);
        });
    }
}
