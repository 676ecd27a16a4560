//! Embeddings from a server that speaks `OpenAI`'s protocol: `POST {base_url}/embeddings`.

use std::error::Error;
use std::fmt;
use std::io::Read;
use std::thread;
use std::time::Duration;

use portcullis_core::memory::{EmbedError, Embedder};
use reqwest::blocking::{Client, Response};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::vector::make_unit;

/// How long to wait before the second try, where the server does not say.
const USUAL_WAIT: Duration = Duration::from_millis(500);
/// However long a server asks us to wait, a caller has something to do.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// No model gives longer vectors.
const LARGEST_DIMENSION: usize = 16 * 1024;
/// What a number takes in JSON, generously.
const BYTES_A_NUMBER: usize = 32;
/// What an answer may have besides its vectors.
const BYTES_BESIDES: usize = 64 * 1024;
/// How much of a server's complaint is passed on.
const LONGEST_COMPLAINT: usize = 300;

/// Where to ask, for which model, and how patiently.
#[derive(Clone)]
pub struct HttpSettings {
    /// Such as `https://api.example.org/v1`.
    pub base_url: String,
    /// As the server calls it.
    pub model: String,
    /// Sent as a bearer token. It is in no error and in no debugging output.
    pub api_key: Option<String>,
    /// How many numbers a vector has; asked for by one call if left out.
    pub dimension: Option<usize>,
    /// How long one try may take.
    pub timeout: Duration,
    /// How many texts a request carries.
    pub batch: usize,
}

impl HttpSettings {
    /// Without a key, 10 seconds a try and 64 texts a request.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            dimension: None,
            timeout: Duration::from_secs(10),
            batch: 64,
        }
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("dimension", &self.dimension)
            .field("timeout", &self.timeout)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// Asks a server for vectors.
///
/// A call blocks: for at most twice the timeout and the wait between, for each batch. Under an async runtime it
/// belongs on a thread for blocking work. On another it holds up the runtime, but it does not panic.
pub struct HttpEmbedder {
    name: String,
    dimension: usize,
    server: Server,
}

impl HttpEmbedder {
    /// Checks the settings; where they leave the dimension out, asks the server for one vector.
    pub fn connect(settings: HttpSettings) -> Result<Self, EmbedError> {
        let (model, dimension) = (settings.model.clone(), settings.dimension);
        let fail = |why: String| EmbedError {
            model: model.clone(),
            why,
        };
        let server = Server::new(settings).map_err(fail)?;
        let dimension = match dimension {
            Some(dimension) => dimension,
            None => server
                .ask(&["dimension"], None)
                .map_err(fail)?
                .first()
                .map_or(0, Vec::len),
        };
        if !(1..=LARGEST_DIMENSION).contains(&dimension) {
            return Err(fail(format!(
                "vectors have {dimension} numbers: 1 to {LARGEST_DIMENSION} are understood"
            )));
        }
        Ok(Self {
            // Two servers may call different models the same.
            name: format!("{model}@{}/{dimension}", server.host),
            dimension,
            server,
        })
    }
}

impl fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEmbedder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Embedder for HttpEmbedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.server.batch) {
            let answer = self.server.ask(batch, Some(self.dimension));
            vectors.extend(answer.map_err(|why| EmbedError {
                model: self.name.clone(),
                why,
            })?);
        }
        Ok(vectors)
    }
}

struct Server {
    client: Client,
    endpoint: Url,
    /// With its port.
    host: String,
    model: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    batch: usize,
}

/// What came of one try.
enum Attempt {
    /// Trying again would not help.
    Final(String),
    /// It might, after this long.
    Again(String, Duration),
}

