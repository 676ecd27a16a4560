//! Decisions, reviews and intents as rows, and back.
//!
//! Times are kept in microseconds, as other databases do.

use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use portcullis_core::memory::{AnnouncedIntent, Decision, Review};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The columns that [`decision`] reads, of a table that is called `d`.
pub(super) const COLUMNS: &str = "d.id, d.date, d.review_by, d.stakes, d.confidence, d.category, \
     d.agent, d.tags, d.decision, d.context, d.reasons";

/// How many columns these are.
pub(super) const WIDTH: usize = 11;

/// A time in microseconds.
struct Moment(Timestamp);

/// Something that is written as a word.
struct Word<T>(T);

/// Something that is written as JSON.
struct Json<T>(T);

/// The row of an id.
pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<i64>> {
    let mut found = connection.prepare_cached("SELECT row FROM decision WHERE id = ?1")?;
    found.query_row([id], |row| row.get(0)).optional()
}

/// The decision of a row, without reviews.
pub(super) fn decision(row: &Row<'_>) -> rusqlite::Result<Decision> {
    let review_by: Option<Moment> = row.get(2)?;
    Ok(Decision {
        id: row.get(0)?,
        date: row.get::<_, Moment>(1)?.0,
        review_by: review_by.map(|moment| moment.0),
        stakes: row.get::<_, Word<_>>(3)?.0,
        confidence: row.get(4)?,
        category: row.get(5)?,
        agent: row.get(6)?,
        tags: row.get::<_, Json<_>>(7)?.0,
        decision: row.get(8)?,
        context: row.get(9)?,
        reasons: row.get::<_, Json<_>>(10)?.0,
        reviews: Vec::new(),
    })
}

/// The decision of a row, all of it.
pub(super) fn get(connection: &Connection, row: i64) -> rusqlite::Result<Option<Decision>> {
    let sql = format!("SELECT {COLUMNS} FROM decision d WHERE d.row = ?1");
    let mut found = connection.prepare_cached(&sql)?;
    let Some(mut found) = found.query_row([row], decision).optional()? else {
        return Ok(None);
    };
    found.reviews = reviews(connection, row)?;
    Ok(Some(found))
}

/// Hands over every decision in the order of their recording, until `each` says false.
pub(super) fn each(
    connection: &Connection,
    each: &mut dyn FnMut(Decision) -> bool,
) -> rusqlite::Result<()> {
    let sql = format!("SELECT {COLUMNS}, d.row FROM decision d ORDER BY d.row");
    let mut all = connection.prepare(&sql)?;
    let mut all = all.query([])?;
    while let Some(row) = all.next()? {
        let mut found = decision(row)?;
        found.reviews = reviews(connection, row.get(WIDTH)?)?;
        if !each(found) {
            break;
        }
    }
    Ok(())
}

/// What came of a decision.
pub(super) fn reviews(connection: &Connection, row: i64) -> rusqlite::Result<Vec<Review>> {
    let mut reviews = connection.prepare_cached(
        "SELECT date, outcome, actual_result, lessons, agent
         FROM review WHERE decision = ?1 ORDER BY number",
    )?;
    let reviews = reviews.query_map([row], |row| {
        Ok(Review {
            date: row.get::<_, Moment>(0)?.0,
            outcome: row.get::<_, Word<_>>(1)?.0,
            actual_result: row.get(2)?,
            lessons: row.get(3)?,
            agent: row.get(4)?,
        })
    })?;
    reviews.collect()
}

/// Adds a decision and its reviews, and gives its row.
pub(super) fn insert(
    connection: &Connection,
    decision: &Decision,
    changed: i64,
) -> rusqlite::Result<i64> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO decision (id, changed, date, review_by, stakes, confidence, category, agent,
             tags, decision, context, reasons)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let row = insert.insert(params![
        decision.id,
        changed,
        Moment(decision.date),
        decision.review_by.map(Moment),
        Word(decision.stakes),
        decision.confidence,
        decision.category,
        decision.agent,
        Json(&decision.tags),
        decision.decision,
        decision.context,
        Json(&decision.reasons),
    ])?;
    for review in &decision.reviews {
        add_review(connection, row, review)?;
    }
    Ok(row)
}

