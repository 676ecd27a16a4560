//! Disguises: what `evasions` sees through, where it says it found it, and what it leaves alone.

use std::sync::LazyLock;

use portcullis_core::detectors::{self, Finder, Kind};
use portcullis_core::{Action, Decision, Event, Policy, RedactionSpec, redact_text};
use proptest::prelude::*;
use proptest::sample::select;
use serde::Deserialize;

use crate::judge::{judge_fresh, load, with_head};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    attacks: Vec<Case>,
    secrets: Vec<Case>,
    other_values: Vec<Case>,
    passes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    it: String,
    text: String,
}

fn cases() -> Cases {
    serde_saphyr::from_str(include_str!("cases/evasions.yaml")).unwrap()
}

/// RFC-001's patterns, and one of them as an instruction in a tool's answer.
fn policy(evasions: bool) -> Policy {
    load(&with_head(&format!(
        "sync_rules:
  - id: injection-patterns
    config:
      evasions: {evasions}
      patterns: [['ignore\\s+(all\\s+)?previous\\s+instructions', indirect_injection]]
  - id: secret-redaction
    config: {{evasions: {evasions}}}
"
    )))
}

/// The text of a case, and what it must become.
fn marked(text: &str, replacement: &str) -> (String, String) {
    let (before, rest) = text.split_once('⟦').unwrap();
    let (part, after) = rest.split_once('⟧').unwrap();
    (
        format!("{before}{part}{after}"),
        format!("{before}{replacement}{after}"),
    )
}

fn redacted(text: &str, decision: &Decision) -> String {
    redact_text(text, RedactionSpec::TEXT, &decision.redactions).into_owned()
}

#[test]
fn an_attack_is_found_in_every_disguise_and_where_it_stands() {
    let (seeing, plain) = (policy(true), policy(false));
    for Case { it, text } in cases().attacks {
        let (text, expected) = marked(&text, "[REMOVED: instructions in retrieved content]");
        let prompt = Event::llm_before("r", &*text);
        assert_eq!(judge_fresh(&seeing, &prompt).action, Action::Stop, "{it}");
        assert_eq!(judge_fresh(&plain, &prompt).action, Action::Allow, "{it}");
        let result = Event::tool_call_result("r", "t", &*text);
        let decision = judge_fresh(&seeing, &result);
        assert_eq!(redacted(&text, &decision), expected, "{it}");
        assert_eq!(judge_fresh(&plain, &result).action, Action::Allow, "{it}");
    }
}

#[test]
fn a_secret_is_redacted_in_every_disguise_where_it_stands() {
    let (seeing, plain) = (policy(true), policy(false));
    for Case { it, text } in cases().secrets {
        let (text, expected) = marked(&text, "[AWS_KEY]");
        let result = Event::tool_call_result("r", "t", &*text);
        let decision = judge_fresh(&seeing, &result);
        assert_eq!(redacted(&text, &decision), expected, "{it}");
        assert_eq!(judge_fresh(&plain, &result).action, Action::Allow, "{it}");
    }
}

#[test]
fn a_value_of_other_characters_is_another_value() {
    let seeing = policy(true);
    for Case { it, text } in cases().other_values {
        let decision = judge_fresh(&seeing, &Event::tool_call_result("r", "t", text));
        assert_eq!(decision.action, Action::Allow, "{it}");
    }
}

/// With every family for the event, in every reading.
#[test]
fn ordinary_texts_pass() {
    let families = |kind| detectors::names(kind).collect::<Vec<_>>().join(", ");
    let policy = load(&with_head(&format!(
        "sync_rules:
  - id: injection-patterns
    config: {{families: [{}], evasions: true}}
  - id: secret-redaction
    config: {{families: [{}], evasions: true}}
",
        families(Kind::Injection),
        families(Kind::Secrets),
    )));
    for text in cases().passes {
        for event in [
            Event::llm_before("r", &*text),
            Event::tool_call_result("r", "t", &*text),
        ] {
            let decision = judge_fresh(&policy, &event);
            assert_eq!(decision.action, Action::Allow, "{text}: {decision:?}");
        }
    }
}

fn finder(kind: Kind) -> Finder {
    Finder::new(&[kind], &["rfc"]).unwrap()
}

/// Files are read as events are.
#[test]
fn in_a_file_it_is_found_in_every_disguise_and_where_it_stands() {
    let Cases {
        attacks, secrets, ..
    } = cases();
    for (kind, cases) in [(Kind::Injection, attacks), (Kind::Secrets, secrets)] {
        let (plain, seeing) = (finder(kind), finder(kind).seeing_through());
        for Case { it, text } in cases {
            let (text, expected) = marked(&text, "…");
            let findings = seeing.find(&text);
            assert_eq!(findings.len(), 1, "{it}: {findings:?}");
            let range = findings[0].range.clone();
            let found = format!("{}…{}", &text[..range.start], &text[range.end..]);
            assert_eq!(found, expected, "{it}");
            assert!(findings[0].disguise.is_some(), "{it}");
            assert_eq!(plain.find(&text), [], "{it}");
        }
    }
    let seeing = finder(Kind::Secrets).seeing_through();
    for Case { it, text } in cases().other_values {
        assert_eq!(seeing.find(&text), [], "{it}");
    }
}

static GATE: LazyLock<Policy> = LazyLock::new(|| policy(true));
static FINDER: LazyLock<Finder> = LazyLock::new(|| finder(Kind::Secrets).seeing_through());

fn pieces_of_disguises() -> impl Strategy<Value = String> {
    let unmarked = |case: Case| marked(&case.text, "").0;
    let cases = cases().secrets.into_iter().map(unmarked);
    let others = [
        "AKIA",
        "IOSFODNN7",
        "EXAMPLE",
        "\x1b[0m",
        "\u{9b}m",
        "\u{200b}",
        "\u{8}",
        "%41",
        "é",
        " ",
        "\n",
        ", ",
    ];
    let pieces: Vec<String> = cases.chain(others.map(str::to_owned)).collect();
    prop::collection::vec(select(pieces), 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// What the gate takes out of a tool's result is what is found in a file.
    #[test]
    fn the_gate_and_the_finder_see_the_same(text in pieces_of_disguises()) {
        let decision = judge_fresh(&GATE, &Event::tool_call_result("r", "t", &*text));
        let redacted = |at: usize| {
            let mut spans = decision.redactions.iter();
            spans.any(|one| one.start_offset <= Some(at) && Some(at) < one.end_offset)
        };
        let ranges = FINDER.covered(&text);
        for (index, (at, _)) in text.char_indices().enumerate() {
            let found = ranges.iter().any(|range| range.contains(&at));
            prop_assert_eq!(found, redacted(index), "{} of {:?}", at, text);
        }
    }
}
