//! From a compiled CEL expression to a [`Condition`], where the tree can say the same.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::condition::{Condition, Literal, Operand, Order, Path, PathStep, TextTest};
use super::value::{Field, named};
use crate::scan;

/// Patterns were compiled once already, within a smaller limit.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The same as a condition, or `None` if only `cel` can tell.
pub(super) fn condition(expr: &IdedExpr) -> Option<Condition> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Boolean(answer)) => Some(Condition::Constant(*answer.inner())),
        Expr::Select(select) if select.test => {
            let operand = &select.operand;
            member(operand, &select.field).map(Condition::Has)
        }
        Expr::Call(call) => {
            let test = match &call.target {
                None => operator(call).or_else(|| function(call, call.args.first()?, 1)),
                Some(target) => function(call, target, 0),
            };
            test.or_else(|| operand(expr).map(Condition::Is))
        }
        _ => operand(expr).map(Condition::Is),
    }
}

fn operator(call: &CallExpr) -> Option<Condition> {
    match (&*call.func_name, &*call.args) {
        (operators::LOGICAL_NOT, [inner]) => Some(Condition::Not(Box::new(condition(inner)?))),
        (operators::LOGICAL_AND, [_, _]) => chain(call, operators::LOGICAL_AND).map(Condition::All),
        (operators::LOGICAL_OR, [_, _]) => chain(call, operators::LOGICAL_OR).map(Condition::Any),
        (operators::CONDITIONAL, [which, then, otherwise]) => {
            let parts = [condition(which)?, condition(then)?, condition(otherwise)?];
            Some(Condition::Choose(Box::new(parts)))
        }
        (operators::EQUALS, [a, b]) => Some(Condition::Equal(operand(a)?, operand(b)?)),
        (operators::NOT_EQUALS, [a, b]) => Some(Condition::Unequal(operand(a)?, operand(b)?)),
        (operators::IN, [value, container]) => {
            let value = operand(value)?;
            match &container.expr {
                Expr::List(list) if list.optional_indices.is_empty() => {
                    let literals = list.elements.iter().map(literal).collect::<Option<_>>()?;
                    Some(Condition::OneOf(value, literals))
                }
                _ => Some(Condition::In(value, path(container)?)),
            }
        }
        (name, [a, b]) => Some(Condition::Ordered(operand(a)?, order(name)?, operand(b)?)),
        _ => None,
    }
}

fn order(operator: &str) -> Option<Order> {
    match operator {
        operators::LESS => Some(Order::Less),
        operators::LESS_EQUALS => Some(Order::LessOrEqual),
        operators::GREATER => Some(Order::Greater),
        operators::GREATER_EQUALS => Some(Order::GreaterOrEqual),
        _ => None,
    }
}

/// The parts of a chain of one operator, the cheapest first: which of them settles it makes no
/// difference to the answer.
fn chain(call: &CallExpr, operator: &str) -> Option<Vec<Condition>> {
    fn collect(expr: &IdedExpr, operator: &str, parts: &mut Vec<Condition>) -> Option<()> {
        match &expr.expr {
            Expr::Call(call) if call.func_name == operator && call.target.is_none() => call
                .args
                .iter()
                .try_for_each(|arg| collect(arg, operator, parts).ok_or(()))
                .ok(),
            _ => {
                parts.push(condition(expr)?);
                Some(())
            }
        }
    }
    let mut parts = Vec::new();
    for arg in &call.args {
        collect(arg, operator, &mut parts)?;
    }
    parts.sort_by_key(Condition::cost);
    Some(parts)
}

/// A test of a text: a method of it, or `matches(text, pattern)`.
fn function(call: &CallExpr, target: &IdedExpr, skip: usize) -> Option<Condition> {
    let [argument] = call.args.get(skip..)? else {
        return None;
    };
    let test = match (&*call.func_name, literal(argument)?) {
        ("contains", Literal::Text(needle)) if skip == 0 => TextTest::Contains(needle),
        ("startsWith", Literal::Text(start)) if skip == 0 => TextTest::StartsWith(start),
        ("endsWith", Literal::Text(end)) if skip == 0 => TextTest::EndsWith(end),
        ("matches", Literal::Text(pattern)) => {
            TextTest::Matches(scan::compile(&pattern, MAX_PATTERN_BYTES).ok()?)
        }
        _ => return None,
    };
    Some(Condition::Text(operand(target)?, test))
}

fn operand(expr: &IdedExpr) -> Option<Operand> {
    if let Some(literal) = literal(expr) {
        return Some(Operand::Literal(literal));
    }
    if let Some(path) = path(expr) {
        return Some(Operand::Path(path));
    }
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    match (&*call.func_name, &call.target, &*call.args) {
        ("size", Some(sized), []) => path(sized).map(Operand::Size),
        ("size", None, [sized]) => path(sized).map(Operand::Size),
        _ => None,
    }
}

fn path(expr: &IdedExpr) -> Option<Path> {
    match &expr.expr {
        Expr::Ident(name) if name == "context" => Some(Path {
            start: Field::Context,
            steps: Vec::new(),
        }),
        Expr::Select(select) if !select.test => member(&select.operand, &select.field),
        Expr::Call(call) if call.func_name == operators::INDEX && call.target.is_none() => {
            let [operand, index] = &*call.args else {
                return None;
            };
            match literal(index)? {
                Literal::Text(key) => member(operand, &key),
                Literal::Int(at) => extended(operand, PathStep::Item(at)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn member(operand: &IdedExpr, name: &str) -> Option<Path> {
    let table = match &operand.expr {
        Expr::Ident(root) if root == "action" => Field::OF_ACTION,
        Expr::Ident(root) if root == "agent" => Field::OF_AGENT,
        _ => return extended(operand, PathStep::Key(name.to_owned())),
    };
    Some(Path {
        start: named(table, name)?,
        steps: Vec::new(),
    })
}

fn extended(operand: &IdedExpr, step: PathStep) -> Option<Path> {
    let mut path = path(operand)?;
    path.steps.push(step);
    Some(path)
}

fn literal(expr: &IdedExpr) -> Option<Literal> {
    match &expr.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Null => Some(Literal::Null),
            LiteralValue::Boolean(b) => Some(Literal::Bool(*b.inner())),
            LiteralValue::Int(n) => Some(Literal::Int(*n.inner())),
            LiteralValue::UInt(n) => Some(Literal::UInt(*n.inner())),
            LiteralValue::Double(n) => Some(Literal::Double(*n.inner())),
            LiteralValue::String(text) => Some(Literal::Text(text.inner().to_owned())),
            LiteralValue::Bytes(_) => None,
        },
        Expr::Call(call) if call.func_name == operators::NEGATE => match &*call.args {
            [number] => match literal(number)? {
                Literal::Int(n) => n.checked_neg().map(Literal::Int),
                Literal::Double(n) => Some(Literal::Double(-n)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
