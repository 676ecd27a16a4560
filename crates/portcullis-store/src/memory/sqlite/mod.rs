//! The memory in a file: SQLite keeps it, and an index in this process searches it.
//!
//! | file | what it is |
//! |---|---|
//! | `keeper` | the thread that writes: group commit, then the index, then the answers |
//! | `follow` | how the index learns of every change, whoever made it |
//! | `batch`, `rows` | what is done to the tables, and what is in them |
//! | `schema` | which tables there are |
//! | `embedding` | the thread that gives decisions their vectors |
//!
//! Several processes may use one file. Each has an index of its own, and hears of what the others write
//! within a quarter of a second.

mod batch;
mod embedding;
mod follow;
mod keeper;
mod rows;
mod schema;
mod shared;
mod vectors;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use portcullis_core::memory::{
    AnnouncedIntent, Decision, Embedder, Filters, ListRequest, Outcome, Query, Review,
};
use rusqlite::Connection;

use self::embedding::Background;
use self::keeper::Keeper;
use self::shared::Shared;
use super::index::{Asked, By};
use super::{Found, Hit, Listing, Memory, MemoryError, MemoryState, OpenError, Recorded};
use crate::sqlite::{FileOptions, lock, open, snapshot};

/// Where a memory is kept, and how.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The file. It is made if it is not there, and so is its folder.
    pub path: PathBuf,
    /// How many changes may wait. One more is refused at once.
    pub queue: usize,
    /// How long to wait for another process that writes.
    pub busy_timeout: Duration,
    /// How long those who search wait for the first load.
    pub load_patience: Duration,
    /// Whether anybody is going to search or list. Otherwise nothing is loaded.
    pub search: bool,
    /// Whether decisions that lack a vector of this model get one. Not where another process uses another model.
    pub embed_in_background: bool,
    /// How many bytes the file may have. What does not fit is refused.
    pub size_limit: Option<u64>,
}

impl SqliteOptions {
    /// A memory in this file, and everything else as it is best for most.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            queue: 4096,
            busy_timeout: Duration::from_secs(5),
            load_patience: Duration::from_secs(5),
            search: true,
            embed_in_background: true,
            size_limit: None,
        }
    }
}

/// How the writing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SqliteStats {
    /// How many changes wait.
    pub queued: usize,
    /// How many were committed since the memory was opened.
    pub written: u64,
    /// How many the database did not take.
    pub failed: u64,
    /// How many were refused because too many were waiting.
    pub overloaded: u64,
    /// How often several changes, or one, were committed at once.
    pub commits: u64,
    /// How long all commits took together.
    pub total_commit: Duration,
}

/// A memory in a file.
///
/// Dropping it finishes what is queued; [`close`](Self::close) does so within a time, and says how it went.
pub struct SqliteMemory {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteMemory {
    /// Opens or creates the database. Returns at once: what is in it is loaded behind it.
    pub fn open(options: SqliteOptions, embedder: Arc<dyn Embedder>) -> Result<Self, OpenError> {
        let file = FileOptions {
            path: &options.path,
            busy_timeout: options.busy_timeout,
            size_limit: options.size_limit,
        };
        let (connection, place) = open(file, &schema::FORMAT)?;
        let embed_in_background = options.embed_in_background;
        let shared = Arc::new(Shared::new(place, options, embedder));
        let keeper = Keeper::new(Arc::clone(&shared), connection);
        let background = Background::new(Arc::clone(&shared));
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn(work).map_err(OpenError::Thread)
        };
        let keeper = spawn("memory", Box::new(move || keeper.run()))?;
        let memory = Self {
            shared,
            keeper: Mutex::new(Some(keeper)),
        };
        // Nobody waits for its end: a model may take its time, and it has nothing to write out.
        if embed_in_background {
            spawn("memory-vectors", Box::new(move || background.run()))?;
        }
        Ok(memory)
    }

    /// How the writing goes.
    pub fn stats(&self) -> SqliteStats {
        self.shared.stats()
    }

