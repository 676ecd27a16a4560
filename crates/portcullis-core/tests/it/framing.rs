//! A framed answer comes out in its frames, the same however its bytes are cut.

use std::sync::Arc;

use portcullis_core::{
    Context, FramedGuard, Framing, FramingProblem, MAX_FRAME_BYTES, MAX_OPEN_TEXTS, Policy,
    StreamGuard, TextPath,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::judge::{load, with_head};

const REDACTING: &str = "sync_rules:
  - {id: secret-redaction, config: {families: [rfc]}}
";

const STOPPING: &str = "sync_rules:
  - id: injection-patterns
    events: [llm_stream_chunk]
    config: {families: [], patterns: [[stop here now, jb_override]]}
  - id: secret-redaction
    config: {families: [], patterns: {KEY: 'k[0-9]{4}'}}
";

/// Nothing in the recorded streams looks even like the beginning of this.
const IDLE: &str = "sync_rules:
  - {id: secret-redaction, config: {families: [], patterns: {X: '~~~[0-9]{4}'}}}
";

/// Values that a frame may not say, nor most of them.
const SECRETS: [&str; 4] = ["IOSFODNN", "NN7EX", "abcdefghij", "0123456789"];

/// The recorded streams.
const RECORDED: [(&str, &str); 7] = [
    ("anthropic", include_str!("fixtures/streams/anthropic.sse")),
    ("odd", include_str!("fixtures/streams/odd.sse")),
    ("ollama", include_str!("fixtures/streams/ollama.ndjson")),
    (
        "openai_chat",
        include_str!("fixtures/streams/openai-chat.sse"),
    ),
    (
        "openai_chat_interleaved",
        include_str!("fixtures/streams/openai-chat-interleaved.sse"),
    ),
    (
        "openai_responses",
        include_str!("fixtures/streams/openai-responses.sse"),
    ),
    ("plain", include_str!("fixtures/streams/plain.txt")),
];

fn framing(name: &str) -> Framing {
    match name {
        "anthropic" => Framing::Sse(TextPath::anthropic()),
        "odd" => Framing::Sse(TextPath::new().text("/text", &[])),
        "ollama" => Framing::JsonLines(TextPath::ollama()),
        "openai_responses" => Framing::Sse(TextPath::openai_responses()),
        "plain" => Framing::Text,
        _ => Framing::Sse(TextPath::openai_chat()),
    }
}

fn policy(rules: &str) -> Arc<Policy> {
    Arc::new(load(&with_head(rules)))
}

fn guard(framing: Framing, policy: &Arc<Policy>) -> FramedGuard {
    let policy = Arc::clone(policy);
    FramedGuard::new(framing, move || {
        StreamGuard::new(Arc::clone(&policy), Context::new("r"))
    })
}

/// What came out, and how it ended: well, halted, or with an error.
type Out = (String, String);

fn run<'c>(
    framing: Framing,
    policy: &Arc<Policy>,
    chunks: impl IntoIterator<Item = &'c [u8]>,
) -> Out {
    let mut guard = guard(framing, policy);
    let mut out = Vec::new();
    let text = |out| String::from_utf8(out).unwrap();
    for chunk in chunks.into_iter().map(Some).chain([None]) {
        let released = match chunk {
            Some(bytes) => guard.push(bytes),
            None => guard.finish(),
        };
        match released {
            Ok(released) => {
                out.extend_from_slice(released.bytes);
                if released.halted {
                    return (text(out), "halted".to_owned());
                }
            }
            Err(error) => return (text(out), error.to_string()),
        }
    }
    (text(out), "well".to_owned())
}

fn whole(name: &str, policy: &Arc<Policy>, text: &str) -> Out {
    run(framing(name), policy, [text.as_bytes()])
}

/// The JSON of the frames, without what is around it.
fn frames(text: &str) -> impl Iterator<Item = Value> {
    let data = text
        .lines()
        .map(|line| line.strip_prefix("data:").unwrap_or(line));
    data.filter_map(|line| serde_json::from_str(line).ok())
}

