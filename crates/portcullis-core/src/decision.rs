//! What the gate answers: a [`Decision`] and everything it carries.
//!
//! Field names and wire values are RFC-001's (§3.1). Two fields are ours and additive: `retryable`
//! and `remediation`, so that an agent can tell a final no from a fixable one.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::ids::{DecisionId, RuleId};

/// What may happen to the step that was judged.
///
/// The order is the order of precedence: a later variant outranks an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Action {
    /// The step may happen as it is.
    Allow,
    /// The step may happen once the listed redactions are applied.
    Redact,
    /// The step must be tried again, corrected.
    Retry,
    /// The step waits for a person.
    Pause,
    /// The step must not happen and the run ends.
    Stop,
}

impl Action {
    /// All actions, weakest first.
    pub const ALL: [Self; 5] = [
        Self::Allow,
        Self::Redact,
        Self::Retry,
        Self::Pause,
        Self::Stop,
    ];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::Redact => "REDACT",
            Self::Retry => "RETRY",
            Self::Pause => "PAUSE",
            Self::Stop => "STOP",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How bad a finding is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Low,
    /// The default.
    #[default]
    Medium,
    /// Likely harmful.
    High,
    /// Harmful.
    Critical,
}

impl Severity {
    /// All severities, mildest first.
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

/// Where a rule runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleCost {
    /// Inline, before the step happens.
    Fast,
    /// Behind the inbox and a deadline.
    Deep,
}

impl RuleCost {
    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Deep => "deep",
        }
    }
}

/// A side effect that a decision asks for (RFC-001 appendix D). The list is closed: each member has
/// a real sink in the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Mark the run's trajectory for review.
    FlagTrajectory,
    /// Count a strike in the category of the deciding rule.
    IncrementStrike,
    /// Send to the alert sink.
    EmitAlert,
    /// Quarantine the run: its later events are stopped.
    QuarantineSession,
}

impl Effect {
    /// All effects.
    pub const ALL: [Self; 4] = [
        Self::FlagTrajectory,
        Self::IncrementStrike,
        Self::EmitAlert,
        Self::QuarantineSession,
    ];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FlagTrajectory => "flag_trajectory",
            Self::IncrementStrike => "increment_strike",
            Self::EmitAlert => "emit_alert",
            Self::QuarantineSession => "quarantine_session",
        }
    }
}

/// One span of content to replace.
///
/// Offsets count Unicode code points, as RFC-001's Python does. `path` is `"text"` for the event's
/// `text_content`, else a JSON Pointer to a string inside `tool_args` or the structured result.
/// Without offsets the whole string is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RedactionSpec {
    /// Where the string is.
    pub path: Cow<'static, str>,
    /// What stands there afterwards.
    #[serde(default = "RedactionSpec::default_replacement")]
    pub replacement: Cow<'static, str>,
    /// What kind of thing was found, such as `AWS_KEY`.
    #[serde(default)]
    pub entity_type: Option<Cow<'static, str>>,
    /// First code point of the span.
    #[serde(default)]
    pub start_offset: Option<usize>,
    /// One past the last code point of the span.
    #[serde(default)]
    pub end_offset: Option<usize>,
    /// Whether the gateway is to remember the value, and put a token in its place that can be turned
    /// back. Between rule and gateway only: afterwards the token is the replacement.
    #[serde(skip)]
    pub restorable: bool,
}

impl RedactionSpec {
    /// The `path` that means the event's `text_content`.
    pub const TEXT: &'static str = "text";

    /// All of a string.
    pub(crate) fn whole(path: String) -> Self {
        Self {
            path: path.into(),
            replacement: Self::default_replacement(),
            entity_type: None,
            start_offset: None,
            end_offset: None,
            restorable: false,
        }
    }

    fn default_replacement() -> Cow<'static, str> {
        Cow::Borrowed("[REDACTED]")
    }
}

/// How to try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySpec {
    /// How often at most.
    pub max_attempts: u32,
    /// What to tell the model.
    pub corrective_message: String,
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self {
            max_attempts: 2,
            corrective_message: String::new(),
        }
    }
}

/// What a pause holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseScope {
    /// The whole run.
    Run,
    /// The current step.
    Step,
    /// The one tool call.
    #[default]
    ToolCall,
}

impl PauseScope {
    /// All scopes, widest first.
    pub const ALL: [Self; 3] = [Self::Run, Self::Step, Self::ToolCall];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Step => "step",
            Self::ToolCall => "tool_call",
        }
    }
}

/// Who may lift a pause, and by when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PauseSpec {
    /// What is held up.
    pub scope: PauseScope,
    /// Roles that may approve.
    pub approver_roles: Vec<String>,
    /// What the approver is asked.
    pub prompt: String,
    /// Seconds until the pause lapses; `null` for never.
    pub timeout_s: Option<f64>,
    /// What it means if nobody has decided by then.
    #[serde(skip_serializing_if = "TimeoutAnswer::is_deny")]
    pub on_timeout: TimeoutAnswer,
}

