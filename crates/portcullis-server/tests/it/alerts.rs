//! Alerts on their way to webhooks, over real connections.

use std::time::{Duration, Instant};

use portcullis_server::auth::Token;
use portcullis_server::config::{
    AlertSinkKind, AlertSinkSettings, Settings, SyslogAddress, SyslogSettings,
};
use serde_json::{Value, json};

use crate::callbacks::{SECRET, assert_signed};
use crate::harness::{Running, eventually};
use crate::receiver::{Answer, Received, Receiver};

/// Two rules that raise alerts.
pub(crate) const PACK: &str = "
policy_pack: alerting
version: '1'
sync_rules:
  - id: no-rm
    rule: expression
    config: {when: tool.name == 'rm', reason: Deletes files, severity: critical, effects: [emit_alert]}
  - id: no-curl
    rule: expression
    config: {when: tool.name == 'curl', reason: 'Calls “out”', severity: low, effects: [emit_alert]}
";

/// A webhook that is tried again soon.
fn webhook(receiver: &Receiver) -> AlertSinkSettings {
    AlertSinkSettings {
        retry: Duration::from_millis(20),
        ..AlertSinkSettings::new(AlertSinkKind::Webhook {
            url: receiver.url().parse().unwrap(),
            secret: Token::parse(SECRET).unwrap(),
        })
    }
}

/// A server whose policy raises alerts.
pub(crate) async fn alerting(pack: &str, change: impl FnOnce(&mut Settings)) -> Running {
    Running::with(|settings| {
        std::fs::write(settings.policy.pack.as_ref().unwrap(), pack).unwrap();
        change(settings);
    })
    .await
}

async fn telling(sinks: Vec<AlertSinkSettings>) -> Running {
    alerting(PACK, |settings| settings.alerts.sinks = sinks).await
}

