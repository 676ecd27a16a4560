//! A dead classifier costs a few events their deadline, not all of them; and hedging, where it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_core::rules::RuleError;
use portcullis_core::{
    Action, BreakerSettings, GatewaySettings, OnTimeout, Policy, RuleId, RuleOutcome,
};
use portcullis_runtime::{Circuit, DeepError, DeepRule, Gateway};
use tokio::time::{Instant, sleep};

use crate::deep::{errs, routed};
use crate::fixtures::{
    Verdict, code, decision, deep, deep_rules, hangs, judge, load, outcomes, patient, policy,
    prompt, unjudged, verdict, wait_ms,
};

const FAILURES: u32 = 3;
const COOL_DOWN: Duration = Duration::from_secs(10);

fn breaking(settings: GatewaySettings) -> Policy {
    let settings = GatewaySettings {
        async_breaker: BreakerSettings {
            failures: FAILURES,
            cool_down_ms: COOL_DOWN.as_secs_f64() * 1e3,
        },
        ..settings
    };
    policy().gateway(settings).compile().unwrap()
}

/// Behaves as `behave` says of the n-th call.
fn counting<A>(
    behave: impl Fn(usize) -> A + Send + Sync + 'static,
) -> (Arc<dyn DeepRule>, Arc<AtomicUsize>)
where
    A: Future<Output = Verdict> + Send + 'static,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let rule = deep("classifier", move |_| {
        behave(counted.fetch_add(1, Ordering::Relaxed))
    });
    (rule, calls)
}

#[tokio::test(start_paused = true)]
async fn a_dead_classifier_stops_costing_its_deadline_and_its_fallback_stays() {
    let expected = [
        (OnTimeout::Allow, (Action::Allow, "__default__")),
        (OnTimeout::Pause, (Action::Pause, "__timeout__")),
        (OnTimeout::Stop, (Action::Stop, "__timeout__")),
    ];
    for (on_timeout, fallback) in expected {
        for required in [&[][..], &["classifier"]] {
            let gateway = Gateway::builder(breaking(patient()))
                .deep_rules(deep_rules([hangs("classifier")]))
                .risk_router(routed(100.0, on_timeout, required))
                .build();
            for _ in 0..FAILURES {
                let started = Instant::now();
                let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
                assert_eq!(verdict(&evaluation), fallback);
                assert_eq!(
                    outcomes(&evaluation),
                    [("classifier", RuleOutcome::TimedOut)]
                );
                assert!(started.elapsed() >= Duration::from_millis(100));
            }
            let started = Instant::now();
            for _ in 0..1000 {
                let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
                assert_eq!(verdict(&evaluation), fallback);
                assert_eq!(
                    outcomes(&evaluation),
                    [("classifier", RuleOutcome::CircuitOpen)]
                );
                assert_eq!(unjudged(&evaluation), ["classifier"]);
            }
            assert_eq!(started.elapsed(), Duration::ZERO);
            let open = [(RuleId::from("classifier"), Circuit::Open)];
            assert_eq!(gateway.circuits(), open);
            assert_eq!(gateway.circuits_opened(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_event_probes_after_the_cool_down_and_the_rest_do_not_wait() {
    let (rule, calls) = counting(|call| async move {
        // Dead for the first calls and the first probe.
        if call <= FAILURES as usize {
            std::future::pending::<()>().await;
        }
        Ok(Some(decision(Action::Stop, "it")))
    });
    let gateway = Gateway::builder(breaking(patient()))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(100.0))
        .build();
    for _ in 0..10 {
        judge(&gateway, &prompt("r", "Hello.")).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), FAILURES as usize);
    sleep(COOL_DOWN).await;
    let probe = judge(&gateway, &prompt("r", "Hello.")).await;
    assert_eq!(outcomes(&probe), [("classifier", RuleOutcome::TimedOut)]);
    let after = judge(&gateway, &prompt("r", "Hello.")).await;
    assert_eq!(outcomes(&after), [("classifier", RuleOutcome::CircuitOpen)]);
    sleep(COOL_DOWN).await;
    for _ in 0..3 {
        let alive = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&alive), (Action::Stop, "classifier"));
    }
    let closed = [(RuleId::from("classifier"), Circuit::Closed)];
    assert_eq!(gateway.circuits(), closed);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_keeps_failing_is_left_alone_too() {
    for (fail_open, stops) in [(true, None), (false, Some("GUARDRAIL_ASYNC_ERROR"))] {
        let (rule, calls) = counting(|_| async { Err(RuleError("502".to_owned())) });
        let gateway = Gateway::builder(breaking(GatewaySettings {
            async_fail_open: fail_open,
            ..patient()
        }))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(100.0))
        .build();
        for _ in 0..20 {
            let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
            assert_eq!(code(&evaluation), stops);
        }
        assert_eq!(calls.load(Ordering::Relaxed), FAILURES as usize);
    }
}

/// They cost no event its deadline, and a late STOP is worth having when the rule is back.
#[tokio::test(start_paused = true)]
async fn events_that_do_not_wait_always_ask() {
    let (rule, calls) = counting(|_| async { Err(RuleError("502".to_owned())) });
    let gateway = Gateway::builder(breaking(patient()))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(0.0))
        .build();
    for _ in 0..20 {
        judge(&gateway, &prompt("r", "Hello.")).await;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 20);
    assert_eq!(gateway.circuits(), []);
}

