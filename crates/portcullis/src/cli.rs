//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// The gate between AI agents and the world.
///
/// Judges each step of a running agent before it happens and answers ALLOW, REDACT, RETRY, PAUSE
/// or STOP.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or bad input, \
                  3 something needed is unavailable.\n\n\
                  Examples:\n  \
                  portcullis eval --format text examples/events.ndjson\n  \
                  portcullis policy lint my-policy.yaml"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge events, one JSON object a line.
    Eval(EvalArgs),
    /// Check, test, explain and compare policy packs.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Look up the built-in rules.
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Print a completion script for your shell.
    Completions(CompletionsArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Find mistakes in packs.
    Lint(LintArgs),
    /// Run the cases that are kept beside a pack.
    Test(TestArgs),
    /// Say what a pack does.
    Explain(ExplainArgs),
    /// Replay recorded events through two packs and show what would change.
    Diff(DiffArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// List the built-in rules.
    List(RuleListArgs),
    /// Print a rule's reference page.
    Explain(RuleExplainArgs),
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Which policy.
#[derive(Debug, Clone, Args)]
pub(crate) struct PolicyArgs {
    /// The policy pack; without it, the built-in one.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The pack's environment to apply, such as `dev`.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) env: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each line is {\"context\": {…}, \"event\": {…}}; strikes and quarantine carry over \
                        between lines of one run_id. A bad line gives {\"error\": {\"line\", \"message\"}} \
                        and the rest goes on; the exit code is then 2. Verdicts do not change it. Alerts go to stderr.\n\n\
                        Examples:\n  \
                        portcullis eval < events.ndjson > evaluations.ndjson\n  \
                        portcullis eval --policy strict.yaml --env prod events.ndjson\n  \
                        portcullis eval --format text examples/events.ndjson"
)]
pub(crate) struct EvalArgs {
    /// Events as NDJSON; `-` or nothing for standard input.
    pub(crate) events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Evaluations as NDJSON, or a table for people.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub(crate) format: Format,
    /// Add the event as it may go on, with redactions applied, as `event`; null after a STOP.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Put the pack in force again whenever its file changes.
    #[arg(long, requires = "policy")]
    pub(crate) watch: bool,
    /// Refuse longer lines.
    #[arg(long, value_name = "N", default_value_t = 8 << 20)]
    pub(crate) max_line_bytes: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis policy lint policies/*.yaml\n  \
                        portcullis policy lint --deny-warnings --format json strict.yaml")]
pub(crate) struct LintArgs {
    /// The packs to check; without any, the built-in one.
    pub(crate) packs: Vec<PathBuf>,
    /// Count warnings as errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The cases of strict.yaml are in strict.cases.yaml beside it:\n\n  \
                        cases:\n    \
                        - name: deleting is never allowed\n      \
                        event: {event_type: tool_call_start, tool_name: filesystem.delete}\n      \
                        expect: {action: STOP, rule: tool-allowlist}\n\n\
                        Examples:\n  \
                        portcullis policy test strict.yaml\n  \
                        portcullis policy test strict.yaml --cases more-cases.yaml"
)]
pub(crate) struct TestArgs {
    /// The pack; without it, the built-in one.
    pub(crate) pack: Option<PathBuf>,
    /// The cases, if they are elsewhere.
    #[arg(long, value_name = "FILE", requires = "pack")]
    pub(crate) cases: Option<PathBuf>,
    /// The environment for cases that name none.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) env: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis policy explain\n  \
                        portcullis policy explain --policy strict.yaml --env prod")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if any verdict would change.\n\n\
                        Examples:\n  \
                        portcullis policy diff old.yaml new.yaml < events.ndjson\n  \
                        portcullis policy diff old.yaml new.yaml --events last-week.ndjson --env prod")]
pub(crate) struct DiffArgs {
    /// The pack in force.
    pub(crate) old: PathBuf,
    /// The pack to compare it with.
    pub(crate) new: PathBuf,
    /// Recorded events, as `eval` takes them; `-` or nothing for standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// The environment to apply to both.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) env: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Refuse longer lines.
    #[arg(long, value_name = "N", default_value_t = 8 << 20)]
    pub(crate) max_line_bytes: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  portcullis rule list")]
pub(crate) struct RuleListArgs {
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  portcullis rule explain expression")]
pub(crate) struct RuleExplainArgs {
    /// The rule.
    pub(crate) id: String,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
                        portcullis completions bash > ~/.local/share/bash-completion/completions/portcullis")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.get_subcommands().next().is_none() {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(help.contains("Example"), "`{path}` has no example");
            }
            for sub in command.get_subcommands() {
                check(sub, &path);
            }
        }
        check(&Cli::command(), "");
    }
}
