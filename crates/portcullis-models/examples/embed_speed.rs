//! Microseconds a text, on one thread.
//!
//! ```sh
//! cargo run --release -p portcullis-models --example embed_speed [FOLDER]
//! ```
//!
//! `FOLDER` is that of a BERT, such as all-MiniLM-L6-v2.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use portcullis_core::memory::Embedder;
use portcullis_models::{Bert, BuiltIn};

/// 20 words.
const SENTENCE: &str = "Roll back the payment service because error rates doubled within five minutes of \
     the deploy on Friday evening, please, now";
/// 13 pieces, with those that BERT adds.
const SHORT: &str = "Roll back the payment service when errors double again today.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let built_in = black_box(BuiltIn::new());
    println!("built-in: start {:?}", start.elapsed());
    let start = Instant::now();
    black_box(built_in.embed(&[SENTENCE])?);
    println!("built-in: first text {:?}", start.elapsed());
    let words = built_in.tokenizer().ids(SENTENCE, usize::MAX).len();
    measure(&format!("built-in, {words} pieces"), &built_in, &[SENTENCE])?;
    let long = SENTENCE.repeat(100);
    measure(
        &format!("built-in, {} KB", long.len() / 1000),
        &built_in,
        &[&long],
    )?;

    if let Some(folder) = std::env::args().nth(1) {
        let start = Instant::now();
        let bert = Bert::load(Path::new(&folder))?;
        println!("{}: loaded in {:?}", bert.name(), start.elapsed());
        let pieces = |text: &str| bert.tokenizer().ids(text, usize::MAX).len() + 2;
        measure(&format!("BERT, {} pieces", pieces(SHORT)), &bert, &[SHORT])?;
        let long = "roll back ".repeat(63);
        measure(&format!("BERT, {} pieces", pieces(&long)), &bert, &[&long])?;
        measure("BERT, 32 short texts at once", &bert, &[SHORT; 32])?;
    }
    Ok(())
}

/// The fastest and the median of many runs.
fn measure(
    what: &str,
    model: &dyn Embedder,
    texts: &[&str],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 20 || start.elapsed() < Duration::from_secs(2) {
        let start = Instant::now();
        black_box(model.embed(black_box(texts))?);
        times.push(start.elapsed());
    }
    times.sort();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / texts.len() as f64;
    println!(
        "{what}: {:.1} µs a text (fastest {:.1})",
        each(times[times.len() / 2]),
        each(times[0])
    );
    Ok(())
}
