//! How well decisions are found again, on labelled public text: words alone, meaning alone, both.
//!
//! ```sh
//! cargo run --release -p portcullis --example retrieval            # the built-in model, test split
//! cargo run --release -p portcullis --example retrieval -- dev
//! cargo run --release -p portcullis --example retrieval -- test MODEL_FOLDER
//! ```

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use portcullis_core::memory::{Decision, Embedder, Query};
use portcullis_models::{Bert, BuiltIn};
use portcullis_store::memory::{By, Memory, SqliteMemory, SqliteOptions};
use serde::Deserialize;
use serde_json::json;

const SETS: [&str; 4] = [
    "attack-technique",
    "attack-similar",
    "cwe-observed",
    "python-changes",
];

const DEPTH: usize = 10;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Doc {
        id: String,
        title: String,
        text: String,
    },
    Query {
        text: String,
        relevant: HashSet<String>,
        split: String,
    },
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let split = args.next().unwrap_or_else(|| "test".to_owned());
    let embedder: Arc<dyn Embedder> = match args.next() {
        None => Arc::new(BuiltIn::new()),
        Some(folder) => Arc::new(Bert::load(Path::new(&folder))?),
    };
    println!(
        "{} on the {split} queries: nDCG@10 / recall@10 / MRR\n",
        embedder.name()
    );
    println!("| set | documents | queries | words | meaning | both |");
    println!("|---|---|---|---|---|---|");
    let mut means: HashMap<&str, f64> = HashMap::new();
    for set in SETS {
        let scored = evaluate(set, &split, &embedder)?;
        print!("| {set} | {} | {} |", scored.documents, scored.queries);
        for (name, score) in &scored.halves {
            print!(
                " {:.3} / {:.3} / {:.3} |",
                score.ndcg, score.recall, score.mrr
            );
            *means.entry(name).or_default() += score.ndcg / SETS.len() as f64;
        }
        println!();
    }
    let mean = |name| means.get(name).copied().unwrap_or_default();
    println!(
        "| mean nDCG@10 | | | {:.3} | {:.3} | {:.3} |",
        mean("words"),
        mean("meaning"),
        mean("both")
    );
    Ok(())
}

struct Scored {
    documents: usize,
    queries: usize,
    halves: Vec<(&'static str, Score)>,
}

#[derive(Default)]
struct Score {
    ndcg: f64,
    recall: f64,
    mrr: f64,
}

fn evaluate(set: &str, split: &str, embedder: &Arc<dyn Embedder>) -> Result<Scored> {
    let folder = tempfile::tempdir()?;
    let options = SqliteOptions::new(folder.path().join("memory.db"));
    let memory = SqliteMemory::open(options, Arc::clone(embedder))?;
    let (decisions, queries) = read(set, split)?;
    let documents = decisions.len();
    for chunk in decisions.chunks(1000) {
        memory.record(chunk.to_vec())?;
    }
    while memory.state()?.unembedded > 0 {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let mut halves = Vec::new();
    for (name, by) in [
        ("words", By::Words),
        ("meaning", By::Meaning),
        ("both", By::Both),
    ] {
        let mut total = Score::default();
        for (text, relevant) in &queries {
            let found = memory.search(&Query::new(text.as_str()), by)?;
            let found: Vec<bool> = found
                .hits
                .iter()
                .map(|hit| relevant.contains(&hit.decision.id))
                .collect();
            let score = score(&found, relevant.len());
            total.ndcg += score.ndcg / queries.len() as f64;
            total.recall += score.recall / queries.len() as f64;
            total.mrr += score.mrr / queries.len() as f64;
        }
        halves.push((name, total));
    }
    Ok(Scored {
        documents,
        queries: queries.len(),
        halves,
    })
}

fn score(found: &[bool], relevant: usize) -> Score {
    let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let hits = found.iter().enumerate().filter(|(_, hit)| **hit);
    let gained: f64 = hits.clone().map(|(rank, _)| gain(rank)).sum();
    let best: f64 = (0..relevant.min(DEPTH)).map(gain).sum();
    Score {
        ndcg: gained / best,
        recall: hits.clone().count() as f64 / relevant as f64,
        mrr: hits
            .map(|(rank, _)| 1.0 / (rank as f64 + 1.0))
            .next()
            .unwrap_or_default(),
    }
}

type Queries = Vec<(String, HashSet<String>)>;

fn read(set: &str, split: &str) -> Result<(Vec<Decision>, Queries)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../evaluation/retrieval")
        .join(format!("{set}.jsonl.gz"));
    let file = std::fs::File::open(&path).with_context(|| format!("{}", path.display()))?;
    let (mut decisions, mut queries) = (Vec::new(), Vec::new());
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        match serde_json::from_str(&line?)? {
            Line::Doc { id, title, text } => {
                // What has a title is a decision with its circumstances.
                let params = if title.is_empty() {
                    json!({"id": id, "decision": text})
                } else {
                    json!({"id": id, "decision": title, "context": text})
                };
                let params = params.as_object().ok_or_else(|| anyhow!("not an object"))?;
                let now = Timestamp::UNIX_EPOCH;
                decisions.push(Decision::from_params(params, String::new, now)?);
            }
            Line::Query {
                text,
                relevant,
                split: of,
            } if of == split => queries.push((text, relevant)),
            Line::Query { .. } => {}
        }
    }
    Ok((decisions, queries))
}
