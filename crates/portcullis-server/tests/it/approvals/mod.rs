//! People's answers to paused steps, over real HTTP.

mod binding;
mod decide;
mod failing;
mod flow;
mod notices;

use portcullis_server::auth::Token;
use portcullis_server::config::Settings;
use reqwest::Method as Verb;
use serde_json::{Value, json};

use crate::harness::{CLAUDE, EMERSON, Running};

pub(crate) const ALICE: &str = "token-of-alice-00000003";
pub(crate) const OPERATOR: &str = "token-of-the-operator-04";

/// Refunds take somebody of finance, large ones of the board besides; deploying takes an operator.
pub(crate) const PACK: &str = "
policy_pack: refunds
version: '1'
sync_rules:
  - id: no-refund-to-self
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'refund' && has(event.tool_args.self), reason: Refund to itself}
  - id: refund-needs-approval
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'refund', action: PAUSE, reason: A refund, approver_roles: [finance], prompt: Approve this refund?}
  - id: large-refund
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'refund' && event.tool_args.amount > 1000.0, action: PAUSE, reason: A large refund, approver_roles: [board]}
  - id: deploy-needs-approval
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'deploy', action: PAUSE, reason: A deployment}
  - id: brief
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'brief', action: PAUSE, reason: Soon over, approver_roles: [finance], timeout_s: 0.05}
  - id: unless-prevented
    rule: expression
    events: [tool_call_start]
    config: {when: tool.name == 'announce', action: PAUSE, reason: Anybody may object, approver_roles: [finance], timeout_s: 3, on_timeout: approve}
  - id: secret-redaction
    events: [tool_call_start]
    config: {families: [rfc]}
";

/// Two agents, somebody of finance and an operator.
pub(crate) fn people(settings: &mut Settings) {
    std::fs::write(settings.policy.pack.as_ref().unwrap(), PACK).unwrap();
    for (name, token) in [("alice", ALICE), ("operator", OPERATOR)] {
        let token = Token::parse(token).unwrap();
        settings.auth.tokens.add(name, &token).unwrap();
    }
    let roles = &mut settings.auth.roles;
    roles.insert("finance".to_owned(), vec!["alice".to_owned()]);
    roles.insert("board".to_owned(), vec!["operator".to_owned()]);
    settings.auth.operators = vec!["operator".to_owned()];
}

pub(crate) async fn served() -> Running {
    Running::with(people).await
}

/// The HTTP status and the JSON that somebody is answered.
pub(crate) async fn ask(
    server: &Running,
    token: &str,
    verb: Verb,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let url = format!("http://{}{path}", server.address);
    let mut request = reqwest::Client::new().request(verb, url);
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    if let Some(body) = body {
        request = request
            .header("content-type", "application/json")
            .body(body.to_string());
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (
        status,
        serde_json::from_str(&response.text().await.unwrap()).unwrap(),
    )
}

/// A refund of Emerson's run, or whatever is changed about it.
pub(crate) fn refund(amount: f64) -> Value {
    call("r", "refund", &json!({"amount": amount, "to": "bob"}))
}

pub(crate) fn call(run: &str, tool: &str, arguments: &Value) -> Value {
    json!({"event_type": "tool_call_start", "run_id": run, "tool_name": tool, "tool_args": arguments})
}

/// What an agent is answered to a step, sent with an approval if there is one.
pub(crate) async fn step_as(
    server: &Running,
    token: &str,
    event: &Value,
    approval: Option<&str>,
) -> (u16, Value) {
    let mut body = json!({ "event": event });
    if let Some(id) = approval {
        body["approval"] = id.into();
    }
    ask(server, token, Verb::POST, "/v1/guard/evaluate", Some(body)).await
}

/// The same of Emerson's.
pub(crate) async fn step(server: &Running, event: &Value, approval: Option<&str>) -> (u16, Value) {
    step_as(server, EMERSON, event, approval).await
}

/// Pauses a step of Emerson's, and gives the id of the approval that it needs.
pub(crate) async fn paused(server: &Running, event: &Value) -> String {
    let (status, answer) = step(server, event, None).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["decision"]["action"], "PAUSE", "{answer}");
    assert_eq!(answer["approval"]["status"], "pending", "{answer}");
    answer["approval"]["id"].as_str().unwrap().to_owned()
}

/// Has somebody decide.
pub(crate) async fn say(server: &Running, token: &str, id: &str, decision: &str) -> (u16, Value) {
    let body = json!({"decision": decision});
    let path = format!("/v1/approvals/{id}");
    ask(server, token, Verb::POST, &path, Some(body)).await
}

/// Has Alice say yes.
pub(crate) async fn approve(server: &Running, id: &str) {
    let (status, answer) = say(server, ALICE, id, "approve").await;
    assert_eq!(
        (status, &answer["status"]),
        (200, &json!("approved")),
        "{answer}"
    );
}

pub(crate) async fn get(server: &Running, token: &str, path: &str) -> (u16, Value) {
    ask(
        server,
        token,
        Verb::GET,
        &format!("/v1/approvals{path}"),
        None,
    )
    .await
}

/// The ids that somebody is shown.
pub(crate) async fn listed(server: &Running, token: &str, query: &str) -> Vec<String> {
    let (status, answer) = get(server, token, query).await;
    assert_eq!(status, 200, "{answer}");
    let found = answer["approvals"].as_array().unwrap().iter();
    found
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// The entries of an event in the evidence.
pub(crate) fn entries(server: &Running, event: &str) -> Vec<Value> {
    let mut entries = server.evidence();
    entries.retain(|entry| entry["event"] == event);
    entries
}

/// Whoever has no part in any of it.
pub(crate) const STRANGER: &str = CLAUDE;
