//! Models, people and providers that say what they should not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use portcullis_core::{
    Action, Decision, ErrorCode, Event, EventType, PauseScope, PauseSpec, RetrySpec, StopSpec,
};
use portcullis_planner::{
    Budgets, ChatModel, ChatRequest, Delta, DeltaStream, Events, FinishReason, Finished,
    ModelError, Outcome, Planner, PlannerBuilder, Said, Task, ToolCall, ToolCallDelta, ToolError,
    Turn, TypedTool,
};
use portcullis_runtime::approval::{Answer, Approvals, Which};
use portcullis_runtime::{BoxFuture, Gate, Gateway, MemoryApprovals};
use serde_json::json;

use crate::fixtures::{
    EVERYWHERE, Note, Ran, SECRET, gateway, note_tool, pack_gateway, redacting, rule, run, stopped,
};

/// Says what it is told to, whatever that is.
struct Scripted {
    turns: Mutex<VecDeque<Turn>>,
    asked: Mutex<Vec<String>>,
}

impl Scripted {
    fn new<const N: usize>(turns: [Turn; N]) -> Arc<Self> {
        Arc::new(Self {
            turns: Mutex::new(turns.into()),
            asked: Mutex::default(),
        })
    }

    fn next(&self, request: ChatRequest<'_>) -> Result<Turn, ModelError> {
        let asked = serde_json::to_string(request.messages).unwrap();
        self.asked.lock().unwrap().push(asked);
        let turn = self.turns.lock().unwrap().pop_front();
        turn.ok_or(ModelError::BrokeOff)
    }

    /// What it has been asked, as one text.
    fn asked(&self) -> String {
        self.asked.lock().unwrap().join("\n")
    }
}

impl ChatModel for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> BoxFuture<'a, Result<Turn, ModelError>> {
        Box::pin(async move { self.next(request) })
    }

    fn stream<'a>(
        &'a self,
        request: ChatRequest<'a>,
    ) -> BoxFuture<'a, Result<DeltaStream, ModelError>> {
        Box::pin(async move {
            let turn = self.next(request)?;
            let words = turn.text.split_inclusive(' ');
            let mut deltas: Vec<_> = words.map(|word| Ok(Delta::Text(word.to_owned()))).collect();
            for (index, call) in turn.calls.into_iter().enumerate() {
                deltas.push(Ok(Delta::ToolCall(ToolCallDelta {
                    index: Some(index),
                    id: Some(call.id),
                    name: Some(call.name),
                    arguments: call.arguments,
                })));
            }
            deltas.push(Ok(Delta::Finish(turn.finish)));
            Ok(stream::iter(deltas).boxed())
        })
    }
}

fn say(text: &str) -> Turn {
    Turn {
        text: text.to_owned(),
        calls: Vec::new(),
        finish: FinishReason::Stop,
        usage: None,
    }
}

fn call(calls: &[(&str, &str, &str)]) -> Turn {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    Turn {
        calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        ..say("")
    }
}

fn planner(model: &Arc<Scripted>, gate: impl Into<Gate>) -> (PlannerBuilder, Ran) {
    let ran = Ran::default();
    let model: Arc<dyn ChatModel> = Arc::clone(model) as _;
    let builder = Planner::builder(model, gate).tool(note_tool(&ran));
    (builder, ran)
}

fn noting(text: &str) -> String {
    json!({"text": text}).to_string()
}

/// Wherever a model can put a word of its own, a secret does not come back, stay in the record or reach the caller.
#[tokio::test]
async fn a_secret_in_any_part_of_a_turn_goes_nowhere() {
    let turns = [
        call(&[("c1", "note", SECRET)]),
        call(&[("c1", "note", &format!("\"{SECRET}\""))]),
        call(&[("c1", "note", &format!("{{\"{SECRET}"))]),
        call(&[(SECRET, "note", &noting("a"))]),
        call(&[("c1", SECRET, &noting("a"))]),
        call(&[("c1", "not a name", &noting("a"))]),
        Turn {
            finish: FinishReason::from(SECRET),
            ..call(&[("c1", "note", &noting("b"))])
        },
        Turn {
            finish: FinishReason::Length,
            ..call(&[("c1", "note", &noting(SECRET))])
        },
        say("Done."),
    ];
    for streaming in [true, false] {
        let model = Scripted::new(turns.clone());
        let (builder, ran) = planner(&model, redacting());
        let planner = builder.streaming(streaming).build().unwrap();
        let (finished, events) = run(&planner, "Go.").await;
        assert!(
            matches!(finished.outcome, Outcome::Done { .. }),
            "{finished:?}"
        );
        assert_eq!(ran.texts(), ["a", "b"], "what can be read runs");
        let all = format!("{}{events:?}{finished:?}", model.asked());
        assert!(!all.contains("sk-ant"), "{all}");
    }
}

