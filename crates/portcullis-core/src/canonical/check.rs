//! Whether bytes are in the canonical form already.
//!
//! The bytes are walked as they are, rather than read, written again and compared: it is several times
//! faster, allocates nothing, and does not depend on how a reader rounds numbers.

use std::borrow::Cow;
use std::ops::Range;

use super::write::{compare_names, short_escape, write_number};

/// How deep values may lie in each other: what `serde_json` reads by default, so that whatever passes
/// here can be read elsewhere.
pub(crate) const MAX_DEPTH: usize = 127;

/// Why bytes are not in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub(crate) struct NotCanonical {
    /// Where, from 0.
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) problem: &'static str,
}

/// A member of the outermost object.
pub(crate) struct Member<'t> {
    /// Its name between the quotes, escapes and all.
    pub(crate) name: &'t str,
    /// Where the value stands.
    pub(crate) value: Range<usize>,
    /// Where the member stands, without commas.
    pub(crate) range: Range<usize>,
}

/// Checks that the text is one object in RFC 8785's form and nothing else, and shows its members.
pub(crate) fn check<'t>(
    text: &'t str,
    mut member: impl FnMut(Member<'t>),
) -> Result<(), NotCanonical> {
    let mut reader = Reader { text, at: 0 };
    if text.as_bytes().first() != Some(&b'{') {
        return Err(reader.wrong("an object was expected"));
    }
    reader.object(1, &mut member)?;
    match reader.peek() {
        None => Ok(()),
        Some(_) => Err(reader.wrong("text after the object")),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn wrong(&self, problem: &'static str) -> NotCanonical {
        NotCanonical {
            at: self.at,
            problem,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8, problem: &'static str) -> Result<(), NotCanonical> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(problem));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), NotCanonical> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1, &mut |_| {}),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(|_| ()),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("a value was expected")),
        }
    }

    fn object(
        &mut self,
        depth: usize,
        member: &mut dyn FnMut(Member<'t>),
    ) -> Result<(), NotCanonical> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("values lie too deep in each other"));
        }
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut before: Option<&'t str> = None;
        loop {
            let start = self.at;
            let name = self.string()?;
            if before.is_some_and(|before| !is_after(before, name)) {
                self.at = start;
                return Err(self.wrong("member names out of order, or twice"));
            }
            before = Some(name);
            self.take(b':', "a colon was expected")?;
            let value = self.at;
            self.value(depth)?;
            member(Member {
                name,
                value: value..self.at,
                range: start..self.at,
            });
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(());
            }
            self.take(b',', "a comma or the end of the object was expected")?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), NotCanonical> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("values lie too deep in each other"));
        }
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(());
            }
            self.take(b',', "a comma or the end of the array was expected")?;
        }
    }

    /// What is between the quotes.
    fn string(&mut self) -> Result<&'t str, NotCanonical> {
        self.take(b'"', "a string was expected")?;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                Some(b'\\') => self.escape()?,
                Some(0..0x20) => return Err(self.wrong("a control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.wrong("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotCanonical> {
        let rest = &self.text.as_bytes()[self.at + 1..];
        match rest {
            [b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r', ..] => {
                self.at += 2;
                Ok(())
            }
            [b'u', b'0', b'0', high @ b'0'..=b'1', low, ..] => {
                let low = match low {
                    b'0'..=b'9' => low - b'0',
                    b'a'..=b'f' => low - b'a' + 10,
                    _ => return Err(self.wrong("not the shortest escape")),
                };
                if short_escape((high - b'0') * 16 + low).is_some() {
                    return Err(self.wrong("not the shortest escape"));
                }
                self.at += 6;
                Ok(())
            }
            _ => Err(self.wrong("not the shortest escape")),
        }
    }

    fn number(&mut self) -> Result<(), NotCanonical> {
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let token = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        // Most are small integers, whose form is plain.
        let plain = token.len() <= 15
            && !token.starts_with('0')
            && token.bytes().all(|b| b.is_ascii_digit());
        if !plain && token != "0" {
            let number: f64 = token.parse().unwrap_or(f64::NAN);
            let mut canonical = Vec::new();
            if number.is_finite() {
                write_number(number, &mut canonical);
            }
            if canonical != token.as_bytes() {
                return Err(self.wrong("a number in another form"));
            }
        }
        self.at += token.len();
        Ok(())
    }

    fn literal(&mut self, literal: &str) -> Result<(), NotCanonical> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(self.wrong("a value was expected"));
        }
        self.at += literal.len();
        Ok(())
    }
}

fn is_after(before: &str, name: &str) -> bool {
    compare_names(&unescape(before), &unescape(name)).is_lt()
}

fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains('\\') {
        return Cow::Borrowed(name);
    }
    // It has been checked, so that it can be read.
    serde_json::from_str(&format!("\"{name}\"")).map_or(Cow::Borrowed(name), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[\u{0}-\u{2f}\\\\\"/]{0,4}".prop_map(Value::from),
        ];
        let name = prop_oneof!["[\u{0}-\u{2f}\\\\\"]{0,2}", "[\u{e000}-\u{10ffff}a]{0,2}"];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(name.clone(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_the_canonicalizer_writes_passes(value in json()) {
            let text = serde_json_canonicalizer::to_string(&json!({"a": value})).unwrap();
            prop_assert_eq!(check(&text, |_| {}), Ok(()));
        }

        #[test]
        fn what_passes_is_what_the_canonicalizer_writes(value in json(), at: prop::sample::Index, byte: u8) {
            let mut bytes = serde_json::to_vec(&json!({"a": value})).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(text) = str::from_utf8(&bytes) && check(text, |_| {}).is_ok() {
                let value: Value = serde_json::from_str(text).unwrap();
                prop_assert_eq!(text, serde_json_canonicalizer::to_string(&value).unwrap());
            }
        }
    }

    #[test]
    fn other_forms_of_the_same_value_are_refused() {
        for text in [
            r#"{"a": 1}"#,
            r#"{"a":1} "#,
            r#"{"a":1.0}"#,
            r#"{"a":01}"#,
            r#"{"a":-0}"#,
            r#"{"a":1E5}"#,
            r#"{"a":1e999}"#,
            r#"{"b":1,"a":1}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"\u000a"}"#,
            r#"{"a":"\u001F"}"#,
            r#"{"a":1,}"#,
            "[]",
            "",
        ] {
            assert!(check(text, |_| {}).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_where_serde_json_bounds_it() {
        let nested = |depth: usize| {
            format!(
                "{{\"a\":{}{}}}",
                "[".repeat(depth - 1),
                "]".repeat(depth - 1)
            )
        };
        for depth in [MAX_DEPTH, MAX_DEPTH + 1] {
            let text = nested(depth);
            let read = serde_json::from_str::<Value>(&text);
            assert_eq!(check(&text, |_| {}).is_ok(), read.is_ok(), "{depth}");
            assert_eq!(read.is_ok(), depth == MAX_DEPTH);
        }
    }
}
