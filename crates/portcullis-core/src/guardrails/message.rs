//! Messages with `{field}` in them.

use serde_json::Value;

use super::action::ProposedAction;
use super::value::{Name, Val};

/// The most characters of a value that a message repeats.
const MAX_VALUE_CHARS: usize = 200;

/// A text with fields to fill in. A field that the action does not have stays as it is written, and
/// so does every brace that is not around a name.
#[derive(Debug, Clone)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    /// As it is written, and what it names.
    Field(String, Name),
}

impl Template {
    pub(super) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            plain.push_str(before);
            let name = after.split_once('}').filter(|(name, _)| is_name(name));
            if let Some((name, after)) = name {
                parts.push(Part::Text(std::mem::take(&mut plain)));
                parts.push(Part::Field(format!("{{{name}}}"), Name::in_message(name)));
                rest = after;
            } else {
                plain.push('{');
                rest = after;
            }
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain));
        Self { parts }
    }

    pub(super) fn fill(&self, action: &ProposedAction) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Field(written, name) => match name.of(action) {
                    Some(value) => push_value(&mut text, value),
                    None => text.push_str(written),
                },
            }
        }
        text
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Adds a value, cut to a length, without what could steer a terminal: it is the caller's.
fn push_value(text: &mut String, value: Val<'_>) {
    let json;
    let whole = match value {
        Val::Text(text) => text,
        Val::Null => "null",
        Val::Bool(true) => "true",
        Val::Bool(false) => "false",
        Val::Int(n) => {
            json = n.to_string();
            &json
        }
        Val::UInt(n) => {
            json = n.to_string();
            &json
        }
        Val::Double(n) => {
            json = Value::from(n).to_string();
            &json
        }
        Val::List(items) => {
            json = serde_json::to_string(items).unwrap_or_default();
            &json
        }
        Val::Map(members) => {
            json = serde_json::to_string(members).unwrap_or_default();
            &json
        }
    };
    let mut visible = whole.chars().filter(|c| !c.is_control());
    text.extend(visible.by_ref().take(MAX_VALUE_CHARS));
    if visible.next().is_some() {
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(text: &str) -> String {
        let context = json!({
            "region": "eu\u{1b}[31m-west\n", "n": 3, "big": u64::MAX, "half": 0.5, "on": true,
            "list": [1, "a"], "deploy": {"by": "ann"}, "a.b": "dotted", "nothing": null,
            "long": "x".repeat(500), "{x}": "no"
        });
        let action = ProposedAction::new("Deploy")
            .and_then(|action| action.with_confidence(0.25))
            .and_then(|action| action.with_context(context.as_object().unwrap().clone()))
            .unwrap()
            .authenticated_as("emerson");
        Template::new(text).fill(&action)
    }

    #[test]
    fn fields_are_filled_in() {
        for (text, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("{description} at {stakes}", "Deploy at medium"),
            (
                "{confidence} {n} {big} {half} {on}",
                "0.25 3 18446744073709551615 0.5 true",
            ),
            ("{list}{deploy.by}{a.b}", "[1,\"a\"]anndotted"),
            (
                "{action.stakes} {context.n} {action.context.n}",
                "medium 3 3",
            ),
            ("{agent.id} {agent.url}", "emerson {agent.url}"),
            ("{region}", "eu[31m-west"),
            (
                "{nothing} {absent} {category}",
                "{nothing} {absent} {category}",
            ),
            ("{{n}} {} { n } {n", "{3} {} { n } {n"),
            ("{context} {action}", "{context} {action}"),
        ] {
            assert_eq!(fill(text), expected, "{text}");
        }
        assert_eq!(fill("{long}").chars().count(), 201);
    }
}
