//! What the way to a deep rule costs, by where the rule runs: beside a PING of the same Redis and beside a bare gRPC
//! call, in one run. Results are in docs/BENCHMARKS.md.
//!
//! `cargo run --release -p portcullis-runtime --features grpc,redis --example deep_path`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark has nobody to report to"
)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::rules::{RuleInfo, RuleInput};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    BreakerSettings, Context, ContextSnapshot, Decision, Event, EventType, GatewaySettings,
    PolicyBuilder, RiskRouter, Routing, RuleId, Severity, Signals, ToolRisks,
};
use portcullis_runtime::{
    BoxFuture, DeepError, DeepHost, DeepRequest, DeepRule, DeepRules, Gateway, GrpcSettings,
    GuardInbox, InboxLimits, MemoryInbox, RedisSettings, RemoteInbox, SidecarSettings, Worker,
    WorkerLimits, serve_sidecar,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const ROUNDS: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Has nothing to say, after a while.
struct Rule(Duration);

impl DeepRule for Rule {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: "rule".into(),
            version: "1".into(),
            events: EventSet::from_iter([EventType::LlmBefore]),
            severity: Severity::Low,
        }
    }

    fn evaluate<'a>(
        &'a self,
        _input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(async {
            if !self.0.is_zero() {
                tokio::time::sleep(self.0).await;
            }
            Ok(None)
        })
    }
}

fn host(takes: Duration) -> Arc<DeepHost> {
    let mut rules = DeepRules::new();
    rules.register(Arc::new(Rule(takes)));
    Arc::new(DeepHost::new(rules))
}

fn request(n: usize) -> DeepRequest {
    let run = format!("run-{n}");
    let event = Event::llm_before(&run, "Please summarise the attached quarterly report.");
    let context = Context::new(&run);
    let risks = ToolRisks::default();
    let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
    DeepRequest {
        correlation_id: format!("correlation-{n}"),
        snapshot: Arc::new(snapshot.into_owned()),
        event: Arc::new(event),
        context: Arc::new(context),
        rules: vec![RuleId::from("rule")],
        trace: None,
    }
}

/// Two things side by side, one of each in turn, so that whatever else the machine does hits both.
async fn side_by_side(name: &str, baseline: &str, ask: impl AsyncFn(usize), bare: impl AsyncFn()) {
    let (mut asked, mut bared) = (Vec::new(), Vec::new());
    for n in 0..ROUNDS + ROUNDS / 10 {
        let started = Instant::now();
        bare().await;
        let between = Instant::now();
        ask(n).await;
        let done = Instant::now();
        // The first ones warm up.
        if n >= ROUNDS / 10 {
            bared.push(between - started);
            asked.push(done - between);
        }
    }
    let (p50, p99) = percentiles(asked);
    let (bare50, bare99) = percentiles(bared);
    println!(
        "{name}: p50 {p50:.1} µs, p99 {p99:.1} µs; {baseline}: p50 {bare50:.1} µs, p99 {bare99:.1} µs; ratio {:.2}",
        p50 / bare50
    );
}

fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

async fn ask(inbox: &dyn GuardInbox, n: usize) {
    inbox.ask(request(n), PATIENCE).await.unwrap();
}

/// On one thread, as an embedder's agent runs: from submit to a ready answer.
async fn memory() {
    let inbox = MemoryInbox::new(host(Duration::ZERO).rules(), InboxLimits::default());
    let mut times = Vec::new();
    for n in 0..ROUNDS + ROUNDS / 10 {
        let request = request(n);
        let started = Instant::now();
        inbox.ask(request, PATIENCE).await.unwrap();
        if n >= ROUNDS / 10 {
            times.push(started.elapsed());
        }
    }
    let (p50, p99) = percentiles(times);
    println!("in memory: p50 {p50:.1} µs, p99 {p99:.1} µs");
}

