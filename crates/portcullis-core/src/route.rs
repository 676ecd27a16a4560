//! How long to wait for deep rules, and what happens if they are late (RFC-001 §5.2).

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventType};
use crate::ids::RuleId;
use crate::snapshot::{ContextSnapshot, ToolRiskTier};

/// What happens when a deep rule does not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// The step may happen.
    #[default]
    Allow,
    /// The step waits for a person.
    Pause,
    /// The run ends.
    Stop,
}

impl OnTimeout {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Pause, Self::Stop];

    /// Whether the step may happen. Packs that do not say otherwise keep the digests they had.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes it by reference"
    )]
    const fn is_allow(&self) -> bool {
        matches!(self, Self::Allow)
    }

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Pause => "pause",
            Self::Stop => "stop",
        }
    }
}

/// `RiskRoutingDecision`: how one event is judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Routing {
    /// How long to wait for deep rules; 0 for not at all.
    pub async_wait_ms: f64,
    /// What happens when they are late.
    pub on_timeout: OnTimeout,
    /// If any: only these deep rules run, and each must answer.
    pub required_async_rules: Vec<RuleId>,
    /// Nothing is judged and the step may happen.
    pub skip_evaluation: bool,
}

/// Decides how an event is judged.
pub trait RiskRouter: Send + Sync + 'static {
    /// Called once per event, before any rule.
    fn route(&self, event: &Event, snapshot: &ContextSnapshot<'_>) -> Routing;
}

/// The deep rule that suspicious requests are held to.
pub const JAILBREAK_CLASSIFIER: RuleId = RuleId::from_static("hf-jailbreak");

/// Routes by the tool's risk tier and by what the text asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DefaultRiskRouter {
    /// Wait for tools of high and critical tier.
    pub high_risk_wait_ms: f64,
    /// Wait for tools of medium tier.
    pub medium_risk_wait_ms: f64,
    /// Wait for any event, whatever its risk: what a late rule would have redacted has passed.
    pub min_wait_ms: f64,
    /// Whether critical tools stop, rather than pause, when deep rules are late.
    pub critical_fail_closed: bool,
    /// The least that happens when deep rules are late, whatever the risk.
    #[serde(skip_serializing_if = "OnTimeout::is_allow")]
    pub on_timeout: OnTimeout,
    /// The deep rules that must judge a request for the system prompt or for fewer restrictions.
    pub suspicious_rules: Vec<RuleId>,
}

impl Default for DefaultRiskRouter {
    fn default() -> Self {
        Self {
            high_risk_wait_ms: 200.0,
            medium_risk_wait_ms: 100.0,
            min_wait_ms: 0.0,
            critical_fail_closed: true,
            on_timeout: OnTimeout::Allow,
            suspicious_rules: vec![JAILBREAK_CLASSIFIER],
        }
    }
}

impl DefaultRiskRouter {
    /// How long a call of such a tool waits, and what happens then.
    pub fn for_tier(&self, tier: ToolRiskTier) -> (f64, OnTimeout) {
        let (wait_ms, on_timeout) = match tier {
            ToolRiskTier::Critical if self.critical_fail_closed => {
                (self.high_risk_wait_ms, OnTimeout::Stop)
            }
            ToolRiskTier::Critical | ToolRiskTier::High => {
                (self.high_risk_wait_ms, OnTimeout::Pause)
            }
            ToolRiskTier::Medium => (self.medium_risk_wait_ms, OnTimeout::Allow),
            ToolRiskTier::Low => (0.0, OnTimeout::Allow),
        };
        (
            wait_ms.max(self.min_wait_ms),
            on_timeout.max(self.on_timeout),
        )
    }
}

impl RiskRouter for DefaultRiskRouter {
    fn route(&self, event: &Event, snapshot: &ContextSnapshot<'_>) -> Routing {
        let tier = snapshot.current_tool.as_ref().map(|tool| tool.risk_tier);
        let (async_wait_ms, on_timeout) = self.for_tier(tier.unwrap_or(ToolRiskTier::Low));
        let mut routing = Routing {
            async_wait_ms,
            on_timeout,
            ..Routing::default()
        };
        if event.event_type == EventType::LlmBefore && snapshot.max_tool_risk >= ToolRiskTier::High
        {
            routing.wait_at_least(self.medium_risk_wait_ms);
            routing.on_timeout = routing.on_timeout.max(OnTimeout::Pause);
        }
        if snapshot.requests_system_info {
            routing.wait_at_least(self.medium_risk_wait_ms);
        }
        if snapshot.requests_capability_change {
            routing.wait_at_least(self.high_risk_wait_ms);
            routing.on_timeout = routing.on_timeout.max(OnTimeout::Pause);
        }
        if snapshot.requests_system_info || snapshot.requests_capability_change {
            routing
                .required_async_rules
                .clone_from(&self.suspicious_rules);
        }
        routing
    }
}

