//! CEL expressions that answer yes or no.
//!
//! `cel` notices an unknown name only when it runs into it, so names are checked here when the
//! expression is compiled: a typing error in a policy must not wait for the event that meets it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};
use cel::objects::Key;
use cel::{Context, Env, IdedExpr, Program};
use serde_json::Value;

use crate::pack::diagnostic::suggestion;

/// A root variable, and the members it has if they are known.
pub(crate) type Root = (&'static str, Option<&'static [&'static str]>);

const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "dyn",
    "type",
];

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExprError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl ExprError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }
}

/// A compiled expression.
pub(crate) struct Predicate {
    program: Program,
    loops: bool,
}

impl Predicate {
    /// Compiles and checks every name against the roots.
    pub(crate) fn compile(source: &str, roots: &[Root]) -> Result<Self, ExprError> {
        let program = ENV.compile(source).map_err(|errors| {
            let first = errors.errors.first();
            ExprError::new(first.map_or_else(
                || "not a CEL expression".to_owned(),
                |error| {
                    format!(
                        "not a CEL expression: column {}: {}",
                        error.pos.1, error.msg
                    )
                },
            ))
        })?;
        let mut check = Check {
            roots,
            locals: Vec::new(),
            loops: false,
        };
        check.expr(program.expression())?;
        Ok(Self {
            loops: check.loops,
            program,
        })
    }

    /// Whether the expression loops over lists. Without a loop it takes time linear in its input;
    /// with nested loops there is no telling.
    pub(crate) fn loops(&self) -> bool {
        self.loops
    }

    /// Evaluates. Anything but a boolean is an error, and so is a missing key.
    pub(crate) fn holds(
        &self,
        variables: impl IntoIterator<Item = (&'static str, cel::Value)>,
    ) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        for (name, value) in variables {
            context.add_variable_from_value(name, value);
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("expected true or false, got {:?}", other.type_of())),
            Err(cel::ExecutionError::NoSuchKey(key)) => Err(format!(
                "no key `{key}` in this event: send it, or guard it with has(…)"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl std::fmt::Debug for Predicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Predicate")
            .field("loops", &self.loops)
            .finish_non_exhaustive()
    }
}

/// JSON as CEL sees it: whole numbers are `int` wherever they fit, so that `x > 5` works.
pub(crate) fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(b) => cel::Value::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => cel::Value::Int(n),
            (None, Some(n)) => cel::Value::UInt(n),
            (None, None) => cel::Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(members) => map(members.iter().map(|(k, v)| (k.as_str(), to_cel(v)))),
    }
}

/// A CEL map with text keys.
pub(crate) fn map<'k>(members: impl IntoIterator<Item = (&'k str, cel::Value)>) -> cel::Value {
    let map: HashMap<Key, cel::Value> = members
        .into_iter()
        .map(|(key, value)| (Key::from(key.to_owned()), value))
        .collect();
    map.into()
}

struct Check<'c> {
    roots: &'c [Root],
    locals: Vec<String>,
    loops: bool,
}

