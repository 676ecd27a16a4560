//! The requests of a gateway on their way out: those from the desk, and those that a lost connection had.

use std::collections::{HashMap, VecDeque};

use prost::Message;

use super::wire;
use crate::deep::{DeepRequest, DeepResponse};
use crate::inbox::SubmitError;
use crate::inbox::remote::Link;

/// How often one request is sent. One that takes the sidecar down with it is not sent for ever.
const SENDINGS: u32 = 3;

/// What gRPC servers read unless they are told otherwise.
const GRPC_DEFAULT_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Requests {
    /// To be sent before any new one.
    again: VecDeque<DeepRequest>,
    /// How often those have been sent that were outstanding when a connection began.
    sendings: HashMap<String, u32>,
    /// The largest message of this side, and of both.
    near_limit: usize,
    limit: usize,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            again: VecDeque::new(),
            sendings: HashMap::new(),
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

    /// A connection begins: what is outstanding goes out first.
    pub(super) fn send_again(&mut self, link: &mut Link) {
        let mut before = std::mem::take(&mut self.sendings);
        self.again.clear();
        for request in link.outstanding() {
            let id = &request.correlation_id;
            let sendings = before.remove(id).unwrap_or_default() + 1;
            if sendings > SENDINGS {
                let why = format!("the connection broke {SENDINGS} times while the sidecar had it");
                link.refused(id, SubmitError::Unavailable(why));
                continue;
            }
            self.sendings.insert(id.clone(), sendings);
            self.again.push_back(request);
        }
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
            link.refused(&request.correlation_id, SubmitError::Unavailable(why));
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
        link.refused(&response.correlation_id, SubmitError::Unavailable(why));
    } else {
        link.answered(DeepResponse::from(response));
    }
}
