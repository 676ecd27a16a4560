//! `portcullis decision`, with a file and with a server.

mod files;
mod import;
mod server;
mod wrong;

use serde_json::Value;

use crate::fixtures::{Done, Files, run};

/// A memory in a file of its own.
struct Memory {
    files: Files,
    path: String,
}

impl Memory {
    /// One that is not there yet.
    fn new() -> Self {
        let files = Files::new();
        let path = files.path().join("memory.db");
        let path = path.to_str().unwrap().to_owned();
        Self { files, path }
    }

    /// One with the decisions of [`dozen`].
    fn with_a_dozen() -> Self {
        let memory = Self::new();
        let dozen = memory.files.write("dozen.jsonl", &dozen());
        memory.ok(&["import", &dozen]);
        memory
    }

    fn run(&self, args: &[&str]) -> Done {
        let args = [&["decision"], args, &["--memory", &self.path]].concat();
        run(&args, "")
    }

    /// What it prints, if all is well.
    fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code(), 0, "{args:?}: {}{}", done.out(), done.err());
        assert_eq!(done.err(), "", "{args:?}");
        done.out()
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--format", "json"]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// All that is in it, a decision a line.
    fn exported(&self) -> String {
        self.ok(&["export"])
    }
}

/// Twelve decisions about two things; of eleven it is known what came of them.
fn dozen() -> String {
    let outcomes = [
        ("Deploy the login service", 0.95, "failure"),
        ("Deploy the billing service", 0.95, "success"),
        ("Deploy the search service", 0.9, "failure"),
        ("Deploy the mail service", 0.85, "failure"),
        ("Deploy the export service", 0.85, "success"),
        ("Use PostgreSQL for the ledger", 0.8, "success"),
        ("Use SQLite for the memory", 0.75, "success"),
        ("Use Kafka for the audit trail", 0.6, "partial"),
        ("Use Redis for the sessions", 0.55, "abandoned"),
        ("Use gRPC between the services", 0.3, "failure"),
        ("Use one repository", 0.7, "success"),
        ("Use feature flags", 0.65, ""),
    ];
    let lines = outcomes
        .iter()
        .enumerate()
        .map(|(n, (decision, confidence, outcome))| {
            let category = decision.split(' ').next().unwrap().to_lowercase();
            let day = n + 1;
            let review = match *outcome {
                "" => String::new(),
                outcome => format!(
                    r#","outcome":"{outcome}","lessons":"Lesson {day}","reviewed_at":"2026-02-{day:02}""#
                ),
            };
            format!(
                r#"{{"id":"dec-{day}","decision":"{decision}","confidence":{confidence},"category":"{category}","date":"2026-01-{day:02}"{review}}}"#
            )
        });
    lines.map(|line| line + "\n").collect()
}

/// Text without what is different every time: dates of today, random ids, durations, and distances, which
/// are the index's business.
fn lasting(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut begins = true;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let end = &word[bare.len()..];
        let like = |pattern: &str| {
            bare.len() >= pattern.len()
                && pattern.bytes().zip(bare.bytes()).all(|(p, b)| match p {
                    b'0' => b.is_ascii_digit(),
                    p => p == b,
                })
        };
        let random = |id: &str| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        if bare == "ms"
            && let Some(number) = words.last_mut()
        {
            "# ".clone_into(number);
        }
        words.push(if like("0000-00-00") && !bare.starts_with("2026-0") {
            format!("<date>{end}")
        } else if bare.strip_prefix("dec-").is_some_and(random) {
            format!("<id>{end}")
        } else if begins && bare.len() == 4 && like("0.00") {
            format!("#.##{end}")
        } else {
            word.to_owned()
        });
        begins = end == "\n" || (begins && bare.is_empty()) || bare == "before";
    }
    words.concat()
}

