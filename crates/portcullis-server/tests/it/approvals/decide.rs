//! Who may see and who may decide.

use reqwest::Method as Verb;
use serde_json::{Value, json};

use super::{
    ALICE, OPERATOR, STRANGER, approve, ask, call, entries, get, listed, paused, people, refund,
    say, served, step_as,
};
use crate::harness::{EMERSON, Running};

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_role_decides_and_nobody_on_their_own_step() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    // Emerson may see it, and not decide; a stranger does not even hear of it.
    let (status, answer) = say(&server, EMERSON, &id, "approve").await;
    assert_eq!(status, 403);
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("the step is its own"), "{detail}");
    assert_eq!(say(&server, STRANGER, &id, "approve").await.0, 404);
    assert_eq!(say(&server, "", &id, "approve").await.0, 401);
    // An operator sees everything and has the role `admin` alone.
    let (status, answer) = say(&server, OPERATOR, &id, "approve").await;
    assert_eq!(status, 403);
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("\"finance\""), "{detail}");
    approve(&server, &id).await;

    let deploy = call("r", "deploy", &json!({}));
    let id = paused(&server, &deploy).await;
    assert_eq!(say(&server, ALICE, &id, "approve").await.0, 404);
    assert_eq!(say(&server, OPERATOR, &id, "approve").await.0, 200);
    // Alice's own refund takes somebody else of finance.
    let (_, answer) = step_as(&server, ALICE, &refund(5.0), None).await;
    let id = answer["approval"]["id"].as_str().unwrap();
    assert_eq!(say(&server, ALICE, id, "approve").await.0, 403);
    assert_eq!(entries(&server, "approval_decided").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_what_concerns_them() {
    let server = served().await;
    let refunded = paused(&server, &refund(5.0)).await;
    let deployed = paused(&server, &call("r2", "deploy", &json!({}))).await;
    let (_, answer) = step_as(&server, STRANGER, &refund(7.0), None).await;
    let other = answer["approval"]["id"].as_str().unwrap().to_owned();
    let all = [refunded.clone(), deployed.clone(), other.clone()];
    assert_eq!(listed(&server, OPERATOR, "").await, all);
    assert_eq!(
        listed(&server, ALICE, "").await,
        [refunded.clone(), other.clone()]
    );
    assert_eq!(
        listed(&server, EMERSON, "").await,
        [refunded.clone(), deployed.clone()]
    );
    assert_eq!(listed(&server, STRANGER, "").await, [other]);
    for (token, status) in [
        (EMERSON, 200),
        (ALICE, 404),
        (STRANGER, 404),
        (OPERATOR, 200),
    ] {
        assert_eq!(get(&server, token, &format!("/{deployed}")).await.0, status);
    }
    assert_eq!(get(&server, "", "").await.0, 401);
    assert_eq!(get(&server, "", &format!("/{deployed}")).await.0, 401);

    approve(&server, &refunded).await;
    assert_eq!(
        listed(&server, EMERSON, "?status=approved").await,
        std::slice::from_ref(&refunded)
    );
    assert_eq!(
        listed(&server, EMERSON, "?status=pending&run_id=r2").await,
        [deployed]
    );
    // What one may not see takes no room of what one may.
    let oldest = listed(&server, STRANGER, "?limit=1").await;
    assert_eq!(oldest.len(), 1);
    for wrong in [
        "status=maybe",
        "limit=0",
        "limit=1001",
        "limit=x",
        "after=1",
    ] {
        assert_eq!(
            get(&server, EMERSON, &format!("?{wrong}")).await.0,
            400,
            "{wrong}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_final_and_may_be_repeated() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    // The first answer may have got lost.
    approve(&server, &id).await;
    let (status, answer) = say(&server, ALICE, &id, "deny").await;
    assert_eq!((status, &answer["code"]), (409, &json!("approval_settled")));
    assert_eq!(say(&server, OPERATOR, &id, "approve").await.0, 409);
    let decided = server
        .metric("portcullis_approvals_decided_total{answer=\"approve\"}")
        .await;
    assert!((decided - 1.0).abs() < f64::EPSILON);
    assert_eq!(say(&server, ALICE, "unknown", "approve").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_answer_is_said() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let path = format!("/v1/approvals/{id}");
    for (body, field) in [
        (json!({}), Value::Null),
        (json!({"decision": "maybe"}), Value::Null),
        (json!({"decision": "approve", "by": "me"}), Value::Null),
        (json!(["approve"]), Value::Null),
        (
            json!({"decision": "approve", "note": "x".repeat(1001)}),
            json!("note"),
        ),
    ] {
        let (status, answer) = ask(&server, ALICE, Verb::POST, &path, Some(body.clone())).await;
        assert_eq!((status, &answer["error"]["field"]), (400, &field), "{body}");
    }
    let (_, kept) = get(&server, ALICE, &format!("/{id}")).await;
    assert_eq!(kept["status"], "pending");
}

/// Without authentication anybody may say to be anybody, so nobody needs a role.
#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_anybody_decides() {
    let server = Running::with(|settings| {
        people(settings);
        settings.auth.enabled = false;
    })
    .await;
    let id = paused(&server, &refund(5.0)).await;
    assert_eq!(listed(&server, "", "").await, std::slice::from_ref(&id));
    let (status, answer) = say(&server, "", &id, "approve").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["decided"]["by"], "unauthenticated");
    let (_, answer) = super::step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW");
}