    /// Decisions like what is asked for, by words, by meaning or by both: [`Memory::query`] is both.
    pub fn search(&self, query: &Query, by: By) -> Result<Found, MemoryError> {
        let filters = &query.filters;
        // Nothing to find needs no vector.
        if self.shared.index()?.len() == 0 {
            return Ok(Found {
                hits: Vec::new(),
                total: 0,
            });
        }
        let vector = self.vector(&query.text)?;
        let id = query.text.trim();
        let exact = self.shared.read(|connection| by_id(connection, id))?;
        let exact = exact.filter(|decision| filters.admit(decision));
        let mut limit = query.limit;
        loop {
            let nearest = self.shared.index()?.search(&Asked {
                text: &query.text,
                vector: vector.as_deref(),
                filters,
                limit,
                by,
            });
            let rows: Vec<i64> = nearest.rows.iter().map(|(row, _)| *row).collect();
            let fetched = self.fetch(&rows, filters)?;
            // Between the index and the table some may vanish; then others take their places.
            let vanished = rows.len() - fetched.len();
            if vanished > 0 && rows.len() >= limit && limit < query.limit + vanished {
                limit = query.limit + vanished;
                continue;
            }
            let exact = exact.map(|decision| Hit {
                decision,
                distance: 0.0,
            });
            let mut distances = nearest.rows.into_iter();
            let near = fetched.into_iter().filter_map(|(row, decision)| {
                let (_, distance) = distances.find(|(near, _)| *near == row)?;
                Some(Hit { decision, distance })
            });
            let near = near.filter(|hit| hit.decision.id != id);
            let hits = exact.into_iter().chain(near).take(query.limit).collect();
            return Ok(Found {
                hits,
                total: nearest.total,
            });
        }
    }

    /// The decisions of these rows that are still there and still admitted.
    fn fetch(&self, rows: &[i64], filters: &Filters) -> Result<Vec<(i64, Decision)>, MemoryError> {
        self.shared.read(|connection| {
            let mut fetched = Vec::with_capacity(rows.len());
            for row in rows {
                let decision = rows::get(connection, *row)?;
                fetched.extend(decision.map(|decision| (*row, decision)));
            }
            fetched.retain(|(_, decision)| filters.admit(decision));
            Ok(fetched)
        })
    }

    /// The vector of a query. One without any meaning to the model is searched for by words.
    fn vector(&self, text: &str) -> Result<Option<Vec<f32>>, MemoryError> {
        let mut vectors = embedding::vectors(&*self.shared.embedder, &[text])?;
        let vector = vectors.pop();
        Ok(vector.filter(|vector| vector.iter().any(|x| *x != 0.0)))
    }
}

impl Memory for SqliteMemory {
    fn record(&self, decisions: Vec<Decision>) -> Result<Vec<Recorded>, MemoryError> {
        if decisions.is_empty() {
            return Ok(Vec::new());
        }
        let embedder = &*self.shared.embedder;
        let mut vectors = Vec::new();
        if embedder.is_instant() {
            let meanings: Vec<String> = decisions.iter().map(Decision::meaning).collect();
            let meanings: Vec<&str> = meanings.iter().map(String::as_str).collect();
            // What has no vector now gets one later, like those of other models.
            vectors = embedding::embed(embedder, &meanings).unwrap_or_default();
        }
        let bytes = decisions.iter().map(weight).sum();
        self.shared.write(bytes, move |batch| {
            let decisions = decisions.iter().enumerate();
            decisions
                .map(|(n, decision)| batch.record(decision, vectors.get(n)))
                .collect()
        })
    }

    fn review(&self, id: &str, review: Review) -> Result<Decision, MemoryError> {
        let id = id.to_owned();
        let texts = [&review.actual_result, &review.lessons];
        let bytes = texts.into_iter().flatten().map(String::len).sum();
        self.shared
            .write(bytes, move |batch| batch.review(&id, &review))
    }

    fn get(&self, id: &str) -> Result<Option<Decision>, MemoryError> {
        self.shared.read(|connection| by_id(connection, id))
    }

    fn forget(&self, id: &str) -> Result<bool, MemoryError> {
        let id = id.to_owned();
        self.shared.write(id.len(), move |batch| batch.forget(&id))
    }

