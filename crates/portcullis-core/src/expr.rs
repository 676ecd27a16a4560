//! CEL expressions that answer yes or no.
//!
//! `cel` notices an unknown name only when it runs into it, so names are checked here when the
//! expression is compiled: a typing error in a policy must not wait for the event that meets it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SourceInfo};
use cel::objects::Key;
use cel::{Context, Env, IdedExpr, Program};
use serde_json::Value;

use crate::pack::diagnostic::{Place, suggestion};
use crate::scan;

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

/// Longer expressions are refused: `cel` recurses over chains such as `a + b + …`, and a stack that
/// overflows takes the whole process with it.
const MAX_BYTES: usize = 8 << 10;

/// For the same reason, expressions may not nest deeper. `&&` and `||` chains do not count: `cel`
/// balances them.
const MAX_DEPTH: usize = 64;

/// `cel` compiles the pattern of `matches` whenever it runs, so it has to be small.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExprError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Which characters of the expression, if one can tell.
    pub(crate) span: Option<Range<usize>>,
}

impl ExprError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            span: None,
        }
    }

    fn suggest<'n>(mut self, wrong: &str, valid: impl IntoIterator<Item = &'n str>) -> Self {
        self.help = Some(suggestion(wrong, valid));
        self
    }

    /// Where the error is, as far as the expression stands in the file as it is: a plain text, or
    /// one in quotes without escapes. Otherwise the place of the whole.
    pub(crate) fn place(&self, text: &str, whole: Place) -> Place {
        let added = whole.width.checked_sub(text.chars().count());
        match (&self.span, added) {
            (Some(part), Some(quotes @ (0 | 2))) if !text.contains('\n') => Place {
                line: whole.line,
                column: whole.column + quotes / 2 + part.start,
                width: part.len(),
            },
            _ => whole,
        }
    }
}

/// Why an expression gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A key that is not there.
    NoKey(String),
    /// Anything else, in words.
    Other(String),
}

/// A compiled expression.
pub(crate) struct Predicate {
    program: Program,
    loops: Loops,
    reads: Vec<(String, String)>,
}

/// What an expression repeats for each item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loops {
    /// Anything.
    pub(crate) any: bool,
    /// Another loop.
    pub(crate) nested: bool,
    /// A search by pattern; `cel` compiles the pattern each time.
    pub(crate) patterns: bool,
}

impl Predicate {
    /// Compiles and checks every name against the roots.
    pub(crate) fn compile(source: &str, roots: &[Root]) -> Result<Self, ExprError> {
        if source.len() > MAX_BYTES {
            return Err(ExprError::new(format!(
                "the expression is longer than {MAX_BYTES} bytes: use several rules"
            )));
        }
        let program = ENV
            .compile(source)
            .map_err(|errors| syntax_error(source, &errors))?;
        let mut check = Check {
            source: program.source_info(),
            roots,
            locals: Vec::new(),
            depth: 0,
            within_loop: false,
            loops: Loops::default(),
            reads: Vec::new(),
        };
        check.expr(program.expression())?;
        Ok(Self {
            loops: check.loops,
            reads: check.reads,
            program,
        })
    }