#[tokio::test]
async fn a_call_that_was_cut_off_does_not_run() {
    for finish in [FinishReason::Length, FinishReason::ContentFilter] {
        let cut = Turn {
            finish,
            ..call(&[("c1", "note", &noting("a"))])
        };
        let model = Scripted::new([cut, say("Sorry.")]);
        let (builder, ran) = planner(&model, redacting());
        let (finished, _) = run(&builder.build().unwrap(), "Go.").await;
        assert!(matches!(finished.outcome, Outcome::Done { .. }));
        assert_eq!(ran.count(), 0);
        assert!(model.asked().contains("cut off"));
    }
}

#[tokio::test]
async fn a_turn_in_one_piece_has_the_limits_of_a_streamed_one() {
    let many = vec![("c", "note", "{}"); 129];
    let long = "x".repeat(2000);
    for turn in [call(&many), call(&[("c1", "note", &long)]), say(&long)] {
        for streaming in [true, false] {
            let model = Scripted::new([turn.clone()]);
            let (builder, ran) = planner(&model, redacting());
            let budgets = Budgets {
                answer_bytes: 1500,
                ..Budgets::default()
            };
            let planner = builder
                .streaming(streaming)
                .budgets(budgets)
                .build()
                .unwrap();
            let (finished, _) = run(&planner, "Go.").await;
            assert!(
                matches!(finished.outcome, Outcome::Failed(_)),
                "{finished:?}"
            );
            assert_eq!(ran.count(), 0);
        }
    }
}

#[tokio::test]
async fn what_was_said_before_is_judged_whoever_said_it() {
    for said in [Said::User(SECRET.into()), Said::Model(SECRET.into())] {
        let model = Scripted::new([say("Hm.")]);
        let gateway = pack_gateway(EVERYWHERE);
        let planner = planner(&model, gateway).0.build().unwrap();
        let task = Task::new("run-1", "Go on.").history([said]);
        assert!(!format!("{task:?}").contains("sk-ant"));
        let finished = planner
            .run(task, Events::ignored(), std::future::pending())
            .await;
        assert!(!format!("{}{finished:?}", model.asked()).contains("sk-ant"));
    }
}

fn retry(max_attempts: u32) -> Decision {
    let spec = RetrySpec {
        max_attempts,
        corrective_message: "Differently.".to_owned(),
    };
    Decision::retry(rule(), "no", spec)
}

/// The limit is on how often the model is asked, not on how many calls it makes at once.
#[tokio::test]
async fn calls_of_one_step_are_one_try() {
    let bad = noting("bad");
    let two_bad = call(&[("1", "note", &bad), ("2", "note", &bad)]);
    let mixed = call(&[("1", "note", &bad), ("2", "note", &noting("good"))]);
    let judge = |event: &Event| {
        let arguments = event.tool_args.as_ref()?;
        (arguments["text"] == "bad").then(|| retry(2))
    };
    let model = Scripted::new([two_bad.clone(), two_bad.clone(), say("Well.")]);
    let (builder, _) = planner(&model, gateway(judge));
    let (finished, _) = run(&builder.build().unwrap(), "Go.").await;
    assert!(
        matches!(finished.outcome, Outcome::Done { .. }),
        "{finished:?}"
    );
    // Nor does getting one of them right start the count again, whichever comes first.
    let mut other = mixed.clone();
    other.calls.reverse();
    for mixed in [mixed, other] {
        let model = Scripted::new([mixed.clone(), mixed.clone(), mixed, say("Well.")]);
        let (builder, ran) = planner(&model, gateway(judge));
        let (finished, _) = run(&builder.build().unwrap(), "Go.").await;
        let code = stopped(&finished.outcome).error_code;
        assert_eq!(code, ErrorCode::RetriesExhausted);
        assert_eq!(ran.texts(), ["good", "good"]);
    }
}

struct Person(Arc<MemoryApprovals>);

