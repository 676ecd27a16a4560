//! Deep rules behind a real Redis: what the suite asks of every inbox, and what only a Redis can do to one.

mod acl;
mod faults;
mod latency;
mod pool;
mod server;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_core::RuleId;
use portcullis_runtime::{
    DeepHost, DeepRules, InboxLimits, RedisSettings, RemoteInbox, Worker, WorkerCounts,
    WorkerLimits,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::server::Server;
use crate::inbox::conforms;

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker in this process.
struct Hand {
    task: JoinHandle<()>,
    counts: Arc<WorkerCounts>,
    stop: Option<oneshot::Sender<()>>,
}

impl Hand {
    /// Ends as a process does that is killed: between two instructions, and without a word.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn shut_down(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.task)
            .await
            .expect("it stops")
            .unwrap();
    }
}

fn hire(settings: &RedisSettings, rules: DeepRules) -> Hand {
    hire_with(settings, rules, QUICK)
}

/// Steps in soon.
const QUICK: WorkerLimits = WorkerLimits {
    concurrency: 32,
    claim_after: Duration::from_millis(400),
    attempts: 3,
    drain: Duration::from_secs(10),
};

fn hire_with(settings: &RedisSettings, rules: DeepRules, limits: WorkerLimits) -> Hand {
    let host = Arc::new(DeepHost::new(rules));
    let worker = Worker::new(settings, host, limits).unwrap();
    let counts = worker.counts();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    Hand {
        task: tokio::spawn(worker.run(shutdown)),
        counts,
        stop: Some(stop),
    }
}

fn inbox(settings: &RedisSettings) -> RemoteInbox {
    RemoteInbox::over_redis(settings, InboxLimits::default()).unwrap()
}

/// Waits until this is so.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "it never came: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn is_ready(inbox: &RemoteInbox, rule: &str) -> bool {
    let id = RuleId::from(rule);
    let up = inbox.trouble().is_none();
    up && inbox
        .served()
        .iter()
        .any(|served| served.id == id && served.ready)
}

async fn until_ready(inbox: &RemoteInbox, rule: &str) {
    let started = Instant::now();
    while !is_ready(inbox, rule) {
        let why = inbox.trouble();
        assert!(started.elapsed() < PATIENCE, "{rule} is not ready: {why:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_redis_inbox_conforms() {
    let server = Server::start();
    let made = AtomicUsize::new(0);
    conforms(async |rules: DeepRules, limits| {
        let nth = made.fetch_add(1, Ordering::Relaxed);
        let settings = server.settings(&format!("suite-{nth}"));
        let first = rules.list().map(|(info, _)| info.id.clone()).next();
        let worker = Worker::new(&settings, Arc::new(DeepHost::new(rules)), QUICK).unwrap();
        tokio::spawn(worker.run(std::future::pending()));
        let inbox = RemoteInbox::over_redis(&settings, limits).unwrap();
        until_ready(&inbox, first.unwrap().as_str()).await;
        Arc::new(inbox) as _
    })
    .await;
}
