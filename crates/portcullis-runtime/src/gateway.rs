//! The gateway: one event in, one evaluation out (RFC-001 §9).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use portcullis_core::{
    Action, Context, ContextBuilder, Coverage, Decision, DecisionPolicy, DefaultDecisionPolicy,
    Effect, Evaluation, Event, History, Mode, OnTimeout, Policy, RiskRouter, RuleCoverage, RuleId,
    RuleOutcome, nothing_triggered,
};

use tracing::Span;

use crate::breaker::{Breakers, Circuit};
use crate::deep::DeepRules;
use crate::effects::{self, AlertSink, Flag, Quarantined, RecentAlerts, RunRecord, Runs};
use crate::fence::{self, Fence};
use crate::ids::Ids;
use crate::inbox::{GuardInbox, InboxDepth, InboxLimits, MemoryInbox};
use crate::run_map::RunMap;
use crate::telemetry::{Propagation, Telemetry};
use crate::vault::Vault;

/// Judges events by a policy that can be replaced at any time.
///
/// Fast rules run inline. Deep rules run behind an inbox for as long as the risk router waits.
/// Whatever fails, fails closed, unless the policy says otherwise.
pub struct Gateway {
    policy: ArcSwap<Policy>,
    pub(crate) inbox: Option<Arc<dyn GuardInbox>>,
    decision_policy: Arc<dyn DecisionPolicy>,
    pub(crate) risk_router: Option<Arc<dyn RiskRouter>>,
    pub(crate) context_builder: Option<Arc<dyn ContextBuilder>>,
    alerts: Arc<dyn AlertSink>,
    telemetry: Option<Arc<dyn Telemetry>>,
    propagation: Option<Arc<dyn Propagation>>,
    runs: Runs,
    vault: Vault,
    /// Kept only while a policy has sequence rules.
    histories: RunMap<History>,
    pub(crate) fence: Fence,
    pub(crate) breakers: Breakers,
    pub(crate) ids: Ids,
}

/// Puts a [`Gateway`] together.
pub struct GatewayBuilder {
    policy: Policy,
    inbox: Option<Arc<dyn GuardInbox>>,
    decision_policy: Arc<dyn DecisionPolicy>,
    risk_router: Option<Arc<dyn RiskRouter>>,
    context_builder: Option<Arc<dyn ContextBuilder>>,
    alerts: Option<Arc<dyn AlertSink>>,
    telemetry: Option<Arc<dyn Telemetry>>,
    propagation: Option<Arc<dyn Propagation>>,
    max_runs: usize,
    max_rule_threads: usize,
}

impl GatewayBuilder {
    /// Deep rules, and where they run. Default: none.
    pub fn inbox(mut self, inbox: Arc<dyn GuardInbox>) -> Self {
        self.inbox = Some(inbox);
        self
    }

    /// Deep rules that run in this process.
    pub fn deep_rules(self, rules: DeepRules) -> Self {
        self.inbox(Arc::new(MemoryInbox::new(rules, InboxLimits::default())))
    }

    /// How decisions are resolved. Default: [`DefaultDecisionPolicy`].
    pub fn decision_policy(mut self, policy: impl DecisionPolicy) -> Self {
        self.decision_policy = Arc::new(policy);
        self
    }

    /// How events are routed. Default: the policy's own settings.
    pub fn risk_router(mut self, router: impl RiskRouter) -> Self {
        self.risk_router = Some(Arc::new(router));
        self
    }

    /// How events are described. Default: [`DefaultContextBuilder`].
    pub fn context_builder(mut self, builder: impl ContextBuilder) -> Self {
        self.context_builder = Some(Arc::new(builder));
        self
    }

    /// Where alerts go. Default: the last thousand are kept in memory.
    pub fn alerts(mut self, sink: Arc<dyn AlertSink>) -> Self {
        self.alerts = Some(sink);
        self
    }

    /// Who counts. Default: nobody.
    pub fn telemetry(mut self, telemetry: Arc<dyn Telemetry>) -> Self {
        self.telemetry = Some(telemetry);
        self
    }

    /// Who carries traces to deep rules in other processes. Default: nobody.
    pub fn propagation(mut self, propagation: Arc<dyn Propagation>) -> Self {
        self.propagation = Some(propagation);
        self
    }

    /// How many runs with strikes or flags are remembered; of quarantined runs, ten times as many.
    /// Default: 100,000. Then the oldest is forgotten.
    pub fn max_runs(mut self, max: usize) -> Self {
        self.max_runs = max.max(1);
        self
    }

    /// How many threads rules from outside may hold up. Default: 64.
    pub fn max_rule_threads(mut self, max: usize) -> Self {
        self.max_rule_threads = max;
        self
    }

