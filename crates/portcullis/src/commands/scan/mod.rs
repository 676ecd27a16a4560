//! `portcullis scan`

mod baseline;
mod excerpt;
mod files;
mod found;
mod report;
mod sarif;

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use portcullis_core::detectors::{Finder, Finding, Kind};

use crate::cli::{FOUND, ScanArgs, ScanFormat};
use crate::output::{Answer, Failure};
use crate::whole::{self, place};
use baseline::Baseline;
use excerpt::Excerpts;
use files::{Target, Targets};
use found::Found;
use report::{Report, Sink, Tally};

pub(crate) fn run(args: &ScanArgs) -> Result<Answer, Failure> {
    let started = Instant::now();
    refuse_overwriting(args)?;
    let finder = Finder::new(kinds(args), &args.family).map_err(input)?;
    let finder = finder.seeing_through();
    let excerpts = match args.format {
        ScanFormat::Text if !args.write_baseline => Some(Excerpts::new().map_err(input)?),
        _ => None,
    };
    let baseline = match &args.baseline {
        Some(path) if !args.write_baseline => Baseline::read(path)?,
        _ => Baseline::default(),
    };
    let targets = files::collect(args)?;
    let scan = Scan {
        args,
        finder: &finder,
        excerpts: excerpts.as_ref(),
    };
    // Opened when it is known what is scanned: what is written in the meantime may lie in the same folder.
    let tally = match &args.output {
        None => scan.all(&targets, Report::new(args, Sink::Stdout, baseline)),
        Some(path) => {
            let mut opened = false;
            let written = whole::write(path, |file| {
                opened = true;
                let sink = Sink::File(BufWriter::new(file));
                scan.all(&targets, Report::new(args, sink, baseline))
            });
            written.map_err(|failure| {
                if opened {
                    failure
                } else {
                    wrong_place(failure)
                }
            })
        }
    }?;
    tally.print(started.elapsed());
    Ok(match tally {
        Tally { problems: 1.., .. } => Answer::BadInput,
        _ if args.exit_zero || args.write_baseline => Answer::Yes,
        _ if tally.findings() > 0 => Answer::No,
        _ => Answer::Yes,
    })
}

/// Refuses to write over the only file that is named to be scanned, and a baseline over what is none. A report may be
/// anything: among others to be scanned, it is one that was there before, and `*` names it too.
fn refuse_overwriting(args: &ScanArgs) -> Result<(), Failure> {
    let baseline = args.baseline.as_ref().filter(|_| args.write_baseline);
    let written = [("--output", args.output.as_ref()), ("--baseline", baseline)];
    for (option, path) in written {
        let Some(path) = path.filter(|path| path.is_file()) else {
            continue;
        };
        let here = place(path);
        let is_all = args.paths.iter().all(|scanned| place(scanned) == here);
        if is_all && !args.paths.is_empty() {
            return Err(input(anyhow!(
                "{option} {} would write over what is to be scanned: name another file",
                path.display()
            )));
        }
    }
    match baseline {
        Some(path) if !Baseline::may_replace(path) => Err(input(anyhow!(
            "--write-baseline: {} is no baseline, so it is not written over: name another file, or remove it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// What is wrong with a file that cannot be made is its name.
fn wrong_place(failure: Failure) -> Failure {
    match failure {
        Failure::Unavailable(error) => Failure::Input(error),
        other => other,
    }
}

fn input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Input(error.into())
}

/// A family that is named can be of any kind.
fn kinds(args: &ScanArgs) -> &[Kind] {
    match (args.kind.is_empty(), args.family.is_empty()) {
        (false, _) => &args.kind,
        (true, true) => &[Kind::Secrets, Kind::Injection],
        (true, false) => &FOUND,
    }
}

/// What came of one file.
#[derive(Debug)]
enum Outcome<'f> {
    Scanned { bytes: usize, found: Found<'f> },
    Binary,
    Problem(String),
}

impl Outcome<'_> {
    /// Whether anything may be printed of it.
    fn is_told(&self) -> bool {
        match self {
            Self::Scanned { found, .. } => !found.located.is_empty(),
            Self::Binary => false,
            Self::Problem(_) => true,
        }
    }
}

#[derive(Clone, Copy)]
struct Scan<'a> {
    args: &'a ScanArgs,
    finder: &'a Finder,
    excerpts: Option<&'a Excerpts>,
}

impl<'a> Scan<'a> {
    /// Scans on all cores and reports in the order of the paths.
    fn all(self, targets: &Targets, mut report: Report<'a>) -> Result<Tally, Failure> {
        for problem in &targets.problems {
            report.problem(problem);
        }
        let files = targets.files.as_slice();
        let progress = progress(self.args, files.len());
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let (sender, outcomes) = mpsc::channel();
        let written = std::thread::scope(|scope| {
            for _ in 0..threads(files.len()) {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(target) = files.get(index) else {
                            return;
                        };
                        // Nobody listens any more only when the scan is over.
                        let _ = sender.send((index, self.one(target)));
                    }
                });
            }
            drop(sender);
            let written = write_in_order(files, outcomes, &mut report, &progress);
            stop.store(true, Ordering::Relaxed);
            written
        });
        progress.finish_and_clear();
        report.close(written, targets.hidden)
    }

    fn one(self, target: &Target) -> Outcome<'a> {
        let args = self.args;
        let name = target.name();
        let bytes = match target.read(args.max_file_bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let most = args.max_file_bytes;
                return Outcome::Problem(format!(
                    "{name} has more than {most} bytes (--max-file-bytes): not scanned"
                ));
            }
            Err(error) => return Outcome::Problem(format!("cannot read {name}: {error}")),
        };
        let len = bytes.len();
        let Some(text) = files::decode(bytes) else {
            return Outcome::Binary;
        };
        let wanted = |finding: &Finding<'_>| finding.severity >= args.min_severity;
        let found = found::find(
            self.finder,
            self.excerpts,
            (&name, &text),
            !args.no_allow,
            wanted,
        );
        match found {
            Ok(found) => Outcome::Scanned { bytes: len, found },
            Err(error) => Outcome::Problem(format!("{name}: {error}")),
        }
    }
}

fn write_in_order<'f>(
    files: &[Target],
    outcomes: mpsc::Receiver<(usize, Outcome<'f>)>,
    report: &mut Report<'f>,
    progress: &ProgressBar,
) -> std::io::Result<()> {
    let mut early = BTreeMap::new();
    let mut turn = 0;
    for (index, outcome) in outcomes {
        early.insert(index, outcome);
        while let Some(outcome) = early.remove(&turn) {
            progress.inc(1);
            let file = &files[turn];
            if outcome.is_told() {
                progress.suspend(|| report.add(file, outcome))?;
            } else {
                // Each time it is suspended it is drawn anew.
                report.add(file, outcome)?;
            }
            turn += 1;
        }
    }
    Ok(())
}

/// Two at least, so that one file is read while another is searched.
fn threads(files: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, Into::into);
    cores.max(2).min(files)
}

/// Shown on a terminal only.
fn progress(args: &ScanArgs, files: usize) -> ProgressBar {
    if args.no_progress {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(files as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} files {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
