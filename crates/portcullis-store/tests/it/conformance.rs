//! What every backend of the memory does. One is tested by running [`all`] with a way to open it.

use std::path::Path;

use portcullis_core::guardrails::Stakes;
use portcullis_core::memory::{Decision, Filters, ListRequest, Outcome, Query, Status};
use portcullis_store::memory::{Memory, MemoryError, Recorded};

use crate::memories::{at, bare, decision, intent, review};

/// Opens the memory that is kept in this directory. All there is to keep must be in it.
pub(crate) type Open = fn(&Path) -> Box<dyn Memory>;

/// Looks at the memory of a directory.
type Check = fn(&Path, Open);

/// Each begins with an empty memory.
const CHECKS: &[(&str, Check)] = &[
    ("what is recorded is there", what_is_recorded_is_there),
    ("a repetition changes nothing", a_repetition_changes_nothing),
    ("reviews are a history", reviews_are_a_history),
    ("what is forgotten is gone", what_is_forgotten_is_gone),
    ("lists begin with the latest", lists_begin_with_the_latest),
    ("pages follow each other", pages_follow_each_other),
    ("filters admit what they say", filters_admit_what_they_say),
    ("the nearest comes first", the_nearest_comes_first),
    (
        "an id or a title finds its own",
        an_id_or_a_title_finds_its_own,
    ),
    (
        "the track record is of the reviewed",
        the_track_record_is_of_the_reviewed,
    ),
    ("an export is of one moment", an_export_is_of_one_moment),
    ("an export ends when told", an_export_ends_when_told),
    ("intents have revisions", intents_have_revisions),
    (
        "what was acknowledged is there again",
        what_was_acknowledged_is_there_again,
    ),
    ("many write at once", many_write_at_once),
];

pub(crate) fn all(open: Open) {
    for (name, check) in CHECKS {
        println!("{name}");
        let directory = tempfile::tempdir().unwrap();
        check(directory.path(), open);
    }
}

fn list(filters: Filters) -> ListRequest {
    ListRequest {
        filters,
        limit: 50,
        after: None,
    }
}

fn ids(decisions: &[Decision]) -> Vec<&str> {
    decisions
        .iter()
        .map(|decision| decision.id.as_str())
        .collect()
}

/// The ids of what is found, in their order.
fn found(memory: &dyn Memory, query: &Query) -> Vec<String> {
    let found = memory.query(query).unwrap();
    assert!(found.hits.len() <= query.limit);
    assert!(found.hits.is_sorted_by_key(|hit| hit.distance));
    assert!(
        found
            .hits
            .iter()
            .all(|hit| (0.0..=1.0).contains(&hit.distance))
    );
    assert!(
        found
            .hits
            .iter()
            .all(|hit| query.filters.admit(&hit.decision))
    );
    let hits = found.hits.into_iter();
    hits.map(|hit| hit.decision.id).collect()
}

fn what_is_recorded_is_there(directory: &Path, open: Open) {
    let memory = open(directory);
    assert_eq!(memory.get("full").unwrap(), None);
    assert_eq!(memory.record(Vec::new()).unwrap(), []);
    let mut full = decision("full", "use sqlite", 1);
    full.reviews = vec![review(Outcome::Failure, 2), review(Outcome::Partial, 3)];
    let odd = bare(
        "'; DROP TABLE decision; -- é\u{1F600}",
        "a\0b\n\u{FFFD}",
        -5,
    );
    let all = vec![full.clone(), odd.clone()];
    assert_eq!(memory.record(all).unwrap(), [Recorded::New, Recorded::New]);
    assert_eq!(memory.get("full").unwrap(), Some(full));
    assert_eq!(memory.get(&odd.id).unwrap(), Some(odd));
    assert_eq!(memory.get("FULL").unwrap(), None);
    let state = memory.state().unwrap();
    assert_eq!((state.decisions, state.unembedded), (2, 0));
    assert_eq!(state.trouble, None);
    assert!(!state.model.is_empty());
}

