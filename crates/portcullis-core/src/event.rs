//! What comes in: an [`Event`] of a running agent and the [`Context`] of its run (RFC-001 §3.4).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::history::History;
use crate::unique;

/// The only schema version there is. A line that names another is refused, not guessed at.
pub const SCHEMA_VERSION: &str = "1";

/// The stage of the agent's loop that an event comes from.
///
/// RFC-001 leaves the set open: a stage that no rule of a policy names is allowed, and its
/// evaluation says that nothing judged it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// A prompt is about to go to the model.
    LlmBefore,
    /// A tool is about to run.
    ToolCallStart,
    /// A tool has answered.
    ToolCallResult,
    /// The model streams a piece of its answer.
    LlmStreamChunk,
    /// Tools are about to be offered to the model. RFC-001 has no name for it.
    ToolDefinitions,
    /// A stage of the embedder's own.
    Other(Box<str>),
}

impl EventType {
    /// The stages that RFC-001 §16.1 fixes, in the order an agent meets them.
    pub const STANDARD: [Self; 4] = [
        Self::LlmBefore,
        Self::ToolCallStart,
        Self::ToolCallResult,
        Self::LlmStreamChunk,
    ];

    /// Every stage that has a name here.
    pub const NAMED: [Self; 5] = [
        Self::LlmBefore,
        Self::ToolCallStart,
        Self::ToolCallResult,
        Self::LlmStreamChunk,
        Self::ToolDefinitions,
    ];

    /// Whether `payload.result` is the structured part of such an event, and not `tool_args`.
    pub fn has_result(&self) -> bool {
        matches!(self, Self::ToolCallResult | Self::ToolDefinitions)
    }

    /// The wire name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::LlmBefore => "llm_before",
            Self::ToolCallStart => "tool_call_start",
            Self::ToolCallResult => "tool_call_result",
            Self::LlmStreamChunk => "llm_stream_chunk",
            Self::ToolDefinitions => "tool_definitions",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for EventType {
    fn from(name: &str) -> Self {
        Self::NAMED
            .into_iter()
            .find(|known| known.as_str() == name)
            .unwrap_or_else(|| Self::Other(name.into()))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.is_empty() {
            return Err(serde::de::Error::custom("event_type must not be empty"));
        }
        Ok(Self::from(name.as_str()))
    }
}

/// One step of a running agent, before it happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "EventWire")]
pub struct Event {
    /// Which stage.
    pub event_type: EventType,
    /// Which run. On the wire it may be left to the context.
    pub run_id: String,
    /// Prompt, answer or tool output, as text.
    pub text_content: Option<String>,
    /// Which tool.
    pub tool_name: Option<String>,
    /// With what arguments.
    pub tool_args: Option<Map<String, Value>>,
    /// Everything else. Unknown event fields land here. `result` is the tool's structured result, or
    /// the listing of tools.
    pub payload: Map<String, Value>,
    /// Seconds since the epoch.
    pub timestamp: Option<f64>,
}

impl Event {
    /// An event with nothing in it yet.
    pub fn new(event_type: EventType, run_id: impl Into<String>) -> Self {
        Self {
            event_type,
            run_id: run_id.into(),
            text_content: None,
            tool_name: None,
            tool_args: None,
            payload: Map::new(),
            timestamp: None,
        }
    }

    /// A prompt about to go to the model.
    pub fn llm_before(run_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            text_content: Some(text.into()),
            ..Self::new(EventType::LlmBefore, run_id)
        }
    }

    /// A tool about to run.
    pub fn tool_call_start(
        run_id: impl Into<String>,
        tool: impl Into<String>,
        args: Map<String, Value>,
    ) -> Self {
        Self {
            tool_name: Some(tool.into()),
            tool_args: Some(args),
            ..Self::new(EventType::ToolCallStart, run_id)
        }
    }

