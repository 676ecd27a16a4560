//! The tables, and how a database of an older version gets them.

use crate::sqlite::Format;

/// A memory: `PCLS`.
pub(super) const FORMAT: Format<'static> = Format {
    application: 0x5043_4c53,
    migrations: &[FIRST, SECOND],
};

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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::Kind;

    const DATABASE: &str = "PORTCULLIS_MIGRATED_DATABASE";
    const STATEMENTS: &str = "PORTCULLIS_MIGRATED_STATEMENTS";

    /// As it may be some day.
    const TWO: Format<'static> = Format {
        migrations: &[
            FIRST,
            &[
                "ALTER TABLE decision ADD COLUMN colour TEXT",
                "CREATE INDEX decision_colour ON decision (colour)",
            ],
        ],
        ..FORMAT
    };

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
        assert_eq!(FORMAT.kind(&connection).unwrap(), Kind::Empty);
        let mut statements = 0;
        for _ in 0..2 {
            FORMAT
                .migrate(&connection, &mut || statements += 1)
                .unwrap();
            let all: usize = FORMAT
                .migrations
                .iter()
                .map(|migration| migration.len())
                .sum();
            assert_eq!(statements, all);
            assert_eq!(
                FORMAT.kind(&connection).unwrap(),
                Kind::Ours(FORMAT.migrations.len())
            );
        }
    }

    #[test]
    fn an_older_database_gets_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("old.db"));
        let old = Format {
            migrations: &FORMAT.migrations[..1],
            ..FORMAT
        };
        old.migrate(&connection, &mut || {}).unwrap();
        assert_eq!(FORMAT.kind(&connection).unwrap(), Kind::Ours(1));
        FORMAT.migrate(&connection, &mut || {}).unwrap();
        let new = open(&directory.path().join("new.db"));
        FORMAT.migrate(&new, &mut || {}).unwrap();
        assert_eq!(schema(&connection), schema(&new));
    }

    #[test]
    fn half_a_migration_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let whole = open(&directory.path().join("whole.db"));
        TWO.migrate(&whole, &mut || {}).unwrap();
        let first = FORMAT.migrations[0].len();
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
                assert_eq!(FORMAT.kind(&open(&path)).unwrap(), expected, "{statements}");
            }
            let connection = open(&path);
            TWO.migrate(&connection, &mut || {}).unwrap();
            assert_eq!(schema(&connection), schema(&whole));
        }
    }

    #[test]
    #[ignore = "run as a process of its own by the test that looks what it leaves"]
    fn dies_in_a_migration() {
        let path = std::env::var(DATABASE).expect("started by the test that looks what it leaves");
        let mut left: usize = std::env::var(STATEMENTS).unwrap().parse().unwrap();
        TWO.migrate(&open(path.as_ref()), &mut || {
            left -= 1;
            if left == 0 {
                std::process::abort();
            }
        })
        .unwrap();
    }
}
