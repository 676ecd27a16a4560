//! Approvals in a file answer as those in memory do, whatever is asked of them and when.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use portcullis_core::TimeoutAnswer;
use portcullis_core::approval::{Answer, Approval, Approvals, Status, Which, conformance};
use portcullis_runtime::MemoryApprovals;
use portcullis_store::{ApprovalOptions, SqliteApprovals};
use proptest::option;
use proptest::prelude::*;

/// So few that they are soon full.
const MOST: usize = 4;

/// What is asked. Few ids and few moments, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Create {
        id: u8,
        run: u8,
        timeout: Option<u8>,
        approves: bool,
    },
    Decide {
        id: u8,
        approve: bool,
        by: &'static str,
        role: &'static str,
    },
    Take {
        id: u8,
        run: u8,
    },
    Get {
        id: u8,
    },
    List {
        status: Option<Status>,
        run: Option<u8>,
        limit: usize,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0_u8..8;
    let run = || 0_u8..2;
    let by = prop_oneof![4 => Just("robin"), 1 => Just("mailer")];
    let role = prop_oneof![4 => Just("duty"), 1 => Just("guest")];
    let status = option::of(prop::sample::select(Status::ALL.to_vec()));
    let create = (id(), run(), option::of(0_u8..20), any::<bool>());
    let decide = (id(), any::<bool>(), by, role);
    prop_oneof![
        5 => create.prop_map(|(id, run, timeout, approves)| Step::Create { id, run, timeout, approves }),
        4 => decide.prop_map(|(id, approve, by, role)| Step::Decide { id, approve, by, role }),
        4 => (id(), run()).prop_map(|(id, run)| Step::Take { id, run }),
        2 => id().prop_map(|id| Step::Get { id }),
        4 => (status, option::of(run()), 0_usize..6)
            .prop_map(|(status, run, limit)| Step::List { status, run, limit }),
        1 => Just(Step::Reopen),
    ]
}

/// Clocks of several machines, which need not agree.
fn steps() -> impl Strategy<Value = Vec<(i8, Step)>> {
    prop::collection::vec((-4_i8..8, step()), 1..80)
}

fn after(moment: Timestamp, nanoseconds: i64) -> Timestamp {
    moment + SignedDuration::from_nanos(nanoseconds)
}

fn run_id(run: u8) -> String {
    format!("run-{run}")
}

fn asked(id: u8, run: u8, now: Timestamp) -> Approval {
    let mut approval = conformance::example(&id.to_string(), now);
    approval.bound.run_id = run_id(run);
    approval
}

/// All that is answered, as text: what differs shows, whatever kind of answer it is.
fn ask(approvals: &dyn Approvals, step: &Step, now: Timestamp) -> String {
    match *step {
        Step::Create {
            id,
            run,
            timeout,
            approves,
        } => {
            let on_timeout = if approves {
                TimeoutAnswer::Approve
            } else {
                TimeoutAnswer::Deny
            };
            let approval = Approval {
                expires: timeout.map(|timeout| after(now, timeout.into())),
                on_timeout,
                ..asked(id, run, now)
            };
            format!("{:?}", approvals.create(approval))
        }
        Step::Decide {
            id,
            approve,
            by,
            role,
        } => {
            let answer = Answer {
                approve,
                by: by.to_owned(),
                roles: vec![role.to_owned()],
                note: None,
            };
            format!("{:?}", approvals.decide(&id.to_string(), &answer, now))
        }
        Step::Take { id, run } => {
            let bound = asked(id, run, now).bound;
            format!("{:?}", approvals.take(&id.to_string(), &bound, now))
        }
        Step::Get { id } => format!("{:?}", approvals.get(&id.to_string(), now)),
        Step::List { status, run, limit } => {
            let which = Which {
                status,
                run_id: run.map(run_id),
                limit,
            };
            format!("{:?}", approvals.list(&which, now))
        }
        Step::Reopen => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_answers_as_memory_does(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let options = ApprovalOptions {
            most: MOST,
            keep: Duration::MAX,
            ..ApprovalOptions::new(folder.path().join("approvals.db"))
        };
        let open = || SqliteApprovals::open(options.clone()).unwrap();
        let (mut file, memory) = (open(), MemoryApprovals::new(MOST));
        let mut now = Timestamp::from_second(1_800_000_000).unwrap();
        for (later, step) in steps {
            now = after(now, later.into());
            if matches!(step, Step::Reopen) {
                drop(file);
                file = open();
            }
            prop_assert_eq!(ask(&file, &step, now), ask(&memory, &step, now), "{:?}", step);
        }
    }
}
