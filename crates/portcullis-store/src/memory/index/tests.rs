//! The index against a model that looks at everything, every time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use portcullis_core::guardrails::Stakes;
use portcullis_core::memory::{Decision, Filters, Outcome, Reason, Review, Status};
use proptest::prelude::*;

use super::fuse::{B, K1};
use super::words::written;
use super::*;

const DIMENSION: usize = 16;

/// Everything at once, so that small sets reach every path.
const SMALL: Limits = Limits {
    exact: 8,
    field: 24,
    enough: 16,
    share: 4,
    by_words: 4,
    by_meaning: 4,
};

const WORDS: [&str; 24] = [
    "deploy",
    "deployed",
    "the",
    "the",
    "the",
    "auth-service",
    "cache",
    "caching",
    "postgres",
    "queue",
    "rollback",
    "Rollbacks",
    "PR-42",
    "v2.1",
    "migrate",
    "migration",
    "ÄRGER",
    "部署",
    "🦀",
    "retry",
    "secret",
    "tokens",
    "billing",
    "of",
];

/// What is in the index, to be looked at one by one.
#[derive(Default)]
struct Model(BTreeMap<i64, (Decision, Option<Vec<f32>>)>);

impl Model {
    fn admitted<'a>(&'a self, filters: &'a Filters) -> impl Iterator<Item = (i64, &'a Decision)> {
        let rows = self.0.iter().map(|(row, (decision, _))| (*row, decision));
        rows.filter(|(_, decision)| filters.admit(decision))
    }

    fn terms(texts: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
        let mut terms = Vec::new();
        for it in texts {
            text::terms(it.as_ref(), |term| terms.push(term.to_owned()));
        }
        terms
    }

    /// The distance of every admitted row that has one.
    fn distances(&self, asked: &Asked<'_>) -> BTreeMap<i64, f32> {
        let documents: BTreeMap<i64, Vec<String>> = self
            .0
            .iter()
            .map(|(row, (decision, _))| (*row, Self::terms(written(decision, &decision.title()))))
            .collect();
        let count = documents.len() as f32;
        let average = documents.values().map(Vec::len).sum::<usize>() as f32 / count.max(1.0);
        let wanted: BTreeSet<String> = Self::terms([asked.text].into_iter()).into_iter().collect();
        let rarity = |term: &String| {
            let having = documents
                .values()
                .filter(|terms| terms.contains(term))
                .count();
            let having = having.max(1) as f32;
            (1.0 + ((count - having).max(0.0) + 0.5) / (having + 0.5)).ln()
        };
        let once_each: f32 = wanted.iter().map(rarity).sum();
        let query = asked.vector.and_then(unit);
        let mut found = BTreeMap::new();
        for (row, decision) in self.admitted(asked.filters) {
            let terms = &documents[&row];
            let mut bm25 = 0.0;
            for term in &wanted {
                let times = terms.iter().filter(|it| *it == term).count() as f32;
                let norm = K1 * (1.0 - B + B * terms.len() as f32 / average.max(1.0));
                bm25 += rarity(term) * times.min(15.0) * (K1 + 1.0) / (times.min(15.0) + norm);
            }
            let share = fuse::words(bm25, once_each);
            let vector = self.0[&row].1.as_deref().and_then(rounded);
            let cosine = match (&query, &vector) {
                (Some(one), Some(other)) => one.iter().zip(other).map(|(a, b)| a * b).sum::<f32>(),
                _ => 0.0,
            };
            let same = decision.title().trim().to_lowercase() == asked.text.trim().to_lowercase();
            let near = match asked.by {
                By::Both if same => 1.0,
                By::Both if query.is_some() => {
                    fuse::MEANING * cosine.max(0.0) + (1.0 - fuse::MEANING) * share
                }
                By::Both | By::Words => share,
                By::Meaning => cosine.max(0.0),
            };
            if near > 0.0 {
                found.insert(row, (1.0 - near).clamp(0.0, 1.0).powi(2));
            }
        }
        found
    }
}

