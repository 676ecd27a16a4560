//! From what all rules say to one decision, and what it would be without those that pause.

use portcullis_core::rules::{RuleError, RuleInput};
use portcullis_core::{
    Action, Decision, DecisionPolicy as _, DefaultDecisionPolicy, ErrorCode, RuleId, Severity,
    StopSpec, merge_redactions, nothing_triggered,
};

use crate::fence;
use crate::gateway::{Gateway, Gathered};

impl Gateway {
    /// Puts what is decided into the answer, which says already that nothing is.
    pub(crate) fn resolve(&self, input: RuleInput<'_>, gathered: &mut Gathered) {
        if gathered.decisions.is_empty() {
            if gathered.answer.coverage.rules.is_empty() {
                gathered.answer.decision = Decision::allow(
                    RuleId::DEFAULT,
                    "No rule of this policy judges such an event",
                );
            }
            return;
        }
        let mut decisions = std::mem::take(&mut gathered.decisions);
        decisions.sort_by_key(|(place, _)| *place);
        let mut decisions: Vec<Decision> = decisions
            .into_iter()
            .map(|(_, decision)| decision)
            .collect();
        for decision in &mut decisions {
            // What it asked for was done when it was put to a person.
            if decision.action == Action::Pause && gathered.asked.contains(decision.pause_key()) {
                decision.effects.clear();
            }
        }
        let all = (decisions.iter().any(|d| d.action >= Action::Retry)).then(|| decisions.clone());
        let mut decision = self.one_of(decisions, &input);
        if decision.action == Action::Pause {
            let all = all.unwrap_or_default();
            // Whatever the decision policy makes of them: what waits is kept and shown to people.
            let redactions = all.iter().flat_map(|d| d.redactions.clone());
            let redactions = redactions.chain(std::mem::take(&mut decision.redactions));
            decision.redactions = merge_redactions(redactions);
            gathered.answer.if_lifted = self.if_lifted(&decision, all, &input);
        }
        gathered.answer.decision = decision;
    }

    fn one_of(&self, decisions: Vec<Decision>, input: &RuleInput<'_>) -> Decision {
        fence::catching(|| Ok(self.decision_policy().resolve(decisions, input)))
            .unwrap_or_else(|error| hook_failed("decision policy", &error))
    }

    /// What would be decided without the rule that pauses, then without the next that does, and so on.
    fn if_lifted(
        &self,
        decision: &Decision,
        mut others: Vec<Decision>,
        input: &RuleInput<'_>,
    ) -> Vec<Decision> {
        let mut chain: Vec<Decision> = Vec::new();
        loop {
            let last = chain.last().unwrap_or(decision);
            if last.action != Action::Pause {
                return chain;
            }
            let before = others.len();
            others.retain(|d| d.action != Action::Pause || d.pause_key() != last.pause_key());
            let next = if others.is_empty() {
                nothing_triggered()
            } else if others.len() < before {
                self.one_of(others.clone(), input)
            } else {
                // A decision policy pauses in its own name, having heard all of them. Those who pause ask for themselves.
                others.retain(|d| d.action == Action::Pause);
                DefaultDecisionPolicy::default().resolve(others.clone(), input)
            };
            chain.push(next);
        }
    }
}

/// Code of the embedder panicked. What it would have said is unknown, so nothing may happen.
pub(crate) fn hook_failed(hook: &str, error: &RuleError) -> Decision {
    Decision::stop(
        RuleId::HOOK,
        format!("The {hook} failed: {error}"),
        StopSpec::code(ErrorCode::SyncError),
    )
    .with_severity(Severity::Critical)
}
