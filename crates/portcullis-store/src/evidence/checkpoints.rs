//! Writing checkpoints.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use portcullis_core::evidence::{Checkpoint, Link, Position, SigningKey};

use super::clock::rfc3339;
use super::directory::CHECKPOINTS;
use super::disk::Disk;

/// The file of checkpoints.
pub(super) struct Checkpoints {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    key: SigningKey,
    chain: String,
    /// How much of the file is whole.
    len: u64,
    /// The entry that the last one covers.
    covered: u64,
}

impl Checkpoints {
    /// Goes on after `len` bytes, which cover the entries up to `covered`.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        key: SigningKey,
        chain: String,
        (len, covered): (u64, u64),
    ) -> Self {
        Self {
            disk,
            directory,
            key,
            chain,
            len,
            covered,
        }
    }

    /// The last entry that one covers.
    pub(super) fn covered(&self) -> u64 {
        self.covered
    }

    /// Signs that the chain has got this far. The entries must be on disk already: a checkpoint of what
    /// is then lost would make an honest log look cut.
    pub(super) fn write(&mut self, head: Link, position: Position) -> io::Result<()> {
        let mut line = self.key.sign(&Checkpoint {
            chain: self.chain.clone(),
            head,
            position,
            timestamp: rfc3339(SystemTime::now()),
        });
        line.push(b'\n');
        // Opened anew each time, for they are few: whatever an earlier one left half done is cut off.
        let file = self
            .disk
            .open(&self.directory.join(CHECKPOINTS), self.len == 0)?;
        let found = file.metadata()?.len();
        if found < self.len {
            let problem = "checkpoints.ndjson is shorter than it was left";
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        if found > self.len {
            self.disk.truncate(&file, self.len)?;
        }
        self.disk.write(&file, &line)?;
        self.disk.sync(&file)?;
        if self.len == 0 {
            self.disk.sync_directory(&self.directory)?;
        }
        self.len += line.len() as u64;
        self.covered = head.seq;
        Ok(())
    }
}
