//! An intent, as it is kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::{FieldError, Fields};
use crate::guardrails::{self, MAX_CORRELATION_CHARS, Stakes, Verdict};

/// What an agent announced, and what it was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncedIntent {
    /// What all that is said about it has in common.
    pub correlation_id: String,
    /// What the agent is going to do.
    pub intent: String,
    /// What else it said.
    pub context: Option<String>,
    /// The kind of decision.
    pub category: Option<String>,
    /// How much is at stake.
    pub stakes: Stakes,
    /// How sure the agent is.
    pub confidence: Option<f64>,
    /// What guardrails looked at.
    pub metadata: Map<String, Value>,
    /// Who announced it, as far as somebody has checked.
    pub agent: Option<String>,
    /// When.
    pub received_at: Timestamp,
    /// What the guardrails said.
    pub allowed: bool,
    /// The ids of those that were violated.
    pub violations: Vec<String>,
}

impl AnnouncedIntent {
    /// What is kept of an intent that was answered so.
    pub fn new(
        intent: &guardrails::Intent,
        correlation_id: String,
        verdict: &Verdict,
        received_at: Timestamp,
    ) -> Self {
        let action = &intent.action;
        let violations = verdict.violations.iter();
        Self {
            correlation_id,
            intent: action.description().to_owned(),
            context: intent.context.clone(),
            category: action.category().map(str::to_owned),
            stakes: action.stakes(),
            confidence: action.confidence(),
            metadata: action.context().clone(),
            agent: action.agent().id.clone(),
            received_at,
            allowed: verdict.allowed,
            violations: violations
                .map(|violation| violation.guardrail_id.clone())
                .collect(),
        }
    }
}

/// Reads the `params` of `cstp.getIntent`.
pub fn correlation_id_from_params(params: &Map<String, Value>) -> Result<String, FieldError> {
    let mut fields = Fields::new(params, "");
    let id = fields.required_text("correlationId")?;
    fields.finish()?;
    if id.is_empty() || id.chars().nth(MAX_CORRELATION_CHARS).is_some() {
        let error = format!("must have from 1 to {MAX_CORRELATION_CHARS} characters");
        return Err(FieldError::new("correlationId", error));
    }
    Ok(id)
}
