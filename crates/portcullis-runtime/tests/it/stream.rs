//! A streamed answer behind the gateway: patterns over chunk borders, other rules on each piece,
//! effects, and values that come back.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use portcullis_core::{Action, Context, Decision, Effect, Event, RuleId};
use portcullis_runtime::{AnswerStream, Gateway, guard_stream};

use crate::fixtures::{decision, deep_on, deep_rules, judge, load, wait_ms};

const PACK: &str = "
policy_pack: test
version: '1'
gateway: {sync: {timeout_ms: 60000}}
sync_rules:
  - id: secret-redaction
    config: {families: [rfc]}
  - id: injection-patterns
    events: [llm_stream_chunk]
    config: {families: [], patterns: [[stop here now, jb_override]]}
  - id: no-poems
    rule: expression
    events: [llm_stream_chunk]
    config: {when: \"event.text_content.contains('roses')\", effects: [quarantine_session]}
";

fn gateway(pack: &str) -> Arc<Gateway> {
    Arc::new(Gateway::builder(load(pack)).build())
}

fn answer(gateway: &Arc<Gateway>) -> AnswerStream {
    AnswerStream::new(Arc::clone(gateway), Context::new("r"))
}

#[tokio::test]
async fn a_secret_cut_in_two_is_redacted_and_counted_once() {
    let gateway = gateway(PACK);
    let mut answer = answer(&gateway);
    let first = answer.push("key AKIAIOSF").await;
    assert_eq!((&*first.text, first.evaluations.len()), ("key ", 0));
    let second = answer.push("ODNN7EXAMPLE, ok").await;
    assert_eq!(second.text, "[AWS_KEY], ok");
    let evaluation = &second.evaluations[0];
    assert_eq!(evaluation.decision.action, Action::Redact);
    assert_ne!(
        evaluation.decision.decision_id,
        portcullis_core::DecisionId::NIL
    );
    assert_eq!(answer.finish().await.text, "");
}

#[tokio::test]
async fn a_stop_ends_the_answer_and_counts_a_strike() {
    let gateway = gateway(PACK);
    let mut answer = answer(&gateway);
    let _ = answer.push("now stop he").await;
    let shown = answer.push("re now and go on").await;
    assert_eq!((&*shown.text, shown.halted), ("", true));
    let last = shown.evaluations.last().unwrap();
    assert_eq!(last.decision.action, Action::Stop);
    assert_eq!(gateway.run("r").unwrap().strikes["injection"], 1);
    let after = answer.push("more").await;
    assert!(after.halted && after.text.is_empty() && after.evaluations.is_empty());
}

#[tokio::test]
async fn other_rules_judge_each_piece_and_a_quarantine_holds() {
    let gateway = gateway(PACK);
    let mut first = answer(&gateway);
    assert_eq!(first.push("violets ").await.text, "violets ");
    let shown = first.push("and roses ").await;
    assert_eq!((&*shown.text, shown.halted), ("", true));
    assert_eq!(shown.evaluations[0].decision.rule_id.as_str(), "no-poems");
    let mut second = answer(&gateway);
    let shown = second.push("anything ").await;
    assert!(shown.halted);
    assert_eq!(shown.evaluations[0].decision.rule_id, RuleId::QUARANTINE);
}

#[tokio::test]
async fn deep_rules_judge_each_piece() {
    let events = [portcullis_core::EventType::LlmStreamChunk]
        .into_iter()
        .collect();
    let rule = deep_on("deep", events, |event| {
        let bad = event.text().contains("bad");
        async move { Ok(bad.then(|| decision(Action::Stop, "deep"))) }
    });
    let pack = "policy_pack: t\nversion: '1'\nsync_rules: []\n";
    let gateway = Gateway::builder(load(pack))
        .deep_rules(deep_rules([rule]))
        .risk_router(wait_ms(10_000.0))
        .build();
    let mut answer = answer(&Arc::new(gateway));
    assert_eq!(answer.push("good ").await.text, "good ");
    assert!(answer.push("bad ").await.halted);
}

const VAULT: &str = "
policy_pack: test
version: '1'
gateway: {sync: {timeout_ms: 60000}}
sync_rules:
  - id: pii-redaction
    config: {families: [], action: vault, patterns: {MAIL: '[a-z]{1,20}@[a-z]{1,20}[.]org'}}
";

#[tokio::test]
async fn vaulted_values_come_back_in_an_answer_to_the_same_run() {
    let gateway = gateway(VAULT);
    let result = Event::tool_call_result("r", "crm", "write to jane@x.org or joe@x.org");
    let evaluation = judge(&gateway, &result).await;
    let replaced: Vec<_> = evaluation
        .decision
        .redactions
        .iter()
        .map(|spec| &*spec.replacement)
        .collect();
    assert_eq!(replaced, ["[MAIL_1]", "[MAIL_2]"]);
    assert_eq!(gateway.restore("r", "to [MAIL_2]!"), "to joe@x.org!");
    assert_eq!(gateway.restore("other", "to [MAIL_2]!"), "to [MAIL_2]!");

    let mut restored = answer(&gateway).restoring();
    let mut text = String::new();
    for chunk in ["I wrote to [", "MAIL", "_1] [and", " ann@x.org", " [MAIL_"] {
        text.push_str(&restored.push(chunk).await.text);
    }
    text.push_str(&restored.finish().await.text);
    assert_eq!(text, "I wrote to jane@x.org [and ann@x.org [MAIL_");
    let mut plain = answer(&gateway);
    assert_eq!(
        plain.push("ann@x.org or [MAIL_1] ").await.text,
        "[MAIL_3] or [MAIL_1] "
    );
}

#[tokio::test]
async fn shadow_mode_keeps_nothing_and_changes_nothing() {
    let pack = VAULT.replace("gateway: {", "gateway: {mode: shadow, ");
    let gateway = gateway(&pack);
    let result = Event::tool_call_result("r", "crm", "jane@x.org");
    let evaluation = judge(&gateway, &result).await;
    assert_eq!(&*evaluation.decision.redactions[0].replacement, "[MAIL]");
    assert_eq!(gateway.restore("r", "[MAIL_1]"), "[MAIL_1]");
}

#[tokio::test]
async fn a_stream_of_chunks_is_guarded_to_its_end() {
    let chunks = [
        "a AKIAIOSFODNN",
        "7EXAMPLE b ",
        "stop here",
        " now",
        " never",
    ];
    let chunks = stream::iter(chunks.map(str::to_owned));
    let shown: Vec<_> = guard_stream(gateway(PACK), Context::new("r"), chunks)
        .collect()
        .await;
    let text: String = shown.iter().flatten().map(String::as_str).collect();
    assert_eq!(text, "a [AWS_KEY] b ");
    let end = shown.last().unwrap().as_ref().unwrap_err();
    assert_eq!(end.decision.action, Action::Stop);
    assert!(end.decision.effects.contains(&Effect::IncrementStrike));
}

#[tokio::test]
async fn the_gateways_own_way_of_resolving_holds_for_streams() {
    struct Lenient;
    impl portcullis_core::DecisionPolicy for Lenient {
        fn resolve(&self, _: Vec<Decision>, _: &portcullis_core::rules::RuleInput<'_>) -> Decision {
            Decision::allow(RuleId::from("lenient"), "as you like")
        }
    }
    let gateway = Gateway::builder(load(PACK))
        .decision_policy(Lenient)
        .build();
    let mut answer = answer(&Arc::new(gateway));
    assert_eq!(answer.push("stop here now. ").await.text, "stop here now. ");
}