    /// Done.
    pub fn build(self) -> Gateway {
        Gateway {
            policy: ArcSwap::from_pointee(self.policy),
            inbox: self.inbox,
            decision_policy: self.decision_policy,
            risk_router: self.risk_router,
            context_builder: self.context_builder,
            alerts: self
                .alerts
                .unwrap_or_else(|| Arc::new(RecentAlerts::new(1000))),
            telemetry: self.telemetry,
            propagation: self.propagation,
            runs: Runs::new(self.max_runs),
            vault: Vault::new(self.max_runs),
            histories: RunMap::new(self.max_runs),
            fence: Fence::new(self.max_rule_threads),
            breakers: Breakers::default(),
            ids: Ids::new(),
        }
    }
}

/// What an evaluation has gathered so far. Decisions keep the place of their rule, because the
/// first registered wins a tie.
pub(crate) struct Gathered {
    /// Whether rules that search for patterns have been heard already.
    pub(crate) scanned: bool,
    /// Whether nothing follows from the evaluation.
    pub(crate) quiet: bool,
    /// The pauses that a person has been asked about.
    pub(crate) asked: Vec<RuleId>,
    /// When the last rule was done. Asking the clock costs as much as a rule.
    pub(crate) last: Option<Instant>,
    pub(crate) decisions: Vec<(usize, Decision)>,
    /// What happened in the place of deep rules that did not answer.
    pub(crate) fallbacks: Vec<OnTimeout>,
    /// The answer as far as it is known, which is that nobody has anything to say. It is large: put together where it is, it
    /// is moved once.
    pub(crate) answer: Evaluation,
}

impl Gathered {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            scanned: false,
            quiet: false,
            asked: Vec::new(),
            last: None,
            decisions: Vec::new(),
            fallbacks: Vec::new(),
            answer: Evaluation {
                decision: nothing_triggered(),
                enforced: policy.gateway().mode == Mode::Enforce && !policy.is_absent(),
                policy: Arc::clone(policy.identity()),
                coverage: Coverage::default(),
                elapsed_us: 0,
                if_lifted: Vec::new(),
            },
        }
    }

    pub(crate) fn decide(&mut self, place: usize, decision: Decision) {
        self.decisions.push((place, decision));
    }

    pub(crate) fn cover(&mut self, id: &RuleId, outcome: RuleOutcome, elapsed: Duration) {
        self.answer.coverage.rules.push(RuleCoverage {
            id: id.clone(),
            outcome,
            elapsed_ns: elapsed.as_nanos() as u64,
        });
    }
}

impl Gateway {
    /// A gateway for a policy.
    pub fn builder(policy: Policy) -> GatewayBuilder {
        GatewayBuilder {
            policy,
            inbox: None,
            decision_policy: Arc::new(DefaultDecisionPolicy::default()),
            risk_router: None,
            context_builder: None,
            alerts: None,
            telemetry: None,
            propagation: None,
            max_runs: 100_000,
            max_rule_threads: 64,
        }
    }

    /// A gateway with nothing to judge by: it allows, and says so in every answer.
    pub fn without_policy() -> Self {
        Self::builder(Policy::absent()).build()
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// The same, for no longer than one event takes that nobody is waited for.
    pub(crate) fn loaded(&self) -> Guard<Arc<Policy>> {
        self.policy.load()
    }

    /// Puts another policy in force. Evaluations under way finish by the one they started with.
    pub fn replace_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// What is remembered of a run: strikes, flags, quarantine. `None` if nothing happened to it.
    pub fn run(&self, run_id: &str) -> Option<RunRecord> {
        self.runs.get(run_id)
    }

    /// How each deep rule stands that has ever failed to answer.
    pub fn circuits(&self) -> Vec<(RuleId, Circuit)> {
        self.breakers.list()
    }

    /// How often a deep rule was given up for a while because it did not answer.
    pub fn circuits_opened(&self) -> u64 {
        self.breakers.opened()
    }

    /// How much the inbox keeps.
    pub fn inbox_depth(&self) -> InboxDepth {
        let inbox = self.inbox.as_ref();
        inbox.map(|inbox| inbox.depth()).unwrap_or_default()
    }

    pub(crate) fn trace_of(&self, span: &Span) -> Option<String> {
        let propagation = self.propagation.as_ref()?;
        (!span.is_disabled()).then(|| propagation.carry(span))?
    }

    /// Puts a run in quarantine by hand: all its later events are stopped. Gives why it is there, which
    /// is the first reason if it was there already.
    pub fn quarantine(&self, run_id: &str, by: &str, reason: &str) -> Flag {
        let flag = Flag {
            decision_id: self.ids.next(Instant::now()),
            rule_id: RuleId::OPERATOR,
            reason: reason.to_owned(),
            event_type: String::new(),
            by: Some(by.to_owned()),
        };
        self.runs.quarantine(run_id, flag)
    }

    /// Puts runs in quarantine that were there before, the longest there first.
    pub fn quarantine_again(&self, runs: impl IntoIterator<Item = Quarantined>) {
        for Quarantined { run_id, flag } in runs {
            self.runs.quarantine(&run_id, flag);
        }
    }

    /// Lets a run out of quarantine and forgets its strikes; its flags stay. Gives why it was there,
    /// `None` if it was not.
    pub fn release(&self, run_id: &str) -> Option<Flag> {
        self.runs.release(run_id)
    }

    /// The runs in quarantine in the order of their names, from the first behind `after`, at most
    /// `limit`.
    pub fn quarantined(&self, after: Option<&str>, limit: usize) -> Vec<Quarantined> {
        self.runs.quarantined(after, limit)
    }

    pub(crate) fn is_quarantined(&self, run_id: &str) -> bool {
        self.runs.is_quarantined(run_id)
    }

    /// Brings what is remembered of the run into the context; says whether it is quarantined, and why.
    pub(crate) fn recall(&self, policy: &Policy, context: &mut Context) -> Option<Flag> {
        if policy.has_sequences() {
            context.history = self.history(&context.run_id);
        }
        self.runs.recall(context)
    }

    pub(crate) fn decision_policy(&self) -> &Arc<dyn DecisionPolicy> {
        &self.decision_policy
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    /// The text with the values that `pii-redaction` has vaulted in this run in the place of their
    /// tokens. For an answer to the user whose values they are: restore last, and send it nowhere else.
    pub fn restore<'t>(&self, run_id: &str, text: &'t str) -> Cow<'t, str> {
        self.vault.restore(run_id, text)
    }

