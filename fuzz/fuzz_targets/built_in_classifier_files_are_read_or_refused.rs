//! A file of our own classifier, damaged anywhere, judges any text or is refused.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis_core::classifier::{Channel, Sample, TextClassifier};
use portcullis_models::PortcullisClassifier;

#[path = "../../crates/portcullis-models/tests/it/tiny.rs"]
mod tiny;

static FILE: LazyLock<(Vec<u8>, [usize; 2])> = LazyLock::new(tiny::file);

fuzz_target!(|input: (u8, Vec<(u32, u8)>, Option<u32>, &str)| {
    let (part, changes, cut, text) = input;
    let (mut file, [header, tables]) = FILE.clone();
    let reach = [header, tables, file.len()][usize::from(part) % 3];
    for (place, byte) in changes {
        file[place as usize % reach] = byte;
    }
    if let Some(cut) = cut {
        file.truncate(cut as usize % file.len());
    }
    if let Ok(model) = PortcullisClassifier::from_bytes(Path::new("a"), &file) {
        let sample = Sample { text, channel: Channel::Tool };
        if let Ok(scores) = model.classify(&[sample]) {
            assert!(scores.len() == 1 && scores[0].is_sound(2));
        }
    }
});
