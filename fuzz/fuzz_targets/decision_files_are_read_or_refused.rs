//! Any text is a file of decisions or of reasons why not, and what was read once reads the same again.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use portcullis_core::memory::{Format, import};

fuzz_target!(|text: &str| {
    let now = Timestamp::UNIX_EPOCH;
    for format in [Format::Json, Format::JsonLines, Format::Yaml] {
        for imported in import(text, format, now).flatten() {
            let Ok(line) = serde_json::to_string(&imported.decision) else {
                panic!("a decision that cannot be written: {imported:?}");
            };
            let again: Vec<_> = import(&line, Format::Json, now).collect();
            let [Ok(again)] = &*again else {
                panic!("what was written cannot be read: {line}: {again:?}");
            };
            assert_eq!(again.decision, imported.decision);
        }
    }
});