impl Person {
    /// Answers whatever waits, and says how many that were.
    fn answer(&self, approve: bool, note: &str) -> usize {
        let which = Which {
            status: Some(portcullis_runtime::approval::Status::Pending),
            ..Which::default()
        };
        let waiting = self.0.list(&which, Timestamp::now()).unwrap();
        for approval in &waiting {
            let answer = Answer {
                approve,
                by: "robin".to_owned(),
                roles: vec!["admin".to_owned()],
                note: Some(note.to_owned()),
            };
            self.0
                .decide(&approval.id, &answer, Timestamp::now())
                .unwrap();
        }
        waiting.len()
    }
}

#[tokio::test]
async fn a_persons_note_is_judged_before_the_model_reads_it() {
    let person = Person(Arc::default());
    let model = Scripted::new([call(&[("1", "note", &noting("x"))]), say("Well.")]);
    let rules = "sync_rules:
  - {id: secret-redaction}
  - {id: ask, rule: expression, events: [tool_call_start], config: {when: 'true', action: PAUSE}}
";
    let (builder, ran) = planner(&model, pack_gateway(rules));
    let planner = builder
        .approvals(Arc::clone(&person.0) as _)
        .build()
        .unwrap();
    let (finished, _) = run(&planner, "Go.").await;
    person.answer(false, &format!("use {SECRET} instead"));
    let Outcome::Suspended(suspended) = finished.outcome else {
        panic!("{finished:?}");
    };
    let resumed = planner.resume(*suspended, Events::ignored(), std::future::pending());
    let finished = resumed.await.unwrap();
    assert_eq!(ran.count(), 0);
    let all = format!("{}{finished:?}", model.asked());
    assert!(all.contains("instead") && !all.contains("sk-ant"), "{all}");
}

/// Two rules pause one call. A yes to the first is none to the second.
#[tokio::test]
async fn every_rule_that_pauses_has_to_be_approved() {
    let rules = "sync_rules:
  - {id: first, rule: expression, events: [tool_call_start], config: {when: 'true', action: PAUSE, prompt: One?}}
  - {id: second, rule: expression, events: [tool_call_start], config: {when: 'true', action: PAUSE, prompt: Two?}}
  - {id: third, rule: expression, events: [tool_call_start], config: {when: 'event.tool_args.text == \"bad\"', action: RETRY}}
";
    for (text, ran_in_the_end) in [("good", 1), ("bad", 0)] {
        let person = Person(Arc::default());
        let model = Scripted::new([call(&[("1", "note", &noting(text))]), say("Well.")]);
        let (builder, ran) = planner(&model, pack_gateway(rules));
        let planner = builder
            .approvals(Arc::clone(&person.0) as _)
            .build()
            .unwrap();
        let (mut finished, _) = run(&planner, "Go.").await;
        for approvals in 1..=2 {
            assert_eq!(ran.count(), 0, "after {approvals} approvals");
            assert_eq!(person.answer(true, ""), 1);
            let Outcome::Suspended(suspended) = finished.outcome else {
                panic!("{finished:?}");
            };
            let resumed = planner.resume(*suspended, Events::ignored(), std::future::pending());
            finished = resumed.await.unwrap();
        }
        assert!(
            matches!(finished.outcome, Outcome::Done { .. }),
            "{finished:?}"
        );
        assert_eq!(ran.count(), ran_in_the_end, "{text}");
    }
}

/// A piece that is let go may be objected to by several rules; the gravest objection ends the answer.
#[tokio::test]
async fn the_gravest_of_several_objections_ends_an_answer() {
    let judge = |event: &Event| {
        if event.event_type != EventType::LlmStreamChunk {
            return None;
        }
        let stop = || Decision::stop(rule(), "no", StopSpec::code(ErrorCode::ToolDenied));
        let pause = || Decision::pause(rule(), "hm", PauseSpec::default());
        match event.text() {
            text if text.contains("stop") => Some(stop()),
            text if text.contains("ask") => Some(pause()),
            _ => None,
        }
    };
    // What waits is judged as a whole: the rest of it may be worse than what it waits for.
    let model = Scripted::new([say("please ask first and then stop all")]);
    let (builder, _) = planner(&model, gateway(judge));
    let (finished, _) = run(&builder.build().unwrap(), "Go.").await;
    let code = stopped(&finished.outcome).error_code;
    assert_eq!(code, ErrorCode::ToolDenied);
    let said = &finished.trajectory.guard;
    assert!(said.iter().any(|said| said.action == Action::Pause));
}

