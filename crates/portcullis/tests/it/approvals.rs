//! Approvals from the command line, by a server and in a file.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use portcullis_core::approval::{Approvals, conformance};
use portcullis_store::{ApprovalOptions, SqliteApprovals};
use serde_json::{Value, json};

use crate::fixtures::{Done, Files, run, run_with};
use crate::served::{Served, evidence, serve};

const ALICE: &str = "token-of-alice-00000003";
const CONFIG: &str = "
auth:
  tokens:
    - {agent: tester, token: \"${TESTER}\"}
    - {agent: alice, token: token-of-alice-00000003}
  roles: {finance: [alice]}
";
const PACK: &str = "
policy_pack: refunds
version: '1'
sync_rules:
  - id: refund-needs-approval
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'refund', action: PAUSE, reason: A refund, approver_roles: [finance], prompt: Approve this refund?}
";

/// A server that pauses refunds of agent `tester`, on the data that another left behind.
fn served(files: &Files) -> Served {
    let pack = files.write("pack.yaml", PACK);
    let config = files.write("server.yaml", CONFIG);
    let data = files.path().join("data");
    Served::start(serve(&data).args(["--config", &config, "--policy", &pack, "--log", "error"]))
}

fn refund(server: &Served, to: &str, approval: Option<&str>) -> std::io::Result<Value> {
    let event = json!({"event_type": "tool_call_start", "run_id": "run-17", "tool_name": "refund",
                       "tool_args": {"amount": 120, "to": to}});
    let step = json!({"event": event, "approval": approval});
    let path = "/v1/guard/evaluate";
    server.connect().post(path, &step.to_string(), "r")
}

fn paused(server: &Served, to: &str) -> String {
    let answer = refund(server, to, None).unwrap();
    assert_eq!(answer["decision"]["action"], "PAUSE", "{answer}");
    answer["approval"]["id"].as_str().unwrap().to_owned()
}

fn alice(server: &Served, args: &[&str]) -> Done {
    run_with(args, "", |command| {
        command
            .env("PORTCULLIS_URL", &server.url)
            .env("PORTCULLIS_TOKEN", ALICE);
    })
}

/// The text without what is another each time.
fn lasting(text: &str, ids: &[&str]) -> String {
    let mut text = text.to_owned();
    for (number, id) in ids.iter().enumerate() {
        text = text.replace(id, &format!("[id {}]", number + 1));
    }
    let word = |word: &str| match word.trim_end().parse::<Timestamp>() {
        Ok(_) if word.ends_with('\n') => "[time]\n".to_owned(),
        Ok(_) => "[time] ".to_owned(),
        Err(_) => word.to_owned(),
    };
    text.split_inclusive([' ', '\n']).map(word).collect()
}

fn ok(done: &Done, code: i32) -> String {
    assert_eq!(done.code(), code, "{}{}", done.out(), done.err());
    done.out()
}

