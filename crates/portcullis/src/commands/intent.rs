//! `portcullis intent`

use std::io::Write;

use portcullis_core::guardrails::ProposedAction;
use portcullis_core::memory::Precedents;
use portcullis_server::{IntentAnswer, Method, new_correlation_id};
use serde_json::Value;

use super::check::{
    LOCAL_AGENT, action, call, load, now, object, print_violations, read_params, verdict,
    warn_of_history, wrong_field,
};
use super::decision::print_precedents;
use crate::cli::{ConnectArgs, Format, IntentArgs, LocalArgs};
use crate::output::{Answer, DIM, Failure, GREEN, RED, json_line, plain};

pub(crate) fn run(args: &IntentArgs) -> Result<Answer, Failure> {
    let params = match &args.action.params {
        Some(path) => read_params(path)?,
        None => {
            let mut params = action(&args.action, "metadata")?;
            if let Some(note) = &args.note {
                params.insert("context".to_owned(), note.as_str().into());
            }
            if let Some(id) = &args.correlation_id {
                params.insert("correlationId".to_owned(), id.as_str().into());
            }
            params.into()
        }
    };
    let answer = if args.local.local {
        local(&params, &args.local)?
    } else {
        let ConnectArgs { url, how } = &args.connect;
        call(url, how, Method::AnnounceIntent, &params)?
    };
    let printed = match args.format {
        Format::Json => {
            json_line(&answer).and_then(|line| anstream::stdout().write_all(line.as_bytes()))
        }
        Format::Text => print(&answer),
    };
    printed.map_err(Failure::write)?;
    Ok(verdict(&answer["guardrailStatus"]))
}

fn local(params: &Value, args: &LocalArgs) -> Result<Value, Failure> {
    let intent = ProposedAction::from_intent(object(params)?).map_err(wrong_field)?;
    let (guardrails, _) = load(args.guardrails.as_deref())?;
    warn_of_history(&guardrails, &intent.action);
    let verdict = guardrails.check(&intent.action);
    let agent = LOCAL_AGENT.to_owned();
    let id = intent.correlation_id.unwrap_or_else(new_correlation_id);
    let answer = IntentAnswer::new(verdict, Precedents::default(), (id, 1), now(), agent);
    serde_json::to_value(answer).map_err(|error| Failure::Input(error.into()))
}

fn print(answer: &Value) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let status = &answer["guardrailStatus"];
    let (color, word) = if verdict(status) == Answer::Yes {
        (GREEN, "ALLOWED")
    } else {
        (RED, "BLOCKED")
    };
    writeln!(
        out,
        "{color}{word}{color:#}  {DIM}{} guardrails, by {}, as {}{DIM:#}",
        status["evaluated"],
        text(&answer["respondingAgent"]),
        text(&answer["correlationId"]),
    )?;
    print_violations(&mut out, status)?;
    print_precedents(&mut out, &answer["similarDecisions"])?;
    for suggestion in answer["suggestions"].as_array().into_iter().flatten() {
        writeln!(out, "  → {}", text(suggestion))?;
    }
    Ok(())
}