fn a_repetition_changes_nothing(directory: &Path, open: Open) {
    use Recorded::{New, Same, Taken};
    let memory = open(directory);
    let first = decision("x", "use sqlite", 1);
    let again = Decision {
        date: at(9),
        review_by: None,
        ..first.clone()
    };
    let other = Decision {
        confidence: Some(0.8),
        ..first.clone()
    };
    let y = bare("y", "another", 2);
    let all = vec![first.clone(), again.clone(), other.clone(), y];
    assert_eq!(memory.record(all).unwrap(), [New, Same, Taken, New]);
    memory.review("x", review(Outcome::Success, 3)).unwrap();
    assert_eq!(memory.record(vec![again, other]).unwrap(), [Same, Taken]);
    let kept = memory.get("x").unwrap().unwrap();
    assert_eq!((kept.date, kept.confidence), (first.date, Some(0.7)));
    assert_eq!(kept.reviews.len(), 1);
    assert_eq!(memory.state().unwrap().decisions, 2);
}

fn reviews_are_a_history(directory: &Path, open: Open) {
    let memory = open(directory);
    let missing = memory.review("x", review(Outcome::Success, 1));
    let id = "x".to_owned();
    assert_eq!(missing, Err(MemoryError::NotFound { id }));
    memory.record(vec![decision("x", "use sqlite", 1)]).unwrap();
    let first = memory.review("x", review(Outcome::Failure, 2)).unwrap();
    assert_eq!(first.outcome(), Some(Outcome::Failure));
    let second = memory.review("x", review(Outcome::Success, 1)).unwrap();
    assert_eq!(second.outcome(), Some(Outcome::Success));
    assert_eq!(
        second.reviews,
        [review(Outcome::Failure, 2), review(Outcome::Success, 1)]
    );
    assert_eq!(memory.get("x").unwrap(), Some(second));
    // It is found by what was learned, too.
    assert_eq!(found(&*memory, &Query::new("measure first")), ["x"]);
}

fn what_is_forgotten_is_gone(directory: &Path, open: Open) {
    let memory = open(directory);
    assert!(!memory.forget("x").unwrap());
    let x = decision("x", "use sqlite", 1);
    memory
        .record(vec![x.clone(), bare("y", "use redis", 2)])
        .unwrap();
    memory.review("x", review(Outcome::Success, 3)).unwrap();
    assert!(memory.forget("x").unwrap());
    assert!(!memory.forget("x").unwrap());
    assert_eq!(memory.get("x").unwrap(), None);
    let listing = memory.list(&list(Filters::default())).unwrap();
    assert_eq!((ids(&listing.decisions), listing.total), (vec!["y"], 1));
    assert_eq!(found(&*memory, &Query::new("use")), ["y"]);
    assert_eq!(memory.track_record(&Filters::default()).unwrap(), []);
    assert_eq!(memory.state().unwrap().decisions, 1);
    // Nothing of it comes back with another of its id.
    assert_eq!(memory.record(vec![x.clone()]).unwrap(), [Recorded::New]);
    assert_eq!(memory.get("x").unwrap(), Some(x));
    drop(memory);
    let memory = open(directory);
    let listing = memory.list(&list(Filters::default())).unwrap();
    assert_eq!(ids(&listing.decisions), ["y", "x"]);
}

fn lists_begin_with_the_latest(directory: &Path, open: Open) {
    let memory = open(directory);
    assert_eq!(memory.list(&list(Filters::default())).unwrap().total, 0);
    for (id, second) in [("b", 20), ("d", 40), ("a", 10), ("c", 30)] {
        memory.record(vec![bare(id, "it", second)]).unwrap();
    }
    let listing = memory.list(&list(Filters::default())).unwrap();
    assert_eq!(ids(&listing.decisions), ["d", "c", "b", "a"]);
    assert_eq!((listing.total, listing.next), (4, None));
}

fn pages_follow_each_other(directory: &Path, open: Open) {
    let memory = open(directory);
    // Some at the same time.
    let all = (0..23).map(|n| decision(&format!("d{n}"), "it", n / 3));
    memory.record(all.collect()).unwrap();
    memory.record(vec![bare("other", "it", 4)]).unwrap();
    for limit in [1, 4, 23, 50] {
        let mut request = ListRequest {
            filters: Filters::of_category(Some("architecture")),
            limit,
            after: None,
        };
        let mut seen = Vec::new();
        loop {
            let page = memory.list(&request).unwrap();
            assert_eq!(page.total, 23);
            assert!(page.decisions.len() <= limit);
            seen.extend(page.decisions);
            if page.next.is_none() {
                break;
            }
            assert_eq!(page.next, seen.last().map(|last| last.id.clone()));
            request.after = page.next;
        }
        assert!(seen.is_sorted_by(|a, b| a.date >= b.date));
        let mut seen = ids(&seen);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 23, "{limit}");
    }
    let unknown = ListRequest {
        after: Some("nobody".to_owned()),
        ..list(Filters::default())
    };
    let error = memory.list(&unknown).unwrap_err();
    assert!(matches!(error, MemoryError::NotFound { id } if id == "nobody"));
}

