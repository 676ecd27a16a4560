//! What a broken pack is told: where, what, and what to do about it. The packs are in `cases/broken`,
//! each under its name; read the snapshots as a user would.

use std::fmt::Write;

use portcullis_core::pack::diagnostic::Report;

use crate::judge::{try_load, with_head};

#[test]
fn text_that_is_not_a_pack() {
    let mut page = reports(include_str!("cases/broken/documents.txt"), str::to_owned);
    let deep = format!("policy_pack: p\nversion: {}", "[".repeat(1000));
    for (name, text) in [
        ("an empty file", ""),
        ("a file of comments", "# to do\n"),
        ("a tab", "policy_pack: p\ngateway:\n\tmode: enforce\n"),
        (
            "a control character",
            "policy_pack: p\nversion: \"\u{1b}[31m\"\n",
        ),
        (
            "an escaped control character",
            "policy_pack: p\nversion: \"1\"\n\"\\e[31m\": 1\n",
        ),
        ("brackets without end", &deep),
    ] {
        refuse(&mut page, name, text, None);
    }
    insta::assert_snapshot!(page);
}

#[test]
fn keys_and_values_of_the_wrong_kind() {
    let page = reports(include_str!("cases/broken/values.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn rules_that_are_not_rules() {
    let page = reports(include_str!("cases/broken/rules.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn patterns_and_families() {
    let page = reports(include_str!("cases/broken/patterns.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn expressions() {
    let page = reports(include_str!("cases/broken/expressions.txt"), with_head);
    insta::assert_snapshot!(page);
}

/// `cel` recurses over these, and a stack that overflows takes the process with it.
#[test]
fn expressions_without_end_are_refused() {
    let chain = |link: &str, count: usize| format!("event.payload{} == 1", link.repeat(count));
    for when in [
        vec!["true"; 2000].join(" && "),
        chain(" + 1", 100),
        chain(" + 1", 2000),
        chain(".a", 4000),
        chain("[0]", 2000),
        chain(".size()", 1000),
        format!("true{}", " ? true : true".repeat(500)),
        format!("{}true{}", "(".repeat(4000), ")".repeat(4000)),
        format!("{}1{} == 1", "[".repeat(4000), "]".repeat(4000)),
        format!("{}1{} == 1", "{1: ".repeat(1000), "}".repeat(1000)),
        format!("{}true{}", "[1].all(x, ".repeat(300), ")".repeat(300)),
    ] {
        let pack = with_head(&format!(
            "sync_rules:\n- {{id: mine, rule: expression, config: {{when: \"{when}\"}}}}\n"
        ));
        let report = try_load(&pack, None).err().unwrap().to_string();
        let first = report.lines().next().unwrap();
        assert!(first.ends_with(": use several rules"), "{first}");
    }
}

#[test]
fn sequences() {
    let page = reports(include_str!("cases/broken/sequences.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn personal_data() {
    let page = reports(include_str!("cases/broken/personal.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn schemas() {
    let page = reports(include_str!("cases/broken/schemas.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn external_rules() {
    let page = reports(include_str!("cases/broken/external.txt"), with_head);
    insta::assert_snapshot!(page);
}

#[test]
fn rules_that_run_a_model() {
    let page = reports(include_str!("cases/broken/models.txt"), with_head);
    insta::assert_snapshot!(page);
}

/// Whatever is wrong with it, or near it.
#[test]
fn secrets_in_a_pack_are_not_shown() {
    let mut page = String::new();
    for (name, config) in [
        ("a password in a URL", "url: 'https://user:sk-hunter2@h'"),
        ("a key in a URL", "url: 'h?key=sk-hunter2'"),
        (
            "a key in a URL, and something else",
            "{url: 'http://h/?key=sk-hunter2', timeout: 5}",
        ),
        (
            "a password in a proxy",
            "{url: 'http://h', proxy: 'socks5://u:sk-hunter2@h'}",
        ),
        (
            "headers in one text",
            "{url: 'http://h', headers: 'Authorization: Bearer sk-hunter2'}",
        ),
        (
            "headers in a list",
            "url: http://h\n      headers:\n        - 'Authorization: Bearer sk-hunter2'",
        ),
        (
            "a name with its value",
            "url: http://h\n      headers:\n        'Authorization: Bearer sk-hunter2':",
        ),
        (
            "a value in a list",
            "url: http://h\n      headers:\n        Authorization: [Bearer sk-hunter2]",
        ),
        (
            "a header of ours",
            "url: http://h\n      headers: {Host: a, X-Api-Key: sk-hunter2}",
        ),
        (
            "a header that is there twice",
            "url: http://h\n      headers: {X-Key: sk-hunter1, x-key: sk-hunter2}",
        ),
        (
            "the same key twice",
            "url: http://h\n      headers: {Authorization: Bearer sk-hunter1, Authorization: Bearer sk-hunter2}",
        ),
        (
            "a control character",
            "url: http://h\n      headers: {X-Key: \"sk-hunter2\\n\"}",
        ),
        (
            "a variable that is none",
            "url: http://h\n      headers: {Authorization: 'Bearer ${sk-hunter2}'}",
        ),
        (
            "a variable without end",
            "url: http://h\n      headers: {Authorization: 'Bearer sk-hunter2${'}",
        ),
        (
            "a misspelt key",
            "url: http://h\n      header: {Authorization: Bearer sk-hunter2}",
        ),
        (
            "a quote that is not closed",
            "url: http://h\n      headers: {Authorization: 'Bearer sk-hunter2}",
        ),
    ] {
        let pack = with_head(&format!(
            "async_rules:\n  - id: presidio\n    config:\n      {config}\n"
        ));
        refuse(&mut page, name, &pack, None);
    }
    let warned = with_head(
        "risk_router: {suspicious_rules: []}\nasync_rules:\n  - id: presidio\n    config:\n      url: http://h\n      headers: {X-Api-Key: sk-hunter2}\n",
    );
    let warned = try_load(&warned, None).unwrap().warnings;
    show(&mut page, "a secret in the pack", &warned);
    assert!(!page.contains("hunter"), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn environments() {
    let two = "environments:\n  staging:\n    gateway: {mode: shadow}\n  production:\n";
    let wrong_mode = "environments:\n  staging:\n    gateway:\n      mode: shadwo\n  production:\n";
    let wrong_key = "environments:\n  staging:\n    sync_rules:\n      - id: secret-redaction\n        cofnig: {}\n  production:\n";
    let mut page = String::new();
    for (name, rest) in [
        (
            "a misspelt environment",
            two.replace("production", "porduction"),
        ),
        (
            "environments that are nothing like it",
            two.replace("production", "qa"),
        ),
        ("no environments", String::new()),
        (
            "environments that are none",
            "environments: [production]\n".to_owned(),
        ),
        (
            "an error in one that was not asked for",
            wrong_mode.to_owned(),
        ),
        (
            "an unknown key in one that was not asked for",
            wrong_key.to_owned(),
        ),
        (
            "an environment in an environment",
            "environments:\n  production:\n    environments: {}\n".to_owned(),
        ),
        (
            "an environment that is a word",
            "environments:\n  production: shadow\n".to_owned(),
        ),
    ] {
        refuse(&mut page, name, &with_head(&rest), Some("production"));
    }
    insta::assert_snapshot!(page);
}

#[test]
fn findings_that_do_not_prevent_use() {
    let mut page = String::new();
    for (name, rest) in [
        (
            "fail open",
            "gateway:\n  sync:\n    parallel: true\n    fail_open: true\n",
        ),
        ("no rules at all", "sync_rules: []\n"),
        (
            "nothing to look for",
            "sync_rules:\n  - id: secret-redaction\n    config: {families: []}\n",
        ),
        (
            "deep rules, and none of them for what is suspicious",
            "async_rules:\n  - id: presidio\n    config: {url: 'http://h'}\n  - id: hf-jailbreak\n    enabled: false\n",
        ),
        (
            "a classifier that sees only the text of an answer",
            "risk_router: {suspicious_rules: [a]}\nasync_rules:\n  - id: a\n    rule: http-classifier\n    events: [tool_call_result]\n    config: {url: 'http://h', response: {flagged: /f}}\n  - id: b\n    rule: http-classifier\n    config: {url: 'http://h', response: {flagged: /f}}\n",
        ),
        (
            "a pattern without fixed text",
            "sync_rules:\n  - id: secret-redaction\n    config:\n      patterns:\n        PIN: '[0-9]{4}'\n",
        ),
    ] {
        let warnings = try_load(&with_head(rest), None).unwrap().warnings;
        assert!(!warnings.diagnostics.has_errors());
        show(&mut page, name, &warnings);
    }
    insta::assert_snapshot!(page);
}

/// Whatever the line looks like, the caret stands under the place.
#[test]
fn the_caret_stands_where_the_column_says() {
    let tools = |name: &str| {
        let tools: Vec<String> = (0..60).map(|n| format!("{name}{n}: low")).collect();
        tools.join(", ")
    };
    let long = format!(
        "{{policy_pack: p, version: '1', tool_risks: {{{}, x: hgih, {}}}}}\n",
        tools("a"),
        tools("b")
    );
    let mut page = String::new();
    for (name, text) in [
        ("a long line", &*long),
        (
            "line ends of Windows",
            "policy_pack: p\r\nversion: \"1\"\r\nversoin: \"1\"\r\n",
        ),
        (
            "line ends of old",
            "policy_pack: p\rversion: \"1\"\rversoin: \"1\"\r",
        ),
        (
            "a byte order mark",
            "\u{feff}polcy_pack: p\npolicy_pack: p\nversion: \"1\"\n",
        ),
        ("a tab", "policy_pack: p\nversion: \"1\"\ngateway:\t5\n"),
        (
            "letters of several bytes",
            "{policy_pack: \"é🔑\", version: '1', versoin: '1'}\n",
        ),
        (
            "line ten",
            "policy_pack: p\nversion: \"1\"\n\n\n\n\n\n\n\nversoin: \"1\"\n",
        ),
    ] {
        refuse(&mut page, name, text, None);
    }
    insta::assert_snapshot!(page);
}

/// The reports of a file of packs, each after a line with its name.
fn reports(file: &str, complete: impl Fn(&str) -> String) -> String {
    let mut page = String::new();
    for case in file.split("=== ").skip(1) {
        let (name, pack) = case.split_once('\n').unwrap();
        refuse(&mut page, name, &complete(pack), None);
    }
    page
}

fn refuse(page: &mut String, name: &str, text: &str, env: Option<&str>) {
    let report = try_load(text, env)
        .err()
        .unwrap_or_else(|| panic!("{name}: this pack is fine:\n{text}"));
    assert!(report.diagnostics.has_errors());
    show(page, name, &report);
}

/// Adds a report to the page. Every finding in it is about something that is there.
fn show(page: &mut String, name: &str, report: &Report) {
    for finding in report.diagnostics.sorted() {
        let place = finding.place;
        assert!(place.line > 0 && place.column > 0, "{name}: {finding:?}");
        let mut lines = report.text.lines().flat_map(|line| line.split('\r'));
        let line = lines.nth(place.line - 1).unwrap_or_default();
        let length = line.chars().count();
        assert!(place.column <= length + 1, "{name}: {finding:?}");
    }
    writeln!(page, "# {name}\n\n{report}").unwrap();
}
