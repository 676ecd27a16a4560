//! Takes secrets out of what is about to be written down.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::canonical::MAX_DEPTH;
use crate::detectors::{self, Finder, FinderError, Kind};

/// Finds secrets by the families of `secret-redaction`, and puts `[REDACTED:ENTITY]` in their place.
///
/// To make one is to read hundreds of patterns, which takes some tens of milliseconds: make one for the
/// whole process, in the background if start-up is to be quick.
#[derive(Debug)]
pub struct Redactor {
    finder: Option<Finder>,
}

/// Longer names tell nothing, and repeating them for every item of a list would take forever.
const MAX_NAME_BYTES: usize = 128;

impl Redactor {
    /// With all families of secrets. The specification's own is among them, though it takes
    /// placeholders for secrets: nobody is stopped by what is left out of a log.
    pub fn new() -> Result<Self, FinderError> {
        let families: Vec<&str> = detectors::names(Kind::Secrets).collect();
        Ok(Self {
            finder: Some(Finder::new(&[Kind::Secrets], &families)?),
        })
    }

    /// Finds nothing: for entries that are made of fixed texts alone.
    pub const fn none() -> Self {
        Self { finder: None }
    }

    /// Whether anything might have to be taken out of these members.
    ///
    /// Most entries are made of a few dozen short texts without secrets. To look at them as one text takes a
    /// fraction of the time of looking at each: a search costs more to begin than to go on.
    pub(super) fn may_find(&self, members: &Map<String, Value>) -> bool {
        let Some(finder) = &self.finder else {
            return false;
        };
        let mut texts = String::with_capacity(1024);
        join_members(members, 1, &mut texts);
        finder.may_find(&texts)
    }

    /// The text without secrets; itself, if there are none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(finder) = &self.finder else {
            return Cow::Borrowed(text);
        };
        let covered = finder.covered(text);
        if covered.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.replace(text, text, 0, covered))
    }

    /// The members without secrets, names included; themselves, if there are none.
    pub fn without_secrets<'m>(
        &self,
        members: &'m Map<String, Value>,
    ) -> Cow<'m, Map<String, Value>> {
        if self.may_find(members) {
            Cow::Owned(self.redact_members(members, 1))
        } else {
            Cow::Borrowed(members)
        }
    }

    fn redact_members(&self, members: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut taken: HashSet<String> = HashSet::with_capacity(members.len());
        let redact = |(index, (name, value)): (usize, (&String, &Value))| {
            let mut redacted = self.redact(name).into_owned();
            // None may swallow another.
            if !taken.insert(redacted.clone()) {
                redacted = format!("{redacted} {index}");
            }
            (redacted, self.redact_value(name, value, depth))
        };
        members.iter().enumerate().map(redact).collect()
    }

    fn redact_value(&self, name: &str, value: &Value, depth: usize) -> Value {
        match value {
            Value::String(text) => self.redact_member(name, text).into_owned().into(),
            // Nobody looks for secrets there, so nobody keeps it.
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => Value::Null,
            Value::Array(items) => items
                .iter()
                .map(|item| self.redact_value(name, item, depth + 1))
                .collect(),
            Value::Object(members) => self.redact_members(members, depth + 1).into(),
            other => other.clone(),
        }
    }

    /// The value of a member without secrets. Some are known by the name they stand under, as in
    /// `"password": "…"`, and are nothing special without it.
    pub(super) fn redact_member<'t>(&self, name: &str, text: &'t str) -> Cow<'t, str> {
        let Some(finder) = &self.finder else {
            return Cow::Borrowed(text);
        };
        let redacted = self.redact(text);
        if name.len() > MAX_NAME_BYTES {
            return redacted;
        }
        let together = beside(name, &redacted);
        let start = name.len() + 2;
        let value = start..start + redacted.len();
        let covered: Vec<Range<usize>> = finder
            .covered(&together)
            .into_iter()
            .map(|range| range.start.clamp(value.start, value.end)..range.end.min(value.end))
            .filter(|range| range.start < range.end)
            .collect();
        if covered.is_empty() {
            return redacted;
        }
        Cow::Owned(self.replace(&redacted, &together, start, covered))
    }

    /// `text` stands in `around` from `start`; the ranges are of `around`.
    fn replace(&self, text: &str, around: &str, start: usize, ranges: Vec<Range<usize>>) -> String {
        let found = self.finder.as_ref().map(|finder| finder.find(around));
        let found = found.unwrap_or_default();
        let mut out = String::with_capacity(text.len());
        let mut copied = 0;
        for range in ranges {
            let entity = found
                .iter()
                .find(|one| one.range.start < range.end && range.start < one.range.end)
                .map_or("SECRET", |one| one.what);
            out.push_str(&text[copied..range.start - start]);
            out.push_str("[REDACTED:");
            out.push_str(entity);
            out.push(']');
            copied = range.end - start;
        }
        out.push_str(&text[copied..]);
        out
    }
}

/// All names and texts, a newline after each, and texts once more beside the name they stand under.
fn join_members(members: &Map<String, Value>, depth: usize, texts: &mut String) {
    for (name, value) in members {
        texts.push_str(name);
        texts.push('\n');
        join(name, value, depth, texts);
    }
}

fn join(name: &str, value: &Value, depth: usize, texts: &mut String) {
    match value {
        Value::String(text) => {
            texts.push_str(text);
            texts.push('\n');
            if name.len() <= MAX_NAME_BYTES {
                texts.push_str(&beside(name, text));
                texts.push('\n');
            }
        }
        // What lies deeper is refused when it is written.
        Value::Array(items) if depth < MAX_DEPTH => {
            for item in items {
                join(name, item, depth + 1, texts);
            }
        }
        Value::Object(members) if depth < MAX_DEPTH => join_members(members, depth + 1, texts),
        _ => {}
    }
}

