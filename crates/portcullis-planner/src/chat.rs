//! What is said to a chat model and what it says, whichever it is.

use futures_util::stream::BoxStream;
use portcullis_runtime::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A chat model that can call tools.
pub trait ChatModel: Send + Sync {
    /// As trajectories call it.
    fn name(&self) -> &str;

    /// One turn, in one piece.
    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> BoxFuture<'a, Result<Turn, ModelError>>;

    /// One turn, in pieces. What has been read is what [`TurnBuilder`] makes of it.
    fn stream<'a>(
        &'a self,
        request: ChatRequest<'a>,
    ) -> BoxFuture<'a, Result<DeltaStream, ModelError>>;
}

/// The pieces of a turn.
pub type DeltaStream = BoxStream<'static, Result<Delta, ModelError>>;

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct ChatRequest<'r> {
    /// The conversation so far.
    pub messages: &'r [Message],
    /// What it may call.
    pub tools: &'r [ToolDefinition],
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the operator tells the model.
    System {
        /// The text.
        content: String,
    },
    /// What the user says.
    User {
        /// The text.
        content: String,
    },
    /// What the model said.
    Assistant {
        /// The text.
        content: String,
        /// What it wants to call.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool answered.
    Tool {
        /// Which call this answers.
        tool_call_id: String,
        /// The answer, as text.
        content: String,
    },
}

impl Message {
    /// Of the operator.
    pub fn system(content: impl Into<String>) -> Self {
        Self::System {
            content: content.into(),
        }
    }

    /// Of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::User {
            content: content.into(),
        }
    }

    /// Of the model, without calls.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::Assistant {
            content: content.into(),
            tool_calls: Vec::new(),
        }
    }

    pub(crate) fn content_mut(&mut self) -> &mut String {
        match self {
            Self::System { content }
            | Self::User { content }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. } => content,
        }
    }

    /// How long its text is, for an estimate of tokens.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::System { content } | Self::User { content } | Self::Tool { content, .. } => {
                content.len()
            }
            Self::Assistant {
                content,
                tool_calls,
            } => {
                let calls = tool_calls.iter();
                content.len() + calls.map(|call| call.arguments.len()).sum::<usize>()
            }
        }
    }
}

/// A call that the model wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// How the answer refers to it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// JSON, if the model got it right.
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// A JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a turn cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
}

impl Usage {
    /// Both.
    pub fn total(self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
    }
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// It wants tools.
    ToolCalls,
    /// It ran into a limit.
    Length,
    /// The provider's filter cut it off.
    ContentFilter,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

impl From<&str> for FinishReason {
    fn from(reason: &str) -> Self {
        match reason {
            "stop" => Self::Stop,
            "tool_calls" | "function_call" => Self::ToolCalls,
            "length" => Self::Length,
            "content_filter" => Self::ContentFilter,
            other => Self::other(other),
        }
    }
}

/// Whether a text can be nothing but a name that a provider has for something.
pub(crate) fn is_word(text: &str) -> bool {
    let in_words = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=32).contains(&text.len()) && text.bytes().all(in_words)
}

impl FinishReason {
    /// A word of the provider's, and nothing longer: it is kept and shown as it is.
    fn other(reason: &str) -> Self {
        if is_word(reason) {
            return Self::Other(reason.to_owned());
        }
        Self::Other("other".to_owned())
    }

    /// Whether the turn may lack its end.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Self::Length | Self::ContentFilter)
    }
}

/// A piece of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// More of a tool call.
    ToolCall(ToolCallDelta),
    /// Why it ended.
    Finish(FinishReason),
    /// What it cost.
    Usage(Usage),
}

/// More of a tool call: everything but `arguments` comes once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallDelta {
    /// Which call of the turn; some providers leave it out.
    pub index: Option<usize>,
    /// Its id.
    pub id: Option<String>,
    /// Its tool.
    pub name: Option<String>,
    /// The next part of its arguments.
    pub arguments: String,
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// What it said.
    pub text: String,
    /// What it wants to call.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it cost, if the provider says.
    pub usage: Option<Usage>,
}

impl Turn {
    /// Whether it is as small as one that was streamed would have to be.
    pub(crate) fn check(&self, limit: usize) -> Result<(), ModelError> {
        let calls = self.calls.iter();
        let calls = calls.map(|call| call.id.len() + call.name.len() + call.arguments.len());
        if self.text.len() + calls.sum::<usize>() > limit {
            return Err(ModelError::TooLarge { limit });
        }
        if self.calls.len() > MOST_CALLS {
            return Err(too_many_calls());
        }
        Ok(())
    }
}

