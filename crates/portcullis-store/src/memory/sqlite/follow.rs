//! How the index learns what is in the tables.
//!
//! There is one way: by reading everything with a number above the last one seen. The first load, what
//! this process commits and what another commits all come by it, so that they cannot differ.

use std::sync::{PoisonError, RwLock};

use portcullis_core::memory::Decision;
use rusqlite::{Connection, params};

use super::rows::{self, COLUMNS, WIDTH};
use super::vectors::Codes;
use crate::memory::index::Index;

/// How many are put into the index before those who search get their turn.
const AT_ONCE: usize = 64;

/// Who follows, and how far it has got.
#[derive(Debug)]
pub(super) struct Follower {
    model: String,
    dimension: usize,
    seen: i64,
}

/// Some changes in a row.
pub(super) struct Slice {
    puts: Vec<Put>,
    erased: Vec<i64>,
    upto: i64,
    /// Whether there are more after these.
    pub(super) more: bool,
}

struct Put {
    row: i64,
    changed: i64,
    decision: Decision,
    vector: Option<Vec<f32>>,
}

impl Slice {
    /// How many decisions are in it.
    pub(super) fn len(&self) -> usize {
        self.puts.len()
    }
}

impl Follower {
    /// Has seen nothing yet.
    pub(super) fn new(model: String, dimension: usize) -> Self {
        Self {
            model,
            dimension,
            seen: 0,
        }
    }

    /// The next changes, at most so many if there is a limit. All from the same moment, if the caller sees to that.
    pub(super) fn read(
        &self,
        connection: &Connection,
        limit: Option<usize>,
    ) -> rusqlite::Result<Slice> {
        let upto = changed(connection)?;
        if upto <= self.seen {
            return Ok(Slice {
                puts: Vec::new(),
                erased: Vec::new(),
                upto,
                more: false,
            });
        }
        let puts = self.puts(connection, limit)?;
        let more = limit.is_some_and(|limit| puts.len() >= limit);
        let last = puts.last().filter(|_| more).map(|put| put.changed);
        let upto = last.unwrap_or(upto);
        let mut erased = connection
            .prepare_cached("SELECT row FROM erased WHERE changed > ?1 AND changed <= ?2")?;
        let erased = erased.query_map([self.seen, upto], |row| row.get(0))?;
        Ok(Slice {
            erased: erased.collect::<rusqlite::Result<_>>()?,
            puts,
            upto,
            more,
        })
    }

    fn puts(&self, connection: &Connection, limit: Option<usize>) -> rusqlite::Result<Vec<Put>> {
        let sql = format!(
            "SELECT {COLUMNS}, d.row, d.changed, v.scale, v.codes
             FROM decision d LEFT JOIN vector v
             ON v.decision = d.row AND v.model = (SELECT number FROM model WHERE name = ?3)
             WHERE d.changed > ?1 ORDER BY d.changed LIMIT ?2"
        );
        let limit = limit.map_or(-1, |limit| limit as i64);
        let mut puts = connection.prepare_cached(&sql)?;
        let puts = puts.query_map(params![self.seen, limit, self.model], |row| {
            let mut decision = rows::decision(row)?;
            let number = row.get(WIDTH)?;
            decision.reviews = rows::reviews(connection, number)?;
            let vector = match row.get::<_, Option<f32>>(WIDTH + 2)? {
                None => None,
                Some(scale) => {
                    let codes = row.get_ref(WIDTH + 3)?.as_blob()?;
                    (codes.len() == self.dimension).then(|| Codes::restore(scale, codes))
                }
            };
            Ok(Put {
                row: number,
                changed: row.get(WIDTH + 1)?,
                decision,
                vector,
            })
        })?;
        puts.collect()
    }

    /// Puts changes into the index, and says whether that leaves anything to do in the background: a decision
    /// without a vector, or too many for the neighbourhoods that there are. What they were read from must be
    /// committed.
    pub(super) fn apply(&mut self, slice: &Slice, index: &RwLock<Index>) -> bool {
        let mut plan_due = false;
        let write = || index.write().unwrap_or_else(PoisonError::into_inner);
        for rows in slice.erased.chunks(AT_ONCE) {
            let mut index = write();
            for row in rows {
                index.remove(*row);
            }
        }
        for puts in slice.puts.chunks(AT_ONCE) {
            let mut index = write();
            for put in puts {
                index.put(put.row, &put.decision, put.vector.as_deref());
            }
            plan_due = index.is_plan_due();
        }
        self.seen = self.seen.max(slice.upto);
        plan_due || slice.puts.iter().any(|put| put.vector.is_none())
    }
}

/// The number of the last change.
pub(super) fn changed(connection: &Connection) -> rusqlite::Result<i64> {
    let mut changed = connection.prepare_cached("SELECT changed FROM counter")?;
    changed.query_row([], |row| row.get(0))
}
