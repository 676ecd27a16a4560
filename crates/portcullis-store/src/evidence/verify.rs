//! Checking a whole log.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use portcullis_core::evidence::{Chain, Checkpoint, Fault, Link, PublicKey, Verifier};

use super::directory::{self, CHECKPOINTS, Segment};
use super::key::load_public_key;
use super::lines::{Line, Lines};
use super::read::{ReadError, io_error};

/// How many faults are described; more are only counted.
const MOST_FAULTS: usize = 100;

/// What is known of a log from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The key that signs its checkpoints. Without one, that of its own `signing.pub`, which proves
    /// nothing against somebody who can write the directory.
    pub public_key: Option<PublicKey>,
    /// An entry that must be in it, as a receipt or a checkpoint kept elsewhere says.
    pub expected: Option<Link>,
    /// The last entry of the segments that have been archived, for a log that does not begin with the first.
    pub start: Option<Link>,
}

/// How far a check has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes there were when it began.
    pub total: u64,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultAt {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, where it is about one.
    pub line: Option<u64>,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// With an entry or a checkpoint.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The first segments are missing.
    #[error(
        "the log begins with entry {first}: if the entries before it were archived, give the last of them as the start"
    )]
    Start {
        /// The first entry there is.
        first: u64,
    },
    /// A segment is missing, or one is there twice.
    #[error("the segment is named for entry {found}, but {expected} should follow")]
    Segment {
        /// Which entry should be its first.
        expected: u64,
        /// Which is, by its name.
        found: u64,
    },
    /// A segment other than the last ends in the middle of a line.
    #[error("the segment ends in the middle of an entry, and is not the last")]
    Torn,
    /// There is no checkpoint. Every log begins with one.
    #[error(
        "there are no checkpoints, so that a cut end would not be seen: the file was removed or emptied"
    )]
    NoCheckpoints,
    /// The entry that was expected is another.
    #[error("entry {} has the digest {found}, but {} was expected", expected.seq, expected.digest)]
    Unexpected {
        /// What was expected.
        expected: Link,
        /// What is there.
        found: portcullis_core::evidence::Digest,
    },
    /// The entry that was expected is not there.
    #[error("entry {seq} was expected, and is not in the log")]
    Missing {
        /// Its number.
        seq: u64,
    },
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many segments were read.
    pub segments: usize,
    /// How many entries there are.
    pub entries: u64,
    /// The number of the first.
    pub first_seq: u64,
    /// The last entry, or where the log starts if it has none.
    pub last: Link,
    /// How many checkpoints there are.
    pub checkpoints: u64,
    /// The last of them.
    pub last_checkpoint: Option<Checkpoint>,
    /// How many entries came after it: nothing but the log itself tells of them.
    pub uncovered: u64,
    /// How many bytes there are of an entry that is not finished. A log that is being written may end so.
    pub torn_bytes: u64,
    /// The key that was verified with.
    pub key_id: String,
    /// Whether that key came from the log itself.
    pub key_from_log: bool,
    /// What is wrong, as far as it is described.
    pub faults: Vec<FaultAt>,
    /// How much is wrong.
    pub fault_count: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.fault_count == 0
    }
}

/// Checks a log from its first entry to its last, with memory for one line.
///
/// Checkpoints are read first, up to where they end at the time: what a process adds meanwhile only makes
/// the log longer than they say.
pub fn verify(
    directory: &Path,
    options: &VerifyOptions,
    progress: impl FnMut(Progress),
) -> Result<VerifyReport, ReadError> {
    let (key, key_from_log) = match options.public_key {
        Some(key) => (Some(key), false),
        None => (load_public_key(directory)?, true),
    };
    let checkpoints = directory.join(CHECKPOINTS);
    let bytes = match checkpoints.metadata() {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(&checkpoints, error)),
    };
    let segments = directory::list(directory).map_err(|source| io_error(directory, source))?;
    if segments.is_empty() && bytes.is_none() {
        return Err(ReadError::NoLog {
            directory: directory.to_owned(),
        });
    }
    let key = key.ok_or_else(|| ReadError::NoKey {
        directory: directory.to_owned(),
    })?;
    let start = options.start.unwrap_or(Chain::START.head());
    let mut check = Check {
        verifier: Verifier::new(start),
        signed: Signed::open(checkpoints, bytes, key)?,
        expected: options.expected,
        progress,
        at: Progress {
            done: 0,
            total: segments.iter().map(|segment| segment.bytes).sum(),
        },
        report: VerifyReport {
            segments: 0,
            entries: 0,
            first_seq: start.seq + 1,
            last: start,
            checkpoints: 0,
            last_checkpoint: None,
            uncovered: 0,
            torn_bytes: 0,
            key_id: key.id(),
            key_from_log,
            faults: Vec::new(),
            fault_count: 0,
        },
    };
    check.run(directory, &segments, start)?;
    Ok(check.report)
}