/// Every filter, alone and with others.
fn filters() -> Vec<Filters> {
    let none = Filters::default;
    vec![
        none(),
        Filters::of_category(Some("architecture")),
        Filters::of_category(Some("Architecture")),
        Filters {
            min_confidence: Some(0.7),
            ..none()
        },
        Filters {
            max_confidence: Some(0.7),
            ..none()
        },
        Filters {
            min_confidence: Some(0.71),
            max_confidence: Some(0.95),
            ..none()
        },
        Filters {
            date_after: Some(at(3)),
            ..none()
        },
        Filters {
            date_before: Some(at(3)),
            ..none()
        },
        Filters {
            date_after: Some(at(2)),
            date_before: Some(at(5)),
            ..none()
        },
        Filters {
            stakes: vec![Stakes::Low],
            ..none()
        },
        Filters {
            stakes: vec![Stakes::High, Stakes::Critical],
            ..none()
        },
        Filters {
            status: vec![Status::Pending],
            ..none()
        },
        Filters {
            status: vec![Status::Reviewed],
            ..none()
        },
        Filters {
            status: Status::ALL.to_vec(),
            ..none()
        },
        Filters {
            outcome: vec![Outcome::Success, Outcome::Partial],
            ..none()
        },
        Filters {
            outcome: vec![Outcome::Abandoned],
            ..none()
        },
        Filters {
            tags: vec!["b c".to_owned()],
            ..none()
        },
        Filters {
            tags: vec!["b c".to_owned(), "z".to_owned()],
            ..none()
        },
        Filters {
            agent: Some("emerson".to_owned()),
            ..none()
        },
        Filters {
            agent: Some("nobody".to_owned()),
            ..none()
        },
        Filters {
            category: Some("architecture".to_owned()),
            min_confidence: Some(0.2),
            stakes: vec![Stakes::High],
            status: vec![Status::Reviewed],
            outcome: vec![Outcome::Success],
            tags: vec!["a".to_owned()],
            agent: Some("emerson".to_owned()),
            ..none()
        },
    ]
}

fn filters_admit_what_they_say(directory: &Path, open: Open) {
    let memory = open(directory);
    let full = decision("full", "cache it", 1);
    let sure = Decision {
        confidence: Some(0.9),
        ..decision("sure", "cache it well", 2)
    };
    let tagged = Decision {
        tags: vec!["b c".to_owned(), "z".to_owned()],
        ..bare("tagged", "cache", 3)
    };
    let other = Decision {
        category: Some("process".to_owned()),
        ..decision("other", "never cache", 4)
    };
    let bare = bare("bare", "cache", 5);
    let mut all = vec![full, sure, tagged, other, bare];
    memory.record(all.clone()).unwrap();
    for (id, outcome) in [
        ("full", Outcome::Success),
        ("other", Outcome::Partial),
        ("bare", Outcome::Failure),
    ] {
        let reviewed = memory.review(id, review(outcome, 9)).unwrap();
        *all.iter_mut().find(|decision| decision.id == id).unwrap() = reviewed;
    }
    for filters in filters() {
        let mut admitted: Vec<&str> = all
            .iter()
            .filter(|decision| filters.admit(decision))
            .map(|decision| decision.id.as_str())
            .collect();
        admitted.reverse();
        let listing = memory.list(&list(filters.clone())).unwrap();
        assert_eq!(ids(&listing.decisions), admitted, "{filters:?}");
        assert_eq!(listing.total, admitted.len(), "{filters:?}");
        let query = Query {
            filters: filters.clone(),
            ..Query::new("cache")
        };
        assert_eq!(memory.query(&query).unwrap().total, admitted.len());
        let mut by_query = found(&*memory, &query);
        by_query.sort_unstable();
        admitted.sort_unstable();
        assert_eq!(by_query, admitted, "{filters:?}");
        let mut record = memory.track_record(&filters).unwrap();
        let mut expected: Vec<_> = all
            .iter()
            .filter(|decision| filters.admit(decision))
            .filter_map(|decision| decision.confidence.zip(decision.outcome()))
            .collect();
        for record in [&mut record, &mut expected] {
            record.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.as_str().cmp(b.1.as_str())));
        }
        assert_eq!(record, expected, "{filters:?}");
    }
}

