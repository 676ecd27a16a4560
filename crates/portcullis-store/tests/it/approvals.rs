//! Approvals in a file: what every keeper of approvals does, and what a file adds.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use portcullis_core::TimeoutAnswer;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Status, Taken, Which, conformance,
};
use portcullis_store::approvals::OpenError;
use portcullis_store::{ApprovalOptions, SqliteApprovals};
use rusqlite::Connection;
use serde_json::{Value, json};

pub(crate) fn options(directory: &Path) -> ApprovalOptions {
    ApprovalOptions {
        // A loaded machine is no reason to fail.
        busy_timeout: Duration::from_mins(1),
        ..ApprovalOptions::new(directory.join("approvals.db"))
    }
}

pub(crate) fn open(directory: &Path) -> SqliteApprovals {
    SqliteApprovals::open(options(directory)).unwrap()
}

pub(crate) fn yes() -> Answer {
    Answer {
        approve: true,
        by: "robin".to_owned(),
        roles: vec!["duty".to_owned()],
        note: Some("\0 seen — \"twice\"".to_owned()),
    }
}

/// So many seconds after some moment, and not at their beginning.
fn at(second: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + second, 123_456_789).unwrap()
}

fn asked(id: &str, second: i64) -> Approval {
    conformance::example(id, at(second))
}

fn all() -> Which {
    Which {
        limit: usize::MAX,
        ..Which::default()
    }
}

fn of_status(status: Status) -> Which {
    Which {
        status: Some(status),
        ..Which::default()
    }
}

fn race(many: usize, work: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        for n in 0..many {
            scope.spawn(move || work(n));
        }
    });
}

/// What is in the file, seen past everything.
fn raw(directory: &Path) -> Connection {
    Connection::open(options(directory).path).unwrap()
}

/// It fails, says why in these words, and names the file.
fn fails<T: std::fmt::Debug>(result: Result<T, ApprovalError>, words: &str) {
    let Err(ApprovalError::Backend(why)) = result else {
        panic!("{result:?}");
    };
    assert!(
        why.contains(words) && why.contains("approvals.db"),
        "{why}, not {words}"
    );
}

#[test]
fn they_are_approvals() {
    let directories = RefCell::new(Vec::new());
    let make = || -> Box<dyn Approvals> {
        let directory = tempfile::tempdir().unwrap();
        let approvals = open(directory.path());
        directories.borrow_mut().push(directory);
        Box::new(approvals)
    };
    conformance::conforms(&make, &race).unwrap();
}

#[test]
fn of_many_with_the_same_file_one_decides_and_one_takes() {
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<SqliteApprovals> = (0..8).map(|_| open(directory.path())).collect();
    let bound = asked("0", 0).bound;
    for round in 0..10 {
        let id = round.to_string();
        let [created, decided, taken] = [0; 3].map(AtomicUsize::new);
        race(8, &|n| {
            if files[n].create(asked(&id, 0)).is_ok() {
                created.fetch_add(1, SeqCst);
            }
            if files[n].decide(&id, &yes(), at(1)).is_ok() {
                decided.fetch_add(1, SeqCst);
            }
            match files[n].take(&id, &bound, at(2)) {
                Ok(Taken::Approved(_)) => drop(taken.fetch_add(1, SeqCst)),
                Err(ApprovalError::AlreadyTaken { .. }) => {}
                other => panic!("{other:?}"),
            }
        });
        let counts = [created, decided, taken].map(AtomicUsize::into_inner);
        assert_eq!(counts, [1; 3]);
        let kept = files[0].get(&id, at(3)).unwrap().unwrap();
        assert_eq!((kept.status, kept.taken), (Status::Used, Some(at(2))));
    }
}

#[test]
fn many_may_open_a_new_file_at_once() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        race(8, &|n| {
            let id = n.to_string();
            open(directory.path()).create(asked(&id, 0)).unwrap();
        });
        let created = open(directory.path()).list(&all(), at(0)).unwrap();
        assert_eq!(created.len(), 8);
    }
}

