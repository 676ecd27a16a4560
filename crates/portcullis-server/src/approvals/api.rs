//! Approvals over HTTP: who may see them, and who may decide.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use portcullis_core::approval::{Answer, Approval, ApprovalError, Status, Which};
use serde::Deserialize;
use serde_json::{Value, json};

use super::notice::What;
use super::shown;
use crate::app::{App, Entry, RecordError, now};
use crate::auth::{AgentId, AuthError};
use crate::client::APPROVAL_UNKNOWN;
use crate::http::{self, RequestId, Seat, json, named_problem, problem, seconds};

/// The most that one answer lists, and what it lists if nobody says.
const MAX_LIMIT: usize = 1_000;
const LIMIT: usize = 100;
/// The longest that one request waits for a decision, in seconds.
const MAX_WAIT: u64 = 60;
/// How often it is looked whether somebody has decided: it may have been over another server, or in the file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest note, in characters.
const MAX_NOTE: usize = 1_000;
/// How soon to come back when too many wait.
const COME_BACK: Duration = Duration::from_secs(5);
/// Whoever decides while authentication is off. No step is theirs: those are all `anonymous`.
const UNAUTHENTICATED: &str = "unauthenticated";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum DeskError {
    #[error("there is no approval of this id, or it is nothing that you may see")]
    Unknown,
    #[error("{message}")]
    Invalid {
        field: Option<&'static str>,
        message: String,
    },
    /// Whoever asks may not.
    #[error("{0}")]
    Forbidden(ApprovalError),
    /// It is too late.
    #[error("{0}")]
    Conflict(ApprovalError),
    #[error("too many ask for approvals at one time: ask again in a few seconds")]
    Crowded,
    #[error("approvals cannot be kept or read: see the server's log")]
    Failed,
    #[error("the decision is kept, but {0}: send it again")]
    NotRecorded(RecordError),
    #[error(transparent)]
    NotRead(RecordError),
}

impl From<ApprovalError> for DeskError {
    fn from(error: ApprovalError) -> Self {
        match error {
            ApprovalError::NotFound(_) => Self::Unknown,
            ApprovalError::OwnStep { .. } | ApprovalError::NotAllowed { .. } => {
                Self::Forbidden(error)
            }
            ApprovalError::Settled { .. } => Self::Conflict(error),
            // Of listings: too many at one time.
            ApprovalError::Full(_) => Self::Crowded,
            _ => Self::Failed,
        }
    }
}

impl DeskError {
    fn of(field: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid {
            field: Some(field),
            message: message.into(),
        }
    }

    fn response(&self) -> Response {
        let text = self.to_string();
        match self {
            Self::Unknown => named_problem(StatusCode::NOT_FOUND, APPROVAL_UNKNOWN, &text),
            Self::Invalid { field, message } => {
                let body = json!({"error": {"field": field, "message": message}});
                json(StatusCode::BAD_REQUEST, &body)
            }
            Self::Forbidden(_) => problem(StatusCode::FORBIDDEN, &text),
            Self::Conflict(_) => named_problem(StatusCode::CONFLICT, "approval_settled", &text),
            Self::Crowded => {
                let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, &text);
                let headers = response.headers_mut();
                headers.insert(RETRY_AFTER, seconds(COME_BACK));
                response
            }
            Self::Failed | Self::NotRecorded(_) | Self::NotRead(_) => {
                problem(StatusCode::SERVICE_UNAVAILABLE, &text)
            }
        }
    }
}

/// An approval's id from the path, or why there is none.
type IdPath = Result<Path<String>, PathRejection>;

/// `GET /v1/approvals`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    let who = match Who::of(&app, request.headers()) {
        Ok(who) => who,
        Err(error) => return http::unauthorized(error),
    };
    let which = which(request.uri());
    let list = async {
        let which = which?;
        let found = if who.sees_all() {
            app.approvals.list(which).await?
        } else {
            let may_see = move |one: &Approval| who.may_see(one);
            app.approvals.list_some(which, may_see).await?
        };
        Ok(json!({ "approvals": found }))
    };
    answer(list.await)
}

/// `GET /v1/approvals/{id}`
pub(crate) async fn show(State(app): State<Arc<App>>, path: IdPath, request: Request) -> Response {
    let who = match Who::of(&app, request.headers()) {
        Ok(who) => who,
        Err(error) => return http::unauthorized(error),
    };
    let wait = wait(request.uri());
    let show = async {
        let id = id(path)?;
        let wait = wait?;
        let approval = visible(&app, &who, &id).await?;
        if wait.is_zero() || approval.status != Status::Pending {
            return Ok(json!(approval));
        }
        Ok(json!(decided(&app, approval, wait).await?))
    };
    answer(show.await)
}

