//! CSTP's methods: from parameters to a recorded answer.
//!
//! Nothing is decided here. Core judges, the evidence log keeps, and an answer leaves only after both.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use portcullis_core::guardrails::{
    Guardrail, Guardrails, Intent, ProposedAction, Verdict, Violation,
};
use portcullis_core::pack::diagnostic::suggestion;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::{App, Entry, now};
use crate::auth::AgentId;
use crate::http::RequestId;
use crate::jsonrpc::{Body, Call, FieldError, Id, Item, Response, RpcError};
use crate::method::Method;
use crate::metrics::CallOutcome;

/// The most that an answer suggests (F004).
const MAX_SUGGESTIONS: usize = 5;

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
    app.metrics.called(method, outcome, started.elapsed());
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
    Check(CheckAnswer),
    Intent(IntentAnswer),
    List(Value),
}

async fn dispatch(
    app: &App,
    caller: Caller<'_>,
    method: Method,
    call: &Call<'_>,
) -> Result<Answer, RpcError> {
    let taken = app.limiter.take(caller.agent, method).await;
    taken.map_err(|retry_after| RpcError::RateLimited { retry_after })?;
    let params = call.params()?;
    match method {
        Method::AnnounceIntent => announce_intent(app, caller, &params)
            .await
            .map(Answer::Intent),
        Method::CheckGuardrails => check_guardrails(app, caller, &params)
            .await
            .map(Answer::Check),
        Method::ListGuardrails => list_guardrails(app, &params).map(Answer::List),
    }
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
    agent: String,
}

impl CheckAnswer {
    /// The verdict as the method answers it.
    pub fn new(verdict: Verdict, evaluated_at: String, agent: String) -> Self {
        Self {
            allowed: verdict.allowed,
            violations: verdict.violations,
            warnings: verdict.warnings,
            evaluated: verdict.evaluated,
            evaluated_at,
            agent,
        }
    }
}

async fn check_guardrails(
    app: &App,
    caller: Caller<'_>,
    params: &Map<String, Value>,
) -> Result<CheckAnswer, RpcError> {
    let action = ProposedAction::from_params(params)
        .map_err(RpcError::InvalidParams)?
        .authenticated_as(caller.agent.as_str());
    let guardrails = app.guardrails.load_full();
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
    Ok(CheckAnswer::new(verdict, evaluated_at, agent))
}

/// F004's answer. There is no memory of decisions yet, so there are none that are similar.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentAnswer {
    received: bool,
    correlation_id: String,
    received_at: String,
    similar_decisions: [Value; 0],
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
    /// The verdict as the method answers it. An intent that has no id gets one.
    pub fn new(
        verdict: Verdict,
        correlation_id: Option<String>,
        received_at: String,
        agent: String,
    ) -> Self {
        Self {
            received: true,
            correlation_id: correlation_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            received_at,
            similar_decisions: [],
            suggestions: suggestions(&verdict),
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

async fn announce_intent(
    app: &App,
    caller: Caller<'_>,
    params: &Map<String, Value>,
) -> Result<IntentAnswer, RpcError> {
    let Intent {
        action,
        correlation_id,
        context,
    } = ProposedAction::from_intent(params).map_err(RpcError::InvalidParams)?;
    let action = action.authenticated_as(caller.agent.as_str());
    let guardrails = app.guardrails.load_full();
    let verdict = judge(&guardrails, &action)?;
    let received_at = now();
    let mut entry = entry(
        "intent",
        &received_at,
        caller,
        &action,
        &verdict,
        &guardrails,
    );
    app.metrics.checked(&verdict);
    tell(caller, &verdict);
    let agent = app.settings.agent.name.clone();
    let answer = IntentAnswer::new(verdict, correlation_id, received_at, agent);
    entry.told("correlation_id", answer.correlation_id.as_str());
    entry.told("context", context);
    entry.told("metadata", action.context().clone());
    record(app, &entry).await?;
    Ok(answer)
}

/// What to do instead, each once: first what would lift a block.
fn suggestions(verdict: &Verdict) -> Vec<String> {
    let mut suggestions: Vec<String> = Vec::new();
    for violation in verdict.violations.iter().chain(&verdict.warnings) {
        if let Some(suggestion) = &violation.suggestion
            && !suggestions.contains(suggestion)
        {
            suggestions.push(suggestion.clone());
        }
    }
    suggestions.truncate(MAX_SUGGESTIONS);
    suggestions
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

async fn record(app: &App, entry: &Entry) -> Result<(), RpcError> {
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
    let mut entry = Entry::default();
    entry.made("timestamp", timestamp);
    entry.made("event", event);
    entry.made("requesting_agent", caller.agent.as_str());
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
    entry.made("policy_digest", guardrails.digest());
    caller.request_id.note(&mut entry);
    entry
}
