//! Rules, policies and events that the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_core::pack::diagnostic::Place;
use portcullis_core::pack::{self, Pack};
use portcullis_core::rules::{Rule, RuleError, RuleInfo, RuleInput};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Action, Context, ContextSnapshot, Decision, Evaluation, Event, EventType, GatewaySettings,
    PauseSpec, Policy, PolicyBuilder, RetrySpec, RiskRouter, Routing, RuleId, RuleOutcome,
    Severity, StopSpec,
};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule, DeepRules, Gateway};
use serde_json::{Map, Value};

/// What a rule answers with.
pub(crate) type Verdict = Result<Option<Decision>, RuleError>;

/// What a deep rule answers with.
pub(crate) type DeepVerdict = Result<Option<Decision>, DeepError>;

/// A deadline that a busy machine keeps: for tests that are not about deadlines.
pub(crate) const PATIENT_MS: f64 = 60_000.0;

pub(crate) fn patient() -> GatewaySettings {
    GatewaySettings {
        sync_timeout_ms: PATIENT_MS,
        ..GatewaySettings::default()
    }
}

/// A policy without rules and without hurry.
pub(crate) fn policy() -> PolicyBuilder {
    PolicyBuilder::new("test", "1.0.0").gateway(patient())
}

/// A policy of these fast rules from outside.
pub(crate) fn policy_of(
    settings: GatewaySettings,
    rules: impl IntoIterator<Item = Arc<dyn Rule>>,
) -> Policy {
    let builder = PolicyBuilder::new("test", "1.0.0").gateway(settings);
    rules
        .into_iter()
        .fold(builder, |builder, rule| {
            builder.custom_rule(rule, None, Place::default())
        })
        .compile()
        .unwrap()
}

/// The built-in pack, but for its deadline.
pub(crate) fn default_pack() -> Policy {
    let text = pack::DEFAULT.replace("timeout_ms: 15", &format!("timeout_ms: {PATIENT_MS}"));
    assert_ne!(text, pack::DEFAULT);
    load(&text)
}

/// The rules and patterns of RFC-001, and nothing of ours.
pub(crate) fn rfc_pack() -> Policy {
    load(
        "policy_pack: rfc
version: '1.0.0'
gateway: {sync: {timeout_ms: 60000}}
sync_rules:
  - {id: tool-allowlist, config: {denied_tools: [admin.execute, filesystem.delete]}}
  - {id: secret-redaction}
  - {id: injection-patterns}
",
    )
}

pub(crate) fn load(text: &str) -> Policy {
    let pack = Pack {
        file: "test.yaml",
        text,
        ..Pack::default()
    };
    pack::load(&pack).unwrap().policy
}

struct FastRule<F> {
    id: RuleId,
    judge: F,
}

impl<F> Rule for FastRule<F>
where
    F: Fn(&RuleInput<'_>) -> Verdict + Send + Sync + 'static,
{
    fn info(&self) -> RuleInfo {
        info(&self.id, EventSet::standard())
    }

    fn evaluate(&self, input: &RuleInput<'_>) -> Verdict {
        (self.judge)(input)
    }
}

/// A fast rule from outside, on every standard event.
pub(crate) fn fast(
    id: &str,
    judge: impl Fn(&RuleInput<'_>) -> Verdict + Send + Sync + 'static,
) -> Arc<dyn Rule> {
    Arc::new(FastRule {
        id: id.into(),
        judge,
    })
}

struct Deep<F> {
    id: RuleId,
    events: EventSet,
    ready: bool,
    judge: F,
}

impl<F, A> DeepRule for Deep<F>
where
    F: Fn(Event) -> A + Send + Sync + 'static,
    A: Future<Output = Verdict> + Send + 'static,
{
    fn info(&self) -> RuleInfo {
        info(&self.id, self.events.clone())
    }

    fn ready(&self) -> bool {
        self.ready
    }

    fn evaluate<'a>(&'a self, input: RuleInput<'a>) -> BoxFuture<'a, DeepVerdict> {
        let judged = (self.judge)(input.event.clone());
        Box::pin(async { judged.await.map_err(DeepError::from) })
    }
}

/// A deep rule on every standard event.
pub(crate) fn deep<F, A>(id: &str, judge: F) -> Arc<dyn DeepRule>
where
    F: Fn(Event) -> A + Send + Sync + 'static,
    A: Future<Output = Verdict> + Send + 'static,
{
    deep_on(id, EventSet::standard(), judge)
}

pub(crate) fn deep_on<F, A>(id: &str, events: EventSet, judge: F) -> Arc<dyn DeepRule>
where
    F: Fn(Event) -> A + Send + Sync + 'static,
    A: Future<Output = Verdict> + Send + 'static,
{
    Arc::new(Deep {
        id: id.into(),
        events,
        ready: true,
        judge,
    })
}

/// A deep rule without its model.
pub(crate) fn unready(id: &str) -> Arc<dyn DeepRule> {
    Arc::new(Deep {
        id: id.into(),
        events: EventSet::standard(),
        ready: false,
        judge: |_| async { Err(RuleError("asked without a model".to_owned())) },
    })
}

/// A deep rule that never answers.
pub(crate) fn hangs(id: &str) -> Arc<dyn DeepRule> {
    deep(id, |_| std::future::pending())
}

/// A deep rule that counts how often it is asked, and has nothing to say.
pub(crate) fn counted(id: &str) -> (Arc<dyn DeepRule>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let rule = deep(id, move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok(None) }
    });
    (rule, calls)
}

