//! What the evidence log keeps of a batch.

use serde_json::{Map, Value};

use super::error::ConvertError;
use super::write::Sealed;

/// The `event` of an entry that keeps a batch.
const BATCH_ENTRY: &str = "a2a_batch";

/// The members of an entry, as [`Body::of`](crate::evidence::Body::of) takes them. Whoever writes it adds when, and who
/// asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryMembers {
    /// Ours: `event` and `batch_digest`.
    pub made: Map<String, Value>,
    /// The packet's: `batch`. To be searched for secrets.
    pub told: Map<String, Value>,
}

impl Sealed {
    /// The entry that keeps this batch.
    pub fn entry(&self) -> Result<EntryMembers, ConvertError> {
        let batch = serde_json::from_str(&self.json);
        let batch: Value = batch.map_err(|error| ConvertError::Infrastructure {
            message: format!("the batch cannot be recorded: {error}"),
        })?;
        let made = [
            ("event", Value::from(BATCH_ENTRY)),
            ("batch_digest", self.digest.to_string().into()),
        ];
        let owned = |(name, value): (&str, Value)| (name.to_owned(), value);
        Ok(EntryMembers {
            made: made.into_iter().map(owned).collect(),
            told: [("batch", batch)].into_iter().map(owned).collect(),
        })
    }
}
