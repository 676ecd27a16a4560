//! The description of the API is what the API does.

use std::collections::BTreeSet;

use portcullis_server::limit::Quota;
use portcullis_server::{Method, OPENAPI, Operation};
use serde_json::{Value, json};

use crate::harness::{Running, eventually};

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// What the document says about an answer, as a schema in which references into the document hold.
fn schema_of(operation: &str, status: u16) -> Value {
    let document = document();
    let (verb, path) = operation.split_once(' ').unwrap();
    let pointer = format!(
        "/paths/{}/{verb}/responses/{status}",
        path.replace('/', "~1")
    );
    let mut response = document
        .pointer(&pointer)
        .unwrap_or_else(|| panic!("{pointer} is not there"));
    if let Some(reference) = response["$ref"].as_str() {
        response = document
            .pointer(reference.strip_prefix('#').unwrap())
            .unwrap();
    }
    let mut schema = response["content"]["application/json"]["schema"].clone();
    schema["components"] = document["components"].clone();
    schema
}

/// Whether an answer is what the document says.
fn assert_described(operation: &str, status: u16, answer: &Value) {
    assert_valid(&schema_of(operation, status), answer);
}

fn assert_valid(schema: &Value, instance: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{instance:#}");
}

/// A named schema of the document.
fn component(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}"), "components": document()["components"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn it_lists_the_routes_that_there_are_and_whether_they_need_a_token() {
    let server = Running::start().await;
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            let url = format!("http://{}{path}", server.address);
            let verb = reqwest::Method::from_bytes(verb.to_uppercase().as_bytes()).unwrap();
            let response = reqwest::Client::new()
                .request(verb.clone(), url)
                .send()
                .await
                .unwrap();
            let status = response.status();
            assert!(status != 404 && status != 405, "{verb} {path}");
            let open = operation["security"] == json!([]);
            assert_eq!(status == 401, !open, "{verb} {path}: {status}");
            operations.insert(format!("{verb} {path}"));
        }
    }
    // Written out, because a router does not list its routes: one that is added is added here too.
    let routes = [
        "DELETE /v1/guard/quarantine/{run_id}",
        "GET /.well-known/agent-card.json",
        "GET /.well-known/agent.json",
        "GET /health",
        "GET /metrics",
        "GET /openapi.json",
        "GET /ready",
        "GET /v1/approvals",
        "GET /v1/approvals/{id}",
        "GET /v1/guard/alerts",
        "GET /v1/guard/quarantine",
        "GET /v1/guard/runs/{run_id}",
        "POST /cstp",
        "POST /v1/a2a/convert",
        "POST /v1/a2a/import",
        "POST /v1/approvals/{id}",
        "POST /v1/guard/evaluate",
        "POST /v1/guard/quarantine/{run_id}",
    ];
    assert_eq!(operations, routes.map(str::to_owned).into());
    let served: Value =
        serde_json::from_str(&server.get("/openapi.json").await.text().await.unwrap()).unwrap();
    assert_eq!(served, document);
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_one() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    found.insert(reference.clone());
                }
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 5);
    for reference in found {
        assert!(
            document
                .pointer(reference.strip_prefix('#').unwrap())
                .is_some(),
            "{reference}"
        );
    }
    for name in document["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(
            jsonschema::validator_for(&component(name)).is_ok(),
            "{name}"
        );
    }
    let methods: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
    assert_eq!(
        document["components"]["schemas"]["RpcRequest"]["properties"]["method"]["enum"],
        json!(methods)
    );
}

