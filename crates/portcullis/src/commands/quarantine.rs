//! `portcullis quarantine`

use std::io::{self, Write};

use anyhow::anyhow;
use portcullis_server::client::{Client, ClientError, NOT_QUARANTINED, RUN_UNKNOWN};
use serde_json::{Value, json};

use super::check::{connect, failure};
use super::runtime;
use crate::cli::{
    ConnectArgs, QuarantineAddArgs, QuarantineCommand, QuarantineListArgs, QuarantineReleaseArgs,
    QuarantineShowArgs,
};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, Out, RED, YELLOW, plain, print};

pub(crate) fn run(command: &QuarantineCommand) -> Result<Answer, Failure> {
    match command {
        QuarantineCommand::List(args) => list(args),
        QuarantineCommand::Show(args) => show(args),
        QuarantineCommand::Add(args) => add(args),
        QuarantineCommand::Release(args) => release(args),
    }
}

fn list(args: &QuarantineListArgs) -> Result<Answer, Failure> {
    let ask = async |client: Client| client.quarantined(args.limit, args.after.as_deref()).await;
    let page = asked(&args.connect, ask)?;
    print(args.format, &page, print_list)?;
    Ok(Answer::Yes)
}

fn show(args: &QuarantineShowArgs) -> Result<Answer, Failure> {
    let ask = async |client: Client| match client.run(&args.run).await {
        Err(error) if error.is(RUN_UNKNOWN) => Ok(json!({
            "run_id": args.run, "strikes": {}, "flags": [], "quarantine": null,
        })),
        answer => answer,
    };
    let run = asked(&args.connect, ask)?;
    print(args.format, &run, print_run)?;
    Ok(if run["quarantine"].is_null() {
        Answer::Yes
    } else {
        Answer::No
    })
}

fn add(args: &QuarantineAddArgs) -> Result<Answer, Failure> {
    let ask = async |client: Client| client.quarantine(&args.run, &args.reason).await;
    let answer = asked(&args.connect, ask)?;
    print(args.format, &answer, |out, answer| {
        writeln!(out, "{RED}in quarantine{RED:#}")?;
        print_flag(out, &answer["quarantine"])
    })?;
    Ok(Answer::Yes)
}

fn release(args: &QuarantineReleaseArgs) -> Result<Answer, Failure> {
    let ask = async |client: Client| client.release(&args.run, args.reason.as_deref()).await;
    let answer = asked(&args.connect, ask)?;
    print(args.format, &answer, |out, answer| {
        writeln!(out, "{GREEN}released{GREEN:#}")?;
        match &answer["released"] {
            Value::Null => Ok(()),
            flag => print_flag(out, flag),
        }
    })?;
    Ok(Answer::Yes)
}

fn asked(
    args: &ConnectArgs,
    ask: impl AsyncFnOnce(Client) -> Result<Value, ClientError>,
) -> Result<Value, Failure> {
    let client = connect(&args.url, &args.how)?;
    let answer = runtime()?.block_on(ask(client));
    answer.map_err(|error| match error {
        // Some page, or a server without this API: it says nothing about the run.
        ClientError::Refused { status: 404, .. } if !error.is(NOT_QUARANTINED) => {
            Failure::Unavailable(anyhow!(
                "{error}\n  help: is --url the address of a Portcullis server, and is that as new as this program?"
            ))
        }
        error => failure(error, None),
    })
}

fn print_list(out: &mut Out, page: &Value) -> io::Result<()> {
    let runs = page["quarantined"].as_array();
    if runs.is_none_or(Vec::is_empty) {
        return writeln!(out, "no run is in quarantine");
    }
    for run in runs.into_iter().flatten() {
        writeln!(out, "{BOLD}{}{BOLD:#}", shown(&run["run_id"]))?;
        print_flag(out, run)?;
    }
    if let Some(next) = page["next"].as_str() {
        writeln!(out, "{DIM}there are more: --after '{}'{DIM:#}", plain(next))?;
    }
    Ok(())
}

fn print_run(out: &mut Out, run: &Value) -> io::Result<()> {
    if run["quarantine"].is_null() {
        writeln!(out, "{GREEN}not in quarantine{GREEN:#}")?;
    } else {
        writeln!(out, "{RED}in quarantine{RED:#}")?;
        print_flag(out, &run["quarantine"])?;
    }
    for (category, strikes) in run["strikes"].as_object().into_iter().flatten() {
        writeln!(out, "  {YELLOW}{strikes} × {}{YELLOW:#}", plain(category))?;
    }
    for flag in run["flags"].as_array().into_iter().flatten() {
        print_flag(out, flag)?;
    }
    Ok(())
}

fn print_flag(out: &mut Out, flag: &Value) -> io::Result<()> {
    let by = match &flag["by"] {
        Value::Null => shown(&flag["rule_id"]),
        by => shown(by),
    };
    let (at, reason) = (shown(&flag["at"]), shown(&flag["reason"]));
    writeln!(out, "  {DIM}{at}{DIM:#} by {by}: {reason}")
}

fn shown(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}
