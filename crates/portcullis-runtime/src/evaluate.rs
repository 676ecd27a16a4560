//! The way of one event: judged at once, unless somebody has to be waited for.
//!
//! Most events are decided by rules that run inline, so that everything up to the first wait is plain code that leaves
//! nothing behind in a future. What waits goes on from there, on the heap.
//!
//! Rejected: one `async fn` from end to end. Its future is as large as all that may ever wait, and is copied with every
//! event.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::Guard;
use portcullis_core::rules::{RuleError, RuleInput, Subject};
use portcullis_core::{
    Action, Context, ContextBuilder as _, ContextSnapshot, Decision, DefaultContextBuilder,
    ErrorCode, Evaluation, Event, Parts, Policy, RiskRouter as _, Routing, RuleId, Severity,
    Signals, StopSpec,
};
use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::deferred::{self, Plan};
use crate::effects::Flag;
use crate::fast::{FastOutcome, second_try, wait_for};
use crate::fence::{self, FencedInput};
use crate::gateway::{Gateway, Gathered, millis};
use crate::resolve::hook_failed;

/// How an event is judged.
#[derive(Clone, Copy, PartialEq)]
enum Judging<'j> {
    First,
    /// As a piece of a streamed answer, in which patterns have been searched for already.
    Piece,
    /// After a person was asked about these pauses.
    Again(&'j [RuleId]),
    Quietly,
}

/// An event that somebody has to be waited for.
struct Open {
    undecided: Undecided,
    started: Instant,
    span: Span,
}

/// Who has to be waited for, and what they need.
struct Undecided {
    snapshot: ContextSnapshot<'static>,
    routing: Routing,
    fenced: Vec<Fenced>,
    fenced_input: Option<Arc<FencedInput>>,
    /// The deep rules, unless it takes the fenced ones to know them.
    plan: Option<Plan>,
}

/// A rule behind the fence that has not answered yet.
struct Fenced {
    /// Where it is among the policy's rules.
    place: usize,
    /// Where it is among the rules that apply.
    turn: usize,
    /// `None` until it is its turn.
    asked: Option<Asked>,
}

struct Asked {
    at: Instant,
    answer: oneshot::Receiver<fence::Answer>,
}

impl Gateway {
    /// Judges an event. `context` is brought up to date with what the gateway remembers of the run,
    /// and with the strikes that this event earns.
    ///
    /// Deep rules and rules from outside need a tokio runtime with time; the rest does not.
    pub async fn evaluate(&self, context: &mut Context, event: &Event) -> Evaluation {
        let (policy, gathered, open) = {
            let policy = self.loaded();
            let mut gathered = Gathered::new(&policy);
            match self.evaluate_now(&policy, context, event, Judging::First, &mut gathered) {
                Ok(()) => return gathered.answer,
                Err(open) => (Guard::into_inner(policy), Box::new(gathered), open),
            }
        };
        self.evaluate_later(&policy, context, event, gathered, open)
            .await
    }

    /// Judges an event once more, after its pauses of these were put to a person: [`Evaluation::lift`] then says what is
    /// decided if they said yes. What those pauses asked for, such as a strike, is not done a second time.
    pub async fn evaluate_again(
        &self,
        context: &mut Context,
        event: &Event,
        pauses: &[RuleId],
    ) -> Evaluation {
        let policy = self.policy();
        self.evaluate_by(&policy, context, event, Judging::Again(pauses))
            .await
    }

    /// Judges an event that does not happen yet, for what must be redacted in it: nothing follows from it.
    pub(crate) async fn evaluate_quietly(
        &self,
        context: &mut Context,
        event: &Event,
    ) -> Evaluation {
        let policy = self.policy();
        self.evaluate_by(&policy, context, event, Judging::Quietly)
            .await
    }

    /// Judges a piece of a streamed answer by everything but patterns: those have judged it as part of
    /// the whole.
    pub(crate) async fn evaluate_chunk(
        &self,
        policy: &Policy,
        context: &mut Context,
        event: &Event,
    ) -> Evaluation {
        self.evaluate_by(policy, context, event, Judging::Piece)
            .await
    }

