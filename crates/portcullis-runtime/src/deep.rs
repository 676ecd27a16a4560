//! Deep rules: classifiers, services, anything too slow to run inline (RFC-001 §7.3).

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::join_all;
use portcullis_core::rules::{RuleError, RuleInfo, RuleInput};
use portcullis_core::{Context, ContextSnapshot, Decision, Event, EventType, RuleId, ToolRisks};

use tracing::Instrument;

use crate::fence;
use crate::telemetry::Propagation;

/// A future on the heap: what a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A rule that takes its time.
pub trait DeepRule: Send + Sync + 'static {
    /// What it is. Asked once, when it is registered.
    fn info(&self) -> RuleInfo;

    /// Whether it can judge now. A classifier without its model cannot, and says so here.
    fn ready(&self) -> bool {
        true
    }

    /// `None` if it has nothing to say.
    fn evaluate<'a>(
        &'a self,
        input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>>;
}

/// Why a deep rule could not judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeepError {
    /// It, or what it asks, has failed. Dropped where the policy fails open.
    #[error("{0}")]
    Failed(String),
    /// What it asks is too slow, or cannot be reached. That counts as late, or cutting it off would be a way around it.
    #[error("{0}")]
    NoAnswer(String),
    /// It cannot judge this very event, or there is no room for more. That counts as late, and says nothing of the rule:
    /// it opens no circuit.
    #[error("{0}")]
    NotAsked(String),
}

impl From<RuleError> for DeepError {
    fn from(error: RuleError) -> Self {
        Self::Failed(error.0)
    }
}

/// `SteeringGuardEvent`: an event on its way to deep rules.
#[derive(Debug, Clone)]
pub struct DeepRequest {
    /// Pairs the request with its response.
    pub correlation_id: String,
    /// What is about to happen.
    pub event: Arc<Event>,
    /// What is known of the run.
    pub context: Arc<Context>,
    /// The event described.
    pub snapshot: Arc<ContextSnapshot<'static>>,
    /// The rules to run.
    pub rules: Vec<RuleId>,
    /// The trace that it is part of (W3C `traceparent`).
    pub trace: Option<String>,
}

impl DeepRequest {
    /// The response when it took too long.
    pub(crate) fn given_up(&self, limit: Duration) -> DeepResponse {
        self.answered_by(&DeepAnswer::NoAnswer(format!("given up after {limit:?}")))
    }

    /// The response when one thing is to be said of all rules.
    pub(crate) fn answered_by(&self, answer: &DeepAnswer) -> DeepResponse {
        let rules = self.rules.iter();
        DeepResponse {
            correlation_id: self.correlation_id.clone(),
            run_id: self.context.run_id.clone(),
            answers: rules.map(|id| (id.clone(), answer.clone())).collect(),
        }
    }

    /// What another process said, as the response to this request: about its run, by the rules that were asked, and by no
    /// others. A sidecar that mixes things up must not speak for another run or another rule.
    pub(crate) fn settle(&self, response: DeepResponse) -> DeepResponse {
        let mut said = response.answers;
        let answers = self.rules.iter().map(|id| {
            let place = said.iter().position(|(known, _)| known == id);
            let answer = place.map(|place| said.swap_remove(place).1);
            let mut answer = answer.unwrap_or(DeepAnswer::Unavailable);
            if let DeepAnswer::Decided(decision) = &mut answer {
                decision.rule_id = id.clone();
                decision.was_sync = false;
                decision.correlation_id = Some(self.correlation_id.clone());
            }
            (id.clone(), answer)
        });
        DeepResponse {
            correlation_id: self.correlation_id.clone(),
            run_id: self.context.run_id.clone(),
            answers: answers.collect(),
        }
    }
}

/// `SteeringGuardResponse`: what each rule said.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepResponse {
    /// The request's.
    pub correlation_id: String,
    /// The run that it is about.
    pub run_id: String,
    /// One per rule that was asked, in the order asked.
    pub answers: Vec<(RuleId, DeepAnswer)>,
}

/// What a deep rule said.
#[derive(Debug, Clone, PartialEq)]
pub enum DeepAnswer {
    /// Nothing.
    Clear,
    /// This.
    Decided(Box<Decision>),
    /// It failed: it has answered, and nothing can be made of that.
    Failed(String),
    /// It did not answer: what it asks is too slow, or cannot be reached.
    NoAnswer(String),
    /// It was not asked: the event is not one that it can judge, or there is no room.
    NotAsked(String),
    /// It is not here, or has no model.
    Unavailable,
}

/// The deep rules of a process, and how they are run: all at once, each on its own.
#[derive(Clone, Default)]
pub struct DeepRules {
    rules: Vec<(RuleInfo, Arc<dyn DeepRule>)>,
}

impl DeepRules {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule. One of the same id is replaced.
    pub fn register(&mut self, rule: Arc<dyn DeepRule>) {
        let info = rule.info();
        self.rules.retain(|(known, _)| known.id != info.id);
        self.rules.push((info, rule));
    }

