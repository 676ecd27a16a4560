//! What approvals have to do with one step: asking for one, and going on with one.

use portcullis_core::approval::{Approval, ApprovalError, Binding, Decided, Status, Taken};
use portcullis_core::evidence::Redactor;
use portcullis_core::{
    Action, Decision, ErrorCode, Evaluation, Event, RuleId, StopSpec, redact_event,
};
use serde::Serialize;

use super::counts::{APPROVED, DENIED, EXPIRED, UNKNOWN, USED, VOID};
use super::{Desk, shown};
use crate::alerts::reason_for_others;
use crate::app::{App, Entry, instant};
use crate::auth::AgentId;

/// A step that was sent with an approval whose answer nobody has given yet.
const PENDING: &str = "pending";
/// The approval could not be kept or read.
const FAILED: &str = "failed";

/// A step as it is answered, and what that has to do with approvals.
pub(crate) struct Settled {
    /// With the decision that holds, where pauses were lifted.
    pub(crate) evaluation: Evaluation,
    /// What the step waits for.
    pub(crate) waits_for: Option<Waiting>,
    /// What was asked for just now, to tell people of.
    pub(crate) asked: Option<Approval>,
    /// Why there is no answer.
    pub(crate) refusal: Option<Refusal>,
    redeemed: Option<Redeemed>,
}

/// An approval that a step waits for, as the step's agent is told of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Waiting {
    id: String,
    status: Status,
    expires: Option<String>,
    approver_roles: Vec<String>,
}

impl From<&Approval> for Waiting {
    fn from(approval: &Approval) -> Self {
        Self {
            id: approval.id.clone(),
            status: approval.status,
            expires: approval.expires.map(shown),
            approver_roles: approval.approver_roles.clone(),
        }
    }
}

/// The approval that a step was sent with, and what came of it.
struct Redeemed {
    id: String,
    outcome: &'static str,
    by: Option<String>,
}

/// The approval that a step was sent with, as far as it is known.
pub(crate) struct Given {
    id: String,
    known: Result<Approval, ApprovalError>,
}

impl Given {
    pub(crate) async fn look_up(desk: &Desk, id: String) -> Self {
        let known = desk.get(&id).await;
        let known = known.and_then(|known| {
            let unknown = || ApprovalError::NotFound(id.clone());
            known.ok_or_else(unknown)
        });
        Self { id, known }
    }

    /// The pauses of the step that a person was asked about before, if it looks like the same. Whether it is can be told
    /// once it is judged.
    pub(crate) fn pauses(&self, agent: &AgentId, event: &Event) -> Option<&[RuleId]> {
        let known = self.known.as_ref().ok()?;
        let bound = &known.bound;
        let alike = bound.run_id == event.run_id
            && bound.agent == agent.as_str()
            && bound.stage == event.event_type
            && bound.tool == event.tool_name;
        (alike && known.taken.is_none()).then_some(&bound.rules[..])
    }
}

/// Why a step is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is none of this id.
    #[error("there is no approval `{0}`: send the step without `approval` to ask for one")]
    Unknown(String),
    /// It is for another step.
    #[error(
        "approval `{id}` is void: it was given for another {what}. Send the step exactly as it was, or without \
         `approval` to ask again"
    )]
    Void { id: String, what: &'static str },
    /// It was used before.
    #[error(
        "the answer to approval `{id}` was used at {at}: it is good for once. Send the step without `approval` to \
         ask again"
    )]
    Used { id: String, at: String },
    /// Too many are kept.
    #[error(
        "{0} approvals are kept, the most there can be, and none of them is over: decide on some, or try again later"
    )]
    Full(usize),
    /// They cannot be kept or read. Where and why is nothing for a caller.
    #[error("approvals cannot be kept or read: see the server's log")]
    Failed,
}

/// Settles what a step that is paused has to do with approvals. `given` is the one that it was sent with.
pub(crate) async fn settle(
    settled: &mut Settled,
    app: &App,
    agent: &AgentId,
    event: &Event,
    given: Option<Given>,
) {
    let mut seen = event.clone();
    let redacted = redact_event(&mut seen, &settled.evaluation.decision.redactions);
    if let Err(error) = redacted {
        settled.stop(ErrorCode::ApprovalFailed, error.to_string());
        return;
    }
    let lifted = match given {
        Some(given) => settled.redeem(app, agent, &seen, given).await,
        None => Some(Vec::new()),
    };
    if let Some(lifted) = lifted
        && settled.pauses()
        && settled.waits_for.is_none()
    {
        settled.ask(app, agent, &seen, lifted).await;
    }
}

