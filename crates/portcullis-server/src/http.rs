//! The routes, and what every request passes on its way in.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tracing::Instrument;

use crate::app::{App, Entry};
use crate::approvals::step::Refusal;
use crate::auth::{AgentId, AuthError};
use crate::client::APPROVAL_UNKNOWN;
use crate::cstp::{self, Caller};
use crate::guard::{self, EvaluateError};
use crate::{a2a, approvals, card, delivery, metrics, runs, telemetry};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 128;

/// What the API is, for people and for tools that make clients.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Everything the server answers.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/cstp", post(rpc))
        .route("/v1/guard/evaluate", post(evaluate))
        .route("/v1/guard/runs/{run_id}", get(runs::show))
        .route("/v1/guard/quarantine", get(runs::list))
        .route(
            "/v1/guard/quarantine/{run_id}",
            post(runs::quarantine).delete(runs::release),
        )
        .route("/v1/guard/alerts", get(runs::alerts))
        .route("/v1/approvals", get(approvals::api::list))
        .route(
            "/v1/approvals/{id}",
            get(approvals::api::show).post(approvals::api::decide),
        )
        .route("/v1/a2a/convert", post(a2a::convert))
        .route("/v1/a2a/import", post(a2a::import))
        .route("/metrics", get(prometheus))
        .route("/.well-known/agent.json", get(agent_card))
        .route("/.well-known/agent-card.json", get(agent_card))
        .route("/openapi.json", get(openapi))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "nothing is here: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path takes another method: see /openapi.json",
            )
        })
        .with_state(Arc::clone(app))
        .layer(from_fn_with_state(Arc::clone(app), door))
        .layer(CatchPanicLayer::custom(|_| {
            tracing::error!("a request handler panicked");
            problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server failed on this request",
            )
        }));
    if let Some(cors) = cors(&app.settings.server.cors_origins) {
        router = router.layer(cors);
    }
    router
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let origins = origins.iter().filter_map(|origin| origin.parse().ok());
        AllowOrigin::list(origins)
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Verb::GET, Verb::POST, Verb::DELETE])
        .allow_headers([AUTHORIZATION, CONTENT_TYPE, REQUEST_ID])
        .expose_headers([REQUEST_ID, RETRY_AFTER]);
    Some(layer)
}

/// The id that a request is known by, in its answer, the log and the evidence.
#[derive(Debug, Clone)]
pub(crate) struct RequestId {
    text: Arc<str>,
    /// Whether the caller chose it.
    is_told: bool,
}

impl RequestId {
    /// The caller's own, if it is fit for a log; otherwise a new one.
    fn of(headers: &HeaderMap) -> Self {
        let own = headers
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .filter(|id| (1..=MAX_REQUEST_ID).contains(&id.len()))
            .filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic()));
        Self {
            text: own.map_or_else(|| uuid::Uuid::now_v7().to_string().into(), Into::into),
            is_told: own.is_some(),
        }
    }

    /// The one that the door gave to a request.
    pub(crate) fn of_request(request: &Request) -> Self {
        let id = request.extensions().get().cloned();
        id.unwrap_or_else(|| Self::of(request.headers()))
    }

    /// Notes it in an entry of the evidence log.
    pub(crate) fn note(&self, entry: &mut Entry) {
        if self.is_told {
            entry.told("request_id", &*self.text);
        } else {
            entry.made("request_id", &*self.text);
        }
    }
}

/// A request's place among those that are inside. What outlives the request keeps it.
#[derive(Clone)]
pub(crate) struct Seat {
    _taken: Arc<Taken>,
}

struct Taken(Arc<App>);

impl Seat {
    fn take(app: &Arc<App>) -> Option<Self> {
        app.requests.try_acquire().ok()?.forget();
        let taken = Arc::new(Taken(Arc::clone(app)));
        Some(Self { _taken: taken })
    }

    pub(crate) fn of(request: &Request) -> Option<Self> {
        request.extensions().get().cloned()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.requests.add_permits(1);
    }
}

/// Does all of it, even if whoever asked hangs up meanwhile: what is in the evidence log has to be so.
pub(crate) async fn to_the_end<T: Send + 'static>(
    seat: Option<Seat>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Response> {
    let work = async move {
        let done = work.await;
        drop(seat);
        done
    };
    tokio::spawn(work.in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a request handler failed");
        problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server failed on this request",
        )
    })
}

/// The first thing a request meets: its id, its span, and a no while too many others are inside.
async fn door(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let span = span(&id, &request);
    telemetry::join_trace(&span, request.headers());
    request.extensions_mut().insert(id.clone());
    let started = Instant::now();
    // Probes are answered however full it is: an orchestrator that gets no answer kills the server.
    let probe = matches!(request.uri().path(), "/health" | "/ready");
    let seat = Seat::take(&app);
    if let Some(seat) = &seat {
        request.extensions_mut().insert(seat.clone());
    }
    let mut response = if seat.is_none() && !probe {
        app.metrics.shed();
        let mut response = problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests are in flight: try again in a second",
        );
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    } else {
        next.run(request).instrument(span.clone()).await
    };
    span.record("status", response.status().as_u16());
    span.in_scope(|| tracing::debug!(elapsed = ?started.elapsed(), "answered"));
    if let Ok(value) = HeaderValue::from_str(&id.text) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Whatever is logged about a request carries its id; the rest is for those who look closely, or export
