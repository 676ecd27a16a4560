//! How fast the memory's index is, how much it finds, and how much room it takes.
//!
//! `cargo run --release -p portcullis-store --features bench --example memory_index [ROWS...]` prints lines
//! of JSON for each number of rows (10,000, 100,000 and 1,000,000 unless told). Texts are made of words as
//! common as words are; a vector is the mean of its text's word vectors, which is what a static model gives.
//! What `SQLite`'s FTS5 takes for the same words over the same texts is there to compare.

use std::error::Error;
use std::time::Instant;

use portcullis_core::memory::{Decision, Filters};
use portcullis_store::memory::{Bench, By};
use serde_json::{Value, json};

const DIMENSION: usize = 256;
const VOCABULARY: usize = 60_000;
/// Kinds of words that mean about the same.
const KINDS: usize = 1_500;
const TOPICS: usize = 2_000;
const TOPIC_WORDS: usize = 120;
const QUERIES: usize = 100;
const LIMIT: usize = 10;
const TRIES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<usize> = std::env::args().skip(1).flat_map(|it| it.parse()).collect();
    let sizes = if asked.is_empty() {
        vec![10_000, 100_000, 1_000_000]
    } else {
        asked
    };
    for rows in sizes {
        measure(rows)?;
    }
    Ok(())
}

fn measure(rows: usize) -> Result<(), Box<dyn Error>> {
    let world = World::new();
    let queries = world.queries();
    let before = resident();
    let started = Instant::now();
    let mut index = Bench::new(DIMENSION);
    let mut made = 0.0;
    for row in 0..rows {
        let making = Instant::now();
        let (decision, vector) = world.decision(row);
        made += making.elapsed().as_secs_f64();
        index.put(row as i64, &decision, &vector);
    }
    let put_s = started.elapsed().as_secs_f64() - made;
    let field = timed(&index, &queries, &Filters::default(), By::Both);
    let mut slices: Vec<(&str, f64)> = Vec::new();
    let mut last = Instant::now();
    index.tidy(256, |part| {
        slices.push((part, millis(last)));
        last = Instant::now();
    });
    let slice = |name: &str| {
        let of = slices.iter().filter(|(part, _)| *part == name);
        let all: Vec<f64> = of.map(|(_, ms)| *ms).collect();
        json!({ "sum_ms": all.iter().sum::<f64>(), "max_ms": all.iter().fold(0.0_f64, |a, b| a.max(*b)) })
    };
    println!(
        "{}",
        json!({
            "rows": rows, "put_us": put_s * 1e6 / rows as f64, "resident_mb": resident() - before,
            "both_before_ms": field, "plan": slice("plan"), "make": slice("make"), "adopt": slice("adopt"),
            "moves": slice("moves"), "settle": slice("settle"),
        })
    );
    let filters = [
        ("none", Filters::default()),
        ("one in 100", Filters::of_category(Some("c0"))),
        ("one in 10", one_tag("t0")),
        ("half", one_tag("half")),
    ];
    for (name, filters) in &filters {
        let mut line = json!({ "rows": rows, "filter": name });
        for (half, by) in [
            ("both", By::Both),
            ("words", By::Words),
            ("meaning", By::Meaning),
        ] {
            line[half] = timed(&index, &queries, filters, by);
        }
        for (half, by) in [
            ("both", By::Both),
            ("words", By::Words),
            ("meaning", By::Meaning),
        ] {
            line[half]["recall"] = json!(recall(&mut index, &queries, filters, by));
        }
        println!("{line}");
    }
    let started = Instant::now();
    for _ in 0..20 {
        std::hint::black_box(index.latest(&Filters::default(), 50));
    }
    println!(
        "{}",
        json!({ "rows": rows, "latest_ms": millis(started) / 20.0 })
    );
    // Against numbers that were never rounded.
    for (name, filters, every) in [
        ("none", &filters[0].1, 1),
        ("one in 100", &filters[1].1, 100),
    ] {
        let exact = nearest(&world, &queries, (0..rows).step_by(every));
        let found: Vec<Vec<i64>> = queries
            .iter()
            .map(|it| it.rows(&index, filters, By::Meaning))
            .collect();
        println!(
            "{}",
            json!({ "rows": rows, "filter": name, "meaning_recall_of_unrounded": shared(&exact, &found) })
        );
    }
    drop(index);
    fts5(&world, &queries, rows)
}

