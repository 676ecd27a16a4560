//! Approvals in a file, for all processes that share it.
//!
//! What an approval is, and what may become of it, is `portcullis_core::approval`'s: here each change is one
//! transaction that reads the row, has core change it, and writes it back. `rows` says what is in a row, `schema` how it
//! is found.

mod rows;
mod schema;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Taken, Which,
};
use rusqlite::{Connection, MAIN_DB, Transaction, TransactionBehavior};

use self::rows::Failure;
pub use crate::sqlite::OpenError;
use crate::sqlite::{FileOptions, Place, Readers, explain, lock, open};

/// Where approvals are kept, and how many.
#[derive(Debug, Clone)]
pub struct ApprovalOptions {
    /// The file. It is made if it is not there, and so is its folder.
    pub path: PathBuf,
    /// How long to wait for another process that writes. Default: 5 seconds.
    pub busy_timeout: Duration,
    /// How many are kept. When it is full, the oldest that is settled is forgotten: its answer was used up, or it has
    /// expired. If none is, there is no more room. Default: 10,000.
    pub most: usize,
    /// How long one is kept after the end: used up, expired or denied. Default: 30 days.
    pub keep: Duration,
    /// How many bytes the file may have. What does not fit is refused. Default: no limit.
    pub size_limit: Option<u64>,
}

impl ApprovalOptions {
    /// Approvals in this file, and everything else as it is best for most.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            busy_timeout: Duration::from_secs(5),
            most: 10_000,
            keep: Duration::from_hours(30 * 24),
            size_limit: None,
        }
    }
}

/// Approvals in a file of SQLite.
///
/// Several processes may share the file: of all who take an answer, one gets it. What has returned without an error is on
/// disk. Where the file fails, nothing is changed and the error says what to do.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_core::approval::Approvals;
/// use portcullis_store::{ApprovalOptions, SqliteApprovals};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("approvals.db");
/// let approvals = SqliteApprovals::open(ApprovalOptions::new(path))?;
/// let approvals: Arc<dyn Approvals> = Arc::new(approvals);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteApprovals {
    /// Closed before the one that writes, which clears up as the last of all.
    readers: Readers,
    writer: Mutex<Connection>,
    place: Place,
    most: usize,
    keep: Duration,
}

impl SqliteApprovals {
    /// Opens or creates the file.
    pub fn open(options: ApprovalOptions) -> Result<Self, OpenError> {
        let ApprovalOptions {
            path,
            busy_timeout,
            most,
            keep,
            size_limit,
        } = options;
        let file = FileOptions {
            path: &path,
            busy_timeout,
            size_limit,
        };
        let (connection, place) = open(file, &schema::FORMAT)?;
        // SQLite opens what it may only read, and says so when somebody's answer is to be used up.
        let readonly = connection.is_readonly(MAIN_DB);
        if readonly.map_err(|error| OpenError::of(&place.path, &error))? {
            return Err(OpenError::Io {
                doing: "write to",
                path: place.path,
                source: io::ErrorKind::PermissionDenied.into(),
            });
        }
        Ok(Self {
            readers: Readers::new(place.path.clone(), busy_timeout),
            writer: Mutex::new(connection),
            place,
            most: most.max(1),
            keep,
        })
    }

    /// Does all of it, or nothing.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, ApprovalError> {
        let connection = lock(&self.writer);
        self.check_place()?;
        transact(&connection, work).map_err(|failure| self.error(failure))
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, ApprovalError> {
        self.check_place()?;
        // A row that cannot be understood does not mean that the connection is no good.
        let value = self.readers.read(|connection| match read(connection) {
            Err(Failure::Database(error)) => Err(error),
            value => Ok(value),
        });
        match value {
            Ok(Some(value)) => value.map_err(|failure| self.error(failure)),
            Ok(None) => Err(ApprovalError::Backend("they are closed".to_owned())),
            Err(error) => Err(self.error(Failure::Database(error))),
        }
    }

    /// A file that was removed takes and gives as before, for nobody else.
    fn check_place(&self) -> Result<(), ApprovalError> {
        if self.place.is_there() {
            return Ok(());
        }
        let path = self.place.path.display();
        let problem = "was removed or replaced: put it back, or restart to begin anew";
        Err(ApprovalError::Backend(format!("{path} {problem}")))
    }

    fn change<T>(
        &self,
        id: &str,
        change: impl FnOnce(Approval) -> Result<(Approval, T), ApprovalError>,
    ) -> Result<T, ApprovalError> {
        self.write(|transaction| {
            let known = rows::get(transaction, id)?;
            let known = known.ok_or_else(|| ApprovalError::NotFound(id.to_owned()))?;
            let (changed, result) = change(known)?;
            rows::update(transaction, &changed)?;
            Ok(result)
        })
    }

    fn error(&self, failure: Failure) -> ApprovalError {
        let path = &self.place.path;
        match failure {
            Failure::Refused(error) => error,
            Failure::Database(error) => ApprovalError::Backend(explain(path, &error)),
            Failure::Damaged { id, why } => ApprovalError::Backend(format!(
                "{}: the row of approval `{id}` is damaged ({why}): restore a backup, or delete the row",
                path.display()
            )),
            Failure::Unfit(why) => ApprovalError::Backend(format!(
                "the approval does not come back from JSON as it was ({why})"
            )),
        }
    }
}

impl Approvals for SqliteApprovals {
    fn create(&self, approval: Approval) -> Result<(), ApprovalError> {
        self.write(|transaction| {
            if rows::exists(transaction, &approval.id)? {
                return Err(ApprovalError::Exists(approval.id.clone()).into());
            }
            rows::forget_old(transaction, approval.created, self.keep)?;
            let kept = rows::count(transaction)?;
            if kept >= self.most && !rows::forget_oldest(transaction, approval.created)? {
                return Err(ApprovalError::Full(kept).into());
            }
            rows::insert(transaction, &approval)
        })
    }

    fn get(&self, id: &str, now: Timestamp) -> Result<Option<Approval>, ApprovalError> {
        let known = self.read(|connection| rows::get(connection, id))?;
        Ok(known.map(|approval| approval.at(now)))
    }

    fn list(&self, which: &Which, now: Timestamp) -> Result<Vec<Approval>, ApprovalError> {
        let found = self.read(|connection| rows::list(connection, which, now))?;
        Ok(found.into_iter().map(|approval| approval.at(now)).collect())
    }

    fn decide(&self, id: &str, answer: &Answer, now: Timestamp) -> Result<Approval, ApprovalError> {
        self.change(id, |approval| {
            let decided = approval.decide(answer, now)?;
            Ok((decided.clone(), decided))
        })
    }

    fn take(&self, id: &str, bound: &Binding, now: Timestamp) -> Result<Taken, ApprovalError> {
        self.change(id, |approval| approval.take(bound, now))
    }
}

impl fmt::Debug for SqliteApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteApprovals")
            .field("path", &self.place.path)
            .field("most", &self.most)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

fn transact<T>(
    connection: &Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // One that could not even be taken back is still there.
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    // From the start nobody else writes, so that what is read here is still so when it is changed.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(value)
}
