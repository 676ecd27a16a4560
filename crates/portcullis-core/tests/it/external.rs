//! What external rules ask, and what they make of answers, without a service.

use portcullis_core::rules::{ExternalRule, KNOWN_DEEP, RuleError, RuleInput};
use portcullis_core::{
    Action, Context, ContextSnapshot, Decision, Effect, ErrorCode, Event, EventType, Parts, Policy,
    RuleId, Severity, Signals, ToolRisks, redact_event,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::judge::{load, try_load, with_head};

/// A rule of this kind with this configuration, in YAML's flow style.
pub(crate) fn rule(kind: &str, config: &str) -> Policy {
    load(&with_head(&format!(
        "async_rules:\n- {{id: r, rule: {kind}, config: {config}}}\n"
    )))
}

fn external(policy: &Policy) -> &dyn ExternalRule {
    policy.deep_rules()[0].settings.external().unwrap()
}

fn with_input<T>(event: &Event, judge: impl FnOnce(&RuleInput<'_>) -> T) -> T {
    let (context, risks) = (Context::new("run"), ToolRisks::default());
    let snapshot = ContextSnapshot::build(event, &context, &risks, Signals::default());
    judge(&RuleInput {
        event,
        context: &context,
        snapshot: &snapshot,
    })
}

fn question(policy: &Policy, event: &Event) -> Result<Option<Value>, RuleError> {
    with_input(event, |input| external(policy).question(input))
}

fn answered(policy: &Policy, event: &Event, answer: &[u8]) -> Result<Option<Decision>, RuleError> {
    let id = RuleId::from("r");
    with_input(event, |input| external(policy).judge(&id, input, answer))
}

fn judged(policy: &Policy, event: &Event, answer: &Value) -> Result<Option<Decision>, RuleError> {
    answered(policy, event, answer.to_string().as_bytes())
}

fn prompt(text: &str) -> Event {
    Event::llm_before("run", text)
}

#[test]
fn the_example_of_every_page_loads() {
    for spec in KNOWN_DEEP {
        let page = spec.page();
        let (_, example) = page.split_once("```yaml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let policy = load(&with_head(example));
        let rule = &policy.deep_rules()[0];
        assert_eq!(rule.kind.as_str(), spec.id);
        assert!(rule.enabled);
    }
}

#[test]
fn the_packs_of_the_guide_load() {
    let guide = include_str!("../../../../docs/external-rules.md");
    let packs: Vec<&str> = guide.split("```yaml\n").skip(1).collect();
    for pack in &packs {
        let (pack, _) = pack.split_once("```").unwrap();
        let loaded = try_load(pack, None).unwrap();
        assert!(
            loaded.warnings.diagnostics.is_empty(),
            "{}",
            loaded.warnings
        );
        let rules = loaded.policy;
        assert!(
            rules.deep_rules()[0].settings.external().is_some(),
            "{pack}"
        );
    }
    assert_eq!(packs.len(), 5);
}

#[test]
fn a_rule_has_the_events_of_its_pack_or_its_kind() {
    let policy = load(&with_head(
        "async_rules:\n\
         - {id: presidio, config: {url: 'http://h'}}\n\
         - {id: mine, rule: presidio, events: [tool_call_start], config: {url: 'http://h'}}\n",
    ));
    let [own, named] = policy.deep_rules() else {
        panic!("two rules");
    };
    assert_eq!(own.events.names(), ["llm_before", "tool_call_result"]);
    assert_eq!(named.events.names(), ["tool_call_start"]);
    assert_eq!(
        (named.id.as_str(), named.kind.as_str()),
        ("mine", "presidio")
    );
}

#[test]
fn a_score_counts_from_its_threshold_on_and_under_the_right_label() {
    let policy = rule(
        "http-classifier",
        "{url: 'http://h', response: {score: /0/score, label: /0/label, labels: [BAD], threshold: 0.85}, severity: high, effects: [flag_trajectory], remediation: Ask otherwise.}",
    );
    let say = |label: &str, score: Value| {
        judged(
            &policy,
            &prompt("hi"),
            &json!([{"label": label, "score": score}]),
        )
    };
    let stop = say("BAD", json!(0.85)).unwrap().unwrap();
    assert_eq!((stop.action, stop.severity), (Action::Stop, Severity::High));
    assert_eq!(stop.stop.unwrap().error_code, ErrorCode::GuardrailStop);
    assert_eq!(stop.effects, [Effect::FlagTrajectory]);
    assert_eq!(stop.confidence, Some(0.85));
    assert_eq!(stop.remediation.unwrap(), "Ask otherwise.");
    assert_eq!(
        Value::Object(*stop.classifier_result.unwrap()),
        json!({"label": "BAD", "score": 0.85})
    );
    assert_eq!(stop.reason, "The classifier gives BAD 0.850; 0.85 counts");
    assert_eq!(say("BAD", json!(0.84)).unwrap(), None);
    assert_eq!(say("GOOD", json!(0.99)).unwrap(), None);
    for wrong in [json!(1.01), json!(-0.1), json!("0.9"), json!(null)] {
        let error = say("GOOD", wrong).unwrap_err().to_string();
        assert_eq!(
            error,
            "`/0/score` of the answer is not a number from 0 to 1"
        );
    }
}

#[test]
fn every_action_is_what_it_says() {
    for (config, action, flagged) in [
        ("action: pause", Action::Pause, true),
        (
            "action: retry, corrective_message: Again.",
            Action::Retry,
            true,
        ),
        ("action: allow, effects: [emit_alert]", Action::Allow, true),
        ("user_message: No.", Action::Stop, true),
        ("action: stop", Action::Stop, false),
    ] {
        let config = format!("{{url: 'http://h', response: {{flagged: ''}}, {config}}}");
        let policy = rule("http-classifier", &config);
        let decision = judged(&policy, &prompt("hi"), &json!(flagged)).unwrap();
        assert_eq!(
            decision.as_ref().map(|one| one.action),
            flagged.then_some(action)
        );
        if let Some(pause) = decision.and_then(|one| one.pause) {
            assert_eq!(pause.prompt, "The classifier flags it. Continue?");
        }
    }
}

#[test]
fn spans_are_redacted_where_they_are() {
    let policy = rule(
        "http-classifier",
        "{url: 'http://h', action: redact, response: {threshold: 0.5, labels: [NAME], spans: {at: /entities, start: from, end: to, type: kind, score: p, offsets: utf16}}}",
    );
    let mut event = prompt("😀 Ann met Bob and Eve");
    let answer = json!({"entities": [
        {"from": 3, "to": 6, "kind": "NAME", "p": 0.9},
        {"from": 11, "to": 14, "kind": "NAME", "p": 0.4},
        {"from": 19, "to": 22, "kind": "VERB", "p": 0.9},
    ]});
    let decision = judged(&policy, &event, &answer).unwrap().unwrap();
    assert_eq!(decision.action, Action::Redact);
    redact_event(&mut event, &decision.redactions).unwrap();
    assert_eq!(event.text(), "😀 [NAME] met Bob and Eve");
    assert_eq!(
        judged(&policy, &event, &json!({"entities": []})).unwrap(),
        None
    );
}

#[test]
fn presidio_is_asked_about_every_string() {
    let policy = rule(
        "presidio",
        "{url: 'http://h', entities: [PERSON], score_threshold: 0.5}",
    );
    let one = question(&policy, &prompt("Ann")).unwrap().unwrap();
    assert_eq!(
        one,
        json!({"text": "Ann", "language": "en", "entities": ["PERSON"], "score_threshold": 0.5})
    );
    let mut event = Event::tool_call_result("run", "crm", "Found Ann");
    let result = json!({"a/b": ["Bob é", " ", 7], "c": {"d": "nobody"}});
    event.payload.insert("result".to_owned(), result);
    let several = question(&policy, &event).unwrap().unwrap();
    assert_eq!(several["text"], json!(["Found Ann", "Bob é", "nobody"]));
    let found = |start: u64, end: u64| json!({"entity_type": "PERSON", "start": start, "end": end, "score": 0.85});
    let answer = json!([[found(6, 9)], [found(0, 3)], []]);
    let decision = judged(&policy, &event, &answer).unwrap().unwrap();
    assert_eq!(decision.reason, "The service found 2 span(s): PERSON");
    redact_event(&mut event, &decision.redactions).unwrap();
    assert_eq!(event.text(), "Found [PERSON]");
    assert_eq!(
        event.payload["result"],
        json!({"a/b": ["[PERSON] é", " ", 7], "c": {"d": "nobody"}})
    );
    for wrong in [
        json!([]),
        json!([[], []]),
        json!({}),
        json!([[], [], [], []]),
    ] {
        let error = judged(&policy, &event, &wrong).unwrap_err().to_string();
        assert!(error.contains("not a list of 3 lists"), "{error}");
    }
    assert_eq!(question(&policy, &prompt(" \n")).unwrap(), None);
}

#[test]
fn presidio_reads_what_has_strings() {
    let policy = rule("presidio", "{url: 'http://h'}");
    let reads = |event: &Event| external(&policy).reads(event);
    let none = Parts::default();
    assert_eq!(reads(&prompt("Jane")), Parts::TEXT);
    assert_eq!(reads(&prompt(" ")), none);
    let call = |args: Value| {
        Event::tool_call_start("run", "send", args.as_object().cloned().unwrap_or_default())
    };
    assert_eq!(reads(&call(json!({"to": ["Jane"]}))), Parts::TOOL_ARGS);
    assert_eq!(reads(&call(json!({"Jane": 1}))), none);
    let mut answer = prompt("Jane");
    answer.event_type = EventType::ToolCallResult;
    answer.payload.insert("result".to_owned(), json!([1]));
    assert_eq!(reads(&answer), Parts::TEXT);
    answer.payload.insert("result".to_owned(), json!("Jane"));
    assert_eq!(reads(&answer), Parts::TEXT.and(Parts::RESULT));
    answer
        .payload
        .insert("result".to_owned(), json!(vec!["Jane"; 1000]));
    assert_eq!(reads(&answer), none);
}

#[test]
fn more_than_is_taken_fails_and_is_never_cut() {
    let policy = rule("presidio", "{url: 'http://h'}");
    let mut event = Event::tool_call_result("run", "crm", "");
    let strings = |count: usize| Value::from(vec!["x"; count]);
    event.payload.insert("result".to_owned(), strings(1000));
    assert!(question(&policy, &event).unwrap().is_some());
    event.payload.insert("result".to_owned(), strings(1001));
    let error = question(&policy, &event).unwrap_err().to_string();
    assert_eq!(error, "the event has more than 1000 strings");
    let policy = rule(
        "http-classifier",
        "{url: 'http://h', max_text_bytes: 9, response: {flagged: /f}}",
    );
    assert!(question(&policy, &prompt("12345")).unwrap().is_some());
    let error = question(&policy, &prompt("123456"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the request has 10 bytes of text; `max_text_bytes` is 9"
    );
}

/// A classifier that is wrong repeats what it was asked more often than not.
#[test]
fn errors_say_where_and_never_what() {
    let policy = rule(
        "http-classifier",
        "{url: 'http://h', response: {score: /a/0, label: /l}}",
    );
    for (answer, expected) in [
        ("", "the answer ends too early, at line 1, column 0"),
        (
            "<html>hunter2",
            "the answer is not JSON, at line 1, column 1",
        ),
        (r#"{"l": "x", "hunter2": 1}"#, "the answer has no `/a/0`"),
        (r#"{"a": [1]}"#, "the answer has no `/l`"),
        (
            r#"{"l": ["hunter2"], "a": [1]}"#,
            "`/l` of the answer is not a name of at most 128 bytes",
        ),
        (
            r#"{"l": "x", "a": ["hunter2"]}"#,
            "`/a/0` of the answer is not a number from 0 to 1",
        ),
    ] {
        let error = answered(&policy, &prompt("hi"), answer.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let deep = "[".repeat(100_000);
    assert!(answered(&policy, &prompt("hi"), deep.as_bytes()).is_err());
}

#[test]
fn a_digest_has_the_names_of_variables_and_no_header() {
    let config = |token: &str| {
        format!(
            "{{url: 'https://${{HOST}}', headers: {{Authorization: '{token}'}}, response: {{flagged: /f}}}}"
        )
    };
    let digest = |token: &str| {
        rule("http-classifier", &config(token))
            .identity()
            .digest
            .clone()
    };
    assert_ne!(digest("${A}"), digest("${B}"));
    assert_eq!(digest("${A}"), digest("${A}"));
    let policy = rule("http-classifier", &config("hunter2"));
    let shown = format!(
        "{:?} {}",
        policy.deep_rules(),
        serde_json::to_string(policy.deep_rules()).unwrap()
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("${HOST}"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0.0..1.2f64).prop_map(Value::from),
        (-2i64..9).prop_map(Value::from),
        "[A-Z]{0,3}".prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec!["start", "end", "entity_type", "score", "label", "x"]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let members = prop::collection::vec((keys.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|list| list.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

const RULES: [(&str, &str); 4] = [
    (
        "http-classifier",
        "{url: 'http://h', response: {score: /score, label: /label}}",
    ),
    (
        "http-classifier",
        "{url: 'http://h', response: {flagged: /0}}",
    ),
    (
        "http-classifier",
        "{url: 'http://h', action: redact, response: {spans: {type: label, score: score, offsets: bytes}}}",
    ),
    ("presidio", "{url: 'http://h'}"),
];

proptest! {
    #[test]
    fn any_json_is_a_decision_or_an_error(answer in any_json(), text in "[a-cé😀]{0,8}", result in any_json()) {
        for (kind, config) in RULES {
            let policy = rule(kind, config);
            let mut event = Event::tool_call_result("run", "t", text.clone());
            event.payload.insert("result".to_owned(), result.clone());
            let _ = question(&policy, &event);
            for answer in [answer.clone(), json!([answer]), json!([[answer]])] {
                if let Ok(Some(decision)) = judged(&policy, &event, &answer) {
                    // What is to be redacted is there.
                    redact_event(&mut event.clone(), &decision.redactions).unwrap();
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_decision_or_an_error(answer: Vec<u8>) {
        for (kind, config) in RULES {
            let _ = answered(&rule(kind, config), &prompt("hi"), &answer);
        }
    }
}
