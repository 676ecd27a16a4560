//! What can be typed about decisions.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::{Format, HowArgs, share};

#[derive(Debug, Subcommand)]
pub(crate) enum DecisionCommand {
    /// Remember a decision.
    Record(RecordArgs),
    /// Say what came of a decision.
    Review(ReviewArgs),
    /// Show all that is known of a decision.
    Show(ShowDecisionArgs),
    /// List decisions, the latest first.
    List(ListArgs),
    /// Find decisions by meaning and by words.
    Query(QueryArgs),
    /// Take decisions in from files.
    Import(ImportArgs),
    /// Write all decisions to a file, also while a server writes.
    Export(ExportArgs),
    /// Compare how sure agents were with how it turned out.
    Calibration(CalibrationArgs),
    /// Erase a decision and all that is known of it.
    Forget(ForgetArgs),
}

/// The database of a memory.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// The memory's database. A server may use it at the same time.
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "PORTCULLIS_MEMORY",
        default_value = "portcullis-data/memory.db"
    )]
    pub(crate) memory: PathBuf,
}

/// A memory.
#[derive(Debug)]
pub(crate) struct MemoryArgs {
    pub(crate) place: Place,
    pub(crate) format: Format,
}

/// Where a memory is.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a file, for which no server is needed.
    File(FileArgs),
    /// Behind a server.
    Server { url: String, how: HowArgs },
}

#[derive(Debug, Args)]
struct MemoryFlags {
    #[command(flatten)]
    file: FileArgs,
    /// Ask this server instead, such as `http://127.0.0.1:8100`.
    #[arg(long, env = "PORTCULLIS_URL")]
    url: Option<String>,
    #[command(flatten)]
    how: HowArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl FromArgMatches for MemoryArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let flags = MemoryFlags::from_arg_matches(matches)?;
        let typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let place = match (flags.url, typed("memory"), typed("url")) {
            (_, true, true) => {
                return Err(Error::raw(
                    ErrorKind::ArgumentConflict,
                    "--memory names a file and --url a server: give one of them",
                ));
            }
            // A file that is typed counts more than a server that the environment names.
            (Some(url), false, _) => Place::Server {
                url,
                how: flags.how,
            },
            _ => Place::File(flags.file),
        };
        Ok(Self {
            place,
            format: flags.format,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for MemoryArgs {
    fn augment_args(command: Command) -> Command {
        MemoryFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        MemoryFlags::augment_args_for_update(command)
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --url, the database is used directly and no server is needed.\n\n\
                        Examples:\n  \
                        portcullis decision record 'Use PostgreSQL for the ledger' --confidence 0.8 --category architecture\n  \
                        portcullis decision record 'Deploy auth v2' --stakes high --reason 'analysis: all tests pass' --tag auth --review-in 7d\n  \
                        portcullis decision record --params decision.json --url http://127.0.0.1:8100"
)]
pub(crate) struct RecordArgs {
    /// What was decided.
    #[arg(required_unless_present = "params")]
    pub(crate) decision: Option<String>,
    /// How sure you are that it turns out well, from 0 to 1.
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = share)]
    pub(crate) confidence: Option<f64>,
    /// The kind of decision, such as `architecture`.
    #[arg(long)]
    pub(crate) category: Option<String>,
    /// What is at stake: low, medium, high or critical.
    #[arg(long)]
    pub(crate) stakes: Option<String>,
    /// In which circumstances.
    #[arg(long, value_name = "TEXT")]
    pub(crate) context: Option<String>,
    /// Why; `analysis: …` says what kind of reason it is. As often as there are reasons.
    #[arg(long, value_name = "[TYPE:] TEXT")]
    pub(crate) reason: Vec<String>,
    /// A word to find it by. As often as there are words.
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// When to look what came of it: 7d, 2w, P1M.
    #[arg(long, value_name = "TIME")]
    pub(crate) review_in: Option<String>,
    /// What to call it; by default, a new id.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The whole of the method's parameters as JSON in a file; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["decision", "confidence", "category", "stakes", "context", "reason", "tag", "review_in", "id"])]
    pub(crate) params: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis decision review dec-1f0c success --lessons 'Keep the rollback window at 30 minutes'\n  \
                        portcullis decision review dec-1f0c failure --result 'Memory leak in the pool'")]
pub(crate) struct ReviewArgs {
    /// Which decision.
    pub(crate) id: String,
    /// What came of it: success, partial, failure or abandoned.
    pub(crate) outcome: String,
    /// What happened.
    #[arg(long, value_name = "TEXT")]
    pub(crate) result: Option<String>,
    /// What to do otherwise the next time, or again.
    #[arg(long, value_name = "TEXT")]
    pub(crate) lessons: Option<String>,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  portcullis decision show dec-1f0c")]
pub(crate) struct ShowDecisionArgs {
    /// Which decision.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

/// Which decisions.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only of this category.
    #[arg(long)]
    pub(crate) category: Option<String>,
    /// Only with this at stake; several times for several.
    #[arg(long)]
    pub(crate) stakes: Vec<String>,
    /// Only pending or reviewed ones.
    #[arg(long)]
    pub(crate) status: Vec<String>,
    /// Only what turned out so; several times for several.
    #[arg(long)]
    pub(crate) outcome: Vec<String>,
    /// Only with this tag; several times for all of several.
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// Only of this agent.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only what was decided with at least this confidence.
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = share)]
    pub(crate) min_confidence: Option<f64>,
    /// Only what was decided with at most this confidence.
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = share)]
    pub(crate) max_confidence: Option<f64>,
    /// Only from then on: a day, or a time such as 2026-02-04T21:00:00Z.
    #[arg(long, value_name = "DATE")]
    pub(crate) after: Option<String>,
    /// Only before then.
    #[arg(long, value_name = "DATE")]
    pub(crate) before: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis decision list --status pending\n  \
                        portcullis decision list --outcome failure --category deploy --limit 50")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    /// How many at most, from 1 to 50.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
    /// Go on behind this decision, which the page before named.
    #[arg(long, value_name = "ID")]
    pub(crate) next: Option<String>,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis decision query 'roll out the login service'\n  \
                        portcullis decision query 'connection pool' --outcome failure --reasons")]
