//! `POST /v1/a2a/convert` and `POST /v1/a2a/import`: what agents tell each other, converted by core and recorded.
//!
//! Both take one payload as JSON, or one a line. Nothing is answered as a batch before it is in the evidence log.

pub(crate) mod counts;
mod failure;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use portcullis_core::a2a::{self, Adapter, ErrorKind, ImportOptions, Input, LossinessLevel, Mode};
use portcullis_core::evidence::{Body, Redactor};

use self::failure::Failure;
use crate::app::{App, Entry, now};
use crate::auth::AgentId;
use crate::http::{self, ReadError, RequestId, Seat, json_bytes, problem};
use crate::method::Operation;
use crate::metrics::CallOutcome;

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// How many lines a body may have, and how many packets they may make before the rest is refused: an answer is longer than
/// what it answers, and all of it waits for the log.
const MAX_LINES: usize = 10_000;
/// How much is converted, and then waits for the log, at a time.
const ROUND_ENTRIES: usize = 256;
const ROUND_BYTES: usize = 256 << 10;

/// `POST /v1/a2a/convert`
pub(crate) async fn convert(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, Operation::A2aConvert, request).await
}

/// `POST /v1/a2a/import`
pub(crate) async fn import(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, Operation::A2aImport, request).await
}

async fn answer(app: Arc<App>, operation: Operation, request: Request) -> Response {
    let headers = request.headers();
    let agent = match http::caller(&app, headers) {
        Ok(agent) => agent,
        Err(error) => return http::unauthorized(error),
    };
    let Some(form) = Form::of(headers) else {
        return problem(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send JSON with `Content-Type: application/json`, or a line each with `application/x-ndjson`",
        );
    };
    let started = Instant::now();
    if let Err(wait) = app.limiter.take(&agent, operation).await {
        let outcome = CallOutcome::RateLimited;
        app.metrics
            .called(Some(operation), outcome, started.elapsed());
        return too_often(operation, wait);
    }
    let seat = Seat::of(&request);
    let request_id = RequestId::of_request(&request);
    let ask = Ask::of(operation, request.uri());
    let body = match http::read(&app, request).await {
        Ok(body) => Ok(body),
        Err(error @ ReadError::TooLong { .. }) => Err(Failure::too_long(error.to_string())),
        Err(error) => {
            app.metrics
                .called(Some(operation), CallOutcome::Invalid, started.elapsed());
            return error.response();
        }
    };
    let started = Instant::now();
    let work = async move {
        let answer = match (ask, body) {
            (Ok(ask), Ok(body)) => {
                let work = Work {
                    app: &app,
                    agent: &agent,
                    request_id: &request_id,
                    ask: &ask,
                };
                work.answer(form, &body).await
            }
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        };
        let outcome = match &answer {
            Ok(_) => CallOutcome::Answered,
            Err(failure) => {
                app.metrics.a2a.refused(failure.kind());
                outcome(failure.kind())
            }
        };
        app.metrics
            .called(Some(operation), outcome, started.elapsed());
        answer
    };
    match http::to_the_end(seat, work).await {
        Ok(Ok(answer)) => form.response(answer),
        Ok(Err(failure)) => failure.response(),
        Err(response) => response,
    }
}

const fn outcome(kind: ErrorKind) -> CallOutcome {
    match kind {
        ErrorKind::Infrastructure => CallOutcome::Failed,
        ErrorKind::Measurement
        | ErrorKind::UnsupportedProtocolVersion
        | ErrorKind::StrictLossinessViolation
        | ErrorKind::Config => CallOutcome::Invalid,
    }
}

fn too_often(operation: Operation, wait: Duration) -> Response {
    let detail = format!(
        "too many calls of `{}` (`rate_limits`): see Retry-After",
        operation.name()
    );
    let mut response = problem(StatusCode::TOO_MANY_REQUESTS, &detail);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, http::seconds(wait));
    response
}

/// What a body is.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// One payload.
    Json,
    /// One a line.
    Lines,
}

impl Form {
    fn of(headers: &HeaderMap) -> Option<Self> {
        if http::is_of_type(headers, JSON) {
            Some(Self::Json)
        } else if http::is_of_type(headers, NDJSON) {
            Some(Self::Lines)
        } else {
            None
        }
    }

