//! Rules: what judges an event.
//!
//! A fast rule is a plain function of a borrowed [`Subject`]. Built-in rules run inline and share
//! the policy's one scan. A rule that somebody else wrote implements [`Rule`]; the runtime keeps it
//! behind a deadline of its own, because nobody can promise that it returns.

mod arguments;
mod attacks;
mod blocked_domains;
mod compiled;
mod deep;
mod entities;
mod expression;
mod injection_patterns;
mod mask;
mod pii_redaction;
mod private_network;
mod response;
mod schema_validation;
mod secret_egress;
mod secret_redaction;
mod sequence;
mod shell_obfuscation;
mod subject;
mod tool_allowlist;
mod tool_definitions;

use std::borrow::Cow;

use serde::Serialize;

pub use attacks::AttackPattern;
pub use blocked_domains::{BlockedDomains, DomainFamily};
pub use compiled::CompiledRule;
pub use deep::{
    DeepRuleEntry, DeepRuleSettings, DeepSettings, DeepSpec, Endpoint, ExternalRule, Header,
    HttpClassifier, KNOWN_DEEP, Model, ModelRule, ModelVerdict, Offsets, Placeholder, Presidio,
    Reading, Reply, Sought, SpanFields, Template, UnsetVariable, VariableText,
};
pub use entities::EntityPattern;
pub use expression::{Expression, Verdict};
pub use injection_patterns::InjectionPatterns;
pub use pii_redaction::{HashKey, PiiAction, PiiRedaction};
pub use private_network::PrivateNetwork;
pub use response::Response;
pub use schema_validation::SchemaValidation;
pub use secret_egress::SecretEgress;
pub use secret_redaction::SecretRedaction;
pub use sequence::Sequence;
pub use shell_obfuscation::ShellObfuscation;
pub(crate) use subject::{Answer, Label, Leaf, Lookup, Named, Searched, Sight};
pub use subject::{EventScan, Subject};
pub use tool_allowlist::ToolAllowlist;
pub use tool_definitions::ToolDefinitions;

use crate::decision::{Decision, RuleCost, Severity};
use crate::evaluation::Parts;
use crate::event::{Context, Event, EventType};
use crate::history::Trigger;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::MapReader;
use crate::scan::{EventSet, PatternId, PatternSpec, ScannerBuilder};
use crate::snapshot::ContextSnapshot;

/// Everything a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'e> {
    /// What is about to happen.
    pub event: &'e Event,
    /// What is known of the run.
    pub context: &'e Context,
    /// The event described for rules and classifiers.
    pub snapshot: &'e ContextSnapshot<'e>,
}

/// Why a rule could not judge. The gate fails closed on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(pub String);

/// What a rule says of itself (RFC-001 §3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo {
    /// Unique in a policy.
    pub id: RuleId,
    /// Its version.
    pub version: Cow<'static, str>,
    /// What it judges.
    pub events: EventSet,
    /// How bad its findings are.
    pub severity: Severity,
}

/// A fast rule from outside this crate. Deep rules are the runtime's `DeepRule`.
///
/// It runs on a thread of its own: one that fails, panics or does not return within
/// `gateway.sync.timeout_ms` counts as a STOP, and never holds up the gate.
pub trait Rule: Send + Sync + 'static {
    /// What it is. Asked once, when the policy is compiled.
    fn info(&self) -> RuleInfo;

    /// `None` if it has nothing to say.
    fn evaluate(&self, input: &RuleInput<'_>) -> Result<Option<Decision>, RuleError>;
}

/// A built-in rule, compiled: trusted to return in time linear in the event.
pub(crate) trait InlineRule: Send + Sync {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError>;

    /// Whether it is certain to say nothing, as far as that is told at a glance.
    fn is_idle(&self, _subject: &Subject<'_>) -> bool {
        false
    }

    /// Makes what would otherwise be made when it is first needed.
    fn warm(&self) {}
}

/// A kind of rule that packs can use. `S` is what its configuration becomes.
pub struct RuleSpec<S = RuleSettings> {
    /// Its name in packs.
    pub id: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Where it runs.
    pub cost: RuleCost,
    /// What it judges unless a pack says otherwise.
    pub events: fn() -> EventSet,
    /// Its reference page, Markdown. The first line is a summary.
    pub doc: &'static str,
    pub(crate) read: fn(&mut MapReader<'_>, &mut Diagnostics) -> Option<S>,
}

impl<S> RuleSpec<S> {
    /// The first line of its reference page.
    pub fn summary(&self) -> &'static str {
        self.doc.trim_start().lines().next().unwrap_or_default()
    }