/// A vector of length one; none if it is not one at all.
fn unit(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    let is_one = vector.len() == DIMENSION && length > 0.0;
    is_one.then(|| vector.iter().map(|it| it / length).collect())
}

/// As a byte a number keeps it. What lies halfway between two bytes is rounded as it came, before anything is
/// divided by the length.
fn rounded(vector: &[f32]) -> Option<Vec<f32>> {
    unit(vector)?;
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    let step = vector.iter().fold(0.0_f32, |most, it| most.max(it.abs())) / 127.0;
    let coded = vector.iter().map(|it| (it / step).round() * step / length);
    Some(coded.collect())
}

#[derive(Debug, Clone)]
enum Step {
    Put(i64, Box<Decision>, Option<Vec<f32>>),
    Remove(i64),
    /// Makes neighbourhoods if it is time, and moves so many.
    Tidy(usize),
}

fn text(words: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 1..=words)
        .prop_map(|words| words.join(" "))
}

fn vector() -> impl Strategy<Value = Option<Vec<f32>>> {
    let unit = prop::collection::vec(-1.0_f32..1.0, DIMENSION);
    prop_oneof![
        8 => unit.prop_map(Some),
        1 => Just(None),
        1 => Just(Some(vec![0.0; DIMENSION])),
        1 => Just(Some(vec![1.0; 3])),
    ]
}

fn label() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::sample::select(vec![
        "a".to_owned(),
        "b".to_owned(),
        "the".to_owned(),
    ]))
}

fn tags() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop::sample::select(vec!["a".to_owned(), "x".to_owned(), "y".to_owned()]),
        0..3,
    )
}

fn date() -> impl Strategy<Value = Timestamp> {
    (0..20_i64, 0..3).prop_map(|(second, nano)| Timestamp::new(second, nano).unwrap())
}

fn confidence() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(prop::sample::select(vec![0.0, 0.25, 0.5, 0.75, 1.0]))
}

fn decision() -> impl Strategy<Value = Decision> {
    let reviews = prop::collection::vec(
        (
            prop::sample::select(&Outcome::ALL[..]),
            prop::option::of(text(4)),
        ),
        0..3,
    );
    let words = (text(6), prop::option::of(text(12)), text(3));
    let labels = (
        label(),
        label(),
        tags(),
        prop::sample::select(&Stakes::ALL[..]),
    );
    (words, labels, confidence(), date(), reviews).prop_map(
        |(words, labels, confidence, date, reviews)| Decision {
            id: String::new(),
            decision: words.0,
            context: words.1,
            category: labels.0,
            stakes: labels.3,
            confidence,
            reasons: vec![Reason {
                kind: "analysis".to_owned(),
                text: words.2,
                strength: None,
            }],
            tags: labels.2,
            agent: labels.1,
            date,
            review_by: None,
            reviews: reviews
                .into_iter()
                .map(|(outcome, lessons)| Review {
                    outcome,
                    actual_result: None,
                    lessons,
                    agent: None,
                    date,
                })
                .collect(),
        },
    )
}

/// Mostly few conditions, so that something is left.
fn filters() -> impl Strategy<Value = Filters> {
    let one = prop_oneof![
        4 => Just(Filters::default()),
        1 => label().prop_map(|category| Filters { category, ..Filters::default() }),
        1 => label().prop_map(|agent| Filters { agent, ..Filters::default() }),
        1 => tags().prop_map(|tags| Filters { tags, ..Filters::default() }),
        1 => (prop::option::of(date()), prop::option::of(date()))
            .prop_map(|(date_after, date_before)| Filters { date_after, date_before, ..Filters::default() }),
        1 => (confidence(), confidence())
            .prop_map(|(min_confidence, max_confidence)| Filters { min_confidence, max_confidence, ..Filters::default() }),
        1 => prop::collection::vec(prop::sample::select(&Stakes::ALL[..]), 0..3)
            .prop_map(|stakes| Filters { stakes, ..Filters::default() }),
        1 => prop::collection::vec(prop::sample::select(&Status::ALL[..]), 0..2)
            .prop_map(|status| Filters { status, ..Filters::default() }),
        1 => prop::collection::vec(prop::sample::select(&Outcome::ALL[..]), 0..3)
            .prop_map(|outcome| Filters { outcome, ..Filters::default() }),
    ];
    (one, prop::option::weighted(0.2, label())).prop_map(|(filters, category)| match category {
        Some(category) => Filters {
            category,
            ..filters
        },
        None => filters,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..60_i64, decision(), vector()).prop_map(|(row, decision, vector)| Step::Put(row, Box::new(decision), vector)),
        2 => (0..60_i64).prop_map(Step::Remove),
        1 => (0..40_usize).prop_map(Step::Tidy),
    ];
    prop::collection::vec(step, 1..120)
}

