//! PAUSE: waiting for a person, in this process and in the next.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context as TaskContext, Poll};

use jiff::Timestamp;
use portcullis_core::{Decision, ErrorCode, Event, EventType, PauseScope, PauseSpec, RuleId};
use portcullis_planner::{
    End, Events, Finished, Outcome, Planner, ResumeError, RunEvent, Stopped, Suspended,
};
use portcullis_runtime::approval::{Answer, ApprovalError, Approvals, Status, Which};
use portcullis_runtime::{Gateway, MemoryApprovals};
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};
use crate::fixtures::{
    Ran, SECRET, gateway, gateway_named, messages, note, pack_gateway, planner, run, shown, start,
};

/// Everything that outlives a process: the model, the tools, the approvals, the time.
struct World {
    endpoint: Endpoint,
    ran: Ran,
    approvals: Arc<MemoryApprovals>,
    now: Arc<AtomicI64>,
}

impl World {
    async fn new<const N: usize>(replies: [Reply; N]) -> Self {
        Self {
            endpoint: start(replies).await,
            ran: Ran::default(),
            approvals: Arc::default(),
            now: Arc::new(AtomicI64::new(1_800_000_000)),
        }
    }

    /// A process: its planner, with a gateway that knows nothing of other processes.
    fn process(&mut self, gateway: Gateway) -> Planner {
        let (builder, ran) = planner(&self.endpoint, gateway);
        self.ran = ran;
        let now = Arc::clone(&self.now);
        builder
            .approvals(Arc::clone(&self.approvals) as Arc<dyn Approvals>)
            .clock(move || Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap())
            .build()
            .unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.now.load(Ordering::SeqCst)).unwrap()
    }

    fn decide(&self, id: &str, approve: bool) {
        let answer = Answer {
            approve,
            by: "robin".to_owned(),
            roles: vec!["admin".to_owned()],
            note: Some("looked at it".to_owned()),
        };
        self.approvals.decide(id, &answer, self.now()).unwrap();
    }

    fn statuses(&self) -> Vec<Status> {
        let all = self.approvals.list(&Which::default(), self.now()).unwrap();
        all.iter().map(|approval| approval.status).collect()
    }
}

fn pause(scope: PauseScope) -> Decision {
    let spec = PauseSpec {
        scope,
        prompt: "May it?".to_owned(),
        ..PauseSpec::default()
    };
    Decision::pause(RuleId::from_static("ask-first"), "it is new", spec)
}

/// Pauses notes that say `ask`.
fn asking(scope: PauseScope) -> Gateway {
    gateway(move |event| asks(event).then(|| pause(scope)))
}

fn asks(event: &Event) -> bool {
    let args = event.tool_args.as_ref();
    args.is_some_and(|args| args["text"].as_str().unwrap().starts_with("ask"))
}

