//! Any text has views, and any span of a view leads back to a span of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::scan::Features;
use portcullis_core::views::{fold, max_view_bytes, unmask};

fuzz_target!(|text: &str| {
    let folded = fold(text);
    let views = unmask(text, Features::of(text)).views;
    let bytes: usize = views.iter().map(|view| view.text().len()).sum();
    assert!(bytes <= max_view_bytes(text.len()));
    for view in folded.iter().chain(&views) {
        assert!(text.get(view.original(0..view.text().len())).is_some());
        for (at, c) in view.text().char_indices() {
            assert!(text.get(view.original(at..at + c.len_utf8())).is_some());
            assert!(text.get(view.original(at..usize::MAX)).is_some());
        }
    }
});
