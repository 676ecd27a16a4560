//! Any bytes are a classifier or a reason why not, whether it is ours or one that somebody trained, and a classifier
//! takes any text.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use portcullis_core::classifier::{Channel, Sample, TextClassifier};
use portcullis_models::{BuiltIn, LinearClassifier, PortcullisClassifier};

fuzz_target!(|input: (&[u8], &str)| {
    let (bytes, text) = input;
    let path = Path::new("fuzzed");
    if let Ok(model) = PortcullisClassifier::from_bytes(path, bytes) {
        judge(&model, text);
    }
    if let Ok(model) = LinearClassifier::from_bytes(path, bytes, Arc::new(BuiltIn::new())) {
        judge(&model, text);
    }
});

fn judge(model: &dyn TextClassifier, text: &str) {
    let sample = Sample {
        text,
        channel: Channel::Tool,
    };
    if let Ok(scores) = model.classify(&[sample]) {
        assert_eq!(scores.len(), 1);
        assert!(scores[0].is_sound(model.labels().len()));
    }
}
