//! A client for CSTP: one connection pool, deadlines, and retries where they can do no harm.
//!
//! ```no_run
//! use portcullis_server::client::{Client, ClientSettings};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), portcullis_server::client::ClientError> {
//! let client = Client::new(ClientSettings::new("http://127.0.0.1:8100", "the token"))?;
//! let verdict = client
//!     .call("cstp.checkGuardrails", &json!({"action": {"description": "Deploy to production"}}))
//!     .await?;
//! println!("{}", verdict["allowed"]);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::approval::Status;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Method as Verb, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tls::{self, TlsError};

/// Waits between tries: this, then twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// However long a server asks us to wait, a caller has a deadline of its own.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What a server calls it that nothing has happened to a run.
pub const RUN_UNKNOWN: &str = "run_unknown";
/// What a server calls it that a run is not in quarantine.
pub const NOT_QUARANTINED: &str = "not_quarantined";
/// What a server calls it that there is no approval of an id.
pub const APPROVAL_UNKNOWN: &str = "approval_unknown";

/// Where to call, as whom, and how patiently.
#[derive(Clone)]
pub struct ClientSettings {
    /// Such as `http://127.0.0.1:8100`.
    pub url: String,
    /// The bearer token; none for a server without authentication.
    pub token: Option<String>,
    /// How long one try may take.
    pub timeout: Duration,
    /// How often to try again when there was no answer.
    pub retries: u32,
    /// A certificate to trust, in PEM form, besides the system's.
    pub ca_certificate: Option<PathBuf>,
}

impl ClientSettings {
    /// With a token, 10 seconds a try and two more tries.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: Some(token.into()),
            timeout: Duration::from_secs(10),
            retries: 2,
            ca_certificate: None,
        }
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Nobody answered.
    #[error("no answer from {url} after {tries} tries: {error}")]
    Unreachable {
        /// Where.
        url: String,
        /// How often.
        tries: u32,
        /// The last try's error.
        error: String,
    },
    /// The server did not take the request.
    #[error("{url} answered {status}: {detail}")]
    Refused {
        /// Where.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server says.
        detail: String,
        /// What the server calls it, if it has a word for it.
        code: Option<String>,
    },
    /// The call was refused or failed.
    #[error("{}", .0)]
    Rpc(RpcFailure),
    /// The answer is not JSON.
    #[error("{url} does not answer in JSON: {error}")]
    NotJson {
        /// Where.
        url: String,
        /// What is wrong with it.
        error: String,
    },
    /// The answer is not JSON-RPC.
    #[error("{url} does not speak JSON-RPC: {error}")]
    NotRpc {
        /// Where.
        url: String,
        /// What is wrong with it.
        error: String,
    },
}

impl ClientError {
    /// Whether a server refused the request and calls it so.
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Refused { code: Some(known), .. } if known == code)
    }
}

/// A JSON-RPC error as it came.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RpcFailure {
    /// Such as -32602.
    pub code: i64,
    /// Such as `InvalidParams`.
    pub message: String,
    /// Such as `{"field": …, "error": …}`.
    #[serde(default)]
    pub data: Value,
}

impl fmt::Display for RpcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        if let Some(field) = self.data["field"].as_str() {
            write!(f, ": {field}")?;
        }
        if let Some(error) = self.data["error"].as_str() {
            write!(f, ": {error}")?;
        }
        if let Some(wait) = self.data["retryAfterMs"].as_u64() {
            write!(f, ": try again in {wait} ms")?;
        }
        Ok(())
    }
}

/// Calls one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    retries: u32,
    calls: Arc<AtomicU64>,
}