/// `POST /v1/approvals/{id}`
pub(crate) async fn decide(
    State(app): State<Arc<App>>,
    path: IdPath,
    request: Request,
) -> Response {
    let who = match Who::of(&app, request.headers()) {
        Ok(who) => who,
        Err(error) => return http::unauthorized(error),
    };
    let seat = Seat::of(&request);
    let (_, request_id, body) = match http::admit(&app, request).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let decide = async move {
        let id = id(path)?;
        let Verdict { approve, note } = verdict(&body)?;
        let approval = visible(&app, &who, &id).await?;
        let note = match note {
            Some(note) => {
                let redactor = app.redactor().await.map_err(DeskError::NotRead)?;
                Some(redactor.redact(&note).into_owned())
            }
            None => None,
        };
        let given = who.answer(&approval, approve, note);
        let (approval, is_new) = match app.approvals.decide(id, given.clone()).await {
            Ok(approval) => (approval, true),
            Err(error @ ApprovalError::Settled { .. }) => {
                // The answer to the first time may have got lost, or its entry.
                let known = visible(&app, &who, &approval.id).await?;
                if !said_so(&known, &given) {
                    return Err(error.into());
                }
                (known, false)
            }
            Err(error) => return Err(error.into()),
        };
        let entry = entry(&approval, approve, is_new, &request_id);
        let recorded = app.record(&entry).await;
        recorded.map_err(DeskError::NotRecorded)?;
        if is_new {
            tracing::info!(by = given.by, approve, "an approval was decided");
            app.approvals.tell(What::Decided, approval.clone());
        }
        Ok(json!(approval))
    };
    match http::to_the_end(seat, decide).await {
        Ok(done) => answer(done),
        Err(response) => response,
    }
}

/// Who asks.
struct Who {
    /// Nobody in particular while authentication is off: then everybody may do everything.
    agent: Option<AgentId>,
    is_operator: bool,
    roles: Vec<String>,
}

impl Who {
    fn of(app: &App, headers: &HeaderMap) -> Result<Self, AuthError> {
        let agent = http::caller(app, headers)?;
        let auth = &app.settings.auth;
        Ok(Self {
            is_operator: auth.operators.iter().any(|name| name == agent.as_str()),
            roles: auth.roles_of(agent.as_str()),
            agent: auth.enabled.then_some(agent),
        })
    }

    fn sees_all(&self) -> bool {
        self.is_operator || self.agent.is_none()
    }

    /// Operators see all, approvers what they could decide on, agents what is theirs.
    fn may_see(&self, approval: &Approval) -> bool {
        let Some(agent) = &self.agent else {
            return true;
        };
        let needed = &approval.approver_roles;
        self.sees_all()
            || approval.bound.agent == agent.as_str()
            || needed.is_empty()
            || needed.iter().any(|role| self.roles.contains(role))
    }

    fn answer(&self, approval: &Approval, approve: bool, note: Option<String>) -> Answer {
        let (by, roles) = match &self.agent {
            Some(agent) => (agent.as_str(), self.roles.clone()),
            None => (UNAUTHENTICATED, approval.approver_roles.clone()),
        };
        Answer {
            approve,
            by: by.to_owned(),
            roles,
            note,
        }
    }
}

/// The one of this id, if whoever asks may know of it.
async fn visible(app: &App, who: &Who, id: &str) -> Result<Approval, DeskError> {
    let known = app.approvals.get(id).await?;
    known
        .filter(|approval| who.may_see(approval))
        .ok_or(DeskError::Unknown)
}

/// Waits until somebody has decided, it expires, the time is over or the server stops.
async fn decided(app: &App, mut approval: Approval, wait: Duration) -> Result<Approval, DeskError> {
    let waiting = app.approvals.waiters.try_acquire();
    let _waiting = waiting.map_err(|_| DeskError::Crowded)?;
    let mut stopping = app.stopping.clone();
    let until = Instant::now() + wait;
    while approval.status == Status::Pending {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => break,
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
        }
        let known = app.approvals.get(&approval.id).await?;
        approval = known.ok_or(DeskError::Unknown)?;
    }
    Ok(approval)
}