#[test]
fn everything_is_there_after_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let approvals = open(directory.path());
    let mut odd = asked("ä\0/'", 0);
    odd.subject = json!({"n": u64::MAX, "x": 0.1 + 0.2, "deep": [{"nul": "\0"}, null]});
    odd.bound.run_id = "'; DROP TABLE approval; --".to_owned();
    odd.expires = None;
    approvals.create(odd.clone()).unwrap();
    let never = Approval {
        expires: Some(Timestamp::MAX),
        on_timeout: TimeoutAnswer::Approve,
        approver_roles: Vec::new(),
        ..asked("never", 1)
    };
    approvals.create(never.clone()).unwrap();
    for n in 0..20 {
        let id = format!("n{n}");
        approvals.create(asked(&id, n)).unwrap();
        if n % 2 == 0 {
            let answer = Answer {
                approve: n % 4 == 0,
                ..yes()
            };
            approvals.decide(&id, &answer, at(n + 1)).unwrap();
        }
        if n % 6 == 0 {
            approvals
                .take(&id, &asked(&id, n).bound, at(n + 2))
                .unwrap();
        }
    }
    let before = approvals.list(&all(), at(20)).unwrap();
    assert_eq!(before.len(), 22);
    drop(approvals);
    assert!(!directory.path().join("approvals.db-wal").exists());
    let approvals = open(directory.path());
    assert_eq!(approvals.list(&all(), at(20)).unwrap(), before);
    assert_eq!(approvals.get(&odd.id, at(20)).unwrap(), Some(odd.clone()));
    assert_eq!(approvals.get("never", at(20)).unwrap(), Some(never));
    let of_run = Which {
        run_id: Some(odd.bound.run_id.clone()),
        ..all()
    };
    assert_eq!(approvals.list(&of_run, at(20)).unwrap(), [odd]);
}

#[test]
fn a_full_file_forgets_the_oldest_that_is_settled() {
    let directory = tempfile::tempdir().unwrap();
    let full = ApprovalOptions {
        most: 3,
        ..options(directory.path())
    };
    let approvals = SqliteApprovals::open(full).unwrap();
    for (id, second) in [("a", 0), ("b", 1), ("c", 2)] {
        approvals.create(asked(id, second)).unwrap();
    }
    let created = approvals.create(asked("d", 3));
    assert_eq!(created, Err(ApprovalError::Full(3)));
    let twice = approvals.create(asked("a", 3));
    assert_eq!(twice, Err(ApprovalError::Exists("a".to_owned())));
    approvals.decide("b", &yes(), at(3)).unwrap();
    approvals.take("b", &asked("b", 1).bound, at(3)).unwrap();
    approvals.create(asked("d", 3)).unwrap();
    // By then `a` has expired, and so has `c`.
    approvals.create(asked("e", 302)).unwrap();
    let ids = |now| -> Vec<String> {
        let listed = approvals.list(&all(), at(now)).unwrap();
        listed.into_iter().map(|approval| approval.id).collect()
    };
    assert_eq!(ids(302), ["c", "d", "e"]);
}

#[test]
fn what_has_been_over_for_long_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let day = 24 * 60 * 60;
    let approvals = open(directory.path());
    let no = Answer {
        approve: false,
        ..yes()
    };
    for id in ["used", "denied", "expired", "waits"] {
        let mut approval = asked(id, 0);
        if id == "waits" {
            approval.expires = None;
        }
        approvals.create(approval).unwrap();
    }
    approvals.decide("used", &yes(), at(1)).unwrap();
    approvals
        .take("used", &asked("used", 0).bound, at(1))
        .unwrap();
    approvals.decide("denied", &no, at(1)).unwrap();
    approvals.create(asked("new", 30 * day)).unwrap();
    assert_eq!(approvals.list(&all(), at(30 * day)).unwrap().len(), 5);
    approvals.create(asked("newer", 30 * day + 301)).unwrap();
    let left = approvals.list(&all(), at(31 * day)).unwrap();
    let left: Vec<&str> = left.iter().map(|approval| approval.id.as_str()).collect();
    assert_eq!(left, ["waits", "new", "newer"]);
    // And it cannot be used: nobody knows it any more.
    let taken = approvals.take("used", &asked("used", 0).bound, at(31 * day));
    assert_eq!(taken, Err(ApprovalError::NotFound("used".to_owned())));
}

