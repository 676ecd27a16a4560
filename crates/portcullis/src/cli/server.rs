//! What can be typed to serve, to ask a server, and to read its evidence.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, share};

#[derive(Debug, Args)]
#[command(
    after_help = "Without a configuration file it starts on 127.0.0.1:8100 with the built-in policy and \
                  guardrails, makes a token and prints it, and keeps evidence in ./portcullis-data. \
                  Flags come before environment variables, those before the file.\n\n\
                  Examples:\n  \
                  portcullis serve\n  \
                  portcullis serve --config server.yaml\n  \
                  portcullis serve --policy strict.yaml --guardrails guardrails/ --port 9000"
)]
pub(crate) struct ServeArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", env = "PORTCULLIS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The address to listen on.
    #[arg(long, value_name = "IP", env = "PORTCULLIS_HOST", value_parser = host)]
    pub(crate) host: Option<IpAddr>,
    /// The port to listen on; 0 for any that is free.
    #[arg(long, value_name = "N", env = "PORTCULLIS_PORT")]
    pub(crate) port: Option<u16>,
    /// The policy pack; without it, the built-in one.
    #[arg(short, long, value_name = "FILE", env = "PORTCULLIS_POLICY")]
    pub(crate) policy: Option<PathBuf>,
    /// The pack's environment to apply, such as `dev`.
    #[arg(short, long, value_name = "NAME", env = "PORTCULLIS_ENV")]
    pub(crate) env: Option<String>,
    /// A folder of guardrail files, or one file; without it, the built-in five.
    #[arg(short, long, value_name = "PATH", env = "PORTCULLIS_GUARDRAILS")]
    pub(crate) guardrails: Option<PathBuf>,
    /// Where evidence is kept.
    #[arg(long, value_name = "FOLDER", env = "PORTCULLIS_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Start even if there is nothing to judge by: everything is then allowed.
    #[arg(long)]
    pub(crate) allow_no_policy: bool,
    /// Let anybody in who reaches the address.
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// What to log: a level, or levels by module.
    #[arg(
        long,
        value_name = "FILTER",
        env = "PORTCULLIS_LOG",
        default_value = "info"
    )]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for an agent, and print the lines for the configuration.
    New(TokenNewArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "The token goes to the agent; the configuration names the variable that holds it.\n\n\
                        Examples:\n  \
                        portcullis token new emerson\n  \
                        portcullis token new emerson --format json"
)]
pub(crate) struct TokenNewArgs {
    /// Whose token it is: the name that evidence will carry.
    pub(crate) agent: String,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Whom to ask.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The server.
    #[arg(long, env = "PORTCULLIS_URL", default_value = "http://127.0.0.1:8100")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How to ask.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// The token. Better in the environment: arguments are seen by others on the machine.
    #[arg(long, env = "PORTCULLIS_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A certificate to trust besides the system's, in PEM form.
    #[arg(long, value_name = "FILE", env = "PORTCULLIS_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// How long one try may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub(crate) timeout: f64,
    /// How often to try again when there is no answer.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
}

/// Or whether to ask nobody.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// Judge in this process instead of asking a server. Nothing is recorded.
    #[arg(long)]
    pub(crate) local: bool,
    /// With --local: a folder of guardrail files, or one file; without it, the built-in five.
    #[arg(short, long, value_name = "PATH", requires = "local")]
    pub(crate) guardrails: Option<PathBuf>,
}

