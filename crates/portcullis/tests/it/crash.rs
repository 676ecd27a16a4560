//! A server that is killed has forgotten nothing that it acknowledged.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixtures::{Files, run};
use crate::served::{CONFIG, Connection, Served, evidence, memory, serve};

const CLIENTS: usize = 4;
/// How often the server is killed unless `PORTCULLIS_CRASHES` says otherwise.
const CRASHES: usize = 5;

/// A check that was answered.
struct Acknowledged {
    description: String,
    result: Value,
}

fn crashes() -> usize {
    std::env::var("PORTCULLIS_CRASHES").map_or(CRASHES, |count| count.parse().unwrap())
}

#[test]
fn every_acknowledged_check_outlives_kill_9() {
    let crashes = crashes();
    let files = Files::new();
    let config = files.write("server.yaml", &format!("{CONFIG}rate_limits: {{enabled: false}}\nevidence: {{checkpoint_every: 50, segment_bytes: 50000}}\n"));
    let data = files.path().join("data");
    let mut acknowledged = Vec::new();
    for crash in 0..crashes {
        let server = Served::start(serve(&data).args(["--config", &config, "--log", "error"]));
        let (answered, answers) = mpsc::channel();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut connection = server.connect();
                let answered = answered.clone();
                std::thread::spawn(move || {
                    for n in 0.. {
                        let description = format!("crash {crash} client {client} check {n}");
                        // Until the server is gone.
                        let Ok(answer) =
                            connection.check(&description, &format!("{crash}-{client}-{n}"))
                        else {
                            return;
                        };
                        let result = answer["result"].clone();
                        assert!(result.is_object(), "{answer}");
                        answered
                            .send(Acknowledged {
                                description,
                                result,
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        drop(answered);
        acknowledged.push(answers.recv().unwrap());
        // At any moment of a write: nothing can be waited for, so chance decides.
        std::thread::sleep(Duration::from_millis(
            RandomState::new().hash_one(crash) % 150,
        ));
        server.kill();
        for client in clients {
            client.join().unwrap();
        }
        acknowledged.extend(answers);
    }

    let server = Served::start(serve(&data).args(["--config", &config, "--log", "error"]));
    server
        .connect()
        .check("after all crashes", "after")
        .unwrap();
    assert_eq!(server.terminate().0.code(), Some(0));
    let folder = evidence(&data);
    let folder = folder.to_str().unwrap();
    let verified = run(&["evidence", "verify", folder], "");
    assert_eq!(verified.code(), 0, "{}{}", verified.out(), verified.err());

    let mut logged: HashMap<String, Vec<Value>> = HashMap::new();
    for entry in run(&["evidence", "show", folder, "--format", "json"], "").lines() {
        let action = entry["action"].as_str().unwrap_or_default().to_owned();
        logged.entry(action).or_default().push(entry);
    }
    assert!(acknowledged.len() >= crashes);
    for Acknowledged {
        description,
        result,
    } in &acknowledged
    {
        let entries = logged
            .get(description)
            .unwrap_or_else(|| panic!("{description} is lost"));
        assert_eq!(entries.len(), 1, "{description}");
        assert_eq!(entries[0]["timestamp"], result["evaluatedAt"]);
        assert_eq!(entries[0]["allowed"], result["allowed"]);
        assert_eq!(entries[0]["evaluated"], result["evaluated"]);
        assert_eq!(entries[0]["requesting_agent"], "tester");
    }
}

/// What a client was told, in the order in which it was told.
enum Told {
    Recorded { id: String, answer: Value },
    Reviewed { id: String, answer: Value },
    Announced { id: String, answer: Value },
}

/// One decision after the other, each with its review and an intent, until the server is gone.
fn decide(mut connection: Connection, name: &str, told: &mpsc::Sender<Told>) {
    for n in 0.. {
        let id = format!("{name}-{n}");
        let mut call = |method: &str, params: Value| {
            let answer = connection.call(method, &params, &id).ok()?;
            let result = answer["result"].clone();
            assert!(result.is_object(), "{method} {id}: {answer}");
            Some(result)
        };
        let decision =
            json!({"id": id, "decision": format!("Ship change {id}"), "confidence": 0.7});
        let review = json!({"id": id, "outcome": "partial", "lessons": format!("Learned {id}")});
        let intent =
            json!({"intent": format!("Ship change {id}"), "correlationId": format!("plan-{id}")});
        let Some(answer) = call("cstp.recordDecision", decision) else {
            return;
        };
        let recorded = Told::Recorded {
            id: id.clone(),
            answer,
        };
        told.send(recorded).unwrap();
        let Some(answer) = call("cstp.reviewDecision", review) else {
            return;
        };
        let reviewed = Told::Reviewed {
            id: id.clone(),
            answer,
        };
        told.send(reviewed).unwrap();
        let Some(answer) = call("cstp.announceIntent", intent) else {
            return;
        };
        told.send(Told::Announced { id, answer }).unwrap();
    }
}

#[test]
fn every_acknowledged_decision_outlives_kill_9() {
    let crashes = crashes();
    let files = Files::new();
    let config = files.write(
        "server.yaml",
        &format!("{CONFIG}rate_limits: {{enabled: false}}\nevidence: {{checkpoint_every: 50, segment_bytes: 50000}}\n"),
    );
    let data = files.path().join("data");
    let start = || Served::start(serve(&data).args(["--config", &config, "--log", "error"]));
    let mut acknowledged = Vec::new();
    for crash in 0..crashes {
        let server = start();
        let (told, hears) = mpsc::channel();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (connection, told) = (server.connect(), told.clone());
                std::thread::spawn(move || decide(connection, &format!("{crash}-{client}"), &told))
            })
            .collect();
        drop(told);
        acknowledged.push(hears.recv().unwrap());
        // At any moment of a write: nothing can be waited for, so chance decides.
        let moment = RandomState::new().hash_one(crash) % 250;
        std::thread::sleep(Duration::from_millis(moment));
        server.kill();
        for client in clients {
            client.join().unwrap();
        }
        acknowledged.extend(hears);
    }

    let server = start();
    let mut connection = server.connect();
    for told in &acknowledged {
        let mut ask = |method: &str, params: Value| {
            let answer = connection.call(method, &params, "after").unwrap();
            assert!(answer["result"].is_object(), "{params} is lost: {answer}");
            answer["result"].clone()
        };
        match told {
            Told::Recorded { id, answer } => {
                let kept = ask("cstp.getDecision", json!({"id": id}));
                assert_eq!(kept["decision"], format!("Ship change {id}"));
                assert_eq!(kept["date"], answer["date"]);
                assert_eq!(kept["agent"], "tester");
            }
            Told::Reviewed { id, answer } => {
                let kept = ask("cstp.getDecision", json!({"id": id}));
                assert_eq!(kept["reviews"][0]["lessons"], format!("Learned {id}"));
                assert_eq!(kept["reviews"][0]["date"], answer["date"]);
                assert_eq!(kept["reviews"][1], Value::Null);
            }
            Told::Announced { id, answer } => {
                let kept = ask(
                    "cstp.getIntent",
                    json!({"correlationId": answer["correlationId"]}),
                );
                assert_eq!(kept["revisions"][0]["intent"], format!("Ship change {id}"));
                assert_eq!(kept["revisions"][1], Value::Null);
            }
        }
    }
    // Found, too, and not only kept.
    let listed = connection
        .call("cstp.listDecisions", &json!({}), "list")
        .unwrap();
    let recorded = acknowledged
        .iter()
        .filter(|told| matches!(told, Told::Recorded { .. }))
        .count();
    let total = listed["result"]["total"].as_u64().unwrap();
    let unheard = u64::try_from(crashes * CLIENTS).unwrap();
    let recorded = u64::try_from(recorded).unwrap();
    assert!(
        (recorded..=recorded + unheard).contains(&total),
        "{recorded} were recorded, {total} are there"
    );
    assert_eq!(server.terminate().0.code(), Some(0));

    // Nothing was acknowledged that has no evidence.
    let folder = evidence(&data);
    let folder = folder.to_str().unwrap();
    let verified = run(&["evidence", "verify", folder], "");
    assert_eq!(verified.code(), 0, "{}{}", verified.out(), verified.err());
    let mut logged: HashMap<(String, String), usize> = HashMap::new();
    for entry in run(&["evidence", "show", folder, "--format", "json"], "").lines() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let about = match entry["event"].as_str() {
            Some("intent") => text("correlation_id"),
            _ => text("decision_id"),
        };
        *logged.entry((text("event"), about)).or_default() += 1;
    }
    for told in &acknowledged {
        let key = match told {
            Told::Recorded { id, .. } => ("decision_recorded".to_owned(), id.clone()),
            Told::Reviewed { id, .. } => ("decision_reviewed".to_owned(), id.clone()),
            Told::Announced { id, .. } => ("intent".to_owned(), format!("plan-{id}")),
        };
        assert_eq!(logged.get(&key), Some(&1), "{key:?}");
    }
    let file = memory(&data);
    let exported = run(&["decision", "export", "-m", file.to_str().unwrap()], "");
    assert_eq!(exported.lines().len() as u64, total);
}
