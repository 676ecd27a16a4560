//! Signed statements of how far a chain had got.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::digest::{read_hex, write_hex};
use super::{Digest, Link};
use crate::canonical::write_string;

/// What a signature is for, so that it can be taken for nothing else.
const TYPE: &str = "portcullis-evidence-checkpoint-v1";

/// That a chain had got this far, at this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which chain: a name drawn at random when the log was begun.
    pub chain: String,
    /// The last entry that it covers.
    pub head: Link,
    /// Where that entry ends in the log's files.
    pub position: Position,
    /// When it was made: UTC, RFC 3339.
    pub timestamp: String,
}

/// A place in the files of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The number of the first entry of the segment.
    pub segment: u64,
    /// So many bytes into it.
    pub offset: u64,
}

/// Why a line is not a checkpoint to believe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It is something else, or is written in another way than checkpoints are.
    #[error("not a checkpoint: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: String,
    },
    /// It says itself that another key has signed it.
    #[error("the checkpoint of entry {seq} is signed by key {found}, not by {expected}")]
    OtherKey {
        /// The entry it covers.
        seq: u64,
        /// The key that it names.
        found: String,
        /// The key to verify with.
        expected: String,
    },
    /// It is not what was signed.
    #[error("the signature of the checkpoint of entry {seq} is wrong")]
    Signature {
        /// The entry it covers.
        seq: u64,
    },
}

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct KeyError {
    problem: &'static str,
}

/// An Ed25519 key to sign checkpoints with. It is forgotten, not only freed, when dropped.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

/// The public half of a [`SigningKey`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    chain: String,
    digest: Digest,
    key: String,
    offset: u64,
    segment: u64,
    seq: u64,
    signature: String,
    timestamp: String,
    #[serde(rename = "type")]
    kind: String,
}

impl SigningKey {
    /// From 32 random bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(&seed))
    }

    /// The 32 bytes it was made from, to be kept where nobody else can read them.
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// What others verify with.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// The line of this checkpoint, without a newline. The same checkpoint always gives the same line.
    pub fn sign(&self, checkpoint: &Checkpoint) -> Vec<u8> {
        let key = self.public().id();
        let signature = self.0.sign(&bytes(checkpoint, &key, None)).to_bytes();
        let mut digits = [0; 128];
        write_hex(&signature, &mut digits);
        bytes(checkpoint, &key, Some(&String::from_utf8_lossy(&digits)))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut seed = [0; 32];
        let problem = "a signing key is 64 lowercase hexadecimal digits";
        read_hex(text, &mut seed).ok_or(KeyError { problem })?;
        Ok(Self::from_seed(seed))
    }
}

impl PublicKey {
    /// A short name: the first 16 digits of the SHA-256 of its bytes.
    pub fn id(&self) -> String {
        let digest = Digest::of(self.0.as_bytes());
        let mut id = digest.to_string();
        id.truncate(16);
        id
    }

    /// Reads a checkpoint, if this key has signed it.
    pub fn read(&self, line: &[u8]) -> Result<Checkpoint, CheckpointError> {
        let malformed = |problem: String| CheckpointError::Malformed { problem };
        let wire: Wire =
            serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        let checkpoint = Checkpoint {
            chain: wire.chain,
            head: Link {
                seq: wire.seq,
                digest: wire.digest,
            },
            position: Position {
                segment: wire.segment,
                offset: wire.offset,
            },
            timestamp: wire.timestamp,
        };
        let seq = wire.seq;
        if wire.kind != TYPE || bytes(&checkpoint, &wire.key, Some(&wire.signature)) != line {
            return Err(malformed("not as checkpoints are written".to_owned()));
        }
        let expected = self.id();
        if wire.key != expected {
            return Err(CheckpointError::OtherKey {
                seq,
                found: wire.key,
                expected,
            });
        }
        let mut signature = [0; 64];
        let wrong = CheckpointError::Signature { seq };
        read_hex(&wire.signature, &mut signature).ok_or(wrong.clone())?;
        let message = bytes(&checkpoint, &wire.key, None);
        let verified = self
            .0
            .verify_strict(&message, &Signature::from_bytes(&signature));
        verified.map_err(|_| wrong)?;
        Ok(checkpoint)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Digest::new(self.0.to_bytes()), f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let problem = "a public key is 64 lowercase hexadecimal digits";
        read_hex(text, &mut bytes).ok_or(KeyError { problem })?;
        let problem = "these digits are not the public key of any key";
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError { problem })?;
        Ok(Self(key))
    }
}

/// The canonical form, with the signature or, as it is signed, without.
fn bytes(checkpoint: &Checkpoint, key: &str, signature: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let digest = checkpoint.head.digest.to_string();
    for (name, value) in [
        ("{\"chain\":", &*checkpoint.chain),
        (",\"digest\":", &digest),
        (",\"key\":", key),
    ] {
        out.extend_from_slice(name.as_bytes());
        write_string(value, &mut out);
    }
    let Position { segment, offset } = checkpoint.position;
    for (name, value) in [
        ("offset", offset),
        ("segment", segment),
        ("seq", checkpoint.head.seq),
    ] {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    if let Some(signature) = signature {
        out.extend_from_slice(b",\"signature\":");
        write_string(signature, &mut out);
    }
    out.extend_from_slice(b",\"timestamp\":");
    write_string(&checkpoint.timestamp, &mut out);
    out.extend_from_slice(b",\"type\":");
    write_string(TYPE, &mut out);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::check;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            chain: "0011aabb".to_owned(),
            head: Link {
                seq: 41,
                digest: Digest::new([3; 32]),
            },
            position: Position {
                segment: 1,
                offset: 4096,
            },
            timestamp: "2026-02-04T21:00:00Z".to_owned(),
        }
    }

    #[test]
    fn what_is_signed_is_read_back_and_is_canonical() {
        let key = SigningKey::from_seed([9; 32]);
        let line = key.sign(&checkpoint());
        assert_eq!(key.public().read(&line), Ok(checkpoint()));
        assert_eq!(key.sign(&checkpoint()), line);
        assert_eq!(check(str::from_utf8(&line).unwrap(), |_| {}), Ok(()));
    }

    #[test]
    fn every_single_byte_edit_is_found() {
        let key = SigningKey::from_seed([9; 32]);
        let line = key.sign(&checkpoint());
        for at in 0..line.len() {
            for change in [1, 2, 4, 32, 128] {
                let mut edited = line.clone();
                edited[at] ^= change;
                assert!(key.public().read(&edited).is_err(), "{at}");
            }
        }
    }

    #[test]
    fn another_key_is_named() {
        let (mine, other) = (
            SigningKey::from_seed([1; 32]),
            SigningKey::from_seed([2; 32]),
        );
        let error = other.public().read(&mine.sign(&checkpoint())).unwrap_err();
        assert!(
            matches!(error, CheckpointError::OtherKey { seq: 41, .. }),
            "{error}"
        );
    }

    #[test]
    fn keys_are_written_and_read_and_the_secret_one_is_not_shown() {
        let key = SigningKey::from_seed([0xAB; 32]);
        let public = key.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert!(!format!("{key:?}").contains("abab"));
        let again: SigningKey = "ab".repeat(32).parse().unwrap();
        assert_eq!((again.public(), again.seed()), (public, [0xAB; 32]));
        assert!("ab".parse::<SigningKey>().is_err());
        assert!("ab".parse::<PublicKey>().is_err());
    }
}
