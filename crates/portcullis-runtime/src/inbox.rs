//! Where events wait for deep rules (RFC-001 §7): the trait, and the inbox inside this process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_core::{EventType, RuleId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::deep::{BoxFuture, DeepAnswer, DeepRequest, DeepResponse, DeepRules};

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
}

/// What a [`MemoryInbox`] may keep.
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

/// `InMemoryGuardInbox`: deep rules in this process, as tokio tasks.
#[derive(Debug)]
pub struct MemoryInbox {
    rules: Arc<DeepRules>,
    limits: InboxLimits,
    slots: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Submitted and not yet waited for.
    unclaimed: HashMap<String, oneshot::Receiver<DeepResponse>>,
    late: Late,
}

impl MemoryInbox {
    /// An inbox over these rules.
    pub fn new(rules: DeepRules, limits: InboxLimits) -> Self {
        Self {
            rules: Arc::new(rules),
            limits,
            slots: Arc::new(Semaphore::new(limits.in_flight.min(Semaphore::MAX_PERMITS))),
            state: Arc::default(),
        }
    }

    /// Starts an evaluation. Its response is late once nobody holds the receiver.
    fn start(&self, request: DeepRequest) -> Result<oneshot::Receiver<DeepResponse>, SubmitError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| SubmitError::Unavailable(error.to_string()))?;
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| SubmitError::Overloaded(self.limits.in_flight))?;
        let (sender, receiver) = oneshot::channel();
        let work = Work {
            rules: Arc::clone(&self.rules),
            limits: self.limits,
            state: Arc::clone(&self.state),
            _slot: slot,
        };
        runtime.spawn(work.run(request, sender));
        Ok(receiver)
    }

    fn try_submit(&self, request: DeepRequest) -> Result<(), SubmitError> {
        // An evaluation takes this lock before it ends, so it finds its receiver here.
        let mut state = lock(&self.state);
        let correlation_id = request.correlation_id.clone();
        let receiver = self.start(request)?;
        state.unclaimed.insert(correlation_id, receiver);
        Ok(())
    }

    async fn collect(
        &self,
        correlation_id: &str,
        timeout: Duration,
    ) -> Result<DeepResponse, AwaitError> {
        let receiver = {
            let mut state = lock(&self.state);
            if let Some(response) = state.late.take(correlation_id) {
                return Ok(response);
            }
            state
                .unclaimed
                .remove(correlation_id)
                .ok_or(AwaitError::Unknown)?
        };
        wait(receiver, timeout).await
    }
}

async fn wait(
    mut receiver: oneshot::Receiver<DeepResponse>,
    timeout: Duration,
) -> Result<DeepResponse, AwaitError> {
    match tokio::time::timeout(timeout, &mut receiver).await {
        Ok(Ok(response)) => Ok(response),
        // The answer may have come while the timer fired; closing first makes that certain.
        _ => {
            receiver.close();
            receiver.try_recv().map_err(|_| AwaitError::TimedOut)
        }
    }
}

impl GuardInbox for MemoryInbox {
    fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)> {
        self.rules.serving(event_type)
    }

    fn submit(&self, request: DeepRequest) -> BoxFuture<'_, Result<(), SubmitError>> {
        let submitted = self.try_submit(request);
        Box::pin(async move { submitted })
    }

    fn await_response<'a>(
        &'a self,
        correlation_id: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<DeepResponse, AwaitError>> {
        Box::pin(self.collect(correlation_id, timeout))
    }

    fn ask(
        &self,
        request: DeepRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<DeepResponse, AskError>> {
        let started = self.start(request);
        Box::pin(async move { Ok(wait(started?, timeout).await?) })
    }

    fn drain_responses(&self, run_id: &str) -> Vec<DeepResponse> {
        lock(&self.state)
            .late
            .drain(run_id, Instant::now(), self.limits)
    }
}

/// One evaluation under way.
struct Work {
    rules: Arc<DeepRules>,
    limits: InboxLimits,
    state: Arc<Mutex<State>>,
    _slot: OwnedSemaphorePermit,
}

impl Work {
    async fn run(self, request: DeepRequest, sender: oneshot::Sender<DeepResponse>) {
        let limit = self.limits.evaluation;
        let response = match tokio::time::timeout(limit, self.rules.evaluate(&request)).await {
            Ok(response) => response,
            Err(_) => given_up(&request, limit),
        };
        let mut state = lock(&self.state);
        // Claimed: somebody is waiting, or has stopped waiting, and then the answer is late.
        let claimed = state.unclaimed.remove(&request.correlation_id).is_none();
        let late = if claimed {
            sender.send(response).err()
        } else {
            Some(response)
        };
        if let Some(response) = late {
            state.late.push(response, Instant::now(), self.limits);
        }
    }
}

fn given_up(request: &DeepRequest, limit: Duration) -> DeepResponse {
    let failed = DeepAnswer::Failed(format!("given up after {limit:?}"));
    DeepResponse {
        correlation_id: request.correlation_id.clone(),
        run_id: request.context.run_id.clone(),
        answers: request
            .rules
            .iter()
            .map(|id| (id.clone(), failed.clone()))
            .collect(),
    }
}

/// Late responses, bounded in every direction.
#[derive(Debug, Default)]
struct Late {
    responses: HashMap<String, DeepResponse>,
    /// Correlation ids of each run, oldest first.
    by_run: HashMap<String, VecDeque<String>>,
    /// All correlation ids, oldest first. An entry can outlive its response.
    order: VecDeque<(Instant, String)>,
}

impl Late {
    fn push(&mut self, response: DeepResponse, now: Instant, limits: InboxLimits) {
        self.expire(now, limits, 1);
        let id = response.correlation_id.clone();
        let run = self.by_run.entry(response.run_id.clone()).or_default();
        run.push_back(id.clone());
        let surplus = if run.len() > limits.late_per_run {
            run.front().cloned()
        } else {
            None
        };
        self.order.push_back((now, id.clone()));
        self.responses.insert(id, response);
        if let Some(oldest) = surplus {
            self.take(&oldest);
        }
    }

    /// Drops what is too old, or too much with `more` to come, and entries whose response has been
    /// taken.
    fn expire(&mut self, now: Instant, limits: InboxLimits, more: usize) {
        while let Some((at, id)) = self.order.front() {
            let gone = !self.responses.contains_key(id);
            let full = self.responses.len() + more > limits.late_total;
            if !gone && !full && now.duration_since(*at) <= limits.late_age {
                break;
            }
            let id = id.clone();
            self.order.pop_front();
            self.take(&id);
        }
        // Taken out of turn, entries can pile up behind one that is still wanted.
        if self.order.len() / 2 > limits.late_total {
            let responses = &self.responses;
            self.order.retain(|(_, id)| responses.contains_key(id));
        }
    }

    fn take(&mut self, correlation_id: &str) -> Option<DeepResponse> {
        let response = self.responses.remove(correlation_id)?;
        if let Some(run) = self.by_run.get_mut(&response.run_id) {
            run.retain(|id| id != correlation_id);
            if run.is_empty() {
                self.by_run.remove(&response.run_id);
            }
        }
        Some(response)
    }

    fn drain(&mut self, run_id: &str, now: Instant, limits: InboxLimits) -> Vec<DeepResponse> {
        self.expire(now, limits, 0);
        let ids = self.by_run.remove(run_id).unwrap_or_default();
        ids.iter()
            .filter_map(|id| self.responses.remove(id))
            .collect()
    }
}

/// A panic while the lock was held left only whole entries behind.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
