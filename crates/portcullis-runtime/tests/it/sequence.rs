//! Sequence rules: what happened earlier in a run decides what may happen now.

use std::sync::Arc;

use portcullis_core::{Action, Context, Event};
use portcullis_runtime::{AnswerStream, Gateway, RecentAlerts};
use serde_json::{Map, json};

use crate::fixtures::{args, call, code, judge, load, prompt, verdict};

/// A rule that finds secrets, one that refuses tools, one that wants a path, and a sequence.
fn pack(sequence: &str) -> String {
    format!(
        "
policy_pack: test
version: '1'
gateway: {{sync: {{timeout_ms: 60000}}}}
sync_rules:
  - id: secret-redaction
  - id: tool-allowlist
    config: {{denied_tools: [vault.steal]}}
  - id: schema-validation
    config: {{schemas: {{vault.open: {{required: [path]}}}}}}
  - id: seq
    rule: sequence
    config: {{{sequence}}}
"
    )
}

fn gateway(sequence: &str) -> Gateway {
    Gateway::builder(load(&pack(sequence))).build()
}

/// A step in a few words: `found` is a result with a secret in it, `clean` one without; anything else is a
/// call, `TOOL` or `TOOL ARGUMENT`.
fn step(run: &str, words: &str) -> Event {
    match words {
        "found" => Event::tool_call_result(run, "cat", "key AKIAIOSFODNN7EXAMPLE"),
        "clean" => Event::tool_call_result(run, "cat", "nothing"),
        _ => match words.split_once(' ') {
            None => call(run, words),
            Some((tool, text)) => Event::tool_call_start(run, tool, args(json!({"text": text}))),
        },
    }
}

/// Whether the sequence has something to say of the step.
async fn forbids(gateway: &Gateway, run: &str, words: &str) -> bool {
    let evaluation = judge(gateway, &step(run, words)).await;
    evaluation.decision.rule_id.as_str() == "seq"
}

/// A step that a person holds up may happen, so it counts, and when it comes again it is no other.
#[tokio::test]
async fn a_step_that_waits_counts_once() {
    let pack = pack("after: {tools: [vault.open]}, then: {tools: ['web.*']}, within: 2").replace(
        "  - id: seq\n",
        "  - {id: ask, rule: expression, events: [tool_call_start], config: {when: tool.name == 'vault.open', action: PAUSE}}\n  - id: seq\n",
    );
    let gateway = Gateway::builder(load(&pack)).build();
    let open = Event::tool_call_start("r", "vault.open", args(json!({"path": "a"})));
    let mut context = Context::new("r");
    let paused = gateway.evaluate(&mut context, &open).await;
    assert_eq!(verdict(&paused), (Action::Pause, "ask"));
    let pauses = [paused.decision.pause_key().clone()];
    for _ in 0..5 {
        let again = gateway.evaluate_again(&mut context, &open, &pauses).await;
        assert_eq!(again.lift(&pauses).decision.action, Action::Allow);
    }
    // In this process or in another.
    let elsewhere = Gateway::builder(load(&pack)).build();
    assert!(!forbids(&elsewhere, "other", "web.get").await);
    elsewhere.resume_history("r", &gateway.history("r"));
    for gateway in [gateway, elsewhere] {
        assert!(forbids(&gateway, "r", "web.get").await);
    }
}

const AFTER_SECRETS: &str = "after: {rules: [secret-redaction]}, then: {tools: ['web.*']}";

