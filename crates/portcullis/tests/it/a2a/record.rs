//! Batches in the evidence log.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use portcullis_core::canonical;
use serde_json::{Value, json};

use super::{packet, packets, subject};
use crate::fixtures::{Files, portcullis, run};
use crate::served::{CONFIG, Served, evidence, serve};

fn entries(log: &str) -> Vec<Value> {
    let verified = run(&["evidence", "verify", log], "");
    assert_eq!(verified.code(), 0, "{}{}", verified.out(), verified.err());
    let limit = u64::MAX.to_string();
    run(
        &[
            "evidence", "show", log, "--format", "json", "--limit", &limit,
        ],
        "",
    )
    .lines()
}

fn log(files: &Files) -> String {
    files.path().join("log").to_str().unwrap().to_owned()
}

#[test]
fn a_recorded_batch_is_in_the_log_with_its_digest() {
    let files = Files::new();
    let log = log(&files);
    let input = packet("task-1").to_string();
    let done = run(&["a2a", "convert", "--record", &log], &input);
    assert_eq!(done.code(), 0, "{}{}", done.out(), done.err());
    assert_eq!(done.out(), run(&["a2a", "convert"], &input).out());
    let answer = &done.lines()[0];
    let entries = entries(&log);
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!(entry["event"], "a2a_batch");
    assert_eq!(entry["requesting_agent"], "cli");
    assert_eq!(entry["batch_digest"], answer["digest"]);
    assert_eq!(entry["batch"], answer["batch"]);
    // Nothing in it is written differently by RFC 8785.
    let digest = canonical::digest(&entry["batch"]).unwrap();
    assert_eq!(entry["batch_digest"], digest);
    let time: jiff::Timestamp = entry["timestamp"].as_str().unwrap().parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(time).abs().as_secs() < 600);
}

#[test]
fn a_recorded_stream_is_in_the_log_in_its_order() {
    let files = Files::new();
    let log = log(&files);
    let mut input = packets(5000);
    input += "nonsense\n";
    input += &packets(1);
    let args = [
        "a2a",
        "convert",
        "--ndjson",
        "--threads",
        "3",
        "--record",
        &log,
    ];
    for round in 1..=2 {
        let done = run(&args, &input);
        assert_eq!(done.code(), 2, "{}", done.err());
        let answers = done.lines();
        assert_eq!(answers.len(), 5002);
        let digests: Vec<_> = answers
            .iter()
            .map(|answer| &answer["digest"])
            .filter(|digest| !digest.is_null())
            .collect();
        let entries = entries(&log);
        assert_eq!(entries.len(), round * 5001);
        let recorded: Vec<_> = entries[(round - 1) * 5001..]
            .iter()
            .map(|entry| &entry["batch_digest"])
            .collect();
        assert!(recorded == digests, "round {round}");
        let times: Vec<_> = entries
            .iter()
            .map(|entry| {
                entry["timestamp"]
                    .as_str()
                    .unwrap()
                    .parse::<jiff::Timestamp>()
                    .unwrap()
            })
            .collect();
        assert!(times.is_sorted());
    }
}

#[test]
fn a_secret_is_answered_but_not_recorded() {
    let files = Files::new();
    let log = log(&files);
    let mut leaky = packet("t");
    leaky["attributes"] = json!({"note": "AKIAIOSFODNN7EXAMPLE", "keys": ["ghp_abcdefghijklmnopqrstuvwxyz0123456789"]});
    let done = run(&["a2a", "convert", "--record", &log], leaky.to_string());
    assert!(done.out().contains("AKIAIOSFODNN7EXAMPLE"));
    let entry = entries(&log)[0].to_string();
    assert!(!entry.contains("AKIAIOSFODNN7EXAMPLE"), "{entry}");
    assert!(!entry.contains("ghp_"), "{entry}");
}

#[test]
fn nothing_refused_is_recorded() {
    let files = Files::new();
    let log = log(&files);
    assert_eq!(
        run(&["a2a", "convert", "--record", &log], "nonsense").code(),
        2
    );
    assert_eq!(
        run(&["a2a", "convert", "--ndjson", "--record", &log], "x\ny\n").code(),
        2
    );
    assert!(entries(&log).is_empty());
}

