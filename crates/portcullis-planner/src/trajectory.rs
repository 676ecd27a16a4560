//! What happened in a run, for those who look at it afterwards.

use portcullis_core::{Action, ErrorCode, Evaluation, EventType, RuleId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chat::{FinishReason, Message, Usage};

/// The record of a run. The same run gives the same record, byte for byte: there is no time in it, and nothing that a
/// gate adds where it has nothing to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// Which run.
    pub run_id: String,
    /// Of which agent.
    pub agent: String,
    /// By which model.
    pub model: String,
    /// What it began with, as the model saw it.
    pub input: Vec<Message>,
    /// Step by step.
    pub steps: Vec<Step>,
    /// What the gate had to say, other than yes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<Guarded>,
    /// What it cost.
    pub usage: Usage,
    /// How it ended, or that it waits.
    pub end: Option<End>,
}

/// One turn of the model and what came of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Step {
    /// What the model said, as it was shown.
    pub text: String,
    /// What it called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Why it ended; nothing if it did not.
    pub finish: Option<FinishReason>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// As the model calls it.
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// With what, as far as it may be seen: nothing before it is judged, and text where it is not JSON.
    pub arguments: Value,
    /// Whether it began to run. From then on it may have had effects.
    pub ran: bool,
    /// What the model was answered; nothing if it was not.
    pub result: Option<Value>,
    /// The approval that let it run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
}

/// What the gate said to a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarded {
    /// In which step, counting from 1.
    pub step: u32,
    /// At which stage.
    pub stage: EventType,
    /// To which tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What.
    pub action: Action,
    /// By which rule.
    pub rule_id: RuleId,
    /// Why.
    pub reason: String,
    /// Whether it was enforced.
    pub enforced: bool,
}

impl Guarded {
    pub(crate) fn new(
        step: u32,
        stage: EventType,
        tool: Option<&str>,
        evaluation: &Evaluation,
    ) -> Self {
        let decision = &evaluation.decision;
        Self {
            step,
            stage,
            tool: tool.map(str::to_owned),
            action: decision.action,
            rule_id: decision.rule_id.clone(),
            reason: decision.reason.to_string(),
            enforced: evaluation.enforced,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum End {
    /// With an answer: the last step's text.
    Done,
    /// By the gate.
    Stopped {
        /// Why, for machines.
        error_code: ErrorCode,
        /// What the user is told.
        user_message: String,
    },
    /// It waits for these approvals.
    Suspended {
        /// Their ids.
        approvals: Vec<String>,
    },
    /// Something ran out.
    OutOfBudget {
        /// What.
        budget: Budget,
    },
    /// The caller did not want any more.
    Cancelled,
    /// The model did not answer.
    Failed {
        /// Why.
        error: String,
    },
}

/// What a run may run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Turns of the model.
    Iterations,
    /// Tokens read and written.
    Tokens,
    /// Time.
    WallClock,
}

impl CallRecord {
    pub(crate) fn new(id: &str, tool: &str) -> Self {
        Self {
            id: id.to_owned(),
            tool: tool.to_owned(),
            arguments: Value::Null,
            ran: false,
            result: None,
            approval: None,
        }
    }
}
