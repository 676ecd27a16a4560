//! Opening a log: what the last process left, checked from the last checkpoint on.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::evidence::{
    Chain, Checkpoint, CheckpointError, Fault, Link, Position, PublicKey, Verifier,
};

use super::checkpoints::Checkpoints;
use super::directory::{self, CHECKPOINTS, LOCK, Segment, segment_path};
use super::disk::Disk;
use super::key::{self, KeyFileError, load_or_create_key};
use super::lines::{Line, Lines, line_before};
use super::options::{Durability, Options};
use super::writer::{WriteError, Writer};

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process writes it. One chain has one writer.
    #[error("the evidence log {} is written by another process: stop it, or give this one a directory of its own", directory.display())]
    Locked {
        /// The log.
        directory: PathBuf,
    },
    /// A file could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no key to sign with.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Its checkpoints are signed with another key.
    #[error("the evidence log {} was signed with another key: {source}; give the old key back, or start a new directory", directory.display())]
    OtherKey {
        /// The log.
        directory: PathBuf,
        /// Which.
        source: CheckpointError,
    },
    /// What was acknowledged is not there as it was written. Nothing is added to such a log.
    #[error("{}: {problem}: run `portcullis evidence verify {}`, keep the directory as it is, and start a new one", path.display(), directory.display())]
    Damaged {
        /// The log.
        directory: PathBuf,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The first entry could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The thread that writes could not be started.
    #[error("cannot start the thread that writes evidence: {0}")]
    Thread(io::Error),
}

/// What was found when a log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log is new.
    pub created: bool,
    /// The last entry found.
    pub found: Link,
    /// How many entries were checked: those after the last checkpoint.
    pub checked: u64,
    /// What was cut off.
    pub torn: Option<Torn>,
}

/// The beginning of an entry that was never acknowledged, at the end of a log whose process was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub path: PathBuf,
    /// How many bytes were cut off.
    pub bytes: u64,
}

/// An opened log, ready to be written.
pub(super) struct Opened {
    pub(super) writer: Writer,
    pub(super) checkpoints: Checkpoints,
    pub(super) recovery: Recovery,
    /// Held as long as it is open.
    pub(super) lock: File,
}

pub(super) fn open(options: Options, disk: &Arc<dyn Disk>) -> Result<Opened, OpenError> {
    let directory = options.directory.as_path();
    make_directory(directory).map_err(|source| io_error(directory, source))?;
    let lock = lock(directory)?;
    let key = match options.key {
        Some(key) => key,
        None => load_or_create_key(directory)?,
    };
    let last = last_checkpoint(directory, key.public())?;
    key::publish(key.public(), directory)?;
    let segments = directory::list(directory).map_err(|source| io_error(directory, source))?;
    let settings = (
        options.segment_bytes,
        options.durability == Durability::Fsync,
    );
    let checkpoints = |chain, (len, covered)| {
        let (disk, directory) = (Arc::clone(disk), directory.to_owned());
        Checkpoints::new(disk, directory, key.clone(), chain, (len, covered))
    };
    let Some((last, len)) = last else {
        if let Some(segment) = segments.first() {
            let problem = "there are entries, but no checkpoints";
            return Err(damaged(directory, &segment.path, problem));
        }
        let mut checkpoints = checkpoints(chain_name()?, (0, 0));
        let (head, position) = (
            Chain::START.head(),
            Position {
                segment: 1,
                offset: 0,
            },
        );
        // Before the first entry, so that a log without checkpoints is never an honest one.
        let path = directory.join(CHECKPOINTS);
        checkpoints
            .write(head, position)
            .map_err(|source| io_error(&path, source))?;
        return Ok(Opened {
            writer: Writer::new(
                Arc::clone(disk),
                directory.to_owned(),
                settings,
                Chain::START,
                position,
            ),
            checkpoints,
            recovery: Recovery {
                created: true,
                found: head,
                checked: 0,
                torn: None,
            },
            lock,
        });
    };
    let tail = Tail::check(directory, &last, &segments)?;
    let covered = last.head.seq;
    Ok(Opened {
        writer: Writer::new(
            Arc::clone(disk),
            directory.to_owned(),
            settings,
            Chain::after(tail.head),
            tail.position,
        ),
        checkpoints: checkpoints(last.chain, (len, covered)),
        recovery: Recovery {
            created: false,
            found: tail.head,
            checked: tail.head.seq - covered,
            torn: tail.torn,
        },
        lock,
    })
}

/// Where the whole entries end.
struct Tail {
    head: Link,
    position: Position,
    torn: Option<Torn>,
}