/// What silence means when a pause lapses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutAnswer {
    /// No.
    #[default]
    Deny,
    /// Yes: for steps that somebody should be able to prevent, and nobody has to allow.
    Approve,
}

impl TimeoutAnswer {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Deny, Self::Approve];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Approve => "approve",
        }
    }

    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    const fn is_deny(&self) -> bool {
        matches!(self, Self::Deny)
    }
}

impl Default for PauseSpec {
    fn default() -> Self {
        Self {
            scope: PauseScope::default(),
            approver_roles: vec!["admin".to_owned()],
            prompt: String::new(),
            timeout_s: Some(300.0),
            on_timeout: TimeoutAnswer::default(),
        }
    }
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopSpec {
    /// Machine-readable cause.
    pub error_code: ErrorCode,
    /// What the user is told.
    pub user_message: Cow<'static, str>,
    /// What operators are told.
    pub internal_reason: String,
}

impl StopSpec {
    /// A stop with this code and the default user message.
    pub fn code(error_code: ErrorCode) -> Self {
        Self {
            error_code,
            ..Self::default()
        }
    }
}

impl Default for StopSpec {
    fn default() -> Self {
        Self {
            error_code: ErrorCode::GuardrailStop,
            user_message: Cow::Borrowed("I'm unable to complete that request."),
            internal_reason: String::new(),
        }
    }
}

/// One answer, by one rule or resolved from many.
///
/// What only some actions carry is boxed: most decisions are ALLOW, and every one is moved about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What may happen.
    pub action: Action,
    /// Which rule says so.
    pub rule_id: RuleId,
    /// Why, for people.
    pub reason: Cow<'static, str>,
    /// Assigned by the gateway.
    #[serde(default)]
    pub decision_id: DecisionId,
    /// The deep evaluation that this came from.
    #[serde(default)]
    pub correlation_id: Option<String>,
    /// How bad.
    #[serde(default)]
    pub severity: Severity,
    /// How sure, 0 to 1.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// Whether a fast rule said it.
    #[serde(default = "yes")]
    pub was_sync: bool,
    /// Side effects to carry out.
    #[serde(default)]
    pub effects: Vec<Effect>,
    /// Spans to replace; applying them is always safe.
    #[serde(default, with = "empty_as_null")]
    pub redactions: Vec<RedactionSpec>,
    /// With RETRY: how.
    #[serde(default)]
    pub retry: Option<Box<RetrySpec>>,
    /// With PAUSE: for whom.
    #[serde(default)]
    pub pause: Option<Box<PauseSpec>>,
    /// With STOP: how the run ends.
    #[serde(default)]
    pub stop: Option<Box<StopSpec>>,
    /// What a classifier said.
    #[serde(default)]
    pub classifier_result: Option<Box<serde_json::Map<String, serde_json::Value>>>,
    /// Whether sending this step again, corrected or later, can succeed.
    #[serde(default)]
    pub retryable: bool,
    /// What to do about it, where the rule knows.
    #[serde(default)]
    pub remediation: Option<Cow<'static, str>>,
    /// With PAUSE: what lifts it, where the rule's name would lift too much. See [`pause_key`](Self::pause_key).
    #[serde(skip)]
    pub lifted_by: Option<Box<RuleId>>,
}

impl Decision {
    /// The same, and its pause is lifted by this.
    pub fn with_pause_key(mut self, key: &str) -> Self {
        self.lifted_by = Some(Box::new(RuleId::from(key)));
        self
    }

    /// By what a person's yes to its pause is known: the rule's name, unless that stands for several things, as the name
    /// of all that did not answer in time does.
    pub fn pause_key(&self) -> &RuleId {
        self.lifted_by.as_deref().unwrap_or(&self.rule_id)
    }

