//! Whatever fails, fails closed, unless the policy says otherwise.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::pack::diagnostic::Place;
use portcullis_core::rules::{
    Expression, InjectionPatterns, Rule, RuleError, RuleInput, RuleSettings,
};
use portcullis_core::{
    Action, Context, ContextBuilder, ContextSnapshot, Decision, DecisionPolicy, Event,
    GatewaySettings, RiskRouter, Routing, RuleOutcome, Severity, Signals, ToolRisks,
};
use portcullis_runtime::{Counters, Gateway, GatewayBuilder};
use serde_json::json;

use crate::fixtures::{
    PATIENT_MS, args, code, decision, default_pack, fast, judge, outcomes, patient, policy,
    policy_of, prompt, unjudged, verdict,
};

/// A way for a rule to go wrong.
struct Failure {
    name: &'static str,
    rule: fn() -> Arc<dyn Rule>,
    timeout_ms: f64,
    outcome: RuleOutcome,
    code: &'static str,
    reason: &'static str,
}

/// Only those that overrun get a short deadline: the others must not depend on a quiet machine.
const FAILURES: &[Failure] = &[
    Failure {
        name: "errs",
        rule: || fast("bad-rule", |_| Err(RuleError("no database".to_owned()))),
        timeout_ms: PATIENT_MS,
        outcome: RuleOutcome::Failed,
        code: "GUARDRAIL_SYNC_ERROR",
        reason: "no database",
    },
    Failure {
        name: "panics",
        rule: || fast("bad-rule", |_| panic!("index out of luck")),
        timeout_ms: PATIENT_MS,
        outcome: RuleOutcome::Failed,
        code: "GUARDRAIL_SYNC_ERROR",
        reason: "panicked: index out of luck",
    },
    Failure {
        name: "panics with something that is not text",
        rule: || fast("bad-rule", |_| std::panic::panic_any(7)),
        timeout_ms: PATIENT_MS,
        outcome: RuleOutcome::Failed,
        code: "GUARDRAIL_SYNC_ERROR",
        reason: "panicked",
    },
    Failure {
        name: "overruns",
        rule: || {
            fast("bad-rule", |_| {
                std::thread::sleep(Duration::from_secs(2));
                Ok(None)
            })
        },
        timeout_ms: 30.0,
        outcome: RuleOutcome::TimedOut,
        code: "GUARDRAIL_SYNC_TIMEOUT",
        reason: "overran",
    },
    Failure {
        name: "never returns",
        rule: || {
            fast("bad-rule", |_| {
                loop {
                    std::thread::sleep(Duration::from_hours(1));
                }
            })
        },
        timeout_ms: 30.0,
        outcome: RuleOutcome::TimedOut,
        code: "GUARDRAIL_SYNC_TIMEOUT",
        reason: "overran",
    },
];

impl Failure {
    fn gateway(&self, parallel: bool, fail_open: bool) -> Gateway {
        let settings = GatewaySettings {
            sync_timeout_ms: self.timeout_ms,
            sync_parallel: parallel,
            sync_fail_open: fail_open,
            ..GatewaySettings::default()
        };
        Gateway::builder(policy_of(settings, [(self.rule)()])).build()
    }
}

#[tokio::test]
async fn a_fast_rule_that_fails_stops_the_step() {
    for failure in FAILURES {
        for parallel in [true, false] {
            let gateway = failure.gateway(parallel, false);
            let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
            let name = failure.name;
            assert_eq!(verdict(&evaluation), (Action::Stop, "bad-rule"), "{name}");
            assert_eq!(code(&evaluation), Some(failure.code), "{name}");
            assert_eq!(evaluation.decision.severity, Severity::Critical);
            assert!(evaluation.decision.retryable, "{name}: it may work later");
            let reason = &evaluation.decision.reason;
            assert!(reason.contains(failure.reason), "{name}: {reason}");
            assert_eq!(outcomes(&evaluation), [("bad-rule", failure.outcome)]);
            assert_eq!(unjudged(&evaluation), ["bad-rule"]);
            assert!(evaluation.enforced);
        }
    }
}

