//! A streamed answer comes out the same however it is cut into chunks.

use std::sync::Arc;

use portcullis_core::detectors::{self, FAMILIES, Kind};
use portcullis_core::{
    Action, Context, Event, MAX_HOLD_BYTES, Policy, RedactionSpec, StreamGuard, redact_text,
};
use proptest::prelude::*;

use crate::judge::{judge_fresh, load, with_head};

/// What came out, and whether the stream was halted.
type Out = (String, bool);

fn stream<'c>(policy: &Arc<Policy>, chunks: impl IntoIterator<Item = &'c str>) -> Out {
    let mut guard = StreamGuard::new(Arc::clone(policy), Context::new("r"));
    let mut out = String::new();
    for chunk in chunks {
        let released = guard.push(chunk);
        out.push_str(released.text);
        if released.halted {
            return (out, true);
        }
    }
    let released = guard.finish();
    out.push_str(released.text);
    (out, released.halted)
}

/// The whole text judged as one event.
fn at_once(policy: &Policy, text: &str) -> String {
    let decision = judge_fresh(policy, &Event::llm_stream_chunk("r", text));
    assert!(decision.action <= Action::Redact, "{decision:?}");
    redact_text(text, RedactionSpec::TEXT, &decision.redactions).into_owned()
}

fn boundaries(text: &str) -> Vec<usize> {
    (0..=text.len())
        .filter(|at| text.is_char_boundary(*at))
        .collect()
}

fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices()
        .map(|(at, c)| &text[at..at + c.len_utf8()])
}

/// Rules that redact everything.
fn rules() -> String {
    let families = |kind: Kind| detectors::names(kind).collect::<Vec<_>>().join(", ");
    rules_for(&families(Kind::Secrets), &families(Kind::Pii))
}

/// Rules for these families.
fn rules_for(secrets: &str, pii: &str) -> String {
    with_head(&format!(
        "sync_rules:
  - id: secret-redaction
    config: {{families: [{secrets}], evasions: true}}
  - id: pii-redaction
    config: {{families: [{pii}], patterns: {{MINE: 'mine-[0-9]{{4}}'}}, action: mask, evasions: true}}
"
    ))
}

/// A text, and whether it is a value that is redacted, as it stands.
type Example = (bool, String);

/// Every example of every value that is redacted, by family with the rules for that.
fn examples() -> Vec<(Arc<Policy>, Vec<Example>)> {
    let mut examples = Vec::new();
    for (kind, name, _) in FAMILIES {
        let rules = match kind {
            Kind::Secrets => rules_for(name, ""),
            Kind::Pii => rules_for("", name),
            _ => continue,
        };
        let mut texts = Vec::new();
        for entry in detectors::family(*kind, name).unwrap().unwrap().entries {
            for text in entry.matches {
                texts.push((false, disguised(&text)));
                texts.push((false, format!("So é {text}. ok")));
                texts.push((true, text));
            }
            texts.extend(entry.passes.into_iter().map(|text| (false, text)));
        }
        examples.push((Arc::new(load(&rules)), texts));
    }
    examples
}

fn texts() -> Vec<Example> {
    let texts = examples().into_iter().flat_map(|(_, texts)| texts);
    texts.collect()
}

/// With a character that nobody sees after every fifth, and digits that are wide.
fn disguised(text: &str) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        out.push(match c {
            '5' => '５',
            c => c,
        });
        if index % 5 == 2 {
            out.push('\u{200b}');
        }
    }
    out
}

#[test]
fn a_disguised_value_is_redacted_where_it_stands() {
    let policy = Arc::new(load(&rules()));
    let text = "see AKIA\u{200b}IOSFODNN7\u{ad}EXAMPLE\u{200b}!";
    assert_eq!(at_once(&policy, text), "see [AWS_KEY]\u{200b}!");
    assert_eq!(
        stream(&policy, characters(text)).0,
        "see [AWS_KEY]\u{200b}!"
    );
}

/// However a text is cut in two, and character by character, it gives what the whole gives; and while a match is
/// undecided nothing of it is out. By the rules of its family: those of all take ten times as long.
#[test]
fn every_split_of_every_example_gives_what_the_whole_gives() {
    for (policy, texts) in examples() {
        for (is_match, text) in texts {
            let whole = at_once(&policy, &text);
            let mut guard = StreamGuard::new(Arc::clone(&policy), Context::new("r"));
            let (mut out, mut last) = (String::new(), 0);
            for at in boundaries(&text) {
                out.push_str(guard.push(&text[last..at]).text);
                last = at;
                assert!(whole.starts_with(&out), "{out:?} of {whole:?}");
                if is_match {
                    let (a, b) = text.split_at(at);
                    let expected = (whole.clone(), false);
                    assert_eq!(stream(&policy, [a, b]), expected, "{a:?} | {b:?}");
                }
            }
            out.push_str(guard.finish().text);
            assert_eq!(out, whole, "by character: {text}");
        }
    }
}

/// By all rules together, in a few pieces.
#[test]
fn pieces_of_every_example_give_what_the_whole_gives() {
    let policy = Arc::new(load(&rules()));
    for (_, text) in texts() {
        let expected = (at_once(&policy, &text), false);
        let cut = |eighth: usize| text.floor_char_boundary(text.len() * eighth / 8);
        let pieces: [&str; 8] = std::array::from_fn(|at| &text[cut(at)..cut(at + 1)]);
        assert_eq!(stream(&policy, [&*text]), expected, "{text}");
        assert_eq!(stream(&policy, pieces), expected, "{pieces:?}");
    }
}

