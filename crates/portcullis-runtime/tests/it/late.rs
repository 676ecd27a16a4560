//! Answers that come too late for their own event count for the run's next one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::rules::{RuleError, RuleSettings, ToolAllowlist};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Action, Context, Decision, Effect, Event, EventType, GatewaySettings, Policy, RedactionSpec,
    RuleOutcome,
};
use portcullis_runtime::{DeepRule, Gateway};
use tokio::time::sleep;

use crate::fixtures::{
    Verdict, call, code, decision, deep, deep_on, deep_rules, default_pack, judge, load, outcomes,
    own_event, patient, policy, prompt, unjudged, verdict, wait_ms,
};

/// The first three characters of a text.
const SPAN: RedactionSpec = RedactionSpec {
    path: Cow::Borrowed(RedactionSpec::TEXT),
    replacement: Cow::Borrowed("[X]"),
    entity_type: None,
    start_offset: Some(0),
    end_offset: Some(3),
    restorable: false,
};

/// Judges prompts only, takes half a second, and answers so if the prompt says `bad`.
fn classifier(answer: fn() -> Verdict) -> Arc<dyn DeepRule> {
    let prompts = EventSet::from_iter([EventType::LlmBefore]);
    deep_on("classifier", prompts, move |event| async move {
        sleep(Duration::from_millis(500)).await;
        if event.text() == "bad" {
            answer()
        } else {
            Ok(None)
        }
    })
}

fn gateway(policy: Policy, wait: f64, answer: fn() -> Verdict) -> Gateway {
    Gateway::builder(policy)
        .deep_rules(deep_rules([classifier(answer)]))
        .risk_router(wait_ms(wait))
        .build()
}

fn empty_policy() -> Policy {
    policy().compile().unwrap()
}

const STOP: fn() -> Verdict = || {
    let effects = [Effect::IncrementStrike, Effect::FlagTrajectory];
    let stop = decision(Action::Stop, "classifier");
    Ok(Some(stop.with_effects(effects)))
};

