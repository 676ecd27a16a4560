//! `POST /v1/a2a/convert` and `/v1/a2a/import`: what core answers, recorded before it leaves.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use portcullis_core::a2a::{Adapter, ErrorKind, ImportOptions, Input, Limits, Mode, import};
use portcullis_core::a2a::{ConvertError, write_answer};
use portcullis_core::evidence::Digest;
use portcullis_server::Operation;
use portcullis_server::limit::Quota;
use portcullis_store::evidence::{VerifyOptions, verify};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{CLAUDE, Running, eventually};

const CONVERT: &str = "/v1/a2a/convert";
const IMPORT: &str = "/v1/a2a/import";

/// An answer: its status, its type and what it says, to the byte.
struct Got {
    status: u16,
    media_type: String,
    text: String,
}

impl Got {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let media_type = response.headers()["content-type"].to_str().unwrap();
        Self {
            status: response.status().as_u16(),
            media_type: media_type.to_owned(),
            text: response.text().await.unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    fn kind(&self) -> String {
        self.json()["error"]["kind"].as_str().unwrap().to_owned()
    }
}

async fn send(server: &Running, path: &str, body: impl Into<String>) -> Got {
    Got::of(server.post(path, body)).await
}

async fn send_lines(server: &Running, path: &str, body: impl Into<String>) -> Got {
    let mut request = server.post(path, body).build().unwrap();
    let kind = "application/x-ndjson".parse().unwrap();
    request.headers_mut().insert("content-type", kind);
    let client = reqwest::Client::new();
    Got::of(reqwest::RequestBuilder::from_parts(client, request)).await
}

/// What core says.
fn by_core(mode: Mode, packet: &str) -> String {
    let result = Adapter::new(mode).convert(Input::json(packet.as_bytes()));
    let mut answer = Vec::new();
    write_answer(&result, &mut answer);
    String::from_utf8(answer).unwrap()
}

fn packet(task: &str) -> String {
    json!({
        "protocol": "a2a", "version": "0.2.0", "event_type": "task.requested",
        "timestamp": "2026-02-27T11:05:00Z", "agent": {"id": "agent://planner", "capabilities": ["b", "a"]},
        "task": {"id": task, "status": "open"}, "attributes": {"z": ["y", "x"], "n": [1, 2.5, null]},
    })
    .to_string()
}

/// Packets of every kind, good and bad.
fn packets() -> Vec<String> {
    let with = |more: Value| {
        let mut packet = json!({"protocol": "a2a", "version": "0.2.0", "agent": {"id": "a"}});
        let members = packet.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        packet.to_string()
    };
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    vec![
        packet("task-1"),
        format!(" \n{}\r\n", packet("task-2")),
        with(json!({"event_type": "agent.capabilities"})),
        with(json!({"event_type": "task.updated", "task": {"id": "t", "kind": "k"}})),
        with(
            json!({"event_type": "artifact.shared", "artifact": {"id": "i", "media_type": "text/plain"}}),
        ),
        with(json!({"event_type": "agent.capabilities", "x": 1, "y": 2, "z": 3})),
        with(
            json!({"event_type": "agent.capabilities", "attributes": {"assay_g4": {
            "agent_card": {"visible": true}, "extended_card_access": {"visible": true}}}}),
        ),
        // Strict refuses these.
        with(json!({"event_type": "task.requested"})),
        with(json!({"event_type": "artifact.shared"})),
        with(json!({"event_type": "something.else"})),
        with(json!({"event_type": 5, "agent": {}, "message": {"id": "m", "role": "user"}})),
        json!({"protocol": "a2a", "version": "0.3"}).to_string(),
        // Both refuse these.
        with(json!({"version": "1.0", "event_type": "agent.capabilities"})),
        json!({"protocol": "a2a"}).to_string(),
        json!({"protocol": "mcp"}).to_string(),
        "[]".to_owned(),
        String::new(),
        "nonsense".to_owned(),
        r#"{"protocol":"a2a","protocol":"a2a"}"#.to_owned(),
        r#"{"protocol":"a2a","version":"\ud800"}"#.to_owned(),
        deep(65),
        format!("[{}0]", "0,".repeat(10_000)),
    ]
}

fn sha256(bytes: &[u8]) -> String {
    Digest::new(Sha256::digest(bytes).into()).to_string()
}

/// What is recorded is what was answered, and its digest is what the entry says.
fn assert_recorded(entry: &Value, answer: &Value) {
    assert_eq!(entry["event"], "a2a_batch");
    assert_eq!(entry["batch"], answer["batch"]);
    assert_eq!(entry["batch_digest"], answer["digest"]);
    // Texts and small numbers: here the log's canonical form is also the batch's.
    let batch = serde_json::to_string(&entry["batch"]).unwrap();
    assert_eq!(entry["batch_digest"], sha256(batch.as_bytes()).as_str());
}

fn assert_verified(server: &Running, entries: u64) {
    let folder = server.data().join("evidence");
    let report = verify(&folder, &VerifyOptions::default(), |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.faults);
    assert_eq!(report.entries, entries);
}

const fn status_of(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Measurement | ErrorKind::Config => 400,
        ErrorKind::UnsupportedProtocolVersion | ErrorKind::StrictLossinessViolation => 422,
        ErrorKind::Infrastructure => 503,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_cores_to_the_byte_and_is_recorded_by_then() {
    let server = Running::start().await;
    let mut recorded = 0;
    for mode in Mode::ALL {
        for packet in packets() {
            let path = format!("{CONVERT}?mode={}", mode.as_str());
            let got = send(&server, &path, packet.as_str()).await;
            assert_eq!(got.text, by_core(mode, &packet), "{mode:?} {packet}");
            assert_eq!(got.media_type, "application/json");
            let result = Adapter::new(mode).convert(Input::json(packet.as_bytes()));
            match result {
                Ok(_) => {
                    assert_eq!(got.status, 200);
                    recorded += 1;
                }
                Err(error) => assert_eq!(got.status, status_of(error.kind()), "{packet}"),
            }
            let entries = server.evidence();
            assert_eq!(entries.len(), recorded, "{mode:?} {packet}");
            if got.status == 200 {
                let entry = &entries[recorded - 1];
                assert_recorded(entry, &got.json());
                assert_eq!(entry["requesting_agent"], "emerson");
                assert!(entry["timestamp"].as_str().unwrap().ends_with('Z'));
            }
        }
    }
    assert_eq!(recorded, 7 + 12);
    assert_verified(&server, recorded as u64);
    // Strict is what one gets without asking.
    let bad = r#"{"protocol":"a2a","version":"0.2","event_type":"x","agent":{"id":"a"}}"#;
    assert_eq!(send(&server, CONVERT, bad).await.status, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_told_apart_and_others_refused() {
    let server = Running::start().await;
    let silent = r#"{"protocol":"a2a","event_type":"agent.capabilities","agent":{"id":"a"}}"#;
    let path = format!("{CONVERT}?protocol_version=0.2.7&mode=strict");
    let got = send(&server, &path, silent).await;
    assert_eq!(got.status, 200, "{}", got.text);
    let data = &got.json()["batch"]["events"][0]["data"];
    assert_eq!(data["protocol_version"], "0.2.7");
    let path = format!("{CONVERT}?protocol_version=2");
    assert_eq!(send(&server, &path, silent).await.status, 422);
    for (path, query, said) in [
        (CONVERT, "mode=loose", "use strict or lenient"),
        (CONVERT, "mode=", "use strict or lenient"),
        (CONVERT, "Mode=strict", "unknown parameter `Mode`"),
        (CONVERT, "mode=strict&mode=lenient", "twice"),
        (CONVERT, "agent=a", "unknown parameter `agent`"),
        (IMPORT, "protocol_version=0.2.0", "unknown parameter"),
        (IMPORT, "agent=", "1 to 512 bytes"),
        (IMPORT, "mode=%FF", "use strict or lenient"),
    ] {
        let got = send(&server, &format!("{path}?{query}"), packet("t")).await;
        assert_eq!((got.status, &*got.kind()), (400, "config"), "{query}");
        let message = got.json()["error"]["message"].to_string();
        assert!(message.contains(said), "{query}: {message}");
    }
    assert_eq!(server.evidence().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_without_a_token_and_entries_name_who_did() {
    let server = Running::start().await;
    for path in [CONVERT, IMPORT] {
        for token in ["", "Bearer wrong-token-0123456789", "Basic eDp5"] {
            let mut request = server.post(path, packet("t")).build().unwrap();
            let headers = request.headers_mut();
            headers.remove("authorization");
            if !token.is_empty() {
                headers.insert("authorization", token.parse().unwrap());
            }
            let response = reqwest::Client::new().execute(request).await.unwrap();
            assert_eq!(response.status(), 401);
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
            assert!(body["detail"].is_string());
        }
        for kind in ["text/plain", "application/jsonx", ""] {
            let mut request = server.post(path, packet("t")).build().unwrap();
            let headers = request.headers_mut();
            headers.insert("content-type", kind.parse().unwrap());
            let response = reqwest::Client::new().execute(request).await.unwrap();
            assert_eq!(response.status(), 415, "{kind}");
        }
    }
    assert_eq!(server.evidence(), [] as [Value; 0]);
    let mut request = server.post(CONVERT, packet("t")).build().unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("bearer {CLAUDE}").parse().unwrap());
    headers.insert(
        "content-type",
        "Application/JSON; charset=utf-8".parse().unwrap(),
    );
    headers.insert("x-request-id", "mine-7".parse().unwrap());
    let response = reqwest::Client::new().execute(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-request-id"], "mine-7");
    let entries = server.evidence();
    assert_eq!(entries[0]["requesting_agent"], "claude-ops");
    assert_eq!(entries[0]["request_id"], "mine-7");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_calls_too_often_is_told_when_to_come_back() {
    let server = Running::with(|settings| {
        let quota = Quota {
            per_minute: 1,
            burst: 2,
        };
        let methods = &mut settings.rate_limits.methods;
        methods.insert(Operation::A2aConvert, quota);
    })
    .await;
    // A body of lines counts once; one that is refused counts too.
    let many = format!("{}\n{}\n{}", packet("1"), packet("2"), packet("3"));
    assert_eq!(send_lines(&server, CONVERT, many).await.status, 200);
    assert_eq!(send(&server, CONVERT, "nonsense").await.status, 400);
    let response = server.post(CONVERT, packet("t")).send().await.unwrap();
    assert_eq!(response.status(), 429);
    let wait = response.headers()["retry-after"].to_str().unwrap();
    assert!((1..=60).contains(&wait.parse::<u64>().unwrap()), "{wait}");
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert!(
        body["detail"].as_str().unwrap().contains("a2a.convert"),
        "{body}"
    );
    // For this agent and this door alone.
    assert_eq!(send(&server, IMPORT, ASKED).await.status, 200);
    let mut request = server.post(CONVERT, packet("t")).build().unwrap();
    let token = format!("Bearer {CLAUDE}").parse().unwrap();
    request.headers_mut().insert("authorization", token);
    let response = reqwest::Client::new().execute(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.evidence().len(), 4);
    let limited = r#"portcullis_rate_limited_total{method="a2a.convert"}"#;
    assert_eq!(server.metric(limited).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_answered_in_order_and_bad_ones_by_number() {
    let server = Running::start().await;
    let mut body = "\u{feff}".to_owned();
    let mut expected = String::new();
    let mut subjects = Vec::new();
    for n in 1..=700 {
        let (line, end) = match n % 7 {
            3 => ("nonsense".to_owned(), "\n"),
            4 => (String::new(), "\n"),
            5 => (" \t".to_owned(), "\r\n"),
            6 => (format!(" {}", packet(&format!("task-{n}"))), "\r\n"),
            _ => (packet(&format!("task-{n}")), "\n"),
        };
        body += &line;
        body += end;
        match n % 7 {
            3 => {
                let error: Value = serde_json::from_str(&by_core(Mode::Strict, &line)).unwrap();
                let message = error["error"]["message"].to_string();
                let message = message.replace(" at line 1 column", " at column");
                let error = r#"{"error":{"line":"#;
                let _ = write!(
                    expected,
                    r#"{error}{n},"kind":"measurement","message":{message}}}}}"#
                );
            }
            4 | 5 => continue,
            _ => {
                expected += &by_core(Mode::Strict, &line);
                subjects.push(format!("task-{n}"));
            }
        }
        expected.push('\n');
    }
    let got = send_lines(&server, CONVERT, body).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.media_type, "application/x-ndjson");
    assert_eq!(got.text, expected);
    // In the log in the same order, each with its digest.
    let entries = server.evidence();
    let answers = got.text.lines().map(serde_json::from_str);
    let answers: Vec<Value> = answers.map(Result::unwrap).collect();
    let batches = answers.iter().filter(|answer| answer["batch"].is_object());
    assert_eq!(entries.len(), subjects.len());
    for ((entry, answer), subject) in entries.iter().zip(batches).zip(subjects) {
        assert_recorded(entry, answer);
        assert_eq!(entry["batch"]["events"][0]["subject"], subject.as_str());
    }
    assert_verified(&server, entries.len() as u64);

    for nothing in ["", "\n\n \r\n"] {
        let got = send_lines(&server, CONVERT, nothing).await;
        assert_eq!((got.status, &*got.text), (200, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_is_413_and_says_so_as_every_error() {
    let server = Running::with(|settings| {
        settings.server.max_body_bytes = 20_000;
        settings.a2a = Limits::new(1_000, 10, 5).unwrap();
    })
    .await;
    let long = |bytes: usize| packet(&"x".repeat(bytes));
    for (body, limit) in [
        (" ".repeat(20_001), "server.max_body_bytes"),
        (long(1_000), "max_payload_bytes (1000)"),
    ] {
        for path in [CONVERT, IMPORT] {
            let got = send(&server, path, body.as_str()).await;
            assert_eq!((got.status, &*got.kind()), (413, "measurement"));
            assert!(got.text.contains(limit), "{}", got.text);
        }
    }
    let got = send_lines(&server, CONVERT, " ".repeat(20_001)).await;
    assert_eq!((got.status, &*got.kind()), (413, "measurement"));
    // One of the lines is no reason to refuse the others.
    let body = format!("{}\n{}\n{}", packet("1"), long(1_000), packet("2"));
    let got = send_lines(&server, CONVERT, body).await;
    assert_eq!(got.status, 200);
    let lines: Vec<&str> = got.text.lines().collect();
    assert!(lines[1].starts_with(r#"{"error":{"line":2,"kind":"measurement","#));
    assert!(lines[0].contains("batch") && lines[2].contains("batch"));
    // The other limits are of the configuration, too.
    let list = r#"{"protocol":"a2a","x":[1,2,3,4,5,6]}"#;
    let got = send(&server, CONVERT, list).await;
    assert_eq!(got.status, 400);
    assert!(got.text.contains("max_array_length (5)"), "{}", got.text);
    assert_eq!(server.evidence().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_lines_than_can_be_answered_are_refused_before_any_is_recorded() {
    let server = Running::start().await;
    let body = format!("{}\n{}", packet("t"), "x\n".repeat(10_000));
    let got = send_lines(&server, CONVERT, body).await;
    assert_eq!((got.status, &*got.kind()), (413, "measurement"));
    assert!(got.text.contains("10000 lines"), "{}", got.text);
    assert_eq!(server.evidence(), [] as [Value; 0]);
}

/// The log writes numbers out: a packet within its limit can make an entry that is over the log's.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_no_entry_can_hold_is_the_packets_fault() {
    let server = Running::start().await;
    let list = format!("[{}1e20]", "1e20,".repeat(9_999));
    let lists = vec![list; 20].join(",");
    let body = format!(
        r#"{{"protocol":"a2a","version":"0.2","event_type":"agent.capabilities","agent":{{"id":"a"}},"attributes":[{lists}]}}"#
    );
    assert!(body.len() < 1 << 20);
    let got = send(&server, CONVERT, body).await;
    assert_eq!((got.status, &*got.kind()), (413, "measurement"));
    assert!(got.text.contains("evidence log"), "{}", got.text);
    assert_eq!(server.evidence(), [] as [Value; 0]);
    // One that fits is recorded, however large.
    let large = packet(&"x".repeat(1_000_000));
    let got = send(&server, CONVERT, large.as_str()).await;
    assert_eq!(got.text, by_core(Mode::Strict, &large));
    assert_recorded(&server.evidence()[0], &got.json());
}

/// Of the repository's own detectors' examples: the right form, and nobody's.
const AWS: &str = "AKIAIOSFODNN7EXAMPLE";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_do_not_reach_the_log() {
    let server = Running::start().await;
    let packet = packet(AWS);
    let got = send(&server, CONVERT, packet.as_str()).await;
    assert_eq!(got.text, by_core(Mode::Strict, &packet));
    let entry = &server.evidence()[0];
    assert!(!entry.to_string().contains(AWS), "{entry}");
    assert_eq!(entry["batch_digest"], got.json()["digest"]);
    assert_verified(&server, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_not_answered_as_converted() {
    // Every entry begins a new file, so that a folder that is gone is felt at once.
    let server = Running::with(|settings| {
        settings.evidence.segment_bytes = 1;
        settings.policy.reload_interval = std::time::Duration::from_millis(100);
    })
    .await;
    assert_eq!(send(&server, CONVERT, packet("before")).await.status, 200);
    eventually("ready", async || server.get("/ready").await.status() == 200).await;
    let folder = server.data().join("evidence");
    let aside = server.data().join("aside");
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "").unwrap();
    let lines = format!("nonsense\n{}\n{}\n", packet("1"), packet("2"));
    for got in [
        send(&server, CONVERT, packet("meanwhile")).await,
        send_lines(&server, CONVERT, lines).await,
        send(&server, IMPORT, SENT).await,
    ] {
        assert_eq!((got.status, &*got.kind()), (503, "infrastructure"));
        assert_eq!(got.media_type, "application/json");
        assert!(!got.text.contains("batch\""), "{}", got.text);
        // Where the log is, is nothing for a caller.
        let path = server.data().to_str().unwrap();
        assert!(!got.text.contains(path), "{}", got.text);
    }
    // What is refused anyway is refused for its own reason, and what needs no evidence is answered.
    assert_eq!(send(&server, CONVERT, "nonsense").await.status, 400);
    assert_eq!(send_lines(&server, CONVERT, "nonsense").await.status, 200);
    assert_eq!(send(&server, IMPORT, ASKED).await.text, r#"{"batches":[]}"#);
    let failed = r#"portcullis_calls_total{method="a2a.convert",outcome="failed"}"#;
    assert_eq!(server.metric(failed).await, 2.0);
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    eventually("ready again", async || {
        server.get("/ready").await.status() == 200
    })
    .await;
    assert_eq!(send(&server, CONVERT, packet("after")).await.status, 200);
    let entries = server.evidence();
    let subjects: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry["batch"]["events"][0]["subject"].as_str())
        .collect();
    assert_eq!(subjects, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_are_all_recorded_once() {
    let server = Running::start().await;
    let callers = (0..16).map(|caller| {
        let bodies: Vec<_> = (0..20)
            .map(|n| {
                let one = |part: &str| packet(&format!("{caller}-{n}-{part}"));
                let lines = n % 4 == 0;
                let body = if lines {
                    format!("{}\n{}\n", one("a"), one("b"))
                } else {
                    one("a")
                };
                let request = server.post(CONVERT, body.as_str());
                let mut request = request.build().unwrap();
                if lines {
                    let kind = "application/x-ndjson".parse().unwrap();
                    request.headers_mut().insert("content-type", kind);
                }
                (request, body)
            })
            .collect();
        tokio::spawn(async move {
            let client = reqwest::Client::new();
            let mut digests = Vec::new();
            for (request, body) in bodies {
                let text = client.execute(request).await.unwrap().text().await.unwrap();
                for (answer, packet) in text.lines().zip(body.lines()) {
                    assert_eq!(answer, by_core(Mode::Strict, packet));
                    let answer: Value = serde_json::from_str(answer).unwrap();
                    digests.push(answer["digest"].as_str().unwrap().to_owned());
                }
            }
            digests
        })
    });
    let mut answered = BTreeSet::new();
    for caller in callers.collect::<Vec<_>>() {
        answered.extend(caller.await.unwrap());
    }
    assert_eq!(answered.len(), 16 * 25);
    let entries = server.evidence();
    let recorded = entries.iter().map(|entry| entry["batch_digest"].as_str());
    let recorded: BTreeSet<String> = recorded.map(|digest| digest.unwrap().to_owned()).collect();
    assert_eq!((entries.len(), recorded), (16 * 25, answered));
    assert_verified(&server, 16 * 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_refusals_are_counted() {
    let server = Running::start().await;
    for mode in Mode::ALL.map(Mode::as_str) {
        let path = format!("{CONVERT}?mode={mode}");
        for packet in packets() {
            send(&server, &path, packet).await;
        }
        let lines = format!("{}\nnonsense\n", packet("t"));
        send_lines(&server, &path, lines).await;
    }
    send(&server, &format!("{CONVERT}?mode=x"), packet("t")).await;
    send(&server, IMPORT, SENT).await;
    for (name, value) in [
        (r#"batches_total{mode="strict",lossiness="none"}"#, 8.0),
        (r#"batches_total{mode="strict",lossiness="low"}"#, 0.0),
        (r#"batches_total{mode="strict",lossiness="high"}"#, 1.0),
        (r#"batches_total{mode="lenient",lossiness="none"}"#, 7.0),
        (r#"batches_total{mode="lenient",lossiness="low"}"#, 4.0),
        (r#"batches_total{mode="lenient",lossiness="high"}"#, 2.0),
        (r#"refused_total{kind="config"}"#, 1.0),
        (r#"refused_total{kind="infrastructure"}"#, 0.0),
        (r#"refused_total{kind="strict_lossiness_violation"}"#, 1.0),
        (r#"refused_total{kind="unsupported_protocol_version"}"#, 2.0),
    ] {
        let name = format!("portcullis_a2a_{name}");
        assert_eq!(server.metric(&name).await, value, "{name}");
    }
    let answered = r#"portcullis_calls_total{method="a2a.convert",outcome="answered"}"#;
    assert_eq!(server.metric(answered).await, 7.0 + 12.0 + 2.0);
    let page = server.metrics().await;
    for level in ["none", "low", "high"] {
        assert!(page.contains(&format!("lossiness=\"{level}\"")));
    }
}

/// A message of a client, by 0.3.
const SENT: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message",
    "messageId":"m-1","taskId":"task-1","role":"user","parts":[{"kind":"text","text":"Book a table"}]}}}"#;
/// A call that only reads.
const ASKED: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"id":"task-1"}}"#;
/// A task with what came of it, by 0.3.
const ANSWERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"task-1","contextId":"c-1",
    "status":{"state":"completed","timestamp":"2026-02-27T11:05:00Z"},
    "artifacts":[{"artifactId":"a-1","name":"table","parts":[{"kind":"text","text":"19:00"}]},
                 {"artifactId":"a-2","parts":[{"kind":"data","data":{"seats":2}}]}]}}"#;

/// What core makes of traffic.
fn imported(mode: Mode, sent: &str, agent: &str) -> Result<String, ConvertError> {
    let options = ImportOptions {
        agent: Some(agent),
        limits: Limits::default(),
    };
    let packets = import(sent.as_bytes(), &options)?;
    let batches: Vec<String> = packets
        .iter()
        .map(|packet| by_core(mode, &serde_json::to_string(packet).unwrap()))
        .collect();
    Ok(format!(r#"{{"batches":[{}]}}"#, batches.join(",")))
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_is_imported_as_core_reads_it_and_recorded() {
    let server = Running::start().await;
    let mut recorded = 0;
    for (sent, batches) in [(SENT, 1), (ASKED, 0), (ANSWERED, 3)] {
        for mode in Mode::ALL {
            for (agent, query) in [("emerson", ""), ("agent://a b", "&agent=agent%3A%2F%2Fa+b")] {
                let path = format!("{IMPORT}?mode={}{query}", mode.as_str());
                let got = send(&server, &path, sent).await;
                assert_eq!(got.status, 200, "{}", got.text);
                assert_eq!(got.text, imported(mode, sent, agent).unwrap());
                let answer = got.json();
                let answers = answer["batches"].as_array().unwrap();
                assert_eq!(answers.len(), batches, "{sent}");
                let entries = server.evidence();
                assert_eq!(entries.len(), recorded + batches);
                for (entry, answer) in entries[recorded..].iter().zip(answers) {
                    assert_recorded(entry, answer);
                    assert_eq!(entry["requesting_agent"], "emerson");
                    let data = &entry["batch"]["events"][0]["data"];
                    assert_eq!(data["agent"]["id"], agent);
                    // A part's content is nobody's business here.
                    assert!(!entry.to_string().contains("Book a table"));
                }
                recorded += batches;
            }
        }
    }
    assert_verified(&server, recorded as u64);
    for wrong in ["nonsense", "5", r#"{"jsonrpc":"1.0"}"#] {
        let got = send(&server, IMPORT, wrong).await;
        assert_eq!((got.status, &*got.kind()), (400, "measurement"), "{wrong}");
    }
    assert_eq!(server.evidence().len(), recorded);
    // A line each.
    let one_line = |sent: &str| sent.replace('\n', " ");
    let [sent, answered] = [SENT, ANSWERED].map(one_line);
    let got = send_lines(&server, IMPORT, format!("{sent}\n5\n{ASKED}\n{answered}")).await;
    let lines: Vec<&str> = got.text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0], imported(Mode::Strict, &sent, "emerson").unwrap());
    assert!(lines[1].starts_with(r#"{"error":{"line":2,"kind":"measurement","#));
    assert_eq!(lines[2], r#"{"batches":[]}"#);
    assert_eq!(
        lines[3],
        imported(Mode::Strict, &answered, "emerson").unwrap()
    );
    assert_eq!(server.evidence().len(), recorded + 4);
}

/// More packets than wait for the log at a time.
#[tokio::test(flavor = "multi_thread")]
async fn one_body_may_make_many_batches() {
    let server = Running::start().await;
    let artifacts: Vec<Value> = (0..600)
        .map(|n| json!({"artifactId": format!("a-{n}"), "parts": []}))
        .collect();
    let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}, "artifacts": artifacts});
    let got = send(&server, IMPORT, task.to_string()).await;
    assert_eq!(got.status, 200, "{}", got.text);
    let answer = got.json();
    let answers = answer["batches"].as_array().unwrap();
    assert_eq!(answers.len(), 601);
    let entries = server.evidence();
    assert_eq!(entries.len(), 601);
    for (entry, answer) in entries.iter().zip(answers) {
        assert_recorded(entry, answer);
    }

    // Not more than are worth one answer.
    let artifact = json!({"artifactId": "a", "parts": []});
    let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}, "artifacts": vec![artifact; 10_000]});
    let got = send(&server, IMPORT, task.to_string()).await;
    assert_eq!((got.status, &*got.kind()), (400, "measurement"));
    assert!(got.text.contains("max_array_length"), "{}", got.text);
    assert_eq!(server.evidence().len(), 601);
}

/// A few lines can make many packets: those after ten thousand are refused, and the rest is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_body_makes_is_bounded() {
    let server = Running::start().await;
    let task = |count: usize| {
        let artifacts = vec![json!({"artifactId": "a"}); count];
        json!({"id": "t", "status": {}, "artifacts": artifacts}).to_string()
    };
    let body = [task(9_998), task(0), task(0)].join("\n");
    let got = send_lines(&server, IMPORT, body).await;
    assert_eq!(got.status, 200);
    let answers: Vec<Value> = got
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let made = |n: usize| answers[n]["batches"].as_array().map(Vec::len);
    assert_eq!([made(0), made(1), made(2)], [Some(9_999), Some(1), None]);
    assert_eq!(answers[2]["error"]["line"], 3);
    assert_eq!(answers[2]["error"]["kind"], "measurement");
    assert_eq!(server.evidence().len(), 10_000);
}
