//! The far side: a loop that takes requests out of the streams of its rules, runs the rules, and puts the answers back.

mod bench;
mod post;
mod session;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use redis::Client;
use tokio::time::Instant;

use self::bench::Bench;
use self::session::Session;
use super::connection::{Backoff, Connections, Keys, trouble, unique_name};
use super::{RedisSettings, RedisSettingsError};
use crate::deep::DeepHost;

/// Sooner than this and a worker would do nothing but look.
const SOONEST: Duration = Duration::from_millis(30);

/// As good as never.
const LATEST: Duration = Duration::from_hours(24);

/// How much a worker does, and when it steps in for another.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLimits {
    /// Evaluations at once. It reads no more than it has room for.
    pub concurrency: usize,
    /// How long a request may lie untouched with another worker before this one takes it over. A worker that is alive
    /// touches what it holds three times as often.
    pub claim_after: Duration,
    /// How many workers may have died of a request. It is not run again after that, but answered as failed.
    pub attempts: u64,
    /// How long a shutdown waits for the evaluations under way. What is left then is taken over by others.
    pub drain: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            concurrency: 32,
            claim_after: Duration::from_secs(2),
            attempts: 3,
            drain: Duration::from_secs(30),
        }
    }
}

/// What a worker has done so far.
#[derive(Debug, Default)]
pub struct WorkerCounts {
    evaluated: AtomicU64,
    claimed: AtomicU64,
    failed: AtomicU64,
    expired: AtomicU64,
    connected: AtomicBool,
}

impl WorkerCounts {
    /// Requests that its rules were run for.
    pub fn evaluated(&self) -> u64 {
        self.evaluated.load(Ordering::Relaxed)
    }

    /// Requests taken over from workers that went away.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Requests answered as failed without a rule being run: unreadable ones, and those that workers died of.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Requests found when nobody waited for them any more.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether it has a connection.
    pub fn connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Runs deep rules for the gateways at a Redis.
#[derive(Debug)]
pub struct Worker {
    client: Client,
    keys: Arc<Keys>,
    id: String,
    host: Arc<DeepHost>,
    limits: WorkerLimits,
    counts: Arc<WorkerCounts>,
}

impl Worker {
    /// A worker with these rules. It does nothing until it is run.
    pub fn new(
        settings: &RedisSettings,
        host: Arc<DeepHost>,
        limits: WorkerLimits,
    ) -> Result<Self, RedisSettingsError> {
        Ok(Self {
            client: settings.client()?,
            keys: Arc::new(Keys::new(&settings.name)),
            id: unique_name(),
            host,
            limits: WorkerLimits {
                concurrency: limits.concurrency.max(1),
                claim_after: limits.claim_after.clamp(SOONEST, LATEST),
                drain: limits.drain.min(LATEST),
                ..limits
            },
            counts: Arc::default(),
        })
    }

    /// What it has done, to be looked at while it runs.
    pub fn counts(&self) -> Arc<WorkerCounts> {
        Arc::clone(&self.counts)
    }

    /// Works until `shutdown`, then finishes what is under way. A lost connection is made again.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown.fuse());
        let mut bench = Bench::new(Arc::clone(&self.host), self.limits, self.counts());
        let mut backoff = Backoff::new();
        let mut stop: Option<Instant> = None;
        let mut said: Option<String> = None;
        loop {
            let started = Instant::now();
            let attempt = async {
                let connections = Connections::open(&self.client).await?;
                Session::open(&self, connections, &mut bench).await
            };
            let ended = tokio::select! {
                session = attempt => match session {
                    Ok(session) => {
                        self.counts.connected.store(true, Ordering::Relaxed);
                        tracing::info!(worker = self.id, "connected to the Redis");
                        said = None;
                        session.work(&mut shutdown, &mut stop).await
                    }
                    Err(error) => Err(error),
                },
                () = &mut shutdown, if stop.is_none() => {
                    stop = Some(Instant::now() + self.limits.drain);
                    continue;
                }
            };
            self.counts.connected.store(false, Ordering::Relaxed);
            let Err(error) = ended else { break };
            let why = trouble(&error);
            // Said once, however often it is tried.
            if said.as_ref() != Some(&why) {
                tracing::warn!(worker = self.id, "{why}");
                said = Some(why);
            }
            if stop.is_some_and(|by| bench.is_empty() || Instant::now() >= by) {
                break;
            }
            backoff.held(started.elapsed());
            let pause = tokio::time::sleep(backoff.next());
            tokio::select! {
                () = pause => {}
                () = &mut shutdown, if stop.is_none() => {
                    stop = Some(Instant::now() + self.limits.drain);
                }
            }
        }
        let counts = &self.counts;
        tracing::info!(
            worker = self.id,
            evaluated = counts.evaluated(),
            claimed = counts.claimed(),
            failed = counts.failed(),
            expired = counts.expired(),
            "stopped"
        );
    }
}
