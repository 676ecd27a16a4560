//! What everything that keeps approvals promises: one suite for every backend's tests.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Answer, Approval, ApprovalError, Approvals, Binding, Status, Taken, Which};
use crate::canonical::exact_digest;
use crate::decision::{PauseScope, TimeoutAnswer};
use crate::event::EventType;
use crate::evidence::Digest;
use crate::ids::RuleId;

/// What a check says: nothing, or what is wrong.
pub type Checked = Result<(), String>;

/// Makes an empty backend.
pub type Make<'m> = &'m dyn Fn() -> Box<dyn Approvals>;

/// Runs the work for each of so many numbers, all at the same time, and returns when all are done. The caller's, because
/// nothing here has threads.
pub type Race<'r> = &'r dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// The whole suite. Each step makes a backend of its own.
pub fn conforms(make: Make<'_>, race: Race<'_>) -> Checked {
    what_is_created_is_there_and_not_twice(make)?;
    the_list_is_filtered_and_in_order(make)?;
    one_answer_is_final(make)?;
    only_the_right_roles_decide(make)?;
    an_answer_is_taken_once(make)?;
    a_no_is_taken_once_too(make)?;
    time_runs_out(make)?;
    silence_can_mean_yes(make)?;
    nobody_decides_on_their_own_step(make)?;
    any_change_voids_it(make)?;
    of_many_who_take_one_gets_it(make, race)?;
    of_many_who_decide_one_does(make, race)
}

/// An approval as the suite asks for it, that expires 300 seconds after `created`.
pub fn example(id: &str, created: Timestamp) -> Approval {
    Approval {
        id: id.to_owned(),
        bound: binding("run-1"),
        subject: json!({"to": "ops@example.org"}),
        reason: "mail leaves the company".to_owned(),
        prompt: "May the agent send this mail?".to_owned(),
        scope: PauseScope::ToolCall,
        approver_roles: vec!["admin".to_owned(), "duty".to_owned()],
        created,
        expires: created.checked_add(SignedDuration::from_secs(300)).ok(),
        on_timeout: TimeoutAnswer::Deny,
        status: Status::Pending,
        decided: None,
        taken: None,
    }
}

fn binding(run: &str) -> Binding {
    Binding {
        run_id: run.to_owned(),
        agent: "mailer".to_owned(),
        stage: EventType::ToolCallStart,
        tool: Some("mail.send".to_owned()),
        arguments: exact_digest(&json!({"to": "ops@example.org"})),
        rules: vec![RuleId::from_static("outgoing-mail")],
        policy: "p".repeat(64),
        run_state: Some(Digest::of(b"state")),
    }
}

fn answer(approve: bool) -> Answer {
    Answer {
        approve,
        by: "robin".to_owned(),
        roles: vec!["duty".to_owned()],
        note: Some("seen".to_owned()),
    }
}

/// So many seconds after some moment.
fn second(n: i64) -> Result<Timestamp, String> {
    Timestamp::from_second(1_800_000_000 + n).map_err(|error| error.to_string())
}

fn with_example(make: Make<'_>) -> Result<Box<dyn Approvals>, String> {
    let approvals = make();
    done("create", approvals.create(example("a", second(0)?)))?;
    Ok(approvals)
}

