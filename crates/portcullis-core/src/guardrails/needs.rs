//! What a guardrail cannot be violated without, so that most need not be looked at.
//!
//! Of a thousand guardrails a dozen have anything to do with an action. Most name something that the
//! action must have before they can be violated: a key of the context, a category, stakes. What the
//! action has is looked up once, and a guardrail whose need is not met is known to be kept without
//! being evaluated. Needs are only taken where an unmet one makes the whole rule false, whatever the
//! rest of it is, errors included.

use std::collections::HashMap;

use super::Compiled;
use super::action::ProposedAction;
use super::condition::{Condition, Literal, Operand, Path, PathStep, Start};
use super::older::{Clause, Scalar, Test};
use super::rule::Rule;
use super::value::Field;

/// Something that an action has or has not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Need {
    /// A key of the context.
    Key(String),
    Category(String),
    Stakes(String),
}

/// Which guardrails are to be looked at for an action.
#[derive(Debug)]
pub(super) struct Needs {
    /// In the order of the guardrails. All that most of them cost.
    gates: Vec<Gate>,
    keys: HashMap<String, usize>,
    categories: HashMap<String, usize>,
    stakes: HashMap<String, usize>,
    count: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) enabled: bool,
    pub(super) scoped: bool,
    need: Option<usize>,
}

/// The needs that an action meets.
pub(super) struct Met(Vec<bool>);

impl Met {
    /// Whether the guardrail behind this gate may be violated.
    pub(super) fn opens(&self, gate: Gate) -> bool {
        gate.need.is_none_or(|need| self.0[need])
    }
}

impl Needs {
    pub(super) fn of(compiled: &[Compiled]) -> Self {
        let all: Vec<Vec<Need>> = compiled.iter().map(|one| needs(&one.rule)).collect();
        let mut shared: HashMap<&Need, usize> = HashMap::new();
        for need in all.iter().flatten() {
            *shared.entry(need).or_default() += 1;
        }
        let mut index = Self {
            gates: Vec::with_capacity(compiled.len()),
            keys: HashMap::new(),
            categories: HashMap::new(),
            stakes: HashMap::new(),
            count: 0,
        };
        for (one, needs) in compiled.iter().zip(&all) {
            // The fewer guardrails name it, the fewer actions have it.
            let rarest = needs.iter().min_by_key(|need| shared.get(*need));
            let need = rarest.map(|need| index.number(need));
            index.gates.push(Gate {
                enabled: one.guardrail.enabled,
                scoped: !one.guardrail.scope.is_empty(),
                need,
            });
        }
        index
    }

    fn number(&mut self, need: &Need) -> usize {
        let (table, name) = match need {
            Need::Key(name) => (&mut self.keys, name),
            Need::Category(name) => (&mut self.categories, name),
            Need::Stakes(name) => (&mut self.stakes, name),
        };
        let number = *table.entry(name.clone()).or_insert(self.count);
        self.count = self.count.max(number + 1);
        number
    }

    pub(super) fn gates(&self) -> &[Gate] {
        &self.gates
    }

    pub(super) fn met(&self, action: &ProposedAction) -> Met {
        let mut met = vec![false; self.count];
        let keys = action.context().keys().filter_map(|key| self.keys.get(key));
        let category = action.category().and_then(|name| self.categories.get(name));
        let stakes = self.stakes.get(action.stakes().as_str());
        for need in keys.chain(category).chain(stakes) {
            met[*need] = true;
        }
        Met(met)
    }
}

fn needs(rule: &Rule) -> Vec<Need> {
    let clauses = rule.conditions.iter().filter_map(of_clause);
    let trees = rule.expressions.iter().filter_map(|one| one.tree());
    let conjuncts = trees.flat_map(|tree| match tree {
        Condition::All(parts) => parts.as_slice(),
        tree => std::slice::from_ref(tree),
    });
    clauses.chain(conjuncts.filter_map(of_conjunct)).collect()
}

