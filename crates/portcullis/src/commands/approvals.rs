//! `portcullis approvals`

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use jiff::Timestamp;
use portcullis_core::approval::{Answer as Said, ApprovalError, Approvals, Status, Which};
use portcullis_server::client::{APPROVAL_UNKNOWN, Client, ClientError};
use portcullis_store::{ApprovalOptions, SqliteApprovals};
use serde_json::{Value, json};

use super::check::{connect, failure};
use super::runtime;
use crate::cli::{
    ApprovalListArgs, ApprovalShowArgs, ApprovalWaitArgs, ApprovalsCommand, DecideArgs, KeptArgs,
};
use crate::output::{Answer, BOLD, DIM, Failure, GREEN, Out, RED, YELLOW, plain, print};

/// How long a server is asked to wait at one time, in seconds.
const WAIT: u64 = 30;
/// How often a file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most of what a step is about that a list shows, in characters.
const MAX_SHOWN: usize = 200;

pub(crate) fn run(command: &ApprovalsCommand) -> Result<Answer, Failure> {
    match command {
        ApprovalsCommand::List(args) => list(args),
        ApprovalsCommand::Show(args) => show(args),
        ApprovalsCommand::Approve(args) => decide(args, true),
        ApprovalsCommand::Deny(args) => decide(args, false),
        ApprovalsCommand::Wait(args) => wait(args),
    }
}

fn list(args: &ApprovalListArgs) -> Result<Answer, Failure> {
    let ApprovalListArgs {
        status,
        run,
        limit,
        kept,
    } = args;
    let found = match &kept.file {
        Some(path) => {
            let which = Which {
                status: status.0,
                run_id: run.clone(),
                limit: *limit,
            };
            let found = open(path)?.list(&which, Timestamp::now());
            json!({"approvals": found.map_err(refused)?})
        }
        None => asked(kept, async |client: Client| {
            client.approvals(status.0, run.as_deref(), *limit).await
        })?,
    };
    print(kept.format, &found, print_list)?;
    Ok(Answer::Yes)
}

fn show(args: &ApprovalShowArgs) -> Result<Answer, Failure> {
    let approval = look(&args.kept, &args.id, 0)?;
    print(args.kept.format, &approval, print_one)?;
    Ok(verdict(&approval))
}

fn decide(args: &DecideArgs, approve: bool) -> Result<Answer, Failure> {
    let approval = match &args.kept.file {
        Some(path) => {
            let by = args.name.clone().ok_or_else(|| {
                Failure::Input(anyhow!("--file needs --as NAME: who decides is kept"))
            })?;
            let said = Said {
                approve,
                by,
                roles: args.role.clone(),
                note: args.note.clone(),
            };
            let decided = open(path)?.decide(&args.id, &said, Timestamp::now());
            json!(decided.map_err(refused)?)
        }
        None => asked(&args.kept, async |client: Client| {
            let note = args.note.as_deref();
            client.decide_approval(&args.id, approve, note).await
        })?,
    };
    print(args.kept.format, &approval, print_one)?;
    Ok(Answer::Yes)
}

