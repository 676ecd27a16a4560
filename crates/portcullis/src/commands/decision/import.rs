//! `portcullis decision import`

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use indicatif::{ProgressBar, ProgressStyle};
use portcullis_core::evidence::Redactor;
use portcullis_core::memory::{self, Decision, Imported};
use portcullis_store::memory::{Memory, MemoryError, Recorded, SqliteMemory};
use serde::Serialize;

use super::{Existing, open};
use crate::cli::{Format, ImportArgs};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, YELLOW, json_line, plain};

/// How many decisions are kept in one step.
const STEP: usize = 500;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;

pub(super) fn run(args: &ImportArgs) -> Result<Answer, Failure> {
    let redactor = Redactor::new().map_err(|error| Failure::Unavailable(error.into()))?;
    let memory = match args.dry_run {
        true => None,
        false => Some(open(&args.file, Existing::OrNew, false)?),
    };
    let mut import = Import {
        memory,
        redactor,
        waiting: Vec::new(),
        report: Report::default(),
    };
    let files = import.find(&args.paths);
    let progress = progress(files.len());
    for file in &files {
        import.file(file).map_err(unavailable)?;
        progress.inc(1);
    }
    import.keep().map_err(unavailable)?;
    progress.finish_and_clear();
    let report = import.report;
    let mut out = anstream::stdout();
    let printed = match args.format {
        Format::Json => json_line(&report).and_then(|line| out.write_all(line.as_bytes())),
        Format::Text => report.print(&mut out, args.dry_run),
    };
    printed.map_err(Failure::write)?;
    Ok(if report.skipped.is_empty() {
        Answer::Yes
    } else {
        Answer::BadInput
    })
}

fn unavailable(error: MemoryError) -> Failure {
    Failure::Unavailable(error.into())
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    files: usize,
    imported: usize,
    already_known: usize,
    skipped: Vec<Skipped>,
    /// Fields that have no place here, and how many decisions had them.
    ignored_fields: BTreeMap<String, usize>,
}

#[derive(Debug, Serialize)]
struct Skipped {
    file: String,
    reason: String,
}

impl Report {
    fn skip(&mut self, file: &Path, reason: impl Into<String>) {
        self.skipped.push(Skipped {
            file: file.display().to_string(),
            reason: reason.into(),
        });
    }

    fn print(&self, out: &mut impl Write, dry_run: bool) -> std::io::Result<()> {
        let verb = if dry_run { "would import" } else { "imported" };
        writeln!(
            out,
            "{GREEN}{verb} {BOLD}{}{BOLD:#}{GREEN:#} {DIM}from {} files; {} were known already, {} skipped{DIM:#}",
            self.imported,
            self.files,
            self.already_known,
            self.skipped.len()
        )?;
        for Skipped { file, reason } in &self.skipped {
            writeln!(
                out,
                "  {YELLOW}skipped{YELLOW:#} {}: {}",
                plain(file),
                plain(reason)
            )?;
        }
        for (field, count) in &self.ignored_fields {
            writeln!(
                out,
                "  {DIM}ignored `{}` of {count} decisions{DIM:#}",
                plain(field)
            )?;
        }
        Ok(())
    }
}

struct Import {
    memory: Option<SqliteMemory>,
    redactor: Redactor,
    /// Read, and not yet kept, with the files they are from.
    waiting: Vec<(PathBuf, Decision)>,
    report: Report,
}

impl Import {
    /// All files that decisions could be in; those that are named are read whatever they are.
    fn find(&mut self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in paths {
            for entry in WalkBuilder::new(path)
                .standard_filters(false)
                .sort_by_file_path(Ord::cmp)
                .build()
            {
                match entry {
                    Err(error) => self.report.skip(path, error.to_string()),
                    Ok(entry) => {
                        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                        let named = entry.depth() == 0;
                        if is_file && (named || format(entry.path()).is_some()) {
                            files.push(entry.into_path());
                        }
                    }
                }
            }
        }
        files
    }

    fn file(&mut self, path: &Path) -> Result<(), MemoryError> {
        self.report.files += 1;
        let Some(format) = format(path) else {
            self.report.skip(path, "is neither .yaml, .json nor .jsonl");
            return Ok(());
        };
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => {
                self.report.skip(path, error);
                return Ok(());
            }
        };
        for decision in memory::import(&text, format, jiff::Timestamp::now()) {
            match decision {
                Err(reason) => self.report.skip(path, reason),
                Ok(Imported { decision, ignored }) => {
                    for field in ignored {
                        *self.report.ignored_fields.entry(field).or_default() += 1;
                    }
                    let decision = self.without_secrets(decision);
                    self.waiting.push((path.to_owned(), decision));
                }
            }
            if self.waiting.len() >= STEP {
                self.keep()?;
            }
        }
        Ok(())
    }

    /// Keeps what is waiting.
    fn keep(&mut self) -> Result<(), MemoryError> {
        let (files, decisions): (Vec<_>, Vec<_>) = self.waiting.drain(..).unzip();
        let Some(memory) = &self.memory else {
            self.report.imported += decisions.len();
            return Ok(());
        };
        let ids: Vec<String> = decisions.iter().map(|one| one.id.clone()).collect();
        for ((recorded, id), file) in memory.record(decisions)?.into_iter().zip(ids).zip(files) {
            match recorded {
                Recorded::New => self.report.imported += 1,
                Recorded::Same => self.report.already_known += 1,
                Recorded::Taken => {
                    let reason = format!("another decision has the id `{id}`");
                    self.report.skip(&file, reason);
                }
            }
        }
        Ok(())
    }

    fn without_secrets(&self, decision: Decision) -> Decision {
        let Ok(serde_json::Value::Object(members)) = serde_json::to_value(&decision) else {
            return decision;
        };
        match self.redactor.without_secrets(&members) {
            std::borrow::Cow::Borrowed(_) => decision,
            // Redacted texts are texts: what was a decision still is one.
            std::borrow::Cow::Owned(members) => {
                serde_json::from_value(members.into()).unwrap_or(decision)
            }
        }
    }
}

fn format(path: &Path) -> Option<memory::Format> {
    memory::Format::of_extension(path.extension()?.to_str()?)
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "has {bytes} bytes, over {MAX_FILE_BYTES}: split it"
        ));
    }
    std::fs::read_to_string(path).map_err(cannot)
}

/// Shown on a terminal only.
fn progress(files: usize) -> ProgressBar {
    let bar = ProgressBar::new(files as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} files {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