    fn response(self, answer: Vec<u8>) -> Response {
        let mut response = json_bytes(StatusCode::OK, answer);
        if let Self::Lines = self {
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
        }
        response
    }
}

/// What the parameters ask for.
#[derive(Debug)]
struct Ask {
    operation: Operation,
    mode: Mode,
    /// Of packets that do not say.
    protocol_version: Option<String>,
    /// Whose doing traffic is that does not say.
    agent: Option<String>,
}

impl Ask {
    fn of(operation: Operation, uri: &Uri) -> Result<Self, Failure> {
        let mut mode = None;
        let mut protocol_version = None;
        let mut agent = None;
        for (name, value) in http::parameters(uri).map_err(Failure::config)? {
            let place = match (&*name, operation) {
                ("mode", _) => &mut mode,
                ("protocol_version", Operation::A2aConvert) => &mut protocol_version,
                ("agent", Operation::A2aImport) => &mut agent,
                _ => {
                    let name: String = name.chars().take(64).collect();
                    let known = match operation {
                        Operation::A2aImport => "`mode` and `agent`",
                        _ => "`mode` and `protocol_version`",
                    };
                    let message = format!("unknown parameter `{name}`: there are {known}");
                    return Err(Failure::config(message));
                }
            };
            if place.replace(value).is_some() {
                return Err(Failure::config(format!("`{name}` is there twice")));
            }
        }
        let mode = mode.map_or(Ok(Mode::default()), |mode| mode.parse::<Mode>());
        Ok(Self {
            operation,
            mode: mode?,
            protocol_version,
            agent,
        })
    }
}

/// A request under way.
struct Work<'w> {
    app: &'w App,
    agent: &'w AgentId,
    request_id: &'w RequestId,
    ask: &'w Ask,
}

/// What is left to do for a payload: its batches go into the log, and then its answer leaves.
struct Prepared {
    bodies: Vec<Body>,
    levels: Vec<LossinessLevel>,
    answer: Vec<u8>,
}

