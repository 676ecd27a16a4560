//! `portcullis decision`

mod import;
mod print;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use portcullis_core::evidence::Redactor;
use portcullis_models::BuiltIn;
use portcullis_server::Method;
use portcullis_server::decisions::{self, Asked};
use portcullis_server::jsonrpc::RpcError;
use portcullis_store::memory::{Memory, MemoryError, SqliteMemory, SqliteOptions};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::check::{LOCAL_AGENT, call, object, read_params};
use crate::cli::{
    CalibrationArgs, DecisionCommand, ExportArgs, FileArgs, FilterArgs, ForgetArgs, Format,
    ListArgs, MemoryArgs, QueryArgs, RecordArgs, ReviewArgs, ShowDecisionArgs,
};
use crate::output::{Answer, Failure, json_line};

pub(crate) fn run(command: &DecisionCommand) -> Result<Answer, Failure> {
    match command {
        DecisionCommand::Record(args) => record(args),
        DecisionCommand::Review(args) => review(args),
        DecisionCommand::Show(args) => show(args),
        DecisionCommand::List(args) => list(args),
        DecisionCommand::Query(args) => query(args),
        DecisionCommand::Import(args) => import::run(args),
        DecisionCommand::Export(args) => export(args),
        DecisionCommand::Calibration(args) => calibration(args),
        DecisionCommand::Forget(args) => forget(args),
    }
}

fn record(args: &RecordArgs) -> Result<Answer, Failure> {
    let params = match &args.params {
        Some(path) => read_params(path)?,
        None => {
            let reasons: Vec<Value> = args.reason.iter().map(|text| reason(text)).collect();
            given([
                ("decision", json!(args.decision)),
                ("confidence", json!(args.confidence)),
                ("category", json!(args.category)),
                ("stakes", json!(args.stakes)),
                ("context", json!(args.context)),
                ("reasons", json!(reasons)),
                ("tags", json!(args.tag)),
                ("reviewIn", json!(args.review_in)),
                ("id", json!(args.id)),
            ])
        }
    };
    let answer = ask(&args.memory, Method::RecordDecision, &params)?;
    show_answer(&args.memory, &answer, print::recorded)
}

/// `analysis: the text`, or just the text.
fn reason(text: &str) -> Value {
    let kind =
        |kind: &str| !kind.is_empty() && kind.chars().all(|c| c.is_alphanumeric() || c == '-');
    match text.split_once(':') {
        Some((kind_of, text)) if kind(kind_of) => json!({"type": kind_of, "text": text.trim()}),
        _ => json!(text),
    }
}

fn review(args: &ReviewArgs) -> Result<Answer, Failure> {
    let params = given([
        ("id", json!(args.id)),
        ("outcome", json!(args.outcome)),
        ("actualResult", json!(args.result)),
        ("lessons", json!(args.lessons)),
    ]);
    let answer = ask(&args.memory, Method::ReviewDecision, &params)?;
    show_answer(&args.memory, &answer, print::reviewed)
}

fn show(args: &ShowDecisionArgs) -> Result<Answer, Failure> {
    let params = json!({"id": args.id});
    let answer = ask(&args.memory, Method::GetDecision, &params)?;
    show_answer(&args.memory, &answer, print::decision)
}

fn list(args: &ListArgs) -> Result<Answer, Failure> {
    let params = given([
        ("filters", filters(&args.filters)),
        ("limit", json!(args.limit)),
        ("after", json!(args.next)),
    ]);
    let answer = ask(&args.memory, Method::ListDecisions, &params)?;
    show_answer(&args.memory, &answer, print::list)
}

fn query(args: &QueryArgs) -> Result<Answer, Failure> {
    let params = given([
        ("query", json!(args.query)),
        ("filters", filters(&args.filters)),
        ("limit", json!(args.limit)),
        ("includeReasons", json!(args.reasons)),
    ]);
    let answer = ask(&args.memory, Method::QueryDecisions, &params)?;
    show_answer(&args.memory, &answer, print::found)
}

fn calibration(args: &CalibrationArgs) -> Result<Answer, Failure> {
    let params = given([("filters", filters(&args.filters))]);
    let answer = ask(&args.memory, Method::GetCalibration, &params)?;
    show_answer(&args.memory, &answer, print::calibration)
}

fn export(args: &ExportArgs) -> Result<Answer, Failure> {
    let memory = open(&args.file, Existing::Required, false)?;
    let Some(path) = &args.to else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        write_all(&memory, &mut out)?;
        return Ok(Answer::Yes);
    };
    // Beside it, so that nobody takes half an export for a whole one.
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let cannot = || format!("cannot write {}", path.display());
    let unavailable =
        |error: std::io::Error| Failure::Unavailable(anyhow::Error::from(error).context(cannot()));
    let file = std::fs::File::create(&partial).map_err(unavailable)?;
    let mut out = BufWriter::new(file);
    let count = write_all(&memory, &mut out)?;
    let file = out
        .into_inner()
        .map_err(|error| unavailable(error.into_error()))?;
    file.sync_all().map_err(unavailable)?;
    std::fs::rename(&partial, path).map_err(unavailable)?;
    anstream::println!("{count} decisions in {}", path.display());
    Ok(Answer::Yes)
}

