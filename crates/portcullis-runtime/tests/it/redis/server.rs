//! A Redis of one test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::redis::Client;
use ::redis::aio::MultiplexedConnection;
use portcullis_runtime::RedisSettings;
use tempfile::TempDir;

/// A `redis-server`, which is killed when the test ends.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Server {
    /// Listens for TCP without TLS, and lets everybody in.
    pub(crate) fn start() -> Self {
        let port = free_port();
        Self::start_with(port, &["--port", &port.to_string()])
    }

    /// With these options.
    pub(crate) fn start_with(port: u16, options: &[&str]) -> Self {
        let arguments: Vec<String> = options.iter().map(|&text| text.to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        Self {
            child: launch(port, &arguments, &directory),
            port,
            arguments,
            directory,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// This Redis, under a name of the test's own.
    pub(crate) fn settings(&self, name: &str) -> RedisSettings {
        RedisSettings {
            name: name.to_owned(),
            ..RedisSettings::new(self.url())
        }
    }

    /// For looking at what is there.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// SIGKILL: nothing is saved, nobody is told.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Starts again, empty, at the same address.
    pub(crate) fn restart(&mut self) {
        self.child = launch(self.port, &self.arguments, &self.directory);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn launch(port: u16, arguments: &[String], directory: &TempDir) -> Child {
    let child = Command::new("redis-server")
        .args(arguments)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--dir", directory.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .expect("this test needs `redis-server` (Debian: apt install redis-server)");
    let started = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "the redis-server does not listen"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}
