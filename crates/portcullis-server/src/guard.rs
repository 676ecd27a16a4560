//! `POST /v1/guard/evaluate`: one step of a run, judged and recorded.

use portcullis_core::{Context, Effect, Evaluation, Event, SchemaVersion, Step, canonical};
use serde::{Deserialize, Serialize};

use crate::app::{App, Entry, KeepError, RecordError, now};
use crate::approvals::step::{self, Given, Refusal, Settled, Waiting};
use crate::cstp::Caller;

/// The longest id of an approval that is looked up, in bytes.
const MAX_ID: usize = 128;

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
    /// The approval that it was sent with is no good, or the one that it needs cannot be asked for.
    #[error(transparent)]
    Refused(Refusal),
}

/// The answer to a step.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    #[serde(flatten)]
    evaluation: Evaluation,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Waiting>,
}

/// Judges one step: the same JSON as a line of `portcullis eval`, and the approval to go on with if there is one.
pub(crate) async fn evaluate(
    app: &App,
    caller: Caller<'_>,
    bytes: &[u8],
) -> Result<Verdict, EvaluateError> {
    let (Step { mut context, event }, approval) = parse(bytes)?;
    if !app.policy_in_force().await {
        return Err(EvaluateError::NoPolicy);
    }
    let given = match approval {
        Some(id) => Some(Given::look_up(&app.approvals, id).await),
        None => None,
    };
    let asked = given
        .as_ref()
        .and_then(|given| given.pauses(caller.agent, &event));
    let is_again = asked.is_some();
    // What a pause asks for, such as a strike, is done when a person is asked, and not when they have answered.
    let evaluation = match asked {
        Some(pauses) => {
            let again = app.gateway.evaluate_again(&mut context, &event, pauses);
            Box::pin(again).await
        }
        None => app.gateway.evaluate(&mut context, &event).await,
    };
    let mut effects = evaluation.decision.effects.clone();
    let mut settled = Settled::from(evaluation);
    if settled.pauses() {
        let settling = step::settle(&mut settled, app, caller.agent, &event, given);
        Box::pin(settling).await;
    }
    let mut entry = entry(caller, &event, &settled);
    if is_again && settled.is_void() {
        // It is another step, about which nobody was asked: what it asks for is done after all.
        let anew = Box::pin(app.gateway.evaluate(&mut context, &event)).await;
        effects.extend(anew.decision.effects);
        entry.made("judged_anew", anew.decision.decision_id.to_string());
    }
    // Both at once: neither waits for the other's disk.
    let kept = keep_quarantine(app, &context.run_id, &effects);
    let (recorded, kept) = tokio::join!(app.record(&entry), kept);
    recorded?;
    kept?;
    if let Some(refusal) = settled.refusal {
        return Err(EvaluateError::Refused(refusal));
    }
    if let Some(asked) = settled.asked {
        app.approvals.asked(asked);
    }
    Ok(Verdict {
        evaluation: settled.evaluation,
        approval: settled.waits_for,
    })
}

/// Lets a quarantine that was just decided outlive the server.
async fn keep_quarantine(app: &App, run_id: &str, effects: &[Effect]) -> Result<(), KeepError> {
    if !effects.contains(&Effect::QuarantineSession) {
        return Ok(());
    }
    match app.gateway.run(run_id).and_then(|run| run.quarantine) {
        Some(flag) => app.keep_quarantine(run_id, &flag).await,
        None => Ok(()),
    }
}

/// What a client sends.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `event` and `context`"
)]
struct Body {
    #[serde(default)]
    context: Context,
    event: Event,
    #[serde(default, rename = "schema_version")]
    _schema_version: SchemaVersion,
    #[serde(default)]
    approval: Option<String>,
}

fn parse(bytes: &[u8]) -> Result<(Step, Option<String>), EvaluateError> {
    // serde would read a list as the members in their order, too.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(EvaluateError::Invalid {
            field: None,
            message: "expected an object with `event` and `context`, found a list".to_owned(),
        });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let body: Body = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        EvaluateError::Invalid {
            field: Event::unread_at(&error.path().to_string()),
            message: Event::unread(error.inner()),
        }
    })?;
    deserializer.end().map_err(|error| EvaluateError::Invalid {
        field: None,
        message: error.to_string(),
    })?;
    let Body {
        context,
        event,
        approval,
        ..
    } = body;
    let step = Step::new(context, event).map_err(|message| EvaluateError::Invalid {
        field: Some(Step::RUN_ID.to_owned()),
        message,
    })?;
    if approval.as_ref().is_some_and(|id| id.len() > MAX_ID) {
        return Err(EvaluateError::Invalid {
            field: Some("approval".to_owned()),
            message: "it is no id of an approval: send the one of the answer that paused the step"
                .to_owned(),
        });
    }
    Ok((step, approval))
}

/// What was decided and on what, by digest: the text itself may be just what must not be kept.
fn entry(caller: Caller<'_>, event: &Event, settled: &Settled) -> Entry {
    let evaluation = &settled.evaluation;
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
    settled.note(&mut entry);
    caller.request_id.note(&mut entry);
    entry
}
