//! F001's and F003's acceptance criteria, and the documents' examples as they are printed there.

use portcullis_server::Method;
use serde_json::{Value, json};

use crate::harness::Running;

/// F003's request, to vary.
fn deploy() -> Value {
    json!({
        "action": {
            "description": "Deploy authentication service to production",
            "category": "architecture",
            "stakes": "high",
            "confidence": 0.85,
            "context": {
                "affectsProduction": true,
                "codeReviewCompleted": true,
                "hasTests": true,
                "ciPassing": true
            }
        },
        "agent": {"id": "emerson", "url": "https://emerson.example.com"}
    })
}

/// What an answer is apart from when it was given.
fn without_times(mut answer: Value) -> Value {
    for key in ["evaluatedAt", "receivedAt"] {
        if let Some(time) = answer.get_mut(key) {
            let text = time.as_str().unwrap();
            assert!(text.ends_with('Z') && text.contains('T'), "{text}");
            *time = json!("…");
        }
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_1_the_agent_card_is_f001s() {
    let server = Running::with(|settings| {
        settings.agent.version = "0.7.0".to_owned();
        settings.agent.url = Some("https://agent.example.com".to_owned());
    })
    .await;
    for path in ["/.well-known/agent.json", "/.well-known/agent-card.json"] {
        let response = server.get(path).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        let card: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(card["name"], "cognition-engines");
        assert_eq!(card["description"], "Decision intelligence for AI agents");
        assert_eq!(card["version"], "0.7.0");
        assert_eq!(card["url"], "https://agent.example.com");
        assert_eq!(card["capabilities"]["cstp"]["version"], "1.0");
        assert_eq!(card["authentication"], json!({"schemes": ["bearer"]}));
        let methods: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(card["capabilities"]["cstp"]["methods"], json!(methods));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_2_a_call_is_answered_with_200() {
    let server = Running::start().await;
    let (status, answer) = server
        .rpc(&json!({"jsonrpc": "2.0", "method": "cstp.checkGuardrails", "id": "request-id", "params": deploy()}).to_string())
        .await;
    assert_eq!(status, 200);
    assert_eq!(answer["jsonrpc"], "2.0");
    assert_eq!(answer["id"], "request-id");
    let (status, answer) = server
        .rpc(r#"{"jsonrpc":"2.0","method":"cstp.nothing","id":"request-id"}"#)
        .await;
    assert_eq!(status, 200);
    assert_eq!(answer["error"]["code"], -32601);
    assert_eq!(answer["error"]["message"], "Method not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_4_health_is_told() {
    let server = Running::start().await;
    let response = server.get("/health").await;
    assert_eq!(response.status(), 200);
    let health: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert!(health["uptime_seconds"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_the_allowed_example_is_answered_as_shown() {
    let server = Running::start().await;
    let answer = server.call("cstp.checkGuardrails", &deploy()).await;
    assert_eq!(
        without_times(answer),
        json!({
            "allowed": true,
            "violations": [],
            "warnings": [],
            "evaluated": 5,
            "evaluatedAt": "…",
            "agent": "cognition-engines"
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_the_blocked_example_is_answered_as_shown_and_logged() {
    let server = Running::start().await;
    let mut params = deploy();
    let context = params["action"]["context"].as_object_mut().unwrap();
    context.remove("codeReviewCompleted");
    let answer = server.call("cstp.checkGuardrails", &params).await;
    assert_eq!(
        without_times(answer),
        json!({
            "allowed": false,
            "violations": [{
                "guardrailId": "no-production-without-review",
                "name": "Production Requires Review",
                "message": "Production changes require completed code review",
                "severity": "block",
                "suggestion": "Complete code review before deploying"
            }],
            "warnings": [{
                "guardrailId": "prefer-staged-rollout",
                "name": "Staged Rollout Preferred",
                "message": "Consider staged rollout for production changes",
                "severity": "warn",
                "suggestion": "Deploy to 10% of traffic first"
            }],
            "evaluated": 5,
            "evaluatedAt": "…",
            "agent": "cognition-engines"
        })
    );
    let entries = server.evidence();
    let entry = entries.last().unwrap();
    for (key, value) in [
        ("event", json!("guardrail_check")),
        ("requesting_agent", json!("emerson")),
        (
            "action",
            json!("Deploy authentication service to production"),
        ),
        ("allowed", json!(false)),
        ("violations", json!(["no-production-without-review"])),
        ("evaluated", json!(5)),
    ] {
        assert_eq!(entry[key], value, "{key}");
    }
    assert!(entry["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(entry["digest"].as_str().unwrap().len(), 64);
    assert_eq!(entry["policy_digest"].as_str().unwrap().len(), 64);
    assert!(entry.get("claimed_agent").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_who_one_claims_to_be_is_recorded_and_not_believed() {
    let server = Running::start().await;
    let mut params = deploy();
    params["agent"]["id"] = json!("claude-ops");
    server.call("cstp.checkGuardrails", &params).await;
    let entries = server.evidence();
    let entry = entries.last().unwrap();
    assert_eq!(entry["requesting_agent"], "emerson");
    assert_eq!(entry["claimed_agent"], "claude-ops");
}

#[tokio::test(flavor = "multi_thread")]
async fn f004_the_example_is_allowed_with_one_warning() {
    let server = Running::start().await;
    let params = json!({
        "intent": "Deploy authentication service to production",
        "context": "PR #42 approved, all tests passing, CI green",
        "category": "architecture",
        "stakes": "high",
        "confidence": 0.85,
        "agent": {"id": "emerson", "url": "https://emerson.example.com"},
        "correlationId": "550e8400-e29b-41d4-a716-446655440000",
        "metadata": {"pr_number": 42, "branch": "feat/auth-v2", "commit": "abc123"}
    });
    let answer = server.call("cstp.announceIntent", &params).await;
    let status = &answer["guardrailStatus"];
    assert_eq!(answer["received"], true);
    assert_eq!(answer["correlationId"], params["correlationId"]);
    assert_eq!(answer["respondingAgent"], "cognition-engines");
    assert_eq!(status["allowed"], true);
    assert_eq!(status["violations"], json!([]));
    assert_eq!(status["evaluated"], 5);
    assert_eq!(status["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(
        status["warnings"][0]["guardrailId"],
        "prefer-staged-rollout"
    );
    assert_eq!(
        answer["suggestions"],
        json!(["Deploy to 10% of traffic first"])
    );
    let entries = server.evidence();
    let entry = entries.last().unwrap();
    assert_eq!(entry["event"], "intent");
    assert_eq!(entry["correlation_id"], params["correlationId"]);
}
