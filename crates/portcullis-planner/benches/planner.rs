//! What the gate adds to a run. Each group is the same run without a gate, with one that has no rules, and with the
//! default pack: divide the differences by the steps or chunks. Results are in docs/BENCHMARKS.md.

#![expect(clippy::panic, reason = "a benchmark has nobody to report to")]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::stream::{self, StreamExt};
use portcullis_core::{PolicyBuilder, pack};
use portcullis_planner::{
    Budgets, ChatModel, ChatRequest, Delta, DeltaStream, Events, FinishReason, ModelError, Outcome,
    Planner, Task, ToolCallDelta, ToolError, Turn, TurnBuilder, TypedTool, Usage,
};
use portcullis_runtime::{BoxFuture, Gate, Gateway, Unguarded};
use schemars::JsonSchema;
use serde::Deserialize;

/// A model that is as fast as one can be: so many turns with a tool call, then an answer of so many chunks.
struct Instant {
    steps: usize,
    chunks: usize,
    asked: AtomicUsize,
}

impl Instant {
    fn next(&self) -> Vec<Delta> {
        let usage = Delta::Usage(Usage {
            prompt_tokens: 1,
            completion_tokens: 1,
        });
        if self.asked.fetch_add(1, Ordering::Relaxed) % (self.steps + 1) < self.steps {
            let call = Delta::ToolCall(ToolCallDelta {
                index: Some(0),
                id: Some("c1".to_owned()),
                name: Some("query".to_owned()),
                arguments: r#"{"query":"revenue by region","limit":20}"#.to_owned(),
            });
            return vec![call, Delta::Finish(FinishReason::ToolCalls), usage];
        }
        let chunk = |n: usize| {
            Delta::Text(["The northern branch ", "grew a bit faster. "][n % 2].to_owned())
        };
        let mut deltas: Vec<Delta> = (0..self.chunks).map(chunk).collect();
        deltas.extend([Delta::Finish(FinishReason::Stop), usage]);
        deltas
    }
}

impl ChatModel for Instant {
    fn name(&self) -> &'static str {
        "instant"
    }

    fn complete<'a>(&'a self, _: ChatRequest<'a>) -> BoxFuture<'a, Result<Turn, ModelError>> {
        let mut turn = TurnBuilder::new(1 << 20);
        let read = self.next().iter().try_for_each(|delta| turn.push(delta));
        Box::pin(async move { read.and_then(|()| turn.finish()) })
    }

    fn stream<'a>(&'a self, _: ChatRequest<'a>) -> BoxFuture<'a, Result<DeltaStream, ModelError>> {
        let deltas = stream::iter(self.next().into_iter().map(Ok)).boxed();
        Box::pin(async { Ok(deltas) })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    query: String,
    limit: u32,
}

fn planner(steps: usize, chunks: usize, gate: Gate) -> Planner {
    let model = Instant {
        steps,
        chunks,
        asked: AtomicUsize::new(0),
    };
    Planner::builder(Arc::new(model), gate)
        .tool(TypedTool::new(
            "query",
            "Asks the database.",
            |query: Query| async move {
                Ok::<_, ToolError>(format!("{} rows about {}", query.limit, query.query))
            },
        ))
        .budgets(Budgets {
            iterations: 1000,
            ..Budgets::default()
        })
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn gates() -> [(&'static str, Gate); 3] {
    let no_rules = PolicyBuilder::new("none", "1").compile();
    let no_rules = no_rules.unwrap_or_else(|report| panic!("{report}"));
    let default = pack::load_default().unwrap_or_else(|report| panic!("{report}"));
    default.policy.warm();
    [
        ("unguarded", Unguarded.into()),
        ("no rules", Gateway::builder(no_rules).build().into()),
        (
            "default pack",
            Gateway::builder(default.policy).build().into(),
        ),
    ]
}

fn runs(c: &mut Criterion, name: &str, steps: usize, chunks: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(steps.max(chunks) as u64));
    for (name, gate) in gates() {
        let planner = planner(steps, chunks, gate);
        group.bench_function(name, |b| {
            b.iter(|| {
                let task = Task::new("bench", "Which branch grew?");
                let finished = runtime.block_on(planner.run(task, Events::ignored(), pending()));
                assert!(matches!(finished.outcome, Outcome::Done { .. }));
                finished
            });
        });
    }
    group.finish();
}

fn steps(c: &mut Criterion) {
    runs(c, "planner, 20 steps", 20, 1);
}

fn chunks(c: &mut Criterion) {
    runs(c, "planner, 2000 chunks of 20 B", 0, 2000);
}

criterion_group!(benches, steps, chunks);
criterion_main!(benches);
