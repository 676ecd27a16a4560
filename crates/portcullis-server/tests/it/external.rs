//! Rules that ask a service, over real HTTP.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use futures_util::future::join_all;
use portcullis_core::pack::{self, Pack};
use portcullis_core::{
    Action, Context, ContextSnapshot, Decision, Event, Policy, RuleId, RuleOutcome, Signals,
    ToolRisks, redact_event,
};
use portcullis_runtime::{DeepAnswer, DeepRequest, DeepRules, Gateway};
use portcullis_server::deep::deep_rules;
use serde_json::{Value, json};

use crate::services::{FOREVER, Json, PresidioProcess, Service, endless_body, stalled_body};

/// Much longer than anything here takes, and much shorter than forever.
const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "hunter2";

pub(crate) fn policy(rules: &str) -> Policy {
    let text = format!("policy_pack: p\nversion: '1'\nasync_rules: [{rules}]\n");
    let pack = Pack {
        file: "pack.yaml",
        text: &text,
        ..Pack::default()
    };
    let loaded = pack::load(&pack).unwrap_or_else(|report| panic!("{report}"));
    loaded.policy
}

pub(crate) fn variables(name: &str) -> Option<String> {
    name.starts_with('T').then(|| SECRET.to_owned())
}

/// The rule `r`, of this kind, with this configuration.
pub(crate) fn rule(kind: &str, config: &str) -> DeepRules {
    let policy = policy(&format!("{{id: r, rule: {kind}, config: {config}}}"));
    deep_rules(&policy, &variables).unwrap()
}

fn classifier(service: &Service, more: &str) -> DeepRules {
    let url = service.url();
    rule(
        "http-classifier",
        &format!("{{url: '{url}', headers: {{X-Key: '${{TOKEN}}'}}, {more}}}"),
    )
}

pub(crate) async fn ask(rules: &DeepRules, event: &Event) -> DeepAnswer {
    let (context, risks) = (Context::new("run"), ToolRisks::default());
    let snapshot = ContextSnapshot::build(event, &context, &risks, Signals::default());
    let request = DeepRequest {
        correlation_id: "c".to_owned(),
        event: Arc::new(event.clone()),
        snapshot: Arc::new(snapshot.into_owned()),
        context: Arc::new(context.clone()),
        rules: vec![RuleId::from("r")],
        trace: None,
    };
    let asked = tokio::time::timeout(PATIENCE, rules.evaluate(&request));
    let mut response = asked.await.expect("no rule takes this long");
    response.answers.remove(0).1
}

fn prompt() -> Event {
    Event::llm_before("run", "Is this fine? My word: hunter2.")
}

/// Why it failed. Nothing of what was sent, received or configured is in it.
async fn failure(rules: &DeepRules) -> String {
    match ask(rules, &prompt()).await {
        DeepAnswer::Failed(why) | DeepAnswer::NoAnswer(why) | DeepAnswer::NotAsked(why) => {
            assert!(!why.contains(SECRET), "{why}");
            assert!(!why.contains("127.0.0.1"), "{why}");
            why
        }
        answer => panic!("{answer:?}"),
    }
}

