use std::borrow::Cow;

use serde::Serialize;

use super::arguments::has_word;
use super::response::{Finding, Response};
use super::{
    Body, Compiled, EntityPattern, InlineRule, Lookup, RuleCompiler, RuleError, RuleSettings,
    RuleSpec, Sight, Subject, documented, entities,
};
use crate::decision::{Decision, RuleCost, Severity};
use crate::detectors::{self, Kind};
use crate::error_code::ErrorCode;
use crate::evaluation::Parts;
use crate::event::EventType;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::MapReader;
use crate::scan::{EventSet, PatternId};

documented! {
    /// Stops commands that hide what they do or send secret files out.
    ///
    /// Judges `tool_call_start`: arguments that are commands by their name (`command`, `script`,
    /// `code`, `args`, `cell`, …), and every argument of a tool that is a shell by its name (`bash`,
    /// `run_command`, `terminal`, `notebook`, …). Looks for downloads and decoded text piped into a
    /// shell, split and escaped command names, reverse shells, PowerShell's encoded commands, and the
    /// wiping of histories; and for commands that send keys, credentials, `.env` files or the whole
    /// environment to the network (`SHELL_OBFUSCATION`, critical). A key that is used for its purpose
    /// passes, as in `ssh -i ~/.ssh/id_ed25519 host`.
    ///
    /// ## Configuration
    ///
    /// - `families`: detector families to look for: `obfuscation`, `secret-files`. Default: both.
    /// - `action`: `stop`, `pause` to ask a person, or `warn` to allow it and raise an alert.
    ///   Default: `stop`.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: shell-obfuscation
    ///     config:
    ///       action: pause
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ShellObfuscation {
        /// What to look for, in order.
        pub patterns: Vec<EntityPattern>,
        /// What is done about a finding.
        pub action: Response,
    }
}

impl ShellObfuscation {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "shell-obfuscation",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: || EventSet::from_iter([EventType::ToolCallStart]),
        doc: Self::DOC,
        read: Self::read,
    };

    fn of_families(families: &[(String, Place)], action: Response, d: &mut Diagnostics) -> Self {
        let patterns = entities::of_families(Kind::Shell, families, d);
        Self { patterns, action }
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of every rule's reader"
    )]
    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let families = config
            .placed_texts("families", d)
            .unwrap_or_else(|| default_families(config.place()));
        let action = Response::read(config, d);
        let settings = Self::of_families(&families, action, d);
        Some(RuleSettings::ShellObfuscation(settings))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(Self::SPEC.events);
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            let spec = pattern.pattern.spec(Kind::Shell);
            if let Some(id) = compiler.pattern(&spec, &events, pattern.place) {
                patterns.push((id, pattern.entity.clone()));
            }
        }
        Compiled {
            events,
            reads: Parts::TOOL_ARGS,
            body: Body::Inline(Box::new(CompiledShell {
                id: compiler.id.clone(),
                lookup: Lookup::new(patterns.iter().map(|(id, _)| *id)),
                patterns,
                action: self.action,
            })),
        }
    }
}

impl Default for ShellObfuscation {
    /// The built-in families.
    fn default() -> Self {
        let families = default_families(Place::default());
        Self::of_families(&families, Response::default(), &mut Diagnostics::default())
    }
}

fn default_families(place: Place) -> Vec<(String, Place)> {
    let names = detectors::names(Kind::Shell);
    names.map(|name| (name.to_owned(), place)).collect()
}

struct CompiledShell {
    id: RuleId,
    lookup: Lookup,
    patterns: Vec<(PatternId, String)>,
    action: Response,
}

impl InlineRule for CompiledShell {
    fn is_idle(&self, subject: &Subject<'_>) -> bool {
        subject.scan.leaves.is_empty() || subject.input.event.event_type.has_result()
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        let event = subject.input.event;
        if self.is_idle(subject) {
            return Ok(None);
        }
        let tool = event.tool_name.as_deref().unwrap_or_default();
        let shell = has_word(tool, &SHELLS);
        let counts = |path: &str| path.starts_with('/') && (shell || is_command(path));
        let mut candidates = subject.candidates(&self.lookup).into_iter();
        let found = candidates.find_map(|index| {
            let (id, technique) = &self.patterns[index];
            let path = subject.find_path(*id, Sight::Plain, counts)?;
            Some((technique, path))
        });
        Ok(found.map(|(technique, path)| {
            self.action.decide(Finding {
                rule: self.id.clone(),
                error_code: ErrorCode::ShellObfuscation,
                severity: Severity::Critical,
                reason: format!("The command in {path} {}", what(technique)),
                remediation: "write the command out plainly, one step at a time",
            })
        }))
    }
}

/// What a command does. Techniques of `secret-files` say it, the others how it hides it.
fn what(technique: &str) -> Cow<'_, str> {
    if technique.starts_with("sends out ") {
        Cow::Borrowed(technique)
    } else {
        Cow::Owned(format!("hides what it does: {technique}"))
    }
}

/// Words in the name of a tool that runs commands.
const SHELLS: [&str; 23] = [
    "shell",
    "bash",
    "sh",
    "zsh",
    "powershell",
    "pwsh",
    "cmd",
    "command",
    "exec",
    "execute",
    "terminal",
    "console",
    "subprocess",
    "process",
    "script",
    "ssh",
    "cli",
    "run",
    "interpreter",
    "repl",
    "jupyter",
    "notebook",
    "crontab",
];

/// Words in the name of an argument that is a command.
const COMMANDS: [&str; 17] = [
    "command",
    "cmd",
    "script",
    "shell",
    "bash",
    "sh",
    "powershell",
    "exec",
    "run",
    "code",
    "arg",
    "argv",
    "program",
    "entrypoint",
    "source",
    "entry",
    "cell",
];

/// Whether the value at this pointer goes under a name for commands.
fn is_command(pointer: &str) -> bool {
    let mut names = pointer.rsplit('/');
    let name = names.find(|name| !name.bytes().all(|b| b.is_ascii_digit()));
    name.is_some_and(|name| has_word(name, &COMMANDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::ScannerBuilder;

    /// The examples of an entry are checked against it alone; an ordinary command must pass them all.
    #[test]
    fn what_passes_one_entry_passes_all() {
        let families = detectors::names(Kind::Shell)
            .map(|name| detectors::family(Kind::Shell, name).unwrap().unwrap());
        let entries: Vec<_> = families.flat_map(|family| family.entries).collect();
        let passes = || entries.iter().flat_map(|entry| &entry.passes);
        assert!(passes().count() >= 40);
        for entry in &entries {
            let mut builder = ScannerBuilder::default();
            let spec = entry.pattern.spec(Kind::Shell);
            let id = builder.add(&spec, &EventSet::any()).unwrap();
            assert!(
                !builder.is_unfiltered(id),
                "{} runs over every event",
                entry.id
            );
            let scanner = builder.build();
            for text in passes() {
                assert_eq!(scanner.find(id, text), None, "{} hits {text:?}", entry.id);
            }
        }
    }

    #[test]
    fn commands_are_told_by_the_names_they_go_under() {
        for (pointer, expected) in [
            ("/command", true),
            ("/args/0", true),
            ("/steps/3/run", true),
            ("/shellCommand", true),
            ("/post_scripts/1", true),
            ("/cells/0/source/2", true),
            ("/cron_entry", true),
            ("/body", false),
            ("/content", false),
            ("/description", false),
            ("/0/1", false),
        ] {
            assert_eq!(is_command(pointer), expected, "{pointer}");
        }
    }
}
