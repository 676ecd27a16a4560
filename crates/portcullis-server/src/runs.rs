//! What is known of runs, and the quarantine: the guard API beside `evaluate`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use portcullis_runtime::{Flag, RunRecord};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Entry, KeepError, RecordError, now};
use crate::auth::AgentId;
use crate::client::{NOT_QUARANTINED, RUN_UNKNOWN};
use crate::http::{self, RequestId, Seat, json, named_problem, problem};

/// The most that one answer lists, and what it lists if nobody says.
const MAX_LIMIT: usize = 1000;
const LIMIT: usize = 100;
/// The longest reason, in characters.
const MAX_REASON: usize = 1000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(
        "nothing has happened to a run of this name: it has no strikes, no flags and no quarantine"
    )]
    Unknown,
    #[error("no run of this name is in quarantine")]
    NotQuarantined,
    #[error(
        "agent `{0}` may not change the quarantine: `auth.operators` of the configuration names those who may"
    )]
    NotOperator(AgentId),
    #[error(
        "agent `{0}` may not see what happened to runs: `auth.operators` of the configuration names those who may"
    )]
    NotReader(AgentId),
    #[error("{message}")]
    Invalid {
        field: Option<&'static str>,
        message: String,
    },
    #[error(transparent)]
    NotRecorded(#[from] RecordError),
    #[error(transparent)]
    NotKept(#[from] KeepError),
}

impl RunError {
    fn of(field: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid {
            field: Some(field),
            message: message.into(),
        }
    }

    fn response(&self) -> Response {
        let status = match self {
            Self::Unknown => return self.not_found(RUN_UNKNOWN),
            Self::NotQuarantined => return self.not_found(NOT_QUARANTINED),
            Self::NotOperator(_) | Self::NotReader(_) => StatusCode::FORBIDDEN,
            Self::NotRecorded(_) | Self::NotKept(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid { field, message } => {
                let body = json!({"error": {"field": field, "message": message}});
                return json(StatusCode::BAD_REQUEST, &body);
            }
        };
        problem(status, &self.to_string())
    }

    /// Told apart from whatever else is not found at an address.
    fn not_found(&self, code: &str) -> Response {
        named_problem(StatusCode::NOT_FOUND, code, &self.to_string())
    }
}

/// A run's name from the path, or why there is none.
type RunPath = Result<Path<String>, PathRejection>;

/// `GET /v1/guard/runs/{run_id}`
pub(crate) async fn show(State(app): State<Arc<App>>, path: RunPath, request: Request) -> Response {
    if let Some(response) = not_a_reader(&app, &request) {
        return response;
    }
    let show = async {
        let run_id = run_id(path)?;
        let record = app.gateway.run(&run_id).ok_or(RunError::Unknown)?;
        shown_run(&app, &run_id, &record).await
    };
    answer(show.await)
}

/// `GET /v1/guard/quarantine`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Some(response) = not_a_reader(&app, &request) {
        return response;
    }
    let page = Page::of(request.uri(), true);
    let list = async {
        let page = page?;
        let after = page.after.as_deref();
        let mut runs = app.gateway.quarantined(after, page.limit + 1);
        let more = runs.len() > page.limit;
        runs.truncate(page.limit);
        let next = runs.last().filter(|_| more).map(|run| run.run_id.clone());
        let mut quarantined = Vec::with_capacity(runs.len());
        for run in &runs {
            let mut value = shown(&app, &run.flag).await?;
            value["run_id"] = run.run_id.as_str().into();
            quarantined.push(value);
        }
        Ok(json!({"quarantined": quarantined, "next": next}))
    };
    answer(list.await)
}

/// `GET /v1/guard/alerts`
pub(crate) async fn alerts(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Some(response) = not_a_reader(&app, &request) {
        return response;
    }
    let page = Page::of(request.uri(), false);
    answer(page.map(|page| json!({"alerts": app.alerts.recent(page.limit)})))
}

/// `POST /v1/guard/quarantine/{run_id}`
pub(crate) async fn quarantine(
    State(app): State<Arc<App>>,
    path: RunPath,
    request: Request,
) -> Response {
    let seat = Seat::of(&request);
    let (agent, id, body) = match operator(&app, request).await {
        Ok(operator) => operator,
        Err(response) => return response,
    };
    let quarantine = async move {
        let run_id = run_id(path)?;
        let reason = reason(&body)?;
        let reason = reason.ok_or_else(|| RunError::of("reason", "say why, in `reason`"))?;
        let mut entry = entry("run_quarantined", &agent, &run_id, &id);
        entry.told("reason", reason.as_str());
        app.record(&entry).await?;
        // Those whose run it is are told.
        let redactor = app.redactor().await?;
        let reason = redactor.redact(&reason);
        let flag = app.gateway.quarantine(&run_id, agent.as_str(), &reason);
        app.keep_quarantine(&run_id, &flag).await?;
        tracing::warn!(%agent, "a run was quarantined by hand");
        Ok(json!({"run_id": run_id, "quarantine": shown(&app, &flag).await?}))
    };
    match http::to_the_end(seat, quarantine).await {
        Ok(done) => answer(done),
        Err(response) => response,
    }
}

