//! The gate's whole answer: the decision, whether it binds, and what was looked at.

use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use crate::decision::{Action, Decision};
use crate::event::Event;
use crate::ids::RuleId;

/// Which policy judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyIdentity {
    /// The pack's name.
    pub id: String,
    /// The pack's version.
    pub version: String,
    /// SHA-256 of everything that can change a verdict, lowercase hex.
    pub digest: String,
}

/// The answer to one event.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// What may happen.
    pub decision: Decision,
    /// Whether it binds. In shadow mode nothing does.
    pub enforced: bool,
    /// Which policy judged.
    pub policy: Arc<PolicyIdentity>,
    /// What was looked at, and by whom.
    pub coverage: Coverage,
    /// How long it took, deep rules included.
    pub elapsed_us: u64,
    /// Of a PAUSE: what would be decided without the rule that pauses, then without the next that does, and so on. Empty
    /// otherwise, and never sent.
    pub if_lifted: Vec<Decision>,
}

impl Evaluation {
    /// The same where the pauses of these have been lifted, by [`Decision::pause_key`].
    pub fn lift(mut self, pauses: &[RuleId]) -> Self {
        let is_lifted = |decision: &Decision| {
            decision.action == Action::Pause && pauses.contains(decision.pause_key())
        };
        let mut next = std::mem::take(&mut self.if_lifted).into_iter();
        while is_lifted(&self.decision) {
            let Some(decision) = next.next() else { break };
            self.decision = decision;
        }
        self.if_lifted = next.collect();
        self
    }
}

impl Serialize for Evaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Evaluation", 5)?;
        map.serialize_field("decision", &self.decision)?;
        map.serialize_field("enforced", &self.enforced)?;
        map.serialize_field("policy", &*self.policy)?;
        map.serialize_field("coverage", &self.coverage)?;
        map.serialize_field("elapsed_us", &self.elapsed_us)?;
        map.end()
    }
}

/// Parts of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts(u8);

impl Parts {
    /// `text_content`
    pub const TEXT: Self = Self(1);
    /// `tool_name`
    pub const TOOL_NAME: Self = Self(2);
    /// `tool_args`
    pub const TOOL_ARGS: Self = Self(4);
    /// `payload.result` of a tool's answer, or of a listing of tools
    pub const RESULT: Self = Self(8);
    /// The rest of `payload`
    pub const PAYLOAD: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::TEXT, "text_content"),
        (Self::TOOL_NAME, "tool_name"),
        (Self::TOOL_ARGS, "tool_args"),
        (Self::RESULT, "payload.result"),
        (Self::PAYLOAD, "payload"),
    ];

    /// The parts that an event has.
    pub fn of(event: &Event) -> Self {
        let mut parts = Self::default();
        let result = event.payload.contains_key("result");
        let present = [
            event.text_content.is_some(),
            event.tool_name.is_some(),
            event.tool_args.is_some(),
            result,
            event.payload.len() > usize::from(result),
        ];
        for (present, (part, _)) in present.into_iter().zip(Self::NAMES) {
            if present {
                parts = parts.and(part);
            }
        }
        parts
    }

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of these parts that are among those.
    pub const fn among(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether these parts include those.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a rule fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleOutcome {
    /// It found nothing.
    Clear,
    /// It decided something.
    Decided,
    /// It failed or panicked.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// It is not registered or has no model.
    Unavailable,
    /// It has not answered lately, and was not asked again yet.
    CircuitOpen,
    /// It was asked and nobody waited; a late answer counts for the run's next event.
    Pending,
    /// It was not asked, because the answer was already certain.
    Skipped,
}

impl RuleOutcome {
    /// All outcomes.
    pub const ALL: [Self; 8] = [
        Self::Clear,
        Self::Decided,
        Self::Failed,
        Self::TimedOut,
        Self::Unavailable,
        Self::CircuitOpen,
        Self::Pending,
        Self::Skipped,
    ];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Decided => "decided",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
            Self::CircuitOpen => "circuit_open",
            Self::Pending => "pending",
            Self::Skipped => "skipped",
        }
    }

    /// Whether the rule should have judged this event and did not.
    pub const fn is_gap(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::TimedOut | Self::Unavailable | Self::CircuitOpen | Self::Pending
        )
    }
}

/// One rule's part in an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCoverage {
    /// Which rule.
    pub id: RuleId,
    /// How it fared.
    pub outcome: RuleOutcome,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
}

/// What was looked at, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// The parts that the event has.
    pub present: Parts,
    /// The parts that some rule has judged.
    pub judged: Parts,
    /// Each rule that applies to the event, in order. Room for the usual policy without
    /// allocating.
    pub rules: SmallVec<[RuleCoverage; 8]>,
}

impl Coverage {
    /// The rules that should have judged and did not.
    pub fn unjudged(&self) -> impl Iterator<Item = &RuleId> {
        self.rules
            .iter()
            .filter(|rule| rule.outcome.is_gap())
            .map(|rule| &rule.id)
    }
}

impl Serialize for Coverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Coverage", 3)?;
        map.serialize_field("parts", &PartsWire(self))?;
        map.serialize_field("rules", &RulesWire(&self.rules))?;
        map.serialize_field("unjudged", &self.unjudged().collect::<Vec<_>>())?;
        map.end()
    }
}

/// Each part that the event has, and whether some rule has judged it.
struct PartsWire<'c>(&'c Coverage);

impl Serialize for PartsWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (part, name) in Parts::NAMES {
            if self.0.present.has(part) {
                map.serialize_entry(name, &self.0.judged.has(part))?;
            }
        }
        map.end()
    }
}

struct RulesWire<'c>(&'c [RuleCoverage]);

impl Serialize for RulesWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Wire<'r> {
            id: &'r RuleId,
            outcome: &'static str,
            elapsed_us: f64,
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for rule in self.0 {
            list.serialize_element(&Wire {
                id: &rule.id,
                outcome: rule.outcome.as_str(),
                elapsed_us: rule.elapsed_ns as f64 / 1000.0,
            })?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use serde_json::json;

    #[test]
    fn every_part_of_an_event_is_either_judged_or_said_not_to_be() {
        let mut event = Event::new(EventType::ToolCallResult, "r");
        event.text_content = Some(String::new());
        event.payload.insert("result".into(), json!({}));
        let coverage = Coverage {
            present: Parts::of(&event),
            judged: Parts::TEXT.and(Parts::TOOL_ARGS),
            ..Coverage::default()
        };
        let parts = serde_json::to_value(&coverage).unwrap()["parts"].clone();
        assert_eq!(
            parts,
            json!({"text_content": true, "payload.result": false})
        );
        event.payload.insert("unknown".into(), json!(1));
        assert!(Parts::of(&event).has(Parts::PAYLOAD));
    }
}
