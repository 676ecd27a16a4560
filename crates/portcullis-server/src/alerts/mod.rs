//! Alerts on their way to people: the sinks that the configuration names.
//!
//! An evaluation hands its alert over and goes on. One task holds back what comes again and what is too much,
//! and passes the rest on to the sinks, each of which has a queue and a worker of its own.
//!
//! Invariant: nothing leaves that has not been through a `Redactor`, and nothing of an event's text at all.

pub(crate) mod counts;
mod hold;
mod message;
mod sinks;
mod syslog;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::Timestamp;
use portcullis_runtime::{Alert, AlertSink};
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::counts::AlertMetrics;
use self::hold::{Limit, Repeats};
pub(crate) use self::message::reason_for_others;
use self::message::{Held, Message, Raised};
use self::sinks::{Stdout, Webhook};
use self::syslog::Syslog;
use crate::StartError;
use crate::app::Secrets;
use crate::config::{AlertSettings, AlertSinkKind, AlertSinkSettings};
use crate::delivery::{Endpoint, Outbox, Tries, Workers};

/// Alerts that evaluations may be ahead.
const INCOMING: usize = 1000;
/// Different alerts that may be held back at one time.
const DIFFERENT: usize = 4096;
/// Messages that can be asked for later.
const RECENT: usize = 1000;
/// What `per_minute` is about.
const MINUTE: Duration = Duration::from_mins(1);

/// The near end: takes alerts, and remembers the last ones.
pub(crate) struct Alerts {
    queue: mpsc::Sender<Raised>,
    recent: Recent,
    metrics: AlertMetrics,
    complaints: DefaultDirectRateLimiter,
    closing: watch::Sender<bool>,
    dispatcher: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    workers: Workers,
}

/// Oldest first.
type Recent = Arc<Mutex<VecDeque<Arc<Message>>>>;

impl Alerts {
    /// Starts the sinks. `server` is the name that alerts carry.
    pub(crate) async fn start(
        settings: &AlertSettings,
        server: &str,
        secrets: Secrets,
        metrics: &AlertMetrics,
    ) -> Result<Self, StartError> {
        let workers = Workers::new("alerts");
        let mut sinks = Vec::new();
        for sink in &settings.sinks {
            let sink = Sink::start(sink, settings, &workers, metrics).await;
            sinks.push(sink.map_err(StartError::Alerts)?);
        }
        let (queue, incoming) = mpsc::channel(INCOMING);
        let recent = Recent::default();
        let closing = watch::Sender::new(false);
        let dispatcher = Dispatcher {
            incoming,
            closing: closing.subscribe(),
            server: server.to_owned(),
            secrets,
            repeats: Repeats::new(settings.deduplicate, DIFFERENT),
            sinks,
            recent: Arc::clone(&recent),
            metrics: metrics.clone(),
        };
        Ok(Self {
            queue,
            recent,
            metrics: metrics.clone(),
            complaints: RateLimiter::direct(Quota::per_second(NonZeroU32::MIN)),
            closing,
            dispatcher: tokio::sync::Mutex::new(Some(tokio::spawn(dispatcher.run()))),
            workers,
        })
    }

    /// The last messages, newest first.
    pub(crate) fn recent(&self, limit: usize) -> Vec<Value> {
        let recent = lock(&self.recent);
        let newest = recent.iter().rev().take(limit);
        newest.map(|message| message.json.clone()).collect()
    }

    /// Sends what waits and what was held back, for as long as it may take, and drops the rest.
    pub(crate) async fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        self.closing.send_replace(true);
        if let Some(dispatcher) = self.dispatcher.lock().await.take() {
            let abort = dispatcher.abort_handle();
            if tokio::time::timeout(patience, dispatcher).await.is_err() {
                tracing::warn!(
                    "alerts were still to be passed on when the time to stop had run out"
                );
                abort.abort();
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        self.workers.close(left).await;
    }
}

impl AlertSink for Alerts {
    fn alert(&self, alert: Alert) {
        let raised = Raised::new(&alert, Timestamp::now());
        if self.queue.try_send(raised).is_err() {
            self.metrics.dropped.inc();
            if self.complaints.check().is_ok() {
                tracing::warn!("too many alerts are waiting: the newest are dropped");
            }
        }
    }
}

/// One of those who are told.
struct Sink {
    outbox: Outbox<Message>,
    limit: Limit,
    held_back: Counter,
}

impl Sink {
    async fn start(
        sink: &AlertSinkSettings,
        settings: &AlertSettings,
        workers: &Workers,
        metrics: &AlertMetrics,
    ) -> Result<Self, String> {
        let tries = Tries {
            attempts: sink.attempts,
            retry: sink.retry,
        };
        let (name, queue) = (sink.kind.name(), settings.queue);
        let counts = metrics.sink(name);
        let outbox = match &sink.kind {
            AlertSinkKind::Stdout => {
                let stdout = Stdout::start().map_err(|error| error.to_string())?;
                let to = name.to_owned();
                workers.outbox(stdout, to, queue, tries, counts).await
            }
            AlertSinkKind::Syslog(syslog) => {
                let to = syslog.address.to_string();
                let syslog = Syslog::new(syslog.clone(), sink.timeout);
                workers.outbox(syslog, to, queue, tries, counts).await
            }
            AlertSinkKind::Webhook { url, secret } => {
                let webhook = Webhook(Endpoint::webhook(url, secret, sink.timeout)?);
                let to = url.origin().ascii_serialization();
                workers.outbox(webhook, to, queue, tries, counts).await
            }
        };
        Ok(Self {
            outbox,
            limit: Limit::new(settings.per_minute, MINUTE),
            held_back: metrics.held_back(name),
        })
    }

