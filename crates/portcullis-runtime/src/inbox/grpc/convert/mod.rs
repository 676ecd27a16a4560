//! Between the wire's messages and our own types. What cannot be read names its field.

mod decision;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::scan::EventSet;
use portcullis_core::{Context, Decision, Event, EventType, RuleId, SnapshotWire, ToolRisks};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::wire;
use crate::deep::{DeepAnswer, DeepRequest, DeepResponse};
use crate::inbox::remote::ServedRule;

/// A field that does not say what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Unreadable {
    field: &'static str,
    why: String,
}

impl Unreadable {
    fn new(field: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { field, why }
    }
}

fn write(field: &'static str, value: &impl Serialize) -> Result<String, Unreadable> {
    serde_json::to_string(value).map_err(|error| Unreadable::new(field, error.to_string()))
}

fn read<T: DeserializeOwned>(field: &'static str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| Unreadable::new(field, error.to_string()))
}

/// Absent and empty mean the same: for messages whose JSON says nothing.
fn read_object(field: &'static str, text: &str) -> Result<Map<String, Value>, Unreadable> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    read(field, text)
}

impl wire::EvaluateRequest {
    /// The message, for an evaluation that may take so long.
    pub(super) fn asking(request: &DeepRequest, ttl: Duration) -> Result<Self, Unreadable> {
        Ok(Self {
            correlation_id: request.correlation_id.clone(),
            rules: request.rules.iter().map(ToString::to_string).collect(),
            event: Some(wire::Event::try_from(&*request.event)?),
            context_json: write("context_json", &*request.context)?,
            snapshot_json: write("snapshot_json", &request.snapshot.to_wire())?,
            // Longer than the field can say is as good as no limit.
            ttl_ms: u32::try_from(ttl.as_millis()).map_or(0, |ms| ms.max(1)),
            traceparent: request.trace.clone().unwrap_or_default(),
        })
    }

    /// What is asked. The wire names the tool at hand and not its tier, which `risks` knows.
    pub(super) fn into_request(self, risks: &ToolRisks) -> Result<DeepRequest, Unreadable> {
        let event = self
            .event
            .ok_or_else(|| Unreadable::new("event", "is missing"))?;
        let context: Context = read("context_json", &self.context_json)?;
        let snapshot: SnapshotWire<'static> = read("snapshot_json", &self.snapshot_json)?;
        Ok(DeepRequest {
            correlation_id: self.correlation_id,
            event: Arc::new(event.try_into()?),
            context: Arc::new(context),
            snapshot: Arc::new(snapshot.into_snapshot(risks)),
            rules: self.rules.into_iter().map(RuleId::from).collect(),
            trace: Some(self.traceparent).filter(|trace| !trace.is_empty()),
        })
    }

    /// How long the evaluation may take, if the message says.
    pub(super) fn ttl(&self) -> Option<Duration> {
        (self.ttl_ms > 0).then(|| Duration::from_millis(self.ttl_ms.into()))
    }
}

impl TryFrom<&Event> for wire::Event {
    type Error = Unreadable;

    fn try_from(event: &Event) -> Result<Self, Unreadable> {
        let tool_args = event.tool_args.as_ref();
        Ok(Self {
            event_type: event.event_type.to_string(),
            run_id: event.run_id.clone(),
            text_content: event.text_content.clone(),
            tool_name: event.tool_name.clone(),
            tool_args_json: tool_args
                .map(|args| write("event.tool_args_json", args))
                .transpose()?,
            payload_json: if event.payload.is_empty() {
                String::new()
            } else {
                write("event.payload_json", &event.payload)?
            },
            timestamp: event.timestamp,
        })
    }
}

impl TryFrom<wire::Event> for Event {
    type Error = Unreadable;

    fn try_from(event: wire::Event) -> Result<Self, Unreadable> {
        if event.event_type.is_empty() {
            return Err(Unreadable::new("event.event_type", "must not be empty"));
        }
        let tool_args = event.tool_args_json.as_deref();
        Ok(Self {
            event_type: EventType::from(event.event_type.as_str()),
            run_id: event.run_id,
            text_content: event.text_content,
            tool_name: event.tool_name,
            tool_args: tool_args
                .map(|args| read("event.tool_args_json", args))
                .transpose()?,
            payload: read_object("event.payload_json", &event.payload_json)?,
            timestamp: event.timestamp,
        })
    }
}

