//! A run that waits for a person, over approvals in a file, in processes that are killed: what was approved happens at most
//! once, and whether its answer was used up is known.

use std::fs::{self, File, OpenOptions};
use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Status, Taken, Which,
};
use portcullis_core::pack::{self, Pack};
use portcullis_planner::{
    Events, Finished, OpenAiChat, OpenAiSettings, Outcome, Planner, ResumeError, Suspended, Task,
    ToolError, TypedTool,
};
use portcullis_runtime::Gateway;
use portcullis_store::{ApprovalOptions, SqliteApprovals};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::endpoint::{Endpoint, Reply};

const FOLDER: &str = "PORTCULLIS_KILLED_FOLDER";
const MODEL: &str = "PORTCULLIS_KILLED_MODEL";
/// What the process does.
const WORK: &str = "PORTCULLIS_KILLED_WORK";
/// At which point it stops, until it is killed.
const HOLD: &str = "PORTCULLIS_KILLED_HOLD";
/// How many runs are killed at random moments; the slow suite sets it to 1000.
const KILLS: &str = "PORTCULLIS_CRASH_KILLS";

/// Where a run is killed for certain; how often the tool has run by then; whether the run can still go on.
const POINTS: [(&str, usize, bool); 5] = [
    ("before it is taken", 0, true),
    ("after it is taken", 0, false),
    ("before it is paid", 0, false),
    ("after it is paid", 1, false),
    ("the end", 1, false),
];

