//! Permits, the gate that gives them, and the approvals that lift a pause.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Status, conformance,
};
use portcullis_core::rules::RuleInput;
use portcullis_core::{
    Action, Context, Decision, DecisionPolicy, Effect, ErrorCode, Event, EventType, PauseSpec,
    RedactionSpec, RuleId,
};
use portcullis_runtime::{
    Cleared, Gate, Gateway, MemoryApprovals, PermitMismatch, RecentAlerts, Ruling, Standing,
    Unguarded, clear,
};
use serde_json::{Value, json};

use crate::fixtures::{args, decision, fast, patient, policy_of};

fn gate(judge: impl Fn(&Event) -> Option<Decision> + Send + Sync + 'static) -> Gate {
    let rule = fast("gate-test", move |input| Ok(judge(input.event)));
    Gateway::builder(policy_of(patient(), [rule]))
        .build()
        .into()
}

fn redaction(path: &'static str) -> RedactionSpec {
    RedactionSpec {
        path: path.into(),
        replacement: "[X]".into(),
        entity_type: None,
        start_offset: None,
        end_offset: None,
        restorable: false,
    }
}

#[tokio::test]
async fn a_permit_fits_the_call_that_was_judged_and_no_other() {
    let mail = || args(json!({"to": "ops@example.org", "n": 9_007_199_254_740_993_u64}));
    let others = [
        ("run-2", "mail", mail(), "run"),
        ("run-1", "rm", mail(), "tool"),
        ("run-1", "mail", args(json!({})), "arguments"),
        (
            "run-1",
            "mail",
            args(json!({"to": "ops@example.org", "n": 9_007_199_254_740_992_u64})),
            "arguments",
        ),
    ];
    for gate in [Gate::from(Unguarded), gate(|_| None)] {
        let permit = async || {
            let mut context = Context::new("run-1");
            let asked = gate
                .tool_call(&mut context, "mail", mail(), Standing::First)
                .await;
            match asked.ruling {
                Ruling::Go(permit) => permit,
                other => panic!("{other:?}"),
            }
        };
        let call = permit().await.redeem("run-1", "mail", mail()).unwrap();
        assert_eq!((call.run_id(), call.tool()), ("run-1", "mail"));
        assert_eq!(*call.arguments(), mail());
        for (run, tool, arguments, what) in &others {
            let refused = permit().await.redeem(run, tool, arguments.clone());
            assert_eq!(refused.unwrap_err(), PermitMismatch { what });
        }
    }
}

#[tokio::test]
async fn only_allow_and_redact_give_a_permit() {
    for action in Action::ALL {
        let gate = gate(move |_| Some(decision(action, "gate-test")));
        let mut context = Context::new("run-1");
        let asked = gate
            .tool_call(&mut context, "t", args(json!({})), Standing::First)
            .await;
        let given = matches!(asked.ruling, Ruling::Go(_));
        let wanted = matches!(action, Action::Allow | Action::Redact);
        assert_eq!(given, wanted, "{action}");
        assert_eq!(asked.evaluation.unwrap().decision.action, action);
    }
}

#[tokio::test]
async fn redactions_are_applied_whatever_the_action_and_a_permit_is_for_what_is_left() {
    for action in [Action::Redact, Action::Pause, Action::Retry] {
        let gate = gate(move |_| {
            let mut decision = decision(action, "gate-test");
            decision.redactions = vec![redaction("/key")];
            Some(decision)
        });
        let mut context = Context::new("run-1");
        let asked = args(json!({"key": "k", "n": 1}));
        let judged = gate
            .tool_call(&mut context, "t", asked.clone(), Standing::First)
            .await;
        assert_eq!(
            Value::Object(judged.seen.clone()),
            json!({"key": "[X]", "n": 1})
        );
        if let Ruling::Go(permit) = judged.ruling {
            let refused = permit.redeem("run-1", "t", asked);
            assert_eq!(refused.unwrap_err(), PermitMismatch { what: "arguments" });
        }
    }
}

