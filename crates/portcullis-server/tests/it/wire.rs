//! HTTP/1.1 as bytes on a connection, for everything that a well-behaved client would not send.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::EMERSON;

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            unread: Vec::new(),
        }
    }

    /// Sends bytes; a server that has heard enough may close before it has read everything.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish_sending(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Breaks the connection off, so that the other side knows at once that nobody listens.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// The next answer; none when the connection is closed before it is whole.
    pub(crate) async fn answer(&mut self) -> Option<Reply> {
        tokio::time::timeout(PATIENCE, self.next(true))
            .await
            .expect("neither an answer nor the end of the connection")
    }

    /// The next answer, to a HEAD.
    pub(crate) async fn answer_without_body(&mut self) -> Option<Reply> {
        tokio::time::timeout(PATIENCE, self.next(false))
            .await
            .expect("neither an answer nor the end of the connection")
    }

    /// Whether the server closes the connection, and sends nothing more before it does.
    pub(crate) async fn is_closed(&mut self) -> bool {
        assert!(self.unread.is_empty());
        let end = tokio::time::timeout(PATIENCE, self.stream.read(&mut [0; 64])).await;
        matches!(end.expect("the connection stays open"), Ok(0) | Err(_))
    }

    async fn next(&mut self, with_body: bool) -> Option<Reply> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply {
            status,
            head,
            body: String::new(),
        };
        let length = reply.header("content-length").unwrap_or("0");
        let length: usize = if with_body {
            length.parse().unwrap()
        } else {
            0
        };
        while self.unread.len() < length {
            self.more().await?;
        }
        reply.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        Some(reply)
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).await.ok()?;
        self.unread.extend(&buffer[..read]);
        (read > 0).then_some(())
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// A request with these headers besides `Host`, and the length of its body.
pub(crate) fn request(start: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{start} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    let _ = write!(text, "Content-Length: {}\r\n\r\n{body}", body.len());
    text
}

/// A call of Emerson's.
pub(crate) fn call(body: &str) -> String {
    request("POST /cstp", &headers_of_emerson(), body)
}

/// What Emerson sends with a JSON body.
pub(crate) fn headers_of_emerson() -> [(&'static str, &'static str); 2] {
    const AUTHORIZATION: &str = "Bearer token-of-emerson-0001";
    assert!(AUTHORIZATION.ends_with(EMERSON));
    [
        ("Authorization", AUTHORIZATION),
        ("Content-Type", "application/json"),
    ]
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}
