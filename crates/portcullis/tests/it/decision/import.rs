//! Taking decisions in.

use super::{Memory, dozen};
use crate::fixtures::run;

fn folder(memory: &Memory) -> String {
    for (name, text) in [
        (
            "in/a.yaml",
            "id: dec-1\ndecision: Use YAML\nconfidence: 0.5\n",
        ),
        (
            "in/b.json",
            r#"{"decisions": [{"id": "dec-2", "decision": "Use JSON"}, {"id": "dec-3", "decision": " "}]}"#,
        ),
        (
            "in/deep/c.ndjson",
            "{\"id\":\"dec-4\",\"decision\":\"Use lines\"}\n\n{oops\n{\"id\":\"dec-5\",\"decision\":\"Surely\",\"confidence\":2}\n",
        ),
        ("in/broken.yml", "id: [dec-6\n"),
        ("in/notes.txt", "not a decision"),
        // One id twice: the same, and another.
        (
            "in/twice.jsonl",
            "{\"id\":\"dec-1\",\"decision\":\"Use YAML\",\"confidence\":0.5}\n{\"id\":\"dec-1\",\"decision\":\"Use TOML\"}\n",
        ),
        (
            "in/older.yaml",
            "id: a42a3514\nsummary: Use PostgreSQL\ncreated_at: 2026-01-10T08:00:00Z\nagent_id: emerson\nstatus: reviewed\n\
             outcome: partial\nactual_result: It was slow\nlessons: Pool connections\npr: 42\nreasons: [we know it]\n",
        ),
    ] {
        memory.files.write(name, text);
    }
    memory.files.put("in/binary.json", [0xff, 0xfe, 0, 1]);
    memory.files.path().join("in").to_str().unwrap().to_owned()
}

#[test]
fn a_folder_goes_in_as_far_as_it_can_be_read() {
    let memory = Memory::new();
    let folder = folder(&memory);
    let done = memory.run(&["import", &folder, "nowhere.json"]);
    assert_eq!(done.code(), 2, "{}", done.err());
    insta::assert_snapshot!(memory.files.anonymous(&done.out()));

    let older = memory.json(&["show", "a42a3514"]);
    assert_eq!(older["decision"], "Use PostgreSQL");
    assert_eq!(older["date"], "2026-01-10T08:00:00Z");
    assert_eq!(older["agent"], "emerson");
    assert_eq!(older["reviews"][0]["actualResult"], "It was slow");
    assert_eq!(older["outcome"], "partial");

    let before = memory.exported();
    let again = memory.run(&["import", &folder, "--format", "json"]);
    assert_eq!(again.code(), 2);
    let report = &again.lines()[0];
    assert_eq!(report["imported"], 0);
    assert_eq!(report["alreadyKnown"], 5);
    assert_eq!(report["skipped"].as_array().unwrap().len(), 6);
    assert!(
        report["skipped"][0]["file"]
            .as_str()
            .unwrap()
            .starts_with(&folder)
    );
    assert_eq!(report["ignoredFields"]["pr"], 1);
    assert_eq!(memory.exported(), before);
}

#[test]
fn a_dry_run_keeps_nothing() {
    let memory = Memory::new();
    let folder = folder(&memory);
    let done = memory.run(&["import", &folder, "--dry-run", "--format", "json"]);
    assert_eq!(done.code(), 2);
    assert_eq!(done.lines()[0]["dryRun"], true);
    assert!(!std::path::Path::new(&memory.path).exists());
    let file = memory.files.write("dozen.jsonl", &dozen());
    assert_eq!(
        memory.ok(&["import", &file, "--dry-run"]),
        "would import 12 decisions from 1 file; 0 already known, 0 skipped\n"
    );
    assert!(!std::path::Path::new(&memory.path).exists());
    // Nor does an import of nothing.
    assert_eq!(memory.run(&["import", "nowhere"]).code(), 2);
    assert!(!std::path::Path::new(&memory.path).exists());
}

#[test]
fn an_import_can_be_repeated() {
    let memory = Memory::with_a_dozen();
    let file = memory.files.path().join("dozen.jsonl");
    assert_eq!(
        memory.ok(&["import", file.to_str().unwrap()]),
        "imported 0 decisions from 1 file; 12 already known, 0 skipped\n"
    );
    // A decision without a date is the same tomorrow.
    let dateless = memory
        .files
        .write("dateless.json", r#"{"decision": "Use JSON"}"#);
    assert!(
        memory
            .ok(&["import", &dateless])
            .starts_with("imported 1 decision ")
    );
    assert!(memory.ok(&["import", &dateless]).starts_with("imported 0 "));
}

#[test]
fn lines_come_through_a_pipe() {
    let memory = Memory::new();
    let done = run(&["decision", "import", "-", "-m", &memory.path], dozen());
    assert_eq!(done.code(), 0, "{}", done.err());
    assert_eq!(memory.json(&["list"])["total"], 12);
    let done = run(&["decision", "import", "-", "-m", &memory.path], "{oops");
    assert_eq!(done.code(), 2);
    assert!(
        done.out().contains("skipped standard input: line 1"),
        "{}",
        done.out()
    );
    // What is named is read or refused, never passed over.
    let text = memory.files.write("backup.txt", &dozen());
    let done = memory.run(&["import", &text]);
    assert_eq!(done.code(), 2);
    assert!(done.out().contains("give `-`"), "{}", done.out());
    let link = memory.files.path().join("link.jsonl");
    let target = memory
        .files
        .write("target.jsonl", "{\"decision\": \"Use links\"}");
    std::os::unix::fs::symlink(target, &link).unwrap();
    let linked = memory.ok(&["import", link.to_str().unwrap()]);
    assert!(linked.starts_with("imported 1 decision "), "{linked}");
}
