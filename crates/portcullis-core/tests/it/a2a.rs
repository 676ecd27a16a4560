//! A2A packets: the freeze's matrix, golden batches, and what holds for every packet.
//!
//! Packets are under `fixtures/a2a/packets`; what becomes of each is under `fixtures/a2a/golden`. After a change that is
//! meant, `cargo xtask goldens` writes them anew and shows the difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use portcullis_core::a2a::{
    Adapter, Batch, ConvertError, Discovery, ErrorKind, Input, Limits, Mode, SourceKind,
    write_answer,
};
use portcullis_core::canonical;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

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

fn convert(mode: Mode, packet: &[u8]) -> Result<Batch<'_>, ConvertError> {
    Adapter::new(mode).convert(Input::json(packet))
}

fn answer(mode: Mode, packet: &[u8]) -> Value {
    let mut out = Vec::new();
    write_answer(&convert(mode, packet), &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn discovery(mode: Mode, packet: &[u8]) -> Discovery {
    convert(mode, packet).unwrap().event().data.discovery
}

/// The canonical form as A8 says it, the long way round.
fn canonical_text(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut names: Vec<_> = members.keys().collect();
            names.sort_by_key(|name| name.as_bytes());
            let members = names.into_iter().map(|name| {
                let value = canonical_text(&members[name]);
                format!("{}:{value}", Value::from(name.as_str()))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical_text).collect();
            format!("[{}]", items.join(","))
        }
        plain => plain.to_string(),
    }
}

fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
    let keys: String = (0..SIZE / 12).map(|n| format!("\"{n:07}\":1,")).collect();
    let cases = [
        ("[".repeat(SIZE), false),
        ("{\"a\":".repeat(SIZE / 5), false),
        (
            format!("{}{}", "[".repeat(SIZE / 2), "]".repeat(SIZE / 2)),
            false,
        ),
        (format!("{{\"{}\":1}}", "k".repeat(SIZE)), false),
        (format!("{{{}\"a\":1}}", same_key), false),
        (format!("{head}{{{keys}\"z\":1}}}}"), true),
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

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!({"visible": true})),
    ];
    let name = prop_oneof![
        "[\u{0}-\u{2f}\\\\\"]{0,2}",
        "[\u{e000}-\u{10ffff}a]{0,2}",
        Just("assay_g4".to_owned()),
        Just("agent_card".to_owned()),
        Just("extended_card_access".to_owned()),
        Just("visible".to_owned()),
        Just("id".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec("[a-c]{0,2}", 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A packet: any member may be missing, of any type, or as it should be.
fn any_packet() -> impl Strategy<Value = Value> {
    let texts = |texts: &'static [&'static str]| prop::sample::select(texts).prop_map(Value::from);
    let some_id = prop_oneof![any::<String>(), "[a-z]{1,3}"].prop_map(|id| json!({"id": id}));
    let member = move |good: BoxedStrategy<Value>| {
        prop_oneof![
            8 => good.prop_map(Some),
            1 => value().prop_map(Some),
            1 => Just(None),
        ]
    };
    let events = texts(&[
        "agent.capabilities",
        "task.requested",
        "task.updated",
        "artifact.shared",
        "x",
    ]);
    (
        member(texts(&["a2a"]).boxed()),
        member(texts(&["0.2", "0.3.1", "0.10"]).boxed()),
        member(events.boxed()),
        member(texts(&["2026-02-27T11:05:00Z", "2026-02-27T11:05:00.5+02:00", "x"]).boxed()),
        member(some_id.clone().boxed()),
        member(some_id.clone().boxed()),
        member(some_id.clone().boxed()),
        member(some_id.boxed()),
        member(value().boxed()),
        prop::option::weighted(0.2, (any::<String>(), value())),
    )
        .prop_map(
            |(
                protocol,
                version,
                event_type,
                timestamp,
                agent,
                task,
                artifact,
                message,
                attributes,
                extra,
            )| {
                let members = [
                    ("protocol", protocol),
                    ("version", version),
                    ("event_type", event_type),
                    ("timestamp", timestamp),
                    ("agent", agent),
                    ("task", task),
                    ("artifact", artifact),
                    ("message", message),
                    ("attributes", attributes),
                ];
                let members = members
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?)));
                let mut packet: Map<String, Value> = members.collect();
                if let Some((name, value)) = extra {
                    packet.entry(name).or_insert(value);
                }
                Value::Object(packet)
            },
        )
}

/// The same value, written another way: members shuffled, spaces anywhere, characters as escapes.
fn respell(value: &Value, seed: &mut u64, out: &mut String) {
    fn next(seed: &mut u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }
    fn space(seed: &mut u64, out: &mut String) {
        out.push_str(["", "", " ", "\n\t", "\r\n "][next(seed) as usize % 5]);
    }
    fn text(text: &str, seed: &mut u64, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            if next(seed) % 3 == 0 {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    out.push_str(&if next(seed) % 2 == 0 {
                        format!("\\u{unit:04x}")
                    } else {
                        format!("\\u{unit:04X}")
                    });
                }
            } else if character == '/' && next(seed) % 2 == 0 {
                out.push_str("\\/");
            } else {
                let quoted = Value::from(character.to_string()).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
        out.push('"');
    }
    space(seed, out);
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_cached_key(|_| next(seed));
            out.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                space(seed, out);
                text(name, seed, out);
                space(seed, out);
                out.push(':');
                respell(value, seed, out);
            }
            space(seed, out);
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                respell(item, seed, out);
            }
            space(seed, out);
            out.push(']');
        }
        Value::String(string) => text(string, seed, out),
        plain => out.push_str(&plain.to_string()),
    }
    space(seed, out);
}