impl Tail {
    /// Reads on from the last checkpoint. What is cut off is cut off by the writer, before its first entry.
    fn check(directory: &Path, last: &Checkpoint, segments: &[Segment]) -> Result<Self, OpenError> {
        let mut tail = Self {
            head: last.head,
            position: last.position,
            torn: None,
        };
        let mut verifier = Verifier::new(last.head);
        let later = segments
            .iter()
            .skip_while(|segment| segment.first < last.position.segment);
        let mut later = later.peekable();
        let nothing_yet = last.position.offset == 0;
        if later.peek().map(|segment| segment.first) != Some(last.position.segment) && !nothing_yet
        {
            let path = segment_path(directory, last.position.segment);
            let problem = format!("it is missing, though signed up to entry {}", last.head.seq);
            return Err(damaged(directory, &path, &problem));
        }
        while let Some(segment) = later.next() {
            tail.segment(directory, segment, last, &mut verifier)?;
            if let (Some(torn), true) = (&tail.torn, later.peek().is_some()) {
                return Err(damaged(directory, &torn.path, "its last line has no end"));
            }
        }
        Ok(tail)
    }

    fn segment(
        &mut self,
        directory: &Path,
        segment: &Segment,
        last: &Checkpoint,
        verifier: &mut Verifier,
    ) -> Result<(), OpenError> {
        let path = &segment.path;
        let failed = |source| io_error(path, source);
        let wrong =
            |problem: &dyn std::fmt::Display| damaged(directory, path, &problem.to_string());
        let file = File::open(path).map_err(failed)?;
        let mut offset = 0;
        if segment.first == last.position.segment {
            offset = last.position.offset;
            if segment.bytes < offset {
                let signed = last.head.seq;
                return Err(wrong(&format!(
                    "its end was cut off: it was signed up to entry {signed}"
                )));
            }
            if offset > 0 && !is_signed(&file, last).map_err(failed)? {
                return Err(wrong(&Fault::Signed {
                    seq: last.head.seq,
                    signed: last.head.digest,
                }));
            }
        } else if segment.first != verifier.head().seq + 1 {
            let (expected, found) = (verifier.head().seq + 1, segment.first);
            return Err(wrong(&format!(
                "it begins with entry {found}, but {expected} should follow"
            )));
        }
        let mut lines = Lines::new(file, offset).map_err(failed)?;
        loop {
            match lines.next().map_err(failed)? {
                Line::Whole(line) => verifier.entry(line).map_err(|fault| wrong(&fault))?,
                Line::TooLong => return Err(wrong(&Fault::TooLong)),
                Line::End(torn) => {
                    verifier.torn(torn).map_err(|fault| wrong(&fault))?;
                    self.torn = (!torn.is_empty()).then(|| Torn {
                        path: path.clone(),
                        bytes: torn.len() as u64,
                    });
                    break;
                }
            };
        }
        self.head = verifier.head();
        self.position = Position {
            segment: segment.first,
            offset: lines.offset(),
        };
        Ok(())
    }
}

/// Whether the entry before the checkpoint's place is the one that it signs.
fn is_signed(file: &File, checkpoint: &Checkpoint) -> io::Result<bool> {
    let line = line_before(file, checkpoint.position.offset)?;
    let found = line.and_then(|line| Link::read(&line).ok());
    Ok(found == Some(checkpoint.head))
}

/// The last checkpoint and where its line ends. One that was not finished does not count.
fn last_checkpoint(
    directory: &Path,
    key: PublicKey,
) -> Result<Option<(Checkpoint, u64)>, OpenError> {
    let path = directory.join(CHECKPOINTS);
    let failed = |source| io_error(&path, source);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut end = file.metadata().map_err(failed)?.len();
    let mut lines = Lines::new(
        file.try_clone().map_err(failed)?,
        end.saturating_sub(1 << 13),
    )
    .map_err(failed)?;
    // From the middle of a line on, most likely; only where they end matters.
    loop {
        match lines.next().map_err(failed)? {
            Line::End(torn) => {
                end -= torn.len() as u64;
                break;
            }
            Line::Whole(_) | Line::TooLong => {}
        }
    }
    let Some(line) = line_before(&file, end).map_err(failed)? else {
        return Ok(None);
    };
    match key.read(&line) {
        Ok(checkpoint) => Ok(Some((checkpoint, end))),
        Err(source @ CheckpointError::OtherKey { .. }) => Err(OpenError::OtherKey {
            directory: directory.to_owned(),
            source,
        }),
        Err(error) => Err(damaged(directory, &path, &error.to_string())),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let file = file.map_err(|source| io_error(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::Locked {
            directory: directory.to_owned(),
        }),
        Err(fs::TryLockError::Error(source)) => Err(io_error(&path, source)),
    }
}

/// A chain's name, so that a checkpoint of another chain of the same key is not taken for one of this.
fn chain_name() -> Result<String, OpenError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(KeyFileError::Random)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

fn io_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        path: path.to_owned(),
        source,
    }
}

fn damaged(directory: &Path, path: &Path, problem: &str) -> OpenError {
    OpenError::Damaged {
        directory: directory.to_owned(),
        path: path.to_owned(),
        problem: problem.to_owned(),
    }
}
