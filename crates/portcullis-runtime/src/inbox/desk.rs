//! The near side of every inbox: who waits for which response, and the responses that came too late.

#![cfg_attr(
    not(any(feature = "grpc", feature = "redis")),
    expect(
        dead_code,
        reason = "only an inbox over a connection sends again and gives up"
    )
)]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::late::Late;
use super::{AskError, AwaitError, InboxDepth, InboxLimits, SubmitError};
use crate::deep::{DeepAnswer, DeepRequest, DeepResponse};

/// Either a response, or why there will be none.
type Outcome = Result<DeepResponse, SubmitError>;

/// Pairs responses with those who wait for them. A request has one response, whoever sends how many.
#[derive(Debug)]
pub(crate) struct Desk {
    limits: InboxLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<String, Open>,
    late: Late,
}

/// A request without a response yet.
#[derive(Debug)]
struct Open {
    since: Instant,
    /// Kept where it may have to be sent again.
    request: Option<DeepRequest>,
    asker: Asker,
}

#[derive(Debug)]
enum Asker {
    /// Somebody waits, or has stopped waiting, and then the response is late.
    Waits(oneshot::Sender<Outcome>),
    /// Nobody waits yet.
    Later,
    /// Nobody ever will.
    Gone,
}

/// The place of one who waits.
#[derive(Debug)]
pub(crate) struct Ticket(oneshot::Receiver<Outcome>);

impl Ticket {
    /// Waits for the response.
    pub(crate) async fn wait(mut self, timeout: Duration) -> Result<DeepResponse, AskError> {
        let outcome = match tokio::time::timeout(timeout, &mut self.0).await {
            Ok(outcome) => outcome.ok(),
            // The response may have come while the timer fired; closing first makes that certain.
            Err(_) => {
                self.0.close();
                self.0.try_recv().ok()
            }
        };
        match outcome {
            Some(outcome) => Ok(outcome?),
            None => Err(AwaitError::TimedOut.into()),
        }
    }
}

/// What was found under a correlation id.
enum Claim {
    /// The response was there already.
    Ready(DeepResponse),
    /// It is still to come.
    Wait(Ticket),
}

impl Desk {
    pub(crate) fn new(limits: InboxLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    pub(crate) fn limits(&self) -> InboxLimits {
        self.limits
    }

    /// Makes room for a request whose response is waited for at once.
    pub(crate) fn open(
        &self,
        correlation_id: &str,
        request: Option<DeepRequest>,
    ) -> Result<Ticket, SubmitError> {
        let (sender, receiver) = oneshot::channel();
        self.admit(correlation_id, request, Asker::Waits(sender))?;
        Ok(Ticket(receiver))
    }

    /// Makes room for a request whose response may be claimed later, or never.
    pub(crate) fn open_unclaimed(
        &self,
        correlation_id: &str,
        request: Option<DeepRequest>,
    ) -> Result<(), SubmitError> {
        self.admit(correlation_id, request, Asker::Later)
    }

    fn admit(
        &self,
        correlation_id: &str,
        request: Option<DeepRequest>,
        asker: Asker,
    ) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if state.open.len() >= self.limits.in_flight {
            return Err(SubmitError::Overloaded(self.limits.in_flight));
        }
        let open = Open {
            since: Instant::now(),
            request,
            asker,
        };
        state.open.insert(correlation_id.to_owned(), open);
        Ok(())
    }

    /// Waits for a response that was asked for earlier.
    pub(crate) async fn collect(
        &self,
        correlation_id: &str,
        timeout: Duration,
    ) -> Result<DeepResponse, AwaitError> {
        match self.claim(correlation_id)? {
            Claim::Ready(response) => Ok(response),
            Claim::Wait(ticket) => ticket
                .wait(timeout)
                .await
                // What was refused has no response either.
                .map_err(|_| AwaitError::TimedOut),
        }
    }

    fn claim(&self, correlation_id: &str) -> Result<Claim, AwaitError> {
        let mut state = self.lock();
        if let Some(response) = state.late.take(correlation_id) {
            return Ok(Claim::Ready(response));
        }
        match state.open.get_mut(correlation_id) {
            Some(open) if matches!(open.asker, Asker::Later) => {
                let (sender, receiver) = oneshot::channel();
                open.asker = Asker::Waits(sender);
                Ok(Claim::Wait(Ticket(receiver)))
            }
            _ => Err(AwaitError::Unknown),
        }
    }

    /// Hands a response to whoever waits for it, or keeps it as a late one. False if its request is not open: it has
    /// been answered already.
    pub(crate) fn answer(&self, response: DeepResponse) -> bool {
        let mut state = self.lock();
        let Some(open) = state.open.remove(&response.correlation_id) else {
            return false;
        };
        let response = match &open.request {
            Some(request) => request.settle(response),
            None => response,
        };
        let late = match open.asker {
            Asker::Waits(sender) => sender.send(Ok(response)).err().and_then(Result::ok),
            Asker::Later => Some(response),
            Asker::Gone => None,
        };
        if let Some(response) = late {
            state.late.push(response, Instant::now(), self.limits);
        }
        true
    }