#[tokio::test]
async fn what_cannot_be_redacted_is_withheld_and_stops() {
    let gate = gate(|_| {
        let redactions = vec![redaction("/nowhere")];
        Some(Decision::redact(RuleId::from("gate-test"), "x", redactions))
    });
    let mut context = Context::new("run-1");
    let result = json!({"key": "k"});
    let judged = gate
        .tool_result(&mut context, "t", result, Standing::First)
        .await;
    assert_eq!(judged.seen, Value::Null);
    assert!(matches!(judged.ruling, Ruling::Stop(_)));
}

#[test]
fn memory_approvals_conform() {
    let race = |n: usize, work: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for one in 0..n {
                scope.spawn(move || work(one));
            }
        });
    };
    let make = || Box::new(MemoryApprovals::default()) as Box<dyn Approvals>;
    conformance::conforms(&make, &race).unwrap();
}

#[test]
fn memory_approvals_are_bounded_and_forget_what_is_settled_first() {
    let at = |n: i64| Timestamp::from_second(1_800_000_000 + n).unwrap();
    let approvals = MemoryApprovals::new(2);
    let example = |id: &str, n: i64| conformance::example(id, at(n));
    approvals.create(example("a", 0)).unwrap();
    approvals.create(example("b", 200)).unwrap();
    assert_eq!(
        approvals.create(example("c", 299)),
        Err(ApprovalError::Full(2))
    );
    approvals.create(example("c", 300)).unwrap();
    assert_eq!(approvals.get("a", at(300)).unwrap(), None);
    assert!(approvals.get("b", at(300)).unwrap().is_some());
}

#[test]
fn an_approval_survives_the_wire() {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let approval = conformance::example("a", at);
    let text = serde_json::to_string(&approval).unwrap();
    assert_eq!(serde_json::from_str::<Approval>(&text).unwrap(), approval);
    for status in Status::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

/// Approved for one call, and then used for it, for another, and under another policy.
#[tokio::test]
async fn a_clearance_lifts_the_pause_of_its_call_and_of_no_other() {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let log = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&log);
    let gate = gate(move |_| {
        *counted.lock().unwrap() += 1;
        let spec = PauseSpec::default();
        Some(Decision::pause(RuleId::from("gate-test"), "x", spec))
    });
    let event = |text: &str| Event::tool_call_start("run-1", "t", args(json!({"text": text})));
    let clearance = |id: &str| {
        let approvals = MemoryApprovals::default();
        let rules = vec![RuleId::from("gate-test")];
        let bound = Binding::of(&event("yes"), "agent", rules, &gate.policy());
        let mut approval = conformance::example(id, at);
        approval.bound = bound.clone();
        approvals.create(approval).unwrap();
        let answer = Answer {
            approve: true,
            by: "robin".to_owned(),
            roles: vec!["admin".to_owned()],
            note: None,
        };
        approvals.decide(id, &answer, at).unwrap();
        match clear(&approvals, id, bound, at).unwrap() {
            Cleared::Yes(clearance) => Standing::Cleared(clearance),
            other => panic!("{other:?}"),
        }
    };
    let asked = async |text: &str, clearance| {
        let mut context = Context::new("run-1");
        let arguments = args(json!({"text": text}));
        let judged = gate
            .tool_call(&mut context, "t", arguments, clearance)
            .await;
        matches!(judged.ruling, Ruling::Go(_))
    };
    assert!(!asked("yes", Standing::First).await);
    assert!(asked("yes", clearance("a")).await);
    assert!(!asked("no", clearance("b")).await);
    let before = clearance("c");
    let policy = portcullis_core::PolicyBuilder::new("other", "1").gateway(patient());
    let policy = policy
        .custom_rule(
            fast("gate-test", |_| {
                Ok(Some(decision(Action::Pause, "gate-test")))
            }),
            None,
            portcullis_core::pack::diagnostic::Place::default(),
        )
        .compile()
        .unwrap();
    gate.gateway().unwrap().replace_policy(policy);
    assert!(!asked("yes", before).await);
    assert_eq!(*log.lock().unwrap(), 3, "everything is judged again");
}

