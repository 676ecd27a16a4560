//! The inbox inside this process.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{EventType, RuleId};

use super::desk::Desk;
use super::{AskError, AwaitError, GuardInbox, InboxDepth, InboxLimits, SubmitError};
use crate::deep::{BoxFuture, DeepHost, DeepRequest, DeepResponse, DeepRules};

/// `InMemoryGuardInbox`: deep rules in this process, as tokio tasks.
#[derive(Debug)]
pub struct MemoryInbox {
    host: Arc<DeepHost>,
    desk: Arc<Desk>,
}

impl MemoryInbox {
    /// An inbox over these rules.
    pub fn new(rules: DeepRules, limits: InboxLimits) -> Self {
        Self::over(Arc::new(DeepHost::new(rules)), limits)
    }

    /// An inbox over rules that somebody may replace.
    pub fn over(host: Arc<DeepHost>, limits: InboxLimits) -> Self {
        Self {
            host,
            desk: Arc::new(Desk::new(limits)),
        }
    }

    /// Starts an evaluation that has a place at the desk.
    fn start(&self, request: DeepRequest, runtime: &tokio::runtime::Handle) {
        let work = Work {
            host: Arc::clone(&self.host),
            desk: Arc::clone(&self.desk),
            request,
        };
        runtime.spawn(work.run());
    }
}

fn runtime() -> Result<tokio::runtime::Handle, SubmitError> {
    tokio::runtime::Handle::try_current()
        .map_err(|error| SubmitError::Unavailable(error.to_string()))
}

impl GuardInbox for MemoryInbox {
    fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)> {
        self.host.serving(event_type)
    }

    fn submit(&self, request: DeepRequest) -> BoxFuture<'_, Result<(), SubmitError>> {
        let submitted = runtime().and_then(|runtime| {
            self.desk.open_unclaimed(&request.correlation_id, None)?;
            self.start(request, &runtime);
            Ok(())
        });
        Box::pin(async move { submitted })
    }

    fn await_response<'a>(
        &'a self,
        correlation_id: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<DeepResponse, AwaitError>> {
        Box::pin(self.desk.collect(correlation_id, timeout))
    }

    fn ask(
        &self,
        request: DeepRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<DeepResponse, AskError>> {
        let asked = runtime().and_then(|runtime| {
            let ticket = self.desk.open(&request.correlation_id, None)?;
            self.start(request, &runtime);
            Ok(ticket)
        });
        Box::pin(async move { asked?.wait(timeout).await })
    }

    fn drain_responses(&self, run_id: &str) -> Vec<DeepResponse> {
        self.desk.drain(run_id)
    }

    fn forget(&self, correlation_id: &str) {
        self.desk.forget(correlation_id);
    }

    fn depth(&self) -> InboxDepth {
        self.desk.depth()
    }
}

/// One evaluation under way.
struct Work {
    host: Arc<DeepHost>,
    desk: Arc<Desk>,
    request: DeepRequest,
}

impl Work {
    async fn run(self) {
        let limit = self.desk.limits().evaluation;
        let response = self.host.evaluate(&self.request, limit).await;
        self.desk.answer(response);
    }
}

/// A task that is dropped with its runtime gives back its place.
impl Drop for Work {
    fn drop(&mut self) {
        self.desk.withdraw(&self.request.correlation_id);
    }
}
