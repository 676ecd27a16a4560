//! The agent-aware context that rules and classifiers see (RFC-001 §4).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Context, Event, SchemaVersion};

/// How much harm a tool can do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ToolRiskTier {
    /// Display, format, calculate.
    #[default]
    Low,
    /// Read, search, retrieve.
    Medium,
    /// Write, network, modify.
    High,
    /// Administer, delete, handle credentials.
    Critical,
}

impl ToolRiskTier {
    /// All tiers, mildest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// Where a text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustBoundary {
    /// The developer.
    System,
    /// The user.
    #[default]
    User,
    /// A vector store.
    Rag,
    /// The web.
    Web,
    /// A tool.
    ToolOutput,
}

/// A tool and its tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRiskInfo<'a> {
    /// The tool.
    pub name: Cow<'a, str>,
    /// Its tier.
    pub risk_tier: ToolRiskTier,
}

/// The tiers that a policy gives to tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRisks {
    /// Policies list few, and a few names are compared in less time than it takes to hash one.
    tiers: BTreeMap<Box<str>, ToolRiskTier>,
    unlisted: ToolRiskTier,
}

impl ToolRisks {
    /// The key that sets the tier of unlisted tools.
    pub const DEFAULT_KEY: &'static str = "__default__";

    /// The tier of a tool.
    pub fn tier(&self, tool: &str) -> ToolRiskTier {
        self.tiers.get(tool).copied().unwrap_or(self.unlisted)
    }

    /// The tier of tools that are not listed.
    pub fn unlisted(&self) -> ToolRiskTier {
        self.unlisted
    }

    /// The listed tools and their tiers, by name.
    pub fn listed(&self) -> Vec<(&str, ToolRiskTier)> {
        self.tiers.iter().map(|(k, v)| (&**k, *v)).collect()
    }
}

impl Default for ToolRisks {
    fn default() -> Self {
        Self {
            tiers: BTreeMap::new(),
            unlisted: ToolRiskTier::Medium,
        }
    }
}

impl<K: Into<Box<str>>> FromIterator<(K, ToolRiskTier)> for ToolRisks {
    fn from_iter<I: IntoIterator<Item = (K, ToolRiskTier)>>(tiers: I) -> Self {
        let mut risks = Self::default();
        for (tool, tier) in tiers {
            let tool = tool.into();
            if &*tool == Self::DEFAULT_KEY {
                risks.unlisted = tier;
            } else {
                risks.tiers.insert(tool, tier);
            }
        }
        risks
    }
}

/// What the text asks for, as RFC-001 §4.2's patterns see it. The scanner finds them in the same
/// pass as everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// Asks for the system prompt or instructions.
    pub requests_system_info: bool,
    /// Asks to lift restrictions.
    pub requests_capability_change: bool,
}

/// `ContextSnapshotV1`: borrowed from the event it describes, so that building one allocates
/// nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextSnapshot<'a> {
    /// The event's text.
    pub user_text: Cow<'a, str>,
    /// Where the text comes from.
    pub primary_source: TrustBoundary,
    /// Whether the run has taken in untrusted content.
    pub contains_untrusted: bool,
    /// The tools the agent could use.
    pub available_tools: AvailableTools<'a>,
    /// The tool of this event.
    pub current_tool: Option<ToolRiskInfo<'a>>,
    /// The highest tier among the available tools.
    pub max_tool_risk: ToolRiskTier,
    /// Asks for the system prompt or instructions.
    pub requests_system_info: bool,
    /// Asks to lift restrictions.
    pub requests_capability_change: bool,
    /// Strikes so far, over all categories.
    pub previous_violations: u64,
}

/// The available tools: a view over the context's list, or a list of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum AvailableTools<'a> {
    /// The context's names; tiers are looked up when asked for.
    Listed(&'a [Value], &'a ToolRisks),
    /// A list of its own.
    Owned(Vec<ToolRiskInfo<'static>>),
}

impl AvailableTools<'_> {
    /// Each tool with its tier.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ToolRiskTier)> {
        let (names, risks, owned): (&[Value], Option<&ToolRisks>, &[ToolRiskInfo<'static>]) =
            match self {
                Self::Listed(names, risks) => (names, Some(risks), &[]),
                Self::Owned(tools) => (&[], None, tools),
            };
        let listed = names.iter().filter_map(move |name| {
            let name = name.as_str().unwrap_or_default();
            Some((name, risks?.tier(name)))
        });
        listed.chain(owned.iter().map(|tool| (&*tool.name, tool.risk_tier)))
    }

    fn into_owned(self) -> AvailableTools<'static> {
        AvailableTools::Owned(
            self.iter()
                .map(|(name, risk_tier)| ToolRiskInfo {
                    name: Cow::Owned(name.to_owned()),
                    risk_tier,
                })
                .collect(),
        )
    }
}