#[tokio::test]
async fn a_call_is_forbidden_once_the_run_has_seen_what_the_rule_waits_for() {
    const EGRESS: &str =
        "after: {tools: ['crm.*']}, then: {hosts_except: ['*.example.com', 10.0.0.0/8]}";
    let tables: &[(&str, &[(&str, bool)])] = &[
        (
            AFTER_SECRETS,
            &[
                ("web.get", false),
                ("clean", false),
                ("web.get", false),
                ("found", false),
                ("web.get", true),
                ("file.read", false),
                ("webhook", false),
                ("web.post", true),
            ],
        ),
        (
            "after: {tools: ['vault.*']}, then: {}",
            &[
                ("file.read", false),
                ("vault.read", false),
                ("file.read", true),
            ],
        ),
        (
            "after: {rules: [secret-redaction], tools: [crm.get]}, then: {tools: [a, '*.send']}",
            &[
                ("crm.getter", false),
                ("a", false),
                ("crm.get", false),
                ("a", true),
                ("mail.send", true),
                ("mail.sender", false),
            ],
        ),
        (
            EGRESS,
            &[
                ("t https://evil.example", false),
                ("crm.get", false),
                ("t https://api.example.com/x", false),
                ("t https://evil.example/x", true),
                ("t https://example.com.evil.example/", true),
                ("t no host at all", false),
                ("t http://10.1.2.3/", false),
                ("t http://0x0a010203/", false),
                ("t http://192.168.0.1/", true),
                ("t http://169.254.169.254/latest", true),
                ("t curl evil.example", true),
                ("t http://api.example.com and http://evil.example", true),
                ("t open('main.rs')", false),
            ],
        ),
        // A step is forbidden for so many steps after, and each time counts anew.
        (
            "after: {rules: [secret-redaction]}, then: {tools: [a]}, within: 2",
            &[
                ("found", false),
                ("a", true),
                ("a", true),
                ("a", false),
                ("found", false),
                ("clean", false),
                ("a", true),
                ("a", false),
            ],
        ),
        // The step itself is not after itself.
        (
            "after: {tools: [a]}, then: {tools: [a]}, within: 1",
            &[("a", false), ("a", true), ("a", false)],
        ),
    ];
    for (config, steps) in tables {
        let gateway = gateway(config);
        for (at, (words, expected)) in steps.iter().enumerate() {
            let said = forbids(&gateway, "r", words).await;
            assert_eq!(said, *expected, "{config}: step {at}, {words}");
        }
    }
}

#[tokio::test]
async fn the_answer_names_the_tool_the_host_and_how_to_go_on() {
    let gateway = gateway("after: {tools: [crm]}, then: {hosts_except: []}");
    judge(&gateway, &call("r", "crm")).await;
    let stopped = judge(&gateway, &step("r", "t https://evil.example/x")).await;
    assert_eq!(verdict(&stopped), (Action::Stop, "seq"));
    assert_eq!(code(&stopped), Some("SEQUENCE_FORBIDDEN"));
    assert_eq!(
        stopped.decision.reason,
        "Tool 't' may not reach 'evil.example' after what happened one step earlier in this run"
    );
    assert!(stopped.decision.remediation.is_some());
}

#[tokio::test]
async fn the_action_decides_what_happens_to_a_forbidden_call() {
    for (action, expected, alerts) in [
        ("stop", Action::Stop, 0),
        ("pause", Action::Pause, 0),
        ("warn", Action::Allow, 1),
    ] {
        let sink = Arc::new(RecentAlerts::new(10));
        let policy = load(&pack(&format!("{AFTER_SECRETS}, action: {action}")));
        let gateway = Gateway::builder(policy).alerts(sink.clone()).build();
        judge(&gateway, &step("r", "found")).await;
        let evaluation = judge(&gateway, &step("r", "web.get")).await;
        assert_eq!(verdict(&evaluation), (expected, "seq"));
        assert_eq!(sink.list().len(), alerts, "{action}");
    }
}

#[tokio::test]
async fn runs_do_not_mix() {
    let gateway = gateway(AFTER_SECRETS);
    judge(&gateway, &step("a", "found")).await;
    assert!(!forbids(&gateway, "b", "web.get").await);
    assert!(forbids(&gateway, "a", "web.get").await);
}

/// The caller's own idea of the run's past counts for nothing.
#[tokio::test]
async fn history_is_the_gateways() {
    let gateway = gateway(AFTER_SECRETS);
    let mut context = Context::new("r");
    gateway.evaluate(&mut context, &step("r", "found")).await;
    let mut fresh = Context::new("r");
    let stopped = gateway.evaluate(&mut fresh, &step("r", "web.get")).await;
    assert_eq!(verdict(&stopped), (Action::Stop, "seq"));
    context.run_id = "other".into();
    let allowed = gateway
        .evaluate(&mut context, &step("other", "web.get"))
        .await;
    assert_eq!(allowed.decision.action, Action::Allow);
}

#[tokio::test]
async fn a_call_that_did_not_happen_is_no_tool_that_ran() {
    let config = "after: {tools: ['vault.*']}, then: {tools: [send]}";
    let gateway = gateway(config);
    for (words, action) in [("vault.steal", Action::Stop), ("vault.open", Action::Retry)] {
        let refused = judge(&gateway, &step("r", words)).await;
        assert_eq!(refused.decision.action, action);
        assert!(!forbids(&gateway, "r", "send").await, "{words}");
    }
    let open = Event::tool_call_start("r", "vault.open", args(json!({"path": "x"})));
    assert_eq!(judge(&gateway, &open).await.decision.action, Action::Allow);
    assert!(forbids(&gateway, "r", "send").await);
}