fn done<T>(what: &str, result: Result<T, ApprovalError>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Checked {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, wanted {wanted:?}"))
}

fn status(approvals: &dyn Approvals, now: Timestamp) -> Result<Option<Status>, String> {
    let found = done("get", approvals.get("a", now))?;
    Ok(found.map(|approval| approval.status))
}

fn what_is_created_is_there_and_not_twice(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    let wanted = example("a", second(0)?);
    let found = done("get", approvals.get("a", second(1)?))?;
    same("what was created", &found, &Some(wanted.clone()))?;
    same(
        "what was not",
        &done("get", approvals.get("b", second(1)?))?,
        &None,
    )?;
    let again = approvals.create(wanted);
    same("again", &again, &Err(ApprovalError::Exists("a".to_owned())))?;
    let missing = ApprovalError::NotFound("b".to_owned());
    let decided = approvals.decide("b", &answer(true), second(1)?);
    same("deciding on nothing", &decided, &Err(missing.clone()))?;
    let taken = approvals.take("b", &binding("run-1"), second(1)?);
    same("taking nothing", &taken, &Err(missing))
}

fn the_list_is_filtered_and_in_order(make: Make<'_>) -> Checked {
    let approvals = make();
    for (id, created, run) in [("c", 2, "run-1"), ("b", 1, "run-2"), ("a", 2, "run-1")] {
        let mut approval = example(id, second(created)?);
        approval.bound = binding(run);
        done("create", approvals.create(approval))?;
    }
    done("decide", approvals.decide("b", &answer(false), second(3)?))?;
    let cases = [
        (Which::default(), 3, vec!["b", "a", "c"]),
        (
            Which {
                limit: 2,
                ..Which::default()
            },
            3,
            vec!["b", "a"],
        ),
        (
            Which {
                run_id: Some("run-1".to_owned()),
                ..Which::default()
            },
            3,
            vec!["a", "c"],
        ),
        (
            Which {
                status: Some(Status::Denied),
                ..Which::default()
            },
            3,
            vec!["b"],
        ),
        (
            Which {
                status: Some(Status::Pending),
                ..Which::default()
            },
            1000,
            vec![],
        ),
        (
            Which {
                status: Some(Status::Expired),
                ..Which::default()
            },
            1000,
            vec!["a", "c"],
        ),
    ];
    for (which, now, wanted) in cases {
        let found = done("list", approvals.list(&which, second(now)?))?;
        let found: Vec<&str> = found.iter().map(|approval| approval.id.as_str()).collect();
        same(&format!("{which:?}"), &found, &wanted)?;
    }
    Ok(())
}

fn one_answer_is_final(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    let decided = done("decide", approvals.decide("a", &answer(true), second(5)?))?;
    same("the status", &decided.status, &Status::Approved)?;
    let by = decided.decided.as_ref().map(|decided| decided.by.as_str());
    same("who", &by, &Some("robin"))?;
    same(
        "what is kept",
        &done("get", approvals.get("a", second(5)?))?,
        &Some(decided),
    )?;
    let again = approvals.decide("a", &answer(false), second(6)?);
    let settled = ApprovalError::Settled {
        id: "a".to_owned(),
        status: Status::Approved,
    };
    same("another answer", &again, &Err(settled))
}

fn only_the_right_roles_decide(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    for roles in [vec![], vec!["guest".to_owned()]] {
        let refused = approvals.decide(
            "a",
            &Answer {
                roles,
                ..answer(true)
            },
            second(1)?,
        );
        if !matches!(refused, Err(ApprovalError::NotAllowed { .. })) {
            return Err(format!("without a role: {refused:?}"));
        }
    }
    same(
        "it waits",
        &status(&*approvals, second(1)?)?,
        &Some(Status::Pending),
    )
}

fn an_answer_is_taken_once(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    let early = approvals.take("a", &binding("run-1"), second(1)?);
    same(
        "before an answer",
        &early,
        &Err(ApprovalError::Pending("a".to_owned())),
    )?;
    let decided = done("decide", approvals.decide("a", &answer(true), second(2)?))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(3)?))?;
    same(
        "the answer",
        &Some(taken),
        &decided.decided.map(Taken::Approved),
    )?;
    let again = approvals.take("a", &binding("run-1"), second(4)?);
    let used = ApprovalError::AlreadyTaken {
        id: "a".to_owned(),
        at: second(3)?,
    };
    same("the second time", &again, &Err(used))?;
    same(
        "used",
        &status(&*approvals, second(999)?)?,
        &Some(Status::Used),
    )
}

fn a_no_is_taken_once_too(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    let decided = done("decide", approvals.decide("a", &answer(false), second(2)?))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(3)?))?;
    same(
        "the answer",
        &Some(taken),
        &decided.decided.map(Taken::Denied),
    )?;
    let again = approvals.take("a", &binding("run-1"), second(4)?);
    if !matches!(again, Err(ApprovalError::AlreadyTaken { .. })) {
        return Err(format!("a no, twice: {again:?}"));
    }
    same(
        "denied",
        &status(&*approvals, second(4)?)?,
        &Some(Status::Denied),
    )
}

fn time_runs_out(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    same(
        "in time",
        &status(&*approvals, second(299)?)?,
        &Some(Status::Pending),
    )?;
    same(
        "too late",
        &status(&*approvals, second(300)?)?,
        &Some(Status::Expired),
    )?;
    let late = approvals.decide("a", &answer(true), second(300)?);
    let settled = ApprovalError::Settled {
        id: "a".to_owned(),
        status: Status::Expired,
    };
    same("deciding late", &late, &Err(settled))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(301)?))?;
    same("taking late", &taken, &Taken::Expired)?;

    let approvals = with_example(make)?;
    done("decide", approvals.decide("a", &answer(true), second(2)?))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(300)?))?;
    same("a yes that nobody used in time", &taken, &Taken::Expired)
}