impl Work<'_> {
    async fn answer(&self, form: Form, body: &Bytes) -> Result<Vec<u8>, Failure> {
        let redactor = self.app.redactor().await?;
        match form {
            Form::Json => {
                let prepare = || self.prepare(body, redactor);
                let prepared = self.off_the_workers(body.len(), prepare)?;
                self.record(prepared.bodies, &prepared.levels).await?;
                Ok(prepared.answer)
            }
            Form::Lines => self.answer_lines(body, redactor).await,
        }
    }

    async fn answer_lines(&self, body: &[u8], redactor: &Redactor) -> Result<Vec<u8>, Failure> {
        let lines = lines(body)?;
        let mut answer = Vec::new();
        let mut made = 0;
        let mut rest = &lines[..];
        while !rest.is_empty() {
            let (round, later) = rest.split_at(round(rest));
            rest = later;
            let bytes = round.iter().map(|(_, line)| line.len()).sum();
            let prepare = || self.prepare_lines(round, made, redactor, &mut answer);
            let (bodies, levels) = self.off_the_workers(bytes, prepare);
            made += bodies.len();
            self.record(bodies, &levels).await?;
        }
        Ok(answer)
    }

    /// Appends what is answered to some lines, and gives what has to be recorded before. `made` packets came before them.
    fn prepare_lines(
        &self,
        lines: &[(usize, &[u8])],
        made: usize,
        redactor: &Redactor,
        answer: &mut Vec<u8>,
    ) -> (Vec<Body>, Vec<LossinessLevel>) {
        let (mut bodies, mut levels) = (Vec::new(), Vec::new());
        for (number, line) in lines {
            let prepared = if made + bodies.len() < MAX_LINES {
                self.prepare(line, redactor)
            } else {
                Err(Failure::too_long(format!(
                    "the lines before it made {MAX_LINES} packets: send the rest in another body"
                )))
            };
            match prepared {
                Ok(mut prepared) => {
                    bodies.append(&mut prepared.bodies);
                    levels.append(&mut prepared.levels);
                    answer.append(&mut prepared.answer);
                }
                Err(failure) => {
                    self.app.metrics.a2a.refused(failure.kind());
                    failure.write_line(*number, answer);
                }
            }
            answer.push(b'\n');
        }
        (bodies, levels)
    }

    fn prepare(&self, payload: &[u8], redactor: &Redactor) -> Result<Prepared, Failure> {
        let limits = self.app.settings.a2a;
        let adapter = Adapter::with_limits(self.ask.mode, limits);
        let mut prepared = Prepared {
            bodies: Vec::new(),
            levels: Vec::new(),
            answer: Vec::with_capacity(2048),
        };
        if self.ask.operation != Operation::A2aImport {
            let input = Input {
                protocol_version: self.ask.protocol_version.as_deref(),
                ..Input::json(payload)
            };
            self.prepare_packet(&adapter, input, redactor, &mut prepared)?;
            return Ok(prepared);
        }
        let agent = self.ask.agent.as_deref();
        let agent = Some(agent.unwrap_or(self.agent.as_str()));
        let packets = a2a::import(payload, &ImportOptions { agent, limits })?;
        prepared.answer.extend_from_slice(br#"{"batches":["#);
        for packet in &packets {
            let packet =
                serde_json::to_vec(packet).map_err(|error| Failure::infrastructure(&error))?;
            if !prepared.bodies.is_empty() {
                prepared.answer.push(b',');
            }
            self.prepare_packet(&adapter, Input::json(&packet), redactor, &mut prepared)?;
        }
        prepared.answer.extend_from_slice(b"]}");
        Ok(prepared)
    }

    fn prepare_packet(
        &self,
        adapter: &Adapter,
        input: Input<'_>,
        redactor: &Redactor,
        prepared: &mut Prepared,
    ) -> Result<(), Failure> {
        let batch = adapter.convert(input)?;
        let sealed = batch.seal();
        let mut entry = Entry::from(sealed.entry()?);
        entry.made("timestamp", now());
        entry.made("requesting_agent", self.agent.as_str());
        self.request_id.note(&mut entry);
        let body = entry.body(redactor)?;
        prepared.bodies.push(body);
        prepared.levels.push(batch.lossiness.lossiness_level);
        sealed.write_answer(&mut prepared.answer);
        Ok(())
    }

    /// Converts where it cannot hold up the rest, if there is much of it.
    fn off_the_workers<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        // A few bytes of traffic can make a packet of many.
        let weight = match self.ask.operation {
            Operation::A2aImport => bytes.saturating_mul(32),
            _ => bytes,
        };
        if weight <= http::LARGE {
            return work();
        }
        tokio::task::block_in_place(work)
    }

    /// Together, so that one write to the log carries many; not all at once, so that others find room in its queue.
    async fn record(&self, bodies: Vec<Body>, levels: &[LossinessLevel]) -> Result<(), Failure> {
        let mut bodies = bodies.into_iter();
        for levels in levels.chunks(ROUND_ENTRIES) {
            let started = Instant::now();
            let round = bodies.by_ref().take(levels.len());
            let appended = join_all(round.map(|body| self.app.append(body, started))).await;
            let mut failed = None;
            for (appended, level) in appended.into_iter().zip(levels) {
                match appended {
                    Ok(_) => self.app.metrics.a2a.recorded(self.ask.mode, *level),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// The lines that say something, with their numbers from 1, cut as the command line cuts them.
fn lines(body: &[u8]) -> Result<Vec<(usize, &[u8])>, Failure> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = (1..).zip(lines);
    let lines = lines.filter(|(_, line)| !line.trim_ascii_start().is_empty());
    let lines: Vec<_> = lines.take(MAX_LINES + 1).collect();
    if lines.len() > MAX_LINES {
        let message = format!("the body has more than {MAX_LINES} lines: send it in parts");
        return Err(Failure::too_long(message));
    }
    Ok(lines)
}

/// How many of these lines are dealt with next; at least one.
fn round(lines: &[(usize, &[u8])]) -> usize {
    let mut bytes = 0;
    let fits = lines.iter().take(ROUND_ENTRIES).take_while(|(_, line)| {
        bytes += line.len();
        bytes <= ROUND_BYTES
    });
    fits.count().clamp(1, lines.len().max(1))
}