/// Calls of every method, in an order in which each is answered: what they take and what they give.
fn calls() -> Vec<(Method, &'static [&'static str], Value)> {
    let check: &[&str] = &["CheckParams", "CheckResult"];
    let intent: &[&str] = &["IntentParams", "IntentResult"];
    let record: &[&str] = &["RecordParams", "RecordResult"];
    let review: &[&str] = &["ReviewParams", "ReviewResult"];
    let show: &[&str] = &["DecisionParams", "Decision"];
    let list: &[&str] = &["ListParams", "DecisionList"];
    let query: &[&str] = &["QueryParams", "QueryResult"];
    let calibration: &[&str] = &["CalibrationParams", "Calibration"];
    let filters = json!({
        "category": "c", "agent": "emerson", "minConfidence": 0.1, "maxConfidence": 1, "dateAfter": "2000-01-01",
        "dateBefore": "2999-01-01T00:00:00Z", "stakes": ["low", "high"], "status": "reviewed",
        "outcome": ["failure"], "tags": ["t"],
    });
    vec![
        (Method::GetCalibration, calibration, json!({})),
        (
            Method::QueryDecisions,
            query,
            json!({"query": "nothing is here"}),
        ),
        (
            Method::RecordDecision,
            record,
            json!({"id": "short", "decision": "Keep the old cluster"}),
        ),
        (
            Method::RecordDecision,
            record,
            json!({
                "id": "d", "decision": "Migrate the ledger", "context": "On a Sunday", "category": "c",
                "stakes": "high", "confidence": 0.9, "tags": ["t"], "reviewIn": "7d",
                "reasons": ["It is tested", {"type": "pattern", "text": "It went well before", "strength": 0.5}],
            }),
        ),
        (
            Method::RecordDecision,
            record,
            json!({"decision": "Without an id", "reviewIn": 7, "reasons": "one"}),
        ),
        (Method::GetDecision, show, json!({"id": "short"})),
        (
            Method::ReviewDecision,
            review,
            json!({"id": "d", "outcome": "partial"}),
        ),
        (
            Method::ReviewDecision,
            review,
            json!({"id": "d", "outcome": "failure", "actualResult": "Rolled back", "lessons": "Copy the sequences too"}),
        ),
        (Method::GetDecision, show, json!({"id": "d"})),
        (Method::ListDecisions, list, json!({"limit": 1})),
        (
            Method::ListDecisions,
            list,
            json!({"filters": filters, "after": "short"}),
        ),
        (
            Method::QueryDecisions,
            query,
            json!({"query": "ledger", "filters": filters, "includeReasons": true}),
        ),
        (
            Method::QueryDecisions,
            query,
            json!({"query": "old cluster", "limit": 50}),
        ),
        (
            Method::GetCalibration,
            calibration,
            json!({"filters": filters}),
        ),
        (
            Method::CheckGuardrails,
            check,
            json!({"action": {"description": "x", "category": null, "stakes": "low", "confidence": 0.5, "context": {"x": 1}}, "agent": {"id": "a"}}),
        ),
        (
            Method::CheckGuardrails,
            check,
            json!({"action": {"description": "Migrate the ledger", "context": {"x": 2}}}),
        ),
        (
            Method::AnnounceIntent,
            intent,
            json!({"intent": "Migrate the ledger", "context": "c", "metadata": {"x": 1}, "correlationId": "c"}),
        ),
        (
            Method::GetIntent,
            &["GetIntentParams", "IntentRevisions"],
            json!({"correlationId": "c"}),
        ),
        (Method::ListGuardrails, &["GuardrailList"], json!({})),
    ]
}

#[test]
fn every_method_is_called() {
    let called: BTreeSet<Method> = calls().into_iter().map(|(method, ..)| method).collect();
    assert_eq!(called, Method::ALL.iter().copied().collect());
}

