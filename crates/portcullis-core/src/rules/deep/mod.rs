//! Deep rules that packs can configure: their settings, what each asks a service, and what its answer
//! means. Nothing here opens a connection; whoever hosts the rules does.

mod endpoint;
mod entry;
mod http_classifier;
mod model;
mod presidio;
mod reading;
mod reply;
mod spans;
mod template;

use serde::Serialize;
use serde_json::{Map, Value};

pub use endpoint::{Endpoint, Header, UnsetVariable, VariableText};
pub use entry::{DeepRuleEntry, DeepRuleSettings};
pub use http_classifier::HttpClassifier;
pub use model::{Model, ModelRule, ModelVerdict};
pub use presidio::Presidio;
pub use reading::{Reading, Sought};
pub use reply::Reply;
pub use spans::{Offsets, SpanFields};
pub use template::{Placeholder, Template};

use super::{RuleError, RuleInput, RuleSpec};
use crate::decision::{Decision, Severity};
use crate::evaluation::Parts;
use crate::event::Event;
use crate::ids::RuleId;

/// A kind of deep rule that packs can use.
pub type DeepSpec = RuleSpec<DeepSettings>;

/// Every deep rule that a pack may name without anybody's code, in the order they are documented. Each
/// needs a model or a service behind it; until somebody registers one, the rule counts as unavailable.
pub const KNOWN_DEEP: &[DeepSpec] = &[
    ModelRule::BUILT_IN,
    ModelRule::HUGGING_FACE,
    ModelRule::TRAINED,
    HttpClassifier::SPEC,
    Presidio::SPEC,
];

/// The settings of a deep rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DeepSettings {
    /// As the pack has them: whoever builds the rule knows what they mean.
    Other(Map<String, Value>),
    /// `http-classifier`
    HttpClassifier(Box<HttpClassifier>),
    /// `presidio`
    Presidio(Box<Presidio>),
    /// `portcullis-classifier`, `hf-jailbreak` with a folder, `custom-classifier`
    Model(Box<ModelRule>),
}

impl DeepSettings {
    /// The rule, if it is one that asks a service over HTTP.
    pub fn external(&self) -> Option<&dyn ExternalRule> {
        match self {
            Self::Other(_) | Self::Model(_) => None,
            Self::HttpClassifier(rule) => Some(&**rule),
            Self::Presidio(rule) => Some(&**rule),
        }
    }

    /// The built-in kind that these are settings of.
    pub(crate) fn spec(&self) -> Option<&'static DeepSpec> {
        match self {
            Self::Other(_) => None,
            Self::HttpClassifier(_) => Some(&HttpClassifier::SPEC),
            Self::Presidio(_) => Some(&Presidio::SPEC),
            Self::Model(rule) => Some(rule.spec()),
        }
    }

    /// Whether the pack has all that it takes to run the rule: whoever hosts it must.
    pub fn is_whole(&self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// The parts of an event that the rule judges: all of them where only its code knows.
    pub fn reads(&self, event: &Event) -> Parts {
        match self {
            Self::Other(_) => Parts::ALL,
            Self::HttpClassifier(rule) => rule.reads(event),
            Self::Presidio(rule) => rule.reads(event),
            Self::Model(rule) => rule.reads(event),
        }
    }
}

/// A deep rule that asks a service: JSON out, JSON back, by `POST`.
pub trait ExternalRule: Send + Sync {
    /// Where to ask, and how patiently.
    fn endpoint(&self) -> &Endpoint;

    /// What follows the endpoint's URL.
    fn path(&self) -> &'static str {
        ""
    }

    /// How bad its findings are.
    fn severity(&self) -> Severity;

    /// What to ask about an event; `None` if there is nothing in it to judge.
    fn question(&self, input: &RuleInput<'_>) -> Result<Option<Value>, RuleError>;

    /// The parts of the event that its question has something of; none if there is nothing to ask. A
    /// question that is too long to be asked has them too: that fails the rule.
    fn reads(&self, event: &Event) -> Parts;

    /// What the service's answer to that question means for the event.
    fn judge(
        &self,
        id: &RuleId,
        input: &RuleInput<'_>,
        answer: &[u8],
    ) -> Result<Option<Decision>, RuleError>;
}

/// The answer as JSON. What is wrong with it is said without a word of it: it may repeat what was asked.
fn parse(answer: &[u8]) -> Result<Value, RuleError> {
    serde_json::from_slice(answer).map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Eof => "ends too early",
            _ => "is not JSON",
        };
        let (line, column) = (error.line(), error.column());
        RuleError(format!(
            "the answer {kind}, at line {line}, column {column}"
        ))
    })
}

/// The question, unless its texts are longer than the endpoint takes.
fn bounded(question: Value, endpoint: &Endpoint) -> Result<Value, RuleError> {
    let Some(max) = endpoint.max_text_bytes else {
        return Ok(question);
    };
    let bytes = text_bytes(&question);
    if bytes > max {
        return Err(RuleError(format!(
            "the request has {bytes} bytes of text; `max_text_bytes` is {max}"
        )));
    }
    Ok(question)
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + text_bytes(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_documented() {
        for spec in KNOWN_DEEP {
            assert!(spec.summary().trim().ends_with('.'), "{}", spec.id);
            for heading in ["## Configuration", "## Example"] {
                assert!(spec.page().contains(heading), "{}: {heading}", spec.id);
            }
        }
    }
}