/// As another process would find it.
fn written(finished: &Finished) -> String {
    match &finished.outcome {
        Outcome::Suspended(suspended) => serde_json::to_string(suspended).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn resume(planner: &Planner, written: &str) -> Result<Finished, ResumeError> {
    let suspended: Suspended = serde_json::from_str(written).unwrap();
    planner
        .resume(suspended, Events::ignored(), pending())
        .await
}

fn approvals(written: &str) -> Vec<String> {
    let suspended: Suspended = serde_json::from_str(written).unwrap();
    suspended
        .approvals()
        .iter()
        .map(|&id| id.to_owned())
        .collect()
}

fn stopped(finished: &Finished) -> &Stopped {
    crate::fixtures::stopped(&finished.outcome)
}

fn two_calls() -> [Reply; 2] {
    [
        Reply::call([note("ask me"), note("go on")]),
        Reply::say(["Done."]),
    ]
}

#[tokio::test]
async fn an_approved_call_runs_in_another_process_and_nothing_else_again() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let (finished, events) = run(&first, "Note both.").await;
    assert_eq!(world.ran.texts(), ["go on"], "only the one call waits");
    let waiting = events.iter().find_map(|event| match event {
        RunEvent::Waiting { approval, prompt } => Some((approval.clone(), prompt.as_str())),
        _ => None,
    });
    let (id, prompt) = waiting.unwrap();
    assert_eq!(prompt, "May it?");
    let state = written(&finished);
    assert_eq!(approvals(&state), [id.as_str()]);
    let end = End::Suspended {
        approvals: vec![id.clone()],
    };
    assert_eq!(finished.trajectory.end, Some(end));
    let approval = world.approvals.get(&id, world.now()).unwrap().unwrap();
    assert_eq!(approval.bound.agent, "tester");
    assert_eq!(approval.bound.tool.as_deref(), Some("note"));
    assert_eq!(approval.subject, json!({"text": "ask me"}));
    drop(first);

    world.decide(&id, true);
    let second = world.process(asking(PauseScope::ToolCall));
    let finished = resume(&second, &state).await.unwrap();
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(world.ran.texts(), ["ask me"]);
    assert_eq!(world.statuses(), [Status::Used]);
    let calls = &finished.trajectory.steps[0].calls;
    assert_eq!(calls[0].approval, Some(id));
    assert!(calls[1].approval.is_none());
    let sent = messages(&world.endpoint, 1);
    assert_eq!(sent[2]["content"], "noted: ask me");
    assert_eq!(sent[3]["content"], "noted: go on");
}

#[tokio::test]
async fn a_pause_of_the_step_or_the_run_holds_up_the_other_calls_too() {
    for scope in [PauseScope::Step, PauseScope::Run] {
        let mut world = World::new(two_calls()).await;
        let first = world.process(asking(scope));
        let state = written(&run(&first, "Note both.").await.0);
        assert_eq!(world.ran.count(), 0);
        world.decide(&approvals(&state)[0], true);
        let second = world.process(asking(scope));
        let finished = resume(&second, &state).await.unwrap();
        assert!(matches!(finished.outcome, Outcome::Done { .. }));
        let mut ran = world.ran.texts();
        ran.sort();
        assert_eq!(ran, ["ask me", "go on"]);
    }
}

#[tokio::test]
async fn a_no_answers_the_call_the_step_or_the_run() {
    for scope in PauseScope::ALL {
        let mut world = World::new(two_calls()).await;
        let first = world.process(asking(scope));
        let state = written(&run(&first, "Note both.").await.0);
        let before = world.ran.count();
        world.decide(&approvals(&state)[0], false);
        let second = world.process(asking(scope));
        let finished = resume(&second, &state).await.unwrap();
        assert_eq!(world.ran.count(), 0, "nothing runs after a no");
        let no = json!({"error": "not allowed: a person said no: looked at it"}).to_string();
        match scope {
            PauseScope::Run => {
                assert_eq!(stopped(&finished).error_code, ErrorCode::ApprovalDenied);
                assert_eq!(world.endpoint.requests().len(), 1);
            }
            PauseScope::Step => {
                let sent = messages(&world.endpoint, 1);
                assert_eq!(
                    (before, &sent[2]["content"]),
                    (0, &Value::from(no.as_str()))
                );
                assert_eq!(sent[3]["content"], no);
            }
            PauseScope::ToolCall => {
                let sent = messages(&world.endpoint, 1);
                assert_eq!((before, &sent[2]["content"]), (1, &Value::from(no)));
                assert_eq!(sent[3]["content"], "noted: go on");
            }
        }
        let again = resume(&second, &state).await;
        assert!(matches!(
            again,
            Err(ResumeError::Approval(ApprovalError::AlreadyTaken { .. }))
        ));
    }
}

/// Calls are judged in order: by the time of the no, the first has been let go.
#[tokio::test]
async fn a_no_to_the_step_holds_for_the_calls_before_it_too() {
    let replies = [
        Reply::call([note("go on"), note("ask me")]),
        Reply::say(["Done."]),
    ];
    let mut world = World::new(replies).await;
    let first = world.process(asking(PauseScope::Step));
    let state = written(&run(&first, "Note both.").await.0);
    world.decide(&approvals(&state)[0], false);
    let second = world.process(asking(PauseScope::Step));
    let finished = resume(&second, &state).await.unwrap();
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(world.ran.count(), 0);
    let calls = &finished.trajectory.steps[0].calls;
    assert!(calls.iter().all(|call| !call.ran && call.result.is_some()));
}

#[tokio::test]
async fn without_an_answer_it_goes_on_waiting_until_it_is_too_late() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&first, "Note both.").await.0);
    let second = world.process(asking(PauseScope::ToolCall));
    let waiting = resume(&second, &state).await.unwrap();
    assert_eq!(approvals(&written(&waiting)), approvals(&state));
    assert_eq!(world.endpoint.requests().len(), 1);

    world.now.fetch_add(300, Ordering::SeqCst);
    let finished = resume(&second, &state).await.unwrap();
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(world.ran.count(), 0);
    let told = messages(&world.endpoint, 1)[2]["content"].clone();
    assert_eq!(
        told,
        json!({"error": "not allowed: nobody decided in time"}).to_string()
    );
    assert_eq!(world.statuses(), [Status::Expired]);
}

