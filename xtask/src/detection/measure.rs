//! Every corpus through the detectors.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use portcullis_core::Event;
use portcullis_core::classifier::{Channel, Sample, SoughtLabels, TextClassifier};
use portcullis_core::detectors::Kind;
use portcullis_models::PortcullisClassifier;
use portcullis_models::evaluation::{
    LENGTHS, Patterns, Rate, Row, goals, language, length_bucket, read_rows,
};
use serde_json::Value;

const USER: &[Channel] = &[Channel::User];
const TOOL: &[Channel] = &[Channel::Tool];
/// Benign text that may come from anywhere: patterns must let it pass from both.
const BOTH: &[Channel] = &[Channel::User, Channel::Tool];

/// One corpus, and the target for it.
pub(super) struct InjectionSet {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) recall: Found,
    pub(super) false_positives: Found,
    /// Of the patterns without those of RFC-001, which are given.
    pub(super) without_rfc: Rate,
}

/// What the patterns find, the classifier, and either of them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Found {
    pub(super) patterns: Rate,
    pub(super) classifier: Rate,
    pub(super) together: Rate,
}

impl Found {
    fn add(&mut self, by_patterns: bool, by_classifier: bool) {
        self.patterns.add(by_patterns);
        self.classifier.add(by_classifier);
        self.together.add(by_patterns || by_classifier);
    }
}

