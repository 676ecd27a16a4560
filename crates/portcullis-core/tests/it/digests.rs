//! The digest of a policy: the same for the same verdicts however they are written down, another for
//! anything that can change one. Approvals and evidence are bound to it.

use std::collections::HashMap;

use crate::judge::{load, load_in, try_load, with_head};
use crate::packs::RFC;

const PACK: &str = r#"
policy_pack: "acme"
version: "1.0.0"
gateway:
  mode: enforce
  sync: {timeout_ms: 15, parallel: true, fail_open: false}
  async: {enabled: true, fail_open: true}
limits: {max_text_bytes: 1000}
tool_risks: {shell: critical, read: low, __default__: high}
risk_router: {high_risk_wait_ms: 200, medium_risk_wait_ms: 100, critical_fail_closed: true}
sync_rules:
  - id: tool-allowlist
    config: {denied_tools: [shell, admin], allowed_tools: [read]}
  - id: secret-redaction
    events: [tool_call_result, stage_a, stage_b]
    config: {patterns: {TICKET: 'TCK-[0-9]+', CASE: 'CASE-[0-9]+'}}
  - id: injection-patterns
    config: {patterns: [{pattern: magic word, intent: jb_override}]}
  - id: schema-validation
    config: {schemas: {mail: {required: [to], properties: {to: {type: string}}}}}
  - id: ask
    rule: expression
    config: {when: "tool.name == 'x'", action: PAUSE, prompt: Sure?, severity: high, effects: [emit_alert]}
async_rules:
  - id: hf-jailbreak
    config: {threshold: 0.85}
environments:
  dev: {gateway: {mode: shadow}}
"#;

fn digest(text: &str) -> String {
    load(text).identity().digest.clone()
}

/// The pack with one thing changed.
fn edited(from: &str, to: &str) -> String {
    assert_eq!(PACK.matches(from).count(), 1, "`{from}` must be there once");
    PACK.replacen(from, to, 1)
}

#[test]
fn a_digest_is_64_hex_digits_and_the_same_on_every_load() {
    let digest = digest(PACK);
    assert_eq!(digest.len(), 64);
    assert!(
        digest
            .bytes()
            .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
    );
    assert_eq!(digest, self::digest(PACK));
}

/// A changed digest voids approvals: if this fails, say so in the changelog.
#[test]
fn the_digest_of_a_policy_without_rules_is_this() {
    insta::assert_snapshot!(digest(&with_head("")), @"76cc086f569207f5987170f501f4030c4946bd34dd246c63784659faec17e067");
}

#[test]
fn how_a_pack_is_written_down_makes_no_difference() {
    for (why, from, to) in [
        (
            "a comment",
            "gateway:\n",
            "# How it runs.\n\ngateway: # here\n",
        ),
        ("quotes", "policy_pack: \"acme\"", "policy_pack: acme"),
        ("other quotes", "mode: enforce", "mode: 'enforce'"),
        ("escapes", "Sure?", "\"\\x53ure?\""),
        (
            "key order",
            "timeout_ms: 15, parallel: true",
            "parallel: true, timeout_ms: 15",
        ),
        (
            "key order of tools",
            "shell: critical, read: low",
            "read: low, shell: critical",
        ),
        (
            "key order of rules",
            "    rule: expression\n",
            "    enabled: true\n    rule: expression\n",
        ),
        (
            "key order of schemas",
            "required: [to], properties: {to: {type: string}}",
            "properties: {to: {type: string}}, required: [to]",
        ),
        (
            "block style",
            "limits: {max_text_bytes: 1000}",
            "limits:\n    max_text_bytes: 1000",
        ),
        (
            "another number form",
            "max_text_bytes: 1000",
            "max_text_bytes: 0x3e8",
        ),
        (
            "another float form",
            "timeout_ms: 15,",
            "timeout_ms: 1.5e1,",
        ),
        (
            "a default spelled out",
            "config: {patterns: [{",
            "config: {families: [rfc], patterns: [{",
        ),
        ("a default left out", "high_risk_wait_ms: 200, ", ""),
        (
            "a kind spelled out",
            "  - id: tool-allowlist\n",
            "  - id: tool-allowlist\n    rule: tool-allowlist\n",
        ),
        (
            "enabled spelled out",
            "  - id: tool-allowlist\n",
            "  - id: tool-allowlist\n    enabled: yes\n",
        ),
        ("the order of a set", "[shell, admin]", "[admin, shell]"),
        (
            "the order of events",
            "[tool_call_result, stage_a, stage_b]",
            "[stage_b, stage_a, tool_call_result]",
        ),
        (
            "a member of a set twice",
            "[shell, admin]",
            "[shell, admin, shell]",
        ),
        (
            "a pattern as a pair",
            "{pattern: magic word, intent: jb_override}",
            "[magic word, jb_override]",
        ),
        ("an anchor", "[shell, admin]", "&tools [shell, admin]"),
        (
            "an environment that is not chosen",
            "{mode: shadow}",
            "{mode: shadow, sync: {fail_open: true}}",
        ),
        (
            "a fast rule that is disabled",
            "async_rules:\n",
            "  - {id: spare, rule: secret-redaction, enabled: false}\nasync_rules:\n",
        ),
    ] {
        assert_eq!(digest(&edited(from, to)), digest(PACK), "{why}");
    }
    let crlf = PACK.replace('\n', "\r\n");
    assert_eq!(digest(&crlf), digest(PACK), "line ends");
}

