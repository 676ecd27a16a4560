//! Waiting for a person, and going on afterwards.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use portcullis_core::{ErrorCode, Evaluation, Event, PauseScope, PauseSpec};
use portcullis_runtime::approval::{Approval, ApprovalError, Approvals, Status};
use portcullis_runtime::{Clearance, Cleared, clear};
use serde_json::{Value, json};

use super::{Drive, Halt};
use crate::events::RunEvent;
use crate::planner::{ResumeError, Stopped};
use crate::state::Held;

/// What came of a pause.
pub(super) enum Lifted {
    /// Somebody said yes, and this uses it up.
    Yes(Clearance),
    /// Somebody said no, or nobody anything in time.
    No(Stopped),
    /// Nobody has decided.
    NotYet,
}

impl Drive<'_> {
    /// Asks for an approval. If that cannot be done the run ends: without one the step must not happen.
    pub(super) async fn hold(
        &mut self,
        event: &Event,
        spec: PauseSpec,
        evaluation: Option<&Evaluation>,
    ) -> Result<Held, Halt> {
        let Some(evaluation) = evaluation else {
            return Err(failed("a step was paused by nobody").into());
        };
        let decision = &evaluation.decision;
        let trajectory = &self.state.trajectory;
        let mut bound = self.planner.gate.binding(event, &trajectory.agent);
        bound.policy.clone_from(&evaluation.policy.digest);
        let created = (self.planner.clock)();
        let approval = Approval {
            id: decision.decision_id.to_string(),
            bound,
            subject: subject(event),
            rule_id: decision.rule_id.clone(),
            reason: decision.reason.to_string(),
            prompt: spec.prompt,
            scope: spec.scope,
            approver_roles: spec.approver_roles,
            created,
            expires: spec.timeout_s.map(|seconds| after(created, seconds)),
            status: Status::Pending,
            decided: None,
            taken: None,
        };
        let held = Held {
            approval: approval.id.clone(),
            scope: approval.scope,
        };
        let prompt = approval.prompt.clone();
        let kept = self
            .apart(move |approvals| approvals.create(approval))
            .await;
        kept.map_err(|error| failed(error.to_string()))?;
        let id = &held.approval;
        self.events
            .send(|| RunEvent::Waiting {
                approval: id.clone(),
                prompt,
            })
            .await;
        Ok(held)
    }

    /// Uses up the answers to the approvals that the run waits for. False if there is nothing to go on with.
    ///
    /// What holds up a whole step is used up only when everything is decided that holds it up: an answer is good for
    /// once, and must not be spent on waiting.
    pub(crate) async fn clear(&mut self) -> Result<bool, ResumeError> {
        let agent = self.state.trajectory.agent.clone();
        let gate = &self.planner.gate;
        let waiting: Vec<_> = self
            .state
            .holds()
            .into_iter()
            .map(|(held, event)| (held.clone(), gate.binding(&event, &agent)))
            .collect();
        let now = (self.planner.clock)();
        let cleared = self
            .apart(move |approvals| {
                let mut decided = Vec::new();
                for (held, bound) in waiting {
                    let id = &held.approval;
                    let known = approvals.get(id, now)?;
                    let known = known.ok_or_else(|| ApprovalError::NotFound(id.clone()))?;
                    // Whatever is wrong with one is found before any is used up.
                    match known.take(&bound, now) {
                        Ok(_) => decided.push((held, bound)),
                        Err(ApprovalError::Pending(_)) if held.scope == PauseScope::ToolCall => {}
                        Err(ApprovalError::Pending(_)) => return Ok(Vec::new()),
                        Err(error) => return Err(error),
                    }
                }
                decided
                    .into_iter()
                    .map(|(held, bound)| {
                        let cleared = clear(approvals, &held.approval, bound, now)?;
                        Ok((held.approval, cleared))
                    })
                    .collect()
            })
            .await?;
        self.cleared = cleared.into_iter().collect();
        Ok(!self.cleared.is_empty())
    }

    pub(super) fn lift(&mut self, held: &Held) -> Lifted {
        let (code, text) = match self.cleared.remove(&held.approval) {
            None => return Lifted::NotYet,
            Some(Cleared::Yes(clearance)) => return Lifted::Yes(clearance),
            Some(Cleared::Expired) => (
                ErrorCode::ApprovalExpired,
                "nobody decided in time".to_owned(),
            ),
            Some(Cleared::Denied(decided)) => {
                let note = decided.note.map(|note| format!(": {note}"));
                let text = format!("{} said no{}", decided.by, note.unwrap_or_default());
                (ErrorCode::ApprovalDenied, text)
            }
        };
        Lifted::No(Stopped::by_planner(code, text))
    }

    /// Runs what may block where it may.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Approvals) -> Result<T, ApprovalError> + Send + 'static,
    ) -> Result<T, ApprovalError> {
        let approvals = Arc::clone(&self.planner.approvals);
        tokio::task::spawn_blocking(move || work(&*approvals))
            .await
            .unwrap_or_else(|error| Err(ApprovalError::Backend(error.to_string())))
    }
}

fn failed(reason: impl Into<String>) -> Stopped {
    Stopped::by_planner(ErrorCode::ApprovalFailed, reason)
}

/// What the person who decides is shown.
fn subject(event: &Event) -> Value {
    match (&event.tool_args, &event.text_content) {
        (Some(arguments), _) => Value::Object(arguments.clone()),
        (None, Some(text)) => json!(text),
        (None, None) => event.payload.get("result").cloned().unwrap_or_default(),
    }
}

/// A pause of no time at all has run out when it begins; one past the end of time lasts until then.
fn after(created: Timestamp, seconds: f64) -> Timestamp {
    if seconds.is_nan() || seconds <= 0.0 {
        return created;
    }
    SignedDuration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|span| created.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}