    /// Each root that it looks at, and which member of it; no member means the whole of it.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.reads.iter().map(|(root, member)| (&**root, &**member))
    }

    /// Whether the expression loops over lists. Without a loop it takes time linear in its input;
    /// with nested loops there is no telling.
    pub(crate) fn loops(&self) -> Loops {
        self.loops
    }

    /// What it is made of.
    pub(crate) fn expression(&self) -> &IdedExpr {
        self.program.expression()
    }

    /// Evaluates. Anything but a boolean is an error, and so is a missing key.
    pub(crate) fn holds(
        &self,
        variables: impl IntoIterator<Item = (&'static str, cel::Value)>,
    ) -> Result<bool, String> {
        self.holds_in(&context(variables))
            .map_err(|failure| match failure {
                Failure::NoKey(key) => {
                    format!("no key `{key}` in this event: send it, or guard it with has(…)")
                }
                Failure::Other(text) => text,
            })
    }

    /// The same, with variables that several expressions share.
    pub(crate) fn holds_in(&self, context: &Context<'_, '_>) -> Result<bool, Failure> {
        match self.program.execute(context) {
            Ok(cel::Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(Failure::Other(format!(
                "expected true or false, got {:?}",
                other.type_of()
            ))),
            Err(cel::ExecutionError::NoSuchKey(key)) => Err(Failure::NoKey(key.to_string())),
            Err(error) => Err(Failure::Other(error.to_string())),
        }
    }
}

/// The variables as expressions see them.
pub(crate) fn context(
    variables: impl IntoIterator<Item = (&'static str, cel::Value)>,
) -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::clone(&ENV));
    for (name, value) in variables {
        context.add_variable_from_value(name, value);
    }
    context
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

/// The first error of the parser, in words that need no grammar at hand.
fn syntax_error(source: &str, errors: &cel::ParseErrors) -> ExprError {
    let Some(first) = errors.errors.first() else {
        return ExprError::new("not a CEL expression");
    };
    if first.msg.contains("ecursion limit") {
        return too_deep();
    }
    let text = first
        .msg
        .strip_prefix("Syntax error: ")
        .unwrap_or(&first.msg);
    let text = text.split(" expecting ").next().unwrap_or(text);
    let unexpected = [
        "mismatched input '",
        "extraneous input '",
        "no viable alternative at input '",
        "token recognition error at: '",
    ]
    .into_iter()
    .find_map(|prefix| text.strip_prefix(prefix)?.strip_suffix('\''));
    let (what, span) = match unexpected {
        Some("<EOF>") => {
            let end = source.chars().count();
            ("it ends too early".to_owned(), Some(end..end + 1))
        }
        Some(token) => {
            let start = start_of(source, first.pos);
            let span = start.and_then(|start| span_of(source, &[start], token));
            (format!("unexpected `{token}`"), span)
        }
        None => (text.to_owned(), None),
    };
    ExprError {
        span,
        ..ExprError::new(format!("not a CEL expression: {what}"))
    }
}

/// The byte at a line and a column, both from 1; columns count characters.
fn start_of(source: &str, (line, column): (isize, isize)) -> Option<usize> {
    let line = usize::try_from(line).ok()?.checked_sub(1)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let mut lines = source.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line).map(str::len).sum();
    let (within, _) = lines.next()?.char_indices().nth(column)?;
    Some(before + within)
}

/// The characters of a word that starts at one of these bytes, if it does.
fn span_of(source: &str, starts: &[usize], word: &str) -> Option<Range<usize>> {
    let start = starts.iter().find(|start| {
        source
            .get(**start..)
            .is_some_and(|rest| rest.starts_with(word))
    })?;
    let start = source[..*start].chars().count();
    Some(start..start + word.chars().count())
}

fn too_deep() -> ExprError {
    ExprError::new("the expression is nested too deeply: use several rules")
}

struct Check<'c> {
    source: &'c SourceInfo,
    roots: &'c [Root],
    locals: Vec<String>,
    depth: usize,
    within_loop: bool,
    loops: Loops,
    reads: Vec<(String, String)>,
}

