#![cfg(test)]
//! What is left in a log by a disk that fails.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::evidence::{Body, Link, Redactor};
use proptest::prelude::*;
use serde_json::json;

use super::disk::faulty::{FaultyDisk, Outcome};
use super::{
    AppendError, CloseError, Durability, Entries, EvidenceLog, Options, VerifyOptions, verify,
};

fn body(n: usize) -> Body {
    let entry = json!({"event": "test", "n": n});
    Body::new(entry.as_object().unwrap(), &Redactor::none()).unwrap()
}

fn options(directory: &Path, durability: Durability) -> Options {
    Options {
        durability,
        segment_bytes: 700,
        checkpoint_every: 3,
        ..Options::new(directory)
    }
}

fn entries(directory: &Path) -> Vec<(u64, Link)> {
    let entries = Entries::new(directory, 1).map(Result::unwrap);
    entries
        .map(|entry| (entry.value()["n"].as_u64().unwrap(), entry.link))
        .collect()
}

/// Sets what happens from now on. Whatever the log does by itself meanwhile is part of the game.
fn plan(disk: &FaultyDisk, outcomes: &[Outcome]) {
    *disk.plan.lock().unwrap() = VecDeque::from(outcomes.to_vec());
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Fine),
        1 => (0_usize..700).prop_map(Outcome::Fails),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_acknowledged_is_in_the_log_and_what_failed_is_not(
        faults in prop::collection::vec(prop::collection::vec(outcome(), 0..6), 1..12),
        sync: bool,
        patient: bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let durability = if sync { Durability::Fsync } else { Durability::Os };
        let disk = Arc::new(FaultyDisk::new(Vec::new(), sync));
        let open = || EvidenceLog::open_on(options(directory.path(), durability), Arc::clone(&disk) as _);
        let (log, _) = open().unwrap();
        let mut acknowledged = Vec::new();
        for (n, outcomes) in faults.iter().enumerate() {
            plan(&disk, outcomes);
            match log.append_blocking(body(n)) {
                Ok(link) => acknowledged.push((n as u64, link)),
                Err(AppendError::Write(_)) => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
            if patient {
                // What remains of the plan is not kept for later.
                plan(&disk, &[]);
            }
        }
        plan(&disk, &[]);
        // The log comes back by itself.
        let link = log.append_blocking(body(999)).unwrap();
        acknowledged.push((999, link));
        log.close(Duration::from_secs(10)).unwrap();
        prop_assert_eq!(log.stats().appended, acknowledged.len() as u64);
        drop(log);
        prop_assert_eq!(&entries(directory.path()), &acknowledged);
        let report = verify(directory.path(), &VerifyOptions::default(), |_| {}).unwrap();
        prop_assert!(report.is_ok(), "{:?}", report.faults);
        prop_assert_eq!((report.last, report.uncovered), (link, 0));
        let (_, recovery) = open().unwrap();
        prop_assert_eq!((recovery.found, recovery.torn), (link, None));
    }
}

#[test]
fn a_full_disk_fails_those_who_wait_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let options = options(directory.path(), Durability::Fsync);
    let (log, _) = EvidenceLog::open_on(options, Arc::clone(&disk) as _).unwrap();
    log.append_blocking(body(0)).unwrap();
    plan(&disk, &[Outcome::Fails(10)]);
    let error = log.append_blocking(body(1)).unwrap_err().to_string();
    assert!(
        error.contains("cannot write to") && error.contains("evidence-"),
        "{error}"
    );
    let stats = log.stats();
    assert_eq!((stats.appended, stats.failed, stats.last_seq), (1, 1, 1));
    assert!(stats.last_error.is_some());
    assert_eq!(log.append_blocking(body(2)).unwrap().seq, 2);
    assert_eq!(log.stats().last_error, None);
}

#[test]
fn after_a_failed_fsync_the_log_goes_on_in_a_new_segment() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(Vec::new(), true));
    let options = Options {
        segment_bytes: 1 << 20,
        ..options(directory.path(), Durability::Fsync)
    };
    let (log, _) = EvidenceLog::open_on(options, Arc::clone(&disk) as _).unwrap();
    log.append_blocking(body(0)).unwrap();
    plan(&disk, &[Outcome::Fine, Outcome::Fails(5)]);
    log.append_blocking(body(1)).unwrap_err();
    log.append_blocking(body(2)).unwrap();
    let segments = super::segments(directory.path()).unwrap();
    assert_eq!(
        segments
            .iter()
            .map(|segment| segment.first)
            .collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn a_checkpoint_that_fails_is_reported_and_made_up_for() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let (log, _) = EvidenceLog::open_on(
        options(directory.path(), Durability::Fsync),
        Arc::clone(&disk) as _,
    )
    .unwrap();
    log.append_blocking(body(0)).unwrap();
    // Opening the file of checkpoints fails.
    plan(&disk, &[Outcome::Fails(0)]);
    let error = log.close(Duration::from_secs(10)).unwrap_err();
    assert!(matches!(error, CloseError::Checkpoint { .. }), "{error}");
    assert!(log.stats().checkpoint_error.is_some());
    drop(log);
    let (log, recovery) = EvidenceLog::open(options(directory.path(), Durability::Fsync)).unwrap();
    assert_eq!(recovery.checked, 1);
    drop(log);
    let report = verify(directory.path(), &VerifyOptions::default(), |_| {}).unwrap();
    assert_eq!((report.is_ok(), report.uncovered), (true, 0));
}