/// A name and its value as they would stand in a file of settings.
fn beside(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Body, Chain};
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;
    use std::sync::LazyLock;

    static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new().unwrap());

    const SECRETS: [&str; 3] = [
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "sk-ant-api03-abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
    ];

    fn line(value: &Value) -> String {
        let body = Body::new(value.as_object().unwrap(), &REDACTOR).unwrap();
        let mut out = Vec::new();
        Chain::START.clone().append(&body, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_replaced_by_what_it_is() {
        let text = format!("push with {} now", SECRETS[0]);
        let redacted = REDACTOR.redact(&text);
        assert!(
            redacted.starts_with("push with [REDACTED:GITHUB"),
            "{redacted}"
        );
        assert!(redacted.ends_with("] now"), "{redacted}");
        assert!(matches!(REDACTOR.redact("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_that_only_its_name_gives_away_is_replaced() {
        let value = "q7d0z2k9x4v8b1n6m3c5l0j2h9g4f8s1";
        let line = line(
            &json!({"api_key": value, "nested": [{"password": "Tr0ub4dor&3-x9!Kq"}], "id": "task-1"}),
        );
        assert!(!line.contains(value), "{line}");
        assert!(line.contains(r#""id":"task-1""#), "{line}");
    }

    #[test]
    fn members_are_kept_without_their_secrets() {
        let params = json!({
            "decision": format!("rotate {}", SECRETS[0]),
            "reasons": [{"text": SECRETS[1], "strength": 0.5}],
            "n": 1,
        });
        let kept = Value::Object(
            REDACTOR
                .without_secrets(params.as_object().unwrap())
                .into_owned(),
        );
        assert!(
            SECRETS
                .iter()
                .all(|secret| !kept.to_string().contains(secret)),
            "{kept}"
        );
        assert_eq!(kept["reasons"][0]["strength"], 0.5);
        let plain = json!({"decision": "rotate the keys"});
        let plain = plain.as_object().unwrap();
        assert!(matches!(REDACTOR.without_secrets(plain), Cow::Borrowed(_)));
    }

    #[test]
    fn no_member_swallows_another_and_all_depths_are_searched() {
        let key = "AKIAQYLPMN5HHHFPZAM2";
        let params = json!({
            "note": format!("use {key}"),
            "deep": [{"list": [key]}],
            key: 1,
            "[REDACTED:AWS_KEY]": 2,
            "password": "Tr0ub4dor&3-x9!Kq",
            "pr_number": 42,
        });
        let members = params.as_object().unwrap();
        let redacted = REDACTOR.without_secrets(members).into_owned();
        assert_eq!(redacted.len(), members.len());
        assert_eq!(redacted["pr_number"], 42);
        let text = Value::from(redacted).to_string();
        assert!(!text.contains(key) && !text.contains("Tr0ub4dor"), "{text}");
    }

    #[test]
    fn what_is_found_in_a_text_alone_is_found_among_others() {
        let finder = REDACTOR.finder.as_ref().unwrap();
        for family in detectors::names(Kind::Secrets) {
            let (_, _, text) = *detectors::FAMILIES
                .iter()
                .find(|(kind, name, _)| *kind == Kind::Secrets && *name == family)
                .unwrap();
            for entry in detectors::parse(Kind::Secrets, family, text)
                .unwrap()
                .entries
            {
                for example in entry.matches.iter().chain(&entry.passes) {
                    let value = json!({"a": "word", "b": ["1", example], "c": {"é": "word"}});
                    let alone = !finder.covered(example).is_empty();
                    assert!(
                        !alone || REDACTOR.may_find(value.as_object().unwrap()),
                        "{example}"
                    );
                    let value = json!({example: 1, "z": true});
                    assert!(
                        !alone || REDACTOR.may_find(value.as_object().unwrap()),
                        "{example}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_value_is_known_by_the_name_it_stands_under() {
        let value = "9f86d081884c7d659a2feaa0c55ad015";
        for entry in [
            json!({"twilio": value}),
            json!({"metadata": {"twilio": value}}),
            json!({"metadata": [{"twilio": [["other"], value]}]}),
        ] {
            let line = line(&entry);
            assert!(!line.contains(value), "{line}");
        }
        assert!(line(&json!({"commit": value})).contains(value));
    }

    #[test]
    fn names_that_become_the_same_are_all_kept() {
        let line = line(&json!({
            "a": {SECRETS[0]: 1, "ghp_bbcdefghijklmnopqrstuvwxyz0123456789": 2, "n": 3},
        }));
        let entry: Value = serde_json::from_str(&line).unwrap();
        let members = entry["a"].as_object().unwrap();
        assert_eq!(members.len(), 3, "{line}");
        assert!(!line.contains("ghp_"), "{line}");
    }

    proptest! {
        #[test]
        fn no_planted_secret_is_left_and_the_entry_is_still_json(
            secret in select(&SECRETS),
            before in "([a-z \u{e9}\n\"\\\\]{0,12} )?",
            after in "( [a-z \u{e9}\n\"\\\\]{0,12})?",
            place in 0..4,
        ) {
            let text = format!("{before}{secret}{after}");
            let value = match place {
                0 => json!({"action": text}),
                1 => json!({"context": {"list": ["x", text]}}),
                2 => json!({"context": {text: true}}),
                _ => json!({text: {"token": secret}}),
            };
            let line = line(&value);
            prop_assert!(!line.contains(secret), "{}", line);
            let entry: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(serde_json_canonicalizer::to_string(&entry).unwrap() + "\n", line);
        }
    }
}
