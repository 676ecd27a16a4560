//! The tables, and how a database of an older version gets them.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// What SQLite's header says whose file it is: `PCLS`.
pub(super) const APPLICATION: i32 = 0x5043_4c53;

/// Migrations in their order; the version of a database is how many of them it has seen. One that was
/// released is never changed: what is wrong with it is mended by the next.
pub(super) const MIGRATIONS: &[&[&str]] = &[FIRST, SECOND];

const FIRST: &[&str] = &[
    // The number of the last change, whatever was changed.
    "CREATE TABLE counter (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        changed INTEGER NOT NULL
    ) STRICT",
    "INSERT INTO counter (one, changed) VALUES (1, 0)",
    // A row is never given to another decision, so that who hears of it late cannot mistake one for the
    // other. `changed` is the number of the last change of it, or of what belongs to it.
    "CREATE TABLE decision (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        changed INTEGER NOT NULL UNIQUE,
        date INTEGER NOT NULL,
        review_by INTEGER,
        stakes TEXT NOT NULL,
        confidence REAL,
        category TEXT,
        agent TEXT,
        tags TEXT NOT NULL,
        decision TEXT NOT NULL,
        context TEXT,
        reasons TEXT NOT NULL
    ) STRICT",
    "CREATE TABLE review (
        decision INTEGER NOT NULL REFERENCES decision (row) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        date INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        actual_result TEXT,
        lessons TEXT,
        agent TEXT,
        PRIMARY KEY (decision, number)
    ) STRICT",
    "CREATE TABLE model (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    ) STRICT",
    // A component is a code times the scale.
    "CREATE TABLE vector (
        decision INTEGER PRIMARY KEY REFERENCES decision (row) ON DELETE CASCADE,
        model INTEGER NOT NULL REFERENCES model (number),
        scale REAL NOT NULL,
        codes BLOB NOT NULL
    ) STRICT",
    // Those who follow the changes have to hear of rows that are no more.
    "CREATE TABLE erased (
        changed INTEGER PRIMARY KEY,
        row INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE intent (
        correlation_id TEXT NOT NULL,
        revision INTEGER NOT NULL,
        received_at INTEGER NOT NULL,
        allowed INTEGER NOT NULL,
        stakes TEXT NOT NULL,
        confidence REAL,
        category TEXT,
        agent TEXT,
        violations TEXT NOT NULL,
        intent TEXT NOT NULL,
        context TEXT,
        metadata TEXT NOT NULL,
        PRIMARY KEY (correlation_id, revision)
    ) STRICT",
];

const SECOND: &[&str] = &[
    // Why is JSON, which only those who wrote it read.
    "CREATE TABLE quarantine (
        run_id TEXT PRIMARY KEY,
        why TEXT NOT NULL
    ) STRICT, WITHOUT ROWID",
];

/// What kind of database this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is nothing in it.
    Empty,
    /// One of ours, of this version.
    Ours(usize),
    /// Somebody else's.
    Foreign,
}

/// Looks, and changes nothing.
pub(super) fn kind(connection: &Connection) -> rusqlite::Result<Kind> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application == APPLICATION {
        return Ok(usize::try_from(version).map_or(Kind::Foreign, Kind::Ours));
    }
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
    Ok(match (application, version, tables) {
        (0, 0, 0) => Kind::Empty,
        _ => Kind::Foreign,
    })
}

