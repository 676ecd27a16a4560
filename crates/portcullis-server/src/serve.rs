//! Starting, serving, stopping.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use portcullis_core::approval::Approvals;
use portcullis_core::evidence::{Body, KeyError, Redactor, SigningKey};
use portcullis_core::guardrails::{self, Guardrails};
use portcullis_core::pack::diagnostic::Report;
use portcullis_core::{Policy, pack};
use portcullis_runtime::{
    AlertSink, Gateway, LoadError, PackFile, Quarantined, Reload, Reloader, Telemetry,
};
use portcullis_store::approvals::{ApprovalOptions, SqliteApprovals};
use portcullis_store::evidence::{EvidenceLog, OpenError, Options, Recovery};
use portcullis_store::memory::{self, Memory as _, MemoryState, SqliteMemory, SqliteOptions};
use serde_json::Map;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::alerts::Alerts;
use crate::app::{App, Secrets, now};
use crate::approvals::Desk;
use crate::callbacks::Callbacks;
use crate::config::{MemorySettings, PolicySettings, Settings};
use crate::far::DeepPath;
use crate::files::{GuardrailError, GuardrailFiles};
use crate::limit::MemoryLimiter;
use crate::metrics::Metrics;
use crate::telemetry::TraceContext;
use crate::{http, tls};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not to be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The policy pack is wrong.
    #[error(transparent)]
    Policy(#[from] LoadError),
    /// The guardrails are wrong, or there are none.
    #[error(transparent)]
    Guardrails(#[from] GuardrailError),
    /// The evidence log cannot be written.
    #[error(transparent)]
    Evidence(#[from] OpenError),
    /// The memory cannot be opened.
    #[error(transparent)]
    Memory(#[from] memory::OpenError),
    /// Nobody knows which runs are in quarantine.
    #[error("cannot read the quarantine from the memory: {0}")]
    Quarantine(String),
    /// The model that finds decisions by their meaning cannot be used.
    #[error("cannot use `memory.embedder`: {0}")]
    Embedder(String),
    /// The key that signs checkpoints cannot be used.
    #[error("cannot use the signing key in {}: {error}", path.display())]
    SigningKey {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// Deep rules cannot be asked.
    #[error("cannot use `deep`: {0}")]
    Deep(String),
    /// Nobody can be called.
    #[error("the callbacks cannot be used: {0}")]
    Callbacks(String),
    /// Nobody can be alerted.
    #[error("the sinks of `alerts` cannot be used: {0}")]
    Alerts(String),
    /// People's answers cannot be kept.
    #[error("cannot open the approvals: {0}")]
    Approvals(String),
    /// Nobody can be told of approvals.
    #[error("`approvals.webhook` cannot be used: {0}")]
    ApprovalWebhook(String),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// Authentication is on, and there is no token that anybody could show.
    #[error(
        "authentication is on and `auth.tokens` is empty, so nobody could come in: \
         `portcullis token new AGENT` prints a token and the lines for it"
    )]
    NoTokens,
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A server that listens.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    address: SocketAddr,
    warnings: Vec<Report>,
    stopping: watch::Sender<bool>,
    background: Background,
}

impl Server {
    /// Loads everything, opens the log and listens. Nothing is answered before [`Server::run`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        Self::begin(settings, None).await
    }

    /// The same, with approvals that somebody else keeps, such as those of a planner in this process.
    pub async fn start_with(
        settings: Settings,
        approvals: Arc<dyn Approvals>,
    ) -> Result<Self, StartError> {
        Self::begin(settings, Some(approvals)).await
    }

    async fn begin(
        settings: Settings,
        approvals: Option<Arc<dyn Approvals>>,
    ) -> Result<Self, StartError> {
        if settings.auth.enabled && settings.auth.tokens.is_empty() {
            return Err(StartError::NoTokens);
        }
        tls::choose_provider();
        let tls = settings
            .server
            .tls
            .as_ref()
            .map(tls::acceptor)
            .transpose()?;
        let address = SocketAddr::new(settings.server.host, settings.server.port);
        let listen = |error| StartError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;

        let mut warnings = Vec::new();
        let (guardrails, guardrail_files) = load_guardrails(&settings, &mut warnings)?;
        let metrics = Arc::new(Metrics::default());
        let (policy_ready, ready) = watch::channel(false);
        let agent = &settings.agent.name;
        let secrets = Secrets::default();
        let alerts = Alerts::start(&settings.alerts, agent, secrets.clone(), &metrics.alerts);
        let alerts = Arc::new(alerts.await?);
        let deep =
            DeepPath::start(&settings.deep, &settings.variables).map_err(StartError::Deep)?;
        let (gateway, reloader) = load_policy(&settings, &metrics, &alerts, &deep, &mut warnings)?;
        let (evidence, recovery) = open_evidence(&settings)?;
        let memory = Arc::new(open_memory(&settings).await?);
        let kept = quarantined(&memory).await.map_err(StartError::Quarantine)?;
        gateway.quarantine_again(kept);
        let callbacks = Callbacks::start(&settings.callbacks, agent, &metrics).await?;
        let (stopping, stop) = watch::channel(false);
        let url = settings.agent.url.clone();
        let url = url.unwrap_or_else(|| local_url(&settings, address));
        let approvals = match approvals {
            Some(approvals) => approvals,
            None => open_approvals(&settings).await?,
        };
        let counts = &metrics.approvals;
        let approvals = Desk::start(approvals, &settings, &url, secrets.clone(), counts).await?;
        let app = Arc::new(App {
            url,
            gateway,
            deep,
            guardrails: ArcSwap::from_pointee(guardrails),
            limiter: Arc::new(MemoryLimiter::new(settings.rate_limits.clone())),
            metrics,
            requests: Semaphore::new(settings.server.max_requests.min(Semaphore::MAX_PERMITS)),
            policy_ready: ready,
            stopping: stop,
            evidence,
            memory,
            callbacks,
            alerts,
            approvals,
            secrets,
            started: Instant::now(),
            settings,
        });
        announce(&app.settings, &recovery);
        tokio::spawn(watch_embedding(Arc::downgrade(&app)));
        let background = Background::start(&app, reloader, guardrail_files, policy_ready)?;
        Ok(Self {
            app,
            listener,
            tls,
            address,
            warnings,
            stopping,
            background,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where agents reach it, as its card says.
    pub fn url(&self) -> &str {
        &self.app.url
    }

    /// Where clients on this machine reach it.
    pub fn local_url(&self) -> String {
        local_url(&self.app.settings, self.address)
    }

    /// Findings in the policy files that do not prevent their use.
    pub fn warnings(&self) -> &[Report] {
        &self.warnings
    }

    /// Answers until `shutdown` is done, then finishes what is under way, for as long as the settings
    /// allow, and closes the log. Tells whether all of it was finished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> bool {
        let app = self.app;
        let router = http::router(&app);
        let graceful = GracefulShutdown::new();
        let connections = Arc::new(Semaphore::new(
            app.settings
                .server
                .max_connections
                .min(Semaphore::MAX_PERMITS),
        ));
        let acceptor = Acceptor {
            router,
            tls: self.tls,
            patience: app.settings.server.read_timeout,
        };
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accept = accept(&self.listener, &connections);
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                (stream, permit) = accept => {
                    tokio::spawn(acceptor.clone().serve(stream, graceful.watcher(), permit));
                }
            }
        }
        drop(self.listener);
        self.stopping.send_replace(true);
        let patience = app.settings.server.shutdown_timeout;
        let finished = tokio::time::timeout(patience, graceful.shutdown())
            .await
            .is_ok();
        if !finished {
            tracing::warn!("requests were still under way when the time to stop had run out");
        }
        // Writes what is queued and a last checkpoint, while those who wait to be told of intents and alerts
        // are.
        let (log, memory) = (Arc::clone(&app), Arc::clone(&app.memory));
        let closing = close("the evidence log", patience, move || {
            log.evidence.close(patience)
        });
        let finishing = close("the memory", patience, move || memory.close(patience));
        tokio::join!(
            closing,
            finishing,
            app.callbacks.close(patience),
            app.alerts.close(patience),
            app.approvals.close(patience),
        );
        // It may be compiling a pack, or wait for a folder that does not answer.
        let background = tokio::task::spawn_blocking(move || self.background.stop());
        if tokio::time::timeout(patience, background).await.is_err() {
            tracing::warn!("the thread that loads policies did not stop in time");
        }
        finished
    }
}

/// Says how far the memory is with its vectors, as long as some are missing.
async fn watch_embedding(app: Weak<App>) {
    const EVERY: Duration = Duration::from_secs(10);
    let mut waited = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        // The server may have stopped meanwhile.
        let Some(app) = app.upgrade() else { return };
        let Some(state) = app.memory_state().await else {
            continue;
        };
        let MemoryState {
            model,
            unembedded,
            decisions,
            ..
        } = &state;
        match (&state.trouble, unembedded) {
            (Some(trouble), 1..) => {
                tracing::warn!(model, unembedded, trouble, "decisions get no vectors");
            }
            (None, 1..) => tracing::info!(model, unembedded, decisions, "vectors are being made"),
            (_, 0) if waited > 0 => tracing::info!(model, decisions, "all vectors are made"),
            (_, 0) => {}
        }
        waited = *unembedded;
    }
}

