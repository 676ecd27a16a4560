//! The gate in process. Results are in docs/BENCHMARKS.md; `scripts/bench-peers` compares with
//! others.

#![expect(clippy::panic, reason = "a benchmark has nobody to report to")]

mod cases;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_core::detectors::EntryPattern;
use portcullis_core::rules::{EntityPattern, RuleSettings, SecretRedaction};
use portcullis_core::{Context, Event, PolicyBuilder, Severity, Step, StreamGuard, pack};
use portcullis_runtime::{AnswerStream, Gateway};

fn default_gateway() -> Gateway {
    let loaded = pack::load_default().unwrap_or_else(|report| panic!("{report}"));
    loaded.policy.warm();
    Gateway::builder(loaded.policy).build()
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

criterion_group!(benches, events, streams, patterns);
criterion_main!(benches);
