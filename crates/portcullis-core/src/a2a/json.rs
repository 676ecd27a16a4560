//! JSON that borrows from the text it was read from, and its limits.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Serialize, Serializer};
use serde_json::Number;

use super::convert::Limits;
use super::error::ConvertError;
use crate::redact::Path;

/// A JSON value. The members of its objects are in the order of their names' bytes, and each is there once.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Json<'a> {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Reads a text to its end.
    ///
    /// What is not JSON at all is said first, wherever it is; then what is too deep or too long.
    pub(super) fn parse(text: &'a str, limits: &Limits) -> Result<Self, ConvertError> {
        if text.starts_with('\u{feff}') {
            let message = "it begins with a byte order mark: leave that out".to_owned();
            return Err(ConvertError::NotJson { message });
        }
        let found = OnceCell::new();
        let seed = Seed {
            limits,
            violation: &found,
            place: &Path::Root,
            depth: 0,
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = seed.deserialize(&mut reader);
        let value = value.and_then(|value| reader.end().map(|()| value));
        let value = value.map_err(|error| ConvertError::NotJson {
            message: error.to_string(),
        })?;
        match found.into_inner() {
            None => Ok(value),
            Some(violation) => Err(violation),
        }
    }

    /// The member of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let at = members.binary_search_by(|(member, _)| (**member).cmp(name));
        at.ok().map(|at| &members[at].1)
    }

    /// Takes the member out of an object.
    pub(super) fn take(&mut self, name: &str) -> Option<Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let at = members.binary_search_by(|(member, _)| (**member).cmp(name));
        at.ok().map(|at| std::mem::take(&mut members[at].1))
    }

    /// The text, if it is one.
    pub(super) fn into_string(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Sorts every array whose items are all strings, at every depth.
    pub(super) fn sort_lists(&mut self) {
        match self {
            Self::Array(items) => {
                let mut texts = items.iter();
                if texts.all(|item| matches!(item, Self::String(_))) {
                    // Equal texts cannot be told apart.
                    items.sort_unstable_by(|a, b| match (a, b) {
                        (Self::String(a), Self::String(b)) => a.cmp(b),
                        _ => std::cmp::Ordering::Equal,
                    });
                } else {
                    items.iter_mut().for_each(Self::sort_lists);
                }
            }
            Self::Object(members) => members.iter_mut().for_each(|(_, value)| value.sort_lists()),
            _ => {}
        }
    }

    /// What it is, for people.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Seed<'s> {
    limits: &'s Limits,
    /// The first limit that was overrun. From then on values are read over, so that the rest is still known to be
    /// JSON, but nothing is kept.
    violation: &'s OnceCell<ConvertError>,
    place: &'s Path<'s>,
    /// How many arrays and objects it lies in.
    depth: usize,
}

impl Seed<'_> {
    fn is_violated(&self) -> bool {
        self.violation.get().is_some()
    }

    /// Whether an array or object may be here.
    fn enter(&self) -> bool {
        if self.depth < self.limits.max_depth() {
            return true;
        }
        let limit = self.limits.max_depth();
        self.violation.get_or_init(|| ConvertError::TooDeep {
            path: self.place.short_pointer(),
            limit,
        });
        false
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        // The reader refuses what is not finite.
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::new();
        if self.enter() {
            while let Some(item) = items.next_element_seed(Seed {
                place: &Path::Item(self.place, list.len()),
                depth: self.depth + 1,
                ..self
            })? {
                let limit = self.limits.max_array_length();
                if list.len() == limit {
                    self.violation.get_or_init(|| ConvertError::ArrayTooLong {
                        path: self.place.short_pointer(),
                        limit,
                    });
                }
                if self.is_violated() {
                    break;
                }
                list.push(item);
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut object: Vec<(Cow<'de, str>, Json<'de>)> = Vec::new();
        if self.enter() {
            while let Some(name) = members.next_key_seed(Name)? {
                let value = members.next_value_seed(Seed {
                    place: &Path::Member(self.place, &name),
                    depth: self.depth + 1,
                    ..self
                })?;
                if self.is_violated() {
                    break;
                }
                object.push((name, value));
            }
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        object.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        // Beyond a limit there is no saying whether a name comes twice.
        let mut pairs = object.windows(2);
        if !self.is_violated()
            && let Some(twice) = pairs.find(|pair| pair[0].0 == pair[1].0)
        {
            let place = Path::Member(self.place, &twice[0].0);
            let path = place.short_pointer();
            return Err(A::Error::custom(format!(
                "`{path}` is there twice: readers would disagree about which counts"
            )));
        }
        Ok(Json::Object(object))
    }
}

/// Reads the name of a member.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
