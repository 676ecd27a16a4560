//! Every error code the gate can answer with: a closed list, never reused.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $wire:literal, retryable: $retryable:literal;)+) => {
        /// Why a run was stopped. Documented for users in `docs/error-codes.md`, which is made from
        /// this list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $wire)] $variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order they are documented.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The wire form.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $wire,)+ }
            }

            /// What it means, for people.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc, "\n"),+),)+ }
            }

            /// Whether the same step, corrected or sent later, can succeed.
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)+ }
            }
        }
    };
}

error_codes! {
    /// A policy rule ended the run; the decision's `rule_id` and `reason` say which and why.
    GuardrailStop = "GUARDRAIL_STOP", retryable: false;
    /// The tool is on the policy's deny list.
    ToolDenied = "TOOL_DENIED", retryable: false;
    /// The policy has an allowlist and the tool is not on it.
    ToolNotAllowed = "TOOL_NOT_ALLOWED", retryable: false;
    /// An argument names an address or a host that is not on the public internet.
    EgressPrivateNetwork = "EGRESS_PRIVATE_NETWORK", retryable: false;
    /// An argument names a host that the policy blocks or does not allow.
    EgressBlockedDomain = "EGRESS_BLOCKED_DOMAIN", retryable: false;
    /// An argument carries a secret, or data encoded into a host's name.
    EgressSecret = "EGRESS_SECRET", retryable: true;
    /// A command hides what it does.
    ShellObfuscation = "SHELL_OBFUSCATION", retryable: true;
    /// A tool's definition speaks to the model: it gives orders, or hides characters.
    ToolDefinitionPoisoned = "TOOL_DEFINITION_POISONED", retryable: false;
    /// A tool's definition is not the one that was reviewed: it has changed, it is new, it is there twice, or there is none.
    ToolDefinitionChanged = "TOOL_DEFINITION_CHANGED", retryable: false;
    /// The text tries to override the agent's instructions.
    JailbreakOverride = "JAILBREAK_JB_OVERRIDE", retryable: false;
    /// The text tries to extract the system prompt.
    JailbreakExfiltration = "JAILBREAK_EXFIL_PROMPT", retryable: false;
    /// The text tries to gain tools or privileges.
    JailbreakEscalation = "JAILBREAK_TOOL_ESCALATION", retryable: false;
    /// Retrieved content carries instructions for the model.
    JailbreakIndirect = "JAILBREAK_INDIRECT_INJECTION", retryable: false;
    /// The text leans on a claimed identity or approval.
    JailbreakSocial = "JAILBREAK_SOCIAL_ENGINEERING", retryable: false;
    /// A jailbreak classifier (rule `hf-jailbreak`) is over its threshold.
    JailbreakMlDetected = "JAILBREAK_ML_DETECTED", retryable: false;
    /// A classifier that the user trained is over its threshold.
    JailbreakCustom = "JAILBREAK_CUSTOM", retryable: false;
    /// The text is longer than `limits.max_text_bytes`, or the paths into the structured part are many times that; nothing of it was judged.
    TextTooLarge = "TEXT_TOO_LARGE", retryable: true;
    /// The call is forbidden after what happened earlier in the run (rule `sequence`).
    SequenceForbidden = "SEQUENCE_FORBIDDEN", retryable: false;
    /// Too much of a streamed answer had to be held back: all of it may be one match of a pattern that has no upper bound.
    StreamUndecided = "STREAM_UNDECIDED", retryable: false;
    /// An earlier event of this run put it in quarantine.
    SessionQuarantined = "SESSION_QUARANTINED", retryable: false;
    /// A fast rule failed or panicked, and `gateway.sync.fail_open` is false.
    SyncError = "GUARDRAIL_SYNC_ERROR", retryable: true;
    /// A fast rule overran `gateway.sync.timeout_ms`, and `gateway.sync.fail_open` is false.
    SyncTimeout = "GUARDRAIL_SYNC_TIMEOUT", retryable: true;
    /// A deep rule failed or could not be asked, and `gateway.async.fail_open` is false.
    AsyncError = "GUARDRAIL_ASYNC_ERROR", retryable: true;
    /// A deep rule did not answer in time, and the risk router says to stop then.
    AsyncTimeout = "GUARDRAIL_TIMEOUT", retryable: true;
    /// A rule asked for another try as often as it may, and the last one was no better.
    RetriesExhausted = "RETRIES_EXHAUSTED", retryable: false;
    /// A person said no to a step that was paused for them.
    ApprovalDenied = "APPROVAL_DENIED", retryable: false;
    /// Nobody decided on a paused step in time.
    ApprovalExpired = "APPROVAL_EXPIRED", retryable: true;
    /// An approval could not be asked for or looked up, or it is not for this step; so the step did not happen.
    ApprovalFailed = "APPROVAL_FAILED", retryable: true;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_upper_snake_case_and_explained() {
        let mut seen = HashSet::new();
        for code in ErrorCode::ALL {
            let wire = code.as_str();
            assert!(seen.insert(wire), "{wire} is used twice");
            assert!(
                wire.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'),
                "{wire}"
            );
            assert!(
                code.meaning().trim().ends_with('.'),
                "{wire} needs a sentence"
            );
            assert_eq!(serde_json::to_value(code).unwrap(), wire);
        }
    }
}
