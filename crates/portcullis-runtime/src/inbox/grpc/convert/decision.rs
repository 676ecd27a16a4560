//! A decision on the wire.

use portcullis_core::{
    Action, Decision, Effect, ErrorCode, PauseScope, PauseSpec, RedactionSpec, RetrySpec, RuleId,
    Severity, StopSpec, TimeoutAnswer,
};

use super::super::wire;
use super::{Unreadable, read, write};

impl TryFrom<&Decision> for wire::Decision {
    type Error = Unreadable;

    fn try_from(decision: &Decision) -> Result<Self, Unreadable> {
        let classifier_result = decision.classifier_result.as_ref();
        let effects = decision.effects.iter();
        Ok(Self {
            action: wire::Action::from(decision.action).into(),
            reason: decision.reason.to_string(),
            severity: wire::Severity::from(decision.severity).into(),
            confidence: decision.confidence,
            effects: effects.map(|effect| effect.as_str().to_owned()).collect(),
            redactions: decision.redactions.iter().map(Into::into).collect(),
            retry: decision.retry.as_deref().map(|retry| wire::Retry {
                max_attempts: Some(retry.max_attempts),
                corrective_message: retry.corrective_message.clone(),
            }),
            pause: decision.pause.as_deref().map(|pause| wire::Pause {
                scope: pause.scope.as_str().to_owned(),
                approver_roles: pause.approver_roles.clone(),
                prompt: pause.prompt.clone(),
                timeout_s: pause.timeout_s,
                approve_on_timeout: pause.on_timeout == TimeoutAnswer::Approve,
            }),
            stop: decision.stop.as_deref().map(|stop| wire::Stop {
                error_code: stop.error_code.as_str().to_owned(),
                user_message: Some(stop.user_message.to_string()),
                internal_reason: stop.internal_reason.clone(),
            }),
            classifier_result_json: classifier_result
                .map(|result| write("decided.classifier_result_json", result))
                .transpose()?,
            retryable: Some(decision.retryable),
            remediation: decision.remediation.as_deref().map(str::to_owned),
        })
    }
}

/// Without the name of the rule, which the answer has.
impl TryFrom<wire::Decision> for Decision {
    type Error = Unreadable;

    fn try_from(decision: wire::Decision) -> Result<Self, Unreadable> {
        let action = read_action(decision.action)?;
        let stop = decision.stop.map(read_stop);
        let effects = decision.effects.iter().map(|name| read_effect(name));
        let classifier_result = decision.classifier_result_json.as_deref();
        let of_itself = match (action, &stop) {
            (Action::Stop, Some(stop)) => stop.error_code.retryable(),
            (action, _) => matches!(action, Action::Retry | Action::Pause),
        };
        let empty = Self::allow(RuleId::DEFAULT, decision.reason);
        Ok(Self {
            action,
            was_sync: false,
            severity: read_severity(decision.severity)?,
            confidence: decision.confidence,
            effects: effects.collect::<Result<_, _>>()?,
            redactions: read_redactions(decision.redactions)?,
            retry: decision.retry.map(|retry| Box::new(read_retry(retry))),
            pause: decision.pause.map(read_pause).transpose()?.map(Box::new),
            stop: stop.map(Box::new),
            classifier_result: classifier_result
                .map(|result| read("decided.classifier_result_json", result))
                .transpose()?,
            retryable: decision.retryable.unwrap_or(of_itself),
            remediation: decision.remediation.map(Into::into),
            ..empty
        })
    }
}

impl From<Action> for wire::Action {
    fn from(action: Action) -> Self {
        match action {
            Action::Allow => Self::Allow,
            Action::Redact => Self::Redact,
            Action::Retry => Self::Retry,
            Action::Pause => Self::Pause,
            Action::Stop => Self::Stop,
        }
    }
}

fn read_action(action: i32) -> Result<Action, Unreadable> {
    Ok(match wire::Action::try_from(action) {
        Ok(wire::Action::Allow) => Action::Allow,
        Ok(wire::Action::Redact) => Action::Redact,
        Ok(wire::Action::Retry) => Action::Retry,
        Ok(wire::Action::Pause) => Action::Pause,
        Ok(wire::Action::Stop) => Action::Stop,
        Ok(wire::Action::Unspecified) => {
            return Err(Unreadable::new("decided.action", "is missing"));
        }
        Err(_) => {
            let why = format!("{action} is no action");
            return Err(Unreadable::new("decided.action", why));
        }
    })
}