#[test]
fn a_decision_from_its_record_to_another_file() {
    let memory = Memory::new();
    let recorded = memory.ok(&[
        "record",
        "Deploy auth service v2.1 with a 30 minute rollback window\nTo all regions",
        "--id",
        "dec-123",
        "--confidence",
        "0.85",
        "--stakes",
        "high",
        "--category",
        "architecture",
        "--context",
        "The old one leaks memory.\nNobody is on call at night.",
        "--reason",
        "analysis: all tests pass",
        "--reason",
        "https://ci.example/42 is green",
        "--tag",
        "auth",
        "--tag",
        "rollout",
        "--review-in",
        "7d",
    ]);
    let again = memory.ok(&["record", "Use one repository"]);
    let reviewed = memory.ok(&[
        "review",
        "dec-123",
        "partial",
        "--result",
        "Two regions had to be rolled back",
        "--lessons",
        "Keep the window\nat 30 minutes",
    ]);
    let said = [
        recorded,
        again,
        reviewed,
        memory.ok(&["show", "dec-123"]),
        memory.ok(&["list"]),
        memory.ok(&["list", "--limit", "1"]),
        memory.ok(&["list", "--outcome", "failure"]),
        memory.ok(&[
            "query",
            "ship the login service",
            "--reasons",
            "--tag",
            "auth",
        ]),
        memory.ok(&["calibration"]),
    ];
    insta::assert_snapshot!(lasting(&said.join("----\n")));

    let shown = memory.json(&["show", "dec-123"]);
    assert_eq!(shown["reasons"][0]["text"], "all tests pass");
    assert_eq!(
        shown["reasons"][1]["text"],
        "https://ci.example/42 is green"
    );
    let page = memory.json(&["list", "--limit", "1"]);
    let next = page["next"].as_str().unwrap();
    let rest = memory.json(&["list", "--next", next]);
    assert_eq!(rest["decisions"][0]["id"], "dec-123");

    let other = Memory::new();
    let backup = memory.files.path().join("backup.jsonl");
    let backup = backup.to_str().unwrap();
    memory.ok(&["export", backup]);
    assert_eq!(
        other.ok(&["import", backup]),
        "imported 2 decisions from 1 file; 0 already known, 0 skipped\n"
    );
    assert_eq!(other.exported(), memory.exported());
    assert_eq!(other.exported(), std::fs::read_to_string(backup).unwrap());

    assert_eq!(memory.ok(&["forget", "dec-123"]), "forgotten\n");
    assert_eq!(memory.run(&["show", "dec-123"]).code(), 2);
    assert_eq!(memory.run(&["forget", "dec-123"]).code(), 2);
    assert_eq!(memory.json(&["list"])["total"], 1);
}

#[test]
fn calibration_is_drawn() {
    let memory = Memory::with_a_dozen();
    insta::assert_snapshot!(memory.ok(&["calibration"]));
    insta::assert_snapshot!(memory.ok(&["calibration", "--category", "deploy"]));
    let none = memory.ok(&["calibration", "--agent", "nobody"]);
    assert!(
        none.starts_with("no reviewed decision had a confidence\n"),
        "{none}"
    );
}

#[test]
fn what_is_found_reads_well() {
    let memory = Memory::with_a_dozen();
    let said = [
        memory.ok(&["query", "Use SQLite for the memory", "--limit", "1"]),
        memory.ok(&[
            "query",
            "service",
            "--outcome",
            "abandoned",
            "--stakes",
            "critical",
        ]),
        memory.ok(&["list", "--after", "2026-01-10", "--before", "2026-01-12"]),
        memory.ok(&["list", "--status", "pending"]),
    ];
    insta::assert_snapshot!(lasting(&said.join("----\n")));
}

#[test]
fn help_says_what_there_is() {
    insta::assert_snapshot!(run(&["decision", "--help"], "").out());
    insta::assert_snapshot!(run(&["decision", "query", "--help"], "").out());
    for command in [&["check"][..], &["intent"], &["guardrail", "list"]] {
        let help = run(&[command, &["--help"]].concat(), "").out();
        assert!(help.contains("[default: http://127.0.0.1:8100]"), "{help}");
    }
}

#[test]
fn what_is_repeated_is_known() {
    let memory = Memory::new();
    let record = [
        "record",
        "Use one repository",
        "--id",
        "dec-1",
        "--confidence",
        "0.5",
    ];
    assert_eq!(memory.json(&record)["alreadyKnown"], false);
    assert_eq!(memory.json(&record)["alreadyKnown"], true);
    assert!(memory.ok(&record).starts_with("already known  dec-1"));
    let other = memory.run(&["record", "Use two repositories", "--id", "dec-1"]);
    assert_eq!(other.code(), 2);
    assert!(
        other.err().contains("another decision has it"),
        "{}",
        other.err()
    );
    assert_eq!(memory.exported().lines().count(), 1);
}

#[test]
fn secrets_do_not_reach_the_file() {
    let memory = Memory::new();
    let secret = "AKIAQYLPMN5HHHFPZAM2";
    let text = format!("Rotate the key {secret}");
    memory.ok(&[
        "record",
        &text,
        "--id",
        "dec-1",
        "--context",
        &text,
        "--reason",
        &text,
    ]);
    memory.ok(&[
        "review",
        "dec-1",
        "success",
        "--lessons",
        &text,
        "--result",
        &text,
    ]);
    let line =
        format!(r#"{{"id":"dec-2","decision":"{text}","outcome":"success","lessons":"{text}"}}"#);
    let file = memory.files.write("more.jsonl", &line);
    memory.ok(&["import", &file]);
    assert_eq!(memory.exported().lines().count(), 2);
    assert!(!memory.exported().contains(secret));
    for entry in std::fs::read_dir(memory.files.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str() != Some(&file) {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    memory.ok(&["query", &text]);
}
