//! One packet.

use std::process::Stdio;

use portcullis_core::canonical;
use serde_json::{Value, json};

use super::{packet, subject};
use crate::fixtures::{Files, portcullis, run};

/// The error that is the only answer.
fn error(args: &[&str], input: impl AsRef<[u8]>) -> (i32, Value) {
    let done = run(args, input);
    assert_eq!(done.err(), "");
    let lines = done.lines();
    assert_eq!(lines.len(), 1);
    (done.code(), lines[0]["error"].clone())
}

#[test]
fn a_packet_in_gives_a_batch_and_its_digest_out() {
    let done = run(&["a2a", "convert"], packet("task-1").to_string());
    assert_eq!(done.code(), 0, "{}", done.out());
    let answer = &done.lines()[0];
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["batch", "digest"]);
    let event = &answer["batch"]["events"][0];
    assert_eq!(event["type"], "assay.adapter.a2a.task.requested");
    assert_eq!(event["source"], "urn:assay:adapter:a2a");
    assert_eq!(subject(answer), "task-1");
    assert_eq!(event["data"]["discovery"]["agent_card_visible"], false);
    // Nothing in it is written differently by RFC 8785.
    let digest = canonical::digest(&answer["batch"]).unwrap();
    assert_eq!(answer["digest"], digest);
}

