//! The values that conditions look at, borrowed from the action, and how CEL compares them.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::action::ProposedAction;
use crate::memory::{Outcome, Precedents};

/// A value as CEL sees it: whole numbers are `int` wherever they fit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Val<'v> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(&'v str),
    List(&'v [Value]),
    Map(&'v Map<String, Value>),
}

impl<'v> From<&'v Value> for Val<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Self::Int(n),
                (None, Some(n)) => Self::UInt(n),
                (None, None) => Self::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::List(items),
            Value::Object(members) => Self::Map(members),
        }
    }
}

impl<'v> From<Option<&'v str>> for Val<'v> {
    fn from(text: Option<&'v str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl Val<'_> {
    /// For messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::UInt(_) | Self::Double(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }

    /// CEL's `==`: values of different kinds differ, numbers are equal across their types.
    pub(super) fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            // Texts of different lengths need not be read.
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b)
                        .all(|(a, b)| Val::from(a).equals(Val::from(b)))
            }
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.iter().all(|(key, a)| {
                        b.get(key)
                            .is_some_and(|b| Val::from(a).equals(Val::from(b)))
                    })
            }
            _ => self.order(other) == Some(Ordering::Equal),
        }
    }

    /// CEL's order; what has none is an error there.
    pub(super) fn order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(&b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::UInt(a), Self::UInt(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b),
            (Self::Int(a), Self::UInt(b)) => {
                Some(u64::try_from(a).map_or(Ordering::Less, |a| a.cmp(&b)))
            }
            (Self::UInt(a), Self::Int(b)) => {
                Some(i64::try_from(a).map_or(Ordering::Greater, |a| a.cmp(&b)))
            }
            (Self::Int(a), Self::Double(b)) => (a as f64).partial_cmp(&b),
            (Self::UInt(a), Self::Double(b)) => (a as f64).partial_cmp(&b),
            (Self::Double(a), Self::Int(b)) => a.partial_cmp(&(b as f64)),
            (Self::Double(a), Self::UInt(b)) => a.partial_cmp(&(b as f64)),
            _ => None,
        }
    }

    /// CEL's `size`.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Self::Text(text) => Some(text.chars().count()),
            Self::List(items) => Some(items.len()),
            Self::Map(members) => Some(members.len()),
            _ => None,
        }
    }

    /// CEL's `in`, with this as the container.
    pub(super) fn holds(self, value: Val<'_>) -> Option<bool> {
        match (self, value) {
            (Self::List(items), value) => {
                Some(items.iter().any(|item| Val::from(item).equals(value)))
            }
            (Self::Map(members), Val::Text(key)) => Some(members.contains_key(key)),
            (Self::Map(_), Val::Null | Val::List(_) | Val::Map(_)) => None,
            // The keys of JSON are text.
            (Self::Map(_), _) => Some(false),
            _ => None,
        }
    }
}

/// A part of the action that has a name of its own in expressions and older conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Description,
    Category,
    Stakes,
    Confidence,
    Project,
    Scope,
    Context,
    AgentId,
    AgentClaimed,
    AgentUrl,
    Precedents(Tally),
}

/// What expressions ask about precedents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tally {
    Count,
    Of(Outcome),
    Nearest,
    NearestFailure,
}

impl Field {
    /// The members of `action`.
    pub(super) const OF_ACTION: &[(&str, Self)] = &[
        ("description", Self::Description),
        ("category", Self::Category),
        ("stakes", Self::Stakes),
        ("confidence", Self::Confidence),
        ("context", Self::Context),
        ("project", Self::Project),
        ("scope", Self::Scope),
    ];

    /// The members of `agent`.
    pub(super) const OF_AGENT: &[(&str, Self)] = &[
        ("id", Self::AgentId),
        ("url", Self::AgentUrl),
        ("claimed", Self::AgentClaimed),
    ];

    /// The members of `precedents`.
    pub(super) const OF_PRECEDENTS: &[(&str, Self)] = &[
        ("count", Self::Precedents(Tally::Count)),
        ("successes", Self::Precedents(Tally::Of(Outcome::Success))),
        ("partials", Self::Precedents(Tally::Of(Outcome::Partial))),
        ("failures", Self::Precedents(Tally::Of(Outcome::Failure))),
        ("abandoned", Self::Precedents(Tally::Of(Outcome::Abandoned))),
        ("nearest", Self::Precedents(Tally::Nearest)),
        ("nearestFailure", Self::Precedents(Tally::NearestFailure)),
    ];