    /// The whole reference page, without the leading blanks of doc comments.
    pub fn page(&self) -> String {
        let mut page = String::new();
        for line in self.doc.lines() {
            page.push_str(line.strip_prefix(' ').unwrap_or(line));
            page.push('\n');
        }
        page
    }
}

/// Every built-in fast rule, in the order they are documented.
pub const BUILT_IN: &[RuleSpec] = &[
    ToolAllowlist::SPEC,
    SecretRedaction::SPEC,
    PiiRedaction::SPEC,
    InjectionPatterns::SPEC,
    SchemaValidation::SPEC,
    PrivateNetwork::SPEC,
    BlockedDomains::SPEC,
    SecretEgress::SPEC,
    ShellObfuscation::SPEC,
    ToolDefinitions::SPEC,
    Sequence::SPEC,
    Expression::SPEC,
];

/// The settings of a built-in rule: what a pack's `config` becomes, and what code builds directly.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RuleSettings {
    /// `tool-allowlist`
    ToolAllowlist(ToolAllowlist),
    /// `secret-redaction`
    SecretRedaction(SecretRedaction),
    /// `pii-redaction`
    PiiRedaction(PiiRedaction),
    /// `injection-patterns`
    InjectionPatterns(InjectionPatterns),
    /// `schema-validation`
    SchemaValidation(SchemaValidation),
    /// `private-network`
    PrivateNetwork(PrivateNetwork),
    /// `blocked-domains`
    BlockedDomains(BlockedDomains),
    /// `secret-egress`
    SecretEgress(SecretEgress),
    /// `shell-obfuscation`
    ShellObfuscation(ShellObfuscation),
    /// `tool-definitions`
    ToolDefinitions(ToolDefinitions),
    /// `sequence`
    Sequence(Sequence),
    /// `expression`
    Expression(Expression),
}

/// What a built-in rule compiles to.
pub(crate) struct Compiled {
    pub(crate) events: EventSet,
    /// The parts of an event that it looks at. A rule that scans looks at one structured part.
    pub(crate) reads: Parts,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    /// Linear in the event: runs where the caller is.
    Inline(Box<dyn InlineRule>),
    /// Anything else: runs behind a deadline.
    Fenced(std::sync::Arc<dyn Rule>),
}

/// What a built-in rule compiles with.
pub(crate) struct RuleCompiler<'c> {
    pub(crate) id: RuleId,
    /// The pack's `events`, which replace the rule's own.
    pub(crate) events: Option<EventSet>,
    pub(crate) scanner: &'c mut ScannerBuilder,
    /// The patterns that a streamed answer is searched for.
    pub(crate) stream_patterns: &'c mut Vec<PatternId>,
    /// What sequence rules wait for.
    pub(crate) triggers: &'c mut Vec<Trigger>,
    /// Events whose texts some rule wants to see through disguises.
    pub(crate) evasive_events: &'c mut EventSet,
    /// Whether the rule is one of those that want that.
    pub(crate) evasive: bool,
    pub(crate) diagnostics: &'c mut Diagnostics,
}

impl RuleCompiler<'_> {
    fn events_or(&self, default: impl FnOnce() -> EventSet) -> EventSet {
        self.events.clone().unwrap_or_else(default)
    }

    /// Has the texts of these events seen through disguises, if so configured.
    fn sees_through(&mut self, evasions: bool, events: &EventSet) {
        if evasions {
            self.evasive = true;
            self.evasive_events.extend(events);
        }
    }

    fn pattern(
        &mut self,
        spec: &PatternSpec<'_>,
        events: &EventSet,
        place: Place,
    ) -> Option<PatternId> {
        match self.scanner.add(spec, events) {
            Ok(id) => {
                let streamed = events.contains(&EventType::LlmStreamChunk);
                if streamed && !self.stream_patterns.contains(&id) {
                    self.stream_patterns.push(id);
                }
                if self.scanner.is_unfiltered(id) {
                    let message = format!(
                        "pattern `{}` has no fixed text of three bytes, so it runs over every event",
                        spec.regex
                    );
                    self.diagnostics
                        .warning(place, message)
                        .help("let it ask for three letters or digits in a row");
                }
                Some(id)
            }
            Err(error) => {
                self.diagnostics
                    .error(place, format!("pattern `{}`: {error}", spec.regex));
                None
            }
        }
    }
}

