//! What an embedder may want to count (RFC-001 phase 5). Off unless a hook is given.

use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

use portcullis_core::{Action, Evaluation, Event, OnTimeout, RuleId, RuleOutcome};

/// Sees every evaluation, early stops included. Called on the evaluation's own path: count, do not
/// send.
pub trait Telemetry: Send + Sync + 'static {
    /// An event has been judged.
    fn evaluated(&self, event: &Event, evaluation: &Evaluation);

    /// A deep rule was to judge an event: how it fared, and how long that took.
    fn deep_rule(&self, id: &RuleId, outcome: RuleOutcome, took: Duration) {
        let _ = (id, outcome, took);
    }

    /// A deep rule did not answer in time, or could not be asked, and this happened instead.
    fn fell_back(&self, to: OnTimeout) {
        let _ = to;
    }

    /// A deep rule's decision on an earlier event came late.
    fn late(&self, id: &RuleId, action: Action) {
        let _ = (id, action);
    }
}

/// Carries traces over process boundaries: a deep rule in another process is part of the trace of the event that
/// it judges. Whoever exports spans knows how; this crate only carries the text.
pub trait Propagation: Send + Sync + 'static {
    /// The trace that a span is part of, as W3C `traceparent`; nothing if nobody exports it.
    fn carry(&self, span: &tracing::Span) -> Option<String>;

    /// Makes a span part of that trace.
    fn adopt(&self, span: &tracing::Span, traceparent: &str);
}

/// Counters that cost an atomic addition each.
#[derive(Debug, Default)]
pub struct Counters {
    actions: [AtomicU64; Action::ALL.len()],
    outcomes: [AtomicU64; RuleOutcome::ALL.len()],
    elapsed_us: AtomicU64,
    no_policy: AtomicU64,
    fallbacks: [AtomicU64; OnTimeout::ALL.len()],
    late: AtomicU64,
}

impl Counters {
    /// Deep rules in whose place this happened.
    pub fn fallbacks(&self, to: OnTimeout) -> u64 {
        self.fallbacks[to as usize].load(Ordering::Relaxed)
    }

    /// Decisions of deep rules that came late.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Evaluations that ended in this action.
    pub fn action(&self, action: Action) -> u64 {
        self.actions[action as usize].load(Ordering::Relaxed)
    }

    /// Rules that fared so.
    pub fn outcome(&self, outcome: RuleOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    /// Evaluations in all.
    pub fn evaluations(&self) -> u64 {
        Action::ALL.iter().map(|action| self.action(*action)).sum()
    }

    /// Microseconds spent evaluating.
    pub fn elapsed_us(&self) -> u64 {
        self.elapsed_us.load(Ordering::Relaxed)
    }

    /// Evaluations without any policy.
    pub fn no_policy(&self) -> u64 {
        self.no_policy.load(Ordering::Relaxed)
    }
}

impl Telemetry for Counters {
    fn evaluated(&self, _event: &Event, evaluation: &Evaluation) {
        let add = |counter: &AtomicU64, n| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        add(&self.actions[evaluation.decision.action as usize], 1);
        for rule in &evaluation.coverage.rules {
            add(&self.outcomes[rule.outcome as usize], 1);
        }
        add(&self.elapsed_us, evaluation.elapsed_us);
        if evaluation.policy.digest.is_empty() {
            add(&self.no_policy, 1);
        }
    }

    fn fell_back(&self, to: OnTimeout) {
        self.fallbacks[to as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn late(&self, _id: &RuleId, _action: Action) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}