impl From<DeepResponse> for wire::EvaluateResponse {
    fn from(response: DeepResponse) -> Self {
        let answers = response.answers.into_iter();
        Self {
            correlation_id: response.correlation_id,
            run_id: response.run_id,
            answers: answers
                .map(|(id, answer)| wire::Answer {
                    rule_id: id.to_string(),
                    said: Some(answer.into()),
                })
                .collect(),
            overloaded: false,
        }
    }
}

impl From<wire::EvaluateResponse> for DeepResponse {
    /// An answer that cannot be read has failed; the others still count.
    fn from(response: wire::EvaluateResponse) -> Self {
        let answers = response.answers.into_iter().map(|answer| {
            let id = RuleId::from(answer.rule_id);
            let said = read_answer(answer.said, &id, &response.correlation_id);
            let said = said.unwrap_or_else(|error| {
                DeepAnswer::Failed(format!("the sidecar's answer cannot be read: {error}"))
            });
            (id, said)
        });
        Self {
            answers: answers.collect(),
            correlation_id: response.correlation_id,
            run_id: response.run_id,
        }
    }
}

impl From<DeepAnswer> for wire::answer::Said {
    fn from(answer: DeepAnswer) -> Self {
        match answer {
            DeepAnswer::Clear => Self::Clear(wire::Clear {}),
            DeepAnswer::Failed(why) => Self::Failed(why),
            DeepAnswer::NoAnswer(why) => Self::NoAnswer(why),
            DeepAnswer::NotAsked(why) => Self::NotAsked(why),
            DeepAnswer::Unavailable => Self::Unavailable(wire::Unavailable {}),
            DeepAnswer::Decided(decision) => match wire::Decision::try_from(&*decision) {
                Ok(decision) => Self::Decided(Box::new(decision)),
                Err(error) => Self::Failed(error.to_string()),
            },
        }
    }
}

fn read_answer(
    said: Option<wire::answer::Said>,
    id: &RuleId,
    correlation_id: &str,
) -> Result<DeepAnswer, Unreadable> {
    Ok(match said {
        None => return Err(Unreadable::new("answer.said", "is missing")),
        Some(wire::answer::Said::Clear(_)) => DeepAnswer::Clear,
        Some(wire::answer::Said::Failed(why)) => DeepAnswer::Failed(why),
        Some(wire::answer::Said::NoAnswer(why)) => DeepAnswer::NoAnswer(why),
        Some(wire::answer::Said::NotAsked(why)) => DeepAnswer::NotAsked(why),
        Some(wire::answer::Said::Unavailable(_)) => DeepAnswer::Unavailable,
        Some(wire::answer::Said::Decided(decision)) => {
            let mut decision = Decision::try_from(*decision)?;
            decision.rule_id = id.clone();
            decision.correlation_id = Some(correlation_id.to_owned());
            DeepAnswer::Decided(Box::new(decision))
        }
    })
}

impl From<ServedRule> for wire::Rule {
    fn from(rule: ServedRule) -> Self {
        // A set of every type has no names, but its JSON does.
        let events = serde_json::to_value(&rule.events).and_then(serde_json::from_value);
        Self {
            id: rule.id.to_string(),
            version: rule.version,
            events: events.unwrap_or_default(),
            ready: rule.ready,
        }
    }
}

impl TryFrom<wire::Rule> for ServedRule {
    type Error = Unreadable;

    fn try_from(rule: wire::Rule) -> Result<Self, Unreadable> {
        if rule.id.is_empty() {
            return Err(Unreadable::new("rules.id", "must not be empty"));
        }
        Ok(Self {
            id: rule.id.into(),
            version: rule.version,
            events: EventSet::of_names(rule.events.iter().map(String::as_str)),
            ready: rule.ready,
        })
    }
}
