//! `OpenAI`'s chat completions, as JSON.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::sse::SseReader;
use crate::chat::{
    ChatRequest, Delta, FinishReason, Message, ModelError, ToolCallDelta, Turn, TurnBuilder, Usage,
    is_word,
};

/// The body of a request. What the embedder adds may not replace what the planner says.
pub(super) fn request(
    model: &str,
    request: ChatRequest<'_>,
    stream: bool,
    extra: &Map<String, Value>,
) -> Value {
    let mut body = extra.clone();
    body.insert("model".to_owned(), json!(model));
    let messages: Vec<Value> = request.messages.iter().map(message).collect();
    body.insert("messages".to_owned(), Value::Array(messages));
    if request.tools.is_empty() {
        body.remove("tools");
    } else {
        let tools = request.tools.iter();
        let tools = tools.map(|tool| json!({"type": "function", "function": tool}));
        body.insert("tools".to_owned(), tools.collect());
    }
    body.insert("stream".to_owned(), json!(stream));
    if stream {
        let options = json!({"include_usage": true});
        body.insert("stream_options".to_owned(), options);
    } else {
        body.remove("stream_options");
    }
    Value::Object(body)
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { content } => json!({"role": "system", "content": content}),
        Message::User { content } => json!({"role": "user", "content": content}),
        Message::Tool {
            tool_call_id,
            content,
        } => json!({"role": "tool", "tool_call_id": tool_call_id, "content": content}),
        Message::Assistant {
            content,
            tool_calls,
        } if tool_calls.is_empty() => json!({"role": "assistant", "content": content}),
        Message::Assistant {
            content,
            tool_calls,
        } => {
            let calls = tool_calls.iter().map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            });
            let content = (!content.is_empty()).then_some(content);
            json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Value>()})
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: usize,
    /// In a stream.
    #[serde(default)]
    delta: Option<Said>,
    /// Otherwise.
    #[serde(default)]
    message: Option<Said>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    index: Option<usize>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<WireFunction>,
}

#[derive(Deserialize)]
struct WireFunction {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// What an answer, or an event of a streamed one, says.
fn deltas(json: &[u8], mut each: impl FnMut(Delta)) -> Result<(), ModelError> {
    // Neither error repeats the answer: nobody has judged it, and a server may say the key that it does not like.
    let answer: Answer = serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let why = format!("it is no chat completion: look at line {line}, column {column}");
        ModelError::Malformed(why)
    })?;
    if let Some(error) = answer.error.filter(|error| !error.is_null()) {
        let kinds = [&error["code"], &error["type"]].into_iter();
        let kind = kinds.filter_map(Value::as_str).find(|kind| is_word(kind));
        let kind = kind.unwrap_or("of a kind it does not name");
        return Err(ModelError::Malformed(format!("it is an error, {kind}")));
    }
    for choice in answer
        .choices
        .into_iter()
        .filter(|choice| choice.index == 0)
    {
        if let Some(said) = choice.delta.or(choice.message) {
            let texts = [said.content, said.refusal].into_iter().flatten();
            texts
                .filter(|text| !text.is_empty())
                .for_each(|text| each(Delta::Text(text)));
            for call in said.tool_calls.into_iter().flatten() {
                let function = call.function.unwrap_or(WireFunction {
                    name: None,
                    arguments: None,
                });
                each(Delta::ToolCall(ToolCallDelta {
                    index: call.index,
                    id: call.id,
                    name: function.name,
                    arguments: function.arguments.unwrap_or_default(),
                }));
            }
        }
        if let Some(reason) = choice.finish_reason {
            each(Delta::Finish(FinishReason::from(reason.as_str())));
        }
    }
    if let Some(usage) = answer.usage {
        each(Delta::Usage(Usage {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
        }));
    }
    Ok(())
}

/// A turn that came in one piece.
pub(super) fn turn(json: &[u8], limit: usize) -> Result<Turn, ModelError> {
    let mut found = Vec::new();
    deltas(json, |delta| found.push(delta))?;
    let mut builder = TurnBuilder::new(limit);
    found.iter().try_for_each(|delta| builder.push(delta))?;
    builder.finish()
}

/// Reads a streamed answer from bytes that are cut anywhere.
#[derive(Debug)]
pub struct StreamReader {
    sse: SseReader,
    done: bool,
}

impl StreamReader {
    /// For events of at most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            sse: SseReader::new(limit),
            done: false,
        }
    }

    /// Takes in bytes and hands out what they say. Behind `[DONE]` nothing counts any more.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Delta)) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        let done = &mut self.done;
        let read = self.sse.push(bytes, |data| event(data, done, &mut each));
        if self.done { Ok(()) } else { read }
    }

    /// The bytes have ended.
    pub fn finish(&mut self, mut each: impl FnMut(Delta)) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        let done = &mut self.done;
        self.sse.finish(|data| event(data, done, &mut each))
    }

    /// Whether the server has said that this was all.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

fn event(data: &str, done: &mut bool, each: &mut impl FnMut(Delta)) -> Result<(), ModelError> {
    *done |= data.trim() == "[DONE]";
    if *done || data.trim().is_empty() {
        return Ok(());
    }
    deltas(data.as_bytes(), each)
}