#[test]
fn a_file_and_standard_input_are_the_same() {
    let files = Files::new();
    let text = packet("task-1").to_string();
    let path = files.write("packet.json", &text);
    let by_name = run(&["a2a", "convert", &path], "").out();
    assert_eq!(run(&["a2a", "convert"], &text).out(), by_name);
    assert_eq!(run(&["a2a", "convert", "-"], &text).out(), by_name);
    assert!(by_name.contains(r#""digest":"#));
}

#[test]
fn lenient_mode_substitutes_what_strict_mode_refuses() {
    let bare = json!({"protocol": "a2a", "version": "0.2.0"}).to_string();
    let (code, refused) = error(&["a2a", "convert"], &bare);
    assert_eq!((code, &refused["kind"]), (2, &json!("measurement")));
    assert!(refused["message"].as_str().unwrap().contains("agent.id"));

    let done = run(&["a2a", "convert", "--mode", "lenient"], &bare);
    assert_eq!(done.code(), 0);
    let answer = &done.lines()[0];
    assert_eq!(subject(answer), "unknown-message");
    assert_eq!(answer["batch"]["lossiness"]["lossiness_level"], "high");
    assert_eq!(
        answer["batch"]["lossiness"]["notes"],
        json!([
            "missing agent.id -> substituted unknown-agent",
            "unsupported event_type -> emitted generic A2A message event",
            "missing message.id -> substituted unknown-message",
        ])
    );
}

#[test]
fn every_kind_of_error_has_its_exit_code() {
    let mut other_event = packet("t");
    other_event["event_type"] = "task.dreamt".into();
    let mut other_version = packet("t");
    other_version["version"] = "1.0.0".into();
    let files = Files::new();
    let not_a_folder = files.write("file", "");
    let good = packet("t").to_string();
    for (args, input, code, kind) in [
        (&[][..], "nonsense".to_owned(), 2, "measurement"),
        (&[], String::new(), 2, "measurement"),
        (&[], format!("\u{feff}{good}"), 2, "measurement"),
        (&["--max-bytes", "50"], good.clone(), 2, "measurement"),
        (&["--max-depth", "1"], good.clone(), 2, "measurement"),
        (
            &["--max-array", "1"],
            r#"{"x": [1, 2]}"#.to_owned(),
            2,
            "measurement",
        ),
        (
            &[],
            other_version.to_string(),
            2,
            "unsupported_protocol_version",
        ),
        (
            &[],
            other_event.to_string(),
            2,
            "strict_lossiness_violation",
        ),
        (&["--max-depth", "1000"], good.clone(), 2, "config"),
        (
            &["--record", &not_a_folder],
            good.clone(),
            3,
            "infrastructure",
        ),
    ] {
        let args = [&["a2a", "convert"], args].concat();
        let (found, error) = error(&args, &input);
        assert_eq!(
            (found, &error["kind"]),
            (code, &json!(kind)),
            "{args:?} {error}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(error.get("line"), None);

        // People find the same on standard error.
        let done = run(&[&args[..], &["--format", "text"]].concat(), &input);
        assert_eq!((done.code(), done.out()), (code, String::new()));
        assert!(done.err().contains(kind), "{}", done.err());
    }
}

#[test]
fn the_version_may_be_told() {
    let mut unversioned = packet("t");
    unversioned.as_object_mut().unwrap().remove("version");
    let unversioned = unversioned.to_string();
    assert_eq!(run(&["a2a", "convert"], &unversioned).code(), 2);
    let told = run(
        &["a2a", "convert", "--protocol-version", "0.3"],
        &unversioned,
    );
    let data = &told.lines()[0]["batch"]["events"][0]["data"];
    assert_eq!(data["protocol_version"], "0.3");
}

/// The rest of an input that is too long is not even read.
#[cfg(target_os = "linux")]
#[test]
fn an_endless_packet_is_refused() {
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let output = portcullis()
        .args(["a2a", "convert"])
        .stdin(Stdio::from(zeros))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.contains("more than 1048576 bytes"), "{answer}");
}

#[test]
fn a_packet_may_be_as_long_as_the_limit() {
    let text = packet("t").to_string();
    let length = text.len();
    for (limit, code) in [(length, 0), (length - 1, 2), (usize::MAX, 0)] {
        let done = run(
            &["a2a", "convert", "--max-bytes", &limit.to_string()],
            &text,
        );
        assert_eq!(done.code(), code, "{limit}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_said_with_the_right_code() {
    for (args, code, message) in [
        (
            &["no-such-file.json"][..],
            2,
            "cannot read no-such-file.json",
        ),
        (&["policies"], 2, "cannot read the input"),
        (&["--ndjson", "policies"], 2, "cannot read the input"),
        (&["--mode", "loose"], 2, "strict, lenient"),
        (&["--threads", "2"], 2, "--ndjson"),
        (&["--ndjson", "--threads", "0"], 2, "0 is not in 1..=1024"),
    ] {
        let done = run(&[&["a2a", "convert"], args].concat(), "");
        assert_eq!(done.code(), code, "{args:?}");
        assert!(done.err().contains(message), "{args:?}: {}", done.err());
        assert_eq!(done.out(), "", "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_unavailable_service() {
    let files = Files::new();
    let path = files.write("packet.json", &packet("t").to_string());
    for ndjson in [&[][..], &["--ndjson"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = portcullis()
            .args(["a2a", "convert", &path])
            .args(ndjson)
            .stdout(full.unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the output"));
    }
}

#[test]
fn a_batch_reads_well() {
    let mut card = packet("task-7");
    card["attributes"] = json!({"assay_g4": {"agent_card": {"visible": true}}});
    let bare =
        json!({"protocol": "a2a", "version": "0.2.0", "task": {"id": "x\u{1b}[2J\ny"}, "x": 1});
    let mut pages = String::new();
    for (packet, mode) in [(card, "strict"), (bare, "lenient")] {
        let args = ["a2a", "convert", "--format", "text", "--mode", mode];
        let done = run(&args, packet.to_string());
        assert_eq!(done.code(), 0, "{}", done.err());
        pages += &without_digest(&done.out(), 64);
        pages += "\n";
    }
    insta::assert_snapshot!(pages);
}

#[test]
fn many_batches_read_well() {
    let mut card = packet(&"a-long-name-".repeat(10));
    card["attributes"] = json!({"assay_g4": {"agent_card": {"visible": true}, "extended_card_access": {"visible": true}}});
    let bare = json!({"protocol": "a2a", "version": "0.2.0", "message": {"id": "x\u{1b}[2J\ny"}});
    let input = format!("{}\n{card}\nnonsense\n{bare}\n", packet("task-1"));
    let args = [
        "a2a", "convert", "--ndjson", "--format", "text", "--mode", "lenient",
    ];
    let done = run(&args, input);
    assert_eq!(done.code(), 2);
    assert!(!done.out().contains('\u{1b}'));
    insta::assert_snapshot!(without_digest(&done.out(), 16));
}

#[test]
fn the_help_reads_well() {
    for command in ["convert", "import"] {
        let done = run(&["a2a", command, "--help"], "");
        insta::assert_snapshot!(format!("the_help_of_{command}"), done.out());
    }
}

/// Digests change with every version of ours.
fn without_digest(text: &str, length: usize) -> String {
    let is_digest =
        |word: &str| word.len() == length && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        if is_digest(word.trim_end()) {
            word.replace(word.trim_end(), "(digest)")
        } else {
            word.to_owned()
        }
    });
    words.collect()
}
