//! What is counted, and how it is shown to Prometheus.
//!
//! Every label comes from a list that the server knows beforehand: methods, actions, the rules and
//! guardrails of the policy, reasons. Nothing a caller can choose becomes one.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_core::{Action, Evaluation, Event, OnTimeout, RuleId, RuleOutcome};
use portcullis_runtime::{Gateway, Telemetry};
use portcullis_store::memory::MemoryState;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::a2a::counts::A2aMetrics;
use crate::alerts::counts::AlertMetrics;
use crate::approvals::counts::ApprovalMetrics;
use crate::auth::AuthError;
use crate::deep_metrics::DeepMetrics;
use crate::delivery::Counts;
use crate::method::Operation;

/// From 20 µs up to 5 s, each twice to two and a half times the one before.
const LATENCY_SECONDS: [f64; 17] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
    0.5, 1.0, 2.0, 5.0,
];

/// The type of what Prometheus reads.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A text that is one of a bounded set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Label(pub(crate) Arc<str>);

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuardrailLabels {
    guardrail: Label,
    severity: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    action: &'static str,
    rule: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// How a call ended, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// It was answered.
    Answered,
    /// Its parameters, or the call itself, were wrong.
    Invalid,
    /// It came too often.
    RateLimited,
    /// We could not answer it.
    Failed,
}

impl CallOutcome {
    const ALL: [Self; 4] = [
        Self::Answered,
        Self::Invalid,
        Self::RateLimited,
        Self::Failed,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Invalid => "invalid",
            Self::RateLimited => "rate_limited",
            Self::Failed => "failed",
        }
    }
}

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<MethodLabel, Histogram>,
    rate_limited: Family<MethodLabel, Counter>,
    auth_failures: Family<ReasonLabel, Counter>,
    shed: Counter,
    verdicts: Family<VerdictLabel, Counter>,
    violations: Family<GuardrailLabels, Counter>,
    decisions: Family<DecisionLabels, Counter>,
    decision_seconds: Histogram,
    no_policy: Counter,
    reloads: Family<OutcomeLabel, Counter>,
    evidence: EvidenceMetrics,
    memory: MemoryMetrics,
    callbacks: Family<OutcomeLabel, Counter>,
    callbacks_waiting: Gauge,
    deep: DeepMetrics,
    pub(crate) a2a: A2aMetrics,
    pub(crate) alerts: AlertMetrics,
    pub(crate) approvals: ApprovalMetrics,
    uptime: Gauge,
}

#[derive(Default)]
struct EvidenceMetrics {
    entries: Gauge,
    failures: Counter,
    queued: Gauge,
    append_seconds: Option<Histogram>,
}

struct MemoryMetrics {
    decisions: Gauge,
    unembedded: Gauge,
    seconds: Histogram,
}

