//! Tool definitions and agent cards: what a model is told that it can use.
//!
//! Whoever writes a tool's description writes into the model's prompt. A definition has a digest, so
//! that one that was reviewed can be told from one that has changed since.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::canonical;

/// A tool, a skill or an agent, as somebody offers it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Definition<'v> {
    /// What it is called.
    pub name: &'v str,
    /// All that is said of it.
    pub value: &'v Value,
}

impl Definition<'_> {
    /// `sha256:` and the digest of its canonical form: the order of members and blanks between them
    /// make no difference, everything else does.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        Ok(format!("sha256:{}", canonical::digest(self.value)?))
    }
}

/// The definitions in a listing, in order.
///
/// Takes what is common: MCP's `tools/list` (with or without the JSON-RPC envelope), a list of
/// functions as chat APIs take them, one definition alone, and an A2A agent card, which is one
/// definition with all its skills.
pub fn of(listing: &Value) -> Vec<Definition<'_>> {
    for wrapper in ["/result", "/tools", "/functions"] {
        if let Some(inner) = listing.pointer(wrapper) {
            return of(inner);
        }
    }
    match listing {
        Value::Array(items) => items.iter().flat_map(of).collect(),
        Value::Object(members) => {
            let named = |value: &'_ Value| value.get("name").and_then(Value::as_str).is_some();
            let inner = members.get("function").filter(|value| named(value));
            let name = inner.unwrap_or(listing).get("name").and_then(Value::as_str);
            name.map(|name| Definition {
                name,
                value: listing,
            })
            .into_iter()
            .collect()
        }
        _ => Vec::new(),
    }
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
            (json!("tools"), vec![]),
            (json!({"nothing": 1}), vec![]),
        ] {
            let found: Vec<&str> = of(&listing).iter().map(|d| d.name).collect();
            assert_eq!(found, names, "{listing}");
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
}