impl<'a> ContextSnapshot<'a> {
    /// Describes an event. `signals` come from the scan of its text.
    pub fn build(
        event: &'a Event,
        context: &'a Context,
        risks: &'a ToolRisks,
        signals: Signals,
    ) -> Self {
        let (names, readable) = match context.tool_context.get("available_tools") {
            None | Some(Value::Null) => (&[][..], true),
            Some(Value::Array(names)) => (names.as_slice(), true),
            Some(_) => (&[][..], false),
        };
        let available_tools = AvailableTools::Listed(names, risks);
        let max_tool_risk = if readable {
            let tiers = available_tools.iter().map(|(_, tier)| tier);
            tiers.max().unwrap_or_default()
        } else {
            // Some tools are there, and nobody can say which.
            ToolRiskTier::Critical
        };
        Self {
            user_text: Cow::Borrowed(event.text()),
            primary_source: if event.event_type.has_result() {
                TrustBoundary::ToolOutput
            } else {
                TrustBoundary::User
            },
            contains_untrusted: match context.tool_context.get("contains_untrusted") {
                None | Some(Value::Null | Value::Bool(false)) => false,
                // What is not a clear no is a yes: doubt raises suspicion, it does not lower it.
                Some(_) => true,
            },
            max_tool_risk,
            current_tool: event
                .tool_name
                .as_deref()
                .filter(|name| !name.is_empty())
                .map(|name| ToolRiskInfo {
                    name: Cow::Borrowed(name),
                    risk_tier: risks.tier(name),
                }),
            available_tools,
            requests_system_info: signals.requests_system_info,
            requests_capability_change: signals.requests_capability_change,
            previous_violations: context
                .strike_counts
                .values()
                .fold(0, |sum: u64, n| sum.saturating_add(*n)),
        }
    }

    /// The snapshot for code that outlives the event.
    pub fn into_owned(self) -> ContextSnapshot<'static> {
        ContextSnapshot {
            user_text: Cow::Owned(self.user_text.into_owned()),
            primary_source: self.primary_source,
            contains_untrusted: self.contains_untrusted,
            available_tools: self.available_tools.into_owned(),
            current_tool: self.current_tool.map(|tool| ToolRiskInfo {
                name: Cow::Owned(tool.name.into_owned()),
                risk_tier: tool.risk_tier,
            }),
            max_tool_risk: self.max_tool_risk,
            requests_system_info: self.requests_system_info,
            requests_capability_change: self.requests_capability_change,
            previous_violations: self.previous_violations,
        }
    }

    /// RFC-001's `to_dict`: what external classifiers receive.
    pub fn to_wire(&self) -> SnapshotWire<'_> {
        SnapshotWire {
            schema_version: SchemaVersion,
            user_text: Cow::Borrowed(&self.user_text),
            primary_source: self.primary_source,
            contains_untrusted: self.contains_untrusted,
            max_tool_risk: self.max_tool_risk,
            current_tool: self
                .current_tool
                .as_ref()
                .map(|tool| Cow::Borrowed(&*tool.name)),
            requests_system_info: self.requests_system_info,
            requests_capability_change: self.requests_capability_change,
            previous_violations: self.previous_violations,
        }
    }
}

/// Describes events for rules: RFC-001's hook for features of your own.
pub trait ContextBuilder: Send + Sync + 'static {
    /// Called once per event, before the risk router.
    fn build<'a>(
        &self,
        event: &'a Event,
        context: &'a Context,
        risks: &'a ToolRisks,
        signals: Signals,
    ) -> ContextSnapshot<'a>;
}

/// [`ContextSnapshot::build`] and nothing more.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultContextBuilder;

impl ContextBuilder for DefaultContextBuilder {
    fn build<'a>(
        &self,
        event: &'a Event,
        context: &'a Context,
        risks: &'a ToolRisks,
        signals: Signals,
    ) -> ContextSnapshot<'a> {
        ContextSnapshot::build(event, context, risks, signals)
    }
}

