//! YAML as a tree that remembers where everything stood, and a reader that turns wrong shapes into
//! findings instead of stopping at the first.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::diagnostic::{Diagnostics, Place};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub yaml: Yaml,
    /// Where it stood.
    pub place: Place,
}

/// What YAML can say.
#[derive(Debug, Clone, PartialEq)]
pub enum Yaml {
    /// Nothing.
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order it was written in.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// What it is called.
    pub name: String,
    /// Where it stood.
    pub place: Place,
}

/// Parses one document. Duplicate keys, several documents and alias bombs are errors.
pub fn parse(text: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    match serde_saphyr::from_str::<Node>(text) {
        Ok(node) => Some(node),
        Err(error) => {
            let place = error.location().map(|at| place(&at)).unwrap_or_default();
            let (message, help) = explain(&error);
            diagnostics.error(place, message).help = help.map(str::to_owned);
            None
        }
    }
}

impl Node {
    /// What is there, for messages.
    fn found(&self) -> Cow<'static, str> {
        match self.yaml {
            Yaml::Int(n) => n.to_string().into(),
            Yaml::Float(n) => format!("{n:?}").into(),
            _ => self.kind().into(),
        }
    }

    /// What kind of thing it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.yaml {
            Yaml::Null => "nothing",
            Yaml::Bool(_) => "a boolean",
            Yaml::Int(_) | Yaml::Float(_) => "a number",
            Yaml::Text(_) => "text",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a mapping",
        }
    }

    /// A member of a mapping.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let Yaml::Map(entries) = &self.yaml else {
            return None;
        };
        let (_, node) = entries.iter().find(|(key, _)| key.name == name)?;
        Some(node)
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        match &self.yaml {
            Yaml::Null => Value::Null,
            Yaml::Bool(b) => Value::Bool(*b),
            Yaml::Int(n) => Value::from(*n),
            Yaml::Float(n) => Value::from(*n),
            Yaml::Text(text) => Value::String(text.clone()),
            Yaml::List(items) => items.iter().map(Self::to_json).collect(),
            Yaml::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.name.clone(), value.to_json()))
                .collect(),
        }
    }

    /// This tree with another laid over it: mappings are merged, everything else is replaced.
    pub fn overlaid(&self, over: &Self) -> Self {
        let (Yaml::Map(base), Yaml::Map(over_entries)) = (&self.yaml, &over.yaml) else {
            return over.clone();
        };
        let mut merged = base.clone();
        for (key, value) in over_entries {
            match merged.iter_mut().find(|(known, _)| known.name == key.name) {
                Some((known, old)) => {
                    *old = old.overlaid(value);
                    *known = key.clone();
                }
                None => merged.push((key.clone(), value.clone())),
            }
        }
        Self {
            yaml: Yaml::Map(merged),
            place: self.place,
        }
    }
}

/// Reads a mapping key by key; [`MapReader::finish`] then reports the keys that nobody asked for.
pub struct MapReader<'n> {
    what: &'static str,
    place: Place,
    entries: &'n [(Key, Node)],
    asked: Vec<&'static str>,
    /// Asked for by how they begin.
    prefixes: Vec<&'static str>,
    /// Reported already.
    refused: Vec<&'static str>,
}

impl<'n> MapReader<'n> {
    /// Opens a mapping, or says that it is none.
    pub fn open(node: &'n Node, what: &'static str, d: &mut Diagnostics) -> Option<Self> {
        match &node.yaml {
            Yaml::Map(entries) => Some(Self::new(entries, node.place, what)),
            _ => {
                d.error(
                    node.place,
                    format!("{what} must be a mapping, not {}", node.kind()),
                );
                None
            }
        }
    }

    /// Opens an absent or empty mapping as one without entries.
    pub fn open_or_empty(
        node: Option<&'n Node>,
        place: Place,
        what: &'static str,
        d: &mut Diagnostics,
    ) -> Option<Self> {
        match node {
            Some(node) if node.yaml != Yaml::Null => Self::open(node, what, d),
            _ => Some(Self::new(&[], place, what)),
        }
    }

