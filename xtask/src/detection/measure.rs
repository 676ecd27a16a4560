//! Every corpus through the detectors.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use portcullis_core::detectors::{self, Kind};
use portcullis_core::pack::{self, Pack};
use portcullis_core::rules::RuleInput;
use portcullis_core::{Context, ContextSnapshot, Decision, Event, Policy};
use serde_json::Value;

use super::corpus::{self, Row};
use super::rate::Rate;

/// Where a text comes from, as far as the gate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    User,
    Tool,
    /// Benign text that may come from anywhere: both must let it pass.
    Both,
}

/// One corpus, and the target for it.
pub(super) struct InjectionSet {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) recall: Rate,
    pub(super) false_positives: Rate,
    /// Without the patterns of RFC-001, which are given.
    pub(super) without_rfc: Rate,
}

#[derive(Default)]
pub(super) struct Results {
    pub(super) injection: Vec<InjectionSet>,
    /// False positives on the panel.
    pub(super) by_length: Vec<(&'static str, Rate)>,
    pub(super) by_language: BTreeMap<String, Rate>,
    pub(super) secrets: Counts,
    /// Of the panel: texts in which a secret is found.
    pub(super) secrets_on_panel: Rate,
    pub(super) pii: BTreeMap<&'static str, Counts>,
}

/// What was found and what was there.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) found_right: usize,
    pub(super) found_wrong: usize,
    pub(super) missed: usize,
}

impl Counts {
    pub(super) fn recall(self) -> Rate {
        Rate {
            hits: self.found_right,
            of: self.found_right + self.missed,
        }
    }

    pub(super) fn precision(self) -> Rate {
        Rate {
            hits: self.found_right,
            of: self.found_right + self.found_wrong,
        }
    }

    pub(super) fn f1(self) -> f64 {
        let (p, r) = (self.precision().share(), self.recall().share());
        if p + r == 0.0 {
            0.0
        } else {
            2.0 * p * r / (p + r)
        }
    }
}

const INJECTION_SETS: &[(&str, Channel, &str)] = &[
    (
        "deepset_test",
        Channel::User,
        "short direct injections, EN and DE",
    ),
    (
        "jbb_artifacts",
        Channel::User,
        "jailbreaks, optimised and templated",
    ),
    (
        "bipia_test",
        Channel::Tool,
        "injections in mails, tables, code",
    ),
    ("agentdojo", Channel::Tool, "tool outputs of agents"),
    ("llm_pieval", Channel::Tool, "injections in API results"),
    (
        "ipi_coding",
        Channel::Tool,
        "injections in repositories and tickets",
    ),
    ("notinject", Channel::User, "trigger words in harmless text"),
    (
        "wildguard_benign",
        Channel::User,
        "users' harmless requests",
    ),
    (
        "xstest_safe",
        Channel::User,
        "requests that only sound harmful",
    ),
    (
        "fpr_panel",
        Channel::Both,
        "documents, code, mails, 12 languages",
    ),
];

pub(super) fn all(folder: &Path) -> Result<Results> {
    let mut results = Results::default();
    let injection = "injection-patterns";
    // Tool descriptions are judged by a rule of their own.
    let gate = Gate::new(injection, Kind::Injection, &["tool-description"])?;
    let ours = Gate::new(injection, Kind::Injection, &["tool-description", "rfc"])?;
    let secrets = Gate::new("secret-redaction", Kind::Secrets, &[])?;
    for (name, channel, about) in INJECTION_SETS {
        let rows = corpus::read(folder, name)?;
        let mut set = InjectionSet {
            name,
            about,
            recall: Rate::default(),
            false_positives: Rate::default(),
            without_rfc: Rate::default(),
        };
        for row in &rows {
            let text = tool_output(row).unwrap_or(&row.text);
            let flagged = gate.flags(text, *channel);
            if row.is_benign() {
                set.false_positives.add(flagged);
                set.without_rfc.add(ours.flags(text, *channel));
            } else {
                set.recall.add(flagged);
            }
        }
        results.injection.push(set);
        match *name {
            "agentdojo" => results.injection.push(raw_goals(&gate, &rows)),
            "fpr_panel" => panel(&gate, &secrets, &rows, &mut results),
            _ => {}
        }
        println!("{name}: {} texts", rows.len());
    }
    for row in corpus::read(folder, "secrets")? {
        results.secrets.add(
            secrets
                .judge(&Event::tool_call_result("r", "t", &*row.text))
                .is_some(),
            !row.is_benign(),
        );
    }
    results.pii = personal_data(folder)?;
    Ok(results)
}

impl Counts {
    fn add(&mut self, found: bool, there: bool) {
        match (found, there) {
            (true, true) => self.found_right += 1,
            (true, false) => self.found_wrong += 1,
            (false, true) => self.missed += 1,
            (false, false) => {}
        }
    }
}

/// The rows of `AgentDojo` without an attack carry the tool's output beside the user's request.
fn tool_output(row: &Row) -> Option<&str> {
    row.meta("tool_output")
}

/// What the attacks of `AgentDojo` want, without the template around it.
fn raw_goals(gate: &Gate, rows: &[Row]) -> InjectionSet {
    let mut goals: Vec<&str> = rows.iter().filter_map(|row| row.meta("goal")).collect();
    goals.sort_unstable();
    goals.dedup();
    let mut recall = Rate::default();
    for goal in goals {
        recall.add(gate.flags(goal, Channel::Tool));
    }
    InjectionSet {
        name: "agentdojo, raw goals",
        about: "the same without the template",
        recall,
        false_positives: Rate::default(),
        without_rfc: Rate::default(),
    }
}

