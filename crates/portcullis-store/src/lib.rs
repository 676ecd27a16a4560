//! What Portcullis keeps on disk.
//!
//! The [`evidence`] log is append-only and chained by digests: every check and every announced intent is
//! in it before its answer leaves. What an entry is, and when a chain is whole, is
//! `portcullis_core::evidence`'s; here are the files, the waiting and the failing disks.
//!
//! The [`memory`] keeps decisions and what came of them, and finds them by meaning and by words. What a
//! decision is, is `portcullis_core::memory`'s.
//!
//! Invariant: nothing here knows JSON-RPC or the gateway.

pub mod evidence;
pub mod memory;
mod queue;
mod sqlite;
