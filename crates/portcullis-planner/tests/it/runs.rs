//! The loop itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_planner::{
    Budgets, End, Outcome, Planner, RunEvent, Said, Task, ToolError, TypedTool,
};
use portcullis_runtime::Unguarded;
use serde_json::json;

use crate::endpoint::Reply;
use crate::fixtures::{Note, messages, model, note, planner, run, shown, start};

#[tokio::test]
async fn a_run_calls_tools_and_answers() {
    for streaming in [true, false] {
        let endpoint = start([
            Reply::call([note("bread")]),
            Reply::say(["Noted ", "bread."]),
        ])
        .await;
        let (builder, ran) = planner(&endpoint, Unguarded);
        let planner = builder.streaming(streaming).build().unwrap();
        let (finished, events) = run(&planner, "Remember bread.").await;
        let answer = "Noted bread.".to_owned();
        assert_eq!(finished.outcome, Outcome::Done { answer });
        assert_eq!(ran.texts(), ["bread"]);
        assert_eq!(shown(&events), "Noted bread.");
        let sent = messages(&endpoint, 1);
        assert_eq!(
            sent[1..],
            [
                json!({"role": "assistant", "content": null, "tool_calls": [{
                    "id": "call_1_1", "type": "function",
                    "function": {"name": "note", "arguments": "{\"text\":\"bread\"}"},
                }]}),
                json!({"role": "tool", "tool_call_id": "call_1_1", "content": "noted: bread"}),
            ]
        );
        let trajectory = serde_json::to_value(&finished.trajectory).unwrap();
        assert_eq!(
            trajectory,
            json!({
                "run_id": "run-1", "agent": "tester", "model": "scripted",
                "input": [{"role": "user", "content": "Remember bread."}],
                "steps": [
                    {"text": "", "finish": "tool_calls", "calls": [{
                        "id": "call_1_1", "tool": "note", "arguments": {"text": "bread"},
                        "ran": true, "result": "noted: bread",
                    }]},
                    {"text": "Noted bread.", "finish": "stop"},
                ],
                "usage": {"prompt_tokens": 20, "completion_tokens": 10},
                "end": {"kind": "done"},
            })
        );
        let back: portcullis_planner::Trajectory = serde_json::from_value(trajectory).unwrap();
        assert_eq!(back, finished.trajectory);
    }
}

