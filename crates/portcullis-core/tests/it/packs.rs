//! Policy packs: what they say is what the policy does (RFC-001 §10).

use std::sync::Arc;

use portcullis_core::pack::{self, Pack, diagnostic::Report};
use portcullis_core::rules::{Rule, RuleError, RuleInfo, RuleInput, RuleSettings, ToolAllowlist};
use portcullis_core::scan::EventSet;
use portcullis_core::{
    Action, Decision, Event, EventType, Mode, Policy, PolicyBuilder, RuleId, Severity, StopSpec,
    ToolRiskTier,
};
use serde_json::Map;

use crate::judge::{judge_fresh, load, load_in, try_load, with_head};

pub(crate) const RFC: &str = include_str!("fixtures/rfc-section-10.yaml");

fn rule_ids(policy: &Policy) -> Vec<&str> {
    policy
        .rules()
        .iter()
        .map(|rule| rule.id().as_str())
        .collect()
}

fn action_on(policy: &Policy, tool: &str) -> Action {
    judge_fresh(policy, &Event::tool_call_start("r", tool, Map::new())).action
}

#[test]
fn the_pack_of_the_rfc_loads_unchanged() {
    for (env, mode) in [
        (None, Mode::Enforce),
        (Some("dev"), Mode::Shadow),
        (Some("prod"), Mode::Enforce),
    ] {
        let loaded = try_load(RFC, env).unwrap();
        assert!(
            loaded.warnings.diagnostics.is_empty(),
            "{}",
            loaded.warnings
        );
        let policy = loaded.policy;
        assert_eq!(policy.identity().id, "default");
        assert_eq!(policy.identity().version, "1.0.0");
        let gateway = policy.gateway();
        assert_eq!(gateway.mode, mode, "{env:?}");
        assert_eq!(gateway.sync_timeout_ms, 15.0);
        assert!(gateway.sync_parallel && !gateway.sync_fail_open);
        assert!(gateway.async_enabled && gateway.async_fail_open);
        assert_eq!(
            rule_ids(&policy),
            ["tool-allowlist", "secret-redaction", "injection-patterns"]
        );
        let [deep] = policy.deep_rules() else {
            panic!("{:?}", policy.deep_rules());
        };
        assert_eq!((deep.id.as_str(), deep.enabled), ("hf-jailbreak", true));
        assert_eq!(deep.config().unwrap()["threshold"], 0.85);
        assert_eq!(action_on(&policy, "admin.execute"), Action::Stop);
        assert_eq!(action_on(&policy, "filesystem.read"), Action::Allow);
    }
}

#[test]
fn the_default_pack_has_the_rfcs_rules_and_its_deep_rule_off() {
    let loaded = pack::load_default().unwrap();
    assert!(
        loaded.warnings.diagnostics.is_empty(),
        "{}",
        loaded.warnings
    );
    let (ours, rfc) = (loaded.policy, load(RFC));
    let ids = rule_ids(&ours);
    assert!(rule_ids(&rfc).iter().all(|id| ids.contains(id)), "{ids:?}");
    assert_eq!(ours.tool_risks(), rfc.tool_risks());
    assert_eq!(ours.gateway(), rfc.gateway());
    assert_eq!(ours.limits().max_text_bytes, 1 << 20);
    assert!(ours.deep_rules().iter().all(|rule| !rule.enabled));
    assert_eq!(pack::load_default().unwrap().environments, ["dev", "prod"]);
    assert_eq!(
        load_in(pack::DEFAULT, Some("dev")).gateway().mode,
        Mode::Shadow
    );
}

#[test]
fn a_pack_without_rules_is_a_policy_of_its_own() {
    let policy = load(&with_head(""));
    assert!(!policy.is_absent());
    assert_eq!(
        judge_fresh(&policy, &Event::llm_before("r", "jailbreak")).rule_id,
        RuleId::DEFAULT
    );
}

