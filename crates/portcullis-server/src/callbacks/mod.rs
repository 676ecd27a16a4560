//! Telling others of announced intents (F004): the peers and webhooks that the configuration names.
//!
//! Every target has a queue and a worker of its own, so that a dead one holds up nobody. What an agent asks
//! waits for none of them.
//!
//! Invariant: nobody is called whom the configuration does not name, whatever `agent.url` a request has.
//!
//! Invariant: nothing leaves that has not been through a `Redactor`.

mod endpoint;
mod notice;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use self::endpoint::{Endpoint, Failure};
pub(crate) use self::notice::Notice;
use crate::StartError;
use crate::config::{CallbackKind, CallbackSettings, CallbackTarget, CallbackWhen};
use crate::metrics::{CallbackOutcome, Metrics};

/// The id of a delivery. A call that carries it comes from a server that passes on what it was told, and is
/// not passed on to peers again: two that are each other's peers would never stop.
pub(crate) const DELIVERY: HeaderName = HeaderName::from_static("x-portcullis-delivery");

/// However often it was tried, and whatever a target asks for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What may wait for one target, in KiB: a thousand intents as long as they may be would take gigabytes.
const ROOM_KIB: u32 = 64 << 10;

/// Tells others of intents.
pub(crate) struct Callbacks {
    targets: Vec<Target>,
    workers: Mutex<JoinSet<()>>,
    closing: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

impl Callbacks {
    /// Starts a worker for each target. `agent` is the name that notices carry.
    pub(crate) fn start(
        settings: &CallbackSettings,
        agent: &str,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let closing = watch::Sender::new(false);
        let agent: Arc<str> = agent.into();
        let mut workers = JoinSet::new();
        let mut targets = Vec::new();
        for target in &settings.targets {
            let (sender, queue) = mpsc::channel(settings.queue.clamp(1, Semaphore::MAX_PERMITS));
            let complaints = Arc::new(Complaints::about(target));
            let worker = Worker {
                endpoint: Endpoint::new(target, &agent).map_err(StartError::Callbacks)?,
                queue,
                attempts: target.attempts,
                retry: target.retry,
                closing: closing.subscribe(),
                complaints: Arc::clone(&complaints),
            };
            workers.spawn(worker.run());
            targets.push(Target {
                when: target.when,
                is_peer: matches!(target.kind, CallbackKind::Peer { .. }),
                queue: sender,
                room: Arc::new(Semaphore::new(ROOM_KIB as usize)),
                complaints,
            });
        }
        Ok(Self {
            targets,
            workers: Mutex::new(workers),
            closing,
            metrics: Arc::clone(metrics),
        })
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
                target.enqueue(&notice, &self.metrics);
            }
        }
    }

    /// Tries once more what waits, for as long as it may take, and drops the rest.
    pub(crate) async fn close(&self, patience: Duration) {
        let before = self.metrics.callbacks_dropped();
        self.closing.send_replace(true);
        let mut workers = self.workers.lock().await;
        let all = async { while workers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(patience, all).await;
        workers.shutdown().await;
        let dropped = self.metrics.callbacks_dropped().saturating_sub(before);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "notices of intents could not be delivered before the server stopped"
            );
        }
    }
}

/// The near end of a queue.
struct Target {
    when: CallbackWhen,
    is_peer: bool,
    queue: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    complaints: Arc<Complaints>,
}

impl Target {
    fn wants(&self, notice: &Notice) -> bool {
        let is_news = match self.when {
            CallbackWhen::All => true,
            CallbackWhen::Blocked => !notice.is_allowed(),
        };
        is_news && !(self.is_peer && notice.is_relayed())
    }

    fn enqueue(&self, notice: &Arc<Notice>, metrics: &Arc<Metrics>) {
        let tally = Tally::new(metrics);
        let room = Arc::clone(&self.room);
        let Ok(room) = room.try_acquire_many_owned(notice.kib().min(ROOM_KIB)) else {
            return self.complaints.dropped();
        };
        let waiting = Waiting {
            notice: Arc::clone(notice),
            tally,
            _room: room,
        };
        if self.queue.try_send(waiting).is_err() {
            self.complaints.dropped();
        }
    }
}

