//! A file of our own classifier, damaged anywhere, judges any text or is refused.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis_core::classifier::{Channel, Sample, TextClassifier};
use portcullis_models::PortcullisClassifier;

#[path = "../../crates/portcullis-models/tests/it/tiny.rs"]
mod tiny;

static FILE: LazyLock<(Vec<u8>, usize)> = LazyLock::new(tiny::file);

fuzz_target!(|input: (bool, Vec<(u32, u8)>, Option<u32>, &str)| {
    let (in_header, changes, cut, text) = input;
    let (mut file, header) = FILE.clone();
    let reach = if in_header { header } else { file.len() };
    for (place, byte) in changes {
        file[place as usize % reach] = byte;
    }
    if let Some(cut) = cut {
        file.truncate(cut as usize % file.len());
    }
    if let Ok(model) = PortcullisClassifier::from_bytes(Path::new("a"), &file) {
        let sample = Sample { text, channel: Channel::Tool };
        assert_eq!(model.classify(&[sample]).map(|scores| scores.len()).unwrap_or(1), 1);
    }
});
