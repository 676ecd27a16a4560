//! CSTP's methods: from parameters to a recorded answer.
//!
//! Nothing is decided here. Core judges, the evidence log keeps, and an answer leaves only after both.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join};
use portcullis_core::guardrails::{Guardrail, Guardrails, ProposedAction, Verdict, Violation};
use portcullis_core::memory::{AnnouncedIntent, Precedents, suggestions};
use portcullis_core::pack::diagnostic::suggestion;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::{App, Entry, instant, now};
use crate::auth::AgentId;
use crate::callbacks::Notice;
use crate::decisions;
use crate::http::RequestId;
use crate::jsonrpc::{Body, Call, FieldError, Id, Item, Response, RpcError};
use crate::method::{Method, Operation};
use crate::metrics::CallOutcome;

/// What to send back for a body.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// JSON; nothing when there were only notifications.
    pub(crate) body: Option<Vec<u8>>,
    /// How long whoever was turned away by a limit has to wait.
    pub(crate) retry_after: Option<Duration>,
}

/// Who is calling, and under which request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'c> {
    /// By its token.
    pub(crate) agent: &'c AgentId,
    /// The request's id.
    pub(crate) request_id: &'c RequestId,
    /// Whether another server passes on what it was told.
    pub(crate) relayed: bool,
}

/// Answers a request body.
pub(crate) async fn answer(app: &App, caller: Caller<'_>, bytes: &[u8]) -> Reply {
    match crate::jsonrpc::parse(bytes, app.settings.server.max_batch) {
        Body::Single(item) => answer_item(app, caller, item).await,
        // Together, so that one write to the log carries them all.
        Body::Batch(items) => {
            let answers = items.into_iter().map(|item| answer_item(app, caller, item));
            batch(join_all(answers).await)
        }
    }
}

fn batch(replies: Vec<Reply>) -> Reply {
    let retry_after = replies.iter().filter_map(|reply| reply.retry_after).max();
    let bodies: Vec<_> = replies.into_iter().filter_map(|reply| reply.body).collect();
    let body = (!bodies.is_empty()).then(|| {
        let mut all = vec![b'['];
        all.extend(bodies.join(&b','));
        all.push(b']');
        all
    });
    Reply { body, retry_after }
}

async fn answer_item(app: &App, caller: Caller<'_>, item: Item<'_>) -> Reply {
    let started = Instant::now();
    let call = match item {
        Ok(call) => call,
        Err((id, error)) => {
            app.metrics
                .called(None, CallOutcome::Invalid, started.elapsed());
            return reply(Some(id), Err(error));
        }
    };
    let method = Method::parse(&call.method);
    let result = match method {
        Some(method) => dispatch(app, caller, method, &call).await,
        None => Err(RpcError::MethodNotFound {
            method: call.method.chars().take(128).collect(),
            help: suggestion(&call.method, Method::ALL.iter().map(|method| method.name())),
        }),
    };
    let outcome = result
        .as_ref()
        .map_or_else(outcome, |_| CallOutcome::Answered);
    let operation = method.map(Operation::Cstp);
    app.metrics.called(operation, outcome, started.elapsed());
    reply(call.id, result)
}

fn reply(id: Option<Id<'_>>, result: Result<Answer, RpcError>) -> Reply {
    let retry_after = match &result {
        Err(RpcError::RateLimited { retry_after }) => Some(*retry_after),
        _ => None,
    };
    // A notification is done, and hears nothing.
    let body = id.map(|id| {
        serde_json::to_vec(&Response::new(id, result)).unwrap_or_else(|error| {
            let error = RpcError::Internal(error.to_string());
            serde_json::to_vec(&Response::<()>::new(id, Err(error))).unwrap_or_default()
        })
    });
    Reply { body, retry_after }
}

