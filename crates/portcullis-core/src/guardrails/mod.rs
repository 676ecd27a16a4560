//! Guardrails: what an agent proposes in, whether it may out (CSTP F003, F004).
//!
//! A guardrail file is a list of guardrails, or a mapping with a list under `guardrails`. Each entry
//! is in one of two forms: ours, with a CEL expression under `when` that is true when the guardrail
//! is violated, or an older one with `condition_X` and `requires_X` keys. Both are compiled into
//! conditions that are evaluated on the action itself; `docs/guardrails.md` shows how to write them.
//!
//! An expression that cannot be evaluated counts as violated, at the guardrail's own severity:
//! nothing is ever allowed by an error.
//!
//! ```
//! use portcullis_core::guardrails::{self, ProposedAction, Source};
//!
//! let text = "
//! - id: no-friday-deploys
//!   when: action.category == 'deploy' && context.weekday == 'friday'
//!   message: No deploys on {weekday}
//! ";
//! let loaded = guardrails::load(&[Source { file: "mine.yaml", text }])
//!     .map_err(|reports| reports[0].to_string())?;
//! let action = serde_json::json!({"action": {
//!     "description": "Deploy the shop",
//!     "category": "deploy",
//!     "context": {"weekday": "friday"},
//! }});
//! let action = ProposedAction::from_params(action.as_object().unwrap())?;
//! let verdict = loaded.guardrails.check(&action);
//! assert!(!verdict.allowed);
//! assert_eq!(verdict.violations[0].message, "No deploys on friday");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod condition;
mod lower;
mod message;
mod needs;
mod older;
mod read;
mod rule;
mod value;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use action::{
    Agent, Intent, MAX_CONTEXT_TEXT_BYTES, MAX_CORRELATION_CHARS, MAX_DESCRIPTION_BYTES,
    MAX_NAME_BYTES, ProposedAction, Stakes,
};

pub use crate::fields::FieldError;

use crate::canonical;
use crate::pack::diagnostic::{Diagnostics, Report};
use condition::History;
use message::Template;
use needs::Needs;
use rule::{Asked, Rule};

/// The guardrails that a user gets with no flags.
pub const DEFAULT: &str = include_str!("../../../../policies/guardrails/default.yaml");

/// The cases of the built-in guardrails.
pub const DEFAULT_CASES: &str = include_str!("../../../../policies/guardrails/default.cases.yaml");

/// The name of the built-in guardrails' file.
pub const DEFAULT_FILE: &str = "policies/guardrails/default.yaml";

/// One guardrail file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// Its name, for messages.
    pub file: &'s str,
    /// Its text.
    pub text: &'s str,
}

/// Loaded guardrails.
#[derive(Debug)]
pub struct Loaded {
    /// Ready to judge by.
    pub guardrails: Guardrails,
    /// Findings that do not prevent their use, for each file that has some.
    pub warnings: Vec<Report>,
}

/// Loads the built-in guardrails.
pub fn load_default() -> Result<Loaded, Vec<Report>> {
    load(&[Source {
        file: DEFAULT_FILE,
        text: DEFAULT,
    }])
}

/// Loads guardrail files, or says everything that is wrong with any of them. Ids are unique across
/// all files.
pub fn load(sources: &[Source<'_>]) -> Result<Loaded, Vec<Report>> {
    let mut compiled = Vec::new();
    let mut reports = Vec::new();
    for source in sources {
        let mut diagnostics = Diagnostics::default();
        read::file(source, &mut compiled, &mut diagnostics);
        if !diagnostics.is_empty() {
            reports.push(Report {
                file: source.file.to_owned(),
                text: source.text.to_owned(),
                diagnostics,
            });
        }
    }
    if reports.iter().any(|report| report.diagnostics.has_errors()) {
        reports.retain(|report| report.diagnostics.has_errors());
        return Err(reports);
    }
    let identity: Vec<_> = compiled.iter().map(Compiled::identity).collect();
    // Text, numbers and booleans have a canonical form, whatever they are.
    let digest = canonical::digest(&identity).unwrap_or_default();
    Ok(Loaded {
        guardrails: Guardrails {
            needs: Needs::of(&compiled),
            read_precedents: compiled
                .iter()
                .any(|one| one.guardrail.enabled && one.rule.reads_precedents()),
            compiled,
            digest,
        },
        warnings: reports,
    })
}

/// What a violated guardrail does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The action may not go on.
    Block,
    /// It may, and the agent is told.
    Warn,
    /// It may, and only the record says so.
    Log,
}

impl Severity {
    /// All, the gravest first.
    pub const ALL: [Self; 3] = [Self::Block, Self::Warn, Self::Log];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Warn => "warn",
            Self::Log => "log",
        }
    }
}

/// A guardrail as people read it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guardrail {
    /// Unique among all that are loaded together.
    pub id: String,
    /// For people. The id if the file gives none.
    pub name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What happens when it is violated.
    pub severity: Severity,
    /// Whether it is evaluated at all.
    pub enabled: bool,
    /// The projects and scopes it is for; none means all.
    pub scope: Vec<String>,
    /// What the agent is told, with `{field}` to be filled in.
    pub message: String,
    /// What the agent should do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// When it is violated: the CEL expression, or the older form's conditions and requirements.
    pub when: String,
    /// The file it is from.
    pub source: String,
    /// The line it starts on.
    pub line: usize,
}

