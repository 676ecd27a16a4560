//! The webhook that is told who waits for whom.

use std::time::Duration;

use portcullis_server::auth::Token;
use portcullis_server::config::ApprovalWebhook;
use serde_json::{Value, json};

use super::{ALICE, OPERATOR, call, paused, people, refund, say, step};
use crate::callbacks::{SECRET, assert_signed};
use crate::harness::{Running, eventually};
use crate::receiver::{Answer, Receiver};

async fn telling(url: &str) -> Running {
    Running::with(|settings| {
        people(settings);
        let secret = Token::parse(SECRET).unwrap();
        settings.approvals.webhook = Some(ApprovalWebhook {
            retry: Duration::from_millis(20),
            attempts: 3,
            ..ApprovalWebhook::new(url.parse().unwrap(), secret)
        });
    })
    .await
}

async fn notices(server: &Running, outcome: &str) -> f64 {
    let name = format!("portcullis_approval_notices_total{{outcome=\"{outcome}\"}}");
    server.metric(&name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_told_who_waits_and_what_was_said() {
    // It is tried again.
    let receiver = Receiver::start(&[Answer::Status(500), Answer::Status(204)]).await;
    let server = telling(&receiver.url()).await;
    let event = call(
        "run AKIAIOSFODNN7EXAMPLE",
        "refund",
        &json!({"amount": 5.0, "key": "AKIAIOSFODNN7EXAMPLE"}),
    );
    let id = paused(&server, &event).await;
    let requests = receiver.has(2).await;
    requests.iter().for_each(assert_signed);
    assert_eq!(requests[0].body, requests[1].body);
    let body = requests[1].json();
    assert_eq!(body["type"], "approval.requested");
    assert_eq!(body["server"], "cognition-engines");
    assert_eq!(
        requests[1].header("x-portcullis-delivery"),
        body["id"].as_str()
    );
    let approval = &body["approval"];
    assert_eq!(
        (&approval["id"], &approval["status"]),
        (&json!(id), &json!("pending"))
    );
    assert_eq!(approval["approver_roles"], json!(["finance"]));
    assert_eq!(approval["subject"]["amount"], 5.0);
    assert_eq!(approval["bound"]["agent"], "emerson");
    assert!(!requests[1].body.contains("AKIA"), "{}", requests[1].body);
    let url = format!("{}/v1/approvals/{id}", server.url);
    assert_eq!(body["decide"]["url"], url);
    let command = body["decide"]["approve"].as_str().unwrap();
    assert!(
        command.starts_with(&format!("portcullis approvals approve {id}")),
        "{command}"
    );

    say(&server, ALICE, &id, "deny").await;
    let body = receiver.has(3).await[2].json();
    assert_eq!(body["type"], "approval.decided");
    assert_eq!(body["approval"]["status"], "denied");
    assert_eq!(body["approval"]["decided"]["by"], "alice");
    assert_eq!(body.get("decide"), None::<&Value>);
    eventually("both are counted", async || {
        (notices(&server, "delivered").await - 2.0).abs() < f64::EPSILON
    })
    .await;
    // Saying so again is no news.
    say(&server, ALICE, &id, "deny").await;
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_webhook_holds_nobody_up() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let server = telling(&url).await;
    let deploy = call("r", "deploy", &json!({}));
    let id = paused(&server, &deploy).await;
    assert_eq!(say(&server, OPERATOR, &id, "approve").await.0, 200);
    let (_, answer) = step(&server, &deploy, Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW");
    eventually("both are given up", async || {
        (notices(&server, "failed").await - 2.0).abs() < f64::EPSILON
    })
    .await;
    paused(&server, &refund(5.0)).await;
}