    fn new(entries: &'n [(Key, Node)], place: Place, what: &'static str) -> Self {
        Self {
            what,
            place,
            entries,
            asked: Vec::new(),
            prefixes: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Where the mapping stands.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The value of a key, if it is there and not null.
    pub fn get(&mut self, key: &'static str) -> Option<&'n Node> {
        self.asked.push(key);
        self.entries
            .iter()
            .find(|(known, _)| known.name == key)
            .map(|(_, node)| node)
            .filter(|node| node.yaml != Yaml::Null)
    }

    /// Every key that begins like this, what follows in it, and its value, which may be null.
    pub(crate) fn prefixed(
        &mut self,
        prefix: &'static str,
    ) -> impl Iterator<Item = (&'n Key, &'n str, &'n Node)> + use<'n> {
        self.prefixes.push(prefix);
        self.entries
            .iter()
            .filter_map(move |(key, node)| Some((key, key.name.strip_prefix(prefix)?, node)))
    }

    /// The place of a key, whatever its value.
    pub fn key_place(&self, key: &str) -> Option<Place> {
        let (key, _) = self.entries.iter().find(|(known, _)| known.name == key)?;
        Some(key.place)
    }

    /// Reports a key that may not be here, if it is.
    pub fn refuse(&mut self, key: &'static str, message: &str, d: &mut Diagnostics) {
        if let Some(place) = self.key_place(key) {
            d.error(place, message);
            self.refused.push(key);
        }
    }

    /// The value of a key that must be there.
    pub fn require(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<&'n Node> {
        let found = self.get(key);
        if found.is_none() {
            d.error(self.place, format!("{} needs `{key}`", self.what));
        }
        found
    }

    /// A text.
    pub fn text(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<&'n str> {
        self.get(key).and_then(|node| text(node, key, d))
    }

    /// True or false.
    pub fn boolean(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<bool> {
        let node = self.get(key)?;
        match node.yaml {
            Yaml::Bool(value) => Some(value),
            _ => wrong_type(node, key, "true or false", d),
        }
    }

    /// A finite number that is not negative.
    pub fn amount(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<f64> {
        let node = self.get(key)?;
        match node.yaml {
            Yaml::Int(value) if value >= 0 => Some(value as f64),
            Yaml::Float(value) if value.is_finite() && value >= 0.0 => Some(value),
            _ => wrong_type(node, key, "a number from 0", d),
        }
    }

    /// A whole number from 1.
    pub fn count(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<usize> {
        let node = self.get(key)?;
        match node.yaml {
            Yaml::Int(value) if value >= 1 => usize::try_from(value).ok(),
            _ => wrong_type(node, key, "a whole number from 1", d),
        }
    }

    /// A list.
    pub fn list(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<&'n [Node]> {
        let node = self.get(key)?;
        match &node.yaml {
            Yaml::List(items) => Some(items),
            _ => wrong_type(node, key, "a list", d),
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str, d: &mut Diagnostics) -> Option<Vec<String>> {
        let placed = self.placed_texts(key, d)?;
        Some(placed.into_iter().map(|(text, _)| text).collect())
    }

    /// A list of texts, each with its place.
    pub fn placed_texts(
        &mut self,
        key: &'static str,
        d: &mut Diagnostics,
    ) -> Option<Vec<(String, Place)>> {
        let items = self.list(key, d)?;
        let what = format!("each of `{key}`");
        Some(
            items
                .iter()
                .filter_map(|item| Some((expect_text(item, &what, d)?.to_owned(), item.place)))
                .collect(),
        )
    }

    /// One of a fixed set of names.
    pub fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        names: &[(&'static str, T)],
        d: &mut Diagnostics,
    ) -> Option<T> {
        let node = self.get(key)?;
        one_of(node, key, names, d)
    }

    /// Reports keys that were never asked for.
    pub fn finish(self, d: &mut Diagnostics) {
        for (key, node) in self.entries {
            let name = &&*key.name;
            let asked = self.asked.contains(name)
                || self.prefixes.iter().any(|prefix| name.starts_with(prefix));
            // Everything below it commented out, say. To take that for "not there" could open what
            // the key was written to close.
            if node.yaml == Yaml::Null && asked && key.name != "config" {
                d.error(key.place, format!("`{}` has no value", key.name))
                    .help("write one (`[]` for an empty list), or leave the key out");
            }
            if !asked && !self.refused.contains(name) {
                d.error(
                    key.place,
                    format!("unknown key `{}` in {}", key.name, self.what),
                )
                .suggest(&key.name, self.asked.iter().copied());
            }
        }
    }
}

/// The text of a node.
pub fn text<'n>(node: &'n Node, key: &str, d: &mut Diagnostics) -> Option<&'n str> {
    expect_text(node, &format!("`{key}`"), d)
}

/// One of a fixed set of names.
pub fn one_of<T: Copy>(
    node: &Node,
    key: &str,
    names: &[(&'static str, T)],
    d: &mut Diagnostics,
) -> Option<T> {
    let Yaml::Text(given) = &node.yaml else {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        return wrong_type(node, key, &format!("one of {}", names.join(", ")), d);
    };
    let found = names.iter().find(|(name, _)| name == given);
    if found.is_none() {
        d.error(node.place, format!("`{given}` is not a valid `{key}`"))
            .suggest(given, names.iter().map(|(name, _)| *name));
    }
    found.map(|(_, value)| *value)
}

fn expect_text<'n>(node: &'n Node, what: &str, d: &mut Diagnostics) -> Option<&'n str> {
    if let Yaml::Text(text) = &node.yaml {
        return Some(text);
    }
    let message = format!("{what} must be text, not {}", node.kind());
    let finding = d.error(node.place, message);
    if matches!(node.yaml, Yaml::Bool(_) | Yaml::Int(_) | Yaml::Float(_)) {
        finding.help("put it in quotes");
    }
    None
}

fn wrong_type<T>(node: &Node, key: &str, wanted: &str, d: &mut Diagnostics) -> Option<T> {
    d.error(
        node.place,
        format!("`{key}` must be {wanted}, not {}", node.found()),
    );
    None
}

fn place(at: &serde_saphyr::Location) -> Place {
    Place {
        line: at.line() as usize,
        column: at.column() as usize,
        width: (at.span().len() as usize).max(1),
    }
}

/// What is wrong, and what to do about it. The parser speaks to whoever calls it; these words are
/// for whoever writes the file.
fn explain(error: &serde_saphyr::Error) -> (String, Option<&'static str>) {
    use serde_saphyr::Error;
    use serde_saphyr::budget::BudgetBreach;
    match error.without_snippet() {
        Error::AliasError { error, .. } => explain(error),
        Error::DuplicateMappingKey { key, .. } => (
            format!("key `{}` is there twice", key.as_deref().unwrap_or("?")),
            Some("keep one of them"),
        ),
        Error::MultipleDocuments { .. } => (
            "the file has more than one YAML document".to_owned(),
            Some("remove the `---` before this one, or move it to a file of its own"),
        ),
        Error::UnknownAnchor { .. } => (
            "this alias has no anchor".to_owned(),
            Some("put `&name` before the value that `*name` is to repeat"),
        ),
        // Keys are the only values that are read as text whatever they are.
        Error::NullIntoString { .. } | Error::Unexpected { .. } => {
            ("a key must be text".to_owned(), Some("put it in quotes"))
        }
        Error::NonFiniteFloat { value, .. } => {
            (format!("`{value}` is not a number to go by"), None)
        }
        Error::Budget {
            breach: BudgetBreach::Depth { .. },
            ..
        } => too_deep(),
        Error::Budget { .. } => (
            "the file is too large when its aliases are written out".to_owned(),
            Some("use fewer aliases"),
        ),
        other => {
            let text = other.to_string();
            let text = text.lines().next().unwrap_or_default();
            let text = text.split(" at line ").next().unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            let help = match text {
                "recursion limit exceeded" => return too_deep(),
                _ if text.contains("quoted scalar") => Some("check that every quote is closed"),
                _ if text.contains("tabs") => Some("indent with spaces"),
                _ if text.ends_with("did not find expected key") => {
                    Some("check how far this line is indented")
                }
                _ => None,
            };
            (format!("not valid YAML: {text}"), help)
        }
    }
}

fn too_deep() -> (String, Option<&'static str>) {
    ("the file is nested too deeply".to_owned(), None)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Yaml>::deserialize(deserializer)?;
        Ok(Self {
            yaml: spanned.value,
            place: place(&spanned.referenced),
        })
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(i64::try_from(value).map_or(Yaml::Float(value as f64), Yaml::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Yaml, E> {
        Ok(Yaml::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key {
                name: key.value,
                place: place(&key.referenced),
            };
            entries.push((key, map.next_value()?));
        }
        Ok(Yaml::Map(entries))
    }
}
