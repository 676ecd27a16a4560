//! What can be typed about A2A evidence.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, value_parser};
use portcullis_core::a2a::{Limits, Mode};

use super::Format;

#[derive(Debug, Subcommand)]
pub(crate) enum A2aCommand {
    /// Turn packets into canonical batches, each with its digest.
    Convert(ConvertArgs),
    /// Make packets of what A2A clients and servers send each other.
    Import(A2aImportArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Prints {\"batch\": {…}, \"digest\": \"…\"}, or {\"error\": {\"kind\", \"message\"}}. With --ndjson there \
                  is one answer for each line that is not blank, in the same order; a bad line gives {\"error\": {\"line\", \
                  \"kind\", \"message\"}} and the rest goes on. A batch names the bytes that its packet came in: all of \
                  the input, or with --ndjson the line without its end.\n\n\
                  Exit codes: 0 all were converted, 2 wrong usage or a packet was refused, 3 the evidence log or another \
                  thing that is needed does not work.\n\n\
                  Examples:\n  \
                  portcullis a2a convert packet.json\n  \
                  portcullis a2a convert --mode lenient --format text packet.json\n  \
                  portcullis a2a convert --ndjson < packets.ndjson > batches.ndjson\n  \
                  portcullis a2a convert --ndjson --record evidence packets.ndjson"
)]
pub(crate) struct ConvertArgs {
    /// A packet; `-` or nothing for standard input.
    pub(crate) packet: Option<PathBuf>,
    /// Refuse packets that lack something, or substitute it and say so.
    #[arg(long, default_value = Mode::Strict.as_str(), value_parser = mode())]
    pub(crate) mode: Mode,
    /// Take one packet a line.
    #[arg(long)]
    pub(crate) ndjson: bool,
    /// Append each batch to the evidence log in this folder before it is printed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) record: Option<PathBuf>,
    /// The version of the protocol, for packets that do not say.
    #[arg(long, value_name = "V")]
    pub(crate) protocol_version: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// JSON for programs, or a summary for people.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Takes agent cards, messages, tasks, artifacts and updates, by themselves or in JSON-RPC, and prints the \
                  packets that say the same, one a line. Whatever cannot be read is named on standard error.\n\n\
                  Exit codes: 0 all was read, 2 wrong usage or something was refused.\n\n\
                  Examples:\n  \
                  portcullis a2a import --agent agent://planner < message.json | portcullis a2a convert --ndjson\n  \
                  portcullis a2a import --ndjson traffic.ndjson > packets.ndjson"
)]
pub(crate) struct A2aImportArgs {
    /// What was sent, as JSON; `-` or nothing for standard input.
    pub(crate) traffic: Option<PathBuf>,
    /// Whose doing it was, for what names no agent, such as messages and tasks.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Take one of them a line.
    #[arg(long)]
    pub(crate) ndjson: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
}

/// How much of a packet is read.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LimitArgs {
    /// Refuse more bytes than this.
    #[arg(long = "max-bytes", value_name = "N", default_value_t = Limits::default().max_payload_bytes())]
    pub(crate) bytes: usize,
    /// Refuse more arrays and objects in each other than this; at most 100.
    #[arg(long = "max-depth", value_name = "N", default_value_t = Limits::default().max_depth())]
    pub(crate) depth: usize,
    /// Refuse arrays of more items than this.
    #[arg(long = "max-array", value_name = "N", default_value_t = Limits::default().max_array_length())]
    pub(crate) array: usize,
}

/// How many lines are worked on.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StreamArgs {
    /// How many threads work on the lines; without it, one a core.
    #[arg(long, value_name = "N", requires = "ndjson", value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Show no progress on the terminal.
    #[arg(long)]
    pub(crate) no_progress: bool,
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::as_str)).try_map(|name| name.parse::<Mode>())
}
