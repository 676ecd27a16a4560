//! What goes over the wire comes out as it was, and what cannot be read names its field.

use portcullis_core::{
    Action, ContextSnapshot, Effect, ErrorCode, PauseScope, PauseSpec, RedactionSpec, RetrySpec,
    Severity, Signals, StopSpec, TimeoutAnswer,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use prost::Message;

use super::*;

/// Through the bytes of the wire.
fn sent<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    vec((".*", values), 0..4).prop_map(Map::from_iter)
}

fn events() -> impl Strategy<Value = Event> {
    let types = prop_oneof![
        select(EventType::NAMED.to_vec()),
        ".+".prop_map(|name| EventType::from(name.as_str())),
    ];
    (
        types,
        ".*",
        option::of(".*"),
        option::of(".*"),
        option::of(object(json())),
        object(json()),
        option::of(any::<f64>().prop_filter("not equal to itself", |n| !n.is_nan())),
    )
        .prop_map(
            |(event_type, run_id, text_content, tool_name, tool_args, payload, timestamp)| Event {
                event_type,
                run_id,
                text_content,
                tool_name,
                tool_args,
                payload,
                timestamp,
            },
        )
}

fn contexts() -> impl Strategy<Value = Context> {
    let strikes = btree_map(".*", any::<u64>(), 0..3);
    let objects = (object(json()), object(json()));
    (".*", option::of(".*"), option::of(".*"), objects, strikes).prop_map(
        |(run_id, tenant_id, persona_id, (tool_context, policy_config), strike_counts)| Context {
            run_id,
            tenant_id,
            persona_id,
            tool_context,
            policy_config,
            strike_counts,
            extra: Map::from_iter([("locale".to_owned(), "de".into())]),
            ..Context::default()
        },
    )
}

fn redactions() -> impl Strategy<Value = RedactionSpec> {
    let offsets = (option::of(any::<usize>()), option::of(any::<usize>()));
    (".*", ".*", option::of(".*"), offsets, any::<bool>()).prop_map(
        |(path, replacement, entity_type, (start_offset, end_offset), restorable)| RedactionSpec {
            path: path.into(),
            replacement: replacement.into(),
            entity_type: entity_type.map(Into::into),
            start_offset,
            end_offset,
            restorable,
        },
    )
}

fn stops() -> impl Strategy<Value = StopSpec> {
    (select(ErrorCode::ALL), ".*", ".*").prop_map(|(error_code, user_message, internal_reason)| {
        StopSpec {
            error_code,
            user_message: user_message.into(),
            internal_reason,
        }
    })
}

fn pauses() -> impl Strategy<Value = PauseSpec> {
    let timeouts = option::of(0.0..1e9);
    (
        select(&PauseScope::ALL[..]),
        vec(".*", 1..3),
        ".*",
        timeouts,
        select(&TimeoutAnswer::ALL[..]),
    )
        .prop_map(
            |(scope, approver_roles, prompt, timeout_s, on_timeout)| PauseSpec {
                scope,
                approver_roles,
                prompt,
                timeout_s,
                on_timeout,
            },
        )
}

fn retries() -> impl Strategy<Value = RetrySpec> {
    (any::<u32>(), ".*").prop_map(|(max_attempts, corrective_message)| RetrySpec {
        max_attempts,
        corrective_message,
    })
}

fn decisions() -> impl Strategy<Value = Decision> {
    let kind = (
        select(&Action::ALL[..]),
        ".*",
        select(&Severity::ALL[..]),
        option::of(0.0..=1.0),
        any::<bool>(),
    );
    let extra = (
        vec(select(&Effect::ALL[..]), 0..4),
        vec(redactions(), 0..3),
        option::of(object(json())),
        option::of(".*"),
    );
    let specs = (
        option::of(retries()),
        option::of(pauses()),
        option::of(stops()),
    );
    (kind, extra, specs).prop_map(|(kind, extra, (retry, pause, stop))| {
        let (action, reason, severity, confidence, retryable) = kind;
        let (effects, redactions, classifier_result, remediation) = extra;
        Decision {
            action,
            severity,
            confidence,
            retryable,
            effects,
            redactions,
            classifier_result: classifier_result.map(Box::new),
            remediation: remediation.map(Into::into),
            retry: retry.map(Box::new),
            pause: pause.map(Box::new),
            stop: stop.map(Box::new),
            was_sync: false,
            ..Decision::allow(RuleId::DEFAULT, reason)
        }
    })
}

