use crate::fixtures::run;

#[test]
fn rules_are_listed_and_explained() {
    let list = run(&["rule", "list"], "");
    insta::assert_snapshot!(list.out());
    for line in run(&["rule", "list", "--format", "json"], "").lines() {
        let id = line["id"].as_str().unwrap();
        let page = run(&["rule", "explain", id], "");
        assert_eq!(page.code(), 0);
        assert!(page.out().contains("## Configuration"), "{id}");
    }
    insta::assert_snapshot!(run(&["rule", "explain", "tool-allowlist"], "").out());
}

#[test]
fn an_unknown_rule_gets_the_nearest_name() {
    let done = run(&["rule", "explain", "tool-alowlist"], "");
    assert_eq!(done.code(), 2);
    assert_eq!(
        done.err(),
        "error: no rule `tool-alowlist`: did you mean `tool-allowlist`?\n"
    );
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = run(&["completions", shell], "");
        assert_eq!(done.code(), 0);
        assert!(done.out().contains("portcullis"), "{shell}");
    }
}

#[test]
fn help_shows_the_way_in() {
    insta::assert_snapshot!(run(&["--help"], "").out());
}

#[test]
fn output_has_no_colour_unless_somebody_sees_it() {
    for args in [
        &["rule", "list"][..],
        &["policy", "explain"],
        &["eval", "--format", "text", "examples/events.ndjson"],
    ] {
        assert!(!run(args, "").out().contains('\u{1b}'), "{args:?}");
    }
}