/// Killed before anybody decided: the state on disk is all there is, and it is enough.
#[tokio::test]
async fn a_crash_between_pause_and_approval_loses_nothing() {
    let mut world = World::new(two_calls()).await;
    let state = {
        let first = world.process(asking(PauseScope::ToolCall));
        written(&run(&first, "Note both.").await.0)
    };
    world.decide(&approvals(&state)[0], true);
    let second = world.process(asking(PauseScope::ToolCall));
    resume(&second, &state).await.unwrap();
    assert_eq!(world.ran.texts(), ["ask me"]);
}

/// Killed after the answer was used up: nobody knows whether the call happened, so it does not happen again.
#[tokio::test]
async fn a_crash_between_approval_and_execution_means_at_most_once() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&first, "Note both.").await.0);
    let id = &approvals(&state)[0];
    world.decide(id, true);

    let dying = world.process(asking(PauseScope::ToolCall));
    let suspended: Suspended = serde_json::from_str(&state).unwrap();
    // Like a kill when the answer is used up.
    let approvals = Arc::clone(&world.approvals);
    let (at, now) = (id.clone(), world.now());
    let taken = std::future::poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        let approval = approvals.get(&at, now).unwrap().unwrap();
        match approval.taken {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    });
    let killed = dying.resume(suspended, Events::ignored(), taken).await;
    assert_eq!(killed.unwrap().outcome, Outcome::Cancelled);
    assert_eq!(world.ran.count(), 0);
    assert_eq!(world.statuses(), [Status::Used], "and that is recorded");

    let second = world.process(asking(PauseScope::ToolCall));
    let again = resume(&second, &state).await;
    let Err(ResumeError::Approval(ApprovalError::AlreadyTaken { .. })) = again else {
        panic!("{again:?}");
    };
    assert_eq!(world.ran.count(), 0, "it does not run again");
}

/// Ready after it has been asked so often: it ends a run wherever that has got to, like a kill.
struct Kill {
    after: usize,
}

impl Future for Kill {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.after == 0 {
            return Poll::Ready(());
        }
        self.after -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[tokio::test]
async fn wherever_it_is_killed_the_call_runs_at_most_once_and_that_is_known() {
    let mut ran_before_the_kill = [false; 2];
    // The last is never killed.
    for kill in (0..12).map(|n| (1 << n) - 1).chain([usize::MAX]) {
        let mut world = World::new([
            two_calls()[0].clone(),
            Reply::say(["Done."]),
            Reply::say(["Done."]),
        ])
        .await;
        let first = world.process(asking(PauseScope::ToolCall));
        let state = written(&run(&first, "Note both.").await.0);
        world.decide(&approvals(&state)[0], true);

        let dying = world.process(asking(PauseScope::ToolCall));
        let suspended: Suspended = serde_json::from_str(&state).unwrap();
        let cancel = Kill { after: kill };
        let killed = dying.resume(suspended, Events::ignored(), cancel).await;
        let trajectory = killed.unwrap().trajectory;
        let before = world.ran.count();
        assert!(before <= 1, "killed after {kill}");
        let call = &trajectory.steps[0].calls[0];
        assert!(before == 0 || call.ran, "the record says so");
        ran_before_the_kill[before] = true;

        let used = world.statuses() == [Status::Used];
        assert!(used || before == 0, "killed after {kill}");
        let second = world.process(asking(PauseScope::ToolCall));
        let resumed = resume(&second, &state).await;
        assert_eq!(resumed.is_err(), used, "killed after {kill}");
        let after = world.ran.count();
        assert_eq!(after, usize::from(!used), "killed after {kill}");
        assert_eq!(world.statuses(), [Status::Used], "killed after {kill}");
    }
    assert_eq!(
        ran_before_the_kill, [true; 2],
        "both sides of it were tried"
    );
}

#[tokio::test]
async fn of_many_who_resume_one_runs_the_call() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&first, "Note both.").await.0);
    world.decide(&approvals(&state)[0], true);
    let second = world.process(asking(PauseScope::ToolCall));
    let all = futures_util::future::join_all((0..8).map(|_| resume(&second, &state))).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    assert_eq!(world.ran.texts(), ["ask me"]);
}

