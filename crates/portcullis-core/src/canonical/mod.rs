//! The one canonical form (RFC 8785) and the digest over it.

mod check;
mod write;

use serde::Serialize;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_digest_is_of_the_canonical_form() {
        // echo -n '{"a":1,"b":[true,null]}' | sha256sum
        assert_eq!(
            digest(&json!({"b": [true, null], "a": 1.0})).unwrap(),
            "1cc69c7fa23616ca2ec3ee70d24390a6225c8832db8a4c814c7e0e7f942f8668"
        );
    }
}
