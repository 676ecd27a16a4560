//! `portcullis guardrail`

use std::io::Write;
use std::path::Path;

use portcullis_server::{GuardrailError, GuardrailFiles, Method};
use serde_json::{Value, json};

use super::check::{call, load};
use crate::cli::{ConnectArgs, Format, GuardrailLintArgs, GuardrailListArgs};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, RED, YELLOW, json_line, plain};

pub(crate) fn lint(args: &GuardrailLintArgs) -> Result<Answer, Failure> {
    let path = args.path.as_deref();
    // Wrong files are what lint is asked about; only an unreadable one is wrong usage.
    if let Some(path) = path
        && let Err(error @ GuardrailError::Invalid(_)) = GuardrailFiles::new(path, true).load()
    {
        write!(anstream::stdout(), "{error}").map_err(Failure::write)?;
        return Ok(Answer::No);
    }
    let (guardrails, warnings) = load(path)?;
    let name = path.unwrap_or(Path::new("policies/guardrails/default.yaml"));
    writeln!(
        anstream::stdout(),
        "{warnings}{}: {GREEN}ok{GREEN:#} ({} guardrails, digest {})",
        name.display(),
        guardrails.enabled(),
        &guardrails.digest()[..12],
    )
    .map_err(Failure::write)?;
    let failed = args.deny_warnings && !warnings.is_empty();
    Ok(if failed { Answer::No } else { Answer::Yes })
}

pub(crate) fn list(args: &GuardrailListArgs) -> Result<Answer, Failure> {
    let list = if args.local.local {
        let guardrails = load(args.local.guardrails.as_deref())?.0;
        let all: Vec<_> = guardrails.iter().collect();
        json!({"guardrails": all, "policyDigest": guardrails.digest()})
    } else {
        let ConnectArgs { url, how } = &args.connect;
        call(url, how, Method::ListGuardrails, &json!({}))?
    };
    let printed = match args.format {
        Format::Json => {
            json_line(&list).and_then(|line| anstream::stdout().write_all(line.as_bytes()))
        }
        Format::Text => print(&list),
    };
    printed.map_err(Failure::write)?;
    Ok(Answer::Yes)
}

fn print(list: &Value) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    for guardrail in list["guardrails"].as_array().into_iter().flatten() {
        let text = |key: &str| plain(guardrail[key].as_str().unwrap_or_default());
        let severity = text("severity");
        let color = match &*severity {
            "block" => RED,
            "warn" => YELLOW,
            _ => DIM,
        };
        let off = if guardrail["enabled"] == false {
            " (off)"
        } else {
            ""
        };
        writeln!(
            out,
            "{color}{severity:<5}{color:#} {BOLD}{}{BOLD:#}{off}  {}\n      {DIM}when {}{DIM:#}",
            text("id"),
            text("message"),
            text("when"),
        )?;
    }
    Ok(())
}
