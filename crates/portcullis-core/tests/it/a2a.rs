//! A2A packets: the freeze's matrix, golden batches, and what holds for every packet.
//!
//! Packets are under `fixtures/a2a/packets`; what becomes of each is under `fixtures/a2a/golden`. After a change that is
//! meant, `cargo xtask goldens` writes them anew and shows the difference.

#![expect(
    clippy::disallowed_methods,
    reason = "tests read their data, and a command writes it anew"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use portcullis_core::a2a::{
    Adapter, Batch, ConvertError, Discovery, ErrorKind, Input, Limits, Mode, SourceKind,
    write_answer,
};
use portcullis_core::evidence::Digest;
use serde_json::{Value, json};

fn directory(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/it/fixtures/a2a").join(name)
}

fn packet(name: &str) -> Vec<u8> {
    let path = directory("packets").join(format!("{name}.json"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn packets() -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory("packets")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(&path).unwrap())
        })
        .collect()
}

pub(crate) fn convert(mode: Mode, packet: &[u8]) -> Result<Batch<'_>, ConvertError> {
    Adapter::new(mode).convert(Input::json(packet))
}

pub(crate) fn answer(mode: Mode, packet: &[u8]) -> Value {
    let mut out = Vec::new();
    write_answer(&convert(mode, packet), &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn discovery(mode: Mode, packet: &[u8]) -> Discovery {
    convert(mode, packet).unwrap().event().data.discovery
}

pub(crate) fn sha256(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

#[test]
fn golden_batches() {
    let write = std::env::var_os("PORTCULLIS_GOLDENS").is_some();
    let mut wrong = Vec::new();
    let mut known = Vec::new();
    for (name, packet) in packets() {
        let [strict, lenient] = Mode::ALL.map(|mode| {
            let mut answer = answer(mode, &packet);
            if let Ok(batch) = convert(mode, &packet) {
                let data = &batch.event().data;
                answer["payload_digest"] = data.digest().to_string().into();
                answer["discovery_digest"] = data.discovery.digest().to_string().into();
            }
            answer
        });
        let golden = if strict == lenient {
            json!({"either": strict})
        } else {
            json!({"strict": strict, "lenient": lenient})
        };
        let text = serde_json::to_string_pretty(&golden).unwrap() + "\n";
        let path = directory("golden").join(format!("{name}.json"));
        if write {
            fs::write(&path, text).unwrap();
        } else if fs::read_to_string(&path).ok() != Some(text) {
            wrong.push(name.clone());
        }
        known.push(path);
    }
    for stale in fs::read_dir(directory("golden")).unwrap() {
        let stale = stale.unwrap().path();
        if !known.contains(&stale) {
            wrong.push(format!("{} is of no packet", stale.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "not as they were: {wrong:#?}\nif that is meant, `cargo xtask goldens` writes them anew and shows the difference"
    );
}

/// Freeze §8 by number, §4's explicit negatives, and §7's three shapes.
#[test]
fn the_matrix_of_the_freeze() {
    let default = Discovery::default();
    assert_eq!(default.agent_card_source_kind, SourceKind::Unknown);
    let card = Discovery {
        agent_card_visible: true,
        agent_card_source_kind: SourceKind::Attributes,
        ..default
    };
    let extended = Discovery {
        extended_card_access_visible: true,
        ..default
    };
    let both = Discovery {
        extended_card_access_visible: true,
        ..card
    };
    let cases = [
        ("N1", "capabilities", default),
        ("N2", "card-namespace-string", default),
        ("N2", "card-namespace-list", default),
        ("N2", "card-namespace-empty", default),
        ("N2", "card-string", default),
        ("N2", "card-boolean", default),
        ("N2", "card-list", default),
        ("N2", "card-visible-false", default),
        ("N2", "card-visible-string", default),
        ("N2", "card-visible-number", default),
        ("N2", "card-visible-null", default),
        ("N2", "card-visible-missing", default),
        ("N3", "unmapped-members", default),
        ("N3", "card-as-top-level-member", default),
        ("N4, N7, §7.1", "capabilities-card", card),
        ("N4", "task-requested-card", card),
        ("N5", "attributes-missing", default),
        ("N6", "signature-claimed", card),
        ("§4.1 (1)", "capabilities-mixed", default),
        ("§4.1 (2)", "card-without-namespace", default),
        ("§4.1 (4)", "card-dotted", default),
        ("§4.1 (6)", "card-other-case", default),
        ("§4.1 (6)", "card-too-deep", default),
        ("§4.1 (6)", "card-in-agent", default),
        ("§4.2", "auth-claimed", default),
        ("§7.3", "capabilities-both", both),
        ("§8, extended", "capabilities-extended", extended),
        ("N2", "attributes-null", default),
        ("N2", "attributes-string", default),
        ("N2", "attributes-list", default),
    ];
    for (number, name, expected) in cases {
        let packet = packet(name);
        for mode in Mode::ALL {
            assert_eq!(
                discovery(mode, &packet),
                expected,
                "{number} {name} {mode:?}"
            );
        }
    }
    // Lenient conversion promotes nothing either, and takes nothing back.
    assert_eq!(discovery(Mode::Lenient, &packet("agent-missing")), default);
    assert_eq!(discovery(Mode::Lenient, &packet("worst-of-all")), card);
}

#[test]
fn what_version_1_never_says() {
    for (name, packet) in packets() {
        for mode in Mode::ALL {
            let Ok(batch) = convert(mode, &packet) else {
                continue;
            };
            let discovery = batch.event().data.discovery;
            assert!(!discovery.signature_material_visible, "{name}");
            let expected = if discovery.agent_card_visible {
                SourceKind::Attributes
            } else {
                SourceKind::Unknown
            };
            assert_eq!(discovery.agent_card_source_kind, expected, "{name}");
        }
    }
}

/// Freeze §7 word for word, but for the version of the adapter.
#[test]
fn the_examples_of_the_freeze() {
    let mut expected = json!({
        "adapter_id": "assay-adapter-a2a",
        "adapter_version": env!("CARGO_PKG_VERSION"),
        "protocol": "a2a",
        "protocol_name": "a2a",
        "protocol_version": "0.2.0",
        "upstream_event_type": "agent.capabilities",
        "agent": {
            "id": "agent://planner",
            "name": "Planner",
            "role": "assistant",
            "capabilities": ["agent.describe", "artifacts.share", "tasks.update"],
        },
        "attributes": {"priority": "high", "session": "alpha"},
        "discovery": {
            "agent_card_visible": false,
            "agent_card_source_kind": "unknown",
            "extended_card_access_visible": false,
            "signature_material_visible": false,
        },
        "unmapped_fields_count": 0,
    });
    let data =
        |name: &str| answer(Mode::Strict, &packet(name))["batch"]["events"][0]["data"].take();
    assert_eq!(data("capabilities"), expected);
    expected["attributes"]["assay_g4"] = json!({"agent_card": {"visible": true}});
    expected["discovery"]["agent_card_visible"] = json!(true);
    expected["discovery"]["agent_card_source_kind"] = json!("attributes");
    assert_eq!(data("capabilities-card"), expected);
    expected["attributes"]["assay_g4"]["extended_card_access"] = json!({"visible": true});
    expected["discovery"]["extended_card_access_visible"] = json!(true);
    assert_eq!(data("capabilities-both"), expected);
}

/// Whoever renames a member or changes its type breaks everybody who has noted a digest down.
#[test]
fn the_digests_of_discovery_alone() {
    let digest = |name: &str| discovery(Mode::Strict, &packet(name)).digest().to_string();
    // printf '{"agent_card_source_kind":"unknown","agent_card_visible":false,…}' | sha256sum
    let text = |kind: &str, card: bool, extended: bool| {
        sha256(&format!(
            r#"{{"agent_card_source_kind":"{kind}","agent_card_visible":{card},"extended_card_access_visible":{extended},"signature_material_visible":false}}"#
        ))
    };
    insta::assert_snapshot!(
        [
            ("capabilities", text("unknown", false, false)),
            ("capabilities-card", text("attributes", true, false)),
            ("capabilities-extended", text("unknown", false, true)),
            ("capabilities-both", text("attributes", true, true)),
        ]
        .map(|(name, expected)| {
            assert_eq!(digest(name), expected, "{name}");
            format!("{name}: {expected}")
        })
        .join("\n"),
        @"
    capabilities: 26b4d9c0105f4cc26d4b413e7b6b27effe5829f9f319a60b91ca490fd7776a13
    capabilities-card: 93f5c26d149e7400d38104c4479f332df4df23df0d1f4d25aef252aac87b9769
    capabilities-extended: 13e23c6783de838b52ca92d787569bccd3cadc0f8900f1bf76b42262959f77ba
    capabilities-both: 9d0f24e430e00ee3ec1bc595cb59e6e7d7d5b12c0c90e102ea4d26ad3890e665
    "
    );
}

#[test]
fn checks_are_made_in_their_order() {
    let limits = Limits::new(200, 4, 3).unwrap();
    let adapter = Adapter::with_limits(Mode::Strict, limits);
    let kind = |packet: &str| {
        let error = adapter.convert(Input::json(packet.as_bytes())).unwrap_err();
        (error.kind(), error.to_string())
    };
    let long = "x".repeat(200);
    let cases = [
        (format!("not json {long}"), "max_payload_bytes (200)"),
        (r#"{"a":[1,2,3,4]"#.to_owned(), "not valid JSON"),
        (r#"{"a":[[[[]]]"#.to_owned(), "not valid JSON"),
        (r#"{"a":[1,2,3,4],"protocol":"acp"}"#.to_owned(), "max_array_length (3)"),
        (r#"{"a":[[[[]]]],"protocol":"acp"}"#.to_owned(), "max_json_depth (4)"),
        (r#"{"protocol":"acp","version":"9"}"#.to_owned(), "`protocol`"),
        (r#"{"protocol":"a2a","event_type":"x"}"#.to_owned(), "version"),
        (r#"{"protocol":"a2a","version":"9"}"#.to_owned(), "unsupported A2A version"),
        (r#"{"protocol":"a2a","version":"0.2","event_type":"x"}"#.to_owned(), "agent.id"),
        (
            r#"{"protocol":"a2a","version":"0.2","event_type":"x","agent":{"id":"a"}}"#.to_owned(),
            "event_type",
        ),
        (
            r#"{"protocol":"a2a","version":"0.2","event_type":"task.updated","agent":{"id":"a"}}"#
                .to_owned(),
            "task.id",
        ),
        (
            r#"{"protocol":"a2a","version":"0.2","event_type":"artifact.shared","agent":{"id":"a"}}"#
                .to_owned(),
            "artifact.id",
        ),
    ];
    for (packet, expected) in cases {
        let (_, message) = kind(&packet);
        assert!(message.contains(expected), "{packet}: {message}");
    }
    let place = |packet: &str| kind(packet).1;
    assert!(place(r#"{"a":{"b/c":[1,2,3,4]}}"#).starts_with("`/a/b~1c`"));
    assert!(place(r#"{"a":[{},{"b":[[]]}]}"#).starts_with("`/a/1/b/0`"));
    assert_eq!(
        Limits::new(1, 101, 1).unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[test]
fn whoever_received_it_may_know_the_version() {
    let packet = packet("version-missing");
    let adapter = Adapter::new(Mode::Strict);
    let convert = |version| {
        adapter.convert(Input {
            protocol_version: version,
            media_type: "application/vnd.a2a+json",
            ..Input::json(&packet)
        })
    };
    let batch = convert(Some("0.3.0")).unwrap();
    assert_eq!(batch.event().data.protocol_version, "0.3.0");
    let raw = batch.lossiness.raw_payload_ref;
    assert_eq!(raw.media_type, "application/vnd.a2a+json");
    assert_eq!(raw.size_bytes, packet.len() as u64);
    assert_eq!(convert(None).unwrap_err(), ConvertError::NoVersion);
    // What the packet says counts for more.
    let told = adapter.convert(Input {
        protocol_version: Some("0.3.0"),
        ..Input::json(br#"{"protocol":"a2a","version":"1.0"}"#)
    });
    assert_eq!(
        told.unwrap_err().kind(),
        ErrorKind::UnsupportedProtocolVersion
    );
}

#[test]
fn the_schemas_fit() {
    let schema = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join("../../docs/schemas").join(name);
        let schema = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let (packets_schema, payloads, batches) = (
        schema("a2a-packet.json"),
        schema("a2a-payload.json"),
        schema("a2a-batch.json"),
    );
    for (name, packet) in packets() {
        for mode in Mode::ALL {
            let mut answer = answer(mode, &packet);
            if let Some(data) = answer.pointer("/batch/events/0/data") {
                payloads
                    .validate(data)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                let batch = answer["batch"].take();
                batches
                    .validate(&batch)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        // A packet that keeps to the schema is converted without loss of anything it has.
        let value: Result<Value, _> = serde_json::from_slice(&packet);
        if value.is_ok_and(|value| packets_schema.is_valid(&value))
            && !name.starts_with("duplicate")
            && !name.starts_with("too-")
        {
            convert(Mode::Strict, &packet).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    for name in [
        "capabilities",
        "capabilities-both",
        "task-requested",
        "artifact-shared",
    ] {
        let value = serde_json::from_slice(&packet(name)).unwrap();
        assert!(packets_schema.is_valid(&value), "{name}");
    }
    for name in [
        "agent-missing",
        "task-missing",
        "artifact-missing",
        "version-1.0",
        "event-type-unknown",
        "protocol-other",
    ] {
        let value = serde_json::from_slice(&packet(name)).unwrap();
        assert!(!packets_schema.is_valid(&value), "{name}");
    }
}

/// Ten megabytes of what is cheap to send: time is linear, so this ends.
#[test]
fn nothing_grows_faster_than_the_packet() {
    const SIZE: usize = 10 << 20;
    let limits = Limits::new(2 * SIZE, 64, 10_000).unwrap();
    let head = r#"{"protocol":"a2a","version":"0.2","event_type":"task.deleted","attributes":"#;
    let same_key = r#""a":1,"#.repeat(SIZE / 6);
    let keys: Vec<String> = (0..SIZE / 12).map(|n| format!("\"{n:07}\":1")).collect();
    let keys = keys.join(",");
    let cases = [
        ("[".repeat(SIZE), false),
        ("{\"a\":".repeat(SIZE / 5), false),
        (
            format!("{}{}", "[".repeat(SIZE / 2), "]".repeat(SIZE / 2)),
            false,
        ),
        (format!("{{\"{}\":1}}", "k".repeat(SIZE)), false),
        (format!("{{{same_key}\"a\":1}}"), false),
        (format!("{head}{{{keys}}}}}"), true),
        (format!("{head}\"{}\"}}", "\\u0041".repeat(SIZE / 6)), true),
        (format!("{head}[{}1]}}", "1,".repeat(SIZE / 2)), false),
        (format!("{head}[{}[]]}}", "[],".repeat(9_000)), true),
    ];
    for (packet, converts) in cases {
        let adapter = Adapter::with_limits(Mode::Lenient, limits);
        let result = adapter.convert(Input::json(packet.as_bytes()));
        assert_eq!(result.is_ok(), converts, "{}…", &packet[..40]);
    }
}
