//! Conditions as a small tree that is evaluated on the action itself, without copying it.
//!
//! `cel` copies the action into values of its own and compiles every pattern anew each time it
//! runs; a thousand guardrails would cost a millisecond. The tree has CEL's meaning, errors
//! included; a property test holds the two together. What the tree cannot say stays with `cel`.

use std::cmp::Ordering;
use std::fmt;

use regex::Regex;

use super::action::ProposedAction;
use super::value::{Field, Val};

/// True, false, or an error.
#[derive(Debug)]
pub(super) enum Condition {
    Constant(bool),
    /// A value that must be a boolean.
    Is(Operand),
    Not(Box<Condition>),
    /// True if all are, false if one is, whatever the others are.
    All(Vec<Condition>),
    /// False if all are, true if one is, whatever the others are.
    Any(Vec<Condition>),
    Choose(Box<[Condition; 3]>),
    Equal(Operand, Operand),
    Unequal(Operand, Operand),
    Ordered(Operand, Order, Operand),
    /// Whether the path's last member is there.
    Has(Path),
    /// One of these literals.
    OneOf(Operand, Vec<Literal>),
    /// In a list, or a key of a map.
    In(Operand, Path),
    Text(Operand, TextTest),
    /// `exists` if true settles it, `all` if false does: for the items of a list or the keys of a map.
    Each {
        of: Path,
        settled_by: bool,
        body: Box<Condition>,
    },
}

/// How two values are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    pub(super) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

/// What is looked for in a text.
#[derive(Debug)]
pub(super) enum TextTest {
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    Matches(Regex),
}

#[derive(Debug)]
pub(super) enum Operand {
    Path(Path),
    Size(Path),
    Literal(Literal),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(String),
}

impl Literal {
    fn value(&self) -> Val<'_> {
        match self {
            Self::Null => Val::Null,
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(n) => Val::Int(*n),
            Self::UInt(n) => Val::UInt(*n),
            Self::Double(n) => Val::Double(*n),
            Self::Text(text) => Val::Text(text),
        }
    }
}

/// A part of the action, and the way from there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    pub(super) start: Start,
    pub(super) steps: Vec<PathStep>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Start {
    Field(Field),
    /// The item that a loop is at, by the loop's name for it.
    Item(String),
}