impl Server {
    fn new(settings: HttpSettings) -> Result<Self, String> {
        let authorization = settings.api_key.as_deref().map(authorization).transpose()?;
        let endpoint = endpoint(&settings.base_url)?;
        let port = endpoint.port().map(|port| format!(":{port}"));
        let host = endpoint.host_str().unwrap_or_default();
        let host = format!("{host}{}", port.unwrap_or_default());
        // An error means that somebody has chosen before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = apart(|| {
            Client::builder()
                // A redirect would carry the texts to somebody else.
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .build()
                .map_err(|error| chain(&error))
        })?;
        Ok(Self {
            client,
            endpoint,
            host,
            model: settings.model,
            authorization,
            timeout: settings.timeout,
            batch: settings.batch.max(1),
        })
    }

    /// Vectors of length one for some texts; at most two tries.
    fn ask(&self, texts: &[&str], dimension: Option<usize>) -> Result<Vec<Vec<f32>>, String> {
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
        let body = body.to_string();
        let most = BYTES_BESIDES
            + texts.len() * dimension.unwrap_or(LARGEST_DIMENSION).max(32) * BYTES_A_NUMBER;
        apart(|| {
            let bytes = match self.once(body.clone(), most) {
                Ok(bytes) => bytes,
                Err(Attempt::Final(why)) => return Err(why),
                Err(Attempt::Again(why, wait)) if wait > LONGEST_WAIT => {
                    return Err(format!("{why}; it asks to wait for {} s", wait.as_secs()));
                }
                Err(Attempt::Again(_, wait)) => {
                    thread::sleep(wait);
                    self.once(body.clone(), most)
                        .map_err(|attempt| match attempt {
                            Attempt::Final(why) => why,
                            Attempt::Again(why, _) => format!("{why}, twice"),
                        })?
                }
            };
            vectors(&bytes, texts.len(), dimension)
        })
    }

    fn once(&self, body: String, most: usize) -> Result<Vec<u8>, Attempt> {
        let mut request = self
            .client
            .post(self.endpoint.clone())
            .header(CONTENT_TYPE, "application/json")
            // Set here it holds for the answer's body too, however slowly that comes.
            .timeout(self.timeout)
            .body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let unreachable = |error: &dyn Error| {
            Attempt::Final(format!("no answer from {}: {}", self.host, chain(error)))
        };
        let response = request
            .send()
            .map_err(|error| unreachable(&error.without_url()))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(self.refused(response));
        }
        let mut bytes = Vec::new();
        let mut limited = response.take(most as u64 + 1);
        limited
            .read_to_end(&mut bytes)
            .map_err(|error| unreachable(&error))?;
        if bytes.len() > most {
            return Err(Attempt::Final(format!(
                "the answer has more than {most} bytes"
            )));
        }
        Ok(bytes)
    }

    fn refused(&self, response: Response) -> Attempt {
        let status = response.status();
        let wait = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|wait| wait.to_str().ok()?.parse().ok())
            .map_or(USUAL_WAIT, Duration::from_secs);
        let mut bytes = Vec::new();
        // A complaint that breaks off says as much as it says.
        let _ = response.take(BYTES_BESIDES as u64).read_to_end(&mut bytes);
        let why = format!("{} answers {status}: {}", self.host, self.complaint(&bytes));
        match status {
            StatusCode::TOO_MANY_REQUESTS => Attempt::Again(why, wait),
            _ if status.is_server_error() => Attempt::Again(why, wait),
            _ => Attempt::Final(why),
        }
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
        let key = self
            .authorization
            .as_ref()
            .and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        let message = match key {
            Some(key) if !key.is_empty() => message.replace(key, "[key]"),
            _ => message.to_owned(),
        };
        let line: String = message
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_COMPLAINT)
            .collect();
        if line.trim().is_empty() {
            return "no reason given".to_owned();
        }
        line.trim().to_owned()
    }
}

/// Runs a closure on a thread of its own: `reqwest`'s blocking client panics on one that drives a runtime. A
/// thread costs microseconds, and the request milliseconds.
fn apart<T: Send>(run: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name("embedding".to_owned())
            .spawn_scoped(scope, run)
            .map_err(|error| format!("there is no thread for the request: {error}"))?;
        handle
            .join()
            .unwrap_or_else(|_| Err("the request panicked".to_owned()))
    })
}

fn authorization(key: &str) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| "the API key has characters that a header cannot carry".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

fn endpoint(base: &str) -> Result<Url, String> {
    let example = "write it as https://api.example.org/v1";
    let url = format!("{}/embeddings", base.trim_end_matches('/'));
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

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

/// The vectors in an answer, in the order of the texts.
fn vectors(bytes: &[u8], count: usize, dimension: Option<usize>) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|error| format!("the answer is not one of embeddings: {error}"))?;
    if answer.data.len() != count {
        let found = answer.data.len();
        return Err(format!("the answer has {found} vectors for {count} texts"));
    }
    let mut vectors = vec![Vec::new(); count];
    let dimension = dimension
        .or(answer.data.first().map(|item| item.embedding.len()))
        .unwrap_or_default();
    for Item {
        index,
        mut embedding,
    } in answer.data
    {
        let Some(place) = vectors.get_mut(index).filter(|place| place.is_empty()) else {
            return Err(format!(
                "the answer has index {index} twice, or without a text"
            ));
        };
        if embedding.len() != dimension || dimension == 0 {
            let found = embedding.len();
            return Err(format!(
                "a vector has {found} numbers instead of {dimension}"
            ));
        }
        if !embedding.iter().all(|number| number.is_finite()) {
            return Err("a vector has a number that is not finite".to_owned());
        }
        make_unit(&mut embedding);
        *place = embedding;
    }
    Ok(vectors)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base_urls_are_of_http_and_hold_no_secrets() {
        for (base, expected) in [
            (
                "https://a.example/v1/",
                Some("https://a.example/v1/embeddings"),
            ),
            ("http://127.0.0.1:9", Some("http://127.0.0.1:9/embeddings")),
            ("a.example", None),
            ("ftp://a.example", None),
            ("https://user:hunter2@a.example", None),
            ("https://a.example?key=hunter2", None),
        ] {
            match (endpoint(base), expected) {
                (Ok(url), Some(expected)) => assert_eq!(url.as_str(), expected),
                (Err(error), None) => assert!(!error.contains("hunter2"), "{error}"),
                (found, _) => panic!("{base}: {found:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_vectors_or_an_error(
            bytes: Vec<u8>, count in 0_usize..4, dimension in prop::option::of(0_usize..4),
            items in prop::collection::vec((0_usize..4, prop::collection::vec(any::<f64>(), 0..4)), 0..4),
        ) {
            let _ = vectors(&bytes, count, dimension);
            let items: Vec<_> = items
                .into_iter()
                .map(|(index, embedding)| json!({"index": index, "embedding": embedding}))
                .collect();
            let answer = json!({"data": items}).to_string();
            if let Ok(vectors) = vectors(answer.as_bytes(), count, dimension) {
                prop_assert_eq!(vectors.len(), count);
                for vector in &vectors {
                    prop_assert_eq!(vector.len(), vectors[0].len());
                }
            }
        }
    }
}
