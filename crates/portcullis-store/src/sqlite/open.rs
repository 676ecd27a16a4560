//! Opening the file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::errors::OpenError;
use super::format::{Format, Kind};
use super::readers::snapshot;

/// Which file, and what to expect of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOptions<'p> {
    /// It is made if it is not there, and so is its folder.
    pub(crate) path: &'p Path,
    /// How long to wait for another process that writes.
    pub(crate) busy_timeout: Duration,
    /// How many bytes it may have.
    pub(crate) size_limit: Option<u64>,
}

/// The file as it was opened: whether what is written still goes where it is looked for.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    #[cfg(unix)]
    identity: (u64, u64),
}

impl Place {
    /// A file that was removed takes writes as before; they only lead nowhere.
    #[cfg(unix)]
    pub(crate) fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| identity(&metadata) == self.identity)
    }

    #[cfg(not(unix))]
    pub(crate) fn is_there(&self) -> bool {
        self.path.exists()
    }
}

#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

/// Opens the database to write to, and makes it if it is not there.
pub(crate) fn open(
    options: FileOptions<'_>,
    format: &Format<'_>,
) -> Result<(Connection, Place), OpenError> {
    let place = place(options.path)?;
    let path = &place.path;
    let failed = |error| OpenError::of(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = connect(path, flags, options.busy_timeout).map_err(failed)?;
    // Before anything is changed in it, and all from one moment: somebody else may just be making it.
    let kind = snapshot(&connection, |connection| format.kind(connection));
    let known = format.migrations.len();
    match kind.map_err(failed)? {
        Kind::Foreign => return Err(OpenError::Foreign { path: path.clone() }),
        Kind::Ours(found) if found > known => {
            return Err(OpenError::Newer {
                path: path.clone(),
                found,
                known,
            });
        }
        Kind::Ours(_) | Kind::Empty => {}
    }
    prepare(&connection, options.size_limit).map_err(failed)?;
    if !write_ahead(&connection, options.busy_timeout).map_err(failed)? {
        return Err(OpenError::Database(format!(
            "{} cannot have a write-ahead log: put it on a local disk",
            path.display()
        )));
    }
    format.migrate(&connection, &mut || {}).map_err(failed)?;
    Ok((connection, place))
}

/// Opens the database to read from.
pub(super) fn open_to_read(path: &Path, busy: Duration) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, busy)
}

fn connect(path: &Path, flags: OpenFlags, busy: Duration) -> rusqlite::Result<Connection> {
    // Never `SQLITE_OPEN_URI`: a path is a path, whatever it begins with.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn prepare(connection: &Connection, size_limit: Option<u64>) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What is forgotten does not stay in pages that nobody uses.
    set(connection, "secure_delete", 1)?;
    set(connection, "journal_size_limit", 64 << 20)?;
    if let Some(limit) = size_limit {
        let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = i64::try_from(limit / u64::from(page.max(1))).unwrap_or(i64::MAX);
        set(connection, "max_page_count", pages.max(1))?;
    }
    Ok(())
}

/// Sets what answers with what it is then.
fn set(connection: &Connection, pragma: &str, value: i64) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, pragma, value, |_| Ok(()))
}

/// Whether there is a write-ahead log now. Whoever else turns it on at the same time is in the way for a
/// moment, and SQLite does not wait for that by itself.
fn write_ahead(connection: &Connection, busy: Duration) -> rusqlite::Result<bool> {
    let started = Instant::now();
    loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < busy =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            mode => return Ok(mode? == "wal"),
        }
    }
}

/// Where the file is, which is made if it is not there.
fn place(path: &Path) -> Result<Place, OpenError> {
    let failed = |doing, source| OpenError::Io {
        doing,
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        let path = path.to_owned();
        return Err(OpenError::Directory { path });
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(|source| failed("make the folder of", source))?;
    make(path, folder).map_err(|source| failed("make", source))?;
    let path = fs::canonicalize(path).map_err(|source| failed("find", source))?;
    #[cfg(unix)]
    let identity = {
        let metadata = fs::metadata(&path).map_err(|source| failed("look at", source))?;
        identity(&metadata)
    };
    Ok(Place {
        path,
        #[cfg(unix)]
        identity,
    })
}

/// SQLite would make the file readable for all, and gives the files beside it the same mode.
fn make(path: &Path, folder: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => drop(made?),
    }
    // Elsewhere a directory cannot be opened, and its entries are safe without.
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