    fn offer(&mut self, message: &Arc<Message>, now: Instant) {
        let rule_id = message.rule_id.as_deref();
        let goes = self.limit.admit(message.count, rule_id, now);
        if goes && !self.outbox.post(message, Message::KIB) {
            self.limit.hold(message.count, rule_id, now);
        } else if !goes {
            self.held_back.inc_by(message.count);
        }
    }

    fn sum_up(&mut self, held: Option<Held>, server: &str, now: Instant) {
        let Some(held) = held else { return };
        let summary = Arc::new(Message::summary(&held, Timestamp::now(), server));
        if !self.outbox.post(&summary, Message::KIB) {
            self.limit.hold_again(held, now);
        }
    }
}

/// Stands between the evaluations and the sinks.
struct Dispatcher {
    incoming: mpsc::Receiver<Raised>,
    closing: watch::Receiver<bool>,
    server: String,
    secrets: Secrets,
    repeats: Repeats,
    sinks: Vec<Sink>,
    recent: Recent,
    metrics: AlertMetrics,
}

impl Dispatcher {
    async fn run(mut self) {
        while let Some(raised) = self.next().await {
            let now = Instant::now();
            let out = match raised {
                Some(raised) => self.take(raised, now),
                None => self.repeats.expired(now),
            };
            self.pass_on(out, now).await;
            for sink in &mut self.sinks {
                let held = sink.limit.summary(now);
                sink.sum_up(held, &self.server, now);
            }
        }
        self.finish().await;
    }

    /// The next alert; nothing but an occasion, when something is due; none when the server stops.
    async fn next(&mut self) -> Option<Option<Raised>> {
        let sinks = self.sinks.iter().filter_map(|sink| sink.limit.due());
        let due = sinks.chain(self.repeats.due()).min();
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => None,
            raised = self.incoming.recv() => raised.map(Some),
            () = due => Some(None),
        }
    }

    fn take(&mut self, raised: Raised, now: Instant) -> Vec<(Raised, u64)> {
        let (out, repeated) = self.repeats.take(raised, now);
        if repeated {
            self.metrics.repeated.inc();
        } else {
            self.metrics.passed_on.inc();
        }
        out
    }

    async fn pass_on(&mut self, out: Vec<(Raised, u64)>, now: Instant) {
        if out.is_empty() {
            return;
        }
        let redactor = match self.secrets.redactor().await {
            Ok(redactor) => Arc::clone(redactor),
            Err(error) => {
                self.metrics
                    .dropped
                    .inc_by(out.iter().map(|(_, count)| count).sum());
                tracing::error!(%error, "secrets cannot be kept out of alerts, so they are dropped");
                return;
            }
        };
        for (raised, count) in out {
            let message = Message::alert(&raised, count, &self.server, &redactor);
            let message = Arc::new(message);
            for sink in &mut self.sinks {
                sink.offer(&message, now);
            }
            let mut recent = lock(&self.recent);
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(message);
        }
    }

    /// Passes on what waits and what was held back.
    async fn finish(&mut self) {
        self.incoming.close();
        while let Some(raised) = self.incoming.recv().await {
            let now = Instant::now();
            let out = self.take(raised, now);
            self.pass_on(out, now).await;
        }
        let held = self.repeats.finish();
        self.pass_on(held, Instant::now()).await;
        for sink in &mut self.sinks {
            let held = sink.limit.finish();
            sink.sum_up(held, &self.server, Instant::now());
        }
    }
}

/// A panic while the lock was held left only whole messages behind.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
