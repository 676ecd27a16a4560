//! For any pattern and any text: what the regular expression finds first, is found first where the scan
//! has announced it.
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
    let candidates = scanner.scan(text, &EventType::LlmBefore);
    let mut first = None;
    scanner.find_all(id, text, &candidates, 0..text.len(), |span| {
        assert!(text.is_char_boundary(span.end));
        first.get_or_insert(span);
    });
    assert_eq!(first, scanner.find(id, text));
});
