//! What is held back: the same again, and too many.
//!
//! Invariant: nothing is lost here. Every alert that comes in is part of the count of just one message that
//! goes out, or of a count that is still held.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::message::{Held, Key, Raised};

/// Holds back alerts like one that went out a short while ago.
#[derive(Debug)]
pub(super) struct Repeats {
    window: Duration,
    capacity: usize,
    open: HashMap<Key, Open>,
    /// Oldest first.
    order: VecDeque<(Instant, Key)>,
}

/// What came since the window was opened, if anything did.
type Open = Option<(Raised, u64)>;

impl Repeats {
    /// Holds back for this long, for so many different alerts; then the oldest has to go.
    pub(super) fn new(window: Duration, capacity: usize) -> Self {
        Self {
            window,
            capacity: capacity.max(1),
            open: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Takes an alert; gives those that go out now, and how many each stands for, and whether this one is
    /// held back.
    pub(super) fn take(&mut self, raised: Raised, now: Instant) -> (Vec<(Raised, u64)>, bool) {
        if self.window.is_zero() {
            return (vec![(raised, 1)], false);
        }
        let mut out = self.expired(now);
        if let Some(open) = self.open.get_mut(&raised.key) {
            let count = open.as_ref().map_or(0, |(_, count)| *count);
            *open = Some((raised, count + 1));
            return (out, true);
        }
        if self.open.len() == self.capacity {
            out.extend(self.close_oldest());
        }
        self.begin(raised.key, now);
        out.push((raised, 1));
        (out, false)
    }

    /// When there may be something to send though nothing comes in.
    pub(super) fn due(&self) -> Option<Instant> {
        let (opened, _) = self.order.front()?;
        Some(*opened + self.window)
    }

    /// The last of those that came again in windows that are over. Each begins the next window, so that what
    /// goes on and on is told once a window.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<(Raised, u64)> {
        let mut out = Vec::new();
        while self.due().is_some_and(|due| due <= now) {
            if let Some((raised, count)) = self.close_oldest() {
                self.begin(raised.key, now);
                out.push((raised, count));
            }
        }
        out
    }

    /// All that is held back.
    pub(super) fn finish(&mut self) -> Vec<(Raised, u64)> {
        let mut out = Vec::new();
        while !self.order.is_empty() {
            out.extend(self.close_oldest());
        }
        out
    }

    fn begin(&mut self, key: Key, now: Instant) {
        self.order.push_back((now, key));
        self.open.insert(key, None);
    }

    fn close_oldest(&mut self) -> Open {
        let (_, key) = self.order.pop_front()?;
        self.open.remove(&key)?
    }
}

/// Lets only so many messages through in any window, and counts the rest.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    window: Duration,
    /// When those of the last window left.
    sent: VecDeque<Instant>,
    held: Held,
    /// Since when there is something to sum up.
    held_since: Option<Instant>,
    summed_up: Option<Instant>,
}

impl Limit {
    /// At most so many in any window. One of them is kept for a summary, where there is more than one.
    pub(super) fn new(most: usize, window: Duration) -> Self {
        Self {
            most: most.max(1),
            window,
            sent: VecDeque::new(),
            held: Held::default(),
            held_since: None,
            summed_up: None,
        }
    }

    /// Whether a message that stands for so many may go. If not, it is counted.
    pub(super) fn admit(&mut self, count: u64, rule_id: Option<&str>, now: Instant) -> bool {
        self.forget(now);
        let summed_up = self.summed_up.is_some_and(|at| at + self.window > now);
        let kept = usize::from(self.most > 1 && !summed_up);
        if self.sent.len() + kept < self.most {
            self.sent.push_back(now);
            return true;
        }
        self.hold(count, rule_id, now);
        false
    }

    /// Counts what did not go.
    pub(super) fn hold(&mut self, count: u64, rule_id: Option<&str>, now: Instant) {
        self.held.add(count, rule_id);
        self.held_since.get_or_insert(now);
    }

    /// Counts what was summed up, and did not go.
    pub(super) fn hold_again(&mut self, held: Held, now: Instant) {
        self.held = held;
        self.held_since = Some(now);
    }

    /// When there is a summary to send: not before a few more have come, and once in a window.
    pub(super) fn due(&self) -> Option<Instant> {
        let mut due = self.held_since? + self.window / 12;
        if let Some(summed_up) = self.summed_up {
            due = due.max(summed_up + self.window);
        }
        // The one that must be a window old before there is room.
        if let Some(last) = self.sent.len().checked_sub(self.most) {
            due = due.max(self.sent[last] + self.window);
        }
        Some(due)
    }

    /// What there is to sum up, if it is time to.
    pub(super) fn summary(&mut self, now: Instant) -> Option<Held> {
        self.forget(now);
        if self.due()? > now {
            return None;
        }
        self.sent.push_back(now);
        self.summed_up = Some(now);
        self.finish()
    }

    /// What there is to sum up, whether or not it is time to.
    pub(super) fn finish(&mut self) -> Option<Held> {
        self.held_since.take()?;
        Some(std::mem::take(&mut self.held))
    }

    fn forget(&mut self, now: Instant) {
        while self
            .sent
            .front()
            .is_some_and(|sent| *sent + self.window <= now)
        {
            self.sent.pop_front();
        }
    }
}
