//! Cases kept beside a pack: an event, and what the pack must answer.
//!
//! ```yaml
//! cases:
//!   - name: a denied tool is stopped
//!     event: {event_type: tool_call_start, tool_name: admin.execute}
//!     expect: {action: STOP, rule: tool-allowlist, error_code: TOOL_DENIED}
//! ```

use serde_json::{Value, json};

use super::diagnostic::{Diagnostics, Place, Report};
use super::yaml::{self, MapReader, Node};
use crate::decision::{Action, Effect, RedactionSpec, Severity};
use crate::error_code::ErrorCode;
use crate::evaluation::Evaluation;
use crate::event::{Context, Event, Step};
use crate::redact::redact_event;

/// The cases of the built-in pack.
pub const DEFAULT_CASES: &str = include_str!("../../../../policies/default.cases.yaml");

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// Where it stands.
    pub line: usize,
    /// The environment it is about.
    pub env: Option<String>,
    /// What is known of the run.
    pub context: Context,
    /// Earlier events of the run.
    pub before: Vec<Event>,
    /// The event that is judged.
    pub event: Event,
    /// What must come out.
    pub expect: Expectation,
}

/// What a case expects. What is `None` may be anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// The action.
    pub action: Action,
    /// The deciding rule.
    pub rule: Option<String>,
    /// With STOP: the code.
    pub error_code: Option<ErrorCode>,
    /// How bad.
    pub severity: Option<Severity>,
    /// Whether the decision binds.
    pub enforced: Option<bool>,
    /// The effects, in order.
    pub effects: Option<Vec<Effect>>,
    /// The redactions; each lists the fields that matter.
    pub redactions: Option<Vec<serde_json::Map<String, Value>>>,
    /// The text once it is redacted.
    pub text: Option<String>,
    /// Rules that must have been unable to judge.
    pub unjudged: Option<Vec<String>>,
}

/// One expectation that was not met.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// Which.
    pub field: &'static str,
    /// What the case says.
    pub expected: Value,
    /// What came out.
    pub got: Value,
}

/// Reads a file of cases.
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, Report> {
    let mut diagnostics = Diagnostics::default();
    let cases = yaml::parse(text, &mut diagnostics).map(|root| read(&root, &mut diagnostics));
    match cases {
        Some(cases) if !diagnostics.has_errors() => Ok(cases),
        _ => Err(Report {
            file: file.to_owned(),
            text: text.to_owned(),
            diagnostics,
        }),
    }
}

impl Expectation {
    /// Everything that is not as expected.
    pub fn compare(&self, event: &Event, evaluation: &Evaluation) -> Vec<Mismatch> {
        let decision = &evaluation.decision;
        let code = decision.stop.as_ref().map(|stop| stop.error_code);
        let unjudged: Vec<_> = evaluation
            .coverage
            .unjudged()
            .map(ToString::to_string)
            .collect();
        let mut found = Vec::new();
        let mut check = |field, expected: Option<Value>, got: Value| {
            if let Some(expected) = expected
                && expected != got
            {
                found.push(Mismatch {
                    field,
                    expected,
                    got,
                });
            }
        };
        check("action", Some(json!(self.action)), json!(decision.action));
        check(
            "rule",
            self.rule.as_ref().map(|v| json!(v)),
            json!(decision.rule_id),
        );
        check("error_code", self.error_code.map(|v| json!(v)), json!(code));
        check(
            "severity",
            self.severity.map(|v| json!(v)),
            json!(decision.severity),
        );
        check(
            "enforced",
            self.enforced.map(|v| json!(v)),
            json!(evaluation.enforced),
        );
        check(
            "effects",
            self.effects.as_ref().map(|v| json!(v)),
            json!(decision.effects),
        );
        check(
            "unjudged",
            self.unjudged.as_ref().map(|v| json!(v)),
            json!(unjudged),
        );
        if let Some(expected) = &self.redactions {
            let got = only_fields_of(expected, &decision.redactions);
            check("redactions", Some(json!(expected)), got);
        }
        if let Some(expected) = &self.text {
            let mut redacted = event.clone();
            let text = match redact_event(&mut redacted, &decision.redactions) {
                Ok(()) => json!(redacted.text_content),
                Err(error) => json!(error.to_string()),
            };
            check("text", Some(json!(expected)), text);
        }
        found
    }
}