    fn new(action: Action, rule_id: RuleId, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            action,
            rule_id,
            reason: reason.into(),
            decision_id: DecisionId::NIL,
            correlation_id: None,
            severity: Severity::default(),
            confidence: None,
            was_sync: true,
            effects: Vec::new(),
            redactions: Vec::new(),
            retry: None,
            pause: None,
            stop: None,
            classifier_result: None,
            retryable: false,
            remediation: None,
            lifted_by: None,
        }
    }

    /// The step may happen.
    pub fn allow(rule_id: RuleId, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Action::Allow, rule_id, reason)
    }

    /// The step may happen with these spans replaced.
    pub fn redact(
        rule_id: RuleId,
        reason: impl Into<Cow<'static, str>>,
        redactions: Vec<RedactionSpec>,
    ) -> Self {
        Self {
            redactions,
            ..Self::new(Action::Redact, rule_id, reason)
        }
    }

    /// The step must be tried again.
    pub fn retry(rule_id: RuleId, reason: impl Into<Cow<'static, str>>, retry: RetrySpec) -> Self {
        Self {
            retry: Some(Box::new(retry)),
            retryable: true,
            ..Self::new(Action::Retry, rule_id, reason)
        }
    }

    /// The step waits for a person.
    pub fn pause(rule_id: RuleId, reason: impl Into<Cow<'static, str>>, pause: PauseSpec) -> Self {
        Self {
            pause: Some(Box::new(pause)),
            retryable: true,
            ..Self::new(Action::Pause, rule_id, reason)
        }
    }

    /// The run ends.
    pub fn stop(rule_id: RuleId, reason: impl Into<Cow<'static, str>>, stop: StopSpec) -> Self {
        Self {
            retryable: stop.error_code.retryable(),
            stop: Some(Box::new(stop)),
            ..Self::new(Action::Stop, rule_id, reason)
        }
    }

    /// The same decision with a severity.
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same decision with a confidence.
    pub fn with_confidence(mut self, confidence: f64) -> Self {
        self.confidence = Some(confidence);
        self
    }

    /// The same decision with advice on what to do about it.
    pub fn with_remediation(mut self, remediation: impl Into<Cow<'static, str>>) -> Self {
        self.remediation = Some(remediation.into());
        self
    }

    /// The same decision with further effects; one that it already has is not repeated.
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        for effect in effects {
            if !self.effects.contains(&effect) {
                self.effects.push(effect);
            }
        }
        self
    }
}

fn yes() -> bool {
    true
}

/// RFC-001 has `redactions: None` where there are none; a `Vec` is kinder to work with.
mod empty_as_null {
    use super::RedactionSpec;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        redactions: &[RedactionSpec],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (!redactions.is_empty())
            .then_some(redactions)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RedactionSpec>, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_decision_has_the_rfc_wire_form() {
        let decision = Decision::stop(
            RuleId::from_static("tool-allowlist"),
            "Tool 'x' is denied",
            StopSpec::code(ErrorCode::ToolDenied),
        )
        .with_severity(Severity::Critical)
        .with_effects([Effect::FlagTrajectory, Effect::FlagTrajectory]);
        assert_eq!(
            serde_json::to_value(&decision).unwrap(),
            json!({
                "action": "STOP",
                "rule_id": "tool-allowlist",
                "reason": "Tool 'x' is denied",
                "decision_id": "00000000000000000000000000000000",
                "correlation_id": null,
                "severity": "critical",
                "confidence": null,
                "was_sync": true,
                "effects": ["flag_trajectory"],
                "redactions": null,
                "retry": null,
                "pause": null,
                "stop": {
                    "error_code": "TOOL_DENIED",
                    "user_message": "I'm unable to complete that request.",
                    "internal_reason": "",
                },
                "classifier_result": null,
                "retryable": false,
                "remediation": null,
            })
        );
    }

    #[test]
    fn a_decision_survives_the_wire() {
        let redaction = RedactionSpec {
            path: "/a/b".into(),
            replacement: "[X]".into(),
            entity_type: Some("X".into()),
            start_offset: Some(1),
            end_offset: Some(3),
            restorable: false,
        };
        for decision in [
            Decision::allow(RuleId::DEFAULT, "fine"),
            Decision::redact(RuleId::from("r-1"), "found", vec![redaction]).with_confidence(0.5),
            Decision::retry(RuleId::from("r-2"), "again", RetrySpec::default()),
            Decision::pause(RuleId::from("r-3"), "ask", PauseSpec::default()),
            Decision::stop(RuleId::from("r-4"), "no", StopSpec::default()),
        ] {
            let text = serde_json::to_string(&decision).unwrap();
            assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
        }
    }

    #[test]
    fn a_minimal_decision_from_python_is_read() {
        let decision: Decision = serde_json::from_value(json!({
            "action": "REDACT", "rule_id": "pii", "reason": "found",
            "redactions": [{"path": "text", "start_offset": 0, "end_offset": 4}],
        }))
        .unwrap();
        assert_eq!(decision.redactions[0].replacement, "[REDACTED]");
        assert_eq!(decision.severity, Severity::Medium);
        assert!(decision.was_sync);
    }

    #[test]
    fn defaults_are_the_rfcs() {
        assert_eq!(
            serde_json::to_value(RetrySpec::default()).unwrap(),
            json!({"max_attempts": 2, "corrective_message": ""})
        );
        assert_eq!(
            serde_json::to_value(PauseSpec::default()).unwrap(),
            json!({"scope": "tool_call", "approver_roles": ["admin"], "prompt": "", "timeout_s": 300.0})
        );
        assert_eq!(
            serde_json::to_value(StopSpec::default()).unwrap()["error_code"],
            "GUARDRAIL_STOP"
        );
    }

    #[test]
    fn an_unknown_effect_or_action_is_refused() {
        assert!(serde_json::from_value::<Effect>(json!("email_the_boss")).is_err());
        assert!(serde_json::from_value::<Action>(json!("allow")).is_err());
    }
}