#[test]
fn a_step_is_listed_shown_approved_and_used() {
    let files = Files::new();
    let server = served(&files);
    assert_eq!(
        ok(&alice(&server, &["approvals", "list"]), 0),
        "nothing waits\n"
    );
    let data = files.path().join("data");
    for (path, mode) in [(data.join("approvals.db"), 0o600), (data, 0o700)] {
        let found = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{}", path.display());
    }
    let (first, second) = (paused(&server, "bob"), paused(&server, "eve"));
    let mut said = vec![ok(&alice(&server, &["approvals", "list"]), 0)];
    said.push(ok(&alice(&server, &["approvals", "show", &first]), 1));

    let own = server.ask(&["approvals", "approve", &first]);
    assert_eq!(own.code(), 2);
    assert!(own.err().contains("the step is its own"), "{}", own.err());
    let waited = alice(&server, &["approvals", "wait", &first, "--seconds", "1"]);
    assert!(ok(&waited, 1).contains("pending"));

    let note = "checked with the customer";
    let approve = ["approvals", "approve", &first, "--note", note];
    said.push(ok(&alice(&server, &approve), 0));
    said.push(ok(&alice(&server, &["approvals", "deny", &second]), 0));
    ok(&server.ask(&["approvals", "wait", &first]), 0);
    ok(&server.ask(&["approvals", "wait", &second]), 1);
    assert_eq!(
        refund(&server, "bob", Some(&first)).unwrap()["decision"]["action"],
        "ALLOW"
    );
    said.push(ok(&alice(&server, &["approvals", "show", &first]), 1));
    assert_eq!(
        ok(&alice(&server, &["approvals", "list"]), 0),
        "nothing waits\n"
    );
    let all = [
        "approvals",
        "list",
        "--status",
        "all",
        "--run",
        "run-17",
        "--format",
        "json",
    ];
    let all: Value = serde_json::from_str(&ok(&alice(&server, &all), 0)).unwrap();
    let all: Vec<&Value> = all["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["status"])
        .collect();
    assert_eq!(all, [&json!("used"), &json!("denied")]);
    let late = alice(&server, &["approvals", "deny", &first]);
    assert_eq!(late.code(), 2);
    assert!(
        late.err().contains("cannot be decided any more"),
        "{}",
        late.err()
    );
    insta::assert_snapshot!(lasting(&said.join("----\n"), &[&first, &second]));
}

#[test]
fn what_cannot_be_done_is_said() {
    let files = Files::new();
    let server = served(&files);
    for args in [
        &["approvals", "show", "unknown"] as &[&str],
        &["approvals", "approve", "unknown"],
        &["approvals", "wait", "unknown"],
    ] {
        let done = alice(&server, args);
        assert_eq!(done.code(), 2, "{}", done.err());
        assert!(done.err().contains("approvals list"), "{}", done.err());
    }
    for args in [
        &["approvals", "show", ".."] as &[&str],
        &["approvals", "list", "--status", "maybe"],
        &["approvals", "list", "--limit", "0"],
        &["approvals", "approve", "x", "--as", "alice"],
        &[
            "approvals",
            "approve",
            "x",
            "--file",
            "there-is-none.db",
            "--as",
            "alice",
        ],
    ] {
        assert_eq!(alice(&server, args).code(), 2, "{args:?}");
    }
    let nobody = ["--url", "http://127.0.0.1:1", "--retries", "0"];
    let done = run(&[&["approvals", "list"] as &[&str], &nobody].concat(), "");
    assert_eq!(done.code(), 3);
    assert!(
        done.err().contains("is a server running there?"),
        "{}",
        done.err()
    );
}

#[test]
fn a_file_needs_no_server() {
    let files = Files::new();
    let path = files.path().join("approvals.db");
    let approvals = SqliteApprovals::open(ApprovalOptions::new(&path)).unwrap();
    let now = Timestamp::now();
    for id in ["one", "two"] {
        approvals.create(conformance::example(id, now)).unwrap();
    }
    let file = ["--file", path.to_str().unwrap()];
    let ask = |args: &[&str]| run(&[&["approvals"], args, &file].concat(), "");
    let mut said = vec![ok(&ask(&["list"]), 0), ok(&ask(&["show", "one"]), 1)];
    let nobody = ask(&["approve", "one", "--role", "admin"]);
    assert_eq!(nobody.code(), 2);
    assert!(nobody.err().contains("--as NAME"), "{}", nobody.err());
    let wrong = ask(&["approve", "one", "--as", "bob", "--role", "guest"]);
    assert_eq!(wrong.code(), 2);
    assert!(wrong.err().contains("--role"), "{}", wrong.err());
    let agent = approvals.get("one", now).unwrap().unwrap().bound.agent;
    let own = ask(&["approve", "one", "--as", &agent, "--role", "admin"]);
    assert_eq!(own.code(), 2, "{}", own.out());
    let yes = ask(&[
        "approve", "one", "--as", "bob", "--role", "guest", "--role", "duty",
    ]);
    said.push(ok(&yes, 0));
    let no = ask(&[
        "deny",
        "two",
        "--as",
        "bob",
        "--role",
        "admin",
        "--note",
        "not today",
    ]);
    said.push(ok(&no, 0));
    ok(&ask(&["wait", "one"]), 0);
    ok(&ask(&["wait", "two"]), 1);
    assert_eq!(ask(&["show", "three"]).code(), 2);
    insta::assert_snapshot!(lasting(&said.join("----\n"), &[]));
}

#[test]
fn the_help_says_who_is_trusted() {
    for command in ["list", "show", "approve", "wait"] {
        let help = run(&["approvals", command, "--help"], "");
        insta::assert_snapshot!(format!("help_{command}"), help.out());
    }
    insta::assert_snapshot!("help", run(&["approvals", "--help"], "").out());
}

/// Killed between the pause and the answer, and between the answer and the step.
#[test]
fn kill_9_loses_no_answer_and_repeats_none() {
    let files = Files::new();
    let server = served(&files);
    let id = paused(&server, "bob");
    server.kill();
    let server = served(&files);
    ok(&alice(&server, &["approvals", "approve", &id]), 0);
    server.kill();
    let server = served(&files);
    assert_eq!(
        refund(&server, "bob", Some(&id)).unwrap()["decision"]["action"],
        "ALLOW"
    );
    server.kill();
    let server = served(&files);
    let again = refund(&server, "bob", Some(&id)).unwrap();
    assert_eq!(again["code"], "approval_used", "{again}");
    assert_eq!(server.terminate().0.code(), Some(0));
    let uses = uses(&files, &id);
    assert_eq!(uses.len(), 1, "{uses:?}");
}

/// Killed while the step is on its way: it happens at most once, and if it does, that is recorded.
#[test]
fn kill_9_while_a_step_goes_on_lets_it_happen_at_most_once() {
    const ROUNDS: u64 = 4;
    let files = Files::new();
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        let server = served(&files);
        let to = format!("bob {round}");
        let id = paused(&server, &to);
        ok(&alice(&server, &["approvals", "approve", &id]), 0);
        let mut allowed = 0;
        let mut connection = server.connect();
        let step = json!({"approval": id, "event": {
            "event_type": "tool_call_start", "run_id": "run-17", "tool_name": "refund",
            "tool_args": {"amount": 120, "to": to},
        }});
        let sending = std::thread::spawn(move || {
            connection.post("/v1/guard/evaluate", &step.to_string(), "r")
        });
        // At any moment of it: nothing can be waited for, so chance decides.
        let pause = RandomState::new().hash_one(round) % 8_000;
        std::thread::sleep(Duration::from_micros(pause));
        server.kill();
        let answers = [sending.join().unwrap(), {
            let server = served(&files);
            refund(&server, &to, Some(&id))
        }];
        for answer in answers.into_iter().flatten() {
            allowed += usize::from(answer["decision"]["action"] == "ALLOW");
        }
        assert!(allowed <= 1, "{id}");
        told.push((id, allowed));
    }
    assert_eq!(served(&files).terminate().0.code(), Some(0));
    for (id, allowed) in told {
        let uses = uses(&files, &id);
        // One that was used up and never answered is recorded, or it is not: it did not happen.
        assert!(allowed <= uses.len() && uses.len() <= 1, "{id}: {uses:?}");
    }
}

/// The steps that an approval has let happen, by the evidence.
fn uses(files: &Files, id: &str) -> Vec<Value> {
    let log: PathBuf = evidence(&files.path().join("data"));
    let args = [
        "evidence",
        "show",
        log.to_str().unwrap(),
        "--format",
        "json",
    ];
    let mut entries = run(&args, "").lines();
    entries.retain(|entry| entry["approval"] == id && entry["approval_outcome"] == "approved");
    entries
}
