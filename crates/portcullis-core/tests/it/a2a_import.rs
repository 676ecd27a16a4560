//! What today's A2A clients and servers send becomes packets.
//!
//! `fixtures/a2a/sdk-*.ndjson` were recorded by `scripts/a2a_fixtures.py`, `cases/a2a_import.json` were written by hand.

use portcullis_core::a2a::{
    Adapter, Batch, ConvertError, Discovery, ErrorKind, ImportOptions, Input, Limits, Mode, Packet,
    import,
};
use portcullis_core::evidence::Digest;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

const AGENT: &str = "agent://ours";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Whether whoever imports it names no agent.
    #[serde(default)]
    nobody: bool,
    payload: Value,
    packets: Option<Vec<Value>>,
    error: Option<String>,
}

#[test]
fn every_case_gives_its_packets() {
    let cases = include_str!("cases/a2a_import.json");
    for case in serde_json::from_str::<Vec<Case>>(cases).unwrap() {
        let name = &case.name;
        let payload = serde_json::to_vec(&case.payload).unwrap();
        let options = ImportOptions {
            agent: (!case.nobody).then_some(AGENT),
            ..ImportOptions::default()
        };
        let found = import(&payload, &options);
        match (case.packets, case.error) {
            (Some(wanted), None) => {
                let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_held(&payload, &found, &options.limits);
                let found: Vec<_> = found.iter().map(without_head).collect();
                similar(name, &json!(found), &json!(wanted));
            }
            (None, Some(wanted)) => {
                let error = found.expect_err(name);
                assert_eq!(error.kind(), ErrorKind::Measurement, "{name}");
                assert!(error.to_string().contains(&wanted), "{name}: {error}");
            }
            _ => panic!("{name}: say either `packets` or `error`"),
        }
    }
}

#[test]
fn a_conversation_of_the_sdk() {
    let lines = include_str!("fixtures/a2a/sdk-1.0.ndjson").lines();
    let packets: Vec<_> = lines.map(imported).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&packets).unwrap());
}

#[test]
fn both_generations_say_the_same() {
    let of_1_0 = include_str!("fixtures/a2a/sdk-1.0.ndjson").lines();
    let of_0_3 = include_str!("fixtures/a2a/sdk-0.3.ndjson").lines();
    assert!(of_0_3.clone().count() > 25);
    for (number, (a, b)) in (1..).zip(of_1_0.zip(of_0_3)) {
        let [a, b] = [a, b].map(|line| {
            let mut packets = imported(line);
            for packet in packets.as_array_mut().unwrap() {
                let a2a = packet["attributes"]["a2a"].as_object_mut().unwrap();
                a2a.remove("protocol_version");
            }
            packets
        });
        similar(&format!("line {number}"), &a, &b);
    }
}

#[test]
fn the_http_binding_is_understood() {
    for (lines, requests) in [
        (include_str!("fixtures/a2a/sdk-1.0-http.ndjson"), 6),
        (include_str!("fixtures/a2a/sdk-0.3-http.ndjson"), 7),
    ] {
        let packets: Vec<_> = lines.lines().map(imported).collect();
        insta::assert_snapshot!(serde_json::to_string_pretty(&packets).unwrap());
        let of_type = |name: &str| {
            let all = packets
                .iter()
                .flat_map(|packets| packets.as_array().unwrap());
            all.filter(|packet| packet["event_type"] == name).count()
        };
        assert_eq!(of_type("task.requested"), requests);
        assert_eq!(of_type("agent.capabilities"), 2);
        assert!(of_type("task.updated") > 5);
        assert!(of_type("artifact.shared") >= 2);
    }
}

#[test]
fn limits_are_those_of_packets() {
    let limits = Limits::new(4096, 8, 4).unwrap();
    let options = ImportOptions {
        agent: Some(AGENT),
        limits,
    };
    let nested = |depth: usize| {
        let metadata = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"messageId": "m", "metadata": {metadata}}}"#)
    };
    let deepest = nested(4);
    assert_held(
        deepest.as_bytes(),
        &import(deepest.as_bytes(), &options).unwrap(),
        &limits,
    );
    let error = import(nested(5).leak().as_bytes(), &options).unwrap_err();
    assert!(error.to_string().contains("max_json_depth (8)"), "{error}");

    let tasks = |count: usize| {
        let task = json!({"id": "t", "status": {}, "artifacts": [{"artifactId": "a"}]});
        json!({"tasks": vec![task; count]}).to_string()
    };
    let most = tasks(2);
    assert_eq!(import(most.as_bytes(), &options).unwrap().len(), 4);
    let error = import(tasks(3).leak().as_bytes(), &options).unwrap_err();
    assert!(
        matches!(error, ConvertError::TooManyPackets { limit: 4 }),
        "{error}"
    );

    let grown = json!({"messageId": "m", "metadata": vec!["x".repeat(980); 4]}).to_string();
    assert!(grown.len() < 4096);
    let error = import(grown.leak().as_bytes(), &options).unwrap_err();
    assert!(error.to_string().contains("makes a packet of"), "{error}");

    let long = json!({"jsonrpc": "2.0", "id": "i".repeat(513), "result": null}).to_string();
    let error = import(long.leak().as_bytes(), &options).unwrap_err();
    assert!(
        error.to_string().contains("`/id` is longer than 512 bytes"),
        "{error}"
    );
}

