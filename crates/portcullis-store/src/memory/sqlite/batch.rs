//! What is done to the tables within a transaction.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use portcullis_core::memory::{AnnouncedIntent, Decision, MAX_REVIEWS, Review};
use rusqlite::{Transaction, params};

use super::vectors::Codes;
use super::{follow, rows};
use crate::memory::{MemoryError, Recorded};

/// A transaction, and the number of its last change.
pub(super) struct Batch<'t> {
    transaction: &'t Transaction<'t>,
    began: i64,
    changed: i64,
    model: &'t str,
}

/// Why something was not done.
pub(super) enum Failure {
    /// It cannot be, and nothing was changed for it.
    Refused(MemoryError),
    /// The database fails, and with it all that is in the transaction.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl<'t> Batch<'t> {
    pub(super) fn begin(
        transaction: &'t Transaction<'t>,
        model: &'t str,
    ) -> rusqlite::Result<Self> {
        let changed = follow::changed(transaction)?;
        Ok(Self {
            transaction,
            began: changed,
            changed,
            model,
        })
    }

    /// Notes how far the numbers have got. Without this nobody hears of the changes.
    pub(super) fn finish(&self) -> rusqlite::Result<()> {
        if self.changed != self.began {
            let mut update = self
                .transaction
                .prepare_cached("UPDATE counter SET changed = ?1")?;
            update.execute([self.changed])?;
        }
        Ok(())
    }

    pub(super) fn record(
        &mut self,
        decision: &Decision,
        vector: Option<&Codes>,
    ) -> Result<Recorded, Failure> {
        if let Some(row) = rows::find(self.transaction, &decision.id)? {
            let kept = rows::get(self.transaction, row)?;
            let same = kept.is_some_and(|kept| rows::is_same(&kept, decision));
            return Ok(if same {
                Recorded::Same
            } else {
                Recorded::Taken
            });
        }
        let changed = self.next();
        let row = rows::insert(self.transaction, decision, changed)?;
        if let Some(vector) = vector {
            self.set_vector(row, vector)?;
        }
        Ok(Recorded::New)
    }

    pub(super) fn review(&mut self, id: &str, review: &Review) -> Result<Decision, Failure> {
        let not_found = || Failure::Refused(MemoryError::NotFound { id: id.to_owned() });
        let row = rows::find(self.transaction, id)?.ok_or_else(not_found)?;
        if rows::reviews(self.transaction, row)?.len() >= MAX_REVIEWS {
            let id = id.to_owned();
            return Err(Failure::Refused(MemoryError::TooManyReviews { id }));
        }
        rows::add_review(self.transaction, row, review)?;
        self.touch(row)?;
        rows::get(self.transaction, row)?.ok_or_else(not_found)
    }

    pub(super) fn forget(&mut self, id: &str) -> Result<bool, Failure> {
        let Some(row) = rows::find(self.transaction, id)? else {
            return Ok(false);
        };
        let changed = self.next();
        // What belongs to it goes with it.
        let mut delete = self
            .transaction
            .prepare_cached("DELETE FROM decision WHERE row = ?1")?;
        delete.execute([row])?;
        let mut erased = self
            .transaction
            .prepare_cached("INSERT INTO erased (changed, row) VALUES (?1, ?2)")?;
        erased.execute([changed, row])?;
        Ok(true)
    }

    pub(super) fn announce(&mut self, intent: &AnnouncedIntent) -> Result<u64, Failure> {
        Ok(rows::announce(self.transaction, intent)?.unsigned_abs())
    }

    /// Keeps why a run is quarantined, unless it is already.
    pub(super) fn quarantine(&self, run_id: &str, why: &str) -> Result<(), Failure> {
        let mut insert = self.transaction.prepare_cached(
            "INSERT INTO quarantine (run_id, why) VALUES (?1, ?2) ON CONFLICT (run_id) DO NOTHING",
        )?;
        insert.execute([run_id, why])?;
        Ok(())
    }

    pub(super) fn release(&self, run_id: &str) -> Result<(), Failure> {
        let mut delete = self
            .transaction
            .prepare_cached("DELETE FROM quarantine WHERE run_id = ?1")?;
        delete.execute([run_id])?;
        Ok(())
    }

    /// Gives a decision its vector, unless it was forgotten meanwhile.
    pub(super) fn embed(&mut self, row: i64, vector: &Codes) -> Result<(), Failure> {
        if self.touch(row)? {
            self.set_vector(row, vector)?;
        }
        Ok(())
    }

    fn set_vector(&self, row: i64, vector: &Codes) -> rusqlite::Result<()> {
        let mut model = self
            .transaction
            .prepare_cached("INSERT INTO model (name) VALUES (?1) ON CONFLICT (name) DO NOTHING")?;
        model.execute([self.model])?;
        let mut replace = self.transaction.prepare_cached(
            "INSERT OR REPLACE INTO vector (decision, model, scale, codes)
             VALUES (?1, (SELECT number FROM model WHERE name = ?2), ?3, ?4)",
        )?;
        replace.execute(params![row, self.model, vector.scale, vector.codes])?;
        Ok(())
    }

    /// Lets those who follow look at a decision again. False if there is none.
    fn touch(&mut self, row: i64) -> rusqlite::Result<bool> {
        let changed = self.next();
        let mut update = self
            .transaction
            .prepare_cached("UPDATE decision SET changed = ?1 WHERE row = ?2")?;
        Ok(update.execute([changed, row])? > 0)
    }

    fn next(&mut self) -> i64 {
        self.changed += 1;
        self.changed
    }
}

/// Something to do in a transaction, for somebody who waits.
pub(super) trait Write: Send {
    /// Does it. An error is one of the database.
    fn run(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()>;

    /// Answers, now that it is committed, or has failed.
    fn settle(self: Box<Self>, failed: Option<MemoryError>);
}

/// Work, its result, and whom to tell.
struct Task<F, T> {
    work: Option<F>,
    result: Result<T, MemoryError>,
    answer: SyncSender<Result<T, MemoryError>>,
}

/// Something to do, and where its result will be.
pub(super) fn task<T: Send + 'static>(
    work: impl FnOnce(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
) -> (Box<dyn Write>, Receiver<Result<T, MemoryError>>) {
    let (answer, result) = sync_channel(1);
    let task = Task {
        work: Some(work),
        result: Err(MemoryError::Closed),
        answer,
    };
    (Box::new(task), result)
}

impl<F, T> Write for Task<F, T>
where
    F: FnOnce(&mut Batch<'_>) -> Result<T, Failure> + Send,
    T: Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        self.result = match work(batch) {
            Ok(value) => Ok(value),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Database(error)) => return Err(error),
        };
        Ok(())
    }

    fn settle(self: Box<Self>, failed: Option<MemoryError>) {
        let result = match failed {
            Some(error) => Err(error),
            None => self.result,
        };
        // Whoever has stopped waiting does not need it.
        drop(self.answer.send(result));
    }
}
