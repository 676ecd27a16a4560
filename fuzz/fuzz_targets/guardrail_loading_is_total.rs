//! Any text is a guardrail file or a report that can be printed, any JSON is an action or names the
//! field that is wrong, and what loads judges what it is asked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::guardrails::{self, ProposedAction, Source};
use serde_json::{Value, json};

fuzz_target!(|input: (&str, &str)| {
    let (text, params) = input;
    let action = match serde_json::from_str(params) {
        Ok(Value::Object(params)) => {
            if let Err(error) = ProposedAction::from_intent(&params) {
                assert!(!error.field.is_empty());
            }
            ProposedAction::from_params(&params)
        }
        _ => {
            let context = json!({"a": {"b": 1}, "list": ["x"]});
            ProposedAction::new("Deploy")
                .and_then(|action| action.with_context(context.as_object().cloned().unwrap_or_default()))
        }
    };
    let source = Source {
        file: "fuzz.yaml",
        text,
    };
    match guardrails::load(&[source]) {
        Ok(loaded) => {
            assert_eq!(loaded.guardrails.digest().len(), 64);
            if let Ok(action) = action {
                let verdict = loaded.guardrails.check(&action);
                assert_eq!(verdict.allowed, verdict.violations.is_empty());
            }
        }
        Err(reports) => assert!(reports.iter().all(|report| !report.to_string().is_empty())),
    }
});
