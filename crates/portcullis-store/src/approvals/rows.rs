//! What is in a row, and how rows are found.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use portcullis_core::approval::{Approval, ApprovalError, Status, Which};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, named_params};

/// How many that are long over are forgotten at once, so that nobody waits for it.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot be.
    Refused(ApprovalError),
    /// The database fails.
    Database(rusqlite::Error),
    /// A row is not as it was written.
    Damaged { id: String, why: String },
    /// JSON cannot hold it.
    Unfit(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<ApprovalError> for Failure {
    fn from(error: ApprovalError) -> Self {
        Self::Refused(error)
    }
}

/// What is beside the JSON. All of it follows from the approval.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    id: String,
    run_id: String,
    created: i64,
    status: String,
    until: Option<i64>,
    later: Option<String>,
    lapses: Option<i64>,
    taken: Option<i64>,
    over: Option<i64>,
}

impl Columns {
    fn of(approval: &Approval) -> Self {
        // Asked of core, so that there is one place that knows what time does.
        let turn_at = |time: Option<Timestamp>| {
            let time = time?;
            let later = approval.clone().at(time).status;
            (later != approval.status).then_some((time, later))
        };
        let turn = turn_at(approval.expires).or_else(|| turn_at(approval.lapses()));
        let last = turn_at(approval.lapses());
        let expired = last.filter(|(_, later)| *later == Status::Expired);
        // Silence that means yes turns twice.
        let lapses = expired.filter(|_| turn != last);
        let denied = approval.decided.as_ref();
        let denied = denied.filter(|_| approval.status == Status::Denied);
        let over = approval
            .taken
            .or(expired.map(|(expires, _)| expires))
            .or(denied.map(|decided| decided.at));
        Self {
            id: approval.id.clone(),
            run_id: approval.bound.run_id.clone(),
            created: moment(approval.created),
            status: approval.status.as_str().to_owned(),
            until: turn.map(|(expires, _)| moment(expires)),
            later: turn.map(|(_, later)| later.as_str().to_owned()),
            lapses: lapses.map(|(time, _)| moment(time)),
            taken: approval.taken.map(moment),
            over: over.map(moment),
        }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            run_id: row.get("run_id")?,
            created: row.get("created")?,
            status: row.get("status")?,
            until: row.get("until")?,
            later: row.get("later")?,
            lapses: row.get("lapses")?,
            taken: row.get("taken")?,
            over: row.get("over")?,
        })
    }
}

/// Those whom 64 bits cannot hold, before 1678 and after 2262, count as the first and the last.
fn moment(time: Timestamp) -> i64 {
    let nanoseconds = time.as_nanosecond();
    let bounded = nanoseconds.clamp(i64::MIN.into(), i64::MAX.into());
    bounded as i64
}

pub(super) fn exists(connection: &Connection, id: &str) -> rusqlite::Result<bool> {
    let mut exists = connection.prepare_cached("SELECT 1 FROM approval WHERE id = ?1")?;
    exists.exists([id])
}

pub(super) fn count(connection: &Connection) -> rusqlite::Result<usize> {
    let mut count = connection.prepare_cached("SELECT count(*) FROM approval")?;
    let count: i64 = count.query_row([], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

pub(super) fn get(connection: &Connection, id: &str) -> Result<Option<Approval>, Failure> {
    let mut get = connection.prepare_cached("SELECT * FROM approval WHERE id = ?1")?;
    let found = get.query_row([id], |row| Ok(read(row))).optional()?;
    found.transpose()
}

pub(super) fn list(
    connection: &Connection,
    which: &Which,
    now: Timestamp,
) -> Result<Vec<Approval>, Failure> {
    let status = which.status.map(Status::as_str);
    let limit = i64::try_from(which.limit).unwrap_or(i64::MAX);
    let now = moment(now);
    let run = &which.run_id;
    let collect = |sql: &str, values: &[(&str, &dyn ToSql)]| {
        let mut list = connection.prepare_cached(sql)?;
        let mut rows = list.query(values)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    };
    match (run, status) {
        (None, None) => collect(ALL, named_params! {":limit": limit}),
        (None, Some(status)) => collect(
            OF_STATUS,
            named_params! {":status": status, ":now": now, ":limit": limit},
        ),
        (Some(run), status) => collect(
            OF_RUN,
            named_params! {":run": run, ":status": status, ":now": now, ":limit": limit},
        ),
    }
}

const ALL: &str = "SELECT * FROM approval ORDER BY created, id LIMIT :limit";

/// A run has few.
const OF_RUN: &str = "SELECT * FROM approval WHERE run_id = :run
    AND (:status IS NULL OR :status =
         CASE WHEN lapses <= :now THEN 'expired' WHEN until <= :now THEN later ELSE status END)
    ORDER BY created, id LIMIT :limit";

/// Those that stand so already and those that time has made so, each in the order of its index: nothing is sorted but what
/// is asked for, and no row is read that is not.
const OF_STATUS: &str = "SELECT approval.* FROM (
        SELECT * FROM (
            SELECT created, id FROM approval INDEXED BY approval_status
            WHERE status = :status AND (until IS NULL OR until > :now)
            ORDER BY created, id LIMIT :limit
        ) UNION ALL SELECT * FROM (
            SELECT created, id FROM approval INDEXED BY approval_later
            WHERE later = :status AND until <= :now AND (lapses IS NULL OR lapses > :now)
            ORDER BY created, id LIMIT :limit
        ) UNION ALL SELECT * FROM (
            SELECT created, id FROM approval INDEXED BY approval_lapses
            WHERE :status = 'expired' AND lapses IS NOT NULL AND lapses <= :now
            ORDER BY created, id LIMIT :limit
        ) ORDER BY created, id LIMIT :limit
    ) AS found JOIN approval USING (id) ORDER BY found.created, found.id";

pub(super) fn insert(connection: &Connection, approval: &Approval) -> Result<(), Failure> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO approval (id, run_id, created, status, until, later, lapses, taken, over, approval)
         VALUES (:id, :run_id, :created, :status, :until, :later, :lapses, :taken, :over, :approval)",
    )?;
    write(&mut insert, approval)
}

