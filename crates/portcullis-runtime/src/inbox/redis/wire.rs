//! What is in the streams. Requests and answers are field lists, so that `redis-cli` shows them and what one side adds
//! the other can ignore; the parts with a shape of their own are JSON.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::scan::EventSet;
use portcullis_core::{Context, Decision, Event, RuleId, SnapshotWire, ToolRisks};
use redis::Value;
use serde::{Deserialize, Serialize};

use crate::deep::{DeepAnswer, DeepRequest};
use crate::inbox::remote::ServedRule;

/// Changes when the other side would misread it.
const VERSION: &[u8] = b"1";

/// Nobody waits for an answer longer than this.
const LONGEST_TTL: Duration = Duration::from_hours(24);

/// An entry of a stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: Fields,
}

/// The fields of an entry.
#[derive(Debug, Default)]
pub(super) struct Fields(pub(super) Vec<(Vec<u8>, Vec<u8>)>);

impl Fields {
    fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.0.iter();
        let (_, value) = fields.find(|(known, _)| known == name.as_bytes())?;
        Some(value)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    fn json<'f, T: Deserialize<'f>>(&'f self, name: &str) -> Result<T, String> {
        let value = self
            .get(name)
            .ok_or_else(|| format!("it has no `{name}`"))?;
        serde_json::from_slice(value)
            .map_err(|error| format!("its `{name}` is unreadable: {error}"))
    }

    fn check_version(&self) -> Result<(), String> {
        match self.get("v") {
            Some(VERSION) => Ok(()),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                Err(format!("its version is {other}, and this side speaks 1"))
            }
            None => Err("it has no version".to_owned()),
        }
    }
}

/// A request as the worker of one of its rules finds it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) event: Event,
    pub(super) context: Context,
    pub(super) snapshot: SnapshotWire<'static>,
    pub(super) trace: Option<String>,
}

/// A request's fields, the same for each of its rules.
pub(super) fn request_fields(
    request: &DeepRequest,
    gateway: &str,
    ttl: Duration,
) -> Result<Vec<(&'static str, Vec<u8>)>, serde_json::Error> {
    let mut fields = vec![
        ("v", VERSION.to_vec()),
        ("id", request.correlation_id.as_bytes().to_vec()),
        ("to", gateway.as_bytes().to_vec()),
        ("ttl", bounded(ttl).as_millis().to_string().into_bytes()),
        ("event", serde_json::to_vec(&*request.event)?),
        ("context", serde_json::to_vec(&*request.context)?),
        ("snapshot", serde_json::to_vec(&request.snapshot.to_wire())?),
    ];
    if let Some(trace) = &request.trace {
        fields.push(("trace", trace.as_bytes().to_vec()));
    }
    Ok(fields)
}

/// How long a request is worth answering.
pub(super) fn bounded(ttl: Duration) -> Duration {
    ttl.min(LONGEST_TTL)
}

/// How long the answer to a request is waited for.
pub(super) fn ttl(fields: &Fields) -> Option<Duration> {
    let ms = fields.text("ttl")?.parse().ok()?;
    Some(bounded(Duration::from_millis(ms)))
}

pub(super) fn read_request(fields: &Fields) -> Result<Asked, String> {
    fields.check_version()?;
    Ok(Asked {
        event: fields.json("event")?,
        context: fields.json("context")?,
        snapshot: fields.json("snapshot")?,
        trace: fields.text("trace").map(str::to_owned),
    })
}

impl Asked {
    /// The request to this one rule.
    pub(super) fn request(
        self,
        correlation_id: &str,
        rule: &RuleId,
        risks: &ToolRisks,
    ) -> DeepRequest {
        DeepRequest {
            correlation_id: correlation_id.to_owned(),
            event: Arc::new(self.event),
            context: Arc::new(self.context),
            snapshot: Arc::new(self.snapshot.into_snapshot(risks)),
            rules: vec![rule.clone()],
            trace: self.trace,
        }
    }
}

/// What a rule said, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerWire<'a> {
    Clear,
    Decided(Cow<'a, Decision>),
    Failed(Cow<'a, str>),
    Unavailable,
}

/// An answer as the gateway finds it.
#[derive(Debug, PartialEq)]
pub(super) struct Answered {
    pub(super) correlation_id: String,
    pub(super) rule: RuleId,
    pub(super) answer: DeepAnswer,
}

pub(super) fn answer_fields<'a>(
    correlation_id: &'a str,
    rule: &'a RuleId,
    answer: &'a [u8],
) -> [(&'static str, &'a [u8]); 4] {
    [
        ("v", VERSION),
        ("id", correlation_id.as_bytes()),
        ("rule", rule.as_str().as_bytes()),
        ("answer", answer),
    ]
}