fn exact_of(index: &mut Bench, queries: &[Asked], filters: &Filters, by: By) -> Vec<Vec<i64>> {
    index.look_at_all(true);
    let exact = queries
        .iter()
        .map(|it| it.rows(index, filters, by))
        .collect();
    index.look_at_all(false);
    exact
}

/// The rows that point most alike.
fn nearest(world: &World, queries: &[Asked], rows: impl Iterator<Item = usize>) -> Vec<Vec<i64>> {
    let mut best: Vec<Vec<(f32, i64)>> = vec![Vec::new(); queries.len()];
    for row in rows {
        let vector = world.vector(&world.row(row));
        for (best, query) in best.iter_mut().zip(queries) {
            let dot = |sum: f32, (one, other): (&f32, &f32)| sum + one * other;
            let blocks = query.vector.chunks(8).zip(vector.chunks(8));
            let cosine: f32 = blocks
                .map(|(one, other)| one.iter().zip(other).fold(0.0, dot))
                .sum();
            if best.len() < LIMIT || best[LIMIT - 1].0 < cosine {
                let at = best.partition_point(|(other, _)| *other >= cosine);
                best.insert(at, (cosine, row as i64));
                best.truncate(LIMIT);
            }
        }
    }
    let rows = |best: Vec<(f32, i64)>| best.into_iter().map(|(_, row)| row).collect();
    best.into_iter().map(rows).collect()
}

fn recall(index: &mut Bench, queries: &[Asked], filters: &Filters, by: By) -> f64 {
    let exact = exact_of(index, queries, filters, by);
    let found: Vec<Vec<i64>> = queries
        .iter()
        .map(|it| it.rows(index, filters, by))
        .collect();
    shared(&exact, &found)
}

/// How much of what should be found is found.
fn shared(exact: &[Vec<i64>], found: &[Vec<i64>]) -> f64 {
    let pairs = exact.iter().zip(found);
    let shared: usize = pairs
        .map(|(exact, found)| exact.iter().filter(|row| found.contains(row)).count())
        .sum();
    shared as f64 / exact.iter().map(Vec::len).sum::<usize>().max(1) as f64
}

fn timed(index: &Bench, queries: &[Asked], filters: &Filters, by: By) -> Value {
    let once = |query: &Asked| {
        let started = Instant::now();
        std::hint::black_box(query.rows(index, filters, by));
        millis(started)
    };
    // The best of some, so that what else the machine does is not measured.
    let times = queries
        .iter()
        .map(|query| (0..TRIES).map(|_| once(query)).fold(f64::MAX, f64::min));
    quantiles(times.collect())
}

fn quantiles(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    json!({ "p50_ms": at(50), "p90_ms": at(90), "p99_ms": at(99) })
}

fn fts5(world: &World, queries: &[Asked], rows: usize) -> Result<(), Box<dyn Error>> {
    let mut database = rusqlite::Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter')",
    )?;
    let transaction = database.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO texts (rowid, text) VALUES (?1, ?2)")?;
        for row in 0..rows {
            insert.execute((row as i64, world.text(row)))?;
        }
    }
    transaction.commit()?;
    let sql = "SELECT rowid FROM texts WHERE texts MATCH ?1 ORDER BY rank LIMIT 128";
    let mut select = database.prepare(sql)?;
    let mut times = Vec::new();
    for query in queries.iter().take(20) {
        let started = Instant::now();
        let found = select.query_map([query.text.replace(' ', " OR ")], |row| row.get(0))?;
        let found: Vec<i64> = found.collect::<Result<_, _>>()?;
        std::hint::black_box(found);
        times.push(millis(started));
    }
    println!(
        "{}",
        json!({ "rows": rows, "fts5_top_128": quantiles(times) })
    );
    Ok(())
}