/// Rows as they would be, without waiting for the disk each time.
fn fill(directory: &Path, many: usize) {
    open(directory).create(asked("pattern", 0)).unwrap();
    raw(directory)
        .execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1),
             moments AS (SELECT n, printf('id-%06d', n) AS id, 1800000000 + n AS second FROM numbers)
             INSERT INTO approval
             SELECT m.id, 'run-' || (n % 1000), second * 1000000000, status,
                    (second + 300) * 1000000000, later, lapses, taken, (second + 300) * 1000000000,
                    json_set(approval, '$.id', m.id, '$.bound.run_id', 'run-' || (n % 1000),
                        '$.created', strftime('%Y-%m-%dT%H:%M:%SZ', second, 'unixepoch'),
                        '$.expires', strftime('%Y-%m-%dT%H:%M:%SZ', second + 300, 'unixepoch'))
             FROM moments m, approval",
            [i64::try_from(many).unwrap()],
        )
        .unwrap();
}

#[test]
fn a_hundred_thousand_are_listed_without_delay() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 100_000);
    let full = ApprovalOptions {
        most: 100_001,
        ..options(directory.path())
    };
    let approvals = SqliteApprovals::open(full).unwrap();
    let now = at(100_000);
    let of_run = Which {
        run_id: Some("run-7".to_owned()),
        ..of_status(Status::Expired)
    };
    let cases = [
        (Which::default(), "pattern", 100),
        (of_status(Status::Pending), "id-099701", 100),
        (of_status(Status::Expired), "pattern", 100),
        (of_status(Status::Used), "", 0),
        (of_run, "id-000007", 100),
    ];
    let started = Instant::now();
    for (which, first, many) in cases {
        let listed = approvals.list(&which, now).unwrap();
        assert_eq!(listed.len(), many, "{which:?}");
        let found = listed.first().map_or("", |approval| approval.id.as_str());
        assert_eq!(found, first, "{which:?}");
    }
    approvals.create(asked("one more", 100_000)).unwrap();
    assert_eq!(approvals.get("pattern", now).unwrap(), None);
    // A hundredth of it is usual; to read all rows for each would take longer.
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_full_disk_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let small = ApprovalOptions {
        size_limit: Some(300_000),
        ..options(directory.path())
    };
    let approvals = SqliteApprovals::open(small).unwrap();
    let large = |n: usize| Approval {
        subject: json!("many words ".repeat(1000)),
        ..asked(&format!("n{n:03}"), 0)
    };
    let mut kept = 0;
    let failed = loop {
        match approvals.create(large(kept)) {
            Ok(()) => kept += 1,
            failed => break failed,
        }
    };
    assert!(kept > 3, "{kept}");
    fails(failed, "no room");
    // An answer that does not fit is none.
    let note = Some("word ".repeat(10_000));
    let decided = approvals.decide("n000", &Answer { note, ..yes() }, at(1));
    fails(decided, "no room");
    let listed = approvals.list(&all(), at(1)).unwrap();
    let wanted: Vec<Approval> = (0..kept).map(large).collect();
    assert_eq!(listed, wanted);
    drop(approvals);
    // Once there is room it goes on.
    let approvals = open(directory.path());
    approvals.create(large(kept)).unwrap();
    approvals.decide("n000", &yes(), at(1)).unwrap();
}

