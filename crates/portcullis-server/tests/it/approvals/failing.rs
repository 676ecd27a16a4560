//! What cannot be kept does not happen.

use std::sync::Arc;

use jiff::Timestamp;
use portcullis_core::approval::{
    Answer, Approval, ApprovalError, Approvals, Binding, Taken, Which,
};
use portcullis_runtime::MemoryApprovals;
use serde_json::json;

use super::{ALICE, approve, entries, get, paused, people, refund, say, served, step};
use crate::harness::Running;

/// Fails at everything.
struct Broken;

fn broken<T>() -> Result<T, ApprovalError> {
    Err(ApprovalError::Backend("/secret/path: disk full".to_owned()))
}

impl Approvals for Broken {
    fn create(&self, _: Approval) -> Result<(), ApprovalError> {
        broken()
    }

    fn get(&self, _: &str, _: Timestamp) -> Result<Option<Approval>, ApprovalError> {
        broken()
    }

    fn list(&self, _: &Which, _: Timestamp) -> Result<Vec<Approval>, ApprovalError> {
        broken()
    }

    fn decide(&self, _: &str, _: &Answer, _: Timestamp) -> Result<Approval, ApprovalError> {
        broken()
    }

    fn take(&self, _: &str, _: &Binding, _: Timestamp) -> Result<Taken, ApprovalError> {
        broken()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_lets_nothing_happen() {
    let server = Running::keeping(Arc::new(Broken), people).await;
    for approval in [None, Some("x")] {
        let (status, answer) = step(&server, &refund(5.0), approval).await;
        assert_eq!(status, 503, "{answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains("approvals cannot be kept"), "{detail}");
        assert!(!detail.contains("secret"), "{detail}");
    }
    assert_eq!(say(&server, ALICE, "x", "approve").await.0, 503);
    assert_eq!(get(&server, ALICE, "").await.0, 503);
    assert_eq!(get(&server, ALICE, "/x").await.0, 503);
    // All the same it is recorded that it was tried.
    let steps = entries(&server, "guard_evaluation");
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|entry| entry["decision"] == "PAUSE"));
    assert_eq!(steps[1]["approval_outcome"], "failed");
    // What needs nobody goes on.
    let (status, _) = step(&server, &super::call("r", "ls", &json!({})), None).await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_too_many_wait_it_is_said_how_soon_to_come_back() {
    let server = Running::keeping(Arc::new(MemoryApprovals::new(2)), people).await;
    let first = paused(&server, &refund(1.0)).await;
    paused(&server, &refund(2.0)).await;
    let body = json!({"event": refund(3.0)}).to_string();
    let full = server
        .post("/v1/guard/evaluate", body)
        .send()
        .await
        .unwrap();
    assert_eq!(full.status(), 503);
    assert_eq!(full.headers()["retry-after"], "30");
    let detail = full.text().await.unwrap();
    assert!(detail.contains("2 approvals are kept"), "{detail}");
    approve(&server, &first).await;
    step(&server, &refund(1.0), Some(&first)).await;
    let third = paused(&server, &refund(3.0)).await;
    // A no that nobody comes back for makes room too.
    super::say(&server, super::ALICE, &third, "deny").await;
    paused(&server, &refund(4.0)).await;
}

/// The answer is used up before the step is recorded: at most once, whatever fails.
#[tokio::test(flavor = "multi_thread")]
async fn without_evidence_nothing_happens_and_the_answer_is_spent() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    std::fs::remove_dir_all(server.data().join("evidence")).unwrap();
    let (status, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(status, 503, "{answer}");
    let (_, kept) = get(&server, ALICE, &format!("/{id}")).await;
    assert_eq!(kept["status"], "used");
    // A decision that cannot be recorded is said not to be.
    let (status, _) = step(&server, &refund(6.0), None).await;
    assert_eq!(status, 503);
    let waiting = super::listed(&server, ALICE, "?status=pending").await;
    let (status, answer) = say(&server, ALICE, &waiting[0], "approve").await;
    assert_eq!(status, 503);
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("send it again"), "{detail}");
}

/// A yes is not spent on a question that cannot be put to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_stays_good_where_the_next_question_cannot_be_asked() {
    let server = Running::keeping(Arc::new(MemoryApprovals::new(1)), people).await;
    let large = refund(5000.0);
    let first = paused(&server, &large).await;
    approve(&server, &first).await;
    let (status, answer) = step(&server, &large, Some(&first)).await;
    assert_eq!(status, 503, "{answer}");
    let (_, kept) = get(&server, ALICE, &format!("/{first}")).await;
    assert_eq!(kept["status"], "approved", "{kept}");
    assert!(kept["taken"].is_null(), "{kept}");
}

/// The log has what is kept, whatever is said afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_decision_is_recorded_as_it_was_given() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let path = format!("/v1/approvals/{id}");
    for note in ["checked", "another story"] {
        let body = json!({"decision": "approve", "note": note});
        let (status, answer) =
            super::ask(&server, ALICE, reqwest::Method::POST, &path, Some(body)).await;
        assert_eq!(
            (status, &answer["decided"]["note"]),
            (200, &json!("checked"))
        );
    }
    let decided = entries(&server, "approval_decided");
    assert_eq!(decided.len(), 2);
    assert!(
        decided.iter().all(|entry| entry["note"] == "checked"),
        "{decided:?}"
    );
    assert_eq!(decided[0]["decided_at"], decided[1]["decided_at"]);
    assert_eq!(decided[1]["repeated"], true);
    assert!(decided[0]["repeated"].is_null());
}
