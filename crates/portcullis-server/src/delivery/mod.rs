//! Sending messages to those who asked for them: one queue and one worker for each, so that a dead one
//! holds up nobody, and whoever has something to say waits for none of them.
//!
//! What may wait is bounded in number and in size; what finds no room is counted and dropped.

mod endpoint;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

pub(crate) use self::endpoint::{DELIVERY, Delivery, Endpoint};

/// However often it was tried, and whatever a receiver asks for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What may wait for one receiver, in KiB: a thousand messages as long as they may be would take gigabytes.
const ROOM_KIB: u32 = 64 << 10;

/// Takes messages to one receiver.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// What there is to tell.
    type Message: Send + Sync + 'static;
    /// A message as it is sent, the same however often that is.
    type Parcel: Send + Sync;

    /// Writes a message down.
    fn prepare(
        &self,
        message: &Arc<Self::Message>,
    ) -> impl Future<Output = Result<Self::Parcel, String>> + Send;

    /// Sends it once.
    fn send(&mut self, parcel: &Self::Parcel) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why a receiver does not have a message.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Trying again would not help.
    Final(String),
    /// It might, after this long if the receiver says so.
    Again {
        error: String,
        after: Option<Duration>,
    },
}

impl Failure {
    /// It might help to try again whenever it suits.
    pub(crate) fn again(error: &impl ToString) -> Self {
        Self::Again {
            error: error.to_string(),
            after: None,
        }
    }
}

/// How often a message is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tries {
    /// Before it is given up.
    pub(crate) attempts: u32,
    /// The wait before the second; twice as long before each further one.
    pub(crate) retry: Duration,
}

/// What is counted of a receiver's messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) waiting: Gauge,
    pub(crate) delivered: Counter,
    /// Not taken, however often it was tried.
    pub(crate) failed: Counter,
    /// Not tried, or not to the end: too many waited, or the server stopped.
    pub(crate) dropped: Counter,
}

/// The workers behind all outboxes of one kind.
pub(crate) struct Workers {
    tasks: Mutex<JoinSet<()>>,
    closing: watch::Sender<bool>,
    /// What they send, in the plural.
    what: &'static str,
}

impl Workers {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            tasks: Mutex::default(),
            closing: watch::Sender::new(false),
            what,
        }
    }

    /// Starts a worker, and gives the near end of its queue. `to` is what the log calls the receiver.
    pub(crate) async fn outbox<C: Carrier>(
        &self,
        carrier: C,
        to: String,
        queue: usize,
        tries: Tries,
        counts: Counts,
    ) -> Outbox<C::Message> {
        let (sender, receiver) = mpsc::channel(queue.clamp(1, Semaphore::MAX_PERMITS));
        let complaints = Arc::new(Complaints {
            to,
            what: self.what,
            limit: RateLimiter::direct(Quota::per_second(NonZeroU32::MIN)),
        });
        let worker = Worker {
            carrier,
            queue: receiver,
            tries,
            closing: self.closing.subscribe(),
            complaints: Arc::clone(&complaints),
        };
        self.tasks.lock().await.spawn(worker.run());
        Outbox {
            queue: sender,
            room: Arc::new(Semaphore::new(ROOM_KIB as usize)),
            counts,
            complaints,
        }
    }

    /// Tries once more what waits, for as long as it may take, and drops the rest.
    pub(crate) async fn close(&self, patience: Duration) {
        self.closing.send_replace(true);
        let mut tasks = self.tasks.lock().await;
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(patience, all).await;
        tasks.shutdown().await;
    }
}

/// The near end of a queue.
pub(crate) struct Outbox<M> {
    queue: mpsc::Sender<Waiting<M>>,
    room: Arc<Semaphore>,
    counts: Counts,
    complaints: Arc<Complaints>,
}

impl<M> Outbox<M> {
    /// Hands a message of about this size over, and tells whether there was room for it.
    pub(crate) fn post(&self, message: &Arc<M>, kib: u32) -> bool {
        let tally = Tally::new(self.counts.clone());
        let room = Arc::clone(&self.room);
        let posted = room
            .try_acquire_many_owned(kib.clamp(1, ROOM_KIB))
            .is_ok_and(|room| {
                let waiting = Waiting {
                    message: Arc::clone(message),
                    tally,
                    _room: room,
                };
                self.queue.try_send(waiting).is_ok()
            });
        if !posted {
            self.complaints.dropped();
        }
        posted
    }

    /// How many were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.get()
    }
}

/// A message on its way.
struct Waiting<M> {
    message: Arc<M>,
    tally: Tally,
    _room: OwnedSemaphorePermit,
}

/// Counts a message once, whatever becomes of it: what nobody settles was dropped.
struct Tally {
    counts: Counts,
    settled: Option<bool>,
}

impl Tally {
    fn new(counts: Counts) -> Self {
        counts.waiting.inc();
        Self {
            counts,
            settled: None,
        }
    }

    fn settle(mut self, delivered: bool) {
        self.settled = Some(delivered);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.counts.waiting.dec();
        match self.settled {
            Some(true) => self.counts.delivered.inc(),
            Some(false) => self.counts.failed.inc(),
            None => self.counts.dropped.inc(),
        };
    }
}

/// What is logged about a receiver, at most once a second.
struct Complaints {
    /// The path of a webhook can be a secret, so this is its origin.
    to: String,
    what: &'static str,
    limit: DefaultDirectRateLimiter,
}

impl Complaints {
    fn dropped(&self) {
        if self.limit.check().is_ok() {
            let (to, what) = (&self.to, self.what);
            tracing::warn!(to, "too many {what} are waiting: the newest are dropped");
        }
    }

    fn failed(&self, tries: u32, error: &str) {
        if self.limit.check().is_ok() {
            let (to, what) = (&self.to, self.what);
            tracing::warn!(to, tries, error, "one of the {what} could not be delivered");
        }
    }
}

/// Delivers one message after the other, in their order.
struct Worker<C: Carrier> {
    carrier: C,
    queue: mpsc::Receiver<Waiting<C::Message>>,
    tries: Tries,
    closing: watch::Receiver<bool>,
    complaints: Arc<Complaints>,
}

impl<C: Carrier> Worker<C> {
    async fn run(mut self) {
        while let Some(waiting) = self.next().await {
            self.deliver(waiting).await;
        }
    }

    /// The next message; none once the server stops and nothing waits any more.
    async fn next(&mut self) -> Option<Waiting<C::Message>> {
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
            message,
            tally,
            _room,
        }: Waiting<C::Message>,
    ) {
        let parcel = match self.carrier.prepare(&message).await {
            Ok(parcel) => parcel,
            Err(error) => {
                self.complaints.failed(0, &error);
                return tally.settle(false);
            }
        };
        let mut wait = self.tries.retry.min(LONGEST_WAIT);
        for tries in 1.. {
            let stopping = *self.closing.borrow();
            let failure = match self.carrier.send(&parcel).await {
                Ok(()) => return tally.settle(true),
                Err(failure) => failure,
            };
            match failure {
                // That was its last chance.
                Failure::Again { .. } if stopping => return,
                Failure::Again { error, after } if tries < self.tries.attempts => {
                    let to = &self.complaints.to;
                    tracing::debug!(to, tries, error, "to be tried again");
                    let pause = jittered(wait).max(after.unwrap_or_default().min(LONGEST_WAIT));
                    let _ = tokio::time::timeout(pause, closed(&mut self.closing)).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                Failure::Again { error, .. } | Failure::Final(error) => {
                    self.complaints.failed(tries, &error);
                    return tally.settle(false);
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