#[test]
fn another_who_holds_the_lock_too_long_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let impatient = ApprovalOptions {
        busy_timeout: Duration::from_millis(50),
        ..options(directory.path())
    };
    let approvals = SqliteApprovals::open(impatient.clone()).unwrap();
    approvals.create(asked("a", 0)).unwrap();
    let other = raw(directory.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    fails(approvals.decide("a", &yes(), at(1)), "locked");
    // Those who read do not mind.
    assert_eq!(approvals.get("a", at(1)).unwrap(), Some(asked("a", 0)));
    other.execute_batch("ROLLBACK").unwrap();
    approvals.decide("a", &yes(), at(1)).unwrap();
    drop(approvals);
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    let error = SqliteApprovals::open(impatient).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
}

#[test]
fn a_damaged_row_is_named_and_nothing_is_made_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let approvals = open(directory.path());
    let bound = asked("a", 0).bound;
    let damages = [
        "approval = substr(approval, 1, 40)",
        "approval = json_remove(approval, '$.bound')",
        "approval = CAST(x'ff' AS TEXT)",
        "approval = json_set(approval, '$.status', 'approved')",
        "status = 'approved'",
        "status = 'odd'",
        "until = until + 1",
        "until = NULL, later = NULL",
        "over = NULL",
        "taken = 1",
        "run_id = 'run-2'",
        "created = created - 1",
    ];
    for damage in damages {
        raw(directory.path())
            .execute_batch("DELETE FROM approval")
            .unwrap();
        approvals.create(asked("a", 0)).unwrap();
        approvals.create(asked("b", 0)).unwrap();
        let update = format!("UPDATE approval SET {damage} WHERE id = 'a'");
        assert_eq!(raw(directory.path()).execute(&update, []).unwrap(), 1);
        let before = contents(directory.path());
        let named = "approval `a` is damaged";
        fails(approvals.get("a", at(1)), named);
        fails(approvals.list(&all(), at(1)), named);
        fails(approvals.decide("a", &yes(), at(1)), named);
        fails(approvals.take("a", &bound, at(1)), named);
        assert_eq!(contents(directory.path()), before, "{damage}");
        approvals.decide("b", &yes(), at(1)).unwrap();
        approvals.take("b", &bound, at(1)).unwrap();
    }
}

