//! From the bytes of a packet to a batch.

use std::borrow::Cow;

use super::batch::{
    Agent, Artifact, Batch, Event, Lossiness, LossinessLevel, Message, Note, Payload,
    RawPayloadRef, Task,
};
use super::discovery::Discovery;
use super::error::ConvertError;
use super::json::Json;
use super::time::Time;

const PROTOCOL: &str = "a2a";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What to do with a packet that lacks something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Refuse it.
    #[default]
    Strict,
    /// Substitute it, and say so.
    Lenient,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Lenient];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lenient => "lenient",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = ConvertError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mode = Self::ALL.into_iter().find(|mode| mode.as_str() == name);
        mode.ok_or_else(|| ConvertError::Config {
            message: format!("there is no mode {name:?}: use strict or lenient"),
        })
    }
}

/// How much of a packet is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    payload_bytes: usize,
    depth: usize,
    array_length: usize,
}

impl Limits {
    /// How deep packets may be at most, so that no batch is too deep for an entry of the evidence log.
    pub const DEEPEST: usize = 100;

    /// Limits of your own: bytes, arrays and objects in each other, items of an array.
    pub fn new(
        max_payload_bytes: usize,
        max_depth: usize,
        max_array_length: usize,
    ) -> Result<Self, ConvertError> {
        if max_depth > Self::DEEPEST {
            let message = format!(
                "max_json_depth is {max_depth}: use at most {}",
                Self::DEEPEST
            );
            return Err(ConvertError::Config { message });
        }
        Ok(Self {
            payload_bytes: max_payload_bytes,
            depth: max_depth,
            array_length: max_array_length,
        })
    }

    /// How many bytes a packet may have.
    pub const fn max_payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// How many arrays and objects may lie in each other.
    pub const fn max_depth(&self) -> usize {
        self.depth
    }

    /// How many items an array may have.
    pub const fn max_array_length(&self) -> usize {
        self.array_length
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 1 << 20,
            depth: 64,
            array_length: 10_000,
        }
    }
}

/// A packet as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// What they are said to be.
    pub media_type: &'a str,
    /// The version of the protocol, for packets that do not say.
    pub protocol_version: Option<&'a str>,
}

impl<'a> Input<'a> {
    /// A packet that says all there is to know.
    pub const fn json(payload: &'a [u8]) -> Self {
        Self {
            payload,
            media_type: "application/json",
            protocol_version: None,
        }
    }
}

/// Turns packets into batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Adapter {
    mode: Mode,
    limits: Limits,
}

impl Adapter {
    /// With the default limits.
    pub fn new(mode: Mode) -> Self {
        Self::with_limits(mode, Limits::default())
    }

    /// With limits of your own.
    pub const fn with_limits(mode: Mode, limits: Limits) -> Self {
        Self { mode, limits }
    }

    /// How much of a packet is read.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Turns one packet into a batch. Whatever the bytes are, there is a batch or an error.
    pub fn convert<'a>(&self, input: Input<'a>) -> Result<Batch<'a>, ConvertError> {
        let bytes = input.payload.len();
        let limit = self.limits.payload_bytes;
        if bytes > limit {
            return Err(ConvertError::TooLarge { bytes, limit });
        }
        let text = str::from_utf8(input.payload).map_err(|error| ConvertError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        let mut packet = Members::of(Json::parse(text, &self.limits)?)?;
        check_protocol(packet.protocol.as_ref())?;
        let version = version(packet.version.take(), input.protocol_version)?;
        let mut mapping = Mapping {
            mode: self.mode,
            unmapped_fields: packet.unmapped,
            notes: Vec::new(),
        };
        let fields = mapping.fields(packet)?;
        let raw = RawPayloadRef::of(input.payload, input.media_type);
        Ok(mapping.batch(fields, version, raw))
    }
}

/// What a packet can be about, by the name of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventType {
    AgentCapabilities,
    TaskRequested,
    TaskUpdated,
    ArtifactShared,
    /// Anything else.
    Message,
}

impl EventType {
    pub(super) const MAPPED: [Self; 4] = [
        Self::AgentCapabilities,
        Self::TaskRequested,
        Self::TaskUpdated,
        Self::ArtifactShared,
    ];

    /// Its name in packets.
    pub(super) const fn upstream(self) -> &'static str {
        match self {
            Self::AgentCapabilities => "agent.capabilities",
            Self::TaskRequested => "task.requested",
            Self::TaskUpdated => "task.updated",
            Self::ArtifactShared => "artifact.shared",
            Self::Message => "message",
        }
    }

    /// Its name in evidence.
    const fn emitted(self) -> &'static str {
        match self {
            Self::AgentCapabilities => "assay.adapter.a2a.agent.capabilities",
            Self::TaskRequested => "assay.adapter.a2a.task.requested",
            Self::TaskUpdated => "assay.adapter.a2a.task.updated",
            Self::ArtifactShared => "assay.adapter.a2a.artifact.shared",
            Self::Message => "assay.adapter.a2a.message",
        }
    }

    const fn is_task(self) -> bool {
        matches!(self, Self::TaskRequested | Self::TaskUpdated)
    }
}