/// What a yes was given for is what the person saw: if a redaction changes it in the meantime, it is another call.
#[tokio::test]
async fn a_clearance_does_not_fit_a_call_that_is_redacted_on_the_way() {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let redacting = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now_redacting = Arc::clone(&redacting);
    let gate = gate(move |_| {
        let mut decision = decision(Action::Pause, "gate-test");
        if now_redacting.load(std::sync::atomic::Ordering::SeqCst) {
            decision.redactions = vec![redaction("/tool_args/to")];
        }
        Some(decision)
    });
    let arguments = || args(json!({"to": "ops@example.org"}));
    for (redacted, goes) in [(false, true), (true, false)] {
        let mut context = Context::new("run-1");
        let asked = gate
            .tool_call(&mut context, "t", arguments(), Standing::First)
            .await;
        let Ruling::Pause(paused) = asked.ruling else {
            panic!("{:?}", asked.ruling);
        };
        let call = Event::tool_call_start("run-1", "t", asked.seen);
        let approval = paused.approval(&call, "agent", at);
        let (approvals, id) = (MemoryApprovals::default(), approval.id.clone());
        let bound = approval.bound.clone();
        approvals.create(approval).unwrap();
        approvals.decide(&id, &yes(), at).unwrap();
        let Cleared::Yes(clearance) = clear(&approvals, &id, bound, at).unwrap() else {
            panic!("it was approved");
        };
        redacting.store(redacted, std::sync::atomic::Ordering::SeqCst);
        let asked = gate
            .tool_call(&mut context, "t", arguments(), Standing::Cleared(clearance))
            .await;
        assert_eq!(matches!(asked.ruling, Ruling::Go(_)), goes);
    }
}

/// What is left of a decision, rule by rule.
#[tokio::test]
async fn lifting_a_pause_leaves_what_the_other_rules_say() {
    let cases: &[(&[Action], &[Action])] = &[
        (&[Action::Pause], &[Action::Allow]),
        (&[Action::Pause, Action::Redact], &[Action::Redact]),
        (&[Action::Retry, Action::Pause], &[Action::Retry]),
        (
            &[Action::Pause, Action::Pause, Action::Retry],
            &[Action::Pause, Action::Retry],
        ),
        (&[Action::Pause, Action::Stop], &[]),
        (&[Action::Retry], &[]),
    ];
    for (says, wanted) in cases {
        let rules = says.iter().enumerate().map(|(n, action)| {
            let (name, action) = (format!("gate-{n}"), *action);
            fast(&name.clone(), move |_| {
                let mut decision = decision(action, &name);
                if action == Action::Redact {
                    decision.redactions = vec![redaction("text")];
                }
                Ok(Some(decision))
            })
        });
        let gateway = Gateway::builder(policy_of(patient(), rules.collect::<Vec<_>>())).build();
        let event = Event::llm_before("run-1", "hello");
        let evaluation = gateway.evaluate(&mut Context::new("run-1"), &event).await;
        let chain: Vec<Action> = evaluation.if_lifted.iter().map(|d| d.action).collect();
        assert_eq!(chain, *wanted, "{says:?}");
        let pausing: Vec<RuleId> = says
            .iter()
            .enumerate()
            .filter(|(_, action)| **action == Action::Pause)
            .map(|(n, _)| RuleId::from(format!("gate-{n}").as_str()))
            .collect();
        for lifted in &evaluation.if_lifted {
            assert_eq!(lifted.redactions, evaluation.decision.redactions);
            assert!(lifted.effects.is_empty());
        }
        assert_eq!(evaluation.clone().lift(&[]), evaluation);
        let last = wanted.last().unwrap_or(&evaluation.decision.action);
        let last = *last;
        assert_eq!(evaluation.lift(&pausing).decision.action, last, "{says:?}");
    }
}

/// Only the strongest decision counts, and two objections make a pause of its own.
struct Quorum;

impl DecisionPolicy for Quorum {
    fn resolve(&self, decisions: Vec<Decision>, _: &RuleInput<'_>) -> Decision {
        let objections = decisions.iter().filter(|d| d.action >= Action::Retry);
        if objections.count() >= 2 {
            return decision(Action::Pause, "quorum");
        }
        let strongest = decisions.into_iter().max_by_key(|d| d.action);
        strongest.unwrap_or_else(portcullis_core::nothing_triggered)
    }
}

