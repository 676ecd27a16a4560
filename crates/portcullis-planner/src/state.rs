//! Where a run stands, between two steps and between two processes.

use portcullis_core::canonical::exact_digest;
use portcullis_core::evidence::Digest;
use portcullis_core::{Context, Event, EventType, History, PauseScope, RuleId};
use portcullis_runtime::{prompt_event, result_event};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat::{FinishReason, Message, ToolCall};
use crate::planner::ResumeError;
use crate::tool::{Tools, UNKNOWN_TOOL};
use crate::trajectory::Trajectory;

/// The form of [`Suspended`] that this version writes and reads.
const VERSION: u32 = 1;

/// A run that waits for approvals. Keep it as JSON, and give it to [`Planner::resume`](crate::Planner::resume) in any
/// process that has the same tools, policy and approvals.
///
/// It holds the conversation as the model sees it: redacted, but private all the same. Its approvals are bound to the
/// digest of all of it, so that a run goes on as it was suspended or not at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspended {
    version: u32,
    state: State,
}

impl Suspended {
    pub(crate) fn new(state: State) -> Self {
        Self {
            version: VERSION,
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
        Ok(self.state)
    }
}

/// Everything that a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) context: Context,
    pub(crate) messages: Vec<Message>,
    /// How many of the messages have been judged.
    pub(crate) judged: usize,
    pub(crate) retries: Vec<Retries>,
    /// What sequence rules know of it, when it is suspended.
    pub(crate) history: History,
    pub(crate) trajectory: Trajectory,
    pub(crate) next: Next,
}

/// How often a rule has had the model asked again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Retries {
    pub(crate) stage: EventType,
    pub(crate) tool: Option<String>,
    pub(crate) rule: RuleId,
    pub(crate) tries: u32,
    /// The step in which it did so last: once a step, however many calls it objects to.
    pub(crate) step: usize,
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
    pub(crate) calls: Vec<Call>,
    pub(crate) finish: FinishReason,
    pub(crate) held: Held,
}

/// Something that waits for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) approval: String,
    pub(crate) scope: PauseScope,
    pub(crate) rules: Vec<RuleId>,
}

/// A tool call of the step at hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
    /// What the model called it, if there is no such tool: for the gate, and for nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<String>,
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
    /// The call with this id. Ids are ours, and so is the name of a tool that there is not: what a model writes in their
    /// place would be repeated unjudged. Of an answer that was cut off nobody knows what the call was to be.
    pub(crate) fn new(id: String, call: ToolCall, tools: &Tools, cut_off: bool) -> Self {
        let arguments = if cut_off {
            Err("the answer was cut off, so it did not run: try again with less".to_owned())
        } else {
            read_arguments(&call.arguments)
        };
        let (arguments, unreadable) = match arguments {
            Ok(arguments) => (arguments, None),
            Err(why) => {
                let text = call.arguments;
                (Map::new(), Some(Unreadable { text, why }))
            }
        };
        let (tool, unknown) = match tools.get(&call.name) {
            Some(_) => (call.name, None),
            None => (UNKNOWN_TOOL.to_owned(), Some(call.name)),
        };
        Self {
            id,
            tool,
            unknown,
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

    /// The tool that the gate is asked about.
    pub(crate) fn judged_tool(&self) -> &str {
        self.unknown.as_ref().unwrap_or(&self.tool)
    }

    pub(crate) fn start_event(&self, run_id: &str) -> Event {
        Event::tool_call_start(run_id, self.judged_tool(), self.arguments.clone())
    }
}

/// The arguments, or what is wrong with them, without a word of what they say.
fn read_arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are not a JSON object".to_owned()),
        Err(error) => Err(format!(
            "the arguments are not JSON: look at line {}, column {}",
            error.line(),
            error.column()
        )),
    }
}

impl State {
    /// What its approvals are bound to.
    pub(crate) fn digest(&self) -> Digest {
        // A state is plain data; one that could not be written would not be equal to one that could.
        exact_digest(&serde_json::to_value(self).unwrap_or_default())
    }

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

    /// The next text that the model has not seen and nobody has judged, and where it is. What the operator says is not
    /// judged.
    pub(crate) fn unjudged(&self) -> Option<(usize, &str)> {
        let messages = self.messages.iter().enumerate().skip(self.judged);
        let mut texts = messages.filter_map(|(place, message)| match message {
            Message::User { content } | Message::Assistant { content, .. } => {
                Some((place, content.as_str()))
            }
            Message::System { .. } | Message::Tool { .. } => None,
        });
        texts.next()
    }
}

/// What the model is told when a tool gives nothing.
pub(crate) fn error_result(why: &str) -> Value {
    serde_json::json!({ "error": why })
}
