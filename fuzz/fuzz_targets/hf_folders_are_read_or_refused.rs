//! Any three files are a classifier or a reason why not, and a classifier judges any text or says why not.
//!
//! The first byte says which of the three is made of the input; the others are those of a small model, so that the input gets
//! past them. The library of tokenizers panics over some files, which `SequenceClassifier` turns into an error: only
//! panics of our own count.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use portcullis_models::hf::{Options, SequenceClassifier};

const OPTIONS: Options = Options {
    window: 32,
    overlap: 4,
    max_windows: 3,
    batch: 64,
    max_memory: 1 << 20,
};

macro_rules! folder {
    ($name:literal) => {
        [
            include_bytes!(concat!("../../crates/portcullis-models/tests/fixtures/hf/", $name, "/config.json")).as_slice(),
            include_bytes!(concat!("../../crates/portcullis-models/tests/fixtures/hf/", $name, "/tokenizer.json")),
            include_bytes!(concat!("../../crates/portcullis-models/tests/fixtures/hf/", $name, "/model.safetensors")),
        ]
    };
}

const FOLDERS: [[&[u8]; 3]; 4] = [
    folder!("bert"),
    folder!("deberta-v2-conv"),
    folder!("deberta-own-projections"),
    folder!("modernbert"),
];

static HOOK: Once = Once::new();

fuzz_target!(|input: (u8, Vec<(u16, u8)>, &[u8], &str)| {
    HOOK.call_once(pass_over_the_tokenizers);
    let (choice, changes, own, text) = input;
    let [config, tokenizer, weights] = FOLDERS[usize::from(choice >> 4) % FOLDERS.len()];
    let mut files = [config.to_vec(), tokenizer.to_vec(), weights.to_vec()];
    match choice % 8 {
        part @ 0..3 => files[usize::from(part)] = own.to_vec(),
        part @ 3..6 => {
            let file = &mut files[usize::from(part) - 3];
            for (place, byte) in changes {
                let place = usize::from(place) % file.len();
                file[place] = byte;
            }
        }
        6 => files[2].truncate(changes.first().map_or(0, |(place, _)| usize::from(*place))),
        _ => {}
    }
    let [config, tokenizer, weights] = &files;
    if let Ok(model) = SequenceClassifier::from_bytes(config, tokenizer, weights, OPTIONS) {
        if let Ok(logits) = model.logits(&[text, ""]) {
            assert_eq!(logits.len(), 2);
            assert!(logits.iter().all(|windows| (1..=3).contains(&windows.len())));
        }
    }
});

/// libFuzzer's own hook ends the process at any panic, also at one that is caught.
fn pass_over_the_tokenizers() {
    let fuzzer = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // What the library is made of does not panic of itself: it does when the library calls it so.
        let libraries = ["/tokenizers-", "/spm_precompiled-", "/daachorse-", "/fancy-regex-"];
        let place = info.location().map_or("", |location| location.file());
        if !libraries.iter().any(|library| place.contains(library)) {
            fuzzer(info);
        }
    }));
}