struct Check<P> {
    verifier: Verifier,
    signed: Signed,
    expected: Option<Link>,
    progress: P,
    at: Progress,
    report: VerifyReport,
}

impl<P: FnMut(Progress)> Check<P> {
    fn run(
        &mut self,
        directory: &Path,
        segments: &[Segment],
        start: Link,
    ) -> Result<(), ReadError> {
        self.agree()?;
        for (index, segment) in segments.iter().enumerate() {
            let is_last = index + 1 == segments.len();
            self.begin(segment, index == 0, start);
            self.segment(segment, is_last)?;
        }
        // Those that the writer has begun meanwhile.
        let mut next = directory::segment_path(directory, self.verifier.head().seq + 1);
        while !segments.is_empty() && self.report.is_ok() && next.exists() {
            let segment = Segment {
                first: self.verifier.head().seq + 1,
                bytes: 0,
                path: next.clone(),
            };
            if segments.iter().any(|known| known.first == segment.first) {
                break;
            }
            self.segment(&segment, true)?;
            next = directory::segment_path(directory, self.verifier.head().seq + 1);
            if next == segment.path {
                break;
            }
        }
        self.end()
    }

    /// Checks that a segment is the one that should follow.
    fn begin(&mut self, segment: &Segment, is_first: bool, start: Link) {
        let (expected, found) = (self.verifier.head().seq + 1, segment.first);
        if expected == found {
            return;
        }
        let problem = if is_first && start.seq == 0 {
            Problem::Start { first: found }
        } else {
            Problem::Segment { expected, found }
        };
        self.fault(&segment.path, None, problem);
        if is_first {
            self.report.first_seq = found;
        }
    }

    fn segment(&mut self, segment: &Segment, is_last: bool) -> Result<(), ReadError> {
        let path = &segment.path;
        let failed = |source| io_error(path, source);
        let file = File::open(path).map_err(failed)?;
        let mut lines = Lines::new(file, 0).map_err(failed)?;
        self.report.segments += 1;
        let (before, mut number, mut told) = (self.at.done, 0, 0);
        loop {
            number += 1;
            match lines.next().map_err(failed)? {
                Line::Whole(line) => {
                    let checked = self.verifier.entry(line);
                    self.report.entries += 1;
                    match checked {
                        Ok(_) => self.agree()?,
                        Err(fault) => self.fault(path, Some(number), fault.into()),
                    }
                }
                Line::TooLong => self.fault(path, Some(number), Fault::TooLong.into()),
                Line::End(torn) => {
                    let bytes = torn.len() as u64;
                    if let Err(fault) = self.verifier.torn(torn) {
                        self.fault(path, Some(number), fault.into());
                    } else if bytes > 0 && !is_last {
                        self.fault(path, Some(number), Problem::Torn);
                    }
                    self.report.torn_bytes = bytes;
                    break;
                }
            }
            if lines.offset() - told >= 1 << 20 {
                told = lines.offset();
                self.tell(before + told);
            }
        }
        self.tell(before + lines.offset());
        Ok(())
    }

    /// Holds the last entry against what was signed, and against what was expected.
    fn agree(&mut self) -> Result<(), ReadError> {
        let head = self.verifier.head();
        if let Some(expected) = self.expected.filter(|expected| expected.seq == head.seq) {
            self.expected = None;
            if expected.digest != head.digest {
                let found = head.digest;
                let problem = Problem::Unexpected { expected, found };
                let path = self.signed.directory();
                self.fault(&path, None, problem);
            }
        }
        while let Some((number, checkpoint)) = self.next_signed(head.seq)? {
            if let Err(fault) = self.verifier.agrees(&checkpoint) {
                let path = self.signed.path.clone();
                self.fault(&path, Some(number), fault.into());
            }
        }
        Ok(())
    }