/// Whoever sends what a rule cannot judge must not switch it off for everybody.
#[tokio::test(start_paused = true)]
async fn what_is_an_events_own_fault_opens_no_circuit() {
    let gateway = Gateway::builder(breaking(patient()))
        .deep_rules(deep_rules([errs(|| {
            DeepError::NotAsked("too long".to_owned())
        })]))
        .risk_router(routed(100.0, OnTimeout::Pause, &[]))
        .build();
    for _ in 0..20 {
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), (Action::Pause, "__timeout__"));
        assert_eq!(outcomes(&evaluation), [("classifier", RuleOutcome::Failed)]);
    }
    assert_eq!(gateway.circuits(), []);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_twice_unless_hedging_is_on() {
    let slow_at_first = || {
        counting(|call| async move {
            let ms = if call == 0 { 500 } else { 10 };
            sleep(Duration::from_millis(ms)).await;
            Ok(Some(decision(Action::Stop, "it")))
        })
    };
    let cases = [
        (None, 1, RuleOutcome::TimedOut, 100),
        (Some(30.0), 2, RuleOutcome::Decided, 40),
    ];
    for (hedge, expected_calls, outcome, took_ms) in cases {
        let (rule, calls) = slow_at_first();
        let gateway = Gateway::builder(breaking(GatewaySettings {
            async_hedge_after_ms: hedge,
            ..patient()
        }))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(100.0))
        .build();
        let started = Instant::now();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(outcomes(&evaluation), [("classifier", outcome)]);
        let took = started.elapsed().as_millis();
        assert!((took_ms..took_ms + 5).contains(&took), "{took}");
        assert_eq!(calls.load(Ordering::Relaxed), expected_calls);
    }
}

/// However the two answers of a hedged question come, the run hears of one.
#[tokio::test(start_paused = true)]
async fn a_hedged_question_has_one_answer() {
    // Milliseconds until each of the two answers; the wait is 100, the second is asked after 30.
    let cases = [
        (10, 10),
        (50, 10),
        (50, 60),
        (90, 200),
        (500, 10),
        (500, 500),
        (200, 400),
    ];
    for (first, second) in cases {
        let calls = AtomicUsize::new(0);
        let rule = deep("classifier", move |event| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move {
                let ms = if call == 0 { first } else { second };
                sleep(Duration::from_millis(ms)).await;
                let guilty = event.text() == "event 0";
                Ok(guilty.then(|| decision(Action::Stop, "it")))
            }
        });
        let gateway = Gateway::builder(breaking(GatewaySettings {
            async_hedge_after_ms: Some(30.0),
            ..patient()
        }))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(100.0))
        .build();
        let mut stops = 0;
        for n in 0..4 {
            let evaluation = judge(&gateway, &prompt("r", &format!("event {n}"))).await;
            stops += usize::from(evaluation.decision.action == Action::Stop);
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(stops, 1, "{first} ms and {second} ms");
        assert_eq!(gateway.inbox_depth().in_flight, 0);
        // The last event's own answer, if it was late.
        assert!(
            gateway.inbox_depth().late <= 1,
            "{first} ms and {second} ms"
        );
    }
}

#[test]
fn a_pack_sets_the_breaker_and_the_hedge() {
    let with = |text: &str| {
        let text = format!("policy_pack: p\nversion: '1'\ngateway: {{async: {{{text}}}}}\n");
        *load(&text).gateway()
    };
    let defaults = with("enabled: true");
    assert_eq!(defaults.async_breaker, BreakerSettings::default());
    assert_eq!(defaults.async_hedge_after_ms, None);
    let set = with("breaker: {failures: 2, cool_down_ms: 250}, hedge_after_ms: 40");
    assert_eq!(set.async_breaker.failures, 2);
    assert_eq!(set.async_breaker.cool_down_ms, 250.0);
    assert_eq!(set.async_hedge_after_ms, Some(40.0));
    assert_eq!(with("breaker: {enabled: false}").async_breaker.failures, 0);
}