#[derive(Default)]
pub(super) struct Results {
    /// Which classifier, and from which score on a text counts.
    pub(super) classifier: (String, f32),
    pub(super) injection: Vec<InjectionSet>,
    /// False positives on the panel.
    pub(super) by_length: Vec<(&'static str, Found)>,
    pub(super) by_language: BTreeMap<String, Found>,
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

const INJECTION_SETS: &[(&str, &[Channel], &str)] = &[
    ("deepset_test", USER, "short direct injections, EN and DE"),
    ("jbb_artifacts", USER, "jailbreaks, optimised and templated"),
    ("bipia_test", TOOL, "injections in mails, tables, code"),
    ("agentdojo", TOOL, "tool outputs of agents"),
    ("llm_pieval", TOOL, "injections in API results"),
    ("ipi_coding", TOOL, "injections in repositories and tickets"),
    ("notinject", USER, "trigger words in harmless text"),
    ("wildguard_benign", USER, "users' harmless requests"),
    ("xstest_safe", USER, "requests that only sound harmful"),
    ("fpr_panel", BOTH, "documents, code, mails, 17 languages"),
];

pub(super) fn all(folder: &Path) -> Result<Results> {
    let mut results = Results::default();
    let gate = Patterns::injection()?;
    let classifier = Classifier::new()?;
    results.classifier = (classifier.model.name().to_owned(), classifier.threshold);
    let without = ["tool-description", "rfc"];
    let ours = patterns("injection-patterns", Kind::Injection, &without)?;
    let secrets = patterns("secret-redaction", Kind::Secrets, &[])?;
    for (name, channels, about) in INJECTION_SETS {
        let rows = read(folder, name)?;
        let mut set = InjectionSet {
            name,
            about,
            recall: Found::default(),
            false_positives: Found::default(),
            without_rfc: Rate::default(),
        };
        let scores = classifier.flags(&rows, name)?;
        for (row, by_classifier) in rows.iter().zip(&scores) {
            let text = row.judged();
            let flagged = flags(&gate, text, channels)?;
            if row.is_benign() {
                set.false_positives.add(flagged, *by_classifier);
                set.without_rfc.add(flags(&ours, text, channels)?);
            } else {
                set.recall.add(flagged, *by_classifier);
            }
        }
        results.injection.push(set);
        match *name {
            "agentdojo" => {
                let goals = raw_goals(&gate, &classifier, &rows)?;
                results.injection.push(goals);
            }
            "fpr_panel" => panel(&gate, &secrets, &rows, &scores, &mut results)?,
            _ => {}
        }
        println!("{name}: {} texts", rows.len());
    }
    for row in read(folder, "secrets")? {
        results.secrets.add(
            secrets
                .judge(&Event::tool_call_result("r", "t", &*row.text))?
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

/// What the attacks of `AgentDojo` want, without the template around it.
fn raw_goals(gate: &Patterns, classifier: &Classifier, rows: &[Row]) -> Result<InjectionSet> {
    let mut recall = Found::default();
    for goal in goals(rows) {
        let by_patterns = gate.flags(goal, Channel::Tool)?;
        recall.add(by_patterns, classifier.flags_one(goal, Channel::Tool)?);
    }
    Ok(InjectionSet {
        name: "agentdojo, raw goals",
        about: "the same without the template",
        recall,
        false_positives: Found::default(),
        without_rfc: Rate::default(),
    })
}

/// Our own, as it comes.
struct Classifier {
    model: PortcullisClassifier,
    sought: SoughtLabels,
    threshold: f32,
}

impl Classifier {
    fn new() -> Result<Self> {
        let model = PortcullisClassifier::built_in()?;
        Ok(Self {
            sought: SoughtLabels::of(&model, &[])?,
            threshold: model
                .threshold()
                .context("the classifier has no threshold")?,
            model,
        })
    }

    /// Each text as it came, which the row says or its set: to this judge a request is one thing from a user and another
    /// from a tool.
    fn flags(&self, rows: &[Row], set: &str) -> Result<Vec<bool>> {
        rows.iter()
            .map(|row| self.flags_one(row.judged(), row.channel(set)))
            .collect()
    }

    fn flags_one(&self, text: &str, channel: Channel) -> Result<bool> {
        let scores = self.model.classify(&[Sample { text, channel }])?;
        let flagged = |one| self.sought.score(one) >= self.threshold;
        Ok(scores.iter().any(flagged))
    }
}

/// The longest texts of the panel, in two parts.
const LONGEST: [&str; 2] = [
    "– of these, published system prompts",
    "– of these, all others",
];

/// Whether this row of the panel is the prompt of somebody's assistant. Many of those quote attacks, word for word, for
/// the assistant to refuse: what looks for attacks finds them.
fn is_published_prompt(row: &Row) -> bool {
    row.meta("kind").is_none() && row.meta("file").is_some()
}

fn panel(
    gate: &Patterns,
    secrets: &Patterns,
    rows: &[Row],
    by_classifier: &[bool],
    results: &mut Results,
) -> Result<()> {
    let mut by_length = LENGTHS.map(|(name, _)| (name, Found::default()));
    let mut longest = LONGEST.map(|name| (name, Found::default()));
    for (row, by_classifier) in rows.iter().zip(by_classifier) {
        let flagged = flags(gate, &row.text, BOTH)?;
        let bucket = length_bucket(&row.text);
        by_length[bucket].1.add(flagged, *by_classifier);
        if bucket + 1 == LENGTHS.len() {
            let part = usize::from(!is_published_prompt(row));
            longest[part].1.add(flagged, *by_classifier);
        }
        let language = language(row).to_owned();
        let bucket = results.by_language.entry(language).or_default();
        bucket.add(flagged, *by_classifier);
        let secret = secrets.judge(&Event::tool_call_result("r", "t", &*row.text))?;
        results.secrets_on_panel.add(secret.is_some());
    }
    results.by_length = by_length.into_iter().chain(longest).collect();
    Ok(())
}

fn read(folder: &Path, name: &str) -> Result<Vec<Row>> {
    Ok(read_rows(&folder.join(format!("{name}.jsonl.gz")))?)
}

fn patterns(rule: &str, kind: Kind, without: &[&str]) -> Result<Patterns> {
    Ok(Patterns::new(rule, kind, without)?)
}

/// Whether the text is found by any of the ways it may come.
fn flags(gate: &Patterns, text: &str, channels: &[Channel]) -> Result<bool> {
    for channel in channels {
        if gate.flags(text, *channel)? {
            return Ok(true);
        }
    }
    Ok(false)
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
    let gate = patterns("pii-redaction", Kind::Pii, &[])?;
    let mut by_type: BTreeMap<&'static str, Counts> = BTreeMap::new();
    for row in read(folder, "pii")? {
        let event = Event::tool_call_result("r", "t", &*row.text);
        let redactions = gate
            .judge(&event)?
            .map(|d| d.redactions)
            .unwrap_or_default();
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