/// Has a run call a tool.
pub(crate) async fn call(server: &Running, run: &str, tool: &str) -> Value {
    let step = json!({
        "context": {"tenant_id": "acme"},
        "event": {"event_type": "tool_call_start", "run_id": run, "tool_name": tool,
                  "tool_args": {"path": "the event's own text"}},
    });
    let response = server
        .post("/v1/guard/evaluate", step.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    answer["decision"].clone()
}

async fn alerts(server: &Running, outcome: &str) -> f64 {
    let name = format!("portcullis_alerts_total{{outcome=\"{outcome}\"}}");
    server.metric(&name).await
}

async fn deliveries(server: &Running, sink: &str, outcome: &str) -> f64 {
    let name =
        format!("portcullis_alert_deliveries_total{{sink=\"{sink}\",outcome=\"{outcome}\"}}");
    server.metric(&name).await
}

/// What `GET /v1/guard/alerts` lists.
async fn recent(server: &Running, query: &str) -> Vec<Value> {
    let response = server
        .get_as_emerson(&format!("/v1/guard/alerts{query}"))
        .await;
    assert_eq!(response.status(), 200);
    let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    answer["alerts"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_told_signed_and_without_the_events_text() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let server = telling(vec![webhook(&receiver)]).await;
    assert_eq!(call(&server, "r", "ls").await["action"], "ALLOW");
    let decision = call(&server, "r", "rm").await;
    let request = receiver.has(1).await.remove(0);
    assert_signed(&request);
    assert!(!request.body.contains("the event's own text"));
    let mut body = request.json();
    assert_eq!(recent(&server, "").await, [body.clone()]);
    let id = body["id"].take();
    assert_eq!(request.header("x-portcullis-delivery"), id.as_str());
    let at: jiff::Timestamp = body["at"].take().as_str().unwrap().parse().unwrap();
    assert!(at.duration_until(jiff::Timestamp::now()).as_secs() < 60);
    assert_eq!(body["policy"].take()["id"], "alerting");
    assert_eq!(
        body,
        json!({
            "type": "guard.alert", "id": null, "at": null, "server": "cognition-engines", "count": 1,
            "severity": "critical", "action": "STOP", "enforced": true, "rule_id": "no-rm",
            "decision_id": decision["decision_id"], "effects": ["emit_alert"], "policy": null,
            "run_id": "r", "tenant_id": "acme", "event_type": "tool_call_start", "tool_name": "rm",
            "reason": "Deletes files",
        })
    );
    eventually("delivered", async || {
        deliveries(&server, "webhook", "delivered").await == 1.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_bind_says_so() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let pack = PACK.replace("version: '1'", "version: '1'\ngateway: {mode: shadow}");
    let server = alerting(&pack, |settings| {
        settings.alerts.sinks = vec![webhook(&receiver)];
    })
    .await;
    call(&server, "r", "rm").await;
    let body = receiver.has(1).await[0].json();
    assert_eq!(
        (&body["enforced"], &body["action"]),
        (&json!(false), &json!("STOP"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_do_not_leave() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let server = telling(vec![webhook(&receiver)]).await;
    let secret = "AKIAIOSFODNN7EXAMPLE";
    call(&server, &format!("run of {secret}"), "rm").await;
    let body = &receiver.has(1).await[0].body;
    assert!(!body.contains(secret), "{body}");
    let listed = recent(&server, "").await;
    assert!(!json!(listed).to_string().contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_again_is_counted_and_told_when_the_window_is_over() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let server = alerting(PACK, |settings| {
        settings.alerts.deduplicate = Duration::from_secs(5);
        settings.alerts.sinks = vec![webhook(&receiver)];
    })
    .await;
    for _ in 0..5 {
        call(&server, "a", "rm").await;
    }
    call(&server, "a", "curl").await;
    call(&server, "b", "rm").await;
    let requests = receiver.has(4).await;
    let mut told: Vec<(String, String, u64)> = requests
        .iter()
        .map(|request| {
            let body = request.json();
            let text = |key: &str| body[key].as_str().unwrap().to_owned();
            (
                text("run_id"),
                text("rule_id"),
                body["count"].as_u64().unwrap(),
            )
        })
        .collect();
    told.sort();
    let one = |run: &str, rule: &str, count| (run.to_owned(), rule.to_owned(), count);
    let total: u64 = told.iter().map(|(_, _, count)| count).sum();
    assert_eq!(total, 7);
    assert_eq!(told[0], one("a", "no-curl", 1));
    assert_eq!(told[1], one("a", "no-rm", 1));
    assert_eq!((told[2].1.as_str(), told[3].0.as_str()), ("no-rm", "b"));
    let repeated = alerts(&server, "repeated").await;
    assert_eq!(alerts(&server, "passed_on").await + repeated, 7.0);
    assert_eq!(repeated, 4.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_are_summed_up() {
    let receiver = Receiver::start(&[Answer::Status(204)]).await;
    let server = alerting(PACK, |settings| {
        settings.alerts.per_minute = 4;
        settings.alerts.sinks = vec![webhook(&receiver)];
    })
    .await;
    for run in 0..10 {
        call(&server, &format!("run {run}"), "rm").await;
    }
    // After a few seconds, in which more might have come.
    let requests = receiver.has(4).await;
    let bodies: Vec<Value> = requests.iter().map(Received::json).collect();
    for body in &bodies[..3] {
        assert_eq!(body["type"], "guard.alert");
    }
    assert_signed(&requests[3]);
    assert_eq!(bodies[3]["type"], "guard.alerts_held_back");
    assert_eq!(bodies[3]["count"], 7);
    assert_eq!(bodies[3]["rules"], json!({"no-rm": 7}));
    assert_eq!(deliveries(&server, "webhook", "held_back").await, 7.0);
    // They are all there for those who ask.
    assert_eq!(recent(&server, "").await.len(), 10);
    let newest = &recent(&server, "?limit=1").await[0];
    assert_eq!(newest["run_id"], "run 9");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_sink_holds_up_no_other_and_no_evaluation() {
    let dead = Receiver::start(&[Answer::Never]).await;
    let refusing = Receiver::start(&[Answer::Status(400)]).await;
    let alive = Receiver::start(&[Answer::Status(200)]).await;
    let nobody = SyslogAddress::parse("tcp://127.0.0.1:1").unwrap();
    let nobody = AlertSinkSettings::new(AlertSinkKind::Syslog(SyslogSettings::new(nobody)));
    let server = telling(vec![
        webhook(&dead),
        nobody,
        webhook(&refusing),
        webhook(&alive),
    ])
    .await;
    let started = Instant::now();
    for run in 0..20 {
        call(&server, &format!("run {run}"), "rm").await;
    }
    // Each would have waited for five seconds.
    assert!(started.elapsed() < Duration::from_secs(30));
    let requests = alive.has(20).await;
    let runs: Vec<Value> = requests
        .iter()
        .map(|request| request.json()["run_id"].clone())
        .collect();
    let expected: Vec<String> = (0..20).map(|run| format!("run {run}")).collect();
    assert_eq!(runs, expected, "in their order");
    assert_eq!(dead.received().len(), 1);
    eventually("refused", async || {
        deliveries(&server, "webhook", "failed").await == 20.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_comes_back_gets_what_waited() {
    let answers = [Answer::Status(503), Answer::Nothing, Answer::Status(200)];
    let receiver = Receiver::start(&answers).await;
    let server = telling(vec![webhook(&receiver)]).await;
    for run in ["a", "b"] {
        call(&server, run, "rm").await;
    }
    let requests = receiver.has(4).await;
    let runs: Vec<Value> = requests
        .iter()
        .map(|request| request.json()["run_id"].clone())
        .collect();
    assert_eq!(runs, ["a", "a", "a", "b"]);
    assert_eq!(requests[0].body, requests[2].body);
    eventually("delivered", async || {
        deliveries(&server, "webhook", "delivered").await == 2.0
    })
    .await;
}

/// What finds no room is dropped at the sink, counted, and part of the next summary.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_drops_the_newest_and_counts_them() {
    let dead = Receiver::start(&[Answer::Never]).await;
    let server = alerting(PACK, |settings| {
        settings.alerts.queue = 3;
        settings.alerts.per_minute = 1000;
        settings.alerts.sinks = vec![webhook(&dead)];
    })
    .await;
    for run in 0..20 {
        call(&server, &format!("run {run}"), "rm").await;
    }
    // One under way, three that wait.
    eventually("dropped", async || {
        deliveries(&server, "webhook", "dropped").await >= 16.0
    })
    .await;
    assert_eq!(alerts(&server, "dropped").await, 0.0);
    assert_eq!(server.metric("portcullis_alerts_waiting").await, 4.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_was_held_back_is_sent_before_the_server_stops() {
    let receiver = Receiver::start(&[Answer::Status(200)]).await;
    let server = alerting(PACK, |settings| {
        settings.alerts.per_minute = 3;
        settings.alerts.sinks = vec![webhook(&receiver)];
    })
    .await;
    for run in ["a", "a", "a", "b", "c", "d"] {
        call(&server, run, "rm").await;
    }
    let (finished, _) = server.stop().await;
    assert!(finished);
    let bodies: Vec<Value> = receiver.received().iter().map(Received::json).collect();
    let told: u64 = bodies
        .iter()
        .map(|body| body["count"].as_u64().unwrap())
        .sum();
    assert_eq!(told, 6, "{bodies:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_wait_for_a_dead_sink_for_ever() {
    let dead = Receiver::start(&[Answer::Never]).await;
    let server = alerting(PACK, |settings| {
        settings.server.shutdown_timeout = Duration::from_millis(300);
        settings.alerts.sinks = vec![AlertSinkSettings {
            timeout: Duration::from_mins(5),
            ..webhook(&dead)
        }];
    })
    .await;
    call(&server, "r", "rm").await;
    dead.has(1).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_mins(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sinks_the_last_alerts_can_be_asked_for() {
    let server = telling(Vec::new()).await;
    assert_eq!(recent(&server, "").await, [] as [Value; 0]);
    call(&server, "r", "rm").await;
    eventually("listed", async || recent(&server, "").await.len() == 1).await;
    assert_eq!(server.get("/v1/guard/alerts").await.status(), 401);
    for wrong in ["?limit=0", "?limit=1001", "?limit=x", "?after=r"] {
        let response = server
            .get_as_emerson(&format!("/v1/guard/alerts{wrong}"))
            .await;
        assert_eq!(response.status(), 400, "{wrong}");
    }
}
