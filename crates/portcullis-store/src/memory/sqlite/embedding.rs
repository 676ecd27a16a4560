//! The thread in the background: it gives decisions their vectors, and the index its neighbourhoods.
//!
//! Decisions without a vector of the model in use are embedded a few at a time, and what comes of it goes
//! to the keeper like any other change. After another model was put to use these are all of them; until a
//! vector is replaced it lies there, and is not compared with anything.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use portcullis_core::memory::{EmbedError, Embedder};
use rusqlite::params;

use super::rows::{self, COLUMNS, WIDTH};
use super::shared::Shared;
use super::vectors::Codes;
use crate::memory::MemoryError;
use crate::sqlite::lock;

/// How many texts a model is given at once.
const AT_ONCE: usize = 32;

/// How many decisions are moved to new neighbourhoods before those who search get their turn.
const AT_ONCE_MOVED: usize = 256;

/// How long to wait after the first failure, and after many.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Vectors for these texts. Whatever is not as it should be is an error.
pub(super) fn vectors(
    embedder: &dyn Embedder,
    texts: &[&str],
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let vectors = embedder.embed(texts)?;
    let (found, asked) = (vectors.len(), texts.len());
    let dimension = embedder.dimension();
    let odd = vectors.iter().find(|vector| vector.len() != dimension);
    let why = if found != asked {
        format!("{found} vectors came for {asked} texts")
    } else if let Some(odd) = odd {
        format!("a vector has {} numbers, not {dimension}", odd.len())
    } else if !vectors.iter().flatten().all(|x| x.is_finite()) {
        "a vector has a number that is none".to_owned()
    } else {
        return Ok(vectors);
    };
    Err(EmbedError {
        model: embedder.name().to_owned(),
        why,
    })
}

/// Vectors for these texts, as they are kept.
pub(super) fn embed(embedder: &dyn Embedder, texts: &[&str]) -> Result<Vec<Codes>, EmbedError> {
    let vectors = vectors(embedder, texts)?;
    Ok(vectors.iter().map(|vector| Codes::of(vector)).collect())
}

pub(super) struct Background {
    shared: Arc<Shared>,
    /// All rows up to here were looked at.
    cursor: i64,
    at_once: usize,
    backoff: Duration,
}

struct Waiting {
    row: i64,
    text: String,
}

impl Background {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            cursor: 0,
            at_once: AT_ONCE,
            backoff: BACKOFF[0],
        }
    }

    pub(super) fn run(mut self) {
        while self.shared.background.wait() {
            if !self.embed_all() || !self.improve_index() {
                return;
            }
        }
    }

    /// Makes searching faster: what takes long is done without a lock, and the rest in small steps. False if
    /// it is to stop.
    fn improve_index(&self) -> bool {
        let index = &self.shared.index;
        let read = || index.read().unwrap_or_else(PoisonError::into_inner);
        let write = || index.write().unwrap_or_else(PoisonError::into_inner);
        let plan = read().plan();
        if let Some(plan) = plan {
            let made = plan.make();
            write().adopt(made);
        }
        loop {
            if !self.shared.background.goes_on() {
                return false;
            }
            let moves = read().moves(AT_ONCE_MOVED);
            if moves.is_empty() {
                return true;
            }
            write().settle(&moves);
        }
    }

    /// Goes on until no decision waits. False if it is to stop.
    fn embed_all(&mut self) -> bool {
        loop {
            let error = match self.embed_some() {
                Err(MemoryError::Closed) => return false,
                Err(error) => error,
                Ok(some) => {
                    self.backoff = BACKOFF[0];
                    self.at_once = (self.at_once * 2).min(AT_ONCE);
                    *lock(&self.shared.trouble) = None;
                    if some {
                        continue;
                    }
                    return true;
                }
            };
            *lock(&self.shared.trouble) = Some(error.to_string());
            let backoff = self.backoff;
            self.backoff = (backoff * 2).min(BACKOFF[1]);
            // Searching goes on meanwhile, and may as well be fast.
            if !self.improve_index() || !self.shared.background.rest(backoff) {
                return false;
            }
        }
    }

    /// False if there was none.
    fn embed_some(&mut self) -> Result<bool, MemoryError> {
        // Looked up first: what lacks a vector now is in the table by then.
        if self.shared.index()?.unembedded() == 0 {
            return Ok(false);
        }
        let mut waiting = self.next()?;
        if waiting.is_empty() && self.cursor > 0 {
            // One was passed over, or its vector was replaced by somebody with another model.
            self.cursor = 0;
            waiting = self.next()?;
        }
        let Some(last) = waiting.last() else {
            return Ok(false);
        };
        let texts: Vec<&str> = waiting
            .iter()
            .map(|waiting| waiting.text.as_str())
            .collect();
        let codes = match embed(&*self.shared.embedder, &texts) {
            Ok(codes) => codes,
            Err(error) => {
                // It may be for one of the texts. Then the others do not wait for ever.
                if let [one] = &*waiting {
                    self.cursor = one.row;
                }
                self.at_once = (waiting.len() / 2).max(1);
                return Err(error.into());
            }
        };
        self.cursor = last.row;
        let bytes = codes.iter().map(|codes| codes.codes.len()).sum();
        let rows: Vec<i64> = waiting.iter().map(|waiting| waiting.row).collect();
        self.shared.write(bytes, move |batch| {
            rows.iter()
                .zip(&codes)
                .try_for_each(|(row, codes)| batch.embed(*row, codes))
        })?;
        Ok(true)
    }

    fn next(&self) -> Result<Vec<Waiting>, MemoryError> {
        let embedder = &self.shared.embedder;
        self.shared.read(|connection| {
            let sql = format!(
                "SELECT {COLUMNS}, d.row FROM decision d
                 LEFT JOIN vector v ON v.decision = d.row AND length(v.codes) = ?2
                     AND v.model = (SELECT number FROM model WHERE name = ?1)
                 WHERE d.row > ?3 AND v.decision IS NULL ORDER BY d.row LIMIT ?4"
            );
            let mut waiting = connection.prepare_cached(&sql)?;
            let dimension = embedder.dimension() as i64;
            let params = params![embedder.name(), dimension, self.cursor, self.at_once as i64];
            let waiting = waiting.query_map(params, |row| {
                Ok(Waiting {
                    row: row.get(WIDTH)?,
                    text: rows::decision(row)?.meaning(),
                })
            })?;
            waiting.collect()
        })
    }
}