fn answers() -> impl Strategy<Value = DeepAnswer> {
    prop_oneof![
        Just(DeepAnswer::Clear),
        Just(DeepAnswer::Unavailable),
        ".*".prop_map(DeepAnswer::Failed),
        ".*".prop_map(DeepAnswer::NoAnswer),
        ".*".prop_map(DeepAnswer::NotAsked),
        decisions().prop_map(|decision| DeepAnswer::Decided(Box::new(decision))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_request_comes_out_as_it_was(
        event in events(),
        context in contexts(),
        rules in vec(".*", 0..3),
        trace in option::of(".+"),
    ) {
        let risks = ToolRisks::default();
        let snapshot = ContextSnapshot::build(&event, &context, &risks, Signals::default());
        let request = DeepRequest {
            correlation_id: "c".to_owned(),
            snapshot: Arc::new(snapshot.into_owned()),
            event: Arc::new(event),
            context: Arc::new(context),
            rules: rules.into_iter().map(RuleId::from).collect(),
            trace,
        };
        let ttl = Duration::from_millis(1500);
        let message = sent(&wire::EvaluateRequest::asking(&request, ttl).unwrap());
        prop_assert_eq!(message.ttl(), Some(ttl));
        let back = message.into_request(&risks).unwrap();
        prop_assert_eq!(&back.correlation_id, &request.correlation_id);
        prop_assert_eq!(&back.event, &request.event);
        prop_assert_eq!(&back.context, &request.context);
        prop_assert_eq!(back.snapshot.to_wire(), request.snapshot.to_wire());
        prop_assert_eq!(&back.rules, &request.rules);
        prop_assert_eq!(&back.trace, &request.trace);
    }

    #[test]
    fn a_response_comes_out_as_it_was(run_id in ".*", said in vec((".*", answers()), 0..3)) {
        let answers = said.into_iter().map(|(id, mut answer)| {
            let id = RuleId::from(id);
            if let DeepAnswer::Decided(decision) = &mut answer {
                decision.rule_id = id.clone();
                decision.correlation_id = Some("c".to_owned());
            }
            (id, answer)
        });
        let response = DeepResponse {
            correlation_id: "c".to_owned(),
            run_id,
            answers: answers.collect(),
        };
        let back = sent(&wire::EvaluateResponse::from(response.clone()));
        prop_assert_eq!(DeepResponse::from(back), response);
    }

    #[test]
    fn a_rule_comes_out_as_it_was(
        id in ".+",
        version in ".*",
        named in vec(prop_oneof![select(EventType::NAMED.to_vec()).prop_map(|t| t.to_string()), ".+"], 0..4),
        every in any::<bool>(),
        ready in any::<bool>(),
    ) {
        let events = if every {
            EventSet::any()
        } else {
            EventSet::of_names(named.iter().map(String::as_str))
        };
        let rule = ServedRule { id: id.into(), version, events, ready };
        let back = ServedRule::try_from(sent(&wire::Rule::from(rule.clone()))).unwrap();
        prop_assert_eq!(back, rule);
    }
}

fn stop() -> wire::Decision {
    wire::Decision {
        action: wire::Action::Stop.into(),
        stop: Some(wire::Stop::default()),
        ..wire::Decision::default()
    }
}

#[test]
fn what_a_sidecar_leaves_out_is_the_default() {
    let read = Decision::try_from(stop()).unwrap();
    assert_eq!(read.stop.as_deref(), Some(&StopSpec::default()));
    assert_eq!(read.severity, Severity::Medium);
    assert!(!read.retryable && !read.was_sync);
    let read = Decision::try_from(wire::Decision {
        action: wire::Action::Pause.into(),
        pause: Some(wire::Pause::default()),
        retry: Some(wire::Retry::default()),
        redactions: vec![wire::Redaction::default()],
        ..wire::Decision::default()
    });
    let read = read.unwrap();
    assert!(read.retryable);
    let never = PauseSpec {
        timeout_s: None,
        ..PauseSpec::default()
    };
    assert_eq!(read.pause.as_deref(), Some(&never));
    assert_eq!(read.retry.as_deref(), Some(&RetrySpec::default()));
    assert_eq!(read.redactions[0].replacement, "[REDACTED]");
}

#[test]
fn an_error_code_of_a_sidecars_own_stops_all_the_same() {
    for (reason, kept) in [("", "ACME_7"), ("why", "ACME_7: why")] {
        let read = Decision::try_from(wire::Decision {
            stop: Some(wire::Stop {
                error_code: "ACME_7".to_owned(),
                internal_reason: reason.to_owned(),
                ..wire::Stop::default()
            }),
            ..stop()
        });
        let read = read.unwrap();
        let stop = read.stop.unwrap();
        assert_eq!(
            (read.action, stop.error_code),
            (Action::Stop, ErrorCode::GuardrailStop)
        );
        assert_eq!(stop.internal_reason, kept);
    }
}

#[test]
fn what_cannot_be_read_names_its_field() {
    let pause = wire::Pause {
        scope: "day".to_owned(),
        ..wire::Pause::default()
    };
    for (decision, field) in [
        (wire::Decision::default(), "decided.action"),
        (
            wire::Decision {
                action: 99,
                ..stop()
            },
            "decided.action",
        ),
        (
            wire::Decision {
                severity: 99,
                ..stop()
            },
            "decided.severity",
        ),
        (
            wire::Decision {
                effects: vec!["mail".to_owned()],
                ..stop()
            },
            "decided.effects",
        ),
        (
            wire::Decision {
                pause: Some(pause),
                ..stop()
            },
            "decided.pause.scope",
        ),
        (
            wire::Decision {
                classifier_result_json: Some("[]".to_owned()),
                ..stop()
            },
            "decided.classifier_result_json",
        ),
    ] {
        assert_eq!(Decision::try_from(decision).unwrap_err().field, field);
    }
    let request = |event: Option<wire::Event>, context: &str, snapshot: &str| {
        let request = wire::EvaluateRequest {
            event,
            context_json: context.to_owned(),
            snapshot_json: snapshot.to_owned(),
            ..wire::EvaluateRequest::default()
        };
        request
            .into_request(&ToolRisks::default())
            .unwrap_err()
            .field
    };
    let event = || wire::Event {
        event_type: "llm_before".to_owned(),
        ..wire::Event::default()
    };
    let event_of = |args: Option<&str>, payload: &str| wire::Event {
        tool_args_json: args.map(str::to_owned),
        payload_json: payload.to_owned(),
        ..event()
    };
    let snapshot = ContextSnapshot::build(
        &Event::llm_before("r", ""),
        &Context::new("r"),
        &ToolRisks::default(),
        Signals::default(),
    )
    .into_owned();
    let snapshot = serde_json::to_string(&snapshot.to_wire()).unwrap();
    assert_eq!(request(None, "{}", "{}"), "event");
    assert_eq!(request(Some(event()), "", "{}"), "context_json");
    assert_eq!(request(Some(event()), "{}", "{}"), "snapshot_json");
    for (event, field) in [
        (wire::Event::default(), "event.event_type"),
        (event_of(Some("1"), ""), "event.tool_args_json"),
        (event_of(None, "x"), "event.payload_json"),
    ] {
        assert_eq!(request(Some(event), "{}", &snapshot), field);
    }
    let rule = ServedRule::try_from(wire::Rule::default());
    assert_eq!(rule.unwrap_err().field, "rules.id");
}

/// The others of the same response still count.
#[test]
fn an_answer_that_cannot_be_read_has_failed() {
    let said = |said| wire::Answer {
        rule_id: "r".to_owned(),
        said,
    };
    let response = wire::EvaluateResponse {
        answers: vec![
            said(None),
            said(Some(wire::answer::Said::Decided(Box::default()))),
            said(Some(wire::answer::Said::Clear(wire::Clear {}))),
        ],
        ..wire::EvaluateResponse::default()
    };
    let response = DeepResponse::from(response);
    let kinds: Vec<_> = response
        .answers
        .into_iter()
        .map(|(_, answer)| answer)
        .collect();
    let [
        DeepAnswer::Failed(one),
        DeepAnswer::Failed(two),
        DeepAnswer::Clear,
    ] = kinds.as_slice()
    else {
        panic!("{kinds:?}");
    };
    assert!(one.contains("answer.said: is missing"), "{one}");
    assert!(two.contains("decided.action: is missing"), "{two}");
}
