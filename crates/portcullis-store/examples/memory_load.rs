//! How many decisions a second a memory takes, and how long each waits.
//!
//! `cargo run --release -p portcullis-store --example memory_load [DIRECTORY]` prints a line of JSON for each
//! number of writers, and first what a bare `write` and `fsync` take in the same place. Every commit is one
//! `fsync` of the write-ahead log, and now and then two more when that is moved into the database.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use portcullis_core::guardrails::Stakes;
use portcullis_core::memory::{Decision, EmbedError, Embedder, Filters, ListRequest, Reason};
use portcullis_store::memory::{Memory as _, SqliteMemory, SqliteOptions};
use serde_json::{Value, json};

const SECONDS: Duration = Duration::from_secs(3);
const DIMENSION: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = tempfile::tempdir_in(base)?;
    println!("{}", bare(directory.path())?);
    for writers in [1, 16] {
        let path = directory.path().join(format!("{writers}.db"));
        println!("{}", load(&path, writers)?);
        println!("{}", reopen(&path)?);
    }
    Ok(())
}

/// What the disk takes for one decision by itself.
fn bare(directory: &Path) -> Result<Value, Box<dyn Error>> {
    let mut file = File::create(directory.join("bare"))?;
    let mut syncs = 0_u32;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        file.write_all(&[b'x'; 8192])?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(json!({"bare_write_and_fsync_us": micros(started.elapsed() / syncs)}))
}

fn load(path: &Path, writers: usize) -> Result<Value, Box<dyn Error>> {
    let memory = SqliteMemory::open(SqliteOptions::new(path), Arc::new(Hashes))?;
    let started = Instant::now();
    let mut times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let memory = &memory;
                scope.spawn(move || {
                    let mut times = Vec::new();
                    while started.elapsed() < SECONDS {
                        let decision = decision(&format!("{writer}-{}", times.len()));
                        let begun = Instant::now();
                        if memory.record(vec![decision]).is_ok() {
                            times.push(begun.elapsed());
                        }
                    }
                    times
                })
            })
            .collect();
        let times = threads.into_iter().filter_map(|thread| thread.join().ok());
        times.flatten().collect::<Vec<_>>()
    });
    let seconds = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let stats = memory.stats();
    memory.close(Duration::from_secs(10))?;
    Ok(json!({
        "writers": writers,
        "records_per_s": times.len() as f64 / seconds,
        "p50_us": micros(times[times.len() / 2]),
        "p99_us": micros(times[times.len() * 99 / 100]),
        "commits": stats.commits,
        "records_per_commit": stats.written as f64 / stats.commits.max(1) as f64,
        "commit_us": micros(stats.total_commit) / stats.commits.max(1) as f64,
    }))
}

/// How long it takes until all that was recorded can be searched.
fn reopen(path: &Path) -> Result<Value, Box<dyn Error>> {
    let started = Instant::now();
    let memory = SqliteMemory::open(SqliteOptions::new(path), Arc::new(Hashes))?;
    let opened = started.elapsed();
    let request = ListRequest {
        filters: Filters::default(),
        limit: 1,
        after: None,
    };
    let total = memory.list(&request)?.total;
    let loaded = started.elapsed();
    Ok(json!({
        "decisions": total,
        "open_us": micros(opened),
        "load_us": micros(loaded),
        "load_us_each": micros(loaded) / total.max(1) as f64,
    }))
}

fn decision(id: &str) -> Decision {
    Decision {
        id: id.to_owned(),
        decision: "Use SQLite in write-ahead mode for the memory of the gateway".to_owned(),
        context: Some("One process writes, several read; a crash must lose nothing. ".repeat(4)),
        category: Some("architecture".to_owned()),
        stakes: Stakes::High,
        confidence: Some(0.85),
        reasons: vec![Reason {
            kind: "analysis".to_owned(),
            text: "Group commit reaches what the disk can do".to_owned(),
            strength: Some(0.8),
        }],
        tags: vec!["storage".to_owned()],
        agent: Some("emerson".to_owned()),
        date: Timestamp::now(),
        review_by: None,
        reviews: Vec::new(),
    }
}

/// Words, hashed into as many places as there are.
struct Hashes;

impl Embedder for Hashes {
    fn name(&self) -> &'static str {
        "hashes"
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let embed = |text: &&str| {
            let mut vector = vec![0.0_f32; DIMENSION];
            for word in text.split_whitespace() {
                let hash = word.bytes().fold(5381_usize, |hash, byte| {
                    hash.wrapping_mul(33) ^ usize::from(byte)
                });
                vector[hash % DIMENSION] += 1.0;
            }
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            vector.iter().map(|x| x / length.max(1.0)).collect()
        };
        Ok(texts.iter().map(embed).collect())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
