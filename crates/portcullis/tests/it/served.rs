//! `portcullis serve` as a process of its own, and a client for it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixtures::{Done, portcullis, run_with};

/// The token of agent `tester` in [`CONFIG`].
pub(crate) const TOKEN: &str = "token-of-the-tester-0001";
/// A configuration whose token outlives the process.
pub(crate) const CONFIG: &str = "auth:\n  tokens:\n    - {agent: tester, token: \"${TESTER}\"}\n";

/// A server that is killed when it is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    pub(crate) url: String,
    /// What it printed up to its address.
    pub(crate) welcome: String,
}

/// `portcullis serve` on a free port, with evidence in this folder.
pub(crate) fn serve(data: &Path) -> Command {
    let mut command = portcullis();
    command
        .args(["serve", "--port", "0", "--data-dir"])
        .arg(data);
    command.env("TESTER", TOKEN);
    command
}

impl Served {
    /// Starts it and waits for its address.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            // What is not text is not worth failing for.
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut welcome = String::new();
        stdout.read_line(&mut welcome).unwrap();
        let Some(url) = welcome
            .trim()
            .strip_prefix("Portcullis listens on ")
            .map(str::to_owned)
        else {
            let _ = child.wait();
            panic!("{welcome}{}", stderr.join().unwrap());
        };
        Self {
            child,
            stdout,
            stderr: Some(stderr),
            url,
            welcome,
        }
    }

    /// Reads on until it has printed this many commands to try.
    pub(crate) fn commands(&mut self, count: usize) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        while commands.len() < count
            || commands
                .last()
                .is_some_and(|command| command.ends_with("\\\n"))
        {
            let mut line = String::new();
            assert!(
                self.stdout.read_line(&mut line).unwrap() > 0,
                "{}",
                self.welcome
            );
            self.welcome += &line;
            match commands.last_mut() {
                Some(command) if command.ends_with("\\\n") => *command += &line,
                _ if line.starts_with("curl ") => commands.push(line),
                _ => {}
            }
        }
        commands
    }

    /// Asks it to stop, and gives its exit status and all that it logged.
    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        (status, self.stderr.take().unwrap().join().unwrap())
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.url)
    }

    /// Runs the binary as a client of this server.
    pub(crate) fn ask(&self, args: &[&str]) -> Done {
        run_with(args, "", |command| {
            command
                .env("PORTCULLIS_URL", &self.url)
                .env("PORTCULLIS_TOKEN", TOKEN);
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// The answer to a check; an error when the server is gone before it is whole.
    pub(crate) fn check(&mut self, description: &str, request_id: &str) -> io::Result<Value> {
        let params = json!({"action": {"description": description}});
        self.call("cstp.checkGuardrails", &params, request_id)
    }

    /// The answer to a call; an error when the server is gone before it is whole.
    pub(crate) fn call(
        &mut self,
        method: &str,
        params: &Value,
        request_id: &str,
    ) -> io::Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post("/cstp", &body.to_string(), request_id)
    }

    /// The answer to a body; an error when the server is gone before it is whole.
    pub(crate) fn post(&mut self, path: &str, body: &str, request_id: &str) -> io::Result<Value> {
        let headers = format!("X-Request-Id: {request_id}\r\n");
        self.post_with(path, body, &headers)
    }

    /// The answer to a body with more headers.
    pub(crate) fn post_with(&mut self, path: &str, body: &str, headers: &str) -> io::Result<Value> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        serde_json::from_slice(&answer).map_err(io::Error::other)
    }
}

/// The memory's file in a data folder.
pub(crate) fn memory(data: &Path) -> PathBuf {
    data.join("memory.db")
}

/// The log's folder in a data folder.
pub(crate) fn evidence(data: &Path) -> PathBuf {
    data.join("evidence")
}
