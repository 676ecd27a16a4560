//! The evidence log on disk.
//!
//! A log is a directory:
//!
//! | file | what it is |
//! |---|---|
//! | `evidence-0000000000000001.ndjson` | a segment: entries, one a line, named by the number of its first |
//! | `checkpoints.ndjson` | signed checkpoints, the first of them from before the first entry |
//! | `signing.key`, `signing.pub` | the key, if none was given, and its public half |
//! | `LOCK` | held by the process that writes |
//!
//! [`EvidenceLog`] writes it, [`verify`] checks it, [`Entries`] reads it; the last two need nothing but
//! the directory, and can be used while it is written.
//!
//! ```
//! use portcullis_core::evidence::{Body, Redactor};
//! use portcullis_store::evidence::{EvidenceLog, Options, VerifyOptions, verify};
//! use serde_json::json;
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//!
//! let (log, _) = EvidenceLog::open(Options::new(directory))?;
//! let entry = json!({"event": "guardrail_check", "allowed": false});
//! let body = Body::new(entry.as_object().unwrap(), &Redactor::new()?)?;
//! let receipt = log.append_blocking(body)?;
//! assert_eq!(receipt.seq, 1);
//! drop(log);
//!
//! let report = verify(directory, &VerifyOptions::default(), |_| {})?;
//! assert!(report.is_ok());
//! assert_eq!(report.last, receipt);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoints;
mod clock;
mod directory;
mod disk;
#[cfg(unix)]
#[cfg(test)]
mod failing_disks;
mod key;
mod lines;
mod log;
mod options;
mod read;
mod recover;
mod verify;
mod writer;

pub use clock::rfc3339;
pub use directory::Segment;
pub use key::{KeyFileError, load_or_create_key, load_public_key};
pub use log::{AppendError, CloseError, EvidenceLog, Stats};
pub use options::{Durability, Options};
pub use read::{Entries, Entry, ReadError, segments};
pub use recover::{OpenError, Recovery, Torn};
pub use verify::{FaultAt, Problem, Progress, VerifyOptions, VerifyReport, verify};
pub use writer::WriteError;
