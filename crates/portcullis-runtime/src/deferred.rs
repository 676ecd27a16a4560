//! The deferred part of an evaluation: which deep rules run, how long they are waited for, and what
//! happens when they do not answer (RFC-001 §§5.2, 7 and 9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use portcullis_core::rules::{KNOWN_DEEP, RuleInput};
use portcullis_core::{
    Action, Decision, ErrorCode, Event, OnTimeout, Parts, PauseSpec, Policy, Routing, RuleId,
    RuleOutcome, Severity, StopSpec,
};

use crate::deep::{DeepAnswer, DeepRequest, DeepResponse};
use crate::gateway::{Gateway, Gathered, millis};
use crate::inbox::{AskError, GuardInbox};

/// Deep decisions come after all fast ones.
const PLACE: usize = usize::MAX;

const UNAVAILABLE: &str = "it is not available";

/// Which deep rules an event is for.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Can be asked.
    ready: Vec<RuleId>,
    /// Should be asked and cannot: not registered, or without a model.
    missing: Vec<RuleId>,
    /// Whether the router insists on these very rules.
    required: bool,
}

impl Plan {
    pub(crate) fn new(
        policy: &Policy,
        inbox: Option<&dyn GuardInbox>,
        event: &Event,
        routing: &Routing,
    ) -> Self {
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
                plan.add(id, ready && !disabled(policy, id));
            }
            return plan;
        }
        for (id, ready) in &serving {
            if !disabled(policy, id) {
                plan.add(id, *ready);
            }
        }
        for rule in policy.deep_rules().iter().filter(|rule| rule.enabled) {
            let served = serving.iter().any(|(known, _)| *known == rule.id);
            let applies = KNOWN_DEEP.iter().any(|deep| {
                deep.id == rule.id.as_str() && (deep.events)().contains(&event.event_type)
            });
            if !served && applies {
                plan.add(&rule.id, false);
            }
        }
        plan
    }

    fn add(&mut self, id: &RuleId, ready: bool) {
        let list = if ready {
            &mut self.ready
        } else {
            &mut self.missing
        };
        if !list.contains(id) {
            list.push(id.clone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.missing.is_empty()
    }

    /// Notes that nobody was asked.
    pub(crate) fn skip(&self, gathered: &mut Gathered) {
        for id in self.ready.iter().chain(&self.missing) {
            gathered.cover(id, RuleOutcome::Skipped, Duration::ZERO);
        }
    }

    pub(crate) async fn run(
        &self,
        gateway: &Gateway,
        policy: &Policy,
        input: RuleInput<'_>,
        routing: &Routing,
        gathered: &mut Gathered,
    ) {
        let fail_open = policy.gateway().async_fail_open;
        for id in &self.missing {
            self.miss(id, Duration::ZERO, routing, fail_open, gathered);
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
            let request = DeepRequest {
                correlation_id: gateway.ids.next(started).to_string(),
                event: Arc::clone(&event),
                context: Arc::clone(&context),
                snapshot: Arc::clone(&snapshot),
                rules: vec![id.clone()],
                trace: None,
            };
            async move { (id, ask(inbox, request, routing).await, started.elapsed()) }
        }));
        for (id, answer, took) in asked.await {
            self.take(id, answer, took, routing, fail_open, gathered);
        }
    }

    fn take(
        &self,
        id: &RuleId,
        answer: Result<Option<DeepResponse>, AskError>,
        took: Duration,
        routing: &Routing,
        fail_open: bool,
        gathered: &mut Gathered,
    ) {
        let late =
            |why: &str, gathered: &mut Gathered| timed_out(routing.on_timeout, why, gathered);
        match answer.map(|response| response.map(|response| answer_of(id, response))) {
            Ok(None) => gathered.cover(id, RuleOutcome::Pending, took),
            Ok(Some(DeepAnswer::Clear)) => {
                gathered.cover(id, RuleOutcome::Clear, took);
                gathered.coverage.judged = Parts::ALL;
            }
            Ok(Some(DeepAnswer::Decided(decision))) => {
                gathered.cover(id, RuleOutcome::Decided, took);
                gathered.coverage.judged = Parts::ALL;
                gathered.decide(PLACE, *decision);
            }
            Ok(Some(DeepAnswer::Failed(error))) => {
                gathered.cover(id, RuleOutcome::Failed, took);
                if !fail_open {
                    gathered.decide(PLACE, failed(id, &error));
                }
            }
            // Whether it was missing before it was asked or only then makes no difference.
            Ok(Some(DeepAnswer::Unavailable)) => self.miss(id, took, routing, fail_open, gathered),
            Err(AskError::Await(error)) => {
                gathered.cover(id, RuleOutcome::TimedOut, took);
                late(&error.to_string(), gathered);
            }
            // The rule did not fail, it was never asked: what the router wants when there is no
            // answer in time holds, or a flood would be a way around it.
            Err(AskError::Submit(error)) => {
                gathered.cover(id, RuleOutcome::Failed, took);
                if !fail_open && !self.required {
                    gathered.decide(PLACE, failed(id, &error.to_string()));
                } else if self.required || routing.async_wait_ms > 0.0 {
                    late(&error.to_string(), gathered);
                }
            }
        }
    }

    /// A rule that is not registered or has no model.
    fn miss(
        &self,
        id: &RuleId,
        took: Duration,
        routing: &Routing,
        fail_open: bool,
        gathered: &mut Gathered,
    ) {
        gathered.cover(id, RuleOutcome::Unavailable, took);
        if self.required {
            let why = format!("'{id}' is required and not available");
            timed_out(routing.on_timeout, &why, gathered);
        } else if !fail_open {
            gathered.decide(PLACE, failed(id, UNAVAILABLE));
        }
    }
}

/// Hands over, and waits if the router wants to.
async fn ask(
    inbox: &dyn GuardInbox,
    request: DeepRequest,
    routing: &Routing,
) -> Result<Option<DeepResponse>, AskError> {
    if routing.async_wait_ms > 0.0 {
        let timeout = millis(routing.async_wait_ms);
        return inbox.ask(request, timeout).await.map(Some);
    }
    inbox.submit(request).await?;
    Ok(None)
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
                DeepAnswer::Failed(error) if !fail_open => failed(&id, &error),
                DeepAnswer::Unavailable if !fail_open => failed(&id, UNAVAILABLE),
                _ => continue,
            };
            decision.redactions.clear();
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

fn disabled(policy: &Policy, id: &RuleId) -> bool {
    policy
        .deep_rules()
        .iter()
        .any(|rule| rule.id == *id && !rule.enabled)
}

fn timed_out(on_timeout: OnTimeout, why: &str, gathered: &mut Gathered) {
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
        },
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
