//! Rules that get stuck hold up nobody: not the gate, not the runtime, not the rules after them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use portcullis_core::rules::{Expression, Rule, RuleSettings};
use portcullis_core::{Action, GatewaySettings, RuleOutcome};
use portcullis_runtime::Gateway;

use crate::fixtures::{
    PATIENT_MS, code, decision, fast, judge, outcomes, patient, policy, policy_of, prompt, verdict,
};

/// Far longer than anything here takes, far shorter than a hang.
const LONG: Duration = Duration::from_secs(30);

/// A door that rules wait at.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_while(open, |open| !*open);
        assert!(*waited.unwrap());
    }
}

/// A rule that is stuck until the door opens.
fn stuck(id: &str) -> (Arc<dyn Rule>, Door) {
    let door = Door::default();
    let at = door.clone();
    let rule = fast(id, move |_| {
        at.wait();
        Ok(None)
    });
    (rule, door)
}

fn settings(sync_timeout_ms: f64, sync_parallel: bool) -> GatewaySettings {
    GatewaySettings {
        sync_timeout_ms,
        sync_parallel,
        ..GatewaySettings::default()
    }
}

#[tokio::test]
async fn with_every_thread_stuck_the_next_event_fails_closed_at_once_and_then_recovers() {
    for parallel in [true, false] {
        let (rule, door) = stuck("stuck-rule");
        let with = |timeout| policy_of(settings(timeout, parallel), [Arc::clone(&rule)]);
        let gateway = Gateway::builder(with(30.0)).max_rule_threads(1).build();
        let event = prompt("r", "Hello.");
        let evaluation = judge(&gateway, &event).await;
        assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_TIMEOUT"));

        // A minute's deadline now, so that only refusing at once can answer this soon.
        gateway.replace_policy(with(PATIENT_MS));
        let asked = Instant::now();
        let evaluation = judge(&gateway, &event).await;
        assert!(asked.elapsed() < LONG);
        assert_eq!(verdict(&evaluation), (Action::Stop, "stuck-rule"));
        assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_ERROR"));
        let reason = &evaluation.decision.reason;
        assert!(reason.contains("no thread is free"), "{reason}");
        assert_eq!(outcomes(&evaluation), [("stuck-rule", RuleOutcome::Failed)]);

        door.open();
        let asked = Instant::now();
        while judge(&gateway, &event).await.decision.action != Action::Allow {
            assert!(asked.elapsed() < LONG, "the thread never came back");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Whoever has an answer can ask again: the thread that gave it is free by then.
#[tokio::test]
async fn one_thread_serves_one_event_after_another() {
    let gateway = Gateway::builder(policy_of(patient(), [fast("quick", |_| Ok(None))]))
        .max_rule_threads(1)
        .build();
    for _ in 0..2000 {
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(outcomes(&evaluation), [("quick", RuleOutcome::Clear)]);
    }
}

#[tokio::test]
async fn a_stuck_rule_does_not_hide_what_the_others_say() {
    for parallel in [true, false] {
        let (rule, door) = stuck("stuck-rule");
        let found = fast("found", |_| {
            Ok(Some(decision(Action::Stop, "found").with_confidence(1.0)))
        });
        let gateway =
            Gateway::builder(policy_of(settings(1000.0, parallel), [rule, found])).build();
        let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
        assert_eq!(verdict(&evaluation), (Action::Stop, "found"));
        assert_eq!(
            outcomes(&evaluation),
            [
                ("stuck-rule", RuleOutcome::TimedOut),
                ("found", RuleOutcome::Decided)
            ]
        );
        door.open();
    }
}

/// Side by side, two rules that wait for each other both answer; one after the other, neither can.
#[tokio::test]
async fn fenced_rules_run_side_by_side_if_the_policy_says_so() {
    let rendezvous = |sync_parallel, timeout| {
        let meeting = Arc::new((Mutex::new(0), Condvar::new()));
        let rules = ["left", "right"].map(|id| {
            let meeting = Arc::clone(&meeting);
            fast(id, move |_| {
                let (there, changed) = &*meeting;
                *there.lock().unwrap() += 1;
                changed.notify_all();
                let there = there.lock().unwrap();
                drop(changed.wait_while(there, |there| *there < 2).unwrap());
                Ok(None)
            })
        });
        Gateway::builder(policy_of(settings(timeout, sync_parallel), rules)).build()
    };
    let event = prompt("r", "Hello.");
    let both = judge(&rendezvous(true, PATIENT_MS), &event).await;
    assert_eq!(both.decision.action, Action::Allow);
    let neither = judge(&rendezvous(false, 50.0), &event).await;
    assert_eq!(verdict(&neither), (Action::Stop, "left"));
}

#[test]
fn a_stuck_rule_does_not_hold_up_the_runtimes_shutdown() {
    let (done, wait) = mpsc::channel();
    let (rule, door) = stuck("stuck-rule");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let gateway = Gateway::builder(policy_of(settings(30.0, true), [rule])).build();
        let evaluation = runtime.block_on(judge(&gateway, &prompt("r", "Hello.")));
        drop(runtime);
        drop(gateway);
        done.send(evaluation).unwrap();
    });
    let evaluation = wait.recv_timeout(LONG).expect("the runtime to shut down");
    assert_eq!(code(&evaluation), Some("GUARDRAIL_SYNC_TIMEOUT"));
    door.open();
}

/// Threads outlive neither the gateway nor the rule that held them up.
#[tokio::test]
async fn a_gateways_threads_end_with_it() {
    /// Counts itself out when its thread ends.
    struct Leaving(Arc<AtomicUsize>);
    impl Drop for Leaving {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static MARK: RefCell<Option<Leaving>> = const { RefCell::new(None) };
    }
    let (seen, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let rules = ["a", "b", "c"].map(|id| {
        let (seen, ended) = (Arc::clone(&seen), Arc::clone(&ended));
        fast(id, move |_| {
            MARK.with_borrow_mut(|mark| {
                if mark.is_none() {
                    seen.fetch_add(1, Ordering::SeqCst);
                    *mark = Some(Leaving(Arc::clone(&ended)));
                }
            });
            Ok(None)
        })
    });
    let gateway = Gateway::builder(policy_of(patient(), rules)).build();
    judge(&gateway, &prompt("r", "Hello.")).await;
    drop(gateway);
    let asked = Instant::now();
    let started = seen.load(Ordering::SeqCst);
    assert!(started > 0);
    while ended.load(Ordering::SeqCst) < started {
        assert!(asked.elapsed() < LONG, "threads are left behind");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An expression without a loop is not fenced: it costs no thread, and needs no runtime.
#[tokio::test]
async fn an_expression_without_a_loop_runs_inline() {
    let policy = policy()
        .rule(RuleSettings::Expression(Expression::new(
            "event.text_content.contains('x')",
        )))
        .compile()
        .unwrap();
    assert!(policy.rules()[0].fenced().is_none());
    let gateway = Gateway::builder(policy).max_rule_threads(0).build();
    let evaluation = judge(&gateway, &prompt("r", "Hello.")).await;
    assert_eq!(outcomes(&evaluation), [("expression", RuleOutcome::Clear)]);
}
