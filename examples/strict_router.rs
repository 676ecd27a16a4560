//! RFC-001 §11.3's `StrictRiskRouter`: where dangerous tools are within reach, a late safety check
//! stops the run.
//!
//! `cargo run -p portcullis-runtime --example strict_router` asks a classifier that does not answer
//! about two prompts: one of an agent that can only calculate, one of an agent that can write files.

use std::error::Error;
use std::sync::Arc;

use portcullis_core::pack::diagnostic::Report;
use portcullis_core::rules::{RuleInfo, RuleInput};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Context, ContextSnapshot, Decision, Event, OnTimeout, PolicyBuilder, RiskRouter, Routing,
    RuleId, Severity, ToolRiskTier,
};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule, DeepRules, Gateway};
use serde_json::json;

/// Fail-closed for all high-risk tools; everything else does not wait.
struct StrictRiskRouter;

impl RiskRouter for StrictRiskRouter {
    fn route(&self, _event: &Event, snapshot: &ContextSnapshot<'_>) -> Routing {
        // RFC-001 looks at the available tools only. A caller who lists none must not get around
        // that, so the tool at hand counts too.
        let at_hand = snapshot.current_tool.as_ref().map(|tool| tool.risk_tier);
        if at_hand.max(Some(snapshot.max_tool_risk)) < Some(ToolRiskTier::High) {
            return Routing::default();
        }
        Routing {
            async_wait_ms: 300.0,
            on_timeout: OnTimeout::Stop,
            ..Routing::default()
        }
    }
}

/// A classifier whose service is down: it never answers.
struct SilentClassifier;

impl DeepRule for SilentClassifier {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: RuleId::from_static("silent-classifier"),
            version: "1.0.0".into(),
            events: EventSet::standard(),
            severity: Severity::High,
        }
    }

    fn evaluate<'a>(
        &'a self,
        _input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        Box::pin(std::future::pending())
    }
}

fn gateway() -> Result<Gateway, Report> {
    let policy = PolicyBuilder::new("strict", "1.0.0")
        .tool_risk("calculator", ToolRiskTier::Low)
        .tool_risk("filesystem.write", ToolRiskTier::High)
        .compile()?;
    let mut rules = DeepRules::new();
    rules.register(Arc::new(SilentClassifier));
    Ok(Gateway::builder(policy)
        .deep_rules(rules)
        .risk_router(StrictRiskRouter)
        .build())
}

/// The context of a run whose agent has these tools.
fn with_tools(run: &str, tools: &[&str]) -> Context {
    let mut context = Context::new(run);
    let tools = json!(tools);
    context
        .tool_context
        .insert("available_tools".to_owned(), tools);
    context
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateway = gateway()?;
    for (run, tools) in [
        ("calculating", ["calculator"]),
        ("writing", ["filesystem.write"]),
    ] {
        let mut context = with_tools(run, &tools);
        let event = Event::llm_before(run, "Tidy up my notes.");
        let decision = gateway.evaluate(&mut context, &event).await.decision;
        println!(
            "{run}: {} by {}: {}",
            decision.action, decision.rule_id, decision.reason
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Action, RuleOutcome};
    use serde_json::Map;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_late_check_stops_only_where_dangerous_tools_are_within_reach() {
        let prompt = || Event::llm_before("r", "Tidy up my notes.");
        let call = |tool: &str| Event::tool_call_start("r", tool, Map::new());
        let cases = [
            (prompt(), &["calculator"][..], Action::Allow),
            (
                prompt(),
                &["calculator", "filesystem.write"][..],
                Action::Stop,
            ),
            (call("calculator"), &[][..], Action::Allow),
            (call("filesystem.write"), &[][..], Action::Stop),
        ];
        for (event, tools, action) in cases {
            let gateway = gateway().unwrap();
            let started = Instant::now();
            let mut context = with_tools("r", tools);
            let evaluation = gateway.evaluate(&mut context, &event).await;
            assert_eq!(evaluation.decision.action, action, "{event:?} {tools:?}");
            let waited = started.elapsed() >= Duration::from_millis(300);
            assert_eq!(waited, action == Action::Stop);
            let outcome = if waited {
                RuleOutcome::TimedOut
            } else {
                RuleOutcome::Pending
            };
            assert_eq!(evaluation.coverage.rules[0].outcome, outcome);
        }
    }
}
