//! From a pause to the step that happens, once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    ALICE, OPERATOR, PACK, approve, call, entries, get, paused, people, refund, say, served, step,
};
use crate::harness::{EMERSON, Running};

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_somebody_and_then_happens_once() {
    let server = served().await;
    let (status, answer) = step(&server, &refund(5.0), None).await;
    assert_eq!(status, 200);
    let asked = &answer["approval"];
    assert_eq!(answer["decision"]["action"], "PAUSE");
    assert_eq!(asked["approver_roles"], json!(["finance"]));
    let expires: jiff::Timestamp = asked["expires"].as_str().unwrap().parse().unwrap();
    let left = expires.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((200..=300).contains(&left), "{left}");
    let id = asked["id"].as_str().unwrap();

    // Nobody has decided: it waits for the same.
    let (status, again) = step(&server, &refund(5.0), Some(id)).await;
    assert_eq!(status, 200);
    assert_eq!(again["decision"]["action"], "PAUSE");
    assert_eq!(&again["approval"], asked);

    let (status, decided) = say(&server, ALICE, id, "approve").await;
    assert_eq!(status, 200);
    assert_eq!(
        (&decided["status"], &decided["decided"]["by"]),
        (&json!("approved"), &json!("alice"))
    );
    let (status, gone_on) = step(&server, &refund(5.0), Some(id)).await;
    assert_eq!(status, 200);
    assert_eq!(gone_on["decision"]["action"], "ALLOW");
    assert_eq!(gone_on.get("approval"), None);
    let (status, twice) = step(&server, &refund(5.0), Some(id)).await;
    assert_eq!(
        (status, &twice["code"], &twice["error"]["field"]),
        (409, &json!("approval_used"), &json!("approval"))
    );
    assert_eq!(
        get(&server, EMERSON, &format!("/{id}")).await.1["status"],
        "used"
    );

    // All of it is in the evidence, and what the step was about is not.
    let steps = entries(&server, "guard_evaluation");
    let told: Vec<_> = steps
        .iter()
        .map(|entry| {
            let member = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            [
                member("decision"),
                member("approval_requested"),
                member("approval"),
                member("approval_outcome"),
                member("approval_by"),
            ]
        })
        .collect();
    assert_eq!(
        told,
        [
            ["PAUSE", id, "", "", ""],
            ["PAUSE", "", id, "pending", ""],
            ["ALLOW", "", id, "approved", "alice"],
            ["PAUSE", "", id, "used", ""],
        ]
        .map(|row| row.map(str::to_owned))
    );
    let decisions = entries(&server, "approval_decided");
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0]["requesting_agent"], "alice");
    assert_eq!(
        (&decisions[0]["approval"], &decisions[0]["decision"]),
        (&json!(id), &json!("approve"))
    );
    assert!(!json!(server.evidence()).to_string().contains("bob"));

    for (metric, count) in [
        ("approvals_requested_total", 1.0),
        ("approvals_decided_total{answer=\"approve\"}", 1.0),
        ("approvals_redeemed_total{outcome=\"approved\"}", 1.0),
        ("approvals_redeemed_total{outcome=\"used\"}", 1.0),
        ("approvals_waiting", 0.0),
    ] {
        let found = server.metric(&format!("portcullis_{metric}")).await;
        assert!((found - count).abs() < f64::EPSILON, "{metric}: {found}");
    }
    paused(&server, &refund(5.0)).await;
    let waiting = server.metric("portcullis_approvals_waiting").await;
    assert!((waiting - 1.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_ends_the_run_and_so_does_silence() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let body = json!({"decision": "deny", "note": "not this customer, token AKIAIOSFODNN7EXAMPLE"});
    let path = format!("/v1/approvals/{id}");
    let (status, denied) =
        super::ask(&server, ALICE, reqwest::Method::POST, &path, Some(body)).await;
    assert_eq!((status, &denied["status"]), (200, &json!("denied")));
    let (_, answer) = step(&server, &refund(5.0), Some(&id)).await;
    let decision = &answer["decision"];
    assert_eq!(decision["action"], "STOP", "{answer}");
    assert_eq!(decision["stop"]["error_code"], "APPROVAL_DENIED");
    assert_eq!(decision["retryable"], false);
    let reason = decision["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("alice said no: not this customer"),
        "{reason}"
    );
    let noted = &entries(&server, "approval_decided")[0]["note"];
    assert!(noted.as_str().unwrap().starts_with("not this customer"));
    let told = format!("{denied}{answer}{}", json!(server.evidence()));
    assert!(!told.contains("AKIA"), "{told}");
    // A no may be heard again: the first answer may have got lost.
    let (_, again) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(again["decision"]["stop"], answer["decision"]["stop"]);

    let brief = call("r", "brief", &json!({}));
    let id = paused(&server, &brief).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (status, late) = say(&server, ALICE, &id, "approve").await;
    assert_eq!((status, &late["code"]), (409, &json!("approval_settled")));
    let (_, answer) = step(&server, &brief, Some(&id)).await;
    assert_eq!(answer["decision"]["stop"]["error_code"], "APPROVAL_EXPIRED");
    assert_eq!(answer["decision"]["retryable"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_can_mean_yes() {
    let server = served().await;
    let event = call("r", "announce", &json!({"what": "the release"}));
    let id = paused(&server, &event).await;
    // It is good for as long again.
    let (_, silent) = get(&server, EMERSON, &format!("/{id}?wait_s=20")).await;
    assert_eq!(silent["status"], "approved", "{silent}");
    let (_, answer) = step(&server, &event, Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW", "{answer}");
    let steps = entries(&server, "guard_evaluation");
    assert_eq!(steps.last().unwrap()["approval_by"], "(timeout)");
    assert_eq!(step(&server, &event, Some(&id)).await.0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rules_that_pause_take_two_people() {
    let server = served().await;
    let large = refund(5000.0);
    let first = paused(&server, &large).await;
    approve(&server, &first).await;
    let (_, answer) = step(&server, &large, Some(&first)).await;
    assert_eq!(answer["decision"]["action"], "PAUSE", "{answer}");
    let second = answer["approval"]["id"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(answer["approval"]["approver_roles"], json!(["board"]));
    let (_, kept) = get(&server, OPERATOR, &format!("/{second}")).await;
    assert_eq!(
        kept["bound"]["rules"],
        json!(["refund-needs-approval", "large-refund"])
    );
    // What was said to the first is used up, whatever comes of the second.
    assert_eq!(step(&server, &large, Some(&first)).await.0, 409);
    let (status, _) = say(&server, ALICE, &second, "approve").await;
    assert_eq!(status, 404);
    let (status, _) = say(&server, OPERATOR, &second, "approve").await;
    assert_eq!(status, 200);
    let (_, answer) = step(&server, &large, Some(&second)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW", "{answer}");
    let last = entries(&server, "guard_evaluation").pop().unwrap();
    assert_eq!(last["approval_by"], "operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_go_on_one_does() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    approve(&server, &id).await;
    let event = refund(5.0);
    let all = (0..8).map(|_| step(&server, &event, Some(&id)));
    let answers = futures_util::future::join_all(all).await;
    let went = answers.iter().filter(|(status, _)| *status == 200);
    let went: Vec<&Value> = went
        .map(|(_, answer)| &answer["decision"]["action"])
        .collect();
    assert_eq!(went, [&json!("ALLOW")], "{answers:?}");
    let used = answers.iter().filter(|(status, _)| *status == 409).count();
    assert_eq!(used, 7);
    let steps = entries(&server, "guard_evaluation");
    let approved = steps
        .iter()
        .filter(|one| one["approval_outcome"] == "approved");
    assert_eq!(approved.count(), 1);
}

/// What is asked and what is answered outlives the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let (_, data) = server.stop().await;
    let server = Running::in_directory(data, people).await;
    approve(&server, &id).await;
    let (_, data) = server.stop().await;
    let server = Running::in_directory(data, people).await;
    let (_, answer) = step(&server, &refund(5.0), Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW", "{answer}");
    let (_, data) = server.stop().await;
    let server = Running::in_directory(data, people).await;
    assert_eq!(step(&server, &refund(5.0), Some(&id)).await.0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_redacted_stays_so() {
    let server = served().await;
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let event = call("r", "refund", &json!({"amount": 5.0, "key": secret}));
    let (_, answer) = step(&server, &event, None).await;
    let id = answer["approval"]["id"].as_str().unwrap().to_owned();
    let (_, shown) = get(&server, ALICE, &format!("/{id}")).await;
    assert_eq!(shown["subject"]["amount"], 5.0);
    assert!(!shown.to_string().contains(secret), "{shown}");
    approve(&server, &id).await;
    let (_, answer) = step(&server, &event, Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "REDACT", "{answer}");
    assert_eq!(answer["decision"]["redactions"][0]["path"], "/key");
}

/// A policy that takes no secrets out still shows them to nobody but the agent.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_not_kept_whatever_the_policy_says() {
    let server = Running::with(|settings| {
        people(settings);
        let pack = PACK.replace(
            "  - id: secret-redaction\n    events: [tool_call_start]\n    config: {families: [rfc]}\n",
            "",
        );
        std::fs::write(settings.policy.pack.as_ref().unwrap(), pack).unwrap();
    })
    .await;
    let event = call(
        "r",
        "refund",
        &json!({"amount": 5.0, "key": "AKIAIOSFODNN7EXAMPLE"}),
    );
    let id = paused(&server, &event).await;
    let (_, shown) = get(&server, ALICE, &format!("/{id}")).await;
    assert!(!shown.to_string().contains("AKIA"), "{shown}");
    approve(&server, &id).await;
    // It is bound to the step as the policy lets it be seen, all the same.
    let other = call(
        "r",
        "refund",
        &json!({"amount": 5.0, "key": "AKIAIOSFODNN7EXAMPLF"}),
    );
    assert_eq!(step(&server, &other, Some(&id)).await.0, 409);
    let (_, answer) = step(&server, &event, Some(&id)).await;
    assert_eq!(answer["decision"]["action"], "ALLOW", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_hears_of_it_at_once() {
    let server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let path = format!("/{id}?wait_s=30");
    let started = Instant::now();
    let (waited, ()) = tokio::join!(get(&server, EMERSON, &path), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        approve(&server, &id).await;
    });
    assert_eq!(waited.1["status"], "approved", "{waited:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
    // What is decided needs no waiting.
    let (_, at_once) = get(&server, EMERSON, &path).await;
    assert_eq!(at_once["status"], "approved");

    let id = paused(&server, &refund(6.0)).await;
    let (_, over) = get(&server, EMERSON, &format!("/{id}?wait_s=1")).await;
    assert_eq!(over["status"], "pending");
    for wrong in ["wait_s=61", "wait_s=-1", "wait_s=x", "wait=1"] {
        assert_eq!(
            get(&server, EMERSON, &format!("/{id}?{wrong}")).await.0,
            400,
            "{wrong}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_wait_at_one_time() {
    let server = Running::with(|settings| {
        people(settings);
        settings.server.max_requests = 6;
    })
    .await;
    let id = paused(&server, &refund(5.0)).await;
    let url = format!("http://{}/v1/approvals/{id}?wait_s=3", server.address);
    let all = (0..5).map(|_| reqwest::Client::new().get(&url).bearer_auth(EMERSON).send());
    let answers = futures_util::future::join_all(all).await;
    let (waited, refused): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .map(Result::unwrap)
        .partition(|answer| answer.status() == 200);
    assert_eq!((waited.len(), refused.len()), (3, 2));
    for answer in refused {
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
    }
}

/// Who paused it does not matter, as long as they keep approvals in one place.
#[tokio::test(flavor = "multi_thread")]
async fn servers_share_a_file() {
    let one = served().await;
    let path = one.data().join("approvals.db");
    let other = Running::with(|settings| {
        people(settings);
        settings.approvals.path = path;
    })
    .await;
    let id = paused(&one, &refund(5.0)).await;
    approve(&other, &id).await;
    let event = refund(5.0);
    let answers = tokio::join!(
        step(&one, &event, Some(&id)),
        step(&other, &event, Some(&id))
    );
    let mut statuses = [answers.0.0, answers.1.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{answers:?}");
}

/// Nobody who waits holds up a server that stops.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_when_the_server_stops() {
    let mut server = served().await;
    let id = paused(&server, &refund(5.0)).await;
    let url = format!("http://{}/v1/approvals/{id}?wait_s=60", server.address);
    let waiting = tokio::spawn(reqwest::Client::new().get(url).bearer_auth(EMERSON).send());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    server.begin_stop();
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert!(server.stopped().await.0);
    assert!(started.elapsed() < Duration::from_secs(20));
}
