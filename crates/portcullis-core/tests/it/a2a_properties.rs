//! What holds for every A2A packet.

use std::fmt::Write as _;

use portcullis_core::a2a::Mode;
use portcullis_core::canonical;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::a2a::{answer, convert, sha256};

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
            if next(seed).is_multiple_of(3) {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    let escaped = if next(seed).is_multiple_of(2) {
                        write!(out, "\\u{unit:04x}")
                    } else {
                        write!(out, "\\u{unit:04X}")
                    };
                    escaped.unwrap();
                }
            } else if character == '/' && next(seed).is_multiple_of(2) {
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

/// Lists of nothing but strings, sorted at every depth.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let mut items: Vec<_> = items.iter().map(|item| item.as_str().unwrap()).collect();
            items.sort_unstable();
            items.into()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), sorted(value)))
            .collect(),
        plain => plain.clone(),
    }
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
