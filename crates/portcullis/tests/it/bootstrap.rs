//! The script that has a language model write examples (`examples/scope_classifier/bootstrap.py`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

use crate::fixtures::{Files, root};

fn bootstrap(files: &Files, args: &[&str]) -> Output {
    let python = std::env::var("PORTCULLIS_PYTHON").expect("PORTCULLIS_PYTHON is not set");
    Command::new(python)
        .arg(root().join("examples/scope_classifier/bootstrap.py"))
        .args(["--model", "any"])
        .args(args)
        .current_dir(files.path())
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap()
}

/// A service of `OpenAI`'s protocol that says the same each time, so many times.
fn service(content: &Value, times: usize) -> String {
    let body = json!({"choices": [{"message": {"content": content}}]}).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().take(times) {
            let mut reader = BufReader::new(stream.unwrap());
            let head = reader.by_ref().lines().map(Result::unwrap);
            let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
            let length = head.iter().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<u64>().unwrap())
            });
            std::io::copy(
                &mut reader.by_ref().take(length.unwrap()),
                &mut std::io::sink(),
            )
            .unwrap();
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            reader
                .get_mut()
                .write_all(format!("{head}{body}").as_bytes())
                .unwrap();
        }
    });
    url
}

#[test]
fn what_is_unusable_in_an_answer_costs_nothing_else() {
    let files = Files::new();
    let lines = [
        json!({"user": "Plot sessions by browser as bars", "last_assistant": ""}).to_string(),
        r#"{"user": "half \ud800", "last_assistant": ""}"#.to_owned(),
        format!("{{\"user\": {}", "[".repeat(100_000)),
        format!("{{\"user\": {}}}", "1".repeat(5000)),
    ];
    let parts = json!([{"type": "text", "text": lines.join("\n")}, {"type": "image"}]);
    let url = service(&parts, usize::MAX);
    let args = [
        "--base-url",
        &url,
        "--target",
        "42",
        "--most-calls",
        "1",
        "--out",
        "out.jsonl",
    ];
    let done = bootstrap(&files, &args);
    let error = String::from_utf8(done.stderr).unwrap();
    // Fewer than were wanted.
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(
        error.contains("1 new, 0 repeated, 3 unusable; 41 in all"),
        "{error}"
    );
    let written = std::fs::read_to_string(files.path().join("out.jsonl")).unwrap();
    assert_eq!(written.lines().count(), 40);
}

#[test]
fn what_was_answered_is_kept_when_the_service_goes_away() {
    let files = Files::new();
    let line = json!({"user": "Plot sessions by browser as bars", "last_assistant": ""});
    let url = service(&json!(line.to_string()), 1);
    let args = ["--base-url", &url, "--target", "44", "--out", "out.jsonl"];
    let done = bootstrap(&files, &args);
    let error = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(error.contains("1 new, 0 repeated, 0 unusable"), "{error}");
    assert!(error.contains("stopping with what there is"), "{error}");
    let written = std::fs::read_to_string(files.path().join("out.jsonl")).unwrap();
    assert_eq!(written.lines().count(), 40);
}

#[test]
fn what_cannot_be_done_is_said_before_the_first_call() {
    let files = Files::new();
    let seed = |user: &str, label: Value| json!({"user": user, "label": label}).to_string();
    files.put(
        "latin.jsonl",
        b"{\"user\": \"caf\xe9\", \"label\": \"in_scope\"}\n",
    );
    files.write("list.jsonl", &seed("a", json!(["in_scope"])));
    files.write("half.jsonl", r#"{"user": "\udfff", "label": "in_scope"}"#);
    files.write("nested.jsonl", &"[".repeat(100_000));
    files.put("folder/a", "");
    let seeds = root().join("examples/scope_classifier/seeds.jsonl");
    let seeds = std::fs::read_to_string(seeds).unwrap();
    files.write("seeds.jsonl", &seeds);
    let answerless = service(&json!({"text": "a"}), usize::MAX);
    let cases: &[(&[&str], &str)] = &[
        (
            &["--out", "/nonexistent/x.jsonl"],
            "error: --out /nonexistent/x.jsonl cannot be written",
        ),
        (&["--out", "folder"], "error: --out folder is a folder"),
        (
            &["--seeds", "seeds.jsonl", "--out", "./seeds.jsonl"],
            "error: --out ./seeds.jsonl would write over --seeds seeds.jsonl",
        ),
        (
            &["--base-url", "notaurl"],
            "error: --base-url notaurl: expected an address",
        ),
        (
            &["--base-url", "http://[::1"],
            "error: --base-url http://[::1: expected an address",
        ),
        (
            &["--base-url", "http://a:b"],
            "error: --base-url http://a:b: expected an address",
        ),
        (
            &["--base-url", "http://a b"],
            "error: http://a b/chat/completions cannot be reached",
        ),
        (
            &["--base-url", &answerless],
            "does not answer as OpenAI's protocol says",
        ),
        (
            &["--seeds", "latin.jsonl"],
            "error: latin.jsonl is not UTF-8",
        ),
        (
            &["--seeds", "list.jsonl"],
            "error: list.jsonl, line 1: `label` must be one of",
        ),
        (
            &["--seeds", "half.jsonl"],
            "error: half.jsonl, line 1: half a character",
        ),
        (
            &["--seeds", "nested.jsonl"],
            "error: nested.jsonl, line 1: not JSON",
        ),
        (
            &["--target", "0"],
            "error: argument --target: 0 is not from 2 to",
        ),
        (
            &["--target=-4"],
            "error: argument --target: -4 is not from 2 to",
        ),
        (
            &["--timeout", "inf"],
            "error: argument --timeout: inf is not from",
        ),
    ];
    for (args, expected) in cases {
        let done = bootstrap(&files, args);
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
        assert!(!error.contains("Traceback"), "{error}");
    }
    assert_eq!(
        std::fs::read_to_string(files.path().join("seeds.jsonl")).unwrap(),
        seeds
    );
}
