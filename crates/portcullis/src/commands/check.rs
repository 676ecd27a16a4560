//! `portcullis check`

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use portcullis_core::guardrails::{self, FieldError, Guardrails, ProposedAction};
use portcullis_core::memory::Precedents;
use portcullis_core::unique;
use portcullis_server::client::{Client, ClientError, ClientSettings};
use portcullis_server::{CheckAnswer, GuardrailFiles, Method};
use serde_json::{Map, Value, json};

use super::decision::print_precedents;
use crate::cli::{ActionArgs, ActionCheckArgs, ConnectArgs, Format, HowArgs, LocalArgs};
use crate::commands::runtime;
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, RED, YELLOW, json_line, plain, tell};

pub(crate) fn run(args: &ActionCheckArgs) -> Result<Answer, Failure> {
    let params = match &args.action.params {
        Some(path) => read_params(path)?,
        None => json!({"action": action(&args.action, "context")?}),
    };
    let answer = if args.local.local {
        local(&params, &args.local)?
    } else {
        let ConnectArgs { url, how } = &args.connect;
        call(url, how, Method::CheckGuardrails, &params)?
    };
    let printed = match args.format {
        Format::Json => {
            json_line(&answer).and_then(|line| anstream::stdout().write_all(line.as_bytes()))
        }
        Format::Text => print_verdict(&answer),
    };
    printed.map_err(Failure::write)?;
    Ok(verdict(&answer))
}

/// Yes if it is allowed; anything that does not say so is a no.
pub(super) fn verdict(answer: &Value) -> Answer {
    if answer["allowed"] == true {
        Answer::Yes
    } else {
        Answer::No
    }
}

/// The action as the flags describe it. Facts go under `context` for a check, `metadata` for an intent.
pub(super) fn action(args: &ActionArgs, facts: &str) -> Result<Map<String, Value>, Failure> {
    let mut action = Map::new();
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            action.insert(key.to_owned(), value);
        }
    };
    let name = if facts == "metadata" {
        "intent"
    } else {
        "description"
    };
    add(name, args.description.clone().map(Value::from));
    add("category", args.category.clone().map(Value::from));
    add("stakes", args.stakes.clone().map(Value::from));
    add("confidence", args.confidence.map(Value::from));
    let mut context = Map::new();
    for fact in &args.context {
        let Some((key, value)) = fact.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let error =
                anyhow!("`{fact}` is not a fact: write it as key=value, such as hasTests=true");
            return Err(Failure::Input(error));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        context.insert(key.to_owned(), value);
    }
    if !context.is_empty() {
        add(facts, Some(context.into()));
    }
    Ok(action)
}