/// As it was judged.
impl From<Evaluation> for Settled {
    fn from(evaluation: Evaluation) -> Self {
        Self {
            evaluation,
            waits_for: None,
            asked: None,
            refusal: None,
            redeemed: None,
        }
    }
}

impl Settled {
    /// Notes in the step's entry what was asked for and what was used up.
    pub(crate) fn note(&self, entry: &mut Entry) {
        if let Some(Redeemed { id, outcome, by }) = &self.redeemed {
            if matches!(*outcome, UNKNOWN | FAILED) {
                // Whatever the caller wrote.
                entry.told("approval", id.as_str());
            } else {
                entry.made("approval", id.as_str());
            }
            entry.made("approval_outcome", *outcome);
            if let Some(by) = by {
                entry.made("approval_by", by.as_str());
            }
        }
        if let Some(asked) = &self.asked {
            entry.made("approval_requested", asked.id.as_str());
        }
    }

    /// Whether it waits for a person, as far as can be told by now.
    pub(crate) fn pauses(&self) -> bool {
        pauses(&self.evaluation)
    }

    /// Whether it is not the step that the approval was asked for.
    pub(crate) fn is_void(&self) -> bool {
        matches!(self.refusal, Some(Refusal::Void { .. }))
    }

    /// Uses up the approval that the step was sent with, and gives the rules whose pauses are lifted. None if there is
    /// nothing to ask for afterwards.
    async fn redeem(
        &mut self,
        app: &App,
        agent: &AgentId,
        seen: &Event,
        Given { id, known }: Given,
    ) -> Option<Vec<RuleId>> {
        let desk = &app.approvals;
        let known = match known {
            Ok(known) => known,
            Err(error) => {
                self.refuse(desk, id, error);
                return None;
            }
        };
        if known.bound.agent != agent.as_str() {
            // To others there is no such approval.
            self.refuse(desk, id.clone(), ApprovalError::NotFound(id));
            return None;
        }
        let rules = known.bound.rules.clone();
        let bound = self.binding(desk, agent, seen, rules.clone());
        if let Some(what) = known.bound.difference(&bound) {
            let error = ApprovalError::Void {
                id: id.clone(),
                what,
            };
            self.refuse(desk, id, error);
            return None;
        }
        // Another rule pauses now than the one that somebody was asked about: nothing of the answer is used up.
        if !rules.contains(self.evaluation.decision.pause_key()) {
            return Some(Vec::new());
        }
        if let (Status::Denied, Some(decided), Some(_)) =
            (known.status, &known.decided, known.taken)
        {
            // A no may be heard again: it lets nothing happen.
            return self.apply(id, Taken::Denied(decided.clone()), rules);
        }
        let after = self.evaluation.clone().lift(&rules);
        if known.status == Status::Approved && known.taken.is_none() && pauses(&after) {
            // The next question first: if it cannot be asked, this answer is still good.
            let paused = std::mem::replace(&mut self.evaluation, after);
            self.ask(app, agent, seen, rules.clone()).await;
            self.evaluation = paused;
            if self.refusal.is_some() {
                return None;
            }
        }
        match desk.take(id.clone(), bound).await {
            Ok(taken) => self.apply(id, taken, rules),
            Err(ApprovalError::Pending(_)) => {
                self.waits_for = Some(Waiting::from(&known));
                self.redeemed(id, PENDING, None);
                None
            }
            Err(error) => {
                // Whoever was asked next is asked for nothing, and need not know.
                (self.waits_for, self.asked) = (None, None);
                self.refuse(desk, id, error);
                None
            }
        }
    }

    fn apply(&mut self, id: String, taken: Taken, rules: Vec<RuleId>) -> Option<Vec<RuleId>> {
        match taken {
            Taken::Approved(Decided { by, .. }) => {
                self.redeemed(id, APPROVED, Some(by));
                self.evaluation = self.evaluation.clone().lift(&rules);
                Some(rules)
            }
            Taken::Denied(Decided { by, note, .. }) => {
                let note = note.map(|note| format!(": {note}"));
                let reason = format!("{by} said no{}", note.unwrap_or_default());
                self.stop(ErrorCode::ApprovalDenied, reason);
                self.redeemed(id, DENIED, Some(by));
                None
            }
            Taken::Expired => {
                let reason = "nobody said yes in time".to_owned();
                self.stop(ErrorCode::ApprovalExpired, reason);
                self.redeemed(id, EXPIRED, None);
                None
            }
        }
    }

