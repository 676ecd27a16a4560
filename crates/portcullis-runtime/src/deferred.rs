//! The deferred part of an evaluation: which deep rules run, how long they are waited for, and what
//! happens when they do not answer (RFC-001 §§5.2, 7 and 9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use portcullis_core::rules::RuleInput;
use portcullis_core::{
    Action, BreakerSettings, Decision, ErrorCode, Event, OnTimeout, Parts, PauseSpec, Policy,
    Routing, RuleId, RuleOutcome, Severity, StopSpec,
};

use tracing::Instrument;
use tracing::field::Empty;

use crate::breaker::Breakers;
use crate::deep::{DeepAnswer, DeepRequest, DeepResponse};
use crate::gateway::{Gateway, Gathered, millis};
use crate::ids::Ids;
use crate::inbox::{AskError, GuardInbox};

/// Deep decisions come after all fast ones.
const PLACE: usize = usize::MAX;

const UNAVAILABLE: &str = "it is not available";

const LOST: &str = "whoever runs it cannot be reached";

const CIRCUIT_OPEN: &str = "it has not answered lately, and is not asked for a while";

/// Which deep rules an event is for.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Can be asked.
    ready: Vec<RuleId>,
    /// Should be asked and cannot: not registered, or without a model.
    missing: Vec<RuleId>,
    /// Should be asked and cannot be reached, though somebody has it, or must have.
    lost: Vec<RuleId>,
    /// Has not answered lately.
    broken: Vec<RuleId>,
    /// Whether the router insists on these very rules.
    required: bool,
}

impl Plan {
    /// `None` if there are none.
    pub(crate) fn new(
        policy: &Policy,
        inbox: Option<&dyn GuardInbox>,
        event: &Event,
        routing: &Routing,
    ) -> Option<Self> {
        let nobody = inbox.is_none() && policy.deep_rules().iter().all(|rule| !rule.enabled);
        if nobody && routing.required_async_rules.is_empty() {
            return None;
        }
        let serving = inbox
            .map(|inbox| inbox.serving(&event.event_type))
            .unwrap_or_default();
        let mut plan = Self {
            required: !routing.required_async_rules.is_empty(),
            ..Self::default()
        };
        if plan.required {
            for id in &routing.required_async_rules {
                let ready = serving.iter().any(|(known, ready)| known == id && *ready);
                let list = if ready && !disabled(policy, id) {
                    &mut plan.ready
                } else {
                    &mut plan.missing
                };
                add(list, id);
            }
            return Some(plan);
        }
        for (id, ready) in &serving {
            if disabled(policy, id) {
                continue;
            }
            match ready {
                true => add(&mut plan.ready, id),
                false if is_lost(policy, inbox, id) => add(&mut plan.lost, id),
                false => add(&mut plan.missing, id),
            }
        }
        for rule in policy.deep_rules().iter().filter(|rule| rule.enabled) {
            let served = serving.iter().any(|(known, _)| *known == rule.id);
            if served || !rule.events.contains(&event.event_type) {
                continue;
            }
            if is_lost(policy, inbox, &rule.id) {
                add(&mut plan.lost, &rule.id);
            } else {
                add(&mut plan.missing, &rule.id);
            }
        }
        let empty = plan.ready.is_empty() && plan.missing.is_empty() && plan.lost.is_empty();
        (!empty).then_some(plan)
    }

    /// Sets those aside that are not to be asked until they have cooled down.
    fn heed(&mut self, breakers: &Breakers, settings: BreakerSettings) {
        let broken = self
            .ready
            .extract_if(.., |id| !breakers.admits(id, settings));
        self.broken.extend(broken);
    }

    /// Notes that nobody was asked.
    pub(crate) fn skip(&self, gathered: &mut Gathered) {
        for id in self.ready.iter().chain(&self.missing).chain(&self.lost) {
            gathered.cover(id, RuleOutcome::Skipped, Duration::ZERO);
        }
    }

