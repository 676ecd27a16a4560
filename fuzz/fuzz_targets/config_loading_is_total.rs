//! Any text is a configuration or a report that can be printed, and settings never show a token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_server::config;

const SECRET: &str = "pc_5f0c0ffee5f0c0ffee";

fuzz_target!(|text: &str| {
    let variable = |name: &str| name.starts_with('T').then(|| SECRET.to_owned());
    match config::load("fuzz.yaml", text, &variable) {
        Ok(settings) => assert!(!format!("{:?}", settings.auth).contains(SECRET)),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
});
