use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::arguments::Path;
use super::attacks::{self, Attack, Attacks};
use super::response::{Finding, Response};
use super::{
    AttackPattern, Body, Compiled, InlineRule, RuleCompiler, RuleError, RuleSettings, RuleSpec,
    Sight, Subject, documented,
};
use crate::decision::{Decision, RedactionSpec, RuleCost, Severity};
use crate::definitions::{self, Definition};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::{EventType, Structured};
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::MapReader;
use crate::scan::EventSet;
use crate::views;

documented! {
    /// Stops tools whose definitions give orders to the model, or have changed since they were reviewed.
    ///
    /// Judges `tool_definitions`: send one when tools are connected, with the listing as
    /// `payload.result`. That is MCP's `tools/list`, a list of functions as chat APIs take them, or an
    /// A2A agent card. Whoever writes a description writes into the model's prompt, so a finding is
    ///
    /// - instructions to the model in any string or member name: descriptions, schemas, enumerations,
    ///   examples, skills, names (`TOOL_DEFINITION_POISONED`, critical);
    /// - characters that nobody sees: zero-width and control characters, direction controls, tags, runs
    ///   of variation selectors (likewise);
    /// - a definition that is not the one that was pinned, and a name that is defined twice
    ///   (`TOOL_DEFINITION_CHANGED`, high);
    /// - a definition without a pin, where there are pins (`TOOL_DEFINITION_CHANGED`, medium);
    /// - a listing without any definition (`TOOL_DEFINITION_CHANGED`, high).
    ///
    /// Of several findings the one with the strongest action decides; `classifier_result.findings` has
    /// the first 32 of them.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for. Default: `[tool-description, tool-output-languages]`.
    /// - `evasions`: whether to see through disguises: lookalike and invisible characters, leetspeak,
    ///   spaced-out letters, escapes and encodings. Default: `true`.
    /// - `pins`: the digest of each reviewed definition, by name, as `portcullis tools pin` writes them.
    /// - `unpinned`: what is done about a definition that `pins` does not have: `stop`, `pause`, `warn`
    ///   (the default) or `allow`.
    /// - `action`: `stop`, `pause` to ask a person, or `warn` to allow it and raise an alert.
    ///   Default: `stop`.
    ///
    /// With `events` on the rule, it judges the `payload.result` of `tool_call_result` as well or instead.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: tool-definitions
    ///     config:
    ///       pins:
    ///         read_file: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    ///       unpinned: stop
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ToolDefinitions {
        /// What to look for, in order.
        pub patterns: Vec<AttackPattern>,
        /// Whether to see through disguises.
        pub evasions: bool,
        /// The digests of reviewed definitions, by name; with `None` nothing is compared.
        pub pins: Option<BTreeMap<String, String>>,
        /// What is done about a definition without a pin; `None` for nothing.
        pub unpinned: Option<Response>,
        /// What is done about any other finding.
        pub action: Response,
    }
}

