//! The near side of an inbox whose rules are in other processes.
//!
//! [`RemoteInbox`] is what the gateway holds; a transport (Redis, gRPC) holds the [`Link`] that belongs to it
//! and moves requests and responses. All that must survive a lost connection is at the desk: the transport
//! sends again what is outstanding, and a response that comes twice counts once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use portcullis_core::scan::EventSet;
use portcullis_core::{EventType, RuleId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::desk::Desk;
use super::{AskError, AwaitError, GuardInbox, InboxDepth, InboxLimits, SubmitError};
use crate::deep::{BoxFuture, DeepRequest, DeepResponse};

/// A deep rule that somebody else runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedRule {
    /// Its name.
    pub id: RuleId,
    /// Its version.
    pub version: String,
    /// What it judges.
    pub events: EventSet,
    /// Whether it can judge now.
    pub ready: bool,
}

/// A certificate and its key, as PEM. The key is not printed.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The certificate, with those between it and the authority's.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// `SteeringGuardInbox` over a connection: the rules are in other processes.
///
/// While there is no connection its rules are not ready, and what is submitted is refused at once.
#[derive(Debug)]
pub struct RemoteInbox {
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<DeepRequest>,
    transport: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    desk: Desk,
    served: ArcSwap<Vec<ServedRule>>,
    /// Why there is no connection, if there is none.
    down: watch::Sender<Option<String>>,
}

/// The transport's end.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    outgoing: mpsc::Receiver<DeepRequest>,
}

impl RemoteInbox {
    /// An inbox whose requests are moved by `transport`, until the inbox is dropped. Needs a tokio runtime.
    pub(crate) fn start<T>(limits: InboxLimits, transport: impl FnOnce(Link) -> T) -> Self
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (down, _) = watch::channel(Some("not connected yet".to_owned()));
        let shared = Arc::new(Shared {
            desk: Desk::new(limits),
            served: ArcSwap::default(),
            down,
        });
        // As many as the desk admits, so that there is always room.
        let room = limits
            .in_flight
            .clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        let (sender, outgoing) = mpsc::channel(room);
        let link = Link {
            shared: Arc::clone(&shared),
            outgoing,
        };
        Self {
            shared,
            outgoing: sender,
            transport: tokio::spawn(transport(link)),
        }
    }

    /// Waits until there is a connection and the rules behind it are known. False if that takes too long.
    pub async fn connected(&self, timeout: Duration) -> bool {
        let mut down = self.shared.down.subscribe();
        let up = down.wait_for(Option::is_none);
        matches!(tokio::time::timeout(timeout, up).await, Ok(Ok(_)))
    }

    /// Why there is no connection, if there is none.
    pub fn trouble(&self) -> Option<String> {
        self.shared.down.borrow().clone()
    }

    /// The rules of the other processes, as last heard.
    pub fn served(&self) -> Arc<Vec<ServedRule>> {
        self.shared.served.load_full()
    }

    /// Hands a request with a place at the desk to the transport.
    fn send(&self, request: DeepRequest) -> Result<(), SubmitError> {
        let correlation_id = request.correlation_id.clone();
        self.outgoing.try_send(request).map_err(|_| {
            self.shared.desk.withdraw(&correlation_id);
            SubmitError::Unavailable("the connection is not being served".to_owned())
        })
    }

    fn check(&self) -> Result<(), SubmitError> {
        match &*self.shared.down.borrow() {
            Some(why) => Err(SubmitError::Unavailable(why.clone())),
            None => Ok(()),
        }
    }
}

impl GuardInbox for RemoteInbox {
    fn serving(&self, event_type: &EventType) -> Vec<(RuleId, bool)> {
        let up = self.shared.down.borrow().is_none();
        let served = self.shared.served.load();
        let judging = served
            .iter()
            .filter(|rule| rule.events.contains(event_type));
        judging
            .map(|rule| (rule.id.clone(), rule.ready && up))
            .collect()
    }

    fn lost(&self, id: &RuleId) -> bool {
        let known = || self.shared.served.load().iter().any(|rule| rule.id == *id);
        self.shared.down.borrow().is_some() || known()
    }

    fn submit(&self, request: DeepRequest) -> BoxFuture<'_, Result<(), SubmitError>> {
        let submitted = self.check().and_then(|()| {
            let desk = &self.shared.desk;
            desk.open_unclaimed(&request.correlation_id, Some(request.clone()))?;
            self.send(request)
        });
        Box::pin(async move { submitted })
    }

    fn await_response<'a>(
        &'a self,
        correlation_id: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<DeepResponse, AwaitError>> {
        Box::pin(self.shared.desk.collect(correlation_id, timeout))
    }

    fn ask(
        &self,
        request: DeepRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<DeepResponse, AskError>> {
        let asked = self.check().and_then(|()| {
            let desk = &self.shared.desk;
            let ticket = desk.open(&request.correlation_id, Some(request.clone()))?;
            self.send(request)?;
            Ok(ticket)
        });
        Box::pin(async move { asked?.wait(timeout).await })
    }

    fn drain_responses(&self, run_id: &str) -> Vec<DeepResponse> {
        self.shared.desk.drain(run_id)
    }

    fn forget(&self, correlation_id: &str) {
        self.shared.desk.forget(correlation_id);
    }

    fn depth(&self) -> InboxDepth {
        self.shared.desk.depth()
    }
}

impl Drop for RemoteInbox {
    fn drop(&mut self) {
        self.transport.abort();
    }
}

impl Link {
    /// The next request to send; none once the inbox is gone.
    pub(crate) async fn next(&mut self) -> Option<DeepRequest> {
        self.outgoing.recv().await
    }

    /// Another request, if one is waiting already: for sending several at once.
    #[cfg(feature = "redis")]
    pub(crate) fn try_next(&mut self) -> Option<DeepRequest> {
        self.outgoing.try_recv().ok()
    }

    /// A response has come. False if its request was answered already, or given up.
    pub(crate) fn answered(&self, response: DeepResponse) -> bool {
        self.shared.desk.answer(response)
    }

    /// A request was not taken on the far side.
    pub(crate) fn refused(&self, correlation_id: &str, why: &SubmitError) {
        self.shared.desk.refuse(correlation_id, why);
    }

    /// The requests without a response, oldest first, the ones still queued among them: to be sent when a connection
    /// is made. Empties the queue.
    pub(crate) fn outstanding(&mut self) -> Vec<DeepRequest> {
        while self.outgoing.try_recv().is_ok() {}
        self.shared.desk.outstanding()
    }

    /// Gives up the requests that have waited too long. To be called every now and then.
    pub(crate) fn give_up(&self) {
        self.shared.desk.give_up();
    }

    /// How long a request may take before it is given up.
    pub(crate) fn evaluation_limit(&self) -> Duration {
        self.shared.desk.limits().evaluation
    }

    /// There is a connection, and these rules are behind it. To be called whenever they change.
    pub(crate) fn up(&self, served: Vec<ServedRule>) {
        self.shared.served.store(Arc::new(served));
        self.shared
            .down
            .send_if_modified(|down| down.take().is_some());
    }

    /// There is no connection. The rules that were behind it stay known, and are not ready.
    pub(crate) fn down(&self, why: impl Into<String>) {
        let why = why.into();
        if self.shared.down.borrow().as_ref() != Some(&why) {
            tracing::warn!(why, "deep rules cannot be asked");
        }
        self.shared.down.send_replace(Some(why));
    }
}
