use core::net::Ipv4Addr;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::{
    Body, Compiled, EntityPattern, InlineRule, Label, Lookup, RuleCompiler, RuleError,
    RuleSettings, RuleSpec, Sight, Subject, documented, entities,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::detectors::{self, Kind};
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::configured_families;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::{self, MapReader, Yaml};
use crate::redact::places;
use crate::scan::{EventSet, PatternId};

documented! {
    /// Redacts, masks, hashes or vaults personal data in tool results and in the model's answer.
    ///
    /// Judges `tool_call_result` and `llm_stream_chunk`: `text_content`, and every string and member
    /// name of a structured result (`payload.result`). A string, or a number of three digits and more, is also read behind the
    /// name of its member, as `"ssn": "…"`; a number in which something is found becomes a string. Check digits are
    /// verified where the kind of data has them. What replaces a value is up to you, for each kind of data:
    ///
    /// | action | `4111 1111 1111 1111` becomes | |
    /// |---|---|---|
    /// | `redact` | `[PAYMENT_CARD]` | the default |
    /// | `mask` | `**** **** **** 1111` | the last four letters or digits stay |
    /// | `hash` | `[PAYMENT_CARD:0f3c…]` | the same value gives the same text, however its groups or letters are written, under your `hash_key` |
    /// | `vault` | `[PAYMENT_CARD_1]` | the gateway remembers the value and puts it back into an answer to the same run |
    /// | `allow` | `4111 1111 1111 1111` | not looked for |
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: all of them.
    /// - `patterns`: your own, as `NAME: regular expression`. They add to the families.
    ///   Case matters.
    /// - `action`: for every kind of data that `actions` does not name. Default: `redact`.
    /// - `actions`: by kind, such as `EMAIL_ADDRESS: mask`.
    /// - `hash_key`: at least 16 characters that only you know. Needed for `hash`: without a key,
    ///   whoever sees the hash of a telephone number finds the number by trying them all.
    /// - `evasions`: whether to see through disguises: Unicode compatibility forms, invisible
    ///   characters, escapes and encodings. Default: `false`, as RFC-001 has it.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: pii-redaction
    ///     config:
    ///       families: [contact, financial]
    ///       action: redact
    ///       actions:
    ///         EMAIL_ADDRESS: vault
    ///         PAYMENT_CARD: mask
    ///       patterns:
    ///         EMPLOYEE: 'EMP-[0-9]{6}'
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PiiRedaction {
        /// What to look for, in order, and what to do with each.
        pub patterns: Vec<(EntityPattern, PiiAction)>,
        /// What hashes depend on.
        pub hash_key: Option<HashKey>,
        /// Whether to see through disguises.
        pub evasions: bool,
    }
}

/// What happens to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PiiAction {
    /// The kind of data stands in its place.
    Redact,
    /// Stars do, but for the last four letters or digits.
    Mask,
    /// A keyed hash does.
    Hash,
    /// A token does that can be turned back.
    Vault,
    /// Nothing: it is not looked for.
    Allow,
}

impl PiiAction {
    const NAMES: [(&'static str, Self); 5] = [
        ("redact", Self::Redact),
        ("mask", Self::Mask),
        ("hash", Self::Hash),
        ("vault", Self::Vault),
        ("allow", Self::Allow),
    ];
}

/// What hashes depend on. It is not printed, and a policy's digest depends on its hash only.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(String);

impl HashKey {
    /// Shorter keys can be guessed.
    const MIN_CHARS: usize = 16;

    /// A key, unless it is too short.
    pub fn new(key: impl Into<String>) -> Option<Self> {
        let key = key.into();
        (key.chars().count() >= Self::MIN_CHARS).then_some(Self(key))
    }

    fn of(&self, value: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update((self.0.len() as u64).to_be_bytes());
        hasher.update(&self.0);
        hasher.update(value);
        let digest = hasher.finalize();
        let start = digest.first_chunk().copied().unwrap_or_default();
        format!("{:016x}", u64::from_be_bytes(start))
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(…)")
    }
}

impl Serialize for HashKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.of("policy digest"))
    }
}

