//! What is easier to see from inside.

use super::rule::{Expression, ROOTS};
use super::value::Field;

/// The tree covers what guardrails are usually made of.
#[test]
fn common_expressions_need_no_cel() {
    for source in [
        "action.stakes in ['high', 'critical'] && action.confidence < 0.5",
        "has(context.a) && context.a == true && !(has(context.b.c) && context.b.c != false)",
        "action.description.matches('(?i)deploy') || matches(action.description, 'x')",
        "size(context.reviewers) < 2 || context.reviewers.size() >= -1",
        "'ops' in context.reviewers || 'key' in context",
        "context['odd key'].startsWith('a') && context.list[0].endsWith('b')",
        "action.context.a ? context.b > 1u : context.c <= -1.5",
        "agent.id != null && agent.claimed != agent.id && agent.url == null",
        "context.flag && true",
        "precedents.failures > 0 && precedents.nearest < 0.2",
        "context.to.exists(to, to.matches('@elsewhere$')) || !context.to.all(t, t.a in ['b'])",
    ] {
        let expression = Expression::compile(source).unwrap();
        assert!(expression.is_tree(), "{source}");
    }
    for source in [
        "context.list.filter(x, x > 1) == []",
        "context.list.exists_one(x, x > 1)",
        "context.list.exists(x, x + 1 > 1)",
        "context.a + 1 > 2",
        "[1, 2] == context.list",
        "size(action) == 7",
    ] {
        let expression = Expression::compile(source).unwrap();
        assert!(!expression.is_tree(), "{source}");
    }
}

#[test]
fn expressions_may_name_what_there_is() {
    for (root, table) in [
        ("action", Field::OF_ACTION),
        ("agent", Field::OF_AGENT),
        ("precedents", Field::OF_PRECEDENTS),
    ] {
        let (_, members) = ROOTS.iter().find(|(name, _)| *name == root).unwrap();
        let named: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        assert_eq!(members.unwrap(), named, "{root}");
    }
}
