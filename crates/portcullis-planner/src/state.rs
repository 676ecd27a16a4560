//! Where a run stands, between two steps and between two processes.

use std::collections::BTreeMap;

use portcullis_core::canonical::exact_digest;
use portcullis_core::evidence::Digest;
use portcullis_core::{Context, Event, PauseScope};
use portcullis_runtime::{prompt_event, result_event};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat::{FinishReason, Message, ToolCall};
use crate::planner::ResumeError;
use crate::trajectory::Trajectory;

/// The form of [`Suspended`] that this version writes and reads.
const VERSION: u32 = 1;

/// A run that waits for approvals. Keep it as JSON, and give it to [`Planner::resume`](crate::Planner::resume) in any
/// process that has the same tools, policy and approvals.
///
/// It holds the conversation as the model sees it: redacted, but private all the same. The digest finds damage; that
/// nothing but the approved call happens is held by the approval itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspended {
    version: u32,
    digest: Digest,
    state: State,
}

impl Suspended {
    pub(crate) fn new(state: State) -> Self {
        Self {
            version: VERSION,
            digest: digest(&state),
            state,
        }
    }

    /// Which run.
    pub fn run_id(&self) -> &str {
        &self.state.context.run_id
    }

    /// The ids of the approvals that it waits for.
    pub fn approvals(&self) -> Vec<&str> {
        let held = self.state.holds();
        held.into_iter().map(|(held, _)| &*held.approval).collect()
    }

    /// The record so far.
    pub fn trajectory(&self) -> &Trajectory {
        &self.state.trajectory
    }

    pub(crate) fn open(self) -> Result<State, ResumeError> {
        if self.version != VERSION {
            return Err(ResumeError::Version {
                found: self.version,
                known: VERSION,
            });
        }
        if digest(&self.state) != self.digest {
            return Err(ResumeError::Damaged);
        }
        Ok(self.state)
    }
}

fn digest(state: &State) -> Digest {
    // A state is plain data; one that could not be written would not be equal to one that could.
    exact_digest(&serde_json::to_value(state).unwrap_or_default())
}

/// Everything that a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) context: Context,
    pub(crate) messages: Vec<Message>,
    /// How many of the messages have been judged.
    pub(crate) judged: usize,
    /// How often a rule has asked for another try, by stage, tool and rule.
    pub(crate) retries: BTreeMap<String, u32>,
    pub(crate) trajectory: Trajectory,
    pub(crate) next: Next,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Next {
    /// Ask the model.
    Ask { held: Option<Held> },
    /// Show an answer that was held up.
    Answer(HeldAnswer),
    /// Run what the model has called.
    Calls { calls: Vec<Call> },
}

/// An answer of the model that was held up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldAnswer {
    /// All of it, redacted.
    pub(crate) text: String,
    /// What has been shown.
    pub(crate) shown: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) finish: FinishReason,
    pub(crate) held: Held,
}

/// Something that waits for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) approval: String,
    pub(crate) scope: PauseScope,
}

/// A tool call of the step at hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    /// What the model sent in their place, if that is no JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreadable: Option<Unreadable>,
    pub(crate) phase: Phase,
}

/// Arguments that are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unreadable {
    pub(crate) text: String,
    pub(crate) why: String,
}

/// How far a call has got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Phase {
    /// The model wants it.
    Asked,
    /// It waits before it runs.
    Held(Held),
    /// It has run, and what it gave waits.
    ResultHeld { held: Held, result: Value },
    /// The model's answer is known.
    Answered { result: Value },
}

impl Call {
    pub(crate) fn new(call: ToolCall) -> Self {
        let text = call.arguments.trim();
        let arguments = if text.is_empty() {
            Ok(Map::new())
        } else {
            serde_json::from_str(text)
        };
        let (arguments, unreadable) = match arguments {
            Ok(arguments) => (arguments, None),
            Err(error) => {
                let why = format!("the arguments are not a JSON object: {error}");
                let text = call.arguments;
                (Map::new(), Some(Unreadable { text, why }))
            }
        };
        Self {
            id: call.id,
            tool: call.name,
            arguments,
            unreadable,
            phase: Phase::Asked,
        }
    }

    /// What the model's own message says of it, redacted.
    pub(crate) fn as_said(&self) -> ToolCall {
        let arguments = match &self.unreadable {
            Some(unreadable) => unreadable.text.clone(),
            None => Value::Object(self.arguments.clone()).to_string(),
        };
        ToolCall {
            id: self.id.clone(),
            name: self.tool.clone(),
            arguments,
        }
    }

    pub(crate) fn start_event(&self, run_id: &str) -> Event {
        Event::tool_call_start(run_id, &self.tool, self.arguments.clone())
    }
}

impl State {
    /// What waits, and what each approval is for.
    pub(crate) fn holds(&self) -> Vec<(&Held, Event)> {
        let run_id = &self.context.run_id;
        match &self.next {
            Next::Ask { held } => {
                let event = prompt_event(run_id, self.unjudged().map(|(_, text)| text.to_owned()));
                held.iter().map(|held| (held, event.clone())).collect()
            }
            Next::Answer(answer) => {
                let event = Event::llm_stream_chunk(run_id, &answer.text);
                vec![(&answer.held, event)]
            }
            Next::Calls { calls } => {
                let held = calls.iter().filter_map(|call| match &call.phase {
                    Phase::Held(held) => Some((held, call.start_event(run_id))),
                    Phase::ResultHeld { held, result } => {
                        Some((held, result_event(run_id, &call.tool, result.clone())))
                    }
                    Phase::Asked | Phase::Answered { .. } => None,
                });
                held.collect()
            }
        }
    }

    /// The next text of the user that has not been judged, and where it is.
    pub(crate) fn unjudged(&self) -> Option<(usize, &str)> {
        let messages = self.messages.iter().enumerate().skip(self.judged);
        let mut texts = messages.filter_map(|(place, message)| match message {
            Message::User { content } => Some((place, content.as_str())),
            _ => None,
        });
        texts.next()
    }
}

/// What the model is told when a tool gives nothing.
pub(crate) fn error_result(why: &str) -> Value {
    serde_json::json!({ "error": why })
}
