//! RFC-001's example B: an analytics assistant that keeps to its subject.
//!
//! A deep rule asks a classifier whether a prompt is in scope, and answers RETRY with guidance where it is not: the
//! model then declines in its own voice, which a hard stop could not. The classifier is `scope.json`, trained from the
//! examples beside it; README.md says how, and `scope.yaml` does the same with the built-in rule `custom-classifier`.
//! `cargo run -p portcullis --example scope_classifier` asks three questions.

#[expect(dead_code, reason = "the planner's tests use the rest")]
#[path = "../support/endpoint.rs"]
mod endpoint;

use std::error::Error;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;

use portcullis_core::classifier::{Channel, Sample, SoughtLabels, TextClassifier};
use portcullis_core::rules::{RuleInfo, RuleInput};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    ContextSnapshot, Decision, Event, EventType, PolicyBuilder, RetrySpec, RiskRouter, Routing,
    RuleId, Severity,
};
use portcullis_models::LinearClassifier;
use portcullis_planner::{
    Events, OpenAiChat, OpenAiSettings, Outcome, Planner, Said, Task, ToolError, TypedTool,
};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule, DeepRules, Gateway};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use endpoint::{Endpoint, Reply};

const SCOPE: &str = "analytics reporting, metrics, charts";
const RULE: RuleId = RuleId::from_static("scope-classifier");

struct ScopeRule {
    classifier: LinearClassifier,
    sought: SoughtLabels,
}

impl ScopeRule {
    fn load(path: &Path) -> Result<Self, Box<dyn Error>> {
        let classifier = LinearClassifier::load(path)?;
        Ok(Self {
            sought: SoughtLabels::of(&classifier, classifier.positive())?,
            classifier,
        })
    }

    /// How likely a text is out of scope.
    fn score(&self, text: &str) -> Result<f32, DeepError> {
        let sample = Sample {
            text,
            channel: Channel::User,
        };
        let scores = self.classifier.classify(&[sample]);
        let scores = scores.map_err(|error| DeepError::Failed(error.to_string()))?;
        let score = scores.first().map(|scores| self.sought.score(scores));
        Ok(score.unwrap_or_default())
    }
}

impl DeepRule for ScopeRule {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: RULE,
            version: "1.0.0".into(),
            events: EventSet::from_iter([EventType::LlmBefore]),
            severity: Severity::Low,
        }
    }

    fn evaluate<'a>(
        &'a self,
        input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(async move {
            let Some(text) = described(&input) else {
                return Ok(None);
            };
            let score = self.score(&text)?;
            if score < self.classifier.threshold().unwrap_or(0.5) {
                return Ok(None);
            }
            let guidance = format!(
                "The question is outside of what you are for ({SCOPE}). Say so kindly, in one sentence, and \
                 ask what the user wants to know about that."
            );
            let retry = RetrySpec {
                max_attempts: 2,
                corrective_message: guidance,
            };
            let decision = Decision::retry(RULE, "Out of scope", retry);
            Ok(Some(decision.with_confidence(f64::from(score))))
        })
    }
}

/// What a classifier needs to judge a short reply. Nothing if the model is asked without a new text.
fn described(input: &RuleInput<'_>) -> Option<String> {
    let user = input.event.text_content.as_deref()?;
    let context = input.context;
    let last = context.extra.get("last_assistant").and_then(Value::as_str);
    let tools = context.tool_context.get("available_tools");
    Some(format!(
        "[USER] {user}\n[LAST_ASSISTANT] {}\n[TASK_SCOPE] {SCOPE}\n[AVAILABLE_TOOLS] {}",
        last.unwrap_or_default(),
        tools.map(ToString::to_string).unwrap_or_default(),
    ))
}

/// Prompts wait for the classifier; nothing else does.
struct PromptsWait;

impl RiskRouter for PromptsWait {
    fn route(&self, event: &Event, _: &ContextSnapshot<'_>) -> Routing {
        let prompt = event.event_type == EventType::LlmBefore;
        Routing {
            async_wait_ms: if prompt { 1000.0 } else { 0.0 },
            ..Routing::default()
        }
    }
}

fn gateway() -> Result<Gateway, Box<dyn Error>> {
    let trained =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scope_classifier/scope.json");
    let mut rules = DeepRules::new();
    rules.register(Arc::new(ScopeRule::load(&trained)?));
    let policy = PolicyBuilder::new("analytics", "1.0.0").compile()?;
    Ok(Gateway::builder(policy)
        .deep_rules(rules)
        .risk_router(PromptsWait)
        .build())
}

#[derive(Deserialize, JsonSchema)]
struct Metrics {
    name: String,
}

/// Asks, and gives what the model was told last and how it ended.
async fn ask(question: &str, history: Vec<Said>) -> Result<(String, Outcome), Box<dyn Error>> {
    let endpoint = Endpoint::start([Reply::say(["(what the model says)"])]).await?;
    let model = OpenAiChat::new(OpenAiSettings::new(endpoint.base_url(), "scripted"))?;
    let planner = Planner::builder(Arc::new(model), gateway()?)
        .tool(TypedTool::new(
            "query_metrics",
            "Reads a metric.",
            |metrics: Metrics| async move { Ok::<_, ToolError>(metrics.name) },
        ))
        .build()?;
    let task = Task::new("run-1", question).history(history);
    let finished = planner.run(task, Events::ignored(), pending()).await;
    let requests = endpoint.requests();
    let last = requests
        .last()
        .and_then(|request| request["messages"].as_array()?.last())
        .and_then(|message| message["content"].as_str());
    Ok((last.unwrap_or_default().to_owned(), finished.outcome))
}

fn offer() -> Vec<Said> {
    vec![
        Said::User("Show me revenue.".into()),
        Said::Model("Revenue grew in every region. Shall I draw a chart?".into()),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for (question, history) in [
        ("Which region grew?", Vec::new()),
        ("How is the weather?", Vec::new()),
        ("Yes, go on.", offer()),
    ] {
        let (told, _) = ask(question, history).await?;
        println!("{question}\n  the model was told last: {told}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn guidance_comes_with_what_is_out_of_scope_and_with_nothing_else() {
        for (question, history, guided) in [
            ("Which region grew?", Vec::new(), false),
            ("How is the weather?", Vec::new(), true),
            ("Yes, go on.", offer(), false),
            ("Yes, go on.", Vec::new(), true),
        ] {
            let (told, outcome) = ask(question, history).await.unwrap();
            assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
            assert_eq!(told.contains(SCOPE), guided, "{question}: {told}");
        }
    }
}