/// What is said once goes into each packet of a payload, but not without end.
#[test]
fn packets_do_not_outgrow_their_payload() {
    let id = "\u{1}".repeat(512);
    let artifacts = vec![json!({"artifactId": "a"}); 9_999];
    let task = json!({"id": id, "contextId": id, "status": {}, "artifacts": artifacts});
    let payload = json!({"jsonrpc": "2.0", "id": id, "result": task}).to_string();
    let options = ImportOptions {
        agent: Some(AGENT),
        ..ImportOptions::default()
    };
    let error = import(payload.as_bytes(), &options).unwrap_err();
    assert!(error.to_string().contains("send it in parts"), "{error}");
}

/// The agent's id goes into every packet.
#[test]
fn the_agent_has_an_id_of_bearable_length() {
    let message = br#"{"messageId": "m"}"#;
    for (length, fits) in [(0, false), (1, true), (512, true), (513, false)] {
        let agent = "a".repeat(length);
        let options = ImportOptions {
            agent: Some(&agent),
            ..ImportOptions::default()
        };
        let kind = import(message, &options).map_err(|error| error.kind());
        assert_eq!(kind.is_ok(), fits, "{length}");
        assert!(fits || kind == Err(ErrorKind::Config), "{length}");
    }
}

#[test]
fn what_is_there_twice_is_refused() {
    let twice = br#"{"messageId": "m", "messageId": "n"}"#;
    let error = import(twice, &ImportOptions::default()).unwrap_err();
    assert!(matches!(error, ConvertError::NotJson { .. }), "{error}");
}

/// What a line of a fixture gives, less `source`.
fn imported(line: &str) -> Value {
    let options = ImportOptions {
        agent: Some(AGENT),
        ..ImportOptions::default()
    };
    let packets = import(line.as_bytes(), &options);
    let packets = packets.unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_held(line.as_bytes(), &packets, &options.limits);
    packets.iter().map(without_head).collect()
}

/// What is the same in every packet is checked rather than written out in each case.
fn without_head(packet: &Packet<'_>) -> Value {
    let mut packet = serde_json::to_value(packet).unwrap();
    let members = packet.as_object_mut().unwrap();
    assert_eq!(members.remove("protocol").unwrap(), "a2a");
    assert_eq!(members.remove("version").unwrap(), "0.2.0");
    let a2a = packet["attributes"]["a2a"].as_object_mut().unwrap();
    a2a.remove("source").unwrap();
    packet
}

/// The same, with a difference that people can read.
fn similar(name: &str, found: &Value, wanted: &Value) {
    let pretty = |value| serde_json::to_string_pretty(value).unwrap();
    assert_eq!(pretty(found), pretty(wanted), "{name}");
}

/// What holds for all that is imported.
fn assert_held(payload: &[u8], packets: &[Packet<'_>], limits: &Limits) {
    let sha256 = Digest::of(payload).to_string();
    for packet in packets {
        let bytes = serde_json::to_vec(packet).unwrap();
        let batch = strictly(&bytes, limits);
        let data = &batch.event().data;
        assert_eq!(data.discovery, Discovery::default());
        assert_eq!(data.unmapped_fields_count, 0);
        assert!(batch.lossiness.notes.is_empty());

        let packet = serde_json::to_value(packet).unwrap();
        let source = &packet["attributes"]["a2a"]["source"];
        assert_eq!(
            source,
            &json!({"sha256": sha256, "size_bytes": payload.len()})
        );
        assert!(packet["attributes"].get("assay_g4").is_none());
    }
    let text = serde_json::to_string(packets).unwrap();
    assert!(!text.contains("SECRET"), "{text}");
}

fn strictly<'a>(packet: &'a [u8], limits: &Limits) -> Batch<'a> {
    let adapter = Adapter::with_limits(Mode::Strict, *limits);
    let batch = adapter.convert(Input::json(packet));
    batch.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(packet)))
}

