//! A server that is killed has forgotten nothing that it acknowledged.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::fixtures::{Files, run};
use crate::served::{CONFIG, Served, evidence, serve};

const CLIENTS: usize = 4;
/// How often the server is killed unless `PORTCULLIS_CRASHES` says otherwise.
const CRASHES: usize = 5;

/// A check that was answered.
struct Acknowledged {
    description: String,
    result: Value,
}

#[test]
fn every_acknowledged_check_outlives_kill_9() {
    let crashes =
        std::env::var("PORTCULLIS_CRASHES").map_or(CRASHES, |count| count.parse().unwrap());
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