impl PiiRedaction {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "pii-redaction",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::LlmStreamChunk, EventType::ToolCallResult]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let all: Vec<&str> = detectors::names(Kind::Pii).collect();
        let families = configured_families(config, &all, d);
        let mut patterns = entities::of_families(Kind::Pii, &families, d);
        patterns.extend(entities::configured(config, d));
        let action = config
            .one_of("action", &PiiAction::NAMES, d)
            .unwrap_or(PiiAction::Redact);
        let by_entity = read_actions(config, &patterns, d)?;
        let hash_key = read_key(config, d);
        let patterns: Vec<(EntityPattern, PiiAction)> = patterns
            .into_iter()
            .map(|pattern| {
                let own = by_entity
                    .iter()
                    .find(|(entity, _)| *entity == pattern.entity);
                (pattern, own.map_or(action, |(_, action)| *action))
            })
            .filter(|(_, action)| *action != PiiAction::Allow)
            .collect();
        let hashes = patterns
            .iter()
            .any(|(_, action)| *action == PiiAction::Hash);
        if hashes && hash_key.is_none() && config.get("hash_key").is_none() {
            d.error(config.place(), "action `hash` needs a `hash_key`")
                .help("without a key, whoever sees a hash finds the value by trying them all");
        }
        let evasions = config.boolean("evasions", d).unwrap_or_default();
        Some(RuleSettings::PiiRedaction(Self {
            patterns,
            hash_key,
            evasions,
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        compiler.sees_through(self.evasions, &events);
        let mut patterns = Vec::new();
        for (pattern, action) in &self.patterns {
            let spec = pattern.pattern.spec(Kind::Pii);
            if let Some(id) = compiler.pattern(&spec, &events, pattern.place) {
                patterns.push(CompiledPii {
                    id,
                    severity: pattern.severity,
                    action: *action,
                    label: Label {
                        entity_type: pattern.entity.clone().into(),
                        replacement: format!("[{}]", pattern.entity).into(),
                    },
                });
            }
        }
        Compiled {
            events,
            reads: Parts::TEXT.and(Parts::TOOL_ARGS).and(Parts::RESULT),
            body: Body::Inline(Box::new(CompiledRule {
                id: compiler.id.clone(),
                sight: Sight::of(self.evasions, Sight::Values),
                lookup: Lookup::new(patterns.iter().map(|pattern| pattern.id)),
                patterns,
                hash_key: self.hash_key.clone(),
            })),
        }
    }
}

impl Default for PiiRedaction {
    /// Every family, redacted.
    fn default() -> Self {
        let mut diagnostics = Diagnostics::default();
        let families: Vec<_> = detectors::names(Kind::Pii)
            .map(|name| (name.to_owned(), crate::pack::diagnostic::Place::default()))
            .collect();
        let patterns = entities::of_families(Kind::Pii, &families, &mut diagnostics);
        Self {
            patterns: patterns
                .into_iter()
                .map(|pattern| (pattern, PiiAction::Redact))
                .collect(),
            hash_key: None,
            evasions: false,
        }
    }
}

fn read_actions(
    config: &mut MapReader<'_>,
    patterns: &[EntityPattern],
    d: &mut Diagnostics,
) -> Option<Vec<(String, PiiAction)>> {
    let Some(node) = config.get("actions") else {
        return Some(Vec::new());
    };
    let Yaml::Map(entries) = &node.yaml else {
        d.error(node.place, "`actions` must map a kind of data to an action");
        return None;
    };
    let known: BTreeSet<&str> = patterns.iter().map(|pattern| &*pattern.entity).collect();
    let mut actions = Vec::new();
    for (entity, action) in entries {
        if !known.contains(&*entity.name) {
            d.error(
                entity.place,
                format!("no family of this rule finds `{}`", entity.name),
            )
            .suggest(&entity.name, known.iter().copied());
        }
        if let Some(action) = yaml::one_of(action, "action", &PiiAction::NAMES, d) {
            actions.push((entity.name.clone(), action));
        }
    }
    Some(actions)
}

fn read_key(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<HashKey> {
    let node = config.get("hash_key")?;
    let key = HashKey::new(yaml::text(node, "hash_key", d)?);
    if key.is_none() {
        let message = format!(
            "`hash_key` must have at least {} characters",
            HashKey::MIN_CHARS
        );
        d.error(node.place, message);
    }
    key
}

struct CompiledRule {
    id: RuleId,
    sight: Sight,
    lookup: Lookup,
    patterns: Vec<CompiledPii>,
    hash_key: Option<HashKey>,
}

struct CompiledPii {
    id: PatternId,
    severity: Severity,
    action: PiiAction,
    label: Label,
}

impl InlineRule for CompiledRule {
    fn is_idle(&self, subject: &Subject<'_>) -> bool {
        subject.is_plain()
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        if subject.is_plain() {
            return Ok(None);
        }
        let mut redactions = Vec::new();
        let mut severity = Severity::Low;
        for index in subject.candidates(&self.lookup) {
            let pattern = &self.patterns[index];
            let known = redactions.len();
            subject.redactions(
                pattern.id,
                self.sight,
                &pattern.label,
                &mut redactions,
                |value, spec| {
                    spec.restorable = pattern.action == PiiAction::Vault;
                    if let Some(replacement) = self.replacement(pattern, value) {
                        spec.replacement = Cow::Owned(replacement);
                    }
                },
            );
            if redactions.len() > known {
                severity = severity.max(pattern.severity);
            }
        }
        if redactions.is_empty() {
            return Ok(None);
        }
        let reason = format!("Found {} piece(s) of personal data", places(&redactions));
        Ok(Some(
            Decision::redact(self.id.clone(), reason, redactions).with_severity(severity),
        ))
    }
}

impl CompiledRule {
    /// What stands for the value, if its label does not.
    fn replacement(&self, pattern: &CompiledPii, value: &str) -> Option<String> {
        match pattern.action {
            PiiAction::Mask => Some(masked(value)),
            PiiAction::Hash => {
                let hash = self.hash_key.as_ref()?.of(&canonical(value));
                Some(format!("[{}:{hash}]", pattern.label.entity_type))
            }
            PiiAction::Redact | PiiAction::Vault | PiiAction::Allow => None,
        }
    }
}

/// A value as all ways to write it have it: a mail address in lower case, a number of any groups as its digits alone.
fn canonical(value: &str) -> Cow<'_, str> {
    let apart = |c: char| {
        c.is_whitespace() || matches!(c, '-' | '.' | '/' | '(' | ')' | '\u{2010}' | '\u{2011}')
    };
    if value.contains('@') {
        return Cow::Owned(value.to_lowercase());
    }
    let number = value
        .chars()
        .all(|c| c.is_ascii_digit() || c == '+' || apart(c));
    // Four small numbers are an address, and dots tell 1.11.1.1 from 11.1.1.1.
    let dotted = value.split('.').count() == 4 && value.parse::<Ipv4Addr>().is_ok();
    if !number || dotted {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.chars().filter(|c| !apart(*c)).collect())
}

/// Stars for all letters and digits but the last four, and for all of them if there are few.
fn masked(value: &str) -> String {
    const SHOWN: usize = 4;
    let total = value.chars().filter(|c| c.is_alphanumeric()).count();
    let mut hidden = if total >= 2 * SHOWN {
        total - SHOWN
    } else {
        total
    };
    value
        .chars()
        .map(|c| match c {
            c if c.is_alphanumeric() && hidden > 0 => {
                hidden -= 1;
                '*'
            }
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_keeps_the_last_four_of_many() {
        for (value, expected) in [
            ("4111 1111 1111 1234", "**** **** **** 1234"),
            ("jane@example.com", "****@******e.com"),
            ("1234567", "*******"),
            ("ä-1", "*-*"),
        ] {
            assert_eq!(masked(value), expected);
        }
    }

    #[test]
    fn a_hash_is_of_the_value_and_not_of_how_it_is_written() {
        for (value, expected) in [
            ("4111 1111-1111.1111", "4111111111111111"),
            ("+49 (171) 1234567", "+491711234567"),
            ("Jane@Example.COM", "jane@example.com"),
            ("192.0.2.11", "192.0.2.11"),
            ("D1234567", "D1234567"),
        ] {
            assert_eq!(canonical(value), expected);
        }
    }

    #[test]
    fn a_hash_depends_on_key_and_value_and_is_not_printed() {
        let key = |key: &str| HashKey::new(key.repeat(16)).unwrap();
        assert_eq!(key("a").of("x"), key("a").of("x"));
        assert_ne!(key("a").of("x"), key("a").of("y"));
        assert_ne!(key("a").of("x"), key("b").of("x"));
        assert_eq!(HashKey::new("short"), None);
        assert_eq!(format!("{:?}", key("a")), "HashKey(…)");
    }
}
