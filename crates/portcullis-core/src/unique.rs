//! JSON in whose objects no name comes twice.
//!
//! `serde_json` takes the last of two members with the same name, other readers the first: what is judged would not be
//! what happens. So such an object is refused, while it is read: a second look at the text would cost as much as the
//! first.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::convert::Infallible;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::event::is_plain_name;

/// Reads a JSON text to its end.
pub fn value(json: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = Seed(&Place::start("", Names::All)).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a JSON text that is one object to its end.
pub fn object(json: &str) -> serde_json::Result<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let object = Object(&Place::start("", Names::All)).deserialize(&mut reader)?;
    reader.end()?;
    Ok(object)
}

/// Members that have no field of their own.
pub(crate) fn members<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    Object(&Place::start("", Names::Plain)).deserialize(deserializer)
}

/// A field of an event or a context, by its name.
macro_rules! fields {
    ($($field:ident)*) => {$(
        pub(crate) fn $field<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Map<String, Value>>, D::Error> {
            let place = Place::start(stringify!($field), Names::Plain);
            deserializer.deserialize_option(Optional(Object(&place)))
        }
    )*};
}

fields! { tool_args payload tool_context policy_config }

/// How often what happened in a run.
pub(crate) fn strike_counts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, u64>>, D::Error> {
    let place = Place::start("strike_counts", Names::Plain);
    deserializer.deserialize_option(Optional(Counts(&place)))
}

/// Which names an error repeats.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    All,
    /// Those that look like a field's: others may be secrets, and errors are logged.
    Plain,
}

/// Where a value stands. Written out only when somebody is told.
#[derive(Clone, Copy)]
struct Place<'p> {
    names: Names,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Start(&'static str),
    Member(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl<'p> Place<'p> {
    fn start(name: &'static str, names: Names) -> Self {
        let step = Step::Start(name);
        Self { names, step }
    }

    fn member(&'p self, name: &'p str) -> Self {
        let step = Step::Member(self, name);
        Self { step, ..*self }
    }

    fn item(&'p self, index: usize) -> Self {
        let step = Step::Item(self, index);
        Self { step, ..*self }
    }

    /// Writes it out up to a name that is not repeated, and says whether that is all of it.
    fn write(&self, path: &mut String) -> bool {
        match self.step {
            Step::Start(name) => path.push_str(name),
            Step::Member(parent, name) => {
                let told = self.names == Names::All || is_plain_name(name);
                if !parent.write(path) || !told {
                    return false;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Step::Item(parent, index) => {
                // Writing to a String cannot fail.
                if !parent.write(path) || write!(path, "[{index}]").is_err() {
                    return false;
                }
            }
        }
        true
    }
}

/// Refuses the second of two members. It stands for its value, so that an error has the member's place.
struct Twice<'p>(Place<'p>);

impl<'de> DeserializeSeed<'de> for Twice<'_> {
    type Value = Infallible;

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<Infallible, D::Error> {
        const LONGEST: usize = 200;
        let mut path = String::new();
        let is_whole = self.0.write(&mut path);
        if path.len() > LONGEST {
            path.truncate(path.floor_char_boundary(LONGEST));
            path.push('…');
        }
        let what = match (is_whole, path.as_str()) {
            (true, path) => format!("`{path}`"),
            (false, "") => "a member".to_owned(),
            (false, path) => format!("a member of `{path}`"),
        };
        Err(D::Error::custom(format!(
            "{what} is there twice: readers differ in which of the two counts, so keep one"
        )))
    }
}

/// Reads any value.
struct Seed<'p>(&'p Place<'p>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // The reader refuses what is not finite.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed(&self.0.item(list.len())))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        Object(self.0).visit_map(members).map(Value::Object)
    }
}

/// Reads an object.
struct Object<'p>(&'p Place<'p>);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            match object.entry(name) {
                Entry::Vacant(entry) => {
                    let value = members.next_value_seed(Seed(&self.0.member(entry.key())))?;
                    entry.insert(value);
                }
                Entry::Occupied(entry) => {
                    match members.next_value_seed(Twice(self.0.member(entry.key())))? {}
                }
            }
        }
        Ok(object)
    }
}

/// Reads counts by what was counted.
struct Counts<'p>(&'p Place<'p>);

impl<'de> DeserializeSeed<'de> for Counts<'_> {
    type Value = BTreeMap<String, u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Counts<'_> {
    type Value = BTreeMap<String, u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut counts = BTreeMap::<String, u64>::new();
        while let Some(name) = members.next_key::<String>()? {
            match counts.entry(name) {
                btree_map::Entry::Vacant(entry) => {
                    entry.insert(members.next_value()?);
                }
                btree_map::Entry::Occupied(entry) => {
                    match members.next_value_seed(Twice(self.0.member(entry.key())))? {}
                }
            }
        }
        Ok(counts)
    }
}

