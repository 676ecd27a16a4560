//! How packets are put together.

use std::borrow::Cow;
use std::io;

use super::ImportOptions;
use crate::a2a::batch::{Agent, Artifact, Message, RawPayloadRef, Task};
use crate::a2a::convert::EventType;
use crate::a2a::error::ConvertError;
use crate::a2a::json::Json;
use crate::a2a::packet::Packet;
use crate::a2a::time::Time;

/// The version that packets are written in, which is not the version of the traffic.
const PACKET_VERSION: &str = "0.2.0";

/// An import under way.
pub(super) struct Import<'a, 'o> {
    options: &'o ImportOptions<'a>,
    source: RawPayloadRef<'static>,
    packets: Vec<Packet<'a>>,
    /// How many bytes they have.
    bytes: usize,
}

/// How much longer than the longest payload all packets of one may be together: what is said once goes into each.
const GROWTH: usize = 8;

/// What something came in.
#[derive(Default)]
pub(super) struct Envelope<'a> {
    /// The method of a request.
    pub(super) method: Option<&'static str>,
    /// Whether it is a request, with a method or without one.
    pub(super) is_request: bool,
    /// Which call it is, or answers.
    pub(super) jsonrpc_id: Option<Json<'a>>,
    /// What it says about what is in it. Goes with the first packet: it must not be told as often as there are things.
    pub(super) metadata: Option<Json<'a>>,
}

/// A packet in the making.
pub(super) struct Draft<'a> {
    pub(super) event_type: EventType,
    pub(super) agent: Option<Agent<'a>>,
    pub(super) time: Option<Time>,
    pub(super) task: Option<Task<'a>>,
    pub(super) artifact: Option<Artifact<'a>>,
    pub(super) message: Option<Message<'a>>,
    pub(super) metadata: Option<Json<'a>>,
    /// What goes into `attributes.a2a`.
    pub(super) a2a: Members<'a>,
}

/// The members of an object in the making.
#[derive(Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a, 'o> Import<'a, 'o> {
    pub(super) fn new(payload: &[u8], options: &'o ImportOptions<'a>) -> Self {
        Self {
            options,
            source: RawPayloadRef::of(payload, ""),
            packets: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn into_packets(self) -> Vec<Packet<'a>> {
        self.packets
    }

    pub(super) fn max_array_length(&self) -> usize {
        self.options.limits.max_array_length()
    }

    /// Makes the packet, if conversion will take it.
    pub(super) fn push(
        &mut self,
        draft: Draft<'a>,
        envelope: &mut Envelope<'a>,
    ) -> Result<(), ConvertError> {
        if self.packets.len() == self.max_array_length() {
            let limit = self.max_array_length();
            return Err(ConvertError::TooManyPackets { limit });
        }
        let agent = draft.agent.or_else(|| self.agent());
        let packet = Packet {
            protocol: "a2a".into(),
            version: PACKET_VERSION.into(),
            event_type: draft.event_type.upstream().into(),
            timestamp: draft.time.map(|time| time.to_string().into()),
            agent: agent.ok_or(ConvertError::NoAgent)?,
            task: draft.task,
            artifact: draft.artifact,
            message: draft.message,
            attributes: Some(self.attributes(draft.a2a, draft.metadata, envelope)),
        };
        let bytes = length(&packet)?;
        let limit = self.options.limits.max_payload_bytes();
        if bytes > limit {
            let problem = format!(
                "it makes a packet of {bytes} bytes, over max_payload_bytes ({limit}): send less in one"
            );
            return Err(ConvertError::NotTraffic { problem });
        }
        self.bytes += bytes;
        if self.bytes > limit.saturating_mul(GROWTH) {
            let problem = format!(
                "its packets have more than {GROWTH} times max_payload_bytes ({limit}) together: send it in parts"
            );
            return Err(ConvertError::NotTraffic { problem });
        }
        self.packets.push(packet);
        Ok(())
    }

    fn agent(&self) -> Option<Agent<'a>> {
        self.options.agent.map(|id| Agent {
            capabilities: None,
            id: Cow::Borrowed(id),
            name: None,
            role: None,
        })
    }

    /// Ours and the traffic's, under two names and no other.
    fn attributes(
        &self,
        mut a2a: Members<'a>,
        metadata: Option<Json<'a>>,
        envelope: &mut Envelope<'a>,
    ) -> Json<'a> {
        let method = envelope.method.map(|method| Json::String(method.into()));
        a2a.put("method", method);
        a2a.put("jsonrpc_id", envelope.jsonrpc_id.clone());
        a2a.put("envelope_metadata", envelope.metadata.take());

        let mut source = Members::default();
        let sha256 = self.source.sha256.to_string();
        source.put("sha256", Some(Json::String(sha256.into())));
        let size = self.source.size_bytes.into();
        source.put("size_bytes", Some(Json::Number(size)));
        a2a.put("source", Some(source.into_object()));

        let mut attributes = Members::default();
        attributes.put("a2a", Some(a2a.into_object()));
        attributes.put("metadata", metadata);
        attributes.into_object()
    }
}

impl Draft<'_> {
    pub(super) fn new(event_type: EventType) -> Self {
        Self {
            event_type,
            agent: None,
            time: None,
            task: None,
            artifact: None,
            message: None,
            metadata: None,
            a2a: Members::default(),
        }
    }
}

impl<'a> Members<'a> {
    /// Adds a member, if there is a value for it. No name may be used twice.
    pub(super) fn put(&mut self, name: &'static str, value: Option<Json<'a>>) {
        if let Some(value) = value {
            self.0.push((Cow::Borrowed(name), value));
        }
    }

    pub(super) fn into_object(mut self) -> Json<'a> {
        self.0.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Json::Object(self.0)
    }
}

/// How many bytes a packet has when it is written: numbers may have become longer than they were.
fn length(packet: &Packet<'_>) -> Result<usize, ConvertError> {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    let written = serde_json::to_writer(&mut count, packet);
    written.map_err(|error| ConvertError::Infrastructure {
        message: format!("the packet cannot be written: {error}"),
    })?;
    Ok(count.0)
}