pub(crate) async fn decision(rules: &DeepRules, event: &Event) -> Decision {
    match ask(rules, event).await {
        DeepAnswer::Decided(decision) => *decision,
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_asked_as_the_pack_says_and_its_answer_decides() {
    let service = Service::start(async |body: Value| {
        let bad = body["inputs"] == "Is this fine? My word: hunter2.";
        let score = if bad { 0.9 } else { 0.1 };
        Json(json!([{"label": "BAD", "score": score}]))
    })
    .await;
    let rules = classifier(
        &service,
        "request: {inputs: '{text}', tool: '{tool_name}', about: {now: '{event_type} of {run_id}'}}, response: {score: /0/score, label: /0/label, threshold: 0.85}",
    );
    let stop = decision(&rules, &prompt()).await;
    assert_eq!(stop.action, Action::Stop);
    assert_eq!(stop.rule_id.as_str(), "r");
    assert_eq!(stop.confidence, Some(0.9));
    assert!(!stop.was_sync);
    let fine = Event::tool_call_result("run", "search", "Nothing found.");
    assert_eq!(ask(&rules, &fine).await, DeepAnswer::Clear);
    // Nothing to judge, and so nobody to ask.
    let silent = Event::tool_call_result("run", "search", "");
    assert_eq!(ask(&rules, &silent).await, DeepAnswer::Clear);
    let requests = service.requests();
    let [(head, first), (_, second)] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(head.method, "POST");
    assert_eq!(head.uri, "/v1/score?key=hunter2");
    assert_eq!(head.headers["x-key"], SECRET);
    assert_eq!(head.headers["content-type"], "application/json");
    assert_eq!(first["tool"], Value::Null);
    assert_eq!(
        second,
        &json!({"inputs": "Nothing found.", "tool": "search", "about": {"now": "tool_call_result of run"}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_service_does_wrong_fails_the_rule_and_is_not_repeated() {
    let service = Service::start(async |body: Value| {
        let wrong = body["text"].as_str().unwrap().to_owned();
        let html = [(header::CONTENT_TYPE, "text/html")];
        let json = [(header::CONTENT_TYPE, "application/json")];
        match wrong.as_str() {
            "500" => (StatusCode::INTERNAL_SERVER_ERROR, SECRET).into_response(),
            "302" => (StatusCode::FOUND, [(header::LOCATION, "/elsewhere")]).into_response(),
            "204" => StatusCode::NO_CONTENT.into_response(),
            "html" => (html, SECRET).into_response(),
            "text" => (json, SECRET).into_response(),
            "missing" => Json(json!({SECRET: 1})).into_response(),
            "type" => Json(json!({"score": SECRET})).into_response(),
            "range" => Json(json!({"score": 17})).into_response(),
            "huge" => Json(json!({"score": "x".repeat(2 << 20)})).into_response(),
            "endless" => endless_body().into_response(),
            "deep" => (json, "[".repeat(1 << 19)).into_response(),
            _ => unreachable!(),
        }
    })
    .await;
    let rules = classifier(&service, "timeout_ms: 20000, response: {score: /score}");
    let mut page = String::new();
    for wrong in [
        "500", "302", "204", "html", "text", "missing", "type", "range", "huge", "endless", "deep",
    ] {
        let (kind, why) = match ask(&rules, &Event::llm_before("run", wrong)).await {
            DeepAnswer::Failed(why) => ("failed", why),
            DeepAnswer::NoAnswer(why) => ("no answer", why),
            answer => panic!("{wrong}: {answer:?}"),
        };
        writeln!(page, "{wrong}: {kind}: {why}").unwrap();
    }
    assert!(!page.contains(SECRET));
    insta::assert_snapshot!(page);
    // Nobody went elsewhere.
    assert_eq!(service.requests().len(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_takes_too_long_is_given_up() {
    let silent = Service::start(async |_| tokio::time::sleep(FOREVER).await).await;
    let slow = Service::start(async |_| stalled_body("{\"flagged\":")).await;
    for service in [silent, slow] {
        let rules = classifier(&service, "timeout_ms: 100, response: {flagged: /flagged}");
        let started = Instant::now();
        let why = failure(&rules).await;
        assert_eq!(why, "the service did not answer within 100 ms");
        assert!(started.elapsed() >= Duration::from_millis(100));
        assert!(started.elapsed() < PATIENCE / 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_are_under_way_than_may_be() {
    let service = Service::start(async |_| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Json(json!(false))
    })
    .await;
    let rules = classifier(
        &service,
        "max_concurrent: 2, timeout_ms: 20000, response: {flagged: ''}",
    );
    let event = prompt();
    let answers = join_all((0..8).map(|_| ask(&rules, &event))).await;
    assert!(
        answers.iter().all(|one| *one == DeepAnswer::Clear),
        "{answers:?}"
    );
    assert_eq!(service.most(), 2);
    assert_eq!(service.requests().len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_frees_its_place() {
    let service = Service::start(async |body: Value| {
        if body["text"] == "wait" {
            tokio::time::sleep(FOREVER).await;
        }
        Json(json!(false))
    })
    .await;
    let rules = classifier(
        &service,
        "max_concurrent: 1, timeout_ms: 2000, response: {flagged: ''}",
    );
    let event = Event::llm_before("run", "wait");
    for answer in join_all((0..4).map(|_| ask(&rules, &event))).await {
        let silent = matches!(answer, DeepAnswer::NoAnswer(_) | DeepAnswer::NotAsked(_));
        assert!(silent, "{answer:?}");
    }
    assert_eq!(ask(&rules, &prompt()).await, DeepAnswer::Clear);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_not_there_fails_the_rule() {
    let service = Service::start(async |_| Json(json!(true))).await;
    let rules = classifier(&service, "response: {flagged: ''}");
    assert_eq!(decision(&rules, &prompt()).await.action, Action::Stop);
    drop(service);
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let config = format!("{{url: '{url}', response: {{flagged: ''}}}}");
    let why = failure(&rule("http-classifier", &config)).await;
    assert!(why.contains("error"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_a_certificate_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let service = Service::with_tls(&ca, async |_| Json(json!(true))).await;
    let config = |more: &str| {
        let address = service.address;
        format!("{{url: 'https://{address}', timeout_ms: 20000, {more} response: {{flagged: ''}}}}")
    };
    let trusting = rule(
        "http-classifier",
        &config(&format!("ca: '{}',", ca.display())),
    );
    assert_eq!(decision(&trusting, &prompt()).await.action, Action::Stop);
    let why = match ask(&rule("http-classifier", &config("")), &prompt()).await {
        DeepAnswer::NoAnswer(why) => why,
        answer => panic!("{answer:?}"),
    };
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(service.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_used_if_the_pack_names_one() {
    let proxy = Service::start(async |_| Json(json!(true))).await;
    let config = format!(
        "{{url: 'http://classifier.invalid/score', proxy: 'http://{}', response: {{flagged: ''}}}}",
        proxy.address
    );
    let rules = rule("http-classifier", &config);
    assert_eq!(decision(&rules, &prompt()).await.action, Action::Stop);
    let (head, _) = proxy.requests().remove(0);
    assert_eq!(head.uri, "http://classifier.invalid/score");
}

#[test]
fn settings_that_cannot_be_used_here_are_refused_by_name() {
    for (config, expected) in [
        (
            "url: '${URL}'",
            "the variable `URL` is not set: export it before starting",
        ),
        (
            "url: '${TOKEN}'",
            "`url` is not an http or https URL: relative URL without a base",
        ),
        (
            "url: 'http://h', headers: {A: '${LINES}'}",
            "the variable `LINES` is not set",
        ),
        (
            "url: 'http://h', headers: {A: '${TWO}'}",
            "header `A` has characters that a header cannot carry",
        ),
        (
            "url: 'http://h', ca: /nowhere/ca.pem",
            "`ca`: cannot read certificates from /nowhere/ca.pem",
        ),
        (
            "url: 'http://h:99999'",
            "`url` is not an http or https URL: invalid port number",
        ),
        (
            "url: 'http://h', proxy: '${TOKEN}'",
            "`proxy` is not an http or https URL",
        ),
    ] {
        let policy = policy(&format!("{{id: presidio, config: {{{config}}}}}"));
        let values = |name: &str| match name {
            "TOKEN" => Some(SECRET.to_owned()),
            "TWO" => Some(format!("{SECRET}\n2")),
            _ => None,
        };
        let error = deep_rules(&policy, &values).unwrap_err();
        assert_eq!(error.rule.as_str(), "presidio");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("deep rule `presidio`: {expected}")),
            "{text}"
        );
        assert!(!format!("{text} {error:?}").contains(SECRET), "{text}");
    }
}

#[test]
fn only_enabled_rules_that_ask_a_service_are_built() {
    let policy = policy(
        "{id: hf-jailbreak}, {id: idle, rule: presidio, enabled: false, config: {url: '${UNSET}'}}, {id: busy, rule: presidio, events: [tool_call_start], config: {url: 'http://h'}}",
    );
    let rules = deep_rules(&policy, &variables).unwrap();
    let list: Vec<_> = rules.list().collect();
    let [(info, true)] = list.as_slice() else {
        panic!("{list:?}");
    };
    assert_eq!(info.id.as_str(), "busy");
    assert_eq!(info.version, "1.0.0");
    assert_eq!(info.events.names(), ["tool_call_start"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_runs_it() {
    let service = Service::start(async |_| Json(json!({"flagged": true}))).await;
    let policy = policy(&format!(
        "{{id: r, rule: http-classifier, events: [tool_call_start], config: {{url: '{}', request: {{call: '{{tool_args}}'}}, response: {{flagged: /flagged}}}}}}",
        service.url()
    ));
    let rules = deep_rules(&policy, &variables).unwrap();
    let gateway = Gateway::builder(policy).deep_rules(rules).build();
    let args = json!({"path": "/"}).as_object().cloned().unwrap();
    let (mut context, event) = (
        Context::new("run"),
        Event::tool_call_start("run", "shell.delete", args),
    );
    // Whether it is waited for is up to the risk router; a late STOP counts for the next step.
    let mut last = None;
    for _ in 0..100 {
        let evaluation = gateway.evaluate(&mut context, &event).await;
        if evaluation.decision.action == Action::Stop {
            last = Some(evaluation);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let evaluation = last.expect("the run is stopped");
    assert_eq!(evaluation.decision.rule_id.as_str(), "r");
    let covered = evaluation
        .coverage
        .rules
        .iter()
        .find(|one| one.id.as_str() == "r");
    assert_ne!(covered.unwrap().outcome, RuleOutcome::Unavailable);
    assert_eq!(service.requests()[0].1, json!({"call": {"path": "/"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn presidio_finds_what_it_finds_and_it_is_redacted() {
    let presidio = PresidioProcess::start();
    let config = |more: &str| {
        let port = presidio.port;
        format!("{{url: 'http://127.0.0.1:{port}/', timeout_ms: 20000{more}}}")
    };
    let rules = rule(
        "presidio",
        &config(", entities: [EMAIL_ADDRESS, CREDIT_CARD, PHONE_NUMBER]"),
    );
    let mut event = Event::tool_call_result(
        "run",
        "crm",
        "é 😀 Mail jane@example.com, card 4111 1111 1111 1111.",
    );
    let one = decision(&rules, &event).await;
    assert_eq!(one.action, Action::Redact);
    redact_event(&mut event, &one.redactions).unwrap();
    assert_eq!(
        event.text(),
        "é 😀 Mail [EMAIL_ADDRESS], card [CREDIT_CARD]."
    );
    let result = json!({"rows": [{"mail": "<ö> bob@example.org"}, {"mail": "none"}], "n": 1});
    event.payload.insert("result".to_owned(), result);
    let several = decision(&rules, &event).await;
    redact_event(&mut event, &several.redactions).unwrap();
    assert_eq!(
        event.payload["result"],
        json!({"rows": [{"mail": "<ö> [EMAIL_ADDRESS]"}, {"mail": "none"}], "n": 1})
    );
    // What is redacted is not found again.
    assert_eq!(ask(&rules, &event).await, DeepAnswer::Clear);
    let phone = Event::llm_before("run", "Call 212 555 0198 now.");
    let sure = rule("presidio", &config(", score_threshold: 0.95"));
    assert_eq!(ask(&sure, &phone).await, DeepAnswer::Clear);
    let stopping = rule("presidio", &config(", action: stop"));
    assert_eq!(decision(&stopping, &phone).await.action, Action::Stop);
    // It is not taught this language, and says so by a status.
    let french = rule("presidio", &config(", language: fr"));
    assert_eq!(failure(&french).await, "the service answered 500");
}