fn wait(args: &ApprovalWaitArgs) -> Result<Answer, Failure> {
    let started = Instant::now();
    let left = || {
        let seconds = args.seconds?;
        Some(Duration::from_secs(seconds).saturating_sub(started.elapsed()))
    };
    loop {
        let patience = left().map_or(WAIT, |left| left.as_secs().min(WAIT));
        let approval = look(&args.kept, &args.id, patience)?;
        let is_over = left().is_some_and(|left| left.is_zero());
        if approval["status"] != Status::Pending.as_str() || is_over {
            print(args.kept.format, &approval, print_one)?;
            return Ok(verdict(&approval));
        }
        // Whatever does not wait for us is asked now and then.
        if args.kept.file.is_some() || patience == 0 {
            std::thread::sleep(left().map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
        }
    }
}

/// One approval, from wherever it is kept. A server may wait for a decision first.
fn look(kept: &KeptArgs, id: &str, wait_s: u64) -> Result<Value, Failure> {
    let Some(path) = &kept.file else {
        return asked(kept, async |client: Client| {
            client.approval(id, wait_s).await
        });
    };
    let known = open(path)?.get(id, Timestamp::now()).map_err(refused)?;
    let known = known.ok_or_else(|| refused(ApprovalError::NotFound(id.to_owned())))?;
    Ok(json!(known))
}

/// Yes if the step may happen, for which a yes that was used is none.
fn verdict(approval: &Value) -> Answer {
    if approval["status"] == Status::Approved.as_str() {
        Answer::Yes
    } else {
        Answer::No
    }
}

/// A file that is there: nobody waits in a new one.
fn open(path: &Path) -> Result<SqliteApprovals, Failure> {
    if !path.exists() {
        return Err(Failure::Input(anyhow!(
            "{} is not there: name the file that the agent keeps its approvals in",
            path.display()
        )));
    }
    let opened = SqliteApprovals::open(ApprovalOptions::new(path));
    opened.map_err(|error| Failure::Unavailable(error.into()))
}

fn refused(error: ApprovalError) -> Failure {
    match error {
        ApprovalError::Backend(_) => Failure::Unavailable(error.into()),
        ApprovalError::NotAllowed { .. } => {
            Failure::Input(anyhow!("{error}\n  help: name one with --role"))
        }
        ApprovalError::NotFound(_) => Failure::Input(anyhow!("{error}\n  help: {LIST_HELP}")),
        error => Failure::Input(error.into()),
    }
}

const LIST_HELP: &str = "`portcullis approvals list --status all` shows what there is";

fn asked(
    kept: &KeptArgs,
    ask: impl AsyncFnOnce(Client) -> Result<Value, ClientError>,
) -> Result<Value, Failure> {
    let client = connect(&kept.connect.url, &kept.connect.how)?;
    let answer = runtime()?.block_on(ask(client));
    answer.map_err(|error| match error {
        ClientError::Refused { .. } if error.is(APPROVAL_UNKNOWN) => {
            Failure::Input(anyhow!("{error}\n  help: {LIST_HELP}"))
        }
        // Some page, or a server without this API: it says nothing about the approval.
        ClientError::Refused { status: 404, .. } => Failure::Unavailable(anyhow!(
            "{error}\n  help: is --url the address of a Portcullis server, and is that as new as this program?"
        )),
        error => failure(error, None),
    })
}

fn print_list(out: &mut Out, found: &Value) -> io::Result<()> {
    let approvals = found["approvals"].as_array();
    if approvals.is_none_or(Vec::is_empty) {
        return writeln!(out, "nothing waits");
    }
    for approval in approvals.into_iter().flatten() {
        print_head(out, approval)?;
        let subject = approval["subject"].to_string();
        let mut shown: String = subject.chars().take(MAX_SHOWN).collect();
        if shown.len() < subject.len() {
            shown.push('…');
        }
        writeln!(out, "  {}", plain(&shown))?;
    }
    Ok(())
}

fn print_one(out: &mut Out, approval: &Value) -> io::Result<()> {
    print_head(out, approval)?;
    let subject = serde_json::to_string_pretty(&approval["subject"])?;
    for line in subject.lines() {
        writeln!(out, "  {}", plain(line))?;
    }
    let decided = &approval["decided"];
    if decided.is_object() {
        let (at, by) = (shown(&decided["at"]), shown(&decided["by"]));
        write!(out, "  {DIM}{at}{DIM:#} decided by {by}")?;
        match decided["note"].as_str() {
            Some(note) => writeln!(out, ": {}", plain(note))?,
            None => writeln!(out)?,
        }
    }
    if let Some(taken) = approval["taken"].as_str() {
        writeln!(out, "  {DIM}{}{DIM:#} used", plain(taken))?;
    }
    Ok(())
}

/// Which, how it stands, what it is about and what is asked.
fn print_head(out: &mut Out, approval: &Value) -> io::Result<()> {
    let bound = &approval["bound"];
    let status = shown(&approval["status"]);
    let color = match &*status {
        "approved" | "used" => GREEN,
        "pending" => YELLOW,
        _ => RED,
    };
    write!(
        out,
        "{BOLD}{}{BOLD:#} {color}{status}{color:#}",
        shown(&approval["id"])
    )?;
    let lasts = matches!(&*status, "pending" | "approved");
    match approval["expires"].as_str().filter(|_| lasts) {
        Some(expires) => writeln!(out, " {DIM}until {}{DIM:#}", plain(expires))?,
        None => writeln!(out)?,
    }
    let what = match &bound["tool"] {
        Value::Null => shown(&bound["stage"]),
        tool => shown(tool),
    };
    let (run, agent) = (shown(&bound["run_id"]), shown(&bound["agent"]));
    writeln!(out, "  {BOLD}{what}{BOLD:#} in run {run} of {agent}")?;
    let rules = bound["rules"].as_array().into_iter().flatten();
    let rule = rules.last().map(shown).unwrap_or_default();
    writeln!(out, "  {DIM}{rule}:{DIM:#} {}", shown(&approval["reason"]))?;
    let prompt = shown(&approval["prompt"]);
    if !prompt.is_empty() {
        writeln!(out, "  {prompt}")?;
    }
    let roles = approval["approver_roles"].as_array().into_iter().flatten();
    let roles: Vec<String> = roles.map(shown).collect();
    if !roles.is_empty() {
        writeln!(out, "  {DIM}for {}{DIM:#}", roles.join(" or "))?;
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}