/// spans.
fn span(id: &RequestId, request: &Request) -> tracing::Span {
    if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug_span!(
            "request",
            otel.kind = "server",
            request_id = &*id.text,
            method = %request.method(),
            path = request.uri().path(),
            status = tracing::field::Empty,
        )
    } else {
        tracing::error_span!("request", request_id = &*id.text)
    }
}

async fn rpc(State(app): State<Arc<App>>, request: Request) -> Response {
    let relayed = request.headers().contains_key(delivery::DELIVERY);
    let (agent, id, body) = match admit(&app, request).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let caller = Caller {
        agent: &agent,
        request_id: &id,
        relayed,
    };
    let reply = aside(&body, cstp::answer(&app, caller, &body)).await;
    let mut response = match reply.body {
        Some(body) => json_bytes(StatusCode::OK, body),
        None => StatusCode::NO_CONTENT.into_response(),
    };
    if let Some(wait) = reply.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds(wait));
    }
    response
}

async fn evaluate(State(app): State<Arc<App>>, request: Request) -> Response {
    let seat = Seat::of(&request);
    let (agent, id, body) = match admit(&app, request).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let evaluation = async move {
        let caller = Caller {
            agent: &agent,
            request_id: &id,
            relayed: false,
        };
        aside(&body, guard::evaluate(&app, caller, &body)).await
    };
    let evaluation = match to_the_end(seat, evaluation).await {
        Ok(evaluation) => evaluation,
        Err(response) => return response,
    };
    match evaluation {
        Ok(evaluation) => json(StatusCode::OK, &evaluation),
        Err(EvaluateError::Invalid { field, message }) => {
            let body = json!({"error": {"field": field, "message": message}});
            json(StatusCode::BAD_REQUEST, &body)
        }
        Err(EvaluateError::Refused(refusal)) => refused(&refusal),
        Err(
            error @ (EvaluateError::NoPolicy
            | EvaluateError::NotRecorded(_)
            | EvaluateError::NotKept(_)),
        ) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

/// How soon to come back when too many approvals wait: people are not quick.
const PEOPLE: Duration = Duration::from_secs(30);

/// What a step is answered whose approval is no good, or could not be asked for.
fn refused(refusal: &Refusal) -> Response {
    let message = refusal.to_string();
    let (status, code) = match refusal {
        Refusal::Unknown(_) => (StatusCode::NOT_FOUND, APPROVAL_UNKNOWN),
        Refusal::Void { .. } => (StatusCode::CONFLICT, "approval_void"),
        Refusal::Used { .. } => (StatusCode::CONFLICT, "approval_used"),
        Refusal::Full(_) => {
            let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, &message);
            response.headers_mut().insert(RETRY_AFTER, seconds(PEOPLE));
            return response;
        }
        Refusal::Failed => return problem(StatusCode::SERVICE_UNAVAILABLE, &message),
    };
    let error = json!({"field": "approval", "message": message});
    json(status, &json!({"error": error, "code": code}))
}

/// Larger bodies are dealt with where they cannot hold up the rest.
pub(crate) const LARGE: usize = 64 << 10;

async fn aside<T>(body: &Bytes, answer: impl Future<Output = T>) -> T {
    if body.len() <= LARGE {
        return answer.await;
    }
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| runtime.block_on(answer))
}

