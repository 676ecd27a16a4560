//! The canonical form of a batch, and its digest.
//!
//! Names sorted by their UTF-8 bytes, no spaces, numbers and strings as `serde_json` writes them. Where this differs from
//! RFC 8785, which the evidence log is written in, is said in docs/evidence.md.
//!
//! Written by hand rather than by serde, which looks at every byte of every name for something to escape and takes three
//! times as long. A test holds the two to the same bytes.

use std::borrow::Cow;
use std::io::Write as _;

use super::batch::{
    Agent, Artifact, Batch, Event, Lossiness, Message, Payload, RawPayloadRef, Task,
};
use super::discovery::Discovery;
use super::error::{ConvertError, ErrorKind};
use super::json::Json;
use crate::canonical::write_string;
use crate::evidence::Digest;

/// A batch in canonical form, and the digest of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The canonical form.
    pub json: String,
    /// Its SHA-256.
    pub digest: Digest,
}

impl Batch<'_> {
    /// Its canonical form and digest.
    pub fn seal(&self) -> Sealed {
        let mut json = Vec::with_capacity(2048);
        let digest = write_batch(self, &mut json);
        // Made of texts and ASCII.
        let json = String::from_utf8(json).unwrap_or_default();
        Sealed { json, digest }
    }
}

impl Sealed {
    /// Appends what every door answers to the packet, as [`write_answer`] does.
    pub fn write_answer(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"batch":"#);
        out.extend_from_slice(self.json.as_bytes());
        end_answer(self.digest, out);
    }
}

impl Payload<'_> {
    /// The digest of its canonical form. Unlike the batch's it does not depend on how the packet was spelled.
    pub fn digest(&self) -> Digest {
        let mut out = Vec::with_capacity(1024);
        Writer(&mut out).payload(self);
        Digest::of(&out)
    }
}

impl Discovery {
    /// The digest of its canonical form.
    pub fn digest(&self) -> Digest {
        let mut out = Vec::with_capacity(256);
        Writer(&mut out).discovery(*self);
        Digest::of(&out)
    }
}

