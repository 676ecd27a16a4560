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
        "error: no rule or detector `tool-alowlist`: did you mean `tool-allowlist`?\n"
    );
}

#[test]
fn detectors_are_listed_and_explained_by_any_of_their_names() {
    let kind = ["rule", "list", "--detectors", "--kind", "signals"];
    insta::assert_snapshot!(run(&kind, "").out());
    let page = run(&["rule", "explain", "secrets/rfc/aws-access-key"], "");
    insta::assert_snapshot!(page.out());
    for name in ["rfc/aws-access-key", "secrets/aws-access-key"] {
        let named = run(&["rule", "explain", name], "");
        assert_eq!(named.code(), 0, "{name}");
        assert!(named.out().contains(&page.out()), "{name}");
    }
    let all = run(&["rule", "list", "--detectors", "--format", "json"], "").lines();
    for one in [&all[0], all.last().unwrap()] {
        let part = |key: &str| one[key].as_str().unwrap().to_owned();
        let name = format!("{}/{}/{}", part("kind"), part("family"), part("id"));
        let explained = run(&["rule", "explain", "--format", "json", &name], "").lines();
        assert_eq!((explained.len(), &explained[0]), (1, one));
    }
}

#[test]
fn an_unknown_detector_gets_the_nearest_name_or_the_way_to_all() {
    for (name, help) in [
        (
            "secrets/aws-acess-key",
            "did you mean `secrets/aws-access-key`?",
        ),
        (
            "x",
            "see `portcullis rule list` and `portcullis rule list --detectors`",
        ),
    ] {
        let done = run(&["rule", "explain", name], "");
        assert_eq!(done.code(), 2);
        let expected = format!("error: no rule or detector `{name}`: {help}\n");
        assert_eq!(done.err(), expected);
    }
    let done = run(&["rule", "list", "--kind", "secrets"], "");
    assert_eq!(done.code(), 2, "--kind is for detectors");
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
