//! What is counted of deep rules.

use std::time::Duration;

use portcullis_core::{Action, OnTimeout, RuleId, RuleOutcome};
use portcullis_runtime::{Circuit, Gateway, InboxDepth};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::{Label, latency};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleOutcomeLabels {
    rule: Label,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabel {
    rule: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LateLabels {
    rule: Label,
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FallbackLabel {
    to: &'static str,
}

/// Counters of deep rules. Rules are named by the policy and by the processes that run them, never by a caller.
pub(crate) struct DeepMetrics {
    outcomes: Family<RuleOutcomeLabels, Counter>,
    seconds: Family<RuleLabel, Histogram>,
    fallbacks: Family<FallbackLabel, Counter>,
    late: Family<LateLabels, Counter>,
    circuits_open: Family<RuleLabel, Gauge>,
    in_flight: Gauge,
    late_kept: Gauge,
}

impl DeepMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            outcomes: Family::default(),
            seconds: Family::new_with_constructor(latency),
            fallbacks: Family::default(),
            late: Family::default(),
            circuits_open: Family::default(),
            in_flight: Gauge::default(),
            late_kept: Gauge::default(),
        };
        registry.register(
            "deep_rules",
            "Deep rules that were to judge an event, by how they fared",
            metrics.outcomes.clone(),
        );
        registry.register_with_unit(
            "deep_rule_duration",
            "Time that an event waited for a deep rule",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "deep_fallbacks",
            "Deep rules that did not answer in time, by what happened instead",
            metrics.fallbacks.clone(),
        );
        registry.register(
            "deep_late",
            "Decisions of deep rules that came late, by what the run's next event gets",
            metrics.late.clone(),
        );
        registry.register(
            "deep_circuit_open",
            "1 while a deep rule is left alone because it did not answer",
            metrics.circuits_open.clone(),
        );
        registry.register(
            "inbox_in_flight",
            "Deep evaluations under way",
            metrics.in_flight.clone(),
        );
        registry.register(
            "inbox_late",
            "Late answers that no event has taken yet",
            metrics.late_kept.clone(),
        );
        for to in OnTimeout::ALL.map(OnTimeout::as_str) {
            let _ = metrics.fallbacks.get_or_create(&FallbackLabel { to });
        }
        metrics
    }

    pub(crate) fn asked(&self, id: &RuleId, outcome: RuleOutcome, took: Duration) {
        let rule = Label(id.as_str().into());
        let waited = !matches!(
            outcome,
            RuleOutcome::CircuitOpen | RuleOutcome::Unavailable | RuleOutcome::Pending
        );
        if waited {
            let label = RuleLabel { rule: rule.clone() };
            let seconds = self.seconds.get_or_create(&label);
            seconds.observe(took.as_secs_f64());
        }
        let outcome = outcome.as_str();
        let labels = RuleOutcomeLabels { rule, outcome };
        self.outcomes.get_or_create(&labels).inc();
    }

    pub(crate) fn fell_back(&self, to: OnTimeout) {
        let to = to.as_str();
        self.fallbacks.get_or_create(&FallbackLabel { to }).inc();
    }

    pub(crate) fn late(&self, id: &RuleId, action: Action) {
        let labels = LateLabels {
            rule: Label(id.as_str().into()),
            action: action.as_str(),
        };
        self.late.get_or_create(&labels).inc();
    }

    /// Brings what the gateway knows up to date.
    pub(crate) fn look_at(&self, gateway: &Gateway) {
        let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let InboxDepth { in_flight, late } = gateway.inbox_depth();
        self.in_flight.set(whole(in_flight));
        self.late_kept.set(whole(late));
        for (id, circuit) in gateway.circuits() {
            let rule = Label(id.as_str().into());
            let gauge = self.circuits_open.get_or_create(&RuleLabel { rule });
            gauge.set(i64::from(circuit != Circuit::Closed));
        }
    }
}