    async fn evaluate_by(
        &self,
        policy: &Policy,
        context: &mut Context,
        event: &Event,
        judging: Judging<'_>,
    ) -> Evaluation {
        let (gathered, open) = {
            let mut gathered = Gathered::new(policy);
            match self.evaluate_now(policy, context, event, judging, &mut gathered) {
                Ok(()) => return gathered.answer,
                Err(open) => (Box::new(gathered), open),
            }
        };
        self.evaluate_later(policy, context, event, gathered, open)
            .await
    }

    /// Judges as far as nobody has to be waited for. The answer is large: it stays where the caller has room for it.
    fn evaluate_now(
        &self,
        policy: &Policy,
        context: &mut Context,
        event: &Event,
        judging: Judging<'_>,
        gathered: &mut Gathered,
    ) -> Result<(), Box<Open>> {
        let started = Instant::now();
        let quarantine = self.recall(policy, context);
        match judging {
            Judging::First => {}
            Judging::Piece => gathered.scanned = true,
            Judging::Quietly => gathered.quiet = true,
            Judging::Again(pauses) => gathered.asked = pauses.to_vec(),
        }
        gathered.answer.coverage.present = Parts::of(event);
        let span = tracing::debug_span!(
            "evaluate",
            event_type = event.event_type.as_str(),
            tool = event.tool_name.as_deref(),
            action = Empty,
            rule = Empty,
        );
        let judged =
            span.in_scope(|| self.judge(policy, context, event, quarantine, gathered, started));
        match judged {
            Ok(()) => {
                self.conclude(policy, context, event, gathered, started);
                tell(&span, &gathered.answer);
                Ok(())
            }
            Err(undecided) => Err(Box::new(Open {
                undecided: *undecided,
                started,
                span,
            })),
        }
    }

