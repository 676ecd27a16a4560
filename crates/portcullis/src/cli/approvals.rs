//! What can be typed about approvals.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use portcullis_core::approval::Status;

use super::{ConnectArgs, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the steps that people were asked about.
    List(ApprovalListArgs),
    /// Show one of them: what it is about, and what somebody said.
    Show(ApprovalShowArgs),
    /// Let a paused step happen, once.
    Approve(DecideArgs),
    /// Do not let it happen.
    Deny(DecideArgs),
    /// Wait until somebody has decided.
    Wait(ApprovalWaitArgs),
}

/// Where approvals are kept.
#[derive(Debug, Args)]
pub(crate) struct KeptArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Instead of a server, a file of approvals: for agents that have the planner in their own process.
    /// Who can write the file is trusted; nothing is put into an evidence log.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A server shows what the token may see: operators all, people with a role what they could decide \
                  on, agents their own.\n\n\
                  Examples:\n  \
                  portcullis approvals list\n  \
                  portcullis approvals list --status all --run run-17 --format json\n  \
                  portcullis approvals list --file approvals.db"
)]
pub(crate) struct ApprovalListArgs {
    /// Those that stand so: `pending`, `approved`, `denied`, `expired`, `used`, or `all`.
    #[arg(long, value_name = "STATUS", default_value = "pending", hide_possible_values = true, value_parser = status())]
    pub(crate) status: Chosen,
    /// Only those of this run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// How many to list, at most 1000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

/// A status, or none for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen(pub(crate) Option<Status>);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 if it is approved, 1 if it is not (yet) or has been used, 2 if there is none, 3 if the server cannot be \
                  reached.\n\n\
                  Example:\n  \
                  portcullis approvals show 019a8b5e8f2c7cc0b1a53f0a8a6e2d11"
)]
pub(crate) struct ApprovalShowArgs {
    /// Which.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Takes the token of somebody who has one of the approval's roles, and whose step it is not. The \
                  server's evidence log keeps who decided. With --file, --as and --role are believed.\n\n\
                  Examples:\n  \
                  portcullis approvals approve 019a8b5e8f2c7cc0b1a53f0a8a6e2d11 --note 'checked with the customer'\n  \
                  portcullis approvals deny 019a8b5e8f2c7cc0b1a53f0a8a6e2d11 --file approvals.db --as alice --role finance"
)]
pub(crate) struct DecideArgs {
    /// Which.
    pub(crate) id: String,
    /// Why. The step's agent is told so if it is denied.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
    /// With --file: who decides.
    #[arg(long = "as", value_name = "NAME", requires = "file")]
    pub(crate) name: Option<String>,
    /// With --file: in which role; can be given more than once.
    #[arg(long, value_name = "ROLE", requires = "file")]
    pub(crate) role: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 if it is approved, 1 if it is denied, expired, used or still waiting when the time is over, 2 \
                  if there is none, 3 if the server cannot be reached.\n\n\
                  Examples:\n  \
                  portcullis approvals wait 019a8b5e8f2c7cc0b1a53f0a8a6e2d11\n  \
                  portcullis approvals wait 019a8b5e8f2c7cc0b1a53f0a8a6e2d11 --seconds 600 && ./continue"
)]
pub(crate) struct ApprovalWaitArgs {
    /// Which.
    pub(crate) id: String,
    /// How long to wait; without it, until somebody has decided or it expires.
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

fn status() -> impl TypedValueParser<Value = Chosen> {
    const ALL: &str = "all";
    let names = Status::ALL.map(Status::as_str);
    PossibleValuesParser::new(names.into_iter().chain([ALL])).map(|name| {
        let mut all = Status::ALL.into_iter();
        Chosen(all.find(|status| status.as_str() == name))
    })
}
