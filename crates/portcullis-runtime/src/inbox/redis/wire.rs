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
    NoAnswer(Cow<'a, str>),
    NotAsked(Cow<'a, str>),
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
        DeepAnswer::NoAnswer(why) => AnswerWire::NoAnswer(Cow::Borrowed(why)),
        DeepAnswer::NotAsked(why) => AnswerWire::NotAsked(Cow::Borrowed(why)),
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
        Ok(AnswerWire::NoAnswer(why)) => DeepAnswer::NoAnswer(why.into_owned()),
        Ok(AnswerWire::NotAsked(why)) => DeepAnswer::NotAsked(why.into_owned()),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use portcullis_core::{Action, ContextSnapshot, Effect, EventType, Signals};
    use proptest::prelude::*;
    use serde_json::{Map, Value as Json};

    use super::*;

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            any::<String>().prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Map<String, Json>> {
        prop::collection::btree_map("[a-z]{1,8}", json(), 0..4)
            .prop_map(|map: BTreeMap<String, Json>| map.into_iter().collect())
    }

    fn request() -> impl Strategy<Value = DeepRequest> {
        let event_type = prop_oneof![
            prop::sample::select(EventType::NAMED.to_vec()),
            "[a-z_]{1,12}".prop_map(|name| EventType::from(name.as_str())),
        ];
        let tool = (any::<Option<String>>(), prop::option::of(object()));
        let timestamp = prop::option::of(prop::num::f64::NORMAL);
        let event = (
            event_type,
            any::<(String, Option<String>)>(),
            tool,
            object(),
            timestamp,
        );
        let strikes = prop::collection::btree_map(any::<String>(), any::<u64>(), 0..3);
        let context = (any::<[Option<String>; 2]>(), object(), strikes, object());
        let rest = any::<(String, Option<String>, bool, bool)>();
        (event, context, rest).prop_map(|(event, context, rest)| {
            let (event_type, (run_id, text_content), (tool_name, tool_args), payload, timestamp) =
                event;
            let event = Event {
                event_type,
                run_id: run_id.clone(),
                text_content,
                tool_name,
                tool_args,
                payload,
                timestamp,
            };
            let ([tenant_id, persona_id], tool_context, strike_counts, policy_config) = context;
            let context = Context {
                tenant_id,
                persona_id,
                tool_context,
                strike_counts,
                policy_config,
                ..Context::new(run_id)
            };
            let (correlation_id, trace, asks, wants) = rest;
            let signals = Signals {
                requests_system_info: asks,
                requests_capability_change: wants,
            };
            let risks = ToolRisks::default();
            let snapshot = ContextSnapshot::build(&event, &context, &risks, signals).into_owned();
            DeepRequest {
                correlation_id,
                snapshot: Arc::new(snapshot),
                event: Arc::new(event),
                context: Arc::new(context),
                rules: vec![RuleId::from("rule")],
                trace,
            }
        })
    }

    fn answer() -> impl Strategy<Value = DeepAnswer> {
        let decided = (any::<[String; 2]>(), any::<Option<u32>>(), object());
        prop_oneof![
            Just(DeepAnswer::Clear),
            Just(DeepAnswer::Unavailable),
            any::<String>().prop_map(DeepAnswer::Failed),
            any::<String>().prop_map(DeepAnswer::NoAnswer),
            any::<String>().prop_map(DeepAnswer::NotAsked),
            decided.prop_map(|([rule, reason], strikes, found)| {
                let mut decision = Decision::allow(RuleId::from(rule.as_str()), reason);
                decision.action = Action::Stop;
                decision.classifier_result = Some(Box::new(found));
                if strikes.is_some() {
                    decision = decision.with_effects([Effect::IncrementStrike]);
                }
                DeepAnswer::Decided(Box::new(decision))
            }),
        ]
    }

    fn fields(of: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Fields {
        let fields = of.into_iter();
        Fields(fields.map(|(name, value)| (name.into(), value)).collect())
    }

    proptest! {
        #[test]
        fn a_request_survives_the_way(request in request(), ms in 0_u64..100_000_000) {
            let sent = request_fields(&request, "gateway", Duration::from_millis(ms)).unwrap();
            let mut arrived = fields(sent);
            // What a newer gateway may add.
            arrived.0.push((b"new".to_vec(), b"?".to_vec()));
            prop_assert_eq!(ttl(&arrived), Some(Duration::from_millis(ms.min(86_400_000))));
            prop_assert_eq!(arrived.text("to"), Some("gateway"));
            let rule = RuleId::from("rule");
            let asked = read_request(&arrived).unwrap();
            let back = asked.request(arrived.text("id").unwrap(), &rule, &ToolRisks::default());
            prop_assert_eq!(&back.correlation_id, &request.correlation_id);
            prop_assert_eq!(&back.event, &request.event);
            prop_assert_eq!(&back.context, &request.context);
            prop_assert_eq!(&back.trace, &request.trace);
            // All but the list of tools, which the wire does not have.
            let (back, sent) = (back.snapshot.to_wire(), request.snapshot.to_wire());
            prop_assert_eq!(back, sent);
        }

        #[test]
        fn an_answer_survives_the_way(answer in answer(), id: String, rule: String) {
            let rule = RuleId::from(rule.as_str());
            let json = answer_json(&answer);
            let sent = answer_fields(&id, &rule, &json).map(|(name, value)| (name, value.to_vec()));
            let back = read_answer(&fields(sent)).unwrap();
            prop_assert_eq!(back, Answered { correlation_id: id.clone(), rule: rule.clone(), answer });
        }

        #[test]
        fn no_bytes_bring_a_reader_down(
            mut found in prop::collection::vec((0_usize..10, any::<Vec<u8>>()), 0..10),
            version: bool,
        ) {
            let names = ["id", "to", "ttl", "event", "context", "snapshot", "trace", "rule", "answer", "v"];
            if version {
                found.insert(0, (9, VERSION.to_vec()));
            }
            let found = fields(found.into_iter().map(|(name, value)| (names[name], value)));
            prop_assert!(read_request(&found).is_err(), "no event is made of noise");
            let _ = (ttl(&found), read_answer(&found));
            for (_, bytes) in &found.0 {
                let _ = read_served(bytes);
            }
        }
    }

    #[test]
    fn what_was_cut_short_or_is_of_another_version_is_an_error_not_a_panic() {
        let context = Context::new("r");
        let event = Event::llm_before("r", "hello");
        let risks = ToolRisks::default();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let request = DeepRequest {
            correlation_id: "c".to_owned(),
            snapshot: Arc::new(snapshot.into_owned()),
            event: Arc::new(event.clone()),
            context: Arc::new(context.clone()),
            rules: Vec::new(),
            trace: None,
        };
        let whole = request_fields(&request, "g", Duration::MAX).unwrap();
        for field in 4..whole.len() {
            for length in 0..whole[field].1.len() {
                let mut cut = whole.clone();
                cut[field].1.truncate(length);
                assert!(read_request(&fields(cut)).is_err());
            }
        }
        let mut newer = fields(whole);
        newer.0[0].1 = b"2".to_vec();
        let error = read_request(&newer).unwrap_err();
        assert!(error.contains("version is 2"), "{error}");
        let unread = [
            ("id", b"c".to_vec()),
            ("rule", b"r".to_vec()),
            ("v", b"1".to_vec()),
        ];
        let answered = read_answer(&fields(unread)).unwrap();
        assert!(
            matches!(answered.answer, DeepAnswer::Failed(_)),
            "{answered:?}"
        );
    }
}