proptest! {
    #[test]
    fn spelling_never_changes_the_payload(packet in any_packet(), mut seed: u64) {
        let plain = packet.to_string();
        let mut respelled = String::new();
        respell(&packet, &mut seed, &mut respelled);
        for mode in Mode::ALL {
            let one = convert(mode, plain.as_bytes());
            let other = convert(mode, respelled.as_bytes());
            match (one, other) {
                (Ok(one), Ok(other)) => {
                    prop_assert_eq!(one.events, other.events);
                    let (one, other) = (convert(mode, plain.as_bytes()).unwrap(), other.lossiness);
                    prop_assert_eq!(one.lossiness.notes, other.notes);
                    let same_bytes = plain == respelled;
                    let same_raw = one.lossiness.raw_payload_ref.sha256 == other.raw_payload_ref.sha256;
                    prop_assert_eq!(same_bytes, same_raw);
                }
                (one, other) => prop_assert_eq!(one, other),
            }
        }
    }

    #[test]
    fn strict_success_is_lenient_success(packet in any_packet()) {
        let packet = packet.to_string();
        if let Ok(strict) = convert(Mode::Strict, packet.as_bytes()) {
            prop_assert_eq!(strict.lossiness.notes.len(), 0);
            prop_assert_eq!(Ok(strict), convert(Mode::Lenient, packet.as_bytes()));
        }
    }

    #[test]
    fn the_written_form_is_canonical_and_serdes(packet in any_packet()) {
        let packet = packet.to_string();
        if let Ok(batch) = convert(Mode::Lenient, packet.as_bytes()) {
            let sealed = batch.seal();
            prop_assert_eq!(&sealed.json, &serde_json::to_string(&batch).unwrap());
            let value: Value = serde_json::from_str(&sealed.json).unwrap();
            prop_assert_eq!(&sealed.json, &canonical_text(&value));
            prop_assert_eq!(sealed.digest.to_string(), sha256(&sealed.json));
            prop_assert_eq!(sealed, convert(Mode::Lenient, packet.as_bytes()).unwrap().seal());
            let data = &value["events"][0]["data"];
            prop_assert_eq!(batch.event().data.digest().to_string(), sha256(&canonical_text(data)));
        }
    }

    #[test]
    fn what_is_counted_adds_up(packet in any_packet()) {
        let text = packet.to_string();
        if let Ok(batch) = convert(Mode::Lenient, text.as_bytes()) {
            let known = ["protocol", "version", "event_type", "timestamp", "agent", "task", "artifact", "message", "attributes"];
            let unknown = packet.as_object().unwrap().keys().filter(|name| !known.contains(&name.as_str())).count();
            let count = batch.lossiness.unmapped_fields_count as usize;
            prop_assert_eq!(count, unknown + batch.lossiness.notes.len());
            prop_assert_eq!(batch.event().data.unmapped_fields_count as usize, count);
            prop_assert_eq!(batch.lossiness.lossiness_level.as_str(), match count { 0 => "none", 1..=2 => "low", _ => "high" });
            prop_assert_eq!(&batch.event().run_id, &format!("a2a:{}", batch.event().subject));
            prop_assert_eq!(&batch.event().id, &format!("a2a:{}:0", batch.event().subject));
        }
    }

    #[test]
    fn attributes_are_kept(attributes in value()) {
        let packet = json!({"protocol": "a2a", "version": "0.2", "attributes": attributes}).to_string();
        let batch = convert(Mode::Lenient, packet.as_bytes()).unwrap();
        let kept: Value = serde_json::to_value(&batch.event().data.attributes).unwrap();
        fn sorted(value: &Value) -> Value {
            match value {
                Value::Array(items) if items.iter().all(Value::is_string) => {
                    let mut items: Vec<_> = items.iter().map(|item| item.as_str().unwrap()).collect();
                    items.sort_unstable();
                    items.into()
                }
                Value::Array(items) => items.iter().map(sorted).collect(),
                Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect(),
                plain => plain.clone(),
            }
        }
        prop_assert_eq!(kept, sorted(&attributes));
    }

    #[test]
    fn any_bytes_give_a_batch_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for mode in Mode::ALL {
            let answer = answer(mode, &bytes);
            prop_assert!(answer.get("batch").is_some() != answer.get("error").is_some());
        }
    }

    #[test]
    fn a_damaged_packet_gives_a_batch_or_an_error(packet in any_packet(), at: prop::sample::Index, byte: u8) {
        let mut bytes = packet.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for mode in Mode::ALL {
            let answer = answer(mode, &bytes);
            prop_assert!(answer.get("batch").is_some() != answer.get("error").is_some());
        }
    }

    /// Plain names, texts and small integers are written the same way in both of our canonical forms, so that a batch in
    /// the evidence log can be held to its digest.
    #[test]
    fn plain_batches_are_rfc_8785_too(texts in prop::collection::btree_map("[ -~\u{e9}\u{4e00}]{0,8}", "\\PC{0,8}", 0..6), number in -9_007_199_254_740_991_i64..9_007_199_254_740_992) {
        let packet = json!({"protocol": "a2a", "version": "0.2", "attributes": {"texts": texts, "n": number}}).to_string();
        let sealed = convert(Mode::Lenient, packet.as_bytes()).unwrap().seal();
        let value: Value = serde_json::from_str(&sealed.json).unwrap();
        prop_assert_eq!(canonical::digest(&value).unwrap(), sealed.digest.to_string());
    }
}