/// `ContextSnapshotV1` as JSON: RFC-001's nine fields, and no tool list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotWire<'a> {
    schema_version: SchemaVersion,
    user_text: Cow<'a, str>,
    primary_source: TrustBoundary,
    contains_untrusted: bool,
    max_tool_risk: ToolRiskTier,
    current_tool: Option<Cow<'a, str>>,
    requests_system_info: bool,
    requests_capability_change: bool,
    previous_violations: u64,
}

impl SnapshotWire<'_> {
    /// The snapshot on the far side. The wire names the tool only, so its tier comes from the
    /// receiver's own table.
    pub fn into_snapshot(self, risks: &ToolRisks) -> ContextSnapshot<'static> {
        ContextSnapshot {
            user_text: Cow::Owned(self.user_text.into_owned()),
            primary_source: self.primary_source,
            contains_untrusted: self.contains_untrusted,
            available_tools: AvailableTools::Owned(Vec::new()),
            current_tool: self.current_tool.map(|name| ToolRiskInfo {
                risk_tier: risks.tier(&name),
                name: Cow::Owned(name.into_owned()),
            }),
            max_tool_risk: self.max_tool_risk,
            requests_system_info: self.requests_system_info,
            requests_capability_change: self.requests_capability_change,
            previous_violations: self.previous_violations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn risks() -> ToolRisks {
        ToolRisks::from_iter([
            ("filesystem.delete", ToolRiskTier::Critical),
            ("filesystem.write", ToolRiskTier::High),
            ("show", ToolRiskTier::Low),
        ])
    }

    fn context(tool_context: Value) -> Context {
        Context {
            tool_context: serde_json::from_value(tool_context).unwrap(),
            strike_counts: [("injection".to_owned(), 2), ("tool".to_owned(), 1)].into(),
            ..Context::new("r")
        }
    }

    #[test]
    fn the_wire_form_is_the_rfcs() {
        let event = Event::tool_call_result("r", "filesystem.write", "hello");
        let context = context(
            json!({"available_tools": ["show", "filesystem.write"], "contains_untrusted": true}),
        );
        let risks = risks();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let wire = serde_json::to_value(snapshot.to_wire()).unwrap();
        assert_eq!(
            wire,
            json!({
                "schema_version": "1",
                "user_text": "hello",
                "primary_source": "tool_output",
                "contains_untrusted": true,
                "max_tool_risk": "high",
                "current_tool": "filesystem.write",
                "requests_system_info": false,
                "requests_capability_change": false,
                "previous_violations": 3,
            })
        );
        let back: SnapshotWire<'_> = serde_json::from_value(wire).unwrap();
        let back = back.into_snapshot(&risks);
        assert_eq!(back.current_tool, snapshot.current_tool);
        assert_eq!(back.max_tool_risk, ToolRiskTier::High);
    }

    #[test]
    fn tools_that_cannot_be_read_are_the_worst() {
        let event = Event::llm_before("r", "");
        let (context, risks) = (context(json!({"available_tools": "show"})), risks());
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        assert_eq!(snapshot.max_tool_risk, ToolRiskTier::Critical);
    }

    #[test]
    fn an_unknown_schema_version_is_refused() {
        let snapshot = ContextSnapshot::build(
            &Event::llm_before("r", ""),
            &Context::new("r"),
            &ToolRisks::default(),
            Signals::default(),
        )
        .into_owned();
        let mut wire = serde_json::to_value(snapshot.to_wire()).unwrap();
        wire["schema_version"] = json!("2");
        let error = serde_json::from_value::<SnapshotWire<'_>>(wire).unwrap_err();
        assert!(
            error.to_string().contains("unknown schema_version \"2\""),
            "{error}"
        );
    }

    #[test]
    fn tiers_follow_the_table_and_its_default() {
        let cases = [
            (risks(), "filesystem.delete", ToolRiskTier::Critical),
            (risks(), "unlisted", ToolRiskTier::Medium),
            (
                ToolRisks::from_iter([("__default__", ToolRiskTier::High)]),
                "unlisted",
                ToolRiskTier::High,
            ),
        ];
        for (risks, tool, tier) in cases {
            let event = Event::tool_call_start("r", tool, Map::new());
            let context = Context::new("r");
            let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
            assert_eq!(snapshot.current_tool.unwrap().risk_tier, tier);
            assert_eq!(
                snapshot.max_tool_risk,
                ToolRiskTier::Low,
                "no tools are available"
            );
        }
    }
}
