//! What a caller has written down, ready to be chained.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};
use smallvec::SmallVec;

use super::{RESERVED, Redactor};
use crate::canonical::{MAX_DEPTH, MAX_EXACT_INTEGER, compare_names, write_number, write_string};

/// How long an entry may be. A reader needs memory for one line, so there must be a longest.
pub const MAX_ENTRY_BYTES: usize = 4 << 20;

/// The members of an entry before it has its place in a chain: without secrets, and in canonical form.
///
/// All that can be done without knowing the entry before is done when it is made, by the thread of whoever
/// makes it: what is left for the one place where a chain grows is copying and hashing.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    /// The members in their order, a comma after each.
    members: Vec<u8>,
    /// Where the members that the chain adds go.
    splits: [usize; 3],
}

/// Why something cannot be an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The chain adds these members itself.
    #[error("`{name}` is for the evidence log to set: leave it out")]
    Reserved {
        /// The member.
        name: &'static str,
    },
    /// A member is told and made up at once.
    #[error("`{name}` is there twice: as something told, and as something made up")]
    Twice {
        /// The member.
        name: String,
    },
    /// Values lie too deep in each other to be read back.
    #[error("more than {limit} arrays and objects lie in each other: log a flatter value")]
    TooDeep {
        /// How many may, the entry itself included.
        limit: usize,
    },
    /// It is longer than a reader has to bear.
    #[error("an entry of {bytes} bytes is over {MAX_ENTRY_BYTES}: log less of it, or its digest")]
    TooLarge {
        /// How long it would be.
        bytes: usize,
    },
}

impl Body {
    /// Takes out what the redactor finds in strings and member names, and writes the rest in canonical form.
    ///
    /// RFC 8785 knows no numbers but doubles. So that none is quietly rounded, an integer beyond 2^53 - 1 is
    /// written as a string of its digits, as RFC 7493 advises.
    pub fn new(members: &Map<String, Value>, redactor: &Redactor) -> Result<Self, BodyError> {
        Self::of(&Map::new(), members, redactor)
    }

    /// [`new`](Self::new) of two kinds of members: those that whoever writes the entry made up itself, such as
    /// times and ids, and those that somebody told it. Only the latter can hold a secret, so only they are
    /// searched.
    pub fn of(
        made: &Map<String, Value>,
        told: &Map<String, Value>,
        redactor: &Redactor,
    ) -> Result<Self, BodyError> {
        let is_member = |name: &str| made.contains_key(name) || told.contains_key(name);
        if let Some(&name) = RESERVED.iter().find(|name| is_member(name)) {
            return Err(BodyError::Reserved { name });
        }
        if let Some(name) = told.keys().find(|name| made.contains_key(*name)) {
            let name = name.clone();
            return Err(BodyError::Twice { name });
        }
        let none = Redactor::none();
        let redactor = if redactor.may_find(told) {
            redactor
        } else {
            &none
        };
        let mut writer = Writer {
            redactor,
            out: Vec::with_capacity(512),
        };
        let told = writer.in_order(told).into_iter();
        let told = told.map(|(name, value)| (name, value, redactor));
        let made = made.iter();
        let made = made.map(|(name, value)| (Cow::from(name), value, &none));
        let mut members: SmallVec<[_; 24]> = told.chain(made).collect();
        members.sort_unstable_by(|(a, ..), (b, ..)| compare_names(a, b));
        let mut splits = [0; 3];
        let mut passed = 0;
        for (name, value, redactor) in &members {
            while passed < RESERVED.len() && compare_names(RESERVED[passed], name).is_lt() {
                splits[passed] = writer.out.len();
                passed += 1;
            }
            writer.redactor = redactor;
            writer.member(name, value, 1)?;
            writer.out.push(b',');
        }
        splits[passed..].fill(writer.out.len());
        let body = Self {
            members: writer.out,
            splits,
        };
        // Room for what the chain adds.
        let bytes = body.members.len() + 256;
        if bytes > MAX_ENTRY_BYTES {
            return Err(BodyError::TooLarge { bytes });
        }
        Ok(body)
    }

    /// How many bytes it brings to its entry.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members before `digest`, up to `prev`, up to `seq`, and after it.
    pub(super) fn parts(&self) -> [&[u8]; 4] {
        let [digest, prev, seq] = self.splits;
        [
            &self.members[..digest],
            &self.members[digest..prev],
            &self.members[prev..seq],
            &self.members[seq..],
        ]
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members = String::from_utf8_lossy(&self.members);
        write!(f, "{{{}}}", members.trim_end_matches(','))
    }
}

struct Writer<'r> {
    redactor: &'r Redactor,
    out: Vec<u8>,
}

