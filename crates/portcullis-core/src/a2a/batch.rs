//! What a packet becomes.
//!
//! Invariant: the fields of every type here are declared in the order of their JSON names, so that what serde writes of
//! them is canonical as it comes.

use std::borrow::Cow;

use serde::Serialize;

use super::discovery::Discovery;
use super::json::Json;
use super::time::Time;
use crate::evidence::Digest;

/// The evidence of one packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batch<'a> {
    /// The event: a packet makes one.
    pub events: [Event<'a>; 1],
    /// What was lost on the way.
    pub lossiness: Lossiness<'a>,
}

/// A CloudEvents 1.0 envelope, with the extensions that readers of Assay's evidence expect.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event<'a> {
    /// Which commit the producer was built from: not told.
    #[serde(rename = "assaygit")]
    #[cfg_attr(feature = "schema", schemars(extend("const" = "unknown")))]
    pub git: &'static str,
    /// Always `false`: the adapter does not look for personal data, so nothing can be read from it.
    #[serde(rename = "assaypii")]
    #[cfg_attr(feature = "schema", schemars(extend("const" = false)))]
    pub pii: bool,
    /// Who made the event.
    #[serde(rename = "assayproducer")]
    #[cfg_attr(feature = "schema", schemars(extend("const" = "portcullis")))]
    pub producer: &'static str,
    /// In which version.
    #[serde(rename = "assayproducerversion")]
    pub producer_version: &'static str,
    /// The run it belongs to: `a2a:` and the subject.
    #[serde(rename = "assayrunid")]
    pub run_id: String,
    /// Always `false`: the adapter does not look for secrets, so nothing can be read from it.
    #[serde(rename = "assaysecrets")]
    #[cfg_attr(feature = "schema", schemars(extend("const" = false)))]
    pub secrets: bool,
    /// Its number in the run.
    #[serde(rename = "assayseq")]
    pub seq: u64,
    /// What the packet said.
    pub data: Payload<'a>,
    /// What `data` is.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "application/json")))]
    pub datacontenttype: &'static str,
    /// The run and the number.
    pub id: String,
    /// Where it comes from.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "urn:assay:adapter:a2a")))]
    pub source: &'static str,
    /// The version of CloudEvents.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "1.0")))]
    pub specversion: &'static str,
    /// The task, artefact or message that it is about, or else the agent.
    pub subject: Cow<'a, str>,
    /// When it happened, as the packet says; 2023-11-16T02:00:00Z if it does not.
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("format" = "date-time")))]
    pub time: Time,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// What a packet said, under the names of the freeze.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Payload<'a> {
    /// Which contract the mapping keeps to.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "assay-adapter-a2a")))]
    pub adapter_id: &'static str,
    /// The version of the program that did it.
    pub adapter_version: &'static str,
    /// Whose doing it was.
    pub agent: Agent<'a>,
    /// The artefact, if it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact<'a>>,
    /// Whatever the packet has there, with names sorted, and lists of nothing but strings too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Json<'a>>,
    /// What is visible of the agent's card.
    pub discovery: Discovery,
    /// The message, if it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message<'a>>,
    /// `a2a`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "a2a")))]
    pub protocol: &'static str,
    /// `a2a`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "a2a")))]
    pub protocol_name: &'static str,
    /// The version of the protocol, as the packet or whoever received it says.
    pub protocol_version: Cow<'a, str>,
    /// The task, if it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task<'a>>,
    /// How many members of the packet were not understood or had to be made up.
    pub unmapped_fields_count: u32,
    /// What the packet calls what happened, if it is a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_event_type: Option<Cow<'a, str>>,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent<'a> {
    /// What it says it can do. In a payload: sorted, strings only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<Cow<'a, str>>>,
    /// Its id.
    pub id: Cow<'a, str>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// Its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Cow<'a, str>>,
}

/// An artefact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact<'a> {
    /// Its id.
    pub id: Cow<'a, str>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<Cow<'a, str>>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message<'a> {
    /// Its id.
    pub id: Cow<'a, str>,
    /// Who speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Cow<'a, str>>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Task<'a> {
    /// Its id.
    pub id: Cow<'a, str>,
    /// What kind of task it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'a, str>>,
    /// How it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Cow<'a, str>>,
}

/// What was lost on the way from a packet to its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lossiness<'a> {
    /// How much.
    pub lossiness_level: LossinessLevel,
    /// What was made up.
    pub notes: Vec<Note>,
    /// The bytes that the packet came in.
    pub raw_payload_ref: RawPayloadRef<'a>,
    /// How many members of the packet were not understood or had to be made up.
    pub unmapped_fields_count: u32,
}

/// How much was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossinessLevel {
    /// Nothing.
    None,
    /// One or two members.
    Low,
    /// Three or more.
    High,
}

impl LossinessLevel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Low, Self::High];

    pub(super) const fn of(unmapped_fields: u32) -> Self {
        match unmapped_fields {
            0 => Self::None,
            1..=2 => Self::Low,
            _ => Self::High,
        }
    }

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::High => "high",
        }
    }
}

impl<'a> Batch<'a> {
    /// The event that the packet made.
    pub fn event(&self) -> &Event<'a> {
        &self.events[0]
    }
}

/// Something that was made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Note {
    /// The agent's id.
    #[serde(rename = "missing agent.id -> substituted unknown-agent")]
    UnknownAgent,
    /// What happened.
    #[serde(rename = "unsupported event_type -> emitted generic A2A message event")]
    GenericMessage,
    /// The task's id.
    #[serde(rename = "missing task.id -> substituted unknown-task")]
    UnknownTask,
    /// The artefact's id.
    #[serde(rename = "missing artifact.id -> substituted unknown-artifact")]
    UnknownArtifact,
    /// The message's id.
    #[serde(rename = "missing message.id -> substituted unknown-message")]
    UnknownMessage,
}

impl Note {
    /// Its words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownAgent => "missing agent.id -> substituted unknown-agent",
            Self::GenericMessage => "unsupported event_type -> emitted generic A2A message event",
            Self::UnknownTask => "missing task.id -> substituted unknown-task",
            Self::UnknownArtifact => "missing artifact.id -> substituted unknown-artifact",
            Self::UnknownMessage => "missing message.id -> substituted unknown-message",
        }
    }
}

/// The bytes that a packet came in, by their digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RawPayloadRef<'a> {
    /// What they are.
    pub media_type: &'a str,
    /// Their SHA-256.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^[0-9a-f]{64}$"))
    )]
    pub sha256: Digest,
    /// How many there are.
    pub size_bytes: u64,
}

impl<'a> RawPayloadRef<'a> {
    pub(super) fn of(payload: &[u8], media_type: &'a str) -> Self {
        Self {
            media_type,
            sha256: Digest::of(payload),
            size_bytes: payload.len() as u64,
        }
    }
}
