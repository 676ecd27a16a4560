//! What can be typed.

mod a2a;
mod approvals;
#[cfg(feature = "models")]
mod classifier;
mod decision;
mod deep;
mod quarantine;
mod server;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use portcullis_core::Severity;
use portcullis_core::detectors::Kind;

pub(crate) use a2a::{A2aCommand, A2aImportArgs, ConvertArgs, LimitArgs, StreamArgs};
pub(crate) use approvals::{
    ApprovalListArgs, ApprovalShowArgs, ApprovalWaitArgs, ApprovalsCommand, DecideArgs, KeptArgs,
};
#[cfg(feature = "models")]
pub(crate) use classifier::{
    ClassifierCommand, EvalClassifierArgs, ReportFormat, TrainClassifierArgs,
};
pub(crate) use decision::{
    CalibrationArgs, DecisionCommand, ExportArgs, FileArgs, FilterArgs, ForgetArgs, ImportArgs,
    ListArgs, MemoryArgs, Place, QueryArgs, RecordArgs, ReviewArgs, ShowDecisionArgs,
};
pub(crate) use deep::{HostArgs, SidecarArgs, WorkerArgs};
pub(crate) use quarantine::{
    QuarantineAddArgs, QuarantineCommand, QuarantineListArgs, QuarantineReleaseArgs,
    QuarantineShowArgs,
};
pub(crate) use server::{
    ActionArgs, ActionCheckArgs, ConnectArgs, EvidenceCommand, GuardrailCommand, GuardrailLintArgs,
    GuardrailListArgs, HowArgs, IntentArgs, LocalArgs, ServeArgs, ShowArgs, TailArgs, TokenCommand,
    TokenNewArgs, VerifyArgs, WhichArgs,
};

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
                  portcullis serve\n  \
                  portcullis check 'Deploy to production' --stakes high -x affectsProduction=true\n  \
                  portcullis decision record 'Use PostgreSQL for the ledger' --confidence 0.8\n  \
                  portcullis eval --format text examples/events.ndjson\n  \
                  portcullis scan .\n  \
                  portcullis policy lint my-policy.yaml"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer agents over HTTP: CSTP, the guard API, the agent card.
    Serve(ServeArgs),
    /// Run a policy's deep rules for gateways that put their questions into a Redis.
    Worker(WorkerArgs),
    /// Run a policy's deep rules for gateways that ask by gRPC.
    Sidecar(SidecarArgs),
    /// Ask whether an action is allowed.
    Check(ActionCheckArgs),
    /// Announce an action, and hear what speaks for and against it.
    Intent(IntentArgs),
    /// Remember decisions and what came of them, and find them again.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      portcullis decision record 'Deploy auth v2' --id dec-1 --confidence 0.8 --review-in 7d\n  \
                      portcullis decision review dec-1 success --lessons 'Keep the rollback window'\n  \
                      portcullis decision query 'roll out the login service'\n  \
                      portcullis decision calibration"
    )]
    Decision(DecisionCommand),
    /// Judge events, one JSON object a line.
    Eval(EvalArgs),
    /// Find secrets, personal data and injected instructions in files.
    Scan(ScanArgs),
    /// Train a classifier of your own, and measure any on your data.
    #[cfg(feature = "models")]
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      portcullis classifier train examples.jsonl --out scope.json\n  \
                      portcullis classifier eval --model scope.json more-examples.jsonl"
    )]
    Classifier(ClassifierCommand),
    /// Check, test, explain and compare policy packs.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Check and list the guardrails that actions are checked against.
    #[command(subcommand)]
    Guardrail(GuardrailCommand),
    /// Look up the built-in rules and detectors.
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Check and pin the definitions of tools that somebody else wrote.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// See which runs are in quarantine, put one there, let one out.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      portcullis quarantine list\n  \
                      portcullis quarantine release run-17 --reason 'a false alarm'"
    )]
    Quarantine(QuarantineCommand),
    /// See which steps wait for a person, and say yes or no to one.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      portcullis approvals list\n  \
                      portcullis approvals approve 019a8b5e8f2c7cc0b1a53f0a8a6e2d11 --note 'checked with the customer'"
    )]
    Approvals(ApprovalsCommand),
    /// Turn what agents tell each other into evidence.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      portcullis a2a convert packet.json\n  \
                      portcullis a2a import --agent agent://planner < message.json | portcullis a2a convert --ndjson"
    )]
    A2a(A2aCommand),
    /// Verify and read the evidence log.
    #[command(subcommand)]
    Evidence(EvidenceCommand),
    /// Make tokens for agents.
    #[command(subcommand)]
    Token(TokenCommand),
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
    /// List the built-in rules, or what their detectors look for.
    List(RuleListArgs),
    /// Print a rule's reference page, or what a detector looks for.
    Explain(RuleExplainArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Write down the digest of each definition, once somebody has reviewed them.
    Pin(PinArgs),
    /// Look for orders to the model, hidden characters and changes since the review.
    Check(CheckArgs),
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
                        between lines of one run_id. A bad line gives {\"error\": {\"line\", \"field\", \"message\"}}, \
                        `field` where one is to blame, \
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

/// How to print findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScanFormat {
    /// For people.
    Text,
    /// One finding a line, without its value.
    Json,
    /// SARIF 2.1.0, for code hosts and editors.
    Sarif,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A line with `portcullis:allow`, or `portcullis:allow ENTRY-ID`, is not reported. No value is \
                  ever printed whole.\n\n\
                  Exit codes: 0 nothing found, 1 findings, 2 wrong usage or a file that could not be \
                  scanned; the others are scanned all the same.\n\n\
                  Examples:\n  \
                  portcullis scan .\n  \
                  portcullis scan --kind secrets,pii --min-severity high src docs\n  \
                  portcullis scan --format sarif --output portcullis.sarif --exit-zero .\n  \
                  git diff --cached | portcullis scan"
)]
pub(crate) struct ScanArgs {
    /// Files, and folders with all that is in them; `-` or nothing for standard input.
    pub(crate) paths: Vec<PathBuf>,
    /// What to look for: `secrets`, `injection`, `pii`. Personal data is in most files for good
    /// reason, so it has to be asked for. [default: secrets,injection]
    #[arg(long, value_name = "KIND", value_delimiter = ',', hide_possible_values = true, value_parser = kind(&FOUND))]
    pub(crate) kind: Vec<Kind>,
    /// Only these detector families, such as `secrets/rfc`; of any kind, unless --kind says which.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) family: Vec<String>,
    /// Report nothing milder.
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = severity())]
    pub(crate) min_severity: Severity,
    /// How to print.
    #[arg(long, value_enum, default_value_t = ScanFormat::Text)]
    pub(crate) format: ScanFormat,
    /// Write there instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out paths that match, as in a .gitignore; can be given more than once.
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Refuse larger files.
    #[arg(long, value_name = "N", default_value_t = 10 << 20)]
    pub(crate) max_file_bytes: u64,
    /// Scan what .gitignore and .ignore files leave out.
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Scan hidden files and folders too, but for .git.
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Report what `portcullis:allow` lets pass: for files that somebody else wrote.
    #[arg(long)]
    pub(crate) no_allow: bool,
    /// Findings that are known and not reported.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write all findings to the baseline instead of reporting them.
    #[arg(long, requires = "baseline", conflicts_with = "output")]
    pub(crate) write_baseline: bool,
    /// Findings are no failure.
    #[arg(long)]
    pub(crate) exit_zero: bool,
    /// Show no progress on the terminal.
    #[arg(long)]
    pub(crate) no_progress: bool,
}