fn too_many_calls() -> ModelError {
    ModelError::Malformed(format!("it wants more than {MOST_CALLS} tools at once"))
}

/// Why there is no turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The settings make no sense.
    #[error("the chat model's settings: {0}")]
    Settings(String),
    /// There was no answer.
    #[error("no answer from the chat model: {0}")]
    Unreachable(String),
    /// The provider refuses.
    #[error("the chat model's server answers {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// The answer is larger than we take.
    #[error("the chat model's answer has more than {limit} bytes")]
    TooLarge {
        /// How much we take.
        limit: usize,
    },
    /// The answer is not one.
    #[error("the chat model's answer cannot be read: {0}")]
    Malformed(String),
    /// The answer has no end.
    #[error("the chat model's answer broke off")]
    BrokeOff,
}

impl ModelError {
    /// What happened, without a server's own words: for records that are kept.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Unreachable(_) => "no answer from the chat model".to_owned(),
            Self::Refused { status, .. } => format!("the chat model's server answers {status}"),
            other => other.to_string(),
        }
    }
}

/// Puts a turn together from its pieces.
#[derive(Debug)]
pub struct TurnBuilder {
    text: String,
    calls: Vec<PartialCall>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    room: usize,
    limit: usize,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<usize>,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
}

/// No model wants more at once; a stream could otherwise ask for any number of empty calls.
const MOST_CALLS: usize = 128;

impl TurnBuilder {
    /// For a turn of at most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            text: String::new(),
            calls: Vec::new(),
            finish: None,
            usage: None,
            room: limit,
            limit,
        }
    }

    /// Takes in a piece.
    pub fn push(&mut self, delta: &Delta) -> Result<(), ModelError> {
        match delta {
            Delta::Text(text) => {
                self.take(text.len())?;
                self.text.push_str(text);
            }
            Delta::ToolCall(delta) => self.call(delta)?,
            Delta::Finish(reason) => self.finish = Some(reason.clone()),
            Delta::Usage(usage) => self.usage = Some(*usage),
        }
        Ok(())
    }

    /// How much has come so far.
    pub(crate) fn bytes(&self) -> usize {
        self.limit - self.room
    }

    fn take(&mut self, bytes: usize) -> Result<(), ModelError> {
        let left = self.room.checked_sub(bytes);
        self.room = left.ok_or(ModelError::TooLarge { limit: self.limit })?;
        Ok(())
    }

    fn call(&mut self, delta: &ToolCallDelta) -> Result<(), ModelError> {
        let named = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.take(delta.arguments.len() + named(&delta.id) + named(&delta.name))?;
        let id = delta.id.as_ref().filter(|id| !id.is_empty());
        let place = match (delta.index, id) {
            (Some(index), _) => self.calls.iter().position(|call| call.index == Some(index)),
            (None, Some(id)) => self
                .calls
                .iter()
                .position(|call| call.id.as_ref() == Some(id)),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let place = match place {
            Some(place) => place,
            None if self.calls.len() == MOST_CALLS => return Err(too_many_calls()),
            None => {
                self.calls.push(PartialCall {
                    index: delta.index,
                    ..PartialCall::default()
                });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(place) else {
            return Ok(());
        };
        // Some providers repeat them in every piece.
        if call.id.is_none() {
            call.id = id.cloned();
        }
        if call.name.is_none() {
            call.name = delta.name.clone().filter(|name| !name.is_empty());
        }
        call.arguments.push_str(&delta.arguments);
        Ok(())
    }

    /// The turn, if it has come to its end.
    pub fn finish(self) -> Result<Turn, ModelError> {
        let finish = self.finish.ok_or(ModelError::BrokeOff)?;
        let mut calls: Vec<ToolCall> = Vec::with_capacity(self.calls.len());
        for (place, call) in self.calls.into_iter().enumerate() {
            let id = call.id.unwrap_or_else(|| format!("call_{place}"));
            let name = call.name.ok_or_else(|| {
                ModelError::Malformed("a tool call does not say which tool".to_owned())
            })?;
            calls.push(ToolCall {
                id,
                name,
                arguments: call.arguments,
            });
        }
        Ok(Turn {
            text: self.text,
            calls,
            finish,
            usage: self.usage,
        })
    }
}
