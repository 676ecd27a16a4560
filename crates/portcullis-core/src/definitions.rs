//! Tool definitions and agent cards: what a model is told that it can use.
//!
//! Whoever writes a tool's description writes into the model's prompt. A definition has a digest, so
//! that one that was reviewed can be told from one that has changed since.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::canonical;
use crate::pack::diagnostic::{Diagnostics, Report};
use crate::pack::yaml::{self, Node, Yaml};
use crate::redact::push_pointer;

/// A tool, a skill or an agent, as somebody offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition<'v> {
    /// What it is called.
    pub name: &'v str,
    /// All that is said of it.
    pub value: &'v Value,
    /// Where it stands in the listing: a JSON Pointer.
    pub pointer: String,
}

impl Definition<'_> {
    /// `sha256:` and the digest of its canonical form: the order of members and blanks between them
    /// make no difference, everything else does.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        Ok(format!("{PREFIX}{}", canonical::digest(self.value)?))
    }
}

const PREFIX: &str = "sha256:";

/// The definitions in a listing, in order.
///
/// Takes what is common: MCP's `tools/list` (with or without the JSON-RPC envelope), a list of
/// functions as chat APIs take them, one definition alone, and an A2A agent card, which is one
/// definition with all its skills. Whatever a client might look at counts: of a listing with both
/// `tools` and `functions`, both, and of one with a name, that too.
pub fn of(listing: &Value) -> Vec<Definition<'_>> {
    let mut found = Vec::new();
    collect(listing, "", false, &mut found);
    found
}

/// A definition `inside` another is not looked into, so that no part is in more than two.
fn collect<'v>(value: &'v Value, pointer: &str, inside: bool, found: &mut Vec<Definition<'v>>) {
    const WRAPPERS: [&str; 5] = [
        "result",
        "tools",
        "functions",
        "functionDeclarations",
        "function_declarations",
    ];
    let below = |step: &str| {
        let mut below = pointer.to_owned();
        push_pointer(&mut below, step);
        below
    };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &below(&index.to_string()), inside, found);
            }
        }
        Value::Object(members) => {
            let name = name(members);
            if let Some(name) = name {
                found.push(Definition {
                    name,
                    value,
                    pointer: pointer.to_owned(),
                });
            }
            if name.is_some() && inside {
                return;
            }
            for wrapper in WRAPPERS {
                if let Some(inner) = members.get(wrapper) {
                    collect(inner, &below(wrapper), inside || name.is_some(), found);
                }
            }
        }
        _ => {}
    }
}

/// Chat APIs put a function into an object of its own.
fn name(members: &Map<String, Value>) -> Option<&str> {
    let inner = ["function", "toolSpec"].into_iter();
    let mut inner = inner.filter_map(|key| members.get(key)?.get("name")?.as_str());
    inner.next().or_else(|| members.get("name")?.as_str())
}

/// The digest of each definition, by name. Two definitions of one name are a way to hide one of them.
pub fn pins(listing: &Value) -> Result<BTreeMap<String, String>, PinError> {
    let definitions = of(listing);
    if definitions.is_empty() {
        return Err(PinError::Nothing);
    }
    let mut pins = BTreeMap::new();
    for definition in definitions {
        let digest = definition.digest().map_err(|_| PinError::Nothing)?;
        if pins.insert(definition.name.to_owned(), digest).is_some() {
            return Err(PinError::Twice(definition.name.to_owned()));
        }
    }
    Ok(pins)
}

/// Pins as `portcullis tools pin` writes them, YAML or JSON, with `pins:` around them or without.
pub fn read_pins(file: &str, text: &str) -> Result<BTreeMap<String, String>, Report> {
    let mut diagnostics = Diagnostics::default();
    let pins = yaml::parse(text, &mut diagnostics).and_then(|root| {
        let wrapped = root.member("pins");
        let wrapped = wrapped.filter(|node| matches!(node.yaml, Yaml::Map(_)));
        pins_of(wrapped.unwrap_or(&root), &mut diagnostics)
    });
    pins.filter(|_| !diagnostics.has_errors())
        .ok_or_else(|| Report {
            file: file.to_owned(),
            text: text.to_owned(),
            diagnostics,
        })
}