impl ToolDefinitions {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "tool-definitions",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolDefinitions]),
        doc: Self::DOC,
        read: Self::read,
    };

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let place = config.place();
        let families = config
            .placed_texts("families", d)
            .unwrap_or_else(|| default_families(place));
        let pins = config.get("pins");
        let pins = pins.and_then(|node| definitions::pins_of(node, d));
        let names = [
            ("stop", Some(Response::Stop)),
            ("pause", Some(Response::Pause)),
            ("warn", Some(Response::Warn)),
            ("allow", None),
        ];
        let unpinned = config.one_of("unpinned", &names, d);
        if let Some(place) = config.key_place("unpinned")
            && pins.is_none()
        {
            d.warning(place, "`unpinned` does nothing without `pins`");
        }
        Some(RuleSettings::ToolDefinitions(Self {
            patterns: attacks::of_families(&families, d),
            evasions: config.boolean("evasions", d).unwrap_or(true),
            pins,
            unpinned: unpinned.unwrap_or(Some(Response::Warn)),
            action: Response::read(config, d),
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        for name in events.names() {
            if !EventType::from(name).has_result() {
                let message = format!("`{name}` has no `payload.result`, so it lists no tools");
                compiler
                    .diagnostics
                    .error(Place::default(), message)
                    .help("name `tool_definitions` or `tool_call_result`");
            }
        }
        let sight = Sight::of(self.evasions, Sight::All);
        let default = |_| (Self::SPEC.events)();
        let (attacks, _) = Attacks::compile(&self.patterns, sight, default, compiler);
        Compiled {
            events,
            reads: Parts::TEXT.and(Parts::RESULT),
            body: Body::Inline(Box::new(CompiledDefinitions {
                id: compiler.id.clone(),
                attacks,
                settings: self.clone(),
            })),
        }
    }
}

impl Default for ToolDefinitions {
    /// The built-in families, and no pins.
    fn default() -> Self {
        let families = default_families(Place::default());
        Self {
            patterns: attacks::of_families(&families, &mut Diagnostics::default()),
            evasions: true,
            pins: None,
            unpinned: Some(Response::Warn),
            action: Response::default(),
        }
    }
}

fn default_families(place: Place) -> Vec<(String, Place)> {
    let names = ["tool-description", "tool-output-languages"];
    names.map(|name| (name.to_owned(), place)).to_vec()
}

struct CompiledDefinitions {
    id: RuleId,
    attacks: Attacks,
    settings: ToolDefinitions,
}

impl InlineRule for CompiledDefinitions {
    fn warm(&self) {
        self.attacks.unspaced();
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let listing = match subject.input.event.structured() {
            Some(Structured::Result(listing)) => listing,
            _ => &Value::Null,
        };
        let definitions = definitions::of(listing);
        let mut problems = Vec::new();
        self.find_orders(subject, &mut problems);
        find_hidden(subject, listing, &mut problems);
        self.compare(&definitions, &mut problems)?;
        if definitions.is_empty() {
            problems.push(Problem::at(Kind::Nothing, String::new(), String::new()));
        }
        Ok(self.decide(problems, &definitions))
    }
}

impl CompiledDefinitions {
    /// One problem for each string, whatever its disguises.
    fn find_orders(&self, subject: &Subject<'_>, problems: &mut Vec<Problem>) {
        let attacks = self.attacks.find(subject);
        let of_one_text =
            |a: &Attack, b: &Attack| subject.path(a.sign.place) == subject.path(b.sign.place);
        for group in attacks.chunk_by(of_one_text) {
            let weight = |attack: &&Attack| attack.sign.weight;
            let telling = group.iter().rev();
            let telling = telling.max_by(|a, b| weight(a).total_cmp(&weight(b)));
            if let Some(Attack { sign, .. }) = telling {
                let path = subject.path(sign.place).into_owned();
                let words = &subject.text(sign.place)[sign.range.clone()];
                problems.push(Problem::at(Kind::Orders, path, excerpt(words)));
            }
        }
    }

    /// What was pinned with what is there.
    fn compare(
        &self,
        definitions: &[Definition<'_>],
        problems: &mut Vec<Problem>,
    ) -> Result<(), RuleError> {
        let mut names = BTreeSet::new();
        for definition in definitions {
            let kind = if !names.insert(definition.name) {
                Kind::Twice
            } else if let Some(pins) = &self.settings.pins {
                match pins.get(definition.name) {
                    None => Kind::Unpinned,
                    Some(pin) => {
                        let digest = definition.digest();
                        let digest = digest.map_err(|error| RuleError(error.to_string()))?;
                        if digest == *pin {
                            continue;
                        }
                        Kind::Changed
                    }
                }
            } else {
                continue;
            };
            let path = definition.pointer.clone();
            problems.push(Problem::at(kind, path, String::new()));
        }
        Ok(())
    }

    fn decide(&self, problems: Vec<Problem>, definitions: &[Definition<'_>]) -> Option<Decision> {
        const SHOWN: usize = 32;
        let mut found: Vec<(Response, Problem)> = problems
            .into_iter()
            .filter_map(|problem| Some((self.response(problem.kind)?, problem)))
            .collect();
        found.sort_by_key(|(response, _)| *response);
        let (response, first) = found.first()?;
        let reason = first.reason(definitions);
        let reason = match found.len() - 1 {
            0 => reason,
            more => format!("{reason} (and {more} more)"),
        };
        let mut decision = response.decide(Finding {
            rule: self.id.clone(),
            error_code: first.kind.error_code(),
            severity: first.kind.severity(),
            reason,
            remediation: first.kind.remediation(),
        });
        let shown = found.iter().take(SHOWN);
        let shown = shown.map(|(response, problem)| problem.to_json(*response, definitions));
        decision.classifier_result = Some(Box::new(Map::from_iter([
            ("findings".to_owned(), shown.collect()),
            ("count".to_owned(), Value::from(found.len())),
        ])));
        Some(decision)
    }

    fn response(&self, kind: Kind) -> Option<Response> {
        match kind {
            Kind::Unpinned => self.settings.unpinned,
            _ => Some(self.settings.action),
        }
    }
}

/// What is wrong with a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Orders,
    Hidden,
    Changed,
    Twice,
    Unpinned,
    Nothing,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Hidden => "hidden",
            Self::Changed => "changed",
            Self::Twice => "twice",
            Self::Unpinned => "unpinned",
            Self::Nothing => "nothing",
        }
    }

    fn error_code(self) -> ErrorCode {
        match self {
            Self::Orders | Self::Hidden => ErrorCode::ToolDefinitionPoisoned,
            _ => ErrorCode::ToolDefinitionChanged,
        }
    }

    fn severity(self) -> Severity {
        match self {
            Self::Orders | Self::Hidden => Severity::Critical,
            Self::Unpinned => Severity::Medium,
            _ => Severity::High,
        }
    }

    fn remediation(self) -> &'static str {
        match self {
            Self::Orders | Self::Hidden => {
                "drop the tool: do not show this definition to the model"
            }
            Self::Changed => "review the definition, then pin it again with `portcullis tools pin`",
            Self::Twice => "drop one of the two, or give each server's tools a prefix of their own",
            Self::Unpinned => "review the definition, then pin it with `portcullis tools pin`",
            Self::Nothing => {
                "send the listing as payload.result: MCP's tools/list, functions or an agent card"
            }
        }
    }
}

