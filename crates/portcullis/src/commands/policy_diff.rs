//! `portcullis policy diff`

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use portcullis_core::{Evaluation, Event, Step};
use portcullis_runtime::Gateway;
use serde_json::{Value, json};

use crate::cli::{DiffArgs, Format};
use crate::commands::{load, runtime};
use crate::lines::{self, BadLine, Steps};
use crate::output::{Answer, BOLD, DIM, Failure, RED, json_line, plain, style};

pub(crate) fn run(args: &DiffArgs) -> Result<Answer, Failure> {
    let gateway = |path| {
        let loaded = load(Some(path), args.env.as_deref())?;
        Ok::<_, Failure>(Gateway::builder(loaded.policy).build())
    };
    let (old, new) = (gateway(&args.old)?, gateway(&args.new)?);
    let mut steps = Steps::new(lines::open(args.events.as_deref())?, args.max_line_bytes);
    let progress = progress(args);
    let runtime = runtime()?;
    let mut tally = Tally::default();
    loop {
        let item = steps.next().map_err(Failure::read)?;
        let Some(item) = item else {
            break;
        };
        progress.inc(item.read);
        let printed = match item.step {
            Ok(Step { context, event }) => {
                tally.replayed += 1;
                let before = runtime.block_on(old.evaluate(&mut context.clone(), &event));
                let after = runtime.block_on(new.evaluate(&mut context.clone(), &event));
                if verdict(&before) == verdict(&after) {
                    continue;
                }
                tally.changed += 1;
                progress.suspend(|| print(args.format, item.line, &event, &before, &after))
            }
            Err(bad) => {
                tally.bad += 1;
                progress.suspend(|| print_bad(args.format, &bad))
            }
        };
        printed.map_err(Failure::write)?;
    }
    progress.finish_and_clear();
    if args.format == Format::Text {
        tally.print().map_err(Failure::write)?;
    }
    Ok(match tally {
        Tally { bad: 1.., .. } => Answer::BadInput,
        Tally { changed: 1.., .. } => Answer::No,
        _ => Answer::Yes,
    })
}

#[derive(Default)]
struct Tally {
    replayed: u64,
    changed: u64,
    bad: u64,
}

impl Tally {
    fn print(&self) -> io::Result<()> {
        let Self {
            replayed,
            changed,
            bad,
        } = self;
        let bad = if *bad > 0 {
            format!(", {bad} bad lines")
        } else {
            String::new()
        };
        writeln!(
            anstream::stdout(),
            "{replayed} events replayed, {changed} verdicts would change{bad}"
        )
    }
}

/// What of an evaluation counts as its verdict: not the times and ids.
fn verdict(evaluation: &Evaluation) -> Value {
    let decision = &evaluation.decision;
    json!({
        "action": decision.action, "rule_id": decision.rule_id, "enforced": evaluation.enforced,
        "redactions": decision.redactions, "effects": decision.effects, "severity": decision.severity,
        "error_code": decision.stop.as_ref().map(|stop| stop.error_code),
    })
}

fn print(
    format: Format,
    line: u64,
    event: &Event,
    before: &Evaluation,
    after: &Evaluation,
) -> io::Result<()> {
    let mut out = anstream::stdout();
    if format == Format::Json {
        let change = json!({
            "line": line, "run_id": event.run_id, "event_type": event.event_type,
            "tool_name": event.tool_name, "old": verdict(before), "new": verdict(after),
        });
        return out.write_all(json_line(&change)?.as_bytes());
    }
    let side = |evaluation: &Evaluation| {
        let decision = &evaluation.decision;
        let color = style(decision.action);
        let count = decision.redactions.len();
        let redactions = if count > 0 {
            format!(", {count} redacted")
        } else {
            String::new()
        };
        let shadow = if evaluation.enforced {
            ""
        } else {
            ", not enforced"
        };
        format!(
            "{color}{}{color:#} {}{redactions}{shadow}",
            decision.action, decision.rule_id
        )
    };
    let tool = plain(event.tool_name.as_deref().unwrap_or_default());
    writeln!(
        out,
        "{BOLD}line {line}{BOLD:#}  {} {} {tool}\n  - {}  {DIM}{}{DIM:#}\n  + {}  {DIM}{}{DIM:#}",
        plain(&event.run_id),
        plain(event.event_type.as_str()),
        side(before),
        plain(&before.decision.reason),
        side(after),
        plain(&after.decision.reason),
    )
}

fn print_bad(format: Format, bad: &BadLine) -> io::Result<()> {
    let mut out = anstream::stdout();
    match format {
        Format::Json => out.write_all(json_line(&json!({"error": bad}))?.as_bytes()),
        Format::Text => writeln!(out, "{RED}line {}:{RED:#} {}", bad.line, bad.message),
    }
}

/// Shown on a terminal only.
fn progress(args: &DiffArgs) -> ProgressBar {
    let size = args.events.as_ref().and_then(|path| path.metadata().ok());
    let bar = size.map_or_else(ProgressBar::new_spinner, |size| {
        ProgressBar::new(size.len())
    });
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
    match style {
        Ok(style) if bar.length().is_some() => bar.with_style(style),
        _ => bar,
    }
}
