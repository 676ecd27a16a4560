//! RFC-001's own Python, and the `rfc` families: the same answer to the same text. The answers were
//! written down by `scripts/rfc_cases.py`.

use portcullis_core::{Action, Event, Policy, RedactionSpec, merge_redactions};
use serde::Deserialize;

use crate::judge::{judge_fresh, load, signals, with_head};

#[derive(Deserialize)]
struct Case {
    text: String,
    /// Entity, first code point, one past the last; in the RFC's order, overlaps and all.
    secrets: Vec<(String, usize, usize)>,
    /// Intent and excerpt.
    attack: Option<(String, String)>,
    system_info: bool,
    capability_change: bool,
}

#[test]
fn the_rfc_families_say_what_the_rfcs_python_says() {
    let policy = load(&with_head(
        "sync_rules:\n- {id: secret-redaction, config: {families: [rfc]}}\n- {id: injection-patterns, config: {families: [rfc]}}\n",
    ));
    let file = include_str!("cases/rfc.ndjson");
    let wrong: Vec<String> = file
        .lines()
        .filter_map(|line| {
            let case: Case = serde_json::from_str(line).unwrap();
            difference(&policy, &case).map(|what| format!("{:?}: {what}", case.text))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn difference(policy: &Policy, case: &Case) -> Option<String> {
    let prompt = Event::llm_before("r", case.text.clone());
    let decision = judge_fresh(policy, &prompt);
    let expected = match &case.attack {
        Some((intent, excerpt)) => format!("Jailbreak pattern [{intent}]: '{excerpt}'"),
        None => "No rules triggered".to_owned(),
    };
    if decision.reason != expected {
        return Some(format!("{expected:?} and not {:?}", decision.reason));
    }
    let found = signals(policy, &prompt);
    if (found.requests_system_info, found.requests_capability_change)
        != (case.system_info, case.capability_change)
    {
        return Some(format!("{found:?}"));
    }
    let answer = judge_fresh(
        policy,
        &Event::tool_call_result("r", "t", case.text.clone()),
    );
    let specs = case
        .secrets
        .iter()
        .map(|(entity, start, end)| RedactionSpec {
            path: RedactionSpec::TEXT.into(),
            replacement: format!("[{entity}]").into(),
            entity_type: Some(entity.clone().into()),
            start_offset: Some(*start),
            end_offset: Some(*end),
            restorable: false,
        });
    let merged = merge_redactions(specs);
    if answer.redactions != merged {
        return Some(format!("{merged:?} and not {:?}", answer.redactions));
    }
    // The RFC's Python counts a value once for each pattern that finds it.
    let count = merged.len();
    let counted =
        answer.action == Action::Allow || answer.reason == format!("Found {count} secret(s)");
    (!counted).then(|| answer.reason.into_owned())
}
