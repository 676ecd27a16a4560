//! Who may come in (C3).

use serde_json::{Value, json};

use crate::harness::{CLAUDE, EMERSON, Running};
use crate::wire::{Wire, request};

const CHECK: &str = r#"{"jsonrpc":"2.0","method":"cstp.checkGuardrails","id":1,"params":{"action":{"description":"x"},"agent":{"id":"somebody-else"}}}"#;
const STEP: &str = r#"{"event":{"event_type":"llm_before","run_id":"r1","text_content":"hello"}}"#;

/// Every route, with what to send, and whether it needs a token.
const ROUTES: &[(&str, &str, bool)] = &[
    ("POST /cstp", CHECK, true),
    ("POST /v1/guard/evaluate", STEP, true),
    ("GET /metrics", "", true),
    ("GET /.well-known/agent.json", "", false),
    ("GET /.well-known/agent-card.json", "", false),
    ("GET /openapi.json", "", false),
    ("GET /health", "", false),
    ("GET /ready", "", false),
];

/// The statuses that each route gives, and whether it answers a 401 as it should.
async fn statuses(server: &Running, authorization: &[&str]) -> Vec<(&'static str, u16)> {
    let mut statuses = Vec::new();
    for (start, body, _) in ROUTES {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(authorization.iter().map(|value| ("Authorization", *value)));
        let mut wire = Wire::connect(server.address).await;
        wire.send(request(start, &headers, body)).await;
        let reply = wire.answer().await.unwrap();
        if reply.status == 401 {
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert!(reply.json()["detail"].is_string(), "{}", reply.body);
            assert!(!reply.body.contains(EMERSON) && !reply.body.contains(CLAUDE));
        }
        statuses.push((*start, reply.status));
    }
    statuses
}

fn expected(let_in: bool) -> Vec<(&'static str, u16)> {
    let status = |needs_token: bool| if needs_token && !let_in { 401 } else { 200 };
    ROUTES
        .iter()
        .map(|(start, _, needs_token)| (*start, status(*needs_token)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_that_reads_or_changes_anything_needs_a_token() {
    let server = Running::start().await;
    crate::harness::eventually("ready", async || server.get("/ready").await.status() == 200).await;
    let emerson = format!("Bearer {EMERSON}");
    let claude = format!("Bearer {CLAUDE}");
    let prefix = format!("Bearer {}", &EMERSON[..EMERSON.len() - 1]);
    let longer = format!("Bearer {EMERSON}x");
    let other_case = format!("Bearer {}", EMERSON.to_uppercase());
    let basic = format!("Basic {EMERSON}");
    let twice = format!("Bearer {EMERSON}, Bearer {EMERSON}");
    let in_lower_case = format!("bearer {EMERSON}");
    let in_upper_case = format!("BEARER   {EMERSON}");
    for (headers, let_in) in [
        (&[] as &[&str], false),
        (&[&emerson], true),
        (&[&claude], true),
        (&[&in_lower_case], true),
        (&[&in_upper_case], true),
        (&[""], false),
        (&["Bearer"], false),
        (&["Bearer "], false),
        (&["Bearer wrong-token-of-nobody"], false),
        (&[EMERSON], false),
        (&[&basic], false),
        (&[&prefix], false),
        (&[&longer], false),
        (&[&other_case], false),
        (&[&twice], false),
        (&[&emerson, &emerson], false),
        (&[&emerson, "Bearer wrong-token-of-nobody"], false),
    ] {
        assert_eq!(
            statuses(&server, headers).await,
            expected(let_in),
            "{headers:?}"
        );
    }
    // Nobody who was not let in left a trace but in the counters.
    let entries = server.evidence();
    assert_eq!(entries.len(), 8);
    for (reason, count) in [
        ("missing", 3.0),
        ("not_bearer", 21.0),
        ("unknown_token", 15.0),
    ] {
        let name = format!("portcullis_auth_failures_total{{reason=\"{reason}\"}}");
        assert_eq!(server.metric(&name).await, count, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requesting_agent_is_the_tokens() {
    let server = Running::start().await;
    for (token, agent) in [(EMERSON, "emerson"), (CLAUDE, "claude-ops")] {
        for (path, body) in [("/cstp", CHECK), ("/v1/guard/evaluate", STEP)] {
            let authorization = format!("Bearer {token}");
            let request = server.post(path, body);
            // The later header replaces the harness's.
            let mut request = request.build().unwrap();
            request
                .headers_mut()
                .insert("authorization", authorization.parse().unwrap());
            let response = reqwest::Client::new().execute(request).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(server.evidence().last().unwrap()["requesting_agent"], agent);
        }
    }
    let entries = server.evidence();
    assert_eq!(entries[0]["claimed_agent"], "somebody-else");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_everybody_is_anonymous_and_it_is_said_aloud() {
    let server = Running::with(|settings| settings.auth.enabled = false).await;
    crate::harness::eventually("ready", async || server.get("/ready").await.status() == 200).await;
    assert_eq!(statuses(&server, &[]).await, expected(true));
    let entries = server.evidence();
    assert!(
        entries
            .iter()
            .all(|entry| entry["requesting_agent"] == "anonymous")
    );
    assert_eq!(entries.len(), 2);
    let ready: Value =
        serde_json::from_str(&server.get("/ready").await.text().await.unwrap()).unwrap();
    assert_eq!(
        ready["warnings"],
        json!(["authentication is off: anybody who reaches this address may call"])
    );
    let card: Value = serde_json::from_str(
        &server
            .get("/.well-known/agent.json")
            .await
            .text()
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(card["authentication"], json!({"schemes": []}));
    assert_eq!(card.get("securitySchemes"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_single_token_the_server_does_not_start() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = crate::harness::settings(data.path());
    settings.auth.tokens = portcullis_server::auth::Tokens::default();
    let refused = portcullis_server::Server::start(settings)
        .await
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains("portcullis token new"),
        "{refused}"
    );
}