fn silence_can_mean_yes(make: Make<'_>) -> Checked {
    let approvals = make();
    let asked = Approval {
        on_timeout: TimeoutAnswer::Approve,
        ..example("a", second(0)?)
    };
    done("create", approvals.create(asked))?;
    let early = approvals.take("a", &binding("run-1"), second(299)?);
    let pending = ApprovalError::Pending("a".to_owned());
    same("before its time", &early, &Err(pending))?;
    let late = approvals.decide("a", &answer(false), second(300)?);
    let settled = ApprovalError::Settled {
        id: "a".to_owned(),
        status: Status::Approved,
    };
    same("a no that comes too late", &late, &Err(settled))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(300)?))?;
    if !matches!(taken, Taken::Approved(_)) {
        return Err(format!("silence: {taken:?}"));
    }
    let again = approvals.take("a", &binding("run-1"), second(301)?);
    if !matches!(again, Err(ApprovalError::AlreadyTaken { .. })) {
        return Err(format!("silence, twice: {again:?}"));
    }
    let approvals = make();
    let asked = Approval {
        on_timeout: TimeoutAnswer::Approve,
        ..example("a", second(0)?)
    };
    done("create", approvals.create(asked))?;
    let good = status(&*approvals, second(599)?)?;
    same("as long again", &good, &Some(Status::Approved))?;
    let late = status(&*approvals, second(600)?)?;
    same("and no longer", &late, &Some(Status::Expired))?;
    let taken = done("take", approvals.take("a", &binding("run-1"), second(600)?))?;
    same("silence that nobody used in time", &taken, &Taken::Expired)
}

fn nobody_decides_on_their_own_step(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    let own = Answer {
        by: binding("run-1").agent,
        ..answer(true)
    };
    let refused = approvals.decide("a", &own, second(1)?);
    let own_step = ApprovalError::OwnStep {
        id: "a".to_owned(),
        by: own.by,
    };
    same("its own step", &refused, &Err(own_step))
}

fn any_change_voids_it(make: Make<'_>) -> Checked {
    let approvals = with_example(make)?;
    done("decide", approvals.decide("a", &answer(true), second(2)?))?;
    let right = || binding("run-1");
    let others = [
        ("run", binding("run-2")),
        (
            "agent",
            Binding {
                agent: "other".to_owned(),
                ..right()
            },
        ),
        (
            "stage",
            Binding {
                stage: EventType::ToolCallResult,
                ..right()
            },
        ),
        (
            "tool",
            Binding {
                tool: None,
                ..right()
            },
        ),
        (
            "arguments",
            Binding {
                arguments: exact_digest(&json!({"to": "all@example.org"})),
                ..right()
            },
        ),
        (
            "policy",
            Binding {
                policy: "q".repeat(64),
                ..right()
            },
        ),
        (
            "rule",
            Binding {
                rules: vec![
                    RuleId::from_static("outgoing-mail"),
                    RuleId::from_static("late-mail"),
                ],
                ..right()
            },
        ),
        (
            "run's state",
            Binding {
                run_state: Some(Digest::of(b"another")),
                ..right()
            },
        ),
        (
            "run's state",
            Binding {
                run_state: None,
                ..right()
            },
        ),
    ];
    for (what, other) in others {
        let taken = approvals.take("a", &other, second(3)?);
        let void = ApprovalError::Void {
            id: "a".to_owned(),
            what,
        };
        same(what, &taken, &Err(void))?;
    }
    done("take", approvals.take("a", &right(), second(3)?)).map(drop)
}

fn of_many_who_take_one_gets_it(make: Make<'_>, race: Race<'_>) -> Checked {
    let approvals = with_example(make)?;
    done("decide", approvals.decide("a", &answer(true), second(2)?))?;
    let (wins, now) = (AtomicUsize::new(0), second(3)?);
    race(8, &|_| {
        if approvals.take("a", &binding("run-1"), now).is_ok() {
            wins.fetch_add(1, Ordering::SeqCst);
        }
    });
    same("how many got it", &wins.into_inner(), &1)
}

fn of_many_who_decide_one_does(make: Make<'_>, race: Race<'_>) -> Checked {
    let approvals = with_example(make)?;
    let (wins, now) = (AtomicUsize::new(0), second(3)?);
    race(8, &|n| {
        if approvals.decide("a", &answer(n % 2 == 0), now).is_ok() {
            wins.fetch_add(1, Ordering::SeqCst);
        }
    });
    same("how many decided", &wins.into_inner(), &1)
}