/// A whole evaluation of a short prompt: with a dead classifier whose circuit is open, and without any.
async fn breaker() {
    let policy = || {
        let settings = GatewaySettings {
            async_breaker: BreakerSettings {
                failures: 1,
                cool_down_ms: 3.6e6,
            },
            ..GatewaySettings::default()
        };
        let builder = PolicyBuilder::new("bench", "1").gateway(settings);
        builder.compile().unwrap()
    };
    let mut rules = DeepRules::new();
    rules.register(Arc::new(Rule(PATIENCE)));
    let dead = Gateway::builder(policy())
        .deep_rules(rules)
        .risk_router(Waits)
        .build();
    let none = Gateway::builder(policy()).risk_router(Waits).build();
    let event = Event::llm_before("run", "hello");
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..20 * ROUNDS {
        for (gateway, times) in [&dead, &none].into_iter().zip(&mut times) {
            let mut context = Context::new("run");
            let started = Instant::now();
            gateway.evaluate(&mut context, &event).await;
            if n >= ROUNDS {
                times.push(started.elapsed());
            }
        }
    }
    let [dead, none] = times.map(percentiles);
    println!(
        "a dead rule, circuit open: p50 {:.2} µs; without a rule: p50 {:.2} µs",
        dead.0, none.0
    );
}

/// Waits for a moment, for every event.
struct Waits;

impl RiskRouter for Waits {
    fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
        Routing {
            async_wait_ms: 1.0,
            ..Routing::default()
        }
    }
}

async fn redis() {
    let (server, url) = Redis::start().await;
    let settings = RedisSettings::new(&url);
    let worker = Worker::new(&settings, host(Duration::ZERO), WorkerLimits::default()).unwrap();
    // On a thread and a runtime of its own, as a process would be.
    std::thread::spawn(move || one_thread().block_on(worker.run(std::future::pending())));
    let inbox = RemoteInbox::over_redis(&settings, InboxLimits::default()).unwrap();
    serving(&inbox).await;
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let ping = async || {
        let mut connection = connection.clone();
        let () = redis::cmd("PING")
            .query_async(&mut connection)
            .await
            .unwrap();
    };
    side_by_side("Redis", "PING", async |n| ask(&inbox, n).await, ping).await;
    drop(server);
}

async fn grpc() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let host = host(Duration::ZERO);
    let settings = SidecarSettings::default();
    let listener = listener.into_std().unwrap();
    std::thread::spawn(move || {
        one_thread().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve_sidecar(listener, settings, host, std::future::pending()).await
        })
    });
    let inbox = RemoteInbox::over_grpc(&GrpcSettings::new(&url), InboxLimits::default()).unwrap();
    serving(&inbox).await;
    let channel = tonic::transport::Endpoint::from_shared(url).unwrap();
    let client = HealthClient::new(channel.connect().await.unwrap());
    let check = async || {
        let mut client = client.clone();
        client.check(HealthCheckRequest::default()).await.unwrap();
    };
    side_by_side("gRPC", "a bare call", async |n| ask(&inbox, n).await, check).await;
}

/// Ten thousand runs in flight at a time, over and over.
async fn crowd() {
    const RUNS: usize = 10_000;
    let takes = Duration::from_millis(300);
    let inbox = MemoryInbox::new(host(takes).rules(), InboxLimits::default());
    println!("{RUNS} runs in flight, resident memory after each round, MiB:");
    for round in 0..10 {
        for n in 0..RUNS {
            inbox.submit(request(round * RUNS + n)).await.unwrap();
        }
        let in_flight = inbox.depth().in_flight;
        while inbox.depth().in_flight > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        println!("  {in_flight} in flight: {:.1}", resident());
    }
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<f64>().unwrap() / 1024.0
}

async fn serving(inbox: &RemoteInbox) {
    assert!(inbox.connected(PATIENCE).await);
    while !matches!(inbox.serving(&EventType::LlmBefore).as_slice(), [(_, true)]) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A `redis-server` of this run's own.
struct Redis(Child);

impl Redis {
    async fn start() -> (Self, String) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (Self(child), format!("redis://127.0.0.1:{port}"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn one_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn main() {
    one_thread().block_on(async {
        memory().await;
        breaker().await;
        redis().await;
        grpc().await;
        crowd().await;
    });
}
