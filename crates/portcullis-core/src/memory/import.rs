//! Decisions from files: our own exports, and what others wrote.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::decision::{Decision, MAX_REVIEWS, Review, read_review};
use super::search::instant;
use crate::canonical;
use crate::fields::{FieldError, Fields, kind, shown};

/// Other names for what a decision has.
const ALIASES: &[(&str, &str)] = &[
    ("summary", "decision"),
    ("title", "decision"),
    ("created_at", "date"),
    ("createdAt", "date"),
    ("timestamp", "date"),
    ("agent_id", "agent"),
    ("agentId", "agent"),
    ("recorded_by", "agent"),
    ("actual_result", "actualResult"),
    ("review_by", "reviewBy"),
    ("reviewed_at", "reviewedAt"),
    ("review_in", "reviewIn"),
];

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One value: a decision, a list of them, or an object with a list under `decisions`.
    Json,
    /// A decision a line.
    JsonLines,
    /// As JSON has it, in YAML.
    Yaml,
}

impl Format {
    /// By a file's ending, without the dot.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// A decision that a file has.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The decision.
    pub decision: Decision,
    /// What the file says of it that has no place here.
    pub ignored: Vec<String>,
}

/// Reads a file's decisions: each is one, or why it is none. `now` is for those without a date.
pub fn import(
    text: &str,
    format: Format,
    now: Timestamp,
) -> Box<dyn Iterator<Item = Result<Imported, String>> + '_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values = match format {
        Format::Json => json(text).map(listed),
        Format::Yaml => serde_saphyr::from_str(text)
            .map(listed)
            .map_err(|error| error.to_string()),
        Format::JsonLines => {
            let lines = text.lines().enumerate();
            let lines = lines.filter(|(_, line)| !line.trim().is_empty());
            return Box::new(lines.map(move |(n, line)| {
                let value = serde_json::from_str(line);
                // Its own place is in the line.
                let value: Value = value.map_err(|error| {
                    let error = error.to_string();
                    let why = error.split(" at line ").next().unwrap_or_default();
                    format!("line {}: {why}", n + 1)
                })?;
                read(&value, now).map_err(|error| format!("line {}: {error}", n + 1))
            }));
        }
    };
    match values {
        Err(error) => Box::new(std::iter::once(Err(error))),
        Ok(values) => {
            let alone = values.len() == 1;
            let read = move |(n, value)| {
                let place = |error: FieldError| {
                    if alone {
                        error.to_string()
                    } else {
                        format!("decision {}: {error}", n + 1)
                    }
                };
                read(&value, now).map_err(place)
            };
            Box::new(values.into_iter().enumerate().map(read))
        }
    }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn listed(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        Value::Object(mut members) => match members.remove("decisions") {
            Some(Value::Array(items)) => items,
            Some(other) => {
                members.insert("decisions".to_owned(), other);
                vec![Value::Object(members)]
            }
            None => vec![Value::Object(members)],
        },
        other => vec![other],
    }
}

fn read(value: &Value, now: Timestamp) -> Result<Imported, FieldError> {
    let Value::Object(members) = value else {
        return Err(FieldError::new(
            "decision",
            format!("expected an object, found {}", kind(value)),
        ));
    };
    let members = renamed(members);
    let mut fields = Fields::new(&members, "");
    let date = fields.parsed("date", instant)?.unwrap_or(now);
    let mut decision = Decision::read(&mut fields, || id(&members), date)?;
    decision.agent = agent(&mut fields)?;
    if let Some(review_by) = fields.parsed("reviewBy", instant)? {
        decision.review_by = Some(review_by);
    }
    let reviewed_at = fields.parsed("reviewedAt", instant)?.unwrap_or(date);
    // What `outcome` and the rest say is the last of `reviews`, where there are any.
    let last = read_review(&mut fields, reviewed_at)?;
    let reviewed = last.is_some();
    decision.reviews = reviews(&mut fields)?;
    if decision.reviews.is_empty() {
        decision.reviews.extend(last);
    }
    // It follows from the reviews.
    let _ = fields.get("status");
    let mut ignored: Vec<String> = fields.unasked().map(shown).collect();
    if !reviewed {
        // Nobody knows what they are the lessons of.
        let without_outcome = ["actualResult", "lessons"].into_iter();
        ignored.extend(
            without_outcome
                .filter(|key| fields.get(key).is_some())
                .map(str::to_owned),
        );
    }
    Ok(Imported { decision, ignored })
}

/// With the names that we have for things. Where a file has both, ours counts.
fn renamed(members: &Map<String, Value>) -> Map<String, Value> {
    let mut renamed = members.clone();
    for (theirs, ours) in ALIASES {
        if !renamed.contains_key(*ours)
            && let Some(value) = renamed.remove(*theirs)
        {
            renamed.insert((*ours).to_owned(), value);
        }
    }
    renamed
}

/// An agent's name, also where it is an object with an id.
fn agent(fields: &mut Fields<'_>) -> Result<Option<String>, FieldError> {
    match fields.get("agent") {
        Some(Value::Object(members)) => Fields::new(members, "agent.").name("id"),
        _ => fields.name("agent"),
    }
}