    /// Goes on where somebody has to be waited for.
    fn evaluate_later<'e>(
        &'e self,
        policy: &'e Policy,
        context: &'e mut Context,
        event: &'e Event,
        mut gathered: Box<Gathered>,
        open: Box<Open>,
    ) -> Pin<Box<dyn Future<Output = Evaluation> + Send + 'e>> {
        Box::pin(async move {
            let Open {
                undecided,
                started,
                span,
            } = *open;
            self.wait(policy, context, event, undecided, &mut gathered)
                .instrument(span.clone())
                .await;
            self.conclude(policy, context, event, &mut gathered, started);
            tell(&span, &gathered.answer);
            gathered.answer
        })
    }

    /// Puts what is decided into the answer.
    fn judge(
        &self,
        policy: &Policy,
        context: &Context,
        event: &Event,
        quarantine: Option<Flag>,
        gathered: &mut Gathered,
        started: Instant,
    ) -> Result<(), Box<Undecided>> {
        let decision = &mut gathered.answer.decision;
        if let Some(before) = before_rules(policy, event, quarantine) {
            *decision = before;
            return Ok(());
        }
        let scan = policy.scan(event);
        let snapshot = match self.describe(policy, context, event, policy.signals(event, &scan)) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                *decision = hook_failed("context builder", &error);
                return Ok(());
            }
        };
        let routing = match self.route(policy, event, &snapshot) {
            Ok(routing) => routing,
            Err(error) => {
                *decision = hook_failed("risk router", &error);
                return Ok(());
            }
        };
        if routing.skip_evaluation {
            *decision = Decision::allow(RuleId::SKIP, "Skipped by risk router");
            return Ok(());
        }
        let input = RuleInput {
            event,
            context,
            snapshot: &snapshot,
        };
        let subject = policy.subject(input, &scan);
        // What the embedder's hooks took is not the first rule's doing.
        let hooked = self.context_builder.is_some() || self.risk_router.is_some();
        let started = if hooked { Instant::now() } else { started };
        let (fenced, fenced_input) =
            self.run_fast_rules(policy, &subject, input, gathered, started);
        let plan = if fenced.is_empty() {
            match self.plan(policy, input, &routing, gathered) {
                None => {
                    self.resolve(input, gathered);
                    return Ok(());
                }
                plan => plan,
            }
        } else {
            None
        };
        Err(Box::new(Undecided {
            snapshot: snapshot.into_owned(),
            routing,
            fenced,
            fenced_input,
            plan,
        }))
    }

    #[inline]
    fn describe<'e>(
        &self,
        policy: &'e Policy,
        context: &'e Context,
        event: &'e Event,
        signals: Signals,
    ) -> Result<ContextSnapshot<'e>, RuleError> {
        let risks = policy.tool_risks();
        match &self.context_builder {
            None => Ok(DefaultContextBuilder.build(event, context, risks, signals)),
            Some(builder) => fence::catching(|| Ok(builder.build(event, context, risks, signals))),
        }
    }

    #[inline]
    fn route(
        &self,
        policy: &Policy,
        event: &Event,
        snapshot: &ContextSnapshot<'_>,
    ) -> Result<Routing, RuleError> {
        match &self.risk_router {
            None => Ok(policy.risk_router().route(event, snapshot)),
            Some(router) => fence::catching(|| Ok(router.route(event, snapshot))),
        }
    }

    /// Runs the rules that run inline. Gives those that do not, asked already if they run side by side.
    fn run_fast_rules(
        &self,
        policy: &Policy,
        subject: &Subject<'_>,
        input: RuleInput<'_>,
        gathered: &mut Gathered,
        started: Instant,
    ) -> (Vec<Fenced>, Option<Arc<FencedInput>>) {
        let settings = policy.gateway();
        let timeout = millis(settings.sync_timeout_ms);
        let mut fenced = Vec::new();
        let mut fenced_input = None;
        let mut last = started;
        for (place, rule) in policy.rules().iter().enumerate() {
            let heard = gathered.scanned && rule.scans();
            if heard || !rule.events().contains(&input.event.event_type) {
                continue;
            }
            if let Some(outside) = rule.fenced() {
                let own = fenced_input.get_or_insert_with(|| Arc::new(FencedInput::of(input)));
                let mut ask = || Asked {
                    answer: self.fence.run(Arc::clone(outside), Arc::clone(own)),
                    at: Instant::now(),
                };
                let asked = settings.sync_parallel.then(&mut ask);
                // What it took to get this ready is not the next rule's doing.
                last = asked.as_ref().map_or_else(Instant::now, |asked| asked.at);
                let turn = gathered.answer.coverage.rules.len() + fenced.len();
                fenced.push(Fenced { place, turn, asked });
                continue;
            }
            // Asking the clock would take longer.
            let is_idle = || fence::catching(|| Ok(rule.is_idle(subject)));
            if timeout > IDLE && matches!(is_idle(), Ok(true)) {
                gathered.clear(rule, input.event, Duration::ZERO);
                continue;
            }
            let span = tracing::debug_span!("rule", id = rule.id().as_str());
            let answer = span.in_scope(|| fence::catching(|| rule.evaluate(subject)));
            let outcome = FastOutcome::of(answer);
            let mut now = Instant::now();
            let took = now.duration_since(last);
            // A STOP is a STOP however late.
            let outcome = if took <= timeout || outcome.stops() {
                outcome
            } else {
                let outcome = second_try(rule, subject, timeout);
                now = Instant::now();
                outcome
            };
            last = now;
            let outcome = match rule.missed(subject) {
                None => outcome,
                Some(missed) => outcome.having_missed(missed),
            };
            gathered.take(place, rule, input.event, outcome, took, settings);
            gathered.last = Some(now);
        }
        (fenced, fenced_input)
    }

    /// The deep rules that are to judge the event, if there are any and it is not stopped already.
    fn plan(
        &self,
        policy: &Policy,
        input: RuleInput<'_>,
        routing: &Routing,
        gathered: &mut Gathered,
    ) -> Option<Plan> {
        if !policy.gateway().async_enabled {
            return None;
        }
        let inbox = self.inbox.as_deref();
        if let Some(inbox) = inbox
            && !gathered.quiet
        {
            let run_id = &input.context.run_id;
            let known = gathered.decisions.len();
            deferred::take_late(inbox, run_id, policy.gateway().async_fail_open, gathered);
            for (_, decision) in &gathered.decisions[known..] {
                self.tell(|telemetry| telemetry.late(&decision.rule_id, decision.action));
            }
        }
        let plan = Plan::new(policy, inbox, input.event, routing)?;
        let mut decisions = gathered.decisions.iter();
        if decisions.any(|(_, decision)| decision.action == Action::Stop) {
            plan.skip(gathered);
            return None;
        }
        Some(plan)
    }

    /// Waits for whoever has not answered, and puts what is decided into the answer.
    async fn wait(
        &self,
        policy: &Policy,
        context: &Context,
        event: &Event,
        undecided: Undecided,
        gathered: &mut Gathered,
    ) {
        let Undecided {
            snapshot,
            routing,
            fenced,
            fenced_input,
            plan,
        } = undecided;
        let input = RuleInput {
            event,
            context,
            snapshot: &snapshot,
        };
        gathered.last = None;
        if let Some(fenced_input) = fenced_input {
            self.wait_for_fenced(policy, event, fenced, &fenced_input, gathered)
                .await;
        }
        let plan = match plan {
            Some(plan) => Some(plan),
            None => self.plan(policy, input, &routing, gathered),
        };
        if let Some(mut plan) = plan {
            let before = gathered.answer.coverage.rules.len();
            plan.run(self, policy, input, &routing, gathered).await;
            self.tell(|telemetry| {
                for rule in &gathered.answer.coverage.rules[before..] {
                    let took = Duration::from_nanos(rule.elapsed_ns);
                    telemetry.deep_rule(&rule.id, rule.outcome, took);
                }
                for to in &gathered.fallbacks {
                    telemetry.fell_back(*to);
                }
            });
        }
        self.resolve(input, gathered);
    }

    async fn wait_for_fenced(
        &self,
        policy: &Policy,
        event: &Event,
        fenced: Vec<Fenced>,
        input: &Arc<FencedInput>,
        gathered: &mut Gathered,
    ) {
        let settings = policy.gateway();
        let timeout = millis(settings.sync_timeout_ms);
        for Fenced { place, turn, asked } in fenced {
            let rule = &policy.rules()[place];
            let Some(outside) = rule.fenced() else {
                continue;
            };
            let Asked { at, answer } = asked.unwrap_or_else(|| Asked {
                answer: self.fence.run(Arc::clone(outside), Arc::clone(input)),
                at: Instant::now(),
            });
            let outcome = wait_for(answer, timeout.saturating_sub(at.elapsed())).await;
            gathered.take(place, rule, event, outcome, at.elapsed(), settings);
            gathered.answer.coverage.rules[turn..].rotate_right(1);
        }
    }
}

