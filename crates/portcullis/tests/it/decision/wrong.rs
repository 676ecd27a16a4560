//! What cannot be: each says why, and what to do.

use std::path::Path;

use super::Memory;
use crate::fixtures::{run, run_in};

#[test]
fn wrong_words_are_refused_by_name() {
    let memory = Memory::with_a_dozen();
    let long = "x".repeat(100_000);
    for (args, said) in [
        (
            &["review", "dec-1", "sucess"] as &[&str],
            "did you mean `success`?",
        ),
        (
            &["review", "dec-99", "success"],
            "there is no decision `dec-99`",
        ),
        (&["show", "dec-99"], "portcullis decision list"),
        (&["show", ""], "id: must be one visible text"),
        (&["forget", "dec-99"], "portcullis decision list"),
        (&["record", ""], "decision: must say what was decided"),
        (&["record", " \n "], "decision: must say what was decided"),
        (&["record", &long], "decision: "),
        (&["record", "x", "--confidence", "nan"], "from 0 to 1"),
        (&["record", "x", "--confidence", "inf"], "from 0 to 1"),
        (&["record", "x", "--confidence", "2"], "from 0 to 1"),
        (&["record", "x", "--confidence", "-0.1"], "from 0 to 1"),
        (&["record", "x", "--confidence", "very"], "from 0 to 1"),
        (&["record", "x", "--stakes", "hihg"], "did you mean `high`?"),
        (&["record", "x", "--review-in", "soon"], "7d, 2w or P1M"),
        (&["record", "x", "--tag", " "], "tags[0]"),
        (&["record", "x", "--id", "a\nb"], "id: "),
        (
            &["record", "x", "--params", "y.json"],
            "cannot be used with",
        ),
        (
            &["record", "--params", "nowhere.json"],
            "cannot read nowhere.json",
        ),
        (&["record"], "required"),
        (&["list", "--limit", "0"], "limit"),
        (&["list", "--limit", "51"], "limit"),
        (&["list", "--next", "dec-99"], "take `next` from an answer"),
        (&["list", "--stakes", "none"], "filters.stakes"),
        (&["list", "--after", "yesterday"], "filters.dateAfter"),
        (&["list", "--min-confidence", "NaN"], "from 0 to 1"),
        (
            &["list", "--min-confidence", "0.9", "--max-confidence", "0.1"],
            "nothing could be found",
        ),
        (&["query", " "], "query: must say what to look for"),
        (
            &["query", "x", "--url", "http://127.0.0.1:1"],
            "give one of them",
        ),
    ] {
        let done = memory.run(args);
        let shown: String = format!("{args:?}").chars().take(100).collect();
        assert_eq!(done.code(), 2, "{shown}: {}", done.err());
        assert!(done.err().contains(said), "{shown}: {}", done.err());
        assert_eq!(done.out(), "", "{shown}");
    }
    assert_eq!(memory.json(&["list"])["total"], 12);
}

#[test]
fn parameters_may_be_large_but_not_too_large() {
    let memory = Memory::new();
    for (params, code, said) in [
        (
            format!(r#"{{"decision": "{}"}}"#, "x".repeat(1 << 20)),
            2,
            "decision: ",
        ),
        (
            format!(
                r#"{{"decision": "x", "context": "{}"}}"#,
                "y".repeat(60_000)
            ),
            0,
            "",
        ),
        (
            r#"{"decision": "x", "decisionn": 1}"#.to_owned(),
            2,
            "decisionn",
        ),
        (
            r#"{"decision": "x", "confidence": 2}"#.to_owned(),
            2,
            "confidence",
        ),
        (r#"{"decision": 7}"#.to_owned(), 2, "decision: "),
        ("[]".to_owned(), 2, "must be a JSON object"),
        ("{".to_owned(), 2, "standard input is not JSON"),
        (String::new(), 2, "standard input is not JSON"),
    ] {
        let done = run(
            &["decision", "record", "--params", "-", "-m", &memory.path],
            &params,
        );
        let shown: String = params.chars().take(60).collect();
        assert_eq!(done.code(), code, "{shown}: {}", done.err());
        assert!(done.err().contains(said), "{shown}: {}", done.err());
        assert!(done.err().len() < 1000, "{shown}");
    }
}

#[test]
fn a_memory_that_is_not_there_is_not_made_by_looking() {
    let memory = Memory::new();
    for args in [
        &["list"] as &[&str],
        &["show", "x"],
        &["query", "x"],
        &["review", "x", "success"],
        &["calibration"],
        &["export"],
        &["forget", "x"],
    ] {
        let done = memory.run(args);
        assert_eq!(done.code(), 2, "{args:?}: {}", done.err());
        let error = done.err();
        assert!(
            error.contains("there is no memory in") && error.contains("--memory"),
            "{error}"
        );
        // Only where there is such a flag.
        let has_url = !matches!(args[0], "export" | "forget");
        assert_eq!(error.contains("--url"), has_url, "{error}");
        assert!(!Path::new(&memory.path).exists(), "{args:?}");
    }
    // By default it is where a server in the same folder has it.
    let folder = memory.files.path();
    assert_eq!(run_in(folder, &["decision", "record", "x"], "").code(), 0);
    assert!(folder.join("portcullis-data/memory.db").exists());
}

#[test]
fn a_file_that_is_no_memory_is_named_and_left_alone() {
    let memory = Memory::with_a_dozen();
    let whole = std::fs::read(&memory.path).unwrap();
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let mut foreign = whole.clone();
    foreign[68..72].copy_from_slice(&7_u32.to_be_bytes());
    let folder = memory.files.path().to_str().unwrap().to_owned();
    for (path, code, said) in [
        (folder, 2, "is a directory: name a file in it"),
        (
            memory
                .files
                .write("text.db", &"no database, but text\n".repeat(100)),
            2,
            "is not a database",
        ),
        (
            memory.files.put("newer.db", newer),
            2,
            "upgrade the program",
        ),
        (
            memory.files.put("foreign.db", foreign),
            2,
            "another program",
        ),
    ] {
        let before = std::fs::read(&path).ok();
        for args in [
            &["list"] as &[&str],
            &["record", "x"],
            &["export"],
            &["forget", "dec-1"],
        ] {
            let done = run(&[&["decision"], args, &["-m", &path]].concat(), "");
            assert_eq!(done.code(), code, "{path} {args:?}: {}", done.err());
            assert!(done.err().contains(said), "{path} {args:?}: {}", done.err());
            assert!(
                done.err().contains(&path),
                "{path} {args:?}: {}",
                done.err()
            );
        }
        assert_eq!(std::fs::read(&path).ok(), before, "{path}");
    }
}

/// What a server would only log is said here: there is nobody else to say it to.
#[test]
fn a_damaged_file_is_named() {
    let memory = Memory::with_a_dozen();
    let mut bytes = std::fs::read(&memory.path).unwrap();
    bytes[4096..].fill(0xa5);
    let damaged = memory.files.put("damaged.db", bytes);
    for args in [
        &["list"] as &[&str],
        &["query", "x"],
        &["show", "dec-1"],
        &["record", "x"],
        &["calibration"],
        &["export"],
    ] {
        let done = run(&[&["decision"], args, &["-m", &damaged]].concat(), "");
        assert_eq!(done.code(), 3, "{args:?}: {}{}", done.out(), done.err());
        let error = done.err();
        assert!(
            error.contains("damaged.db") && error.contains("restore a backup"),
            "{args:?}: {error}"
        );
    }
}
