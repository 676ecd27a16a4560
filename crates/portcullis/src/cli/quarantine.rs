//! What can be typed about the quarantine.

use clap::{Args, Subcommand};

use super::{ConnectArgs, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the runs in quarantine.
    List(QuarantineListArgs),
    /// Show what has happened to a run: its quarantine, strikes and flags.
    Show(QuarantineShowArgs),
    /// Put a run in quarantine: its later steps are stopped.
    Add(QuarantineAddArgs),
    /// Let a run out of quarantine, and forget its strikes.
    Release(QuarantineReleaseArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis quarantine list\n  \
                        portcullis quarantine list --limit 20 --after run-17 --format json")]
pub(crate) struct QuarantineListArgs {
    /// How many to list, at most 1000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
    /// Begin behind this run, in the order of their names.
    #[arg(long, value_name = "RUN")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 if the run is not in quarantine, 1 if it is, 3 if the server cannot be reached.\n\n\
                  Examples:\n  \
                  portcullis quarantine show run-17\n  \
                  portcullis quarantine show run-17 --format json"
)]
pub(crate) struct QuarantineShowArgs {
    /// The run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Takes the token of one of `auth.operators`. The evidence log keeps who did it and why.\n\n\
                  Example:\n  \
                  portcullis quarantine add run-17 --reason 'reads mail that it was not asked about'"
)]
pub(crate) struct QuarantineAddArgs {
    /// The run.
    pub(crate) run: String,
    /// Why. The run's agent is told so.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Takes the token of one of `auth.operators`. The evidence log keeps who did it and why.\n\n\
                  Example:\n  \
                  portcullis quarantine release run-17 --reason 'a false alarm: the page quoted an attack'"
)]
pub(crate) struct QuarantineReleaseArgs {
    /// The run.
    pub(crate) run: String,
    /// Why.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