#[tokio::test]
async fn whatever_changes_voids_the_approval() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&first, "Note both.").await.0);
    world.decide(&approvals(&state)[0], true);

    let other = gateway_named("other", |event| {
        asks(event).then(|| pause(PauseScope::ToolCall))
    });
    let other = world.process(other);
    let void = ApprovalError::Void {
        id: approvals(&state)[0].clone(),
        what: "policy",
    };
    assert_eq!(resume(&other, &state).await, Err(void.into()));

    let same = world.process(asking(PauseScope::ToolCall));
    for (from, to, what) in [
        ("ask me", "ask not", "arguments"),
        ("tester", "guest", "agent"),
        ("run-1", "run-2", "run"),
        ("Note both.", "Note neither.", "run's state"),
        ("\"judged\":1", "\"judged\":9", "run's state"),
        (
            "\"retries\":[]",
            "\"retries\":[{\"stage\":\"llm_before\",\"tool\":null,\"rule\":\"r\",\"tries\":0,\"step\":0}]",
            "run's state",
        ),
        (
            "\"tenant_id\":null",
            "\"tenant_id\":\"other\"",
            "run's state",
        ),
        (
            "\"scope\":\"tool_call\"",
            "\"scope\":\"run\"",
            "run's state",
        ),
    ] {
        let changed = state.replace(from, to);
        assert_ne!(changed, state, "{from}");
        let void = ApprovalError::Void {
            id: approvals(&state)[0].clone(),
            what,
        };
        assert_eq!(resume(&same, &changed).await, Err(void.into()), "{to}");
    }
    let newer = state.replacen("\"version\":1", "\"version\":2", 1);
    let version = ResumeError::Version { found: 2, known: 1 };
    assert_eq!(resume(&same, &newer).await, Err(version));
    assert_eq!(world.ran.count(), 0);
    assert_eq!(
        world.statuses(),
        [Status::Approved],
        "the true one is still good"
    );
    resume(&same, &state).await.unwrap();
    assert_eq!(world.ran.texts(), ["ask me"]);
}

#[tokio::test]
async fn a_quarantine_outranks_an_approval() {
    let mut world = World::new(two_calls()).await;
    let first = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&first, "Note both.").await.0);
    world.decide(&approvals(&state)[0], true);
    let gateway = asking(PauseScope::ToolCall);
    gateway.quarantine("run-1", "robin", "looks odd");
    let second = world.process(gateway);
    let finished = resume(&second, &state).await.unwrap();
    assert_eq!(stopped(&finished).error_code, ErrorCode::SessionQuarantined);
    assert_eq!(world.ran.count(), 0);
}

#[tokio::test]
async fn two_calls_may_wait_for_two_people() {
    let replies = [
        Reply::call([note("ask 1"), note("ask 2")]),
        Reply::say(["Done."]),
    ];
    let mut world = World::new(replies).await;
    let planner = world.process(asking(PauseScope::ToolCall));
    let state = written(&run(&planner, "Note both.").await.0);
    let ids = approvals(&state);
    assert_eq!(ids.len(), 2);
    world.decide(&ids[1], true);
    let waiting = resume(&planner, &state).await.unwrap();
    assert_eq!(written(&waiting), state, "it waits for both, as it was");
    assert_eq!(world.ran.count(), 0);
    world.decide(&ids[0], false);
    let finished = resume(&planner, &state).await.unwrap();
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(world.ran.texts(), ["ask 2"]);
    assert_eq!(messages(&world.endpoint, 1)[3]["content"], "noted: ask 2");
}

