//! Chat models behind servers that speak `OpenAI`'s protocol: `POST {base_url}/chat/completions`.

mod sse;
mod wire;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::stream::{StreamExt, try_unfold};
use portcullis_runtime::BoxFuture;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Map, Value};

use crate::chat::{ChatModel, ChatRequest, Delta, DeltaStream, ModelError, Turn};

pub use wire::StreamReader;

/// How much of a server's complaint is read, and how much of that is passed on.
const COMPLAINT_BYTES: usize = 64 << 10;
const LONGEST_COMPLAINT: usize = 300;

/// A key that nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl<T: Into<String>> From<T> for ApiKey {
    fn from(key: T) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// Where to ask, for which model, and how patiently.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// Such as `https://api.example.org/v1`.
    pub base_url: String,
    /// As the server calls it.
    pub model: String,
    /// Sent as a bearer token.
    pub api_key: Option<ApiKey>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the server may be silent.
    pub silence: Duration,
    /// How long one try at an answer in one piece may take. A stream may take as long as the run.
    pub timeout: Duration,
    /// How often to try again if the server is busy, broken or out of reach.
    pub retries: u32,
    /// How long to wait before the first of these, where the server does not say; twice as long before each next.
    pub backoff: Duration,
    /// However long a server asks us to wait, a user has something to do: past this the call fails.
    pub longest_wait: Duration,
    /// How large an answer may be.
    pub max_bytes: usize,
    /// Members of the request besides the planner's, such as `temperature`.
    pub extra: Map<String, Value>,
}

impl OpenAiSettings {
    /// Without a key; two more tries, 60 seconds of silence, 120 for an answer in one piece, 4 MiB.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            connect_timeout: Duration::from_secs(10),
            silence: Duration::from_mins(1),
            timeout: Duration::from_mins(2),
            retries: 2,
            backoff: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            max_bytes: 4 << 20,
            extra: Map::new(),
        }
    }
}

/// Asks such a server.
#[derive(Debug)]
pub struct OpenAiChat {
    client: Client,
    endpoint: Url,
    settings: OpenAiSettings,
    authorization: Option<HeaderValue>,
}

/// What came of a try that was not answered.
struct Failed {
    why: ModelError,
    again: Again,
}

/// Whether another may help.
enum Again {
    No,
    AfterBackoff,
    /// The server asks us to wait so long.
    After(Duration),
}

impl OpenAiChat {
    /// Checks the settings. Connects with the first question only.
    pub fn new(settings: OpenAiSettings) -> Result<Self, ModelError> {
        let endpoint = endpoint(&settings.base_url).map_err(ModelError::Settings)?;
        let authorization = settings.api_key.as_ref().map(authorization).transpose()?;
        // An error means that somebody has chosen before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            // A redirect would carry the conversation to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.silence)
            .build()
            .map_err(|error| ModelError::Settings(chain(&error)))?;
        Ok(Self {
            client,
            endpoint,
            settings,
            authorization,
        })
    }

    /// The answer's beginning, after as many tries as it takes and the settings allow.
    async fn ask(&self, request: ChatRequest<'_>, stream: bool) -> Result<Response, ModelError> {
        let settings = &self.settings;
        let body = wire::request(&settings.model, request, stream, &settings.extra).to_string();
        let mut backoff = settings.backoff;
        for _ in 0..settings.retries {
            let failed = match self.once(body.clone(), stream).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            let wait = match failed.again {
                Again::No => return Err(failed.why),
                Again::AfterBackoff => jittered(backoff),
                Again::After(wait) => wait,
            };
            if wait > settings.longest_wait {
                return Err(failed.why);
            }
            tracing::debug!(error = %failed.why, ?wait, "asking the chat model again");
            tokio::time::sleep(wait).await;
            backoff = backoff.saturating_mul(2);
        }
        let last = self.once(body, stream).await;
        last.map_err(|failed| failed.why)
    }

