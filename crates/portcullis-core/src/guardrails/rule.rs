//! When a guardrail is violated: both forms, compiled.

use std::cell::OnceCell;

use cel::Context;
use serde::Serialize;
use serde_json::Value;

use super::action::ProposedAction;
use super::condition::{Condition, History};
use super::lower;
use super::older::Clause;
use super::value::{Field, Val};
use crate::expr::{self, ExprError, Failure, Predicate, Root};

/// The name of what was decided in like cases.
const PRECEDENTS: &str = "precedents";

/// What expressions see.
pub(super) const ROOTS: &[Root] = &[
    (
        "action",
        Some(&[
            "description",
            "category",
            "stakes",
            "confidence",
            "context",
            "project",
            "scope",
        ]),
    ),
    ("context", None),
    ("agent", Some(&["id", "url", "claimed"])),
    (
        PRECEDENTS,
        Some(&[
            "count",
            "successes",
            "partials",
            "failures",
            "abandoned",
            "nearest",
            "nearestFailure",
        ]),
    ),
];

/// The most values in a context that an expression with a loop takes on, and the most bytes of text
/// in them: a search within each turn of a loop is two loops, and there must be an end to it.
const MAX_LOOP_VALUES: usize = 1000;
const MAX_LOOP_BYTES: usize = 64 << 10;

/// The most characters that are told of why `cel` gave no answer.
const MAX_FAILURE_CHARS: usize = 200;

/// When a guardrail is violated: all conditions match, and a requirement fails if there is any.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) expressions: Vec<Expression>,
    pub(super) conditions: Vec<Clause>,
    pub(super) requirements: Vec<Clause>,
}

/// A rule as its file has it, for the digest.
#[derive(Serialize)]
pub(super) struct Written {
    when: Vec<String>,
    conditions: Vec<String>,
    requirements: Vec<String>,
}

impl Rule {
    /// Ours: an expression that is true when the guardrail is violated.
    pub(super) fn when(expression: Expression) -> Self {
        Self {
            expressions: vec![expression],
            conditions: Vec::new(),
            requirements: Vec::new(),
        }
    }

    /// Whether the guardrail is violated, or why it cannot tell. A condition that does not match
    /// settles it, whatever became of the others.
    pub(super) fn violated(&self, asked: &Asked<'_>) -> Result<bool, String> {
        let mut trouble: Option<String> = None;
        for clause in &self.conditions {
            match clause.matches(asked.action) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => trouble = trouble.or_else(|| Some(error.to_string())),
            }
        }
        for expression in &self.expressions {
            match expression.holds(asked) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        let met = |clause: &Clause| clause.matches(asked.action).unwrap_or(false);
        if !self.requirements.is_empty() && self.requirements.iter().all(met) {
            return Ok(false);
        }
        trouble.map_or(Ok(true), Err)
    }

    /// Whether it takes precedents to tell.
    pub(super) fn reads_precedents(&self) -> bool {
        self.expressions.iter().any(|one| one.reads_precedents)
    }

    pub(super) fn written(&self) -> Written {
        let texts = |clauses: &[Clause]| clauses.iter().map(ToString::to_string).collect();
        Written {
            when: self.expressions.iter().map(|e| e.source.clone()).collect(),
            conditions: texts(&self.conditions),
            requirements: texts(&self.requirements),
        }
    }

    /// As people read it.
    pub(super) fn readable(&self) -> String {
        let Written {
            when,
            conditions: mut parts,
            requirements,
        } = self.written();
        let alone = parts.is_empty() && requirements.is_empty() && when.len() == 1;
        parts.extend(
            when.into_iter()
                .map(|when| if alone { when } else { format!("({when})") }),
        );
        if !requirements.is_empty() {
            parts.push(format!("!({})", requirements.join(" && ")));
        }
        parts.join(" && ")
    }
}

/// A CEL expression: as a tree if it can be one.
#[derive(Debug)]
pub(super) struct Expression {
    source: String,
    loops: bool,
    /// Whether it asks what was decided in like cases.
    pub(super) reads_precedents: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Tree(Condition),
    Cel(Predicate),
}

