//! One receiver over HTTP: signed or with a token, once.

use std::fmt::Write;
use std::time::Duration;

use axum::http::HeaderName;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::Sha256;

use super::Failure;
use crate::auth::Token;
use crate::client::{RpcFailure, chain};
use crate::tls;

/// The id of a delivery. A call that carries it comes from a server that passes on what it was told, and is
/// not passed on to peers again: two that are each other's peers would never stop.
pub(crate) const DELIVERY: HeaderName = HeaderName::from_static("x-portcullis-delivery");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-portcullis-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("x-portcullis-signature");

/// What is read of an answer. Nobody looks at more than a peer's verdict.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// JSON-RPC's codes for a call that is wrong in itself, and stays so however often it is made.
const WRONG_CALL: [i64; 4] = [-32700, -32600, -32601, -32602];

/// Where a receiver is, and what it knows us by.
pub(crate) struct Endpoint {
    http: reqwest::Client,
    url: Url,
    identity: Identity,
}

enum Identity {
    Signature(Hmac<Sha256>),
    Token(Option<HeaderValue>),
}

/// A body to post. It has the same id however often it is sent.
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) body: Bytes,
}

impl Endpoint {
    /// A webhook, which knows us by what the secret has signed.
    pub(crate) fn webhook(url: &Url, secret: &Token, timeout: Duration) -> Result<Self, String> {
        let mac = Hmac::new_from_slice(secret.reveal().as_bytes());
        let mac = mac.map_err(|error| error.to_string())?;
        Self::new(url.clone(), Identity::Signature(mac), timeout)
    }

    /// A server of our kind, which knows us by a token.
    pub(crate) fn peer(
        url: &Url,
        token: Option<&Token>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let url = format!("{}/cstp", url.as_str().trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| error.to_string())?;
        let bearer = token.map(|token| {
            let mut header = HeaderValue::try_from(format!("Bearer {}", token.reveal()))?;
            header.set_sensitive(true);
            Ok::<_, axum::http::header::InvalidHeaderValue>(header)
        });
        let bearer = bearer.transpose().map_err(|error| error.to_string())?;
        Self::new(url, Identity::Token(bearer), timeout)
    }

    fn new(url: Url, identity: Identity, timeout: Duration) -> Result<Self, String> {
        tls::choose_provider();
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            // A redirect would carry the message, and the token, to somebody whom nobody has named.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| chain(&error))?;
        Ok(Self {
            http,
            url,
            identity,
        })
    }

    /// Sends it once.
    pub(crate) async fn send(&self, delivery: &Delivery) -> Result<(), Failure> {
        let mut request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(DELIVERY, &delivery.id)
            .body(delivery.body.clone());
        match &self.identity {
            Identity::Signature(mac) => {
                let timestamp = Timestamp::now().as_second();
                request = request
                    .header(TIMESTAMP, timestamp)
                    .header(SIGNATURE, sign(mac, timestamp, &delivery.body));
            }
            Identity::Token(Some(bearer)) => request = request.header(AUTHORIZATION, bearer),
            Identity::Token(None) => {}
        }
        // The address may be a secret.
        let again = |error: reqwest::Error| Failure::Again {
            error: chain(&error.without_url()),
            after: None,
        };
        let response = request.send().await.map_err(again)?;
        let status = response.status();
        let after = retry_after(response.headers());
        let answer = read(response).await;
        if !status.is_success() {
            return Err(refused(status, after));
        }
        match &self.identity {
            // It has said yes: whatever else it says does not matter.
            Identity::Signature(_) => Ok(()),
            Identity::Token(_) => result(&answer.map_err(again)?),
        }
    }
}

/// `v1=` and the HMAC-SHA256 of the timestamp, a dot and the body.
fn sign(mac: &Hmac<Sha256>, timestamp: i64, body: &[u8]) -> String {
    let mut mac = mac.clone();
    mac.update(timestamp.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut signature = "v1=".to_owned();
    for byte in mac.finalize().into_bytes() {
        let _ = write!(signature, "{byte:02x}");
    }
    signature
}

fn refused(status: StatusCode, after: Option<Duration>) -> Failure {
    let error = format!("the answer is {status}");
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    if status.is_client_error() && !passes.contains(&status) {
        return Failure::Final(error);
    }
    Failure::Again { error, after }
}

/// In seconds, or as a time.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    let until = parser.parse_timestamp(text).ok()?;
    Duration::try_from(until.duration_since(Timestamp::now())).ok()
}

/// The beginning of an answer.
async fn read(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        answer.extend_from_slice(&chunk);
        if answer.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    Ok(answer)
}

/// What a peer made of it.
fn result(answer: &[u8]) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<IgnoredAny>,
        error: Option<RpcFailure>,
    }
    if answer.len() > MAX_ANSWER_BYTES {
        let error = format!("the peer answers more than {MAX_ANSWER_BYTES} bytes");
        return Err(Failure::Final(error));
    }
    let not_rpc = |error: String| Failure::Again {
        error: format!("the peer does not speak JSON-RPC: {error}"),
        after: None,
    };
    match serde_json::from_slice(answer).map_err(|error| not_rpc(error.to_string()))? {
        Answer {
            error: Some(error), ..
        } => {
            let text = error.to_string();
            if WRONG_CALL.contains(&error.code) {
                return Err(Failure::Final(text));
            }
            let after = error.data["retryAfterMs"].as_u64();
            Err(Failure::Again {
                error: text,
                after: after.map(Duration::from_millis),
            })
        }
        Answer {
            result: Some(_), ..
        } => Ok(()),
        _ => Err(not_rpc("neither `result` nor `error`".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python's `hmac` says so too.
    #[test]
    fn what_is_signed_is_the_time_a_dot_and_the_body() {
        let mac = Hmac::new_from_slice(b"0123456789abcdef").unwrap();
        assert_eq!(
            sign(&mac, 1_700_000_000, b"{}"),
            "v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
        );
    }

    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_not() {
        let again = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            matches!(refused(status, None), Failure::Again { .. })
        };
        assert!([302, 408, 429, 500, 503].into_iter().all(again));
        assert!(![400, 401, 404, 410, 422].into_iter().any(again));
        for (answer, expected) in [
            (r#"{"result": {"received": true}}"#, Ok(())),
            (r#"{"error": {"code": -32602, "message": "m"}}"#, Err(false)),
            (r#"{"error": {"code": -32603, "message": "m"}}"#, Err(true)),
            (r#"{"error": {"code": -32002, "message": "m"}}"#, Err(true)),
            ("<html>", Err(true)),
            ("{}", Err(true)),
        ] {
            let found = result(answer.as_bytes());
            let found = found.map_err(|failure| matches!(failure, Failure::Again { .. }));
            assert_eq!(found, expected, "{answer}");
        }
        assert!(result(&vec![b' '; MAX_ANSWER_BYTES + 1]).is_err());
    }

    #[test]
    fn targets_say_how_long_to_wait_in_seconds_or_by_the_clock() {
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        let date = "Tue, 31 Dec 2999 23:00:00 GMT";
        assert!(wait(date).unwrap() > Duration::from_hours(1));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), None);
        assert_eq!(wait("soon"), None);
    }
}
