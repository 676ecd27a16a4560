//! Files of SQLite: how they are opened, what they may be, and what to say when they fail.

mod errors;
mod format;
mod open;
mod readers;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use errors::OpenError;
pub(crate) use errors::explain;
pub(crate) use format::Format;
#[cfg(test)]
pub(crate) use format::Kind;
pub(crate) use open::{FileOptions, Place, open};
pub(crate) use readers::{Readers, snapshot};

/// What is behind these locks is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