fn build(limits: Limits, steps: Vec<Step>) -> (Index, Model) {
    let mut index = Index::with_limits(DIMENSION, limits);
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Put(row, decision, vector) => {
                index.put(row, &decision, vector.as_deref());
                model.0.insert(row, (*decision, vector));
            }
            Step::Remove(row) => {
                index.remove(row);
                model.0.remove(&row);
            }
            Step::Tidy(most) => {
                if let Some(plan) = index.plan() {
                    assert!(index.adopt(plan.make()));
                }
                let moves = index.moves(most);
                index.settle(&moves);
            }
        }
    }
    (index, model)
}

fn by() -> impl Strategy<Value = By> {
    prop::sample::select(vec![By::Both, By::Both, By::Words, By::Meaning])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn few_rows_are_ranked_as_one_by_one(
        steps in steps(), text in text(8), vector in vector(), filters in filters(), limit in 0..70_usize, by in by(),
    ) {
        let (index, model) = build(Limits { exact: 1000, ..SMALL }, steps);
        let asked = Asked { text: &text, vector: vector.as_deref(), filters: &filters, limit, by };
        let found = index.search(&asked);
        let exact = model.distances(&asked);
        prop_assert_eq!(found.total, model.admitted(&filters).count());
        prop_assert_eq!(found.rows.len(), exact.len().min(limit));
        prop_assert!(found.rows.is_sorted_by(|one, other| nearer(one, other).is_lt()));
        let mut best: Vec<f32> = exact.values().copied().collect();
        best.sort_by(f32::total_cmp);
        for ((row, distance), best) in found.rows.iter().zip(best) {
            let own = exact.get(row).copied();
            prop_assert!(own.is_some_and(|own| (own - distance).abs() < 1e-3), "{row}: {distance} for {own:?}");
            prop_assert!((best - distance).abs() < 1e-3, "{distance} where {best} was best");
        }
    }

    #[test]
    fn many_rows_are_found_as_they_are(
        steps in steps(), text in text(8), vector in vector(), filters in filters(), limit in 1..20_usize, by in by(),
    ) {
        let (index, model) = build(SMALL, steps);
        let asked = Asked { text: &text, vector: vector.as_deref(), filters: &filters, limit, by };
        let found = index.search(&asked);
        let exact = model.distances(&asked);
        prop_assert_eq!(found.total, model.admitted(&filters).count());
        prop_assert!(found.rows.is_sorted_by(|one, other| nearer(one, other).is_lt()));
        for (row, distance) in &found.rows {
            let own = exact.get(row).copied();
            prop_assert!(own.is_some_and(|own| (own - distance).abs() < 1e-3), "{row}: {distance} for {own:?}");
        }
        // Words are exact however many rows there are.
        if by == By::Words {
            let mut best: Vec<f32> = exact.values().copied().collect();
            best.sort_by(f32::total_cmp);
            best.truncate(limit);
            prop_assert_eq!(found.rows.len(), best.len());
            for ((_, distance), best) in found.rows.iter().zip(best) {
                prop_assert!((best - distance).abs() < 1e-3, "{distance} where {best} was best");
            }
        }
    }

    #[test]
    fn the_best_by_words_are_found_however_many_lists_are_passed_over(
        texts in prop::collection::vec(text(10), 200..500), gone in prop::collection::vec(0..500_i64, 0..200),
        query in text(12), filters in filters(), limit in 1..20_usize,
    ) {
        let mut index = Index::with_limits(DIMENSION, Limits { exact: 0, ..SMALL });
        for (row, text) in (0..).zip(&texts) {
            let decision = Decision { tags: vec![["a", "x", "y"][text.len() % 3].to_owned()], ..plain(text) };
            index.put(row, &decision, None);
        }
        for row in gone {
            index.remove(row);
        }
        let asked = Asked { text: &query, vector: None, filters: &filters, limit, by: By::Words };
        let found = index.search(&asked);
        index.limits.exact = usize::MAX;
        let exact = index.search(&asked);
        prop_assert_eq!(found.rows.len(), exact.rows.len());
        for (found, exact) in found.rows.iter().zip(exact.rows) {
            prop_assert!((found.1 - exact.1).abs() < 1e-5, "{found:?} where {exact:?} was best");
        }
    }

    #[test]
    fn pages_have_every_admitted_row_once_and_the_latest_first(
        steps in steps(), filters in filters(), limit in 1..9_usize,
    ) {
        let (index, model) = build(SMALL, steps);
        let mut expected: Vec<(Timestamp, i64)> =
            model.admitted(&filters).map(|(row, decision)| (decision.date, row)).collect();
        expected.sort_by_key(|it| Reverse(*it));
        let mut listed = Vec::new();
        loop {
            let page = index.latest(&filters, listed.last().copied(), limit);
            prop_assert_eq!(page.total, expected.len());
            prop_assert!(page.rows.len() <= limit && (page.rows.len() == limit || !page.more));
            listed.extend(page.rows);
            if !page.more {
                break;
            }
        }
        prop_assert_eq!(listed, expected.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
    }

    #[test]
    fn counts_and_track_records_are_those_of_the_rows(steps in steps(), filters in filters()) {
        let (index, model) = build(SMALL, steps);
        prop_assert_eq!(index.len(), model.0.len());
        let embedded = model.0.values().filter(|(_, vector)| vector.is_some());
        prop_assert_eq!(index.unembedded(), model.0.len() - embedded.count());
        let sorted = |mut record: Vec<(f64, Outcome)>| {
            record.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.as_str().cmp(other.1.as_str())));
            record
        };
        let expected = model.admitted(&filters).filter_map(|(_, it)| Some((it.confidence?, it.outcome()?)));
        prop_assert_eq!(sorted(index.track_record(&filters)), sorted(expected.collect()));
    }

    #[test]
    fn any_text_can_be_asked_for(text in any::<String>(), times in 1..200_usize, limit in any::<usize>()) {
        let mut index = Index::with_limits(DIMENSION, SMALL);
        for row in 0..30 {
            index.put(row, &plain(&format!("{row} {text}")), None);
        }
        let text = text.repeat(times);
        let filters = Filters::default();
        let asked = Asked { text: &text, vector: None, filters: &filters, limit, by: By::Both };
        prop_assert_eq!(index.search(&asked).total, 30);
        prop_assert_eq!(index.latest(&filters, None, limit).rows.len(), limit.min(30));
    }
}

