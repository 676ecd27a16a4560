use serde::Serialize;

use super::{
    Body, Compiled, EntityPattern, InlineRule, Label, Lookup, RuleCompiler, RuleError,
    RuleSettings, RuleSpec, Sight, Subject, documented, entities,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::detectors::Kind;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::configured_families;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::MapReader;
use crate::redact::places;
use crate::scan::{EventSet, PatternId};

documented! {
    /// Redacts secrets in tool results and in the model's answer.
    ///
    /// Judges `tool_call_result` and `llm_stream_chunk`: `text_content`, and every string and member
    /// name of a structured result (`payload.result`). A string, or a number of three digits and more, is also read behind the
    /// name of its member, as `"password": "…"`: many a secret is known by its name alone. Each
    /// secret is replaced by its type in brackets, such as `[AWS_KEY]`. The severity is that of the worst kind found.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: `[rfc]`.
    /// - `patterns`: your own, as `NAME: regular expression`. They add to the families.
    ///   Case matters.
    /// - `evasions`: whether to see through disguises: Unicode compatibility forms, invisible
    ///   characters, escapes and encodings. Default: `false`, as RFC-001 has it.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: secret-redaction
    ///     config:
    ///       patterns:
    ///         TICKET: 'TCK-[0-9]{6}'
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct SecretRedaction {
        /// What to look for, in order.
        pub patterns: Vec<EntityPattern>,
        /// Whether to see through disguises.
        pub evasions: bool,
    }
}

impl SecretRedaction {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "secret-redaction",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::LlmStreamChunk, EventType::ToolCallResult]),
        doc: Self::DOC,
        read: Self::read,
    };

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let families = configured_families(config, &["rfc"], d);
        let mut patterns = entities::of_families(Kind::Secrets, &families, d);
        patterns.extend(entities::configured(config, d));
        let evasions = config.boolean("evasions", d).unwrap_or_default();
        Some(RuleSettings::SecretRedaction(Self { patterns, evasions }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        compiler.sees_through(self.evasions, &events);
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            let spec = pattern.pattern.spec(Kind::Secrets);
            let Some(id) = compiler.pattern(&spec, &events, pattern.place) else {
                continue;
            };
            patterns.push(CompiledSecret {
                id,
                severity: pattern.severity,
                label: Label {
                    entity_type: pattern.entity.clone().into(),
                    replacement: format!("[{}]", pattern.entity).into(),
                },
            });
        }
        Compiled {
            events,
            reads: Parts::TEXT.and(Parts::TOOL_ARGS).and(Parts::RESULT),
            body: Body::Inline(Box::new(CompiledRedaction {
                id: compiler.id.clone(),
                sight: Sight::of(self.evasions, Sight::Values),
                lookup: Lookup::new(patterns.iter().map(|pattern| pattern.id)),
                patterns,
            })),
        }
    }
}

impl Default for SecretRedaction {
    /// RFC-001's patterns.
    fn default() -> Self {
        let mut diagnostics = Diagnostics::default();
        let families = [("rfc".to_owned(), Place::default())];
        Self {
            patterns: entities::of_families(Kind::Secrets, &families, &mut diagnostics),
            evasions: false,
        }
    }
}

struct CompiledRedaction {
    id: RuleId,
    sight: Sight,
    lookup: Lookup,
    patterns: Vec<CompiledSecret>,
}

struct CompiledSecret {
    id: PatternId,
    severity: Severity,
    label: Label,
}

impl InlineRule for CompiledRedaction {
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
                |_, _| {},
            );
            if redactions.len() > known {
                severity = severity.max(pattern.severity);
            }
        }
        if redactions.is_empty() {
            return Ok(None);
        }
        let reason = format!("Found {} secret(s)", places(&redactions));
        Ok(Some(
            Decision::redact(self.id.clone(), reason, redactions).with_severity(severity),
        ))
    }
}
