//! What the memory in a file does beyond what every memory does.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use portcullis_core::memory::{Filters, Outcome, Query};
use portcullis_store::memory::{
    Memory as _, MemoryError, OpenError, Recorded, SqliteMemory, SqliteOptions,
};
use rusqlite::Connection;

use crate::conformance;
use crate::memories::{WordCounter, bare, decision, eventually, intent, open, options, review};

#[test]
fn it_is_a_memory() {
    conformance::all(|directory| Box::new(open(directory)));
}

fn ids(memory: &SqliteMemory, text: &str) -> Vec<String> {
    let found = memory.query(&Query::new(text)).unwrap();
    let hits = found.hits.into_iter();
    hits.map(|hit| hit.decision.id).collect()
}

/// Why it does not open, which must name the file.
fn refused(options: SqliteOptions) -> OpenError {
    let path = options.path.clone();
    let error = SqliteMemory::open(options, WordCounter::new("words-1", true)).unwrap_err();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(error.to_string().contains(name), "{error}");
    error
}

#[test]
fn a_quarantine_is_kept_until_it_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let keep = |memory: &SqliteMemory, run: &str, why: &str| {
        memory.quarantine(run.to_owned(), why.to_owned()).unwrap();
    };
    let memory = open(directory.path());
    assert_eq!(memory.quarantined(), Ok(Vec::new()));
    keep(&memory, "a", "first");
    keep(&memory, "ä\0/'", "why");
    keep(&memory, "a", "second");
    memory.release("nobody".to_owned()).unwrap();
    drop(memory);
    let memory = open(directory.path());
    let all = |memory: &SqliteMemory| memory.quarantined().unwrap();
    let one = |run: &str, why: &str| (run.to_owned(), why.to_owned());
    assert_eq!(all(&memory), [one("a", "first"), one("ä\0/'", "why")]);
    memory.release("a".to_owned()).unwrap();
    drop(memory);
    assert_eq!(all(&open(directory.path())), [one("ä\0/'", "why")]);
}

#[test]
fn what_another_writes_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = [open(directory.path()), open(directory.path())];
    other.record(vec![bare("theirs", "gamma", 1)]).unwrap();
    eventually("it is heard of", || !ids(&one, "gamma").is_empty());
    // Whoever writes hears of all that was written before.
    let many = (0..700).map(|n| bare(&format!("d{n}"), "delta", n));
    other.record(many.collect()).unwrap();
    other.forget("theirs").unwrap();
    other.review("d699", review(Outcome::Failure, 1)).unwrap();
    assert_eq!(
        one.record(vec![bare("d1", "delta", 1), bare("ours", "gamma", 2)]),
        Ok(vec![Recorded::Same, Recorded::New])
    );
    assert_eq!(one.state().unwrap().decisions, 701);
    assert_eq!(ids(&one, "gamma")[0], "ours");
    let failed = Filters {
        outcome: vec![Outcome::Failure],
        ..Filters::default()
    };
    let query = Query {
        filters: failed,
        ..Query::new("delta")
    };
    assert_eq!(one.query(&query).unwrap().total, 1);
    eventually("the other hears of ours", || {
        other.state().unwrap().decisions == 701
    });
}

#[test]
fn those_who_write_together_share_commits() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let memory = &memory;
            scope.spawn(move || {
                for n in 0..25 {
                    let id = format!("{thread}-{n}");
                    memory.record(vec![bare(&id, "it", n)]).unwrap();
                }
            });
        }
    });
    let stats = memory.stats();
    assert_eq!((stats.written, stats.failed, stats.queued), (400, 0, 0));
    assert!(stats.commits < 200, "{stats:?}");
}

#[test]
fn one_that_fails_does_not_fail_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    memory.record(vec![bare("x", "it", 1)]).unwrap();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let memory = &memory;
            scope.spawn(move || {
                let id = if n % 2 == 0 { "x" } else { "nobody" };
                let reviewed = memory.review(id, review(Outcome::Success, n));
                assert_eq!(reviewed.is_ok(), n % 2 == 0);
            });
        }
    });
    assert_eq!(memory.get("x").unwrap().unwrap().reviews.len(), 8);
}