#[tokio::test]
async fn a_fast_rule_that_fails_open_is_dropped_and_named() {
    for failure in FAILURES {
        for parallel in [true, false] {
            let gateway = failure.gateway(parallel, true);
            let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
            let name = failure.name;
            assert_eq!(evaluation.decision.action, Action::Allow, "{name}");
            assert_eq!(outcomes(&evaluation), [("bad-rule", failure.outcome)]);
            assert_eq!(unjudged(&evaluation), ["bad-rule"]);
            let wire = serde_json::to_value(&evaluation.coverage).unwrap();
            let parts = json!({"text_content": false});
            assert_eq!(wire["parts"], parts, "{name}: nobody judged it");
        }
    }
}

#[tokio::test]
async fn failing_open_does_not_silence_the_other_rules() {
    for parallel in [true, false] {
        let settings = GatewaySettings {
            sync_parallel: parallel,
            sync_fail_open: true,
            ..patient()
        };
        let rules = [
            fast("before", |_| Ok(Some(decision(Action::Retry, "before")))),
            fast("bad-rule", |_| panic!("out of order")),
            fast("after", |_| Ok(Some(decision(Action::Stop, "after")))),
        ];
        let gateway = Gateway::builder(policy_of(settings, rules)).build();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), (Action::Stop, "after"));
        assert_eq!(unjudged(&evaluation), ["bad-rule"]);
    }
}

#[tokio::test]
async fn an_answer_under_another_name_counts_as_the_rules_own() {
    let rule = fast("honest-name", |_| {
        Ok(Some(decision(Action::Stop, "somebody-else")))
    });
    for parallel in [true, false] {
        let settings = GatewaySettings {
            sync_parallel: parallel,
            ..patient()
        };
        let gateway = Gateway::builder(policy_of(settings, [Arc::clone(&rule)])).build();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), (Action::Stop, "honest-name"));
        assert_eq!(
            outcomes(&evaluation),
            [("honest-name", RuleOutcome::Decided)]
        );
    }
}

#[tokio::test]
async fn an_expression_that_fails_stops_the_step() {
    for (when, hint) in [
        ("event.tool_args.path == 'x'", "no key `path`"),
        ("context.tool_context.n > 'x'", "no key `n`"),
        ("event.tool_args", "expected true or false"),
    ] {
        let policy = policy()
            .rule(RuleSettings::Expression(Expression::new(when)))
            .compile()
            .unwrap();
        let gateway = Gateway::builder(policy).build();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), (Action::Stop, "expression"), "{when}");
        assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_ERROR"));
        let reason = &evaluation.decision.reason;
        assert!(reason.contains(hint), "{reason}");
    }
}

/// Loops over a list that the caller chose: nobody can say how long that takes.
#[tokio::test]
async fn an_expression_with_nested_loops_is_fenced_and_times_out_closed() {
    let when = "event.tool_args.n.exists(a, event.tool_args.n.exists(b, a + b < 0))";
    let settings = GatewaySettings {
        sync_timeout_ms: 20.0,
        ..GatewaySettings::default()
    };
    let policy = policy()
        .gateway(settings)
        .rule(RuleSettings::Expression(Expression::new(when)))
        .compile()
        .unwrap();
    assert!(policy.rules()[0].fenced().is_some());
    let gateway = Gateway::builder(policy).build();
    let list: Vec<u32> = (0..1500).collect();
    let event = Event::tool_call_start("r", "sum", args(json!({"n": list})));
    let evaluation = judge(&gateway, &event).await;
    assert_eq!(verdict(&evaluation), (Action::Stop, "expression"));
    assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_TIMEOUT"));
}

struct Faulty;

impl DecisionPolicy for Faulty {
    fn resolve(&self, _decisions: Vec<Decision>, _input: &RuleInput<'_>) -> Decision {
        panic!("cannot decide");
    }
}

impl RiskRouter for Faulty {
    fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
        panic!("lost the way");
    }
}

impl ContextBuilder for Faulty {
    fn build<'a>(
        &self,
        _event: &'a Event,
        _context: &'a Context,
        _risks: &'a ToolRisks,
        _signals: Signals,
    ) -> ContextSnapshot<'a> {
        panic!("nothing to build with");
    }
}

