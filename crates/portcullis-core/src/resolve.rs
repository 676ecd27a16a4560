//! From many decisions to one (RFC-001 §5.1).

use crate::decision::{Action, Decision};
use crate::ids::RuleId;
use crate::redact;
use crate::rules::RuleInput;

/// How the decisions of all rules become the gate's answer.
pub trait DecisionPolicy: Send + Sync + 'static {
    /// `decisions` is never empty and comes in the order in which the rules are registered.
    fn resolve(&self, decisions: Vec<Decision>, input: &RuleInput<'_>) -> Decision;
}

/// STOP over PAUSE over RETRY over REDACT over ALLOW; then the higher confidence; then the rule that
/// is registered first.
///
/// Effects of all decisions are merged, first seen first. Redactions of all decisions are merged
/// and attached whatever action wins: applying them is always safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultDecisionPolicy {
    /// Whether the winner also carries the others' effects.
    pub combine_effects: bool,
}

impl Default for DefaultDecisionPolicy {
    fn default() -> Self {
        Self {
            combine_effects: true,
        }
    }
}

impl DecisionPolicy for DefaultDecisionPolicy {
    fn resolve(&self, mut decisions: Vec<Decision>, _input: &RuleInput<'_>) -> Decision {
        let Some(winner) = strongest(&decisions) else {
            return nothing_triggered();
        };
        let mut effects = Vec::new();
        let mut redactions = Vec::new();
        let mut redacting = 0;
        for (index, decision) in decisions.iter_mut().enumerate() {
            if self.combine_effects || index == winner {
                effects.append(&mut decision.effects);
            }
            redacting += usize::from(!decision.redactions.is_empty());
            redactions.append(&mut decision.redactions);
        }
        let mut winner = decisions.swap_remove(winner);
        if winner.action == Action::Redact && redacting > 1 {
            winner.reason = format!("Combined {} redactions", redactions.len()).into();
        }
        winner.redactions = redact::merge(redactions);
        winner.with_effects(effects)
    }
}

/// The answer when no rule has anything to say.
pub fn nothing_triggered() -> Decision {
    Decision::allow(RuleId::DEFAULT, "No rules triggered")
}

fn strongest(decisions: &[Decision]) -> Option<usize> {
    let confidence =
        |decision: &Decision| decision.confidence.filter(|c| !c.is_nan()).unwrap_or(0.0);
    // `max_by` keeps the last of equals; the first registered must win, so look from the back.
    decisions
        .iter()
        .enumerate()
        .rev()
        .max_by(|(_, a), (_, b)| {
            a.action
                .cmp(&b.action)
                .then(confidence(a).total_cmp(&confidence(b)))
        })
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Effect, PauseSpec, RedactionSpec, RetrySpec, StopSpec};
    use crate::event::{Context, Event};
    use crate::snapshot::{ContextSnapshot, Signals, ToolRisks};
    use proptest::prelude::*;

    fn resolve(decisions: Vec<Decision>) -> Decision {
        let event = Event::llm_before("r", "");
        let context = Context::new("r");
        let risks = ToolRisks::default();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let input = RuleInput {
            event: &event,
            context: &context,
            snapshot: &snapshot,
        };
        DefaultDecisionPolicy::default().resolve(decisions, &input)
    }

    fn decision(action: Action, id: &str) -> Decision {
        let id = RuleId::from(id);
        match action {
            Action::Allow => Decision::allow(id, ""),
            Action::Redact => Decision::redact(id, "", Vec::new()),
            Action::Retry => Decision::retry(id, "", RetrySpec::default()),
            Action::Pause => Decision::pause(id, "", PauseSpec::default()),
            Action::Stop => Decision::stop(id, "", StopSpec::default()),
        }
    }

    fn span(start: usize, end: usize) -> RedactionSpec {
        RedactionSpec {
            path: "text".into(),
            replacement: "[X]".into(),
            entity_type: None,
            start_offset: Some(start),
            end_offset: Some(end),
            restorable: false,
        }
    }

    #[test]
    fn the_strongest_action_wins() {
        for pair in Action::ALL.windows(2) {
            for order in [[pair[0], pair[1]], [pair[1], pair[0]]] {
                let winner = resolve(order.iter().map(|a| decision(*a, a.as_str())).collect());
                assert_eq!(winner.action, pair[1]);
            }
        }
    }

    #[test]
    fn confidence_breaks_a_tie_and_then_the_first_wins() {
        let a = decision(Action::Stop, "a");
        let b = decision(Action::Stop, "b").with_confidence(0.9);
        let c = decision(Action::Stop, "c").with_confidence(0.9);
        let nan = decision(Action::Stop, "n").with_confidence(f64::NAN);
        assert_eq!(
            resolve(vec![nan.clone(), a.clone(), b.clone(), c])
                .rule_id
                .as_str(),
            "b"
        );
        assert_eq!(resolve(vec![a, nan]).rule_id.as_str(), "a");
    }

    #[test]
    fn effects_are_merged_first_seen_first() {
        let stop = decision(Action::Stop, "s").with_effects([Effect::EmitAlert]);
        let redact =
            decision(Action::Redact, "r").with_effects([Effect::FlagTrajectory, Effect::EmitAlert]);
        assert_eq!(
            resolve(vec![redact, stop]).effects,
            [Effect::FlagTrajectory, Effect::EmitAlert]
        );
    }

    #[test]
    fn redactions_are_attached_whatever_wins() {
        let one = Decision::redact(RuleId::from("a"), "one", vec![span(0, 4)]);
        let two = Decision::redact(RuleId::from("b"), "two", vec![span(2, 6), span(8, 9)]);
        let both = resolve(vec![one.clone(), two.clone()]);
        assert_eq!(both.reason, "Combined 3 redactions");
        assert_eq!(both.redactions, [span(0, 6), span(8, 9)]);
        assert_eq!(resolve(vec![one.clone()]).reason, "one");
        let stopped = resolve(vec![one, decision(Action::Stop, "s"), two]);
        assert_eq!(stopped.action, Action::Stop);
        assert_eq!(stopped.redactions, [span(0, 6), span(8, 9)]);
    }

    fn any_decision() -> impl Strategy<Value = Decision> {
        (
            prop::sample::select(Action::ALL.to_vec()),
            prop::option::of(0u8..=4),
            prop::collection::vec(prop::sample::select(Effect::ALL.to_vec()), 0..3),
            prop::collection::vec((0usize..20, 1usize..6), 0..3),
        )
            .prop_map(|(action, confidence, effects, spans)| {
                let mut decision = decision(action, "r").with_effects(effects);
                decision.confidence = confidence.map(|c| f64::from(c) / 4.0);
                decision.redactions = spans.into_iter().map(|(s, l)| span(s, s + l)).collect();
                decision
            })
    }

    proptest! {
        /// Any order gives the same action, confidence, redactions and set of effects.
        #[test]
        fn resolution_does_not_depend_on_order(
            decisions in prop::collection::vec(any_decision(), 1..6),
            seed in any::<prop::sample::Index>(),
        ) {
            let mut other = decisions.clone();
            other.rotate_left(seed.index(decisions.len()));
            other.reverse();
            let (a, b) = (resolve(decisions), resolve(other));
            prop_assert_eq!(a.action, b.action);
            prop_assert_eq!(a.confidence.unwrap_or(0.0), b.confidence.unwrap_or(0.0));
            prop_assert_eq!(&a.redactions, &b.redactions);
            let set = |d: &Decision| {
                let mut effects = d.effects.clone();
                effects.sort_unstable();
                effects
            };
            prop_assert_eq!(set(&a), set(&b));
        }
    }
}