#[test]
fn a_full_disk_fails_what_waits_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        size_limit: Some(400_000),
        ..options(directory.path())
    };
    let memory = SqliteMemory::open(options, WordCounter::new("words-1", true)).unwrap();
    let large = |n: i64| bare(&format!("d{n}"), &"many words ".repeat(2000), n);
    let mut kept = 0;
    let error = loop {
        match memory.record(vec![large(kept)]) {
            Ok(_) => kept += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(kept > 3, "{kept}");
    let count = usize::try_from(kept).unwrap();
    assert!(
        error.contains("no room") && error.contains("memory.db"),
        "{error}"
    );
    assert_eq!(memory.get(&format!("d{kept}")).unwrap(), None);
    assert_eq!(memory.state().unwrap().decisions, count);
    assert_eq!(memory.query(&Query::new("words")).unwrap().total, count);
    assert_eq!(memory.stats().failed, 1);
    // Once there is room it goes on.
    assert!(memory.forget("d0").unwrap());
    assert_eq!(memory.record(vec![large(kept)]), Ok(vec![Recorded::New]));
    assert_eq!(memory.state().unwrap().decisions, count);
}

#[test]
fn another_who_holds_the_lock_too_long_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        busy_timeout: Duration::from_millis(50),
        ..options(directory.path())
    };
    let memory = SqliteMemory::open(options.clone(), WordCounter::new("words-1", true)).unwrap();
    memory.record(vec![bare("x", "it", 1)]).unwrap();
    let other = Connection::open(&options.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = memory.record(vec![bare("y", "it", 1)]).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("locked") && error.contains("memory.db"),
        "{error}"
    );
    // Those who read do not mind.
    assert_eq!(ids(&memory, "it"), ["x"]);
    other.execute_batch("ROLLBACK").unwrap();
    memory.record(vec![bare("y", "it", 1)]).unwrap();
    drop(memory);
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    assert!(matches!(refused(options), OpenError::Locked { .. }));
}

#[test]
fn too_many_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        queue: 2,
        busy_timeout: Duration::from_mins(1),
        ..options(directory.path())
    };
    let memory = SqliteMemory::open(options.clone(), WordCounter::new("words-1", true)).unwrap();
    let other = Connection::open(&options.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let memory = &memory;
                scope.spawn(move || memory.record(vec![bare(&format!("d{n}"), "it", n)]))
            })
            .collect();
        eventually("some are refused", || memory.stats().overloaded > 0);
        other.execute_batch("ROLLBACK").unwrap();
        let results = writers.into_iter().map(|writer| writer.join().unwrap());
        let refused = results.filter(|result| {
            assert!(matches!(
                result,
                Ok(_) | Err(MemoryError::Overloaded { .. })
            ));
            result.is_err()
        });
        assert_eq!(refused.count() as u64, memory.stats().overloaded);
    });
    memory.record(vec![bare("later", "it", 1)]).unwrap();
}