/// A hook that is put into a gateway, and what the stop must mention.
type FaultyHook = (fn(GatewayBuilder) -> GatewayBuilder, [&'static str; 2]);

#[tokio::test]
async fn a_hook_that_panics_stops_the_step() {
    let hooks: [FaultyHook; 3] = [
        (
            |b| b.decision_policy(Faulty),
            ["decision policy", "cannot decide"],
        ),
        (|b| b.risk_router(Faulty), ["risk router", "lost the way"]),
        (
            |b| b.context_builder(Faulty),
            ["context builder", "nothing to build with"],
        ),
    ];
    for (with_hook, words) in hooks {
        let counters = Arc::new(Counters::default());
        let builder = Gateway::builder(default_pack()).telemetry(Arc::clone(&counters) as _);
        let gateway = with_hook(builder).build();
        // The decision policy is only asked when there is something to resolve.
        let event = Event::llm_stream_chunk("r", "AKIAIOSFODNN7EXAMPLE");
        let evaluation = judge(&gateway, &event).await;
        assert_eq!(verdict(&evaluation), (Action::Stop, "__hook__"));
        assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_ERROR"));
        assert_eq!(evaluation.decision.severity, Severity::Critical);
        for word in words {
            let reason = &evaluation.decision.reason;
            assert!(reason.contains(word), "{reason}");
        }
        assert!(evaluation.enforced);
        assert_eq!(counters.action(Action::Stop), 1);
    }
}

/// Time that the embedder's own hook took is not the first rule's.
#[tokio::test]
async fn a_slow_hook_is_not_blamed_on_a_rule() {
    struct Slow;
    impl RiskRouter for Slow {
        fn route(&self, _event: &Event, _snapshot: &ContextSnapshot<'_>) -> Routing {
            std::thread::sleep(Duration::from_millis(1500));
            Routing::default()
        }
    }
    let settings = GatewaySettings {
        sync_timeout_ms: 1000.0,
        sync_parallel: false,
        ..GatewaySettings::default()
    };
    let policy = policy()
        .gateway(settings)
        .custom_rule(fast("outside", |_| Ok(None)), None, Place::default())
        .rule(RuleSettings::InjectionPatterns(InjectionPatterns::default()))
        .compile()
        .unwrap();
    let gateway = Gateway::builder(policy).risk_router(Slow).build();
    let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
    assert_eq!(
        outcomes(&evaluation),
        [
            ("outside", RuleOutcome::Clear),
            ("injection-patterns", RuleOutcome::Clear)
        ]
    );
    assert_eq!(verdict(&evaluation), (Action::Allow, "__default__"));
}

/// To throw it away would be to allow, with `fail_open`, what the rule has found.
#[tokio::test]
async fn a_stop_counts_however_late_it_comes() {
    for fail_open in [false, true] {
        let policy = policy()
            .gateway(GatewaySettings {
                sync_timeout_ms: 0.0,
                sync_fail_open: fail_open,
                ..GatewaySettings::default()
            })
            .rule(RuleSettings::InjectionPatterns(InjectionPatterns::default()))
            .compile()
            .unwrap();
        let gateway = Gateway::builder(policy).build();
        let evaluation = judge(&gateway, &prompt("r", "This is a jailbreak.")).await;
        assert_eq!(code(&evaluation), Some("JAILBREAK_JB_OVERRIDE"));
        let strikes = gateway.run("r").unwrap().strikes;
        assert_eq!(strikes["injection"], 1);
    }
}

/// Inline rules cannot be cut short, but an answer that took too long does not count.
#[tokio::test]
async fn a_built_in_rule_that_overruns_fails_closed_too() {
    for (fail_open, expected) in [
        (false, (Action::Stop, "injection-patterns")),
        (true, (Action::Allow, "__default__")),
    ] {
        let policy = policy()
            .gateway(GatewaySettings {
                sync_timeout_ms: 1e-6,
                sync_fail_open: fail_open,
                ..GatewaySettings::default()
            })
            .rule(RuleSettings::InjectionPatterns(InjectionPatterns::default()))
            .compile()
            .unwrap();
        let gateway = Gateway::builder(policy).build();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), expected);
        assert_eq!(
            outcomes(&evaluation),
            [("injection-patterns", RuleOutcome::TimedOut)]
        );
        if !fail_open {
            assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_TIMEOUT"));
        }
    }
}
