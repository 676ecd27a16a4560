//! A real HTTP server that takes whatever is posted to it, and answers as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::eventually;

/// How a request is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Status(u16),
    /// With another header.
    With(u16, &'static str, &'static str),
    /// The connection is closed.
    Nothing,
    /// It stays open.
    Never,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    listening: JoinHandle<()>,
}

impl Receiver {
    /// Answers the first request by the first of these, and so on; all others by the last.
    pub(crate) async fn start(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let listening = tokio::spawn({
            let (received, answers) = (Arc::clone(&received), answers.to_vec());
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(stream, Arc::clone(&received), answers.clone()));
                }
            }
        });
        Self {
            address,
            received,
            listening,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/intents?from=portcullis", self.address)
    }

    /// All that has come.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until so many have come.
    pub(crate) async fn has(&self, count: usize) -> Vec<Received> {
        let what = format!("{count} requests");
        eventually(&what, async || self.received().len() >= count).await;
        self.received()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut stream: TcpStream, received: Arc<Mutex<Vec<Received>>>, answers: Vec<Answer>) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.unwrap_or(0);
        if length == 0 {
            return;
        }
        bytes.extend_from_slice(&part[..length]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let request = Received {
            head: head.to_owned(),
            body: String::new(),
            at: Instant::now(),
        };
        let length = request.header("content-length").unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            break (head.to_owned(), body.to_owned());
        }
    };
    let number = {
        let mut received = received.lock().unwrap();
        let at = Instant::now();
        received.push(Received { head, body, at });
        received.len() - 1
    };
    let (status, more) = match answers[number.min(answers.len() - 1)] {
        Answer::Status(status) => (status, String::new()),
        Answer::With(status, name, value) => (status, format!("{name}: {value}\r\n")),
        Answer::Nothing => return,
        Answer::Never => return std::future::pending().await,
    };
    let answer = format!(
        "HTTP/1.1 {status} Whatever\r\n{more}Content-Length: 2\r\nConnection: close\r\n\r\nno"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}