fn reviews(fields: &mut Fields<'_>) -> Result<Vec<Review>, FieldError> {
    let items = fields.list("reviews")?;
    fields.not_over("reviews", items.len(), MAX_REVIEWS)?;
    let read = |(n, item): (usize, &Value)| {
        let path = format!("{}[{n}]", fields.path("reviews"));
        let Value::Object(members) = item else {
            let error = format!("expected an object, found {}", kind(item));
            return Err(FieldError::new(path, error));
        };
        let mut fields = Fields::new(members, format!("{path}."));
        let date = fields.parsed("date", instant)?;
        let missing = |key| FieldError::new(format!("{path}.{key}"), "is missing");
        let date = date.ok_or_else(|| missing("date"))?;
        let review = read_review(&mut fields, date)?.ok_or_else(|| missing("outcome"))?;
        let agent = agent(&mut fields)?;
        Ok(Review { agent, ..review })
    };
    items.into_iter().enumerate().map(read).collect()
}

/// An id that is the same whenever the same file is read.
fn id(members: &Map<String, Value>) -> String {
    // JSON has a canonical form, whatever it is.
    let digest = canonical::digest(members).unwrap_or_default();
    format!("dec-{}", digest.get(..16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guardrails::Stakes;
    use crate::memory::{Outcome, Reason};

    fn now() -> Timestamp {
        "2026-02-04T21:00:00Z".parse().unwrap()
    }

    fn one(text: &str, format: Format) -> Imported {
        let mut all: Vec<_> = import(text, format, now()).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).unwrap()
    }

    #[test]
    fn an_older_decision_file() {
        let text = "
id: a42a3514
summary: Use PostgreSQL for the ledger
created_at: 2026-01-10T08:00:00Z
category: architecture
stakes: high
confidence: 0.8
status: reviewed
outcome: partial
lessons: Issue was in connection pooling
pr: 42
reasons:
  - {type: analysis, text: transactions, strength: 0.9}
  - we know it
tags: [database]
";
        let Imported { decision, ignored } = one(text, Format::Yaml);
        assert_eq!(decision.id, "a42a3514");
        assert_eq!(decision.title(), "Use PostgreSQL for the ledger");
        assert_eq!(decision.stakes, Stakes::High);
        assert_eq!(decision.outcome(), Some(Outcome::Partial));
        assert_eq!(decision.notes(), Some("Issue was in connection pooling"));
        assert_eq!(decision.reasons.len(), 2);
        assert_eq!(ignored, ["pr"]);
    }

    #[test]
    fn lists_and_lines_say_which_is_wrong() {
        let list = r#"{"decisions": [{"decision": "a"}, {"decision": ""}, 7]}"#;
        let read = import(list, Format::Json, now());
        let errors: Vec<String> = read.filter_map(Result::err).collect();
        assert_eq!(
            errors,
            [
                "decision 2: decision: must say what was decided",
                "decision 3: decision: expected an object, found a number",
            ]
        );
        let lines = "{\"decision\": \"a\"}\n\n{oops\n";
        let read: Vec<_> = import(lines, Format::JsonLines, now()).collect();
        assert!(read[0].is_ok());
        let error = read[1].as_ref().unwrap_err();
        assert!(error.starts_with("line 3: "), "{error}");
    }

    #[test]
    fn the_same_file_gives_the_same_id() {
        let first = one(r#"{"decision": "a", "date": "2026-01-01"}"#, Format::Json);
        let again = one(r#"{"decision": "a", "date": "2026-01-01"}"#, Format::Json);
        let other = one(r#"{"decision": "b", "date": "2026-01-01"}"#, Format::Json);
        assert_eq!(first, again);
        assert_ne!(first.decision.id, other.decision.id);
    }

    fn text() -> impl Strategy<Value = String> {
        "[a-zé' :#\"{}\\-\n]{1,20}x".prop_map(|text| format!("t{text}"))
    }

    prop_compose! {
        fn decision()(
            id in "[a-z0-9-]{1,20}",
            decision in text(),
            context in prop::option::of(text()),
            stakes in prop::sample::select(&Stakes::ALL),
            confidence in prop::option::of(prop::sample::select(&[0.0, 0.25, 0.9, 1.0])),
            tags in prop::collection::vec("[a-z]{1,8}", 0..3),
            reason in prop::option::of(text()),
            outcome in prop::option::of(prop::sample::select(&Outcome::ALL)),
            lessons in prop::option::of(text()),
            seconds in 0i64..2_000_000_000,
        ) -> Decision {
            let date = Timestamp::from_second(seconds).unwrap();
            Decision {
                id, decision, context, stakes, confidence, tags, date,
                category: None,
                reasons: reason
                    .map(|text| Reason { kind: "pattern".to_owned(), text, strength: Some(0.5) })
                    .into_iter()
                    .collect(),
                agent: Some("emerson".to_owned()),
                review_by: Some(date),
                reviews: outcome
                    .map(|outcome| Review {
                        outcome, lessons, actual_result: None, agent: None, date,
                    })
                    .into_iter()
                    .collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_exported_is_imported_again(decision in decision()) {
            let line = serde_json::to_string(&decision).unwrap();
            for format in [Format::Json, Format::JsonLines, Format::Yaml] {
                let again = one(&line, format);
                prop_assert_eq!(&again.decision, &decision);
                prop_assert!(again.ignored.is_empty());
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            for format in [Format::Json, Format::JsonLines, Format::Yaml] {
                let _ = import(&text, format, now()).count();
            }
        }
    }
}
