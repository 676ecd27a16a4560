//! Any JSON object is what a method about decisions takes, or a field is named that is wrong.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use portcullis_core::memory::{self, Decision, ListRequest, Query, ReviewRequest};
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    let Ok(params) = serde_json::from_str::<Map<String, Value>>(text) else {
        return;
    };
    let now = Timestamp::UNIX_EPOCH;
    let id = || "dec-1".to_owned();
    if let Ok(decision) = Decision::from_params(&params, id, now) {
        assert!(!decision.title().is_empty());
        assert!(decision.confidence.is_none_or(|sure| (0.0..=1.0).contains(&sure)));
    }
    if let Ok(query) = Query::from_params(&params) {
        assert!((1..=memory::MAX_LIMIT).contains(&query.limit));
    }
    let _ = ReviewRequest::from_params(&params, now);
    let _ = ListRequest::from_params(&params);
    let _ = memory::calibration_from_params(&params);
    let _ = memory::correlation_id_from_params(&params);
});
