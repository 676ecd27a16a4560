//! The quarantine from the command line, and alerts on standard output.

use std::io::{BufRead, Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::fixtures::{Done, Files, run, run_with};
use crate::served::{CONFIG, Served, evidence, serve};

const PACK: &str = "
policy_pack: strict
version: '1'
sync_rules:
  - id: no-rm
    rule: expression
    config: {when: tool.name == 'rm', reason: Deletes files, effects: [quarantine_session, emit_alert]}
";

/// A server with an operator, where `more` is the rest of its configuration.
fn served(files: &Files, more: &str) -> Served {
    let pack = files.write("pack.yaml", PACK);
    let config = files.write("server.yaml", &format!("{CONFIG}{more}"));
    let data = files.path().join("data");
    Served::start(serve(&data).args(["--config", &config, "--policy", &pack, "--log", "error"]))
}

fn rm(server: &Served, run_id: &str) -> Value {
    let step =
        json!({"event": {"event_type": "tool_call_start", "run_id": run_id, "tool_name": "rm"}});
    let mut connection = server.connect();
    let answer = connection.post("/v1/guard/evaluate", &step.to_string(), "r");
    answer.unwrap()["decision"].clone()
}

fn text(done: &Done) -> (i32, String) {
    (done.code(), format!("{}{}", done.out(), done.err()))
}

#[test]
fn a_run_is_listed_shown_added_and_released() {
    let files = Files::new();
    let server = served(&files, "  operators: [tester]\n");
    assert_eq!(
        text(&server.ask(&["quarantine", "list"])),
        (0, "no run is in quarantine\n".to_owned())
    );
    let run = "run 1/ä";
    let shown = server.ask(&["quarantine", "show", run]);
    assert_eq!(text(&shown), (0, "not in quarantine\n".to_owned()));
    assert_eq!(rm(&server, run)["rule_id"], "no-rm");
    let shown = server.ask(&["quarantine", "show", run]);
    assert_eq!(shown.code(), 1);
    assert!(
        shown.out().contains("by no-rm: Deletes files"),
        "{}",
        shown.out()
    );
    let added = server.ask(&["quarantine", "add", "other", "--reason", "reads mail"]);
    assert_eq!(added.code(), 0, "{}", added.err());
    assert!(
        added.out().contains("by tester: reads mail"),
        "{}",
        added.out()
    );

    let listed = server.ask(&["quarantine", "list", "--format", "json"]);
    let listed: Value = serde_json::from_str(&listed.out()).unwrap();
    let names: Vec<&Value> = listed["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["run_id"])
        .collect();
    assert_eq!(names, [&json!("other"), &json!(run)]);
    let first = server.ask(&["quarantine", "list", "--limit", "1"]);
    assert!(first.out().contains("--after 'other'"), "{}", first.out());
    let second = server.ask(&["quarantine", "list", "--limit", "1", "--after", "other"]);
    assert!(second.out().contains(run) && !second.out().contains("there are more"));

    let released = server.ask(&["quarantine", "release", run, "--reason", "a false alarm"]);
    assert_eq!(released.code(), 0, "{}", released.err());
    assert!(
        released.out().starts_with("released\n"),
        "{}",
        released.out()
    );
    assert_eq!(server.ask(&["quarantine", "show", run]).code(), 0);
    let again = server.ask(&["quarantine", "release", run]);
    assert_eq!(again.code(), 2);
    assert!(
        again.err().contains("no run of this name is in quarantine"),
        "{}",
        again.err()
    );

    // Who did what is in the evidence.
    let log = evidence(&files.path().join("data"));
    let done = run_with(
        &[
            "evidence",
            "show",
            "--event",
            "run_released",
            "--format",
            "json",
        ],
        "",
        |command| {
            command.arg(log);
        },
    );
    let entry = done.lines().remove(0);
    assert_eq!(
        (&entry["requesting_agent"], &entry["reason"]),
        (&json!("tester"), &json!("a false alarm"))
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let files = Files::new();
    let server = served(&files, "");
    rm(&server, "r");
    for args in [
        &["quarantine", "release", "r"] as &[&str],
        &["quarantine", "add", "r", "--reason", "x"],
    ] {
        let done = server.ask(args);
        assert_eq!(done.code(), 2);
        assert!(done.err().contains("auth.operators"), "{}", done.err());
    }
    for run_id in ["", ".", ".."] {
        assert_eq!(server.ask(&["quarantine", "show", run_id]).code(), 2);
    }
    assert_eq!(
        server.ask(&["quarantine", "list", "--limit", "0"]).code(),
        2
    );
    let nobody = run(
        &[
            "quarantine",
            "list",
            "--url",
            "http://127.0.0.1:1",
            "--retries",
            "0",
        ],
        "",
    );
    assert_eq!(nobody.code(), 3);
    assert!(
        nobody.err().contains("is a server running there?"),
        "{}",
        nobody.err()
    );
}

/// Answers each connection with the next of these, and hangs up without a word where there is none.
fn answering(answers: Vec<Option<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut connection, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            let _ = connection.read(&mut asked).unwrap();
            if let Some(answer) = answer {
                connection.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    url
}

fn not_found(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 404 Not Found\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[test]
fn what_is_not_found_is_not_taken_for_a_run_that_is_free() {
    let json = "application/json";
    for answer in [
        not_found("text/html", "<h1>Not Found</h1>"),
        not_found(json, r#"{"detail": "nothing is here: see /openapi.json"}"#),
    ] {
        let url = answering(vec![Some(answer)]);
        let done = run(
            &["quarantine", "show", "r", "--url", &url, "--retries", "0"],
            "",
        );
        assert_eq!(done.code(), 3, "{}", done.out());
        assert!(done.err().contains("a Portcullis server"), "{}", done.err());
    }
    let url = answering(vec![Some(not_found(
        json,
        r#"{"detail": "x", "code": "run_unknown"}"#,
    ))]);
    let done = run(
        &["quarantine", "show", "r", "--url", &url, "--retries", "0"],
        "",
    );
    assert_eq!(text(&done), (0, "not in quarantine\n".to_owned()));
}

#[test]
fn a_release_whose_answer_was_lost_is_done() {
    let gone = || {
        not_found(
            "application/json",
            r#"{"detail": "x", "code": "not_quarantined"}"#,
        )
    };
    let url = answering(vec![None, Some(gone())]);
    let done = run(
        &[
            "quarantine",
            "release",
            "r",
            "--url",
            &url,
            "--retries",
            "1",
        ],
        "",
    );
    assert_eq!(text(&done), (0, "released\n".to_owned()));
    // One that was never there is not.
    let url = answering(vec![Some(gone())]);
    let done = run(
        &[
            "quarantine",
            "release",
            "r",
            "--url",
            &url,
            "--retries",
            "1",
        ],
        "",
    );
    assert_eq!(done.code(), 2);
}

#[test]
fn alerts_are_printed_one_a_line() {
    let files = Files::new();
    let mut server = served(&files, "alerts: {sinks: [{kind: stdout}]}\n");
    let decision = rm(&server, "r\n1");
    // Behind the welcome.
    let mut lines = std::iter::from_fn(|| {
        let mut line = String::new();
        (server.stdout.read_line(&mut line).unwrap() > 0).then_some(line)
    });
    let line = lines.find(|line| line.starts_with('{')).unwrap();
    let alert: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(alert["decision_id"], decision["decision_id"]);
    assert_eq!(
        (&alert["run_id"], &alert["type"]),
        (&json!("r\n1"), &json!("guard.alert"))
    );
    let (status, _) = server.terminate();
    assert!(status.success());
}
