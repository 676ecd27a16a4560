use serde::Serialize;

use super::{
    Body, Compiled, InlineRule, Label, RuleCompiler, RuleError, RuleSettings, RuleSpec, Subject,
    documented,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::detectors::{Kind, Meaning};
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader, Yaml};
use crate::pack::{configured_families, read_families};
use crate::scan::{EventSet, PatternId, PatternSpec};

documented! {
    /// Redacts secrets in tool results and in the model's answer.
    ///
    /// Judges `tool_call_result` and `llm_stream_chunk`: `text_content`, and every string and member
    /// name of a structured result (`payload.result`). Each secret is replaced by its type in
    /// brackets, such as `[AWS_KEY]`. Severity high.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: `[rfc]`.
    /// - `patterns`: your own, as `NAME: regular expression`. They add to the families.
    ///   Case matters.
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
        pub patterns: Vec<SecretPattern>,
    }
}

/// One kind of secret.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SecretPattern {
    /// What it is called, such as `AWS_KEY`.
    pub entity: String,
    /// The regular expression.
    pub regex: String,
    /// Literals of which every match contains one; empty to have them worked out.
    pub keywords: Vec<String>,
    /// Where it was configured.
    #[serde(skip)]
    pub place: Place,
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

    /// The patterns of these families.
    fn of_families(families: &[(String, Place)], d: &mut Diagnostics) -> Self {
        let entries = read_families(Kind::Secrets, families, d);
        let patterns = entries
            .into_iter()
            .filter_map(|(entry, place)| match entry.meaning {
                Meaning::Entity(entity) => Some(SecretPattern {
                    entity,
                    regex: entry.pattern,
                    keywords: entry.keywords,
                    place,
                }),
                _ => None,
            })
            .collect();
        Self { patterns }
    }

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        Self::read_patterns(config, d).map(RuleSettings::SecretRedaction)
    }

    /// What `families` and `patterns` say.
    pub(super) fn read_patterns(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Self> {
        let families = configured_families(config, d);
        let mut settings = Self::of_families(&families, d);
        if let Some(node) = config.get("patterns") {
            let Yaml::Map(entries) = &node.yaml else {
                d.error(
                    node.place,
                    "`patterns` must map a NAME to a regular expression",
                );
                return None;
            };
            for (name, regex) in entries {
                let Some(regex_text) = yaml::text(regex, &name.name, d) else {
                    continue;
                };
                settings.patterns.push(SecretPattern {
                    entity: name.name.clone(),
                    regex: regex_text.to_owned(),
                    keywords: Vec::new(),
                    place: regex.place,
                });
            }
        }
        Some(settings)
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            let spec = PatternSpec {
                regex: &pattern.regex,
                ignore_case: Kind::Secrets.ignores_case(),
                keywords: &pattern.keywords,
            };
            let Some(id) = compiler.pattern(&spec, &events, pattern.place) else {
                continue;
            };
            patterns.push(CompiledSecret {
                id,
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
                patterns,
            })),
        }
    }
}

impl Default for SecretRedaction {
    /// RFC-001's patterns.
    fn default() -> Self {
        let mut diagnostics = Diagnostics::default();
        Self::of_families(&[("rfc".to_owned(), Place::default())], &mut diagnostics)
    }
}

struct CompiledRedaction {
    id: RuleId,
    patterns: Vec<CompiledSecret>,
}

struct CompiledSecret {
    id: PatternId,
    label: Label,
}

impl InlineRule for CompiledRedaction {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let mut redactions = Vec::new();
        for pattern in &self.patterns {
            subject.redactions(pattern.id, &pattern.label, &mut redactions);
        }
        if redactions.is_empty() {
            return Ok(None);
        }
        let reason = format!("Found {} secret(s)", redactions.len());
        Ok(Some(
            Decision::redact(self.id.clone(), reason, redactions).with_severity(Severity::High),
        ))
    }
}
