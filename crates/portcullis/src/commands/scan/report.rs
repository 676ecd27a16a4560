//! Where findings are printed, and the sum of them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use portcullis_core::Severity;
use portcullis_core::views::Disguise;
use serde_json::{Value, json};

use super::Outcome;
use super::baseline::{Baseline, Known};
use super::files::Target;
use super::found::Located;
use super::sarif::Sarif;
use crate::cli::{ScanArgs, ScanFormat};
use crate::output::{BOLD, DIM, Failure, json_line, plain, severity_style, tell};

/// Takes what came of each file, in order.
pub(super) struct Report<'a> {
    args: &'a ScanArgs,
    sink: Sink<'a>,
    baseline: Baseline,
    /// What is to become the baseline.
    noted: Vec<Known>,
    sarif: Sarif,
    tally: Tally,
}

/// Standard output, or a file.
pub(super) enum Sink<'a> {
    Stdout,
    File(BufWriter<&'a File>),
}

impl Sink<'_> {
    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => anstream::stdout().write_all(text.as_bytes()),
            Self::File(file) => write!(file, "{}", anstream::adapter::strip_str(text)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::File(file) => file.flush(),
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a ScanArgs, sink: Sink<'a>, baseline: Baseline) -> Self {
        Self {
            args,
            sink,
            baseline,
            noted: Vec::new(),
            sarif: Sarif::default(),
            tally: Tally::default(),
        }
    }

    /// Something that could not be scanned.
    pub(super) fn problem(&mut self, problem: &str) {
        let problem = plain(problem);
        tell(format_args!("{BOLD}warning:{BOLD:#} {problem}"));
        self.tally.problems += 1;
        self.sarif.problem(&problem);
    }

    pub(super) fn add(&mut self, target: &Target, outcome: Outcome<'_>) -> io::Result<()> {
        let (bytes, found) = match outcome {
            Outcome::Binary => {
                self.tally.binary += 1;
                return Ok(());
            }
            Outcome::Problem(problem) => {
                self.problem(&problem);
                return Ok(());
            }
            Outcome::Scanned { bytes, found } => (bytes, found),
        };
        self.tally.files += 1;
        self.tally.bytes += bytes as u64;
        self.tally.allowed += found.allowed;
        for one in &found.located {
            if self.baseline.has(&one.fingerprint) {
                self.tally.known += 1;
                continue;
            }
            *self.tally.of(one.finding.severity) += 1;
            if self.args.write_baseline {
                self.noted.push(Known {
                    fingerprint: one.fingerprint.clone(),
                    id: one.rule_id(),
                    path: target.name(),
                });
                continue;
            }
            match self.args.format {
                ScanFormat::Text => self.sink.write(&to_text(target, one))?,
                ScanFormat::Json => self.sink.write(&json_line(&to_json(target, one))?)?,
                ScanFormat::Sarif => self.sarif.add(target, one),
            }
        }
        Ok(())
    }

    /// Ends it, however the writing went so far.
    pub(super) fn close(
        mut self,
        written: io::Result<()>,
        hidden: usize,
    ) -> Result<Tally, Failure> {
        self.tally.hidden = hidden;
        let written = written.and_then(|()| {
            if self.args.format == ScanFormat::Sarif && !self.args.write_baseline {
                let page = serde_json::to_string_pretty(&self.sarif.page())?;
                self.sink.write(&page)?;
                self.sink.write("\n")?;
            }
            self.sink.flush()
        });
        match written.map_err(Failure::write) {
            // Whoever read has seen enough, and what was found is found.
            Ok(()) | Err(Failure::ReaderGone) => {}
            Err(failure) => return Err(failure),
        }
        if let (true, Some(path)) = (self.args.write_baseline, &self.args.baseline) {
            self.tally.noted = Some(Baseline::write(path, self.noted)?);
        }
        Ok(self.tally)
    }
}

/// What a scan comes to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    files: usize,
    bytes: u64,
    binary: usize,
    hidden: usize,
    allowed: usize,
    known: usize,
    by_severity: [usize; Severity::ALL.len()],
    /// How many fingerprints went into a new baseline.
    noted: Option<usize>,
    pub(super) problems: usize,
}

impl Tally {
    pub(super) fn findings(&self) -> usize {
        self.by_severity.iter().sum()
    }

    fn of(&mut self, severity: Severity) -> &mut usize {
        &mut self.by_severity[severity as usize]
    }

    pub(super) fn print(&self, elapsed: Duration) {
        let severities = Severity::ALL.into_iter().zip(self.by_severity).rev();
        let findings: Vec<String> = severities
            .filter(|(_, count)| *count > 0)
            .map(|(severity, count)| format!("{count} {}", severity.as_str()))
            .collect();
        let findings = match (findings.is_empty(), self.noted) {
            (_, Some(noted)) => format!("{noted} written to the baseline"),
            (true, None) => "nothing found".to_owned(),
            (false, None) => findings.join(", "),
        };
        // What was to be scanned can have seen to that.
        let nothing = if self.files + self.binary + self.problems > 0 {
            ""
        } else {
            "; if anything is there, .gitignore, .ignore (--no-ignore) or --exclude leaves it out"
        };
        let rest = [
            (self.known, "in the baseline"),
            (self.allowed, "allowed"),
            (self.binary, "binary skipped"),
            (self.hidden, "hidden left out (--hidden)"),
            (self.problems, "not scanned"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .fold(String::new(), |rest, (count, what)| {
            format!("{rest}; {count} {what}")
        });
        tell(format_args!(
            "{} {}, {} in {:.2} s: {BOLD}{findings}{BOLD:#}{rest}{nothing}",
            self.files,
            if self.files == 1 { "file" } else { "files" },
            indicatif::BinaryBytes(self.bytes),
            elapsed.as_secs_f64(),
        ));
    }
}

fn to_text(target: &Target, one: &Located<'_>) -> String {
    let finding = &one.finding;
    let style = severity_style(finding.severity);
    let origin = finding.origin.map(|origin| format!(" ({origin})"));
    let disguise = finding.disguise.map(|one| format!(", {}", one.as_str()));
    let head = format!(
        "{BOLD}{}:{}:{}{BOLD:#}  {style}{}{style:#}  {}{}  {DIM}{}{}{DIM:#}\n",
        plain(&target.name()),
        one.start.line,
        one.start.column,
        finding.severity.as_str(),
        finding.what,
        origin.unwrap_or_default(),
        one.rule_id(),
        disguise.unwrap_or_default(),
    );
    let Some(excerpt) = &one.excerpt else {
        return head;
    };
    let blank = " ".repeat(excerpt.marked.start);
    let carets = "^".repeat(excerpt.marked.len());
    format!(
        "{head}  {}\n  {blank}{style}{carets}{style:#}\n",
        excerpt.text
    )
}

fn to_json(target: &Target, one: &Located<'_>) -> Value {
    let finding = &one.finding;
    json!({
        "path": target.name(),
        "line": one.start.line, "column": one.start.column,
        "end_line": one.end.line, "end_column": one.end.column,
        "kind": finding.kind.as_str(), "family": finding.family, "id": finding.id,
        finding.kind.meaning_key(): finding.what, "severity": finding.severity, "origin": finding.origin,
        "disguise": finding.disguise.map(Disguise::as_str), "fingerprint": one.fingerprint,
    })
}