#[test]
fn recorded_streams_come_out_in_their_frames() {
    let policy = policy(REDACTING);
    for (name, text) in RECORDED {
        let (out, end) = whole(name, &policy, text);
        assert_eq!(end, "well", "{name}");
        for secret in SECRETS {
            assert!(!out.contains(secret), "{secret} in {name}:\n{out}");
        }
        insta::assert_snapshot!(format!("framing_{name}"), out);
    }
}

#[test]
fn what_nothing_is_said_of_passes_byte_for_byte() {
    let policy = policy(IDLE);
    for (name, text) in RECORDED {
        let (out, end) = whole(name, &policy, text);
        // But for log probabilities, which are withheld whatever they say.
        let differs = out
            .lines()
            .zip(text.lines())
            .find(|(out, text)| out != text && !text.contains("\"logprob\":"));
        assert_eq!((differs, &*end), (None, "well"), "{name}");
        assert_eq!(out.lines().count(), text.lines().count(), "{name}");
    }
}

#[test]
fn line_ends_are_kept() {
    let policy = policy(REDACTING);
    for (name, text) in RECORDED {
        if name == "plain" {
            continue;
        }
        let (expected, _) = whole(name, &policy, text);
        let mut line_ends = vec!["\r\n"];
        if name != "ollama" {
            line_ends.push("\r");
        }
        for line_end in line_ends {
            let text = text.replace('\n', line_end);
            let (out, end) = run(framing(name), &policy, text.as_bytes().chunks(1));
            assert_eq!(end, "well", "{name}");
            assert_eq!(out, expected.replace('\n', line_end), "{name}");
        }
    }
}

/// The pieces of the texts, put together again, are what the guard makes of the whole texts.
#[test]
fn texts_come_out_as_they_do_without_frames() {
    fn pieces(text: &str, says: &dyn Fn(&Value) -> Option<String>) -> String {
        frames(text).filter_map(|frame| says(&frame)).collect()
    }
    let policy = policy(REDACTING);
    let at = |pointer: &'static str, index: Option<(&'static str, u64)>| {
        move |frame: &Value| {
            let mine = index
                .is_none_or(|(at, index)| frame.pointer(at).and_then(Value::as_u64) == Some(index));
            let text = frame.pointer(pointer)?.as_str()?.to_owned();
            mine.then_some(text)
        }
    };
    let choice = |index| Some(("/choices/0/index", index));
    let call = |index| Some(("/choices/0/delta/tool_calls/0/index", index));
    let arguments = "/choices/0/delta/tool_calls/0/function/arguments";
    for (name, says) in [
        ("anthropic", at("/delta/text", None)),
        ("anthropic", at("/delta/thinking", None)),
        ("anthropic", at("/delta/partial_json", None)),
        ("ollama", at("/message/content", None)),
        ("openai_chat", at("/choices/0/delta/content", None)),
        (
            "openai_chat_interleaved",
            at("/choices/0/delta/content", choice(0)),
        ),
        (
            "openai_chat_interleaved",
            at("/choices/0/delta/content", choice(1)),
        ),
        ("openai_chat_interleaved", at(arguments, call(0))),
        ("openai_chat_interleaved", at(arguments, call(1))),
        ("openai_chat_interleaved", at(arguments, call(2))),
        ("openai_responses", at("/delta", Some(("/output_index", 0)))),
        ("openai_responses", at("/delta", Some(("/output_index", 1)))),
    ] {
        let (_, text) = RECORDED.iter().find(|(known, _)| *known == name).unwrap();
        let mut guard = StreamGuard::new(Arc::clone(&policy), Context::new("r"));
        let mut expected = guard.push(&pieces(text, &says)).text.to_owned();
        expected.push_str(guard.finish().text);
        assert!(!expected.is_empty());
        let (out, _) = whole(name, &policy, text);
        assert_eq!(pieces(&out, &says), expected, "{name}");
    }
}

