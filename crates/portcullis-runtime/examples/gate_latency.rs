//! Measures the gate in process, event by event: p50, p99 and heap allocations.
//!
//! `cargo run --release -p portcullis-runtime --example gate_latency` prints a line of JSON per
//! input, or for those whose name contains the first argument, by RFC-001's patterns, or with `--all` by
//! the default pack. With `--cases` it prints the inputs instead, for `scripts/penguiflow_latency.py`. With
//! `--count` it judges each a hundred times and measures nothing, so that
//! `valgrind --tool=callgrind --toggle-collect='*judge_often*'` can count instructions.

#[path = "../benches/cases.rs"]
mod cases;

use std::error::Error;
use std::time::{Duration, Instant};

use portcullis_core::{Evaluation, Step, pack};
use portcullis_runtime::Gateway;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--cases") {
        for (name, step) in cases::cases() {
            println!(
                "{}",
                json!({"name": name, "context": step.context, "event": step.event})
            );
        }
        return Ok(());
    }
    let loaded = if std::env::args().any(|arg| arg == "--all") {
        pack::load_default()?
    } else {
        pack::load(&pack::Pack {
            file: "rfc.yaml",
            text: cases::RFC_PACK,
            ..pack::Pack::default()
        })?
    };
    loaded.policy.warm();
    let gateway = Gateway::builder(loaded.policy).build();
    let count = std::env::args().any(|arg| arg == "--count");
    println!("{}", json!({"portcullis": env!("CARGO_PKG_VERSION")}));
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    for (name, mut step) in cases::cases() {
        if only.as_ref().is_some_and(|only| !name.contains(&**only)) {
            continue;
        }
        if count {
            evaluate(&gateway, &mut step);
            judge_often(&gateway, &mut step);
        } else {
            println!("{}", measure(&gateway, name, step));
        }
    }
    Ok(())
}

fn measure(gateway: &Gateway, name: &str, mut step: Step) -> serde_json::Value {
    let mut samples: Vec<u64> = Vec::with_capacity(1 << 22);
    let mut action = evaluate(gateway, &mut step).decision.action;
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(200) {
        action = evaluate(gateway, &mut step).decision.action;
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) && samples.len() < samples.capacity() {
        let start = Instant::now();
        let evaluation = evaluate(gateway, &mut step);
        samples.push(start.elapsed().as_nanos() as u64);
        std::hint::black_box(&evaluation);
    }
    let allocations = allocation_counter::measure(|| {
        std::hint::black_box(evaluate(gateway, &mut step));
    });
    samples.sort_unstable();
    let at = |percent: usize| samples[(samples.len() - 1) * percent / 100] as f64 / 1000.0;
    json!({
        "name": name, "p50_us": at(50), "p99_us": at(99), "n": samples.len(),
        "allocations": allocations.count_total, "action": action,
    })
}

/// A function of its own, so that what it costs can be told from what getting ready costs.
#[inline(never)]
fn judge_often(gateway: &Gateway, step: &mut Step) {
    for _ in 0..100 {
        std::hint::black_box(evaluate(gateway, step));
    }
}

fn evaluate(gateway: &Gateway, step: &mut Step) -> Evaluation {
    let Step { context, event } = step;
    cases::at_once(gateway.evaluate(context, event))
}
