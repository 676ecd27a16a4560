//! What the threads of a memory have in common.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use portcullis_core::memory::Embedder;
use rusqlite::Connection;

use super::batch::{Batch, Failure, Write, task};
use super::{SqliteOptions, SqliteStats};
use crate::memory::MemoryError;
use crate::memory::index::Index;
use crate::queue::{Queue, Refused};
use crate::sqlite::{Place, Readers, explain, lock};

pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) embedder: Arc<dyn Embedder>,
    pub(super) queue: Queue<Box<dyn Write>>,
    pub(super) index: RwLock<Index>,
    pub(super) loading: Loading,
    pub(super) readers: Readers,
    /// What the thread in the background waits for.
    pub(super) background: Signal,
    /// Why the last try to make vectors failed.
    pub(super) trouble: Mutex<Option<String>>,
    pub(super) counters: Counters,
    finished: Mutex<Option<Result<(), MemoryError>>>,
    finishing: Condvar,
    pub(super) options: SqliteOptions,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) overloaded: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) total_commit_micros: AtomicU64,
}

impl Shared {
    pub(super) fn new(place: Place, options: SqliteOptions, embedder: Arc<dyn Embedder>) -> Self {
        Self {
            readers: Readers::new(place.path.clone(), options.busy_timeout),
            place,
            queue: Queue::new(options.queue),
            index: RwLock::new(Index::new(embedder.dimension())),
            embedder,
            loading: Loading::default(),
            background: Signal::default(),
            trouble: Mutex::default(),
            counters: Counters::default(),
            finished: Mutex::default(),
            finishing: Condvar::new(),
            options,
        }
    }

    /// Has something done in a transaction, and waits until it is committed and in the index.
    pub(super) fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let (task, result) = task(work);
        self.queue
            .push(task, bytes)
            .map_err(|refused| match refused {
                Refused::Closed => MemoryError::Closed,
                Refused::Full => {
                    self.counters.overloaded.fetch_add(1, Relaxed);
                    let waiting = self.queue.waiting().0;
                    MemoryError::Overloaded { waiting }
                }
            })?;
        result.recv().unwrap_or(Err(MemoryError::Closed))
    }

    /// Reads from the tables, all from the same moment.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, MemoryError> {
        let value = self.readers.read(read).map_err(|error| self.error(&error));
        value?.ok_or(MemoryError::Closed)
    }

    /// The index, once all that is in the tables is in it.
    pub(super) fn index(&self) -> Result<RwLockReadGuard<'_, Index>, MemoryError> {
        if self.readers.is_closed() {
            return Err(MemoryError::Closed);
        }
        if !self.options.search {
            let problem = "it was opened without `search`".to_owned();
            return Err(MemoryError::Database(problem));
        }
        self.loading.wait(self.options.load_patience)?;
        self.loaded_so_far()
    }

    /// The index, as far as it has got.
    pub(super) fn loaded_so_far(&self) -> Result<RwLockReadGuard<'_, Index>, MemoryError> {
        if self.readers.is_closed() {
            return Err(MemoryError::Closed);
        }
        Ok(self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn error(&self, error: &rusqlite::Error) -> MemoryError {
        MemoryError::Database(explain(&self.place.path, error))
    }

    /// Takes no more, and lets the threads end.
    pub(super) fn close(&self) {
        self.readers.close();
        self.background.stop();
        self.queue.close();
    }

    /// Waits until all is written out.
    pub(super) fn wait_finished(&self, patience: Duration) -> Result<(), MemoryError> {
        let finished = lock(&self.finished);
        let waited = self
            .finishing
            .wait_timeout_while(finished, patience, |finished| finished.is_none());
        let (finished, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let waiting = self.queue.waiting().0;
        finished
            .clone()
            .unwrap_or(Err(MemoryError::Unfinished { waiting }))
    }

    /// Says that all is written out, or why not. Only the first word counts.
    pub(super) fn finish(&self, result: Result<(), MemoryError>) {
        lock(&self.finished).get_or_insert(result);
        self.finishing.notify_all();
    }

    pub(super) fn stats(&self) -> SqliteStats {
        let counters = &self.counters;
        SqliteStats {
            queued: self.queue.waiting().0,
            written: counters.written.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            overloaded: counters.overloaded.load(Relaxed),
            commits: counters.commits.load(Relaxed),
            total_commit: Duration::from_micros(counters.total_commit_micros.load(Relaxed)),
        }
    }
}

/// How far the first load has got.
#[derive(Debug, Default)]
pub(super) struct Loading {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    done: usize,
    of: usize,
    finished: bool,
    trouble: Option<MemoryError>,
}

impl Loading {
    pub(super) fn is_finished(&self) -> bool {
        lock(&self.progress).finished
    }

    pub(super) fn expect(&self, of: usize) {
        lock(&self.progress).of = of;
    }

    pub(super) fn moved(&self, by: usize, finished: bool) {
        let mut progress = lock(&self.progress);
        progress.done += by;
        // Others may record meanwhile.
        progress.of = progress.of.max(progress.done);
        progress.finished = finished;
        progress.trouble = None;
        drop(progress);
        if finished {
            self.moved.notify_all();
        }
    }

    /// Says why it does not get on. It is tried again.
    pub(super) fn failed(&self, trouble: MemoryError) {
        lock(&self.progress).trouble = Some(trouble);
        self.moved.notify_all();
    }

    fn wait(&self, patience: Duration) -> Result<(), MemoryError> {
        let progress = lock(&self.progress);
        let waited = self
            .moved
            .wait_timeout_while(progress, patience, |progress| {
                !progress.finished && progress.trouble.is_none()
            });
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (progress.finished, &progress.trouble) {
            (true, _) => Ok(()),
            (false, Some(trouble)) => Err(trouble.clone()),
            (false, None) => Err(MemoryError::Loading {
                done: progress.done,
                of: progress.of,
            }),
        }
    }
}

/// Lets a thread sleep until there is something to do.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<Signalled>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Signalled {
    woken: bool,
    stopped: bool,
}

impl Signal {
    pub(super) fn wake(&self) {
        lock(&self.state).woken = true;
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Sleeps until there is something to do. False if it is to stop.
    pub(super) fn wait(&self) -> bool {
        let sleeping = |state: &mut Signalled| !state.woken && !state.stopped;
        let state = self.changed.wait_while(lock(&self.state), sleeping);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.woken = false;
        !state.stopped
    }

    /// False if it is to stop.
    pub(super) fn goes_on(&self) -> bool {
        !lock(&self.state).stopped
    }

    /// Sleeps for a while, whatever there is to do. False if it is to stop.
    pub(super) fn rest(&self, time: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| !state.stopped);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.stopped
    }
}