#[tokio::test]
async fn the_model_is_offered_the_tools_with_schemas_of_their_types() {
    let endpoint = start([Reply::say(["Hello."])]).await;
    let planner = planner(&endpoint, Unguarded).0.build().unwrap();
    run(&planner, "Hello?").await;
    let tools = endpoint.requests()[0]["tools"].clone();
    assert_eq!(
        tools[0],
        json!({"type": "function", "function": {
            "name": "note", "description": "Takes a note.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }})
    );
}

#[tokio::test]
async fn what_a_tool_cannot_do_goes_back_to_the_model() {
    let text = "x".repeat(2000);
    let endpoint = start([
        Reply::call([
            ("note", json!({"text": 7})),
            ("nothing", json!({})),
            ("panics", json!({"text": ""})),
            ("fails", json!({"text": ""})),
            ("sleeps", json!({"text": ""})),
            ("note", json!({"text": text})),
        ]),
        Reply::Turn {
            text: vec![],
            calls: vec![("c9".into(), "note".into(), "{\"text\": ".into())],
        },
        Reply::say(["I give up."]),
    ])
    .await;
    let (builder, ran) = planner(&endpoint, Unguarded);
    let planner = builder
        .tool(TypedTool::new("panics", "", |_: Note| async {
            panic!("on purpose");
            #[expect(unreachable_code, reason = "the type of the result")]
            Ok::<String, ToolError>(String::new())
        }))
        .tool(TypedTool::new("fails", "", |_: Note| async {
            Err::<String, _>(ToolError::new("the disk is full"))
        }))
        .tool(TypedTool::new("sleeps", "", |_: Note| async {
            std::future::pending::<Result<String, ToolError>>().await
        }))
        .budgets(Budgets {
            tool_call: Duration::from_millis(50),
            result_bytes: 1000,
            ..Budgets::default()
        })
        .build()
        .unwrap();
    let (finished, _) = run(&planner, "Try everything.").await;
    assert!(matches!(finished.outcome, Outcome::Done { .. }));
    assert_eq!(ran.count(), 1);
    let errors: Vec<String> = messages(&endpoint, 2)
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    let wanted = [
        "bad arguments: text invalid type: integer `7`, expected a string",
        "there is no such tool; there are: note, lookup, panics, fails, sleeps",
        "the tool failed",
        "the disk is full",
        "the tool did not answer within 0 s",
        "the result has 2009 bytes, more than 1000: ask for less",
        "the arguments are not JSON: look at line 1, column 9",
    ];
    let wanted = wanted.map(|error| json!({"error": error}).to_string());
    assert_eq!(errors, wanted);
}

#[tokio::test]
async fn calls_run_side_by_side_within_bounds_and_are_answered_in_order() {
    let replies = [
        Reply::call(["5", "4", "3", "2", "1", "0"].map(|n| ("wait", json!({"text": n})))),
        Reply::say(["Done."]),
    ];
    let endpoint = start(replies).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&now), Arc::clone(&most));
    let planner = Planner::builder(model(&endpoint), Unguarded)
        .tool(TypedTool::new("wait", "", move |note: Note| {
            let (now, most) = (Arc::clone(&counted), Arc::clone(&peak));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let n: u64 = note.text.parse().unwrap();
                tokio::time::sleep(Duration::from_millis(20 * n)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, ToolError>(note.text)
            }
        }))
        .budgets(Budgets {
            parallel_calls: 3,
            ..Budgets::default()
        })
        .build()
        .unwrap();
    let (_, events) = run(&planner, "Wait.").await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let finished: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ToolFinished { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    let wanted = (1..=6).map(|place| format!("call_1_{place}"));
    assert_eq!(finished, wanted.collect::<Vec<_>>());
    let results: Vec<_> = messages(&endpoint, 1)[2..]
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(results, ["5", "4", "3", "2", "1", "0"]);
}

#[tokio::test]
async fn what_was_said_before_comes_between_the_operator_and_the_task() {
    let endpoint = start([Reply::say(["Blue."])]).await;
    let planner = planner(&endpoint, Unguarded).0.build().unwrap();
    let task = Task::new("run-1", "Which colour?")
        .system("Be brief.")
        .history([
            Said::User("I like blue.".into()),
            Said::Model("Good.".into()),
        ]);
    let events = portcullis_planner::Events::ignored();
    let finished = planner.run(task, events, std::future::pending()).await;
    assert_eq!(finished.trajectory.end, Some(End::Done));
    let roles: Vec<_> = messages(&endpoint, 0)
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
}

#[tokio::test]
async fn a_caller_who_has_left_holds_nothing_up() {
    let endpoint = start([Reply::say(["One ", "two ", "three."])]).await;
    let planner = planner(&endpoint, Unguarded).0.build().unwrap();
    let (events, heard) = portcullis_planner::Events::channel(1);
    drop(heard);
    let task = Task::new("run-1", "Count.");
    let finished = planner.run(task, events, std::future::pending()).await;
    assert_eq!(finished.trajectory.end, Some(End::Done));
}

#[tokio::test]
async fn two_tools_of_one_name_are_refused() {
    let endpoint = start([]).await;
    let (builder, _) = planner(&endpoint, Unguarded);
    let again = TypedTool::new("note", "", |note: Note| async move {
        Ok::<_, ToolError>(note.text)
    });
    let error = builder.tool(again).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the planner's tools: two tools have the name `note`"
    );
}
