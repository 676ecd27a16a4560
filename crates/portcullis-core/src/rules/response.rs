use serde::Serialize;

use crate::decision::{Decision, Effect, PauseSpec, Severity, StopSpec};
use crate::error_code::ErrorCode;
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;

/// What a rule does about a finding: its `action`. The strongest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// The run ends.
    #[default]
    Stop,
    /// The step waits for a person.
    Pause,
    /// The step may happen, and an alert goes out.
    Warn,
}

/// What a rule found, whatever is done about it.
pub(super) struct Finding {
    pub(super) rule: RuleId,
    pub(super) error_code: ErrorCode,
    pub(super) severity: Severity,
    pub(super) reason: String,
    pub(super) remediation: &'static str,
}

impl Response {
    /// The `action` of a rule's configuration.
    pub(super) fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Self {
        let names = [
            ("stop", Self::Stop),
            ("pause", Self::Pause),
            ("warn", Self::Warn),
        ];
        config.one_of("action", &names, d).unwrap_or_default()
    }

    /// The decision on a finding.
    pub(super) fn decide(self, finding: Finding) -> Decision {
        let Finding {
            rule,
            error_code,
            severity,
            reason,
            remediation,
        } = finding;
        let decision = match self {
            Self::Stop => Decision::stop(rule, reason, StopSpec::code(error_code)),
            Self::Pause => {
                let pause = PauseSpec {
                    prompt: format!("{reason}. Continue?"),
                    ..PauseSpec::default()
                };
                Decision::pause(rule, reason, pause)
            }
            Self::Warn => Decision::allow(rule, reason).with_effects([Effect::EmitAlert]),
        };
        decision
            .with_severity(severity)
            .with_remediation(remediation)
    }
}