    /// As expressions write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Description => "action.description",
            Self::Category => "action.category",
            Self::Stakes => "action.stakes",
            Self::Confidence => "action.confidence",
            Self::Project => "action.project",
            Self::Scope => "action.scope",
            Self::Context => "context",
            Self::AgentId => "agent.id",
            Self::AgentClaimed => "agent.claimed",
            Self::AgentUrl => "agent.url",
            Self::Precedents(Tally::Count) => "precedents.count",
            Self::Precedents(Tally::Of(Outcome::Success)) => "precedents.successes",
            Self::Precedents(Tally::Of(Outcome::Partial)) => "precedents.partials",
            Self::Precedents(Tally::Of(Outcome::Failure)) => "precedents.failures",
            Self::Precedents(Tally::Of(Outcome::Abandoned)) => "precedents.abandoned",
            Self::Precedents(Tally::Nearest) => "precedents.nearest",
            Self::Precedents(Tally::NearestFailure) => "precedents.nearestFailure",
        }
    }

    /// What the action has there; `null` for nothing.
    pub(super) fn of(self, action: &ProposedAction) -> Val<'_> {
        match self {
            Self::Description => Val::Text(action.description()),
            Self::Category => action.category().into(),
            Self::Stakes => Val::Text(action.stakes().as_str()),
            Self::Confidence => action.confidence().map_or(Val::Null, Val::Double),
            Self::Project => action.project().into(),
            Self::Scope => action.scope().into(),
            Self::Context => Val::Map(action.context()),
            Self::AgentId => action.agent().id.as_deref().into(),
            Self::AgentClaimed => action.agent().claimed.as_deref().into(),
            Self::AgentUrl => action.agent().url.as_deref().into(),
            Self::Precedents(tally) => tally.of(action.precedents()),
        }
    }
}

impl Tally {
    fn of(self, precedents: &Precedents) -> Val<'static> {
        match self {
            Self::Count => Val::Int(precedents.as_slice().len() as i64),
            Self::Of(outcome) => Val::Int(precedents.count(outcome) as i64),
            Self::Nearest => Val::Double(precedents.nearest()),
            Self::NearestFailure => Val::Double(precedents.nearest_with(Outcome::Failure)),
        }
    }
}

/// A member of a table of names.
pub(super) fn named(table: &[(&str, Field)], name: &str) -> Option<Field> {
    let (_, field) = table.iter().find(|(known, _)| *known == name)?;
    Some(*field)
}

/// A field as older files and messages name it: a member of the action, or else a key of the
/// context, exactly as written; `a.b` is the key `a.b` or else `b` within `a`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Name {
    pub(super) written: String,
    own: Option<Field>,
}

impl Name {
    pub(super) fn new(written: &str) -> Self {
        let own = if written == "context" {
            None
        } else {
            named(Field::OF_ACTION, written)
        };
        Self {
            written: written.to_owned(),
            own,
        }
    }

    /// A name in a message, which may also be written as expressions write it.
    pub(super) fn in_message(written: &str) -> Self {
        let own = match written.split_once('.') {
            Some(("action", member)) => named(Field::OF_ACTION, member),
            Some(("agent", member)) => named(Field::OF_AGENT, member),
            Some(("precedents", member)) => named(Field::OF_PRECEDENTS, member),
            _ => None,
        };
        let own = own.filter(|field| *field != Field::Context);
        if own.is_some() {
            return Self {
                written: written.to_owned(),
                own,
            };
        }
        let bare = written
            .strip_prefix("action.")
            .unwrap_or(written)
            .strip_prefix("context.");
        Self::new(bare.unwrap_or(written))
    }

    /// The member of the action that it is, if it is one.
    pub(super) fn own(&self) -> Option<Field> {
        self.own
    }

    /// Whether it is this member of the action.
    pub(super) fn is(&self, field: Field) -> bool {
        self.own == Some(field)
    }

    /// What the action has there; a `null` is nothing.
    pub(super) fn of<'v>(&self, action: &'v ProposedAction) -> Option<Val<'v>> {
        let found = match self.own {
            Some(field) => field.of(action),
            None => Val::from(self.in_context(action.context())?),
        };
        (!matches!(found, Val::Null)).then_some(found)
    }

    fn in_context<'v>(&self, context: &'v Map<String, Value>) -> Option<&'v Value> {
        if let Some(found) = context.get(&self.written) {
            return Some(found);
        }
        let (first, rest) = self.written.split_once('.')?;
        let first = context.get(first)?;
        rest.split('.').try_fold(first, |value, key| value.get(key))
    }
}