/// Whatever a decision policy leaves out: what waits is redacted, and who pauses is asked about.
#[tokio::test]
async fn a_decision_policy_hides_neither_redactions_nor_pauses() {
    let redacting = || {
        fast("card", |_| {
            let mut decision = decision(Action::Redact, "card");
            decision.redactions = vec![redaction("text")];
            Ok(Some(decision))
        })
    };
    let says = |name: &'static str, action| fast(name, move |_| Ok(Some(decision(action, name))));
    let cases = [
        (vec![redacting(), says("a", Action::Pause)], vec!["a"]),
        (
            vec![
                redacting(),
                says("a", Action::Pause),
                says("b", Action::Retry),
            ],
            vec!["quorum", "a"],
        ),
        (
            vec![
                says("b", Action::Retry),
                says("c", Action::Retry),
                redacting(),
            ],
            vec!["quorum"],
        ),
    ];
    for (rules, pauses) in cases {
        let gateway = Gateway::builder(policy_of(patient(), rules))
            .decision_policy(Quorum)
            .build();
        let event = Event::llm_before("run-1", "hello");
        let mut evaluation = gateway.evaluate(&mut Context::new("run-1"), &event).await;
        let mut lifted = Vec::new();
        for pause in pauses {
            assert_eq!(evaluation.decision.action, Action::Pause);
            assert_eq!(evaluation.decision.rule_id.as_str(), pause);
            assert_eq!(evaluation.decision.redactions.len(), 1);
            lifted.push(evaluation.decision.pause_key().clone());
            evaluation = evaluation.lift(&lifted);
        }
        assert_eq!(evaluation.decision.action, Action::Redact);
        assert_eq!(evaluation.decision.redactions.len(), 1);
    }
}

/// What a pause asks for is done once, however often its step is judged on the way.
#[tokio::test]
async fn a_step_that_waits_has_its_effects_once() {
    let pausing = fast("gate-test", |_| {
        let pause = decision(Action::Pause, "gate-test");
        Ok(Some(pause.with_effects([
            Effect::IncrementStrike,
            Effect::EmitAlert,
        ])))
    });
    let alerts = Arc::new(RecentAlerts::new(10));
    let gateway = Gateway::builder(policy_of(patient(), [pausing]))
        .alerts(Arc::clone(&alerts) as _)
        .build();
    let event = Event::llm_before("run-1", "hello");
    let mut context = Context::new("run-1");
    gateway.evaluate(&mut context, &event).await;
    let pauses = [RuleId::from("gate-test")];
    gateway.evaluate_again(&mut context, &event, &pauses).await;
    assert_eq!(context.strike_counts["gate"], 1);
    assert_eq!(alerts.list().len(), 1);
    // But what nobody was asked about counts.
    let others = [RuleId::from("other")];
    gateway.evaluate_again(&mut context, &event, &others).await;
    assert_eq!(context.strike_counts["gate"], 2);
}

fn yes() -> Answer {
    Answer {
        approve: true,
        by: "robin".to_owned(),
        roles: vec!["admin".to_owned(), "duty".to_owned()],
        note: None,
    }
}

#[tokio::test]
async fn a_stop_outranks_a_clearance() {
    let gate = gate(|_| Some(decision(Action::Stop, "gate-test")));
    let event = Event::new(EventType::LlmBefore, "run-1");
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let approvals = MemoryApprovals::default();
    let mut approval = conformance::example("a", at);
    let rules = vec![RuleId::from("gate-test")];
    approval.bound = Binding::of(&event, "agent", rules, &gate.policy());
    approval.approver_roles.clear();
    let bound = approval.bound.clone();
    approvals.create(approval).unwrap();
    let answer = Answer {
        approve: true,
        by: "robin".to_owned(),
        roles: Vec::new(),
        note: None,
    };
    approvals.decide("a", &answer, at).unwrap();
    let Cleared::Yes(clearance) = clear(&approvals, "a", bound, at).unwrap() else {
        panic!("it was approved");
    };
    let mut context = Context::new("run-1");
    let judged = gate
        .prompt(&mut context, None, Standing::Cleared(clearance))
        .await;
    let Ruling::Stop(spec) = judged.ruling else {
        panic!("{judged:?}");
    };
    assert_eq!(spec.error_code, ErrorCode::GuardrailStop);
}