pub(crate) fn deep_rules(rules: impl IntoIterator<Item = Arc<dyn DeepRule>>) -> DeepRules {
    let mut registry = DeepRules::new();
    for rule in rules {
        registry.register(rule);
    }
    registry
}

fn info(id: &RuleId, events: EventSet) -> RuleInfo {
    RuleInfo {
        id: id.clone(),
        version: "1.0.0".into(),
        events,
        severity: Severity::Medium,
    }
}

/// Routes every event alike.
#[derive(Clone)]
pub(crate) struct Always(pub(crate) Routing);

impl RiskRouter for Always {
    fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
        self.0.clone()
    }
}

/// Waits so long for deep rules, then lets the step happen.
pub(crate) fn wait_ms(ms: f64) -> Always {
    Always(Routing {
        async_wait_ms: ms,
        ..Routing::default()
    })
}

pub(crate) fn decision(action: Action, id: &str) -> Decision {
    let (id, reason) = (RuleId::from(id), "said the test");
    match action {
        Action::Allow => Decision::allow(id, reason),
        Action::Redact => Decision::redact(id, reason, Vec::new()),
        Action::Retry => Decision::retry(id, reason, RetrySpec::default()),
        Action::Pause => Decision::pause(id, reason, PauseSpec::default()),
        Action::Stop => Decision::stop(id, reason, StopSpec::default()),
    }
}

pub(crate) fn args(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is not an object"),
    }
}

pub(crate) fn prompt(run: &str, text: &str) -> Event {
    Event::llm_before(run, text)
}

pub(crate) fn call(run: &str, tool: &str) -> Event {
    Event::tool_call_start(run, tool, Map::new())
}

/// An event of a type that only the embedder knows.
pub(crate) fn own_event(run: &str) -> Event {
    Event {
        text_content: Some("a note".to_owned()),
        ..Event::new(EventType::from("memory_write"), run)
    }
}

/// Judges an event as one of a caller that keeps no context.
pub(crate) async fn judge(gateway: &Gateway, event: &Event) -> Evaluation {
    gateway
        .evaluate(&mut Context::new(&event.run_id), event)
        .await
}

/// The rules of an evaluation with their outcomes, in order.
pub(crate) fn outcomes(evaluation: &Evaluation) -> Vec<(&str, RuleOutcome)> {
    evaluation
        .coverage
        .rules
        .iter()
        .map(|rule| (rule.id.as_str(), rule.outcome))
        .collect()
}

pub(crate) fn unjudged(evaluation: &Evaluation) -> Vec<&str> {
    evaluation.coverage.unjudged().map(RuleId::as_str).collect()
}

/// The code of a STOP.
pub(crate) fn code(evaluation: &Evaluation) -> Option<&'static str> {
    let stop = evaluation.decision.stop.as_ref()?;
    Some(stop.error_code.as_str())
}

/// Action and deciding rule: what most tests compare.
pub(crate) fn verdict(evaluation: &Evaluation) -> (Action, &str) {
    (
        evaluation.decision.action,
        evaluation.decision.rule_id.as_str(),
    )
}
