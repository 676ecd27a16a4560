//! Streamed answers: nothing of a secret reaches the caller, however the bytes are cut.

use portcullis_planner::{Delta, Outcome, StreamReader, ToolCallDelta};
use proptest::prelude::*;
use serde_json::json;

use crate::endpoint::{Endpoint, Reply};
use crate::fixtures::{SECRET, planner, redacted, redacting, run, shown, start};

#[tokio::test]
async fn a_secret_in_two_chunks_never_reaches_the_caller_wherever_it_is_cut() {
    let text = format!("Use {SECRET} for this.");
    let wanted = redacted(&redacting(), &text);
    assert!(!wanted.contains("sk-ant"), "{wanted}");
    for cut in 1..text.len() {
        let (left, right) = text.split_at(cut);
        let endpoint = start([Reply::say([left, right])]).await;
        let planner = planner(&endpoint, redacting()).0.build().unwrap();
        let (finished, events) = run(&planner, "Which key?").await;
        assert_eq!(shown(&events), wanted, "cut at {cut}");
        let all = format!("{finished:?}{events:?}");
        assert!(!all.contains("sk-ant"), "cut at {cut}: {all}");
    }
}

#[tokio::test]
async fn bytes_cut_anywhere_give_the_same_run() {
    let replies = || {
        [
            Reply::call([("note", json!({"text": "Grüße, \"du\" 🐧"}))]),
            Reply::say(["Schöne ", "Grüße: sk-ant-api03-", "abcdefghijklmnop 🐧"]),
        ]
    };
    let mut wanted = None;
    for cut in [None, Some(1), Some(2), Some(3), Some(7), Some(64)] {
        let endpoint = Endpoint::start_cut(replies(), cut).await.unwrap();
        let planner = planner(&endpoint, redacting()).0.build().unwrap();
        let (finished, events) = run(&planner, "Grüße?").await;
        assert!(matches!(finished.outcome, Outcome::Done { .. }), "{cut:?}");
        let found = (finished, events);
        assert_eq!(
            *wanted.get_or_insert_with(|| found.clone()),
            found,
            "{cut:?}"
        );
    }
}

/// What a stream of these frames says.
fn read(pieces: &[&[u8]]) -> (Vec<Delta>, bool) {
    let mut reader = StreamReader::new(4096);
    let mut deltas = Vec::new();
    let mut each = |delta| deltas.push(delta);
    let read = pieces
        .iter()
        .try_for_each(|piece| reader.push(piece, &mut each))
        .and_then(|()| reader.finish(&mut each));
    (deltas, read.is_ok())
}

fn frame() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zé🐧\\n\"]{0,8}".prop_map(|text| json!({"content": text})),
        ("[a-z]{0,3}", "[{}a-z\": ]{0,6}", 0_usize..3).prop_map(|(name, arguments, index)| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"tool_calls": [{"index": index, "id": "x", "function": function}]})
        }),
    ]
    .prop_map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}).to_string())
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => frame().prop_map(|frame| format!("data: {frame}\n\n")),
        1 => Just(": ping\r\n\r\n".to_owned()),
        1 => Just("data: [DONE]\n\n".to_owned()),
        1 => Just("data: {broken\n\n".to_owned()),
        1 => "[ -~é]{0,10}\r?",
    ]
}

proptest! {
    #[test]
    fn however_the_bytes_are_cut_the_same_events_come_out(
        lines in prop::collection::vec(line(), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = lines.concat();
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&pieces), read(&[bytes]));
    }
}

#[test]
fn calls_are_put_together_from_providers_of_all_kinds() {
    let delta = |index: Option<usize>, id: &str, name: &str, arguments: &str| {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Delta::ToolCall(ToolCallDelta {
            index,
            id: given(id),
            name: given(name),
            arguments: arguments.to_owned(),
        })
    };
    let cases = [
        // Side by side, by index.
        vec![
            delta(Some(0), "a", "x", "{"),
            delta(Some(1), "b", "y", "{"),
            delta(Some(0), "", "", "}"),
            delta(Some(1), "", "", "}"),
        ],
        // Without an index: by id, or in one piece.
        vec![
            delta(None, "a", "x", "{"),
            delta(None, "", "", "}"),
            delta(None, "b", "y", "{}"),
        ],
        // Name and id in every piece.
        vec![
            delta(Some(0), "a", "x", "{"),
            delta(Some(0), "a", "x", "}"),
            delta(Some(1), "b", "y", "{}"),
        ],
    ];
    for deltas in cases {
        let mut builder = portcullis_planner::TurnBuilder::new(1000);
        for delta in &deltas {
            builder.push(delta).unwrap();
        }
        let finish = portcullis_planner::FinishReason::ToolCalls;
        builder.push(&Delta::Finish(finish)).unwrap();
        let calls = builder.finish().unwrap().calls;
        let calls: Vec<_> = calls
            .iter()
            .map(|call| (&*call.id, &*call.name, &*call.arguments))
            .collect();
        assert_eq!(calls, [("a", "x", "{}"), ("b", "y", "{}")]);
    }
}
