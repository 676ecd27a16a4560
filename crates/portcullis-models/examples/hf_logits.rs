//! What a classifier of Hugging Face says of texts, and how long it takes.
//!
//! ```sh
//! cargo run --release -p portcullis-models --example hf_logits -- FOLDER < TEXTS
//! cargo run --release -p portcullis-models --example hf_logits -- FOLDER --time SECONDS < TEXTS
//! ```
//!
//! `TEXTS` has a JSON string on each line. For each there is a line with the tokens and the logits of each window. With
//! `--time` it has the median and the fastest of many runs instead, one thread, in microseconds, and where the system
//! tells it (Linux) the time on a core that a run took: others who want the core do not count there.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use portcullis_models::hf::{Options, SequenceClassifier};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, seconds) = match arguments.as_slice() {
        [folder] => (folder, None),
        [folder, flag, seconds] if flag == "--time" => (folder, Some(seconds.parse()?)),
        _ => return Err("usage: hf_logits FOLDER [--time SECONDS] < TEXTS".into()),
    };
    let model = SequenceClassifier::load(Path::new(folder), Options::default())?;
    let lines = std::io::stdin().lock().lines();
    let texts = lines
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect::<Result<Vec<String>, Box<dyn std::error::Error>>>()?;

    let mut out = std::io::stdout().lock();
    for text in &texts {
        let line = match seconds {
            Some(seconds) => time(&model, text, Duration::from_secs_f64(seconds))?,
            None => {
                let (windows, complete) = model.tokens(text)?;
                let logits = model.logits(&[text])?.remove(0);
                json!({"complete": complete, "windows": windows, "logits": logits})
            }
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn time(
    model: &SequenceClassifier,
    text: &str,
    least: Duration,
) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let tokens: usize = model.tokens(text)?.0.iter().map(Vec::len).sum();
    let mut times = Vec::new();
    let busy = time_on_core();
    let start = Instant::now();
    while times.len() < 20 || start.elapsed() < least {
        let start = Instant::now();
        black_box(model.logits(&[black_box(text)])?);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let busy = time_on_core().zip(busy).map(|(end, start)| end - start);
    times.sort_by(f64::total_cmp);
    Ok(json!({
        "tokens": tokens,
        "runs": times.len(),
        "median_us": times[times.len() / 2],
        "fastest_us": times[0],
        "core_us": busy.map(|busy| busy / 1e3 / times.len() as f64),
    }))
}

/// How long this thread has had a core, in nanoseconds.
fn time_on_core() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}
