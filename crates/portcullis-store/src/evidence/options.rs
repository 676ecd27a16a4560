//! How a log is kept.

use std::path::PathBuf;
use std::time::Duration;

use portcullis_core::evidence::SigningKey;

/// When an entry counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When the disk has it: it survives a power cut. Entries that wait together share one `fsync`.
    #[default]
    Fsync,
    /// When the operating system has it: it survives the process, but not the machine.
    Os,
}

/// How a log is kept, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are. It is made if it is not there.
    pub directory: PathBuf,
    /// When an entry counts as written.
    pub durability: Durability,
    /// A segment that has got this long is the last but one.
    pub segment_bytes: u64,
    /// A checkpoint is signed after so many entries,
    pub checkpoint_every: u64,
    /// and after so long, if there are any.
    pub checkpoint_interval: Duration,
    /// The key that signs. Without one, `signing.key` in the directory, made when there is none.
    pub key: Option<SigningKey>,
    /// How many entries may wait. One more is refused at once.
    pub queue: usize,
}

impl Options {
    /// A log in this directory, and everything else as it is best for most.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            durability: Durability::default(),
            segment_bytes: 64 << 20,
            checkpoint_every: 1000,
            checkpoint_interval: Duration::from_secs(10),
            key: None,
            queue: 8192,
        }
    }
}