    pub(crate) async fn run(
        &mut self,
        gateway: &Gateway,
        policy: &Policy,
        input: RuleInput<'_>,
        routing: &Routing,
        gathered: &mut Gathered,
    ) {
        let settings = policy.gateway();
        let fail_open = settings.async_fail_open;
        if routing.async_wait_ms > 0.0 {
            self.heed(&gateway.breakers, settings.async_breaker);
        }
        for id in &self.missing {
            gathered.cover(id, RuleOutcome::Unavailable, Duration::ZERO);
            self.miss(id, routing, fail_open, gathered);
        }
        for id in &self.lost {
            gathered.cover(id, RuleOutcome::Unavailable, Duration::ZERO);
            self.not_asked(id, LOST, routing, fail_open, gathered);
        }
        for id in &self.broken {
            gathered.cover(id, RuleOutcome::CircuitOpen, Duration::ZERO);
            self.not_asked(id, CIRCUIT_OPEN, routing, fail_open, gathered);
        }
        let Some(inbox) = gateway.inbox.as_deref().filter(|_| !self.ready.is_empty()) else {
            return;
        };
        let (event, context, snapshot) = (
            Arc::new(input.event.clone()),
            Arc::new(input.context.clone()),
            Arc::new(input.snapshot.clone().into_owned()),
        );
        // Each rule is asked on its own, so that one that is stuck hides nobody else's answer.
        let asked = join_all(self.ready.iter().map(|id| {
            let started = Instant::now();
            let span = tracing::debug_span!("deep_rule", %id, outcome = Empty);
            let request = DeepRequest {
                correlation_id: gateway.ids.next(started).to_string(),
                event: Arc::clone(&event),
                context: Arc::clone(&context),
                snapshot: Arc::clone(&snapshot),
                rules: vec![id.clone()],
                trace: gateway.trace_of(&span),
            };
            let question = Question {
                inbox,
                ids: &gateway.ids,
                wait: millis(routing.async_wait_ms),
                hedge_after: settings.async_hedge_after_ms.map(millis),
            };
            async move {
                let asked = question.ask(request).instrument(span.clone()).await;
                let answer = asked.map(|response| response.map(|response| answer_of(id, response)));
                span.record("outcome", outcome_of(&answer).as_str());
                (id, answer, started.elapsed())
            }
        }));
        for (id, answer, took) in asked.await {
            note(&gateway.breakers, id, &answer, settings.async_breaker);
            let outcome = outcome_of(&answer);
            gathered.cover(id, outcome, took);
            if matches!(outcome, RuleOutcome::Clear | RuleOutcome::Decided) {
                let read = parts_read(policy, id, input.event);
                let coverage = &mut gathered.answer.coverage;
                coverage.judged = coverage.judged.and(read);
            }
            let lost = is_lost(policy, Some(inbox), id);
            self.take(id, answer, lost, routing, fail_open, gathered);
        }
    }

    /// What an answer leads to. `lost`: should the rule not be there, it ought to be.
    fn take(
        &self,
        id: &RuleId,
        answer: Result<Option<DeepAnswer>, AskError>,
        lost: bool,
        routing: &Routing,
        fail_open: bool,
        gathered: &mut Gathered,
    ) {
        match answer {
            Ok(None | Some(DeepAnswer::Clear)) => {}
            Ok(Some(DeepAnswer::Decided(decision))) => gathered.decide(PLACE, *decision),
            Ok(Some(DeepAnswer::Failed(error))) => {
                if !fail_open {
                    gathered.decide(PLACE, failed(id, &error));
                } else if self.required {
                    timed_out(id, routing.on_timeout, &error, gathered);
                }
            }
            Ok(Some(DeepAnswer::NoAnswer(why))) => {
                timed_out(id, routing.on_timeout, &why, gathered);
            }
            Ok(Some(DeepAnswer::NotAsked(why))) => {
                self.not_asked(id, &why, routing, fail_open, gathered);
            }
            // Whether it was lost or missing before it was asked or only then makes no difference.
            Ok(Some(DeepAnswer::Unavailable)) if lost => {
                self.not_asked(id, LOST, routing, fail_open, gathered);
            }
            Ok(Some(DeepAnswer::Unavailable)) => self.miss(id, routing, fail_open, gathered),
            Err(AskError::Await(error)) => {
                timed_out(id, routing.on_timeout, &error.to_string(), gathered);
            }
            Err(AskError::Submit(error)) => {
                self.not_asked(id, &error.to_string(), routing, fail_open, gathered);
            }
        }
    }

