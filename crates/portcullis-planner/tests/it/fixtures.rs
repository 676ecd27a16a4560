//! Rules, tools and planners that the tests share.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_core::pack::diagnostic::Place;
use portcullis_core::pack::{self, Pack};
use portcullis_core::rules::{Rule, RuleError, RuleInfo, RuleInput};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Context, Decision, Event, GatewaySettings, PolicyBuilder, RuleId, Severity, StreamGuard,
};
use portcullis_planner::{
    Events, Finished, OpenAiChat, OpenAiSettings, Outcome, Planner, PlannerBuilder, RunEvent,
    Stopped, Task, Tool, ToolError, TypedTool,
};
use portcullis_runtime::{Gate, Gateway};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};

pub(crate) const SECRET: &str = "sk-ant-api03-abcdefghijklmnop";

/// Secrets are redacted at every stage.
pub(crate) const EVERYWHERE: &str = "sync_rules:
  - {id: secret-redaction, events: [llm_before, tool_call_start, tool_call_result, llm_stream_chunk]}
";

/// A gateway of one rule from outside.
pub(crate) fn gateway(
    judge: impl Fn(&Event) -> Option<Decision> + Send + Sync + 'static,
) -> Gateway {
    gateway_named("test", judge)
}

/// The same, of a policy that is another one if its name is.
pub(crate) fn gateway_named(
    policy: &str,
    judge: impl Fn(&Event) -> Option<Decision> + Send + Sync + 'static,
) -> Gateway {
    let settings = GatewaySettings {
        sync_timeout_ms: 60_000.0,
        ..GatewaySettings::default()
    };
    let policy = PolicyBuilder::new(policy, "1.0.0")
        .gateway(settings)
        .custom_rule(Arc::new(Judge(judge)), None, Place::default())
        .compile()
        .unwrap();
    Gateway::builder(policy).build()
}

struct Judge<F>(F);

impl<F> Rule for Judge<F>
where
    F: Fn(&Event) -> Option<Decision> + Send + Sync + 'static,
{
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: rule(),
            version: "1.0.0".into(),
            events: EventSet::standard(),
            severity: Severity::Medium,
        }
    }

    fn evaluate(&self, input: &RuleInput<'_>) -> Result<Option<Decision>, RuleError> {
        Ok((self.0)(input.event))
    }
}

pub(crate) fn rule() -> RuleId {
    RuleId::from_static("test-rule")
}

/// A gateway of a pack, without hurry.
pub(crate) fn pack_gateway(rules: &str) -> Gateway {
    load("enforce", rules)
}

/// The same, enforcing nothing.
pub(crate) fn shadowing(rules: &str) -> Gateway {
    load("shadow", rules)
}

fn load(mode: &str, rules: &str) -> Gateway {
    let text = format!(
        "policy_pack: test\nversion: '1.0.0'\ngateway: {{mode: {mode}, sync: {{timeout_ms: 60000}}}}\n{rules}"
    );
    let pack = Pack {
        file: "test.yaml",
        text: &text,
        ..Pack::default()
    };
    Gateway::builder(pack::load(&pack).unwrap().policy).build()
}

/// Secrets are redacted wherever they are.
pub(crate) fn redacting() -> Gateway {
    pack_gateway("sync_rules: [{id: secret-redaction}]\n")
}

/// What streaming this text whole would show.
pub(crate) fn redacted(gateway: &Gateway, text: &str) -> String {
    let mut guard = StreamGuard::new(gateway.policy(), Context::new("other"));
    let mut shown = guard.push(text).text.to_owned();
    shown.push_str(guard.finish().text);
    shown
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Note {
    pub(crate) text: String,
}

/// Counts how often it ran, and keeps with what.
#[derive(Clone, Default)]
pub(crate) struct Ran(Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>);

impl Ran {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    fn add(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn model(endpoint: &Endpoint) -> Arc<OpenAiChat> {
    let mut settings = OpenAiSettings::new(endpoint.base_url(), "scripted");
    settings.backoff = Duration::from_millis(1);
    Arc::new(OpenAiChat::new(settings).unwrap())
}

/// Repeats its text.
pub(crate) fn note_tool(ran: &Ran) -> impl Tool + use<> {
    let noted = ran.clone();
    TypedTool::new("note", "Takes a note.", move |note: Note| {
        noted.add(&note.text);
        async move { Ok::<_, ToolError>(format!("noted: {}", note.text)) }
    })
}

pub(crate) fn stopped(outcome: &Outcome) -> &Stopped {
    match outcome {
        Outcome::Stopped(stopped) => stopped,
        other => panic!("{other:?}"),
    }
}

/// A planner with the tools `note` (repeats its text) and `lookup` (gives JSON), and what `note` was called with.
pub(crate) fn planner(endpoint: &Endpoint, gate: impl Into<Gate>) -> (PlannerBuilder, Ran) {
    let ran = Ran::default();
    let builder = Planner::builder(model(endpoint), gate)
        .tool(note_tool(&ran))
        .tool(TypedTool::new(
            "lookup",
            "Looks it up.",
            |note: Note| async move {
                Ok::<_, ToolError>(
                    json!({"query": note.text, "hits": [{"secret": SECRET, "n": 1}]}),
                )
            },
        ));
    (builder, ran)
}

pub(crate) async fn start<const N: usize>(replies: [Reply; N]) -> Endpoint {
    Endpoint::start(replies).await.unwrap()
}

/// Runs a task to its end, and gives what the caller heard.
pub(crate) async fn run(planner: &Planner, text: &str) -> (Finished, Vec<RunEvent>) {
    let (events, mut heard) = Events::channel(10_000);
    let task = Task::new("run-1", text).agent("tester");
    let finished = planner.run(task, events, pending()).await;
    let mut all = Vec::new();
    while let Ok(event) = heard.try_recv() {
        all.push(event);
    }
    (finished, all)
}

/// The text that the caller was shown.
pub(crate) fn shown(events: &[RunEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        RunEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

pub(crate) fn note(text: &str) -> (&'static str, Value) {
    ("note", json!({"text": text}))
}

/// The messages of the nth request.
pub(crate) fn messages(endpoint: &Endpoint, n: usize) -> Vec<Value> {
    let requests = endpoint.requests();
    requests[n]["messages"].as_array().unwrap().clone()
}
