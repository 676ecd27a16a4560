//! Measures the gate in process, event by event: p50, p99 and heap allocations.
//!
//! `cargo run --release -p portcullis-runtime --example gate_latency` prints a line of JSON per
//! input, or for those whose name contains the first argument, by RFC-001's patterns, or with `--all` by
//! the default pack. With `--cases` it prints the inputs instead, for `scripts/penguiflow_latency.py`. With
//! `--count` it judges each a hundred times and measures nothing, so that
//! `valgrind --tool=callgrind --toggle-collect='*judge_often*'` can count instructions. With `--text FILE` it judges real text
//! instead, in pieces of 10 KB, and streams it in chunks of 20 bytes.

#[path = "../benches/cases.rs"]
mod cases;

use std::error::Error;
use std::time::{Duration, Instant};

use portcullis_core::{Context, Evaluation, Step, StreamGuard, pack};
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
    let mut args = std::env::args().skip_while(|arg| arg != "--text");
    if let Some(file) = args.nth(1) {
        let text = std::fs::read_to_string(file)?;
        for (name, step) in [
            ("llm_before", cases::prompt as fn(&str) -> Step),
            ("tool_call_result", cases::result),
        ] {
            println!("{}", measure_text(&gateway, name, &text, step));
        }
        println!("{}", measure_stream(&gateway, &text));
        return Ok(());
    }
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

/// The pieces of a text, each by the fastest of its rounds: how they differ is what is of interest.
fn measure_text(
    gateway: &Gateway,
    name: &str,
    text: &str,
    step: fn(&str) -> Step,
) -> serde_json::Value {
    const PIECE: usize = 10 << 10;
    const ROUNDS: usize = 8;
    let mut rest = text;
    let mut times: Vec<f64> = Vec::new();
    while !rest.is_empty() {
        let piece;
        (piece, rest) = rest.split_at(rest.floor_char_boundary(PIECE));
        let rounds = (0..ROUNDS).map(|_| {
            // The runs that earlier pieces were part of are not this one's.
            let mut step = step(piece);
            let start = Instant::now();
            std::hint::black_box(evaluate(gateway, &mut step));
            start.elapsed().as_nanos() as f64 / 1000.0
        });
        times.push(rounds.fold(f64::INFINITY, f64::min));
    }
    times.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    json!({
        "name": name, "pieces": times.len(), "mean_us": mean,
        "p10_us": at(10), "p50_us": at(50), "p90_us": at(90),
    })
}

/// The chunks of a text, each once and in order: what is always new is what a stream brings.
fn measure_stream(gateway: &Gateway, text: &str) -> serde_json::Value {
    const CHUNK: usize = 20;
    let mut guard = StreamGuard::new(gateway.policy(), Context::new("text"));
    // What is built for the first chunk of a process is not the text's.
    guard.push("The first words.");
    let mut rest = text;
    let (mut times, mut out, mut held) = (Vec::new(), 0, 0);
    while !rest.is_empty() {
        let chunk;
        (chunk, rest) = rest.split_at(rest.ceil_char_boundary(CHUNK));
        let start = Instant::now();
        let released = guard.push(chunk);
        times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        out += released.text.len();
        // What follows a STOP is another answer.
        if released.halted {
            guard.finish();
        }
        held += guard.held();
    }
    let chunks = times.len();
    let mean = times.iter().sum::<f64>() / chunks as f64;
    let second_half = &times[chunks / 2..];
    let later = second_half.iter().sum::<f64>() / second_half.len() as f64;
    times.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| times.get(chunks.saturating_sub(1) * percent / 100);
    json!({
        "name": "StreamGuard, 20 B", "chunks": chunks, "mean_us": mean, "second_half_mean_us": later,
        "p50_us": at(50), "p90_us": at(90), "p99_us": at(99), "max_us": at(100),
        "bytes_out": out, "mean_bytes_held": held as f64 / chunks as f64,
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