impl From<Severity> for wire::Severity {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Low => Self::Low,
            Severity::Medium => Self::Medium,
            Severity::High => Self::High,
            Severity::Critical => Self::Critical,
        }
    }
}

fn read_severity(severity: i32) -> Result<Severity, Unreadable> {
    match wire::Severity::try_from(severity) {
        Ok(wire::Severity::Low) => Ok(Severity::Low),
        Ok(wire::Severity::Unspecified | wire::Severity::Medium) => Ok(Severity::Medium),
        Ok(wire::Severity::High) => Ok(Severity::High),
        Ok(wire::Severity::Critical) => Ok(Severity::Critical),
        Err(_) => {
            let why = format!("{severity} is no severity");
            Err(Unreadable::new("decided.severity", why))
        }
    }
}

fn read_effect(name: &str) -> Result<Effect, Unreadable> {
    let mut known = Effect::ALL.into_iter();
    known
        .find(|effect| effect.as_str() == name)
        .ok_or_else(|| Unreadable::new("decided.effects", format!("`{name}` is no effect")))
}

impl From<&RedactionSpec> for wire::Redaction {
    fn from(redaction: &RedactionSpec) -> Self {
        Self {
            path: redaction.path.to_string(),
            replacement: Some(redaction.replacement.to_string()),
            entity_type: redaction.entity_type.as_deref().map(str::to_owned),
            start_offset: redaction.start_offset.map(|offset| offset as u64),
            end_offset: redaction.end_offset.map(|offset| offset as u64),
            restorable: redaction.restorable,
        }
    }
}

fn read_redactions(redactions: Vec<wire::Redaction>) -> Result<Vec<RedactionSpec>, Unreadable> {
    let offset = |offset: Option<u64>| {
        offset
            .map(usize::try_from)
            .transpose()
            .map_err(|error| Unreadable::new("decided.redactions", error.to_string()))
    };
    let redactions = redactions.into_iter().map(|redaction| {
        let replacement = redaction.replacement.map(Into::into);
        Ok(RedactionSpec {
            path: redaction.path.into(),
            replacement: replacement.unwrap_or("[REDACTED]".into()),
            entity_type: redaction.entity_type.map(Into::into),
            start_offset: offset(redaction.start_offset)?,
            end_offset: offset(redaction.end_offset)?,
            restorable: redaction.restorable,
        })
    });
    redactions.collect()
}

fn read_retry(retry: wire::Retry) -> RetrySpec {
    let default = RetrySpec::default();
    RetrySpec {
        max_attempts: retry.max_attempts.unwrap_or(default.max_attempts),
        corrective_message: retry.corrective_message,
    }
}

fn read_pause(pause: wire::Pause) -> Result<PauseSpec, Unreadable> {
    let mut scopes = PauseScope::ALL.into_iter();
    let scope = match pause.scope.as_str() {
        "" => PauseScope::default(),
        name => scopes.find(|scope| scope.as_str() == name).ok_or_else(|| {
            let why = format!("`{name}` is no scope: run, step or tool_call");
            Unreadable::new("decided.pause.scope", why)
        })?,
    };
    Ok(PauseSpec {
        scope,
        approver_roles: if pause.approver_roles.is_empty() {
            PauseSpec::default().approver_roles
        } else {
            pause.approver_roles
        },
        prompt: pause.prompt,
        timeout_s: pause.timeout_s,
        on_timeout: if pause.approve_on_timeout {
            TimeoutAnswer::Approve
        } else {
            TimeoutAnswer::Deny
        },
    })
}

/// A code that is not ours makes the stop no weaker.
fn read_stop(stop: wire::Stop) -> StopSpec {
    let known = ErrorCode::ALL.iter();
    let known = known.copied().find(|code| code.as_str() == stop.error_code);
    let default = StopSpec::default();
    let internal_reason = match (known, stop.internal_reason.as_str()) {
        (Some(_), _) => stop.internal_reason,
        (None, _) if stop.error_code.is_empty() => stop.internal_reason,
        (None, "") => stop.error_code,
        (None, reason) => format!("{}: {reason}", stop.error_code),
    };
    StopSpec {
        error_code: known.unwrap_or(default.error_code),
        user_message: stop.user_message.map_or(default.user_message, Into::into),
        internal_reason,
    }
}
