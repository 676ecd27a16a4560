//! Any bytes are packets or an error, and every packet is one that strict conversion takes and that shows no card.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::a2a::{Adapter, Discovery, ImportOptions, Input, Limits, Mode, import};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    let options = ImportOptions {
        agent: Some("agent://fuzzed"),
        limits,
    };
    for packet in import(bytes, &options).unwrap_or_default() {
        let packet = serde_json::to_vec(&packet).unwrap();
        let adapter = Adapter::with_limits(Mode::Strict, limits);
        let batch = adapter.convert(Input::json(&packet)).unwrap();
        assert_eq!(batch.event().data.discovery, Discovery::default());
        assert!(batch.lossiness.notes.is_empty());
    }
});
