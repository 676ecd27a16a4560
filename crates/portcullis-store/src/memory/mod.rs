//! The memory: decisions, what came of them, and announced intents, to be found again by meaning.
//!
//! [`Memory`] is what every backend does, and `tests/it/conformance.rs` what each has to pass.

mod index;
mod sqlite;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub use index::bench::Bench;

use std::time::Duration;

use portcullis_core::memory::{
    AnnouncedIntent, Decision, EmbedError, Filters, ListRequest, MAX_REVIEWS, Outcome, Query,
    Review,
};

pub use index::By;
pub use sqlite::{SqliteMemory, SqliteOptions, SqliteStats};

pub use crate::sqlite::OpenError;

/// Keeps decisions and finds them again.
///
/// What has returned without an error is on disk, and in every answer from then on. All methods block:
/// they are for threads that may.
pub trait Memory: Send + Sync {
    /// Keeps decisions, all in one step. An answer for each, in their order.
    fn record(&self, decisions: Vec<Decision>) -> Result<Vec<Recorded>, MemoryError>;

    /// Adds what came of a decision, and gives the decision as it is then.
    fn review(&self, id: &str, review: Review) -> Result<Decision, MemoryError>;

    /// The decision of this id.
    fn get(&self, id: &str) -> Result<Option<Decision>, MemoryError>;

    /// Erases a decision and all that is known of it. False if there was none.
    fn forget(&self, id: &str) -> Result<bool, MemoryError>;

    /// Decisions, the latest first.
    fn list(&self, request: &ListRequest) -> Result<Listing, MemoryError>;

    /// Decisions like what is asked for, the nearest first.
    fn query(&self, query: &Query) -> Result<Found, MemoryError>;

    /// How sure agents were and how it turned out, for every reviewed decision that had a confidence.
    fn track_record(&self, filters: &Filters) -> Result<Vec<(f64, Outcome)>, MemoryError>;

    /// Hands over every decision there was when this was called, in the order of their recording, until
    /// `each` says false. Writers go on meanwhile.
    fn export(&self, each: &mut dyn FnMut(Decision) -> bool) -> Result<(), MemoryError>;

    /// Keeps an intent, and says how often it has been announced now, this time included.
    fn announce(&self, intent: AnnouncedIntent) -> Result<u64, MemoryError>;

    /// What was announced under this id, the first first: the last hundred revisions.
    fn intent(&self, correlation_id: &str) -> Result<Vec<AnnouncedIntent>, MemoryError>;

    /// Keeps why a run is quarantined, as text that means nothing here. What is kept already stays.
    fn quarantine(&self, run_id: String, why: String) -> Result<(), MemoryError>;

    /// Forgets that a run is quarantined.
    fn release(&self, run_id: String) -> Result<(), MemoryError>;

    /// Why a run is quarantined, if it is.
    fn quarantined_run(&self, run_id: &str) -> Result<Option<String>, MemoryError>;

    /// The runs that are quarantined, and why.
    fn quarantined(&self) -> Result<Vec<(String, String)>, MemoryError>;

    /// How things stand.
    fn state(&self) -> Result<MemoryState, MemoryError>;

    /// Finishes what is queued within this time, and takes nothing more. Dropping it does the same without
    /// reporting.
    fn close(&self, patience: Duration) -> Result<(), MemoryError>;
}

/// What became of a decision that was to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is kept.
    New,
    /// It was there already, just so: somebody did not hear the first answer.
    Same,
    /// Another decision has its id. Nothing was changed.
    Taken,
}

/// A page of decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The page.
    pub decisions: Vec<Decision>,
    /// How many the filters admit altogether.
    pub total: usize,
    /// What to ask for as `after` to get the next page; none if this was the last.
    pub next: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The nearest first.
    pub hits: Vec<Hit>,
    /// How many decisions the filters admit.
    pub total: usize,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Which.
    pub decision: Decision,
    /// 0 is the same, 1 has nothing to do with it.
    pub distance: f32,
}

/// How things stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryState {
    /// How many decisions there are.
    pub decisions: usize,
    /// The model whose vectors are searched.
    pub model: String,
    /// How many decisions still wait for one of its vectors; until then they are found by words alone.
    pub unembedded: usize,
    /// Why the last try to make some failed.
    pub trouble: Option<String>,
    /// Whether vectors are searched by an index of neighbourhoods rather than one by one.
    pub approximate: bool,
}

/// Why the memory does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// There is no such decision.
    #[error("there is no decision `{id}`")]
    NotFound {
        /// The id that was asked for.
        id: String,
    },
    /// The decision has been reviewed often enough.
    #[error("decision `{id}` has {MAX_REVIEWS} reviews, the most there can be")]
    TooManyReviews {
        /// Which.
        id: String,
    },
    /// The query has no vector.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The database does not take or give it.
    #[error("the memory's database fails: {0}")]
    Database(String),
    /// Too many wait. Shed the call, or let it come again.
    #[error("the memory is overloaded: {waiting} changes are waiting for the disk")]
    Overloaded {
        /// How many wait.
        waiting: usize,
    },
    /// What is on disk is still being read. Let the call come again.
    #[error("the memory is still loading: {done} of {of} decisions are read")]
    Loading {
        /// How many decisions are read.
        done: usize,
        /// How many there are.
        of: usize,
    },
    /// There was not enough time to close.
    #[error("the memory was not written out in time: {waiting} changes are waiting")]
    Unfinished {
        /// How many wait.
        waiting: usize,
    },
    /// The memory is closed.
    #[error("the memory is closed")]
    Closed,
}
