//! The order in which independent fast rules are registered decides ties, and nothing else.

use std::sync::Arc;

use portcullis_core::pack::diagnostic::Place;
use portcullis_core::rules::{Expression, RuleSettings, Verdict};
use portcullis_core::{
    Action, Decision, DecisionId, Effect, PauseSpec, PolicyBuilder, RedactionSpec, RetrySpec,
    StopSpec,
};
use portcullis_runtime::Gateway;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::fixtures::{decision, fast, judge, patient, prompt};

/// What a rule will say, and where it runs: inline as an expression, or fenced as code.
#[derive(Debug, Clone)]
struct Said {
    action: Action,
    confidence: Option<u8>,
    effects: Vec<Effect>,
    spans: Vec<(usize, usize)>,
    inline: bool,
}

impl Said {
    fn register(&self, id: &str, builder: PolicyBuilder) -> PolicyBuilder {
        let verdict = match self.action {
            Action::Retry => Verdict::Retry(RetrySpec::default()),
            Action::Pause => Verdict::Pause(PauseSpec::default()),
            _ => Verdict::Stop(StopSpec::default()),
        };
        if self.is_inline() {
            let rule = Expression {
                verdict,
                effects: self.effects.clone(),
                reason: Some("said the test".to_owned()),
                ..Expression::new("true")
            };
            return builder.named_rule(id, RuleSettings::Expression(rule), None, Place::default());
        }
        let mut said = decision(self.action, id).with_effects(self.effects.iter().copied());
        said.confidence = self.confidence.map(|c| f64::from(c) / 2.0);
        said.redactions = self.spans.iter().map(|(s, e)| span(*s, *e)).collect();
        builder.custom_rule(
            fast(id, move |_| Ok(Some(said.clone()))),
            None,
            Place::default(),
        )
    }

    /// An expression can neither allow nor redact, and has no confidence.
    fn is_inline(&self) -> bool {
        self.inline && self.action >= Action::Retry
    }

    /// What resolution goes by.
    fn rank(&self) -> (Action, u8) {
        let confidence = self.confidence.filter(|_| !self.is_inline());
        (self.action, confidence.unwrap_or(0))
    }
}

fn span(start: usize, end: usize) -> RedactionSpec {
    RedactionSpec {
        path: RedactionSpec::TEXT.into(),
        replacement: "[X]".into(),
        entity_type: None,
        start_offset: Some(start),
        end_offset: Some(end),
        restorable: false,
    }
}

fn any_said() -> impl Strategy<Value = Said> {
    (
        prop::sample::select(Action::ALL.to_vec()),
        prop::option::of(0u8..=2),
        prop::collection::vec(prop::sample::select(Effect::ALL.to_vec()), 0..3),
        prop::collection::vec((0usize..20, 1usize..6), 0..3),
        any::<bool>(),
    )
        .prop_map(|(action, confidence, effects, spans, inline)| Said {
            action,
            confidence,
            effects,
            spans: spans.into_iter().map(|(s, l)| (s, s + l)).collect(),
            inline,
        })
}

/// Rules by name, in the order in which they are registered.
type Rules = Vec<(String, Said)>;

/// The same rules, and two orders to register them in.
fn any_orders() -> impl Strategy<Value = (Rules, Rules)> {
    prop::collection::vec(any_said(), 2..6).prop_flat_map(|rules| {
        let named: Vec<_> = rules
            .into_iter()
            .enumerate()
            .map(|(n, said)| (format!("rule{n}"), said))
            .collect();
        (Just(named.clone()), Just(named).prop_shuffle())
    })
}

async fn resolved(rules: &[(String, Said)]) -> Decision {
    let empty = PolicyBuilder::new("test", "1").gateway(patient());
    let policy = rules
        .iter()
        .fold(empty, |builder, (id, said)| said.register(id, builder))
        .compile()
        .unwrap();
    let gateway = Arc::new(Gateway::builder(policy).build());
    judge(&gateway, &prompt("r", "a text of some length"))
        .await
        .decision
}

/// The first registered of the strongest.
fn expected_winner(rules: &[(String, Said)]) -> (&str, bool) {
    let best = rules.iter().map(|(_, said)| said.rank()).max();
    let mut winners = rules.iter().filter(|(_, said)| Some(said.rank()) == best);
    let first = winners.next().map_or("", |(id, _)| id);
    (first, winners.next().is_some())
}

proptest! {
    #![proptest_config(Config::with_cases(96))]

    #[test]
    fn the_order_of_independent_rules_only_breaks_ties((one, other) in any_orders()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (a, b) = runtime.block_on(async { (resolved(&one).await, resolved(&other).await) });
        for (rules, decision) in [(&one, &a), (&other, &b)] {
            prop_assert_eq!(decision.rule_id.as_str(), expected_winner(rules).0);
        }
        let tied = expected_winner(&one).1;
        let comparable = |decision: Decision| {
            let mut decision = decision;
            decision.decision_id = DecisionId::NIL;
            decision.effects.sort_unstable();
            decision
        };
        let (a, b) = (comparable(a), comparable(b));
        if tied {
            prop_assert_eq!(a.action, b.action);
            prop_assert_eq!(a.confidence.unwrap_or(0.0), b.confidence.unwrap_or(0.0));
            prop_assert_eq!(a.effects, b.effects);
            prop_assert_eq!(a.redactions, b.redactions);
        } else {
            prop_assert_eq!(a, b);
        }
    }
}
