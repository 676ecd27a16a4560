//! What holds for every input, not only for the ones somebody thought of.

use portcullis_core::pack::{self, Pack, diagnostic::Report};
use portcullis_core::{Action, Event, EventType, Policy, redact_event};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use crate::judge::{judge_fresh, load, with_head};

/// A pack with something of everything.
const RICH: &str = r#"
policy_pack: rich
version: "1"
gateway: {mode: enforce, sync: {timeout_ms: 15}}
limits: {max_text_bytes: 1000}
tool_risks: {shell: critical, __default__: low}
sync_rules:
  - id: tool-allowlist
    config: {denied_tools: [shell], allowed_tools: [read]}
  - id: secret-redaction
    events: [tool_call_result, stage]
    config: {families: [rfc], patterns: {TICKET: 'TCK-[0-9]{6}'}}
  - id: injection-patterns
    config: {patterns: [[magic word, jb_override]]}
  - id: schema-validation
    config: {schemas: {mail: {required: [to], properties: {to: {pattern: '^a'}}}}}
  - id: ask
    rule: expression
    config: {when: "tool.name == 'x' && event.tool_args.n > 1", action: PAUSE, prompt: Sure?}
async_rules:
  - {id: hf-jailbreak, enabled: false, config: {threshold: 0.85}}
environments:
  dev: {gateway: {mode: shadow}}
"#;

/// Pieces of packs, and what a slip of the keyboard makes of them.
const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "  ",
    ":",
    ": ",
    "- ",
    ",",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "|",
    ">",
    "!!int ",
    "---\n",
    "...\n",
    "~",
    "null",
    "true",
    "-1",
    "1e999",
    ".inf",
    "0x1f",
    "é",
    "漢",
    "🔑",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "policy_pack",
    "version",
    "gateway",
    "sync_rules",
    "async_rules",
    "environments",
    "dev",
    "id",
    "rule",
    "config",
    "events",
    "when",
    "expression",
    "patterns",
    "families",
    "rfc",
    "schemas",
    "enabled",
    "(",
    ")",
    "(?",
    "{1000}",
    "\\",
    "\\w",
    ".*",
    "==",
    "&&",
    "!",
    "? x :",
    "event",
    ".all(x, x)",
    "$ref",
    "'#'",
    "type",
    "object",
];

fn load_once(text: &str, env: Option<&str>) -> Result<(String, String), Report> {
    pack::load(&Pack {
        file: "pack.yaml",
        text,
        env,
        ..Pack::default()
    })
    .map(|loaded| {
        let digest = loaded.policy.identity().digest.clone();
        (digest, loaded.warnings.to_string())
    })
}

/// Loading ends, gives the same answer twice, and a refusal says why, at places that exist.
fn check_load(text: &str) -> Result<(), TestCaseError> {
    for env in [None, Some("dev")] {
        let first = load_once(text, env);
        prop_assert_eq!(&first, &load_once(text, env));
        let Err(report) = first else { continue };
        let findings = report.diagnostics.sorted();
        prop_assert!(report.diagnostics.has_errors());
        for finding in findings {
            prop_assert!(!finding.message.is_empty());
            prop_assert!(finding.place.line <= text.split(['\n', '\r']).count() + 1);
        }
        let page = report.to_string();
        prop_assert!(page.starts_with("pack.yaml:"), "{page}");
        let odd = |c: &char| c.is_control() && *c != '\n';
        prop_assert_eq!(page.chars().find(odd), None, "{}", page);
    }
    // Nor does this fail, whatever it finds.
    Ok(())
}

/// One change somewhere in a text.
#[derive(Debug, Clone)]
enum Change {
    Insert(Index, &'static str),
    Remove(Index, usize),
    Repeat(Index, usize),
    SwapLines(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<Index>(), select(PIECES)).prop_map(|(at, piece)| Change::Insert(at, piece)),
        2 => (any::<Index>(), 1usize..12).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (any::<Index>(), 1usize..60).prop_map(|(at, length)| Change::Repeat(at, length)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Change::SwapLines(a, b)),
    ]
}

fn apply(text: &str, change: &Change) -> String {
    let chars: Vec<char> = text.chars().collect();
    let split = |at: &Index, length: usize| {
        let at = at.index(chars.len() + 1);
        let to = (at + length).min(chars.len());
        let part = |part: &[char]| part.iter().collect::<String>();
        (part(&chars[..at]), part(&chars[at..to]), part(&chars[to..]))
    };
    match change {
        Change::Insert(at, piece) => {
            let (before, _, after) = split(at, 0);
            format!("{before}{piece}{after}")
        }
        Change::Remove(at, length) => {
            let (before, _, after) = split(at, *length);
            format!("{before}{after}")
        }
        Change::Repeat(at, length) => {
            let (before, part, after) = split(at, *length);
            format!("{before}{part}{part}{after}")
        }
        Change::SwapLines(a, b) => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let (a, b) = (a.index(lines.len()), b.index(lines.len()));
                lines.swap(a, b);
            }
            lines.join("\n")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_text_loads_or_is_refused_with_a_reason(text in any::<String>()) {
        check_load(&text)?;
    }

    #[test]
    fn any_heap_of_pieces_loads_or_is_refused_with_a_reason(
        pieces in prop::collection::vec(select(PIECES), 0..60),
    ) {
        check_load(&pieces.concat())?;
        check_load(&with_head(&pieces.concat()))?;
    }

    #[test]
    fn a_damaged_pack_loads_or_is_refused_with_a_reason(
        original in select(&[RICH, pack::DEFAULT][..]),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let text = changes.iter().fold(original.to_owned(), |text, change| apply(&text, change));
        check_load(&text)?;
    }
}