/// The kinds that files are scanned for.
pub(crate) const FOUND: [Kind; 3] = [Kind::Secrets, Kind::Injection, Kind::Pii];

fn kind(kinds: &'static [Kind]) -> impl TypedValueParser<Value = Kind> {
    let names = kinds.iter().map(|kind| kind.as_str());
    PossibleValuesParser::new(names).try_map(|name| {
        let mut all = Kind::ALL.into_iter();
        all.find(|kind| kind.as_str() == name).ok_or("no such kind")
    })
}

/// A number from 0 to 1. `nan` and `inf` are numbers to Rust, and nothing to JSON.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a number from 0 to 1, such as 0.8".to_owned())
}

fn severity() -> impl TypedValueParser<Value = Severity> {
    PossibleValuesParser::new(Severity::ALL.map(Severity::as_str)).try_map(|name| {
        let mut all = Severity::ALL.into_iter();
        all.find(|severity| severity.as_str() == name)
            .ok_or("no such severity")
    })
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
                        portcullis policy explain strict.yaml --env prod")]
pub(crate) struct ExplainArgs {
    /// The same as --policy.
    #[arg(value_name = "FILE", conflicts_with = "policy")]
    pub(crate) pack: Option<PathBuf>,
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
#[command(after_help = "Examples:\n  \
                        portcullis rule list\n  \
                        portcullis rule list --detectors --kind secrets")]
pub(crate) struct RuleListArgs {
    /// List what the detectors look for instead.
    #[arg(long)]
    pub(crate) detectors: bool,
    /// Only detectors of these kinds.
    #[arg(long, value_name = "KIND", value_delimiter = ',', requires = "detectors", value_parser = kind(&Kind::ALL))]
    pub(crate) kind: Vec<Kind>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis rule explain expression\n  \
                        portcullis rule explain secrets/aws-access-key")]
pub(crate) struct RuleExplainArgs {
    /// The rule, or a detector: its id, or KIND/ID, FAMILY/ID or KIND/FAMILY/ID.
    pub(crate) id: String,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The listing is what MCP's tools/list answers, a list of functions, or an A2A agent \
                  card. The pins go under `config` of the rule tool-definitions, or into a file for \
                  `portcullis tools check --pins`. Findings are named on standard error.\n\n\
                  Examples:\n  \
                  portcullis tools pin tools.json > pins.yaml\n  \
                  curl -s https://agent.example/.well-known/agent-card.json | portcullis tools pin"
)]
pub(crate) struct PinArgs {
    /// The listing, as JSON; `-` or nothing for standard input.
    pub(crate) listing: Option<PathBuf>,
    /// YAML, or JSON.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Judges as the rule tool-definitions does. Exit codes: 0 nothing found, 1 findings, \
                  2 wrong usage or no JSON.\n\n\
                  Examples:\n  \
                  portcullis tools check tools.json\n  \
                  portcullis tools check --pins pins.yaml tools.json\n  \
                  curl -s https://agent.example/.well-known/agent-card.json | portcullis tools check"
)]
pub(crate) struct CheckArgs {
    /// The listing, as JSON; `-` or nothing for standard input.
    pub(crate) listing: Option<PathBuf>,
    /// What was reviewed, as `portcullis tools pin` writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,
    /// A table for people, or one finding a line.
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
