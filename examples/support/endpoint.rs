//! A server of `OpenAI`'s chat completions that says what a script says: for examples and tests without a model.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the model says next.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A turn: pieces of text, then tool calls as id, tool and arguments.
    Turn {
        text: Vec<String>,
        calls: Vec<(String, String, String)>,
    },
    /// An HTTP error.
    Error {
        status: u16,
        retry_after_ms: Option<u64>,
    },
    /// A stream that ends in the middle.
    BreakOff { text: Vec<String> },
    /// Nothing, for ever.
    Silence,
}

impl Reply {
    /// Text, in pieces.
    pub(crate) fn say<const N: usize>(pieces: [&str; N]) -> Self {
        Self::Turn {
            text: pieces.map(str::to_owned).to_vec(),
            calls: Vec::new(),
        }
    }

    /// Tool calls, with the ids `c1`, `c2` and so on.
    pub(crate) fn call<const N: usize>(calls: [(&str, Value); N]) -> Self {
        let calls = calls.into_iter().enumerate().map(|(place, (tool, args))| {
            let id = format!("c{}", place + 1);
            (id, tool.to_owned(), args.to_string())
        });
        Self::Turn {
            text: Vec::new(),
            calls: calls.collect(),
        }
    }
}

/// The server. It ends when this is dropped.
pub(crate) struct Endpoint {
    address: SocketAddr,
    script: Arc<Script>,
    server: JoinHandle<()>,
}

struct Script {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Value>>,
    /// How many bytes of a stream are sent at once; frame by frame if none.
    cut: Option<usize>,
}

impl Endpoint {
    /// A server that gives these replies, one to a request, and then none.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> io::Result<Self> {
        Self::start_cut(replies, None).await
    }

    /// The same, with streams sent in pieces of so many bytes.
    pub(crate) async fn start_cut(
        replies: impl IntoIterator<Item = Reply>,
        cut: Option<usize>,
    ) -> io::Result<Self> {
        let script = Arc::new(Script {
            replies: Mutex::new(replies.into_iter().collect()),
            requests: Mutex::default(),
            cut,
        });
        let app = Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::clone(&script));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // It ends by being aborted.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self {
            address,
            script,
            server,
        })
    }

    /// Where it is.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What it was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Value> {
        lock(&self.script.requests).clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn complete(State(script): State<Arc<Script>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let streaming = request["stream"] == true;
    lock(&script.requests).push(request);
    let reply = lock(&script.replies).pop_front();
    match reply {
        None => error(500, None, "the script is over"),
        Some(Reply::Error {
            status,
            retry_after_ms,
        }) => error(status, retry_after_ms, "as the script says"),
        Some(Reply::Silence) => std::future::pending().await,
        Some(Reply::Turn { text, calls }) if !streaming => whole(&text.concat(), &calls),
        Some(Reply::BreakOff { .. }) if !streaming => (StatusCode::OK, "{").into_response(),
        Some(Reply::Turn { text, calls }) => {
            let reason = if calls.is_empty() {
                "stop"
            } else {
                "tool_calls"
            };
            let mut frames = said(&text);
            frames.extend(called(&calls));
            frames.push(frame(
                &json!([{"index": 0, "delta": {}, "finish_reason": reason}]),
            ));
            frames.push(format!(
                "data: {}\n\n",
                json!({"choices": [], "usage": usage()})
            ));
            frames.push("data: [DONE]\n\n".to_owned());
            sent(frames, script.cut)
        }
        Some(Reply::BreakOff { text }) => sent(said(&text), script.cut),
    }
}

fn usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
}

fn error(status: u16, retry_after_ms: Option<u64>, message: &str) -> Response {
    let body = json!({"error": {"message": message}}).to_string();
    let mut response = (
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        body,
    )
        .into_response();
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert("retry-after-ms", ms.into());
    }
    response
}

fn whole(text: &str, calls: &[(String, String, String)]) -> Response {
    let reason = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let calls: Vec<Value> = calls
        .iter()
        .map(|(id, tool, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}})
        })
        .collect();
    let message = json!({"role": "assistant", "content": text, "tool_calls": calls});
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let body = json!({"choices": [choice], "usage": usage()}).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn frame(choices: &Value) -> String {
    let chunk = json!({"object": "chat.completion.chunk", "choices": choices});
    format!("data: {chunk}\n\n")
}

fn said(text: &[String]) -> Vec<String> {
    let role = json!([{"index": 0, "delta": {"role": "assistant", "content": ""}}]);
    let pieces = text
        .iter()
        .map(|piece| frame(&json!([{"index": 0, "delta": {"content": piece}}])));
    std::iter::once(frame(&role)).chain(pieces).collect()
}

/// Arguments come in pieces too, as they do from real servers.
fn called(calls: &[(String, String, String)]) -> Vec<String> {
    let mut frames = Vec::new();
    for (index, (id, tool, arguments)) in calls.iter().enumerate() {
        let mut delta = |call: Value| {
            let choice = json!([{"index": 0, "delta": {"tool_calls": [call]}}]);
            frames.push(frame(&choice));
        };
        delta(
            json!({"index": index, "id": id, "type": "function", "function": {"name": tool, "arguments": ""}}),
        );
        let letters: Vec<char> = arguments.chars().collect();
        for piece in letters.chunks(7) {
            let piece: String = piece.iter().collect();
            delta(json!({"index": index, "function": {"arguments": piece}}));
        }
    }
    frames
}

fn sent(frames: Vec<String>, cut: Option<usize>) -> Response {
    let pieces: Vec<Vec<u8>> = match cut {
        None => frames.into_iter().map(String::into_bytes).collect(),
        Some(cut) => {
            let bytes = frames.concat().into_bytes();
            bytes.chunks(cut.max(1)).map(<[u8]>::to_vec).collect()
        }
    };
    let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
    let body = Body::from_stream(stream::iter(pieces));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
