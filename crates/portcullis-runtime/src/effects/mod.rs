//! Where effects go: strikes, flags, quarantine and alerts (RFC-001 appendix D).

mod alerts;
mod runs;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use alerts::alert;
pub use alerts::{Alert, AlertSink, JsonLineAlerts, RecentAlerts};
pub(crate) use runs::Runs;
pub use runs::{Flag, Quarantined, RunRecord};

/// A panic while the lock was held left only whole entries behind.
pub(crate) fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