impl Writer<'_> {
    /// Members by their names as they will be written.
    fn in_order<'v>(
        &self,
        members: &'v Map<String, Value>,
    ) -> SmallVec<[(Cow<'v, str>, &'v Value); 16]> {
        let mut members: SmallVec<[(Cow<'v, str>, &'v Value); 16]> = members
            .iter()
            .map(|(name, value)| (self.redactor.redact(name), value))
            .collect();
        if members
            .iter()
            .any(|(name, _)| matches!(name, Cow::Owned(_)))
        {
            tell_apart(&mut members);
        }
        members.sort_unstable_by(|(a, _), (b, _)| compare_names(a, b));
        members
    }

    fn member(&mut self, name: &str, value: &Value, depth: usize) -> Result<(), BodyError> {
        write_string(name, &mut self.out);
        self.out.push(b':');
        self.value(name, value, depth)
    }

    /// A value, and the name of the member that it is, or is an item of.
    fn value(&mut self, name: &str, value: &Value, depth: usize) -> Result<(), BodyError> {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => {
                let text = self.redactor.redact_member(name, text);
                write_string(&text, &mut self.out);
            }
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => {
                return Err(BodyError::TooDeep { limit: MAX_DEPTH });
            }
            Value::Array(items) => {
                self.out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.value(name, item, depth + 1)?;
                }
                self.out.push(b']');
            }
            Value::Object(members) => {
                self.out.push(b'{');
                for (index, (name, value)) in self.in_order(members).iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.member(name, value, depth + 1)?;
                }
                self.out.push(b'}');
            }
        }
        Ok(())
    }

    fn number(&mut self, number: &Number) {
        let exact = |integer: u64| integer <= MAX_EXACT_INTEGER;
        if number.is_f64() {
            // JSON has no other numbers than finite ones.
            write_number(number.as_f64().unwrap_or_default(), &mut self.out);
        } else if number.as_i64().is_some_and(|n| exact(n.unsigned_abs())) {
            self.out.extend_from_slice(number.to_string().as_bytes());
        } else {
            write_string(&number.to_string(), &mut self.out);
        }
    }
}

/// Names can be redacted to the same one; none may swallow another. Counting on from the last keeps
/// thousands of them from being tried again for each.
fn tell_apart(members: &mut [(Cow<'_, str>, &Value)]) {
    let mut taken: HashSet<String> = HashSet::with_capacity(members.len());
    let untouched = members
        .iter()
        .filter(|(name, _)| matches!(name, Cow::Borrowed(_)));
    taken.extend(untouched.map(|(name, _)| name.to_string()));
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (name, _) in members {
        let Cow::Owned(redacted) = name else { continue };
        let mut unique = redacted.clone();
        let count = counts.entry(redacted.clone()).or_insert(1);
        while !taken.insert(unique.clone()) {
            *count += 1;
            unique = format!("{redacted}_{count}");
        }
        *redacted = unique;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::check;
    use crate::evidence::Chain;
    use proptest::prelude::*;
    use serde_json::json;

    fn line(value: &Value) -> Result<String, BodyError> {
        let body = Body::new(value.as_object().unwrap(), &Redactor::none())?;
        let mut out = Vec::new();
        Chain::START.clone().append(&body, &mut out).unwrap();
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_members_of_the_chain_are_its_own() {
        for name in RESERVED {
            let error = line(&json!({name: 1})).unwrap_err();
            assert_eq!(error, BodyError::Reserved { name });
        }
        assert!(line(&json!({"a": {"seq": 1, "digest": 2}})).is_ok());
    }

    #[test]
    fn integers_that_a_double_cannot_hold_keep_their_digits() {
        let line = line(&json!({"a": 9_007_199_254_740_991_u64, "b": 9_007_199_254_740_993_u64, "c": i64::MIN, "d": 1e300, "e": -1, "f": 0.5})).unwrap();
        assert!(line.starts_with(r#"{"a":9007199254740991,"b":"9007199254740993","c":"-9223372036854775808","d":1e+300,"digest":"#), "{line}");
        assert!(line.contains(r#","e":-1,"f":0.5,"prev":"#), "{line}");
    }

    #[test]
    fn what_a_reader_could_not_bear_is_refused() {
        let deep = |depth| (1..depth).fold(json!(1), |inner, _| json!([inner]));
        assert!(line(&json!({"a": deep(MAX_DEPTH)})).is_ok());
        let error = line(&json!({"a": deep(MAX_DEPTH + 1)})).unwrap_err();
        assert_eq!(error, BodyError::TooDeep { limit: MAX_DEPTH });
        let error = line(&json!({"a": "x".repeat(MAX_ENTRY_BYTES)})).unwrap_err();
        assert!(matches!(error, BodyError::TooLarge { .. }));
    }

    proptest! {
        #[test]
        fn an_entry_is_in_canonical_form(
            members in prop::collection::hash_map("[\u{0}-\u{2f}a-z\u{e000}-\u{10ffff}]{0,3}", any::<(String, f64)>(), 0..8),
        ) {
            let members: Map<_, _> = members
                .into_iter()
                .map(|(name, (text, number))| (name, json!({"z": text, "\u{10000}": number, "\u{e000}": [true, null]})))
                .collect();
            let line = line(&Value::Object(members.clone())).unwrap();
            let line = line.strip_suffix('\n').unwrap();
            prop_assert_eq!(check(line, |_| {}), Ok(()));
            let mut read: Map<String, Value> = serde_json::from_str(line).unwrap();
            prop_assert_eq!(serde_json_canonicalizer::to_string(&read).unwrap(), line);
            for name in RESERVED {
                read.remove(name);
            }
            // Numbers are the same, but those that are integers are read as such.
            let canonical = |members| serde_json_canonicalizer::to_string(members).unwrap();
            prop_assert_eq!(canonical(&read), canonical(&members));
        }
    }

    #[test]
    fn only_what_was_told_is_searched() {
        let redactor = Redactor::new().unwrap();
        let key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        let object = |value: Value| value.as_object().unwrap().clone();
        let made = object(json!({"timestamp": "now", "zone": key}));
        let told = object(json!({"action": key, "token": {"a": [key]}}));
        let body = Body::of(&made, &told, &redactor).unwrap();
        let shown = format!("{body:?}");
        assert_eq!(shown.matches(key).count(), 1, "{shown}");
        let mut all = made.clone();
        all.extend(told.clone());
        let none = Redactor::none();
        assert_eq!(Body::of(&made, &told, &none), Body::new(&all, &none));
        assert!(matches!(
            Body::of(&made, &made, &none),
            Err(BodyError::Twice { name }) if name == "timestamp"
        ));
    }
}