/// Whether this has been their answer before, whatever time has made of it.
fn said_so(approval: &Approval, given: &Answer) -> bool {
    let decided = approval.decided.as_ref();
    let same = decided.is_some_and(|decided| decided.by == given.by);
    // Only a yes is used or expires after somebody has decided.
    same && given.approve == (approval.status != Status::Denied)
}

/// What is kept is what is recorded, also if somebody says it again in other words.
fn entry(approval: &Approval, approve: bool, is_new: bool, request_id: &RequestId) -> Entry {
    let mut entry = Entry::default();
    entry.made("timestamp", now());
    entry.made("event", "approval_decided");
    if let Some(decided) = &approval.decided {
        entry.made("requesting_agent", decided.by.as_str());
        entry.made("decided_at", shown(decided.at));
    }
    entry.made("approval", approval.id.as_str());
    entry.made("decision", if approve { "approve" } else { "deny" });
    entry.told("run_id", approval.bound.run_id.as_str());
    entry.made("agent", approval.bound.agent.as_str());
    if let Some(rule) = approval.rule_id() {
        entry.made("rule_id", rule.as_str());
    }
    entry.made("policy_digest", approval.bound.policy.as_str());
    let note = approval.decided.as_ref();
    if let Some(note) = note.and_then(|decided| decided.note.as_ref()) {
        entry.told("note", note.as_str());
    }
    if !is_new {
        entry.made("repeated", true);
    }
    request_id.note(&mut entry);
    entry
}

fn answer(answer: Result<Value, DeskError>) -> Response {
    match answer {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(error) => error.response(),
    }
}

fn id(path: IdPath) -> Result<String, DeskError> {
    let Path(id) = path.map_err(|error| DeskError::of("id", error.body_text()))?;
    Ok(id)
}

/// What somebody says.
struct Verdict {
    approve: bool,
    note: Option<String>,
}

fn verdict(body: &[u8]) -> Result<Verdict, DeskError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Decision {
        Approve,
        Deny,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        decision: Decision,
        note: Option<String>,
    }
    let wrong = |message: String| DeskError::Invalid {
        field: None,
        message,
    };
    // serde would read a list as the members in their order, too.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(wrong(
            "expected an object with `decision`, found a list".to_owned(),
        ));
    }
    let Body { decision, note } =
        serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    if note
        .as_ref()
        .is_some_and(|note| note.chars().count() > MAX_NOTE)
    {
        let message = format!("it is longer than {MAX_NOTE} characters");
        return Err(DeskError::of("note", message));
    }
    Ok(Verdict {
        approve: matches!(decision, Decision::Approve),
        note: note.filter(|note| !note.trim().is_empty()),
    })
}

fn which(uri: &Uri) -> Result<Which, DeskError> {
    let mut which = Which {
        status: None,
        run_id: None,
        limit: LIMIT,
    };
    for (name, value) in parameters(uri)? {
        match &*name {
            "limit" => {
                let limit = value.parse().ok();
                let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
                which.limit = limit.ok_or_else(|| {
                    DeskError::of("limit", format!("must be a number from 1 to {MAX_LIMIT}"))
                })?;
            }
            "run_id" => which.run_id = Some(value),
            "status" => {
                let mut all = Status::ALL.into_iter();
                let status = all.find(|status| status.as_str() == value);
                which.status = Some(status.ok_or_else(|| {
                    let all = Status::ALL.map(Status::as_str).join(", ");
                    DeskError::of("status", format!("must be one of {all}"))
                })?);
            }
            other => return Err(unknown_parameter(other)),
        }
    }
    Ok(which)
}

/// How long to wait for a decision.
fn wait(uri: &Uri) -> Result<Duration, DeskError> {
    let mut wait = 0;
    for (name, value) in parameters(uri)? {
        match &*name {
            "wait_s" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds <= MAX_WAIT);
                wait = seconds.ok_or_else(|| {
                    DeskError::of("wait_s", format!("must be a number from 0 to {MAX_WAIT}"))
                })?;
            }
            other => return Err(unknown_parameter(other)),
        }
    }
    Ok(Duration::from_secs(wait))
}

fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, DeskError> {
    http::parameters(uri).map_err(|message| DeskError::Invalid {
        field: None,
        message,
    })
}

fn unknown_parameter(name: &str) -> DeskError {
    let name: String = name.chars().take(64).collect();
    DeskError::Invalid {
        field: None,
        message: format!("unknown parameter `{name}`"),
    }
}