    /// What sequence rules know of a run, for whoever goes on with it in another process.
    pub fn history(&self, run_id: &str) -> History {
        let known = self.histories.read(run_id, History::clone);
        known.unwrap_or_default()
    }

    /// Takes over what another process knew of a run, unless this one knows more.
    pub fn resume_history(&self, run_id: &str, history: &History) {
        if history.steps() == 0 {
            return;
        }
        self.histories.update(run_id, |known| {
            if known.steps() < history.steps() {
                known.clone_from(history);
            }
        });
    }

    /// A hook that panics must not undo the decision that it is told of.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Telemetry)) {
        if let Some(telemetry) = &self.telemetry {
            let _ = fence::catching(|| {
                what(&**telemetry);
                Ok(())
            });
        }
    }

    /// Completes the answer, and does what follows from it.
    pub(crate) fn conclude(
        &self,
        policy: &Policy,
        context: &mut Context,
        event: &Event,
        gathered: &mut Gathered,
        started: Instant,
    ) {
        let now = gathered.last.unwrap_or_else(Instant::now);
        let evaluation = &mut gathered.answer;
        evaluation.elapsed_us = now.duration_since(started).as_micros() as u64;
        evaluation.decision.decision_id = self.ids.next(now);
        self.settle(context, event, evaluation, now);
        if !gathered.quiet {
            self.follow(policy, context, event, evaluation, &gathered.asked);
        }
        self.tell(|telemetry| telemetry.evaluated(event, evaluation));
    }

    /// Keeps what is to be restored, and brings what would be decided without a pause in line with it.
    fn settle(&self, context: &Context, event: &Event, evaluation: &mut Evaluation, now: Instant) {
        let decision = &mut evaluation.decision;
        if evaluation.enforced && !decision.redactions.is_empty() {
            self.vault.keep(&context.run_id, event, decision);
        }
        for lifted in &mut evaluation.if_lifted {
            lifted.decision_id = self.ids.next(now);
            // What the step asks for was asked for; what must not be seen must not be seen afterwards either.
            lifted.effects.clear();
            lifted.redactions.clone_from(&decision.redactions);
            if lifted.action == Action::Allow && !lifted.redactions.is_empty() {
                lifted.action = Action::Redact;
            }
        }
    }

    /// Does what follows from a decision. `asked` are the pauses that a person has been asked about.
    fn follow(
        &self,
        policy: &Policy,
        context: &mut Context,
        event: &Event,
        evaluation: &Evaluation,
        asked: &[RuleId],
    ) {
        let decision = &evaluation.decision;
        self.runs.apply(decision, context, event);
        let was_asked = decision.action == Action::Pause && asked.contains(decision.pause_key());
        // A step that waits for a person may happen, and counts. When it comes again it is no other.
        if policy.has_sequences() && !was_asked {
            let rules = evaluation.coverage.rules.iter();
            let decided = rules.filter(|rule| rule.outcome == RuleOutcome::Decided);
            let decided: Vec<&RuleId> = decided.map(|rule| &rule.id).collect();
            let prevented = matches!(decision.action, Action::Stop | Action::Retry);
            let satisfied = policy.satisfied(event, &decided, evaluation.enforced && prevented);
            self.histories
                .update(&context.run_id, |history| history.step(satisfied));
        }
        // A sink that panics must not undo the decision that it is told of.
        if decision.effects.contains(&Effect::EmitAlert) {
            let alert = effects::alert(context, event, evaluation);
            let _ = fence::catching(|| {
                self.alerts.alert(alert);
                Ok(())
            });
        }
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Milliseconds as people configure them: nothing below zero, an hour at most.
pub(crate) fn millis(ms: f64) -> Duration {
    if ms > 0.0 {
        Duration::from_secs_f64(ms.min(3.6e6) / 1000.0)
    } else {
        Duration::ZERO
    }
}
