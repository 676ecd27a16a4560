//! Sidecars that are processes of their own, and a connection that can be cut.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const SIDECAR: &str = "../../examples/sidecar/sidecar.py";

/// `examples/sidecar/sidecar.py` over the classifier in `pipeline.py`. It ends with its value.
pub(crate) struct PythonSidecar {
    child: Child,
    pub(crate) port: u16,
}

impl PythonSidecar {
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::on(0, more)
    }

    pub(crate) fn on(port: u16, more: &[&str]) -> Self {
        let port = port.to_string();
        let judged = [
            "--pipeline",
            "pipeline:classify",
            "--workers",
            "8",
            "--port",
            &port,
        ];
        Self::run(SIDECAR, &[&judged, more].concat())
    }

    /// `faulty.py`.
    pub(crate) fn faulty(more: &[&str]) -> Self {
        let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        Self::run("tests/it/grpc/faulty.py", &[&[protos], more].concat())
    }

    fn run(script: &str, arguments: &[&str]) -> Self {
        let mut child = python(script)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.next().expect("the sidecar did not start").unwrap();
        let (_, port) = listening.rsplit_once(':').unwrap();
        let port = port.parse().unwrap();
        let ready = lines.next().expect("the sidecar did not load").unwrap();
        assert!(ready.ends_with("is ready"), "{ready}");
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// `KILL`, `STOP`, `CONT` or `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for PythonSidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why `sidecar.py` does not start with these options.
pub(crate) fn unusable(options: &[&str]) -> String {
    let ended = python(SIDECAR).args(["--port", "0"]).args(options).output();
    let ended = ended.unwrap();
    assert!(!ended.status.success());
    String::from_utf8(ended.stderr).unwrap()
}

fn python(script: &str) -> Command {
    let python = std::env::var("PORTCULLIS_PYTHON").expect(
        "PORTCULLIS_PYTHON is not set: scripts/test makes a .venv with scripts/requirements.txt and sets it",
    );
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command
        .arg(here.join(script))
        .env("PYTHONPATH", here.join("tests/it/grpc"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Writes a file for a sidecar to read.
pub(crate) fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Between gateway and sidecar, and fragile.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<JoinSet<()>>>,
    count: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            count: Arc::default(),
        };
        let (connections, count) = (Arc::clone(&proxy.connections), Arc::clone(&proxy.count));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                connections.lock().unwrap().spawn(async move {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all connections, whatever is under way.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}