const POLICY: &str = "policy_pack: test
version: '1.0.0'
gateway: {sync: {timeout_ms: 60000}}
sync_rules:
  - {id: ask-first, rule: expression, events: [tool_call_start], config: {when: 'event.tool_name == \"pay\"', action: PAUSE}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_processes_are_killed_what_was_approved_happens_at_most_once() {
    let kills: usize = std::env::var(KILLS).map_or(20, |kills| kills.parse().unwrap());
    let runs = POINTS.len() + kills;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let to = |n: usize| json!({"to": run_id(n)});
    let calls = (0..runs).map(|n| Reply::call([("pay", to(n))]));
    let answers = (0..2 * runs).map(|_| Reply::say(["Done."]));
    let endpoint = Endpoint::start(calls.chain(answers)).await.unwrap();

    let mut first = Process::start(folder, &endpoint, &format!("run {runs}"), "the end");
    first.wait_for("the end");
    first.kill();
    let approvals = approvals(folder);
    let waiting = Which {
        status: Some(Status::Pending),
        run_id: None,
        limit: usize::MAX,
    };
    let waiting = approvals.list(&waiting, Timestamp::now()).unwrap();
    assert_eq!(waiting.len(), runs);
    for approval in waiting {
        let answer = Answer {
            approve: true,
            by: "robin".to_owned(),
            roles: approval.approver_roles,
            note: None,
        };
        approvals
            .decide(&approval.id, &answer, Timestamp::now())
            .unwrap();
    }
    assert_eq!(paid(folder), [""; 0], "nobody pays unasked");

    for (n, (point, ran, _)) in POINTS.into_iter().enumerate() {
        let mut dying = Process::start(folder, &endpoint, &format!("resume {n}"), point);
        dying.wait_for(point);
        dying.kill();
        assert_eq!(times_paid(folder, n), ran, "{point}");
    }
    let mut before = Vec::new();
    for n in POINTS.len()..runs {
        let mut dying = Process::start(folder, &endpoint, &format!("resume {n}"), "");
        dying.wait_for("ready");
        // Most of it is over by then.
        let moment = RandomState::new().hash_one(n) % 12_000;
        std::thread::sleep(Duration::from_micros(moment));
        dying.kill();
        before.push(times_paid(folder, n));
    }

    let mut last = Process::start(folder, &endpoint, &format!("resume_all {runs}"), "");
    for n in 0..runs {
        let ran = if n < POINTS.len() {
            POINTS[n].1
        } else {
            before[n - POINTS.len()]
        };
        let outcome = last.wait_for(&run_id(n));
        match outcome.as_str() {
            "done" => assert_eq!((ran, times_paid(folder, n)), (0, 1), "{}", run_id(n)),
            "used up" => assert_eq!(times_paid(folder, n), ran, "{}", run_id(n)),
            other => panic!("{other}"),
        }
        if let Some((point, _, goes_on)) = POINTS.get(n) {
            assert_eq!(outcome == "done", *goes_on, "{point}");
        }
        let of_run = Which {
            run_id: Some(run_id(n)),
            ..Which::default()
        };
        let [approval] = &*approvals.list(&of_run, Timestamp::now()).unwrap() else {
            panic!("{} has another approval", run_id(n));
        };
        assert_eq!(approval.status, Status::Used);
        assert!(approval.taken.is_some());
    }
    last.kill();
}

fn run_id(n: usize) -> String {
    format!("run-{n}")
}

fn approvals(folder: &Path) -> SqliteApprovals {
    let options = ApprovalOptions {
        busy_timeout: Duration::from_mins(1),
        ..ApprovalOptions::new(folder.join("approvals.db"))
    };
    SqliteApprovals::open(options).unwrap()
}

/// To whom the tool has paid.
fn paid(folder: &Path) -> Vec<String> {
    let paid = fs::read_to_string(folder.join("paid")).unwrap_or_default();
    paid.lines().map(str::to_owned).collect()
}

fn times_paid(folder: &Path, n: usize) -> usize {
    let times = paid(folder).iter().filter(|to| **to == run_id(n)).count();
    assert!(times <= 1, "{} was paid {times} times", run_id(n));
    times
}

struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(folder: &Path, endpoint: &Endpoint, work: &str, hold: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "approved_once::works_until_it_is_killed"])
            .args(["--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .env(MODEL, endpoint.base_url())
            .env(WORK, work)
            .env(HOLD, hold)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads until this is said, and gives what is said of it.
    fn wait_for(&mut self, what: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended before it said `{what}`");
            if let Some((_, said)) = line.trim_end_matches('\n').split_once("said ")
                && let Some((subject, of_it)) = said.split_once(": ")
                && subject == what
            {
                return of_it.to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Never left behind.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a process of its own by the test that kills it"]
async fn works_until_it_is_killed() {
    // Run by itself it fails, so that nobody takes it for a test that passed.
    let folder = std::env::var(FOLDER).expect("started by the test that kills it");
    let folder = PathBuf::from(folder);
    let work = std::env::var(WORK).unwrap();
    let planner = planner(&folder);
    say("ready", "");
    let (work, n) = work.split_once(' ').unwrap();
    let n: usize = n.parse().unwrap();
    match work {
        "run" => {
            for n in 0..n {
                let task = Task::new(run_id(n), "Pay.").agent("payer");
                let finished = planner.run(task, Events::ignored(), pending()).await;
                keep(&folder, n, &finished);
            }
        }
        "resume" => drop(resume(&planner, &folder, n).await),
        "resume_all" => {
            for n in 0..n {
                let outcome = resume(&planner, &folder, n).await;
                say(&run_id(n), &outcome);
            }
        }
        other => panic!("what is {other}?"),
    }
    reach("the end");
}

fn say(what: &str, of_it: &str) {
    println!("said {what}: {of_it}");
}

/// Where a process may be told to stop, until it is killed.
fn reach(point: &str) {
    say(point, "");
    while std::env::var(HOLD).as_deref() == Ok(point) {
        std::thread::park();
    }
}

fn keep(folder: &Path, n: usize, finished: &Finished) {
    let Outcome::Suspended(suspended) = &finished.outcome else {
        panic!("{:?}", finished.outcome);
    };
    let mut file = File::create(folder.join(run_id(n))).unwrap();
    serde_json::to_writer(&mut file, suspended).unwrap();
    file.sync_all().unwrap();
}

async fn resume(planner: &Planner, folder: &Path, n: usize) -> String {
    let kept = fs::read(folder.join(run_id(n))).unwrap();
    let suspended: Suspended = serde_json::from_slice(&kept).unwrap();
    let resumed = planner.resume(suspended, Events::ignored(), pending());
    match resumed.await {
        Ok(Finished {
            outcome: Outcome::Done { .. },
            ..
        }) => "done".to_owned(),
        Err(ResumeError::Approval(ApprovalError::AlreadyTaken { .. })) => "used up".to_owned(),
        other => format!("{other:?}"),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Payment {
    to: String,
}

fn planner(folder: &Path) -> Planner {
    let pack = Pack {
        file: "test.yaml",
        text: POLICY,
        ..Pack::default()
    };
    let gateway = Gateway::builder(pack::load(&pack).unwrap().policy).build();
    let settings = OpenAiSettings::new(std::env::var(MODEL).unwrap(), "scripted");
    let model = OpenAiChat::new(settings).unwrap();
    let paid = folder.join("paid");
    let pay = TypedTool::new("pay", "Pays.", move |payment: Payment| {
        reach("before it is paid");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(&paid).unwrap();
        file.write_all(format!("{}\n", payment.to).as_bytes())
            .unwrap();
        file.sync_all().unwrap();
        reach("after it is paid");
        async { Ok::<_, ToolError>("paid") }
    });
    Planner::builder(Arc::new(model), gateway)
        .tool(pay)
        .approvals(Arc::new(Watched(approvals(folder))))
        .build()
        .unwrap()
}

/// Says when an answer is about to be used up, and when it is.
struct Watched(SqliteApprovals);

impl Approvals for Watched {
    fn create(&self, approval: Approval) -> Result<(), ApprovalError> {
        self.0.create(approval)
    }

    fn get(&self, id: &str, now: Timestamp) -> Result<Option<Approval>, ApprovalError> {
        self.0.get(id, now)
    }

    fn list(&self, which: &Which, now: Timestamp) -> Result<Vec<Approval>, ApprovalError> {
        self.0.list(which, now)
    }

    fn decide(&self, id: &str, answer: &Answer, now: Timestamp) -> Result<Approval, ApprovalError> {
        self.0.decide(id, answer, now)
    }

    fn take(&self, id: &str, bound: &Binding, now: Timestamp) -> Result<Taken, ApprovalError> {
        reach("before it is taken");
        let taken = self.0.take(id, bound, now);
        reach("after it is taken");
        taken
    }
}
