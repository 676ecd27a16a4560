//! What an approval is good for, and nothing else.

use serde_json::{Value, json};

use super::{
    ALICE, OPERATOR, PACK, STRANGER, approve, call, get, paused, people, refund, say, served, step,
    step_as,
};
use crate::harness::{EMERSON, Running, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn any_change_voids_it_and_uses_nothing_up() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    let arguments = json!({"amount": 5.0, "to": "bob"});
    for (event, what) in [
        (refund(6.0), "arguments"),
        (call("r", "refund", &json!({"amount": 5.0})), "arguments"),
        (
            call("r", "refund", &json!({"amount": 5.0, "to": "bob", "x": 1})),
            "arguments",
        ),
        (
            with(&refund(5.0), "text_content", &json!("and more")),
            "arguments",
        ),
        (
            with(&refund(5.0), "payload", &json!({"note": 1})),
            "arguments",
        ),
        (call("other", "refund", &arguments), "run"),
        (call("r", "deploy", &arguments), "tool"),
    ] {
        let (status, answer) = step(&server, &event, Some(&id)).await;
        assert_eq!(
            (status, &answer["code"]),
            (409, &json!("approval_void")),
            "{answer}"
        );
        assert_eq!(answer["error"]["field"], "approval");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("another {what}")), "{message}");
        assert!(message.contains("without `approval`"), "{message}");
    }
    let (status, answer) = step_as(&server, STRANGER, &refund(5.0), Some(&id)).await;
    // To another agent there is none.
    assert_eq!((status, &answer["code"]), (404, &json!("approval_unknown")));
    let (_, kept) = get(&server, EMERSON, &format!("/{id}")).await;
    assert_eq!(
        (&kept["status"], &kept["taken"]),
        (&json!("approved"), &Value::Null)
    );
    let (_, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW");
    let void = server
        .metric("portcullis_approvals_redeemed_total{outcome=\"void\"}")
        .await;
    assert!((void - 7.0).abs() < f64::EPSILON, "{void}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_policy_voids_it() {
    let server = Running::with(|settings| {
        people(settings);
        settings.policy.reload_interval = std::time::Duration::from_millis(20);
    })
    .await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    let changed = PACK.replace("version: '1'", "version: '2'");
    std::fs::write(server.data().join("pack.yaml"), changed).unwrap();
    eventually("the changed pack is in force", async || {
        let (_, ready) = super::ask(&server, "", reqwest::Method::GET, "/ready", None).await;
        ready["policy"]["version"] == "2"
    })
    .await;
    let (status, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!((status, &answer["code"]), (409, &json!("approval_void")));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("another policy"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_outranks_a_yes() {
    let server = served().await;
    let own = call("r", "refund", &json!({"amount": 5.0, "self": true}));
    let (_, answer) = step(&server, &own, None).await;
    assert_eq!(answer["decision"]["action"], "STOP");
    assert_eq!(answer.get("approval"), None);
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    let (status, answer) = step(&server, &own, Some(&id)).await;
    assert_eq!(
        (status, &answer["decision"]["action"]),
        (200, &json!("STOP"))
    );
    // Nor does a step use it up that nothing pauses.
    let (status, answer) = step(&server, &call("r", "ls", &json!({})), Some(&id)).await;
    assert_eq!(
        (status, &answer["decision"]["action"]),
        (200, &json!("ALLOW"))
    );
    let (_, kept) = get(&server, ALICE, &format!("/{id}")).await;
    assert_eq!(kept["status"], "approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_there_is_no_good() {
    let server = served().await;
    for id in [
        "",
        "x",
        "019a8b5e8f2c7cc0b1a53f0a8a6e2d11",
        "../..",
        "AKIAIOSFODNN7EXAMPLE",
    ] {
        let (status, answer) = step(&server, &refund(5.0), Some(id)).await;
        assert_eq!(
            (status, &answer["code"]),
            (404, &json!("approval_unknown")),
            "{id}"
        );
    }
    assert!(!json!(server.evidence()).to_string().contains("AKIA"));
    let (status, answer) = step(&server, &refund(5.0), Some(&"x".repeat(129))).await;
    assert_eq!(
        (status, &answer["error"]["field"]),
        (400, &json!("approval"))
    );
    let body = json!({"event": refund(5.0), "approval": 5});
    let path = "/v1/guard/evaluate";
    let (status, answer) =
        super::ask(&server, EMERSON, reqwest::Method::POST, path, Some(body)).await;
    assert_eq!(
        (status, &answer["error"]["field"]),
        (400, &json!("approval"))
    );
    let body = json!({"event": refund(5.0), "approval": null});
    let (status, _) = super::ask(&server, EMERSON, reqwest::Method::POST, path, Some(body)).await;
    assert_eq!(status, 200);
}

/// A yes to one rule is none to another that pauses before it.
#[tokio::test(flavor = "multi_thread")]
async fn another_rule_that_pauses_first_asks_for_itself() {
    let server = Running::with(|settings| {
        people(settings);
        let first = "
  - id: guests-wait
    rule: expression
    events: [tool_call_start]
    config: {when: has(context.persona_id) && context.persona_id == 'guest', action: PAUSE, reason: A guest, severity: critical, approver_roles: [finance]}
  - id: refund-needs-approval";
        let pack = PACK.replacen("\n  - id: refund-needs-approval", first, 1);
        std::fs::write(settings.policy.pack.as_ref().unwrap(), pack).unwrap();
    })
    .await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    let as_guest = async |approval: &str| {
        let body =
            json!({"context": {"persona_id": "guest"}, "event": refund(5.0), "approval": approval});
        let path = "/v1/guard/evaluate";
        super::ask(&server, EMERSON, reqwest::Method::POST, path, Some(body)).await
    };
    let (status, answer) = as_guest(&id).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["decision"]["rule_id"], "guests-wait");
    let other = answer["approval"]["id"].as_str().unwrap();
    assert_ne!(other, id);
    let (_, kept) = get(&server, ALICE, &format!("/{id}")).await;
    assert_eq!(kept["status"], "approved");
    approve(&server, other).await;
    let (_, answer) = as_guest(other).await;
    assert_eq!(answer["decision"]["rule_id"], "refund-needs-approval");
    assert_eq!(answer["decision"]["action"], "PAUSE");
    // The first is still good for the step that it was given for.
    let (_, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW", "{answer}");
}

/// What a pause asks for is done once, and an approval for something else excuses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_strike_is_counted_when_somebody_is_asked() {
    let server = Running::with(|settings| {
        people(settings);
        let pack = PACK.replacen(
            "reason: A refund,",
            "reason: A refund, effects: [increment_strike],",
            1,
        );
        std::fs::write(settings.policy.pack.as_ref().unwrap(), pack).unwrap();
    })
    .await;
    let strikes = async || {
        let path = "/v1/guard/runs/r";
        let (_, run) = super::ask(&server, super::OPERATOR, reqwest::Method::GET, path, None).await;
        run["strikes"]["refund"].as_u64().unwrap()
    };
    let id = paused(&server, &refund(5.0)).await;
    assert_eq!(strikes().await, 1);
    step(&server, &refund(5.0), Some(&id)).await;
    approve(&server, &id).await;
    assert_eq!(strikes().await, 1);
    // Another step, nobody was asked about.
    assert_eq!(step(&server, &refund(6.0), Some(&id)).await.0, 409);
    assert_eq!(strikes().await, 2);
    let (_, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW");
    assert_eq!(strikes().await, 2);
    assert_eq!(step(&server, &refund(5.0), Some(&id)).await.0, 409);
    assert_eq!(strikes().await, 3);
}

/// In shadow mode nothing waits.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_what_does_not_bind() {
    let server = Running::with(|settings| {
        people(settings);
        let pack = format!("{PACK}gateway: {{mode: shadow}}\n");
        std::fs::write(settings.policy.pack.as_ref().unwrap(), pack).unwrap();
    })
    .await;
    let (_, answer) = step(&server, &refund(5.0), None).await;
    assert_eq!(
        (&answer["decision"]["action"], &answer["enforced"]),
        (&json!("PAUSE"), &json!(false))
    );
    assert_eq!(answer.get("approval"), None);
    assert_eq!(say(&server, ALICE, "x", "approve").await.0, 404);
}

fn with(event: &Value, member: &str, value: &Value) -> Value {
    let mut event = event.clone();
    event[member] = value.clone();
    event
}

/// What a person is shown is all that was judged, and nothing of it may change.
#[tokio::test(flavor = "multi_thread")]
async fn empty_arguments_hide_no_text() {
    let server = served().await;
    let event = |text: &str| {
        with(
            &call("r", "deploy", &json!({})),
            "text_content",
            &json!(text),
        )
    };
    let id = paused(&server, &event("harmless")).await;
    let (_, kept) = get(&server, EMERSON, &format!("/{id}")).await;
    assert_eq!(kept["subject"]["text"], "harmless");
    let (_, decided) = say(&server, OPERATOR, &id, "approve").await;
    assert_eq!(decided["status"], "approved", "{decided}");
    let (status, answer) = step(&server, &event("harmful"), Some(&id)).await;
    assert_eq!((status, &answer["code"]), (409, &json!("approval_void")));
    let (_, answer) = step(&server, &event("harmless"), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW");
}

/// An agent that asks again and again asks once.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_step_waits_for_the_same_approval() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    assert_eq!(paused(&server, &refund(5.0)).await, id);
    assert_ne!(paused(&server, &refund(6.0)).await, id);
    approve(&server, &id).await;
    assert_ne!(
        paused(&server, &refund(5.0)).await,
        id,
        "that has its answer"
    );
}