/// `DELETE /v1/guard/quarantine/{run_id}`
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    path: RunPath,
    request: Request,
) -> Response {
    let seat = Seat::of(&request);
    let (agent, id, body) = match operator(&app, request).await {
        Ok(operator) => operator,
        Err(response) => return response,
    };
    let release = async move {
        let run_id = run_id(path)?;
        let reason = reason(&body)?;
        let record = app.gateway.run(&run_id);
        let flag = match record.and_then(|record| record.quarantine) {
            Some(flag) => flag,
            // The next server to start would know of it.
            None => {
                let kept = app.kept_quarantine(&run_id).await?;
                kept.ok_or(RunError::NotQuarantined)?
            }
        };
        let mut entry = entry("run_released", &agent, &run_id, &id);
        entry.made("rule_id", flag.rule_id.as_str());
        entry.made("decision_id", flag.decision_id.to_string());
        if let Some(reason) = &reason {
            entry.told("reason", reason.as_str());
        }
        app.record(&entry).await?;
        app.keep_release(&run_id).await?;
        app.gateway.release(&run_id);
        tracing::warn!(%agent, "a run was let out of quarantine");
        Ok(json!({"run_id": run_id, "released": shown(&app, &flag).await?}))
    };
    match http::to_the_end(seat, release).await {
        Ok(done) => answer(done),
        Err(response) => response,
    }
}

/// What those are told who may not look: whoever is no operator if there are any, whoever has no token otherwise.
fn not_a_reader(app: &App, request: &Request) -> Option<Response> {
    let agent = match http::caller(app, request.headers()) {
        Ok(agent) => agent,
        Err(error) => return Some(http::unauthorized(error)),
    };
    let auth = &app.settings.auth;
    let everybody = !auth.enabled || auth.operators.is_empty();
    let may = everybody || auth.operators.iter().any(|name| name == agent.as_str());
    (!may).then(|| RunError::NotReader(agent).response())
}

/// Lets an operator in, and nobody else: an agent that could end its own quarantine would be in none.
async fn operator(
    app: &App,
    request: Request,
) -> Result<(AgentId, RequestId, bytes::Bytes), Response> {
    let agent = http::caller(app, request.headers()).map_err(http::unauthorized)?;
    let auth = &app.settings.auth;
    // Without authentication anybody could say to be one.
    let is_operator = auth.enabled && auth.operators.iter().any(|name| name == agent.as_str());
    if !is_operator {
        return Err(RunError::NotOperator(agent).response());
    }
    http::admit_optional(app, request).await
}

fn answer(answer: Result<Value, RunError>) -> Response {
    match answer {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(error) => error.response(),
    }
}

fn entry(event: &str, agent: &AgentId, run_id: &str, id: &RequestId) -> Entry {
    let mut entry = Entry::default();
    entry.made("timestamp", now());
    entry.made("event", event);
    entry.made("requesting_agent", agent.as_str());
    entry.told("run_id", run_id);
    id.note(&mut entry);
    entry
}

fn run_id(path: RunPath) -> Result<String, RunError> {
    let Path(run_id) = path.map_err(|error| RunError::of("run_id", error.body_text()))?;
    Ok(run_id)
}

/// Why, if the caller says so.
fn reason(body: &[u8]) -> Result<Option<String>, RunError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Change {
        reason: Option<String>,
    }
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let wrong = |message: String| RunError::Invalid {
        field: None,
        message,
    };
    // serde would read a list as the members in their order, too.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(wrong(
            "expected an object with `reason`, found a list".to_owned(),
        ));
    }
    let change: Change = serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    match change.reason {
        Some(reason) if reason.trim().is_empty() => Err(RunError::of("reason", "it is empty")),
        Some(reason) if reason.chars().count() > MAX_REASON => Err(RunError::of(
            "reason",
            format!("it is longer than {MAX_REASON} characters"),
        )),
        reason => Ok(reason),
    }
}

/// Which part of a list.
struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    fn of(uri: &Uri, has_after: bool) -> Result<Self, RunError> {
        let mut page = Self {
            limit: LIMIT,
            after: None,
        };
        let parameters = http::parameters(uri).map_err(|message| RunError::Invalid {
            field: None,
            message,
        })?;
        for (name, value) in parameters {
            match &*name {
                "limit" => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    page.limit = limit.ok_or_else(|| {
                        RunError::of("limit", format!("must be a number from 1 to {MAX_LIMIT}"))
                    })?;
                }
                "after" if has_after => page.after = Some(value),
                other => {
                    let other: String = other.chars().take(64).collect();
                    return Err(RunError::Invalid {
                        field: None,
                        message: format!("unknown parameter `{other}`"),
                    });
                }
            }
        }
        Ok(page)
    }
}

async fn shown_run(app: &App, run_id: &str, record: &RunRecord) -> Result<Value, RunError> {
    let mut flags = Vec::with_capacity(record.flags.len());
    for flag in &record.flags {
        flags.push(shown(app, flag).await?);
    }
    let quarantine = match &record.quarantine {
        Some(flag) => shown(app, flag).await?,
        None => Value::Null,
    };
    Ok(json!({
        "run_id": run_id,
        "strikes": record.strikes,
        "flags": flags,
        "quarantine": quarantine,
    }))
}

async fn shown(app: &App, flag: &Flag) -> Result<Value, RunError> {
    let mut value = json!(app.for_others(flag).await?);
    let at = i64::try_from(flag.at_ms()).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
    value["at"] = at.to_string().into();
    Ok(value)
}
