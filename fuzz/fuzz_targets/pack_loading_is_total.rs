//! Any text is a pack or a report that can be printed, and so is any file of cases.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::pack::{self, Pack, cases};

fuzz_target!(|text: &str| {
    let loaded = pack::load(&Pack {
        file: "fuzz.yaml",
        text,
        ..Pack::default()
    });
    match loaded {
        Ok(loaded) => assert_eq!(loaded.policy.identity().digest.len(), 64),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
    if let Err(report) = cases::parse("fuzz.cases.yaml", text) {
        assert!(!report.to_string().is_empty());
    }
});
