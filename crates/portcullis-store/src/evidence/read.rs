//! Reading a log.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use portcullis_core::evidence::{Link, MAX_ENTRY_BYTES};
use serde_json::Value;

use super::directory::{self, Segment, segment_path};
use super::key::KeyFileError;
use super::lines::{Line, Lines};

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The directory holds no log.
    #[error("{} holds no evidence log: give the directory that holds evidence-*.ndjson", directory.display())]
    NoLog {
        /// The directory.
        directory: PathBuf,
    },
    /// A line is not an entry.
    #[error("{}: {problem}: run `portcullis evidence verify`", path.display())]
    NotEntry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// There is no public key to verify with.
    #[error("{} has no signing.pub: give the public key that its checkpoints are signed with", directory.display())]
    NoKey {
        /// The directory.
        directory: PathBuf,
    },
    /// The file of the public key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
}

/// An entry as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number and digest, as it states them.
    pub link: Link,
    /// The line, without its newline.
    pub line: String,
}

impl Entry {
    /// The entry as JSON.
    pub fn value(&self) -> Value {
        // It has been read once, for its number.
        serde_json::from_str(&self.line).unwrap_or_default()
    }
}

/// The segments of a log, in their order.
pub fn segments(directory: &Path) -> Result<Vec<Segment>, ReadError> {
    directory::list(directory).map_err(|source| ReadError::Io {
        path: directory.to_owned(),
        source,
    })
}

/// The entries of a log, in their order and as they stand there: [`verify`](super::verify()) says whether
/// to believe them.
///
/// At the end it gives `None`, and goes on when asked again after more has been written, also in a
/// new segment: that is how to follow a log.
#[derive(Debug)]
pub struct Entries {
    directory: PathBuf,
    from: u64,
    /// The segment that is being read.
    open: Option<(PathBuf, Lines)>,
    /// The last entry seen.
    last: Option<u64>,
}

impl Entries {
    /// From this entry on.
    pub fn new(directory: impl Into<PathBuf>, from: u64) -> Self {
        Self {
            directory: directory.into(),
            from: from.max(1),
            open: None,
            last: None,
        }
    }

    fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            if self.open.is_none() && !self.find_first()? {
                return Ok(None);
            }
            let Some((path, lines)) = &mut self.open else {
                return Ok(None);
            };
            let line = lines.next();
            match line.map_err(|source| io_error(path, source))? {
                Line::Whole(line) => {
                    let entry = entry(path, line)?;
                    self.last = Some(entry.link.seq);
                    if entry.link.seq >= self.from {
                        return Ok(Some(entry));
                    }
                }
                Line::TooLong => {
                    let problem = format!("a line of over {MAX_ENTRY_BYTES} bytes");
                    return Err(not_entry(path, problem));
                }
                Line::End(_) => {
                    let Some(last) = self.last else {
                        return Ok(None);
                    };
                    let next = segment_path(&self.directory, last + 1);
                    // A segment that is empty still is the one that goes on.
                    if next == *path || !next.exists() {
                        return Ok(None);
                    }
                    self.open = Some(open(next)?);
                }
            }
        }
    }

    /// Opens the segment that holds the first entry wanted, or the first there is.
    fn find_first(&mut self) -> Result<bool, ReadError> {
        let segments = segments(&self.directory)?;
        let before = segments
            .iter()
            .rev()
            .find(|segment| segment.first <= self.from);
        let Some(segment) = before.or(segments.first()) else {
            return Ok(false);
        };
        self.last = Some(segment.first - 1);
        self.open = Some(open(segment.path.clone())?);
        Ok(true)
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn open(path: PathBuf) -> Result<(PathBuf, Lines), ReadError> {
    let lines = File::open(&path).and_then(|file| Lines::new(file, 0));
    match lines {
        Ok(lines) => Ok((path, lines)),
        Err(source) => Err(ReadError::Io { path, source }),
    }
}

fn entry(path: &Path, line: &[u8]) -> Result<Entry, ReadError> {
    let link = serde_json::from_slice(line);
    let link = link.map_err(|error| not_entry(path, error.to_string()))?;
    let line = String::from_utf8(line.to_vec());
    let line = line.map_err(|error| not_entry(path, error.to_string()))?;
    Ok(Entry { link, line })
}

pub(super) fn io_error(path: &Path, source: io::Error) -> ReadError {
    ReadError::Io {
        path: path.to_owned(),
        source,
    }
}

fn not_entry(path: &Path, problem: String) -> ReadError {
    ReadError::NotEntry {
        path: path.to_owned(),
        problem,
    }
}
