//! Approvals whose processes are killed at any moment: what was acknowledged is there, and nothing is taken twice.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, ApprovalError, Approvals as _, Status, Taken, Which, conformance,
};

use crate::approvals::{open, yes};

const DIRECTORY: &str = "PORTCULLIS_CRASH_DIRECTORY";
const ROUND: &str = "PORTCULLIS_CRASH_ROUND";
const CHILD: &str = "PORTCULLIS_CRASH_CHILD";
/// How often to kill; the slow suite sets it to 1000.
const KILLS: &str = "PORTCULLIS_CRASH_KILLS";

/// What the children have said.
#[derive(Debug, Default)]
struct Acknowledged {
    created: BTreeSet<String>,
    /// Whether it was a yes.
    decided: BTreeMap<String, bool>,
    taken: BTreeSet<String>,
}

impl Acknowledged {
    /// A line that was cut off by the kill is no acknowledgement.
    fn hear(&mut self, line: &str) {
        let Some((what, id)) = line
            .strip_prefix("ack ")
            .and_then(|line| line.strip_suffix(" .")?.split_once(' '))
        else {
            return;
        };
        let id = id.to_owned();
        let first = match what {
            "create" => self.created.insert(id),
            "yes" => self.decided.insert(id, true).is_none(),
            "no" => self.decided.insert(id, false).is_none(),
            "take" => self.taken.insert(id),
            other => panic!("what is {other}?"),
        };
        assert!(first, "twice: {line}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_and_nothing_is_taken_twice() {
    let kills = std::env::var(KILLS).map_or(20, |kills| kills.parse().unwrap());
    let mut kept = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    let mut taken = 0;
    for round in 0..kills {
        // Each round looks at everything, which must not grow for ever.
        if round % 5 == 4 {
            (kept, acknowledged) = (tempfile::tempdir().unwrap(), Acknowledged::default());
        }
        // Two that are after the same approvals.
        let mut children = [0, 1].map(|child| spawn(kept.path(), round, child));
        let outputs = children
            .each_mut()
            .map(|child| child.stdout.take().unwrap());
        let mut outputs = outputs.map(|output| BufReader::new(output).lines());
        if round % 4 > 0 {
            // Otherwise perhaps while the file is made.
            let heard = |line: &String| line.starts_with("ack ");
            let line = outputs[0].by_ref().map(Result::unwrap).find(heard);
            acknowledged.hear(&line.expect("it goes on until it is killed"));
        }
        for child in &mut children {
            let moment = RandomState::new().hash_one(round) % 100;
            std::thread::sleep(Duration::from_millis(moment));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let rest = outputs.into_iter().flatten();
        rest.map_while(Result::ok)
            .for_each(|line| acknowledged.hear(&line));
        taken += acknowledged.taken.len();
        check(kept.path(), &mut acknowledged);
    }
    assert!(
        taken > 0,
        "every child was killed before it could do anything"
    );
}

fn spawn(directory: &Path, round: usize, child: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "approvals_crash::answers_until_it_is_killed"])
        .args(["--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .env(CHILD, child.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn check(directory: &Path, acknowledged: &mut Acknowledged) {
    let approvals = open(directory);
    let now = Timestamp::now();
    for id in &acknowledged.created {
        let kept = approvals.get(id, now).unwrap();
        let kept = kept.unwrap_or_else(|| panic!("{id} is lost"));
        if let Some(approve) = acknowledged.decided.get(id) {
            let denied = kept.status == Status::Denied;
            assert!(kept.decided.is_some(), "{id} is undecided");
            assert_eq!(denied, !approve, "{id}");
        }
        assert!(
            !acknowledged.taken.contains(id) || kept.taken.is_some(),
            "{id} can be taken again"
        );
    }
    // Whatever nobody has heard of is whole as well, and can be gone on with once.
    let every = Which {
        limit: usize::MAX,
        ..Which::default()
    };
    for approval in approvals.list(&every, now).unwrap() {
        if approval.taken.is_some() {
            continue;
        }
        let (id, was) = (approval.id, approval.status);
        let again = approvals.take(&id, &approval.bound, now);
        match again {
            Ok(Taken::Approved(_)) => assert_eq!(was, Status::Approved),
            Ok(Taken::Denied(_)) => assert_eq!(was, Status::Denied),
            Err(ApprovalError::Pending(_)) => assert_eq!(was, Status::Pending),
            other => panic!("{id}: {other:?}"),
        }
        if again.is_ok() {
            assert!(acknowledged.taken.insert(id), "taken twice");
        }
    }
}

#[test]
#[ignore = "run as a process of its own by the test that kills it"]
fn answers_until_it_is_killed() {
    // Run by itself it fails, so that nobody takes it for a test that passed.
    let directory = std::env::var(DIRECTORY).expect("started by the test that kills it");
    let [round, child] = [ROUND, CHILD].map(|name| std::env::var(name).unwrap());
    let approvals = open(directory.as_ref());
    let output = Mutex::new(std::io::stdout());
    let acknowledge = |what: &str, id: &str| {
        let mut output = output.lock().unwrap();
        writeln!(output, "ack {what} {id} .").unwrap();
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (approvals, acknowledge, round, child) = (&approvals, &acknowledge, &round, &child);
            scope.spawn(move || {
                for n in 0.. {
                    let id = |child: &str| format!("{round}-{child}-{thread}-{n}");
                    let ours = id(child);
                    let approval = conformance::example(&ours, Timestamp::now());
                    let bound = approval.bound.clone();
                    approvals.create(approval).unwrap();
                    acknowledge("create", &ours);
                    let approve = n % 3 > 0;
                    let answer = Answer { approve, ..yes() };
                    approvals.decide(&ours, &answer, Timestamp::now()).unwrap();
                    acknowledge(if approve { "yes" } else { "no" }, &ours);
                    // The other child is about as far, and wants them too.
                    for id in ["0", "1"].map(id) {
                        if approvals.take(&id, &bound, Timestamp::now()).is_ok() {
                            acknowledge("take", &id);
                        }
                    }
                }
            });
        }
    });
}
