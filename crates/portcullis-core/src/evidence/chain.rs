//! How an entry gets its place.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Body, Digest};
use crate::canonical::MAX_EXACT_INTEGER;

/// An entry by its place and its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number, from 1; 0 stands for the beginning, before the first.
    pub seq: u64,
    /// Its digest; zeros for the beginning.
    pub digest: Digest,
}

/// The end of a chain, to which entries are added.
///
/// It is small and copied freely: whoever writes adds entries to a copy, and keeps it once they are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    head: Link,
}

/// Numbers beyond 2^53 - 1 are not exact in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chain has as many entries as JSON can count: start a new log")]
pub struct ChainFull;

impl Chain {
    /// A chain without entries.
    pub const START: Self = Self {
        head: Link {
            seq: 0,
            digest: Digest::ZERO,
        },
    };

    /// A chain that goes on after this entry.
    pub const fn after(head: Link) -> Self {
        Self { head }
    }

    /// The last entry.
    pub const fn head(&self) -> Link {
        self.head
    }

    /// Adds an entry, and its line with the newline to `out`.
    pub fn append(&mut self, body: &Body, out: &mut Vec<u8>) -> Result<Link, ChainFull> {
        const DIGEST: &[u8] = b"\"digest\":\"";
        let seq = self.head.seq + 1;
        if seq > MAX_EXACT_INTEGER {
            return Err(ChainFull);
        }
        let [before_digest, before_prev, before_seq, after] = body.parts();
        out.push(b'{');
        let start = out.len();
        out.extend_from_slice(before_digest);
        let hole = out.len() + DIGEST.len();
        out.extend_from_slice(DIGEST);
        out.extend_from_slice(&[b'0'; 64]);
        out.extend_from_slice(b"\",");
        let rest = out.len();
        out.extend_from_slice(before_prev);
        out.extend_from_slice(b"\"prev\":\"");
        out.extend_from_slice(&self.head.digest.hex());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(before_seq);
        out.extend_from_slice(b"\"seq\":");
        out.extend_from_slice(seq.to_string().as_bytes());
        // Its last comma goes before it rather than after.
        if let Some((_, members)) = after.split_last() {
            out.push(b',');
            out.extend_from_slice(members);
        }
        out.push(b'}');

        let mut hash = Sha256::new();
        hash.update(&out[start - 1..hole - DIGEST.len()]);
        hash.update(&out[rest..]);
        let digest = Digest::new(hash.finalize().into());
        out[hole..hole + 64].copy_from_slice(&digest.hex());
        out.push(b'\n');
        self.head = Link { seq, digest };
        Ok(self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical;
    use crate::evidence::Redactor;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn body(value: &Value) -> Body {
        Body::new(value.as_object().unwrap(), &Redactor::none()).unwrap()
    }

    proptest! {
        #[test]
        fn the_digest_is_of_the_canonical_entry_without_it(
            names in prop::collection::vec("[a-z]{0,8}|dig(es[a-z])?|pre[a-z]|se[a-z]", 0..8),
            seq in 0_u64..1 << 40,
        ) {
            let members: Map<_, _> = names.into_iter().map(|name| (name + "x", json!("é\n"))).collect();
            let before = Link { seq, digest: Digest::new([7; 32]) };
            let mut out = Vec::new();
            let link = Chain::after(before).append(&body(&Value::Object(members.clone())), &mut out).unwrap();
            let mut entry: Map<String, Value> = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(entry.remove("digest"), Some(json!(link.digest)));
            prop_assert_eq!(canonical::digest(&entry).unwrap(), link.digest.to_string());
            prop_assert_eq!(entry.remove("prev"), Some(json!(before.digest)));
            prop_assert_eq!(entry.remove("seq"), Some(json!(seq + 1)));
            prop_assert_eq!(entry, members);
        }
    }

    #[test]
    fn entries_are_numbered_and_name_the_one_before() {
        let (mut chain, mut out) = (Chain::START, Vec::new());
        let first = chain.append(&body(&json!({})), &mut out).unwrap();
        let second = chain.append(&body(&json!({"z": 1})), &mut out).unwrap();
        assert_eq!((first.seq, second.seq, chain.head()), (1, 2, second));
        let lines: Vec<&str> = str::from_utf8(&out).unwrap().lines().collect();
        let zeros = Digest::ZERO;
        assert!(lines[0].contains(&format!(r#""prev":"{zeros}","seq":1}}"#)));
        let prev = first.digest;
        assert!(lines[1].ends_with(&format!(r#""prev":"{prev}","seq":2,"z":1}}"#)));
    }

    #[test]
    fn a_chain_ends_before_its_numbers_are_rounded() {
        let last = Link {
            seq: MAX_EXACT_INTEGER,
            digest: Digest::ZERO,
        };
        let mut out = Vec::new();
        assert_eq!(
            Chain::after(last).append(&body(&json!({})), &mut out),
            Err(ChainFull)
        );
        assert!(out.is_empty());
    }
}
