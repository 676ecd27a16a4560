//! Any bytes are a batch or an error, strict success is lenient success, and what is written is canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::a2a::{Adapter, Input, Mode};
use portcullis_core::evidence::Digest;

fuzz_target!(|bytes: &[u8]| {
    let [strict, lenient] = Mode::ALL.map(|mode| Adapter::new(mode).convert(Input::json(bytes)));
    if strict.is_ok() {
        assert_eq!(strict, lenient);
    }
    if let Ok(batch) = lenient {
        let sealed = batch.seal();
        assert_eq!(sealed.json, serde_json::to_string(&batch).unwrap());
        assert_eq!(sealed.digest, Digest::of(sealed.json.as_bytes()));
        assert!(!batch.event().data.discovery.signature_material_visible);
    }
});