    /// A tool's answer, as text.
    pub fn tool_call_result(
        run_id: impl Into<String>,
        tool: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            tool_name: Some(tool.into()),
            text_content: Some(text.into()),
            ..Self::new(EventType::ToolCallResult, run_id)
        }
    }

    /// A piece of the model's streamed answer.
    pub fn llm_stream_chunk(run_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            text_content: Some(text.into()),
            ..Self::new(EventType::LlmStreamChunk, run_id)
        }
    }

    /// Tools about to be offered to the model: MCP's `tools/list`, a list of functions, or an A2A agent
    /// card.
    pub fn tool_definitions(run_id: impl Into<String>, listing: Value) -> Self {
        Self {
            payload: Map::from_iter([("result".to_owned(), listing)]),
            ..Self::new(EventType::ToolDefinitions, run_id)
        }
    }

    /// The text, or nothing.
    pub fn text(&self) -> &str {
        self.text_content.as_deref().unwrap_or_default()
    }

    /// The part of the event that JSON Pointers in redactions refer to: the structured result
    /// (`payload.result`) of a tool's answer, the listing of tools (there too), the tool's arguments
    /// otherwise.
    pub fn structured(&self) -> Option<Structured<'_>> {
        if self.event_type.has_result() {
            let result = self.payload.get("result")?;
            return Some(Structured::Result(result));
        }
        self.tool_args.as_ref().map(Structured::ToolArgs)
    }
}

/// The structured part of an event.
#[derive(Debug, Clone, Copy)]
pub enum Structured<'e> {
    /// The arguments of a tool that is about to run.
    ToolArgs(&'e Map<String, Value>),
    /// `payload.result` of a tool's answer or of a listing of tools.
    Result(&'e Value),
}

/// The event as JSON carries it: fields that we do not know are kept, not dropped.
#[derive(Deserialize)]
#[serde(expecting = "an event object")]
struct EventWire {
    event_type: EventType,
    #[serde(default)]
    run_id: String,
    #[serde(default)]
    text_content: Option<String>,
    #[serde(default)]
    tool_name: Option<String>,
    #[serde(default, deserialize_with = "unique::tool_args")]
    tool_args: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "unique::payload")]
    payload: Option<Map<String, Value>>,
    #[serde(default)]
    timestamp: Option<f64>,
    #[serde(default, rename = "schema_version")]
    _schema_version: SchemaVersion,
    #[serde(flatten, deserialize_with = "unique::members")]
    unknown: Map<String, Value>,
}

impl TryFrom<EventWire> for Event {
    type Error = String;

    fn try_from(wire: EventWire) -> Result<Self, String> {
        let mut payload = wire.payload.unwrap_or_default();
        for (key, value) in wire.unknown {
            if payload.get(&key).is_some_and(|known| *known != value) {
                let name = if is_plain_name(&key) {
                    format!("`{key}`")
                } else {
                    "a member".to_owned()
                };
                return Err(format!("{name} is there twice: as a field and in payload"));
            }
            payload.insert(key, value);
        }
        Ok(Self {
            event_type: wire.event_type,
            run_id: wire.run_id,
            text_content: wire.text_content,
            tool_name: wire.tool_name,
            tool_args: wire.tool_args,
            payload,
            timestamp: wire.timestamp,
        })
    }
}

/// What is known of a run: it outlives one event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "ContextWire")]
pub struct Context {
    /// Which run. On the wire it may be left to the event.
    pub run_id: String,
    /// Whose run.
    pub tenant_id: Option<String>,
    /// In which role.
    pub persona_id: Option<String>,
    /// `available_tools`, `contains_untrusted`, and whatever else the embedder knows of tools.
    pub tool_context: Map<String, Value>,
    /// Strikes by category.
    pub strike_counts: BTreeMap<String, u64>,
    /// Settings of the embedder's own rules.
    pub policy_config: Map<String, Value>,
    /// Context fields that we do not know, kept for expressions.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// What the gateway remembers of the run's earlier steps.
    #[serde(skip)]
    pub history: History,
}

