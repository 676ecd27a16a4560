//! The gate in process. Results are in docs/BENCHMARKS.md; `scripts/bench-peers` compares with
//! others.

#![expect(clippy::panic, reason = "a benchmark has nobody to report to")]

mod cases;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_core::detectors::EntryPattern;
use portcullis_core::rules::{EntityPattern, RuleInfo, RuleInput, RuleSettings, SecretRedaction};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    BreakerSettings, Context, ContextSnapshot, Decision, Event, EventType, GatewaySettings,
    PolicyBuilder, RiskRouter, Routing, Severity, Step, StreamGuard, pack,
};
use portcullis_runtime::{AnswerStream, BoxFuture, DeepError, DeepRule, DeepRules, Gateway};
use tokio::runtime::Runtime;

fn default_gateway() -> Gateway {
    let loaded = pack::load_default().unwrap_or_else(|report| panic!("{report}"));
    loaded.policy.warm();
    Gateway::builder(loaded.policy).build()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn rfc_gateway() -> Gateway {
    let loaded = pack::load(&pack::Pack {
        file: "rfc.yaml",
        text: cases::RFC_PACK,
        ..pack::Pack::default()
    });
    Gateway::builder(loaded.unwrap_or_else(|report| panic!("{report}")).policy).build()
}

/// Every input of the table, by RFC-001's patterns and by the default pack, which has all detectors.
fn events(c: &mut Criterion) {
    by(c, "gate, rfc", &rfc_gateway());
    by(c, "gate", &default_gateway());
}

fn by(c: &mut Criterion, name: &str, gateway: &Gateway) {
    let mut group = c.benchmark_group(name);
    for (name, Step { mut context, event }) in cases::cases() {
        group.throughput(Throughput::Bytes(event.text().len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                black_box(cases::at_once(
                    gateway.evaluate(&mut context, black_box(&event)),
                ))
            });
        });
    }
    group.finish();
}

/// An answer in chunks of 20 bytes, as a model streams it: what one chunk costs.
fn streams(c: &mut Criterion) {
    let gateway = Arc::new(default_gateway());
    let text = cases::prose(10 * 1024);
    let chunks: Vec<&str> = text
        .as_bytes()
        .chunks(20)
        .filter_map(|chunk| std::str::from_utf8(chunk).ok())
        .collect();
    let mut group = c.benchmark_group("stream");
    let mut guard = StreamGuard::new(gateway.policy(), Context::new("bench"));
    let mut next = chunks.iter().cycle();
    group.bench_function("StreamGuard, 20 B", |b| {
        b.iter(|| black_box(guard.push(next.next().unwrap_or(&""))).text.len());
    });
    let mut answer = AnswerStream::new(gateway, Context::new("bench"));
    group.bench_function("AnswerStream, 20 B", |b| {
        b.iter(|| cases::at_once(answer.push(black_box(next.next().unwrap_or(&"")))));
    });
    group.finish();
}

/// Ten times the patterns must not cost more than half as much again.
fn patterns(c: &mut Criterion) {
    let event = Event::tool_call_result("bench", "t", cases::prose(10 * 1024));
    let mut group = c.benchmark_group("patterns");
    for count in [13, 130, 1300] {
        let patterns = (0..count).map(|n| EntityPattern {
            entity: format!("TOKEN_{n}"),
            pattern: EntryPattern::of(format!("k{n:x}q_[a-z0-9]{{20,}}")),
            severity: Severity::High,
            place: pack::diagnostic::Place::default(),
        });
        let settings = SecretRedaction {
            patterns: patterns.collect(),
            evasions: false,
        };
        let policy = PolicyBuilder::new("bench", "1")
            .rule(RuleSettings::SecretRedaction(settings))
            .compile()
            .unwrap_or_else(|report| panic!("{report}"));
        let gateway = Gateway::builder(policy).build();
        let mut context = Context::new("bench");
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                black_box(cases::at_once(
                    gateway.evaluate(&mut context, black_box(&event)),
                ))
            });
        });
    }
    group.finish();
}

struct Instant;

impl DeepRule for Instant {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: "instant".into(),
            version: "1".into(),
            events: EventSet::from_iter([EventType::LlmBefore]),
            severity: Severity::Low,
        }
    }

    fn evaluate<'a>(
        &'a self,
        _input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(async { Ok(None) })
    }
}

/// A classifier that has died.
struct Dead;

impl DeepRule for Dead {
    fn info(&self) -> RuleInfo {
        Instant.info()
    }

    fn evaluate<'a>(
        &'a self,
        _input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(async { Err(DeepError::Failed("dead".to_owned())) })
    }
}

struct AlwaysWait;

impl RiskRouter for AlwaysWait {
    fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
        Routing {
            async_wait_ms: 1000.0,
            ..Routing::default()
        }
    }
}

/// From submit to a ready answer, through the in-memory inbox: the whole evaluation of a short
/// prompt, with a deep rule that answers at once, with a dead one whose circuit is open, and without one.
fn inbox(c: &mut Criterion) {
    let runtime = runtime();
    let event = Event::llm_before("bench", "hello");
    let policy = || {
        let settings = GatewaySettings {
            async_breaker: BreakerSettings {
                failures: 1,
                cool_down_ms: 3.6e6,
            },
            ..GatewaySettings::default()
        };
        let builder = PolicyBuilder::new("bench", "1").gateway(settings);
        builder
            .compile()
            .unwrap_or_else(|report| panic!("{report}"))
    };
    let with = |rule: Arc<dyn DeepRule>| {
        let mut rules = DeepRules::new();
        rules.register(rule);
        Gateway::builder(policy())
            .deep_rules(rules)
            .risk_router(AlwaysWait)
            .build()
    };
    let without = Gateway::builder(policy()).risk_router(AlwaysWait).build();
    let cases = [
        ("one deep rule", with(Arc::new(Instant))),
        ("a dead one, circuit open", with(Arc::new(Dead))),
        ("none", without),
    ];
    let mut group = c.benchmark_group("memory inbox");
    for (name, gateway) in cases {
        let mut context = Context::new("bench");
        group.bench_function(name, |b| {
            b.iter(|| {
                black_box(runtime.block_on(gateway.evaluate(&mut context, black_box(&event))))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, events, streams, patterns, inbox);
criterion_main!(benches);
