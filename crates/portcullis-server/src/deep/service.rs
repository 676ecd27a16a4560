//! One deep rule and the service that it asks.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use portcullis_core::rules::{DeepSettings, ExternalRule, RuleError, RuleInfo, RuleInput};
use portcullis_core::{Decision, DeepRuleEntry, RuleId};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::DeepRuleProblem;
use crate::client::chain;
use crate::tls;

/// What an answer may measure. A score or a list of places in a text is far smaller.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_mins(1);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A deep rule that asks a service.
pub(super) struct ServiceRule {
    info: RuleInfo,
    settings: DeepSettings,
    service: Service,
}

struct Service {
    client: Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    /// One for each request that may be under way.
    places: Semaphore,
    max_concurrent: usize,
}

impl ServiceRule {
    /// `None` if it is no rule that asks a service.
    pub(super) fn build(
        entry: &DeepRuleEntry,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Result<Self, DeepRuleProblem>> {
        let rule = entry.settings.external()?;
        let service = Service::new(rule, variable);
        Some(service.map(|service| Self {
            info: RuleInfo {
                id: entry.id.clone(),
                version: entry.version().unwrap_or_default().into(),
                events: entry.events.clone(),
                severity: rule.severity(),
            },
            settings: entry.settings.clone(),
            service,
        }))
    }

    async fn judge(&self, input: RuleInput<'_>) -> Result<Option<Decision>, DeepError> {
        let Some(rule) = self.settings.external() else {
            return Err(DeepError::Failed("it asks no service".to_owned()));
        };
        // What cannot be put into a question is the event's doing, not the service's.
        let unfit = |error: RuleError| DeepError::NotAsked(error.0);
        let Some(question) = rule.question(&input).map_err(unfit)? else {
            return Ok(None);
        };
        let answer = self.service.ask(&question).await?;
        Ok(rule.judge(&self.info.id, &input, &answer)?)
    }
}

impl DeepRule for ServiceRule {
    fn info(&self) -> RuleInfo {
        self.info.clone()
    }

    fn evaluate<'a>(
        &'a self,
        input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(self.judge(input))
    }
}

impl fmt::Debug for ServiceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id: &RuleId = &self.info.id;
        f.debug_tuple("ServiceRule").field(id).finish()
    }
}

impl Service {
    fn new(
        rule: &dyn ExternalRule,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, DeepRuleProblem> {
        let endpoint = rule.endpoint();
        let mut url = endpoint.url.fill(variable)?;
        if !rule.path().is_empty() {
            url = format!("{}{}", url.trim_end_matches('/'), rule.path());
        }
        let url = parse_url("url", &url)?;
        let mut headers = HeaderMap::new();
        for header in &endpoint.headers {
            let unusable = || DeepRuleProblem::Header(header.name.clone());
            let name = HeaderName::try_from(&header.name).map_err(|_| unusable())?;
            let value = header.value.fill(variable)?;
            let mut value = HeaderValue::try_from(value).map_err(|_| unusable())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        tls::choose_provider();
        let mut builder = Client::builder()
            // A redirect would carry the texts, and the token, to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(endpoint.max_concurrent)
            .pool_idle_timeout(IDLE)
            .no_proxy();
        if let Some(proxy) = &endpoint.proxy {
            let proxy = parse_url("proxy", &proxy.fill(variable)?)?;
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(no_client)?);
        }
        if let Some(ca) = &endpoint.ca {
            for certificate in tls::certificates(Path::new(&ca.fill(variable)?))? {
                let certificate =
                    reqwest::Certificate::from_der(&certificate).map_err(no_client)?;
                builder = builder.add_root_certificate(certificate);
            }
        }
        Ok(Self {
            client: builder.build().map_err(no_client)?,
            url,
            headers,
            timeout: Duration::from_millis(endpoint.timeout_ms as u64),
            places: Semaphore::new(endpoint.max_concurrent),
            max_concurrent: endpoint.max_concurrent,
        })
    }

    /// The answer's bytes. What went wrong is said without anything of the question, the answer or the
    /// headers.
    async fn ask(&self, question: &Value) -> Result<Vec<u8>, DeepError> {
        let deadline = Instant::now() + self.timeout;
        let limit = self.timeout.as_millis();
        // Those who wait are as many as the inbox lets in, and none waits longer than this.
        let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else {
            let most = self.max_concurrent;
            return Err(DeepError::NotAsked(format!(
                "{most} requests were under way for {limit} ms: `max_concurrent` is {most}"
            )));
        };
        match timeout_at(deadline, self.post(question)).await {
            Ok(answer) => answer,
            Err(_) => Err(DeepError::NoAnswer(format!(
                "the service did not answer within {limit} ms"
            ))),
        }
    }

    async fn post(&self, question: &Value) -> Result<Vec<u8>, DeepError> {
        let sent = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, JSON)
            .body(question.to_string())
            .send();
        let response = sent
            .await
            .map_err(|error| DeepError::NoAnswer(failed(error)))?;
        let status = response.status();
        let said = format!("the service answered {}", status.as_u16());
        // It has not judged, and may do so later; a wrong address or key has to be mended first.
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(DeepError::NoAnswer(said));
        }
        if !status.is_success() {
            return Err(DeepError::Failed(said));
        }
        if !is_json(&response) {
            let why = "the service answered something else than JSON";
            return Err(DeepError::Failed(why.to_owned()));
        }
        read(response).await.map_err(DeepError::Failed)
    }
}

/// The body, unless it is too long.
async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let too_long = || format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
    let announced = response.content_length().unwrap_or_default();
    if announced > MAX_ANSWER_BYTES as u64 {
        return Err(too_long());
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(too_long());
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// Whether it says so, or says nothing.
fn is_json(response: &Response) -> bool {
    let Some(kind) = response.headers().get(CONTENT_TYPE) else {
        return true;
    };
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json") || kind.to_ascii_lowercase().ends_with("+json")
}

/// The address may hold a key, so it is not named.
fn failed(error: reqwest::Error) -> String {
    chain(&error.without_url())
}

fn no_client(error: reqwest::Error) -> DeepRuleProblem {
    DeepRuleProblem::Client(failed(error))
}

fn parse_url(key: &'static str, url: &str) -> Result<Url, DeepRuleProblem> {
    let wrong = |why: String| DeepRuleProblem::Url { key, why };
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong(format!("its scheme is `{}`", parsed.scheme())));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(wrong("it has a user or a password in it".to_owned()));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn who_gets_no_place_in_time_is_told_so() {
        tls::choose_provider();
        let service = Service {
            client: Client::builder().no_proxy().build().unwrap(),
            url: Url::parse("http://127.0.0.1:9").unwrap(),
            headers: HeaderMap::new(),
            timeout: Duration::from_millis(20),
            places: Semaphore::new(1),
            max_concurrent: 1,
        };
        let _taken = service.places.try_acquire().unwrap();
        let error = service.ask(&json!({})).await.unwrap_err();
        assert_eq!(
            error,
            DeepError::NotAsked(
                "1 requests were under way for 20 ms: `max_concurrent` is 1".to_owned()
            )
        );
    }
}
