//! Agents of the real A2A SDK that talk to each other, and the evidence of it.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::fixtures::{Files, root, run};
use crate::served::{CONFIG, Served, TOKEN, evidence, serve};

/// Has the two agents of `examples/a2a/demo.py` talk.
fn demo(gate: &str, more: &[&str]) -> Output {
    python()
        .arg(root().join("examples/a2a/demo.py"))
        .args([gate, TOKEN])
        .args(more)
        .output()
        .unwrap()
}

fn python() -> Command {
    let python = std::env::var("PORTCULLIS_PYTHON")
        .expect("PORTCULLIS_PYTHON is not set: scripts/test makes a .venv with scripts/requirements.txt and sets it");
    let mut command = Command::new(python);
    command
        .env("NO_PROXY", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// What core's tests import is what the SDK still sends.
#[test]
fn the_recordings_are_the_sdks() {
    let recorded = python()
        .arg(root().join("scripts/a2a_fixtures.py"))
        .arg("--check")
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
}

#[test]
fn what_two_agents_say_is_in_the_log() {
    for more in [
        &[][..],
        &["--fail-closed"],
        &["--protocol", "0.3", "--fail-closed"],
    ] {
        let files = Files::new();
        let config = files.write("server.yaml", CONFIG);
        let data = files.path().join("data");
        let server = Served::start(serve(&data).args(["--config", &config, "--log", "error"]));
        let output = demo(&server.url, more);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        // Two cards, four messages and two reads; as many answers, one of them a stream of four.
        for who in ["client", "server"] {
            let all = format!("{who}: 17 sent, 0 refused, 0 dropped");
            assert!(said.contains(&all), "{said}");
        }
        assert!(server.terminate().0.success());

        let folder = evidence(&data);
        let folder = folder.to_str().unwrap();
        assert_eq!(run(&["evidence", "verify", folder], "").code(), 0);
        let entries = run(&["evidence", "show", folder, "--format", "json"], "").lines();
        assert_is_evidence(&entries, &said);
    }
}

/// The batches of what the demonstration does, seen from both sides.
fn assert_is_evidence(entries: &[Value], said: &str) {
    let entries: Vec<_> = entries
        .iter()
        .filter(|entry| entry["event"] == "a2a_batch")
        .collect();
    let mut kinds = BTreeMap::<&str, usize>::new();
    let mut subjects = Vec::new();
    for entry in &entries {
        assert_eq!(entry["requesting_agent"], "tester");
        let event = &entry["batch"]["events"][0];
        *kinds.entry(event["type"].as_str().unwrap()).or_default() += 1;
        subjects.push(event["subject"].as_str().unwrap());
        assert_eq!(
            event["data"]["discovery"],
            json!({
                "agent_card_source_kind": "unknown", "agent_card_visible": false,
                "extended_card_access_visible": false, "signature_material_visible": false,
            })
        );
        let text = entry.to_string();
        assert!(
            !text.contains("Portugal") && !text.contains("Porto"),
            "{text}"
        );
    }
    let expected = BTreeMap::from([
        ("assay.adapter.a2a.agent.capabilities", 4),
        // An update, and three tasks that have it.
        ("assay.adapter.a2a.artifact.shared", 8),
        ("assay.adapter.a2a.task.requested", 8),
        // Three of a stream, three tasks, two messages.
        ("assay.adapter.a2a.task.updated", 16),
    ]);
    assert_eq!(kinds, expected);
    let tasks = said.lines().filter_map(|line| line.strip_prefix("task "));
    for task in tasks {
        assert!(subjects.contains(&task), "{task}");
    }
}

#[test]
fn agents_go_on_without_a_gate_unless_they_are_told_not_to() {
    // Nothing listens there.
    let gate = "http://127.0.0.1:9";
    let output = demo(gate, &[]);
    let open = said(&output);
    assert!(output.status.success(), "{open}");
    assert!(
        open.contains("client: 0 sent, 0 refused, 17 dropped"),
        "{open}"
    );

    let output = demo(gate, &["--fail-closed"]);
    let closed = said(&output);
    assert!(!output.status.success(), "{closed}");
    assert!(closed.contains("ObservationFailed"), "{closed}");
    assert!(!closed.contains("\ntask "), "{closed}");
}
