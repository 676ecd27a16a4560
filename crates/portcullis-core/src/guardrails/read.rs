//! Reading guardrail files of both forms.

use super::message::Template;
use super::older::Clause;
use super::rule::{Expression, Rule};
use super::{Compiled, Guardrail, Severity, Source};
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader, Node, Yaml};

const WHAT: &str = "this guardrail";

/// Adds the guardrails of a file to those of the files before it.
pub(super) fn file(source: &Source<'_>, compiled: &mut Vec<Compiled>, d: &mut Diagnostics) {
    let Some(root) = yaml::parse(source.text, d) else {
        return;
    };
    let start = Place {
        line: 1,
        column: 1,
        width: 1,
    };
    let items = match &root.yaml {
        Yaml::List(items) => Some(&**items),
        Yaml::Map(_) => MapReader::open(&root, "a guardrail file", d).and_then(|mut file| {
            let present = file.require("guardrails", d).is_some();
            let items = file.list("guardrails", d).filter(|_| present);
            file.finish(d);
            items
        }),
        Yaml::Null => {
            d.error(start, "the file is empty")
                .help("write a list of guardrails, or `guardrails: []` for none");
            None
        }
        _ => {
            let message = format!(
                "a guardrail file is a list of guardrails, not {}",
                root.kind()
            );
            d.error(root.place, message);
            None
        }
    };
    let Some(items) = items else {
        return;
    };
    if items.is_empty() {
        d.warning(
            start,
            "this file has no guardrails, so it allows everything",
        );
    }
    for item in items {
        let Some(mut entry) = MapReader::open(item, "a guardrail", d) else {
            continue;
        };
        let read = guardrail(&mut entry, source, compiled, d);
        entry.finish(d);
        compiled.extend(read);
    }
}

fn guardrail(
    entry: &mut MapReader<'_>,
    source: &Source<'_>,
    known: &[Compiled],
    d: &mut Diagnostics,
) -> Option<Compiled> {
    let id = id(entry, known, d);
    let rule = rule(entry, d);
    let severity = severity(entry, d);
    let name = entry.text("name", d).map(str::to_owned);
    let description = entry.text("description", d).map(str::to_owned);
    let message = entry.text("message", d).map(str::to_owned);
    let suggestion = entry.text("suggestion", d).map(str::to_owned);
    let scope = scope(entry, d);
    let enabled = entry.boolean("enabled", d).unwrap_or(true);
    let line = entry.place().line;
    let (id, rule) = (id?, rule?);
    let message = message.or_else(|| description.clone());
    let message = message.unwrap_or_else(|| format!("Guardrail `{id}` is violated"));
    Some(Compiled {
        message: Template::new(&message),
        suggestion: suggestion.as_deref().map(Template::new),
        guardrail: Guardrail {
            name: name.unwrap_or_else(|| id.clone()),
            id,
            description,
            severity,
            enabled,
            scope,
            message,
            suggestion,
            when: rule.readable(),
            source: source.file.to_owned(),
            line,
        },
        rule,
    })
}

fn id(entry: &mut MapReader<'_>, known: &[Compiled], d: &mut Diagnostics) -> Option<String> {
    let node = entry.require("id", d)?;
    let id = yaml::text(node, "id", d)?;
    if id.trim().is_empty() {
        d.error(node.place, "`id` is empty");
        return None;
    }
    if let Some(twin) = known.iter().find(|other| other.guardrail.id == id) {
        let Guardrail { source, line, .. } = &twin.guardrail;
        let message = format!("guardrail `{id}` is there twice: first at {source}:{line}");
        d.error(node.place, message)
            .help("rename one of them, or remove it");
    }
    Some(id.to_owned())
}

