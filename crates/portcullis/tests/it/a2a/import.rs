//! Packets from today's traffic.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::subject;
use crate::fixtures::{portcullis, run};

fn message(id: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {
        "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": "Book a table."}],
    }}})
}

#[test]
fn what_was_sent_becomes_packets_that_convert_takes() {
    let imported = run(
        &["a2a", "import", "--agent", "agent://planner"],
        message("m-1").to_string(),
    );
    assert_eq!(imported.code(), 0, "{}", imported.err());
    assert_eq!(imported.lines()[0]["event_type"], "task.requested");
    assert!(!imported.out().contains("Book a table"));
    let converted = run(&["a2a", "convert", "--ndjson"], imported.out());
    assert_eq!(converted.code(), 0, "{}", converted.out());
    let answers = converted.lines();
    assert_eq!(answers.len(), 1);
    assert_eq!(subject(&answers[0]), "m-1");
    let agent = &answers[0]["batch"]["events"][0]["data"]["agent"];
    assert_eq!(agent["id"], "agent://planner");
}

#[test]
fn one_a_line_in_order_with_what_is_wrong_on_standard_error() {
    let line = |n| match n {
        700 => "nonsense".to_owned(),
        900 => String::new(),
        _ => message(&format!("m-{n}")).to_string(),
    };
    let input: Vec<String> = (0..2000).map(line).collect();
    let args = [
        "a2a",
        "import",
        "--ndjson",
        "--threads",
        "3",
        "--agent",
        "a",
    ];
    let done = run(&args, input.join("\n"));
    assert_eq!(done.code(), 2);
    assert_eq!(done.err().lines().count(), 1, "{}", done.err());
    assert!(
        done.err().starts_with("line 701: measurement: "),
        "{}",
        done.err()
    );
    let tasks: Vec<Value> = done
        .lines()
        .iter()
        .map(|packet| packet["task"]["id"].clone())
        .collect();
    let expected = (0..2000).filter(|n| ![700, 900].contains(n));
    let expected: Vec<String> = expected.map(|n| format!("m-{n}")).collect();
    assert_eq!(tasks, expected);
}

#[test]
fn what_is_wrong_is_said_on_standard_error() {
    let sent = message("m").to_string();
    for (args, input, message) in [
        (&[][..], sent.as_str(), "name it when importing"),
        (&["--agent", "a"], "nonsense", "not valid JSON"),
        (&["--agent", "a"], r#"{"x": 1}"#, "not A2A traffic"),
        (&["--max-bytes", "10"], &sent, "more than 10 bytes"),
        (&["--max-depth", "1000"], &sent, "config: "),
        (&["no-such-file.json"], "", "cannot read no-such-file.json"),
    ] {
        let done = run(&[&["a2a", "import"], args].concat(), input);
        assert_eq!((done.code(), done.out()), (2, String::new()), "{args:?}");
        assert!(done.err().contains(message), "{args:?}: {}", done.err());
    }
}

/// Nobody need read what was refused: the rest is imported, and the exit code tells.
#[test]
fn a_closed_standard_error_ends_nothing() {
    let mut child = portcullis()
        .args(["a2a", "import", "--ndjson", "--agent", "a"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let input = format!("nonsense\n{}\n", message("m-1"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert_eq!(out.lines().count(), 1, "{out}");
    assert_eq!(done.status.code(), Some(2));
}
