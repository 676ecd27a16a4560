//! The jailbreak taxonomy (RFC-001 §3.2) and what each intent does by default (appendix A).

use serde::{Deserialize, Serialize};

use crate::decision::{Action, Effect};
use crate::error_code::ErrorCode;

/// What somebody is trying to do to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JailbreakIntent {
    /// Override the system's or developer's instructions.
    JbOverride,
    /// Extract the system prompt or hidden instructions.
    ExfilPrompt,
    /// Gain tools or privileges.
    ToolEscalation,
    /// Instructions hidden in retrieved content.
    IndirectInjection,
    /// Persuade the agent with a claimed identity or approval.
    SocialEngineering,
    /// None of these.
    Benign,
}

impl JailbreakIntent {
    /// The five intents that are attacks.
    pub const ATTACKS: [Self; 5] = [
        Self::JbOverride,
        Self::ExfilPrompt,
        Self::ToolEscalation,
        Self::IndirectInjection,
        Self::SocialEngineering,
    ];

    /// The wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JbOverride => "jb_override",
            Self::ExfilPrompt => "exfil_prompt",
            Self::ToolEscalation => "tool_escalation",
            Self::IndirectInjection => "indirect_injection",
            Self::SocialEngineering => "social_engineering",
            Self::Benign => "benign",
        }
    }

    /// Appendix A's default action.
    pub const fn default_action(self) -> Action {
        match self {
            Self::JbOverride | Self::ExfilPrompt | Self::ToolEscalation => Action::Stop,
            Self::IndirectInjection => Action::Redact,
            Self::SocialEngineering => Action::Pause,
            Self::Benign => Action::Allow,
        }
    }

    /// Appendix A's effects.
    pub const fn default_effects(self) -> &'static [Effect] {
        match self {
            Self::JbOverride | Self::ExfilPrompt | Self::ToolEscalation => {
                &[Effect::FlagTrajectory, Effect::IncrementStrike]
            }
            Self::IndirectInjection | Self::SocialEngineering => &[Effect::FlagTrajectory],
            Self::Benign => &[],
        }
    }

    /// The code that a STOP for this intent carries.
    pub const fn error_code(self) -> ErrorCode {
        match self {
            Self::JbOverride => ErrorCode::JailbreakOverride,
            Self::ExfilPrompt => ErrorCode::JailbreakExfiltration,
            Self::ToolEscalation => ErrorCode::JailbreakEscalation,
            Self::IndirectInjection => ErrorCode::JailbreakIndirect,
            Self::SocialEngineering => ErrorCode::JailbreakSocial,
            Self::Benign => ErrorCode::GuardrailStop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_and_codes_agree() {
        for intent in JailbreakIntent::ATTACKS {
            assert_eq!(serde_json::to_value(intent).unwrap(), intent.as_str());
            assert_eq!(
                intent.error_code().as_str(),
                format!("JAILBREAK_{}", intent.as_str().to_uppercase())
            );
        }
    }
}
