//! Sidecars and inboxes for tests, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portcullis_runtime::{
    DeepHost, DeepRules, GrpcError, GrpcSettings, InboxLimits, RemoteInbox, SidecarSettings,
    serve_sidecar,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A sidecar in this process.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), GrpcError>>,
}

impl Served {
    pub(crate) async fn start(settings: SidecarSettings, rules: DeepRules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, settings, rules)
    }

    pub(crate) fn on(listener: TcpListener, settings: SidecarSettings, rules: DeepRules) -> Self {
        let address = listener.local_addr().unwrap();
        let host = Arc::new(DeepHost::new(rules));
        let (shutdown, heard) = oneshot::channel();
        let serving = tokio::spawn(serve_sidecar(listener, settings, host, async {
            // One that nobody tells serves for ever.
            if heard.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Self {
            address,
            shutdown,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Shuts down, and waits until that is done.
    pub(crate) async fn stop(self) {
        self.shutdown.send(()).unwrap();
        timeout(PATIENCE, self.serving)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

impl Served {
    /// Why it did not start.
    pub(crate) async fn failed(self) -> GrpcError {
        timeout(PATIENCE, self.serving)
            .await
            .unwrap()
            .unwrap()
            .unwrap_err()
    }
}

/// An inbox that may not be connected yet.
pub(crate) fn inbox(settings: &GrpcSettings) -> Arc<RemoteInbox> {
    Arc::new(RemoteInbox::over_grpc(settings, InboxLimits::default()).unwrap())
}

/// An inbox that is connected.
pub(crate) async fn connected(url: &str) -> Arc<RemoteInbox> {
    let inbox = inbox(&GrpcSettings::new(url));
    assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
    inbox
}

/// Waits until that is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Why it does not connect, once it says so.
pub(crate) async fn trouble(settings: &GrpcSettings) -> String {
    let inbox = inbox(settings);
    let waiting = Some("not connected yet".to_owned());
    until("an attempt", || inbox.trouble() != waiting).await;
    inbox.trouble().expect("it should not connect")
}
