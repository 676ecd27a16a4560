use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::{RuleError, RuleInput, documented};
use super::reading::{Found, read_threshold};
use super::spans::{self, SpanFields};
use super::{DeepSettings, DeepSpec, Endpoint, ExternalRule, Reply, bounded, parse};
use crate::decision::{Action, Decision, RedactionSpec, RuleCost, Severity};
use crate::evaluation::Parts;
use crate::event::{Event, EventType, Structured};
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
use crate::redact::Path;
use crate::scan::EventSet;

documented! {
    /// Finds personal data by Microsoft Presidio's analyzer, names of people and places among it.
    ///
    /// Asks `POST {url}/analyze` of Presidio's REST API about `text_content` and about every string of the
    /// structured part: the result of a tool, or the arguments of a call. Several texts go out at once, which
    /// takes Presidio 2.2.361 or later; an older one answers an error, and the rule fails. Names of members are left alone. An event may have 1000 such strings; one with
    /// more fails the rule. So does whatever goes wrong on the way, as for `http-classifier`.
    ///
    /// A redaction counts only where the risk router waits for deep rules: for a tool of medium tier or
    /// above, say.
    ///
    /// ## Configuration
    ///
    /// - `url`: the analyzer, without `/analyze`. Required.
    /// - `language`: of the texts. Default: `en`.
    /// - `entities`: which kinds of data to look for. Default: all that the analyzer knows.
    /// - `score_threshold`: how sure Presidio must be, from 0 to 1. Default: the analyzer's own.
    /// - `action`: `redact` (default; `[PERSON]` takes the place of a name), `stop`, `pause`, `retry` or
    ///   `allow` (with `effects`).
    /// - `headers`, `timeout_ms`, `max_concurrent`, `max_text_bytes`, `ca`, `proxy`, `severity`, `effects`
    ///   and the rest: as for `http-classifier`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// async_rules:
    ///   - id: presidio
    ///     config:
    ///       url: http://presidio:3000
    ///       entities: [PERSON, LOCATION, EMAIL_ADDRESS]
    ///       score_threshold: 0.5
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct Presidio {
        /// The analyzer.
        pub endpoint: Endpoint,
        /// Of the texts.
        pub language: String,
        /// Which kinds of data; all if there are none here.
        pub entities: Vec<String>,
        /// How sure it must be.
        pub score_threshold: Option<f64>,
        /// What follows from a finding.
        pub reply: Reply,
    }
}

/// How many strings an event may have.
const MAX_TEXTS: usize = 1000;