/// Appends what every door answers to a packet: `{"batch":{…},"digest":"…"}`, or `{"error":{"kind":…,"message":…}}`.
pub fn write_answer(result: &Result<Batch<'_>, ConvertError>, out: &mut Vec<u8>) {
    match result {
        Ok(batch) => {
            out.extend_from_slice(br#"{"batch":"#);
            let digest = write_batch(batch, out);
            end_answer(digest, out);
        }
        Err(error) => write_error(error.kind(), &error.to_string(), None, out),
    }
}

/// Appends what every door answers instead of a batch: `{"error":{"kind":…,"message":…}}`, with the number of its line
/// where there are several.
pub fn write_error(kind: ErrorKind, message: &str, line: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"error":{"#);
    if let Some(line) = line {
        // Writing to a Vec cannot fail.
        let _ = write!(out, r#""line":{line},"#);
    }
    out.extend_from_slice(br#""kind":"#);
    write_string(kind.as_str(), out);
    out.extend_from_slice(br#","message":"#);
    write_string(&error_message(message, line), out);
    out.extend_from_slice(b"}}");
}

/// An error's message as it is told of a line: each is a document of its own, so that "line 1" would only confuse.
pub fn error_message(message: &str, line: Option<u64>) -> Cow<'_, str> {
    match line {
        Some(_) => message.replace(" at line 1 column ", " at column ").into(),
        None => message.into(),
    }
}

fn end_answer(digest: Digest, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","digest":""#);
    out.extend_from_slice(&digest.hex());
    out.extend_from_slice(br#""}"#);
}

fn write_batch(batch: &Batch<'_>, out: &mut Vec<u8>) -> Digest {
    let start = out.len();
    Writer(out).batch(batch);
    Digest::of(&out[start..])
}

struct Writer<'o>(&'o mut Vec<u8>);

impl Writer<'_> {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// What goes before a string, and the string.
    fn string(&mut self, before: &str, text: &str) {
        self.raw(before);
        write_string(text, self.0);
    }

    /// The same for a text of ours, which has nothing to escape.
    fn constant(&mut self, before: &str, text: &'static str) {
        self.raw(before);
        self.raw("\"");
        self.raw(text);
        self.raw("\"");
    }

    fn optional(&mut self, before: &str, text: Option<&Cow<'_, str>>) {
        if let Some(text) = text {
            self.string(before, text);
        }
    }

    fn bool(&mut self, before: &str, value: bool) {
        self.raw(before);
        self.raw(if value { "true" } else { "false" });
    }

    fn number(&mut self, before: &str, number: u64) {
        self.raw(before);
        // Writing to a Vec cannot fail.
        let _ = write!(self.0, "{number}");
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        self.raw(r#"{"events":["#);
        self.event(batch.event());
        self.raw(r#"],"lossiness":"#);
        self.lossiness(&batch.lossiness);
        self.raw("}");
    }

    fn event(&mut self, event: &Event<'_>) {
        self.constant(r#"{"assaygit":"#, event.git);
        self.bool(r#","assaypii":"#, event.pii);
        self.constant(r#","assayproducer":"#, event.producer);
        self.constant(r#","assayproducerversion":"#, event.producer_version);
        self.string(r#","assayrunid":"#, &event.run_id);
        self.bool(r#","assaysecrets":"#, event.secrets);
        self.number(r#","assayseq":"#, event.seq);
        self.raw(r#","data":"#);
        self.payload(&event.data);
        self.constant(r#","datacontenttype":"#, event.datacontenttype);
        self.string(r#","id":"#, &event.id);
        self.constant(r#","source":"#, event.source);
        self.constant(r#","specversion":"#, event.specversion);
        self.string(r#","subject":"#, &event.subject);
        let _ = write!(self.0, r#","time":"{}""#, event.time);
        self.constant(r#","type":"#, event.kind);
        self.raw("}");
    }

    fn payload(&mut self, payload: &Payload<'_>) {
        self.constant(r#"{"adapter_id":"#, payload.adapter_id);
        self.constant(r#","adapter_version":"#, payload.adapter_version);
        self.agent(&payload.agent);
        if let Some(artifact) = &payload.artifact {
            self.artifact(artifact);
        }
        if let Some(attributes) = &payload.attributes {
            self.raw(r#","attributes":"#);
            self.json(attributes);
        }
        self.raw(r#","discovery":"#);
        self.discovery(payload.discovery);
        if let Some(message) = &payload.message {
            self.message(message);
        }
        self.constant(r#","protocol":"#, payload.protocol);
        self.constant(r#","protocol_name":"#, payload.protocol_name);
        self.string(r#","protocol_version":"#, &payload.protocol_version);
        if let Some(task) = &payload.task {
            self.task(task);
        }
        let unmapped = u64::from(payload.unmapped_fields_count);
        self.number(r#","unmapped_fields_count":"#, unmapped);
        let event_type = payload.upstream_event_type.as_ref();
        self.optional(r#","upstream_event_type":"#, event_type);
        self.raw("}");
    }

    fn agent(&mut self, agent: &Agent<'_>) {
        self.raw(r#","agent":{"#);
        if let Some(capabilities) = &agent.capabilities {
            self.raw(r#""capabilities":["#);
            for (index, capability) in capabilities.iter().enumerate() {
                self.string(if index == 0 { "" } else { "," }, capability);
            }
            self.raw("],");
        }
        self.string(r#""id":"#, &agent.id);
        self.optional(r#","name":"#, agent.name.as_ref());
        self.optional(r#","role":"#, agent.role.as_ref());
        self.raw("}");
    }

    fn artifact(&mut self, artifact: &Artifact<'_>) {
        self.string(r#","artifact":{"id":"#, &artifact.id);
        self.optional(r#","media_type":"#, artifact.media_type.as_ref());
        self.optional(r#","name":"#, artifact.name.as_ref());
        self.raw("}");
    }

    fn message(&mut self, message: &Message<'_>) {
        self.string(r#","message":{"id":"#, &message.id);
        self.optional(r#","role":"#, message.role.as_ref());
        self.raw("}");
    }

    fn task(&mut self, task: &Task<'_>) {
        self.string(r#","task":{"id":"#, &task.id);
        self.optional(r#","kind":"#, task.kind.as_ref());
        self.optional(r#","status":"#, task.status.as_ref());
        self.raw("}");
    }

    fn discovery(&mut self, discovery: Discovery) {
        let kind = discovery.agent_card_source_kind.as_str();
        self.constant(r#"{"agent_card_source_kind":"#, kind);
        self.bool(r#","agent_card_visible":"#, discovery.agent_card_visible);
        let extended = discovery.extended_card_access_visible;
        self.bool(r#","extended_card_access_visible":"#, extended);
        let signature = discovery.signature_material_visible;
        self.bool(r#","signature_material_visible":"#, signature);
        self.raw("}");
    }

    fn lossiness(&mut self, lossiness: &Lossiness<'_>) {
        let level = lossiness.lossiness_level.as_str();
        self.constant(r#"{"lossiness_level":"#, level);
        self.raw(r#","notes":["#);
        for (index, note) in lossiness.notes.iter().enumerate() {
            self.constant(if index == 0 { "" } else { "," }, note.as_str());
        }
        self.raw(r#"],"raw_payload_ref":"#);
        self.raw_payload_ref(&lossiness.raw_payload_ref);
        let unmapped = u64::from(lossiness.unmapped_fields_count);
        self.number(r#","unmapped_fields_count":"#, unmapped);
        self.raw("}");
    }

    fn raw_payload_ref(&mut self, raw: &RawPayloadRef<'_>) {
        self.string(r#"{"media_type":"#, raw.media_type);
        self.raw(r#","sha256":""#);
        self.0.extend_from_slice(&raw.sha256.hex());
        self.number(r#"","size_bytes":"#, raw.size_bytes);
        self.raw("}");
    }

    fn json(&mut self, value: &Json<'_>) {
        match value {
            Json::Null => self.raw("null"),
            Json::Bool(value) => self.bool("", *value),
            Json::Number(number) => {
                let _ = write!(self.0, "{number}");
            }
            Json::String(text) => self.string("", text),
            Json::Array(items) => {
                self.raw("[");
                for (index, item) in items.iter().enumerate() {
                    self.raw(if index == 0 { "" } else { "," });
                    self.json(item);
                }
                self.raw("]");
            }
            Json::Object(members) => {
                self.raw("{");
                for (index, (name, value)) in members.iter().enumerate() {
                    self.string(if index == 0 { "" } else { "," }, name);
                    self.raw(":");
                    self.json(value);
                }
                self.raw("}");
            }
        }
    }
}
