//! The requests of a gateway on their way out: those from the desk, and those that a lost connection had.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, sleep_until};

use super::wire;
use crate::deep::{DeepRequest, DeepResponse};
use crate::inbox::SubmitError;
use crate::inbox::remote::Link;

/// How many connections may break under one request. One that takes the sidecar down with it is not sent for ever.
const BREAKS: u32 = 3;

/// How long after a suspect the next one waits. What takes a sidecar down mostly does so at once.
const ALONE: Duration = Duration::from_millis(100);

/// What gRPC servers read unless they are told otherwise.
const GRPC_DEFAULT_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Requests {
    /// To be sent before any new one.
    again: VecDeque<DeepRequest>,
    /// Those whose next break is the last. Sent one after the other, so that of many only the one to blame is refused: the one
    /// after which the connection broke.
    suspects: VecDeque<DeepRequest>,
    /// The suspect that was sent last, and when, if it has not come back.
    alone: Option<(String, Instant)>,
    /// How many connections broke under those that were outstanding when the last one began.
    breaks: HashMap<String, u32>,
    /// Whether the last one broke, and which suspect had just been sent then.
    broken: bool,
    blamed: Option<String>,
    /// The largest message of this side, and of both.
    near_limit: usize,
    limit: usize,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            again: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: None,
            breaks: HashMap::new(),
            broken: false,
            blamed: None,
            near_limit: limit,
            limit,
        }
    }

    /// What the sidecar says about the largest message.
    pub(super) fn far_limit(&mut self, said: u64) {
        let far = match usize::try_from(said) {
            Ok(0) => GRPC_DEFAULT_BYTES,
            Ok(bytes) => bytes,
            Err(_) => usize::MAX,
        };
        self.limit = self.near_limit.min(far);
    }

    /// The connection broke.
    pub(super) fn broke(&mut self) {
        self.broken = true;
        let alone = self.alone.take();
        self.blamed = alone.and_then(|(id, since)| (since.elapsed() < ALONE).then_some(id));
    }

    /// The connection is lost because of this request alone.
    pub(super) fn broke_under(&mut self, correlation_id: &str) {
        *self.breaks.entry(correlation_id.to_owned()).or_default() += 1;
    }

    /// A connection begins: what is outstanding goes out first.
    pub(super) fn send_again(&mut self, link: &mut Link) {
        let more = u32::from(std::mem::take(&mut self.broken));
        let mut before = std::mem::take(&mut self.breaks);
        let blamed = std::mem::take(&mut self.blamed);
        let unsent = self.again.drain(..).chain(self.suspects.drain(..));
        let unsent: HashSet<String> = unsent.map(|request| request.correlation_id).collect();
        let mut outstanding = link.outstanding();
        outstanding.retain(|request| {
            let id = &request.correlation_id;
            let breaks = before.remove(id).unwrap_or_default();
            let is_spared = breaks + 1 >= BREAKS && blamed.as_ref().is_some_and(|one| one != id);
            let breaks = if unsent.contains(id) || is_spared {
                breaks
            } else {
                breaks + more
            };
            if breaks >= BREAKS {
                let why = format!("the connection broke {BREAKS} times while the sidecar had it");
                link.refused(id, &SubmitError::Unavailable(why));
                return false;
            }
            self.breaks.insert(id.clone(), breaks);
            true
        });
        self.line_up(outstanding);
    }

    /// Nothing that went out over this connection has been taken.
    pub(super) fn start_over(&mut self, link: &mut Link) {
        self.line_up(link.outstanding());
    }

    /// Those that may go out over this connection, the suspects apart.
    fn line_up(&mut self, outstanding: Vec<DeepRequest>) {
        self.alone = None;
        self.again.clear();
        self.suspects.clear();
        for request in outstanding {
            match self.breaks.get(&request.correlation_id) {
                Some(breaks) if breaks + 1 >= BREAKS => self.suspects.push_back(request),
                _ => self.again.push_back(request),
            }
        }
    }

    /// The next one; none once the inbox is gone.
    pub(super) async fn next(&mut self, link: &mut Link) -> Option<DeepRequest> {
        if let Some(request) = self.again.pop_front() {
            return Some(request);
        }
        if self.suspects.is_empty() {
            return link.next().await;
        }
        let next = match &self.alone {
            Some((_, since)) => *since + ALONE,
            None => Instant::now(),
        };
        tokio::select! {
            request = link.next() => request,
            () = sleep_until(next) => {
                let suspect = self.suspects.pop_front()?;
                self.alone = Some((suspect.correlation_id.clone(), Instant::now()));
                Some(suspect)
            }
        }
    }

    /// The sidecar is done with a request.
    pub(super) fn came_back(&mut self, correlation_id: &str) {
        self.alone.take_if(|(id, _)| id == correlation_id);
    }

    /// Hands in what the sidecar said.
    pub(super) fn deliver(&mut self, link: &Link, response: wire::EvaluateResponse) {
        self.came_back(&response.correlation_id);
        if response.overloaded {
            let why = "too much is under way in the sidecar".to_owned();
            link.refused(&response.correlation_id, &SubmitError::Unavailable(why));
        } else {
            link.answered(DeepResponse::from(response));
        }
    }

    /// The request as a message. What cannot be sent is refused, and takes nothing else with it.
    pub(super) fn message(
        &self,
        link: &Link,
        request: &DeepRequest,
    ) -> Option<wire::EvaluateRequest> {
        let refused = |why: String| {
            link.refused(&request.correlation_id, &SubmitError::Unavailable(why));
        };
        match wire::EvaluateRequest::asking(request, link.evaluation_limit()) {
            Ok(message) => {
                let bytes = message.encoded_len();
                if bytes <= self.limit {
                    return Some(message);
                }
                let limit = self.limit;
                refused(format!(
                    "the request has {bytes} bytes, and {limit} may be sent"
                ));
            }
            Err(error) => refused(format!("the request cannot be written: {error}")),
        }
        None
    }
}