#[tokio::test(start_paused = true)]
async fn a_late_stop_stops_the_runs_next_event_of_any_type() {
    for wait in [0.0, 100.0] {
        let next = [
            prompt("r", "fine"),
            call("r", "search"),
            Event::tool_call_result("r", "search", "fine"),
            Event::llm_stream_chunk("r", "fine"),
            own_event("r"),
        ];
        for event in next {
            let gateway = gateway(empty_policy(), wait, STOP);
            let first = judge(&gateway, &prompt("r", "bad")).await;
            assert_eq!(verdict(&first), (Action::Allow, "__default__"));
            let open = if wait == 0.0 {
                RuleOutcome::Pending
            } else {
                RuleOutcome::TimedOut
            };
            assert_eq!(outcomes(&first), [("classifier", open)]);
            assert_eq!(unjudged(&first), ["classifier"]);
            sleep(Duration::from_secs(1)).await;

            let other = judge(&gateway, &prompt("other", "fine")).await;
            assert_eq!(other.decision.action, Action::Allow, "another run");

            let mut context = Context::new("r");
            let late = gateway.evaluate(&mut context, &event).await;
            assert_eq!(verdict(&late), (Action::Stop, "classifier"), "{event:?}");
            assert_eq!(code(&late), Some("GUARDRAIL_STOP"));
            assert!(late.decision.reason.starts_with("Late, on an earlier step"));
            assert!(!late.decision.was_sync);
            assert_eq!(context.strike_counts["classifier"], 1);

            let after = judge(&gateway, &event).await;
            assert_eq!(after.decision.action, Action::Allow, "it counts once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_before_the_late_answer_is_not_held_up() {
    let gateway = gateway(empty_policy(), 0.0, STOP);
    judge(&gateway, &prompt("r", "bad")).await;
    let soon = judge(&gateway, &call("r", "search")).await;
    assert_eq!(verdict(&soon), (Action::Allow, "__default__"));
    sleep(Duration::from_secs(1)).await;
    let late = judge(&gateway, &call("r", "search")).await;
    assert_eq!(verdict(&late), (Action::Stop, "classifier"));
}

#[tokio::test(start_paused = true)]
async fn a_late_pause_pauses_the_next_event() {
    let gateway = gateway(empty_policy(), 0.0, || {
        Ok(Some(decision(Action::Pause, "classifier")))
    });
    judge(&gateway, &prompt("r", "bad")).await;
    sleep(Duration::from_secs(1)).await;
    let late = judge(&gateway, &call("r", "search")).await;
    assert_eq!(verdict(&late), (Action::Pause, "classifier"));
    assert!(late.decision.pause.is_some());
    // A yes to what it said of that step is none to what it says of this one.
    let pauses = [late.decision.pause_key().clone()];
    assert_ne!(pauses[0].as_str(), "classifier");
    sleep(Duration::from_secs(1)).await;
    let mut context = Context::new("r");
    let bad = prompt("r", "bad");
    gateway.evaluate(&mut context, &bad).await;
    sleep(Duration::from_secs(1)).await;
    let search = call("r", "search");
    let again = gateway.evaluate_again(&mut context, &search, &pauses).await;
    let again = again.lift(&pauses);
    assert_eq!(verdict(&again), (Action::Pause, "classifier"));
}

/// Whoever asks about a step that waits takes in what comes late as well: its effects must not go the way of the pause's.
#[tokio::test(start_paused = true)]
async fn a_step_that_comes_again_loses_no_late_effect() {
    let policy = load(
        "policy_pack: test
version: '1'
sync_rules:
  - {id: ask, rule: expression, events: [tool_call_start], config: {when: tool.name == 'search', action: PAUSE, effects: [increment_strike]}}
",
    );
    let gateway = gateway(policy, 0.0, || {
        let retry = decision(Action::Retry, "classifier");
        Ok(Some(retry.with_effects([Effect::IncrementStrike])))
    });
    let mut context = Context::new("r");
    let search = call("r", "search");
    let paused = gateway.evaluate(&mut context, &search).await;
    assert_eq!(verdict(&paused), (Action::Pause, "ask"));
    let pauses = [paused.decision.pause_key().clone()];
    gateway.evaluate(&mut context, &prompt("r", "bad")).await;
    sleep(Duration::from_secs(1)).await;
    gateway.evaluate_again(&mut context, &search, &pauses).await;
    // The pause's own and the late one, which counts for the rule that decides.
    assert_eq!(context.strike_counts["ask"], 2);
    gateway.evaluate_again(&mut context, &search, &pauses).await;
    assert_eq!(context.strike_counts["ask"], 2);
}

/// What they would have changed has passed, so of the milder ones only the effects are left.
#[tokio::test(start_paused = true)]
async fn a_late_redact_or_retry_changes_nothing_but_its_effects() {
    let answers: [fn() -> Verdict; 2] = [
        || {
            let redact = decision(Action::Redact, "classifier");
            let redact = redact.with_effects([Effect::IncrementStrike]);
            Ok(Some(Decision {
                redactions: vec![SPAN],
                ..redact
            }))
        },
        || {
            let retry = decision(Action::Retry, "classifier");
            Ok(Some(retry.with_effects([Effect::IncrementStrike])))
        },
    ];
    for answer in answers {
        let gateway = gateway(empty_policy(), 0.0, answer);
        judge(&gateway, &prompt("r", "bad")).await;
        sleep(Duration::from_secs(1)).await;
        let mut context = Context::new("r");
        let event = Event::llm_stream_chunk("r", "an innocent text");
        let late = gateway.evaluate(&mut context, &event).await;
        assert_eq!(late.decision.action, Action::Allow);
        assert!(late.decision.redactions.is_empty());
        assert_eq!(late.decision.retry, None);
        assert_eq!(context.strike_counts["classifier"], 1);
    }
}

/// A late stop's spans are those of a text that has passed: they must not cut into the next one.
#[tokio::test(start_paused = true)]
async fn a_late_stop_brings_no_redactions_along() {
    let gateway = gateway(default_pack(), 0.0, || {
        Ok(Some(Decision {
            redactions: vec![SPAN],
            ..decision(Action::Stop, "classifier")
        }))
    });
    judge(&gateway, &prompt("r", "bad")).await;
    sleep(Duration::from_secs(1)).await;
    let event = Event::llm_stream_chunk("r", "the key AKIAIOSFODNN7EXAMPLE");
    let late = judge(&gateway, &event).await;
    assert_eq!(verdict(&late), (Action::Stop, "classifier"));
    let spans: Vec<_> = late
        .decision
        .redactions
        .iter()
        .map(|r| r.start_offset)
        .collect();
    assert_eq!(spans, [Some(8)], "this text's own secret only");
}

#[tokio::test(start_paused = true)]
async fn a_late_stop_is_not_lost_behind_a_sync_stop() {
    let policy = policy()
        .rule(RuleSettings::ToolAllowlist(ToolAllowlist::deny(["rm"])))
        .compile()
        .unwrap();
    let gateway = gateway(policy, 0.0, STOP);
    judge(&gateway, &prompt("r", "bad")).await;
    sleep(Duration::from_secs(1)).await;
    let mut context = Context::new("r");
    let both = gateway.evaluate(&mut context, &call("r", "rm")).await;
    assert_eq!(verdict(&both), (Action::Stop, "tool-allowlist"));
    assert!(both.decision.effects.contains(&Effect::FlagTrajectory));
    let flags = gateway.run("r").unwrap().flags;
    assert_eq!(flags.len(), 1);
}

/// G6 does not end with the wait: where failing is to stop, a late failure stops too.
#[tokio::test(start_paused = true)]
async fn a_late_failure_follows_async_fail_open() {
    let answers: [fn() -> Verdict; 2] = [
        || Err(RuleError("offline".to_owned())),
        || panic!("out of memory"),
    ];
    for answer in answers {
        for fail_open in [true, false] {
            let policy = policy()
                .gateway(GatewaySettings {
                    async_fail_open: fail_open,
                    ..patient()
                })
                .compile()
                .unwrap();
            let gateway = gateway(policy, 0.0, answer);
            let first = judge(&gateway, &prompt("r", "bad")).await;
            assert_eq!(first.decision.action, Action::Allow);
            assert_eq!(unjudged(&first), ["classifier"]);
            sleep(Duration::from_secs(1)).await;
            let next = judge(&gateway, &call("r", "search")).await;
            if fail_open {
                assert_eq!(verdict(&next), (Action::Allow, "__default__"));
            } else {
                assert_eq!(verdict(&next), (Action::Stop, "classifier"));
                assert_eq!(code(&next), Some("GUARDRAIL_ASYNC_ERROR"));
                assert!(next.decision.reason.starts_with("Late, on an earlier step"));
            }
        }
    }
}

/// Events of one run, judged at the same time: each gets the answer to its own question, and none is
/// taken away as another's late one. From threads outside the runtime an answer can be there before
/// anybody waits for it.
#[test]
fn no_event_loses_its_answer_to_another_of_the_same_run() {
    let echo = deep("echo", |event| async move {
        let stop = decision(Action::Stop, "echo");
        Ok(Some(Decision {
            reason: event.text().to_owned().into(),
            ..stop
        }))
    });
    let gateway = Gateway::builder(empty_policy())
        .deep_rules(deep_rules([echo]))
        .risk_router(wait_ms(60_000.0))
        .build();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (runtime, gateway) = (&runtime, &gateway);
            scope.spawn(move || {
                for n in 0..1000 {
                    let text = format!("{thread}/{n}");
                    let event = prompt("r", &text);
                    let evaluation = runtime.block_on(judge(gateway, &event));
                    assert_eq!(outcomes(&evaluation), [("echo", RuleOutcome::Decided)]);
                    assert_eq!(evaluation.decision.reason, text);
                }
            });
        }
    });
}
