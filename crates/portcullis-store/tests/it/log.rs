//! Writing, closing, opening again and reading.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::evidence::{Body, Chain, Redactor, SigningKey};
use portcullis_store::evidence::{
    AppendError, Durability, Entries, EvidenceLog, OpenError, Options, ReadError, VerifyOptions,
    segments, verify,
};
use proptest::prelude::*;
use serde_json::Map;

use crate::files::{body, check, small, write};

const BOTH: [Durability; 2] = [Durability::Fsync, Durability::Os];

fn with(directory: &std::path::Path, durability: Durability) -> Options {
    Options {
        durability,
        ..small(directory)
    }
}

#[test]
fn a_log_goes_on_where_it_was_left() {
    for durability in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let first = write(with(directory.path(), durability), 10);
        let (log, recovery) = EvidenceLog::open(with(directory.path(), durability)).unwrap();
        assert_eq!((recovery.created, recovery.found), (false, first[9]));
        assert_eq!((recovery.checked, recovery.torn), (0, None));
        assert_eq!(log.append_blocking(body(10)).unwrap().seq, 11);
        drop(log);
        let report = check(directory.path());
        assert!(report.is_ok(), "{:?}", report.faults);
        assert_eq!(
            (report.entries, report.last.seq, report.uncovered),
            (11, 11, 0)
        );
        assert!(report.segments > 2 && report.checkpoints >= 3, "{report:?}");
        let read: Vec<_> = Entries::new(directory.path(), 4)
            .map(Result::unwrap)
            .collect();
        assert_eq!(read.len(), 8);
        assert_eq!(
            (read[0].link, &read[0].value()["evaluated"]),
            (first[3], &3.into())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_append_together_each_get_their_own_entry() {
    for durability in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = EvidenceLog::open(with(directory.path(), durability)).unwrap();
        let log = Arc::new(log);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut links = Vec::new();
                    for n in 0..20 {
                        links.push((
                            task * 100 + n,
                            log.append(body(task * 100 + n)).await.unwrap(),
                        ));
                    }
                    links
                })
            })
            .collect();
        let mut links = Vec::new();
        for task in tasks {
            let mine = task.await.unwrap();
            assert!(mine.is_sorted_by_key(|(_, link)| link.seq));
            links.extend(mine);
        }
        links.sort_by_key(|(_, link)| link.seq);
        log.close(Duration::from_secs(10)).unwrap();
        assert!(matches!(
            log.append(body(0)).await,
            Err(AppendError::Closed)
        ));
        let stats = log.stats();
        assert_eq!((stats.appended, stats.failed, stats.queued), (320, 0, 0));
        assert_eq!((stats.last_seq, stats.checkpoint_seq), (320, 320));
        let read = Entries::new(directory.path(), 1).map(Result::unwrap);
        let read = read.map(|entry| (entry.value()["evaluated"].as_u64().unwrap(), entry.link));
        assert!(read.eq(links));
        assert!(check(directory.path()).is_ok());
    }
}

#[test]
fn one_process_writes_and_others_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EvidenceLog::open(small(directory.path())).unwrap();
    let error = EvidenceLog::open(small(directory.path())).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(log);
    assert!(EvidenceLog::open(small(directory.path())).is_ok());
}

#[test]
fn the_beginning_of_an_entry_is_cut_off_and_the_log_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let links = write(small(directory.path()), 4);
    let last = segments(directory.path()).unwrap().pop().unwrap();
    let mut file = fs::File::options().append(true).open(&last.path).unwrap();
    file.write_all(br#"{"action":"Depl"#).unwrap();
    assert_eq!(check(directory.path()).torn_bytes, 15);
    let (log, recovery) = EvidenceLog::open(small(directory.path())).unwrap();
    assert_eq!(recovery.found, links[3]);
    assert_eq!(recovery.torn.unwrap().bytes, 15);
    drop(log);
    let entry = Entries::new(directory.path(), 5).next().unwrap().unwrap();
    assert_eq!(entry.value()["event"], "evidence_recovered");
    assert_eq!(entry.value()["discarded_bytes"], 15);
    assert!(check(directory.path()).is_ok());
}

#[test]
fn a_log_whose_end_is_missing_or_changed_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    write(small(directory.path()), 4);
    let last = segments(directory.path()).unwrap().pop().unwrap();
    let text = fs::read(&last.path).unwrap();
    let refused = || {
        let error = EvidenceLog::open(small(directory.path())).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        error.to_string()
    };
    fs::write(&last.path, &text[..text.len() - 40]).unwrap();
    assert!(refused().contains("cut off"));
    let mut edited = text.clone();
    // What was signed last; before that, only a check of the whole log looks.
    edited[text.len() - 20] ^= 1;
    fs::write(&last.path, &edited).unwrap();
    assert!(refused().contains("not the one that was signed"));
    fs::remove_file(&last.path).unwrap();
    assert!(refused().contains("missing"));
    fs::write(&last.path, &text).unwrap();
    fs::remove_file(directory.path().join("checkpoints.ndjson")).unwrap();
    assert!(refused().contains("no checkpoints"));
}