#[test]
fn rules_are_enabled_unless_the_pack_says_otherwise() {
    for (enabled, expected) in [
        ("", Action::Stop),
        ("enabled: true,", Action::Stop),
        ("enabled: false,", Action::Allow),
    ] {
        let policy = load(&with_head(&format!(
            "sync_rules:\n- {{id: tool-allowlist, {enabled} config: {{denied_tools: [x]}}}}\n"
        )));
        assert_eq!(action_on(&policy, "x"), expected, "{enabled}");
        assert_eq!(policy.rules().len(), usize::from(expected == Action::Stop));
    }
}

#[test]
fn a_disabled_rule_is_checked_all_the_same() {
    let report = refused(
        "sync_rules:\n- {id: secret-redaction, enabled: false, config: {patterns: {X: '('}}}\n",
    );
    assert!(report.contains("unclosed group"), "{report}");
}

#[test]
fn of_two_rules_of_one_name_only_one_may_be_enabled() {
    load(&with_head(
        "sync_rules:\n- {id: secret-redaction}\n- {id: secret-redaction, enabled: false}\n",
    ));
    let report = refused("sync_rules:\n- {id: secret-redaction}\n- {id: secret-redaction}\n");
    assert!(
        report.contains("rule `secret-redaction` is there twice"),
        "{report}"
    );
}

#[test]
fn rules_keep_the_order_of_the_pack() {
    let policy = load(&with_head(
        "sync_rules:\n- id: injection-patterns\n- id: tool-allowlist\n- id: secret-redaction\n",
    ));
    assert_eq!(
        rule_ids(&policy),
        ["injection-patterns", "tool-allowlist", "secret-redaction"]
    );
}

/// Ruling G8: `__default__` is the tier of unlisted tools; without it, medium.
#[test]
fn tools_have_the_tier_that_the_pack_gives_them() {
    use ToolRiskTier::{Critical, High, Low, Medium};
    for (risks, tool, tier) in [
        ("", "anything", Medium),
        ("tool_risks: {}", "anything", Medium),
        ("tool_risks: {shell: critical}", "shell", Critical),
        ("tool_risks: {shell: critical}", "Shell", Medium),
        ("tool_risks: {shell: critical}", "anything", Medium),
        (
            "tool_risks: {shell: high, __default__: low}",
            "anything",
            Low,
        ),
        ("tool_risks: {shell: high, __default__: low}", "shell", High),
        ("tool_risks: {__default__: high}", "__default__", High),
        ("tool_risks: {'5': low}", "5", Low),
        ("tool_risks: {5: low, yes: high}", "yes", High),
    ] {
        let policy = load(&with_head(risks));
        assert_eq!(policy.tool_risks().tier(tool), tier, "{risks}: {tool}");
    }
}

/// Ruling G8: an empty list allows nothing, an absent one everything.
#[test]
fn an_empty_allowlist_is_not_an_absent_one() {
    let rule = |config: &str| {
        let text = format!("sync_rules:\n- id: tool-allowlist\n  config: {{{config}}}\n");
        let loaded = try_load(&with_head(&text), None).unwrap();
        (action_on(&loaded.policy, "x"), loaded.warnings.to_string())
    };
    assert_eq!(rule(""), (Action::Allow, String::new()));
    assert_eq!(rule("allowed_tools: []"), (Action::Stop, String::new()));
    assert_eq!(rule("allowed_tools: [x]"), (Action::Allow, String::new()));
    // Somebody who comments out the last entry may think that nothing is allowed.
    let blank = "sync_rules:\n- id: tool-allowlist\n  config: {allowed_tools: }\n";
    let report = try_load(&with_head(blank), None).unwrap_err().to_string();
    assert!(report.contains("`allowed_tools` has no value"), "{report}");
}

const ENVIRONMENTS: &str = r#"
policy_pack: base
version: "1"
gateway: {mode: enforce, sync: {timeout_ms: 20, parallel: false}, async: {enabled: false}}
limits: {max_text_bytes: 1000}
tool_risks: {shell: critical, read: low}
sync_rules:
  - id: tool-allowlist
    config: {denied_tools: [shell]}
  - id: secret-redaction
environments:
  dev:
    gateway: {mode: shadow, sync: {timeout_ms: 500}}
    tool_risks: {shell: low, search: high}
  strict:
    version: "1-strict"
    sync_rules:
      - id: tool-allowlist
        config: {allowed_tools: [read]}
  plain:
"#;

#[test]
fn an_environment_changes_what_it_mentions_and_nothing_else() {
    let base = load(ENVIRONMENTS);
    let dev = load_in(ENVIRONMENTS, Some("dev"));
    assert_eq!(dev.gateway().mode, Mode::Shadow);
    assert_eq!(dev.gateway().sync_timeout_ms, 500.0);
    assert!(!dev.gateway().sync_parallel && !dev.gateway().async_enabled);
    assert_eq!(dev.limits().max_text_bytes, 1000);
    assert_eq!(
        dev.tool_risks().listed(),
        [
            ("read", ToolRiskTier::Low),
            ("search", ToolRiskTier::High),
            ("shell", ToolRiskTier::Low)
        ]
    );
    assert_eq!(rule_ids(&dev), rule_ids(&base));
    assert_eq!(action_on(&dev, "shell"), Action::Stop);
}

#[test]
fn an_environment_replaces_lists_as_a_whole() {
    let strict = load_in(ENVIRONMENTS, Some("strict"));
    assert_eq!(strict.identity().version, "1-strict");
    assert_eq!(rule_ids(&strict), ["tool-allowlist"]);
    assert_eq!(action_on(&strict, "shell"), Action::Stop);
    assert_eq!(action_on(&strict, "search"), Action::Stop);
    assert_eq!(action_on(&strict, "read"), Action::Allow);
}

#[test]
fn an_empty_environment_is_the_pack_itself() {
    let plain = load_in(ENVIRONMENTS, Some("plain"));
    assert_eq!(plain.identity(), load(ENVIRONMENTS).identity());
    let loaded = try_load(ENVIRONMENTS, None).unwrap();
    assert_eq!(loaded.environments, ["dev", "strict", "plain"]);
}

#[test]
fn an_unknown_environment_is_refused_with_the_nearest_name() {
    for (env, help) in [
        ("stric", "did you mean `strict`?"),
        ("Dev", "did you mean `dev`?"),
        ("production", "valid here: dev, strict, plain"),
        ("", "valid here: dev, strict, plain"),
    ] {
        let report = try_load(ENVIRONMENTS, Some(env)).unwrap_err().to_string();
        assert!(
            report.contains(&format!("no environment `{env}`")),
            "{report}"
        );
        assert!(report.contains(help), "{report}");
    }
}

#[test]
fn an_error_in_any_environment_refuses_the_pack_in_all_of_them() {
    let text = ENVIRONMENTS.replace("mode: shadow", "mode: shadwo");
    for env in [None, Some("dev"), Some("strict"), Some("plain")] {
        let report = try_load(&text, env).unwrap_err().to_string();
        assert_eq!(report.matches("error:").count(), 1, "{report}");
        assert!(report.contains("did you mean `shadow`?"), "{report}");
    }
}

#[test]
fn an_expression_that_loops_is_fenced_and_one_that_does_not_is_inline() {
    for (when, fenced) in [
        ("tool.name == 'x'", false),
        ("event.tool_args.list.all(x, x > 1)", true),
    ] {
        let policy = load(&with_head(&format!(
            "sync_rules:\n- {{id: e, rule: expression, config: {{when: \"{when}\"}}}}\n"
        )));
        assert_eq!(policy.rules()[0].kind(), "expression");
        assert_eq!(policy.rules()[0].fenced().is_some(), fenced, "{when}");
    }
}

#[test]
fn a_policy_from_code_and_one_from_a_pack_are_the_same() {
    let from_code = PolicyBuilder::new("test", "1.0.0")
        .tool_risk("shell", ToolRiskTier::High)
        .rule(RuleSettings::ToolAllowlist(ToolAllowlist::deny(["shell"])))
        .compile()
        .unwrap();
    let from_pack = load(&with_head(
        "tool_risks: {shell: high}\nsync_rules:\n- {id: tool-allowlist, config: {denied_tools: [shell]}}\n",
    ));
    assert_eq!(from_code.identity(), from_pack.identity());
}

/// A rule of the embedder: stops prompts, unless the pack has it judge something else.
struct Curfew;