/// Which of the two forms it is, is told by its keys.
fn rule(entry: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Rule> {
    let when = entry.get("when");
    let condition = entry.get("condition");
    let requires = entry.get("requires");
    let mut rule = Rule {
        expressions: Vec::new(),
        conditions: Vec::new(),
        requirements: Vec::new(),
    };
    let mut sound = true;
    if let Some(node) = condition {
        sound &= read_condition(node, &mut rule, d).is_some();
    }
    if let Some(node) = requires {
        sound &= clauses(node, "requires", &mut rule.requirements, d).is_some();
    }
    let mut older = condition.or(requires).map(|node| node.place);
    for (prefix, into) in [
        ("condition_", &mut rule.conditions),
        ("requires_", &mut rule.requirements),
    ] {
        for (key, field, node) in entry.prefixed(prefix) {
            older = older.or(Some(key.place));
            // A key without a value is reported when the reader is done.
            let clause = match node.yaml {
                Yaml::Null => None,
                _ => Clause::read(key, field, node, d),
            };
            sound &= clause.is_some();
            into.extend(clause);
        }
    }
    match (when, older) {
        (Some(_), Some(place)) => {
            d.error(
                place,
                "a guardrail has either `when` or conditions and requirements",
            )
            .help("write all of it in `when`, or make two guardrails of it");
            None
        }
        (Some(node), None) => Some(Rule::when(expression(node, "when", d)?)),
        (None, Some(_)) => sound.then_some(rule),
        (None, None) => {
            // A key without a value is reported as such.
            let keys = ["when", "condition", "requires"];
            if keys.iter().all(|key| entry.key_place(key).is_none()) {
                d.error(entry.place(), format!("{WHAT} has no condition"))
                    .help("write `when: <CEL>`, true when it is violated");
            }
            None
        }
    }
}

/// A CEL expression, or a mapping of fields, with `cel` for an expression among them.
fn read_condition(node: &Node, rule: &mut Rule, d: &mut Diagnostics) -> Option<()> {
    if matches!(node.yaml, Yaml::Text(_)) {
        rule.expressions.push(expression(node, "condition", d)?);
        return Some(());
    }
    let cel = node.member("cel").map(|cel| expression(cel, "cel", d));
    clauses(node, "condition", &mut rule.conditions, d)?;
    if let Some(cel) = cel {
        rule.expressions.push(cel?);
    }
    Some(())
}

/// The clauses of a nested mapping.
fn clauses(
    node: &Node,
    what: &'static str,
    into: &mut Vec<Clause>,
    d: &mut Diagnostics,
) -> Option<()> {
    let Yaml::Map(entries) = &node.yaml else {
        let wanted = match what {
            "condition" => "a CEL expression or a mapping of fields",
            _ => "a mapping of fields",
        };
        let message = format!("`{what}` must be {wanted}, not {}", node.kind());
        d.error(node.place, message);
        return None;
    };
    if entries.is_empty() {
        d.error(node.place, format!("`{what}` is empty"));
        return None;
    }
    let mut sound = true;
    for (key, value) in entries {
        if what == "condition" && key.name == "cel" {
            continue;
        }
        let clause = Clause::read(key, &key.name, value, d);
        sound &= clause.is_some();
        into.extend(clause);
    }
    sound.then_some(())
}

fn expression(node: &Node, key: &str, d: &mut Diagnostics) -> Option<Expression> {
    let text = yaml::text(node, key, d)?;
    match Expression::compile(text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            let place = error.place(text, node.place);
            d.error(place, error.message).help = error.help;
            None
        }
    }
}

/// Whether it has a key of the older form's.
fn is_older(entry: &mut MapReader<'_>) -> bool {
    let nested = ["condition", "requires"];
    nested.iter().any(|key| entry.key_place(key).is_some())
        || entry.prefixed("condition_").next().is_some()
        || entry.prefixed("requires_").next().is_some()
}

/// `severity` beside `when`, `action` in the older form.
fn severity(entry: &mut MapReader<'_>, d: &mut Diagnostics) -> Severity {
    let names = Severity::ALL.map(|severity| (severity.as_str(), severity));
    let ours = !is_older(entry);
    let (key, other) = if ours {
        ("severity", "action")
    } else {
        ("action", "severity")
    };
    let beside = if ours {
        "beside `when`, this is `severity`"
    } else {
        "beside conditions and requirements, this is `action`"
    };
    entry.refuse(other, beside, d);
    entry.one_of(key, &names, d).unwrap_or(Severity::Block)
}

fn scope(entry: &mut MapReader<'_>, d: &mut Diagnostics) -> Vec<String> {
    let node = entry.get("scope");
    let scope = match node.map(|node| &node.yaml) {
        None => return Vec::new(),
        Some(Yaml::List(_)) => entry.texts("scope", d).unwrap_or_default(),
        Some(_) => entry
            .text("scope", d)
            .map(str::to_owned)
            .into_iter()
            .collect(),
    };
    if let Some(node) = node
        && (matches!(&node.yaml, Yaml::List(items) if items.is_empty())
            || scope.iter().any(|name| name.trim().is_empty()))
    {
        d.error(node.place, "`scope` names nothing")
            .help("list projects, or leave it out: then the guardrail is for all");
    }
    scope
}