    /// The rule did not fail, it was never asked, or could not judge: what the router wants when there is no answer
    /// in time holds, or a flood would be a way around it. A policy that fails closed asks for more: there only what the
    /// router does instead may take the place of a STOP, or what must be judged would pass where all else stops.
    fn not_asked(
        &self,
        id: &RuleId,
        why: &str,
        routing: &Routing,
        fail_open: bool,
        gathered: &mut Gathered,
    ) {
        let router_acts = self.required && routing.on_timeout != OnTimeout::Allow;
        if !fail_open && !router_acts {
            gathered.decide(PLACE, failed(id, why));
        } else if self.required || routing.async_wait_ms > 0.0 {
            timed_out(id, routing.on_timeout, why, gathered);
        }
    }

    /// A rule that is not registered or has no model.
    fn miss(&self, id: &RuleId, routing: &Routing, fail_open: bool, gathered: &mut Gathered) {
        if self.required {
            let why = format!("'{id}' is required and not available");
            timed_out(id, routing.on_timeout, &why, gathered);
        } else if !fail_open {
            gathered.decide(PLACE, failed(id, UNAVAILABLE));
        }
    }
}

/// How one rule is asked.
struct Question<'g> {
    inbox: &'g dyn GuardInbox,
    ids: &'g Ids,
    wait: Duration,
    hedge_after: Option<Duration>,
}

impl Question<'_> {
    /// Hands over, and waits if the router wants to.
    async fn ask(&self, request: DeepRequest) -> Result<Option<DeepResponse>, AskError> {
        if self.wait.is_zero() {
            self.inbox.submit(request).await?;
            return Ok(None);
        }
        let response = match self.hedge_after.filter(|after| *after < self.wait) {
            None => self.inbox.ask(request, self.wait).await,
            Some(after) => self.hedge(request, after).await,
        };
        response.map(Some)
    }

    /// Asks once more when the first answer is slow to come. The first one counts, and the other is nobody's: it is not a
    /// late decision, or the run would be punished twice.
    async fn hedge(&self, request: DeepRequest, after: Duration) -> Result<DeepResponse, AskError> {
        let again = DeepRequest {
            correlation_id: self.ids.next(Instant::now()).to_string(),
            ..request.clone()
        };
        let ids = [request.correlation_id.clone(), again.correlation_id.clone()];
        let first = self.inbox.ask(request, self.wait);
        let second = async {
            tokio::time::sleep(after).await;
            self.inbox.ask(again, self.wait.saturating_sub(after)).await
        };
        let (response, loser) = match select(first, Box::pin(second)).await {
            Either::Left((Ok(response), _)) => (Ok(response), 1),
            Either::Right((Ok(response), _)) => (Ok(response), 0),
            // One has failed; the other may still answer.
            Either::Right((Err(_), first)) => (first.await, 1),
            Either::Left((Err(error), second)) => match second.await {
                Ok(response) => (Ok(response), 0),
                // Of two that are late, one may still come; of one that was never asked, nothing will.
                Err(_) if matches!(error, AskError::Submit(_)) => (Err(error), 0),
                Err(_) => (Err(error), 1),
            },
        };
        self.inbox.forget(&ids[loser]);
        response
    }
}

/// Keeps the rule's circuit up to date.
fn note(
    breakers: &Breakers,
    id: &RuleId,
    answer: &Result<Option<DeepAnswer>, AskError>,
    settings: BreakerSettings,
) {
    match answer {
        Ok(Some(DeepAnswer::Clear | DeepAnswer::Decided(_))) => breakers.answered(id),
        Ok(Some(DeepAnswer::Failed(_) | DeepAnswer::NoAnswer(_) | DeepAnswer::Unavailable))
        | Err(AskError::Await(_)) => breakers.failed(id, settings),
        // Nobody waited, or nobody could ask: it costs no event its deadline, and says nothing of the rule.
        Ok(None | Some(DeepAnswer::NotAsked(_))) | Err(AskError::Submit(_)) => {}
    }
}

/// How a rule fared, by what came of asking it.
fn outcome_of(answer: &Result<Option<DeepAnswer>, AskError>) -> RuleOutcome {
    match answer {
        Ok(None) => RuleOutcome::Pending,
        Ok(Some(DeepAnswer::Clear)) => RuleOutcome::Clear,
        Ok(Some(DeepAnswer::Decided(_))) => RuleOutcome::Decided,
        Ok(Some(DeepAnswer::Failed(_) | DeepAnswer::NotAsked(_))) | Err(AskError::Submit(_)) => {
            RuleOutcome::Failed
        }
        Ok(Some(DeepAnswer::Unavailable)) => RuleOutcome::Unavailable,
        Ok(Some(DeepAnswer::NoAnswer(_))) | Err(AskError::Await(_)) => RuleOutcome::TimedOut,
    }
}