impl Rule for Curfew {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: RuleId::from_static("curfew"),
            version: "2.0.0".into(),
            events: EventSet::from_iter([EventType::LlmBefore]),
            severity: Severity::High,
        }
    }

    fn evaluate(&self, _: &RuleInput<'_>) -> Result<Option<Decision>, RuleError> {
        let stop = StopSpec::default();
        Ok(Some(Decision::stop(
            RuleId::from_static("curfew"),
            "It is late",
            stop,
        )))
    }
}

fn load_with_curfew(rest: &str) -> Result<Policy, Report> {
    let rules: [Arc<dyn Rule>; 1] = [Arc::new(Curfew)];
    pack::load(&Pack {
        file: "pack.yaml",
        text: &with_head(rest),
        custom_rules: &rules,
        deep_rules: &["pii"],
        ..Pack::default()
    })
    .map(|loaded| loaded.policy)
}

#[test]
fn a_rule_from_code_runs_as_its_author_meant_or_as_the_pack_says() {
    for (pack, on_prompt, on_tool) in [
        ("", Action::Stop, Action::Allow),
        (
            "sync_rules: [{id: secret-redaction}]",
            Action::Stop,
            Action::Allow,
        ),
        ("sync_rules: [{id: curfew}]", Action::Stop, Action::Allow),
        (
            "sync_rules: [{id: curfew, rule: curfew}]",
            Action::Stop,
            Action::Allow,
        ),
        (
            "sync_rules: [{id: curfew, events: [tool_call_start]}]",
            Action::Allow,
            Action::Stop,
        ),
        (
            "sync_rules: [{id: curfew, enabled: false}]",
            Action::Allow,
            Action::Allow,
        ),
    ] {
        let policy = load_with_curfew(pack).unwrap_or_else(|report| panic!("{report}"));
        let prompt = judge_fresh(&policy, &Event::llm_before("r", "hi"));
        assert_eq!(prompt.action, on_prompt, "{pack}");
        assert_eq!(action_on(&policy, "x"), on_tool, "{pack}");
        for rule in policy.rules().iter().filter(|rule| rule.kind() == "custom") {
            assert_eq!((rule.id().as_str(), rule.version()), ("curfew", "2.0.0"));
            assert!(rule.fenced().is_some());
        }
    }
}

#[test]
fn the_pack_cannot_configure_rename_or_shadow_a_rule_from_code() {
    for (pack, expected) in [
        (
            "sync_rules: [{id: curfew, config: {from: 22}}]",
            "takes no `config` here",
        ),
        (
            "sync_rules: [{id: late, rule: curfew}]",
            "write `id: curfew`",
        ),
        (
            "sync_rules: [{id: late, rule: curfew, enabled: false}]",
            "write `id: curfew`",
        ),
        (
            "sync_rules: [{id: curfew, rule: secret-redaction}]",
            "rule `curfew` is there twice",
        ),
        ("sync_rules: [{id: curfw}]", "did you mean `curfew`?"),
        ("async_rules: [{id: curfew}]", "`curfew` is a fast rule"),
        ("sync_rules: [{id: pii}]", "`pii` is a deep rule"),
        ("async_rules: [{id: pi}]", "did you mean `pii`?"),
    ] {
        let report = load_with_curfew(pack).unwrap_err().to_string();
        assert!(report.contains(expected), "{pack}: {report}");
        assert_eq!(report.matches("error:").count(), 1, "{report}");
    }
}

#[test]
fn deep_rules_keep_their_settings_for_whoever_builds_them() {
    let policy = load_with_curfew(
        "async_rules:\n- id: pii\n- {id: hf-jailbreak, enabled: false, config: {threshold: 1, labels: [a, {b: null}]}}\n",
    )
    .unwrap();
    let deep = serde_json::to_value(policy.deep_rules()).unwrap();
    assert_eq!(
        deep,
        serde_json::json!([
            {"id": "pii", "enabled": true, "config": {}},
            {"id": "hf-jailbreak", "enabled": false, "config": {"threshold": 1, "labels": ["a", {"b": null}]}},
        ])
    );
}

fn refused(rest: &str) -> String {
    try_load(&with_head(rest), None).unwrap_err().to_string()
}
