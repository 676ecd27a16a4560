//! Services for external rules: real HTTP, answering as a test tells them to.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{header, request};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A service that answers until it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<(request::Parts, Value)>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Service {
    /// Answers each request by what `answer` makes of it.
    pub(crate) async fn start<F, R>(
        answer: impl Fn(Value) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        Self::listening(answer, None).await
    }

    /// The same over TLS, by a certificate of its own that it writes to this file.
    pub(crate) async fn with_tls<F, R>(
        certificate: &Path,
        answer: impl Fn(Value) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(certificate, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        Self::listening(answer, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listening<F, R>(
        answer: impl Fn(Value) -> F + Clone + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let router = Router::new().fallback({
            let seen = Arc::clone(&seen);
            move |request: Request| respond(request, Arc::clone(&seen), answer)
        });
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = TowerToHyperService::new(router.clone());
                let tls = tls.clone();
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that goes away in the middle is part of the tests.
                    match tls {
                        None => drop(http.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                let stream = TokioIo::new(stream);
                                drop(http.serve_connection(stream, service).await);
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/score?key=hunter2", self.address)
    }

    /// All that has come: the head and the JSON of each request.
    pub(crate) fn requests(&self) -> Vec<(request::Parts, Value)> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// The most requests that were under way at once.
    pub(crate) fn most(&self) -> usize {
        self.seen.most.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// An answer in JSON.
pub(crate) struct Json(pub(crate) Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/json; charset=utf-8")];
        (kind, self.0.to_string()).into_response()
    }
}

async fn respond<F, R>(request: Request, seen: Arc<Seen>, answer: impl Fn(Value) -> F) -> Response
where
    F: Future<Output = R>,
    R: IntoResponse,
{
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    seen.requests.lock().unwrap().push((head, body.clone()));
    let under_way = seen.under_way.fetch_add(1, Ordering::SeqCst) + 1;
    seen.most.fetch_max(under_way, Ordering::SeqCst);
    let response = answer(body).await.into_response();
    seen.under_way.fetch_sub(1, Ordering::SeqCst);
    response
}

/// A body of which the beginning comes at once, and the rest never.
pub(crate) fn stalled_body(beginning: &'static str) -> Body {
    use futures_util::StreamExt;
    let first = futures_util::stream::iter([Ok::<_, std::io::Error>(beginning)]);
    Body::from_stream(first.chain(futures_util::stream::pending()))
}

/// A body without end, of which nobody is told how long it is.
pub(crate) fn endless_body() -> Body {
    let chunk = || Ok::<_, std::io::Error>(vec![b' '; 64 << 10]);
    Body::from_stream(futures_util::stream::repeat_with(chunk))
}

/// Presidio's analyzer in a process of its own.
pub(crate) struct PresidioProcess {
    pub(crate) port: u16,
    process: Child,
}

impl PresidioProcess {
    pub(crate) fn start() -> Self {
        let python = std::env::var("PORTCULLIS_PYTHON").expect(
            "PORTCULLIS_PYTHON is not set: scripts/test makes a .venv with scripts/requirements.txt and sets it",
        );
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/presidio.py"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| {
            panic!("presidio.py printed no port: is scripts/requirements.txt installed?")
        });
        Self { port, process }
    }
}

impl Drop for PresidioProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Longer than any rule here waits.
pub(crate) const FOREVER: Duration = Duration::from_mins(10);
