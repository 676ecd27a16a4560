//! Nothing is answered that is not in the log (C11), and the log holds (§4).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use portcullis_store::evidence::{Durability, VerifyOptions, VerifyReport, verify};
use serde_json::{Value, json};

use crate::harness::{Running, eventually, evidence_in};

fn verified(data: &Path) -> VerifyReport {
    let report = verify(&data.join("evidence"), &VerifyOptions::default(), |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.faults);
    report
}

fn checked(description: &str) -> Value {
    json!({"action": {"description": description}})
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_answered_is_in_the_log_by_then() {
    let server = Running::with(|settings| settings.evidence.checkpoint_every = 10).await;
    // One after the other: each is there when its answer is.
    for n in 1..=5 {
        server
            .call("cstp.checkGuardrails", &checked(&format!("check {n}")))
            .await;
        assert_eq!(server.evidence().len(), n);
    }
    // Many at once, in batches and alone.
    let one = |n: usize| {
        let method = if n.is_multiple_of(2) {
            "cstp.checkGuardrails"
        } else {
            "cstp.announceIntent"
        };
        let params = if n.is_multiple_of(2) {
            checked(&format!("at once {n}"))
        } else {
            json!({"intent": format!("at once {n}")})
        };
        json!({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
    };
    let batches = (0..10).map(|batch| {
        let calls: Vec<Value> = (0..20).map(|n| one(batch * 20 + n)).collect();
        let request = server.post("/cstp", Value::from(calls).to_string());
        tokio::spawn(async move {
            let text = request.send().await.unwrap().text().await.unwrap();
            let answers: Vec<Value> = serde_json::from_str(&text).unwrap();
            answers
        })
    });
    let mut acknowledged = BTreeSet::new();
    for batch in batches.collect::<Vec<_>>() {
        for answer in batch.await.unwrap() {
            assert!(answer["result"].is_object(), "{answer}");
            acknowledged.insert(format!("at once {}", answer["id"]));
        }
    }
    let entries = server.evidence();
    let logged: BTreeSet<String> = entries[5..]
        .iter()
        .map(|entry| entry["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(entries.len(), 205);
    assert_eq!(logged, acknowledged);
    let seqs: Vec<u64> = entries
        .iter()
        .map(|entry| entry["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=205).collect::<Vec<_>>());
    for pair in entries.windows(2) {
        assert_eq!(pair[1]["prev"], pair[0]["digest"]);
    }
    assert_eq!(verified(server.data()).entries, 205);

    // A restart goes on where it was.
    let (finished, data) = server.stop().await;
    assert!(finished);
    let server = Running::in_directory(data, |_| {}).await;
    server
        .call("cstp.checkGuardrails", &checked("after the restart"))
        .await;
    let entries = server.evidence();
    assert_eq!(entries[205]["seq"], 206);
    assert_eq!(entries[205]["prev"], entries[204]["digest"]);
    assert_eq!(verified(server.data()).entries, 206);
}

/// Of the repository's own detectors' examples: the right form, and nobody's.
const AWS: &str = "AKIAIOSFODNN7EXAMPLE";
const GITHUB: &str = "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";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_redacted_before_they_are_written() {
    let server = Running::start().await;
    for secret in [AWS, GITHUB] {
        let action = json!({
            "description": format!("Deploy with {secret}"),
            "category": secret,
            "context": {"key": secret},
        });
        let agent = json!({"id": format!("agent {secret}"), "url": format!("https://x.example/?k={secret}")});
        server
            .call(
                "cstp.checkGuardrails",
                &json!({"action": action, "agent": agent}),
            )
            .await;
        let mut metadata = json!({"key": secret, "deep": [{"in": [secret]}]});
        metadata[secret] = json!(1);
        let intent = json!({
            "intent": format!("{secret} is the key"),
            "context": format!("export KEY={secret}"),
            "correlationId": secret,
            "metadata": metadata,
        });
        server.call("cstp.announceIntent", &intent).await;
        let step = json!({"event": {"event_type": "tool_call_result", "run_id": secret, "tool_name": secret, "text_content": secret}});
        let evaluate = server
            .post("/v1/guard/evaluate", step.to_string())
            .header("x-request-id", secret);
        assert_eq!(evaluate.send().await.unwrap().status(), 200);
    }
    let (_, data) = server.stop().await;
    for entry in fs::read_dir(data.path().join("evidence")).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        assert!(
            !text.contains(AWS) && !text.contains(GITHUB),
            "{}: {text}",
            path.display()
        );
    }
    let entries = evidence_in(data.path());
    assert_eq!(entries.len(), 6);
    assert!(
        entries[0]["action"]
            .as_str()
            .unwrap()
            .starts_with("Deploy with ")
    );
    verified(data.path());
}

/// Whatever can be sent can be logged, and read back to the same digest.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_kind_are_chained() {
    let server = Running::start().await;
    let metadata = r#"{"big":18446744073709551615,"negative":-9223372036854775808,"exact":9007199254740993,
        "zero":-0.0,"tiny":5e-324,"huge":1.7976931348623157e308,"e":1e21,"nothing":null,
        "":"","\u0000":"\u0000\u001f\u007f\u2028","\ud83d\udee1":"\ud83d\ude00","é":"e\u0301","list":[[[]],{}],"seq":1,"prev":2,"digest":3}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"cstp.announceIntent","params":{{"intent":"x","metadata":{metadata}}}}}"#
    );
    for _ in 0..3 {
        let (_, answer) = server.rpc(&body).await;
        assert_eq!(answer["result"]["received"], true, "{answer}");
    }
    let (_, data) = server.stop().await;
    assert_eq!(verified(data.path()).entries, 3);
    let again = Running::in_directory(data, |_| {}).await;
    assert_eq!(again.evidence().len(), 3);
}

/// Every entry begins a new file, so that a folder that is gone is felt at once.
async fn with_small_segments(durability: Durability) -> Running {
    Running::with(|settings| {
        settings.evidence.segment_bytes = 1;
        settings.evidence.durability = durability;
        settings.policy.reload_interval = std::time::Duration::from_millis(100);
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_not_allowed_until_it_can() {
    for durability in [Durability::Fsync, Durability::Os] {
        let server = with_small_segments(durability).await;
        server
            .call("cstp.checkGuardrails", &checked("before"))
            .await;
        eventually("ready", async || server.get("/ready").await.status() == 200).await;

        // A file stands where the folder was.
        let folder = server.data().join("evidence");
        let aside = server.data().join("aside");
        fs::rename(&folder, &aside).unwrap();
        fs::write(&folder, "").unwrap();
        for (method, params) in [
            ("cstp.checkGuardrails", checked("meanwhile")),
            ("cstp.announceIntent", json!({"intent": "meanwhile"})),
        ] {
            let answer = server.call_any(method, &params).await;
            assert_eq!(answer["error"]["code"], -32603, "{method}: {answer}");
            assert_eq!(answer.get("result"), None);
        }
        let step = r#"{"event":{"event_type":"llm_before","run_id":"r","text_content":"x"}}"#;
        let evaluated = server
            .post("/v1/guard/evaluate", step)
            .send()
            .await
            .unwrap();
        assert_eq!(evaluated.status(), 503);
        assert!(!evaluated.text().await.unwrap().contains("ALLOW"));
        // What needs no evidence is still answered.
        server.call("cstp.listGuardrails", &json!({})).await;
        assert_eq!(server.get("/health").await.status(), 200);
        let ready = server.get("/ready").await;
        assert_eq!(ready.status(), 503);
        let ready: Value = serde_json::from_str(&ready.text().await.unwrap()).unwrap();
        assert!(ready["evidence"] == "failing", "{ready}");
        assert!(server.metric("portcullis_evidence_failures_total").await >= 3.0);
        let failed = r#"portcullis_calls_total{method="cstp.checkGuardrails",outcome="failed"}"#;
        assert_eq!(server.metric(failed).await, 1.0);

        // Back again. Nobody need call for it to notice: a balancer sends nobody to who is not ready.
        fs::remove_file(&folder).unwrap();
        fs::rename(&aside, &folder).unwrap();
        eventually("ready again", async || {
            server.get("/ready").await.status() == 200
        })
        .await;
        server.call("cstp.checkGuardrails", &checked("after")).await;
        let entries = server.evidence();
        let actions: Vec<&str> = entries
            .iter()
            .filter_map(|entry| entry["action"].as_str())
            .collect();
        assert_eq!(actions, ["before", "after"]);
        verified(server.data());
    }
}

/// A log that somebody removed or cut is not written to as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_removed_fails_calls() {
    let server = Running::start().await;
    server
        .call("cstp.checkGuardrails", &checked("before"))
        .await;
    fs::remove_dir_all(server.data().join("evidence")).unwrap();
    let answer = server
        .call_any("cstp.checkGuardrails", &checked("after"))
        .await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_changed_or_is_in_use_prevents_the_start() {
    let server = Running::start().await;
    for n in 0..3 {
        server
            .call("cstp.checkGuardrails", &checked(&format!("check {n}")))
            .await;
    }
    let second = portcullis_server::Server::start(crate::harness::settings(server.data())).await;
    let error = second.err().expect("two servers write one log").to_string();
    assert!(error.contains("evidence"), "{error}");
    let (_, data) = server.stop().await;
    let segment = fs::read_dir(data.path().join("evidence"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("evidence-0"))
        .unwrap();
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(
        &segment,
        text.lines()
            .take(2)
            .fold(String::new(), |all, line| all + line + "\n"),
    )
    .unwrap();
    let cut = portcullis_server::Server::start(crate::harness::settings(data.path())).await;
    assert!(cut.is_err(), "a log without its end is written on");
}