/// A text as a list of pieces, each of them a secret or not.
type Pieces = Vec<Result<String, (&'static str, String)>>;

/// What may stand next to a secret without becoming part of it, or hiding it.
fn filler() -> impl Strategy<Value = String> {
    "[ .,:;/\"\\\\{}\\[\\]é漢🔑\u{1f}\n]{1,6}(word|key=|ignore|sk|AK IA)?[ é🔑\n\"]"
}

fn secret() -> impl Strategy<Value = (&'static str, String)> {
    prop_oneof![
        "sk-[a-zA-Z0-9]{20,40}".prop_map(|secret| ("OPENAI_KEY", secret)),
        "sk-ant-[a-zA-Z0-9\\-]{20,40}".prop_map(|secret| ("ANTHROPIC_KEY", secret)),
        "AKIA[0-9A-Z]{16}".prop_map(|secret| ("AWS_KEY", secret)),
        "ghp_[a-zA-Z0-9]{36}".prop_map(|secret| ("GITHUB_TOKEN", secret)),
    ]
}

fn pieces() -> impl Strategy<Value = Pieces> {
    let pair = (filler(), prop::option::of(secret()));
    (prop::collection::vec(pair, 0..6), filler()).prop_map(|(pairs, last)| {
        pairs
            .into_iter()
            .flat_map(|(filler, secret)| [Some(Ok(filler)), secret.map(Err)])
            .flatten()
            .chain([Ok(last)])
            .collect()
    })
}

/// The text with its secrets, or with what must stand for them.
fn text(pieces: &Pieces, redacted: bool) -> String {
    pieces
        .iter()
        .map(|piece| match piece {
            Ok(filler) => filler.clone(),
            Err((entity, _)) if redacted => format!("[{entity}]"),
            Err((_, secret)) => secret.clone(),
        })
        .collect()
}

#[derive(Debug, Clone)]
enum Tree {
    Other(Value),
    Text(Pieces),
    List(Vec<Tree>),
    /// Names are numbered, so that no two are redacted to the same.
    Map(Vec<(Pieces, Tree)>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        3 => pieces().prop_map(Tree::Text),
        1 => select(vec![json!(null), json!(true), json!(-1), json!(0.5)]).prop_map(Tree::Other),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::List),
            prop::collection::vec((pieces(), inner), 0..5).prop_map(Tree::Map),
        ]
    })
}

impl Tree {
    fn json(&self, redacted: bool) -> Value {
        match self {
            Self::Other(value) => value.clone(),
            Self::Text(pieces) => text(pieces, redacted).into(),
            Self::List(items) => items.iter().map(|item| item.json(redacted)).collect(),
            Self::Map(members) => members
                .iter()
                .enumerate()
                .map(|(n, (name, value))| {
                    (format!("{n}{}", text(name, redacted)), value.json(redacted))
                })
                .collect(),
        }
    }
}

fn redactor() -> Policy {
    load(&with_head("sync_rules: [{id: secret-redaction}]\n"))
}

fn redacted(policy: &Policy, mut event: Event) -> Event {
    let decision = judge_fresh(policy, &event);
    redact_event(&mut event, &decision.redactions).unwrap();
    event
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn redaction_removes_every_secret_and_nothing_else(pieces in pieces()) {
        let policy = redactor();
        let whole = text(&pieces, false);
        for event in [
            Event::tool_call_result("r", "t", whole.clone()),
            Event::llm_stream_chunk("r", whole.clone()),
        ] {
            let found = judge_fresh(&policy, &event).action == Action::Redact;
            prop_assert_eq!(found, pieces.iter().any(Result::is_err));
            let event = redacted(&policy, event);
            prop_assert_eq!(event.text(), text(&pieces, true));
        }
    }

    #[test]
    fn a_redacted_result_is_the_same_json_without_its_secrets(tree in tree()) {
        let policy = redactor();
        let mut event = Event::new(EventType::ToolCallResult, "r");
        event.payload.insert("result".to_owned(), tree.json(false));
        let event = redacted(&policy, event);
        let result = &event.payload["result"];
        prop_assert_eq!(result, &tree.json(true));
        let wire = serde_json::to_string(result).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Value>(&wire).unwrap(), result);
    }
}

/// Nothing here is measured: what is quadratic does not come to an end.
#[test]
fn a_mebibyte_of_anything_is_judged() {
    const BYTES: usize = 1 << 20;
    let policy = pack::load_default().unwrap().policy;
    let texts = [
        "sk-",
        "sk-ant-",
        "AKIA",
        "ghp_",
        "ignore ",
        "ignore all previous ",
        "DAN ",
        "DAN mode ",
        "you are now in ",
        "system prompt ",
        "a",
        "[",
        "{\"",
        "\\",
        "\n",
        " ",
        "é",
        "ſ",
        "🔑",
        "AKIAIOSFODNN7EXAMPLE",
    ];
    for piece in texts {
        let text = piece.repeat(BYTES / piece.len());
        judge_fresh(&policy, &Event::llm_before("r", text.clone()));
        let event = redacted(&policy, Event::tool_call_result("r", "t", text));
        assert!(!event.text().contains("AKIAIOSFODNN7EXAMPLE"));
    }
}

#[test]
fn a_result_of_twenty_thousand_secrets_is_redacted() {
    let secrets = vec!["AKIAIOSFODNN7EXAMPLE"; 20_000];
    let event = Event {
        payload: Map::from_iter([("result".to_owned(), json!(secrets))]),
        ..Event::new(EventType::ToolCallResult, "r")
    };
    let event = redacted(&redactor(), event);
    assert_eq!(event.payload["result"], json!(vec!["[AWS_KEY]"; 20_000]));
}