struct Problem {
    kind: Kind,
    /// As in a redaction.
    path: String,
    /// What was found there, fit to be shown.
    words: String,
}

impl Problem {
    fn at(kind: Kind, path: String, words: String) -> Self {
        Self { kind, path, words }
    }

    /// The definition that it is in; the innermost, if there are several.
    fn tool<'d>(&self, definitions: &'d [Definition<'_>]) -> Option<&'d str> {
        let path = self.path.strip_prefix('#').unwrap_or(&self.path);
        let holds = |definition: &&Definition<'_>| {
            let rest = path.strip_prefix(&*definition.pointer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let holding = definitions.iter().filter(holds);
        let innermost = holding.max_by_key(|definition| definition.pointer.len());
        innermost.map(|definition| definition.name)
    }

    fn reason(&self, definitions: &[Definition<'_>]) -> String {
        const PATH: usize = 100;
        let tool = self.tool(definitions);
        let tool = tool.map_or("The listing".to_owned(), |tool| {
            format!("`{}`", excerpt(tool))
        });
        let path = match &*self.path {
            "" => "payload.result".to_owned(),
            path => legible(path, PATH),
        };
        let words = &self.words;
        match self.kind {
            Kind::Orders => format!("{tool} gives orders to the model in {path}: '{words}'"),
            Kind::Hidden => format!("{tool} has characters that nobody sees in {path}: {words}"),
            Kind::Changed => format!("{tool} has changed since it was reviewed"),
            Kind::Twice => format!("{tool} is defined twice"),
            Kind::Unpinned => format!("{tool} was never reviewed"),
            Kind::Nothing => "The listing defines no tools".to_owned(),
        }
    }

    fn to_json(&self, response: Response, definitions: &[Definition<'_>]) -> Value {
        json!({
            "problem": self.kind.as_str(), "action": response,
            "tool": self.tool(definitions), "path": self.path,
            "reason": self.reason(definitions), "remediation": self.kind.remediation(),
        })
    }
}

/// Characters that nobody sees, in strings that give no orders anyway.
fn find_hidden(subject: &Subject<'_>, listing: &Value, problems: &mut Vec<Problem>) {
    let known: BTreeSet<String> = problems.iter().map(|one| one.path.clone()).collect();
    let mut look = |text: &str, path: &dyn Fn() -> String| {
        let Some(range) = views::hidden(text) else {
            return;
        };
        let path = path();
        if !known.contains(&path) {
            problems.push(Problem::at(Kind::Hidden, path, spelled(&text[range])));
        }
    };
    look(subject.input.event.text(), &|| {
        RedactionSpec::TEXT.to_owned()
    });
    each_text(listing, &Path::Root, &mut look);
}

type Look<'l> = dyn FnMut(&str, &dyn Fn() -> String) + 'l;

/// Every string and every member's name.
fn each_text(value: &Value, path: &Path<'_>, look: &mut Look<'_>) {
    match value {
        Value::String(text) => look(text, &|| path.pointer()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                each_text(item, &Path::Item(path, index), look);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                let path = Path::Member(path, name);
                look(name, &|| path.pointer_after("#"));
                each_text(value, &path, look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What hidden characters say, or which they are.
fn spelled(hidden: &str) -> String {
    const SHOWN: usize = 4;
    let words = excerpt(hidden);
    if !words.is_empty() {
        return format!("'{words}'");
    }
    let mut names: Vec<String> = hidden
        .chars()
        .take(SHOWN)
        .map(|c| format!("U+{:04X}", u32::from(c)))
        .collect();
    if hidden.chars().nth(SHOWN).is_some() {
        names.push("…".to_owned());
    }
    names.join(" ")
}

fn excerpt(text: &str) -> String {
    const LONGEST: usize = 50;
    legible(text, LONGEST)
}

/// The first characters of a text on one line, with those that nobody sees gone or made plain.
fn legible(text: &str, most: usize) -> String {
    /// Bytes that a character has, with as many that are dropped.
    const ROOM: usize = 16;
    let start = &text[..text.floor_char_boundary(most * ROOM)];
    let plain = views::fold(start);
    let plain = plain.as_ref().map_or(start, |view| view.text());
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ").chars().take(most).collect()
}