impl Routing {
    fn wait_at_least(&mut self, ms: f64) {
        self.async_wait_ms = self.async_wait_ms.max(ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Context;
    use crate::snapshot::{Signals, ToolRisks};
    use serde_json::{Map, json};

    /// RFC-001 appendix C and §5.2, case by case.
    #[test]
    fn the_default_router_follows_the_rfc() {
        let risks = ToolRisks::from_iter([
            ("critical", ToolRiskTier::Critical),
            ("high", ToolRiskTier::High),
            ("medium", ToolRiskTier::Medium),
            ("low", ToolRiskTier::Low),
        ]);
        let tool = |name: &str| Event::tool_call_start("r", name, Map::new());
        let prompt = || Event::llm_before("r", "x");
        let none = Signals::default();
        let system_info = Signals {
            requests_system_info: true,
            ..none
        };
        let capability = Signals {
            requests_capability_change: true,
            ..none
        };
        let no_tools: &[&str] = &[];
        let cases = [
            (
                tool("critical"),
                no_tools,
                none,
                200.0,
                OnTimeout::Stop,
                false,
            ),
            (tool("high"), no_tools, none, 200.0, OnTimeout::Pause, false),
            (
                tool("medium"),
                no_tools,
                none,
                100.0,
                OnTimeout::Allow,
                false,
            ),
            (tool("low"), no_tools, none, 0.0, OnTimeout::Allow, false),
            (
                tool("unlisted"),
                no_tools,
                none,
                100.0,
                OnTimeout::Allow,
                false,
            ),
            (prompt(), no_tools, none, 0.0, OnTimeout::Allow, false),
            (prompt(), &["medium"], none, 0.0, OnTimeout::Allow, false),
            (
                prompt(),
                &["low", "high"],
                none,
                100.0,
                OnTimeout::Pause,
                false,
            ),
            (
                prompt(),
                no_tools,
                system_info,
                100.0,
                OnTimeout::Allow,
                true,
            ),
            (
                prompt(),
                no_tools,
                capability,
                200.0,
                OnTimeout::Pause,
                true,
            ),
            (
                tool("critical"),
                no_tools,
                capability,
                200.0,
                OnTimeout::Stop,
                true,
            ),
            (
                tool("low"),
                no_tools,
                system_info,
                100.0,
                OnTimeout::Allow,
                true,
            ),
        ];
        for (event, tools, signals, wait, on_timeout, required) in cases {
            let mut context = Context::new("r");
            context
                .tool_context
                .insert("available_tools".into(), json!(tools));
            let snapshot = ContextSnapshot::build(&event, &context, &risks, signals);
            let routing = DefaultRiskRouter::default().route(&event, &snapshot);
            let expected = Routing {
                async_wait_ms: wait,
                on_timeout,
                required_async_rules: if required {
                    vec![JAILBREAK_CLASSIFIER]
                } else {
                    vec![]
                },
                skip_evaluation: false,
            };
            assert_eq!(routing, expected, "{event:?} {tools:?} {signals:?}");
        }
    }

    #[test]
    fn the_least_wait_is_for_events_of_any_risk() {
        let risks = ToolRisks::from_iter([("critical", ToolRiskTier::Critical)]);
        let router = DefaultRiskRouter {
            min_wait_ms: 150.0,
            ..DefaultRiskRouter::default()
        };
        let critical = Event::tool_call_start("r", "critical", Map::new());
        for (event, wait) in [(Event::llm_before("r", "x"), 150.0), (critical, 200.0)] {
            let context = Context::new("r");
            let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
            assert_eq!(router.route(&event, &snapshot).async_wait_ms, wait);
        }
    }

    #[test]
    fn the_least_that_happens_is_for_events_of_any_risk() {
        let risks = ToolRisks::from_iter([
            ("critical", ToolRiskTier::Critical),
            ("low", ToolRiskTier::Low),
        ]);
        let tool = |name: &str| Event::tool_call_start("r", name, Map::new());
        for (event, least, expected) in [
            (
                Event::llm_before("r", "x"),
                OnTimeout::Stop,
                OnTimeout::Stop,
            ),
            (tool("low"), OnTimeout::Pause, OnTimeout::Pause),
            (tool("critical"), OnTimeout::Pause, OnTimeout::Stop),
        ] {
            let router = DefaultRiskRouter {
                on_timeout: least,
                ..DefaultRiskRouter::default()
            };
            let context = Context::new("r");
            let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
            assert_eq!(router.route(&event, &snapshot).on_timeout, expected);
        }
    }

    #[test]
    fn critical_tools_pause_if_they_are_not_to_fail_closed() {
        let risks = ToolRisks::from_iter([("critical", ToolRiskTier::Critical)]);
        let event = Event::tool_call_start("r", "critical", Map::new());
        let context = Context::new("r");
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let router = DefaultRiskRouter {
            critical_fail_closed: false,
            ..DefaultRiskRouter::default()
        };
        assert_eq!(router.route(&event, &snapshot).on_timeout, OnTimeout::Pause);
    }
}
