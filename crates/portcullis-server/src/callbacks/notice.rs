//! What there is to tell, without secrets.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use portcullis_core::evidence::Redactor;
use portcullis_core::memory::AnnouncedIntent;
use serde_json::{Map, Value, json};

/// An intent that was announced and recorded.
pub(crate) struct Notice {
    /// As it was announced.
    pub(crate) intent: AnnouncedIntent,
    /// How often its correlation id has been announced, this time included.
    pub(crate) revision: u64,
    /// The ids of guardrails that warned.
    pub(crate) warnings: Vec<String>,
    /// Whether another server told us.
    pub(crate) relayed: bool,
    /// Takes secrets out of it.
    pub(crate) redactor: Arc<Redactor>,
}

/// A notice for several targets. Secrets are taken out once, by whoever needs it first.
pub(super) struct Shared {
    notice: Notice,
    redacted: OnceLock<AnnouncedIntent>,
}

impl From<Notice> for Shared {
    fn from(notice: Notice) -> Self {
        Self {
            notice,
            redacted: OnceLock::new(),
        }
    }
}

impl Shared {
    pub(super) fn is_allowed(&self) -> bool {
        self.notice.intent.allowed
    }

    pub(super) fn is_relayed(&self) -> bool {
        self.notice.relayed
    }

    /// About how much memory it takes.
    pub(super) fn kib(&self) -> u32 {
        let intent = &self.notice.intent;
        let context = intent.context.as_deref().unwrap_or_default();
        let bytes = intent.intent.len() + context.len() + members_bytes(&intent.metadata);
        u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
    }

    /// The body that a webhook gets.
    pub(super) fn for_webhook(&self, id: &str, sent_at: &str, agent: &str) -> Value {
        let intent = self.redacted();
        json!({
            "type": "intent.announced",
            "id": id,
            "sentAt": sent_at,
            "intent": {
                "correlationId": intent.correlation_id,
                "revision": self.notice.revision,
                "intent": intent.intent,
                "context": intent.context,
                "category": intent.category,
                "stakes": intent.stakes,
                "confidence": intent.confidence,
                "metadata": intent.metadata,
                "agent": intent.agent,
                "receivedAt": intent.received_at,
            },
            "guardrailStatus": {
                "allowed": intent.allowed,
                "violations": intent.violations,
                "warnings": self.notice.warnings,
            },
            "respondingAgent": agent,
        })
    }

    /// The call that a peer gets.
    pub(super) fn for_peer(&self, id: &str) -> Value {
        let intent = self.redacted();
        let mut params = json!({
            "intent": intent.intent,
            "context": intent.context,
            "category": intent.category,
            "stakes": intent.stakes,
            "confidence": intent.confidence,
            "correlationId": intent.correlation_id,
            "metadata": intent.metadata,
            "agent": intent.agent.as_ref().map(|agent| json!({"id": agent})),
        });
        if let Some(params) = params.as_object_mut() {
            params.retain(|_, value| !value.is_null());
        }
        json!({"jsonrpc": "2.0", "id": id, "method": "cstp.announceIntent", "params": params})
    }

    fn redacted(&self) -> &AnnouncedIntent {
        self.redacted.get_or_init(|| {
            let Notice {
                intent, redactor, ..
            } = &self.notice;
            let redact = |text: &String| redactor.redact(text).into_owned();
            AnnouncedIntent {
                correlation_id: redact(&intent.correlation_id),
                intent: redact(&intent.intent),
                context: intent.context.as_ref().map(redact),
                category: intent.category.as_ref().map(redact),
                metadata: redact_members(&intent.metadata, redactor),
                ..intent.clone()
            }
        })
    }
}

/// Takes secrets out of names and texts, as the evidence log does.
fn redact_members(members: &Map<String, Value>, redactor: &Redactor) -> Map<String, Value> {
    let mut taken: HashSet<String> = HashSet::with_capacity(members.len());
    let redacted = members.iter().enumerate().map(|(index, (name, value))| {
        let mut redacted = redactor.redact(name).into_owned();
        // None may swallow another.
        if !taken.insert(redacted.clone()) {
            redacted = format!("{redacted} {index}");
        }
        (redacted, redact_value(name, value, redactor))
    });
    redacted.collect()
}

/// A value, and the name of the member that it is, or is an item of.
fn redact_value(name: &str, value: &Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(text) => redactor.redact_member(name, text).into(),
        Value::Array(items) => items
            .iter()
            .map(|item| redact_value(name, item, redactor))
            .collect(),
        Value::Object(members) => redact_members(members, redactor).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn members_bytes(members: &Map<String, Value>) -> usize {
    let bytes = members.iter();
    bytes
        .map(|(name, value)| name.len() + value_bytes(value))
        .sum()
}

fn value_bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_bytes).sum(),
            Value::Object(members) => members_bytes(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_wherever_they_stand() {
        let redactor = Redactor::new().unwrap();
        let key = "AKIAQYLPMN5HHHFPZAM2";
        let Value::Object(metadata) = json!({
            "note": format!("use {key}"),
            "deep": [{"list": [key]}],
            key: 1,
            "[REDACTED:AWS_KEY]": 2,
            "password": "Tr0ub4dor&3-x9!Kq",
            "pr_number": 42,
        }) else {
            panic!("an object");
        };
        let redacted = redact_members(&metadata, &redactor);
        let text = Value::from(redacted.clone()).to_string();
        assert!(!text.contains(key), "{text}");
        assert!(!text.contains("Tr0ub4dor"), "{text}");
        assert_eq!(redacted["pr_number"], 42);
        assert_eq!(redacted.len(), metadata.len());
    }
}