fn panel(gate: &Gate, secrets: &Gate, rows: &[Row], results: &mut Results) {
    const LENGTHS: [(&str, usize); 4] = [
        ("up to 100 characters", 100),
        ("101 to 500", 500),
        ("501 to 2,000", 2_000),
        ("over 2,000", usize::MAX),
    ];
    let mut by_length = LENGTHS.map(|(name, _)| (name, Rate::default()));
    for row in rows {
        let flagged = gate.flags(&row.text, Channel::Both);
        let length = row.text.chars().count();
        let bucket = LENGTHS.iter().position(|(_, max)| length <= *max);
        by_length[bucket.unwrap_or(LENGTHS.len() - 1)]
            .1
            .add(flagged);
        let language = row.meta("lang").map_or("not stated", language);
        let rate = results.by_language.entry(language.to_owned()).or_default();
        rate.add(flagged);
        let secret = secrets.judge(&Event::tool_call_result("r", "t", &*row.text));
        results.secrets_on_panel.add(secret.is_some());
    }
    results.by_length = by_length.into();
}

fn language(name: &str) -> &str {
    match name {
        "English" => "en",
        "Hindi" => "hi",
        "Spanish" => "es",
        "German" => "de",
        "Portuguese" => "pt",
        "French" => "fr",
        "Thai" => "th",
        "Italian" => "it",
        "zh-cn" => "zh",
        other => other,
    }
}

/// One rule with all families of its kind, and nothing else.
struct Gate(Policy);

impl Gate {
    fn new(rule: &str, kind: Kind, without: &[&str]) -> Result<Self> {
        let families = detectors::names(kind).filter(|name| !without.contains(name));
        let families: Vec<&str> = families.collect();
        let text = format!(
            "policy_pack: detection\nversion: '1'\nsync_rules:\n  - id: {rule}\n    \
             config: {{families: [{}], evasions: true}}\n",
            families.join(", ")
        );
        let loaded = pack::load(&Pack {
            file: "detection.yaml",
            text: &text,
            ..Pack::default()
        });
        Ok(Self(loaded.map_err(|report| anyhow!("{report}"))?.policy))
    }

    fn flags(&self, text: &str, channel: Channel) -> bool {
        let user = || self.judge(&Event::llm_before("r", text)).is_some();
        let tool = || {
            self.judge(&Event::tool_call_result("r", "t", text))
                .is_some()
        };
        match channel {
            Channel::User => user(),
            Channel::Tool => tool(),
            Channel::Both => user() || tool(),
        }
    }

    fn judge(&self, event: &Event) -> Option<Decision> {
        let context = Context::new("r");
        let scan = self.0.scan(event);
        let signals = self.0.signals(event, &scan);
        let snapshot = ContextSnapshot::build(event, &context, self.0.tool_risks(), signals);
        let input = RuleInput {
            event,
            context: &context,
            snapshot: &snapshot,
        };
        let subject = self.0.subject(input, &scan);
        self.0
            .rules()
            .iter()
            .filter(|rule| rule.events().contains(&event.event_type))
            .find_map(|rule| rule.evaluate(&subject).ok().flatten())
    }
}

/// The corpus's names for what our entities are.
const PII_TYPES: &[(&str, &[&str])] = &[
    ("CREDIT_CARD", &["PAYMENT_CARD"]),
    ("EMAIL_ADDRESS", &["EMAIL_ADDRESS"]),
    ("IBAN_CODE", &["IBAN", "IBAN_CODE"]),
    ("IP_ADDRESS", &["IP_ADDRESS"]),
    ("PHONE_NUMBER", &["PHONE", "PHONE_NUMBER"]),
    ("US_SSN", &["US_SSN"]),
];

/// By type: a span is found if a finding of its type overlaps it.
fn personal_data(folder: &Path) -> Result<BTreeMap<&'static str, Counts>> {
    let gate = Gate::new("pii-redaction", Kind::Pii, &[])?;
    let mut by_type: BTreeMap<&'static str, Counts> = BTreeMap::new();
    for row in corpus::read(folder, "pii")? {
        let event = Event::tool_call_result("r", "t", &*row.text);
        let redactions = gate.judge(&event).map(|d| d.redactions).unwrap_or_default();
        for (theirs, ours) in PII_TYPES {
            let found: Vec<(u64, u64)> = redactions
                .iter()
                .filter(|spec| {
                    spec.entity_type
                        .as_deref()
                        .is_some_and(|e| ours.contains(&e))
                })
                .filter_map(|spec| Some((spec.start_offset? as u64, spec.end_offset? as u64)))
                .collect();
            let there = spans(&row, theirs);
            let overlap = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
            let counts = by_type.entry(theirs).or_default();
            for span in &there {
                counts.add(found.iter().any(|one| overlap(one, span)), true);
            }
            let wrong = found
                .iter()
                .filter(|one| !there.iter().any(|span| overlap(one, span)));
            counts.found_wrong += wrong.count();
        }
    }
    Ok(by_type)
}

fn spans(row: &Row, entity_type: &str) -> Vec<(u64, u64)> {
    let spans = row.meta.get("spans").and_then(Value::as_array);
    spans
        .into_iter()
        .flatten()
        .filter(|span| span.get("entity_type").and_then(Value::as_str) == Some(entity_type))
        .filter_map(|span| {
            let at = |key: &str| span.get(key).and_then(Value::as_u64);
            Some((at("start_position")?, at("end_position")?))
        })
        .collect()
}