fn write_all(memory: &SqliteMemory, out: &mut impl Write) -> Result<usize, Failure> {
    let (mut count, mut failed) = (0, None);
    let exported = memory.export(&mut |decision| {
        count += 1;
        let written = json_line(&decision).and_then(|line| out.write_all(line.as_bytes()));
        failed = written.err();
        failed.is_none()
    });
    let flushed = failed.map_or_else(|| out.flush(), Err);
    flushed.map_err(Failure::write)?;
    exported.map_err(|error| Failure::Unavailable(error.into()))?;
    Ok(count)
}

fn forget(args: &ForgetArgs) -> Result<Answer, Failure> {
    let memory = open(&args.file, Existing::Required, false)?;
    let known = memory.forget(&args.id);
    if known.map_err(|error| Failure::Unavailable(error.into()))? {
        anstream::println!("forgotten");
        return Ok(Answer::Yes);
    }
    Err(failure(RpcError::NotFound(
        MemoryError::NotFound {
            id: args.id.clone(),
        }
        .to_string(),
    )))
}

/// The members that somebody gave.
fn given<const N: usize>(members: [(&str, Value); N]) -> Value {
    let is_given = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    let members = members.into_iter().filter(|(_, value)| is_given(value));
    members
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Map<_, _>>()
        .into()
}

fn filters(args: &FilterArgs) -> Value {
    given([
        ("category", json!(args.category)),
        ("stakes", json!(args.stakes)),
        ("status", json!(args.status)),
        ("outcome", json!(args.outcome)),
        ("tags", json!(args.tag)),
        ("agent", json!(args.agent)),
        ("minConfidence", json!(args.min_confidence)),
        ("maxConfidence", json!(args.max_confidence)),
        ("dateAfter", json!(args.after)),
        ("dateBefore", json!(args.before)),
    ])
}

/// Asks a server, if one is named, or else the database.
fn ask(args: &MemoryArgs, method: Method, params: &Value) -> Result<Value, Failure> {
    if args.connect.url.is_some() {
        return call(&args.connect, method, params);
    }
    let writes = matches!(method, Method::RecordDecision | Method::ReviewDecision);
    let redacted;
    let mut params = object(params)?;
    if writes {
        let redactor = Redactor::new().map_err(|error| Failure::Unavailable(error.into()))?;
        redacted = redactor.without_secrets(params).into_owned();
        params = &redacted;
    }
    let existing = match method {
        Method::RecordDecision => Existing::OrNew,
        _ => Existing::Required,
    };
    let search = matches!(
        method,
        Method::ListDecisions | Method::QueryDecisions | Method::GetCalibration
    );
    let memory = open(&args.file, existing, search)?;
    let asked = Asked {
        by: None,
        agent: LOCAL_AGENT,
        at: jiff::Timestamp::now(),
    };
    match method {
        Method::RecordDecision => {
            value(decisions::record_decision(&memory, params, asked).map(|(answer, _)| answer))
        }
        Method::ReviewDecision => {
            value(decisions::review_decision(&memory, params, asked).map(|(answer, _)| answer))
        }
        Method::GetDecision => value(decisions::get_decision(&memory, params, asked)),
        Method::ListDecisions => value(decisions::list_decisions(&memory, params, asked)),
        Method::QueryDecisions => value(decisions::query_decisions(&memory, params, asked)),
        Method::GetCalibration => value(decisions::get_calibration(&memory, params, asked)),
        Method::AnnounceIntent
        | Method::CheckGuardrails
        | Method::GetIntent
        | Method::ListGuardrails => Err(Failure::Input(anyhow!(
            "{} is not about decisions",
            method.name()
        ))),
    }
}

fn value(answer: Result<impl Serialize, RpcError>) -> Result<Value, Failure> {
    let answer = answer.map_err(failure)?;
    serde_json::to_value(answer).map_err(|error| Failure::Unavailable(error.into()))
}

fn failure(error: RpcError) -> Failure {
    match error {
        RpcError::InvalidParams(field) => Failure::Input(field.into()),
        RpcError::NotFound(what) => Failure::Input(anyhow!("{what}")),
        other => Failure::Unavailable(anyhow!("{other}")),
    }
}

/// Whether there has to be a database already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Required,
    OrNew,
}

/// Opens the database; `search` is whether anybody is going to search or list.
fn open(args: &FileArgs, existing: Existing, search: bool) -> Result<SqliteMemory, Failure> {
    let path = &args.memory;
    if existing == Existing::Required && !path.exists() {
        return Err(Failure::Input(anyhow!(
            "there is no memory in {}: record a decision first, name another with --memory, or ask a \
             server with --url",
            path.display()
        )));
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make {}", parent.display()))
            .map_err(Failure::Unavailable)?;
    }
    // A server may keep vectors of another model there: it makes them itself.
    let options = SqliteOptions {
        search,
        embed_in_background: false,
        ..SqliteOptions::new(path)
    };
    SqliteMemory::open(options, Arc::new(BuiltIn::new()))
        .map_err(|error| Failure::Unavailable(error.into()))
}

fn show_answer(
    args: &MemoryArgs,
    answer: &Value,
    print: fn(&mut dyn Write, &Value) -> std::io::Result<()>,
) -> Result<Answer, Failure> {
    let mut out = anstream::stdout();
    let printed = match args.format {
        Format::Json => json_line(answer).and_then(|line| out.write_all(line.as_bytes())),
        Format::Text => print(&mut out, answer),
    };
    printed.map_err(Failure::write)?;
    Ok(Answer::Yes)
}