    /// A request was not taken after all: whoever waits is told so, and if nobody does, the run's next event is.
    pub(crate) fn refuse(&self, correlation_id: &str, why: &SubmitError) {
        let mut state = self.lock();
        let Some(open) = state.open.remove(correlation_id) else {
            return;
        };
        let told = match open.asker {
            Asker::Waits(sender) => sender.send(Err(why.clone())).is_ok(),
            Asker::Later => false,
            Asker::Gone => true,
        };
        if let (false, Some(request)) = (told, open.request) {
            let response = request.answered_by(&DeepAnswer::NotAsked(why.to_string()));
            state.late.push(response, Instant::now(), self.limits);
        }
    }

    /// Closes a request that is still open, as if it had never been made.
    pub(crate) fn withdraw(&self, correlation_id: &str) {
        self.lock().open.remove(correlation_id);
    }

    pub(crate) fn forget(&self, correlation_id: &str) {
        let mut state = self.lock();
        state.late.take(correlation_id);
        if let Some(open) = state.open.get_mut(correlation_id) {
            open.asker = Asker::Gone;
        }
    }

    pub(crate) fn drain(&self, run_id: &str) -> Vec<DeepResponse> {
        self.lock().late.drain(run_id, Instant::now(), self.limits)
    }

    pub(crate) fn depth(&self) -> InboxDepth {
        let state = self.lock();
        InboxDepth {
            in_flight: state.open.len(),
            late: state.late.len(),
        }
    }

    /// The requests that have waited too long: each gets the response that it was given up.
    pub(crate) fn give_up(&self) {
        let now = Instant::now();
        let limit = self.limits.evaluation;
        let overdue: Vec<(String, Option<DeepRequest>)> = {
            let state = self.lock();
            let open = state.open.iter();
            open.filter(|(_, open)| now.duration_since(open.since) >= limit)
                .map(|(id, open)| (id.clone(), open.request.clone()))
                .collect()
        };
        for (correlation_id, request) in overdue {
            match request {
                Some(request) => {
                    self.answer(request.given_up(limit));
                }
                None => self.withdraw(&correlation_id),
            }
        }
    }

    /// The requests without a response, oldest first: to be sent again when a connection has been lost.
    pub(crate) fn outstanding(&self) -> Vec<DeepRequest> {
        let state = self.lock();
        let mut open: Vec<_> = state.open.values().collect();
        open.sort_by_key(|open| open.since);
        let requests = open.into_iter();
        requests.filter_map(|open| open.request.clone()).collect()
    }

    /// A panic while the lock was held left only whole entries behind.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_core::{
        Context, ContextSnapshot, Decision, Event, RuleId, Signals, StopSpec, ToolRisks,
    };

    use super::*;
    use crate::deep::DeepAnswer;

    fn request(run: &str, rules: &[&'static str]) -> DeepRequest {
        let (event, context) = (Event::llm_before(run, "hi"), Context::new(run));
        let risks = ToolRisks::default();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        DeepRequest {
            correlation_id: "id".to_owned(),
            snapshot: Arc::new(snapshot.into_owned()),
            event: Arc::new(event),
            context: Arc::new(context),
            rules: rules.iter().map(|id| RuleId::from_static(id)).collect(),
            trace: None,
        }
    }

    #[test]
    fn what_another_process_says_is_about_the_run_and_the_rules_that_were_asked() {
        let desk = Desk::new(InboxLimits::default());
        let asked = request("mine", &["a", "b", "c"]);
        desk.open_unclaimed("id", Some(asked)).unwrap();
        let forged = Decision::stop(RuleId::from("x"), "no", StopSpec::default());
        let stop = DeepAnswer::Decided(Box::new(forged));
        let said = ["x", "c", "a", "a"].map(|id| (RuleId::from(id), stop.clone()));
        assert!(desk.answer(DeepResponse {
            correlation_id: "id".to_owned(),
            run_id: "another".to_owned(),
            answers: said.to_vec(),
        }));
        assert!(desk.drain("another").is_empty());
        let [response] = desk.drain("mine").try_into().unwrap();
        let kept = response.answers.iter().map(|(id, answer)| match answer {
            DeepAnswer::Decided(said) => (id.as_str(), said.rule_id.as_str()),
            _ => (id.as_str(), ""),
        });
        assert_eq!(
            kept.collect::<Vec<_>>(),
            [("a", "a"), ("b", ""), ("c", "c")]
        );
    }
}