/// What may be null.
struct Optional<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Optional<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("option")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::{Context, Event};

    #[test]
    fn a_name_that_comes_twice_is_named_with_its_place() {
        for (json, expected) in [
            (r#"{"a":1,"a":1}"#, "`a` is there twice"),
            (r#"{"a":1,"\u0061":2}"#, "`a` is there twice"),
            (r#"[0,{"a":{"b":[],"b":{}}}]"#, "`[1].a.b` is there twice"),
            (r#"{"":1,"":2}"#, "`` is there twice"),
            (r#"{"a":[{"b c":1,"b c":2}]}"#, "`a[0].b c` is there twice"),
            // What stands behind it is not looked at.
            (r#"{"a":1,"a":nonsense"#, "`a` is there twice"),
        ] {
            let error = value(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{json}: {error}");
            assert!(error.contains("keep one at line 1 column"), "{error}");
        }
        let long = format!(r#"{{"{0}":1,"{0}":2}}"#, "é".repeat(1000));
        assert!(object(&long).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn wherever_an_event_or_a_context_has_room_for_it() {
        let secret = "AKIAIOSFODNN7EXAMPLE";
        let twice = format!(r#"{{"x":[{{"{secret}":1,"{secret}":2}}]}}"#);
        for (field, expected) in [
            ("tool_args", "a member of `tool_args.x[0]` is"),
            ("payload", "a member of `payload.x[0]` is"),
            ("unknown", "a member of `unknown.x[0]` is"),
        ] {
            let json = format!(r#"{{"event_type":"e","run_id":"r","{field}":{twice}}}"#);
            let error = serde_json::from_str::<Event>(&json).unwrap_err();
            let error = Event::unread(&error);
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains(secret), "{error}");
        }
        for (json, expected) in [
            (
                r#"{"event_type":"e","meta":1,"meta":2}"#,
                "`meta` is there twice",
            ),
            (
                r#"{"event_type":"e","tool_args":{},"tool_args":{}}"#,
                "duplicate field `tool_args`",
            ),
        ] {
            let error = serde_json::from_str::<Event>(json).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        for field in ["tool_context", "policy_config", "strike_counts", "meta"] {
            let json = format!(r#"{{"run_id":"r","{field}":{{"a":1,"a":2}}}}"#);
            let error = serde_json::from_str::<Context>(&json).unwrap_err();
            let expected = format!("`{field}.a` is there twice");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn what_is_no_object_is_said_as_ever() {
        for (json, expected) in [
            (r#"{"tool_context":[]}"#, "expected a map"),
            (r#"{"strike_counts":{"a":-1}}"#, "expected u64"),
            (r#"{"strike_counts":5}"#, "expected a map"),
        ] {
            let error = serde_json::from_str::<Context>(json).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let error = value(deep.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("recursion limit"), "{error}");
        assert!(object("[]").is_err() && object("{} x").is_err() && value(b"1 x").is_err());
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece = select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"b\"",
            "\"\\u0061\"",
            "1",
            "-0",
            "0.1",
            "1e999",
            "null",
            "true",
            "\"é\"",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|value| value.to_string()),
            any::<i64>().prop_map(|value| value.to_string()),
            any::<u64>().prop_map(|value| value.to_string()),
            // More digits than a double has.
            "-?[1-9][0-9]{0,20}\\.[0-9]{1,24}(e-?[0-9]{1,2})?",
            "\"[a-zé ]{0,6}\"",
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let name = select(vec!["a", "\\u0061", "b", "c", "d"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec((name, inner), 0..4).prop_map(|members| {
                    let members: Vec<String> = members
                        .iter()
                        .map(|(name, value)| format!("\"{name}\":{value}"))
                        .collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        /// What is read is what `serde_json` reads, to the last bit, and nothing else is refused.
        #[test]
        fn only_what_comes_twice_makes_a_difference(json in prop_oneof![json(), pieces()]) {
            match (value(json.as_bytes()), serde_json::from_str::<Value>(&json)) {
                (Ok(ours), Ok(theirs)) => {
                    prop_assert_eq!(ours.to_string(), theirs.to_string());
                    // No reader could have kept fewer members.
                    let names = json.matches("\":").count();
                    prop_assert_eq!(ours.to_string().matches("\":").count(), names);
                }
                (Err(ours), theirs) => {
                    let twice = ours.to_string().contains("is there twice");
                    prop_assert!(twice || theirs.is_err_and(|theirs| theirs.to_string() == ours.to_string()));
                    if twice && let Ok(theirs) = serde_json::from_str::<Value>(&json) {
                        let kept = theirs.to_string().matches("\":").count();
                        prop_assert!(kept < json.matches("\":").count());
                    }
                }
                (Ok(_), Err(theirs)) => prop_assert!(false, "{theirs}"),
            }
        }
    }
}
