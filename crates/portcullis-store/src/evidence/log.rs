//! The log as its callers see it.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use portcullis_core::evidence::{Body, BodyError, Link, Redactor};
use serde_json::json;
use tokio::sync::oneshot;

use super::checkpoints::Checkpoints;
use super::clock::rfc3339;
use super::disk::{Disk, RealDisk};
use super::options::{Durability, Options};
use super::recover::{self, OpenError, Opened, Recovery};
use super::writer::{WriteError, Writer};
use crate::queue::{Gather, Queue, Refused};

/// Why an entry is not in the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Too many wait. Shed the call, or let it come again.
    #[error("the evidence log is overloaded: {queue} entries are waiting for the disk")]
    Overloaded {
        /// How many may wait.
        queue: usize,
    },
    /// The disk does not take it. Later entries are tried again.
    #[error("the evidence log cannot be written: {0}")]
    Write(Arc<WriteError>),
    /// The log is closed.
    #[error("the evidence log is closed")]
    Closed,
}

/// Why a log was not closed as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// Entries are still waiting for the disk.
    #[error(
        "the evidence log was not written out within {deadline:?}: {waiting} entries are waiting"
    )]
    Deadline {
        /// How long was waited.
        deadline: Duration,
        /// How many entries wait.
        waiting: usize,
    },
    /// Every entry that was acknowledged is in the log, but the last of them are not signed.
    #[error("the last checkpoint could not be written: {problem}")]
    Checkpoint {
        /// Why not.
        problem: String,
    },
}

/// How a log is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// The last acknowledged entry.
    pub last_seq: u64,
    /// The last entry that a checkpoint covers.
    pub checkpoint_seq: u64,
    /// How many entries wait for the disk.
    pub queued: usize,
    /// How long the first of them has been waiting.
    pub oldest_wait: Duration,
    /// Entries acknowledged since the log was opened.
    pub appended: u64,
    /// Entries that the disk did not take.
    pub failed: u64,
    /// Entries that were refused because too many were waiting.
    pub overloaded: u64,
    /// How often several entries, or one, were written at once.
    pub commits: u64,
    /// How long the last `fsync` of entries took.
    pub last_sync: Duration,
    /// How long all of them took together.
    pub total_sync: Duration,
    /// Why the last attempt to write entries failed, if it did.
    pub last_error: Option<String>,
    /// Why the last attempt to write a checkpoint failed, if it did.
    pub checkpoint_error: Option<String>,
}

/// An evidence log, open for writing. It belongs to one process at a time.
///
/// Dropping it writes out what waits and signs a last checkpoint; [`close`](Self::close) does so within a
/// deadline.
#[derive(Debug)]
pub struct EvidenceLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    durability: Durability,
    bound: usize,
    checkpoint_every: u64,
    checkpoint_interval: Duration,
    queue: Queue<Pending>,
    writer: Mutex<Writer>,
    counters: Counters,
    last_error: Mutex<Option<String>>,
    checkpoint_error: Mutex<Option<String>>,
    finished: Mutex<Option<Result<(), String>>>,
    finishing: Condvar,
    /// Held as long as the log is open.
    lock: File,
}

#[derive(Debug, Default)]
struct Counters {
    last_seq: AtomicU64,
    checkpoint_seq: AtomicU64,
    /// Callers who write themselves, or wait to.
    writing: AtomicUsize,
    appended: AtomicU64,
    failed: AtomicU64,
    overloaded: AtomicU64,
    commits: AtomicU64,
    last_sync_micros: AtomicU64,
    total_sync_micros: AtomicU64,
    failing: AtomicBool,
}

struct Pending {
    body: Body,
    answer: Answer,
}

type Outcome = Result<Link, AppendError>;

enum Answer {
    Task(oneshot::Sender<Outcome>),
    Thread(SyncSender<Outcome>),
}

impl EvidenceLog {
    /// Opens the log, or begins one; checks its end, from the last checkpoint on.
    ///
    /// The beginning of an entry that was never acknowledged is cut off, and an entry with the event
    /// `evidence_recovered` says so. Anything else that is not as it was written is an error.
    pub fn open(options: Options) -> Result<(Self, Recovery), OpenError> {
        Self::open_on(options, Arc::new(RealDisk))
    }

    pub(super) fn open_on(
        options: Options,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, Recovery), OpenError> {
        let Options {
            durability,
            checkpoint_every,
            checkpoint_interval,
            queue,
            ..
        } = options;
        let Opened {
            mut writer,
            checkpoints,
            recovery,
            lock,
        } = recover::open(options, &disk)?;
        if let Some(torn) = &recovery.torn {
            let body = recovered(torn.bytes);
            let body = body.map_err(|error| OpenError::Thread(std::io::Error::other(error)))?;
            writer.commit(std::iter::once(&body), &mut Vec::new())?;
        }
        let counters = Counters::default();
        counters.last_seq.store(writer.end().0.seq, Relaxed);
        counters
            .checkpoint_seq
            .store(checkpoints.covered(), Relaxed);
        let shared = Arc::new(Shared {
            disk,
            durability,
            bound: queue,
            checkpoint_every: checkpoint_every.max(1),
            checkpoint_interval,
            queue: Queue::new(queue),
            writer: Mutex::new(writer),
            counters,
            last_error: Mutex::default(),
            checkpoint_error: Mutex::default(),
            finished: Mutex::default(),
            finishing: Condvar::new(),
            lock,
        });
        let work = Arc::clone(&shared);
        let thread = thread::Builder::new().name("evidence".to_owned());
        let thread = thread
            .spawn(move || work.run(checkpoints))
            .map_err(OpenError::Thread)?;
        let log = Self {
            shared,
            thread: Mutex::new(Some(thread)),
        };
        Ok((log, recovery))
    }

