//! Connections that only read, so that nobody who asks waits for those who write.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::lock;
use super::open::open_to_read;

/// How many are kept for the next. More than that are made as needed.
const IDLE: usize = 8;

/// A few connections, each with its prepared statements.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    busy: Duration,
    /// None, once it is closed.
    idle: Mutex<Option<Vec<Connection>>>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, busy: Duration) -> Self {
        Self {
            path,
            busy,
            idle: Mutex::new(Some(Vec::new())),
        }
    }

    /// Reads, all from the same moment. None if this is closed.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let connection = match lock(&self.idle).as_mut() {
            None => return Ok(None),
            Some(idle) => idle.pop(),
        };
        let connection = match connection {
            Some(connection) => connection,
            None => self.another()?,
        };
        let value = snapshot(&connection, read)?;
        // One that has failed is not kept.
        if let Some(idle) = lock(&self.idle).as_mut()
            && idle.len() < IDLE
        {
            idle.push(connection);
        }
        Ok(Some(value))
    }

    /// A connection for somebody who takes long.
    pub(crate) fn another(&self) -> rusqlite::Result<Connection> {
        open_to_read(&self.path, self.busy)
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.idle).is_none()
    }

    pub(crate) fn close(&self) {
        let idle = lock(&self.idle).take();
        drop(idle);
    }
}

/// Reads, all from the same moment.
pub(crate) fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    let value = read(&transaction)?;
    transaction.commit()?;
    Ok(value)
}
