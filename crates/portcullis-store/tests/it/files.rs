//! Logs to test with.

use std::fs;
use std::path::Path;

use portcullis_core::evidence::{Body, Link, Redactor};
use portcullis_store::evidence::{
    Durability, EvidenceLog, Options, VerifyOptions, VerifyReport, verify,
};
use serde_json::json;

pub(crate) fn body(n: u64) -> Body {
    let entry = json!({
        "timestamp": "2026-02-04T21:00:00Z",
        "event": "guardrail_check",
        "requesting_agent": "emerson",
        "action": "Deploy é\n",
        "allowed": false,
        "violations": ["no-production-without-review"],
        "evaluated": n,
    });
    Body::new(entry.as_object().unwrap(), &Redactor::none()).unwrap()
}

pub(crate) fn small(directory: &Path) -> Options {
    Options {
        // Most tests are about what is in the files, and need not wait for the disk.
        durability: Durability::Os,
        segment_bytes: 1000,
        checkpoint_every: 3,
        ..Options::new(directory)
    }
}

/// A closed log.
pub(crate) fn write(options: Options, entries: u64) -> Vec<Link> {
    let (log, _) = EvidenceLog::open(options).unwrap();
    (0..entries)
        .map(|n| log.append_blocking(body(n)).unwrap())
        .collect()
}

pub(crate) fn check(directory: &Path) -> VerifyReport {
    verify(directory, &VerifyOptions::default(), |_| {}).unwrap()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
