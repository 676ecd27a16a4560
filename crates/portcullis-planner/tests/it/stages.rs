//! Every stage is an event, and no tool runs without one.

use std::sync::{Arc, Mutex};

use portcullis_core::EventType;
use portcullis_planner::Outcome;

use crate::endpoint::Reply;
use crate::fixtures::{gateway, note, planner, run, start};

/// If a stage stops emitting its event, this fails.
#[tokio::test]
async fn each_stage_emits_its_event_with_what_it_is_about() {
    for streaming in [true, false] {
        let endpoint = start([
            Reply::call([note("a"), note("b")]),
            Reply::say(["All ", "noted."]),
        ])
        .await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let gateway = gateway(move |event| {
            let about = event.tool_args.as_ref().map(|args| args["text"].clone());
            let about = about.unwrap_or_else(|| event.text().into());
            log.lock().unwrap().push((
                event.event_type.as_str().to_owned(),
                about.as_str().unwrap_or_default().to_owned(),
            ));
            None
        });
        let builder = planner(&endpoint, gateway).0.streaming(streaming);
        let (finished, _) = run(&builder.build().unwrap(), "Note a and b.").await;
        assert!(matches!(finished.outcome, Outcome::Done { .. }));
        let mut wanted = vec![
            ("llm_before", "Note a and b."),
            ("tool_call_start", "a"),
            ("tool_call_start", "b"),
            ("tool_call_result", "noted: a"),
            ("tool_call_result", "noted: b"),
            ("llm_before", ""),
        ];
        if streaming {
            wanted.extend([("llm_stream_chunk", "All "), ("llm_stream_chunk", "noted.")]);
        } else {
            wanted.push(("llm_stream_chunk", "All noted."));
        }
        let seen = seen.lock().unwrap();
        let seen: Vec<_> = seen.iter().map(|(s, a)| (s.as_str(), a.as_str())).collect();
        assert_eq!(seen, wanted);
        for stage in EventType::STANDARD {
            assert!(seen.iter().any(|(seen, _)| *seen == stage.as_str()));
        }
    }
}
