//! What sinks are told.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use portcullis_core::Severity;
use portcullis_core::evidence::Redactor;
use portcullis_runtime::Alert;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The longest text that leaves, in characters.
const MAX_CHARS: usize = 1024;
/// What is searched for secrets: more than what leaves, so that none is cut in half before it is found.
const MAX_SEARCHED: usize = 4096;

/// An alert, with no more of it than somebody has to know who is to look at it: nothing of the event's text.
#[derive(Debug, Clone)]
pub(super) struct Raised {
    pub(super) at: Timestamp,
    pub(super) severity: Severity,
    /// What others wrote: run, tenant, stage, tool and reason.
    told: Map<String, Value>,
    /// What is ours.
    made: Map<String, Value>,
    rule_id: String,
    pub(super) key: Key,
}

/// What makes an alert the same as another: the tenant, the run, the rule and its action. A digest, so that
/// what is remembered is small however long a run's name is.
pub(super) type Key = [u8; 32];

impl Raised {
    pub(super) fn new(alert: &Alert, at: Timestamp) -> Self {
        let decision = &alert.decision;
        let mut told = Map::new();
        let mut tell = |name: &str, text: Option<&str>| {
            let text = text.map(|text| cut(text, MAX_SEARCHED));
            told.insert(name.to_owned(), text.into());
        };
        tell("run_id", Some(&alert.run_id));
        tell("tenant_id", alert.tenant_id.as_deref());
        tell("event_type", Some(&alert.event_type));
        tell("tool_name", alert.tool_name.as_deref());
        tell("reason", Some(&without_quotes(&decision.reason)));
        let made = json!({
            "severity": decision.severity,
            "action": decision.action,
            "enforced": alert.enforced,
            "rule_id": decision.rule_id,
            "decision_id": decision.decision_id,
            "effects": decision.effects,
            "policy": alert.policy,
        });
        let made = match made {
            Value::Object(made) => made,
            _ => Map::new(),
        };
        Self {
            at,
            severity: decision.severity,
            told,
            made,
            rule_id: decision.rule_id.to_string(),
            key: key(alert),
        }
    }
}

fn key(alert: &Alert) -> Key {
    let mut hash = Sha256::new();
    for part in [
        alert.tenant_id.as_deref().unwrap_or_default(),
        &alert.run_id,
        alert.decision.rule_id.as_str(),
        alert.decision.action.as_str(),
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// One message, as all sinks get it.
#[derive(Debug)]
pub(super) struct Message {
    /// The same at every sink, and however often it is tried.
    pub(super) id: String,
    pub(super) at: Timestamp,
    pub(super) severity: Severity,
    /// How many alerts it stands for.
    pub(super) count: u64,
    pub(super) rule_id: Option<String>,
    /// All of it.
    pub(super) json: Value,
}

/// Alerts that only their number is told of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) count: u64,
    /// By rule; those that find no place are in the count alone.
    pub(super) rules: BTreeMap<String, u64>,
}

impl Held {
    const RULES: usize = 20;

    pub(super) fn add(&mut self, count: u64, rule_id: Option<&str>) {
        self.count += count;
        let Some(rule_id) = rule_id else { return };
        if let Some(known) = self.rules.get_mut(rule_id) {
            *known += count;
        } else if self.rules.len() < Self::RULES {
            self.rules.insert(rule_id.to_owned(), count);
        }
    }
}

impl Message {
    /// About how much memory one takes.
    pub(super) const KIB: u32 = 8;

    /// An alert that stands for so many.
    pub(super) fn alert(raised: &Raised, count: u64, server: &str, redactor: &Redactor) -> Self {
        let id = uuid::Uuid::now_v7().to_string();
        let mut json = Map::new();
        json.insert("type".to_owned(), "guard.alert".into());
        json.insert("id".to_owned(), id.as_str().into());
        json.insert("at".to_owned(), raised.at.to_string().into());
        json.insert("server".to_owned(), server.into());
        json.insert("count".to_owned(), count.into());
        json.extend(raised.made.clone());
        for (name, value) in &*redactor.without_secrets(&raised.told) {
            let value = match value {
                Value::String(text) => cut(text, MAX_CHARS).into(),
                other => other.clone(),
            };
            json.insert(name.clone(), value);
        }
        Self {
            id,
            at: raised.at,
            severity: raised.severity,
            count,
            rule_id: Some(raised.rule_id.clone()),
            json: json.into(),
        }
    }

    /// How many were held back, by rule.
    pub(super) fn summary(held: &Held, at: Timestamp, server: &str) -> Self {
        let id = uuid::Uuid::now_v7().to_string();
        let json = json!({
            "type": "guard.alerts_held_back",
            "id": id,
            "at": at.to_string(),
            "server": server,
            "severity": Severity::High,
            "count": held.count,
            "rules": held.rules,
        });
        Self {
            id,
            at,
            severity: Severity::High,
            count: held.count,
            rule_id: None,
            json,
        }
    }

    /// One of the texts.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.json[name].as_str()
    }
}

