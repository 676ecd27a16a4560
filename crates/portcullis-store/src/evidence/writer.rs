//! Adding entries to the files.
//!
//! What is acknowledged is in the log, and what has failed is not. Both are decided here, and so is how to
//! get back there after a failure:
//!
//! - A write that fails may have put down some of its bytes. They are cut off again.
//! - After an `fsync` that fails nobody knows which of the bytes since the last one are on disk: the kernel
//!   reports a lost page once and calls it clean from then on, so that trying again would succeed and
//!   mean nothing. What was acknowledged was synced before, and stands. So the file is cut to that,
//!   its last entry is read again, and what follows goes to a new segment, whose pages are all new.
//! - Until that has worked nothing is written. Every append tries it again, so that the log comes
//!   back by itself once the disk does.
//!
//! The chain is a copy until its entries are safe, so that taking a batch back is forgetting the copy. Callers
//! learn of a failure after the attempt to cut its bytes off. If that fails too, and the
//! process dies before it succeeds, an entry that was reported as failed may be found in the
//! log by the next start: the disk would not let go of it. It then tells of an answer that was refused.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::evidence::{Body, Chain, ChainFull, Link, Position};

use super::directory::segment_path;
use super::disk::Disk;
use super::lines::line_before;

/// Why entries could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk did not do it.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else has changed the file.
    #[error("{} is not as it was left: {problem}: nothing more is written until it is restored", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No more entries can be counted.
    #[error(transparent)]
    Full(#[from] ChainFull),
}

/// The end of the log: the segment that grows and the chain that it holds.
pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    sync: bool,
    /// All that is acknowledged.
    chain: Chain,
    /// The segment's first entry.
    first: u64,
    /// How long the segment is, as far as it is acknowledged.
    len: u64,
    state: State,
    /// Entries on their way; kept for its memory.
    buffer: Vec<u8>,
    /// How long the last sync took.
    last_sync: Duration,
}

#[derive(Debug)]
enum State {
    /// The file is as it was left.
    Ready(Arc<File>),
    /// It has to be opened, or cut to what is acknowledged.
    Unsure,
    /// It has to be cut, and nothing more may be added to it.
    Unsafe,
}

