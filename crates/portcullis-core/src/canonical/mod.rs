//! The one canonical form (RFC 8785) and the digest over it.

mod check;
mod write;

use serde::Serialize;
use serde_json::Value;

use crate::evidence::Digest;

pub(crate) use check::{MAX_DEPTH, Member, NotCanonical, check};
pub(crate) use write::{compare_names, write_number, write_string};

/// The largest integer that every reader of JSON keeps exactly, since numbers are doubles to some.
pub(crate) const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// Lowercase hex SHA-256 over the canonical JSON of a value.
pub fn digest(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let bytes = serde_json_canonicalizer::to_vec(value)?;
    Ok(Digest::of(&bytes).to_string())
}

/// The digest of a value to which a permission is bound: two values that differ have different ones.
///
/// It is [`digest`], but where that would not tell two values apart. RFC 8785 writes every number as a double, to which
/// integers past 2^53 look alike, and 1.0 as 1; a value with such numbers is digested as an array around its text.
pub fn exact_digest(value: &Value) -> Digest {
    let canonical = if is_exact(value) {
        serde_json_canonicalizer::to_vec(value).ok()
    } else {
        None
    };
    let bytes = canonical.unwrap_or_else(|| format!("[\"exact\",{value}]").into_bytes());
    Digest::of(&bytes)
}

/// Whether every number in it is written as nothing else is.
fn is_exact(value: &Value) -> bool {
    match value {
        // A double that is whole is written like an integer.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().is_some_and(|number| number.fract() != 0.0)
        }
        Value::Number(number) => {
            let whole = number.as_u64().or(number.as_i64().map(i64::unsigned_abs));
            whole.is_none_or(|whole| whole <= MAX_EXACT_INTEGER)
        }
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_look_alike_as_doubles_have_different_exact_digests() {
        assert_ne!(exact_digest(&json!(1)), exact_digest(&json!(1.0)));
        assert_ne!(exact_digest(&json!(0)), exact_digest(&json!(-0.0)));
        assert_ne!(exact_digest(&json!(0.0)), exact_digest(&json!(-0.0)));
        let large = |n: u64| exact_digest(&json!({"id": [n]}));
        assert_ne!(large(9_007_199_254_740_992), large(9_007_199_254_740_993));
        assert_ne!(
            exact_digest(&json!(i64::MIN)),
            exact_digest(&json!(i64::MIN + 1))
        );
        let small = json!({"b": 1, "a": 2.5});
        assert_eq!(
            exact_digest(&small).to_string(),
            digest(&small).unwrap(),
            "where nothing is lost it is the canonical digest"
        );
    }

    #[test]
    fn the_digest_is_of_the_canonical_form() {
        // echo -n '{"a":1,"b":[true,null]}' | sha256sum
        assert_eq!(
            digest(&json!({"b": [true, null], "a": 1.0})).unwrap(),
            "1cc69c7fa23616ca2ec3ee70d24390a6225c8832db8a4c814c7e0e7f942f8668"
        );
    }
}