/// A rule's reason for those who may not have seen the event: no more of it, and no secret.
pub(crate) fn reason_for_others(reason: &str, redactor: &Redactor) -> String {
    let reason = without_quotes(reason);
    let reason = redactor.redact(cut(&reason, MAX_SEARCHED));
    cut(&reason, MAX_CHARS).to_owned()
}

/// A reason without what it quotes: rules put the event's own words in single quotes. They may have such quotes
/// in them, so everything up to the last one goes.
fn without_quotes(reason: &str) -> Cow<'_, str> {
    let opens = |at: usize| !reason[..at].ends_with(char::is_alphanumeric);
    let mut quotes = reason.match_indices('\'').map(|(at, _)| at);
    let Some(first) = quotes.find(|at| opens(*at)) else {
        return Cow::Borrowed(reason);
    };
    let last = quotes.next_back().unwrap_or(reason.len());
    let rest = reason.get(last..).unwrap_or_default();
    Cow::Owned(format!("{}'…{rest}", &reason[..first]))
}

fn cut(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars);
    end.map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_core::{Decision, Effect, PolicyIdentity, StopSpec};

    use super::*;

    fn alert(run_id: &str, rule_id: &str, reason: &str) -> Alert {
        let stop = Decision::stop(rule_id.into(), reason.to_owned(), StopSpec::default());
        Alert {
            run_id: run_id.to_owned(),
            tenant_id: None,
            event_type: "tool_call_start".to_owned(),
            tool_name: Some("rm".to_owned()),
            decision: stop.with_effects([Effect::EmitAlert]),
            enforced: false,
            policy: Arc::new(PolicyIdentity {
                id: "p".to_owned(),
                version: "1".to_owned(),
                digest: "d".to_owned(),
            }),
        }
    }

    impl Raised {
        /// One that is the same as others of its number.
        pub(in crate::alerts) fn sample(which: u8) -> Self {
            let mut raised = Self::new(&alert("r", "rule", "why"), Timestamp::UNIX_EPOCH);
            raised.key = [which; 32];
            raised
        }
    }

    #[test]
    fn what_is_the_same_is_told_by_tenant_run_rule_and_action() {
        let base = alert("r", "rule", "why");
        let other_reason = alert("r", "rule", "why not");
        assert_eq!(key(&base), key(&other_reason));
        let mut tool = base.clone();
        tool.tool_name = None;
        assert_eq!(key(&base), key(&tool));
        let mut tenant = base.clone();
        tenant.tenant_id = Some("acme".to_owned());
        for other in [alert("rr", "rule", "why"), alert("r", "ule", "why"), tenant] {
            assert_ne!(key(&base), key(&other));
        }
        // No run's name can pass for another run and rule.
        assert_ne!(key(&alert("ab", "c", "")), key(&alert("a", "bc", "")));
    }

    #[test]
    fn long_texts_are_cut_and_secrets_taken_out_before() {
        let redactor = Redactor::new().unwrap();
        let secret = "AKIAIOSFODNN7EXAMPLE";
        let reason = format!("{} {secret} {}", "x".repeat(1010), "y".repeat(100_000));
        let alert = alert(&format!("run {secret}"), "rule", &reason);
        let raised = Raised::new(&alert, Timestamp::UNIX_EPOCH);
        let message = Message::alert(&raised, 3, "here", &redactor);
        let text = message.json.to_string();
        assert!(!text.contains("AKIA"), "{text}");
        assert_eq!(message.text("reason").unwrap().chars().count(), 1024);
        assert_eq!(message.json["enforced"], false);
        assert_eq!(message.json["count"], 3);
    }

    #[test]
    fn what_a_reason_quotes_is_left_out() {
        for (reason, told) in [
            (
                "Deletes other people's files",
                "Deletes other people's files",
            ),
            ("Pattern [x]: 'Ignore all'", "Pattern [x]: '…'"),
            (
                "Pattern [x]: 'don't 'ever' stop' twice",
                "Pattern [x]: '…' twice",
            ),
            ("Tool 'a' may not reach 'b'", "Tool '…'"),
            ("It ends 'in the middle", "It ends '…"),
            ("'", "'…"),
        ] {
            assert_eq!(without_quotes(reason), told);
        }
    }

    #[test]
    fn a_summary_names_so_many_rules_and_counts_all() {
        let mut held = Held::default();
        for rule in 0..100 {
            held.add(2, Some(&format!("rule-{rule}")));
        }
        held.add(1, Some("rule-0"));
        assert_eq!((held.count, held.rules.len()), (201, 20));
        let message = Message::summary(&held, Timestamp::UNIX_EPOCH, "here");
        assert_eq!(message.json["rules"]["rule-0"], 3);
        assert_eq!(message.json["count"], 201);
    }
}