impl Context {
    /// The context of a new run.
    pub fn new(run_id: impl Into<String>) -> Self {
        Self {
            run_id: run_id.into(),
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(expecting = "a context object")]
struct ContextWire {
    #[serde(default)]
    run_id: String,
    #[serde(default)]
    tenant_id: Option<String>,
    #[serde(default)]
    persona_id: Option<String>,
    #[serde(default, deserialize_with = "unique::tool_context")]
    tool_context: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "unique::strike_counts")]
    strike_counts: Option<BTreeMap<String, u64>>,
    #[serde(default, deserialize_with = "unique::policy_config")]
    policy_config: Option<Map<String, Value>>,
    #[serde(default, rename = "schema_version")]
    _schema_version: SchemaVersion,
    #[serde(flatten, deserialize_with = "unique::members")]
    extra: Map<String, Value>,
}

impl From<ContextWire> for Context {
    fn from(wire: ContextWire) -> Self {
        Self {
            run_id: wire.run_id,
            tenant_id: wire.tenant_id,
            persona_id: wire.persona_id,
            tool_context: wire.tool_context.unwrap_or_default(),
            strike_counts: wire.strike_counts.unwrap_or_default(),
            policy_config: wire.policy_config.unwrap_or_default(),
            extra: wire.extra,
            history: History::default(),
        }
    }
}

/// An event with its context: one line of `portcullis eval`, one body of `POST /v1/guard/evaluate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StepWire")]
pub struct Step {
    /// What is known of the run.
    pub context: Context,
    /// What is about to happen.
    pub event: Event,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `event` and `context`"
)]
struct StepWire {
    #[serde(default)]
    context: Context,
    event: Event,
    #[serde(default, rename = "schema_version")]
    _schema_version: SchemaVersion,
}

impl TryFrom<StepWire> for Step {
    type Error = String;

    fn try_from(wire: StepWire) -> Result<Self, String> {
        Self::new(wire.context, wire.event)
    }
}

impl Step {
    /// What is to blame where the two cannot be joined.
    pub const RUN_ID: &str = "event.run_id";

    /// Joins the two: where one does not name the run, the other does.
    pub fn new(mut context: Context, mut event: Event) -> Result<Self, String> {
        match (context.run_id.is_empty(), event.run_id.is_empty()) {
            (true, true) => {
                return Err(
                    "event.run_id is missing: name the run that this step belongs to".into(),
                );
            }
            (true, false) => context.run_id.clone_from(&event.run_id),
            (false, true) => event.run_id.clone_from(&context.run_id),
            (false, false) if context.run_id != event.run_id => {
                return Err(format!(
                    "event.run_id `{}` and context.run_id `{}` differ: a step belongs to one run",
                    event.run_id, context.run_id
                ));
            }
            (false, false) => {}
        }
        Ok(Self { context, event })
    }
}

/// `"1"`, or absent. Anything else is refused here, at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchemaVersion;

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SCHEMA_VERSION)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const LONGEST: usize = 8;
        let version = Value::deserialize(deserializer)?;
        if version == SCHEMA_VERSION {
            return Ok(Self);
        }
        // What is longer may be a secret.
        let version = version.to_string();
        let said = if version.len() > LONGEST {
            String::new()
        } else {
            format!(" {version}")
        };
        Err(serde::de::Error::custom(format!(
            "unknown schema_version{said}: this build understands \"{SCHEMA_VERSION}\""
        )))
    }
}

