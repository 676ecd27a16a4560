//! Decisions as people read them.

use std::io::{Result, Write};

use anstyle::Style;
use serde_json::Value;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, plain};

/// How many characters the bars of the chart have.
const BAR: usize = 40;

pub(super) fn recorded(out: &mut dyn Write, answer: &Value) -> Result<()> {
    let known = if answer["alreadyKnown"] == true {
        "already known"
    } else {
        "recorded"
    };
    writeln!(
        out,
        "{GREEN}{known}{GREEN:#}  {BOLD}{}{BOLD:#}  {}",
        text(&answer["id"]),
        text(&answer["title"])
    )?;
    if answer["reviewBy"].is_string() {
        writeln!(
            out,
            "  {DIM}to be reviewed by {}{DIM:#}",
            day(&answer["reviewBy"])
        )?;
    }
    Ok(())
}

pub(super) fn reviewed(out: &mut dyn Write, answer: &Value) -> Result<()> {
    let (style, outcome) = outcome(&answer["outcome"]);
    writeln!(
        out,
        "{GREEN}reviewed{GREEN:#}  {BOLD}{}{BOLD:#}  {style}{outcome}{style:#}  {}",
        text(&answer["id"]),
        text(&answer["title"])
    )
}

pub(super) fn decision(out: &mut dyn Write, decision: &Value) -> Result<()> {
    let (style, word) = outcome(&decision["outcome"]);
    writeln!(
        out,
        "{BOLD}{}{BOLD:#}  {style}{word}{style:#}\n\n{}\n",
        text(&decision["id"]),
        lines(&decision["decision"], 0)
    )?;
    for (name, value) in [
        ("context", lines(&decision["context"], 12)),
        ("category", text(&decision["category"])),
        ("stakes", text(&decision["stakes"])),
        ("confidence", number(&decision["confidence"])),
        ("tags", joined(&decision["tags"])),
        ("agent", text(&decision["agent"])),
        ("date", text(&decision["date"])),
        ("review by", text(&decision["reviewBy"])),
    ] {
        if !value.is_empty() {
            writeln!(out, "{DIM}{name:>10}{DIM:#}  {value}")?;
        }
    }
    reasons(out, &decision["reasons"], "    reason")?;
    for review in items(&decision["reviews"]) {
        let (style, word) = outcome(&review["outcome"]);
        write!(
            out,
            "\n{style}{word}{style:#}  {DIM}{}{DIM:#}",
            day(&review["date"])
        )?;
        match review["agent"].as_str() {
            Some(agent) => writeln!(out, "  {DIM}{}{DIM:#}", plain(agent))?,
            None => writeln!(out)?,
        }
        for (name, key) in [("happened", "actualResult"), ("learned", "lessons")] {
            if review[key].is_string() {
                writeln!(out, "{DIM}{name:>10}{DIM:#}  {}", lines(&review[key], 12))?;
            }
        }
    }
    Ok(())
}

pub(super) fn list(out: &mut dyn Write, answer: &Value) -> Result<()> {
    for decision in items(&answer["decisions"]) {
        line(out, decision, 0)?;
    }
    let shown = items(&answer["decisions"]).count();
    if shown == 0 {
        return writeln!(out, "no such decisions");
    }
    write!(out, "{DIM}{shown} of {}", answer["total"])?;
    if answer["next"].is_string() {
        write!(out, "; go on with --next {}", text(&answer["next"]))?;
    }
    writeln!(out, "{DIM:#}")
}

pub(super) fn found(out: &mut dyn Write, answer: &Value) -> Result<()> {
    for decision in items(&answer["decisions"]) {
        line(out, decision, 0)?;
        reasons(out, &decision["reasons"], "                     why")?;
    }
    let shown = items(&answer["decisions"]).count();
    if shown == 0 {
        return writeln!(out, "no such decisions");
    }
    writeln!(
        out,
        "{DIM}{shown} of {} in {} ms{DIM:#}",
        answer["total"], answer["queryTimeMs"]
    )
}

/// Decisions like something that is about to be done.
pub(in crate::commands) fn precedents(out: &mut dyn Write, list: &Value) -> Result<()> {
    for decision in items(list) {
        write!(out, "  {DIM}before{DIM:#} ")?;
        line(out, decision, 9)?;
    }
    Ok(())
}

