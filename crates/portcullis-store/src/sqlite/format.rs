//! What a file is, and how one of an older version becomes one of ours.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// What a file is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format<'m> {
    /// What SQLite's header says whose file it is.
    pub(crate) application: i32,
    /// Migrations in their order; the version of a database is how many of them it has seen. One that was
    /// released is never changed: what is wrong with it is mended by the next.
    pub(crate) migrations: &'m [&'m [&'m str]],
}

/// What kind of database this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is nothing in it.
    Empty,
    /// One of ours, of this version.
    Ours(usize),
    /// Somebody else's.
    Foreign,
}

impl Format<'_> {
    /// Looks, and changes nothing.
    pub(crate) fn kind(&self, connection: &Connection) -> rusqlite::Result<Kind> {
        let application: i32 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if application == self.application {
            return Ok(usize::try_from(version).map_or(Kind::Foreign, Kind::Ours));
        }
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
        Ok(match (application, version, tables) {
            (0, 0, 0) => Kind::Empty,
            _ => Kind::Foreign,
        })
    }

    /// Does what is left to do. `after` hears of every statement that was executed.
    ///
    /// A migration and its number are one transaction: whoever is killed in between leaves the database as it
    /// was, and the next does it again.
    pub(crate) fn migrate(
        &self,
        connection: &Connection,
        after: &mut dyn FnMut(),
    ) -> rusqlite::Result<()> {
        loop {
            // Seen again under the lock: two processes may open a new database at once.
            let transaction =
                Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let done = match self.kind(&transaction)? {
                Kind::Empty => 0,
                Kind::Ours(version) => version,
                Kind::Foreign => return Ok(()),
            };
            let Some(statements) = self.migrations.get(done) else {
                return Ok(());
            };
            for statement in *statements {
                transaction.execute_batch(statement)?;
                after();
            }
            transaction.pragma_update(None, "application_id", self.application)?;
            transaction.pragma_update(None, "user_version", (done + 1) as i64)?;
            transaction.commit()?;
        }
    }
}
