//! A process that is killed at any moment loses nothing that it has acknowledged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use portcullis_core::evidence::Link;
use portcullis_store::evidence::{Durability, Entries, EvidenceLog, Options};

use crate::files::body;

const DIRECTORY: &str = "PORTCULLIS_CRASH_DIRECTORY";
const DURABILITY: &str = "PORTCULLIS_CRASH_DURABILITY";
/// How often to kill; the slow suite sets it to 1000.
const KILLS: &str = "PORTCULLIS_CRASH_KILLS";

fn options(directory: &str, durability: &str) -> Options {
    Options {
        durability: if durability == "os" {
            Durability::Os
        } else {
            Durability::Fsync
        },
        segment_bytes: 20_000,
        checkpoint_every: 25,
        checkpoint_interval: Duration::from_millis(5),
        ..Options::new(directory)
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let kills = std::env::var(KILLS).map_or(24, |kills| kills.parse().unwrap());
    let mut log = tempfile::tempdir().unwrap();
    let mut last_seen = 0;
    for round in 0..kills {
        // Each round checks the whole log, which must not grow for ever.
        if round % 40 == 39 {
            (log, last_seen) = (tempfile::tempdir().unwrap(), 0);
        }
        let directory = log.path().to_str().unwrap();
        let durability = ["fsync", "os"][round % 2];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::appends_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(DIRECTORY, directory)
            .env(DURABILITY, durability)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged: Vec<Link> = Vec::new();
        // The moment moves over everything a log does: opening, batches, checkpoints, new segments.
        let moment = round * round * 13 % 311;
        while acknowledged.len() < moment {
            let line = lines
                .next()
                .expect("the child goes on until it is killed")
                .unwrap();
            acknowledged.extend(link(&line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(lines.map_while(Result::ok).filter_map(|line| link(&line)));
        acknowledged.sort_by_key(|link| link.seq);

        // One that is killed while it makes its first files may leave nothing to check yet.
        if last_seen > 0 || !acknowledged.is_empty() {
            let report = check(directory);
            assert!(report.is_ok(), "{round}: {:?}", report.faults);
        }
        EvidenceLog::open(options(directory, durability)).unwrap();
        assert!(check(directory).is_ok());
        let mut entries = Entries::new(directory, last_seen + 1).map(|entry| entry.unwrap().link);
        for link in acknowledged {
            assert!(
                entries.any(|entry| entry == link),
                "{round}: {link:?} is lost"
            );
            last_seen = link.seq;
        }
    }
}

fn check(directory: &str) -> portcullis_store::evidence::VerifyReport {
    crate::files::check(directory.as_ref())
}

/// A line that was cut off by the kill is no acknowledgement.
fn link(line: &str) -> Option<Link> {
    let (seq, digest) = line
        .strip_prefix("ack ")?
        .strip_suffix(" .")?
        .split_once(' ')?;
    Some(Link {
        seq: seq.parse().ok()?,
        digest: digest.parse().ok()?,
    })
}

#[test]
#[ignore = "run as a process of its own by the test that kills it"]
fn appends_until_it_is_killed() {
    // Run by itself it fails, so that nobody takes it for a test that passed.
    let directory = std::env::var(DIRECTORY).expect("started by the test that kills it");
    let durability = std::env::var(DURABILITY).unwrap();
    let (log, _) = EvidenceLog::open(options(&directory, &durability)).unwrap();
    let output = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let link = log.append_blocking(body(0)).unwrap();
                    let mut output = output.lock().unwrap();
                    writeln!(output, "ack {} {} .", link.seq, link.digest).unwrap();
                }
            });
        }
    });
}
