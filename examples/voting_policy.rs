//! A `DecisionPolicy` that stops a run only when enough rules vote for it.
//!
//! `cargo run -p portcullis-runtime --example voting_policy` puts two prompts to three opinionated
//! classifiers: one of them objects to the first, two object to the second.
//!
//! Let deep rules vote with deep rules, or fast ones with fast ones: a fast STOP ends the evaluation
//! before any deep rule is asked, so in a mixed vote the deep ones would be missing.

use std::error::Error;
use std::sync::Arc;

use portcullis_core::pack::diagnostic::Report;
use portcullis_core::rules::{RuleInfo, RuleInput, RuleSettings, ToolAllowlist};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Action, Context, ContextSnapshot, Decision, DecisionPolicy, DefaultDecisionPolicy, Effect,
    Event, PolicyBuilder, RiskRouter, Routing, RuleId, Severity, StopSpec,
};
use portcullis_runtime::{BoxFuture, DeepError, DeepRule, DeepRules, Gateway};

/// Stops when so many rules vote to; with fewer votes the strongest milder decision stands.
struct Voting {
    needed: usize,
}

impl DecisionPolicy for Voting {
    fn resolve(&self, mut decisions: Vec<Decision>, input: &RuleInput<'_>) -> Decision {
        let votes = decisions
            .iter()
            .filter(|decision| decision.action == Action::Stop)
            .count();
        if votes < self.needed {
            for decision in &mut decisions {
                if decision.action == Action::Stop && !is_final(decision) {
                    self.outvote(decision, votes);
                }
            }
        }
        DefaultDecisionPolicy::default().resolve(decisions, input)
    }
}

impl Voting {
    /// Its effects and redactions stay: a minority may be right, and somebody should see it.
    fn outvote(&self, decision: &mut Decision, votes: usize) {
        let needed = self.needed;
        decision.action = Action::Allow;
        decision.stop = None;
        decision.retryable = false;
        decision.reason =
            format!("Outvoted, {votes} of {needed} needed: {}", decision.reason).into();
    }
}

/// What no vote overrules: findings that are certain, and the gate's own refusals. A rule that
/// failed is critical too, so a broken voter stops the run instead of abstaining.
fn is_final(decision: &Decision) -> bool {
    decision.severity == Severity::Critical || decision.rule_id.as_str().starts_with("__")
}

/// Objects to one word.
struct Objects {
    id: &'static str,
    word: &'static str,
}

impl DeepRule for Objects {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: RuleId::from_static(self.id),
            version: "1.0.0".into(),
            events: EventSet::standard(),
            severity: Severity::High,
        }
    }

    fn evaluate<'a>(
        &'a self,
        input: RuleInput<'a>,
    ) -> BoxFuture<'a, Result<Option<Decision>, DeepError>> {
        let objects = input.event.text().contains(self.word);
        let said = objects.then(|| {
            let reason = format!("It says '{}'", self.word);
            Decision::stop(RuleId::from_static(self.id), reason, StopSpec::default())
                .with_severity(Severity::High)
                .with_effects([Effect::FlagTrajectory])
        });
        Box::pin(async { Ok(said) })
    }
}

/// A vote needs its voters, so every event waits for them.
struct WaitForVotes;

impl RiskRouter for WaitForVotes {
    fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
        Routing {
            async_wait_ms: 1000.0,
            ..Routing::default()
        }
    }
}

fn gateway() -> Result<Gateway, Report> {
    let policy = PolicyBuilder::new("voting", "1.0.0")
        .rule(RuleSettings::ToolAllowlist(ToolAllowlist::deny([
            "admin.execute",
        ])))
        .compile()?;
    let mut voters = DeepRules::new();
    for (id, word) in [
        ("money-model", "wire"),
        ("hurry-model", "today"),
        ("secrecy-model", "nobody"),
    ] {
        voters.register(Arc::new(Objects { id, word }));
    }
    Ok(Gateway::builder(policy)
        .deep_rules(voters)
        .decision_policy(Voting { needed: 2 })
        .risk_router(WaitForVotes)
        .build())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gateway = gateway()?;
    for (run, text) in [
        ("one-objects", "Please wire the usual rent."),
        ("two-object", "Please wire it today."),
    ] {
        let event = Event::llm_before(run, text);
        let mut context = Context::new(run);
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
    use portcullis_core::{ErrorCode, PauseSpec, RetrySpec, Signals, ToolRisks};
    use serde_json::Map;

    fn vote(needed: usize, decisions: Vec<Decision>) -> Decision {
        let event = Event::llm_before("r", "");
        let context = Context::new("r");
        let risks = ToolRisks::default();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let input = RuleInput {
            event: &event,
            context: &context,
            snapshot: &snapshot,
        };
        Voting { needed }.resolve(decisions, &input)
    }

    fn stop(id: &str) -> Decision {
        Decision::stop(RuleId::from(id), "no", StopSpec::default())
    }

    #[test]
    fn it_takes_enough_votes_to_stop() {
        for needed in 1..4 {
            for votes in 1..5 {
                let decisions = (0..votes).map(|n| stop(&n.to_string())).collect();
                let expected = if votes < needed {
                    Action::Allow
                } else {
                    Action::Stop
                };
                assert_eq!(vote(needed, decisions).action, expected, "{votes}/{needed}");
            }
        }
    }

    #[test]
    fn the_strongest_milder_decision_stands_when_a_stop_is_outvoted() {
        let pause = Decision::pause(RuleId::from("p"), "ask", PauseSpec::default());
        let retry = Decision::retry(RuleId::from("t"), "again", RetrySpec::default());
        let alone = stop("s").with_effects([Effect::FlagTrajectory]);
        let decision = vote(2, vec![retry, alone, pause]);
        assert_eq!(decision.action, Action::Pause);
        assert_eq!(decision.effects, [Effect::FlagTrajectory], "kept");
    }

    #[test]
    fn no_vote_overrules_what_is_final() {
        let critical = stop("s").with_severity(Severity::Critical);
        let timeout = Decision::stop(
            RuleId::TIMEOUT,
            "late",
            StopSpec::code(ErrorCode::AsyncTimeout),
        );
        for last_word in [critical, timeout] {
            let allow = Decision::allow(RuleId::from("a"), "fine").with_confidence(1.0);
            let decision = vote(9, vec![allow, last_word.clone()]);
            assert_eq!(decision, last_word);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_gateway_two_of_three_stop_and_the_deny_list_needs_no_vote() {
        let prompt = |text: &str| Event::llm_before("r", text);
        let cases = [
            (prompt("Hello."), Action::Allow, "__default__"),
            (prompt("Please wire it."), Action::Allow, "money-model"),
            (prompt("Wire it today."), Action::Allow, "hurry-model"),
            (prompt("wire it today"), Action::Stop, "money-model"),
            (
                prompt("wire it today, tell nobody"),
                Action::Stop,
                "money-model",
            ),
            (
                Event::tool_call_start("r", "admin.execute", Map::new()),
                Action::Stop,
                "tool-allowlist",
            ),
        ];
        let gateway = gateway().unwrap();
        for (event, action, rule) in cases {
            let mut context = Context::new("r");
            let decision = gateway.evaluate(&mut context, &event).await.decision;
            assert_eq!(decision.action, action, "{event:?}");
            assert_eq!(decision.rule_id.as_str(), rule, "{event:?}");
        }
    }
}
