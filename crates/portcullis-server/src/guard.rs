//! `POST /v1/guard/evaluate`: one step of a run, judged and recorded.

use portcullis_core::{Effect, Evaluation, Event, Step, canonical};

use crate::app::{App, Entry, KeepError, RecordError, now};
use crate::cstp::Caller;

/// Why a step was not judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// The body is not a step.
    #[error("{message}")]
    Invalid {
        /// Which member is wrong, if one can tell.
        field: Option<String>,
        /// What is wrong with it.
        message: String,
    },
    /// There is nothing to judge by.
    #[error("the policy could not be loaded: see the server's log")]
    NoPolicy,
    /// The verdict could not be recorded, so it does not count.
    #[error(transparent)]
    NotRecorded(#[from] RecordError),
    /// It quarantines the run, which could not be kept.
    #[error(transparent)]
    NotKept(#[from] KeepError),
}

/// Judges one step: the same JSON as a line of `portcullis eval`.
pub(crate) async fn evaluate(
    app: &App,
    caller: Caller<'_>,
    bytes: &[u8],
) -> Result<Evaluation, EvaluateError> {
    let Step { mut context, event } = parse(bytes)?;
    if !app.policy_in_force().await {
        return Err(EvaluateError::NoPolicy);
    }
    let evaluation = app.gateway.evaluate(&mut context, &event).await;
    let entry = entry(caller, &event, &evaluation);
    // Both at once: neither waits for the other's disk.
    let kept = keep_quarantine(app, &context.run_id, &evaluation);
    let (recorded, kept) = tokio::join!(app.record(&entry), kept);
    recorded?;
    kept?;
    Ok(evaluation)
}

/// Lets a quarantine that was just decided outlive the server.
async fn keep_quarantine(
    app: &App,
    run_id: &str,
    evaluation: &Evaluation,
) -> Result<(), KeepError> {
    let effects = &evaluation.decision.effects;
    if !effects.contains(&Effect::QuarantineSession) {
        return Ok(());
    }
    match app.gateway.run(run_id).and_then(|run| run.quarantine) {
        Some(flag) => app.keep_quarantine(run_id, &flag).await,
        None => Ok(()),
    }
}

fn parse(bytes: &[u8]) -> Result<Step, EvaluateError> {
    // serde would read a list as the members in their order, too.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(EvaluateError::Invalid {
            field: None,
            message: "expected an object with `event` and `context`, found a list".to_owned(),
        });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let step: Step = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        EvaluateError::Invalid {
            field: (path != ".").then_some(path),
            message: error.inner().to_string(),
        }
    })?;
    deserializer.end().map_err(|error| EvaluateError::Invalid {
        field: None,
        message: error.to_string(),
    })?;
    Ok(step)
}

/// What was decided and on what, by digest: the text itself may be just what must not be kept.
fn entry(caller: Caller<'_>, event: &Event, evaluation: &Evaluation) -> Entry {
    let decision = &evaluation.decision;
    let mut entry = Entry::default();
    entry.made("timestamp", now());
    entry.made("event", "guard_evaluation");
    entry.made("requesting_agent", caller.agent.as_str());
    entry.told("run_id", event.run_id.as_str());
    entry.told("event_type", event.event_type.as_str());
    if let Some(tool) = &event.tool_name {
        entry.told("tool_name", tool.as_str());
    }
    entry.made("decision", decision.action.as_str());
    entry.made("rule_id", decision.rule_id.as_str());
    entry.made("decision_id", decision.decision_id.to_string());
    entry.made("enforced", evaluation.enforced);
    entry.made("policy_digest", evaluation.policy.digest.as_str());
    if let Ok(digest) = canonical::digest(event) {
        entry.made("event_digest", digest);
    }
    caller.request_id.note(&mut entry);
    entry
}