impl Presidio {
    pub(super) const SPEC: DeepSpec = DeepSpec {
        id: "presidio",
        version: "1.0.0",
        cost: RuleCost::Deep,
        events: || EventSet::from_iter([EventType::LlmBefore, EventType::ToolCallResult]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<DeepSettings> {
        let endpoint = Endpoint::read(config, d);
        let language = config.text("language", d).unwrap_or("en").to_owned();
        let entities = config.placed_texts("entities", d).unwrap_or_default();
        for (entity, place) in &entities {
            let upper = entity.to_ascii_uppercase();
            if *entity != upper || entity.is_empty() {
                d.error(*place, format!("`{entity}` is not a kind of data"))
                    .help(format!("Presidio writes them as `{upper}`"));
            }
        }
        let score_threshold = read_threshold(config, "score_threshold", d);
        let reply = Reply::read(config, Action::Redact, d);
        Some(DeepSettings::Presidio(Box::new(Self {
            endpoint: endpoint?,
            language,
            entities: entities.into_iter().map(|(entity, _)| entity).collect(),
            score_threshold,
            reply,
        })))
    }
}

impl ExternalRule for Presidio {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn path(&self) -> &'static str {
        "/analyze"
    }

    fn severity(&self) -> Severity {
        self.reply.severity
    }

    fn question(&self, input: &RuleInput<'_>) -> Result<Option<Value>, RuleError> {
        let texts = texts(input.event)?;
        let text = match texts.as_slice() {
            [] => return Ok(None),
            // Every version understands one text.
            [(_, text)] => json!(text),
            several => several.iter().map(|(_, text)| json!(text)).collect(),
        };
        let mut question = json!({"text": text, "language": self.language});
        if !self.entities.is_empty() {
            question["entities"] = json!(self.entities);
        }
        if let Some(threshold) = self.score_threshold {
            question["score_threshold"] = json!(threshold);
        }
        bounded(question, &self.endpoint).map(Some)
    }

    fn reads(&self, event: &Event) -> Parts {
        // One with too many strings is asked nothing about.
        let texts = texts(event).unwrap_or_default();
        let is_text = |path: &str| path == RedactionSpec::TEXT;
        let mut parts = Parts::default();
        if texts.iter().any(|(path, _)| is_text(path)) {
            parts = parts.and(Parts::TEXT);
        }
        if texts.iter().any(|(path, _)| !is_text(path)) {
            parts = parts.and(match event.structured() {
                Some(Structured::ToolArgs(_)) => Parts::TOOL_ARGS,
                Some(Structured::Result(_)) => Parts::RESULT,
                None => Parts::default(),
            });
        }
        parts
    }

    fn judge(
        &self,
        id: &RuleId,
        input: &RuleInput<'_>,
        answer: &[u8],
    ) -> Result<Option<Decision>, RuleError> {
        let texts = texts(input.event)?;
        let mut answer = parse(answer)?;
        if texts.len() == 1 {
            answer = Value::Array(vec![answer]);
        }
        let lists = answer.as_array().map(Vec::as_slice).unwrap_or_default();
        if lists.len() != texts.len() {
            return Err(RuleError(format!(
                "the answer is not a list of {} lists, one for each text",
                texts.len()
            )));
        }
        let fields = SpanFields::presidio();
        let mut found = Vec::new();
        for (index, ((path, text), list)) in texts.iter().zip(lists).enumerate() {
            let spans = fields.read(list, &format!("/{index}"))?;
            let redactions = spans::redactions(&spans, text, path, fields.offsets)?;
            let least = self.score_threshold.unwrap_or_default();
            let counts = |span: &spans::Span| {
                let wanted = |kind: &String| self.entities.contains(kind);
                span.score.is_none_or(|score| score >= least)
                    && (self.entities.is_empty() || span.kind.as_ref().is_some_and(wanted))
            };
            let spans = spans.into_iter().zip(redactions);
            found.extend(spans.filter(|(span, _)| counts(span)));
        }
        Ok(Found::spans(found).map(|found| self.reply.decide(id, found)))
    }
}

/// The strings of an event with something in them, and their paths as in a redaction.
pub(super) fn texts(event: &Event) -> Result<Vec<(String, &str)>, RuleError> {
    let mut texts = Texts(Vec::new());
    texts.add(event.text(), || RedactionSpec::TEXT.to_owned())?;
    match event.structured() {
        Some(Structured::ToolArgs(args)) => texts.members(args, &Path::Root)?,
        Some(Structured::Result(result)) => texts.value(result, &Path::Root)?,
        None => {}
    }
    Ok(texts.0)
}

struct Texts<'e>(Vec<(String, &'e str)>);

impl<'e> Texts<'e> {
    fn members(
        &mut self,
        members: &'e Map<String, Value>,
        path: &Path<'_>,
    ) -> Result<(), RuleError> {
        let mut members = members.iter();
        members.try_for_each(|(name, value)| self.value(value, &Path::Member(path, name)))
    }

    fn value(&mut self, value: &'e Value, path: &Path<'_>) -> Result<(), RuleError> {
        match value {
            Value::String(text) => self.add(text, || path.pointer()),
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.value(item, &Path::Item(path, index)))
            }
            Value::Object(members) => self.members(members, path),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn add(&mut self, text: &'e str, path: impl FnOnce() -> String) -> Result<(), RuleError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        if self.0.len() == MAX_TEXTS {
            return Err(RuleError(format!(
                "the event has more than {MAX_TEXTS} strings"
            )));
        }
        self.0.push((path(), text));
        Ok(())
    }
}
