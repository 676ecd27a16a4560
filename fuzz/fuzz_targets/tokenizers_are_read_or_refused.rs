//! Any bytes are a tokenizer or a reason why not, and a tokenizer takes any text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_core::memory::Embedder;
use portcullis_models::{BuiltIn, WordPiece};

fuzz_target!(|input: (&[u8], &str)| {
    let (bytes, text) = input;
    if let Ok(tokenizer) = WordPiece::from_json(bytes) {
        assert!(tokenizer.ids(text, 64).len() <= 64);
    }
    let Ok(vectors) = BuiltIn::new().embed(&[text]) else {
        panic!("the built-in model has no vector for {text:?}");
    };
    assert!(vectors[0].iter().all(|number| number.is_finite()));
});