fn chat(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

/// What is held back goes into the frame that ends the text, or into one before it.
#[test]
fn the_rest_of_a_text_comes_before_its_end() {
    let policy = policy(STOPPING);
    for (name, text, expected) in [
        (
            "a frame that ends the text and has a place for it",
            "{\"message\":{\"content\":\"a k1\"}}\n{\"message\":{\"content\":\"2 k3\"},\"done\":true}\n",
            "{\"message\":{\"content\":\"a \"}}\n{\"message\":{\"content\":\"k12 k3\"},\"done\":true}\n",
        ),
        (
            "a frame that ends the text and has no place for it",
            "{\"message\":{\"content\":\"a k1\"},\"n\":1}\n{\"done\":true}\n",
            "{\"message\":{\"content\":\"a \"},\"n\":1}\n{\"message\":{\"content\":\"k1\"},\"n\":1}\n{\"done\":true}\n",
        ),
        (
            "the end of the input",
            "{\"response\":\"a k1\"}\n{\"other\":1}\n",
            "{\"response\":\"a \"}\n{\"other\":1}\n{\"response\":\"k1\"}\n",
        ),
        (
            "a last line without an end",
            "{\"response\":\"a k1\"}\n{\"response\":\"2 k3\"}",
            "{\"response\":\"a \"}\n{\"response\":\"k12 k3\"}",
        ),
        (
            "two texts",
            "{\"response\":\"a k1\",\"thinking\":\"b k2\"}\n{\"response\":\"\",\"done\":true}\n",
            "{\"response\":\"a \",\"thinking\":\"b \"}\n{\"response\":\"\",\"thinking\":\"k2\"}\n{\"response\":\"k1\",\"done\":true}\n",
        ),
        (
            "done",
            "{\"response\":\"k1\"}\n[DONE]\n",
            "{\"response\":\"\"}\n{\"response\":\"k1\"}\n[DONE]\n",
        ),
    ] {
        assert_eq!(whole("ollama", &policy, text).0, expected, "{name}");
    }
}

#[test]
fn a_halt_ends_the_stream_after_what_came_before_the_match() {
    let policy = policy(STOPPING);
    for (text, expected) in [
        // In one frame, over two, at the end, and with nothing before it.
        (
            chat("k1234 a stop here now b") + &chat("c"),
            chat("[KEY] a "),
        ),
        (
            chat("a stop here") + &chat(" now!") + &chat("c"),
            chat("a "),
        ),
        (chat("a stop here now") + "data: [DONE]\n\n", chat("a ")),
        (chat("stop here now!"), String::new()),
        // In a string that is not a text, whatever the text is: nothing of the frame.
        (chat("a ") + &chat("b\",\"x\":\"stop here now"), chat("a ")),
        // In a comment.
        (chat("a ") + ": stop here now\n\n" + &chat("b"), chat("a ")),
    ] {
        for size in [1, 7, text.len()] {
            let chunks = text.as_bytes().chunks(size);
            let (out, end) = run(Framing::Sse(TextPath::openai_chat()), &policy, chunks);
            assert_eq!((out, &*end), (expected.clone(), "halted"), "{text}");
        }
    }
    let mut guard = guard(Framing::Sse(TextPath::openai_chat()), &policy);
    let text = chat("k1234 stop here now!");
    let released = guard.push(text.as_bytes()).unwrap();
    assert!(released.halted);
    let rules: Vec<&str> = released
        .decisions
        .iter()
        .map(|d| d.rule_id.as_str())
        .collect();
    assert_eq!(rules, ["secret-redaction", "injection-patterns"]);
    let path = &released.decisions[0].redactions[0].path;
    assert_eq!(path, "/choices/0/delta/content");
    let after = guard.push(text.as_bytes()).unwrap();
    assert_eq!((after.bytes, after.halted), (&b""[..], true));
    assert!(guard.finish().unwrap().halted);
}

#[test]
fn what_cannot_be_judged_is_an_error_and_does_not_pass() {
    let policy = policy(REDACTING);
    let long = format!("data: \"{}\"\n\n", "x".repeat(MAX_FRAME_BYTES));
    let many: String = (0..=MAX_OPEN_TEXTS)
        .map(|n| chat("AKIA").replace("\"index\":0", &format!("\"index\":{n}")))
        .collect();
    let wide: String = (0..2)
        .map(|n| {
            let index = format!(
                "\"x\":\"{}\",\"index\":{n}",
                "-".repeat(MAX_FRAME_BYTES / 2)
            );
            chat("AKIA").replace("\"index\":0", &index)
        })
        .collect();
    let long_index = format!("\"index\":\"{}\"", "i".repeat(2000));
    let named = chat("a").replace("\"index\":0", &long_index);
    let ended = chat("a\"},\"finish_reason\":\"stop\",\"x\":{\"y\":\"");
    for (bad, expected) in [
        (
            "data: {\"a\":\n\n",
            "frame 2 is not JSON: EOF while parsing a value at line 1 column 5",
        ),
        (
            "data: hello\n\n",
            "frame 2 is not JSON: expected value at line 1 column 1",
        ),
        (
            "data: \"\\ud800\"\n\n",
            "frame 2 is not JSON: unexpected end of hex escape at line 1 column 8",
        ),
        (
            "data: {}\ndata: {}\n\n",
            "frame 2 is not JSON: trailing characters at line 2 column 1",
        ),
        (
            "data: {\"a\":",
            "frame 2 is not JSON: EOF while parsing a value at line 1 column 5",
        ),
        (&*long, "frame 2 is longer than 1048576 bytes"),
        (
            &*many,
            "frame 66 opens too many texts at once: 64 are allowed, and 1048576 bytes of frames around them",
        ),
        (
            &*named,
            "frame 2 opens too many texts at once: 64 are allowed, and 1048576 bytes of frames around them",
        ),
        (
            &*wide,
            "frame 3 opens too many texts at once: 64 are allowed, and 1048576 bytes of frames around them",
        ),
        (
            &*(ended + &chat("b")),
            "frame 3 continues the text at `/choices/0/delta/content`, which has ended",
        ),
    ] {
        let text = format!("data: {{\"ok\":1}}\n\n{bad}");
        let framing = || Framing::Sse(TextPath::openai_chat());
        let all = run(framing(), &policy, [text.as_bytes()]);
        assert_eq!(all.1, expected);
        assert!(all.0.starts_with("data: {\"ok\":1}\n\n"), "{}", all.0);
        for size in [5, 4099] {
            let chunked = run(framing(), &policy, text.as_bytes().chunks(size));
            assert_eq!(chunked, all, "{expected}");
        }
    }
}

#[test]
fn an_error_comes_after_what_was_released_and_stays() {
    let mut guard = guard(framing("ollama"), &policy(REDACTING));
    let released = guard
        .push(b"{\"response\":\"a \"}\nnonsense\n{}\n")
        .unwrap();
    assert_eq!(released.bytes, b"{\"response\":\"a \"}\n");
    for _ in 0..2 {
        let error = guard.push(b"{}\n").unwrap_err();
        assert_eq!(error.frame, 2);
        assert!(matches!(error.problem, FramingProblem::NotJson(_)));
    }
    assert_eq!(guard.finish().unwrap_err().frame, 2);
}

#[test]
fn bytes_that_are_no_text_are_an_error() {
    let policy = policy(REDACTING);
    for (name, bytes, expected) in [
        (
            "plain",
            &b"caf\xc3\xa9 \xff"[..],
            "frame 1 is not UTF-8: byte 6 begins no character",
        ),
        (
            "plain",
            b"caf\xc3",
            "frame 1 is not UTF-8: byte 3 begins no character",
        ),
        (
            "ollama",
            b"{}\n{\"a\":\"\xff\"}\n",
            "frame 2 is not UTF-8: byte 6 begins no character",
        ),
        (
            "odd",
            b"data: {}\n\n: \xc3\n\n",
            "frame 2 is not UTF-8: byte 2 begins no character",
        ),
    ] {
        for size in [1, 2, 100] {
            let (_, end) = run(framing(name), &policy, bytes.chunks(size));
            assert_eq!(end, expected);
        }
    }
}

/// A connection is handed from thread to thread.
#[test]
fn a_guard_may_change_threads() {
    fn is_send(_: &impl Send) {}
    is_send(&guard(Framing::Text, &policy(IDLE)));
}

/// Some servers say so in every frame. Were it believed, every frame would end a text.
#[test]
fn an_empty_reason_to_finish_is_none() {
    let policy = policy(REDACTING);
    let frame = |text: &str| {
        chat(&format!(
            "{text}\"}},\"finish_reason\":\"\",\"x\":{{\"y\":\""
        ))
    };
    let text = frame("AKIAIOSF") + &frame("ODNN7EXAMPLE.");
    let (out, end) = run(
        Framing::Sse(TextPath::openai_chat()),
        &policy,
        [text.as_bytes()],
    );
    assert_eq!((out, &*end), (frame("") + &frame("[AWS_KEY]."), "well"));
}

proptest! {
    #[test]
    fn framed_output_is_split_invariant(
        which in 0..RECORDED.len(),
        crlf in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        thread_local! {
            static POLICY: Arc<Policy> = policy(REDACTING);
        }
        let policy = POLICY.with(Arc::clone);
        let (name, text) = RECORDED[which];
        let text = if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(run(framing(name), &policy, chunks), whole(name, &policy, &text));
    }

    /// Texts that are cut into frames and mixed come out as each does on its own.
    #[test]
    fn mixed_texts_come_out_as_they_do_without_frames(
        pieces in prop::collection::vec((0u64..3, prop::sample::select(TEXTS.to_vec())), 0..24),
        ends in any::<bool>(),
    ) {
        thread_local! {
            static POLICY: Arc<Policy> = policy(REDACTING);
        }
        let policy = POLICY.with(Arc::clone);
        let mut input: Vec<Value> = pieces.iter().map(|(i, t)| json!({"i": i, "t": t})).collect();
        input.extend((0..3).filter(|_| ends).map(|i| json!({"i": i, "e": true})));
        let input: String = input.iter().map(|frame| frame.to_string() + "\n").collect();
        let path = TextPath::new().text("/t", &["/i"]).end("/e", &["/i"]);
        let (out, end) = run(Framing::JsonLines(path), &policy, [input.as_bytes()]);
        prop_assert_eq!(end, "well");
        for index in 0..3 {
            let text: String = pieces.iter().filter(|(i, _)| *i == index).map(|(_, t)| *t).collect();
            let mut guard = StreamGuard::new(Arc::clone(&policy), Context::new("r"));
            let mut expected = guard.push(&text).text.to_owned();
            expected.push_str(guard.finish().text);
            let mine = frames(&out).filter(|frame| frame["i"] == index);
            let text: String = mine.filter_map(|frame| Some(frame["t"].as_str()?.to_owned())).collect();
            prop_assert_eq!(text, expected);
        }
    }

    /// Of any bytes: the same output, the same end.
    #[test]
    fn pieces_of_frames_are_split_invariant(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..24),
        sse in any::<bool>(),
        size in 1usize..6,
    ) {
        thread_local! {
            static POLICY: Arc<Policy> = policy(STOPPING);
        }
        let policy = POLICY.with(Arc::clone);
        let bytes = pieces.concat();
        let framing = || {
            let path = TextPath::new().text("/t", &["/i"]).end("/e", &["/i"]).withhold("w");
            if sse { Framing::Sse(path) } else { Framing::JsonLines(path) }
        };
        let all = run(framing(), &policy, [&*bytes]);
        prop_assert_eq!(run(framing(), &policy, bytes.chunks(size)), all);
    }
}

