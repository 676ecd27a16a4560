//! The names of rules and decisions.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a rule. Names in double underscores belong to the gate itself.
#[derive(Clone)]
pub struct RuleId(RuleIdText);

/// Built-in names cost nothing to copy; names from packs are shared.
#[derive(Clone)]
enum RuleIdText {
    Static(&'static str),
    Shared(Arc<str>),
}

impl RuleId {
    /// No rule had anything to say.
    pub const DEFAULT: Self = Self::from_static("__default__");
    /// The risk router skipped the event.
    pub const SKIP: Self = Self::from_static("__skip__");
    /// A deep rule did not answer in time.
    pub const TIMEOUT: Self = Self::from_static("__timeout__");
    /// No policy is configured.
    pub const NO_POLICY: Self = Self::from_static("__no_policy__");
    /// The event is larger than the policy's limits.
    pub const LIMITS: Self = Self::from_static("__limits__");
    /// A hook of the embedder (router, context builder, decision policy) failed.
    pub const HOOK: Self = Self::from_static("__hook__");
    /// The run is quarantined.
    pub const QUARANTINE: Self = Self::from_static("__quarantine__");
    /// A person quarantined the run.
    pub const OPERATOR: Self = Self::from_static("__operator__");

    /// A rule id known at compile time.
    pub const fn from_static(id: &'static str) -> Self {
        Self(RuleIdText::Static(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            RuleIdText::Static(id) => id,
            RuleIdText::Shared(id) => id,
        }
    }

    /// The category that strikes by this rule count in: the id up to its first `-`.
    pub fn strike_category(&self) -> &str {
        let id = self.as_str();
        id.split_once('-').map_or(id, |(category, _)| category)
    }
}

impl From<&str> for RuleId {
    fn from(id: &str) -> Self {
        Self(RuleIdText::Shared(id.into()))
    }
}

impl From<String> for RuleId {
    fn from(id: String) -> Self {
        Self(RuleIdText::Shared(id.into()))
    }
}

impl PartialEq for RuleId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RuleId {}

impl Hash for RuleId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for RuleId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::borrow::Borrow<str> for RuleId {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?))
    }
}

/// The id of one decision: 128 bits, 32 lowercase hex digits on the wire.
///
/// Core never makes one up; the gateway assigns it. [`DecisionId::NIL`] means "not yet assigned".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DecisionId(pub u128);

impl DecisionId {
    /// Not yet assigned.
    pub const NIL: Self = Self(0);
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for DecisionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DecisionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("decision_id must be at most 32 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strike_category_is_the_id_up_to_the_first_dash() {
        assert_eq!(
            RuleId::from("injection-patterns").strike_category(),
            "injection"
        );
        assert_eq!(RuleId::from("plain").strike_category(), "plain");
        assert_eq!(RuleId::TIMEOUT.strike_category(), "__timeout__");
    }
}
