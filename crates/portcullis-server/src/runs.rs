//! What is known of runs, and the quarantine: the guard API beside `evaluate`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use portcullis_runtime::{Flag, Quarantined, RunRecord};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Entry, KeepError, RecordError, now};
use crate::auth::AgentId;
use crate::http::{self, RequestId, json, problem};

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
            Self::Unknown | Self::NotQuarantined => StatusCode::NOT_FOUND,
            Self::NotOperator(_) => StatusCode::FORBIDDEN,
            Self::NotRecorded(_) | Self::NotKept(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid { field, message } => {
                let body = json!({"error": {"field": field, "message": message}});
                return json(StatusCode::BAD_REQUEST, &body);
            }
        };
        problem(status, &self.to_string())
    }
}

/// A run's name from the path, or why there is none.
type RunPath = Result<Path<String>, PathRejection>;

/// `GET /v1/guard/runs/{run_id}`
pub(crate) async fn show(State(app): State<Arc<App>>, path: RunPath, request: Request) -> Response {
    if let Err(error) = http::caller(&app, request.headers()) {
        return http::unauthorized(error);
    }
    answer(run_id(path).and_then(|run_id| {
        let record = app.gateway.run(&run_id).ok_or(RunError::Unknown)?;
        Ok(shown_run(&run_id, &record))
    }))
}

/// `GET /v1/guard/quarantine`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Err(error) = http::caller(&app, request.headers()) {
        return http::unauthorized(error);
    }
    answer(Page::of(request.uri(), true).map(|page| {
        let after = page.after.as_deref();
        let mut runs = app.gateway.quarantined(after, page.limit + 1);
        let more = runs.len() > page.limit;
        runs.truncate(page.limit);
        let next = runs.last().filter(|_| more).map(|run| run.run_id.clone());
        let runs: Vec<Value> = runs.iter().map(shown_quarantined).collect();
        json!({"quarantined": runs, "next": next})
    }))
}

/// `GET /v1/guard/alerts`
pub(crate) async fn alerts(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Err(error) = http::caller(&app, request.headers()) {
        return http::unauthorized(error);
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
    let (agent, id, body) = match operator(&app, request).await {
        Ok(operator) => operator,
        Err(response) => return response,
    };
    let quarantine = async {
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
        Ok(json!({"run_id": run_id, "quarantine": shown(&flag)}))
    };
    answer(quarantine.await)
}

/// `DELETE /v1/guard/quarantine/{run_id}`
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    path: RunPath,
    request: Request,
) -> Response {
    let (agent, id, body) = match operator(&app, request).await {
        Ok(operator) => operator,
        Err(response) => return response,
    };
    let release = async {
        let run_id = run_id(path)?;
        let reason = reason(&body)?;
        let record = app.gateway.run(&run_id);
        let flag = record.and_then(|record| record.quarantine);
        let flag = flag.ok_or(RunError::NotQuarantined)?;
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
        Ok(json!({"run_id": run_id, "released": shown(&flag)}))
    };
    answer(release.await)
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
        let query = format!("http://localhost/?{}", uri.query().unwrap_or_default());
        let query = reqwest::Url::parse(&query).map_err(|error| RunError::Invalid {
            field: None,
            message: error.to_string(),
        })?;
        for (name, value) in query.query_pairs() {
            match &*name {
                "limit" => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    page.limit = limit.ok_or_else(|| {
                        RunError::of("limit", format!("must be a number from 1 to {MAX_LIMIT}"))
                    })?;
                }
                "after" if has_after => page.after = Some(value.into_owned()),
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

fn shown_run(run_id: &str, record: &RunRecord) -> Value {
    let flags: Vec<Value> = record.flags.iter().map(shown).collect();
    json!({
        "run_id": run_id,
        "strikes": record.strikes,
        "flags": flags,
        "quarantine": record.quarantine.as_ref().map(shown),
    })
}

fn shown_quarantined(run: &Quarantined) -> Value {
    let mut value = shown(&run.flag);
    value["run_id"] = run.run_id.as_str().into();
    value
}

fn shown(flag: &Flag) -> Value {
    let mut value = json!(flag);
    let at = i64::try_from(flag.at_ms()).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
    value["at"] = at.to_string().into();
    value
}
