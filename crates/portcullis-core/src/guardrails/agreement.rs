//! The tree and `cel` answer alike: true, false, or an error.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::action::{ProposedAction, Stakes};
use super::condition::History;
use super::lower;
use super::rule::{ROOTS, variables};
use crate::expr::{self, Predicate};

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        (-3i64..4).prop_map(|n| n.to_string()),
        (0u64..4).prop_map(|n| format!("{n}u")),
        prop::sample::select(vec![
            "-1.5",
            "0.0",
            "0.5",
            "1.0",
            "2.0",
            "9223372036854775807"
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec!["''", "'a'", "'ab'", "'high'", "'low'", "'x'"])
            .prop_map(str::to_owned),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "context.a",
        "context.b",
        "context.c",
        "context.a.b",
        "context.a.b.c",
        "context['a']",
        "context['odd key']",
        "context.a[0]",
        "context.b[1].a",
        "context.a[-1]",
        "context",
        "action.context",
        "action.context.a",
        "action['stakes']",
        "action.stakes",
        "action.stakes.x",
        "action.confidence",
        "action.category",
        "action.description",
        "action.project",
        "agent.id",
        "agent.url",
        "agent.claimed",
        "precedents.failures",
        "precedents.nearest",
        "precedents.nearestFailure.x",
    ])
    .prop_map(str::to_owned)
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => path(),
        2 => literal(),
        1 => path().prop_map(|path| format!("size({path})")),
        1 => path().prop_map(|path| format!("{path}.size()")),
    ]
}

fn leaf() -> impl Strategy<Value = String> {
    let comparison = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let test = prop::sample::select(vec!["contains", "startsWith", "endsWith", "matches"]);
    let field = prop::sample::select(vec![
        "has(context.a)",
        "has(context.a.b)",
        "has(context.a.b.c)",
        "has(context.b[0].a)",
        "has(action.stakes)",
        "has(action.category.x)",
        "has(action.context.c)",
        "has(agent.id)",
        "has(precedents.nearest)",
    ]);
    prop_oneof![
        (operand(), comparison, operand()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (operand(), prop::collection::vec(literal(), 0..4))
            .prop_map(|(a, list)| format!("{a} in [{}]", list.join(", "))),
        (operand(), path()).prop_map(|(a, path)| format!("{a} in {path}")),
        (path(), test).prop_map(|(path, test)| format!("{path}.{test}('a')")),
        path().prop_map(|path| format!("matches({path}, '^a.?$')")),
        field.prop_map(str::to_owned),
        path(),
        literal(),
    ]
}

/// A loop. Its item goes by a name of its own, or by one that hides another.
fn each() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["x", "context", "action"]);
    let body = prop::sample::select(vec![
        "$",
        "$ == 1",
        "$ > 0",
        "$.a == true",
        "has($.a) && $.a.b != 'a'",
        "$ in ['a', 1, null]",
        "$ in context.b",
        "'a' in $",
        "size($) > 1",
        "$.matches('^a')",
        "$.startsWith('a') || $ == action.stakes",
        "$[0] == context.c",
        "!($ < 1 && has(context.a))",
    ]);
    let macros = prop::sample::select(vec!["exists", "all"]);
    (path(), macros, name, body).prop_map(|(path, each, name, body)| {
        let body = body.replace('$', name);
        format!("{path}.{each}({name}, {body})")
    })
}

fn expression() -> impl Strategy<Value = String> {
    prop_oneof![4 => leaf(), 1 => each()].prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) && ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) || ({b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("(({a}) ? ({b}) : ({c}))")),
        ]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        prop::sample::select(vec![-1.5, 0.0, 0.5, 1.0, 9.223_372_036_854_776e18])
            .prop_map(Value::from),
        prop::sample::select(vec!["", "a", "ab", "ba", "high"]).prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop::sample::select(vec!["a", "b", "c", "odd key"]);
    prop::collection::vec((key, value), 0..4).prop_map(|members| {
        members
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect()
    })
}

fn action() -> impl Strategy<Value = ProposedAction> {
    let stakes = prop::sample::select(Stakes::ALL.to_vec());
    let confidence = prop::option::of(prop::sample::select(vec![0.0, 0.5, 1.0]));
    let name = prop::option::of(prop::sample::select(vec!["a", "high", "x"]));
    (stakes, confidence, name.clone(), name, members(value())).prop_map(
        |(stakes, confidence, category, agent, context)| {
            let mut action = ProposedAction::new("a deployment").unwrap();
            action = action.with_stakes(stakes).with_context(context).unwrap();
            if let Some(confidence) = confidence {
                action = action.with_confidence(confidence).unwrap();
            }
            if let Some(category) = category {
                action = action.with_category(category).unwrap();
            }
            match agent {
                Some(agent) => action.authenticated_as(agent),
                None => action,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_tree_answers_as_cel_does(
        source in expression(),
        action in action(),
        history in prop::sample::select(&[History::Known, History::Unknown]),
    ) {
        let predicate = Predicate::compile(&source, ROOTS).unwrap();
        let tree = lower::condition(predicate.expression());
        let tree = tree.unwrap_or_else(|| panic!("this should be a tree: {source}"));
        let cel = predicate.holds_in(&expr::context(variables(&action, history)));
        let ours = tree.holds(&action, history).map_err(|trouble| trouble.to_string());
        prop_assert_eq!(
            cel.as_ref().ok(),
            ours.as_ref().ok(),
            "{}\n{:?}\ncel: {:?}\nours: {:?}", source, action, cel, ours
        );
    }
}