impl RuleSettings {
    /// The built-in rule that these are settings of.
    pub fn spec(&self) -> &'static RuleSpec {
        match self {
            Self::ToolAllowlist(_) => &ToolAllowlist::SPEC,
            Self::SecretRedaction(_) => &SecretRedaction::SPEC,
            Self::PiiRedaction(_) => &PiiRedaction::SPEC,
            Self::InjectionPatterns(_) => &InjectionPatterns::SPEC,
            Self::SchemaValidation(_) => &SchemaValidation::SPEC,
            Self::PrivateNetwork(_) => &PrivateNetwork::SPEC,
            Self::BlockedDomains(_) => &BlockedDomains::SPEC,
            Self::SecretEgress(_) => &SecretEgress::SPEC,
            Self::ShellObfuscation(_) => &ShellObfuscation::SPEC,
            Self::ToolDefinitions(_) => &ToolDefinitions::SPEC,
            Self::Sequence(_) => &Sequence::SPEC,
            Self::Expression(_) => &Expression::SPEC,
        }
    }

    /// Problems are noted in the compiler's diagnostics.
    pub(crate) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        match self {
            Self::ToolAllowlist(settings) => settings.compile(compiler),
            Self::SecretRedaction(settings) => settings.compile(compiler),
            Self::PiiRedaction(settings) => settings.compile(compiler),
            Self::InjectionPatterns(settings) => settings.compile(compiler),
            Self::SchemaValidation(settings) => settings.compile(compiler),
            Self::PrivateNetwork(settings) => settings.compile(compiler),
            Self::BlockedDomains(settings) => settings.compile(compiler),
            Self::SecretEgress(settings) => settings.compile(compiler),
            Self::ShellObfuscation(settings) => settings.compile(compiler),
            Self::ToolDefinitions(settings) => settings.compile(compiler),
            Self::Sequence(settings) => settings.compile(compiler),
            Self::Expression(settings) => settings.compile(compiler),
        }
    }
}

/// Declares a rule's settings type and keeps its doc comment as a constant: the reference page that
/// `portcullis rule explain` prints is the one that rustdoc shows.
macro_rules! documented {
    ($(#[doc = $doc:literal])+ #[derive($($derive:ident),+)] pub struct $name:ident $body:tt) => {
        $(#[doc = $doc])+
        #[derive($($derive),+)]
        pub struct $name $body

        impl $name {
            pub(crate) const DOC: &'static str = concat!($($doc, "\n"),+);
        }
    };
}
pub(crate) use documented;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_registry_is_in_order_and_documented() {
        let mut seen = HashSet::new();
        for spec in BUILT_IN {
            assert!(seen.insert(spec.id), "{} is there twice", spec.id);
            assert!(
                spec.summary().trim().ends_with('.'),
                "{} needs a summary",
                spec.id
            );
            for heading in ["## Configuration", "## Example"] {
                assert!(
                    spec.page().contains(heading),
                    "{} has no `{heading}`",
                    spec.id
                );
            }
        }
        for (settings, id) in [
            (
                RuleSettings::ToolAllowlist(ToolAllowlist::default()),
                "tool-allowlist",
            ),
            (
                RuleSettings::SecretRedaction(SecretRedaction::default()),
                "secret-redaction",
            ),
            (
                RuleSettings::PiiRedaction(PiiRedaction::default()),
                "pii-redaction",
            ),
            (
                RuleSettings::InjectionPatterns(InjectionPatterns::default()),
                "injection-patterns",
            ),
            (
                RuleSettings::SchemaValidation(SchemaValidation::default()),
                "schema-validation",
            ),
            (
                RuleSettings::PrivateNetwork(PrivateNetwork::default()),
                "private-network",
            ),
            (
                RuleSettings::BlockedDomains(BlockedDomains::default()),
                "blocked-domains",
            ),
            (
                RuleSettings::SecretEgress(SecretEgress::default()),
                "secret-egress",
            ),
            (
                RuleSettings::ShellObfuscation(ShellObfuscation::default()),
                "shell-obfuscation",
            ),
            (
                RuleSettings::ToolDefinitions(ToolDefinitions::default()),
                "tool-definitions",
            ),
            (
                RuleSettings::Expression(Expression::new("true")),
                "expression",
            ),
        ] {
            assert_eq!(settings.spec().id, id);
        }
    }
}