fn plain(text: &str) -> Decision {
    Decision {
        id: String::new(),
        decision: text.to_owned(),
        context: None,
        category: None,
        stakes: Stakes::default(),
        confidence: None,
        reasons: Vec::new(),
        tags: Vec::new(),
        agent: None,
        date: Timestamp::UNIX_EPOCH,
        review_by: None,
        reviews: Vec::new(),
    }
}

/// Vectors around a few directions.
fn direction(n: i64) -> Vec<f32> {
    let number = |at: i64| {
        ((n % 11 * 31 + at * 17) % 23) as f32 - 11.0 + ((n * 7 + at * 3) % 5) as f32 / 5.0
    };
    (0..DIMENSION as i64).map(number).collect()
}

fn words(text: &str, index: &Index) -> Vec<i64> {
    let filters = Filters::default();
    let asked = Asked {
        text,
        vector: None,
        filters: &filters,
        limit: 5,
        by: By::Both,
    };
    index
        .search(&asked)
        .rows
        .into_iter()
        .map(|(row, _)| row)
        .collect()
}

#[test]
fn a_title_is_found_whatever_else_is_alike() {
    let mut index = Index::with_limits(DIMENSION, SMALL);
    for row in 0..40 {
        index.put(row, &plain(&"use postgres ".repeat(9)), None);
    }
    index.put(
        40,
        &plain("Use Postgres\nand say more about many other things"),
        None,
    );
    let filters = Filters::default();
    let text = " use POSTGRES ";
    let asked = Asked {
        text,
        vector: None,
        filters: &filters,
        limit: 2,
        by: By::Both,
    };
    let found = index.search(&asked).rows;
    assert_eq!(found[0], (40, 0.0));
    assert!(found[1].1 > 0.0);
}