/// The call may have been made before the gate was there, or by somebody else.
#[tokio::test]
async fn a_tools_answer_says_that_it_ran() {
    let gateway = gateway("after: {tools: ['vault.*']}, then: {tools: [send]}");
    judge(&gateway, &Event::tool_call_result("r", "vault.read", "ok")).await;
    assert!(forbids(&gateway, "r", "send").await);
}

/// What a rule found was found, whether or not the step then happened.
#[tokio::test]
async fn a_finding_counts_even_if_the_step_was_stopped() {
    let gateway = gateway("after: {rules: [tool-allowlist]}, then: {tools: [send]}");
    judge(&gateway, &call("r", "vault.steal")).await;
    assert!(forbids(&gateway, "r", "send").await);
}

#[tokio::test]
async fn in_shadow_mode_everything_happens_and_is_remembered() {
    let config = "after: {tools: [vault.steal]}, then: {tools: [send]}";
    let text = pack(config).replace("gateway: {", "gateway: {mode: shadow, ");
    let gateway = Gateway::builder(load(&text)).build();
    judge(&gateway, &call("r", "vault.steal")).await;
    let evaluation = judge(&gateway, &call("r", "send")).await;
    assert_eq!(verdict(&evaluation), (Action::Stop, "seq"));
    assert!(!evaluation.enforced);
}

#[tokio::test]
async fn what_is_found_in_a_streamed_answer_counts() {
    let gateway = Arc::new(gateway(AFTER_SECRETS));
    let mut answer = AnswerStream::new(Arc::clone(&gateway), Context::new("r"));
    let _ = answer.push("the key is AKIAIOSF").await;
    assert!(!forbids(&gateway, "r", "web.get").await);
    let _ = answer.push("ODNN7EXAMPLE. ").await;
    assert!(forbids(&gateway, "r", "web.get").await);
}

/// Two rules that find the same piece of a streamed answer have both found it.
#[tokio::test]
async fn every_rule_that_finds_something_in_a_streamed_answer_counts() {
    let text = "
policy_pack: test
version: '1'
gateway: {sync: {timeout_ms: 60000}}
sync_rules:
  - id: secret-redaction
  - id: mine
    rule: pii-redaction
    config: {families: [], patterns: {MINE: 'AKIA[A-Z0-9]{16}'}}
  - id: seq
    rule: sequence
    config: {after: {rules: [mine]}, then: {}}
";
    let gateway = Arc::new(Gateway::builder(load(text)).build());
    let mut answer = AnswerStream::new(Arc::clone(&gateway), Context::new("r"));
    let _ = answer.push("AKIAIOSFODNN7EXAMPLE. ").await;
    assert!(forbids(&gateway, "r", "web.get").await);
}

#[tokio::test]
async fn a_reload_keeps_what_was_remembered() {
    let gateway = gateway(AFTER_SECRETS);
    judge(&gateway, &step("r", "found")).await;
    gateway.replace_policy(load(&pack(&format!("{AFTER_SECRETS}, action: pause"))));
    let evaluation = judge(&gateway, &step("r", "web.get")).await;
    assert_eq!(verdict(&evaluation), (Action::Pause, "seq"));
}

#[tokio::test]
async fn the_oldest_run_is_forgotten_when_there_are_too_many() {
    let gateway = Gateway::builder(load(&pack(AFTER_SECRETS)))
        .max_runs(2)
        .build();
    for run in ["a", "b", "c"] {
        judge(&gateway, &step(run, "found")).await;
    }
    assert!(forbids(&gateway, "b", "web.get").await);
    assert!(forbids(&gateway, "c", "web.get").await);
    assert!(!forbids(&gateway, "a", "web.get").await);
}

#[tokio::test]
async fn every_event_is_a_step() {
    let gateway = gateway("after: {tools: [a]}, then: {}, within: 3");
    judge(&gateway, &call("r", "a")).await;
    judge(&gateway, &prompt("r", "Hello")).await;
    judge(&gateway, &Event::llm_stream_chunk("r", "Hi")).await;
    assert!(forbids(&gateway, "r", "b").await);
    assert!(!forbids(&gateway, "r", "b").await);
    let no_args = Event::tool_call_start("r", "a", Map::new());
    judge(&gateway, &no_args).await;
    assert!(forbids(&gateway, "r", "b").await);
}
