//! The thread that writes, and keeps the index in step with the tables.
//!
//! It owns the only connection that writes. What waits is done in one transaction, with one `fsync`; then
//! it is put into the index, and only then are the callers told. If anything of that transaction fails all
//! of it is taken back, and nothing of it was ever in the index.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::batch::{Batch, Write};
use super::follow::{Follower, Slice};
use super::rows;
use super::shared::Shared;
use crate::memory::MemoryError;
use crate::queue::Gather;
use crate::sqlite::snapshot;

/// How often to look whether another process has written.
const POLL: Duration = Duration::from_millis(250);

/// How many decisions are read before those who write get their turn.
const SLICE: usize = 256;

/// How long to wait before a load that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    shared: Arc<Shared>,
    connection: Connection,
    follower: Follower,
    loaded: bool,
    /// What SQLite calls the last commit of somebody else.
    others: Option<i64>,
    last_commit: Duration,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>, connection: Connection) -> Self {
        let embedder = &shared.embedder;
        Self {
            follower: Follower::new(embedder.name().to_owned(), embedder.dimension()),
            shared,
            connection,
            loaded: false,
            others: None,
            last_commit: Duration::ZERO,
        }
    }

    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let gone = Gone(&shared);
        self.work();
        let result = self.finish();
        shared.finish(result);
        drop(gone);
    }

    /// Until nothing more will come.
    fn work(&mut self) {
        if let Ok(decisions) = rows::count(&self.connection) {
            self.shared.loading.expect(decisions);
        }
        let mut batches = [1, 1];
        let mut patience = Duration::ZERO;
        loop {
            let gather = Gather {
                entries: batches[0].max(batches[1]),
                // A little of what it saves.
                at_most: (self.last_commit / 8).min(Duration::from_millis(1)),
            };
            let taken = self.shared.queue.take(patience, gather);
            let idle = taken.items.is_empty();
            if !idle {
                batches = [batches[1], taken.items.len()];
                self.write(taken.items);
            }
            if taken.finished {
                return;
            }
            patience = match self.loaded {
                _ if !self.shared.options.search => POLL,
                false => self.load(),
                true if idle => self.poll(),
                true => POLL,
            };
        }
    }

    /// Does all of these, or none, and answers.
    fn write(&mut self, mut tasks: Vec<Box<dyn Write>>) {
        let started = Instant::now();
        let failed = self.commit(&mut tasks).err();
        self.last_commit = started.elapsed();
        let counters = &self.shared.counters;
        let (count, micros) = (tasks.len() as u64, self.last_commit.as_micros() as u64);
        counters.commits.fetch_add(1, Relaxed);
        counters.total_commit_micros.fetch_add(micros, Relaxed);
        match failed {
            None => counters.written.fetch_add(count, Relaxed),
            Some(_) => counters.failed.fetch_add(count, Relaxed),
        };
        for task in tasks {
            task.settle(failed.clone());
        }
    }

    fn commit(&mut self, tasks: &mut [Box<dyn Write>]) -> Result<(), MemoryError> {
        let shared = Arc::clone(&self.shared);
        let slice = self.transact(tasks).map_err(|failure| match failure {
            Some(error) => shared.error(&error),
            None => MemoryError::Database(format!(
                "{} was removed or replaced: put it back, or restart to begin anew",
                shared.place.path.display()
            )),
        })?;
        if let Some(slice) = slice {
            self.apply(&slice);
        }
        Ok(())
    }

    /// Commits, and gives the changes that the index does not know yet. No error says that the file is gone.
    fn transact(
        &mut self,
        tasks: &mut [Box<dyn Write>],
    ) -> Result<Option<Slice>, Option<rusqlite::Error>> {
        let shared = Arc::clone(&self.shared);
        if !shared.place.is_there() {
            return Err(None);
        }
        // One that could not even be taken back is still there.
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        // What others have committed first, so that what remains to be read is this batch's. Nobody else
        // writes from here on.
        while self.loaded {
            let slice = self.follower.read(&transaction, Some(SLICE))?;
            if self.follower.apply(&slice, &shared.index) {
                shared.background.wake();
            }
            if !slice.more {
                break;
            }
        }
        let mut batch = Batch::begin(&transaction, shared.embedder.name())?;
        for task in tasks {
            task.run(&mut batch)?;
        }
        batch.finish()?;
        // Before the load is done the load will come by them.
        let slice = if self.loaded {
            Some(self.follower.read(&transaction, None)?)
        } else {
            None
        };
        transaction.commit()?;
        Ok(slice)
    }

    /// Reads a little more of what is there, and says how long to wait before going on.
    fn load(&mut self) -> Duration {
        let shared = Arc::clone(&self.shared);
        match snapshot(&self.connection, |connection| {
            self.follower.read(connection, Some(SLICE))
        }) {
            Ok(slice) => {
                self.apply(&slice);
                self.loaded = !slice.more;
                shared.loading.moved(slice.len(), self.loaded);
                if self.loaded {
                    shared.background.wake();
                    return POLL;
                }
                Duration::ZERO
            }
            Err(error) => {
                shared.loading.failed(shared.error(&error));
                RETRY
            }
        }
    }

    /// Looks whether another process has written.
    fn poll(&mut self) -> Duration {
        let version = self
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0));
        // An error here is one that the next who writes will hear of.
        let Ok(version) = version else {
            return POLL;
        };
        if self.others == Some(version) {
            return POLL;
        }
        let slice = snapshot(&self.connection, |connection| {
            self.follower.read(connection, Some(SLICE))
        });
        let Ok(slice) = slice else {
            return POLL;
        };
        self.apply(&slice);
        if slice.more {
            return Duration::ZERO;
        }
        self.others = Some(version);
        POLL
    }

    fn apply(&mut self, slice: &Slice) {
        let work = self.follower.apply(slice, &self.shared.index);
        if work && self.loaded {
            self.shared.background.wake();
        }
    }

    /// Puts all that is in the write-ahead log into the database itself, and closes it.
    fn finish(self) -> Result<(), MemoryError> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let done = self.connection.query_row(checkpoint, [], |_| Ok(()));
        let closed = self.connection.close().map_err(|(_, error)| error);
        done.and(closed).map_err(|error| self.shared.error(&error))
    }
}

/// However the thread ends, nobody waits for it any longer.
struct Gone<'s>(&'s Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.close();
        // Senders that are dropped answer too.
        while !self
            .0
            .queue
            .take(Duration::ZERO, Gather::NOTHING)
            .items
            .is_empty()
        {}
        let problem = "the thread that writes has ended".to_owned();
        self.0.finish(Err(MemoryError::Database(problem)));
    }
}