fn one_tag(tag: &str) -> Filters {
    Filters {
        tags: vec![tag.to_owned()],
        ..Filters::default()
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// What the process takes of memory, in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

struct Asked {
    text: String,
    vector: Vec<f32>,
}

impl Asked {
    fn rows(&self, index: &Bench, filters: &Filters, by: By) -> Vec<i64> {
        let (rows, _) = index.search(&self.text, &self.vector, filters, LIMIT, by);
        rows.into_iter().map(|(row, _)| row).collect()
    }
}

/// Words and what they mean, and topics that use some of them more than others.
struct World {
    vectors: Vec<f32>,
    topics: Vec<Vec<usize>>,
}

impl World {
    fn new() -> Self {
        let mut numbers = Numbers(7);
        let kin: Vec<f32> = (0..KINDS * DIMENSION).map(|_| numbers.normal()).collect();
        let number = |at: usize| {
            let kind = (at / DIMENSION * 7919) % KINDS;
            kin[kind * DIMENSION + at % DIMENSION] + numbers.normal()
        };
        let vectors = (0..VOCABULARY * DIMENSION).map(number).collect();
        let topic = |_| {
            (0..TOPIC_WORDS)
                .map(|_| 200 + numbers.zipf(VOCABULARY - 200))
                .collect()
        };
        Self {
            vectors,
            topics: (0..TOPICS).map(topic).collect(),
        }
    }

    /// The words of a row: some that all texts have, most of its topic's, a few of anywhere.
    fn words(&self, numbers: &mut Numbers, count: usize) -> Vec<usize> {
        let topic = &self.topics[numbers.zipf(TOPICS)];
        let word = |_| match numbers.below(10) {
            0..3 => numbers.zipf(200),
            3..8 => topic[numbers.zipf(TOPIC_WORDS)],
            _ => numbers.zipf(VOCABULARY),
        };
        (0..count).map(word).collect()
    }

    fn row(&self, row: usize) -> Vec<usize> {
        let mut numbers = Numbers(row as u64 + 1_000);
        let count = 20 + numbers.below(41);
        self.words(&mut numbers, count)
    }

    fn text(&self, row: usize) -> String {
        spelled(&self.row(row))
    }

    fn decision(&self, row: usize) -> (Decision, Vec<f32>) {
        let words = self.row(row);
        let half = if row.is_multiple_of(2) {
            "half"
        } else {
            "other"
        };
        let decision = json!({
            "id": row.to_string(),
            "decision": spelled(&words[..words.len() / 3]),
            "context": spelled(&words[words.len() / 3..]),
            "category": format!("c{}", row * 7 % 100),
            "agent": format!("agent{}", row % 50),
            "tags": [format!("t{}", row * 3 % 10), half],
            "confidence": (row % 101) as f64 / 100.0,
            "date": jiff::Timestamp::UNIX_EPOCH.to_string(),
        });
        let decision: Result<Decision, _> = serde_json::from_value(decision);
        let Ok(mut decision) = decision else {
            unreachable!("a decision is one");
        };
        decision.date += jiff::SignedDuration::from_secs(row as i64);
        (decision, self.vector(&words))
    }

    /// Common words say little.
    fn vector(&self, words: &[usize]) -> Vec<f32> {
        let mut mean = vec![0.0; DIMENSION];
        for word in words {
            let weight = 1e-3 / (1e-3 + 1.0 / (*word as f32 + 10.0));
            let vector = &self.vectors[word * DIMENSION..(word + 1) * DIMENSION];
            for (sum, number) in mean.iter_mut().zip(vector) {
                *sum += weight * number;
            }
        }
        let length = mean.iter().map(|it| it * it).sum::<f32>().sqrt();
        mean.iter().map(|it| it / length.max(1e-9)).collect()
    }

    fn queries(&self) -> Vec<Asked> {
        let query = |n| {
            let mut numbers = Numbers(n as u64 + 1_000_000_007);
            let count = 8 + numbers.below(13);
            let words = self.words(&mut numbers, count);
            Asked {
                text: spelled(&words),
                vector: self.vector(&words),
            }
        };
        (0..QUERIES).map(query).collect()
    }
}

/// Words that no stemmer takes for others.
fn spelled(words: &[usize]) -> String {
    let spelled: Vec<String> = words.iter().map(|word| format!("w{word}x")).collect();
    spelled.join(" ")
}

/// Numbers without an order, the same ones every time (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The first ones often, the last ones hardly ever.
    #[expect(clippy::cast_sign_loss, reason = "it is never under zero")]
    fn zipf(&mut self, limit: usize) -> usize {
        let number = ((limit as f64 + 1.0).powf(self.unit()) - 1.0) as usize;
        number.min(limit - 1)
    }

    /// About normal.
    fn normal(&mut self) -> f32 {
        let sum: f64 = (0..4).map(|_| self.unit()).sum();
        (sum - 2.0) as f32
    }
}
