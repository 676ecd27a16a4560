//! A real server on a real port, and ways to talk to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use portcullis_server::Server;
use portcullis_server::auth::Token;
use portcullis_server::config::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const EMERSON: &str = "token-of-emerson-0001";
pub(crate) const CLAUDE: &str = "token-of-claude-ops-0002";

/// A server that runs until it is dropped or stopped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    done: Option<JoinHandle<bool>>,
    data: TempDir,
}

/// Settings for a test: any port, two agents, evidence that survives the process.
pub(crate) fn settings(data: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.server.port = 0;
    settings.agent.name = "cognition-engines".to_owned();
    settings.evidence.directory = data.join("evidence");
    for (agent, token) in [("emerson", EMERSON), ("claude-ops", CLAUDE)] {
        let token = Token::parse(token).unwrap();
        settings.auth.tokens.add(agent, &token).unwrap();
    }
    settings
}

impl Running {
    /// With the defaults.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With settings that a test changes.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let data = tempfile::tempdir().unwrap();
        Self::in_directory(data, change).await
    }

    /// On what another server left behind.
    pub(crate) async fn in_directory(data: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(data.path());
        change(&mut settings);
        let server = Server::start(settings).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let (address, url) = (server.address(), server.url().to_owned());
        let done = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            address,
            url,
            http: reqwest::Client::new(),
            stop: Some(stop),
            done: Some(done),
            data,
        }
    }

    /// Stops it and says whether everything was finished, with its folder.
    pub(crate) async fn stop(mut self) -> (bool, TempDir) {
        let _ = self.stop.take().unwrap().send(());
        let finished = self.done.take().unwrap().await.unwrap();
        (finished, self.data)
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// A GET without a token.
    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        let url = format!("http://{}{path}", self.address);
        self.http.get(url).send().await.unwrap()
    }

    /// A GET with Emerson's token.
    pub(crate) async fn get_as_emerson(&self, path: &str) -> reqwest::Response {
        let url = format!("http://{}{path}", self.address);
        let request = self.http.get(url).bearer_auth(EMERSON);
        request.send().await.unwrap()
    }

    /// A POST to build on.
    pub(crate) fn post(&self, path: &str, body: impl Into<String>) -> reqwest::RequestBuilder {
        self.http
            .post(format!("http://{}{path}", self.address))
            .bearer_auth(EMERSON)
            .header("content-type", "application/json")
            .body(body.into())
    }

    /// The HTTP status and the JSON that a body to `/cstp` gets.
    pub(crate) async fn rpc(&self, body: &str) -> (u16, Value) {
        let response = self.post("/cstp", body).send().await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.bytes().await.unwrap();
        let value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).unwrap()
        };
        (status, value)
    }

    /// The result of a call that must succeed.
    pub(crate) async fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self.call_any(method, params).await;
        assert_eq!(answer["error"], Value::Null, "{method} {params}");
        answer["result"].clone()
    }

    /// Whatever comes of a call.
    pub(crate) async fn call_any(&self, method: &str, params: &Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": "req-001", "method": method, "params": params});
        let (status, answer) = self.rpc(&body.to_string()).await;
        assert_eq!(status, 200);
        answer
    }

    /// Every entry of the evidence log that is on disk now.
    pub(crate) fn evidence(&self) -> Vec<Value> {
        evidence_in(self.data())
    }

    /// Raw bytes over a connection of their own, and whatever comes back until it is closed or quiet.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        // A server that has read enough may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// The entries in a data folder.
pub(crate) fn evidence_in(data: &Path) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(data.join("evidence"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("evidence-"))
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let lines: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            lines
        })
        .collect()
}