#[test]
fn a_log_is_not_opened_with_another_key() {
    let directory = tempfile::tempdir().unwrap();
    write(small(directory.path()), 1);
    let options = Options {
        key: Some(SigningKey::from_seed([1; 32])),
        ..small(directory.path())
    };
    let error = EvidenceLog::open(options).unwrap_err();
    assert!(matches!(error, OpenError::OtherKey { .. }), "{error}");
    assert!(check(directory.path()).is_ok());
}

#[cfg(unix)]
#[test]
fn entries_are_not_written_into_a_file_that_was_removed() {
    for durability in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = EvidenceLog::open(with(directory.path(), durability)).unwrap();
        log.append_blocking(body(0)).unwrap();
        fs::remove_dir_all(directory.path()).unwrap();
        let error = log.append_blocking(body(1)).unwrap_err().to_string();
        assert!(error.contains("removed"), "{error}");
        log.append_blocking(body(2)).unwrap_err();
    }
}

#[test]
fn a_log_can_be_followed_and_checked_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EvidenceLog::open(small(directory.path())).unwrap();
    let mut following = Entries::new(directory.path(), 1);
    assert!(following.next().is_none());
    for n in 0..12 {
        let link = log.append_blocking(body(n)).unwrap();
        assert_eq!(following.next().unwrap().unwrap().link, link);
        assert!(following.next().is_none());
        let report = check(directory.path());
        assert!(report.is_ok(), "{:?}", report.faults);
        assert_eq!(report.last, link);
    }
}

#[test]
fn an_archived_beginning_is_given_by_its_last_entry() {
    let directory = tempfile::tempdir().unwrap();
    let links = write(small(directory.path()), 12);
    let segments = segments(directory.path()).unwrap();
    fs::remove_file(&segments[0].path).unwrap();
    assert!(!check(directory.path()).is_ok());
    let last = links[segments[1].first as usize - 2];
    let check = |start| {
        let options = VerifyOptions {
            start: Some(start),
            ..VerifyOptions::default()
        };
        verify(directory.path(), &options, |_| {}).unwrap()
    };
    let report = check(last);
    assert!(report.is_ok(), "{:?}", report.faults);
    assert_eq!(report.first_seq, segments[1].first);
    assert!(!check(links[0]).is_ok());
    // The log itself goes on without it.
    assert!(EvidenceLog::open(small(directory.path())).is_ok());
}

#[test]
fn a_directory_without_a_log_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = verify(directory.path(), &VerifyOptions::default(), |_| {}).unwrap_err();
    assert!(matches!(error, ReadError::NoLog { .. }), "{error}");
}

#[test]
fn progress_ends_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    write(small(directory.path()), 12);
    let mut last = None;
    verify(directory.path(), &VerifyOptions::default(), |progress| {
        last = Some(progress);
    })
    .unwrap();
    let last = last.unwrap();
    assert_eq!(last.done, last.total);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_way_of_grouping_entries_gives_the_same_chain(pauses in prop::collection::vec(0_u8..3, 1..24)) {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = EvidenceLog::open(with(directory.path(), Durability::Fsync)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut appends = Vec::new();
            for (n, pause) in pauses.iter().enumerate() {
                let mut append = Box::pin(log.append(body(n as u64)));
                // Polled once, it waits in the queue.
                let first = std::future::poll_fn(|context| std::task::Poll::Ready(append.as_mut().poll(context))).await;
                assert!(first.is_pending() || first.is_ready());
                if first.is_pending() {
                    appends.push(append);
                }
                if *pause == 0 {
                    for append in appends.drain(..) {
                        append.await.unwrap();
                    }
                }
            }
            for append in appends {
                append.await.unwrap();
            }
        });
        let mut chain = Chain::START;
        for n in 0..pauses.len() as u64 {
            chain.append(&body(n), &mut Vec::new()).unwrap();
        }
        drop(log);
        prop_assert_eq!(check(directory.path()).last, chain.head());
    }
}

#[test]
fn an_entry_may_be_empty_or_large() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EvidenceLog::open(Options::new(directory.path())).unwrap();
    log.append_blocking(Body::new(&Map::new(), &Redactor::none()).unwrap())
        .unwrap();
    let large = Map::from_iter([("text".to_owned(), "x".repeat(3 << 20).into())]);
    log.append_blocking(Body::new(&large, &Redactor::none()).unwrap())
        .unwrap();
    drop(log);
    assert!(check(directory.path()).is_ok());
    assert!(EvidenceLog::open(Options::new(directory.path())).is_ok());
}
