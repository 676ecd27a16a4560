//! Decisions over HTTP: recorded, reviewed, found again, and asked before the next action.

use portcullis_models::HttpSettings;
use portcullis_server::config::EmbedderSettings;
use serde_json::{Value, json};

use crate::harness::Running;

/// F004's two decisions.
async fn f004(server: &Running) {
    for (id, decision, confidence) in [
        ("dec-123", "Deployed auth service v2.1", 0.9),
        ("dec-456", "Auth service rollback after memory leak", 0.7),
    ] {
        server
            .call(
                "cstp.recordDecision",
                &json!({
                    "id": id, "decision": decision, "confidence": confidence,
                    "category": "architecture", "stakes": "high",
                    "context": "authentication service in production",
                    "reasons": [{"type": "analysis", "text": "All tests pass", "strength": 0.8}],
                    "tags": ["auth"],
                }),
            )
            .await;
    }
    for (id, outcome, lessons) in [
        ("dec-123", "success", "Required 30-min rollback window"),
        ("dec-456", "partial", "Issue was in connection pooling"),
    ] {
        let params = json!({"id": id, "outcome": outcome, "lessons": lessons});
        server.call("cstp.reviewDecision", &params).await;
    }
}

fn intent() -> Value {
    json!({
        "intent": "Deploy authentication service to production",
        "context": "PR #42 approved, all tests passing, CI green",
        "category": "architecture",
        "stakes": "high",
        "confidence": 0.85,
        "agent": {"id": "emerson", "url": "https://emerson.example.com"},
        "correlationId": "550e8400-e29b-41d4-a716-446655440000",
        "metadata": {"pr_number": 42, "branch": "feat/auth-v2", "commit": "abc123"}
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn f004_the_example_is_answered_as_shown() {
    let server = Running::start().await;
    f004(&server).await;
    // Of another category, and about something else.
    let other = json!({"decision": "Buy coffee for the office", "category": "purchase"});
    server.call("cstp.recordDecision", &other).await;
    let answer = server.call("cstp.announceIntent", &intent()).await;
    assert_eq!(answer["received"], true);
    assert_eq!(
        answer["correlationId"],
        "550e8400-e29b-41d4-a716-446655440000"
    );
    assert_eq!(answer["respondingAgent"], "cognition-engines");
    assert_eq!(
        answer["guardrailStatus"],
        json!({
            "allowed": true,
            "violations": [],
            "warnings": [{
                "guardrailId": "prefer-staged-rollout",
                "name": "Staged Rollout Preferred",
                "message": "Consider staged rollout for production changes",
                "severity": "warn",
                "suggestion": "Deploy to 10% of traffic first"
            }],
            "evaluated": 5
        })
    );
    let similar = answer["similarDecisions"].as_array().unwrap();
    let told: Vec<(&str, &str, &str, &str)> = similar
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap();
            assert!(text("date").ends_with('Z'));
            (text("id"), text("title"), text("outcome"), text("notes"))
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                "dec-123",
                "Deployed auth service v2.1",
                "success",
                "Required 30-min rollback window"
            ),
            (
                "dec-456",
                "Auth service rollback after memory leak",
                "partial",
                "Issue was in connection pooling"
            ),
        ]
    );
    let distances: Vec<f64> = similar
        .iter()
        .map(|one| one["distance"].as_f64().unwrap())
        .collect();
    assert!(distances.is_sorted() && distances.iter().all(|d| (0.0..1.0).contains(d)));
    assert_eq!(
        answer["suggestions"],
        json!([
            "Similar action succeeded: Deployed auth service v2.1 (Required 30-min rollback window)",
            "Similar action had issues: Auth service rollback after memory leak (Issue was in connection pooling)",
            "Deploy to 10% of traffic first",
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f004_intents_are_kept_with_their_revisions() {
    let server = Running::start().await;
    for hostile in [
        "../../etc/passwd",
        "'; DROP TABLE intent; --",
        "a\u{0}b",
        "ünï\n",
        "%2e%2e/",
    ] {
        for (n, text) in ["first", "second", "third"].iter().enumerate() {
            let params = json!({"intent": text, "correlationId": hostile, "metadata": {"n": n}});
            let answer = server.call("cstp.announceIntent", &params).await;
            assert_eq!(answer["correlationId"], hostile);
            assert_eq!(answer["revision"], n + 1);
        }
        let kept = server
            .call("cstp.getIntent", &json!({"correlationId": hostile}))
            .await;
        let revisions = kept["revisions"].as_array().unwrap();
        let texts: Vec<&str> = revisions
            .iter()
            .map(|one| one["intent"].as_str().unwrap())
            .collect();
        assert_eq!(texts, ["first", "second", "third"]);
        assert_eq!(revisions[2]["metadata"], json!({"n": 2}));
        assert_eq!(revisions[2]["agent"], "emerson");
        assert_eq!(revisions[2]["allowed"], true);
    }
    // One without an id gets one.
    let answer = server
        .call("cstp.announceIntent", &json!({"intent": "x"}))
        .await;
    let id = answer["correlationId"].as_str().unwrap();
    let kept = server
        .call("cstp.getIntent", &json!({"correlationId": id}))
        .await;
    assert_eq!(kept["revisions"].as_array().unwrap().len(), 1);
    let unknown = server
        .call_any("cstp.getIntent", &json!({"correlationId": "nobody"}))
        .await;
    assert_eq!(unknown["error"]["code"], -32005);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_found_shown_and_listed() {
    let server = Running::start().await;
    f004(&server).await;
    let params = json!({"query": "auth rollout", "includeReasons": true, "limit": 1});
    let found = server.call("cstp.queryDecisions", &params).await;
    assert_eq!(found["query"], "auth rollout");
    assert_eq!(found["total"], 2);
    assert_eq!(found["agent"], "cognition-engines");
    assert!(found["queryTimeMs"].is_number());
    let decisions = found["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 1);
    assert_eq!(
        decisions[0]["reasons"],
        json!([{"type": "analysis", "text": "All tests pass", "strength": 0.8}])
    );
    for (query, first) in [
        ("dec-456", "dec-456"),
        ("deployed AUTH service v2.1", "dec-123"),
    ] {
        let found = server
            .call("cstp.queryDecisions", &json!({"query": query}))
            .await;
        assert_eq!(found["decisions"][0]["id"], first, "{query}");
        assert_eq!(found["decisions"][0]["distance"], 0.0, "{query}");
        assert_eq!(found["decisions"][0]["reasons"], Value::Null);
    }
    let decision = server
        .call("cstp.getDecision", &json!({"id": "dec-123"}))
        .await;
    assert_eq!(decision["decision"], "Deployed auth service v2.1");
    assert_eq!(decision["status"], "reviewed");
    assert_eq!(decision["agent"], "emerson");
    assert_eq!(
        decision["reviews"][0]["lessons"],
        "Required 30-min rollback window"
    );
    let missing = server
        .call_any("cstp.getDecision", &json!({"id": "nobody"}))
        .await;
    assert_eq!(missing["error"]["code"], -32005);
    let params = json!({"id": "nobody", "outcome": "success"});
    let missing = server.call_any("cstp.reviewDecision", &params).await;
    assert_eq!(missing["error"]["code"], -32005);

    let first = server
        .call("cstp.listDecisions", &json!({"limit": 1}))
        .await;
    assert_eq!(first["decisions"][0]["id"], "dec-456");
    assert_eq!(
        (&first["total"], &first["next"]),
        (&json!(2), &json!("dec-456"))
    );
    let params = json!({"limit": 1, "after": "dec-456"});
    let second = server.call("cstp.listDecisions", &params).await;
    assert_eq!(second["decisions"][0]["id"], "dec-123");
    assert_eq!(second["next"], Value::Null);
    let params = json!({"filters": {"outcome": ["partial"], "tags": ["auth"], "agent": "emerson"}});
    let partial = server.call("cstp.listDecisions", &params).await;
    assert_eq!(partial["total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_again_is_safe_and_another_under_the_id_is_refused() {
    let server = Running::start().await;
    let params = json!({"id": "d", "decision": "Use SQLite", "confidence": 0.9, "reviewIn": "7d"});
    let first = server.call("cstp.recordDecision", &params).await;
    assert_eq!(
        (&first["recorded"], &first["alreadyKnown"]),
        (&json!(true), &json!(false))
    );
    let again = server.call("cstp.recordDecision", &params).await;
    assert_eq!(again["alreadyKnown"], true);
    let other = json!({"id": "d", "decision": "Use PostgreSQL"});
    let refused = server.call_any("cstp.recordDecision", &other).await;
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(refused["error"]["data"]["field"], "id");
    let kept = server.call("cstp.getDecision", &json!({"id": "d"})).await;
    assert_eq!(kept["decision"], "Use SQLite");
}

/// What `docs/evidence.md` says of `decision_digest`: anybody can compare it with what is kept.
#[tokio::test(flavor = "multi_thread")]
async fn evidence_has_the_digest_of_what_is_kept() {
    let server = Running::start().await;
    let kept = async || {
        let mut decision = server.call("cstp.getDecision", &json!({"id": "d"})).await;
        for made_of_the_rest in ["title", "status", "outcome"] {
            decision.as_object_mut().unwrap().remove(made_of_the_rest);
        }
        json!(portcullis_core::canonical::digest(&decision).unwrap())
    };
    let last = || server.evidence().pop().unwrap();
    let params = json!({"id": "d", "decision": "Use SQLite", "confidence": 0.85, "reasons": ["It is one file"]});
    let first = server.call("cstp.recordDecision", &params).await;
    assert_eq!(last()["decision_digest"], kept().await);
    // Again, because the first answer was not heard.
    let again = server.call("cstp.recordDecision", &params).await;
    assert_eq!(again["date"], first["date"]);
    assert_eq!(last()["decision_digest"], kept().await);
    assert_ne!(last()["timestamp"], first["date"]);
    let params = json!({"id": "d", "outcome": "partial", "lessons": "Mind the network drive"});
    server.call("cstp.reviewDecision", &params).await;
    assert_eq!(last()["decision_digest"], kept().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_is_evidence_without_its_secrets() {
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let server = Running::start().await;
    let params = json!({
        "id": "d", "decision": format!("Rotate {secret}"),
        "reasons": [{"text": format!("{secret} leaked")}],
    });
    server.call("cstp.recordDecision", &params).await;
    let params =
        json!({"id": "d", "outcome": "success", "lessons": format!("revoke {secret} first")});
    server.call("cstp.reviewDecision", &params).await;
    let params = json!({"intent": format!("Rotate {secret}"), "correlationId": "c", "metadata": {"old": secret}});
    server.call("cstp.announceIntent", &params).await;
    let shown = server
        .call("cstp.getDecision", &json!({"id": "d"}))
        .await
        .to_string();
    assert!(
        shown.contains("[REDACTED:GITHUB") && !shown.contains(secret),
        "{shown}"
    );
    let intent = server
        .call("cstp.getIntent", &json!({"correlationId": "c"}))
        .await
        .to_string();
    assert!(
        intent.contains("[REDACTED:GITHUB") && !intent.contains(secret),
        "{intent}"
    );
    let entries = server.evidence();
    let events: Vec<&str> = entries
        .iter()
        .map(|entry| entry["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["decision_recorded", "decision_reviewed", "intent"]);
    assert_eq!(entries[0]["decision_digest"].as_str().unwrap().len(), 64);
    assert_ne!(entries[0]["decision_digest"], entries[1]["decision_digest"]);
    let database = std::fs::read(server.data().join("memory.db")).unwrap();
    let log = std::fs::read(server.data().join("memory.db-wal")).unwrap_or_default();
    for bytes in [database, log] {
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "a secret is in the database");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guardrail_asks_what_came_of_similar_actions() {
    const GUARDRAIL: &str = "
- id: twice-shy
  when: precedents.failures > 0 && precedents.nearest < 0.2
  message: \"{precedents.failures} of {precedents.count} failed\"
";
    let server = Running::with(|settings| {
        let file = settings
            .evidence
            .directory
            .with_file_name("guardrails.yaml");
        std::fs::write(&file, GUARDRAIL).unwrap();
        settings.policy.guardrails = Some(file);
    })
    .await;
    let action = json!({"action": {"description": "Migrate the ledger to the new cluster"}});
    let before = server.call("cstp.checkGuardrails", &action).await;
    assert_eq!(
        (&before["allowed"], &before["precedents"]),
        (&json!(true), &Value::Null)
    );
    let params = json!({"id": "d", "decision": "Migrate the ledger to the new cluster"});
    server.call("cstp.recordDecision", &params).await;
    let pending = server.call("cstp.checkGuardrails", &action).await;
    assert_eq!(pending["allowed"], true);
    let params = json!({"id": "d", "outcome": "failure", "lessons": "Copy the sequences too"});
    server.call("cstp.reviewDecision", &params).await;
    let after = server.call("cstp.checkGuardrails", &action).await;
    assert_eq!(after["allowed"], false);
    assert_eq!(after["violations"][0]["message"], "1 of 1 failed");
    assert_eq!(after["precedents"][0]["id"], "d");
    assert_eq!(after["precedents"][0]["notes"], "Copy the sequences too");
    let entries = server.evidence();
    assert_eq!(entries.last().unwrap()["precedents"], json!(["d"]));
    let intent = json!({"intent": "Migrate the ledger to the new cluster"});
    let announced = server.call("cstp.announceIntent", &intent).await;
    assert_eq!(announced["guardrailStatus"]["allowed"], false);
    assert_eq!(
        announced["suggestions"][0],
        "Warning: Similar action failed: Migrate the ledger to the new cluster (Copy the sequences too)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calibration_tells_the_overconfident() {
    let server = Running::start().await;
    let none = server.call("cstp.getCalibration", &json!({})).await;
    assert_eq!(
        (&none["brierScore"], &none["tendency"]),
        (&Value::Null, &json!("unknown"))
    );
    for n in 0..12 {
        let id = format!("d{n}");
        let params = json!({"id": id, "decision": format!("Try number {n}"), "confidence": 0.9});
        server.call("cstp.recordDecision", &params).await;
        let outcome = if n % 3 == 0 { "success" } else { "failure" };
        let params = json!({"id": id, "outcome": outcome});
        server.call("cstp.reviewDecision", &params).await;
    }
    let answer = server.call("cstp.getCalibration", &json!({})).await;
    // (4 × 0.1² + 8 × 0.9²) / 12
    assert_eq!(answer["brierScore"], 0.5433);
    assert_eq!(answer["tendency"], "overconfident");
    assert_eq!(answer["buckets"][0]["decisions"], 12);
    assert_eq!(answer["agent"], "cognition-engines");
    let params = json!({"filters": {"category": "none of it"}});
    let none = server.call("cstp.getCalibration", &params).await;
    assert_eq!(none["decisions"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_is_there_after_a_restart() {
    let server = Running::start().await;
    f004(&server).await;
    server.call("cstp.announceIntent", &intent()).await;
    let (finished, data) = server.stop().await;
    assert!(finished);
    let server = Running::in_directory(data, |_| {}).await;
    let found = server
        .call("cstp.queryDecisions", &json!({"query": "auth"}))
        .await;
    assert_eq!(found["total"], 2);
    let announced = server.call("cstp.announceIntent", &intent()).await;
    assert_eq!(announced["revision"], 2);
    assert_eq!(server.metric("portcullis_memory_decisions").await, 2.0);
    assert_eq!(server.metric("portcullis_memory_unembedded").await, 0.0);
}

/// What is not a database of ours is not written over.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_named_when_the_server_starts() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = crate::harness::settings(data.path());
    let path = data.path().join("memory.db");
    std::fs::write(&path, "this is no database, and long enough to have a header of one hundred bytes: it is not one, though, however long one looks at it").unwrap();
    settings.memory.path.clone_from(&path);
    let error = portcullis_server::Server::start(settings)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("memory.db"), "{error}");
}

/// Nothing is allowed when nobody can say what came of the like; that it was asked is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_embedding_service_allows_nothing_and_loses_nothing() {
    let server = Running::with(|settings| {
        let mut service = HttpSettings::new("http://127.0.0.1:1/v1", "gone");
        service.dimension = Some(8);
        settings.memory.embedder = EmbedderSettings::Http(Box::new(service));
    })
    .await;
    let params = json!({"id": "d", "decision": "Deploy the shop"});
    server.call("cstp.recordDecision", &params).await;
    let kept = server.call("cstp.getDecision", &params_of("d")).await;
    assert_eq!(kept["decision"], "Deploy the shop");
    for (method, params) in [
        ("cstp.queryDecisions", json!({"query": "shop"})),
        ("cstp.announceIntent", json!({"intent": "Deploy the shop"})),
    ] {
        let answer = server.call_any(method, &params).await;
        assert_eq!(answer["error"]["code"], -32003, "{method}: {answer}");
    }
    let entries = server.evidence();
    let last = entries.last().unwrap();
    assert_eq!(
        (&last["event"], &last["allowed"]),
        (&json!("intent"), &json!(false))
    );
    assert_eq!(last["action"], "Deploy the shop");
}

fn params_of(id: &str) -> Value {
    json!({"id": id})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_as_a_correlation_id_is_not_kept_and_still_found() {
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let server = Running::start().await;
    let params = json!({"intent": "Deploy", "correlationId": secret});
    let answer = server.call("cstp.announceIntent", &params).await;
    assert_eq!(answer["correlationId"], secret);
    let kept = server
        .call("cstp.getIntent", &json!({"correlationId": secret}))
        .await;
    assert_eq!(kept["revisions"].as_array().unwrap().len(), 1);
    assert!(!kept.to_string().contains(secret), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_have_an_end() {
    let server = Running::with(|settings| settings.rate_limits.enabled = false).await;
    server
        .call(
            "cstp.recordDecision",
            &json!({"id": "d", "decision": "Try"}),
        )
        .await;
    let params = json!({"id": "d", "outcome": "partial"});
    for _ in 0..64 {
        server.call("cstp.reviewDecision", &params).await;
    }
    let refused = server.call_any("cstp.reviewDecision", &params).await;
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(refused["error"]["data"]["field"], "id");
}
