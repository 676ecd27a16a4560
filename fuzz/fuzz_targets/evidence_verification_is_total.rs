//! Any lines can be checked, and what passes as an entry is in canonical form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::canonical;
use portcullis_core::evidence::{Chain, Link, SigningKey, Verifier};
use serde_json::{Map, Value};

fuzz_target!(|bytes: &[u8]| {
    let key = SigningKey::from_seed([7; 32]).public();
    let mut verifier = Verifier::new(Chain::START.head());
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = key.read(line);
        let _ = verifier.torn(line);
        let _ = verifier.entry(line);
        if let Ok(link) = Link::read(line) {
            let mut entry: Map<String, Value> = serde_json::from_slice(line).unwrap();
            entry.remove("digest");
            assert_eq!(canonical::digest(&entry).unwrap(), link.digest.to_string());
        }
    }
});