/// A method's parameters from a file or standard input.
pub(super) fn read_params(path: &Path) -> Result<Value, Failure> {
    let mut text = String::new();
    let is_stdin = path == Path::new("-");
    let name = if is_stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let read = if is_stdin {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.with_context(|| format!("cannot read {name}"))
        .map_err(Failure::Input)?;
    unique::value(text.as_bytes())
        .with_context(|| format!("{name} is not JSON that can be used"))
        .map_err(Failure::Input)
}

/// Asks a server.
pub(super) fn call(
    url: &str,
    how: &HowArgs,
    method: Method,
    params: &Value,
) -> Result<Value, Failure> {
    let client = connect(url, how)?;
    runtime()?
        .block_on(client.call(method.name(), params))
        .map_err(|error| failure(error, Some(method)))
}

/// A client of a server.
pub(super) fn connect(url: &str, how: &HowArgs) -> Result<Client, Failure> {
    let timeout = Duration::try_from_secs_f64(how.timeout)
        .ok()
        .filter(|timeout| !timeout.is_zero())
        .ok_or_else(|| {
            Failure::Input(anyhow!(
                "--timeout must be more than 0 seconds, and no more than a clock can count"
            ))
        })?;
    let client = Client::new(ClientSettings {
        url: url.to_owned(),
        token: how.token.clone(),
        timeout,
        retries: how.retries,
        ca_certificate: how.ca.clone(),
    });
    client.map_err(|error| failure(error, None))
}

/// Why a server did not do it, and what may help.
pub(super) fn failure(error: ClientError, method: Option<Method>) -> Failure {
    let help = match &error {
        ClientError::Unreachable { .. } => match method {
            Some(Method::CheckGuardrails | Method::AnnounceIntent | Method::ListGuardrails) => {
                "is a server running there? start one with `portcullis serve`, name another with \
                 --url, or judge here with --local"
            }
            Some(_) => {
                "is a server running there? start one with `portcullis serve`, name another with \
                 --url, or name a memory's file with --memory"
            }
            None => {
                "is a server running there? start one with `portcullis serve`, or name another with \
                 --url"
            }
        },
        ClientError::Refused { status: 401, .. } => {
            "set PORTCULLIS_TOKEN to the token that the server printed or has in its configuration"
        }
        ClientError::Rpc(failure) if failure.code == NOT_FOUND => LIST_HELP,
        _ => "",
    };
    let unavailable = match &error {
        ClientError::Unreachable { .. }
        | ClientError::NotRpc { .. }
        | ClientError::NotJson { .. } => true,
        ClientError::Refused { status, .. } => *status >= 500,
        // Internal errors, and limits.
        ClientError::Rpc(failure) => matches!(failure.code, -32603 | -32002 | -32003 | -32004),
        ClientError::Settings(_) | ClientError::Tls(_) => false,
    };
    let mut error = anyhow::Error::from(error);
    if !help.is_empty() {
        error = anyhow!("{error:#}\n  help: {help}");
    }
    if unavailable {
        Failure::Unavailable(error)
    } else {
        Failure::Input(error)
    }
}

/// The code of an answer that there is no such thing.
const NOT_FOUND: i64 = -32005;

/// What to do about it.
pub(super) const LIST_HELP: &str = "`portcullis decision list` shows what there is";

fn local(params: &Value, args: &LocalArgs) -> Result<Value, Failure> {
    let action = ProposedAction::from_params(object(params)?).map_err(wrong_field)?;
    let (guardrails, _) = load(args.guardrails.as_deref())?;
    warn_of_history(&guardrails, &action);
    let verdict = guardrails.check(&action);
    let answer = CheckAnswer::new(
        verdict,
        Precedents::default(),
        now(),
        LOCAL_AGENT.to_owned(),
    );
    serde_json::to_value(answer).map_err(|error| Failure::Input(error.into()))
}

/// Says so where a guardrail asks for history, and there is none here.
pub(super) fn warn_of_history(guardrails: &Guardrails, action: &ProposedAction) {
    if guardrails.want_precedents(action) {
        tell(format_args!(
            "{YELLOW}warning:{YELLOW:#} a guardrail asks what came of similar decisions, and --local has no \
             memory: judged as if there were none"
        ));
    }
}

/// Who answers when nobody is asked.
pub(super) const LOCAL_AGENT: &str = "local";

pub(super) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

pub(super) fn object(params: &Value) -> Result<&Map<String, Value>, Failure> {
    let object = params.as_object();
    object.ok_or_else(|| Failure::Input(anyhow!("the parameters must be a JSON object")))
}

pub(super) fn wrong_field(error: FieldError) -> Failure {
    Failure::Input(error.into())
}

/// The guardrails at a path, or the built-in ones, and what there is to say about them.
pub(super) fn load(path: Option<&Path>) -> Result<(Guardrails, String), Failure> {
    let loaded = match path {
        Some(path) => GuardrailFiles::new(PathBuf::from(path), true)
            .load()
            .map_err(|error| Failure::Input(error.into()))?,
        None => guardrails::load_default().map_err(|reports| {
            let reports: Vec<String> = reports.iter().map(ToString::to_string).collect();
            Failure::Input(anyhow!(reports.join("\n")))
        })?,
    };
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    Ok((loaded.guardrails, warnings.concat()))
}

fn print_verdict(answer: &Value) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    let (color, word) = if verdict(answer) == Answer::Yes {
        (GREEN, "ALLOWED")
    } else {
        (RED, "BLOCKED")
    };
    writeln!(
        out,
        "{color}{word}{color:#}  {DIM}{} guardrails, by {}{DIM:#}",
        answer["evaluated"],
        plain(answer["agent"].as_str().unwrap_or_default()),
    )?;
    print_violations(&mut out, answer)?;
    print_precedents(&mut out, &answer["precedents"])
}

/// Violations and warnings, each with what to do.
pub(super) fn print_violations(out: &mut impl Write, status: &Value) -> std::io::Result<()> {
    for (key, color, word) in [("violations", RED, "block"), ("warnings", YELLOW, "warn")] {
        for violation in status[key].as_array().into_iter().flatten() {
            let text = |key: &str| plain(violation[key].as_str().unwrap_or_default());
            writeln!(
                out,
                "  {color}{word:<5}{color:#} {BOLD}{}{BOLD:#}  {}",
                text("guardrailId"),
                text("message")
            )?;
            if violation["suggestion"].is_string() {
                writeln!(out, "        {DIM}{}{DIM:#}", text("suggestion"))?;
            }
        }
    }
    Ok(())
}