fn the_nearest_comes_first(directory: &Path, open: Open) {
    let memory = open(directory);
    let none = memory.query(&Query::new("anything")).unwrap();
    assert_eq!((none.hits.len(), none.total), (0, 0));
    let texts = [
        ("sql", "use sqlite as the embedded database"),
        ("redis", "put a redis cache in front of the service"),
        ("rust", "rewrite the parser in rust"),
        ("tea", "drink tea at four"),
    ];
    let all = texts
        .iter()
        .zip(1..)
        .map(|((id, text), n)| bare(id, text, n));
    memory.record(all.collect()).unwrap();
    for (text, nearest) in [
        ("which embedded database to use", "sql"),
        ("a cache in front of it", "redis"),
        ("parser rewrite", "rust"),
    ] {
        let query = Query {
            limit: 2,
            ..Query::new(text)
        };
        let hits = found(&*memory, &query);
        assert_eq!(hits[0], nearest, "{text}");
        assert_eq!(memory.query(&query).unwrap().total, 4);
        let only_tea = Filters {
            date_after: Some(at(4)),
            ..Filters::default()
        };
        assert_eq!(
            found(
                &*memory,
                &Query {
                    filters: only_tea,
                    ..Query::new(format!("{text} and tea"))
                }
            ),
            ["tea"]
        );
    }
    // Words that nobody has ever used find nothing in particular, but do not fail.
    memory.query(&Query::new("?!")).unwrap();
}

fn an_id_or_a_title_finds_its_own(directory: &Path, open: Open) {
    let memory = open(directory);
    let all = (0..30).map(|n| {
        bare(
            &format!("dec-{n}"),
            &format!("use dec-{n} or dec-7 as it is"),
            n,
        )
    });
    memory.record(all.collect()).unwrap();
    memory
        .record(vec![decision(
            "own title",
            "Deploy on Friday\nand hope",
            99,
        )])
        .unwrap();
    for text in ["dec-7", "  dec-7\n"] {
        let query = Query {
            limit: 3,
            ..Query::new(text)
        };
        let answer = memory.query(&query).unwrap();
        assert_eq!(answer.hits[0].decision.id, "dec-7");
        assert_eq!(answer.hits[0].distance, 0.0);
        assert_eq!(answer.total, 31);
        let hits = found(&*memory, &query);
        assert_eq!(hits.len(), 3);
        assert!(!hits[1..].contains(&"dec-7".to_owned()));
    }
    let not_it = Filters {
        date_after: Some(at(8)),
        ..Filters::default()
    };
    let query = Query {
        filters: not_it,
        ..Query::new("dec-7")
    };
    assert!(!found(&*memory, &query).contains(&"dec-7".to_owned()));
    let answer = memory.query(&Query::new("Deploy on Friday")).unwrap();
    assert_eq!(answer.hits[0].decision.id, "own title");
    let answer = memory
        .query(&Query {
            limit: 1,
            ..Query::new("own title")
        })
        .unwrap();
    assert_eq!((answer.hits.len(), answer.hits[0].distance), (1, 0.0));
}

fn the_track_record_is_of_the_reviewed(directory: &Path, open: Open) {
    let memory = open(directory);
    memory
        .record(vec![
            decision("a", "it", 1),
            decision("b", "it", 2),
            bare("c", "it", 3),
        ])
        .unwrap();
    assert_eq!(memory.track_record(&Filters::default()).unwrap(), []);
    memory.review("a", review(Outcome::Failure, 4)).unwrap();
    memory.review("a", review(Outcome::Success, 5)).unwrap();
    // How sure anybody was of it is not known.
    memory.review("c", review(Outcome::Success, 6)).unwrap();
    let record = memory.track_record(&Filters::default()).unwrap();
    assert_eq!(record, [(0.7, Outcome::Success)]);
}

fn an_export_is_of_one_moment(directory: &Path, open: Open) {
    let memory = open(directory);
    let all: Vec<_> = (0..40)
        .map(|n| decision(&format!("d{n}"), "it", 100 - n))
        .collect();
    memory.record(all.clone()).unwrap();
    let mut exported = Vec::new();
    let mut each = |decision: Decision| {
        let n = exported.len();
        // Others go on: what is behind changes and vanishes, and what is new comes after.
        memory
            .record(vec![bare(&format!("new{n}"), "it", 0)])
            .unwrap();
        memory.review("d39", review(Outcome::Success, 1)).unwrap();
        memory.forget("d38").unwrap();
        exported.push(decision);
        true
    };
    memory.export(&mut each).unwrap();
    assert_eq!(exported, all);
    let mut count = 0;
    memory
        .export(&mut |_| {
            count += 1;
            true
        })
        .unwrap();
    assert_eq!(count, 79);
}

