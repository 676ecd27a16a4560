//! A circuit breaker for each deep rule: one that does not answer is no longer asked, so that a dead
//! classifier does not cost every event its deadline. It is about events that wait, and about no others.
//!
//! Closed: every event asks. After so many failures in a row it is open: nobody asks. Once it has cooled down,
//! one event probes, and what comes of that closes it or opens it again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use portcullis_core::{BreakerSettings, RuleId};
use tokio::time::Instant;

use crate::gateway::millis;

/// How a deep rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    /// It is asked.
    Closed,
    /// It has failed too often in a row, and is left alone.
    Open,
    /// One event has been let through, to see.
    Probing,
}

/// The breakers of a gateway, by rule. There are as many as deep rules have been asked.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    by_rule: RwLock<HashMap<RuleId, Arc<Breaker>>>,
    opened: AtomicU64,
}

#[derive(Debug, Default)]
struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In a row.
    failures: u32,
    /// Set while it is not closed: when the next probe may go.
    retry_at: Option<Instant>,
    probing: bool,
}

impl Breakers {
    /// Whether the rule may be asked now. One that may only be probed may be asked once.
    pub(crate) fn admits(&self, id: &RuleId, settings: BreakerSettings) -> bool {
        let Some(breaker) = self.find(id) else {
            return true;
        };
        let mut state = breaker.lock();
        let Some(retry_at) = state.retry_at else {
            return true;
        };
        let now = Instant::now();
        // Switched off meanwhile, by another policy.
        if settings.failures == 0 {
            *state = State::default();
            return true;
        }
        if now < retry_at {
            return false;
        }
        // A probe that nobody hears of again must not be the last one.
        state.retry_at = Some(now + millis(settings.cool_down_ms));
        state.probing = true;
        true
    }

    /// The rule has answered in time.
    pub(crate) fn answered(&self, id: &RuleId) {
        // Nothing to forget in the usual case.
        if let Some(breaker) = self.find(id) {
            *breaker.lock() = State::default();
        }
    }

    /// The rule has failed, or was too late.
    pub(crate) fn failed(&self, id: &RuleId, settings: BreakerSettings) {
        if settings.failures == 0 {
            return;
        }
        let breaker = self.find_or_make(id);
        let mut state = breaker.lock();
        state.failures = state.failures.saturating_add(1);
        let opens =
            state.probing || (state.retry_at.is_none() && state.failures >= settings.failures);
        if opens {
            state.retry_at = Some(Instant::now() + millis(settings.cool_down_ms));
            state.probing = false;
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a circuit has been opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// How each rule stands that has ever failed.
    pub(crate) fn list(&self) -> Vec<(RuleId, Circuit)> {
        let by_rule = self.by_rule.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = by_rule
            .iter()
            .map(|(id, breaker)| (id.clone(), breaker.lock().circuit()))
            .collect();
        list.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        list
    }

    fn find(&self, id: &RuleId) -> Option<Arc<Breaker>> {
        let by_rule = self.by_rule.read().unwrap_or_else(PoisonError::into_inner);
        by_rule.get(id).cloned()
    }

    fn find_or_make(&self, id: &RuleId) -> Arc<Breaker> {
        if let Some(breaker) = self.find(id) {
            return breaker;
        }
        let mut by_rule = self.by_rule.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(by_rule.entry(id.clone()).or_default())
    }
}

impl Breaker {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn circuit(&self) -> Circuit {
        match self.retry_at {
            None => Circuit::Closed,
            Some(_) if self.probing => Circuit::Probing,
            Some(_) => Circuit::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RULE: RuleId = RuleId::from_static("classifier");

    fn settings(failures: u32, cool_down: Duration) -> BreakerSettings {
        BreakerSettings {
            failures,
            cool_down_ms: cool_down.as_secs_f64() * 1e3,
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let slow = settings(3, Duration::from_hours(1));
        let breakers = Breakers::default();
        for _ in 0..2 {
            breakers.failed(&RULE, slow);
            breakers.failed(&RULE, slow);
            assert!(breakers.admits(&RULE, slow));
            breakers.answered(&RULE);
        }
        for _ in 0..3 {
            assert!(breakers.admits(&RULE, slow));
            breakers.failed(&RULE, slow);
        }
        assert!(!breakers.admits(&RULE, slow));
        assert_eq!(breakers.list(), [(RULE, Circuit::Open)]);
        assert_eq!(breakers.opened(), 1);
        // Others that were under way when it opened change nothing.
        breakers.failed(&RULE, slow);
        assert!(!breakers.admits(&RULE, slow));
        assert_eq!(breakers.opened(), 1);
        assert!(breakers.admits(&RuleId::from_static("another"), slow));
    }

    #[test]
    fn one_event_probes_and_what_comes_of_it_counts() {
        let quick = settings(1, Duration::from_millis(20));
        let breakers = Breakers::default();
        for outcome in [false, true] {
            breakers.failed(&RULE, quick);
            assert!(!breakers.admits(&RULE, quick));
            std::thread::sleep(Duration::from_millis(30));
            assert!(breakers.admits(&RULE, quick));
            assert_eq!(breakers.list(), [(RULE, Circuit::Probing)]);
            assert!(!breakers.admits(&RULE, quick), "one at a time");
            if outcome {
                breakers.answered(&RULE);
                assert!(breakers.admits(&RULE, quick));
            } else {
                breakers.failed(&RULE, quick);
                assert!(!breakers.admits(&RULE, quick));
                breakers.answered(&RULE);
            }
        }
    }

    #[test]
    fn a_probe_that_is_never_heard_of_is_not_the_last() {
        let quick = settings(1, Duration::from_millis(20));
        let breakers = Breakers::default();
        breakers.failed(&RULE, quick);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(30));
            assert!(breakers.admits(&RULE, quick));
        }
        breakers.answered(&RULE);
        assert_eq!(breakers.list(), [(RULE, Circuit::Closed)]);
    }

    #[test]
    fn it_can_be_switched_off() {
        let off = settings(0, Duration::from_hours(1));
        let on = settings(1, Duration::from_hours(1));
        let breakers = Breakers::default();
        for _ in 0..100 {
            breakers.failed(&RULE, off);
        }
        assert!(breakers.admits(&RULE, on));
        breakers.failed(&RULE, on);
        assert!(!breakers.admits(&RULE, on));
        assert!(breakers.admits(&RULE, off));
    }
}