#[test]
fn a_huge_query_is_cut_to_its_rarest_words() {
    let mut index = Index::with_limits(DIMENSION, SMALL);
    let many: String = (0..200)
        .map(|n| format!("word{n}"))
        .collect::<Vec<_>>()
        .join(" ");
    for row in 0..200 {
        index.put(row, &plain(&many), None);
    }
    index.put(200, &plain("word7 needle"), None);
    assert_eq!(words(&format!("{many} needle"), &index)[0], 200);
}

#[test]
fn one_row_updated_a_hundred_thousand_times_takes_the_room_of_one() {
    let mut index = Index::new(DIMENSION);
    for n in 0..100_000 {
        index.put(7, &plain(&format!("take {n}")), Some(&direction(n)));
    }
    assert_eq!(
        (index.len(), index.unembedded(), index.columns.slots()),
        (1, 0, 1)
    );
    assert_eq!(words("99999", &index), [7]);
    assert_eq!(words("99998", &index), [] as [i64; 0]);
}

#[test]
fn moving_to_neighbourhoods_loses_nothing_and_shows_nothing_twice() {
    let mut index = Index::with_limits(
        DIMENSION,
        Limits {
            exact: 0,
            enough: usize::MAX,
            ..SMALL
        },
    );
    for row in 0..300 {
        index.put(row, &plain("x"), Some(&direction(row)));
    }
    assert!(!index.is_approximate());
    let made = index.plan().unwrap().make();
    for row in 300..310 {
        index.put(row, &plain("x"), Some(&direction(row)));
    }
    assert!(index.adopt(made) && index.is_approximate());
    let filters = Filters::default();
    let mut changed = 0;
    loop {
        assert!(index.plan().is_none());
        let moves = index.moves(7);
        if moves.is_empty() {
            break;
        }
        // Somebody writes between the reading of the moves and the moving.
        index.put(changed, &plain("x"), Some(&direction(3)));
        index.remove(309 - changed);
        changed += 1;
        index.settle(&moves);
        for n in [0, 3, 5] {
            let vector = direction(n);
            let asked = Asked {
                text: "",
                vector: Some(&vector),
                filters: &filters,
                limit: 400,
                by: By::Meaning,
            };
            let found = index.search(&asked);
            let rows: BTreeSet<i64> = found.rows.iter().map(|(row, _)| *row).collect();
            assert_eq!(rows.len(), found.rows.len());
            let exact = Index {
                limits: Limits {
                    exact: 1000,
                    ..SMALL
                },
                ..index
            };
            assert_eq!(exact.search(&asked), found);
            index = Index {
                limits: Limits {
                    exact: 0,
                    enough: usize::MAX,
                    ..SMALL
                },
                ..exact
            };
        }
    }
    assert!(changed > 30);
    assert_eq!(index.len() as i64, 310 - changed);
    assert_eq!(index.unembedded(), 0);
}

#[test]
fn neighbourhoods_are_made_anew_when_there_is_twice_as_much() {
    let mut index = Index::with_limits(DIMENSION, SMALL);
    let mut made = Vec::new();
    for row in 0..200 {
        index.put(row, &plain("x"), Some(&direction(row)));
        if let Some(plan) = index.plan() {
            made.push(row + 1);
            assert!(index.adopt(plan.make()));
            let moves = index.moves(usize::MAX);
            index.settle(&moves);
        }
    }
    assert_eq!(made, [24, 48, 96, 192]);
}