/// What the document says of parameters is what is refused.
#[test]
fn wrong_parameters_are_not_what_it_says() {
    for (schema, params) in [
        ("RecordParams", json!({})),
        ("RecordParams", json!({"decision": "x", "confidence": 2})),
        ("RecordParams", json!({"decision": "x", "agent": "me"})),
        (
            "RecordParams",
            json!({"decision": "x", "reasons": [{"strength": 1}]}),
        ),
        ("ReviewParams", json!({"id": "d"})),
        ("ReviewParams", json!({"id": "d", "outcome": "fine"})),
        ("QueryParams", json!({"query": ""})),
        ("QueryParams", json!({"query": "x", "limit": 51})),
        ("ListParams", json!({"filters": {"stake": "high"}})),
        ("GetIntentParams", json!({"correlationId": ""})),
        (
            "RpcRequest",
            json!({"jsonrpc": "2.0", "method": "cstp.getDecision", "params": {"query": "x"}}),
        ),
        (
            "RpcRequest",
            json!({"jsonrpc": "2.0", "method": "cstp.recordDecision"}),
        ),
        (
            "RpcRequest",
            json!({"jsonrpc": "2.0", "method": "cstp.listGuardrails", "params": {"all": true}}),
        ),
    ] {
        let validator = jsonschema::validator_for(&component(schema)).unwrap();
        assert!(!validator.is_valid(&params), "{schema}: {params}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_answers_are_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let guardrails = folder.path().join("all.yaml");
    std::fs::write(&guardrails, "guardrails:\n  - {id: b, name: B, when: context.x == 1, severity: block, message: m, suggestion: s}\n  - {id: w, name: W, when: 'true', severity: warn, message: m}\n  - {id: p, when: context.x == 2 && precedents.failures > 0, message: m}\n").unwrap();
    let server = Running::with(|settings| {
        settings.policy.guardrails = Some(guardrails);
        settings.server.max_body_bytes = 10_000;
    })
    .await;
    for path in [
        "/health",
        "/ready",
        "/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/openapi.json",
    ] {
        let response = server.get(path).await;
        let status = response.status().as_u16();
        let answer = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_described(&format!("get {path}"), status, &answer);
    }
    eventually("ready", async || server.get("/ready").await.status() == 200).await;
    let ready = serde_json::from_str(&server.get("/ready").await.text().await.unwrap()).unwrap();
    assert_described("get /ready", 200, &ready);

    for (method, schemas, params) in calls() {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method.name(), "params": params});
        assert_valid(&component("RpcRequest"), &request);
        let (status, answer) = server.rpc(&request.to_string()).await;
        assert_described("post /cstp", status, &answer);
        assert_eq!(answer["error"], Value::Null, "{request}");
        if let [takes, _] = schemas {
            assert_valid(&component(takes), &params);
        }
        assert_valid(&component(schemas[schemas.len() - 1]), &answer["result"]);
    }
    for body in [
        "nonsense",
        "{}",
        "[]",
        r#"[{"jsonrpc":"2.0","id":"a","method":"x"}]"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"cstp.checkGuardrails"}"#,
    ] {
        let (status, answer) = server.rpc(body).await;
        assert_described("post /cstp", status, &answer);
    }
    let step = json!({"event": {"event_type": "tool_call_result", "run_id": "r", "tool_name": "t", "text_content": "AKIAIOSFODNN7EXAMPLE"}});
    assert_valid(&component("Step"), &step);
    for (path, body, expected) in [
        ("/v1/guard/evaluate", step.to_string(), 200),
        ("/v1/guard/evaluate", "{}".to_owned(), 400),
        (
            "/v1/guard/evaluate",
            r#"{"event":{"event_type":5}}"#.to_owned(),
            400,
        ),
        ("/v1/guard/evaluate", " ".repeat(10_001), 413),
        ("/cstp", " ".repeat(10_001), 413),
    ] {
        let response = server.post(path, body).send().await.unwrap();
        assert_eq!(response.status(), expected);
        let answer = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_described(&format!("post {path}"), expected, &answer);
    }
    for path in ["/cstp", "/v1/guard/evaluate"] {
        for (header, value, expected) in [
            ("content-type", "text/plain", 415),
            ("authorization", "Bearer x", 401),
        ] {
            let mut request = server.post(path, "{}").build().unwrap();
            request.headers_mut().insert(header, value.parse().unwrap());
            let response = reqwest::Client::new().execute(request).await.unwrap();
            assert_eq!(response.status(), expected);
            let answer = serde_json::from_str(&response.text().await.unwrap()).unwrap();
            assert_described(&format!("post {path}"), expected, &answer);
        }
    }
    // A limit of its own says so as well.
    assert_valid(
        &component("RpcError"),
        &json!({"code": -32002, "message": "RateLimited", "data": {"retryAfterMs": 1}}),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_runs_are_what_it_says() {
    let pack = crate::alerts::PACK.replace("emit_alert", "emit_alert, flag_trajectory");
    let server = crate::alerts::alerting(&pack, |settings| {
        settings.auth.operators = vec!["emerson".to_owned()];
    })
    .await;
    crate::alerts::call(&server, "r", "rm").await;
    let list = async || {
        server
            .get_as_emerson("/v1/guard/alerts")
            .await
            .text()
            .await
            .unwrap()
    };
    eventually("an alert", async || list().await.contains("no-rm")).await;
    let (run, one) = ("/v1/guard/runs/{run_id}", "/v1/guard/quarantine/{run_id}");
    for (verb, path, name, body, status) in [
        ("post", one, "", r#"{"reason": "why"}"#, 200),
        ("post", one, "", "{}", 400),
        ("post", one, "", "nonsense", 400),
        ("get", run, "", "", 200),
        ("get", run, "unknown", "", 404),
        ("get", "/v1/guard/quarantine", "", "", 200),
        ("get", "/v1/guard/quarantine", "?limit=0", "", 400),
        ("get", "/v1/guard/alerts", "", "", 200),
        ("get", "/v1/guard/alerts", "?limit=x", "", 400),
        ("delete", one, "", "", 200),
        ("delete", one, "", r#"{"reason": null}"#, 404),
    ] {
        let name = if name.is_empty() { "r" } else { name };
        let mut at = path.replace("{run_id}", name);
        if name.starts_with('?') {
            at += name;
        }
        let mut request = server.post(&at, body).build().unwrap();
        *request.method_mut() = verb.to_uppercase().parse().unwrap();
        let response = reqwest::Client::new().execute(request).await.unwrap();
        assert_eq!(response.status(), status, "{verb} {at} {body}");
        let answer = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_described(&format!("{verb} {path}"), status, &answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_approvals_are_what_it_says() {
    use crate::approvals::{ALICE, approve, ask, paused, refund, served, step};
    let server = served().await;
    let (evaluate, one) = ("post /v1/guard/evaluate", "/v1/approvals/{id}");
    let (status, answer) = step(&server, &refund(5.0), None).await;
    assert_described(evaluate, status, &answer);
    let id = answer["approval"]["id"].as_str().unwrap();
    assert_valid(
        &component("GuardedStep"),
        &json!({"event": refund(5.0), "approval": id}),
    );
    for approval in ["unknown", id] {
        let (status, answer) = step(&server, &refund(6.0), Some(approval)).await;
        assert_described(evaluate, status, &answer);
    }
    let own = paused(&server, &refund(7.0)).await;
    approve(&server, &own).await;
    step(&server, &refund(7.0), Some(&own)).await;
    let answer = json!({"decision": "approve", "note": "fine"});
    assert_valid(&component("ApprovalAnswer"), &answer);
    for (verb, path, token, body, status) in [
        ("get", "", ALICE, None, 200),
        ("get", "?status=x", ALICE, None, 400),
        ("get", id, ALICE, None, 200),
        ("get", own.as_str(), ALICE, None, 200),
        ("get", "unknown", ALICE, None, 404),
        (
            "post",
            id,
            crate::harness::EMERSON,
            Some(answer.clone()),
            403,
        ),
        ("post", id, ALICE, Some(json!({})), 400),
        ("post", id, ALICE, Some(answer), 200),
        ("post", id, ALICE, Some(json!({"decision": "deny"})), 409),
        (
            "post",
            "unknown",
            ALICE,
            Some(json!({"decision": "deny"})),
            404,
        ),
    ] {
        let (at, known) = match path {
            "" | "?status=x" => (format!("/v1/approvals{path}"), "/v1/approvals"),
            id => (format!("/v1/approvals/{id}"), one),
        };
        let method = verb.to_uppercase().parse().unwrap();
        let (found, answer) = ask(&server, token, method, &at, body).await;
        assert_eq!(found, status, "{verb} {at}: {answer}");
        assert_described(&format!("{verb} {known}"), status, &answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_packets_are_what_it_says() {
    let server = Running::with(|settings| {
        let once = Quota {
            per_minute: 1,
            burst: 9,
        };
        let limits = &mut settings.rate_limits.methods;
        limits.insert(Operation::A2aConvert, once);
        settings.server.max_body_bytes = 10_000;
    })
    .await;
    let document = document();
    let (convert, import) = ("/v1/a2a/convert", "/v1/a2a/import");
    let example = |path: &str| {
        let operation = &document["paths"][path]["post"];
        operation["requestBody"]["content"]["application/json"]["example"].to_string()
    };
    let packet = example(convert);
    assert_valid(
        &component("A2aPacket"),
        &serde_json::from_str(&packet).unwrap(),
    );
    let unknown = packet.replace("task.requested", "task.forgotten");
    for (path, query, kind, body, status) in [
        (convert, "", "json", packet.as_str(), 200),
        (
            convert,
            "?mode=lenient",
            "json",
            r#"{"protocol":"a2a","version":"0.2","x":1}"#,
            200,
        ),
        (convert, "?mode=x", "json", &packet, 400),
        (convert, "", "json", "nonsense", 400),
        (convert, "", "json", &" ".repeat(10_001), 413),
        (convert, "", "x-ndjson", "", 200),
        (convert, "", "xml", "<a/>", 415),
        (convert, "", "json", &unknown, 422),
        (
            convert,
            "",
            "x-ndjson",
            &format!("{packet}\nnonsense\n"),
            200,
        ),
        (
            convert,
            "?protocol_version=7",
            "json",
            r#"{"protocol":"a2a"}"#,
            422,
        ),
        (convert, "", "json", &packet, 429),
        (import, "", "json", &example(import), 200),
        (import, "?agent=a", "json", "5", 400),
    ] {
        let request = server.post(&format!("{path}{query}"), body);
        let mut request = request.build().unwrap();
        let media_type = format!("application/{kind}").parse().unwrap();
        request.headers_mut().insert("content-type", media_type);
        let response = reqwest::Client::new().execute(request).await.unwrap();
        assert_eq!(response.status(), status, "{path}{query} {body}");
        let text = response.text().await.unwrap();
        if kind != "x-ndjson" {
            let answer = serde_json::from_str(&text).unwrap();
            assert_described(&format!("post {path}"), status, &answer);
            continue;
        }
        for line in text.lines() {
            let answer: Value = serde_json::from_str(line).unwrap();
            let schema = if answer["error"].is_object() {
                "A2aError"
            } else {
                "A2aAnswer"
            };
            assert_valid(&component(schema), &answer);
        }
    }
}
