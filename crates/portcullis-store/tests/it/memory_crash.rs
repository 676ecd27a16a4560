//! A memory whose process is killed at any moment loses nothing that it has acknowledged.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use portcullis_core::memory::{Filters, ListRequest, Outcome};
use portcullis_store::memory::Memory as _;

use crate::memories::{decision, intent, open, review};

const DIRECTORY: &str = "PORTCULLIS_CRASH_DIRECTORY";
const ROUND: &str = "PORTCULLIS_CRASH_ROUND";
/// How often to kill; the slow suite sets it to 1000.
const KILLS: &str = "PORTCULLIS_CRASH_KILLS";

/// What the children have said, by id.
#[derive(Debug, Default)]
struct Acknowledged {
    /// How many reviews; none, once it is forgotten.
    decisions: BTreeMap<String, Option<usize>>,
    /// How many revisions.
    intents: BTreeMap<String, u64>,
    lines: usize,
}

impl Acknowledged {
    /// A line that was cut off by the kill is no acknowledgement.
    fn take(&mut self, line: &str) {
        let Some((what, id)) = line
            .strip_prefix("ack ")
            .and_then(|line| line.strip_suffix(" .")?.split_once(' '))
        else {
            return;
        };
        self.lines += 1;
        let id = id.to_owned();
        match what {
            "record" => drop(self.decisions.insert(id, Some(0))),
            "review" => *self.decisions.get_mut(&id).unwrap().as_mut().unwrap() += 1,
            "forget" => drop(self.decisions.insert(id, None)),
            "intent" => *self.intents.entry(id).or_default() += 1,
            other => panic!("what is {other}?"),
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let kills = std::env::var(KILLS).map_or(20, |kills| kills.parse().unwrap());
    let mut kept = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..kills {
        // Each round looks at everything, which must not grow for ever.
        if round % 20 == 19 {
            (kept, acknowledged) = (tempfile::tempdir().unwrap(), Acknowledged::default());
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory_crash::writes_until_it_is_killed"])
            .args(["--ignored", "--nocapture"])
            .env(DIRECTORY, kept.path())
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The moment moves over everything: the first files, batches, checkpoints.
        let moment = acknowledged.lines + round * round * 13 % 311;
        while acknowledged.lines < moment {
            let line = lines.next().expect("the child goes on until it is killed");
            acknowledged.take(&line.unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            acknowledged.take(&line);
        }
        check(kept.path(), &acknowledged);
    }
}

fn check(directory: &std::path::Path, acknowledged: &Acknowledged) {
    let memory = open(directory);
    for (id, reviews) in &acknowledged.decisions {
        let kept = memory.get(id).unwrap();
        match reviews {
            // It may have been forgotten, or reviewed once more, without anybody hearing of it.
            Some(reviews) => {
                let kept = kept.map_or(usize::MAX, |kept| kept.reviews.len());
                assert!(kept >= *reviews, "{id} has lost a review");
                assert!(kept != usize::MAX || *reviews == 2, "{id} is lost");
            }
            None => assert_eq!(kept, None),
        }
    }
    for (id, revisions) in &acknowledged.intents {
        let kept = memory.intent(id).unwrap().len() as u64;
        assert!(kept >= *revisions, "{id} has lost a revision");
    }
    // The index has what the table has.
    let mut exported = 0;
    memory
        .export(&mut |_| {
            exported += 1;
            true
        })
        .unwrap();
    let request = ListRequest {
        filters: Filters::default(),
        limit: 1,
        after: None,
    };
    assert_eq!(memory.list(&request).unwrap().total, exported);
    assert_eq!(memory.state().unwrap().unembedded, 0);
}

#[test]
#[ignore = "run as a process of its own by the test that kills it"]
fn writes_until_it_is_killed() {
    // Run by itself it fails, so that nobody takes it for a test that passed.
    let directory = std::env::var(DIRECTORY).expect("started by the test that kills it");
    let round = std::env::var(ROUND).unwrap();
    let memory = open(directory.as_ref());
    let output = Mutex::new(std::io::stdout());
    let acknowledge = |what: &str, id: &str| {
        let mut output = output.lock().unwrap();
        writeln!(output, "ack {what} {id} .").unwrap();
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (memory, acknowledge, round) = (&memory, &acknowledge, &round);
            scope.spawn(move || {
                for n in 0.. {
                    let id = format!("{round}-{thread}-{n}");
                    memory.record(vec![decision(&id, "it", n)]).unwrap();
                    acknowledge("record", &id);
                    memory.announce(intent(round, n)).unwrap();
                    acknowledge("intent", round);
                    for _ in 0..2 {
                        memory.review(&id, review(Outcome::Partial, n)).unwrap();
                        acknowledge("review", &id);
                    }
                    if n % 3 == 0 {
                        assert!(memory.forget(&id).unwrap());
                        acknowledge("forget", &id);
                    }
                }
            });
        }
    });
}