impl Check<'_> {
    fn expr(&mut self, expr: &IdedExpr) -> Result<(), ExprError> {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.root(name),
            Expr::Select(select) => {
                if let Expr::Ident(root) = &select.operand.expr
                    && !self.locals.contains(root)
                {
                    self.member(root, &select.field)?;
                }
                self.expr(&select.operand)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.expr(item)),
            Expr::Map(map) => map
                .entries
                .iter()
                .try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(literal) => Err(ExprError::new(format!(
                "`{}` is not a type that policies have",
                literal.type_name
            ))),
            Expr::Comprehension(each) => {
                self.loops = true;
                self.expr(&each.iter_range)?;
                let outer = self.locals.len();
                self.locals.push(each.iter_var.clone());
                self.locals.extend(each.iter_var2.clone());
                self.locals.push(each.accu_var.clone());
                let inner = [
                    &each.accu_init,
                    &each.loop_cond,
                    &each.loop_step,
                    &each.result,
                ]
                .into_iter()
                .try_for_each(|part| self.expr(part));
                self.locals.truncate(outer);
                inner
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), ExprError> {
        match entry {
            EntryExpr::StructField(field) => self.expr(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.expr(&entry.key)?;
                self.expr(&entry.value)
            }
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<(), ExprError> {
        let name = call.func_name.as_str();
        let operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !operator && !FUNCTIONS.contains(&name) {
            return Err(ExprError {
                message: format!("unknown function `{name}`"),
                help: Some(suggestion(name, FUNCTIONS.iter().copied())),
            });
        }
        if name == "matches" {
            let Some(Expr::Literal(LiteralValue::String(pattern))) =
                call.args.last().map(|arg| &arg.expr)
            else {
                return Err(ExprError::new(
                    "matches(…) needs a pattern written out in the policy: \
                     one that comes with the event is the sender's",
                ));
            };
            regex::Regex::new(pattern.inner()).map_err(|_| {
                ExprError::new(format!("`{}` is not a regular expression", pattern.inner()))
            })?;
        }
        if let Some(target) = &call.target {
            self.expr(target)?;
        }
        call.args.iter().try_for_each(|arg| self.expr(arg))
    }

    fn root(&self, name: &str) -> Result<(), ExprError> {
        if self.locals.iter().any(|local| local == name)
            || self.roots.iter().any(|(root, _)| *root == name)
        {
            return Ok(());
        }
        Err(ExprError {
            message: format!("unknown name `{name}`"),
            help: Some(suggestion(name, self.roots.iter().map(|(root, _)| *root))),
        })
    }

    fn member(&self, root: &str, member: &str) -> Result<(), ExprError> {
        let known = self.roots.iter().find(|(name, _)| *name == root);
        match known {
            Some((_, Some(members))) if !members.contains(&member) => Err(ExprError {
                message: format!("`{root}` has no `{member}`"),
                help: Some(suggestion(member, members.iter().copied())),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROOTS: &[Root] = &[("event", Some(&["text", "args"])), ("context", None)];

    fn holds(source: &str, event: &Value) -> Result<bool, String> {
        Predicate::compile(source, ROOTS)
            .map_err(|error| format!("{} | {}", error.message, error.help.unwrap_or_default()))?
            .holds([("event", to_cel(event)), ("context", to_cel(&json!({})))])
    }

    #[test]
    fn expressions_answer() {
        let event = json!({"text": "hello", "args": {"n": 5, "big": 18_446_744_073_709_551_615u64, "f": 1.5, "list": [1, 2]}});
        for source in [
            "event.text.startsWith('he')",
            "event.args.n > 4 && event.args.n == 5",
            "event.args.f < 2.0",
            "event.args.list.exists(x, x == 2)",
            "!has(event.args.nothing)",
            "event.text.matches('^h.*o$')",
            "size(event.args.list) == 2",
            "'n' in event.args",
        ] {
            assert_eq!(holds(source, &event), Ok(true), "{source}");
        }
    }

    #[test]
    fn mistakes_are_found_before_any_event() {
        for (source, expected) in [
            (
                "evnt.text == ''",
                "unknown name `evnt` | did you mean `event`?",
            ),
            (
                "event.txt == ''",
                "`event` has no `txt` | did you mean `text`?",
            ),
            (
                "event.text.startswith('a')",
                "unknown function `startswith` | did you mean `startsWith`?",
            ),
            ("event.text ==", "not a CEL expression"),
            (
                "event.text.matches(event.text)",
                "needs a pattern written out",
            ),
            ("event.text.matches('(')", "not a regular expression"),
            ("[1].all(x, y > 1)", "unknown name `y`"),
            ("has(event.txt)", "`event` has no `txt`"),
            ("Foo{a: 1} == 1", "not a type"),
        ] {
            let error = holds(source, &json!({})).unwrap_err();
            assert!(error.contains(expected), "{source}: {error}");
        }
    }

    #[test]
    fn failures_say_what_to_send() {
        let error = holds("event.args.path == 'x'", &json!({"text": "", "args": {}})).unwrap_err();
        assert!(error.contains("no key `path`"), "{error}");
        let error = holds("event.text", &json!({"text": "x", "args": {}})).unwrap_err();
        assert!(error.contains("expected true or false"), "{error}");
    }

    #[test]
    fn loops_are_noticed() {
        let compile = |source| Predicate::compile(source, ROOTS).unwrap().loops();
        assert!(compile("event.args.list.all(x, x > 1)"));
        assert!(!compile("event.text.contains('x') && has(event.args)"));
    }
}
