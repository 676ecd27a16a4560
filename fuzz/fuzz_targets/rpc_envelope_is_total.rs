//! Any bytes are calls or errors, each with an answer that is JSON and carries the id as it came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_server::jsonrpc::{Body, Id, Response, parse};
use serde_json::Value;

const MAX_BATCH: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let items = match parse(bytes, MAX_BATCH) {
        Body::Single(item) => vec![item],
        Body::Batch(items) => items,
    };
    assert!((1..=MAX_BATCH).contains(&items.len()));
    for item in items {
        let (id, text) = match item {
            Ok(call) => {
                let params = call.params();
                let id = call.id.unwrap_or(Id::NULL);
                let answer = Response::new(id, params.map(Value::Object));
                (id, serde_json::to_string(&answer).unwrap())
            }
            Err((id, error)) => {
                let answer = Response::<()>::new(id, Err(error));
                (id, serde_json::to_string(&answer).unwrap())
            }
        };
        let id = serde_json::to_string(&id).unwrap();
        assert!(text.starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},")), "{text}");
        // An id may be a number that no program can hold; the rest is ours.
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{text}");
    }
});