/// A notice on its way to one target.
struct Waiting {
    notice: Arc<Notice>,
    tally: Tally,
    _room: OwnedSemaphorePermit,
}

/// Counts a notice once, whatever becomes of it: what nobody settles was dropped.
struct Tally {
    metrics: Arc<Metrics>,
    outcome: CallbackOutcome,
}

impl Tally {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.callback_waits();
        Self {
            metrics: Arc::clone(metrics),
            outcome: CallbackOutcome::Dropped,
        }
    }

    fn settle(mut self, outcome: CallbackOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.metrics.callback_settled(self.outcome);
    }
}

/// What is logged about a target, at most once a second. The path of a webhook can be a secret, so a target
/// goes by its origin.
struct Complaints {
    origin: String,
    limit: DefaultDirectRateLimiter,
}

impl Complaints {
    fn about(target: &CallbackTarget) -> Self {
        Self {
            origin: target.url.origin().ascii_serialization(),
            limit: RateLimiter::direct(Quota::per_second(std::num::NonZeroU32::MIN)),
        }
    }

    fn dropped(&self) {
        if self.limit.check().is_ok() {
            tracing::warn!(
                to = self.origin,
                "too many notices of intents are waiting: the newest are dropped"
            );
        }
    }

    fn failed(&self, tries: u32, error: &str) {
        if self.limit.check().is_ok() {
            tracing::warn!(
                to = self.origin,
                tries,
                error,
                "a notice of an intent could not be delivered"
            );
        }
    }
}

/// Delivers one notice after the other, in their order.
struct Worker {
    endpoint: Endpoint,
    queue: mpsc::Receiver<Waiting>,
    attempts: u32,
    retry: Duration,
    closing: watch::Receiver<bool>,
    complaints: Arc<Complaints>,
}

impl Worker {
    async fn run(mut self) {
        while let Some(waiting) = self.next().await {
            self.deliver(waiting).await;
        }
    }

    /// The next notice; none once the server stops and nothing waits any more.
    async fn next(&mut self) -> Option<Waiting> {
        tokio::select! {
            biased;
            () = closed(&mut self.closing), if !self.queue.is_closed() => self.queue.close(),
            next = self.queue.recv() => return next,
        }
        self.queue.recv().await
    }

    async fn deliver(
        &mut self,
        Waiting {
            notice,
            tally,
            _room,
        }: Waiting,
    ) {
        let delivery = match self.endpoint.prepare(&notice).await {
            Ok(delivery) => delivery,
            Err(error) => {
                self.complaints.failed(0, &error);
                return tally.settle(CallbackOutcome::Failed);
            }
        };
        let mut wait = self.retry.min(LONGEST_WAIT);
        for tries in 1.. {
            let stopping = *self.closing.borrow();
            let failure = match self.endpoint.send(&delivery).await {
                Ok(()) => return tally.settle(CallbackOutcome::Delivered),
                Err(failure) => failure,
            };
            match failure {
                // That was its last chance.
                Failure::Again { .. } if stopping => return,
                Failure::Again { error, after } if tries < self.attempts => {
                    tracing::debug!(
                        to = self.complaints.origin,
                        tries,
                        error,
                        "to be tried again"
                    );
                    let pause = jittered(wait).max(after.unwrap_or_default().min(LONGEST_WAIT));
                    let _ = tokio::time::timeout(pause, closed(&mut self.closing)).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                Failure::Again { error, .. } | Failure::Final(error) => {
                    self.complaints.failed(tries, &error);
                    return tally.settle(CallbackOutcome::Failed);
                }
            }
        }
    }
}

/// Waits until the server stops.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Between half and all of it, so that those who failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let chance = uuid::Uuid::new_v4().as_u128() as u32;
    wait.mul_f64(0.5 + 0.5 * f64::from(chance) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_and_never_longer_than_asked_for() {
        let wait = Duration::from_secs(8);
        let waits: Vec<Duration> = (0..100).map(|_| jittered(wait)).collect();
        assert!(waits.iter().all(|one| *one >= wait / 2 && *one <= wait));
        assert!(waits.iter().any(|one| *one != waits[0]));
    }
}
