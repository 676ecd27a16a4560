//! Memories to test with, and what to put into them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use portcullis_core::guardrails::Stakes;
use portcullis_core::memory::{
    AnnouncedIntent, Decision, EmbedError, Embedder, Outcome, Reason, Review,
};
use portcullis_store::memory::{SqliteMemory, SqliteOptions};
use serde_json::json;

/// Counts words into as many places as there are; texts that share words are near to each other.
#[derive(Debug)]
pub(crate) struct WordCounter {
    pub(crate) name: &'static str,
    pub(crate) instant: bool,
    pub(crate) fails: AtomicBool,
    pub(crate) calls: AtomicUsize,
}

impl WordCounter {
    pub(crate) fn new(name: &'static str, instant: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            instant,
            fails: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
        })
    }
}

impl Embedder for WordCounter {
    fn name(&self) -> &str {
        self.name
    }

    fn dimension(&self) -> usize {
        64
    }

    fn is_instant(&self) -> bool {
        self.instant
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.calls.fetch_add(1, Relaxed);
        if self.fails.load(Relaxed) || texts.iter().any(|text| text.contains("poison")) {
            return Err(EmbedError {
                model: self.name.to_owned(),
                why: "out of order".to_owned(),
            });
        }
        Ok(texts.iter().map(|text| count(text, self.name)).collect())
    }
}

fn count(text: &str, seed: &str) -> Vec<f32> {
    let mut counts = vec![0.0_f32; 64];
    let words = text.split(|c: char| !c.is_alphanumeric());
    for word in words.filter(|word| !word.is_empty()) {
        let bytes = seed.bytes().chain(word.to_lowercase().into_bytes());
        let hash = bytes.fold(2_166_136_261_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
        });
        counts[(hash >> 8) as usize % 64] += 1.0;
    }
    let length = counts.iter().map(|x| x * x).sum::<f32>().sqrt();
    counts.iter().map(|x| x / length.max(1.0)).collect()
}

pub(crate) fn options(directory: &Path) -> SqliteOptions {
    SqliteOptions {
        // A loaded machine is no reason to fail.
        load_patience: Duration::from_mins(1),
        ..SqliteOptions::new(directory.join("memory.db"))
    }
}

pub(crate) fn open(directory: &Path) -> SqliteMemory {
    SqliteMemory::open(options(directory), WordCounter::new("words-1", true)).unwrap()
}

/// Waits for something that happens by itself.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_microsecond((1_770_000_000 + second) * 1_000_000 + 123_456).unwrap()
}

/// A decision with everything in it.
pub(crate) fn decision(id: &str, text: &str, second: i64) -> Decision {
    Decision {
        id: id.to_owned(),
        decision: text.to_owned(),
        context: Some("while \"nobody\" looked\0".to_owned()),
        category: Some("architecture".to_owned()),
        stakes: Stakes::High,
        confidence: Some(0.7),
        reasons: vec![Reason {
            kind: "pattern".to_owned(),
            text: "it worked — twice".to_owned(),
            strength: Some(0.1 + 0.2),
        }],
        tags: vec!["a".to_owned(), "b c".to_owned()],
        agent: Some("emerson".to_owned()),
        date: at(second),
        review_by: Some(at(second + 86_400)),
        reviews: Vec::new(),
    }
}

/// A decision with as little as possible.
pub(crate) fn bare(id: &str, text: &str, second: i64) -> Decision {
    Decision {
        id: id.to_owned(),
        decision: text.to_owned(),
        context: None,
        category: None,
        stakes: Stakes::Low,
        confidence: None,
        reasons: Vec::new(),
        tags: Vec::new(),
        agent: None,
        date: at(second),
        review_by: None,
        reviews: Vec::new(),
    }
}

pub(crate) fn review(outcome: Outcome, second: i64) -> Review {
    Review {
        outcome,
        actual_result: Some("it ran".to_owned()),
        lessons: Some("measure first".to_owned()),
        agent: Some("judge".to_owned()),
        date: at(second),
    }
}

pub(crate) fn intent(correlation_id: &str, n: i64) -> AnnouncedIntent {
    let metadata = json!({"n": n, "deep": {"long": 0.123_456_789_012_345_67, "nul": "\0"}});
    AnnouncedIntent {
        correlation_id: correlation_id.to_owned(),
        intent: format!("do it {n}"),
        context: Some("soon".to_owned()),
        category: None,
        stakes: Stakes::Critical,
        confidence: Some(0.123_456_789),
        metadata: metadata.as_object().cloned().unwrap(),
        agent: Some("emerson".to_owned()),
        received_at: at(n),
        allowed: n % 2 == 0,
        violations: vec!["no-production-without-review".to_owned()],
    }
}