impl From<Start> for Path {
    fn from(start: Start) -> Self {
        Self {
            start,
            steps: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum PathStep {
    Key(String),
    Item(i64),
}

/// Why a condition has no answer. It borrows the condition, so that nothing is written down until
/// somebody wants to read it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trouble<'c> {
    /// This many steps of the path are there, and the next is not.
    Missing(&'c Path, usize),
    /// What is there after this many steps has no members, or none of that kind.
    NoMembers(&'c Path, usize, &'static str),
    /// A value of this kind where another is needed.
    Kind(&'c Operand, &'static str, &'static str),
    /// Precedents, which nobody has looked for yet.
    NoPrecedents,
    /// Two kinds that have no order.
    NoOrder(&'c Operand, &'static str, &'static str),
}

type Answer<'c> = Result<bool, Trouble<'c>>;

/// Whether the action's precedents are known. As long as they are not, what depends on them has no
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    Known,
    Unknown,
}

/// What paths start from.
#[derive(Clone, Copy)]
struct View<'c> {
    action: &'c ProposedAction,
    history: History,
    item: Val<'c>,
}

impl Condition {
    pub(super) fn holds<'c>(&'c self, action: &'c ProposedAction, history: History) -> Answer<'c> {
        self.seen(View {
            action,
            history,
            item: Val::Null,
        })
    }

    fn seen<'c>(&'c self, view: View<'c>) -> Answer<'c> {
        match self {
            Self::Constant(answer) => Ok(*answer),
            Self::Is(operand) => match operand.value(view)? {
                Val::Bool(answer) => Ok(answer),
                other => Err(Trouble::Kind(operand, other.kind(), "true or false")),
            },
            Self::Not(inner) => inner.seen(view).map(|answer| !answer),
            Self::All(parts) => settle(parts.iter().map(|part| part.seen(view)), false),
            Self::Any(parts) => settle(parts.iter().map(|part| part.seen(view)), true),
            Self::Each {
                of,
                settled_by,
                body,
            } => {
                let turn = |item| body.seen(View { item, ..view });
                match of.value(view)? {
                    Val::List(items) => {
                        settle(items.iter().map(|item| turn(item.into())), *settled_by)
                    }
                    Val::Map(members) => {
                        settle(members.keys().map(|key| turn(Val::Text(key))), *settled_by)
                    }
                    other => Err(Trouble::NoMembers(of, of.steps.len(), other.kind())),
                }
            }
            Self::Choose(parts) => {
                let [which, then, otherwise] = &**parts;
                if which.seen(view)? {
                    then.seen(view)
                } else {
                    otherwise.seen(view)
                }
            }
            Self::Equal(a, b) => Ok(a.value(view)?.equals(b.value(view)?)),
            Self::Unequal(a, b) => Ok(!a.value(view)?.equals(b.value(view)?)),
            Self::Ordered(a, order, b) => {
                let (left, right) = (a.value(view)?, b.value(view)?);
                let Some(found) = left.order(right) else {
                    return Err(match (a, b) {
                        (Operand::Literal(_), _) => Trouble::NoOrder(b, right.kind(), left.kind()),
                        _ => Trouble::NoOrder(a, left.kind(), right.kind()),
                    });
                };
                Ok(order.holds(found))
            }
            Self::Has(path) => path.is_there(view),
            Self::OneOf(operand, literals) => {
                let value = operand.value(view)?;
                Ok(literals.iter().any(|literal| literal.value().equals(value)))
            }
            Self::In(operand, path) => {
                let value = operand.value(view)?;
                let container = path.value(view)?;
                let held = container.holds(value);
                held.ok_or(match container {
                    Val::Map(_) => Trouble::Kind(operand, value.kind(), "a key"),
                    other => Trouble::NoMembers(path, path.steps.len(), other.kind()),
                })
            }
            Self::Text(operand, test) => match operand.value(view)? {
                Val::Text(text) => Ok(match test {
                    TextTest::Contains(needle) => text.contains(needle),
                    TextTest::StartsWith(start) => text.starts_with(start),
                    TextTest::EndsWith(end) => text.ends_with(end),
                    TextTest::Matches(regex) => regex.is_match(text),
                }),
                other => Err(Trouble::Kind(operand, other.kind(), "text")),
            },
        }
    }

    /// How dear it is, roughly.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Constant(_) => 0,
            Self::Is(_) | Self::Has(_) => 1,
            Self::Equal(..) | Self::Unequal(..) | Self::Ordered(..) => 2,
            Self::OneOf(_, literals) => 2 + literals.len(),
            Self::In(..) => 20,
            Self::Text(_, TextTest::Matches(_)) => 100,
            Self::Text(..) => 10,
            Self::Not(inner) => inner.cost(),
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::cost).sum(),
            Self::Choose(parts) => parts.iter().map(Self::cost).sum(),
            Self::Each { body, .. } => 100 + 10 * body.cost(),
        }
    }

    /// Whether a loop looks for patterns in its own items only: then it takes time linear in the
    /// action.
    pub(super) fn patterns_are_linear(&self, in_loop: bool) -> bool {
        match self {
            Self::Text(Operand::Path(path), TextTest::Matches(_)) => {
                !in_loop || matches!(path.start, Start::Item(_))
            }
            Self::Not(inner) => inner.patterns_are_linear(in_loop),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().all(|part| part.patterns_are_linear(in_loop))
            }
            Self::Choose(parts) => parts.iter().all(|part| part.patterns_are_linear(in_loop)),
            Self::Each { body, .. } => body.patterns_are_linear(true),
            _ => true,
        }
    }
}

