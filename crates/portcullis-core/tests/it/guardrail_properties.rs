//! What holds for every guardrail file and every action, not only for the ones somebody thought of.

use portcullis_core::guardrails::{self, ProposedAction, Source};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

use crate::guardrails::{load, propose, try_load};

/// A file with something of everything.
const RICH: &str = r#"
guardrails:
  - id: ours
    name: Ours
    description: What for
    when: has(context.a) && context.a.b == true || size(context.list) > 2
    severity: warn
    message: "{a} and {b.c}, {description}"
    suggestion: Not {stakes}
    scope: [shop, web]
  - {id: loop, when: "context.list.exists(x, x == 1)", severity: log}
  - {id: pattern, when: "action.description.matches('(?i)dep.*y') && context.n < 3"}
  - id: older
    condition_stakes: [high, critical]
    condition_confidence: "< 0.5"
    requires_a: true
    action: block
  - {id: nested, condition: {cel: context.n > 1, a.b: "!= x"}, requires: {list: ">= 2"}, scope: shop}
  - {id: disabled, condition: action.stakes == 'low', enabled: false}
"#;

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
    "|",
    ">",
    "null",
    "true",
    "1",
    "1e999",
    "é",
    "\u{0}",
    "\u{feff}",
    "when",
    "condition_",
    "requires_",
    "cel",
    "action",
    "context",
    "< ",
    "!= ",
    "id: a",
    "---\n",
];

fn slips() -> impl Strategy<Value = String> {
    let slip = (any::<Index>(), 0usize..30, select(PIECES));
    prop::collection::vec(slip, 1..4).prop_map(|slips| {
        let mut text: Vec<char> = RICH.chars().collect();
        for (at, length, piece) in slips {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, piece.chars());
        }
        text.into_iter().collect()
    })
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0i64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        select(vec!["x", "shop", "web", "deploy"]).prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = select(vec![
        "a", "b", "c", "n", "list", "project", "scope", "a.b", "é",
    ]);
    prop::collection::vec((key, value), 0..6).prop_map(|members| {
        members
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect()
    })
}

fn action() -> impl Strategy<Value = Value> {
    let stakes = select(vec!["low", "medium", "high", "critical"]);
    let confidence = prop::option::of(0.0..=1.0);
    let name = prop::option::of(select(vec!["shop", "web", "blog"]));
    (
        "\\PC{0,10}x",
        stakes,
        confidence,
        name.clone(),
        name,
        members(value()),
    )
        .prop_map(
            |(description, stakes, confidence, project, scope, context)| {
                json!({"action": {
                    "description": description, "stakes": stakes, "confidence": confidence,
                    "project": project, "scope": scope, "context": context,
                }})
            },
        )
}

proptest! {
    #[test]
    fn loading_is_total(text in prop_oneof![slips(), ".{0,60}"]) {
        match try_load(&text) {
            Ok(loaded) => prop_assert_eq!(loaded.guardrails.digest().len(), 64),
            Err(report) => prop_assert!(!report.to_string().is_empty()),
        }
    }

    #[test]
    fn reading_params_is_total(params in members(value()), inner in members(value())) {
        for (key, known) in [("action", "description"), ("intent", "intent"), ("x", "x")] {
            let mut inner = inner.clone();
            inner.insert(known.to_owned(), json!("x"));
            let mut params = params.clone();
            params.insert(key.to_owned(), Value::Object(inner));
            if let Err(error) = ProposedAction::from_params(&params) {
                prop_assert!(!error.field.is_empty() && !error.error.is_empty());
            }
            if let Err(error) = ProposedAction::from_intent(&params) {
                prop_assert!(!error.field.is_empty() && !error.error.is_empty());
            }
        }
    }

    #[test]
    fn checking_is_total(params in action()) {
        let guardrails = load(RICH);
        let verdict = guardrails.check(&propose(&params));
        prop_assert!(verdict.evaluated <= guardrails.enabled());
        prop_assert_eq!(verdict.allowed, verdict.violations.is_empty());
        let named = verdict.violations.len() + verdict.warnings.len() + verdict.logged.len();
        prop_assert!(named <= verdict.evaluated);
        prop_assert_eq!(guardrails.check(&propose(&params)), verdict);
    }

    /// An expression that fails is never a reason to allow.
    #[test]
    fn only_a_plain_false_allows(params in action()) {
        for when in ["context.a.b == 1", "context.n > 2", "context.a", "context.list.all(x, x != 1)"] {
            let verdict = |when: String| {
                let text = json!([{"id": "a", "when": when}]).to_string();
                load(&text).check(&propose(&params)).allowed
            };
            // If both it and its contrary block, it failed; both can never allow.
            prop_assert!(!(verdict(when.to_owned()) && verdict(format!("!({when})"))), "{}", when);
        }
    }

    #[test]
    fn a_scope_applies_when_the_action_names_none_or_one_that_is_listed(
        params in action(),
        listed in subsequence(vec!["shop", "web", "blog"], 1..=3),
    ) {
        let text = json!([{"id": "a", "when": "true", "scope": listed}]).to_string();
        let action = propose(&params);
        let named: Vec<&str> = [action.project(), action.scope()].into_iter().flatten().collect();
        let applies = named.is_empty() || named.iter().any(|name| listed.contains(name));
        let verdict = load(&text).check(&action);
        prop_assert_eq!(verdict.evaluated, usize::from(applies));
        prop_assert_eq!(verdict.allowed, !applies);
    }

    /// Where there are only requirements, leaving something out never helps.
    #[test]
    fn sending_less_never_unblocks(params in action(), gone in any::<Index>()) {
        let text = "- {id: a, requires_a: true}\n- {id: b, requires: {n: '< 4', list: '!= x', a.b: 1}}\n";
        let guardrails = load(text);
        let mut less = params.clone();
        let context = less["action"]["context"].as_object_mut().unwrap();
        prop_assume!(!context.is_empty());
        let key = context.keys().nth(gone.index(context.len())).unwrap().clone();
        // `a.b` the key hides `b` within `a`: without it the other is looked at.
        prop_assume!(key != "a.b");
        context.remove(&key);
        let blocked = |params| guardrails.check(&propose(params)).violations.len();
        prop_assert!(blocked(&less) >= blocked(&params), "{} without {}", params, key);
    }

    #[test]
    fn files_are_one_after_the_other(params in action(), cut in 0usize..=5) {
        let entry = |n: usize| format!("- {{id: g{n}, condition_n: {n}}}\n");
        let text = |range: std::ops::Range<usize>| {
            let text: String = range.map(entry).collect();
            if text.is_empty() { "[]".to_owned() } else { text }
        };
        let (first, second) = (text(0..cut), text(cut..5));
        let split = guardrails::load(&[
            Source { file: "first.yaml", text: &first },
            Source { file: "second.yaml", text: &second },
        ])
        .unwrap()
        .guardrails;
        let whole = load(&text(0..5));
        prop_assert_eq!(split.digest(), whole.digest());
        let action = propose(&params);
        prop_assert_eq!(split.check(&action), whole.check(&action));
    }
}