#[test]
fn what_is_no_memory_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| SqliteOptions::new(directory.path().join(name));
    fs::create_dir(directory.path().join("folder")).unwrap();
    assert!(matches!(refused(at("folder")), OpenError::Directory { .. }));
    fs::write(directory.path().join("text"), "no database ".repeat(100)).unwrap();
    assert!(matches!(refused(at("text")), OpenError::NotDatabase { .. }));
    fs::write(directory.path().join("folder/file"), "").unwrap();
    let below = refused(at("folder/file/memory.db"));
    assert!(matches!(below, OpenError::Io { .. }), "{below}");
    let foreign = Connection::open(directory.path().join("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(foreign);
    let before = fs::read(directory.path().join("foreign")).unwrap();
    assert!(matches!(refused(at("foreign")), OpenError::Foreign { .. }));
    assert_eq!(fs::read(directory.path().join("foreign")).unwrap(), before);
    drop(open(directory.path()));
    let ours = Connection::open(directory.path().join("memory.db")).unwrap();
    ours.pragma_update(None, "user_version", 99).unwrap();
    drop(ours);
    let error = refused(at("memory.db"));
    assert!(
        matches!(error, OpenError::Newer { found: 99, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("upgrade"), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = options(directory.path()).path;
    let memory = open(directory.path());
    let all = (0..400).map(|n| decision(&format!("d{n}"), &"word ".repeat(50), n));
    memory.record(all.collect()).unwrap();
    drop(memory);
    let whole = fs::read(&path).unwrap();
    for page in 0..whole.len() / 4096 {
        let mut damaged = whole.clone();
        // The header of the first page says what the file is, and is tested elsewhere.
        let start = page * 4096 + if page == 0 { 100 } else { 0 };
        damaged[start..(page + 1) * 4096].fill(0xA5);
        fs::write(&path, damaged).unwrap();
        let _ = fs::remove_file(path.with_extension("db-wal"));
        let _ = fs::remove_file(path.with_extension("db-shm"));
        let opened = SqliteMemory::open(options(directory.path()), WordCounter::new("w", true));
        let named = |error: &str| assert!(error.contains("memory.db"), "{page}: {error}");
        let memory = match opened {
            Ok(memory) => memory,
            Err(error) => {
                named(&error.to_string());
                continue;
            }
        };
        // Whatever of it still works may work.
        if let Err(error) = memory.query(&Query::new("word")) {
            named(&error.to_string());
        }
        let _ = memory.get("d7");
        let _ = memory.export(&mut |_| true);
        let _ = memory.review("d7", review(Outcome::Success, 1));
        let _ = memory.record(vec![bare("new", "it", 1)]);
        let _ = memory.announce(intent("x", 1));
        let _ = memory.state();
    }
}

#[cfg(unix)]
#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let memory = open(&directory.path().join("new/folder"));
    memory.record(vec![bare("x", "it", 1)]).unwrap();
    let files = fs::read_dir(directory.path().join("new/folder")).unwrap();
    let mut count = 0;
    for file in files {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        count += 1;
    }
    assert_eq!(count, 3);
    memory.close(Duration::from_mins(1)).unwrap();
    let path = directory.path().join("new/folder/memory.db");
    assert!(!path.with_extension("db-wal").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_nobody_can_write_to_is_named() {
    // Not even root makes files there.
    let error = refused(SqliteOptions::new("/proc/memory.db"));
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("/proc/memory.db"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("sealed");
    drop(open(&folder));
    let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    set(0o500);
    // Some may write everywhere.
    let sealed = fs::write(folder.join("probe"), "").is_err();
    if sealed {
        let name = |name: &str| SqliteOptions::new(folder.join(name));
        let error = refused(name("memory.db")).to_string();
        assert!(error.contains("writable"), "{error}");
        assert!(matches!(refused(name("new.db")), OpenError::Io { .. }));
    }
    set(0o700);
}

#[cfg(unix)]
#[test]
fn nothing_is_written_into_a_file_that_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    memory.record(vec![bare("x", "it", 1)]).unwrap();
    fs::rename(
        directory.path().join("memory.db"),
        directory.path().join("moved.db"),
    )
    .unwrap();
    let error = memory.record(vec![bare("y", "it", 1)]).unwrap_err();
    assert!(error.to_string().contains("removed"), "{error}");
}

#[test]
fn a_closed_memory_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    memory.close(Duration::from_mins(1)).unwrap();
    memory.close(Duration::ZERO).unwrap();
    let closed = MemoryError::Closed;
    assert_eq!(memory.record(vec![bare("x", "it", 1)]), Err(closed.clone()));
    assert_eq!(memory.query(&Query::new("x")), Err(closed.clone()));
    assert_eq!(memory.export(&mut |_| true), Err(closed.clone()));
    assert_eq!(memory.state(), Err(closed));
}

#[test]
fn a_slow_model_does_not_keep_anybody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let model = WordCounter::new("words-1", false);
    model.fails.store(true, Relaxed);
    let memory = SqliteMemory::open(options(directory.path()), model.clone()).unwrap();
    let all = (0..100).map(|n| bare(&format!("d{n}"), &format!("word{n}"), n));
    memory.record(all.collect()).unwrap();
    eventually("all wait", || memory.state().unwrap().unembedded == 100);
    eventually("there is trouble", || {
        memory.state().unwrap().trouble.is_some()
    });
    let trouble = memory.state().unwrap().trouble.unwrap();
    assert!(trouble.contains("out of order"), "{trouble}");
    let error = memory.query(&Query::new("word7")).unwrap_err();
    assert!(matches!(error, MemoryError::Embed(_)), "{error}");
    model.fails.store(false, Relaxed);
    eventually("all have vectors", || {
        let state = memory.state().unwrap();
        state.unembedded == 0 && state.trouble.is_none()
    });
    assert_eq!(ids(&memory, "word7")[0], "d7");
    let calls = model.calls.load(Relaxed);
    assert!(calls < 20, "{calls}");
    drop(memory);
    // They are not made again.
    let memory = SqliteMemory::open(options(directory.path()), model.clone()).unwrap();
    assert_eq!(ids(&memory, "word7")[0], "d7");
    assert_eq!(memory.state().unwrap().unembedded, 0);
    memory.record(vec![bare("new", "it", 1)]).unwrap();
    eventually("it has a vector", || {
        memory.state().unwrap().unembedded == 0
    });
    assert_eq!(model.calls.load(Relaxed), calls + 2);
}

#[test]
fn a_text_that_a_model_cannot_bear_does_not_hold_up_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let model = WordCounter::new("words-1", false);
    let memory = SqliteMemory::open(options(directory.path()), model).unwrap();
    let text = |n| if n == 2 { "poison" } else { "food" };
    let all = (0..4).map(|n| bare(&format!("d{n}"), text(n), n));
    memory.record(all.collect()).unwrap();
    eventually("the others have vectors", || {
        memory.state().unwrap().unembedded == 1
    });
    memory.forget("d2").unwrap();
    eventually("the trouble is over", || {
        memory.state().unwrap().trouble.is_none()
    });
}

#[test]
fn another_model_makes_all_vectors_anew() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    let all = (0..100).map(|n| bare(&format!("d{n}"), &format!("word{n}"), n));
    memory.record(all.collect()).unwrap();
    drop(memory);
    for instant in [true, false] {
        let name = if instant { "words-2" } else { "words-3" };
        let model = WordCounter::new(name, instant);
        let memory = SqliteMemory::open(options(directory.path()), model).unwrap();
        assert_eq!(memory.query(&Query::new("word7")).unwrap().total, 100);
        eventually("all have vectors", || {
            memory.state().unwrap().unembedded == 0
        });
        assert!(ids(&memory, "word7").contains(&"d7".to_owned()));
        drop(memory);
        assert_eq!(vectors(directory.path()), [(name.to_owned(), 100)]);
    }
}

fn vectors(directory: &Path) -> Vec<(String, i64)> {
    let connection = Connection::open(options(directory).path).unwrap();
    let sql = "SELECT m.name, count(*) FROM vector v JOIN model m ON m.number = v.model GROUP BY 1";
    let mut vectors = connection.prepare(sql).unwrap();
    let vectors = vectors
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    vectors.map(Result::unwrap).collect()
}

#[test]
fn what_is_forgotten_is_not_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    let secret = "xyzzy".repeat(2000);
    memory
        .record(vec![bare("x", &secret, 1), bare("y", "it", 2)])
        .unwrap();
    memory.forget("x").unwrap();
    memory.close(Duration::from_mins(1)).unwrap();
    for file in fs::read_dir(directory.path()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(5).any(|bytes| bytes == b"xyzzy"));
    }
}

#[test]
fn writes_are_served_while_the_rest_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let memory = open(directory.path());
    let all = (0..3000).map(|n| bare(&format!("d{n}"), "it", n));
    memory.record(all.collect()).unwrap();
    drop(memory);
    let impatient = SqliteOptions {
        load_patience: Duration::ZERO,
        ..options(directory.path())
    };
    let memory = SqliteMemory::open(impatient, WordCounter::new("words-1", true)).unwrap();
    let early = memory.query(&Query::new("it"));
    // Whether it was early enough depends on the machine.
    if let Err(error) = early {
        assert!(
            matches!(error, MemoryError::Loading { done, of } if done < of || of == 0),
            "{error}"
        );
    }
    assert!(memory.get("d2999").unwrap().is_some());
    memory.record(vec![bare("new", "nova", 9999)]).unwrap();
    assert_eq!(memory.state().unwrap().model, "words-1");
    eventually("it is loaded", || {
        memory
            .query(&Query::new("nova"))
            .is_ok_and(|found| found.total == 3001 && found.hits[0].decision.id == "new")
    });
}
