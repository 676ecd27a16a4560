//! `portcullis evidence`

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use portcullis_core::evidence::{Link, PublicKey};
use portcullis_store::evidence::{self, Entries, Entry, ReadError, VerifyOptions, VerifyReport};
use serde_json::{Value, json};

use crate::cli::{Format, ShowArgs, TailArgs, VerifyArgs, WhichArgs};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, RED, YELLOW, json_line, plain};

/// How often `tail` looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn verify(args: &VerifyArgs) -> Result<Answer, Failure> {
    check_directory(&args.directory)?;
    let options = VerifyOptions {
        public_key: args.key.as_deref().map(read_key).transpose()?,
        expected: args.expect.as_deref().map(parse_link).transpose()?,
        start: args.start.as_deref().map(parse_link).transpose()?,
    };
    let bar = ProgressBar::new(0).with_style(style());
    let report = evidence::verify(&args.directory, &options, |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    let report = report.map_err(unreadable)?;
    let printed = match args.format {
        Format::Json => json_line(&to_json(&report))
            .and_then(|line| anstream::stdout().write_all(line.as_bytes())),
        Format::Text => print_report(&report),
    };
    printed.map_err(Failure::write)?;
    Ok(if report.is_ok() {
        Answer::Yes
    } else {
        Answer::No
    })
}

pub(crate) fn show(args: &ShowArgs) -> Result<Answer, Failure> {
    check_directory(&args.directory)?;
    let mut shown = 0;
    for entry in Entries::new(&args.directory, args.from) {
        if shown == args.limit {
            break;
        }
        shown += u64::from(print_entry(&read(entry)?, &args.which, args.format)?);
    }
    Ok(Answer::Yes)
}

