use serde_json::json;

use crate::fixtures::{Files, run};

const PACK: &str = r#"
policy_pack: desk
version: "1.0.0"
sync_rules:
  - id: tool-allowlist
    config: {allowed_tools: [search]}
  - id: secret-redaction
environments:
  dev: {gateway: {mode: shadow}}
"#;

#[test]
fn lint_passes_good_packs_and_fails_bad_ones() {
    let files = Files::new();
    let good = files.write("good.yaml", PACK);
    let bad = files.write("bad.yaml", &PACK.replace("allowed_tools", "alowed_tools"));
    let done = run(&["policy", "lint", &good], "");
    assert_eq!((done.code(), done.err()), (0, String::new()));
    assert!(
        done.out().contains("ok (2 rules, 1 environments"),
        "{}",
        done.out()
    );
    let done = run(&["policy", "lint", &good, &bad], "");
    assert_eq!(done.code(), 1);
    insta::assert_snapshot!(files.anonymous(done.out().split_once(")\n").unwrap().1), @r"
    bad.yaml:6:14: error: unknown key `alowed_tools` in this rule's `config`
      |
    6 |     config: {alowed_tools: [search]}
      |              ^^^^^^^^^^^^
      help: did you mean `allowed_tools`?
    ");
}

#[test]
fn lint_looks_at_each_pack_whatever_became_of_the_others() {
    let files = Files::new();
    let good = files.write("good.yaml", PACK);
    let bad = files.write("bad.yaml", &PACK.replace("allowed_tools", "alowed_tools"));
    let done = run(&["policy", "lint", "nowhere.yaml", &bad, &good], "");
    assert_eq!(done.code(), 2);
    assert!(done.err().contains("cannot read nowhere.yaml"));
    assert!(done.out().contains("alowed_tools") && done.out().contains("ok (2 rules"));
}

#[test]
fn lint_speaks_json() {
    let files = Files::new();
    let bad = files.write("bad.yaml", "policy_pack: x\nversion: 1\n");
    let done = run(&["policy", "lint", "--format", "json", &bad], "");
    assert_eq!(done.code(), 1);
    let report = &done.lines()[0];
    assert_eq!(report["ok"], false);
    assert_eq!(
        report["findings"],
        json!([{"level": "error", "line": 2, "column": 10, "message": "`version` must be text, not a number", "help": "put it in quotes"}])
    );
}

#[test]
fn warnings_fail_only_when_they_are_denied() {
    let files = Files::new();
    let pack = PACK.replace(
        "sync_rules",
        "gateway: {sync: {fail_open: true}}\nsync_rules",
    );
    let pack = files.write("open.yaml", &pack);
    let done = run(&["policy", "lint", &pack], "");
    assert_eq!(done.code(), 0);
    assert!(
        done.out().contains("warning: `sync.fail_open: true`"),
        "{}",
        done.out()
    );
    assert_eq!(
        run(&["policy", "lint", "--deny-warnings", &pack], "").code(),
        1
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_pack_without_end_is_refused() {
    let done = run(&["policy", "lint", "/dev/zero"], "");
    assert_eq!(done.code(), 2);
    assert!(
        done.err().contains("more than a pack may have"),
        "{}",
        done.err()
    );
}

/// A pack that lints loads, and one that loads lints.
#[test]
fn lint_and_eval_agree() {
    let files = Files::new();
    let edits = [
        ("", ""),
        ("allowed_tools", "allowd_tools"),
        ("[search]", "search"),
        ("secret-redaction", "secret-redactoin"),
        ("mode: shadow", "mode: shady"),
        ("\"1.0.0\"", "1.0"),
        ("sync_rules:", "sync_rules: {}\nx:"),
    ];
    for (index, (from, to)) in edits.into_iter().enumerate() {
        let text = if from.is_empty() {
            PACK.to_owned()
        } else {
            PACK.replace(from, to)
        };
        let pack = files.write(&format!("{index}.yaml"), &text);
        let lints = run(&["policy", "lint", &pack], "").code() == 0;
        let loads = run(&["eval", "--policy", &pack], "").code() == 0;
        assert_eq!(lints, loads, "{text}");
        assert_eq!(lints, index == 0, "{text}");
    }
}

#[test]
fn the_shipped_cases_hold() {
    for args in [
        &["policy", "test"][..],
        &["policy", "test", "policies/default.yaml"],
    ] {
        let done = run(args, "");
        assert_eq!(done.code(), 0, "{}", done.out());
        assert!(done.out().ends_with("passed, 0 failed\n"));
    }
}

#[test]
fn a_failing_case_shows_what_was_expected_and_what_came() {
    let files = Files::new();
    let pack = files.write("desk.yaml", PACK);
    files.write(
        "desk.cases.yaml",
        r#"
cases:
  - name: searching is fine
    event: {event_type: tool_call_start, tool_name: search}
    expect: {action: ALLOW}
  - name: deleting pauses
    event: {event_type: tool_call_start, tool_name: delete}
    expect: {action: PAUSE, rule: ask-first}
  - name: keys are hidden
    env: dev
    event: {event_type: llm_stream_chunk, text_content: "sk-abcdefghijklmnopqrst!"}
    expect: {action: REDACT, enforced: true, text: "[KEY]!", redactions: [{start_offset: 1}]}
"#,
    );
    let done = run(&["policy", "test", &pack], "");
    assert_eq!(done.code(), 1);
    insta::assert_snapshot!(files.anonymous(&done.out()));
    let done = run(&["policy", "test", "--format", "json", &pack], "");
    let passed: Vec<bool> = done
        .lines()
        .iter()
        .map(|line| line["passed"].as_bool().unwrap())
        .collect();
    assert_eq!(passed, [true, false, false]);
}

#[test]
fn cases_that_are_missing_or_wrong_are_bad_input() {
    let files = Files::new();
    let pack = files.write("desk.yaml", PACK);
    let done = run(&["policy", "test", &pack], "");
    assert_eq!(done.code(), 2);
    assert!(done.err().contains("desk.cases.yaml"), "{}", done.err());
    let cases = files.write(
        "bad.yaml",
        "cases:\n  - name: x\n    event: {event_type: llm_before, text_content: 5}\n    expect: {action: HALT}\n",
    );
    let done = run(&["policy", "test", &pack, "--cases", &cases], "");
    assert_eq!(done.code(), 2);
    insta::assert_snapshot!(files.anonymous(&done.err()));
}

#[test]
fn diff_shows_the_verdicts_that_would_change() {
    let files = Files::new();
    let old = files.write("old.yaml", PACK);
    let new = files.write(
        "new.yaml",
        &PACK
            .replace("[search]", "[search, delete]")
            .replace("  - id: secret-redaction\n", ""),
    );
    let same = run(
        &[
            "policy",
            "diff",
            &old,
            &old,
            "--events",
            "examples/events.ndjson",
        ],
        "",
    );
    assert_eq!(
        (same.code(), same.out()),
        (
            0,
            "10 events replayed, 0 verdicts would change\n".to_owned()
        )
    );
    let events = [
        json!({"event": {"event_type": "tool_call_start", "run_id": "r", "tool_name": "delete"}}),
        json!({"event": {"event_type": "tool_call_start", "run_id": "r", "tool_name": "search"}}),
        json!({"event": {"event_type": "llm_stream_chunk", "run_id": "r", "text_content": "sk-abcdefghijklmnopqrst"}}),
    ]
    .map(|event| format!("{event}\n"))
    .concat();
    let done = run(&["policy", "diff", &old, &new], &events);
    assert_eq!(done.code(), 1);
    insta::assert_snapshot!(done.out());
    let done = run(&["policy", "diff", &old, &new, "--format", "json"], &events);
    assert_eq!(done.lines()[0]["old"]["action"], "STOP");
    assert_eq!(done.lines()[0]["new"]["action"], "ALLOW");
    let done = run(&["policy", "diff", &old, &new], "nonsense\n");
    assert_eq!(done.code(), 2);
}

#[test]
fn a_pack_is_explained_however_it_is_named() {
    let files = Files::new();
    let pack = files.write("pack.yaml", PACK);
    let by_option = run(&["policy", "explain", "--policy", &pack], "");
    let by_place = run(&["policy", "explain", &pack], "");
    assert_eq!((by_place.code(), by_place.out()), (0, by_option.out()));
    let both = run(&["policy", "explain", &pack, "--policy", &pack], "");
    assert_eq!(both.code(), 2);
}

#[test]
fn explain_says_what_the_built_in_pack_does() {
    let done = run(&["policy", "explain"], "");
    assert_eq!(done.code(), 0);
    let out = done.out();
    let without_digest: String = out.lines().filter(|line| !line.starts_with("digest")).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    );
    insta::assert_snapshot!(without_digest);
    let json = &run(
        &["policy", "explain", "--format", "json", "--env", "dev"],
        "",
    )
    .lines()[0];
    assert_eq!(json["gateway"]["mode"], "shadow");
}