/// What is ready as well must not begin any more.
#[tokio::test]
async fn a_run_that_is_cancelled_before_it_begins_asks_nobody() {
    let model = Scripted::new([say("Hi.")]);
    let planner = planner(&model, Gateway::without_policy())
        .0
        .build()
        .unwrap();
    let task = Task::new("run-1", "Hello?");
    let finished = planner
        .run(task, Events::ignored(), std::future::ready(()))
        .await;
    assert_eq!(finished.outcome, Outcome::Cancelled);
    assert_eq!(model.asked(), "");
}

/// Goes on as soon as a person has answered.
async fn go_on(planner: &Planner, finished: Finished) -> Finished {
    let Outcome::Suspended(suspended) = finished.outcome else {
        panic!("{finished:?}");
    };
    let resumed = planner.resume(*suspended, Events::ignored(), std::future::pending());
    resumed.await.unwrap()
}

fn pausing(stage: EventType) -> impl Fn(&Event) -> Option<Decision> + Send + Sync + 'static {
    move |event| {
        let it = event.event_type == stage;
        it.then(|| Decision::pause(rule(), "hm", PauseSpec::default()))
    }
}

/// A rule that objects to a tool says its name. What is no name, or a secret, has none.
#[tokio::test]
async fn a_secret_for_a_tool_is_not_in_the_reason_to_refuse_it() {
    let rules =
        format!("{EVERYWHERE}  - {{id: tool-allowlist, config: {{allowed_tools: [note]}}}}\n");
    for name in [SECRET, "rm -rf / now", "rm.all"] {
        let model = Scripted::new([call(&[("c1", name, "{}")])]);
        let (builder, _) = planner(&model, pack_gateway(&rules));
        let (finished, events) = run(&builder.build().unwrap(), "Go.").await;
        let code = stopped(&finished.outcome).error_code;
        assert_eq!(code, ErrorCode::ToolNotAllowed, "{name}");
        let all = format!("{events:?}{finished:?}");
        assert_eq!(all.contains(name), name == "rm.all", "{all}");
    }
}

/// What an answer is held up for is judged as a whole, and what ends the run then is in its record.
#[tokio::test]
async fn what_stops_an_answer_that_waits_is_recorded() {
    let judge = |event: &Event| {
        let text = event.text();
        let stop = || Decision::stop(rule(), "both", StopSpec::code(ErrorCode::ToolDenied));
        let pause = || Decision::pause(rule(), "hm", PauseSpec::default());
        match (text.contains("ask"), text.contains("stop")) {
            (true, true) => Some(stop()),
            (true, false) => Some(pause()),
            _ => None,
        }
    };
    let model = Scripted::new([say("please ask first and then stop all")]);
    let (builder, _) = planner(&model, gateway(judge));
    let (finished, _) = run(&builder.build().unwrap(), "Go.").await;
    assert_eq!(stopped(&finished.outcome).reason, "both");
    let said = finished.trajectory.guard.iter().map(|said| said.action);
    assert_eq!(said.collect::<Vec<_>>(), [Action::Pause, Action::Stop]);
}

/// The record names the rule that has the last word, not the one whose pause was lifted.
#[tokio::test]
async fn after_a_yes_the_next_rule_is_heard_in_its_own_name() {
    let rules = "sync_rules:
  - {id: ask, rule: expression, events: [tool_call_start], config: {when: 'true', action: PAUSE}}
  - {id: again, rule: expression, events: [tool_call_start], config: {when: 'true', action: RETRY}}
";
    let person = Person(Arc::default());
    let model = Scripted::new([call(&[("1", "note", &noting("x"))])]);
    let (builder, ran) = planner(&model, pack_gateway(rules));
    let planner = builder
        .approvals(Arc::clone(&person.0) as _)
        .build()
        .unwrap();
    let (finished, _) = run(&planner, "Go.").await;
    person.answer(true, "");
    let finished = go_on(&planner, finished).await;
    let said = finished.trajectory.guard.last().unwrap();
    assert_eq!(
        (said.action, said.rule_id.as_str()),
        (Action::Retry, "again")
    );
    assert_eq!(ran.count(), 0);
}