#[test]
fn whatever_can_change_a_verdict_changes_the_digest() {
    let mut seen = HashMap::from([(digest(PACK), "nothing")]);
    for (from, to) in [
        ("\"acme\"", "\"acme2\""),
        ("version: \"1.0.0\"", "version: \"1.0.1\""),
        ("mode: enforce", "mode: shadow"),
        ("timeout_ms: 15", "timeout_ms: 16"),
        ("parallel: true", "parallel: false"),
        ("fail_open: false", "fail_open: true"),
        (
            "{enabled: true, fail_open: true}",
            "{enabled: false, fail_open: true}",
        ),
        (
            "{enabled: true, fail_open: true}",
            "{enabled: true, fail_open: false}",
        ),
        (
            "{enabled: true, fail_open: true}",
            "{enabled: true, fail_open: true, breaker: {failures: 9}}",
        ),
        (
            "{enabled: true, fail_open: true}",
            "{enabled: true, fail_open: true, breaker: {cool_down_ms: 9}}",
        ),
        (
            "{enabled: true, fail_open: true}",
            "{enabled: true, fail_open: true, hedge_after_ms: 9}",
        ),
        (
            "critical_fail_closed: true",
            "critical_fail_closed: true, suspicious_rules: []",
        ),
        (
            "critical_fail_closed: true",
            "critical_fail_closed: true, min_wait_ms: 9",
        ),
        (
            "critical_fail_closed: true",
            "critical_fail_closed: true, on_timeout: pause",
        ),
        ("max_text_bytes: 1000", "max_text_bytes: 1001"),
        ("shell: critical", "shell: high"),
        ("read: low", "reed: low"),
        (", __default__: high", ""),
        ("high_risk_wait_ms: 200", "high_risk_wait_ms: 201"),
        ("medium_risk_wait_ms: 100", "medium_risk_wait_ms: 0"),
        ("critical_fail_closed: true", "critical_fail_closed: false"),
        ("[shell, admin]", "[shell]"),
        (", allowed_tools: [read]", ""),
        (", allowed_tools: [read]", ", allowed_tools: []"),
        (
            "[tool_call_result, stage_a, stage_b]",
            "[tool_call_result, stage_a]",
        ),
        ("TCK-[0-9]+", "TCK-[0-9]*1"),
        ("TICKET:", "TICKETS:"),
        (
            "config: {patterns: {TICKET",
            "config: {families: [], patterns: {TICKET",
        ),
        ("magic word", "magic words"),
        ("intent: jb_override", "intent: exfil_prompt"),
        ("required: [to], ", ""),
        ("{type: string}", "{type: number}"),
        ("schemas: {mail:", "schemas: {post:"),
        ("  - id: ask\n", "  - id: ask-me\n"),
        ("tool.name == 'x'", "tool.name == 'y'"),
        ("action: PAUSE, prompt: Sure?", "action: STOP"),
        ("Sure?", "Really?"),
        ("severity: high", "severity: low"),
        ("[emit_alert]", "[]"),
        ("threshold: 0.85", "threshold: 0.86"),
        (
            "    config: {threshold",
            "    enabled: false\n    config: {threshold",
        ),
        (
            "  - id: schema-validation\n",
            "  - id: schema-validation\n    enabled: false\n",
        ),
    ] {
        let edit = digest(&edited(from, to));
        if let Some(same) = seen.insert(edit, to) {
            panic!("`{to}` has the digest of `{same}`");
        }
    }
}

/// The first of equals decides, so order counts where there is a first.
#[test]
fn the_order_of_rules_and_of_patterns_counts() {
    let rules = |order: &str| digest(&with_head(&format!("sync_rules: [{order}]\n")));
    assert_ne!(
        rules("{id: secret-redaction}, {id: injection-patterns}"),
        rules("{id: injection-patterns}, {id: secret-redaction}")
    );
    let swapped = edited(
        "TICKET: 'TCK-[0-9]+', CASE: 'CASE-[0-9]+'",
        "CASE: 'CASE-[0-9]+', TICKET: 'TCK-[0-9]+'",
    );
    assert_ne!(digest(&swapped), digest(PACK));
}

/// A disabled deep rule is more than an absent one: it stays off even if somebody registers it.
#[test]
fn a_disabled_deep_rule_is_not_an_absent_one() {
    let absent = with_head("");
    let disabled = with_head("async_rules: [{id: hf-jailbreak, enabled: false}]\n");
    assert_ne!(digest(&absent), digest(&disabled));
}

#[test]
fn an_environment_has_the_digest_of_the_policy_it_gives() {
    let in_env = |text: &str, env| load_in(text, Some(env)).identity().digest.clone();
    assert_eq!(
        in_env(PACK, "dev"),
        digest(&edited("mode: enforce", "mode: shadow"))
    );
    assert_ne!(in_env(PACK, "dev"), digest(PACK));
    assert_eq!(
        in_env(RFC, "prod"),
        digest(RFC),
        "prod only says what is so already"
    );
    assert_ne!(in_env(RFC, "dev"), digest(RFC));
}

/// The edits above go through the same door as everything else.
#[test]
fn the_pack_of_these_tests_has_no_findings() {
    let loaded = try_load(PACK, None).unwrap();
    assert!(
        loaded.warnings.diagnostics.is_empty(),
        "{}",
        loaded.warnings
    );
}