fn answer_of(id: &RuleId, response: DeepResponse) -> DeepAnswer {
    let mut answers = response.answers.into_iter();
    answers
        .find(|(known, _)| known == id)
        .map_or(DeepAnswer::Unavailable, |(_, answer)| answer)
}

/// Decisions on earlier events of the run that came too late for them. A STOP or PAUSE counts now,
/// and so does a failure that stops; of the others only the effects do, because what they would have
/// changed has passed.
pub(crate) fn take_late(
    inbox: &dyn GuardInbox,
    run_id: &str,
    fail_open: bool,
    gathered: &mut Gathered,
) {
    for response in inbox.drain_responses(run_id) {
        for (id, answer) in response.answers {
            let mut decision = match answer {
                DeepAnswer::Decided(decision) => *decision,
                DeepAnswer::Failed(why) | DeepAnswer::NoAnswer(why) | DeepAnswer::NotAsked(why)
                    if !fail_open =>
                {
                    failed(&id, &why)
                }
                DeepAnswer::Unavailable if !fail_open => failed(&id, UNAVAILABLE),
                _ => continue,
            };
            decision.redactions.clear();
            // A yes to this is none to what the same rule says of the step at hand.
            decision = decision.with_pause_key(&format!("{id}@{}", response.correlation_id));
            decision.reason = format!("Late, on an earlier step: {}", decision.reason).into();
            if decision.action < Action::Pause {
                let effects = std::mem::take(&mut decision.effects);
                decision = Decision {
                    was_sync: false,
                    correlation_id: decision.correlation_id,
                    ..Decision::allow(decision.rule_id, decision.reason)
                }
                .with_effects(effects);
            }
            gathered.decide(PLACE, decision);
        }
    }
}

/// What of the event a rule has judged: all of it, unless the pack says what it is given.
fn parts_read(policy: &Policy, id: &RuleId, event: &Event) -> Parts {
    let named = policy.deep_rules().iter().find(|rule| rule.id == *id);
    named.map_or(Parts::ALL, |rule| rule.settings.reads(event))
}

/// Whether a rule that is not there ought to be. One that the policy does not name is nobody's loss. Of those that it names, a
/// model is for somebody to bring, and may never come; but a rule that the pack has whole must run somewhere.
fn is_lost(policy: &Policy, inbox: Option<&dyn GuardInbox>, id: &RuleId) -> bool {
    let Some(inbox) = inbox else { return false };
    let named = policy.deep_rules().iter().find(|rule| rule.id == *id);
    named.is_some_and(|rule| rule.settings.is_whole() || inbox.lost(id))
}

fn add(list: &mut Vec<RuleId>, id: &RuleId) {
    if !list.contains(id) {
        list.push(id.clone());
    }
}

fn disabled(policy: &Policy, id: &RuleId) -> bool {
    policy
        .deep_rules()
        .iter()
        .any(|rule| rule.id == *id && !rule.enabled)
}

fn timed_out(id: &RuleId, on_timeout: OnTimeout, why: &str, gathered: &mut Gathered) {
    gathered.fallbacks.push(on_timeout);
    let decision = match on_timeout {
        OnTimeout::Allow => return,
        OnTimeout::Pause => Decision::pause(
            RuleId::TIMEOUT,
            format!("Async evaluation timed out: {why}"),
            PauseSpec {
                prompt: "Safety check timed out".to_owned(),
                ..PauseSpec::default()
            },
        ),
        OnTimeout::Stop => Decision::stop(
            RuleId::TIMEOUT,
            format!("Async evaluation timed out (fail-closed): {why}"),
            StopSpec::code(ErrorCode::AsyncTimeout),
        ),
    };
    gathered.decide(
        PLACE,
        Decision {
            was_sync: false,
            ..decision
        }
        // All that are late go by one name, and a yes is to one of them.
        .with_pause_key(&format!("{}:{id}", RuleId::TIMEOUT)),
    );
}

fn failed(id: &RuleId, error: &str) -> Decision {
    let decision = Decision::stop(
        id.clone(),
        format!("Deep rule failed: {error}"),
        StopSpec::code(ErrorCode::AsyncError),
    );
    Decision {
        was_sync: false,
        ..decision.with_severity(Severity::Critical)
    }
}