    fn list(&self, request: &ListRequest) -> Result<Listing, MemoryError> {
        let filters = &request.filters;
        let limit = request.limit.max(1);
        let mut after = match &request.after {
            None => None,
            Some(id) => {
                let row = self.shared.read(|connection| rows::find(connection, id))?;
                Some(row.ok_or_else(|| MemoryError::NotFound { id: id.clone() })?)
            }
        };
        let mut decisions = Vec::new();
        loop {
            let wanted = limit - decisions.len();
            let latest = self.shared.index()?.latest(filters, after, wanted);
            // Between the index and the table one may vanish; then the page goes on behind it.
            decisions.extend(self.fetch(&latest.rows, filters)?);
            after = latest.rows.last().copied().or(after);
            if decisions.len() >= limit || !latest.more {
                let decisions: Vec<_> = decisions.into_iter().map(|(_, found)| found).collect();
                let last = decisions.last().map(|decision| decision.id.clone());
                return Ok(Listing {
                    decisions,
                    total: latest.total,
                    next: last.filter(|_| latest.more),
                });
            }
        }
    }

    fn query(&self, query: &Query) -> Result<Found, MemoryError> {
        self.search(query, By::Both)
    }

    fn track_record(&self, filters: &Filters) -> Result<Vec<(f64, Outcome)>, MemoryError> {
        Ok(self.shared.index()?.track_record(filters))
    }

    fn export(&self, each: &mut dyn FnMut(Decision) -> bool) -> Result<(), MemoryError> {
        if self.shared.readers.is_closed() {
            return Err(MemoryError::Closed);
        }
        let exported = self.shared.readers.another().and_then(|connection| {
            snapshot(&connection, |connection| rows::each(connection, &mut *each))
        });
        exported.map_err(|error| self.shared.error(&error))
    }

    fn announce(&self, intent: AnnouncedIntent) -> Result<u64, MemoryError> {
        // Whatever else is in it is small, or was counted by somebody before.
        let bytes = intent.intent.len() + intent.context.as_ref().map_or(0, String::len);
        self.shared
            .write(bytes, move |batch| batch.announce(&intent))
    }

    fn intent(&self, correlation_id: &str) -> Result<Vec<AnnouncedIntent>, MemoryError> {
        self.shared
            .read(|connection| rows::intents(connection, correlation_id))
    }

    fn quarantine(&self, run_id: String, why: String) -> Result<(), MemoryError> {
        self.shared.write(run_id.len() + why.len(), move |batch| {
            batch.quarantine(&run_id, &why)
        })
    }

    fn release(&self, run_id: String) -> Result<(), MemoryError> {
        self.shared
            .write(run_id.len(), move |batch| batch.release(&run_id))
    }

    fn quarantined_run(&self, run_id: &str) -> Result<Option<String>, MemoryError> {
        self.shared
            .read(|connection| rows::quarantined_run(connection, run_id))
    }

    fn quarantined(&self) -> Result<Vec<(String, String)>, MemoryError> {
        self.shared.read(rows::quarantined)
    }

    fn state(&self) -> Result<MemoryState, MemoryError> {
        let loading = !self.shared.loading.is_finished();
        // Until all is loaded the table knows better; afterwards the index knows sooner.
        let counted = if loading {
            Some(self.shared.read(rows::count)?)
        } else {
            None
        };
        let index = self.shared.loaded_so_far()?;
        Ok(MemoryState {
            decisions: counted.unwrap_or(index.len()),
            model: self.shared.embedder.name().to_owned(),
            unembedded: index.unembedded(),
            trouble: lock(&self.shared.trouble).clone(),
            approximate: index.is_approximate(),
        })
    }

    fn close(&self, patience: Duration) -> Result<(), MemoryError> {
        self.shared.close();
        self.shared.wait_finished(patience)
    }
}

impl Drop for SqliteMemory {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(keeper) = lock(&self.keeper).take() {
            // It ends by itself, and has nothing to say that it has not said to the callers.
            let _ = keeper.join();
        }
    }
}

impl std::fmt::Debug for SqliteMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteMemory")
            .field("path", &self.shared.place.path)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

fn by_id(connection: &Connection, id: &str) -> rusqlite::Result<Option<Decision>> {
    match rows::find(connection, id)? {
        None => Ok(None),
        Some(row) => rows::get(connection, row),
    }
}

/// About how many bytes a decision holds.
fn weight(decision: &Decision) -> usize {
    decision.words().map(str::len).sum::<usize>() + decision.id.len() + 128
}
