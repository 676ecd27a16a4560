//! What can be wrong with a database, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system does not let us.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is a directory.
    #[error("{} is a directory: name a file in it", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
    },
    /// It is some other file.
    #[error("{} is not a database: name another file, or move this one away", path.display())]
    NotDatabase {
        /// Which.
        path: PathBuf,
    },
    /// It is another program's database.
    #[error("{} is a database of another program: name another file", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// It was written by a later version.
    #[error(
        "{} is of version {found}, and this program knows up to {known}: upgrade the program",
        path.display()
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// The last version that is known.
        known: usize,
    },
    /// Somebody else holds it.
    #[error("{} is locked by another process: end that, or wait for it", path.display())]
    Locked {
        /// Which.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{0}")]
    Database(String),
    /// There is no thread to work in.
    #[error("cannot start the memory's thread: {0}")]
    Thread(io::Error),
}

impl OpenError {
    pub(crate) fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotDatabase { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path },
            _ => Self::Database(explain(&path, error)),
        }
    }
}

/// What is wrong, with which file, and what to do.
pub(crate) fn explain(path: &Path, error: &rusqlite::Error) -> String {
    let path = path.display();
    let help = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            return format!("there is no room for {path}: free some, or raise its limit ({error})");
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return format!("{path} is locked by another process for too long ({error})");
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return format!(
                "{path} is damaged: restore a backup, or recover what is left with the sqlite3 \
                 tool's .recover ({error})"
            );
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "the file and its folder must be readable and writable"
        }
        Some(ErrorCode::SystemIoFailure) => "look after the disk",
        _ => "restart, and restore a backup if it stays so",
    };
    format!("{path}: {error}: {help}")
}
