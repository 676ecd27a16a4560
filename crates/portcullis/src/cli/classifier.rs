//! What can be typed about classifiers.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use portcullis_core::classifier::Channel;

use super::{Format, share};

#[derive(Debug, Subcommand)]
pub(crate) enum ClassifierCommand {
    /// Learn from labelled texts to tell others apart.
    Train(TrainClassifierArgs),
    /// Measure what a classifier finds, and what it wrongly finds.
    Eval(EvalClassifierArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples are JSON Lines ({\"text\": \"…\", \"label\": \"…\"}) or CSV with a line of names. A few dozen of \
                  each label are a beginning. Everything happens on this machine; the embeddings are the built-in \
                  model's unless --embedder names another.\n\n\
                  The figures are for texts that a model has not seen: the examples are split into folds, and each is \
                  judged by a model made from the others. The same examples always give the same classifier, by the same \
                  name; of its file only the day is another.\n\n\
                  Examples:\n  \
                  portcullis classifier train examples.jsonl --out scope.json\n  \
                  portcullis classifier train spam.csv --text-field body --label-field kind --positive spam --max-fpr 0.01 --out spam.json\n  \
                  portcullis classifier train examples.jsonl --sections USER,LAST_ASSISTANT --out scope.json --plot scope.svg"
)]
pub(crate) struct TrainClassifierArgs {
    /// Labelled texts: .jsonl or .csv.
    #[arg(required = true)]
    pub(crate) examples: Vec<PathBuf>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// What to call the classifier. [default: the file's name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Where the text is: a field of JSON, or a column.
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub(crate) text_field: String,
    /// Where the label is.
    #[arg(long, value_name = "NAME", default_value = "label")]
    pub(crate) label_field: String,
    /// The labels that are to be found. [default: all but known names for harmless text, such as benign, safe, `in_scope`]
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) positive: Vec<String>,
    /// Parts of the texts, each begun by its name in brackets at the start of a line. The first is judged by itself, and
    /// all of them together.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) sections: Vec<String>,
    /// Parts of the texts that are not judged.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "sections"
    )]
    pub(crate) skip_sections: Vec<String>,
    /// Into how many parts to split the examples.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) folds: usize,
    /// Choose the threshold that finds the most with no more than this share of false positives. [default: the best
    /// balanced accuracy]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) max_fpr: Option<f64>,
    /// A folder with an embedding model, such as `all-MiniLM-L6-v2`, in place of the built-in one.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) embedder: Option<PathBuf>,
    /// Draw ROC, scores and reliability, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// The day to write into the file; nothing else depends on it. [default: today]
    #[arg(long, value_name = "DATE")]
    pub(crate) date: Option<String>,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Show no progress on the terminal.
    #[arg(long)]
    pub(crate) no_progress: bool,
}

/// How to print a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Markdown, for people.
    Md,
    /// For programs.
    Json,
}

/// How all texts came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChannelGiven {
    /// From the user.
    User,
    /// From a tool.
    Tool,
}

impl From<ChannelGiven> for Channel {
    fn from(given: ChannelGiven) -> Self {
        match given {
            ChannelGiven::User => Self::User,
            ChannelGiven::Tool => Self::Tool,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each line of the data is {\"text\": \"…\", \"label\": \"…\", \"meta\": {…}}; a file is a set, and may be gzipped. \
                  The model's labels mean what they mean to it; otherwise a text is to be found unless its label is a name for \
                  harmless text, such as benign. Sets named `secrets` and `pii` are left out of a folder.\n\n\
                  Another program's model is measured by its scores: --texts writes what it has to judge, and --scores \
                  reads {\"id\": \"SET:NUMBER\", \"score\": 0.7} for each text, or only {\"score\": 0.7} in the same order.\n\n\
                  Examples:\n  \
                  portcullis classifier eval --model built-in --data corpora --with-patterns\n  \
                  portcullis classifier eval --model scope.json held-out.jsonl --plot scope.svg\n  \
                  portcullis classifier eval --texts texts.jsonl mine.jsonl\n  \
                  portcullis classifier eval --scores theirs.jsonl --threshold 0.5 mine.jsonl"
)]
pub(crate) struct EvalClassifierArgs {
    /// The sets: .jsonl or .jsonl.gz.
    pub(crate) files: Vec<PathBuf>,
    /// A folder of sets, or one with `public_eval` in it.
    #[arg(
        long,
        value_name = "FOLDER",
        env = "PORTCULLIS_DATA",
        hide_env_values = true
    )]
    pub(crate) data: Option<PathBuf>,
    /// `built-in`, a file that `classifier train` wrote, or a folder from Hugging Face.
    #[arg(
        short,
        long,
        required_unless_present_any = ["scores", "texts"],
        conflicts_with_all = ["scores", "texts"]
    )]
    pub(crate) model: Option<String>,
    /// What another program's model says of the texts.
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) scores: Option<PathBuf>,
    /// Write the texts there that are to be judged, without their labels, and stop.
    #[arg(long, value_name = "FILE")]
    pub(crate) texts: Option<PathBuf>,
    /// The model's labels that count as a finding. [default: what the model's file says, or all but known names for
    /// harmless text]
    #[arg(
        long,
        value_name = "LABEL",
        value_delimiter = ',',
        requires = "model",
        // What is required is not asked for where it is in conflict with what is there.
        conflicts_with_all = ["scores", "texts"]
    )]
    pub(crate) labels: Vec<String>,
    /// The score from which on a text counts. [default: the model's own]
    #[arg(short, long, value_name = "SCORE", value_parser = share)]
    pub(crate) threshold: Option<f64>,
    /// How all texts came. [default: by set; user where nothing is known]
    #[arg(long, value_enum)]
    pub(crate) channel: Option<ChannelGiven>,
    /// Compare with the default policy's detectors of injections, and with both together.
    #[arg(long)]
    pub(crate) with_patterns: bool,
    /// The folder of the embedding model that the classifier was trained with, where that is not the built-in one.
    #[arg(
        long,
        value_name = "FOLDER",
        requires = "model",
        conflicts_with_all = ["scores", "texts"]
    )]
    pub(crate) embedder: Option<PathBuf>,
    /// How to print the report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Md)]
    pub(crate) report: ReportFormat,
    /// Draw ROC, scores and reliability of all sets together, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) plot: Option<PathBuf>,
    /// Show no progress on the terminal.
    #[arg(long)]
    pub(crate) no_progress: bool,
}