    /// Adds an entry, and answers once it is as safe as the log's [`Durability`] asks for.
    ///
    /// A future that is dropped after its first poll does not take its entry back.
    pub async fn append(&self, body: Body) -> Result<Link, AppendError> {
        if self.shared.durability == Durability::Os {
            return self.shared.write_here(&body);
        }
        let (answer, outcome) = oneshot::channel();
        self.shared.enqueue(body, Answer::Task(answer))?;
        outcome.await.unwrap_or(Err(AppendError::Closed))
    }

    /// [`append`](Self::append), for a thread that may be blocked.
    pub fn append_blocking(&self, body: Body) -> Result<Link, AppendError> {
        if self.shared.durability == Durability::Os {
            return self.shared.write_here(&body);
        }
        let (answer, outcome) = sync_channel(1);
        self.shared.enqueue(body, Answer::Thread(answer))?;
        outcome.recv().unwrap_or(Err(AppendError::Closed))
    }

    /// How it is doing.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let (queued, since) = self.shared.queue.waiting();
        let micros = |counter: &AtomicU64| Duration::from_micros(counter.load(Relaxed));
        Stats {
            last_seq: counters.last_seq.load(Relaxed),
            checkpoint_seq: counters.checkpoint_seq.load(Relaxed),
            queued: queued + counters.writing.load(Relaxed),
            oldest_wait: since.map(|since| since.elapsed()).unwrap_or_default(),
            appended: counters.appended.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            overloaded: counters.overloaded.load(Relaxed),
            commits: counters.commits.load(Relaxed),
            last_sync: micros(&counters.last_sync_micros),
            total_sync: micros(&counters.total_sync_micros),
            last_error: lock(&self.shared.last_error).clone(),
            checkpoint_error: lock(&self.shared.checkpoint_error).clone(),
        }
    }

    /// Takes no more entries, writes out those that wait, and signs a last checkpoint.
    pub fn close(&self, deadline: Duration) -> Result<(), CloseError> {
        self.shared.queue.close();
        let finished = lock(&self.shared.finished);
        let waited = self
            .shared
            .finishing
            .wait_timeout_while(finished, deadline, |finished| finished.is_none());
        let (finished, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &*finished {
            Some(Ok(())) => Ok(()),
            Some(Err(problem)) => Err(CloseError::Checkpoint {
                problem: problem.clone(),
            }),
            None => Err(CloseError::Deadline {
                deadline,
                waiting: self.shared.queue.waiting().0,
            }),
        }
    }
}

impl Drop for EvidenceLog {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = lock(&self.thread).take() {
            // It ends by itself, and has nothing to say that it has not said to the callers.
            let _ = thread.join();
        }
        // Closing it would do, but not while a process that was started meanwhile still has a copy.
        let _ = self.shared.lock.unlock();
    }
}

impl Shared {
    fn enqueue(&self, body: Body, answer: Answer) -> Result<(), AppendError> {
        let bytes = body.len();
        let pushed = self.queue.push(Pending { body, answer }, bytes);
        pushed.map_err(|refused| match refused {
            Refused::Closed => AppendError::Closed,
            Refused::Full => self.overloaded(),
        })
    }

    fn overloaded(&self) -> AppendError {
        self.counters.overloaded.fetch_add(1, Relaxed);
        AppendError::Overloaded { queue: self.bound }
    }

    /// Writes an entry in the caller's thread. Without an `fsync` to share, handing it to another thread takes
    /// longer than writing it.
    fn write_here(&self, body: &Body) -> Result<Link, AppendError> {
        if self.queue.is_closing() {
            return Err(AppendError::Closed);
        }
        let writing = self.counters.writing.fetch_add(1, Relaxed);
        let result = if writing < self.bound {
            let mut links = Vec::with_capacity(1);
            self.commit(std::iter::once(body), &mut links)
                .and_then(|()| links.pop().ok_or(AppendError::Closed))
        } else {
            Err(self.overloaded())
        };
        self.counters.writing.fetch_sub(1, Relaxed);
        if let Ok(link) = &result {
            let uncovered = link.seq - self.counters.checkpoint_seq.load(Relaxed).min(link.seq);
            // Once in a round, and once more in each that goes by if it fails.
            if uncovered > 0 && uncovered.is_multiple_of(self.checkpoint_every) {
                self.queue.nudge();
            }
        }
        result
    }