const fn outcome(error: &RpcError) -> CallOutcome {
    match error {
        RpcError::RateLimited { .. } => CallOutcome::RateLimited,
        RpcError::Internal(_) | RpcError::QueryFailed(_) | RpcError::GuardrailEvalFailed(_) => {
            CallOutcome::Failed
        }
        RpcError::Parse(_)
        | RpcError::InvalidRequest(_)
        | RpcError::MethodNotFound { .. }
        | RpcError::InvalidParams(_)
        | RpcError::NotFound(_) => CallOutcome::Invalid,
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Calibration(decisions::CalibrationAnswer),
    Check(CheckAnswer),
    Decision(decisions::DecisionAnswer),
    Decisions(decisions::ListAnswer),
    Found(decisions::QueryAnswer),
    Guardrails(Value),
    Intent(IntentAnswer),
    Recorded(decisions::RecordAnswer),
    Reviewed(decisions::ReviewAnswer),
    Revisions(decisions::IntentRevisions),
}

async fn dispatch(
    app: &App,
    caller: Caller<'_>,
    method: Method,
    call: &Call<'_>,
) -> Result<Answer, RpcError> {
    let taken = app.limiter.take(caller.agent, method.into()).await;
    taken.map_err(|retry_after| RpcError::RateLimited { retry_after })?;
    let params = call.params()?;
    let params = &params;
    Ok(match method {
        Method::AnnounceIntent => Answer::Intent(announce_intent(app, caller, params).await?),
        Method::CheckGuardrails => Answer::Check(check_guardrails(app, caller, params).await?),
        Method::GetCalibration => Answer::Calibration(
            app.recall(caller, params, decisions::get_calibration)
                .await?,
        ),
        Method::GetDecision => {
            Answer::Decision(app.recall(caller, params, decisions::get_decision).await?)
        }
        Method::GetIntent => {
            // It is kept without secrets.
            let params = &*app.without_secrets(params).await?;
            Answer::Revisions(app.recall(caller, params, decisions::get_intent).await?)
        }
        Method::ListDecisions => Answer::Decisions(
            app.recall(caller, params, decisions::list_decisions)
                .await?,
        ),
        Method::ListGuardrails => Answer::Guardrails(list_guardrails(app, params)?),
        Method::QueryDecisions => {
            // What is looked for may go to a service that makes vectors.
            let params = &*app.without_secrets(params).await?;
            Answer::Found(
                app.recall(caller, params, decisions::query_decisions)
                    .await?,
            )
        }
        Method::RecordDecision => Answer::Recorded(app.record_decision(caller, params).await?),
        Method::ReviewDecision => Answer::Reviewed(app.review_decision(caller, params).await?),
    })
}

/// F003's answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckAnswer {
    allowed: bool,
    violations: Vec<Violation>,
    warnings: Vec<Violation>,
    evaluated: usize,
    evaluated_at: String,
    /// What was decided in like cases, if a guardrail asked.
    #[serde(skip_serializing_if = "Precedents::is_empty")]
    precedents: Precedents,
    agent: String,
}

impl CheckAnswer {
    /// The verdict as the method answers it.
    pub fn new(
        verdict: Verdict,
        precedents: Precedents,
        evaluated_at: String,
        agent: String,
    ) -> Self {
        Self {
            allowed: verdict.allowed,
            violations: verdict.violations,
            warnings: verdict.warnings,
            evaluated: verdict.evaluated,
            evaluated_at,
            precedents,
            agent,
        }
    }
}

async fn check_guardrails(
    app: &App,
    caller: Caller<'_>,
    params: &Map<String, Value>,
) -> Result<CheckAnswer, RpcError> {
    let mut action = ProposedAction::from_params(params)
        .map_err(RpcError::InvalidParams)?
        .authenticated_as(caller.agent.as_str());
    let guardrails = app.guardrails.load_full();
    if guardrails.want_precedents(&action) {
        let precedents = app.precedents(&action, None).await;
        let precedents = or_refuse(app, caller, "guardrail_check", &action, precedents).await?;
        action = action.with_precedents(precedents);
    }
    let verdict = judge(&guardrails, &action)?;
    let evaluated_at = now();
    let entry = entry(
        "guardrail_check",
        &evaluated_at,
        caller,
        &action,
        &verdict,
        &guardrails,
    );
    app.metrics.checked(&verdict);
    tell(caller, &verdict);
    record(app, &entry).await?;
    let agent = app.settings.agent.name.clone();
    let precedents = action.precedents().clone();
    Ok(CheckAnswer::new(verdict, precedents, evaluated_at, agent))
}