/// A violated guardrail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// Which.
    pub guardrail_id: String,
    /// Its name.
    pub name: String,
    /// Why; if the guardrail could not be evaluated, also what to send.
    pub message: String,
    /// What it does.
    pub severity: Severity,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// What the guardrails say to an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether it may go on: true if nothing blocks it.
    pub allowed: bool,
    /// What blocks it, in the order of the files.
    pub violations: Vec<Violation>,
    /// What speaks against it.
    pub warnings: Vec<Violation>,
    /// Ids of violated guardrails that are only recorded.
    pub logged: Vec<String>,
    /// How many guardrails were evaluated: those that are enabled and whose scope applies.
    pub evaluated: usize,
}

/// Compiled guardrails.
#[derive(Debug)]
pub struct Guardrails {
    compiled: Vec<Compiled>,
    needs: Needs,
    /// Whether any of them that is enabled does.
    read_precedents: bool,
    digest: String,
}

impl Guardrails {
    /// Lowercase hex SHA-256 over everything that can change a verdict, in order: neither comments
    /// nor descriptions nor file names.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// All of them, in the order of the files, disabled ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Guardrail> {
        self.compiled.iter().map(|compiled| &compiled.guardrail)
    }

    /// How many are enabled.
    pub fn enabled(&self) -> usize {
        self.iter().filter(|guardrail| guardrail.enabled).count()
    }

    /// Whether somebody has to look for precedents before this action is judged: a guardrail asks for
    /// them, and nothing else about the action settles it.
    pub fn want_precedents(&self, action: &ProposedAction) -> bool {
        if !self.read_precedents {
            return false;
        }
        let asked = Asked::new(action, History::Unknown);
        let met = self.needs.met(action);
        let mut all = self.needs.gates().iter().zip(&self.compiled);
        all.any(|(gate, compiled)| {
            gate.enabled
                && compiled.rule.reads_precedents()
                && compiled.guardrail.applies_to(action)
                && met.opens(*gate)
                && compiled.rule.violated(&asked).is_err()
        })
    }

    /// Judges an action by what it has, its precedents included.
    pub fn check(&self, action: &ProposedAction) -> Verdict {
        let asked = Asked::new(action, History::Known);
        let mut verdict = Verdict {
            allowed: true,
            violations: Vec::new(),
            warnings: Vec::new(),
            logged: Vec::new(),
            evaluated: 0,
        };
        let met = self.needs.met(action);
        for (gate, compiled) in self.needs.gates().iter().zip(&self.compiled) {
            let guardrail = &compiled.guardrail;
            if !gate.enabled || (gate.scoped && !guardrail.applies_to(action)) {
                continue;
            }
            verdict.evaluated += 1;
            if !met.opens(*gate) {
                continue;
            }
            let trouble = match compiled.rule.violated(&asked) {
                Ok(false) => continue,
                Ok(true) => None,
                Err(trouble) => Some(trouble),
            };
            match guardrail.severity {
                Severity::Block => {
                    verdict.allowed = false;
                    verdict.violations.push(compiled.violation(action, trouble));
                }
                Severity::Warn => verdict.warnings.push(compiled.violation(action, trouble)),
                Severity::Log => verdict.logged.push(guardrail.id.clone()),
            }
        }
        verdict
    }
}

impl Guardrail {
    /// Whether its scope has a word on this action: it has none of its own, the action names
    /// neither project nor scope, or one of these is listed.
    pub fn applies_to(&self, action: &ProposedAction) -> bool {
        if self.scope.is_empty() {
            return true;
        }
        let named = [action.project(), action.scope()];
        named == [None, None]
            || named
                .into_iter()
                .flatten()
                .any(|name| self.scope.iter().any(|listed| listed == name))
    }
}

/// A guardrail and what it takes to judge by it.
#[derive(Debug)]
struct Compiled {
    guardrail: Guardrail,
    rule: Rule,
    message: Template,
    suggestion: Option<Template>,
}

/// What the digest is taken over.
#[derive(Serialize)]
struct Identity<'g> {
    id: &'g str,
    name: &'g str,
    severity: Severity,
    enabled: bool,
    scope: &'g [String],
    message: &'g str,
    suggestion: Option<&'g str>,
    rule: rule::Written,
}

impl Compiled {
    fn identity(&self) -> Identity<'_> {
        let guardrail = &self.guardrail;
        Identity {
            id: &guardrail.id,
            name: &guardrail.name,
            severity: guardrail.severity,
            enabled: guardrail.enabled,
            scope: &guardrail.scope,
            message: &guardrail.message,
            suggestion: guardrail.suggestion.as_deref(),
            rule: self.rule.written(),
        }
    }

    fn violation(&self, action: &ProposedAction, trouble: Option<String>) -> Violation {
        let guardrail = &self.guardrail;
        let mut message = self.message.fill(action);
        if let Some(trouble) = trouble {
            message.push_str(" (could not be evaluated: ");
            message.push_str(&trouble);
            message.push(')');
        }
        Violation {
            guardrail_id: guardrail.id.clone(),
            name: guardrail.name.clone(),
            message,
            severity: guardrail.severity,
            suggestion: self.suggestion.as_ref().map(|text| text.fill(action)),
        }
    }
}
