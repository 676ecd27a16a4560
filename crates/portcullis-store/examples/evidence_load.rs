//! How many entries a second a log takes, and how long each waits.
//!
//! `cargo run --release -p portcullis-store --example evidence_load [DIRECTORY]` prints a line of JSON for
//! each durability and number of callers, and first what a bare `write` and `fsync` take in the same
//! place. Bodies are made, secrets looked for and all, as a server would; `body_us` is that part of it.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::evidence::{Body, Redactor};
use portcullis_store::evidence::{Durability, EvidenceLog, Options};
use serde_json::{Map, Value, json};

const SECONDS: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = tempfile::tempdir_in(base)?;
    let started = Instant::now();
    let redactor = Arc::new(Redactor::new()?);
    let redactor_ms = started.elapsed().as_secs_f64() * 1e3;
    println!(
        "{}",
        json!({
            "redactor_ms": redactor_ms,
            "body_us": body_us(&redactor)?,
            "body_without_redaction_us": body_us(&Redactor::none())?,
        })
    );
    let fsync = bare(directory.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for durability in [Durability::Os, Durability::Fsync] {
        for callers in [1, 16] {
            let path = directory.path().join(format!("{durability:?}-{callers}"));
            let options = Options {
                durability,
                ..Options::new(path)
            };
            let mut line = runtime.block_on(load(options, callers, &redactor))?;
            if durability == Durability::Fsync {
                // What a disk takes changes by the minute where others use it too, so the limit is
                // given by what it took in the run as well.
                let rate = line["appends_per_s"].as_f64().unwrap_or_default();
                let in_run = line["sync_us"].as_f64().unwrap_or_default();
                let of_limit = |sync_us: f64| rate / (callers as f64 * 1e6 / sync_us);
                line["of_callers_per_bare_fsync"] = json!(of_limit(micros(fsync)));
                line["of_callers_per_fsync_in_run"] = json!(of_limit(in_run));
            }
            println!("{line}");
        }
    }
    Ok(())
}

fn entry() -> Map<String, Value> {
    let entry = json!({
        "timestamp": "2026-02-04T21:00:00Z",
        "event": "guardrail_check",
        "requesting_agent": "emerson",
        "claimed_agent": null,
        "action": "Deploy authentication service to production",
        "allowed": false,
        "violations": ["no-production-without-review"],
        "evaluated": 5,
        "policy_digest": "1cc69c7fa23616ca2ec3ee70d24390a6225c8832db8a4c814c7e0e7f942f8668",
    });
    entry.as_object().cloned().unwrap_or_default()
}

/// The median, since others may use the processor too.
fn body_us(redactor: &Redactor) -> Result<f64, Box<dyn Error>> {
    let entry = entry();
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let started = Instant::now();
        Body::new(&entry, redactor)?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(micros(times[times.len() / 2]))
}

/// What the disk takes for one entry by itself.
fn bare(directory: &Path) -> Result<Duration, Box<dyn Error>> {
    let mut file = File::create(directory.join("bare"))?;
    let (mut writes, mut syncs) = (Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let started = Instant::now();
        file.write_all(&[b'x'; 512])?;
        writes.push(started.elapsed());
        let started = Instant::now();
        file.sync_data()?;
        syncs.push(started.elapsed());
    }
    let mean = |times: &[Duration]| times.iter().sum::<Duration>() / times.len() as u32;
    let sync = mean(&syncs);
    println!(
        "{}",
        json!({"bare_write_us": micros(mean(&writes)), "bare_fsync_us": micros(sync)})
    );
    Ok(sync)
}

async fn load(
    options: Options,
    callers: usize,
    redactor: &Arc<Redactor>,
) -> Result<Value, Box<dyn Error>> {
    let durability = options.durability;
    let (log, _) = EvidenceLog::open(options)?;
    let log = Arc::new(log);
    let started = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (log, redactor) = (Arc::clone(&log), Arc::clone(redactor));
            tokio::spawn(async move {
                let entry = entry();
                let mut times = Vec::new();
                while started.elapsed() < SECONDS {
                    let begun = Instant::now();
                    let body = Body::new(&entry, &redactor).map_err(|error| error.to_string())?;
                    log.append(body).await.map_err(|error| error.to_string())?;
                    times.push(begun.elapsed());
                    // As a server would between two requests.
                    tokio::task::yield_now().await;
                }
                Ok::<_, String>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let seconds = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let stats = log.stats();
    log.close(Duration::from_secs(10))?;
    Ok(json!({
        "durability": format!("{durability:?}"),
        "callers": callers,
        "appends_per_s": times.len() as f64 / seconds,
        "p50_us": micros(times[times.len() / 2]),
        "p99_us": micros(times[times.len() * 99 / 100]),
        "entries_per_commit": stats.appended as f64 / stats.commits.max(1) as f64,
        "sync_us": micros(stats.total_sync) / stats.commits.max(1) as f64,
    }))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