impl Writer {
    /// Goes on at this place of the log, where everything before is whole.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        (segment_bytes, sync): (u64, bool),
        chain: Chain,
        position: Position,
    ) -> Self {
        Self {
            disk,
            directory,
            segment_bytes,
            sync,
            chain,
            first: position.segment,
            len: position.offset,
            state: State::Unsure,
            buffer: Vec::new(),
            last_sync: Duration::ZERO,
        }
    }

    /// The last acknowledged entry and where it ends.
    pub(super) fn end(&self) -> (Link, Position) {
        let position = Position {
            segment: self.first,
            offset: self.len,
        };
        (self.chain.head(), position)
    }

    pub(super) fn last_sync(&self) -> Duration {
        self.last_sync
    }

    /// Nothing more goes into this segment: its pages cannot be trusted.
    pub(super) fn distrust(&mut self) {
        self.state = State::Unsafe;
    }

    /// Adds all of these entries, or none.
    pub(super) fn commit<'b>(
        &mut self,
        bodies: impl Iterator<Item = &'b Body>,
        links: &mut Vec<Link>,
    ) -> Result<(), WriteError> {
        let file = self.ready()?;
        let mut chain = self.chain;
        self.buffer.clear();
        for body in bodies {
            links.push(chain.append(body, &mut self.buffer)?);
        }
        let len = self.len + self.buffer.len() as u64;
        if let Err((error, state)) = self.put(&file, len) {
            self.state = state;
            // Before anybody is told: see above. If it fails, the next append tries again.
            let _ = self.in_order();
            return Err(error);
        }
        self.chain = chain;
        self.len = len;
        // One large batch is not a reason to hold its memory for ever.
        self.buffer.shrink_to(1 << 20);
        Ok(())
    }

    /// Puts the buffer down; on failure, what is known of the file then.
    fn put(&mut self, file: &File, len: u64) -> Result<(), (WriteError, State)> {
        let write = self.disk.write(file, &self.buffer);
        write.map_err(|source| (self.failed("write to", source), State::Unsure))?;
        self.in_place(file, len)
            .map_err(|error| (error, State::Unsure))?;
        if self.sync {
            let started = Instant::now();
            let sync = self.disk.sync(file);
            self.last_sync = started.elapsed();
            sync.map_err(|source| (self.failed("sync", source), State::Unsafe))?;
        }
        Ok(())
    }

    /// A file that was removed takes writes as before; they only lead nowhere.
    fn in_place(&self, file: &File, len: u64) -> Result<(), WriteError> {
        let metadata = file.metadata();
        let metadata = metadata.map_err(|source| self.failed("look at", source))?;
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&metadata) == 0 {
            return Err(self.changed("it was removed"));
        }
        if metadata.len() != len {
            return Err(self.changed("it has another length"));
        }
        Ok(())
    }

    /// The file to write to. A full segment is followed by a new one.
    fn ready(&mut self) -> Result<Arc<File>, WriteError> {
        let file = self.in_order()?;
        if self.len >= self.segment_bytes {
            return self.begin_segment(&file);
        }
        Ok(file)
    }

    /// The file that grows; what has to be repaired is.
    pub(super) fn in_order(&mut self) -> Result<Arc<File>, WriteError> {
        match &self.state {
            State::Ready(file) => Ok(Arc::clone(file)),
            State::Unsure => {
                let file = self.repair()?;
                self.state = State::Ready(Arc::clone(&file));
                Ok(file)
            }
            State::Unsafe => {
                let file = self.repair()?;
                self.begin_segment(&file)
            }
        }
    }

    /// Opens the segment and cuts it to what is acknowledged, whose last entry has to be there.
    fn repair(&mut self) -> Result<Arc<File>, WriteError> {
        let path = segment_path(&self.directory, self.first);
        // One that holds nothing yet may not be there yet.
        let file = self.disk.open(&path, self.len == 0);
        let file = file.map_err(|source| self.failed("open", source))?;
        let metadata = file.metadata();
        let len = metadata
            .map_err(|source| self.failed("look at", source))?
            .len();
        if len < self.len {
            return Err(self.changed("its end is missing"));
        }
        if len > self.len {
            let cut = self.disk.truncate(&file, self.len);
            cut.map_err(|source| self.failed("cut", source))?;
        }
        let synced = self.disk.sync(&file);
        synced.map_err(|source| self.failed("sync", source))?;
        if self.len == 0 {
            let synced = self.disk.sync_directory(&self.directory);
            synced.map_err(|source| self.failed("sync the directory of", source))?;
        } else {
            let line = line_before(&file, self.len);
            let line = line.map_err(|source| self.failed("read", source))?;
            let found = line.and_then(|line| Link::read(&line).ok());
            if found != Some(self.chain.head()) {
                return Err(self.changed("its last entry is another"));
            }
        }
        Ok(Arc::new(file))
    }

    /// Leaves this segment, which must be whole, and begins the next.
    fn begin_segment(&mut self, file: &Arc<File>) -> Result<Arc<File>, WriteError> {
        let first = self.chain.head().seq + 1;
        if first == self.first {
            // Nothing is in it: its pages will all be written anew.
            self.state = State::Ready(Arc::clone(file));
            return Ok(Arc::clone(file));
        }
        let synced = self.disk.sync(file);
        synced.map_err(|source| self.failed("sync", source))?;
        let path = segment_path(&self.directory, first);
        let failed = |doing, source| WriteError::Io {
            doing,
            path: path.clone(),
            source,
        };
        let next = self
            .disk
            .open(&path, true)
            .map_err(|source| failed("make", source))?;
        let synced = self.disk.sync_directory(&self.directory);
        synced.map_err(|source| failed("sync the directory of", source))?;
        let next = Arc::new(next);
        (self.first, self.len) = (first, 0);
        self.state = State::Ready(Arc::clone(&next));
        Ok(next)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> WriteError {
        WriteError::Io {
            doing,
            path: segment_path(&self.directory, self.first),
            source,
        }
    }

    fn changed(&self, problem: &'static str) -> WriteError {
        WriteError::Changed {
            path: segment_path(&self.directory, self.first),
            problem,
        }
    }
}
