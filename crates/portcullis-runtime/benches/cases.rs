//! The inputs of the table in docs/BENCHMARKS.md: the criterion benchmark, the latency
//! example and `PenguiFlow` are all given these.

use std::future::Future;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use portcullis_core::{Context, Event, Step};
use serde_json::{Map, json};

/// The rules and the thirteen patterns of RFC-001: what `PenguiFlow` has too.
pub(crate) const RFC_PACK: &str = "
policy_pack: rfc
version: '1.0.0'
sync_rules:
  - {id: tool-allowlist, config: {denied_tools: [admin.execute, filesystem.delete]}}
  - {id: secret-redaction}
  - {id: injection-patterns}
";

/// Ordinary prose about ordinary work, with none of the words that attacks are made of.
const PROSE: &str = "The quarterly report compares revenue across regions and explains why the \
northern branch grew faster than expected. Customers asked for clearer invoices, so the billing team \
redesigned the layout and measured how long people needed to find the total. Please summarise the \
findings in three short paragraphs, mention the two open questions, and suggest what the team should \
measure next month. ";

/// Each input with its name.
pub(crate) fn cases() -> Vec<(&'static str, Step)> {
    let prompt = |bytes: usize| prompt(&prose(bytes));
    let args = json!({"query": "revenue by region", "limit": 20, "columns": ["region", "revenue"]});
    let args: Map<_, _> = args.as_object().cloned().unwrap_or_default();
    vec![
        ("llm_before, 100 B", prompt(100)),
        ("llm_before, 1 KB", prompt(1024)),
        ("llm_before, 10 KB", prompt(10 * 1024)),
        ("llm_before, 100 KB", prompt(100 * 1024)),
        (
            "tool_call_start, allowed",
            step(Event::tool_call_start("bench", "database.query", args)),
        ),
        (
            "tool_call_result, 10 KB, 3 secrets",
            result(&result_with_secrets()),
        ),
        (
            "llm_stream_chunk, 20 B",
            step(Event::llm_stream_chunk("bench", prose(20))),
        ),
    ]
}

fn step(event: Event) -> Step {
    Step {
        context: Context::new("bench"),
        event: Event {
            timestamp: Some(1_700_000_000.0),
            ..event
        },
    }
}

/// A prompt.
pub(crate) fn prompt(text: &str) -> Step {
    step(Event::llm_before("bench", text))
}

/// What a tool brings back.
pub(crate) fn result(text: &str) -> Step {
    step(Event::tool_call_result("bench", "database.query", text))
}

/// Runs what never waits: the first poll is the last, and no executor is measured.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("no rule of the default policy waits"),
    }
}

/// Exactly so many bytes of prose.
pub(crate) fn prose(bytes: usize) -> String {
    PROSE.chars().cycle().take(bytes).collect()
}

fn result_with_secrets() -> String {
    let secrets = [
        "sk-abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ];
    let mut text = String::new();
    for secret in secrets {
        text.push_str(&prose(3300));
        text.push_str(secret);
        text.push('\n');
    }
    text
}