/// The pins in a mapping; what is none is reported.
pub(crate) fn pins_of(node: &Node, d: &mut Diagnostics) -> Option<BTreeMap<String, String>> {
    let Yaml::Map(entries) = &node.yaml else {
        d.error(node.place, "`pins` must map a tool's name to its digest")
            .help(HOW_TO_PIN);
        return None;
    };
    let mut pins = BTreeMap::new();
    for (name, value) in entries {
        match &value.yaml {
            Yaml::Text(digest) if is_digest(digest) => {
                pins.insert(name.name.clone(), digest.clone());
            }
            _ => {
                d.error(
                    value.place,
                    "a pin is `sha256:` and 64 lowercase hexadecimal digits",
                )
                .help(HOW_TO_PIN);
            }
        }
    }
    Some(pins)
}

const HOW_TO_PIN: &str = "`portcullis tools pin` writes them";

fn is_digest(text: &str) -> bool {
    let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

/// Why a listing cannot be pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// It is no listing.
    #[error(
        "no tool definitions: expected a list of objects with a `name`, as `tools/list` gives it"
    )]
    Nothing,
    /// It is ambiguous.
    #[error("`{0}` is defined twice")]
    Twice(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listings_of_every_kind_are_read() {
        let tool = json!({"name": "a", "description": "x", "inputSchema": {"type": "object"}});
        let function = json!({"type": "function", "function": {"name": "f"}});
        let card = json!({"name": "agent", "url": "u", "skills": [{"id": "s", "name": "skill"}]});
        for (listing, names) in [
            (json!([tool, {"name": "b"}]), vec!["a", "b"]),
            (json!({"tools": [tool]}), vec!["a"]),
            (
                json!({"jsonrpc": "2.0", "result": {"tools": [tool]}}),
                vec!["a"],
            ),
            (json!([function]), vec!["f"]),
            (tool.clone(), vec!["a"]),
            (card, vec!["agent"]),
            (
                json!({"tools": [tool], "functions": [{"name": "b"}], "result": {"name": "c"}}),
                vec!["c", "a", "b"],
            ),
            (
                json!({"name": "server", "tools": [tool]}),
                vec!["server", "a"],
            ),
            (
                json!({"name": "1", "tools": {"name": "2", "tools": {"name": "3"}}}),
                vec!["1", "2"],
            ),
            (
                json!([{"functionDeclarations": [{"name": "g"}]}]),
                vec!["g"],
            ),
            (json!({"tools": [{"toolSpec": {"name": "b"}}]}), vec!["b"]),
            (json!("tools"), vec![]),
            (json!({"nothing": 1}), vec![]),
        ] {
            let definitions = of(&listing);
            let found: Vec<&str> = definitions.iter().map(|d| d.name).collect();
            assert_eq!(found, names, "{listing}");
            for definition in definitions {
                let there = listing.pointer(&definition.pointer);
                assert_eq!(there, Some(definition.value), "{listing}");
            }
        }
    }

    #[test]
    fn a_pin_changes_with_any_word_and_not_with_order() {
        let of_text = |text: &str| pins(&serde_json::from_str(text).unwrap()).unwrap();
        let one = of_text(r#"[{"name": "a", "description": "read"}]"#);
        assert_eq!(one, of_text(r#"[{"description":"read","name":"a"}]"#));
        assert_ne!(one, of_text(r#"[{"name": "a", "description": "read."}]"#));
    }

    #[test]
    fn what_cannot_be_pinned_says_why() {
        assert_eq!(pins(&json!([])), Err(PinError::Nothing));
        let twice = json!([{"name": "a"}, {"name": "a", "description": "other"}]);
        assert_eq!(pins(&twice), Err(PinError::Twice("a".to_owned())));
    }
    #[test]
    fn pins_are_read_back_as_they_are_written() {
        let pins = pins(&json!([{"name": "a"}, {"name": "b.c"}])).unwrap();
        let bare = serde_json::to_string(&pins).unwrap();
        let wrapped = format!("pins: {bare}");
        for text in [bare, wrapped] {
            assert_eq!(read_pins("pins.yaml", &text).as_ref(), Ok(&pins));
        }
        for (text, expected) in [
            ("[a]", "`pins` must map"),
            ("a: sha256:00", "64 lowercase hexadecimal digits"),
            ("a: 5", "64 lowercase hexadecimal digits"),
            ("a: [", "pins.yaml"),
        ] {
            let report = read_pins("pins.yaml", text).unwrap_err().to_string();
            assert!(report.contains(expected), "{report}");
        }
    }
}