pub(crate) fn tail(args: &TailArgs) -> Result<Answer, Failure> {
    check_directory(&args.directory)?;
    let last = last_seq(&args.directory)?;
    let from = last.saturating_sub(args.lines) + 1;
    let mut entries = Entries::new(&args.directory, from);
    loop {
        match entries.next() {
            Some(entry) => {
                print_entry(&read(entry)?, &args.which, args.format)?;
            }
            None if args.no_follow => return Ok(Answer::Yes),
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn read(entry: Result<Entry, ReadError>) -> Result<Entry, Failure> {
    entry.map_err(unreadable)
}

/// A disk that cannot be read is one thing, a folder that holds something else another.
fn unreadable(error: ReadError) -> Failure {
    match error {
        ReadError::Io { .. } => Failure::Unavailable(error.into()),
        _ => Failure::Input(error.into()),
    }
}

/// The number of the last entry: that of the first in the last segment, and those after it.
fn last_seq(directory: &Path) -> Result<u64, Failure> {
    let segments = evidence::segments(directory);
    let segments = segments.map_err(unreadable)?;
    let Some(segment) = segments.last() else {
        return Ok(0);
    };
    let mut last = segment.first.saturating_sub(1);
    for entry in Entries::new(directory, segment.first) {
        last = read(entry)?.link.seq;
    }
    Ok(last)
}

fn check_directory(directory: &Path) -> Result<(), Failure> {
    if directory.is_dir() {
        return Ok(());
    }
    Err(Failure::Input(anyhow!(
        "{} is not a folder: name the one that holds the log, which `portcullis serve` prints when it starts",
        directory.display()
    )))
}

fn read_key(path: &Path) -> Result<PublicKey, Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the key {}", path.display()))
        .map_err(Failure::Input)?;
    let key = text.trim().parse();
    key.with_context(|| format!("{} holds no public key", path.display()))
        .map_err(Failure::Input)
}

fn parse_link(text: &str) -> Result<Link, Failure> {
    let wrong = || {
        Failure::Input(anyhow!(
            "`{text}` is not SEQ:DIGEST, such as 1042:9f86d081…"
        ))
    };
    let (seq, digest) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Link {
        seq: seq.parse().map_err(|_| wrong())?,
        digest: digest.parse().map_err(|_| wrong())?,
    })
}

fn style() -> ProgressStyle {
    let template = "verifying {bar:30} {bytes}/{total_bytes} {eta}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn print_report(report: &VerifyReport) -> io::Result<()> {
    let mut out = anstream::stdout();
    for fault in &report.faults {
        let line = fault
            .line
            .map(|line| format!(":{line}"))
            .unwrap_or_default();
        writeln!(
            out,
            "{RED}{}{line}:{RED:#} {}",
            fault.path.display(),
            plain(&fault.problem.to_string())
        )?;
    }
    let more = report
        .fault_count
        .saturating_sub(report.faults.len() as u64);
    if more > 0 {
        writeln!(out, "{RED}and {more} more{RED:#}")?;
    }
    let (color, word) = if report.is_ok() {
        (GREEN, "the chain holds")
    } else {
        (RED, "THE CHAIN DOES NOT HOLD")
    };
    writeln!(
        out,
        "{color}{word}{color:#}: {} entries in {} files, {} signed checkpoints, {} entries since the last",
        report.entries, report.segments, report.checkpoints, report.uncovered
    )?;
    writeln!(
        out,
        "last entry {BOLD}{}:{}{BOLD:#}",
        report.last.seq, report.last.digest
    )?;
    let whose = if report.key_from_log {
        ", which lies in the log itself: keep a copy elsewhere and give it with --key"
    } else {
        ""
    };
    writeln!(out, "{DIM}key {}{whose}{DIM:#}", report.key_id)?;
    if report.torn_bytes > 0 {
        writeln!(
            out,
            "{YELLOW}{} bytes of an unfinished entry at the end{YELLOW:#} {DIM}(being written, or cut by a crash; nobody was told it is there){DIM:#}",
            report.torn_bytes
        )?;
    }
    Ok(())
}

fn to_json(report: &VerifyReport) -> Value {
    let faults: Vec<Value> = report
        .faults
        .iter()
        .map(|fault| {
            json!({"file": fault.path, "line": fault.line, "problem": fault.problem.to_string()})
        })
        .collect();
    json!({
        "ok": report.is_ok(),
        "entries": report.entries,
        "segments": report.segments,
        "first_seq": report.first_seq,
        "last": report.last,
        "checkpoints": report.checkpoints,
        "uncovered": report.uncovered,
        "torn_bytes": report.torn_bytes,
        "key_id": report.key_id,
        "key_from_log": report.key_from_log,
        "faults": faults,
        "fault_count": report.fault_count,
    })
}

/// Prints an entry if it is one of those asked for. Each at once: somebody may be waiting for it.
fn print_entry(entry: &Entry, which: &WhichArgs, format: Format) -> Result<bool, Failure> {
    let value = entry.value();
    if !is_asked_for(&value, which) {
        return Ok(false);
    }
    let printed = match format {
        Format::Json => {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", entry.line).and_then(|()| out.flush())
        }
        Format::Text => row(&value),
    };
    printed.map_err(Failure::write)?;
    Ok(true)
}

fn is_asked_for(entry: &Value, which: &WhichArgs) -> bool {
    let is = |key: &str, wanted: &Option<String>| {
        wanted.as_ref().is_none_or(|wanted| entry[key] == *wanted)
    };
    is("requesting_agent", &which.agent)
        && is("event", &which.event)
        && (!which.blocked || was_blocked(entry))
}

fn was_blocked(entry: &Value) -> bool {
    entry["allowed"] == false || matches!(entry["decision"].as_str(), Some("STOP" | "PAUSE"))
}

fn row(entry: &Value) -> io::Result<()> {
    let text = |key: &str| plain(entry[key].as_str().unwrap_or_default());
    let verdict = match (&entry["allowed"], entry["decision"].as_str()) {
        (Value::Bool(true), _) => "allowed".to_owned(),
        (Value::Bool(false), _) => "BLOCKED".to_owned(),
        (_, Some(decision)) => plain(decision),
        _ => String::new(),
    };
    let color = if was_blocked(entry) { RED } else { GREEN };
    let batch = entry["batch"].pointer("/events/0/id");
    let what = match entry["action"].as_str().or(batch.and_then(Value::as_str)) {
        Some(what) => plain(what),
        None => format!(
            "{} {} {}",
            text("run_id"),
            text("event_type"),
            text("tool_name")
        ),
    };
    let by: Vec<String> = ["violations", "warnings"]
        .iter()
        .flat_map(|key| entry[*key].as_array().into_iter().flatten())
        .filter_map(|id| id.as_str().map(plain))
        .chain(entry["rule_id"].as_str().map(plain))
        .collect();
    let mut out = anstream::stdout();
    writeln!(
        out,
        "{DIM}{:>6} {}{DIM:#} {color}{verdict:<7}{color:#} {:<16} {BOLD}{}{BOLD:#}  {} {DIM}{}{DIM:#}",
        entry["seq"].to_string(),
        text("timestamp"),
        text("event"),
        text("requesting_agent"),
        what.trim_end(),
        by.join(" "),
    )?;
    out.flush()
}
