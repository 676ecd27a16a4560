//! Telling others of announced intents (F004): the peers and webhooks that the configuration names.
//!
//! Invariant: nobody is called whom the configuration does not name, whatever `agent.url` a request has.
//!
//! Invariant: nothing leaves that has not been through a `Redactor`.

mod notice;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub(crate) use self::notice::Notice;
use crate::StartError;
use crate::app::now;
use crate::config::{CallbackKind, CallbackSettings, CallbackTarget, CallbackWhen};
use crate::delivery::{Carrier, Delivery, Endpoint, Failure, Outbox, Tries, Workers};
use crate::metrics::Metrics;

/// Tells others of intents.
pub(crate) struct Callbacks {
    targets: Vec<Target>,
    workers: Workers,
}

impl Callbacks {
    /// Starts a worker for each target. `agent` is the name that notices carry.
    pub(crate) async fn start(
        settings: &CallbackSettings,
        agent: &str,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let workers = Workers::new("notices of intents");
        let agent: Arc<str> = agent.into();
        let mut targets = Vec::new();
        for target in &settings.targets {
            let tries = Tries {
                attempts: target.attempts,
                retry: target.retry,
            };
            let carrier = Post::new(target, &agent).map_err(StartError::Callbacks)?;
            let to = target.url.origin().ascii_serialization();
            let counts = metrics.callbacks();
            let outbox = workers
                .outbox(carrier, to, settings.queue, tries, counts)
                .await;
            targets.push(Target {
                when: target.when,
                is_peer: matches!(target.kind, CallbackKind::Peer { .. }),
                outbox,
            });
        }
        Ok(Self { targets, workers })
    }

    /// Whether there is nobody to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Tells everybody who wants to hear of it, in time.
    pub(crate) fn notify(&self, notice: Notice) {
        let notice = Arc::new(notice);
        for target in &self.targets {
            if target.wants(&notice) {
                target.outbox.post(&notice, notice.kib());
            }
        }
    }

    /// Tries once more what waits, for as long as it may take, and drops the rest.
    pub(crate) async fn close(&self, patience: Duration) {
        // All targets count together.
        let dropped = || self.targets.first().map_or(0, |one| one.outbox.dropped());
        let before = dropped();
        self.workers.close(patience).await;
        let dropped = dropped().saturating_sub(before);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "notices of intents could not be delivered before the server stopped"
            );
        }
    }
}

struct Target {
    when: CallbackWhen,
    is_peer: bool,
    outbox: Outbox<Notice>,
}

impl Target {
    fn wants(&self, notice: &Notice) -> bool {
        let is_news = match self.when {
            CallbackWhen::All => true,
            CallbackWhen::Blocked => !notice.is_allowed(),
        };
        is_news && !(self.is_peer && notice.is_relayed())
    }
}

/// Posts notices.
struct Post {
    endpoint: Endpoint,
    /// Who we say we are; peers know that by the token.
    agent: Option<Arc<str>>,
}

impl Post {
    fn new(target: &CallbackTarget, agent: &Arc<str>) -> Result<Self, String> {
        let CallbackTarget { url, timeout, .. } = target;
        let (endpoint, agent) = match &target.kind {
            CallbackKind::Webhook { secret } => (
                Endpoint::webhook(url, secret, *timeout)?,
                Some(Arc::clone(agent)),
            ),
            CallbackKind::Peer { token } => (Endpoint::peer(url, token.as_ref(), *timeout)?, None),
        };
        Ok(Self { endpoint, agent })
    }
}

impl Carrier for Post {
    type Message = Notice;
    type Parcel = Delivery;

    /// Writing down a long one takes a while, so that is done aside.
    async fn prepare(&self, notice: &Arc<Notice>) -> Result<Delivery, String> {
        let id = uuid::Uuid::now_v7().to_string();
        let notice = Arc::clone(notice);
        let agent = self.agent.clone();
        let prepared = tokio::task::spawn_blocking(move || {
            let body = match agent {
                Some(agent) => notice.for_webhook(&id, &now(), &agent),
                None => notice.for_peer(&id),
            };
            let body = serde_json::to_vec(&body).map(Bytes::from);
            body.map(|body| Delivery { id, body })
        });
        let prepared = prepared.await.map_err(|error| error.to_string())?;
        prepared.map_err(|error| error.to_string())
    }

    async fn send(&mut self, delivery: &Delivery) -> Result<(), Failure> {
        self.endpoint.send(delivery).await
    }
}