/// F004's answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentAnswer {
    received: bool,
    correlation_id: String,
    /// How often it has been announced, this time included.
    revision: u64,
    received_at: String,
    similar_decisions: Precedents,
    guardrail_status: GuardrailStatus,
    suggestions: Vec<String>,
    responding_agent: String,
}

#[derive(Debug, Serialize)]
struct GuardrailStatus {
    allowed: bool,
    violations: Vec<Violation>,
    warnings: Vec<Violation>,
    evaluated: usize,
}

impl IntentAnswer {
    /// The verdict as the method answers it.
    pub fn new(
        verdict: Verdict,
        similar_decisions: Precedents,
        (correlation_id, revision): (String, u64),
        received_at: String,
        agent: String,
    ) -> Self {
        Self {
            received: true,
            correlation_id,
            revision,
            received_at,
            suggestions: suggestions(&similar_decisions, &verdict),
            similar_decisions,
            guardrail_status: GuardrailStatus {
                allowed: verdict.allowed,
                violations: verdict.violations,
                warnings: verdict.warnings,
                evaluated: verdict.evaluated,
            },
            responding_agent: agent,
        }
    }
}

/// An id for an intent whose agent gave it none.
pub fn new_correlation_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

async fn announce_intent(
    app: &App,
    caller: Caller<'_>,
    params: &Map<String, Value>,
) -> Result<IntentAnswer, RpcError> {
    let read = |params| {
        ProposedAction::from_intent(params)
            .map(|intent| intent.announced_by(caller.agent.as_str()))
            .map_err(RpcError::InvalidParams)
    };
    let mut intent = read(params)?;
    let guardrails = app.guardrails.load_full();
    let action = intent.action.clone();
    let searching = async {
        let found = app.precedents(&action, intent.context.as_deref()).await;
        or_refuse(app, caller, "intent", &action, found).await
    };
    let (precedents, verdict) = if guardrails.want_precedents(&action) {
        let precedents = searching.await?;
        intent.action = intent.action.with_precedents(precedents.clone());
        (precedents, judge(&guardrails, &intent.action)?)
    } else {
        // The search has a thread of its own.
        let judging = async { judge(&guardrails, &action) };
        try_join(searching, judging).await?
    };
    let received_at = instant();
    let correlation_id = intent.correlation_id.take();
    let correlation_id = correlation_id.unwrap_or_else(new_correlation_id);
    let mut entry = entry(
        "intent",
        &received_at.to_string(),
        caller,
        &intent.action,
        &verdict,
        &guardrails,
    );
    entry.told("correlation_id", correlation_id.as_str());
    entry.told("context", intent.context.clone());
    entry.told("metadata", intent.action.context().clone());
    app.metrics.checked(&verdict);
    tell(caller, &verdict);
    let kept = app.without_secrets(params).await?;
    let mut kept_as = correlation_id.clone();
    if let Cow::Owned(params) = &kept {
        intent = read(params)?;
        kept_as = intent.correlation_id.take().unwrap_or(kept_as);
    }
    let announced = AnnouncedIntent::new(&intent, kept_as, &verdict, received_at);
    let keeping = app.keep_intent(announced.clone());
    let (revision, ()) = try_join(keeping, record(app, &entry)).await?;
    notify(app, caller, announced, revision, &verdict);
    let agent = app.settings.agent.name.clone();
    Ok(IntentAnswer::new(
        verdict,
        precedents,
        (correlation_id, revision),
        received_at.to_string(),
        agent,
    ))
}

/// What was found, or a record that nothing could be looked up, and so nothing was allowed.
async fn or_refuse(
    app: &App,
    caller: Caller<'_>,
    event: &str,
    action: &ProposedAction,
    found: Result<Precedents, RpcError>,
) -> Result<Precedents, RpcError> {
    let Err(error) = found else { return found };
    let mut entry = begin_entry(event, &now(), caller);
    entry.told("action", action.description());
    entry.made("allowed", false);
    entry.told("error", error.to_string());
    record(app, &entry).await?;
    Err(error)
}

