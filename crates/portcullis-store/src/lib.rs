//! What Portcullis keeps on disk.
//!
//! The [`evidence`] log is append-only and chained by digests: every check and every announced intent is
//! in it before its answer leaves. What an entry is, and when a chain is whole, is
//! `portcullis_core::evidence`'s; here are the files, the waiting and the failing disks.
//!
//! The [`memory`] keeps decisions and what came of them, and finds them by meaning and by words. What a
//! decision is, is `portcullis_core::memory`'s.
//!
//! The [`approvals`] are what people are asked and what they answer, shared by processes. What an approval is, is
//! `portcullis_core::approval`'s.
//!
//! Invariant: nothing here knows JSON-RPC or the gateway.

pub mod approvals;
pub mod evidence;
pub mod memory;
mod queue;
mod sqlite;

pub use approvals::{ApprovalOptions, SqliteApprovals};