/// At stages without a call: the step waits, and a no ends the run.
#[tokio::test]
async fn prompts_results_and_answers_wait_too() {
    let stages = [
        EventType::LlmBefore,
        EventType::ToolCallResult,
        EventType::LlmStreamChunk,
    ];
    for (stage, approve) in stages
        .iter()
        .flat_map(|stage| [(stage, true), (stage, false)])
    {
        let paused = stage.clone();
        let asking = move || {
            let paused = paused.clone();
            gateway(move |event| {
                let it = event.event_type == paused && event.text().contains("secret");
                it.then(|| pause(PauseScope::Run))
            })
        };
        let replies = [
            Reply::call([note("a secret")]),
            Reply::say(["It ", "is a secret", ", really."]),
        ];
        let mut world = World::new(replies).await;
        let first = world.process(asking());
        let (finished, events) = run(&first, "A secret, please: secret.").await;
        assert!(!shown(&events).contains("secret"), "{stage}");
        let state = written(&finished);
        world.decide(&approvals(&state)[0], approve);
        let second = world.process(asking());
        let suspended: Suspended = serde_json::from_str(&state).unwrap();
        let (events, mut heard) = Events::channel(1000);
        let finished = second.resume(suspended, events, pending()).await.unwrap();
        if !approve {
            let code = stopped(&finished).error_code;
            assert_eq!(code, ErrorCode::ApprovalDenied, "{stage}");
            continue;
        }
        let answer = "It is a secret, really.".to_owned();
        assert_eq!(finished.outcome, Outcome::Done { answer }, "{stage}");
        let mut rest = Vec::new();
        while let Ok(event) = heard.try_recv() {
            rest.push(event);
        }
        let wanted = match stage {
            EventType::LlmStreamChunk => "is a secret, really.",
            _ => "It is a secret, really.",
        };
        assert_eq!(shown(&rest), wanted, "{stage}");
        assert_eq!(world.endpoint.requests().len(), 2);
    }
}

#[tokio::test]
async fn what_waits_is_redacted_on_disk_and_for_the_approver() {
    let replies = [
        Reply::call([("note", json!({"text": format!("ask {SECRET}")}))]),
        Reply::say(["Done."]),
    ];
    let mut world = World::new(replies).await;
    let gateway = || {
        pack_gateway(
            "sync_rules:
  - {id: secret-redaction, events: [llm_before, tool_call_start]}
  - {id: ask-first, rule: expression, events: [tool_call_start], config: {when: 'event.tool_name == \"note\"', action: PAUSE}}
",
        )
    };
    let first = world.process(gateway());
    let state = written(&run(&first, "Note it.").await.0);
    assert!(!state.contains("sk-ant"), "{state}");
    let id = &approvals(&state)[0];
    let approval = world.approvals.get(id, world.now()).unwrap().unwrap();
    assert_eq!(approval.subject, json!({"text": "ask [ANTHROPIC_KEY]"}));
    world.decide(id, true);
    let second = world.process(gateway());
    resume(&second, &state).await.unwrap();
    assert_eq!(world.ran.texts(), ["ask [ANTHROPIC_KEY]"]);
}

#[tokio::test]
async fn if_no_approval_can_be_asked_for_the_run_ends() {
    let mut world = World::new(two_calls()).await;
    world.approvals = Arc::new(MemoryApprovals::new(1));
    let first = world.process(asking(PauseScope::ToolCall));
    run(&first, "Note both.").await;
    let full = World {
        endpoint: start(two_calls()).await,
        ..world
    };
    let mut full = full;
    let second = full.process(asking(PauseScope::ToolCall));
    let (finished, _) = run(&second, "Note both.").await;
    assert_eq!(stopped(&finished).error_code, ErrorCode::ApprovalFailed);
    assert_eq!(full.ran.texts(), ["go on"], "what asks for nobody may run");
}

/// A model may say something and call a tool in one turn. If what it says waits, the call waits with it.
#[tokio::test]
async fn an_answer_that_waits_keeps_its_calls_redacted() {
    let rules = "sync_rules:
  - {id: secret-redaction, events: [tool_call_start, llm_stream_chunk]}
  - {id: ask-first, rule: expression, events: [llm_stream_chunk], config: {when: 'event.text_content.contains(\"hm\")', action: PAUSE}}
";
    let replies = [
        Reply::Turn {
            text: vec!["Well, ".into(), "hm: ".into(), SECRET.into()],
            calls: vec![(
                "c1".into(),
                "note".into(),
                json!({"text": SECRET}).to_string(),
            )],
        },
        Reply::say(["Done."]),
    ];
    let mut world = World::new(replies).await;
    let first = world.process(pack_gateway(rules));
    let (finished, events) = run(&first, "Note it.").await;
    assert_eq!(shown(&events), "Well, ");
    let state = written(&finished);
    assert!(!state.contains("sk-ant"), "{state}");
    assert_eq!(world.ran.count(), 0);
    world.decide(&approvals(&state)[0], true);
    let second = world.process(pack_gateway(rules));
    let finished = resume(&second, &state).await.unwrap();
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(
        finished.trajectory.steps[0].text,
        "Well, hm: [ANTHROPIC_KEY]"
    );
    assert_eq!(world.ran.texts(), ["[ANTHROPIC_KEY]"]);
}
