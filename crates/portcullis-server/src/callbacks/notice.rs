//! What there is to tell.

use portcullis_core::memory::AnnouncedIntent;
use serde_json::{Map, Value, json};

/// An intent that was announced and recorded.
pub(crate) struct Notice {
    /// As it is kept, which is without secrets.
    pub(crate) intent: AnnouncedIntent,
    /// How often its correlation id has been announced, this time included.
    pub(crate) revision: u64,
    /// The ids of guardrails that warned.
    pub(crate) warnings: Vec<String>,
    /// Whether another server told us.
    pub(crate) relayed: bool,
}

impl Notice {
    pub(super) fn is_allowed(&self) -> bool {
        self.intent.allowed
    }

    pub(super) fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// About how much memory it takes.
    pub(super) fn kib(&self) -> u32 {
        let intent = &self.intent;
        let context = intent.context.as_deref().unwrap_or_default();
        let bytes = intent.intent.len() + context.len() + members_bytes(&intent.metadata);
        u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
    }

    /// The body that a webhook gets.
    pub(super) fn for_webhook(&self, id: &str, sent_at: &str, agent: &str) -> Value {
        let intent = &self.intent;
        json!({
            "type": "intent.announced",
            "id": id,
            "sentAt": sent_at,
            "intent": {
                "correlationId": intent.correlation_id,
                "revision": self.revision,
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
                "warnings": self.warnings,
            },
            "respondingAgent": agent,
        })
    }

    /// The call that a peer gets.
    pub(super) fn for_peer(&self, id: &str) -> Value {
        let intent = &self.intent;
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
