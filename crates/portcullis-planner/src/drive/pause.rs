//! Waiting for a person, and going on afterwards.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::evidence::Digest;
use portcullis_core::{ErrorCode, Event};
use portcullis_runtime::approval::{ApprovalError, Approvals, Binding};
use portcullis_runtime::{Clearance, Cleared, Paused, clear};
use tokio::time::timeout;

use super::Drive;
use crate::events::RunEvent;
use crate::planner::{ResumeError, Stopped};
use crate::state::Held;

/// How long somebody may take to hear that the run waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// What came of a pause.
pub(super) enum Lifted {
    /// Somebody said yes, and this uses it up.
    Yes(Clearance),
    /// Somebody said no, or nobody anything in time.
    No(Stopped),
}

impl Drive<'_> {
    /// Holds a step up. A person is asked when the run is suspended, and what they answer is bound to all of it.
    pub(super) fn hold(&mut self, event: &Event, paused: Paused) -> Held {
        let (scope, rules) = (paused.scope(), paused.rules().to_vec());
        let agent = &self.state.trajectory.agent;
        let approval = paused.approval(event, agent, (self.planner.clock)());
        let held = Held {
            approval: approval.id.clone(),
            scope,
            rules,
        };
        self.asking.push(approval);
        held
    }

    /// Whether the run is about to ask a person for this.
    pub(super) fn is_asking(&self, held: &Held) -> bool {
        self.asking.iter().any(|asked| asked.id == held.approval)
    }

    /// Asks for the approvals that the run waits for. If that cannot be done the run ends: without them nothing of what
    /// waits may happen.
    pub(super) async fn ask_people(&mut self) -> Result<(), Stopped> {
        let mut asking = std::mem::take(&mut self.asking);
        let state = self.state.digest();
        for approval in &mut asking {
            approval.bound.run_state = Some(state);
        }
        let waiting: Vec<RunEvent> = asking
            .iter()
            .map(|approval| RunEvent::Waiting {
                approval: approval.id.clone(),
                prompt: approval.prompt.clone(),
            })
            .collect();
        let kept = self
            .apart(move |approvals| {
                asking
                    .into_iter()
                    .try_for_each(|approval| approvals.create(approval))
            })
            .await;
        kept.map_err(|error| Stopped::by_planner(ErrorCode::ApprovalFailed, error.to_string()))?;
        for waiting in waiting {
            // Whoever does not listen finds them in the run that is handed back, which must not be lost over this.
            let _ = timeout(PATIENCE, self.events.send(|| waiting)).await;
        }
        Ok(())
    }

    /// Uses up the answers to the approvals that the run waits for. False if somebody has yet to decide: an answer is good
    /// for once, and must not be spent on waiting.
    ///
    /// The digest is of the state as it was suspended.
    pub(crate) async fn clear(&mut self, state: Digest) -> Result<bool, ResumeError> {
        let agent = &self.state.trajectory.agent;
        let policy = self.planner.gate.policy();
        let waiting: Vec<(String, Binding)> = self
            .state
            .holds()
            .into_iter()
            .map(|(held, event)| {
                let bound = Binding::of(&event, agent, held.rules.clone(), &policy);
                let bound = Binding {
                    run_state: Some(state),
                    ..bound
                };
                (held.approval.clone(), bound)
            })
            .collect();
        let now = (self.planner.clock)();
        let cleared = self
            .apart(move |approvals| {
                for (id, bound) in &waiting {
                    let known = approvals.get(id, now)?;
                    let known = known.ok_or_else(|| ApprovalError::NotFound(id.clone()))?;
                    // Whatever is wrong with one is found before any is used up.
                    match known.take(bound, now) {
                        Ok(_) => {}
                        Err(ApprovalError::Pending(_)) => return Ok(Vec::new()),
                        Err(error) => return Err(error),
                    }
                }
                waiting
                    .into_iter()
                    .map(|(id, bound)| {
                        let cleared = clear(approvals, &id, bound, now)?;
                        Ok((id, cleared))
                    })
                    .collect()
            })
            .await?;
        self.cleared = cleared.into_iter().collect();
        Ok(!self.cleared.is_empty())
    }

    pub(super) fn lift(&mut self, held: &Held) -> Lifted {
        let (code, text) = match self.cleared.remove(&held.approval) {
            Some(Cleared::Yes(clearance)) => return Lifted::Yes(clearance),
            Some(Cleared::Expired) => (
                ErrorCode::ApprovalExpired,
                "nobody decided in time".to_owned(),
            ),
            Some(Cleared::Denied(decided)) => {
                let note = decided.note.map(|note| format!(": {note}"));
                let text = format!("a person said no{}", note.unwrap_or_default());
                (ErrorCode::ApprovalDenied, text)
            }
            None => (
                ErrorCode::ApprovalFailed,
                "it was not cleared for this run".to_owned(),
            ),
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