impl Expression {
    pub(super) fn compile(source: &str) -> Result<Self, ExprError> {
        let predicate = Predicate::compile(source, ROOTS)?;
        let loops = predicate.loops();
        if loops.nested {
            return Err(ExprError::new(
                "a loop within a loop: how long it takes would be up to the caller; \
                 have the agent send what the inner one finds out",
            ));
        }
        let reads_precedents = predicate.reads().any(|(root, _)| root == PRECEDENTS);
        let tree = lower::condition(predicate.expression());
        let linear = tree
            .as_ref()
            .is_some_and(|tree| tree.patterns_are_linear(false));
        if loops.patterns && !linear {
            return Err(ExprError::new(
                "`matches` within a loop would take too long here; it may search the items of \
                 `exists` and `all`",
            ));
        }
        Ok(Self {
            source: source.to_owned(),
            loops: loops.any,
            reads_precedents,
            body: match tree {
                Some(tree) => Body::Tree(tree),
                None => Body::Cel(predicate),
            },
        })
    }

    fn holds(&self, asked: &Asked<'_>) -> Result<bool, String> {
        if self.loops && asked.is_too_large() {
            return Err(format!(
                "the context has over {MAX_LOOP_VALUES} values or {MAX_LOOP_BYTES} bytes of text: \
                 send less"
            ));
        }
        match &self.body {
            Body::Tree(tree) => tree
                .holds(asked.action, asked.history)
                .map_err(|error| error.to_string()),
            Body::Cel(predicate) => {
                let answer = predicate.holds_in(asked.variables());
                answer.map_err(|failure| match failure {
                    Failure::NoKey(key) => format!("no key `{key}`: send it"),
                    // It repeats values, which are the caller's.
                    Failure::Other(text) => text.chars().take(MAX_FAILURE_CHARS).collect(),
                })
            }
        }
    }

    /// The tree, if that alone says whether it holds.
    pub(super) fn tree(&self) -> Option<&Condition> {
        match &self.body {
            Body::Tree(tree) if !self.loops => Some(tree),
            _ => None,
        }
    }

    /// Whether it is a tree, and `cel` is not needed.
    #[cfg(test)]
    pub(super) fn is_tree(&self) -> bool {
        matches!(self.body, Body::Tree(_))
    }
}

/// An action, and what is made of it once for all guardrails, if one needs it.
pub(super) struct Asked<'a> {
    action: &'a ProposedAction,
    history: History,
    variables: OnceCell<Context<'static, 'static>>,
    too_large: OnceCell<bool>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(action: &'a ProposedAction, history: History) -> Self {
        Self {
            action,
            history,
            variables: OnceCell::new(),
            too_large: OnceCell::new(),
        }
    }

    fn variables(&self) -> &Context<'static, 'static> {
        self.variables
            .get_or_init(|| expr::context(variables(self.action, self.history)))
    }

    /// Whether the context is more than a loop takes on.
    fn is_too_large(&self) -> bool {
        *self.too_large.get_or_init(|| {
            let mut left = (MAX_LOOP_VALUES, MAX_LOOP_BYTES);
            let mut members = self.action.context().iter();
            !members.all(|(key, value)| fits(key, value, &mut left))
        })
    }
}

/// Takes a value off what is left; whether there was enough.
fn fits(key: &str, value: &Value, left: &mut (usize, usize)) -> bool {
    let text = value.as_str().unwrap_or_default();
    let (Some(values), Some(bytes)) = (
        left.0.checked_sub(1),
        left.1.checked_sub(key.len() + text.len()),
    ) else {
        return false;
    };
    *left = (values, bytes);
    match value {
        Value::Array(items) => items.iter().all(|item| fits("", item, left)),
        Value::Object(members) => members.iter().all(|(key, value)| fits(key, value, left)),
        _ => true,
    }
}

pub(super) fn variables(
    action: &ProposedAction,
    history: History,
) -> Vec<(&'static str, cel::Value)> {
    let context = expr::map(
        action
            .context()
            .iter()
            .map(|(key, value)| (key.as_str(), expr::to_cel(value))),
    );
    let members = |table: &[(&'static str, Field)]| {
        expr::map(table.iter().map(|(name, field)| {
            let value = match field.of(action) {
                Val::Text(text) => text.into(),
                Val::Double(number) => cel::Value::Float(number),
                Val::Int(number) => cel::Value::Int(number),
                Val::Map(_) => context.clone(),
                _ => cel::Value::Null,
            };
            (*name, value)
        }))
    };
    let mut variables = vec![
        ("action", members(Field::OF_ACTION)),
        ("agent", members(Field::OF_AGENT)),
        ("context", context.clone()),
    ];
    // Without them a look at any is an error.
    if history == History::Known {
        variables.push((PRECEDENTS, members(Field::OF_PRECEDENTS)));
    }
    variables
}
