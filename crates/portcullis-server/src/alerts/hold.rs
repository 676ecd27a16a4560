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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_mins(1);

    fn raised(which: u8) -> Raised {
        Raised::sample(which)
    }

    #[test]
    fn the_same_again_is_told_once_a_window_with_its_number() {
        let mut repeats = Repeats::new(WINDOW, 10);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let told = |(out, _): (Vec<(Raised, u64)>, bool)| {
            out.into_iter()
                .map(|(raised, count)| (raised.key[0], count))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(repeats.take(raised(1), at(0))), [(1, 1)]);
        assert_eq!(told(repeats.take(raised(1), at(1))), []);
        assert_eq!(told(repeats.take(raised(2), at(2))), [(2, 1)]);
        assert_eq!(told(repeats.take(raised(1), at(59))), []);
        assert_eq!(repeats.due(), Some(at(60)));
        assert_eq!(told((repeats.expired(at(61)), false)), [(1, 2)]);
        // Which began the next window.
        assert_eq!(told(repeats.take(raised(1), at(62))), []);
        assert_eq!(told((repeats.expired(at(200)), false)), [(1, 1)]);
        assert_eq!(told(repeats.take(raised(2), at(201))), [(2, 1)]);
        assert_eq!(told((repeats.expired(at(400)), false)), []);
        assert_eq!(repeats.due(), None);
        // No window, nothing held.
        let mut none = Repeats::new(Duration::ZERO, 10);
        for _ in 0..3 {
            assert_eq!(told(none.take(raised(1), at(0))), [(1, 1)]);
        }
    }

    #[test]
    fn one_of_the_messages_is_kept_for_the_summary() {
        let mut limit = Limit::new(3, WINDOW);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let admitted = (0..5).filter(|_| limit.admit(1, Some("a"), at(0))).count();
        assert_eq!(admitted, 2);
        assert_eq!(limit.summary(at(4)), None, "a few more may come");
        assert_eq!(limit.due(), Some(at(5)));
        let held = limit.summary(at(5)).unwrap();
        assert_eq!((held.count, held.rules["a"]), (3, 3));
        assert!(!limit.admit(7, Some("b"), at(6)));
        assert_eq!(limit.summary(at(59)), None, "once a window");
        assert!(limit.admit(1, Some("a"), at(60)));
        assert_eq!(limit.summary(at(65)).unwrap().count, 7);
        assert_eq!(limit.due(), None);
    }

    proptest! {
        /// However alerts come, no more than the limit leave in any window, and all are accounted for.
        #[test]
        fn nothing_is_lost_and_the_limit_holds(
            most in 1_usize..6,
            capacity in 1_usize..5,
            arrivals in prop::collection::vec((0_u8..6, 0_u64..40), 0..200),
        ) {
            let mut repeats = Repeats::new(WINDOW, capacity);
            let mut limit = Limit::new(most, WINDOW);
            let mut now = Instant::now();
            let (mut told, mut left) = (0, Vec::new());
            for (which, pause) in &arrivals {
                now += Duration::from_secs(*pause);
                let (out, _) = repeats.take(raised(*which), now);
                for (_, count) in out {
                    if limit.admit(count, Some("rule"), now) {
                        told += count;
                        left.push(now);
                    }
                }
                if let Some(held) = limit.summary(now) {
                    told += held.count;
                    left.push(now);
                }
                prop_assert!(repeats.open.len() <= capacity && repeats.order.len() <= capacity);
                prop_assert!(limit.sent.len() <= most);
            }
            for (at, begin) in left.iter().enumerate() {
                let within = left[at..].iter().filter(|sent| **sent < *begin + WINDOW);
                prop_assert!(within.count() <= most);
            }
            for (_, count) in repeats.finish() {
                limit.hold(count, None, now);
            }
            told += limit.finish().map_or(0, |held| held.count);
            prop_assert_eq!(told, arrivals.len() as u64);
        }

        /// What is due comes when it is due, and then is due no more.
        #[test]
        fn whoever_waits_until_it_is_due_does_not_wait_in_vain(
            most in 1_usize..4,
            arrivals in prop::collection::vec(0_u64..30, 1..60),
        ) {
            let mut limit = Limit::new(most, WINDOW);
            let mut now = Instant::now();
            for pause in arrivals {
                now += Duration::from_secs(pause);
                limit.admit(1, None, now);
                if let Some(due) = limit.due() {
                    prop_assert!(due > now || limit.summary(now).is_some());
                }
            }
            if let Some(due) = limit.due() {
                prop_assert!(limit.summary(due).is_some());
                prop_assert_eq!(limit.due(), None);
            }
        }
    }
}