/// Pieces that fit together into values, nearly.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\n",
    "\"",
    "\\",
    "é",
    "🔑",
    "\u{2028}",
    "x",
    "sk",
    "-",
    "sk-",
    "ant-",
    "AKIA",
    "IOSFODNN7",
    "EXAMPLE",
    "ghp_",
    "abcdefghij",
    "0123456789",
    "[DONE]",
];

/// What frames are made of, and what breaks them.
const PIECES: &[&[u8]] = &[
    b"data: ",
    b"data:",
    b"data: {\"t\":\"a k12\"}\n\n",
    b"data: {\"t\":\"34 stop here\",\"i\":1}\r\n\r\n",
    b"{\"t\":\"a k12\"}\n",
    b"{\"t\":\"34 stop\"}\r\n",
    b"{\"t\":\" here now\",\"w\":[1],\"i\":1}\n",
    b"{\"t\":\"\\u006b\\u00e9\",\"i\":1}\n\n",
    b"{\"e\":1,\"t\":\"k\",\"i\":1}\n",
    b"{\"t\":\"",
    b"k1234",
    b"\"}",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b": note\n",
    b"[DONE]\n\n",
    "é".as_bytes(),
    b"\xc3",
    b"\xf0\x9f",
    b"\\",
    b" ",
];
