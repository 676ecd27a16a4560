//! Batches for people.

use std::io::{self, Write};

use anstyle::Style;
use portcullis_core::a2a::{Batch, ConvertError, LossinessLevel, Sealed};
use serde::Serialize;

use super::problem::Problem;
use super::stream::Tally;
use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, plain};

/// What every type of ours begins with.
const TYPES: &str = "assay.adapter.a2a.";

/// Appends all there is to know of one batch.
pub(super) fn page(batch: &Batch<'_>, sealed: &Sealed, out: &mut Vec<u8>) -> Result<(), Problem> {
    let digest = sealed.digest;
    let event = batch.event();
    let lossiness = &batch.lossiness;
    let discovery = &event.data.discovery;
    let mut write = || -> io::Result<()> {
        let kind = event.kind;
        writeln!(out, "{:<NAME$}{BOLD}{kind}{BOLD:#}", "type")?;
        writeln!(
            out,
            "{:<NAME$}{}",
            "subject",
            shortened(&event.subject, 200)
        )?;
        writeln!(out, "{:<NAME$}{}", "time", event.time)?;
        let (color, level) = (
            style(lossiness.lossiness_level),
            lossiness.lossiness_level.as_str(),
        );
        let unmapped = match lossiness.unmapped_fields_count {
            0 => String::new(),
            1 => ", 1 field unmapped".to_owned(),
            count => format!(", {count} fields unmapped"),
        };
        writeln!(
            out,
            "{:<NAME$}{color}{level}{color:#}{unmapped}",
            "lossiness"
        )?;
        for note in &lossiness.notes {
            writeln!(out, "{:<NAME$}{}", "", name(note))?;
        }
        writeln!(out, "discovery")?;
        let members = [
            (
                "agent_card_visible",
                discovery.agent_card_visible.to_string(),
            ),
            (
                "agent_card_source_kind",
                name(&discovery.agent_card_source_kind),
            ),
            (
                "extended_card_access_visible",
                discovery.extended_card_access_visible.to_string(),
            ),
            (
                "signature_material_visible",
                discovery.signature_material_visible.to_string(),
            ),
        ];
        for (member, value) in members {
            let color = if value == "true" { GREEN } else { DIM };
            writeln!(out, "  {member:<MEMBER$}{color}{value}{color:#}")?;
        }
        writeln!(out, "{:<NAME$}{digest}", "digest")
    };
    write().map_err(|error| unwritable(&error))
}

const MEMBER: usize = 30;
const NAME: usize = MEMBER + 2;

/// Appends one batch of many.
pub(super) fn row(batch: &Batch<'_>, sealed: &Sealed, out: &mut Vec<u8>) -> Result<(), Problem> {
    let digest = sealed.digest.to_string();
    let event = batch.event();
    let kind = event.kind.strip_prefix(TYPES).unwrap_or(event.kind);
    let level = batch.lossiness.lossiness_level;
    let color = style(level);
    let discovery = &event.data.discovery;
    let seen = match (
        discovery.agent_card_visible,
        discovery.extended_card_access_visible,
    ) {
        (true, true) => "card, extended",
        (true, false) => "card",
        (false, true) => "extended",
        (false, false) => "",
    };
    let written = writeln!(
        out,
        "{BOLD}{kind:<18}{BOLD:#} {:<40} {:<20} {color}{:<4}{color:#} {GREEN}{seen:<14}{GREEN:#} {DIM}{}{DIM:#}",
        shortened(&event.subject, 40),
        event.time.to_string(),
        level.as_str(),
        &digest[..16],
    );
    written.map_err(|error| unwritable(&error))
}

/// Appends how it went with all of them.
pub(super) fn end(tally: &Tally, out: &mut Vec<u8>) {
    let converted = tally.lines.saturating_sub(tally.refused);
    let (color, refused) = (if tally.refused > 0 { RED } else { DIM }, tally.refused);
    // A vector takes everything.
    let _ = writeln!(
        out,
        "\n{converted} {GREEN}converted{GREEN:#}, {refused} {color}refused{color:#}"
    );
}

fn style(level: LossinessLevel) -> Style {
    match level {
        LossinessLevel::None => GREEN,
        LossinessLevel::Low => YELLOW,
        LossinessLevel::High => RED,
    }
}

/// Something's name on the wire.
fn name(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// The beginning of a text that may be as long as a packet.
fn shortened(text: &str, width: usize) -> String {
    let mut short: String = text.chars().take(width).collect();
    if text.chars().nth(width).is_some() {
        short.pop();
        short.push('…');
    }
    plain(&short)
}

fn unwritable(error: &io::Error) -> Problem {
    let error = ConvertError::Infrastructure {
        message: format!("the batch cannot be written: {error}"),
    };
    error.into()
}