    fn commit<'b>(
        &self,
        bodies: impl ExactSizeIterator<Item = &'b Body>,
        links: &mut Vec<Link>,
    ) -> Result<(), AppendError> {
        let entries = bodies.len() as u64;
        let mut writer = lock(&self.writer);
        let result = writer.commit(bodies, links);
        let last_seq = writer.end().0.seq;
        let last_sync = writer.last_sync().as_micros() as u64;
        // While it is locked, so that it never goes back, and what is said of the last attempt is of the last.
        self.counters.last_seq.store(last_seq, Relaxed);
        let counters = &self.counters;
        match &result {
            Ok(()) if counters.failing.swap(false, Relaxed) => *lock(&self.last_error) = None,
            Ok(()) => {}
            Err(error) => {
                *lock(&self.last_error) = Some(error.to_string());
                counters.failing.store(true, Relaxed);
            }
        }
        drop(writer);
        counters.commits.fetch_add(1, Relaxed);
        counters.last_sync_micros.store(last_sync, Relaxed);
        counters.total_sync_micros.fetch_add(last_sync, Relaxed);
        match result {
            Ok(()) => {
                counters.appended.fetch_add(entries, Relaxed);
                Ok(())
            }
            Err(error) => {
                counters.failed.fetch_add(entries, Relaxed);
                Err(AppendError::Write(Arc::new(error)))
            }
        }
    }

    /// The thread of the log: writes what waits, and signs from time to time.
    fn run(&self, mut checkpoints: Checkpoints) {
        let _gone = Gone(self);
        let mut batches = [1, 1];
        let mut tried = Instant::now();
        let mut last_sync = Duration::ZERO;
        loop {
            let patience = self.checkpoint_interval.saturating_sub(tried.elapsed());
            let gather = Gather {
                entries: batches[0].max(batches[1]),
                // A little of what it saves.
                at_most: (last_sync / 8).min(Duration::from_millis(1)),
            };
            let taken = self
                .queue
                .take(patience.max(Duration::from_millis(1)), gather);
            if !taken.items.is_empty() {
                batches = [batches[1], taken.items.len()];
                self.write_out(taken.items);
                last_sync = lock(&self.writer).last_sync();
            }
            let covered = checkpoints.covered();
            let uncovered = self.counters.last_seq.load(Relaxed).saturating_sub(covered);
            let is_time = tried.elapsed() >= self.checkpoint_interval;
            if taken.finished || is_time || uncovered >= self.checkpoint_every {
                let signed = self.sign(&mut checkpoints);
                tried = Instant::now();
                *lock(&self.checkpoint_error) = signed.as_ref().err().cloned();
                if taken.finished {
                    *lock(&self.finished) = Some(signed);
                    return;
                }
            }
        }
    }

    fn write_out(&self, batch: Vec<Pending>) {
        let mut links = Vec::with_capacity(batch.len());
        let result = self.commit(batch.iter().map(|pending| &pending.body), &mut links);
        match result {
            Ok(()) => {
                for (pending, link) in batch.into_iter().zip(links) {
                    pending.answer.give(Ok(link));
                }
            }
            Err(error) => {
                for pending in batch {
                    pending.answer.give(Err(error.clone()));
                }
            }
        }
    }

    /// Signs how far the log has got, if it has got further.
    fn sign(&self, checkpoints: &mut Checkpoints) -> Result<(), String> {
        let mut writer = lock(&self.writer);
        let (mut head, mut position) = writer.end();
        if head.seq == checkpoints.covered() {
            return Ok(());
        }
        if self.durability == Durability::Os {
            let file = writer.in_order().map_err(|error| error.to_string())?;
            // Putting it in order may have begun a segment.
            (head, position) = writer.end();
            // Others go on meanwhile.
            drop(writer);
            if let Err(error) = self.disk.sync(&file) {
                lock(&self.writer).distrust();
                return Err(format!("cannot sync the last segment: {error}"));
            }
        } else {
            drop(writer);
        }
        let written = checkpoints.write(head, position);
        written.map_err(|error| format!("cannot write a checkpoint: {error}"))?;
        self.counters.checkpoint_seq.store(head.seq, Relaxed);
        Ok(())
    }
}

/// However the thread ends, nobody waits for it any longer.
struct Gone<'s>(&'s Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        // Senders that are dropped answer too.
        while !self
            .0
            .queue
            .take(Duration::ZERO, Gather::NOTHING)
            .items
            .is_empty()
        {}
        let problem = "the thread that writes evidence has ended".to_owned();
        lock(&self.0.finished).get_or_insert(Err(problem));
        self.0.finishing.notify_all();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("durability", &self.durability)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Whoever has stopped waiting does not need it.
    fn give(self, outcome: Outcome) {
        match self {
            Self::Task(sender) => drop(sender.send(outcome)),
            Self::Thread(sender) => drop(sender.send(outcome)),
        }
    }
}

fn recovered(bytes: u64) -> Result<Body, BodyError> {
    let entry = json!({
        "timestamp": rfc3339(SystemTime::now()),
        "event": "evidence_recovered",
        "discarded_bytes": bytes,
    });
    let members = entry.as_object().cloned().unwrap_or_default();
    Body::new(&members, &Redactor::none())
}

/// What is behind these locks is never left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