impl Event {
    /// Why some JSON is no event, without the values that stand in it: they may be secrets.
    pub fn unread(error: &serde_json::Error) -> String {
        /// What stands behind a name or a number.
        const TAILS: [&str; 2] = ["`, expected ", "`, there are no fields"];
        let said = error.to_string();
        let value = said.split_once(": string \"").and_then(|(start, rest)| {
            let (_, expected) = rest.rsplit_once("\", expected ")?;
            Some((start, expected))
        });
        if let Some((start, expected)) = value {
            let expected =
                expected.replacen("a map", "an object, not one that is written in a string", 1);
            return format!("{start}: a string, expected {expected}");
        }
        let unnamed = said.split_once('`').and_then(|(start, rest)| {
            // A name may have such signs in it, what is expected has not.
            let ends = TAILS.into_iter().filter_map(|tail| rest.rfind(tail));
            let end = ends.max()?;
            let (name, tail) = rest.split_at(end);
            let tail = tail.trim_start_matches('`');
            (!is_plain_name(name)).then(|| format!("{}{tail}", start.trim_end()))
        });
        unnamed.unwrap_or(said)
    }

    /// Where that is, as far as names are plain: `event.tool_args` of `event.tool_args.4111 1111 1111 1111`.
    pub fn unread_at(path: &str) -> Option<String> {
        /// No list of an event has a place with more digits.
        const DIGITS: usize = 7;
        let is_place =
            |text: &str| text.len() <= DIGITS && text.bytes().all(|b| b.is_ascii_digit());
        // `[3]` is a place in a list, and what else stands in brackets is of a name.
        let is_plain = |name: &&str| {
            let (name, places) = name.split_at(name.find('[').unwrap_or(name.len()));
            is_plain_name(name) && places.split(['[', ']']).all(is_place)
        };
        let names: Vec<&str> = path.split('.').take_while(is_plain).collect();
        let path = names.join(".");
        (!path.trim_matches('.').is_empty()).then_some(path)
    }
}

