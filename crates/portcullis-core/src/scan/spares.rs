//! What searches have learned, kept for the next ones.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As many as there have been searches at once, up to a limit: further ones make do with a new one. One for each thread, as
/// `meta::Regex` keeps them by itself, would be hundreds of megabytes a thread with a thousand patterns, of which a thread
/// searches for one at a time.
pub(super) struct Spares<T, const MOST: usize = 8>(Mutex<Vec<Box<T>>>);

impl<T, const MOST: usize> Spares<T, MOST> {
    /// One that has learned something, or a new one.
    #[expect(
        clippy::unnecessary_box_returns,
        reason = "they are large, and go from search to search"
    )]
    pub(super) fn take_or(&self, new: impl FnOnce() -> T) -> Box<T> {
        let known = self.all().pop();
        known.unwrap_or_else(|| Box::new(new()))
    }

    pub(super) fn keep(&self, one: Box<T>) {
        let mut all = self.all();
        if all.len() < MOST {
            all.push(one);
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Box<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, const MOST: usize> Default for Spares<T, MOST> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T, const MOST: usize> fmt::Debug for Spares<T, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spares").field(&self.all().len()).finish()
    }
}