pub(super) fn update(connection: &Connection, approval: &Approval) -> Result<(), Failure> {
    let mut update = connection.prepare_cached(
        "UPDATE approval SET run_id = :run_id, created = :created, status = :status,
         until = :until, later = :later, lapses = :lapses, taken = :taken, over = :over, approval = :approval
         WHERE id = :id",
    )?;
    write(&mut update, approval)
}

/// Forgets some that have been over for so long.
pub(super) fn forget_old(
    connection: &Connection,
    now: Timestamp,
    keep: Duration,
) -> rusqlite::Result<()> {
    let before = SignedDuration::try_from(keep)
        .ok()
        .and_then(|keep| now.checked_sub(keep).ok());
    let Some(before) = before else { return Ok(()) };
    let mut delete = connection.prepare_cached(
        "DELETE FROM approval WHERE id IN
         (SELECT id FROM approval WHERE over < ?1 ORDER BY over LIMIT ?2)",
    )?;
    delete.execute([moment(before), FORGOTTEN_AT_ONCE])?;
    Ok(())
}

/// Forgets the oldest that is settled: used up, denied or expired. False if there is none.
pub(super) fn forget_oldest(connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
    let mut delete = connection.prepare_cached(
        "DELETE FROM approval WHERE id =
         (SELECT id FROM approval INDEXED BY approval_settled WHERE over IS NOT NULL
          AND (taken IS NOT NULL OR status = 'denied' OR (later = 'expired' AND until <= ?1) OR lapses <= ?1)
          ORDER BY created, id LIMIT 1)",
    )?;
    Ok(delete.execute([moment(now)])? > 0)
}

/// A row that contradicts itself was not written by us: nothing is made of it.
fn read(row: &Row<'_>) -> Result<Approval, Failure> {
    let name = || row.get("id").unwrap_or_else(|_| "(unreadable)".to_owned());
    let damaged = |why: String| Failure::Damaged { id: name(), why };
    let json = row.get_ref("approval")?;
    let json = json
        .as_bytes()
        .map_err(|error| damaged(error.to_string()))?;
    let approval: Approval =
        serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
    let columns = Columns::read(row).map_err(|error| damaged(error.to_string()))?;
    if columns != Columns::of(&approval) {
        let why = "its columns are not those of its JSON";
        return Err(damaged(why.to_owned()));
    }
    Ok(approval)
}

fn write(
    statement: &mut rusqlite::CachedStatement<'_>,
    approval: &Approval,
) -> Result<(), Failure> {
    let unfit = |error: serde_json::Error| Failure::Unfit(error.to_string());
    let json = serde_json::to_string(approval).map_err(unfit)?;
    // What cannot be read again, like values too deep, must not get an answer that nobody could use.
    let again: Approval = serde_json::from_str(&json).map_err(unfit)?;
    if again != *approval {
        return Err(Failure::Unfit("something differs".to_owned()));
    }
    let columns = Columns::of(approval);
    statement.execute(named_params! {
        ":id": columns.id,
        ":run_id": columns.run_id,
        ":created": columns.created,
        ":status": columns.status,
        ":until": columns.until,
        ":later": columns.later,
        ":lapses": columns.lapses,
        ":taken": columns.taken,
        ":over": columns.over,
        ":approval": json,
    })?;
    Ok(())
}