    async fn once(&self, body: String, stream: bool) -> Result<Response, Failed> {
        let mut request = self
            .client
            .post(self.endpoint.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if !stream {
            // Set here it holds for the answer's body too, however slowly that comes.
            request = request.timeout(self.settings.timeout);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        // Whatever keeps a request from being answered may be over the next time. A tool has not run for it.
        let response = request.send().await.map_err(|error| Failed {
            why: ModelError::Unreachable(chain(&error.without_url())),
            again: Again::AfterBackoff,
        })?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
        let again = match retry_after(response.headers()) {
            _ if !busy && !status.is_server_error() => Again::No,
            Some(wait) => Again::After(wait),
            None => Again::AfterBackoff,
        };
        let bytes = read(response, COMPLAINT_BYTES).await.unwrap_or_default();
        Err(Failed {
            why: ModelError::Refused {
                status: status.as_u16(),
                message: self.complaint(&bytes),
            },
            again,
        })
    }

    /// What a server says, on one line. Some say the key that they do not like.
    fn complaint(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let message = [
            &answer["error"]["message"],
            &answer["error"],
            &answer["detail"],
        ]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or(&text);
        let message = match &self.settings.api_key {
            Some(ApiKey(key)) if !key.is_empty() => message.replace(key, "[key]"),
            _ => message.to_owned(),
        };
        let line: String = message
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_COMPLAINT)
            .collect();
        match line.trim() {
            "" => "no reason given".to_owned(),
            line => line.to_owned(),
        }
    }
}

impl ChatModel for OpenAiChat {
    fn name(&self) -> &str {
        &self.settings.model
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> BoxFuture<'a, Result<Turn, ModelError>> {
        Box::pin(async move {
            let response = self.ask(request, false).await?;
            let limit = self.settings.max_bytes;
            let bytes = read(response, limit).await?;
            wire::turn(&bytes, limit)
        })
    }

    fn stream<'a>(
        &'a self,
        request: ChatRequest<'a>,
    ) -> BoxFuture<'a, Result<DeltaStream, ModelError>> {
        Box::pin(async move {
            let reading = Reading {
                response: self.ask(request, true).await?,
                reader: StreamReader::new(self.settings.max_bytes),
                ready: VecDeque::new(),
                room: self.settings.max_bytes,
                limit: self.settings.max_bytes,
                ended: false,
            };
            Ok(try_unfold(reading, Reading::next).boxed())
        })
    }
}

/// A streamed answer on its way.
struct Reading {
    response: Response,
    reader: StreamReader,
    ready: VecDeque<Delta>,
    room: usize,
    limit: usize,
    ended: bool,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Delta, Self)>, ModelError> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Ok(Some((delta, self)));
            }
            if self.ended || self.reader.is_done() {
                return Ok(None);
            }
            let bytes = self.response.chunk().await;
            let bytes = bytes.map_err(|error| unreachable(&error))?;
            let ready = &mut self.ready;
            match bytes {
                Some(bytes) => {
                    let left = self.room.checked_sub(bytes.len());
                    self.room = left.ok_or(ModelError::TooLarge { limit: self.limit })?;
                    self.reader.push(&bytes, |delta| ready.push_back(delta))?;
                }
                None => {
                    self.ended = true;
                    self.reader.finish(|delta| ready.push_back(delta))?;
                }
            }
        }
    }
}

/// The body, if it is not larger.
async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unreachable(&error))?
    {
        if bytes.len() + chunk.len() > limit {
            return Err(ModelError::TooLarge { limit });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn unreachable(error: &reqwest::Error) -> ModelError {
    ModelError::Unreachable(chain(error))
}

/// In seconds, as the standard says, or in milliseconds, as some servers add. A date is not understood.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
    let exact = headers.get("retry-after-ms").and_then(number);
    let seconds = || headers.get(RETRY_AFTER).and_then(number);
    exact
        .map(Duration::from_millis)
        .or_else(|| seconds().map(Duration::from_secs))
}

/// Between half of it and all of it, so that those who failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(wait) % 1024;
    wait / 2 + (wait / 2048) * random as u32
}

fn authorization(key: &ApiKey) -> Result<HeaderValue, ModelError> {
    let mut header = HeaderValue::try_from(format!("Bearer {}", key.0)).map_err(|_| {
        let why = "the API key has characters that a header cannot carry";
        ModelError::Settings(why.to_owned())
    })?;
    header.set_sensitive(true);
    Ok(header)
}

fn endpoint(base: &str) -> Result<Url, String> {
    let example = "write it as https://api.example.org/v1";
    let url = format!("{}/chat/completions", base.trim_end_matches('/'));
    // Neither error repeats the URL: it may hold a password.
    let url =
        Url::parse(&url).map_err(|error| format!("the base URL is none ({error}): {example}"))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none() {
        return Err(format!("the base URL is not of HTTP: {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(format!(
            "the base URL has a user or a query: {example}, and give the key by itself"
        ));
    }
    Ok(url)
}

/// An error with what caused it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
