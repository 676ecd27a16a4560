//! For any pattern and any text: what the regular expression finds, the filter has announced.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::EventType;
use portcullis_core::scan::{EventSet, PatternSpec, ScannerBuilder};

fuzz_target!(|input: (&str, bool, &str)| {
    let (regex, ignore_case, text) = input;
    let mut builder = ScannerBuilder::default();
    let spec = PatternSpec {
        regex,
        ignore_case,
        ..PatternSpec::default()
    };
    let Ok(id) = builder.add(&spec, &EventSet::standard()) else {
        return;
    };
    let scanner = builder.build();
    if scanner.find(id, text).is_some() {
        assert!(scanner.scan(text, &EventType::LlmBefore).contains(id));
    }
    scanner.find_all(id, text, 0..text.len(), |span| assert!(text.is_char_boundary(span.end)));
});