    fn binding(&self, desk: &Desk, agent: &AgentId, seen: &Event, rules: Vec<RuleId>) -> Binding {
        let policy = &self.evaluation.policy.digest;
        let mut redactions = self.evaluation.decision.redactions.iter();
        Binding {
            // A token stands for a value in this process alone; in the next it may stand for another.
            run_state: redactions
                .any(|spec| spec.restorable)
                .then_some(desk.process),
            ..Binding::of(seen, agent.as_str(), rules, policy)
        }
    }

    /// Asks a person, for the rule that pauses after those whose pauses are lifted.
    async fn ask(&mut self, app: &App, agent: &AgentId, seen: &Event, lifted: Vec<RuleId>) {
        let decision = &self.evaluation.decision;
        let mut rules = lifted;
        rules.push(decision.pause_key().clone());
        let bound = self.binding(&app.approvals, agent, seen, rules);
        let Ok(redactor) = app.redactor().await else {
            self.refusal = Some(Refusal::Failed);
            return;
        };
        // A policy need not take secrets out, and this is kept and shown to others than the agent.
        let shown = without_secrets(seen, redactor);
        let pause = decision.pause.as_deref().cloned().unwrap_or_default();
        let mut approval = Approval::of(decision, pause, &shown, bound, instant());
        // Rules quote what they found.
        approval.reason = reason_for_others(&approval.reason, redactor);
        approval.prompt = reason_for_others(&approval.prompt, redactor);
        match app.approvals.waiting_for(&approval).await {
            Ok(Some(known)) => {
                self.waits_for = Some(Waiting::from(&known));
                return;
            }
            Ok(None) => {}
            Err(_) => {
                self.refusal = Some(Refusal::Failed);
                return;
            }
        }
        match app.approvals.create(approval.clone()).await {
            Ok(()) => {
                self.waits_for = Some(Waiting::from(&approval));
                self.asked = Some(approval);
            }
            Err(ApprovalError::Full(count)) => self.refusal = Some(Refusal::Full(count)),
            Err(_) => self.refusal = Some(Refusal::Failed),
        }
    }

    /// Ends the run instead of pausing it. What must not be seen must not be seen afterwards either.
    fn stop(&mut self, error_code: ErrorCode, reason: String) {
        let paused = &self.evaluation.decision;
        let stop = StopSpec {
            internal_reason: reason.clone(),
            ..StopSpec::code(error_code)
        };
        let mut decision = Decision::stop(paused.rule_id.clone(), reason, stop);
        decision.decision_id = paused.decision_id;
        decision.severity = paused.severity;
        decision.redactions.clone_from(&paused.redactions);
        self.evaluation.decision = decision;
    }

    fn refuse(&mut self, desk: &Desk, id: String, error: ApprovalError) {
        let (outcome, refusal) = match error {
            ApprovalError::NotFound(id) => (UNKNOWN, Refusal::Unknown(id)),
            ApprovalError::Void { id, what } => (VOID, Refusal::Void { id, what }),
            ApprovalError::AlreadyTaken { id, at } => {
                let at = shown(at);
                (USED, Refusal::Used { id, at })
            }
            _ => (FAILED, Refusal::Failed),
        };
        if outcome != FAILED {
            desk.metrics.redeemed(outcome).inc();
        }
        self.redeemed(id, outcome, None);
        self.refusal = Some(refusal);
    }

    fn redeemed(&mut self, id: String, outcome: &'static str, by: Option<String>) {
        self.redeemed = Some(Redeemed { id, outcome, by });
    }
}

fn pauses(evaluation: &Evaluation) -> bool {
    evaluation.enforced && evaluation.decision.action == Action::Pause
}

fn without_secrets(event: &Event, redactor: &Redactor) -> Event {
    let mut event = event.clone();
    let text = event.text_content.take();
    event.text_content = text.map(|text| redactor.redact(&text).into_owned());
    let arguments = event.tool_args.take();
    event.tool_args = arguments.map(|arguments| redactor.without_secrets(&arguments).into_owned());
    event.payload = redactor.without_secrets(&event.payload).into_owned();
    event
}