/// Confidence and what came of it, side by side.
pub(super) fn calibration(out: &mut dyn Write, answer: &Value) -> Result<()> {
    if answer["brierScore"].is_null() {
        writeln!(out, "no reviewed decision had a confidence")?;
    } else {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#}  {DIM}{}, {} sure, {} turned out well{DIM:#}\n\
             Brier score {BOLD}{}{BOLD:#}  {DIM}0 is perfect; always saying {} gets {}{DIM:#}\n",
            tendency(&answer["tendency"]),
            count(number_of(&answer["decisions"]), "decision"),
            percent(&answer["meanConfidence"]),
            percent(&answer["successRate"]),
            score(&answer["brierScore"]),
            score(&answer["successRate"]),
            score(&answer["brierBaseline"]),
        )?;
        writeln!(
            out,
            "{DIM}{:>9}  {:<BAR$}  well   of{DIM:#}",
            "sure of", "turned out well; | is how sure"
        )?;
        for bucket in items(&answer["buckets"]) {
            bucket_line(out, bucket)?;
        }
        writeln!(out)?;
    }
    for advice in items(&answer["recommendations"]) {
        writeln!(out, "→ {}", text(advice))?;
    }
    Ok(())
}

fn bucket_line(out: &mut dyn Write, bucket: &Value) -> Result<()> {
    let share = |key: &str| bucket[key].as_f64().unwrap_or_default().clamp(0.0, 1.0);
    let (sure, well) = (share("meanConfidence"), share("successRate"));
    let place = |share: f64| {
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let place = (share * BAR as f64).round() as usize;
        place
    };
    let (mark, filled) = (place(sure).min(BAR - 1), place(well));
    let bar: String = (0..BAR)
        .map(|at| match at {
            at if at == mark => '|',
            at if at < filled => '█',
            _ => '·',
        })
        .collect();
    let style = match share("gap") {
        _ if (sure - well).abs() < 0.1 => GREEN,
        gap if gap > 0.0 => RED,
        _ => YELLOW,
    };
    writeln!(
        out,
        "{:>4.1}–{:<4.1}  {style}{bar}{style:#}  {well:.2} {:>4}",
        share("from"),
        share("to"),
        bucket["decisions"].to_string()
    )
}

/// A decision, and what was learned from it under it. So many columns are taken already.
fn line(out: &mut dyn Write, decision: &Value, taken: usize) -> Result<()> {
    let mut indent = taken + 11;
    if let Some(distance) = decision["distance"].as_f64() {
        write!(out, "{BOLD}{distance:.2}{BOLD:#}  ")?;
        indent += 6;
    }
    let (style, word) = outcome(&decision["outcome"]);
    writeln!(
        out,
        "{style}{word:<9}{style:#}  {DIM}{}{DIM:#}  {BOLD}{}{BOLD:#}  {}",
        day(&decision["date"]),
        text(&decision["id"]),
        text(&decision["title"])
    )?;
    if decision["notes"].is_string() {
        writeln!(
            out,
            "{:indent$}{DIM}learned{DIM:#}  {}",
            "",
            text(&decision["notes"])
        )?;
    }
    Ok(())
}

fn reasons(out: &mut dyn Write, reasons: &Value, name: &str) -> Result<()> {
    for reason in items(reasons) {
        write!(
            out,
            "{DIM}{name}{DIM:#}  {}: {}",
            text(&reason["type"]),
            text(&reason["text"])
        )?;
        match reason["strength"].as_f64() {
            Some(strength) => writeln!(out, "  {DIM}{strength}{DIM:#}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn outcome(outcome: &Value) -> (Style, String) {
    let style = match outcome.as_str() {
        Some("success") => GREEN,
        Some("failure") => RED,
        Some("partial") => YELLOW,
        _ => DIM,
    };
    let word = match outcome {
        Value::Null => "pending".to_owned(),
        outcome => text(outcome),
    };
    (style, word)
}

fn tendency(tendency: &Value) -> String {
    match tendency.as_str() {
        Some("unknown") => "too early to tell".to_owned(),
        _ => text(tendency),
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// On one line.
fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}

/// As it was written, without what could steer a terminal; all but the first line this far in.
fn lines(value: &Value, indent: usize) -> String {
    let text = value.as_str().unwrap_or_default();
    let lines: Vec<String> = text.lines().map(plain).collect();
    lines.join(&format!("\n{:indent$}", ""))
}

/// How many of what.
pub(super) fn count(number: usize, of: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {of}{s}")
}

fn number_of(value: &Value) -> usize {
    let number = value.as_u64().unwrap_or_default();
    number.try_into().unwrap_or(usize::MAX)
}

fn score(value: &Value) -> String {
    format!("{:.2}", value.as_f64().unwrap_or_default())
}

fn joined(list: &Value) -> String {
    let words: Vec<String> = items(list).map(text).collect();
    words.join(", ")
}

fn number(value: &Value) -> String {
    value
        .as_f64()
        .map(|number| number.to_string())
        .unwrap_or_default()
}

fn percent(value: &Value) -> String {
    format!("{:.0} %", value.as_f64().unwrap_or_default() * 100.0)
}

fn day(date: &Value) -> String {
    text(date).chars().take(10).collect()
}