/// Tells those who want to hear of intents. Nobody waits for them.
fn notify(
    app: &App,
    caller: Caller<'_>,
    intent: AnnouncedIntent,
    revision: u64,
    verdict: &Verdict,
) {
    if app.callbacks.is_empty() {
        return;
    }
    let warnings = verdict.warnings.iter();
    app.callbacks.notify(Notice {
        intent,
        revision,
        warnings: warnings.map(|one| one.guardrail_id.clone()).collect(),
        relayed: caller.relayed,
    });
}

fn list_guardrails(app: &App, params: &Map<String, Value>) -> Result<Value, RpcError> {
    if let Some(name) = params.keys().next() {
        return Err(RpcError::InvalidParams(FieldError {
            field: name.clone(),
            error: "unknown: this method takes no parameters".to_owned(),
        }));
    }
    let guardrails = app.guardrails.load_full();
    let all: Vec<&Guardrail> = guardrails.iter().collect();
    Ok(json!({
        "guardrails": all,
        "total": all.len(),
        "enabled": guardrails.enabled(),
        "policyDigest": guardrails.digest(),
        "agent": app.settings.agent.name,
    }))
}

fn tell(caller: Caller<'_>, verdict: &Verdict) {
    if !verdict.allowed {
        let ids = verdict.violations.iter();
        let ids: Vec<&str> = ids
            .map(|violation| violation.guardrail_id.as_str())
            .collect();
        tracing::info!(
            agent = caller.agent.as_str(),
            guardrails = ids.join(","),
            "blocked"
        );
    }
}

/// A verdict, or -32004: a bug in the engine must not be taken for a yes.
fn judge(guardrails: &Arc<Guardrails>, action: &ProposedAction) -> Result<Verdict, RpcError> {
    catch_unwind(AssertUnwindSafe(|| guardrails.check(action))).map_err(|_| {
        tracing::error!("guardrail evaluation panicked");
        RpcError::GuardrailEvalFailed("a guardrail could not be evaluated".to_owned())
    })
}

pub(crate) async fn record(app: &App, entry: &Entry) -> Result<(), RpcError> {
    let recorded = app.record(entry).await;
    recorded
        .map(|_| ())
        .map_err(|error| RpcError::Internal(error.to_string()))
}

/// The audit line (C16): F003's fields and ours.
fn entry(
    event: &str,
    timestamp: &str,
    caller: Caller<'_>,
    action: &ProposedAction,
    verdict: &Verdict,
    guardrails: &Guardrails,
) -> Entry {
    let ids = |violations: &[Violation]| -> Value {
        violations
            .iter()
            .map(|violation| violation.guardrail_id.as_str())
            .collect()
    };
    let mut entry = begin_entry(event, timestamp, caller);
    entry.told("action", action.description());
    entry.told("category", action.category());
    entry.made("stakes", action.stakes().as_str());
    entry.made("confidence", action.confidence());
    entry.made("allowed", verdict.allowed);
    entry.made("violations", ids(&verdict.violations));
    entry.made("warnings", ids(&verdict.warnings));
    if !verdict.logged.is_empty() {
        entry.made("logged", verdict.logged.clone());
    }
    entry.made("evaluated", verdict.evaluated);
    if let Some(claimed) = &action.agent().claimed
        && claimed != caller.agent.as_str()
    {
        entry.told("claimed_agent", claimed.as_str());
    }
    let precedents = action.precedents().as_slice();
    if !precedents.is_empty() {
        let ids: Value = precedents.iter().map(|one| one.id.as_str()).collect();
        entry.told("precedents", ids);
    }
    entry.made("policy_digest", guardrails.digest());
    entry
}

/// What every entry has.
pub(crate) fn begin_entry(event: &str, timestamp: &str, caller: Caller<'_>) -> Entry {
    let mut entry = Entry::default();
    entry.made("timestamp", timestamp);
    entry.made("event", event);
    entry.made("requesting_agent", caller.agent.as_str());
    caller.request_id.note(&mut entry);
    entry
}
