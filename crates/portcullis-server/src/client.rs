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

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tls::{self, TlsError};

/// Waits between tries: this, then twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// However long a server asks us to wait, a caller has a deadline of its own.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

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
    },
    /// The call was refused or failed.
    #[error("{}", .0)]
    Rpc(RpcFailure),
    /// The answer is not JSON-RPC.
    #[error("{url} does not speak JSON-RPC: {error}")]
    NotRpc {
        /// Where.
        url: String,
        /// What is wrong with it.
        error: String,
    },
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
    endpoint: Arc<str>,
    authorization: Option<HeaderValue>,
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
            endpoint: format!("{base}/cstp").into(),
            authorization,
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
        let mut wait = FIRST_WAIT;
        for tries in 1.. {
            let (error, at_least) = match self.once(body.clone()).await {
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

    async fn once(&self, body: String) -> Result<Value, Attempt> {
        let mut request = self
            .http
            .post(&*self.endpoint)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let unreachable = |error: reqwest::Error| Attempt::Again {
            error: ClientError::Unreachable {
                url: self.endpoint.to_string(),
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
            return Err(self.refused(status, &bytes, after));
        }
        self.result(&bytes)
    }

    fn refused(&self, status: StatusCode, bytes: &[u8], after: Option<Duration>) -> Attempt {
        let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let detail = answer["detail"].as_str().unwrap_or("no reason given");
        let error = ClientError::Refused {
            url: self.endpoint.to_string(),
            status: status.as_u16(),
            detail: detail.to_owned(),
        };
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Attempt::Again { error, after },
            _ => Attempt::Final(error),
        }
    }

    fn result(&self, bytes: &[u8]) -> Result<Value, Attempt> {
        #[derive(Deserialize)]
        struct Answer {
            result: Option<Value>,
            error: Option<RpcFailure>,
        }
        let not_rpc = |error: String| {
            Attempt::Final(ClientError::NotRpc {
                url: self.endpoint.to_string(),
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
