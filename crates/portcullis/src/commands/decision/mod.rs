//! `portcullis decision`

mod export;
mod file;
mod import;
mod print;

use std::io::Write;

use anyhow::anyhow;
use portcullis_core::evidence::Redactor;
use portcullis_server::Method;
use portcullis_server::decisions::{self, Asked};
use portcullis_server::jsonrpc::RpcError;
use portcullis_store::memory::Memory as _;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::file::{Existing, InFile, not_found};
use super::check::{LOCAL_AGENT, call, object, read_params};
use crate::cli::{
    CalibrationArgs, DecisionCommand, FilterArgs, ForgetArgs, Format, ListArgs, MemoryArgs, Place,
    QueryArgs, RecordArgs, ReviewArgs, ShowDecisionArgs,
};
use crate::output::{Answer, Failure, json_line};

pub(super) use print::precedents as print_precedents;

pub(crate) fn run(command: &DecisionCommand) -> Result<Answer, Failure> {
    match command {
        DecisionCommand::Record(args) => record(args),
        DecisionCommand::Review(args) => review(args),
        DecisionCommand::Show(args) => show(args),
        DecisionCommand::List(args) => list(args),
        DecisionCommand::Query(args) => query(args),
        DecisionCommand::Import(args) => import::run(args),
        DecisionCommand::Export(args) => export::run(args),
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

/// `analysis: the text`, or just the text. An address and a time of day have colons too, and no space
/// behind them.
fn reason(text: &str) -> Value {
    let is_kind = |kind: &str| {
        kind.starts_with(char::is_alphabetic)
            && kind.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    match text.split_once(": ") {
        Some((kind, text)) if is_kind(kind) => json!({"type": kind, "text": text.trim()}),
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

fn forget(args: &ForgetArgs) -> Result<Answer, Failure> {
    let memory = InFile::open(&args.file, Existing::Required, false)?;
    let known = memory.forget(&args.id);
    if !known.map_err(|error| Failure::Unavailable(error.into()))? {
        return Err(not_found(&args.id));
    }
    writeln!(anstream::stdout(), "forgotten").map_err(Failure::write)?;
    Ok(Answer::Yes)
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

/// Asks whoever has the memory.
fn ask(args: &MemoryArgs, method: Method, params: &Value) -> Result<Value, Failure> {
    let file = match &args.place {
        Place::Server { url, how } => return call(url, how, method, params),
        Place::File(file) => file,
    };
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
        _ => Existing::RequiredOrServer,
    };
    let search = matches!(
        method,
        Method::ListDecisions | Method::QueryDecisions | Method::GetCalibration
    );
    let memory = &InFile::open(file, existing, search)?;
    let asked = Asked {
        by: None,
        agent: LOCAL_AGENT,
        at: jiff::Timestamp::now(),
    };
    let answered = match method {
        Method::RecordDecision => {
            value(decisions::record_decision(memory, params, asked).map(|(answer, _)| answer))
        }
        Method::ReviewDecision => {
            value(decisions::review_decision(memory, params, asked).map(|(answer, _)| answer))
        }
        Method::GetDecision => value(decisions::get_decision(memory, params, asked)),
        Method::ListDecisions => value(decisions::list_decisions(memory, params, asked)),
        Method::QueryDecisions => value(decisions::query_decisions(memory, params, asked)),
        Method::GetCalibration => value(decisions::get_calibration(memory, params, asked)),
        Method::AnnounceIntent
        | Method::CheckGuardrails
        | Method::GetIntent
        | Method::ListGuardrails => {
            let error = anyhow!("{} is not about decisions", method.name());
            return Err(Failure::Input(error));
        }
    };
    answered.map_err(|error| memory.failure(error))
}

fn value(answer: Result<impl Serialize, RpcError>) -> Result<Value, RpcError> {
    serde_json::to_value(answer?).map_err(|error| RpcError::Internal(error.to_string()))
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