fn an_export_ends_when_told(directory: &Path, open: Open) {
    let memory = open(directory);
    let all = (0..10).map(|n| bare(&format!("d{n}"), "it", n));
    memory.record(all.collect()).unwrap();
    let mut count = 0;
    memory
        .export(&mut |_| {
            count += 1;
            count < 3
        })
        .unwrap();
    assert_eq!(count, 3);
}

fn intents_have_revisions(directory: &Path, open: Open) {
    let hostile = [
        "plain",
        "'; DROP TABLE intent; --",
        "\"quoted\"",
        "a\0b",
        "a\0c",
        "a",
        "../../etc/passwd",
        "%_*?",
        "é",
        "e\u{301}",
        " ",
        "\u{1F600}\u{202E}",
        "PLAIN",
    ];
    let memory = open(directory);
    assert_eq!(memory.intent("plain").unwrap(), []);
    for revision in 1..=3 {
        for (n, id) in hostile
            .iter()
            .zip(1..)
            .map(|(id, n)| (n * 10 + revision, id))
        {
            let announced = memory.announce(intent(id, n)).unwrap();
            assert_eq!(announced, revision.unsigned_abs(), "{id:?}");
        }
    }
    for memory in [memory, open(directory)] {
        for (id, n) in hostile.iter().zip(1..) {
            let revisions: Vec<_> = (1..=3)
                .map(|revision| intent(id, n * 10 + revision))
                .collect();
            assert_eq!(memory.intent(id).unwrap(), revisions, "{id:?}");
        }
        assert_eq!(memory.state().unwrap().decisions, 0);
    }
}

fn what_was_acknowledged_is_there_again(directory: &Path, open: Open) {
    let mut expected: Vec<Decision> = Vec::new();
    for round in 0..4 {
        let memory = open(directory);
        let listing = memory.list(&list(Filters::default())).unwrap();
        let mut listed = listing.decisions;
        listed.reverse();
        assert_eq!(listed, expected, "{round}");
        assert_eq!(memory.state().unwrap().decisions, expected.len());
        assert_eq!(memory.state().unwrap().unembedded, 0);
        let new = decision(&format!("d{round}"), &format!("decide {round}"), round);
        memory.record(vec![new]).unwrap();
        expected.push(
            memory
                .review(&format!("d{round}"), review(Outcome::Partial, round))
                .unwrap(),
        );
        memory.record(vec![bare("gone", "it", 99)]).unwrap();
        memory.forget("gone").unwrap();
        memory.announce(intent("once a round", round)).unwrap();
        let nearest = found(&*memory, &Query::new(format!("decide {round}")));
        assert_eq!(nearest[0], format!("d{round}"));
    }
    assert_eq!(open(directory).intent("once a round").unwrap().len(), 4);
}

fn many_write_at_once(directory: &Path, open: Open) {
    let memory = open(directory);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let memory = &*memory;
            scope.spawn(move || {
                for n in 0..10 {
                    let id = format!("{thread}-{n}");
                    let new = bare(&id, &format!("word{thread} word{n}"), n);
                    assert_eq!(memory.record(vec![new]).unwrap(), [Recorded::New]);
                    // What is acknowledged is in every answer.
                    assert_eq!(
                        found(
                            memory,
                            &Query {
                                limit: 1,
                                ..Query::new(&*id)
                            }
                        ),
                        [id.as_str()]
                    );
                    assert_eq!(
                        memory.review(&id, review(Outcome::Success, 1)).unwrap().id,
                        id
                    );
                    memory.announce(intent("shared", n)).unwrap();
                    if n % 2 == 1 {
                        assert!(memory.forget(&id).unwrap());
                        assert!(!found(memory, &Query::new(&*id)).contains(&id));
                    }
                }
            });
        }
    });
    assert_eq!(memory.state().unwrap().decisions, 80);
    // All are kept, and the last hundred told.
    assert_eq!(memory.intent("shared").unwrap().len(), 100);
    assert_eq!(memory.announce(intent("shared", 1)).unwrap(), 161);
    drop(memory);
    let memory = open(directory);
    assert_eq!(memory.list(&list(Filters::default())).unwrap().total, 80);
}