/// The members of a packet as they came.
#[derive(Default)]
struct Members<'a> {
    protocol: Option<Json<'a>>,
    version: Option<Json<'a>>,
    event_type: Option<Json<'a>>,
    timestamp: Option<Json<'a>>,
    agent: Json<'a>,
    task: Json<'a>,
    artifact: Json<'a>,
    message: Json<'a>,
    attributes: Option<Json<'a>>,
    /// How many others there were.
    unmapped: u32,
}

impl<'a> Members<'a> {
    fn of(packet: Json<'a>) -> Result<Self, ConvertError> {
        let Json::Object(all) = packet else {
            let found = format!("a packet is an object, found {}", packet.what());
            return Err(ConvertError::NotA2a { found });
        };
        let mut members = Self::default();
        for (name, value) in all {
            match &*name {
                "protocol" => members.protocol = Some(value),
                "version" => members.version = Some(value),
                "event_type" => members.event_type = Some(value),
                "timestamp" => members.timestamp = Some(value),
                "agent" => members.agent = value,
                "task" => members.task = value,
                "artifact" => members.artifact = value,
                "message" => members.message = value,
                "attributes" => members.attributes = Some(value),
                _ => members.unmapped += 1,
            }
        }
        Ok(members)
    }
}

fn check_protocol(protocol: Option<&Json<'_>>) -> Result<(), ConvertError> {
    match protocol {
        Some(Json::String(protocol)) if protocol == PROTOCOL => Ok(()),
        other => Err(ConvertError::NotA2a {
            found: found(other),
        }),
    }
}

fn version<'a>(
    version: Option<Json<'a>>,
    told: Option<&'a str>,
) -> Result<Cow<'a, str>, ConvertError> {
    let version = version.and_then(Json::into_string);
    let version = version
        .or(told.map(Cow::Borrowed))
        .ok_or(ConvertError::NoVersion)?;
    if is_supported(&version) {
        return Ok(version);
    }
    let version = cut(&version).to_owned();
    Err(ConvertError::UnsupportedVersion { version })
}

/// 0.2 and later 0.x, whatever comes after that.
fn is_supported(version: &str) -> bool {
    let mut parts = version.split('.');
    let mut number = || {
        let digits = parts.next()?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.trim_start_matches('0'))
    };
    let (Some(major), Some(minor)) = (number(), number()) else {
        return false;
    };
    major.is_empty() && !matches!(minor, "" | "1")
}

/// What of a packet goes into its event.
struct Fields<'a> {
    upstream_event_type: Option<Cow<'a, str>>,
    event_type: EventType,
    time: Time,
    agent: Agent<'a>,
    task: Option<Task<'a>>,
    artifact: Option<Artifact<'a>>,
    message: Option<Message<'a>>,
    attributes: Option<Json<'a>>,
}

/// A conversion under way.
struct Mapping {
    mode: Mode,
    unmapped_fields: u32,
    notes: Vec<Note>,
}

