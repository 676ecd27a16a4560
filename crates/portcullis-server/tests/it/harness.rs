//! A real server on a real port, and ways to talk to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::approval::Approvals;
use portcullis_server::Server;
use portcullis_server::auth::Token;
use portcullis_server::config::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::wire::PATIENCE;

pub(crate) const EMERSON: &str = "token-of-emerson-0001";
pub(crate) const CLAUDE: &str = "token-of-claude-ops-0002";

/// A policy for tests that are about something else: the built-in one takes seconds to compile unoptimised.
const PACK: &str = "policy_pack: small\nversion: '1'\nsync_rules:\n  - id: tool-allowlist\n    config: {denied_tools: [admin.execute]}\n";

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
    settings.memory.path = data.join("memory.db");
    settings.approvals.path = data.join("approvals.db");
    let pack = data.join("pack.yaml");
    std::fs::write(&pack, PACK).unwrap();
    settings.policy.pack = Some(pack);
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

    /// With the built-in policy.
    pub(crate) async fn with_built_in_policy() -> Self {
        Self::with(|settings| settings.policy.pack = None).await
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
        Self::run(server, data)
    }

    /// With approvals that the test keeps.
    pub(crate) async fn keeping(
        approvals: Arc<dyn Approvals>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path());
        change(&mut settings);
        let server = Server::start_with(settings, approvals).await.unwrap();
        Self::run(server, data)
    }

    fn run(server: Server, data: TempDir) -> Self {
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
        self.begin_stop();
        self.stopped().await
    }

    /// Waits for the end of a server that was asked to stop.
    pub(crate) async fn stopped(mut self) -> (bool, TempDir) {
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

    /// A page of the metrics.
    pub(crate) async fn metrics(&self) -> String {
        let response = self.get_as_emerson("/metrics").await;
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    }

    /// The value of a metric with its labels, as it is written; 0 while it is not there.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.metrics().await;
        let value = page.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(' ')?;
            Some(value.parse().unwrap())
        });
        value.unwrap_or_default()
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

/// Asks again until the answer is yes.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