    /// The next checkpoint, if it covers nothing after this entry.
    fn next_signed(&mut self, seq: u64) -> Result<Option<(u64, Checkpoint)>, ReadError> {
        loop {
            match self.signed.next(seq)? {
                Next::Later | Next::End => return Ok(None),
                Next::Wrong(number, fault) => {
                    let path = self.signed.path.clone();
                    self.fault(&path, Some(number), fault.into());
                }
                Next::Is(number, checkpoint) => {
                    self.report.checkpoints += 1;
                    self.report.last_checkpoint = Some(checkpoint.clone());
                    return Ok(Some((number, checkpoint)));
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), ReadError> {
        // What they say of entries that are not there is said once, by the last.
        while self.next_signed(u64::MAX)?.is_some() {}
        let path = self.signed.path.clone();
        self.report.last = self.verifier.head();
        match self.report.last_checkpoint.clone() {
            None => self.fault(&path, None, Problem::NoCheckpoints),
            Some(last) => {
                self.report.uncovered = self.report.last.seq.saturating_sub(last.head.seq);
                if let Err(fault) = self.verifier.end(&last) {
                    self.fault(&path, None, fault.into());
                }
            }
        }
        if let Some(expected) = self.expected {
            let problem = Problem::Missing { seq: expected.seq };
            self.fault(&self.signed.directory(), None, problem);
        }
        Ok(())
    }

    fn fault(&mut self, path: &Path, line: Option<u64>, problem: Problem) {
        self.report.fault_count += 1;
        if self.report.faults.len() < MOST_FAULTS {
            self.report.faults.push(FaultAt {
                path: path.to_owned(),
                line,
                problem,
            });
        }
    }

    fn tell(&mut self, done: u64) {
        self.at.done = done;
        self.at.total = self.at.total.max(done);
        (self.progress)(self.at);
    }
}

/// The checkpoints, one after the other.
struct Signed {
    path: PathBuf,
    key: PublicKey,
    lines: Option<Lines>,
    /// Where they ended when the check began.
    end: u64,
    number: u64,
    /// Read, but of an entry that has not come yet.
    next: Option<Checkpoint>,
    before: Option<Checkpoint>,
}

enum Next {
    Is(u64, Checkpoint),
    Wrong(u64, Fault),
    Later,
    End,
}

impl Signed {
    fn open(path: PathBuf, bytes: Option<u64>, key: PublicKey) -> Result<Self, ReadError> {
        let lines = match bytes {
            Some(_) => {
                let lines = File::open(&path).and_then(|file| Lines::new(file, 0));
                Some(lines.map_err(|source| io_error(&path, source))?)
            }
            None => None,
        };
        Ok(Self {
            path,
            key,
            lines,
            end: bytes.unwrap_or_default(),
            number: 0,
            next: None,
            before: None,
        })
    }

    fn directory(&self) -> PathBuf {
        self.path.parent().unwrap_or(&self.path).to_owned()
    }

    fn next(&mut self, seq: u64) -> Result<Next, ReadError> {
        if self.next.is_none() {
            let Some(lines) = self
                .lines
                .as_mut()
                .filter(|lines| lines.offset() < self.end)
            else {
                return Ok(Next::End);
            };
            self.number += 1;
            let read = match lines
                .next()
                .map_err(|source| io_error(&self.path, source))?
            {
                Line::Whole(line) => self.key.read(line).map_err(Fault::from),
                Line::TooLong => Err(Fault::TooLong),
                // One that is being written, or was when its process was stopped.
                Line::End(torn) => {
                    let checked = Verifier::new(Chain::START.head()).torn(torn);
                    self.lines = None;
                    return Ok(checked
                        .map_or_else(|fault| Next::Wrong(self.number, fault), |()| Next::End));
                }
            };
            let checkpoint = match read {
                Ok(checkpoint) => checkpoint,
                Err(fault) => return Ok(Next::Wrong(self.number, fault)),
            };
            let follows = match &self.before {
                Some(before) => {
                    before.chain == checkpoint.chain && before.head.seq < checkpoint.head.seq
                }
                None => checkpoint.head == Chain::START.head(),
            };
            let wrong = Fault::CheckpointOrder {
                seq: checkpoint.head.seq,
            };
            self.before = Some(checkpoint.clone());
            self.next = Some(checkpoint);
            if !follows {
                return Ok(Next::Wrong(self.number, wrong));
            }
        }
        match self.next.take_if(|next| next.head.seq <= seq) {
            Some(checkpoint) => Ok(Next::Is(self.number, checkpoint)),
            None => Ok(Next::Later),
        }
    }
}