pub(crate) fn latency() -> Histogram {
    Histogram::new(LATENCY_SECONDS)
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("portcullis");
        let append_seconds = latency();
        let metrics = Self {
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(latency),
            rate_limited: Family::default(),
            auth_failures: Family::default(),
            shed: Counter::default(),
            verdicts: Family::default(),
            violations: Family::default(),
            decisions: Family::default(),
            decision_seconds: latency(),
            no_policy: Counter::default(),
            reloads: Family::default(),
            evidence: EvidenceMetrics {
                append_seconds: Some(append_seconds.clone()),
                ..EvidenceMetrics::default()
            },
            memory: MemoryMetrics {
                decisions: Gauge::default(),
                unembedded: Gauge::default(),
                seconds: latency(),
            },
            callbacks: Family::default(),
            callbacks_waiting: Gauge::default(),
            deep: DeepMetrics::register(&mut registry),
            a2a: A2aMetrics::register(&mut registry),
            alerts: AlertMetrics::register(&mut registry),
            approvals: ApprovalMetrics::register(&mut registry),
            uptime: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "calls",
            "Calls by method and how they ended",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Time to answer a call",
            Unit::Seconds,
            metrics.call_seconds.clone(),
        );
        registry.register(
            "rate_limited",
            "Calls turned away by a rate limit",
            metrics.rate_limited.clone(),
        );
        registry.register(
            "auth_failures",
            "Requests without a valid token",
            metrics.auth_failures.clone(),
        );
        registry.register(
            "requests_shed",
            "Requests turned away because too many were in flight",
            metrics.shed.clone(),
        );
        registry.register(
            "checks",
            "Guardrail checks by verdict",
            metrics.verdicts.clone(),
        );
        registry.register(
            "guardrail_violations",
            "Violations by guardrail and severity",
            metrics.violations.clone(),
        );
        registry.register(
            "decisions",
            "Decisions on events by action and rule",
            metrics.decisions.clone(),
        );
        registry.register_with_unit(
            "decision_duration",
            "Time to judge an event",
            Unit::Seconds,
            metrics.decision_seconds.clone(),
        );
        registry.register(
            "no_policy_decisions",
            "Decisions made without any policy",
            metrics.no_policy.clone(),
        );
        registry.register(
            "policy_reloads",
            "Changed policy and guardrail files by what came of them",
            metrics.reloads.clone(),
        );
        registry.register(
            "evidence_entries",
            "Last sequence number in the evidence log",
            metrics.evidence.entries.clone(),
        );
        registry.register(
            "evidence_failures",
            "Entries that could not be written",
            metrics.evidence.failures.clone(),
        );
        registry.register(
            "evidence_queued",
            "Entries waiting to be written",
            metrics.evidence.queued.clone(),
        );
        registry.register_with_unit(
            "evidence_lag",
            "Time from handing an entry over until it is as durable as configured",
            Unit::Seconds,
            append_seconds,
        );
        registry.register(
            "memory_decisions",
            "Decisions that are remembered",
            metrics.memory.decisions.clone(),
        );
        registry.register(
            "memory_unembedded",
            "Decisions that wait for a vector, and are found by words alone",
            metrics.memory.unembedded.clone(),
        );
        registry.register_with_unit(
            "memory_duration",
            "Time that the memory takes, to find or to keep",
            Unit::Seconds,
            metrics.memory.seconds.clone(),
        );
        registry.register(
            "callbacks",
            "Notices of intents by what came of them",
            metrics.callbacks.clone(),
        );
        registry.register(
            "callbacks_waiting",
            "Notices of intents waiting to be delivered",
            metrics.callbacks_waiting.clone(),
        );
        registry.register_with_unit(
            "uptime",
            "Time since the server started",
            Unit::Seconds,
            metrics.uptime.clone(),
        );
        let build = Family::<BuildLabels, Gauge>::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        registry.register("build", "The version that runs", build);
        metrics.begin_at_zero();
        Self {
            registry,
            ..metrics
        }
    }
}

/// What comes of changed files.
const REPLACED: &str = "replaced";
const REFUSED: &str = "refused";

/// Verdicts on actions.
const ALLOWED: &str = "allowed";
const BLOCKED: &str = "blocked";

