//! SARIF 2.1.0, as code hosts and editors read it.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_core::Severity;
use portcullis_core::detectors::Finding;
use serde_json::{Value, json};

use super::files::Target;
use super::found::Located;

/// A log in the making.
#[derive(Debug, Default)]
pub(super) struct Sarif {
    /// By id.
    rules: BTreeMap<String, Value>,
    results: Vec<Value>,
    problems: Vec<Value>,
}

impl Sarif {
    pub(super) fn add(&mut self, target: &Target, one: &Located<'_>) {
        let finding = &one.finding;
        let id = one.rule_id();
        let mut result = json!({
            "ruleId": id,
            "level": level(finding.severity),
            "message": {"text": message(finding)},
            "locations": [{"physicalLocation": {
                "artifactLocation": location(target),
                "region": {
                    "startLine": one.start.line, "startColumn": one.start.column,
                    "endLine": one.end.line, "endColumn": one.end.column,
                },
            }}],
            "partialFingerprints": {"portcullis/v1": one.fingerprint},
        });
        if let Some(disguise) = finding.disguise {
            result["properties"] = json!({"disguise": disguise.as_str()});
        }
        self.results.push(result);
        self.rules
            .entry(id)
            .or_insert_with_key(|id| rule(id, finding));
    }

    /// Something that could not be scanned.
    pub(super) fn problem(&mut self, problem: &str) {
        self.problems
            .push(json!({"level": "error", "message": {"text": problem}}));
    }

    pub(super) fn page(&self) -> Value {
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {
                    "name": "portcullis",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": self.rules.values().collect::<Vec<_>>(),
                }},
                "columnKind": "unicodeCodePoints",
                "invocations": [{
                    "executionSuccessful": self.problems.is_empty(),
                    "toolExecutionNotifications": self.problems,
                }],
                "results": self.results,
            }],
        })
    }
}

fn rule(id: &str, finding: &Finding<'_>) -> Value {
    let kind = finding.kind.as_str();
    let family = finding.family;
    json!({
        "id": id,
        "name": finding.what,
        "shortDescription": {"text": message(finding)},
        "help": {"text": format!(
            "Found by the detector family `{kind}/{family}`. `portcullis rule explain {id}` says what it \
             looks for. If this is meant to be there, put `portcullis:allow {}` on its line.",
            finding.id,
        )},
        "defaultConfiguration": {"level": level(finding.severity)},
        "properties": {
            "tags": ["security", kind],
            "security-severity": score(finding.severity),
        },
    })
}

fn message(finding: &Finding<'_>) -> String {
    let origin = finding.origin.map(|origin| format!(" ({origin})"));
    format!("{}{}", finding.what, origin.unwrap_or_default())
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Low => "note",
        Severity::Medium => "warning",
        Severity::High | Severity::Critical => "error",
    }
}

/// What GitHub sorts by: over 9 is critical, over 7 high, over 4 medium.
fn score(severity: Severity) -> &'static str {
    match severity {
        Severity::Low => "2.0",
        Severity::Medium => "5.5",
        Severity::High => "8.0",
        Severity::Critical => "9.5",
    }
}

fn location(target: &Target) -> Value {
    match target {
        Target::Stdin => json!({"uri": "stdin"}),
        Target::File(path) if path.is_absolute() => {
            json!({"uri": format!("file://{}", encoded(path))})
        }
        // What is not below the root has no place in it.
        Target::File(path) if path.starts_with("..") => {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            json!({"uri": format!("file://{}", encoded(&path))})
        }
        Target::File(path) => json!({"uri": encoded(path), "uriBaseId": "%SRCROOT%"}),
    }
}

/// A path as a URI has it.
fn encoded(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(*byte).to_string()
            }
            b'\\' if cfg!(windows) => "/".to_owned(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        for (path, uri) in [
            ("src/a-b_c.rs", "src/a-b_c.rs"),
            ("a b/é#?.md", "a%20b/%C3%A9%23%3F.md"),
        ] {
            assert_eq!(encoded(Path::new(path)), uri);
        }
    }
}
