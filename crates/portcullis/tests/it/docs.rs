//! What the documentation shows works.

use crate::fixtures::{Files, root, run};

/// The fenced blocks of a language in a Markdown file.
pub(crate) fn blocks(file: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    text.split("\n```")
        .filter_map(|part| part.strip_prefix(&format!("{language}\n")))
        .map(str::to_owned)
        .collect()
}

/// Cases say in a comment which file they are: `NAME.cases.yaml`, for the pack `NAME`.
#[test]
fn every_pack_in_the_documentation_loads_and_its_cases_hold() {
    let files = Files::new();
    let (mut packs, mut tested) = (0, 0);
    for file in [
        "README.md",
        "docs/guide.md",
        "docs/alerts.md",
        "docs/approvals.md",
    ] {
        for block in blocks(file, "yaml") {
            if let Some(name) = value_after(&block, "policy_pack: ") {
                packs += 1;
                let pack = files.write(&format!("{name}.yaml"), &block);
                let done = run(&["policy", "lint", "--deny-warnings", &pack], "");
                assert_eq!(done.code(), 0, "{file}: {}", done.out());
            } else if let Some(name) = value_after(&block, "# ")
                && let Some(pack) = name.strip_suffix(".cases.yaml")
            {
                tested += 1;
                let pack = files.path().join(format!("{pack}.yaml"));
                let cases = files.write(name, &block);
                let pack = pack.to_str().unwrap();
                let done = run(&["policy", "test", pack, "--cases", &cases], "");
                assert_eq!(done.code(), 0, "{file}: {}{}", done.out(), done.err());
            }
        }
    }
    assert_eq!((packs, tested), (10, 8));
}

/// The guide's packet becomes what the guide shows.
#[test]
fn the_guide_to_a2a_shows_what_comes_out() {
    let files = Files::new();
    let packet = &blocks("docs/a2a.md", "json")[0];
    let packet = files.write("packet.json", &format!("{packet}\n"));
    let done = run(&["a2a", "convert", "--format", "text", &packet], "");
    let shown = &blocks("docs/a2a.md", "text")[0];
    assert_eq!(done.out().trim_end(), shown.trim_end());
}

/// The rest of the first line that begins with this.
fn value_after<'b>(block: &'b str, start: &str) -> Option<&'b str> {
    block.lines().find_map(|line| line.strip_prefix(start))
}

/// Each example of a rule's page is the `sync_rules` of a pack.
#[test]
fn every_example_of_a_rule_loads() {
    let files = Files::new();
    let examples: Vec<String> = blocks("docs/rules.md", "yaml");
    assert!(examples.len() >= 5);
    for example in examples {
        let pack = files.write(
            "example.yaml",
            &format!("policy_pack: x\nversion: '1'\n{example}"),
        );
        let done = run(&["policy", "lint", &pack], "");
        assert_eq!(done.code(), 0, "{}", done.out());
    }
}

#[test]
fn the_echo_lines_of_the_documentation_are_steps() {
    for file in ["README.md", "docs/guide.md"] {
        for block in blocks(file, "sh")
            .iter()
            .filter(|block| block.starts_with("echo '"))
        {
            let line = block.split('\'').nth(1).unwrap();
            let done = run(&["eval"], format!("{line}\n"));
            assert_eq!(done.code(), 0, "{file}: {line}");
        }
    }
}

/// The example has every key, and so has the guide's table.
#[test]
fn the_servers_configurations_load_and_their_keys_are_explained() {
    let variable = |name: &str| {
        let known = name.starts_with("CSTP_TOKEN_") || name == "REDIS_PASSWORD";
        known.then(|| format!("a-token-for-{name}"))
    };
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let load = |file: &str, text: &str| {
        let loaded = portcullis_server::config::load(file, text, &variable);
        loaded.map_err(|report| report.to_string()).unwrap()
    };
    let example = read("examples/server.yaml");
    let guide = read("docs/server.md");
    let settings = load("examples/server.yaml", &example);
    assert_eq!(settings.auth.tokens.len(), 2);
    let in_guide: Vec<_> = blocks("docs/server.md", "yaml")
        .into_iter()
        .filter(|block| block.starts_with("server:"))
        .collect();
    assert_eq!(in_guide.len(), 1);
    load("docs/server.md", &in_guide[0]);
    for line in example.lines() {
        // Some keys are there as comments, because their values would not suit everybody.
        let line = line.trim_start_matches(['#', ' ', '-']);
        if let Some((key, _)) = line.split_once(':')
            && key
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            assert!(guide.contains(key), "{key}");
        }
    }
    for block in blocks("docs/alerts.md", "yaml") {
        if block.starts_with("alerts:") || block.starts_with("auth:") {
            load("docs/alerts.md", &block);
        }
    }
    let approvals = blocks("docs/approvals.md", "yaml");
    let about_server = ["# server.yaml", "approvals:"];
    let approvals: Vec<_> = approvals
        .iter()
        .filter(|block| about_server.iter().any(|start| block.starts_with(start)))
        .collect();
    assert_eq!(approvals.len(), 2);
    for block in approvals {
        load("docs/approvals.md", block);
    }
    let deep = blocks("docs/deep.md", "yaml");
    let deep: Vec<_> = deep
        .iter()
        .filter(|block| block.contains("deep:"))
        .collect();
    assert_eq!(deep.len(), 3);
    for block in deep {
        load("docs/deep.md", block);
    }
    let guardrails = root().join("examples/guardrails");
    let guardrails = guardrails.to_str().unwrap();
    let done = run(&["guardrail", "lint", "--deny-warnings", guardrails], "");
    assert_eq!(done.code(), 0, "{}", done.out());
}