/// A condition on an absent field does not match.
fn of_clause(clause: &Clause) -> Option<Need> {
    let text = match &clause.test {
        Test::Equals(values) => match values.as_slice() {
            [Scalar::Text(text)] => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    match clause.field.own() {
        Some(Field::Category) => text.map(Need::Category),
        Some(Field::Stakes) => text.map(Need::Stakes),
        Some(_) => None,
        // With a dot it may also be within another.
        None if clause.field.written.contains('.') => None,
        None => Some(Need::Key(clause.field.written.clone())),
    }
}

fn of_conjunct(condition: &Condition) -> Option<Need> {
    match condition {
        Condition::Has(Path {
            start: Start::Field(Field::Context),
            steps,
        }) => match steps.as_slice() {
            [PathStep::Key(key)] => Some(Need::Key(key.clone())),
            _ => None,
        },
        Condition::Equal(Operand::Path(path), Operand::Literal(Literal::Text(text)))
        | Condition::Equal(Operand::Literal(Literal::Text(text)), Operand::Path(path))
            if path.steps.is_empty() =>
        {
            match path.start {
                Start::Field(Field::Category) => Some(Need::Category(text.clone())),
                Start::Field(Field::Stakes) => Some(Need::Stakes(text.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::{Guardrails, ProposedAction, Source, load};
    use crate::guardrails::condition::History;
    use crate::guardrails::rule::Asked;

    const RULES: &[&str] = &[
        "when: has(context.a) && context.a == true",
        "when: has(action.context.b) && context.c > 1",
        "when: context.a == true",
        "when: action.category == 'x' && context.missing == 1",
        "when: \"'y' == action.category || has(context.a)\"",
        "when: action.stakes == 'high' && !has(context.b)",
        "when: has(context.a) && context.list.exists(i, i == 1)",
        "when: has(context.a.b) && has(context.a)",
        "condition_a: true\n  requires_b: true",
        "condition_category: x\n  condition_c: '< 2'",
        "condition_stakes: [high, low]\n  requires_a.b: 1",
        "condition_a.b: 1",
        "condition: {category: y, stakes: high}\n  scope: shop",
        "condition_category: '!= x'\n  enabled: false",
        "requires_a: true",
    ];

    fn guardrails(rules: &[&str]) -> Guardrails {
        let entry = |(n, rule)| format!("- id: g{n}\n  {rule}\n");
        let text: String = rules.iter().enumerate().map(entry).collect();
        let source = Source {
            file: "needs.yaml",
            text: &text,
        };
        load(&[source]).unwrap().guardrails
    }

    fn value() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(false),
            json!(1),
            json!(3),
            json!("x"),
            json!({"b": 1}),
            json!([1]),
        ])
    }

    proptest! {
        /// What is passed over would not have been violated.
        #[test]
        fn needs_change_no_verdict(
            context in prop::collection::btree_map("a|b|c|list|project", value(), 0..4),
            category in prop::option::of("x|y|z"),
            stakes in "low|medium|high",
        ) {
            let context: serde_json::Map<_, _> = context.into_iter().filter(|(key, value)| key != "project" || value.is_string()).collect();
            let params = json!({"action": {
                "description": "d", "category": category, "stakes": stakes, "context": context,
            }});
            let action = ProposedAction::from_params(params.as_object().unwrap()).unwrap();
            let guardrails = guardrails(RULES);
            let verdict = guardrails.check(&action);
            let found: Vec<&str> = verdict.violations.iter().map(|one| &*one.guardrail_id).collect();
            let asked = Asked::new(&action, History::Known);
            let expected: Vec<&str> = guardrails
                .compiled
                .iter()
                .filter(|one| one.guardrail.enabled && one.guardrail.applies_to(&action))
                .filter(|one| !matches!(one.rule.violated(&asked), Ok(false)))
                .map(|one| &*one.guardrail.id)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn most_rules_have_a_need() {
        let with = guardrails(RULES);
        let needless: Vec<usize> = (0..RULES.len())
            .filter(|n| with.needs.gates()[*n].need.is_none())
            .collect();
        // Absent keys are errors there, either part is enough, a loop may be too long, or something may be missing.
        assert_eq!(needless, [2, 4, 6, 10, 11, 13, 14]);
    }
}
