//! Whatever a service answers is a decision or an error, and what is to be redacted is there.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis_core::pack::{self, Pack};
use portcullis_core::rules::RuleInput;
use portcullis_core::{Context, ContextSnapshot, Event, Policy, Signals, redact_event};

const PACK: &str = r#"
policy_pack: fuzz
version: "1"
async_rules:
  - {id: score, rule: http-classifier, config: {url: "http://h", response: {score: /s, label: /l}}}
  - {id: flag, rule: http-classifier, config: {url: "http://h", response: {flagged: /0}}}
  - {id: bytes, rule: http-classifier, config: {url: "http://h", action: redact, response: {spans: {offsets: bytes}}}}
  - {id: utf16, rule: http-classifier, config: {url: "http://h", action: redact, response: {spans: {offsets: utf16}}}}
  - {id: presidio, config: {url: "http://h"}}
"#;

static POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let pack = Pack {
        file: "fuzz.yaml",
        text: PACK,
        ..Pack::default()
    };
    pack::load(&pack).ok().map(|loaded| loaded.policy)
});

fuzz_target!(|input: (&str, &[u8])| {
    let (text, answer) = input;
    let Some(policy) = &*POLICY else {
        panic!("the pack does not load");
    };
    let event = Event::llm_before("run", text);
    let context = Context::new("run");
    let snapshot =
        ContextSnapshot::build(&event, &context, policy.tool_risks(), Signals::default());
    let input = RuleInput {
        event: &event,
        context: &context,
        snapshot: &snapshot,
    };
    for entry in policy.deep_rules() {
        let Some(rule) = entry.settings.external() else {
            continue;
        };
        if let Ok(Some(decision)) = rule.judge(&entry.id, &input, answer) {
            assert!(redact_event(&mut event.clone(), &decision.redactions).is_ok());
        }
    }
});