pub(super) fn answer_json(answer: &DeepAnswer) -> Vec<u8> {
    let wire = match answer {
        DeepAnswer::Clear => AnswerWire::Clear,
        DeepAnswer::Decided(decision) => AnswerWire::Decided(Cow::Borrowed(decision)),
        DeepAnswer::Failed(error) => AnswerWire::Failed(Cow::Borrowed(error)),
        DeepAnswer::Unavailable => AnswerWire::Unavailable,
    };
    serde_json::to_vec(&wire).unwrap_or_else(|_| br#"{"failed":"its answer is not JSON"}"#.to_vec())
}

/// An answer that cannot be read is a failure of its rule: whoever waits for it shall not have to wait longer.
pub(super) fn read_answer(fields: &Fields) -> Result<Answered, String> {
    let (Some(id), Some(rule)) = (fields.text("id"), fields.text("rule")) else {
        return Err("it has no `id` or no `rule`".to_owned());
    };
    let read = fields.check_version().and_then(|()| fields.json("answer"));
    let answer = match read {
        Ok(AnswerWire::Clear) => DeepAnswer::Clear,
        Ok(AnswerWire::Decided(decision)) => DeepAnswer::Decided(Box::new(decision.into_owned())),
        Ok(AnswerWire::Failed(error)) => DeepAnswer::Failed(error.into_owned()),
        Ok(AnswerWire::Unavailable) => DeepAnswer::Unavailable,
        Err(error) => DeepAnswer::Failed(format!("the answer cannot be used: {error}")),
    };
    Ok(Answered {
        correlation_id: id.to_owned(),
        rule: RuleId::from(rule),
        answer,
    })
}

/// What a worker says of itself.
#[derive(Serialize, Deserialize)]
struct Serves {
    rules: Vec<ServesRule>,
}

#[derive(Serialize, Deserialize)]
struct ServesRule {
    id: String,
    version: String,
    events: EventSet,
    ready: bool,
}

pub(super) fn served_json(rules: &[ServedRule]) -> Vec<u8> {
    let rules = rules.iter().map(|rule| ServesRule {
        id: rule.id.as_str().to_owned(),
        version: rule.version.clone(),
        events: rule.events.clone(),
        ready: rule.ready,
    });
    let serves = Serves {
        rules: rules.collect(),
    };
    serde_json::to_vec(&serves).unwrap_or_default()
}

pub(super) fn read_served(json: &[u8]) -> Result<Vec<ServedRule>, serde_json::Error> {
    let serves: Serves = serde_json::from_slice(json)?;
    let rules = serves.rules.into_iter().map(|rule| ServedRule {
        id: RuleId::from(rule.id.as_str()),
        version: rule.version,
        events: rule.events,
        ready: rule.ready,
    });
    Ok(rules.collect())
}

/// The entries of `XREAD` and `XREADGROUP`, with the stream of each. Whatever else comes is none.
pub(super) fn read_streams(value: Value) -> Vec<(String, Vec<Entry>)> {
    let streams: Vec<(Value, Value)> = match value {
        Value::Map(streams) => streams,
        other => array(other).into_iter().filter_map(pair).collect(),
    };
    streams
        .into_iter()
        .filter_map(|(name, entries)| Some((string(name)?, read_entries(entries))))
        .collect()
}

/// The entries of `XCLAIM`, or of one stream.
pub(super) fn read_entries(value: Value) -> Vec<Entry> {
    let entries = array(value).into_iter().filter_map(pair);
    entries
        .filter_map(|(id, fields)| {
            let mut fields = array(fields).into_iter();
            let mut read = Vec::with_capacity(fields.len() / 2);
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                read.push((bytes(name)?, bytes(value)?));
            }
            Some(Entry {
                id: string(id)?,
                fields: Fields(read),
            })
        })
        .collect()
}

pub(super) fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) | Value::Set(values) => values,
        _ => Vec::new(),
    }
}

fn pair(value: Value) -> Option<(Value, Value)> {
    let mut values = array(value).into_iter();
    Some((values.next()?, values.next()?))
}

pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

pub(super) fn string(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}
