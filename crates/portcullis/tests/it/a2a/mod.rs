//! `portcullis a2a`

mod convert;
mod import;
mod record;
mod stream;

use serde_json::{Value, json};

/// A packet about a task.
pub(crate) fn packet(task: &str) -> Value {
    json!({
        "protocol": "a2a", "version": "0.2.0", "event_type": "task.requested",
        "timestamp": "2026-02-27T11:05:00Z", "agent": {"id": "agent://planner"},
        "task": {"id": task, "status": "queued"},
    })
}

/// Packets about tasks that are numbered from 0, one a line.
pub(crate) fn packets(count: usize) -> String {
    let lines = (0..count).map(|n| format!("{}\n", packet(&format!("task-{n}"))));
    lines.collect()
}

/// What the answer is about.
pub(crate) fn subject(answer: &Value) -> &str {
    let subject = answer["batch"]["events"][0]["subject"].as_str();
    subject.unwrap_or_else(|| panic!("{answer}"))
}
