//! What converting a packet costs, beside reading it into a `serde_json::Value` and writing that: what any adapter
//! that goes that way pays before it has mapped anything.
//!
//! `cargo bench -p portcullis-core --bench a2a`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis_core::a2a::{Adapter, Input, Mode, write_answer};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A packet of 419 bytes, the size that `GOALS.md` names.
const PACKET: &str = r#"{"protocol":"a2a","version":"0.2.0","event_type":"task.requested","timestamp":"2026-02-27T11:05:00Z","agent":{"id":"agent://planner","name":"Planner","role":"assistant","capabilities":["tasks.update","agent.describe","artifacts.share"]},"task":{"id":"task-7f3a","status":"queued","kind":"analysis"},"message":{"id":"msg-1","role":"user"},"attributes":{"priority":"high","tenant":"acme","tags":["annual","taxes"],"n":1}}"#;

fn convert(c: &mut Criterion) {
    assert_eq!(PACKET.len(), 419);
    let adapter = Adapter::new(Mode::Strict);
    let mut group = c.benchmark_group("a2a");
    group.throughput(Throughput::Elements(1));
    group.bench_function("convert", |b| {
        b.iter(|| adapter.convert(Input::json(black_box(PACKET.as_bytes()))));
    });
    group.bench_function("convert, write and digest", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            out.clear();
            let batch = adapter.convert(Input::json(black_box(PACKET.as_bytes())));
            write_answer(&batch, &mut out);
        });
    });
    group.bench_function("a Value, written and digested", |b| {
        b.iter(|| {
            let value: Option<Value> = serde_json::from_slice(black_box(PACKET.as_bytes())).ok();
            serde_json::to_vec(&value).map(Sha256::digest)
        });
    });
    group.finish();
}

criterion_group!(benches, convert);
criterion_main!(benches);
