//! Whole messages of users against every family for user text: single entries have examples of their
//! own, but only a message shows what the cues in it add up to.

use portcullis_core::{Action, Step};
use serde::Deserialize;
use serde_json::json;

use crate::judge::{judge, load, with_head};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Messages {
    attacks: Vec<String>,
    passes: Vec<String>,
}

#[test]
fn attacks_are_found_and_ordinary_messages_pass() {
    let messages: Messages = serde_saphyr::from_str(include_str!("cases/user_text.yaml")).unwrap();
    let policy = load(&with_head(
        "sync_rules:\n  - id: injection-patterns\n    config:\n      families: [direct, jailbreak, extraction, escalation, multilingual]\n",
    ));
    let passes = |text: &String| {
        let event = json!({"event_type": "llm_before", "run_id": "run-1", "text_content": text});
        let step = json!({"context": {}, "event": event});
        let Step { context, event } = serde_json::from_value(step).unwrap();
        judge(&policy, &context, &event).unwrap().action == Action::Allow
    };
    let missed: Vec<&String> = messages
        .attacks
        .iter()
        .filter(|text| passes(text))
        .collect();
    let stopped: Vec<&String> = messages
        .passes
        .iter()
        .filter(|text| !passes(text))
        .collect();
    assert!(missed.is_empty(), "missed: {missed:#?}");
    assert!(stopped.is_empty(), "stopped: {stopped:#?}");
}
