//! Guardrails in process: ten of them, and a thousand.
//!
//! `cargo bench -p portcullis-core --bench guardrails`. The server may take at most twice as long for
//! a request with a thousand as with ten, so what a thousand add must be small beside a request.

#![expect(clippy::panic, reason = "a benchmark has nobody to report to")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portcullis_core::guardrails::{self, Guardrails, ProposedAction, Source};
use serde_json::json;

/// Guardrails of both forms such as people write. None is violated by [`action`].
fn mixed(count: usize) -> Guardrails {
    let mut text = String::new();
    for n in 0..count {
        let entry = match n % 8 {
            0 => format!("when: \"action.category == 'team-{n}' && context.k{n} == true\""),
            1 => format!("when: has(context.flag{n}) && context.flag{n} == true"),
            2 => format!("when: action.stakes == 'critical' && context.risk > {n}"),
            3 => format!(
                "when: \"context.affectsProduction == true && action.description.matches('(?i)drop +table +t{n}')\""
            ),
            4 => {
                "condition_affectsProduction: true\n  requires_codeReviewCompleted: true".to_owned()
            }
            5 => format!(
                "condition_confidence: '< 0.5'\n  condition_stakes: high\n  requires_k{n}: true"
            ),
            6 => format!(
                "condition: {{category: area-{n}, deploy.region: eu}}\n  requires: {{ok: true}}"
            ),
            _ => format!(
                "when: \"action.description.contains('service-{n}') || context.team in ['a{n}', 'b{n}']\""
            ),
        };
        writeln!(
            text,
            "- id: g{n}\n  {entry}\n  message: '{{description}} {n}'"
        )
        .unwrap_or_else(|error| panic!("{error}"));
    }
    load(&text)
}

/// Guardrails with a loop each.
fn loops(count: usize) -> Guardrails {
    each(count, |n| {
        format!("context.reviewers.exists(r, r == 'r{n}')")
    })
}

/// Expressions that only `cel` can run.
fn cel(count: usize) -> Guardrails {
    each(count, |n| format!("context.risk + 1 == -{n}"))
}

fn each(count: usize, when: fn(usize) -> String) -> Guardrails {
    let mut text = String::new();
    for n in 0..count {
        writeln!(text, "- id: g{n}\n  when: {}", when(n)).unwrap_or_else(|error| panic!("{error}"));
    }
    load(&text)
}

fn load(text: &str) -> Guardrails {
    let source = Source {
        file: "bench.yaml",
        text,
    };
    match guardrails::load(&[source]) {
        Ok(loaded) => loaded.guardrails,
        Err(reports) => panic!("{}", reports[0]),
    }
}

fn action() -> ProposedAction {
    let params = json!({
        "action": {
            "description": "Deploy authentication service to production",
            "category": "architecture",
            "stakes": "high",
            "confidence": 0.85,
            "context": {
                "affectsProduction": true, "codeReviewCompleted": true, "hasTests": true,
                "ciPassing": true, "team": "identity", "risk": 3, "deploy": {"region": "eu"},
                "reviewers": ["ann", "bo"],
            },
        },
        "agent": {"id": "emerson", "url": "https://emerson.example.com"},
    });
    let params = params.as_object().unwrap_or_else(|| panic!("an object"));
    ProposedAction::from_params(params).unwrap_or_else(|error| panic!("{error}"))
}

fn check(c: &mut Criterion) {
    let action = action();
    let mut group = c.benchmark_group("guardrails");
    for (name, build) in [
        ("mixed", mixed as fn(usize) -> Guardrails),
        ("loops", loops),
        ("cel", cel),
    ] {
        for count in [10, 1000] {
            let guardrails = build(count);
            let verdict = guardrails.check(&action);
            assert!(verdict.allowed && verdict.evaluated == count);
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| guardrails.check(black_box(&action)));
            });
        }
    }
    let built_in = guardrails::load_default().unwrap_or_else(|reports| panic!("{}", reports[0]));
    group.bench_function("built-in", |b| {
        b.iter(|| built_in.guardrails.check(black_box(&action)));
    });
    group.finish();
}

criterion_group!(benches, check);
criterion_main!(benches);
