//! One packet a line.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{packet, packets, subject};
use crate::fixtures::{portcullis, run};

#[test]
fn answers_come_in_the_order_of_their_packets() {
    const LINES: usize = 100_000;
    // Some take far longer than others, and some are refused.
    let line = |n: usize| match n {
        _ if n.is_multiple_of(1000) => format!("refused {n}\n"),
        _ if n.is_multiple_of(777) => {
            let mut long = packet(&format!("task-{n}"));
            long["attributes"] = json!({"list": vec!["text"; 9000]});
            format!("{long}\n")
        }
        _ => format!("{}\n", packet(&format!("task-{n}"))),
    };
    let input: String = (0..LINES).map(line).collect();
    let one = run(&["a2a", "convert", "--ndjson", "--threads", "1"], &input);
    let five = run(&["a2a", "convert", "--ndjson", "--threads", "5"], &input);
    assert_eq!((one.code(), five.code()), (2, 2));
    assert!(one.out() == five.out(), "the answers differ");
    let answers = five.lines();
    assert_eq!(answers.len(), LINES);
    for (n, answer) in answers.iter().enumerate() {
        if n.is_multiple_of(1000) {
            assert_eq!(answer["error"]["line"], n + 1);
        } else {
            assert_eq!(subject(answer), format!("task-{n}"));
        }
    }
}

#[test]
fn a_line_gets_the_answer_that_it_gets_alone() {
    let text = packet("task-1").to_string();
    let alone = run(&["a2a", "convert"], &text).out();
    assert_eq!(run(&["a2a", "convert", "--ndjson"], &text).out(), alone);
    for around in [
        format!("{text}\n"),
        format!("{text}\r\n"),
        format!("\u{feff}{text}\n"),
        format!("\n  \t\r\n{text}\n\n"),
    ] {
        let done = run(&["a2a", "convert", "--ndjson"], &around);
        assert_eq!((done.code(), done.out()), (0, alone.clone()), "{around:?}");
    }
}

#[test]
fn bad_lines_are_named_and_the_rest_goes_on() {
    let good = packet("t").to_string();
    let mut unknown = packet("t");
    unknown["event_type"] = "x".into();
    let mut new = packet("t");
    new["version"] = "7".into();
    let mut input = Vec::new();
    for line in [
        good.as_bytes(),
        b"nonsense",
        b"",
        b"\xff\xfe",
        unknown.to_string().as_bytes(),
        new.to_string().as_bytes(),
        format!("{good} {good}").as_bytes(),
        format!("\u{feff}{good}").as_bytes(),
        good.as_bytes(),
    ] {
        input.extend_from_slice(line);
        input.push(b'\n');
    }
    let done = run(&["a2a", "convert", "--ndjson"], &input);
    assert_eq!(done.code(), 2);
    let answers = done.lines();
    assert_eq!(subject(&answers[0]), "t");
    assert_eq!(subject(&answers[7]), "t");
    let message = answers[1]["error"]["message"].as_str().unwrap();
    assert!(message.contains(" at column "), "{message}");
    let errors: Vec<(u64, &str)> = answers[1..7]
        .iter()
        .map(|answer| {
            let error = &answer["error"];
            assert!(!error["message"].as_str().unwrap().is_empty());
            (
                error["line"].as_u64().unwrap(),
                error["kind"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        errors,
        [
            (2, "measurement"),
            (4, "measurement"),
            (5, "strict_lossiness_violation"),
            (6, "unsupported_protocol_version"),
            (7, "measurement"),
            (8, "measurement"),
        ]
    );
}

#[test]
fn no_input_is_no_answer() {
    for input in ["", "\n", "\r\n\n  \n", "\u{feff}"] {
        let done = run(&["a2a", "convert", "--ndjson"], input);
        assert_eq!((done.code(), done.out()), (0, String::new()), "{input:?}");
    }
}

#[test]
fn a_long_line_is_refused_and_the_rest_goes_on() {
    let good = format!("{}\n", packet("t"));
    let mut input = good.clone().into_bytes();
    input.extend(std::iter::repeat_n(b'a', 100 << 20));
    input.push(b'\n');
    input.extend_from_slice(good.as_bytes());
    let done = run(&["a2a", "convert", "--ndjson"], &input);
    assert_eq!(done.code(), 2);
    let answers = done.lines();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[1]["error"]["line"], 2);
    assert_eq!(answers[1]["error"]["kind"], "measurement");
    let message = answers[1]["error"]["message"].as_str().unwrap();
    assert!(message.contains("104857600 bytes long"), "{message}");
    assert_eq!(subject(&answers[2]), "t");
}

#[test]
fn a_line_may_be_as_long_as_the_limit() {
    let text = packet("t").to_string();
    let lines = format!("\u{feff}{text}\r\n{text}\n{text} \n{text}");
    let limit = text.len().to_string();
    let done = run(
        &["a2a", "convert", "--ndjson", "--max-bytes", &limit],
        lines,
    );
    let refused: Vec<Value> = done
        .lines()
        .iter()
        .map(|answer| answer["error"]["line"].clone())
        .collect();
    assert_eq!(refused, [Value::Null, Value::Null, json!(3), Value::Null]);
}

/// Whoever waits for an answer gets it before the next packet is sent.
#[test]
fn answers_come_line_by_line() {
    let mut child = portcullis()
        .args(["a2a", "convert", "--ndjson", "--threads", "3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for n in 0..10 {
        let line = format!("{}\n", packet(&format!("task-{n}")));
        let (first, second) = line.split_at(50);
        stdin.write_all(first.as_bytes()).unwrap();
        stdin.write_all(second.as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(subject(&answer), format!("task-{n}"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// It does not wait for the rest of the input.
#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    let mut child = portcullis()
        .args(["a2a", "convert", "--ndjson"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(packets(10).as_bytes()).unwrap();
    let mut answer = String::new();
    stdout.read_line(&mut answer).unwrap();
    drop(stdout);
    // It hears of it when it writes the next answer; then this cannot be written any more.
    while stdin.write_all(packets(100).as_bytes()).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    drop(stdin);
}
