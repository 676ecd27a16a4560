//! Batches in the evidence log.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use portcullis_core::a2a::{ConvertError, ErrorKind, Sealed};
use portcullis_core::evidence::{Body, Link, Redactor};
use portcullis_store::evidence::{AppendError, EvidenceLog, OpenError, Options};
use tokio::runtime::Runtime;

use super::problem::Problem;
use super::stream::Answers;
use crate::cli::Format;
use crate::commands::runtime;
use crate::output::Failure;

/// How many entries wait for the disk together. The log takes 8,192, and 64 MiB.
const ROUND_ENTRIES: usize = 2048;
const ROUND_BYTES: usize = 16 << 20;

/// How long the last checkpoint may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// A batch whose answer must wait until the log has it.
#[derive(Debug)]
pub(super) struct Unrecorded {
    /// Of the packet, for errors.
    pub(super) line: Option<u64>,
    /// Where its answer is.
    pub(super) answer: Range<usize>,
    pub(super) body: Body,
}

/// A batch that the log did not take.
pub(super) struct NotTaken {
    line: Option<u64>,
    answer: Range<usize>,
    /// What is answered instead.
    pub(super) problem: Problem,
}

/// Makes entries of batches.
pub(super) struct Notary(Redactor);

impl Notary {
    pub(super) fn new() -> Result<Self, Problem> {
        let redactor = Redactor::new().map_err(|error| {
            let message = format!("cannot look for secrets: {error}");
            Problem::new(ErrorKind::Infrastructure, message)
        })?;
        Ok(Self(redactor))
    }

    /// The entry that keeps a batch, without secrets.
    pub(super) fn entry(&self, sealed: &Sealed, at: Timestamp) -> Result<Body, Problem> {
        let mut entry = sealed.entry()?;
        let timestamp = Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at);
        let made = [
            ("timestamp", timestamp.to_string()),
            ("requesting_agent", "cli".to_owned()),
        ];
        for (name, value) in made {
            entry.made.insert(name.to_owned(), value.into());
        }
        let body = Body::of(&entry.made, &entry.told, &self.0);
        body.map_err(|error| ConvertError::from(error).into())
    }
}

/// Writes the log.
pub(super) struct Recorder {
    log: EvidenceLog,
    runtime: Runtime,
}

impl Recorder {
    /// Opens the log, or begins one.
    pub(super) fn open(folder: &Path) -> Result<Result<Self, Problem>, Failure> {
        let runtime = runtime()?;
        let opened = EvidenceLog::open(Options::new(folder));
        Ok(match opened {
            Ok((log, _)) => Ok(Self { log, runtime }),
            Err(error) => {
                let message = match error {
                    OpenError::Locked { directory } => format!(
                        "the evidence log {} is written by another process: if that is `portcullis serve`, send it the \
                         packets (POST /v1/a2a/convert); otherwise stop it, or give --record another folder",
                        directory.display()
                    ),
                    error => format!("the evidence log cannot be opened: {error}"),
                };
                Err(Problem::new(ErrorKind::Infrastructure, message))
            }
        })
    }

    /// Waits until the log has the batches of these answers. Where it does not take one, an error is the answer.
    pub(super) fn record(&self, answers: &mut Answers, format: Format) {
        let failed = self.append(answers);
        if failed.is_empty() {
            return;
        }
        let mut out = Vec::with_capacity(answers.out.len());
        let mut kept = 0;
        for NotTaken {
            line,
            answer,
            problem,
        } in failed
        {
            out.extend_from_slice(&answers.out[kept..answer.start]);
            problem.write(line, format, &mut out);
            kept = answer.end;
            answers.tally.refuse(problem.answer());
        }
        out.extend_from_slice(&answers.out[kept..]);
        answers.out = out;
    }

    /// Appends what is unrecorded. Gives back what was not taken.
    pub(super) fn append(&self, answers: &mut Answers) -> Vec<NotTaken> {
        let mut failed = Vec::new();
        let mut unrecorded = answers.unrecorded.drain(..).peekable();
        while unrecorded.peek().is_some() {
            let (mut places, mut bodies, mut bytes) = (Vec::new(), Vec::new(), 0);
            while let Some(next) = unrecorded.next_if(|next| {
                bodies.is_empty()
                    || (bodies.len() < ROUND_ENTRIES && bytes + next.body.len() <= ROUND_BYTES)
            }) {
                bytes += next.body.len();
                places.push((next.line, next.answer));
                bodies.push(next.body);
            }
            let outcomes = self.runtime.block_on(append_all(&self.log, bodies));
            for ((line, answer), outcome) in places.into_iter().zip(outcomes) {
                if let Err(error) = outcome {
                    let problem = Problem::new(ErrorKind::Infrastructure, error.to_string());
                    failed.push(NotTaken {
                        line,
                        answer,
                        problem,
                    });
                }
            }
        }
        failed
    }

    /// Signs how far the log has got.
    pub(super) fn close(self) -> Result<(), Failure> {
        let closed = self.log.close(CLOSE_WITHIN);
        closed.map_err(|error| Failure::Unavailable(anyhow!(error)))
    }
}

/// Puts all of them in the queue before it waits for any, so that they share an `fsync`.
async fn append_all(log: &EvidenceLog, bodies: Vec<Body>) -> Vec<Result<Link, AppendError>> {
    type Append<'l> = Pin<Box<dyn Future<Output = Result<Link, AppendError>> + 'l>>;
    enum State<'l> {
        Waiting(Append<'l>),
        Done(Result<Link, AppendError>),
    }
    let appends = bodies.into_iter();
    let mut states: Vec<_> = appends
        .map(|body| State::Waiting(Box::pin(log.append(body))))
        .collect();
    poll_fn(|context| {
        for state in &mut states {
            if let State::Waiting(append) = state
                && let Poll::Ready(outcome) = append.as_mut().poll(context)
            {
                *state = State::Done(outcome);
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut outcomes = Vec::with_capacity(states.len());
    for state in states {
        outcomes.push(match state {
            State::Waiting(append) => append.await,
            State::Done(outcome) => outcome,
        });
    }
    outcomes
}
