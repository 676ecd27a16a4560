//! Reading what callers send, field by field.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::pack::diagnostic::{nearest, suggestion};

/// A field of a request that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {error}")]
pub struct FieldError {
    /// Its path, such as `action.confidence`.
    pub field: String,
    /// What is wrong with it.
    pub error: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, error: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            error: error.into(),
        }
    }
}

pub(crate) fn probability(value: f64, field: String) -> Result<f64, FieldError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(FieldError::new(
        field,
        format!("must be from 0 to 1, and is {value}"),
    ))
}

pub(crate) fn at_most(field: &str, text: &str, bytes: usize) -> Result<(), FieldError> {
    if text.len() <= bytes {
        return Ok(());
    }
    let error = format!("is {} bytes long, over {bytes}", text.len());
    Err(FieldError::new(field, error))
}

/// The one of `all` that is written so.
pub(crate) fn one_of<T: Copy>(
    text: &str,
    all: &[T],
    written: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|one| written(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(written).collect();
        let nearest = match nearest(text, names.iter().copied()) {
            Some(name) => format!(": did you mean `{name}`?"),
            None => String::new(),
        };
        let text = shown(text);
        format!("`{text}` is not one of {}{nearest}", names.join(", "))
    })
}

/// Reads an object member by member; a `null` is as good as nothing.
pub(crate) struct Fields<'p> {
    members: &'p Map<String, Value>,
    prefix: Cow<'static, str>,
    asked: Vec<&'static str>,
}

impl<'p> Fields<'p> {
    pub(crate) fn new(
        members: &'p Map<String, Value>,
        prefix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            members,
            prefix: prefix.into(),
            asked: Vec::new(),
        }
    }

    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'p Value> {
        self.asked.push(key);
        self.members.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Result<Option<&'p str>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "text", other)),
        }
    }

    pub(crate) fn required_text(&mut self, key: &'static str) -> Result<String, FieldError> {
        let text = self.text(key)?;
        text.map(str::to_owned)
            .ok_or_else(|| FieldError::new(self.path(key), "is missing"))
    }

    /// A short text.
    pub(crate) fn name(&mut self, key: &'static str) -> Result<Option<String>, FieldError> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        at_most(&self.path(key), text, crate::guardrails::MAX_NAME_BYTES)?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn number(&mut self, key: &'static str) -> Result<Option<f64>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(key, "a number", value)),
            },
        }
    }

    /// A number from 0 to 1.
    pub(crate) fn probability(&mut self, key: &'static str) -> Result<Option<f64>, FieldError> {
        let number = self.number(key)?;
        number
            .map(|number| probability(number, self.path(key)))
            .transpose()
    }

    /// A text that is read as something else.
    pub(crate) fn parsed<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, FieldError> {
        let text = self.text(key)?;
        text.map(|text| parse(text).map_err(|error| FieldError::new(self.path(key), error)))
            .transpose()
    }

    /// A list; one text alone stands for a list of it.
    pub(crate) fn list(&mut self, key: &'static str) -> Result<Vec<&'p Value>, FieldError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items.iter().collect()),
            Some(text @ Value::String(_)) => Ok(vec![text]),
            Some(other) => Err(self.wrong(key, "a list", other)),
        }
    }

    /// A list of at most `most` texts that are read as something else.
    pub(crate) fn parsed_list<T>(
        &mut self,
        key: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, FieldError> {
        let items = self.list(key)?;
        self.not_over(key, items.len(), most)?;
        let read = |(n, item): (usize, &Value)| {
            let path = format!("{}[{n}]", self.path(key));
            match item {
                Value::String(text) => parse(text).map_err(|error| FieldError::new(path, error)),
                other => {
                    let error = format!("expected text, found {}", kind(other));
                    Err(FieldError::new(path, error))
                }
            }
        };
        items.into_iter().enumerate().map(read).collect()
    }

    /// Refuses a list that is too long.
    pub(crate) fn not_over(&self, key: &str, count: usize, most: usize) -> Result<(), FieldError> {
        if count <= most {
            return Ok(());
        }
        let error = format!("has {count} items, over {most}");
        Err(FieldError::new(self.path(key), error))
    }

    pub(crate) fn object(
        &mut self,
        key: &'static str,
    ) -> Result<Option<&'p Map<String, Value>>, FieldError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.wrong(key, "an object", other)),
        }
    }

    pub(crate) fn wrong(&self, key: &str, wanted: &str, found: &Value) -> FieldError {
        let error = format!("expected {wanted}, found {}", kind(found));
        FieldError::new(self.path(key), error)
    }

    /// Refuses what nobody asked for: a misspelt `confidence` must not pass for none.
    pub(crate) fn finish(self) -> Result<(), FieldError> {
        match self.unasked().next() {
            None => Ok(()),
            Some(key) => {
                let advice = suggestion(key, self.asked.iter().copied());
                let error = format!("is not a known field: {advice}");
                Err(FieldError::new(self.path(&shown(key)), error))
            }
        }
    }

    /// What nobody asked for.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = &'p str> {
        let names = self.members.keys().map(String::as_str);
        names.filter(|name| !self.asked.contains(name))
    }
}

/// What kind of JSON it is.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A caller's text as an error may repeat it.
pub(crate) fn shown(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(64).collect()
}