/// CEL's `||` for `true`, its `&&` for `false`: one part that answers so settles it, and makes up
/// for errors of the others.
fn settle<'c>(parts: impl Iterator<Item = Answer<'c>>, by: bool) -> Answer<'c> {
    let mut trouble = None;
    for part in parts {
        match part {
            Ok(answer) if answer == by => return Ok(by),
            Ok(_) => {}
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    trouble.map_or(Ok(!by), Err)
}

impl Operand {
    fn value<'c>(&'c self, view: View<'c>) -> Result<Val<'c>, Trouble<'c>> {
        match self {
            Self::Literal(literal) => Ok(literal.value()),
            Self::Path(path) => path.value(view),
            Self::Size(path) => {
                let value = path.value(view)?;
                let size = value.size().and_then(|size| i64::try_from(size).ok());
                size.map(Val::Int).ok_or(Trouble::Kind(
                    self,
                    value.kind(),
                    "text, a list or an object",
                ))
            }
        }
    }
}

impl Path {
    fn value<'c>(&'c self, view: View<'c>) -> Result<Val<'c>, Trouble<'c>> {
        let mut steps = self.steps.iter().enumerate();
        let start = match &self.start {
            Start::Field(Field::Precedents(_)) if view.history == History::Unknown => {
                return Err(Trouble::NoPrecedents);
            }
            Start::Field(field) => field.of(view.action),
            Start::Item(_) => view.item,
        };
        steps.try_fold(start, |value, (index, step)| self.step(value, step, index))
    }

    fn step<'v>(
        &'v self,
        value: Val<'v>,
        step: &PathStep,
        index: usize,
    ) -> Result<Val<'v>, Trouble<'v>> {
        let found = match (value, step) {
            (Val::Map(members), PathStep::Key(key)) => members.get(key),
            (Val::List(items), PathStep::Item(at)) => {
                usize::try_from(*at).ok().and_then(|at| items.get(at))
            }
            // The keys of JSON are text.
            (Val::Map(_), PathStep::Item(_)) => None,
            (other, _) => return Err(Trouble::NoMembers(self, index, other.kind())),
        };
        found.map(Val::from).ok_or(Trouble::Missing(self, index))
    }

    fn is_there<'c>(&'c self, view: View<'c>) -> Answer<'c> {
        match self.value(view) {
            Ok(_) => Ok(true),
            Err(Trouble::Missing(_, index)) if index + 1 == self.steps.len() => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// The first steps of it, as expressions write them.
    fn written(&self, steps: usize) -> String {
        use fmt::Write;
        let mut text = match &self.start {
            Start::Field(field) => field.name().to_owned(),
            Start::Item(name) => name.clone(),
        };
        for step in self.steps.iter().take(steps) {
            // Writing to a String cannot fail.
            let _ = match step {
                PathStep::Key(key) => write!(text, ".{key}"),
                PathStep::Item(at) => write!(text, "[{at}]"),
            };
        }
        text
    }
}

impl fmt::Display for Trouble<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path, index) => {
                let within = path.written(*index);
                match path.steps.get(*index) {
                    Some(PathStep::Item(at)) => write!(f, "no item {at} in {within}: send it"),
                    Some(PathStep::Key(key)) => write!(f, "no key `{key}` in {within}: send it"),
                    None => write!(f, "no {within}: send it"),
                }
            }
            Self::NoMembers(path, index, kind) => {
                let within = path.written(*index);
                write!(f, "`{within}` is {kind}, and an object or a list is needed")
            }
            Self::NoPrecedents => f.write_str("it depends on precedents"),
            Self::Kind(operand, found, wanted) => {
                write!(f, "{operand} is {found}, and {wanted} is needed")
            }
            Self::NoOrder(operand, found, other) => {
                write!(f, "{operand} is {found}, and is compared with {other}")
            }
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Size(path) => {
                write!(f, "`{}`", path.written(path.steps.len()))
            }
            Self::Literal(_) => f.write_str("a value"),
        }
    }
}
