//! Where events wait for deep rules (RFC-001 §7): the trait, and its implementations. The rules are in this
//! process, behind a Redis, or behind gRPC.

mod desk;
#[cfg(feature = "grpc")]
pub(crate) mod grpc;
mod late;
mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "grpc", feature = "redis"))]
pub(crate) mod remote;

use std::time::Duration;

use portcullis_core::{EventType, RuleId};

pub use self::memory::MemoryInbox;
use crate::deep::{BoxFuture, DeepRequest, DeepResponse};

/// Why an event could not be handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too much is under way.
    #[error("the inbox is full: {0} evaluations are under way")]
    Overloaded(usize),
    /// Nobody is there to take it.
    #[error("the inbox is unavailable: {0}")]
    Unavailable(String),
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwaitError {
    /// Not in time; it will be among the late ones.
    #[error("no answer in time")]
    TimedOut,
    /// Nobody submitted that, or it was collected already.
    #[error("unknown correlation id")]
    Unknown,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It could not be put.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// It was put, and there is no response.
    #[error(transparent)]
    Await(#[from] AwaitError),
}

/// `SteeringGuardInbox`: hands events to deep rules and gives back what they say.
///
/// Whatever it keeps is bounded: by count per run, by age, and in total.
pub trait GuardInbox: Send + Sync + 'static {
    /// The deep rules behind it that judge such events, and whether each is ready.
    fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)>;

    /// Whether a rule that is not ready ought to be: others run it, and cannot be reached. That counts as no answer in time,
    /// or cutting them off would be a way around it.
    fn lost(&self, _id: &RuleId) -> bool {
        false
    }

    /// Hands over an event.
    fn submit(&self, request: DeepRequest) -> BoxFuture<'_, Result<(), SubmitError>>;

    /// Waits for the response.
    fn await_response<'a>(
        &'a self,
        correlation_id: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<DeepResponse, AwaitError>>;

    /// Hands over an event and waits for the response. Unlike with [`submit`](Self::submit) and
    /// [`await_response`](Self::await_response) one after the other, there is no moment in which
    /// another event of the run could drain the response as a late one.
    fn ask(
        &self,
        request: DeepRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<DeepResponse, AskError>>;

    /// Takes the run's responses that nobody waited for, or not long enough. No other run's.
    fn drain_responses(&self, run_id: &str) -> Vec<DeepResponse>;

    /// Nobody wants that response any more, not even late.
    fn forget(&self, correlation_id: &str);

    /// How much it keeps.
    fn depth(&self) -> InboxDepth;
}

/// How much an inbox keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboxDepth {
    /// Evaluations under way.
    pub in_flight: usize,
    /// Late responses that no event has taken yet.
    pub late: usize,
}

/// What an inbox may keep.
#[derive(Debug, Clone, Copy)]
pub struct InboxLimits {
    /// Evaluations under way.
    pub in_flight: usize,
    /// How long one evaluation may take before it is given up.
    pub evaluation: Duration,
    /// Late responses of one run.
    pub late_per_run: usize,
    /// Late responses in all.
    pub late_total: usize,
    /// Age of a late response.
    pub late_age: Duration,
}

impl Default for InboxLimits {
    fn default() -> Self {
        Self {
            in_flight: 10_000,
            evaluation: Duration::from_secs(30),
            late_per_run: 32,
            late_total: 10_000,
            late_age: Duration::from_mins(5),
        }
    }
}