/// The subject is in a batch four times, so that it can be longer than an entry may be.
#[test]
fn a_batch_that_is_too_long_for_the_log_is_refused() {
    let files = Files::new();
    let log = log(&files);
    let long = packet(&"x".repeat(1_100_000));
    let input = format!("{long}\n{}\n", packet("t"));
    let args = [
        "a2a",
        "convert",
        "--ndjson",
        "--max-bytes",
        "2000000",
        "--record",
        &log,
    ];
    let done = run(&args, input);
    assert_eq!(done.code(), 2);
    let answers = done.lines();
    assert_eq!(answers[0]["error"]["line"], 1);
    assert_eq!(answers[0]["error"]["kind"], "measurement");
    assert_eq!(subject(&answers[1]), "t");
    assert_eq!(entries(&log).len(), 1);
}

#[test]
fn a_log_that_a_server_writes_is_not_touched() {
    let files = Files::new();
    let config = files.write("server.yaml", CONFIG);
    let data = files.path().join("data");
    let server = Served::start(serve(&data).args(["--config", &config]));
    let folder = evidence(&data);
    for ndjson in [&[][..], &["--ndjson"]] {
        let args = ["a2a", "convert", "--record", folder.to_str().unwrap()];
        let done = run(&[&args[..], ndjson].concat(), packet("t").to_string());
        assert_eq!(done.code(), 3);
        let error = &done.lines()[0]["error"];
        assert_eq!(error["kind"], "infrastructure");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("another process"), "{message}");
        assert!(message.contains("POST /v1/a2a/convert"), "{message}");
    }
    assert_eq!(server.terminate().0.code(), Some(0));
}

/// `portcullis` where no file may get longer than so many kibibytes.
#[cfg(unix)]
fn on_a_small_disk(kibibytes: u32, args: &[&str]) -> Command {
    let binary = portcullis();
    let mut command = Command::new("bash");
    let script = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(binary.get_program());
    command.args(args);
    command
}

#[cfg(unix)]
#[test]
fn what_the_disk_does_not_take_is_not_answered() {
    let files = Files::new();
    let log = log(&files);
    let input = files.write("packets.ndjson", &packets(5000));
    let args = ["a2a", "convert", "--ndjson", "--record", &log, &input];
    let output = on_a_small_disk(4000, &args).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    let out = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 5000);
    let (recorded, failed): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.get("batch").is_some());
    assert!(!recorded.is_empty() && !failed.is_empty());
    for (index, answer) in answers.iter().enumerate() {
        match answer.get("error") {
            Some(error) => {
                assert_eq!(error["line"], index + 1);
                assert_eq!(error["kind"], "infrastructure");
                let message = error["message"].as_str().unwrap();
                assert!(
                    message.contains("the evidence log cannot be written"),
                    "{message}"
                );
            }
            None => assert_eq!(subject(answer), format!("task-{index}")),
        }
    }
    let kept = entries(&log);
    let kept: Vec<_> = kept
        .iter()
        .filter(|entry| entry["event"] == "a2a_batch")
        .map(|entry| &entry["batch_digest"])
        .collect();
    let answered: Vec<_> = recorded.iter().map(|answer| &answer["digest"]).collect();
    assert!(kept == answered);
}

#[test]
fn everything_that_was_answered_outlives_kill_9() {
    let files = Files::new();
    let log = log(&files);
    let mut answered: Vec<String> = Vec::new();
    for crash in 0..3u64 {
        let lines: Vec<String> = (0..200)
            .map(|n| packet(&format!("crash-{crash}-{n}")).to_string())
            .collect();
        let lines = lines.join("\n") + "\n";
        let mut child = portcullis()
            .args([
                "a2a",
                "convert",
                "--ndjson",
                "--threads",
                "2",
                "--record",
                &log,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // Until it is gone.
        let writer = std::thread::spawn(move || while stdin.write_all(lines.as_bytes()).is_ok() {});
        let mut text = String::new();
        stdout.read_line(&mut text).unwrap();
        let reader = std::thread::spawn(move || {
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        // At any moment of a write: nothing can be waited for, so chance decides.
        std::thread::sleep(Duration::from_millis(
            RandomState::new().hash_one(crash) % 300,
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        writer.join().unwrap();
        let text = reader.join().unwrap();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        answered.extend(whole.map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            answer["digest"]
                .as_str()
                .unwrap_or_else(|| panic!("{answer}"))
                .to_owned()
        }));
    }
    // Whoever opens it next cuts off what is not whole.
    let last = run(
        &["a2a", "convert", "--record", &log],
        packet("last").to_string(),
    );
    assert_eq!(last.code(), 0, "{}", last.out());
    let entries = entries(&log);
    let mut recorded = entries
        .iter()
        .filter_map(|entry| entry["batch_digest"].as_str());
    for digest in &answered {
        assert!(
            recorded.any(|one| one == digest),
            "{digest} is lost, or in another place"
        );
    }
    assert!(!answered.is_empty() && Path::new(&log).is_dir());
}