#[test]
fn ordinary_text_is_held_by_a_word_at_most() {
    let policy = Arc::new(load(&rules()));
    let text = "Let us take a walk in the park, and talk about the weather for a while. ".repeat(5);
    let mut guard = StreamGuard::new(policy, Context::new("r"));
    for word in text.split_inclusive(' ') {
        guard.push(word);
        assert!(guard.held() <= word.len(), "{} for {word:?}", guard.held());
    }
}

const STOPPING: &str = "sync_rules:
  - id: injection-patterns
    events: [llm_stream_chunk]
    config:
      families: []
      patterns: [[stop here now, jb_override], ['wait[a-z ]{1,20}please', social_engineering]]
  - id: secret-redaction
    config: {families: [], patterns: {KEY: 'k[0-9]{4}'}}
";

/// The text before the match comes out, redacted, and nothing after it.
#[test]
fn a_stop_or_pause_emits_nothing_of_the_match() {
    let policy = Arc::new(load(&with_head(STOPPING)));
    for (text, expected, halted) in [
        ("key k1234 and stop here now k1234", "key [KEY] and ", true),
        ("wait a bit please", "", true),
        ("wait a bit, then stop here now", "wait a bit, then ", true),
        ("stop here, k1234.", "stop here, [KEY].", false),
        ("é stop here now", "é ", true),
    ] {
        let expected = (expected.to_owned(), halted);
        assert_eq!(stream(&policy, [text]), expected, "{text}");
        assert_eq!(stream(&policy, characters(text)), expected, "{text}");
        for at in boundaries(text) {
            let (a, b) = text.split_at(at);
            assert_eq!(stream(&policy, [a, b]), expected, "{a:?} | {b:?}");
        }
    }
}

#[test]
fn after_a_halt_nothing_comes_out_until_the_next_answer() {
    let policy = Arc::new(load(&with_head(STOPPING)));
    let mut guard = StreamGuard::new(policy, Context::new("r"));
    let released = guard.push("a stop here now b");
    assert_eq!((released.text, released.halted), ("a ", true));
    assert_eq!(released.decisions.len(), 1);
    assert_eq!(guard.push("more").text, "");
    let tail = guard.finish();
    assert_eq!((tail.text, tail.halted), ("", true));
    assert_eq!(guard.push("again k12").text, "again ");
    assert_eq!(guard.finish().text, "k12");
}

#[test]
fn offsets_count_from_the_start_of_the_stream() {
    let policy = Arc::new(load(&with_head(STOPPING)));
    let mut guard = StreamGuard::new(policy, Context::new("r"));
    guard.push("ééé k1234 ");
    let released = guard.push("k5678 ");
    let spec = &released.decisions[0].redactions[0];
    assert_eq!((spec.start_offset, spec.end_offset), (Some(10), Some(15)));
}

#[test]
fn shadow_mode_watches_and_changes_nothing() {
    let pack = with_head(&format!("gateway: {{mode: shadow}}\n{STOPPING}"));
    let mut guard = StreamGuard::new(Arc::new(load(&pack)), Context::new("r"));
    let released = guard.push("k1234 stop here now k1234 ");
    assert_eq!(released.text, "k1234 stop here now k1234 ");
    assert_eq!((released.decisions.len(), released.halted), (3, false));
}

/// A pattern without an end would hold the stream for ever. Where it is stopped does not depend on
/// the chunks.
#[test]
fn what_cannot_be_decided_stops_the_stream() {
    let pack = "sync_rules:
  - {id: secret-redaction, config: {families: [], patterns: {X: 'abc.*xyz'}}}
";
    let policy = Arc::new(load(&with_head(pack)));
    assert_eq!(policy.max_hold(), MAX_HOLD_BYTES);
    let text = format!("before abc{}", "-".repeat(2 * MAX_HOLD_BYTES));
    let expected = ("before ".to_owned(), true);
    for size in [7, 4096, 100_000, text.len()] {
        let chunks = text.as_bytes().chunks(size);
        let chunks = chunks.map(|chunk| std::str::from_utf8(chunk).unwrap());
        assert_eq!(stream(&policy, chunks), expected, "{size}");
    }
}

/// Memory does not grow with the stream.
#[test]
fn an_endless_stream_holds_no_more_than_the_policy_says() {
    let policy = Arc::new(load(&rules()));
    let max = policy.max_hold();
    let mut guard = StreamGuard::new(Arc::clone(&policy), Context::new("r"));
    let mut most = 0;
    for (_, text) in texts().iter().cycle().take(5_000) {
        let released = guard.push(text);
        assert!(!released.halted);
        most = most.max(guard.held());
    }
    assert!(most <= max, "{most} > {max}");
}

/// Pieces that fit together into values, nearly.
const PIECES: &[&str] = &[
    "sk-",
    "sk",
    "-",
    "ant-",
    "AKIA",
    "IOSFODNN7EXAMPLE",
    "ghp_",
    "abcdefghij",
    "0123456789",
    "ABCDEFGHIJKLMNOPQRST",
    " ",
    ".",
    "\n",
    "é",
    "\u{200b}",
    "\u{301}",
    "password=",
    "\"",
    "@",
    "example.com",
    "4111 1111 1111 1111",
    "+49 30 1234567",
    "eyJ",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "x",
];

proptest! {
    #[test]
    fn output_is_split_invariant(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        thread_local! {
            static POLICY: Arc<Policy> = Arc::new(load(&rules()));
        }
        let policy = POLICY.with(Arc::clone);
        let text = pieces.concat();
        let places = boundaries(&text);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| places[cut.index(places.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        let expected = (at_once(&policy, &text), false);
        prop_assert_eq!(stream(&policy, chunks), expected);
    }
}