/// Does what is left to do. `after` hears of every statement that was executed.
///
/// A migration and its number are one transaction: whoever is killed in between leaves the database as it
/// was, and the next does it again.
pub(super) fn migrate(
    connection: &Connection,
    migrations: &[&[&str]],
    after: &mut dyn FnMut(),
) -> rusqlite::Result<()> {
    loop {
        // Seen again under the lock: two processes may open a new database at once.
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        let done = match kind(&transaction)? {
            Kind::Empty => 0,
            Kind::Ours(version) => version,
            Kind::Foreign => return Ok(()),
        };
        let Some(statements) = migrations.get(done) else {
            return Ok(());
        };
        for statement in *statements {
            transaction.execute_batch(statement)?;
            after();
        }
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", (done + 1) as i64)?;
        transaction.commit()?;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const DATABASE: &str = "PORTCULLIS_MIGRATED_DATABASE";
    const STATEMENTS: &str = "PORTCULLIS_MIGRATED_STATEMENTS";

    /// As it may be some day.
    fn two() -> Vec<&'static [&'static str]> {
        let second: &[&str] = &[
            "ALTER TABLE decision ADD COLUMN colour TEXT",
            "CREATE INDEX decision_colour ON decision (colour)",
        ];
        vec![FIRST, second]
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        // So that what is not committed is in the files all the same.
        connection
            .execute_batch("PRAGMA cache_size = 1; PRAGMA cache_spill = 1")
            .unwrap();
        connection
    }

    fn schema(connection: &Connection) -> Vec<String> {
        let sql = "SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name";
        let mut schema = connection.prepare(sql).unwrap();
        let schema = schema.query_map([], |row| row.get(0)).unwrap();
        schema.map(Result::unwrap).collect()
    }

    #[test]
    fn a_migration_is_done_once() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("memory.db"));
        assert_eq!(kind(&connection).unwrap(), Kind::Empty);
        let mut statements = 0;
        for _ in 0..2 {
            migrate(&connection, MIGRATIONS, &mut || statements += 1).unwrap();
            let all: usize = MIGRATIONS.iter().map(|migration| migration.len()).sum();
            assert_eq!(statements, all);
            assert_eq!(kind(&connection).unwrap(), Kind::Ours(MIGRATIONS.len()));
        }
    }

    #[test]
    fn an_older_database_gets_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("old.db"));
        migrate(&connection, &MIGRATIONS[..1], &mut || {}).unwrap();
        assert_eq!(kind(&connection).unwrap(), Kind::Ours(1));
        migrate(&connection, MIGRATIONS, &mut || {}).unwrap();
        let new = open(&directory.path().join("new.db"));
        migrate(&new, MIGRATIONS, &mut || {}).unwrap();
        assert_eq!(schema(&connection), schema(&new));
    }

    #[test]
    fn half_a_migration_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let whole = open(&directory.path().join("whole.db"));
        migrate(&whole, &two(), &mut || {}).unwrap();
        let first = MIGRATIONS[0].len();
        for wal in [false, true] {
            let path = directory.path().join(format!("killed-{wal}.db"));
            if wal {
                open(&path)
                    .pragma_update(None, "journal_mode", "WAL")
                    .unwrap();
            }
            // Each goes on where the one before was killed; the last two have the second migration left.
            for (statements, version) in [(1, 0), (first, 0), (first + 1, 1), (2, 1)] {
                let status = Command::new(std::env::current_exe().unwrap())
                    .args(["memory::sqlite::schema::tests::dies_in_a_migration"])
                    .args(["--exact", "--ignored"])
                    .env(DATABASE, &path)
                    .env(STATEMENTS, statements.to_string())
                    .output()
                    .unwrap()
                    .status;
                assert!(!status.success());
                let expected = match version {
                    0 => Kind::Empty,
                    version => Kind::Ours(version),
                };
                assert_eq!(kind(&open(&path)).unwrap(), expected, "{statements}");
            }
            let connection = open(&path);
            migrate(&connection, &two(), &mut || {}).unwrap();
            assert_eq!(schema(&connection), schema(&whole));
        }
    }

    #[test]
    #[ignore = "run as a process of its own by the test that looks what it leaves"]
    fn dies_in_a_migration() {
        let path = std::env::var(DATABASE).expect("started by the test that looks what it leaves");
        let mut left: usize = std::env::var(STATEMENTS).unwrap().parse().unwrap();
        migrate(&open(path.as_ref()), &two(), &mut || {
            left -= 1;
            if left == 0 {
                std::process::abort();
            }
        })
        .unwrap();
    }
}
