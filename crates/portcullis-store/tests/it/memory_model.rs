//! A memory does what a map would, however often it is closed and opened again.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::memory::{Decision, Filters, ListRequest, Outcome, Query, Status};
use portcullis_store::memory::{Memory as _, MemoryError, Recorded};
use proptest::prelude::*;

use crate::memories::{at, bare, decision, intent, open, review};

/// What is done to a memory. Few ids, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Record(Vec<(u8, u8)>),
    Review(u8, u8),
    Forget(u8),
    Announce(u8),
    Reopen,
    Look(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0_u8..6;
    prop_oneof![
        4 => prop::collection::vec((id(), 0_u8..3), 1..4).prop_map(Step::Record),
        3 => (id(), 0_u8..4).prop_map(|(id, outcome)| Step::Review(id, outcome)),
        2 => id().prop_map(Step::Forget),
        1 => (0_u8..2).prop_map(Step::Announce),
        1 => Just(Step::Reopen),
        3 => id().prop_map(Step::Look),
    ]
}

fn name(id: u8) -> String {
    format!("id-{id}")
}

/// The same number is the same decision, at another time each time.
fn some(id: u8, kind: u8, moment: i64) -> Decision {
    match kind {
        0 => bare(&name(id), "alpha", moment),
        1 => decision(&name(id), "beta", moment),
        _ => decision(&name(id), "alpha beta", moment),
    }
}

#[derive(Debug, Default)]
struct Model {
    /// In the order of their recording.
    decisions: Vec<Decision>,
    intents: BTreeMap<String, Vec<i64>>,
}

impl Model {
    fn get(&mut self, id: &str) -> Option<&mut Decision> {
        self.decisions.iter_mut().find(|kept| kept.id == id)
    }

    fn record(&mut self, said: Decision) -> Recorded {
        let Some(kept) = self.get(&said.id) else {
            self.decisions.push(said);
            return Recorded::New;
        };
        let same = Decision {
            date: kept.date,
            review_by: kept.review_by,
            reviews: kept.reviews.clone(),
            ..said
        };
        if *kept == same {
            Recorded::Same
        } else {
            Recorded::Taken
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_memory_does_what_a_map_would(steps in prop::collection::vec(step(), 1..40)) {
        let directory = tempfile::tempdir().unwrap();
        let mut memory = open(directory.path());
        let mut model = Model::default();
        for (moment, step) in (0..).zip(steps) {
            match step {
                Step::Record(all) => {
                    let all: Vec<_> = all.into_iter().map(|(id, kind)| some(id, kind, moment)).collect();
                    let expected: Vec<_> = all.iter().map(|said| model.record(said.clone())).collect();
                    prop_assert_eq!(memory.record(all).unwrap(), expected);
                }
                Step::Review(id, outcome) => {
                    let review = review(Outcome::ALL[usize::from(outcome)], moment);
                    let id = name(id);
                    let expected = match model.get(&id) {
                        None => Err(MemoryError::NotFound { id: id.clone() }),
                        Some(kept) => {
                            kept.reviews.push(review.clone());
                            Ok(kept.clone())
                        }
                    };
                    prop_assert_eq!(memory.review(&id, review), expected);
                }
                Step::Forget(id) => {
                    let id = name(id);
                    let before = model.decisions.len();
                    model.decisions.retain(|kept| kept.id != id);
                    prop_assert_eq!(memory.forget(&id).unwrap(), model.decisions.len() < before);
                }
                Step::Announce(id) => {
                    let id = name(id);
                    let announced = memory.announce(intent(&id, moment)).unwrap();
                    let revisions = model.intents.entry(id).or_default();
                    revisions.push(moment);
                    prop_assert_eq!(announced, revisions.len() as u64);
                }
                Step::Reopen => {
                    memory.close(Duration::from_mins(1)).unwrap();
                    prop_assert_eq!(memory.get("x"), Err(MemoryError::Closed));
                    drop(memory);
                    memory = open(directory.path());
                }
                Step::Look(id) => {
                    let id = name(id);
                    prop_assert_eq!(memory.get(&id).unwrap(), model.get(&id).cloned());
                    let filters = Filters {
                        status: vec![Status::ALL[usize::from(moment % 2 == 0)]],
                        date_after: Some(at(moment / 3)),
                        ..Filters::default()
                    };
                    let mut expected = model.decisions.clone();
                    expected.retain(|kept| filters.admit(kept));
                    let query = Query { filters: filters.clone(), ..Query::new(&*id) };
                    let found = memory.query(&query).unwrap();
                    prop_assert_eq!(found.total, expected.len());
                    let hits: Vec<_> = found.hits.into_iter().map(|hit| hit.decision).collect();
                    if expected.iter().any(|kept| kept.id == id) {
                        prop_assert_eq!(&hits[0].id, &id);
                    }
                    let by_id = |a: &Decision, b: &Decision| a.id.cmp(&b.id);
                    expected.sort_by(by_id);
                    // What has nothing in common with the query is not found.
                    prop_assert!(hits.iter().all(|hit| expected.contains(hit)));
                    let request = ListRequest { filters, limit: 50, after: None };
                    let mut listed = memory.list(&request).unwrap().decisions;
                    prop_assert!(listed.is_sorted_by(|a, b| a.date >= b.date));
                    listed.sort_by(by_id);
                    prop_assert_eq!(&listed, &expected);
                }
            }
        }
        let mut exported = Vec::new();
        memory.export(&mut |decision| { exported.push(decision); true }).unwrap();
        prop_assert_eq!(exported, model.decisions);
        for (id, moments) in model.intents {
            let expected: Vec<_> = moments.into_iter().map(|moment| intent(&id, moment)).collect();
            prop_assert_eq!(memory.intent(&id).unwrap(), expected);
        }
    }
}