    /// Each rule, what it judges, and whether it is ready.
    pub fn list(&self) -> impl Iterator<Item = (&RuleInfo, bool)> {
        let rules = self.rules.iter();
        rules.map(|(info, rule)| (info, is_ready(&**rule)))
    }

    /// The rules that judge such events, and whether each is ready.
    pub fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)> {
        self.rules
            .iter()
            .filter(|(info, _)| info.events.contains(event_type))
            .map(|(info, rule)| (info.id.clone(), is_ready(&**rule)))
            .collect()
    }

    /// Runs the rules that are asked for.
    pub async fn evaluate(&self, request: &DeepRequest) -> DeepResponse {
        let answers = join_all(
            request
                .rules
                .iter()
                .map(|id| async move { (id.clone(), self.answer(id, request).await) }),
        )
        .await;
        DeepResponse {
            correlation_id: request.correlation_id.clone(),
            run_id: request.context.run_id.clone(),
            answers,
        }
    }

    async fn answer(&self, id: &RuleId, request: &DeepRequest) -> DeepAnswer {
        let Some((_, rule)) = self.rules.iter().find(|(info, _)| info.id == *id) else {
            return DeepAnswer::Unavailable;
        };
        if !is_ready(&**rule) {
            return DeepAnswer::Unavailable;
        }
        let input = RuleInput {
            event: &request.event,
            context: &request.context,
            snapshot: &request.snapshot,
        };
        // Calling the rule can panic as well as awaiting it.
        let span = tracing::debug_span!("rule", %id);
        let judged = async { rule.evaluate(input).await }.instrument(span);
        match AssertUnwindSafe(judged).catch_unwind().await {
            Ok(Ok(None)) => DeepAnswer::Clear,
            Ok(Ok(Some(mut decision))) => {
                decision.rule_id = id.clone();
                decision.was_sync = false;
                decision.correlation_id = Some(request.correlation_id.clone());
                DeepAnswer::Decided(Box::new(decision))
            }
            Ok(Err(DeepError::Failed(why))) => DeepAnswer::Failed(why),
            Ok(Err(DeepError::NoAnswer(why))) => DeepAnswer::NoAnswer(why),
            Ok(Err(DeepError::NotAsked(why))) => DeepAnswer::NotAsked(why),
            Err(_) => DeepAnswer::Failed("panicked".to_owned()),
        }
    }
}

/// Deep rules that are at work, and can be replaced while they are.
///
/// An inbox in this process, a worker and a sidecar each run the rules of one of these.
pub struct DeepHost {
    hosted: ArcSwap<Hosted>,
    propagation: Option<Arc<dyn Propagation>>,
}

#[derive(Debug)]
struct Hosted {
    rules: DeepRules,
    risks: ToolRisks,
}

impl DeepHost {
    /// With these rules, for requests of this process.
    pub fn new(rules: DeepRules) -> Self {
        Self::with_risks(rules, ToolRisks::default())
    }

    /// With these rules, for requests from elsewhere. They name the tool at hand and not its tier, which `risks` knows.
    pub fn with_risks(rules: DeepRules, risks: ToolRisks) -> Self {
        Self {
            hosted: ArcSwap::from_pointee(Hosted { rules, risks }),
            propagation: None,
        }
    }

    /// Makes what it runs part of the traces that requests come with.
    pub fn with_propagation(mut self, propagation: Arc<dyn Propagation>) -> Self {
        self.propagation = Some(propagation);
        self
    }

    /// Puts other rules to work. Evaluations under way finish with those that they started with.
    pub fn replace(&self, rules: DeepRules, risks: ToolRisks) {
        self.hosted.store(Arc::new(Hosted { rules, risks }));
    }

    /// The rules at work.
    pub fn rules(&self) -> DeepRules {
        self.hosted.load().rules.clone()
    }

    /// The tiers of tools.
    pub fn risks(&self) -> ToolRisks {
        self.hosted.load().risks.clone()
    }

    /// The rules that judge such events, and whether each is ready.
    pub fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)> {
        self.hosted.load().rules.serving(event_type)
    }

    /// Runs the rules that are asked for, for at most so long.
    pub async fn evaluate(&self, request: &DeepRequest, limit: Duration) -> DeepResponse {
        let hosted = self.hosted.load_full();
        let span = tracing::debug_span!("deep_evaluate", rules = ?request.rules);
        if let (Some(propagation), Some(trace)) = (&self.propagation, &request.trace) {
            propagation.adopt(&span, trace);
        }
        let evaluated = hosted.rules.evaluate(request).instrument(span);
        match tokio::time::timeout(limit, evaluated).await {
            Ok(response) => response,
            Err(_) => request.given_up(limit),
        }
    }
}

impl std::fmt::Debug for DeepHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hosted.load().fmt(f)
    }
}

/// A rule that panics instead of saying whether it is ready is not.
fn is_ready(rule: &dyn DeepRule) -> bool {
    fence::catching(|| Ok(rule.ready())).unwrap_or(false)
}

impl std::fmt::Debug for DeepRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.rules.iter().map(|(info, _)| &info.id))
            .finish()
    }
}