async fn prometheus(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Err(error) = app.authenticate(authorization(&headers)) {
        return unauthorized(error);
    }
    let memory = app.memory_state().await;
    app.approvals.count_waiting().await;
    let evidence = app.evidence_state();
    let page = app
        .metrics
        .page(app.uptime(), evidence, memory.as_ref(), &app.gateway);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

async fn agent_card(State(app): State<Arc<App>>) -> Response {
    let settings = &app.settings;
    let card = card::card(&settings.agent, &app.url, settings.auth.enabled);
    json(StatusCode::OK, &card)
}

async fn openapi() -> Response {
    json_bytes(StatusCode::OK, Bytes::from_static(OPENAPI.as_bytes()))
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let mut response = json(
        StatusCode::OK,
        &json!({
            "status": "healthy",
            "version": app.settings.agent.version,
            "uptime_seconds": app.uptime().as_secs(),
        }),
    );
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether it can judge and record; what is switched off is said aloud.
async fn ready(State(app): State<Arc<App>>) -> Response {
    let policy_ready = *app.policy_ready.borrow();
    let stopping = *app.stopping.borrow();
    let policy = match app.gateway.policy() {
        _ if !policy_ready => json!("loading"),
        policy if policy.is_absent() => json!("none"),
        policy => serde_json::to_value(&**policy.identity()).unwrap_or_default(),
    };
    let guardrails = app.guardrails.load();
    let failing = app.evidence.stats().last_error.is_some();
    let ready = policy_ready && !stopping && !failing;
    let memory = match app.memory_state().await {
        Some(state) => json!({
            "decisions": state.decisions,
            "unembedded": state.unembedded,
        }),
        None => json!("failing"),
    };
    let mut warnings = Vec::new();
    if !app.settings.auth.enabled {
        warnings.push("authentication is off: anybody who reaches this address may call");
    }
    if policy == "none" {
        warnings.push("no policy: every event is allowed");
    }
    // Where and why is nothing for everybody.
    if app.deep.trouble().is_some() {
        warnings.push("deep rules cannot be asked: see the server's log");
    }
    if guardrails.enabled() == 0 {
        warnings.push("no guardrails: every action is allowed");
    }
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut response = json(
        status,
        &json!({
            "ready": ready,
            "policy": policy,
            "guardrails": {"enabled": guardrails.enabled(), "digest": guardrails.digest()},
            // Why is in the log: whoever asks here has shown no token.
            "evidence": if failing { "failing" } else { "writing" },
            "memory": memory,
            "stopping": stopping,
            "warnings": warnings,
        }),
    );
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Lets a request with a JSON body in: who, under which id, and what it says. The token comes first, so
/// that nobody is read to who may not speak.
pub(crate) async fn admit(
    app: &App,
    request: Request,
) -> Result<(AgentId, RequestId, Bytes), Response> {
    let headers = request.headers();
    caller(app, headers).map_err(unauthorized)?;
    if !is_json(headers) {
        return Err(not_json());
    }
    admit_optional(app, request).await
}

/// Lets a request in that may have a JSON body.
pub(crate) async fn admit_optional(
    app: &App,
    request: Request,
) -> Result<(AgentId, RequestId, Bytes), Response> {
    let headers = request.headers();
    let agent = caller(app, headers).map_err(unauthorized)?;
    let is_json = is_json(headers);
    let id = RequestId::of_request(&request);
    let body = read(app, request).await.map_err(|error| error.response())?;
    if !body.is_empty() && !is_json {
        return Err(not_json());
    }
    Ok((agent, id, body))
}

/// Who is calling.
pub(crate) fn caller(app: &App, headers: &HeaderMap) -> Result<AgentId, AuthError> {
    app.authenticate(authorization(headers))
}

fn not_json() -> Response {
    problem(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "send JSON with `Content-Type: application/json`",
    )
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the body is longer than {limit} bytes (`server.max_body_bytes`)")]
    TooLong { limit: usize },
    #[error("the body took too long to come")]
    TooSlow,
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

impl ReadError {
    pub(crate) fn response(&self) -> Response {
        let status = match self {
            Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        };
        problem(status, &self.to_string())
    }
}

pub(crate) async fn read(app: &App, request: Request) -> Result<Bytes, ReadError> {
    let limit = app.settings.server.max_body_bytes;
    let announced = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(ReadError::TooLong { limit });
    }
    let body = Limited::new(request.into_body(), limit).collect();
    let patience = app.settings.server.read_timeout;
    match tokio::time::timeout(patience, body).await {
        Err(_) => Err(ReadError::TooSlow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ReadError::TooLong { limit }),
        Ok(Err(error)) => Err(ReadError::Broken(error.to_string())),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let first = all.next()?;
    // Two of them: whoever stands in between may have read the other.
    if all.next().is_some() {
        return Some(b"");
    }
    Some(first.as_bytes())
}

fn is_json(headers: &HeaderMap) -> bool {
    is_of_type(headers, "application/json")
}

/// Whether the body is said to be of a type, whatever parameters it has.
pub(crate) fn is_of_type(headers: &HeaderMap, media_type: &str) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(media_type)
}

/// The parameters behind a path.
pub(crate) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, String> {
    let query = format!("http://localhost/?{}", uri.query().unwrap_or_default());
    let query = reqwest::Url::parse(&query).map_err(|error| error.to_string())?;
    let owned = |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into(), value.into());
    Ok(query.query_pairs().map(owned).collect())
}

pub(crate) fn unauthorized(error: AuthError) -> Response {
    let mut response = json(
        StatusCode::UNAUTHORIZED,
        &json!({"detail": error.to_string()}),
    );
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// The same, with a word for programs.
pub(crate) fn named_problem(status: StatusCode, code: &str, detail: &str) -> Response {
    json(status, &json!({"detail": detail, "code": code}))
}

/// An answer to a request that came to nothing.
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response {
    json(status, &json!({"detail": detail}))
}

pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => json_bytes(status, bytes),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            json_bytes(
                StatusCode::INTERNAL_SERVER_ERROR,
                Value::from("the answer could not be written").to_string(),
            )
        }
    }
}

pub(crate) fn json_bytes(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

pub(crate) fn seconds(wait: Duration) -> HeaderValue {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    HeaderValue::from(whole.max(1))
}