impl FencedInput {
    fn of(input: RuleInput<'_>) -> Self {
        Self {
            event: input.event.clone(),
            context: input.context.clone(),
            snapshot: input.snapshot.clone().into_owned(),
        }
    }
}

fn tell(span: &Span, evaluation: &Evaluation) {
    span.record("action", evaluation.decision.action.as_str());
    span.record("rule", evaluation.decision.rule_id.as_str());
}

/// What is decided without asking any rule.
#[inline]
fn before_rules(policy: &Policy, event: &Event, quarantine: Option<Flag>) -> Option<Decision> {
    if policy.is_absent() {
        let reason = "No policy is configured";
        return Some(Decision::allow(RuleId::NO_POLICY, reason));
    }
    if let Some(flag) = quarantine {
        return Some(quarantined(&flag));
    }
    policy.over_limits(event)
}

/// A rule that has nothing to judge takes less on any machine. Only one with less time than this can
/// overrun, so that nobody else is measured.
const IDLE: Duration = Duration::from_micros(100);

fn quarantined(flag: &Flag) -> Decision {
    let by = flag.by.as_deref().unwrap_or(flag.rule_id.as_str());
    Decision::stop(
        RuleId::QUARANTINE,
        format!("The run was quarantined by '{by}': {}", flag.reason),
        StopSpec::code(ErrorCode::SessionQuarantined),
    )
    .with_severity(Severity::Critical)
    .with_remediation("start a new run once somebody has reviewed this one")
}
