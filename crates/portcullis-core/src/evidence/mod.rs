//! Evidence: entries chained by their digests, signed checkpoints, and checking both.
//!
//! An entry is the caller's JSON object, its [`Body`], with three members added: `seq`, counting from 1;
//! `prev`, the digest of the entry before (64 zeros for the first); and `digest`, the SHA-256 of the
//! entry without `digest`. A line of a log is the entry in RFC 8785's form, to the byte, so that not
//! even a space can be changed unseen. A [`Checkpoint`] signs where the chain had got to, so that
//! cutting off its end is seen too.
//!
//! Here are the values; `portcullis-store` keeps them on disk.
//!
//! ```
//! use portcullis_core::evidence::{Body, Chain, Redactor, Verifier};
//! use serde_json::json;
//!
//! let redactor = Redactor::new()?;
//! let entry = json!({"event": "guardrail_check", "action": "push with ghp_abcdefghijklmnopqrstuvwxyz0123456789"});
//! let body = Body::new(entry.as_object().unwrap(), &redactor)?;
//!
//! let (mut chain, mut log) = (Chain::START, Vec::new());
//! let first = chain.append(&body, &mut log)?;
//! assert_eq!(first.seq, 1);
//! assert!(!String::from_utf8_lossy(&log).contains("ghp_"));
//!
//! let mut verifier = Verifier::new(Chain::START.head());
//! assert_eq!(verifier.entry(log.strip_suffix(b"\n").unwrap())?, first);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod chain;
mod checkpoint;
mod digest;
mod redactor;
mod verifier;

pub use body::{Body, BodyError, MAX_ENTRY_BYTES};
pub use chain::{Chain, ChainFull, Link};
pub use checkpoint::{Checkpoint, CheckpointError, KeyError, Position, PublicKey, SigningKey};
pub use digest::{Digest, DigestError};
pub use redactor::Redactor;
pub use verifier::{Fault, Verifier};

/// The members that the chain adds to a body, in their order.
const RESERVED: [&str; 3] = ["digest", "prev", "seq"];