/// The redactions, each cut down to the fields that its expectation lists.
fn only_fields_of(
    expected: &[serde_json::Map<String, Value>],
    redactions: &[RedactionSpec],
) -> Value {
    redactions
        .iter()
        .enumerate()
        .map(|(index, redaction)| {
            let mut redaction = serde_json::to_value(redaction).unwrap_or_default();
            if let (Some(wanted), Some(fields)) = (expected.get(index), redaction.as_object_mut()) {
                fields.retain(|name, _| wanted.contains_key(name));
            }
            redaction
        })
        .collect()
}

fn read(root: &Node, d: &mut Diagnostics) -> Vec<Case> {
    let Some(mut map) = MapReader::open(root, "a file of cases", d) else {
        return Vec::new();
    };
    let nodes = map.require("cases", d).and_then(|node| match &node.yaml {
        yaml::Yaml::List(nodes) => Some(nodes.as_slice()),
        _ => {
            d.error(node.place, "`cases` must be a list");
            None
        }
    });
    map.finish(d);
    let nodes = nodes.unwrap_or_default();
    nodes.iter().filter_map(|node| read_case(node, d)).collect()
}

fn read_case(node: &Node, d: &mut Diagnostics) -> Option<Case> {
    let mut map = MapReader::open(node, "a case", d)?;
    let name = map
        .require("name", d)
        .and_then(|n| yaml::text(n, "name", d));
    let env = map.text("env", d).map(str::to_owned);
    let context = map.get("context").map_or_else(|| json!({}), Node::to_json);
    let before = map.list("before", d).unwrap_or_default();
    let event = map.require("event", d);
    let expect = map
        .require("expect", d)
        .and_then(|n| read_expectation(n, d));
    map.finish(d);
    let mut step = |event: &Node| read_step(&context, event, d);
    let before: Vec<Step> = before.iter().filter_map(&mut step).collect();
    let Step { context, event } = step(event?)?;
    Some(Case {
        name: name?.to_owned(),
        line: node.place.line,
        env,
        context,
        before: before.into_iter().map(|step| step.event).collect(),
        event,
        expect: expect?,
    })
}

fn read_step(context: &Value, event: &Node, d: &mut Diagnostics) -> Option<Step> {
    let mut event_json = event.to_json();
    // A case is one run; it need not say which.
    if let Some(fields) = event_json.as_object_mut()
        && context.get("run_id").is_none()
    {
        fields.entry("run_id").or_insert_with(|| json!("case"));
    }
    match serde_json::from_value(json!({"context": context, "event": event_json})) {
        Ok(step) => Some(step),
        Err(error) => {
            d.error(event.place, format!("not an event: {error}"));
            None
        }
    }
}

fn read_expectation(node: &Node, d: &mut Diagnostics) -> Option<Expectation> {
    let mut map = MapReader::open(node, "`expect`", d)?;
    let place: Place = map.place();
    let actions = Action::ALL.map(|action| (action.as_str(), action));
    let severities = Severity::ALL.map(|severity| (severity.as_str(), severity));
    let effects = Effect::ALL.map(|effect| (effect.as_str(), effect));
    let codes: Vec<_> = ErrorCode::ALL
        .iter()
        .map(|code| (code.as_str(), *code))
        .collect();
    if map.get("action").is_none() {
        d.error(place, "`expect` needs `action`");
    }
    let action = map.one_of("action", &actions, d);
    let rule = map.text("rule", d).map(str::to_owned);
    let error_code = map.one_of("error_code", &codes, d);
    let severity = map.one_of("severity", &severities, d);
    let enforced = map.boolean("enforced", d);
    let effects = map.list("effects", d).map(|nodes| {
        let names = nodes.iter();
        names
            .filter_map(|node| yaml::one_of(node, "effect", &effects, d))
            .collect()
    });
    let redactions = map.list("redactions", d).map(|nodes| {
        let nodes = nodes.iter();
        nodes.filter_map(|node| read_redaction(node, d)).collect()
    });
    let text = map.text("text", d).map(str::to_owned);
    let unjudged = map.texts("unjudged", d);
    map.finish(d);
    Some(Expectation {
        action: action?,
        rule,
        error_code,
        severity,
        enforced,
        effects,
        redactions,
        text,
        unjudged,
    })
}

fn read_redaction(node: &Node, d: &mut Diagnostics) -> Option<serde_json::Map<String, Value>> {
    let mut map = MapReader::open(node, "a redaction", d)?;
    for field in [
        "path",
        "replacement",
        "entity_type",
        "start_offset",
        "end_offset",
    ] {
        map.get(field);
    }
    map.finish(d);
    match node.to_json() {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}