/// JSON that looks like traffic, at least from afar.
fn traffic() -> impl Strategy<Value = Value> {
    const NAMES: &[&str] = &[
        "a2a",
        "agent",
        "agent_card",
        "append",
        "artifact",
        "artifactId",
        "artifactUpdate",
        "artifacts",
        "assay_g4",
        "attributes",
        "capabilities",
        "content",
        "contextId",
        "data",
        "error",
        "event_type",
        "extended_card_access",
        "extensions",
        "file",
        "history",
        "id",
        "jsonrpc",
        "kind",
        "mediaType",
        "message",
        "messageId",
        "metadata",
        "method",
        "mimeType",
        "name",
        "params",
        "parts",
        "protocolVersion",
        "request",
        "result",
        "role",
        "skills",
        "state",
        "status",
        "statusUpdate",
        "streaming",
        "supportedInterfaces",
        "task",
        "taskId",
        "task_id",
        "tasks",
        "text",
        "timestamp",
        "url",
        "version",
        "visible",
    ];
    const TEXTS: &[&str] = &[
        "",
        "2.0",
        "x",
        "user",
        "ROLE_AGENT",
        "TASK_STATE_WORKING",
        "message",
        "task",
        "status-update",
        "artifact-update",
        "message/send",
        "SendMessage",
        "tasks/cancel",
        "CreateTaskPushNotificationConfig",
        "2026-02-27T11:05:00Z",
        "a2a",
        "é\u{1}\u{1F600}",
    ];
    let leaf = prop_oneof![
        3 => prop::sample::select(TEXTS).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!({"agent_card": {"visible": true}, "extended_card_access": {"visible": true}})),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let member = (
            prop::sample::select(NAMES).prop_map(str::to_owned),
            inner.clone(),
        );
        prop_oneof![
            1 => prop::collection::vec(inner, 0..5).prop_map(Value::from),
            4 => prop::collection::vec(member, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Traffic of each kind.
fn bases() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"messageId": "m"}}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"id": "t", "status": {}}}),
        json!({"id": "t", "status": {"message": {"messageId": "m"}}, "artifacts": [{"artifactId": "a"}]}),
        json!({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}),
        json!({"name": "n", "capabilities": {}}),
        json!({"messageId": "m"}),
    ])
}

/// Traffic, with whatever else there is in it.
fn likely() -> impl Strategy<Value = Value> {
    (bases(), traffic()).prop_map(|(mut base, noise)| {
        add(&mut base, &noise);
        base
    })
}

/// Adds members everywhere that an object does not have them yet.
fn add(value: &mut Value, noise: &Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(|value| add(value, noise));
            for (name, value) in noise.as_object().into_iter().flatten() {
                members.entry(name.clone()).or_insert_with(|| value.clone());
            }
            for name in ["metadata", "attributes", "assay_g4"] {
                members.entry(name).or_insert_with(|| noise.clone());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| add(item, noise)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn whatever_is_imported_converts_and_shows_nothing(traffic in prop_oneof![traffic(), likely()]) {
        let payload = serde_json::to_vec(&traffic).unwrap();
        let options = ImportOptions { agent: Some(AGENT), ..ImportOptions::default() };
        if let Ok(packets) = import(&payload, &options) {
            assert_held(&payload, &packets, &options.limits);
        }
    }

    #[test]
    fn whatever_the_metadata_traffic_is_imported(mut base in bases(), noise in traffic()) {
        base.as_object_mut().unwrap().insert("metadata".to_owned(), noise);
        let payload = serde_json::to_vec(&base).unwrap();
        let options = ImportOptions { agent: Some(AGENT), ..ImportOptions::default() };
        let packets = import(&payload, &options).unwrap();
        prop_assert!(!packets.is_empty());
        assert_held(&payload, &packets, &options.limits);
    }

    #[test]
    fn importing_is_total(bytes: Vec<u8>) {
        let options = ImportOptions { agent: Some(AGENT), ..ImportOptions::default() };
        if let Ok(packets) = import(&bytes, &options) {
            assert_held(&bytes, &packets, &options.limits);
        }
    }

    #[test]
    fn small_limits_hold_too(traffic in likely(), bytes in 0usize..2000, depth in 0usize..10, length in 0usize..5) {
        let payload = serde_json::to_vec(&traffic).unwrap();
        let limits = Limits::new(bytes, depth, length).unwrap();
        let options = ImportOptions { agent: Some(AGENT), limits };
        if let Ok(packets) = import(&payload, &options) {
            assert_held(&payload, &packets, &limits);
        }
    }

    #[test]
    fn the_same_bytes_give_the_same_packets(traffic in likely()) {
        let payload = serde_json::to_vec(&traffic).unwrap();
        let options = ImportOptions { agent: Some(AGENT), ..ImportOptions::default() };
        prop_assert_eq!(import(&payload, &options), import(&payload, &options));
    }
}
