//! The requests of a gateway on their way out: those from the desk, and those that a lost connection had.

use std::collections::{HashMap, VecDeque};

use prost::Message;

use super::wire;
use crate::deep::{DeepRequest, DeepResponse};
use crate::inbox::SubmitError;
use crate::inbox::remote::Link;

/// How many connections may break under one request. One that takes the sidecar down with it is not sent for ever.
const BREAKS: u32 = 3;

/// What gRPC servers read unless they are told otherwise.
const GRPC_DEFAULT_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Requests {
    /// To be sent before any new one.
    again: VecDeque<DeepRequest>,
    /// How many connections broke under those that were outstanding when the last one began.
    breaks: HashMap<String, u32>,
    /// Whether the last one broke.
    broken: bool,
    /// The largest message of this side, and of both.
    near_limit: usize,
    limit: usize,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            again: VecDeque::new(),
            breaks: HashMap::new(),
            broken: false,
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
    }

    /// A connection begins: what is outstanding goes out first.
    pub(super) fn send_again(&mut self, link: &mut Link) {
        let more = u32::from(std::mem::take(&mut self.broken));
        let mut before = std::mem::take(&mut self.breaks);
        self.again.clear();
        for request in link.outstanding() {
            let id = &request.correlation_id;
            let breaks = before.remove(id).unwrap_or_default() + more;
            if breaks >= BREAKS {
                let why = format!("the connection broke {BREAKS} times while the sidecar had it");
                link.refused(id, &SubmitError::Unavailable(why));
                continue;
            }
            self.breaks.insert(id.clone(), breaks);
            self.again.push_back(request);
        }
    }

    /// Nothing that went out over this connection has been taken.
    pub(super) fn start_over(&mut self, link: &mut Link) {
        self.again = link.outstanding().into();
    }

    /// The next one; none once the inbox is gone.
    pub(super) async fn next(&mut self, link: &mut Link) -> Option<DeepRequest> {
        match self.again.pop_front() {
            Some(request) => Some(request),
            None => link.next().await,
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

/// Hands in what the sidecar said.
pub(super) fn deliver(link: &Link, response: wire::EvaluateResponse) {
    if response.overloaded {
        let why = "too much is under way in the sidecar".to_owned();
        link.refused(&response.correlation_id, &SubmitError::Unavailable(why));
    } else {
        link.answered(DeepResponse::from(response));
    }
}
