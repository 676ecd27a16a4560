//! `portcullis decision import`

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use indicatif::{ProgressBar, ProgressStyle};
use portcullis_core::evidence::Redactor;
use portcullis_core::memory::{self, Decision, Imported};
use portcullis_store::memory::{Memory as _, MemoryError, Recorded};
use serde::Serialize;

use super::file::{Existing, InFile};
use super::print::count;
use crate::cli::{Format, ImportArgs};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, YELLOW, json_line, plain};

/// How many decisions are kept in one step.
const STEP: usize = 500;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;

pub(super) fn run(args: &ImportArgs) -> Result<Answer, Failure> {
    let redactor = Redactor::new().map_err(|error| Failure::Unavailable(error.into()))?;
    let mut report = Report {
        dry_run: args.dry_run,
        ..Report::default()
    };
    let files = report.find(&args.paths);
    // Nothing to keep needs no place to be kept in.
    let memory = if args.dry_run || files.is_empty() {
        None
    } else {
        Some(InFile::open(&args.file, Existing::OrNew, false)?)
    };
    let mut import = Import {
        memory,
        redactor,
        waiting: Vec::new(),
        report,
    };
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
        Format::Text => report.print(&mut out),
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
    /// Whether nothing was kept, and `imported` is what would have been.
    dry_run: bool,
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
            file: name(file),
            reason: reason.into(),
        });
    }

    /// All files that decisions could be in; those that are named are read whatever they are.
    fn find(&mut self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in paths {
            if path == Path::new(STDIN) {
                files.push(path.clone());
                continue;
            }
            if let Err(error) = std::fs::metadata(path) {
                self.skip(path, format!("cannot be read: {error}"));
                continue;
            }
            for entry in WalkBuilder::new(path)
                .standard_filters(false)
                .sort_by_file_path(Ord::cmp)
                .build()
            {
                match entry {
                    Err(error) => self.skip(path, error.to_string()),
                    Ok(entry) => {
                        let is = |kind: fn(&std::fs::FileType) -> bool| {
                            entry.file_type().is_some_and(|found| kind(&found))
                        };
                        let named = entry.depth() == 0 && !is(std::fs::FileType::is_dir);
                        let found =
                            is(std::fs::FileType::is_file) && format(entry.path()).is_some();
                        if named || found {
                            files.push(entry.into_path());
                        }
                    }
                }
            }
        }
        files
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let verb = if self.dry_run {
            "would import"
        } else {
            "imported"
        };
        writeln!(
            out,
            "{GREEN}{verb} {BOLD}{}{BOLD:#}{GREEN:#} {DIM}from {}; {} already known, {} skipped{DIM:#}",
            count(self.imported, "decision"),
            count(self.files, "file"),
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
        for (field, decisions) in &self.ignored_fields {
            writeln!(
                out,
                "  {DIM}ignored `{}` of {}{DIM:#}",
                plain(field),
                count(*decisions, "decision")
            )?;
        }
        Ok(())
    }
}

struct Import {
    /// None if nothing is to be kept.
    memory: Option<InFile>,
    redactor: Redactor,
    /// Read, and not yet kept, with the files they are from.
    waiting: Vec<(PathBuf, Decision)>,
    report: Report,
}

impl Import {
    fn file(&mut self, path: &Path) -> Result<(), MemoryError> {
        self.report.files += 1;
        let Some(format) = format(path) else {
            let reason = "is neither .yaml, .json nor .jsonl: rename it, or give `-` and pipe \
                          lines of JSON in";
            self.report.skip(path, reason);
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
                Err(reason) => self.report.skip(path, first_line(&reason)),
                Ok(Imported { decision, ignored }) => {
                    for field in ignored {
                        *self.report.ignored_fields.entry(field).or_default() += 1;
                    }
                    match self.without_secrets(decision) {
                        Ok(decision) => self.waiting.push((path.to_owned(), decision)),
                        Err(reason) => self.report.skip(path, reason),
                    }
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
                    let reason = format!(
                        "another decision has the id `{id}`: give this one another, or forget that one"
                    );
                    self.report.skip(&file, reason);
                }
            }
        }
        Ok(())
    }

    /// What cannot be kept without its secrets is not kept.
    fn without_secrets(&self, decision: Decision) -> Result<Decision, String> {
        let refused = |error: serde_json::Error| {
            format!("is no decision any more without the secrets in it: {error}")
        };
        let value = serde_json::to_value(&decision).map_err(refused)?;
        let serde_json::Value::Object(members) = value else {
            return Ok(decision);
        };
        match self.redactor.without_secrets(&members) {
            Cow::Borrowed(_) => Ok(decision),
            Cow::Owned(members) => serde_json::from_value(members.into()).map_err(refused),
        }
    }
}

/// What stands for standard input.
const STDIN: &str = "-";

fn name(path: &Path) -> String {
    if path == Path::new(STDIN) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

fn format(path: &Path) -> Option<memory::Format> {
    if path == Path::new(STDIN) {
        return Some(memory::Format::JsonLines);
    }
    memory::Format::of_extension(path.extension()?.to_str()?)
}

fn read(path: &Path) -> Result<String, String> {
    let source: Box<dyn Read> = if path == Path::new(STDIN) {
        Box::new(io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?)
    };
    let mut bytes = Vec::new();
    let read = source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("has over {MAX_FILE_BYTES} bytes: split it"));
    }
    String::from_utf8(bytes).map_err(|_| "is not text in UTF-8".to_owned())
}

/// The first line of what a parser says; the others draw the place.
fn first_line(error: &str) -> &str {
    let line = error.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Shown on a terminal only.
fn progress(files: usize) -> ProgressBar {
    let bar = ProgressBar::new(files as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} files {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