impl Metrics {
    /// Shows whatever is known beforehand from the start: what first appears with its first count looks to
    /// an alert as if it had never grown.
    fn begin_at_zero(&self) {
        for method in Operation::all().map(Operation::name) {
            for outcome in CallOutcome::ALL.map(CallOutcome::as_str) {
                let _ = self.calls.get_or_create(&CallLabels { method, outcome });
            }
            let _ = self.call_seconds.get_or_create(&MethodLabel { method });
            let _ = self.rate_limited.get_or_create(&MethodLabel { method });
        }
        for reason in AuthError::ALL.map(AuthError::label) {
            let _ = self.auth_failures.get_or_create(&ReasonLabel { reason });
        }
        for verdict in [ALLOWED, BLOCKED] {
            let _ = self.verdicts.get_or_create(&VerdictLabel { verdict });
        }
        let _ = self.callbacks();
        for outcome in [REPLACED, REFUSED] {
            let _ = self.reloads.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// A call has been answered, or not. Calls of methods that do not exist count as `unknown`.
    pub(crate) fn called(
        &self,
        operation: Option<Operation>,
        outcome: CallOutcome,
        took: Duration,
    ) {
        let method = operation.map_or("unknown", Operation::name);
        self.calls
            .get_or_create(&CallLabels {
                method,
                outcome: outcome.as_str(),
            })
            .inc();
        let label = MethodLabel { method };
        self.call_seconds
            .get_or_create(&label)
            .observe(took.as_secs_f64());
        if outcome == CallOutcome::RateLimited {
            self.rate_limited.get_or_create(&label).inc();
        }
    }

    /// Somebody was not let in.
    pub(crate) fn auth_failed(&self, error: AuthError) {
        let reason = error.label();
        self.auth_failures
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    /// A request was turned away at the door.
    pub(crate) fn shed(&self) {
        self.shed.inc();
    }

    /// A check has its verdict.
    pub(crate) fn checked(&self, verdict: &portcullis_core::guardrails::Verdict) {
        let label = if verdict.allowed { ALLOWED } else { BLOCKED };
        self.verdicts
            .get_or_create(&VerdictLabel { verdict: label })
            .inc();
        for violation in verdict.violations.iter().chain(&verdict.warnings) {
            self.violations
                .get_or_create(&GuardrailLabels {
                    guardrail: Label(violation.guardrail_id.as_str().into()),
                    severity: violation.severity.as_str(),
                })
                .inc();
        }
    }

    /// Files changed: `replaced` or `refused`.
    pub(crate) fn reloaded(&self, replaced: bool) {
        let outcome = if replaced { REPLACED } else { REFUSED };
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// An entry is as durable as configured, or could not be made so.
    pub(crate) fn appended(&self, took: Duration) {
        if let Some(seconds) = &self.evidence.append_seconds {
            seconds.observe(took.as_secs_f64());
        }
    }

    /// The memory has answered, or not.
    pub(crate) fn asked_memory(&self, took: Duration) {
        self.memory.seconds.observe(took.as_secs_f64());
    }

    /// What is counted of notices of intents.
    pub(crate) fn callbacks(&self) -> Counts {
        let count = |outcome| {
            self.callbacks
                .get_or_create_owned(&OutcomeLabel { outcome })
        };
        Counts {
            waiting: self.callbacks_waiting.clone(),
            delivered: count("delivered"),
            failed: count("failed"),
            dropped: count("dropped"),
        }
    }

    /// The page that Prometheus reads.
    pub(crate) fn page(
        &self,
        uptime: Duration,
        evidence: EvidenceState,
        memory: Option<&MemoryState>,
        gateway: &Gateway,
    ) -> String {
        self.deep.look_at(gateway);
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.uptime.set(whole(uptime.as_secs()));
        self.evidence.entries.set(whole(evidence.entries));
        let failures = self.evidence.failures.inner();
        failures.store(evidence.failures, Ordering::Relaxed);
        self.evidence.queued.set(whole(evidence.queued));
        if let Some(memory) = memory {
            let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            self.memory.decisions.set(whole(memory.decisions));
            self.memory.unembedded.set(whole(memory.unembedded));
        }
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut page, &self.registry);
        page
    }
}

/// What the evidence log says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EvidenceState {
    /// The last sequence number.
    pub(crate) entries: u64,
    /// Entries that could not be written.
    pub(crate) failures: u64,
    /// Entries that wait.
    pub(crate) queued: u64,
}

impl Telemetry for Metrics {
    fn evaluated(&self, _event: &Event, evaluation: &Evaluation) {
        let decision = &evaluation.decision;
        self.decisions
            .get_or_create(&DecisionLabels {
                action: decision.action.as_str(),
                rule: Label(decision.rule_id.as_str().into()),
            })
            .inc();
        self.decision_seconds
            .observe(Duration::from_micros(evaluation.elapsed_us).as_secs_f64());
        if evaluation.policy.digest.is_empty() {
            self.no_policy.inc();
        }
    }

    fn deep_rule(&self, id: &RuleId, outcome: RuleOutcome, took: Duration) {
        self.deep.asked(id, outcome, took);
    }

    fn fell_back(&self, to: OnTimeout) {
        self.deep.fell_back(to);
    }

    fn late(&self, id: &RuleId, action: Action) {
        self.deep.late(id, action);
    }
}