impl Client {
    /// Connects when it is first used.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        let authorization = settings
            .token
            .map(|token| {
                let mut header =
                    HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                        "the token has characters that a header cannot carry".to_owned()
                    })?;
                header.set_sensitive(true);
                Ok(header)
            })
            .transpose()
            .map_err(ClientError::Settings)?;
        let base = settings.url.trim_end_matches('/');
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            return Err(ClientError::Settings(format!(
                "`{base}` is not the URL of a server: write it as http://127.0.0.1:8100"
            )));
        }
        let base = Url::parse(base).map_err(|error| {
            ClientError::Settings(format!("`{base}` is not the URL of a server: {error}"))
        })?;
        tls::choose_provider();
        let mut builder = reqwest::Client::builder()
            .timeout(settings.timeout)
            .connect_timeout(settings.timeout)
            // A redirect would carry the token to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        if let Some(path) = settings.ca_certificate {
            for certificate in tls::certificates(&path)? {
                let certificate = reqwest::Certificate::from_der(&certificate)
                    .map_err(|error| ClientError::Settings(error.to_string()))?;
                builder = builder.add_root_certificate(certificate);
            }
        }
        let http = builder
            .build()
            .map_err(|error| ClientError::Settings(error.to_string()))?;
        Ok(Self {
            http,
            base,
            authorization,
            timeout: settings.timeout,
            retries: settings.retries,
            calls: Arc::default(),
        })
    }

    /// Calls a method and gives its result.
    ///
    /// Tries again when the connection fails, when the server is full (503) and when a limit says how
    /// soon to come back. A check that was answered by nobody has at most been recorded twice.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, ClientError> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let url = self.address(&["cstp"], &[])?;
        let url = &url;
        self.retrying(async |_| {
            let bytes = self.once(&Verb::POST, url, Some(body.clone())).await?;
            result(url, &bytes)
        })
        .await
    }

    /// What has happened to a run: strikes, flags, quarantine.
    pub async fn run(&self, run_id: &str) -> Result<Value, ClientError> {
        self.guard(&Verb::GET, &["runs", run_id], &[], None).await
    }

    /// Runs in quarantine, in the order of their names: at most `limit` behind `after`.
    pub async fn quarantined(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Value, ClientError> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(after.map(|after| ("after", after)));
        self.guard(&Verb::GET, &["quarantine"], &query, None).await
    }

    /// Puts a run in quarantine.
    pub async fn quarantine(&self, run_id: &str, reason: &str) -> Result<Value, ClientError> {
        let body = json!({"reason": reason});
        let path = ["quarantine", run_id];
        self.guard(&Verb::POST, &path, &[], Some(&body)).await
    }

    /// Lets a run out of quarantine. If an answer got lost and the run is not there any more, that is the answer:
    /// `released` is null then, as nobody can tell any more why it was there.
    pub async fn release(&self, run_id: &str, reason: Option<&str>) -> Result<Value, ClientError> {
        let body = reason.map(|reason| json!({"reason": reason}));
        let url = self.address(&["v1", "guard", "quarantine", run_id], &[])?;
        self.retrying(async |tries| {
            match self.guard_once(&Verb::DELETE, &url, body.as_ref()).await {
                Err(Attempt::Final(error)) if tries > 1 && error.is(NOT_QUARANTINED) => {
                    Ok(json!({"run_id": run_id, "released": null}))
                }
                answer => answer,
            }
        })
        .await
    }

    /// The last alerts, newest first.
    pub async fn alerts(&self, limit: usize) -> Result<Value, ClientError> {
        let query = [("limit", &*limit.to_string())];
        self.guard(&Verb::GET, &["alerts"], &query, None).await
    }

    /// Paused steps that people were asked about, the oldest first: those of a status and of a run, or all.
    pub async fn approvals(
        &self,
        status: Option<Status>,
        run_id: Option<&str>,
        limit: usize,
    ) -> Result<Value, ClientError> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(status.map(|status| ("status", status.as_str())));
        query.extend(run_id.map(|run_id| ("run_id", run_id)));
        let url = self.address(&["v1", "approvals"], &query)?;
        self.retrying(async |_| self.guard_once(&Verb::GET, &url, None).await)
            .await
    }

    /// One of them. The server answers once somebody has decided, or after this many seconds, at most 60.
    pub async fn approval(&self, id: &str, wait_s: u64) -> Result<Value, ClientError> {
        let wait = wait_s.to_string();
        let query = [("wait_s", wait.as_str())];
        let url = self.address(&["v1", "approvals", id], &query)?;
        let patience = self.timeout.saturating_add(Duration::from_secs(wait_s));
        self.retrying(async |_| {
            let request = self.http.get(url.clone()).timeout(patience);
            let bytes = self.send(request, &url).await?;
            parsed(&url, &bytes)
        })
        .await
    }

    /// Says yes or no to a paused step. An answer that got lost may be given again.
    pub async fn decide_approval(
        &self,
        id: &str,
        approve: bool,
        note: Option<&str>,
    ) -> Result<Value, ClientError> {
        let decision = if approve { "approve" } else { "deny" };
        let mut body = json!({"decision": decision});
        if let Some(note) = note {
            body["note"] = note.into();
        }
        let url = self.address(&["v1", "approvals", id], &[])?;
        self.retrying(async |_| self.guard_once(&Verb::POST, &url, Some(&body)).await)
            .await
    }

    /// Asks the guard API. What is asked twice because an answer got lost does no harm there.
    async fn guard(
        &self,
        verb: &Verb,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let path: Vec<&str> = ["v1", "guard"].iter().chain(path).copied().collect();
        let url = self.address(&path, query)?;
        self.retrying(async |_| self.guard_once(verb, &url, body).await)
            .await
    }

    async fn guard_once(
        &self,
        verb: &Verb,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<Value, Attempt> {
        let bytes = self.once(verb, url, body.map(Value::to_string)).await?;
        parsed(url, &bytes)
    }

    /// An address below the server's, with each part of the path written so that it stays one.
    fn address(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, ClientError> {
        if let Some(dots) = path.iter().find(|part| matches!(**part, "" | "." | "..")) {
            return Err(ClientError::Settings(format!(
                "`{dots}` cannot be part of an address"
            )));
        }
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn retrying(
        &self,
        mut once: impl AsyncFnMut(u32) -> Result<Value, Attempt>,
    ) -> Result<Value, ClientError> {
        let mut wait = FIRST_WAIT;
        for tries in 1.. {
            let (error, at_least) = match once(tries).await {
                Ok(result) => return Ok(result),
                Err(Attempt::Final(error)) => return Err(error),
                Err(Attempt::Again { error, after }) => (error, after),
            };
            if tries > self.retries {
                return Err(match error {
                    ClientError::Unreachable { url, error, .. } => {
                        ClientError::Unreachable { url, tries, error }
                    }
                    error => error,
                });
            }
            let pause = at_least.unwrap_or_default().max(wait);
            if pause > LONGEST_WAIT {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            wait *= 2;
        }
        Err(ClientError::Settings("no try was made".to_owned()))
    }

    async fn once(&self, verb: &Verb, url: &Url, body: Option<String>) -> Result<Bytes, Attempt> {
        let mut request = self.http.request(verb.clone(), url.clone());
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        self.send(request, url).await
    }

    async fn send(&self, mut request: RequestBuilder, url: &Url) -> Result<Bytes, Attempt> {
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let unreachable = |error: reqwest::Error| Attempt::Again {
            error: ClientError::Unreachable {
                url: url.to_string(),
                tries: 1,
                error: chain(&error),
            },
            after: None,
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|wait| wait.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let bytes = response.bytes().await.map_err(unreachable)?;
        if status != StatusCode::OK {
            return Err(refused(url, status, &bytes, after));
        }
        Ok(bytes)
    }
}

fn parsed(url: &Url, bytes: &[u8]) -> Result<Value, Attempt> {
    serde_json::from_slice(bytes).map_err(|error| {
        Attempt::Final(ClientError::NotJson {
            url: url.to_string(),
            error: error.to_string(),
        })
    })
}

fn refused(url: &Url, status: StatusCode, bytes: &[u8], after: Option<Duration>) -> Attempt {
    let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let detail = answer["detail"].as_str();
    let detail = detail.or_else(|| answer["error"]["message"].as_str());
    let detail = detail.unwrap_or("no reason given");
    let error = ClientError::Refused {
        url: url.to_string(),
        status: status.as_u16(),
        detail: detail.to_owned(),
        code: answer["code"].as_str().map(str::to_owned),
    };
    match status {
        StatusCode::SERVICE_UNAVAILABLE => Attempt::Again { error, after },
        _ => Attempt::Final(error),
    }
}

fn result(url: &Url, bytes: &[u8]) -> Result<Value, Attempt> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<Value>,
        error: Option<RpcFailure>,
    }
    let not_rpc = |error: String| {
        Attempt::Final(ClientError::NotRpc {
            url: url.to_string(),
            error,
        })
    };
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|error| not_rpc(error.to_string()))?;
    match answer {
        Answer {
            error: Some(error), ..
        } => {
            let wait = error.data["retryAfterMs"].as_u64();
            match wait.map(Duration::from_millis) {
                Some(wait) => Err(Attempt::Again {
                    error: ClientError::Rpc(error),
                    after: Some(wait),
                }),
                None => Err(Attempt::Final(ClientError::Rpc(error))),
            }
        }
        Answer {
            result: Some(result),
            ..
        } => Ok(result),
        _ => Err(not_rpc("neither `result` nor `error`".to_owned())),
    }
}

/// What came of one try.
enum Attempt {
    /// Trying again would not help.
    Final(ClientError),
    /// It might.
    Again {
        error: ClientError,
        after: Option<Duration>,
    },
}

/// An error with what caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