/// A rule that pauses results pauses the answer "not allowed" too: people are asked for what waits, and for nothing else.
#[tokio::test]
async fn a_no_to_a_step_whose_results_wait_asks_for_each_once() {
    let judge = |event: &Event| {
        let stages = [EventType::ToolCallStart, EventType::ToolCallResult];
        let spec = PauseSpec {
            scope: PauseScope::Step,
            ..PauseSpec::default()
        };
        let it = stages.contains(&event.event_type);
        it.then(|| Decision::pause(rule(), "hm", spec))
    };
    let person = Person(Arc::default());
    let two = call(&[("1", "note", &noting("a")), ("2", "note", &noting("b"))]);
    let model = Scripted::new([two, say("Well.")]);
    let (builder, ran) = planner(&model, gateway(judge));
    let planner = builder
        .approvals(Arc::clone(&person.0) as _)
        .build()
        .unwrap();
    let (mut finished, _) = run(&planner, "Go.").await;
    for approve in [false, true] {
        assert_eq!(person.answer(approve, ""), 2);
        finished = go_on(&planner, finished).await;
    }
    assert!(
        matches!(finished.outcome, Outcome::Done { .. }),
        "{finished:?}"
    );
    assert_eq!(ran.count(), 0);
    assert!(model.asked().contains("not allowed"));
}

/// What the model wrote in place of arguments is what a person is asked about, and after a no it is gone.
#[tokio::test]
async fn arguments_that_are_none_wait_with_their_text() {
    for approve in [true, false] {
        let person = Person(Arc::default());
        let model = Scripted::new([call(&[("1", "note", "not {json}")]), say("Well.")]);
        let (builder, ran) = planner(&model, gateway(pausing(EventType::ToolCallResult)));
        let planner = builder
            .approvals(Arc::clone(&person.0) as _)
            .build()
            .unwrap();
        let (finished, _) = run(&planner, "Go.").await;
        let asked = person.0.list(&Which::default(), Timestamp::now()).unwrap();
        assert_eq!(asked[0].subject["arguments"], "not {json}");
        person.answer(approve, "");
        let mut finished = go_on(&planner, finished).await;
        if !approve {
            // The no is a result, and waits like one.
            assert_eq!(person.answer(true, ""), 1);
            finished = go_on(&planner, finished).await;
        }
        assert!(
            matches!(finished.outcome, Outcome::Done { .. }),
            "{finished:?}"
        );
        assert_eq!(ran.count(), 0);
        assert_eq!(model.asked().contains("not {json}"), approve);
    }
}

/// Sequence rules remember in the process that goes on.
#[tokio::test]
async fn what_happened_before_a_pause_counts_after_it_in_another_process() {
    let rules = "sync_rules:
  - {id: ask, rule: expression, events: [tool_call_start], config: {when: 'event.tool_args.text == \"ask\"', action: PAUSE}}
  - {id: no-more, rule: sequence, config: {after: {tools: [note]}, then: {tools: [send]}}}
";
    let person = Person(Arc::default());
    let model = Scripted::new([
        call(&[("1", "note", &noting("a secret"))]),
        call(&[("1", "note", &noting("ask"))]),
        call(&[("1", "send", &noting("all"))]),
    ]);
    let process = || {
        let (builder, _) = planner(&model, pack_gateway(rules));
        let send = TypedTool::new("send", "", |note: Note| async move {
            Ok::<_, ToolError>(note.text)
        });
        let builder = builder.tool(send).approvals(Arc::clone(&person.0) as _);
        builder.build().unwrap()
    };
    let (finished, _) = run(&process(), "Go.").await;
    let Outcome::Suspended(suspended) = &finished.outcome else {
        panic!("{finished:?}");
    };
    person.answer(true, "");
    let written = serde_json::to_string(suspended).unwrap();
    let suspended = serde_json::from_str(&written).unwrap();
    let second = process();
    let resumed = second.resume(suspended, Events::ignored(), std::future::pending());
    let finished = resumed.await.unwrap();
    let rule_id = stopped(&finished.outcome).rule_id.as_ref();
    assert_eq!(rule_id.unwrap().as_str(), "no-more");
}

/// What a person is shown has every argument, however long some are.
#[tokio::test]
async fn a_long_argument_does_not_hide_the_others() {
    let person = Person(Arc::default());
    let arguments = json!({"aaa": "x".repeat(100_000), "to": "attacker@example.org"});
    let model = Scripted::new([call(&[("1", "note", &arguments.to_string())])]);
    let (builder, _) = planner(&model, gateway(pausing(EventType::ToolCallStart)));
    let planner = builder
        .approvals(Arc::clone(&person.0) as _)
        .build()
        .unwrap();
    run(&planner, "Go.").await;
    let asked = person.0.list(&Which::default(), Timestamp::now()).unwrap();
    assert_eq!(asked[0].subject["to"], "attacker@example.org");
    let cut = asked[0].subject["aaa"].as_str().unwrap();
    assert!(cut.ends_with("… (100000 bytes in all)"), "{cut}");
}
