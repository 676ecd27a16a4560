//! Evidence from A2A packets: raw bytes in, a canonical batch with a digest out.
//!
//! A packet tells what one agent told another: what it can do, a task it was given, an artefact it made. The
//! [`Adapter`] reads one within [`Limits`], maps it to a CloudEvents envelope, says what was lost on the way, and
//! names the bytes it came from by their digest. Nothing is looked up, and what is made up is said: the same bytes always
//! give the same batch.
//!
//! ```
//! use portcullis_core::a2a::{Adapter, Input, Mode};
//!
//! let packet = br#"{"protocol": "a2a", "version": "0.2.0", "event_type": "task.requested",
//!     "timestamp": "2026-02-27T11:05:00Z", "agent": {"id": "agent://planner"}, "task": {"id": "task-1"}}"#;
//! let batch = Adapter::new(Mode::Strict).convert(Input::json(packet))?;
//! assert_eq!(batch.event().kind, "assay.adapter.a2a.task.requested");
//! assert_eq!(batch.event().subject, "task-1");
//! assert!(!batch.event().data.discovery.agent_card_visible);
//!
//! let sealed = batch.seal();
//! println!("{} {}", sealed.digest, sealed.json);
//! # Ok::<(), portcullis_core::a2a::ConvertError>(())
//! ```
//!
//! Whoever speaks today's A2A need not write packets: [`import`] makes them of agent cards, JSON-RPC calls, messages,
//! tasks and artefacts.
//!
//! Invariant: visibility in [`Discovery`] is set by the frozen paths alone, whichever way a packet came.

mod batch;
mod convert;
mod discovery;
mod entry;
mod error;
mod import;
mod json;
mod packet;
#[cfg(feature = "schema")]
mod schema;
mod time;
mod write;

pub use batch::{
    Agent, Artifact, Batch, Event, Lossiness, LossinessLevel, Message, Note, Payload,
    RawPayloadRef, Task,
};
pub use convert::{Adapter, Input, Limits, Mode};
pub use discovery::{Discovery, SourceKind};
pub use entry::EntryMembers;
pub use error::{ConvertError, ErrorKind};
pub use import::{ImportOptions, import};
pub use json::Json;
pub use packet::Packet;
#[cfg(feature = "schema")]
pub use schema::schemas;
pub use time::Time;
pub use write::{Sealed, error_message, write_answer, write_error};