/// Adds what came of a decision.
pub(super) fn add_review(
    connection: &Connection,
    row: i64,
    review: &Review,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO review (decision, number, date, outcome, actual_result, lessons, agent)
         SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6
         FROM review WHERE decision = ?1",
    )?;
    insert.execute(params![
        row,
        Moment(review.date),
        Word(review.outcome),
        review.actual_result,
        review.lessons,
        review.agent,
    ])?;
    Ok(())
}

/// Adds an intent, and says how often it has been announced.
pub(super) fn announce(connection: &Connection, intent: &AnnouncedIntent) -> rusqlite::Result<i64> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO intent (correlation_id, revision, received_at, allowed, stakes, confidence,
             category, agent, violations, intent, context, metadata)
         SELECT ?1, coalesce(max(revision), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
         FROM intent WHERE correlation_id = ?1
         RETURNING revision",
    )?;
    insert.query_row(
        params![
            intent.correlation_id,
            Moment(intent.received_at),
            intent.allowed,
            Word(intent.stakes),
            intent.confidence,
            intent.category,
            intent.agent,
            Json(&intent.violations),
            intent.intent,
            intent.context,
            Json(&intent.metadata),
        ],
        |row| row.get(0),
    )
}

/// Why a run is quarantined, if it is.
pub(super) fn quarantined_run(
    connection: &Connection,
    run_id: &str,
) -> rusqlite::Result<Option<String>> {
    let mut why = connection.prepare_cached("SELECT why FROM quarantine WHERE run_id = ?1")?;
    why.query_row([run_id], |row| row.get(0)).optional()
}

/// Quarantined runs, and why.
pub(super) fn quarantined(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut runs = connection.prepare_cached("SELECT run_id, why FROM quarantine")?;
    let runs = runs.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    runs.collect()
}

/// All that was announced under this id.
pub(super) fn intents(
    connection: &Connection,
    correlation_id: &str,
) -> rusqlite::Result<Vec<AnnouncedIntent>> {
    let mut intents = connection.prepare_cached(
        "SELECT correlation_id, received_at, allowed, stakes, confidence, category, agent,
             violations, intent, context, metadata
         FROM (SELECT * FROM intent WHERE correlation_id = ?1 ORDER BY revision DESC LIMIT 100)
         ORDER BY revision",
    )?;
    let intents = intents.query_map([correlation_id], |row| {
        Ok(AnnouncedIntent {
            correlation_id: row.get(0)?,
            received_at: row.get::<_, Moment>(1)?.0,
            allowed: row.get(2)?,
            stakes: row.get::<_, Word<_>>(3)?.0,
            confidence: row.get(4)?,
            category: row.get(5)?,
            agent: row.get(6)?,
            violations: row.get::<_, Json<_>>(7)?.0,
            intent: row.get(8)?,
            context: row.get(9)?,
            metadata: row.get::<_, Json<_>>(10)?.0,
        })
    })?;
    intents.collect()
}

/// How many decisions there are.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<usize> {
    let mut count = connection.prepare_cached("SELECT count(*) FROM decision")?;
    count.query_row([], |row| Ok(row.get::<_, i64>(0)?.unsigned_abs() as usize))
}

/// Whether somebody says the same again. Time passes between a request and its repetition, and what came
/// of the decision may be known meanwhile, so neither counts.
pub(super) fn is_same(kept: &Decision, said: &Decision) -> bool {
    kept.id == said.id
        && kept.decision == said.decision
        && kept.context == said.context
        && kept.category == said.category
        && kept.stakes == said.stakes
        && kept.confidence == said.confidence
        && kept.reasons == said.reasons
        && kept.tags == said.tags
        && kept.agent == said.agent
}

impl ToSql for Moment {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_microsecond().into())
    }
}

impl FromSql for Moment {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let moment = Timestamp::from_microsecond(value.as_i64()?);
        moment.map(Self).map_err(FromSqlError::other)
    }
}

impl<T: Display> ToSql for Word<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl<T: FromStr<Err = String>> FromSql for Word<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?.parse();
        word.map(Self)
            .map_err(|error: String| FromSqlError::Other(error.into()))
    }
}

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = serde_json::to_string(&self.0);
        let text = text.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(text.into())
    }
}

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let read = serde_json::from_str(value.as_str()?);
        read.map(Self)
            .map_err(|error| FromSqlError::Other(error.into()))
    }
}