/// Closes something, and says so if it did not go well.
async fn close<E: std::fmt::Display + Send + 'static>(
    what: &str,
    patience: Duration,
    closing: impl FnOnce() -> Result<(), E> + Send + 'static,
) {
    let closing = tokio::task::spawn_blocking(closing);
    match tokio::time::timeout(patience, closing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::error!(%error, "{what} did not close"),
        Ok(Err(_)) | Err(_) => tracing::error!("{what} did not close in time"),
    }
}

/// Says aloud what whoever runs the server has to know.
fn announce(settings: &Settings, recovery: &Recovery) {
    if !settings.auth.enabled {
        tracing::warn!("AUTHENTICATION IS OFF: anybody who reaches this address may call");
    }
    if let Some(torn) = &recovery.torn {
        tracing::warn!(
            file = %torn.path.display(),
            bytes = torn.bytes,
            "the evidence log ended in the middle of an entry that nobody was told of; it is cut off"
        );
    }
    tracing::info!(
        entries = recovery.found.seq,
        checked = recovery.checked,
        "the evidence log is open"
    );
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // Never closed, so there is always a permit in the end.
    let permit = Arc::clone(connections).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of file descriptors, most likely: it helps to wait for one.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Speaks HTTP over one connection.
#[derive(Clone)]
struct Acceptor {
    router: Router,
    tls: Option<TlsAcceptor>,
    patience: Duration,
}

impl Acceptor {
    async fn serve(
        self,
        stream: TcpStream,
        watcher: Watcher,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let _permit = permit;
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.speak(stream, watcher).await;
        };
        match tokio::time::timeout(self.patience, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(stream, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn speak<S>(&self, stream: S, watcher: Watcher)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(self.router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience)
            // A client that has sent everything may say so, and still wants its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

fn load_guardrails(
    settings: &Settings,
    warnings: &mut Vec<Report>,
) -> Result<(Guardrails, Option<GuardrailFiles>), StartError> {
    let policy = &settings.policy;
    let (loaded, files) = match &policy.guardrails {
        None => (
            guardrails::load_default().map_err(GuardrailError::Invalid)?,
            None,
        ),
        Some(path) => {
            let mut files = GuardrailFiles::new(path, policy.allow_none);
            (files.load()?, Some(files))
        }
    };
    let found = |report: &Report| !report.diagnostics.is_empty();
    warnings.extend(loaded.warnings.into_iter().filter(found));
    Ok((loaded.guardrails, files))
}

/// The gateway, with what was asked for in force. The built-in policy is known to be good, so the server
/// need not wait for it: see [`Background`].
fn load_policy(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    alerts: &Arc<Alerts>,
    deep: &DeepPath,
    warnings: &mut Vec<Report>,
) -> Result<(Arc<Gateway>, Option<Reloader>), StartError> {
    let PolicySettings { pack, env, .. } = &settings.policy;
    let (loaded, reloader) = match (pack, env) {
        (None, None) => (None, None),
        (None, Some(env)) => {
            let loaded = pack::load_built_in(Some(env));
            let wrong = |report| LoadError::Invalid(Box::new(report));
            (Some(loaded.map_err(wrong)?), None)
        }
        (Some(path), _) => {
            let file = PackFile::new(path).with_env(env.clone());
            let (reloader, loaded) = Reloader::start(file)?;
            (Some(loaded), Some(reloader))
        }
    };
    let gateway = Gateway::builder(Policy::absent())
        .inbox(deep.inbox())
        .alerts(Arc::clone(alerts) as Arc<dyn AlertSink>)
        .telemetry(Arc::clone(metrics) as Arc<dyn Telemetry>)
        .propagation(Arc::new(TraceContext))
        .build();
    if let Some(loaded) = loaded {
        if !loaded.warnings.diagnostics.is_empty() {
            warnings.push(loaded.warnings);
        }
        deep.put_in_force(&gateway, loaded.policy)?;
    }
    Ok((Arc::new(gateway), reloader))
}

fn open_evidence(settings: &Settings) -> Result<(EvidenceLog, Recovery), StartError> {
    let evidence = &settings.evidence;
    let key = evidence.signing_key.as_deref().map(read_key).transpose()?;
    let opened = EvidenceLog::open(Options {
        durability: evidence.durability,
        segment_bytes: evidence.segment_bytes,
        checkpoint_every: evidence.checkpoint_every,
        key,
        ..Options::new(&evidence.directory)
    });
    Ok(opened?)
}

async fn open_memory(settings: &Settings) -> Result<SqliteMemory, StartError> {
    let MemorySettings { path, embedder } = settings.memory.clone();
    let open = move || {
        let embedder = embedder.load().map_err(StartError::Embedder)?;
        Ok(SqliteMemory::open(SqliteOptions::new(path), embedder)?)
    };
    let opening = tokio::task::spawn_blocking(open).await;
    opening.unwrap_or_else(|error| Err(StartError::Embedder(error.to_string())))
}

async fn open_approvals(settings: &Settings) -> Result<Arc<dyn Approvals>, StartError> {
    const DAY: Duration = Duration::from_hours(24);
    let approvals = &settings.approvals;
    let days = u32::try_from(approvals.keep_days).unwrap_or(u32::MAX);
    let options = ApprovalOptions {
        most: approvals.most,
        keep: DAY.saturating_mul(days),
        ..ApprovalOptions::new(&approvals.path)
    };
    let opening = tokio::task::spawn_blocking(|| SqliteApprovals::open(options)).await;
    let opened = opening.map_err(|error| StartError::Approvals(error.to_string()))?;
    let opened = opened.map_err(|error| StartError::Approvals(error.to_string()))?;
    Ok(Arc::new(opened))
}

/// The runs that were in quarantine when the server stopped, the longest there first.
async fn quarantined(memory: &Arc<SqliteMemory>) -> Result<Vec<Quarantined>, String> {
    let memory = Arc::clone(memory);
    let read = move || {
        let runs = memory.quarantined().map_err(|error| error.to_string())?;
        let runs = runs.into_iter().map(|(run_id, why)| {
            let flag = serde_json::from_str(&why)
                .map_err(|error| format!("run `{}`: {error}", run_id.escape_debug()))?;
            Ok(Quarantined { run_id, flag })
        });
        let mut runs: Vec<Quarantined> = runs.collect::<Result<_, String>>()?;
        runs.sort_by_key(|run| run.flag.decision_id);
        Ok(runs)
    };
    let reading = tokio::task::spawn_blocking(read).await;
    reading.unwrap_or_else(|error| Err(error.to_string()))
}

fn read_key(path: &Path) -> Result<SigningKey, StartError> {
    let wrap = |error: String| StartError::SigningKey {
        path: path.to_owned(),
        error,
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrap(error.to_string()))?;
    let key = text.trim().parse();
    key.map_err(|error: KeyError| wrap(error.to_string()))
}

fn local_url(settings: &Settings, mut address: SocketAddr) -> String {
    let scheme = match settings.server.tls {
        Some(_) => "https",
        None => "http",
    };
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    format!("{scheme}://{address}")
}

/// The thread that compiles policies: first the built-in one, then whatever changes on disk.
struct Background {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Background {
    fn start(
        app: &Arc<App>,
        reloader: Option<Reloader>,
        guardrails: Option<GuardrailFiles>,
        ready: watch::Sender<bool>,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = mpsc::channel();
        let watched = Watched {
            app: Arc::clone(app),
            reloader,
            guardrails,
        };
        let thread = thread::Builder::new()
            .name("policy".to_owned())
            .spawn({
                let runtime = tokio::runtime::Handle::current();
                move || {
                    // Every answer waits for this one, and only events for the policy.
                    if let Err(error) = runtime.block_on(watched.app.redactor()) {
                        tracing::error!(%error, "secrets cannot be kept out of the evidence");
                    }
                    watched.run(ready, &stopped);
                }
            })
            .map_err(StartError::Thread)?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("the thread that loads policies panicked");
        }
    }
}

struct Watched {
    app: Arc<App>,
    reloader: Option<Reloader>,
    guardrails: Option<GuardrailFiles>,
}

impl Watched {
    fn run(mut self, ready: watch::Sender<bool>, stopped: &mpsc::Receiver<()>) {
        // Without a policy events wait, and are told so once nobody can say `ready` any more.
        if !self.app.gateway.policy().is_absent() || self.load_built_in() {
            ready.send_replace(true);
        }
        drop(ready);
        let interval = self.app.settings.policy.reload_interval;
        while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
            self.look_at_pack();
            self.look_at_guardrails();
            self.look_at_disk();
        }
    }

    /// Tries a log that failed, so that it is found to be well again though nobody calls: whoever asks
    /// `/ready` first does not.
    fn look_at_disk(&self) {
        let stats = self.app.evidence.stats();
        if stats.last_error.is_none() {
            return;
        }
        let mut entry = Map::new();
        entry.insert("timestamp".to_owned(), now().into());
        entry.insert("event".to_owned(), "evidence_resumed".into());
        // Those that are missing: whoever sent them was told so.
        entry.insert("failed".to_owned(), stats.failed.into());
        let written = Body::new(&entry, &Redactor::none())
            .map_err(|error| error.to_string())
            .and_then(|body| {
                let written = self.app.evidence.append_blocking(body);
                written.map_err(|error| error.to_string())
            });
        match written {
            Ok(_) => tracing::info!("the evidence log can be written again"),
            Err(error) => tracing::error!(%error, "the evidence log still cannot be written"),
        }
    }

    fn load_built_in(&self) -> bool {
        match pack::load_default() {
            Ok(loaded) => {
                let app = &self.app;
                let put = app.deep.put_in_force(&app.gateway, loaded.policy);
                put.inspect_err(|error| tracing::error!("{error}")).is_ok()
            }
            Err(report) => {
                tracing::error!("the built-in policy does not load:\n{report}");
                false
            }
        }
    }

    fn look_at_pack(&mut self) {
        let Some(reloader) = &mut self.reloader else {
            return;
        };
        let app = &self.app;
        match reloader.check_with(|policy| app.deep.put_in_force(&app.gateway, policy)) {
            Reload::Unchanged => {}
            Reload::Replaced(policy) => {
                self.app.metrics.reloaded(true);
                tracing::info!(
                    digest = policy.digest,
                    "the changed policy pack is in force"
                );
                if !policy.warnings.diagnostics.is_empty() {
                    tracing::warn!("{}", policy.warnings);
                }
            }
            Reload::Refused(error) => {
                self.app.metrics.reloaded(false);
                tracing::error!("the changed policy pack is refused, the old one stays:\n{error}");
            }
        }
    }

    fn look_at_guardrails(&mut self) {
        match self.guardrails.as_mut().and_then(GuardrailFiles::check) {
            None => {}
            Some(Ok(loaded)) => {
                self.app.metrics.reloaded(true);
                let digest = loaded.guardrails.digest();
                tracing::info!(digest, "the changed guardrails are in force");
                for report in &loaded.warnings {
                    tracing::warn!("{report}");
                }
                self.app.guardrails.store(Arc::new(loaded.guardrails));
            }
            Some(Err(error)) => {
                self.app.metrics.reloaded(false);
                tracing::error!("the changed guardrails are refused, the old ones stay:\n{error}");
            }
        }
    }
}