impl Mapping {
    /// Reads the members one after the other, in the order that their faults are reported in.
    fn fields<'a>(&mut self, packet: Members<'a>) -> Result<Fields<'a>, ConvertError> {
        let Members {
            event_type: upstream_event_type,
            timestamp,
            mut agent,
            mut task,
            mut artifact,
            mut message,
            mut attributes,
            ..
        } = packet;
        let agent_id = text(&mut agent, "id");
        let agent_id = self.required(agent_id, "agent.id", "unknown-agent", Note::UnknownAgent)?;
        let event_type = self.event_type(upstream_event_type.as_ref())?;
        let mut task_id = text(&mut task, "id");
        if event_type.is_task() {
            task_id = Some(self.required(task_id, "task.id", "unknown-task", Note::UnknownTask)?);
        }
        let mut artifact_id = text(&mut artifact, "id");
        if event_type == EventType::ArtifactShared {
            let note = Note::UnknownArtifact;
            artifact_id =
                Some(self.required(artifact_id, "artifact.id", "unknown-artifact", note)?);
        }
        let mut message_id = text(&mut message, "id");
        if event_type == EventType::Message {
            let note = Note::UnknownMessage;
            message_id = Some(self.required(message_id, "message.id", "unknown-message", note)?);
        }

        if let Some(attributes) = &mut attributes {
            attributes.sort_lists();
        }
        let time = timestamp.and_then(Json::into_string);
        let time = time.and_then(|text| Time::parse(&text));
        Ok(Fields {
            upstream_event_type: upstream_event_type.and_then(Json::into_string),
            event_type,
            time: time.unwrap_or(Time::UNKNOWN),
            agent: Agent {
                capabilities: capabilities(&mut agent),
                id: agent_id,
                name: text(&mut agent, "name"),
                role: text(&mut agent, "role"),
            },
            task: task_id.map(|id| Task {
                id,
                kind: text(&mut task, "kind"),
                status: text(&mut task, "status"),
            }),
            artifact: artifact_id.map(|id| Artifact {
                id,
                media_type: text(&mut artifact, "media_type"),
                name: text(&mut artifact, "name"),
            }),
            message: message_id.map(|id| Message {
                id,
                role: text(&mut message, "role"),
            }),
            attributes,
        })
    }

    /// What is there, or what stands for it where that may be.
    fn required<'a>(
        &mut self,
        found: Option<Cow<'a, str>>,
        field: &'static str,
        substitute: &'static str,
        note: Note,
    ) -> Result<Cow<'a, str>, ConvertError> {
        match (found, self.mode) {
            (Some(found), _) => Ok(found),
            (None, Mode::Strict) => Err(ConvertError::Missing { field }),
            (None, Mode::Lenient) => {
                self.substituted(note);
                Ok(Cow::Borrowed(substitute))
            }
        }
    }

    fn event_type(&mut self, upstream: Option<&Json<'_>>) -> Result<EventType, ConvertError> {
        if let Some(Json::String(name)) = upstream {
            let mut mapped = EventType::MAPPED.into_iter();
            if let Some(event_type) = mapped.find(|one| one.upstream() == name) {
                return Ok(event_type);
            }
        }
        if self.mode == Mode::Strict {
            let found = found(upstream);
            return Err(ConvertError::UnmappedEventType { found });
        }
        self.substituted(Note::GenericMessage);
        Ok(EventType::Message)
    }

    fn substituted(&mut self, note: Note) {
        self.notes.push(note);
        self.unmapped_fields += 1;
    }

    fn batch<'a>(
        self,
        fields: Fields<'a>,
        version: Cow<'a, str>,
        raw_payload_ref: RawPayloadRef<'a>,
    ) -> Batch<'a> {
        let task = fields.task.as_ref().map(|task| &task.id);
        let artifact = fields.artifact.as_ref().map(|artifact| &artifact.id);
        let message = fields.message.as_ref().map(|message| &message.id);
        let subject = match fields.event_type {
            EventType::TaskRequested | EventType::TaskUpdated => task,
            EventType::ArtifactShared => artifact,
            EventType::Message => message,
            EventType::AgentCapabilities => None,
        };
        let subject = subject.unwrap_or(&fields.agent.id).clone();
        let run_id = format!("a2a:{subject}");
        let id = format!("{run_id}:0");
        let event = Event {
            git: "unknown",
            pii: false,
            producer: "portcullis",
            producer_version: VERSION,
            run_id,
            secrets: false,
            seq: 0,
            data: Payload {
                adapter_id: "assay-adapter-a2a",
                adapter_version: VERSION,
                agent: fields.agent,
                artifact: fields.artifact,
                discovery: Discovery::of(fields.attributes.as_ref()),
                attributes: fields.attributes,
                message: fields.message,
                protocol: PROTOCOL,
                protocol_name: PROTOCOL,
                protocol_version: version,
                task: fields.task,
                unmapped_fields_count: self.unmapped_fields,
                upstream_event_type: fields.upstream_event_type,
            },
            datacontenttype: "application/json",
            id,
            source: "urn:assay:adapter:a2a",
            specversion: "1.0",
            subject,
            time: fields.time,
            kind: fields.event_type.emitted(),
        };
        Batch {
            events: [event],
            lossiness: Lossiness {
                lossiness_level: LossinessLevel::of(self.unmapped_fields),
                notes: self.notes,
                raw_payload_ref,
                unmapped_fields_count: self.unmapped_fields,
            },
        }
    }
}

/// A member that is a string. One of another type counts as missing.
fn text<'a>(object: &mut Json<'a>, name: &str) -> Option<Cow<'a, str>> {
    object.take(name).and_then(Json::into_string)
}

/// The strings of the list, sorted.
fn capabilities<'a>(agent: &mut Json<'a>) -> Option<Vec<Cow<'a, str>>> {
    let Some(Json::Array(items)) = agent.take("capabilities") else {
        return None;
    };
    let mut capabilities: Vec<_> = items.into_iter().filter_map(Json::into_string).collect();
    capabilities.sort_unstable();
    Some(capabilities)
}

/// What was there instead of what was expected, for a message.
fn found(value: Option<&Json<'_>>) -> String {
    match value {
        Some(Json::String(text)) => format!("found {:?}", cut(text)),
        Some(other) => format!("found {}", other.what()),
        None => "it is missing".to_owned(),
    }
}

/// As much of a text as a message should hold.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}
