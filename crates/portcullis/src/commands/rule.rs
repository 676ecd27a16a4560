//! `portcullis rule list` and `portcullis rule explain`

use std::io::Write;

use portcullis_core::pack::diagnostic::suggestion;
use portcullis_core::rules::{BUILT_IN, KNOWN_DEEP};
use serde_json::json;

use crate::cli::{Format, RuleExplainArgs, RuleListArgs};
use crate::output::{Answer, BOLD, Failure, json_line};

pub(crate) fn list(args: &RuleListArgs) -> Result<Answer, Failure> {
    let mut out = anstream::stdout();
    for spec in BUILT_IN {
        let events = (spec.events)();
        let printed = match args.format {
            Format::Json => json_line(&json!({
                "id": spec.id, "version": spec.version, "cost": spec.cost,
                "events": events.names(), "summary": spec.summary().trim(),
            })),
            Format::Text => Ok(format!(
                "{BOLD}{:<20}{BOLD:#} {}\n",
                spec.id,
                spec.summary().trim()
            )),
        };
        printed
            .and_then(|text| out.write_all(text.as_bytes()))
            .map_err(Failure::write)?;
    }
    Ok(Answer::Yes)
}

pub(crate) fn explain(args: &RuleExplainArgs) -> Result<Answer, Failure> {
    let Some(spec) = BUILT_IN.iter().find(|spec| spec.id == args.id) else {
        if KNOWN_DEEP.iter().any(|deep| deep.id == args.id) {
            return Err(Failure::Input(anyhow::anyhow!(
                "`{}` is a deep rule: it needs a model, and this build has none",
                args.id
            )));
        }
        let help = suggestion(&args.id, BUILT_IN.iter().map(|spec| spec.id));
        return Err(Failure::Input(anyhow::anyhow!(
            "no rule `{}`: {help}",
            args.id
        )));
    };
    let text = match args.format {
        Format::Json => json_line(&json!({
            "id": spec.id, "version": spec.version, "cost": spec.cost,
            "events": (spec.events)().names(), "page": spec.page(),
        }))
        .map_err(Failure::write)?,
        Format::Text => format!(
            "{BOLD}{}{BOLD:#} {}, on {}\n\n{}",
            spec.id,
            spec.version,
            (spec.events)().names().join(", "),
            spec.page()
        ),
    };
    anstream::stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::write)?;
    Ok(Answer::Yes)
}
