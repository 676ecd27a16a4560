//! Any text has hosts or none; each stands in the text, and what it reaches can be told.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use portcullis_core::net::hosts;

fuzz_target!(|input: (bool, &str)| {
    let (is_host, text) = input;
    let ended = hosts(text, is_host, &mut |found| {
        assert!(text.get(found.span.clone()).is_some());
        assert!(!found.host.to_string().is_empty());
        found.host.reach();
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.is_continue());
});