impl Check<'_> {
    fn expr(&mut self, expr: &IdedExpr) -> Result<(), ExprError> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        let result = self.inner(expr);
        self.depth -= 1;
        result
    }

    fn inner(&mut self, expr: &IdedExpr) -> Result<(), ExprError> {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => {
                self.root(name).map_err(|e| self.at(expr, name, e))?;
                self.reads.push((name.clone(), String::new()));
                Ok(())
            }
            Expr::Select(select) => {
                if let Expr::Ident(root) = &select.operand.expr
                    && !self.locals.contains(root)
                {
                    self.root(root)
                        .map_err(|e| self.at(&select.operand, root, e))?;
                    self.member(root, &select.field)
                        .map_err(|e| self.at(expr, &select.field, e))?;
                    self.reads.push((root.clone(), select.field.clone()));
                    return Ok(());
                }
                self.expr(&select.operand)
            }
            Expr::Call(call) => {
                function(call).map_err(|e| self.at(expr, &call.func_name, e))?;
                self.loops.patterns |= self.within_loop && call.func_name == "matches";
                if let Some(target) = &call.target {
                    self.expr(target)?;
                }
                call.args.iter().try_for_each(|arg| self.expr(arg))
            }
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
                self.loops.any = true;
                self.loops.nested |= self.within_loop;
                self.expr(&each.iter_range)?;
                let within_loop = std::mem::replace(&mut self.within_loop, true);
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
                self.within_loop = within_loop;
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

    /// The error with the place of the name that it is about: the name stands where the node starts,
    /// or next to the dot or the bracket that does.
    fn at(&self, expr: &IdedExpr, name: &str, error: ExprError) -> ExprError {
        let span = self.source.offset_for(expr.id).and_then(|(start, _)| {
            let start = start as usize;
            let starts = [start, start + 1, start.saturating_sub(name.len())];
            span_of(&self.source.source, &starts, name)
        });
        ExprError { span, ..error }
    }

    fn root(&self, name: &str) -> Result<(), ExprError> {
        if self.locals.iter().any(|local| local == name)
            || self.roots.iter().any(|(root, _)| *root == name)
        {
            return Ok(());
        }
        let error = ExprError::new(format!("unknown name `{name}`"));
        let owner = self
            .roots
            .iter()
            .find(|(_, members)| members.is_some_and(|members| members.contains(&name)));
        Err(match owner {
            Some((root, _)) => ExprError {
                help: Some(format!("did you mean `{root}.{name}`?")),
                ..error
            },
            None => error.suggest(name, self.roots.iter().map(|(root, _)| *root)),
        })
    }

    fn member(&self, root: &str, member: &str) -> Result<(), ExprError> {
        let known = self.roots.iter().find(|(name, _)| *name == root);
        match known {
            Some((_, Some(members))) if !members.contains(&member) => {
                Err(ExprError::new(format!("`{root}` has no `{member}`"))
                    .suggest(member, members.iter().copied()))
            }
            _ => Ok(()),
        }
    }
}

fn function(call: &CallExpr) -> Result<(), ExprError> {
    let name = call.func_name.as_str();
    let operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !operator && !FUNCTIONS.contains(&name) {
        return Err(ExprError::new(format!("unknown function `{name}`"))
            .suggest(name, FUNCTIONS.iter().copied()));
    }
    if name != "matches" {
        return Ok(());
    }
    let Some(Expr::Literal(LiteralValue::String(pattern))) = call.args.last().map(|arg| &arg.expr)
    else {
        return Err(ExprError::new(
            "matches(…) needs a pattern written out in the policy: \
             one that comes with the event is the sender's",
        ));
    };
    let pattern = pattern.inner();
    scan::compile(pattern, MAX_PATTERN_BYTES)
        .map(|_| ())
        .map_err(|error| ExprError::new(format!("pattern `{pattern}`: {error}")))
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
            ("event.text.matches('(')", "unclosed group"),
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
        let loops = |source| {
            let loops = Predicate::compile(source, ROOTS).unwrap().loops();
            (loops.any, loops.nested, loops.patterns)
        };
        for (source, expected) in [
            (
                "event.text.matches('x') && has(event.args)",
                (false, false, false),
            ),
            ("event.args.l.all(x, x > 1)", (true, false, false)),
            (
                "event.args.l.filter(x, x > 1).all(x, x > 1) && event.args.l.all(y, y > 1)",
                (true, false, false),
            ),
            (
                "event.args.l.all(x, x.exists(y, y == 1))",
                (true, true, false),
            ),
            ("event.args.l.all(x, x.matches('a'))", (true, false, true)),
        ] {
            assert_eq!(loops(source), expected, "{source}");
        }
    }
}