/// Whether a name is as short and plain as those of fields, so that it may be repeated: another may be a secret, or
/// somebody's number.
pub(crate) fn is_plain_name(name: &str) -> bool {
    /// That of `schema_version`, and a slip.
    const LONGEST: usize = 15;
    let plain = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-');
    name.len() <= LONGEST && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_event_fields_are_kept_in_payload_and_never_overwrite_it() {
        let wire = |a: i32| {
            json!({
                "event_type": "llm_before", "run_id": "r", "text_content": "hi",
                "payload": {"a": 1}, "a": a, "model": "m",
            })
        };
        let event: Event = serde_json::from_value(wire(1)).unwrap();
        assert_eq!(Value::Object(event.payload), json!({"a": 1, "model": "m"}));
        let error = serde_json::from_value::<Event>(wire(2)).unwrap_err();
        assert!(error.to_string().contains("`a` is there twice"), "{error}");
        let number = json!({
            "event_type": "e", "run_id": "r", "payload": {"4111111111111111": 1}, "4111111111111111": 2,
        });
        let error = serde_json::from_value::<Event>(number).unwrap_err();
        let expected = "a member is there twice: as a field and in payload";
        assert_eq!(Event::unread(&error), expected);
    }

    #[test]
    fn where_it_is_ends_before_what_is_no_plain_name() {
        for (path, expected) in [
            (".", None),
            ("event.event_type", Some("event.event_type")),
            ("context[2].tool_risk", Some("context[2].tool_risk")),
            ("context.4111 1111 1111 1111.x", Some("context")),
            ("context.a[4111 1111 1111 1111].x", Some("context")),
            ("context.a[4111111111111111]", Some("context")),
            ("context.a[hunter2", Some("context")),
            ("AKIAIOSFODNN7EXAMPLE", None),
        ] {
            assert_eq!(Event::unread_at(path).as_deref(), expected, "{path}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    #[test]
    fn an_error_does_not_repeat_what_may_be_a_secret() {
        let secret = "ghp_0123456789\", expected abcdefghijklmnopqrstuvwxyz";
        for (event, expected) in [
            (
                json!({"event_type": "e", "run_id": "r", "tool_args": secret}),
                "invalid type: a string, expected an object, not one that is written in a string",
            ),
            (
                json!({"event_type": "e", "run_id": "r", "timestamp": secret}),
                "invalid type: a string, expected f64",
            ),
            (
                json!({"event_type": "e", "run_id": 7}),
                "invalid type: integer, expected a string",
            ),
            (
                json!({"event_type": "e", "run_id": 4_111_111_111_111_111_u64}),
                "invalid type: integer, expected a string",
            ),
            (
                json!({"event_type": "e", "run_id": 4.5}),
                "invalid type: floating point, expected a string",
            ),
            (
                json!({"event_type": "e", "run_id": true}),
                "invalid type: boolean `true`, expected a string",
            ),
            (
                json!({"event_type": "e", "run_id": "r", "schema_version": secret}),
                "unknown schema_version: this build understands \"1\"",
            ),
        ] {
            let error = serde_json::from_value::<Event>(event).unwrap_err();
            assert_eq!(Event::unread(&error), expected);
        }
        for (name, expected) in [
            (
                "evnt".to_owned(),
                "unknown field `evnt`, there are no fields",
            ),
            (
                "schema_versions".to_owned(),
                "unknown field `schema_versions`, there are no fields",
            ),
            (secret.to_owned(), "unknown field, there are no fields"),
            (
                "AKIAIOSFODNN7EXAMPLE".to_owned(),
                "unknown field, there are no fields",
            ),
            (
                "4111111111111111".to_owned(),
                "unknown field, there are no fields",
            ),
            (
                "a`, expected 1".to_owned(),
                "unknown field, there are no fields",
            ),
        ] {
            let object = Value::from_iter([(name, json!(1))]);
            let error = serde_json::from_value::<Nothing>(object).unwrap_err();
            assert_eq!(Event::unread(&error), expected);
        }
    }

    #[test]
    fn an_event_survives_the_wire() {
        let event = Event {
            timestamp: Some(1.5),
            ..Event::tool_call_start("r", "t", Map::from_iter([("x".into(), json!([1, null]))]))
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        let context = Context {
            extra: Map::from_iter([("agent".into(), json!("a"))]),
            ..Context::new("r")
        };
        let text = serde_json::to_string(&context).unwrap();
        assert_eq!(serde_json::from_str::<Context>(&text).unwrap(), context);
    }

    #[test]
    fn python_nulls_are_absences() {
        let step: Step = serde_json::from_value(json!({
            "context": {"run_id": "r", "tenant_id": null, "tool_context": null},
            "event": {"event_type": "tool_call_start", "tool_name": "x", "tool_args": null, "payload": null},
        }))
        .unwrap();
        assert_eq!(step.event.run_id, "r");
        assert_eq!(step.event.tool_args, None);
    }

    /// Each refusal names the field and the way out.
    #[test]
    fn bad_steps_are_refused_with_a_reason() {
        for (line, expected) in [
            (
                json!({"event": {"event_type": "llm_before"}}),
                "event.run_id is missing",
            ),
            (
                json!({"context": {"run_id": "a"}, "event": {"event_type": "llm_before", "run_id": "b"}}),
                "differ",
            ),
            (
                json!({"context": {"schema_version": "2", "run_id": "a"}, "event": {"event_type": "llm_before"}}),
                "unknown schema_version \"2\"",
            ),
            (
                json!({"schema_version": 1, "event": {"event_type": "llm_before", "run_id": "a"}}),
                "unknown schema_version 1",
            ),
            (
                json!({"event": {"event_type": "llm_before", "run_id": "a", "schema_version": "0"}}),
                "unknown schema_version",
            ),
            (
                json!({"event": {"event_type": "", "run_id": "a"}}),
                "event_type must not be empty",
            ),
            (json!({"evnt": {}}), "unknown field `evnt`"),
            (
                json!({"event": {"event_type": "llm_before", "run_id": "a", "text_content": 5}}),
                "expected a string",
            ),
        ] {
            let error = serde_json::from_value::<Step>(line)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
