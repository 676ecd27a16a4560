//! From a compiled CEL expression to a [`Condition`], where the tree can say the same.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};

use super::condition::{Condition, Literal, Operand, Order, Path, PathStep, Start, TextTest};
use super::value::{Field, named};
use crate::scan;

/// Patterns were compiled once already, within a smaller limit.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The same as a condition, or `None` if only `cel` can tell.
pub(super) fn condition(expr: &IdedExpr) -> Option<Condition> {
    part(expr, None)
}

/// The name of the item that a loop is at, within a loop.
type Local<'e> = Option<&'e str>;

fn part(expr: &IdedExpr, local: Local<'_>) -> Option<Condition> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Boolean(answer)) => Some(Condition::Constant(*answer.inner())),
        Expr::Select(select) if select.test => {
            let operand = &select.operand;
            member(operand, &select.field, local).map(Condition::Has)
        }
        Expr::Call(call) => {
            let test = match &call.target {
                None => {
                    operator(call, local).or_else(|| function(call, call.args.first()?, 1, local))
                }
                Some(target) => function(call, target, 0, local),
            };
            test.or_else(|| operand(expr, local).map(Condition::Is))
        }
        Expr::Comprehension(each) if local.is_none() => repeated(each),
        _ => operand(expr, local).map(Condition::Is),
    }
}

/// `exists` and `all`, by the shape that the parser gives them.
fn repeated(each: &ComprehensionExpr) -> Option<Condition> {
    let is_result =
        |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if *name == each.accu_var);
    let Expr::Call(step) = &each.loop_step.expr else {
        return None;
    };
    let [result, body] = &*step.args else {
        return None;
    };
    let settled_by = match &*step.func_name {
        operators::LOGICAL_OR => true,
        operators::LOGICAL_AND => false,
        _ => return None,
    };
    let starts = matches!(
        &each.accu_init.expr,
        Expr::Literal(LiteralValue::Boolean(start)) if *start.inner() != settled_by
    );
    if !starts || !is_result(result) || !is_result(&each.result) || each.iter_var2.is_some() {
        return None;
    }
    Some(Condition::Each {
        of: path(&each.iter_range, None)?,
        settled_by,
        body: Box::new(part(body, Some(&each.iter_var))?),
    })
}

fn operator(call: &CallExpr, local: Local<'_>) -> Option<Condition> {
    match (&*call.func_name, &*call.args) {
        (operators::LOGICAL_NOT, [inner]) => Some(Condition::Not(Box::new(part(inner, local)?))),
        (operators::LOGICAL_AND, [_, _]) => {
            chain(call, operators::LOGICAL_AND, local).map(Condition::All)
        }
        (operators::LOGICAL_OR, [_, _]) => {
            chain(call, operators::LOGICAL_OR, local).map(Condition::Any)
        }
        (operators::CONDITIONAL, [which, then, otherwise]) => {
            let parts = [
                part(which, local)?,
                part(then, local)?,
                part(otherwise, local)?,
            ];
            Some(Condition::Choose(Box::new(parts)))
        }
        (operators::EQUALS, [a, b]) => {
            Some(Condition::Equal(operand(a, local)?, operand(b, local)?))
        }
        (operators::NOT_EQUALS, [a, b]) => {
            Some(Condition::Unequal(operand(a, local)?, operand(b, local)?))
        }
        (operators::IN, [value, container]) => {
            let value = operand(value, local)?;
            match &container.expr {
                Expr::List(list) if list.optional_indices.is_empty() => {
                    let literals = list.elements.iter().map(literal).collect::<Option<_>>()?;
                    Some(Condition::OneOf(value, literals))
                }
                _ => Some(Condition::In(value, path(container, local)?)),
            }
        }
        (name, [a, b]) => Some(Condition::Ordered(
            operand(a, local)?,
            order(name)?,
            operand(b, local)?,
        )),
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
fn chain(call: &CallExpr, operator: &str, local: Local<'_>) -> Option<Vec<Condition>> {
    fn collect(
        expr: &IdedExpr,
        operator: &str,
        local: Local<'_>,
        parts: &mut Vec<Condition>,
    ) -> Option<()> {
        match &expr.expr {
            Expr::Call(call) if call.func_name == operator && call.target.is_none() => call
                .args
                .iter()
                .try_for_each(|arg| collect(arg, operator, local, parts).ok_or(()))
                .ok(),
            _ => {
                parts.push(part(expr, local)?);
                Some(())
            }
        }
    }
    let mut parts = Vec::new();
    for arg in &call.args {
        collect(arg, operator, local, &mut parts)?;
    }
    parts.sort_by_key(Condition::cost);
    Some(parts)
}

/// A test of a text: a method of it, or `matches(text, pattern)`.
fn function(
    call: &CallExpr,
    target: &IdedExpr,
    skip: usize,
    local: Local<'_>,
) -> Option<Condition> {
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
    Some(Condition::Text(operand(target, local)?, test))
}

fn operand(expr: &IdedExpr, local: Local<'_>) -> Option<Operand> {
    if let Some(literal) = literal(expr) {
        return Some(Operand::Literal(literal));
    }
    if let Some(path) = path(expr, local) {
        return Some(Operand::Path(path));
    }
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    match (&*call.func_name, &call.target, &*call.args) {
        ("size", Some(sized), []) => path(sized, local).map(Operand::Size),
        ("size", None, [sized]) => path(sized, local).map(Operand::Size),
        _ => None,
    }
}

fn path(expr: &IdedExpr, local: Local<'_>) -> Option<Path> {
    match &expr.expr {
        Expr::Ident(name) if local == Some(name) => Some(Path::from(Start::Item(name.clone()))),
        Expr::Ident(name) if name == "context" => Some(Path::from(Start::Field(Field::Context))),
        Expr::Select(select) if !select.test => member(&select.operand, &select.field, local),
        Expr::Call(call) if call.func_name == operators::INDEX && call.target.is_none() => {
            let [operand, index] = &*call.args else {
                return None;
            };
            match literal(index)? {
                Literal::Text(key) => member(operand, &key, local),
                Literal::Int(at) => extended(operand, PathStep::Item(at), local),
                _ => None,
            }
        }
        _ => None,
    }
}

fn member(operand: &IdedExpr, name: &str, local: Local<'_>) -> Option<Path> {
    let table = match &operand.expr {
        // A loop's name for its item goes before ours.
        Expr::Ident(root) if local == Some(root) => None,
        Expr::Ident(root) if root == "action" => Some(Field::OF_ACTION),
        Expr::Ident(root) if root == "agent" => Some(Field::OF_AGENT),
        Expr::Ident(root) if root == "precedents" => Some(Field::OF_PRECEDENTS),
        _ => None,
    };
    match table {
        Some(table) => Some(Path::from(Start::Field(named(table, name)?))),
        None => extended(operand, PathStep::Key(name.to_owned()), local),
    }
}

fn extended(operand: &IdedExpr, step: PathStep, local: Local<'_>) -> Option<Path> {
    let mut path = path(operand, local)?;
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