fn contents(directory: &Path) -> Vec<Vec<rusqlite::types::Value>> {
    let connection = raw(directory);
    let mut rows = connection
        .prepare("SELECT *, CAST(approval AS BLOB) FROM approval ORDER BY id")
        .unwrap();
    // As bytes, which are there even where they are no text.
    let columns = (0..9).chain([10]);
    let rows = rows.query_map([], |row| columns.clone().map(|n| row.get(n)).collect());
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), 300);
    let path = options(directory.path()).path;
    let whole = fs::read(&path).unwrap();
    for page in 0..whole.len() / 4096 {
        let mut damaged = whole.clone();
        // The header of the first page says what the file is, and is tested elsewhere.
        let start = page * 4096 + if page == 0 { 100 } else { 0 };
        damaged[start..(page + 1) * 4096].fill(0xA5);
        fs::write(&path, damaged).unwrap();
        let named = |error: String| assert!(error.contains("approvals.db"), "{page}: {error}");
        let approvals = match SqliteApprovals::open(options(directory.path())) {
            Ok(approvals) => approvals,
            Err(error) => {
                named(error.to_string());
                continue;
            }
        };
        let listed = approvals.list(&of_status(Status::Expired), at(9999));
        let results = [
            listed.map(drop),
            approvals.get("id-000007", at(1)).map(drop),
            approvals.decide("id-000007", &yes(), at(1)).map(drop),
            approvals.create(asked("new", 1)),
        ];
        for result in results {
            if let Err(ApprovalError::Backend(why)) = result {
                named(why);
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_to_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).create(asked("a", 0)).unwrap();
    let path = options(directory.path()).path;
    let before = fs::read(&path).unwrap();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for folder in [0o700, 0o500] {
        set(&path, 0o400);
        set(directory.path(), folder);
        // Some may write everywhere.
        if fs::OpenOptions::new().append(true).open(&path).is_err() {
            let error = SqliteApprovals::open(options(directory.path())).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("writ") && error.contains("approvals.db"),
                "{error}"
            );
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        set(directory.path(), 0o700);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_nobody_can_write_to_is_named() {
    // Not even root makes files there.
    let error = SqliteApprovals::open(ApprovalOptions::new("/proc/approvals.db")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("/proc/approvals.db"), "{error}");
}

#[test]
fn what_is_no_file_of_approvals_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let refused = |name: &str| {
        let before = fs::read(at(name)).ok();
        let error = SqliteApprovals::open(ApprovalOptions::new(at(name))).unwrap_err();
        assert_eq!(fs::read(at(name)).ok(), before);
        assert!(error.to_string().contains(name), "{error}");
        error
    };
    fs::create_dir(at("folder")).unwrap();
    assert!(matches!(refused("folder"), OpenError::Directory { .. }));
    fs::write(at("text"), "no database ".repeat(100)).unwrap();
    assert!(matches!(refused("text"), OpenError::NotDatabase { .. }));
    let foreign = Connection::open(at("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(foreign);
    assert!(matches!(refused("foreign"), OpenError::Foreign { .. }));
    drop(crate::memories::open(directory.path()));
    assert!(matches!(refused("memory.db"), OpenError::Foreign { .. }));
    drop(open(directory.path()));
    raw(directory.path())
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let error = refused("approvals.db");
    assert!(
        matches!(error, OpenError::Newer { found: 99, .. }),
        "{error}"
    );
}

#[test]
fn what_json_cannot_hold_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let approvals = open(directory.path());
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    let approval = Approval {
        subject: deep,
        ..asked("a", 0)
    };
    let Err(ApprovalError::Backend(why)) = approvals.create(approval) else {
        panic!("it would never be read again");
    };
    assert!(why.contains("JSON"), "{why}");
    assert_eq!(approvals.get("a", at(1)).unwrap(), None);
}

/// To the nanosecond, and whatever silence means.
#[test]
fn the_list_agrees_with_each_approval_about_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let approvals = open(directory.path());
    for on_timeout in [TimeoutAnswer::Deny, TimeoutAnswer::Approve] {
        for (name, answer) in [("none", None), ("yes", Some(true)), ("no", Some(false))] {
            let approval = Approval {
                on_timeout,
                ..asked(&format!("{on_timeout:?}-{name}"), 0)
            };
            approvals.create(approval.clone()).unwrap();
            if let Some(approve) = answer {
                let answer = Answer { approve, ..yes() };
                approvals.decide(&approval.id, &answer, at(1)).unwrap();
            }
        }
    }
    let nanosecond = SignedDuration::from_nanos(1);
    for now in [at(300) - nanosecond, at(300), at(300) + nanosecond] {
        let listed = approvals.list(&all(), now).unwrap();
        assert_eq!(listed.len(), 6);
        for status in Status::ALL {
            let wanted = listed.iter().filter(|approval| approval.status == status);
            let wanted: Vec<_> = wanted.cloned().collect();
            let found = approvals.list(&of_status(status), now).unwrap();
            assert_eq!(found, wanted, "{status} at {now}");
        }
    }
}

#[cfg(unix)]
#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("new/folder");
    let approvals = open(&folder);
    approvals.create(asked("a", 0)).unwrap();
    let files: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(files.len(), 3);
    for file in files {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_was_removed_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let approvals = open(directory.path());
    approvals.create(asked("a", 0)).unwrap();
    fs::rename(
        directory.path().join("approvals.db"),
        directory.path().join("moved.db"),
    )
    .unwrap();
    fails(approvals.decide("a", &yes(), at(1)), "removed");
    fails(approvals.get("a", at(1)), "removed");
}