pub(crate) struct QueryArgs {
    /// What to look for: words, a meaning, a title, an id.
    pub(crate) query: String,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    /// How many at most, from 1 to 50.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
    /// Show the reasons too.
    #[arg(long)]
    pub(crate) reasons: bool,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Reads .yaml, .yml, .json, .jsonl and .ndjson: exports, single decisions and lists of them. \
                        What is there already is left alone, so an import can be repeated.\n\
                        Exit code 0 if all went in, 2 if something was skipped.\n\n\
                        Examples:\n  \
                        portcullis decision import decisions/\n  \
                        gunzip -c backup.jsonl.gz | portcullis decision import -\n  \
                        portcullis decision import --dry-run backup.jsonl"
)]
pub(crate) struct ImportArgs {
    /// Files and folders; `-` for standard input, a decision a line.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Read everything, keep nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "One decision a line, as they were when the export began. `portcullis decision import` takes them back.\n\n\
                        Examples:\n  \
                        portcullis decision export backup.jsonl\n  \
                        portcullis decision export | gzip > backup.jsonl.gz"
)]
pub(crate) struct ExportArgs {
    /// Where to; `-` or nothing for standard output. The file appears once it is whole.
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file: FileArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        portcullis decision calibration\n  \
                        portcullis decision calibration --agent emerson --after 2026-01-01")]
pub(crate) struct CalibrationArgs {
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Agents cannot do this: it takes the database itself. The evidence log keeps that there was a \
                        decision, and its digest.\n\n\
                        Example:\n  portcullis decision forget dec-1f0c"
)]
pub(crate) struct ForgetArgs {
    /// Which decision.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) file: FileArgs,
}