/// What is about to be done.
#[derive(Debug, Args)]
pub(crate) struct ActionArgs {
    /// What the agent wants to do.
    #[arg(required_unless_present = "params")]
    pub(crate) description: Option<String>,
    /// The kind of decision, such as `architecture`.
    #[arg(long)]
    pub(crate) category: Option<String>,
    /// What is at stake: low, medium, high or critical.
    #[arg(long)]
    pub(crate) stakes: Option<String>,
    /// How sure the agent is, from 0 to 1.
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = share)]
    pub(crate) confidence: Option<f64>,
    /// A fact that guardrails may ask for: `affectsProduction=true`. The value is JSON, or else text.
    #[arg(short = 'x', long = "context", value_name = "KEY=VALUE")]
    pub(crate) context: Vec<String>,
    /// The whole of the method's parameters as JSON in a file; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["description", "category", "stakes", "confidence", "context"])]
    pub(crate) params: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 if it is allowed, 1 if it is blocked, 3 if the server cannot be reached.\n\n\
                  Examples:\n  \
                  portcullis check 'Deploy auth to production' --stakes high --confidence 0.85 -x affectsProduction=true\n  \
                  portcullis check --local --guardrails guardrails/ 'Drop the users table'\n  \
                  portcullis check --params action.json --format json"
)]
pub(crate) struct ActionCheckArgs {
    #[command(flatten)]
    pub(crate) action: ActionArgs,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 if the guardrails allow it, 1 if they block it, 3 if the server cannot be reached.\n\n\
                  Examples:\n  \
                  portcullis intent 'Deploy auth to production' --stakes high --note 'PR #42 approved' -x pr_number=42\n  \
                  portcullis intent --local 'Drop the users table'\n  \
                  portcullis intent --params intent.json --format json"
)]
pub(crate) struct IntentArgs {
    #[command(flatten)]
    pub(crate) action: ActionArgs,
    /// What else there is to say about it.
    #[arg(long, value_name = "TEXT", conflicts_with = "params")]
    pub(crate) note: Option<String>,
    /// What to call it, so that later words about it can be joined to it.
    #[arg(long, value_name = "ID", conflicts_with = "params")]
    pub(crate) correlation_id: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardrailCommand {
    /// Find mistakes in guardrail files.
    Lint(GuardrailLintArgs),
    /// List the guardrails of a server, or of files.
    List(GuardrailListArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis guardrail lint guardrails/\n  \
                        portcullis guardrail lint --deny-warnings guardrails/deploy.yaml")]
pub(crate) struct GuardrailLintArgs {
    /// A folder of guardrail files, or one file; without it, the built-in five.
    pub(crate) path: Option<PathBuf>,
    /// Count warnings as errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis guardrail list\n  \
                        portcullis guardrail list --local --guardrails guardrails/ --format json")]
pub(crate) struct GuardrailListArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvidenceCommand {
    /// Prove that nothing in a log was edited, removed or reordered.
    Verify(VerifyArgs),
    /// Print entries.
    Show(ShowArgs),
    /// Print the last entries, and new ones as they come.
    Tail(TailArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Works offline, also while a server writes. Exit code 0 if everything holds, 1 if not.\n\n\
                  Examples:\n  \
                  portcullis evidence verify\n  \
                  portcullis evidence verify /backup/evidence --key signing.pub\n  \
                  portcullis evidence verify --expect 1042:9f86d081884c7d65…"
)]
pub(crate) struct VerifyArgs {
    /// The log's folder.
    #[arg(default_value = "portcullis-data/evidence")]
    pub(crate) directory: PathBuf,
    /// The public key that checkpoints must be signed with; without it, `signing.pub` in the folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// An entry that must be in it, as SEQ:DIGEST, noted down elsewhere before.
    #[arg(long, value_name = "SEQ:DIGEST")]
    pub(crate) expect: Option<String>,
    /// Where the log starts, as SEQ:DIGEST of the last entry before it, if older files were archived.
    #[arg(long, value_name = "SEQ:DIGEST")]
    pub(crate) start: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis evidence show --from 100 --limit 20\n  \
                        portcullis evidence show --agent emerson --blocked\n  \
                        portcullis evidence show --format json | jq .action")]
pub(crate) struct ShowArgs {
    /// The log's folder.
    #[arg(default_value = "portcullis-data/evidence")]
    pub(crate) directory: PathBuf,
    /// The first entry to show.
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,
    /// How many to show.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis evidence tail\n  \
                        portcullis evidence tail --blocked --format json")]
pub(crate) struct TailArgs {
    /// The log's folder.
    #[arg(default_value = "portcullis-data/evidence")]
    pub(crate) directory: PathBuf,
    /// How many of the last entries to begin with.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub(crate) lines: u64,
    /// Stop after those.
    #[arg(long)]
    pub(crate) no_follow: bool,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Which entries.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// Only those of this agent.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only those of this event, such as `guardrail_check`.
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// Only what was not allowed.
    #[arg(long)]
    pub(crate) blocked: bool,
}

pub(super) fn host(text: &str) -> Result<IpAddr, String> {
    portcullis_server::config::parse_host(text)
        .ok_or_else(|| "write an IP address, such as 127.0.0.1, or 0.0.0.0 for all".to_owned())
}
