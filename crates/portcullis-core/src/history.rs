//! What sequence rules know of a run's earlier steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventType};
use crate::ids::RuleId;

/// The steps of a run, as far as sequence rules care: when each last saw what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct History {
    steps: u64,
    seen: BTreeMap<RuleId, u64>,
}

impl History {
    /// How many steps ago the rule last saw what it waits for; 1 is the step before this one.
    pub fn steps_since(&self, rule: &RuleId) -> Option<u64> {
        self.seen
            .get(rule)
            .map(|step| self.steps.saturating_sub(*step))
    }

    /// How many steps there were.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds a step at which these rules saw what they wait for.
    pub fn step<'r>(&mut self, satisfied: impl IntoIterator<Item = &'r RuleId>) {
        for rule in satisfied {
            match self.seen.get_mut(rule) {
                Some(step) => *step = self.steps,
                None => {
                    self.seen.insert(rule.clone(), self.steps);
                }
            }
        }
        self.steps += 1;
    }
}

/// What a sequence rule waits for.
#[derive(Debug)]
pub(crate) struct Trigger {
    /// The sequence rule.
    pub(crate) rule: RuleId,
    /// That one of these rules has something to say.
    pub(crate) rules: Vec<RuleId>,
    /// Or that one of these tools runs.
    pub(crate) tools: Vec<ToolPattern>,
}

impl Trigger {
    /// Whether a step is what it waits for. `decided` are the rules that had something to say of it,
    /// `stopped` says that the step did not happen.
    pub(crate) fn fires(&self, event: &Event, decided: &[&RuleId], stopped: bool) -> bool {
        let tool = || match event.event_type {
            EventType::ToolCallStart | EventType::ToolCallResult if !stopped => {
                event.tool_name.as_deref()
            }
            _ => None,
        };
        let matches = |tool: &str| self.tools.iter().any(|pattern| pattern.matches(tool));
        decided.iter().any(|rule| self.rules.contains(rule)) || tool().is_some_and(matches)
    }
}

/// The name of a tool, in which `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct ToolPattern(String);

impl ToolPattern {
    /// From a pack.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Whether a tool goes by this name.
    pub fn matches(&self, tool: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = tool.strip_prefix(parts.next().unwrap_or_default()) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, tool, expected) in [
            ("http.get", "http.get", true),
            ("http.get", "http.get2", false),
            ("http.*", "http.get", true),
            ("http.*", "https.get", false),
            ("*.send", "mail.send", true),
            ("*.send", "mail.sender", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("", "x", false),
        ] {
            assert_eq!(
                ToolPattern::new(pattern).matches(tool),
                expected,
                "{pattern} {tool}"
            );
        }
    }

    #[test]
    fn steps_are_counted_from_the_last_time() {
        let rule = RuleId::from("r");
        let mut history = History::default();
        assert_eq!(history.steps_since(&rule), None);
        history.step([&rule]);
        assert_eq!(history.steps_since(&rule), Some(1));
        history.step([]);
        assert_eq!(history.steps_since(&rule), Some(2));
        history.step([&rule]);
        assert_eq!(history.steps_since(&rule), Some(1));
    }
}
