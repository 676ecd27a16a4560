use serde::Serialize;

use super::super::expression::{Verdict, read_severity, refuse_other_keys};
use super::reading::Found;
use crate::decision::{Action, Decision, Effect, Severity};
use crate::ids::RuleId;
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;

/// What a rule does about what a service found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reply {
    /// Redact, let pass, or what `verdict` says.
    pub action: Action,
    /// With STOP, PAUSE and RETRY: how.
    pub verdict: Option<Verdict>,
    /// Why, for people. By default what the service says.
    pub reason: Option<String>,
    /// How bad.
    pub severity: Severity,
    /// Side effects.
    pub effects: Vec<Effect>,
    /// What the agent should do instead.
    pub remediation: Option<String>,
}

/// How packs write actions.
const ACTIONS: [(&str, Action); 5] = [
    ("stop", Action::Stop),
    ("pause", Action::Pause),
    ("retry", Action::Retry),
    ("redact", Action::Redact),
    ("allow", Action::Allow),
];

impl Reply {
    pub(super) fn read(config: &mut MapReader<'_>, default: Action, d: &mut Diagnostics) -> Self {
        let action = config.one_of("action", &ACTIONS, d).unwrap_or(default);
        refuse_other_keys(config, action, spelt, d);
        let verdict = Verdict::read(config, action, d);
        let (severity, effects) = read_severity(config, d);
        if action == Action::Allow && effects.is_empty() && config.get("effects").is_none() {
            let place = config.get("action").map(|node| node.place);
            d.error(
                place.unwrap_or_default(),
                "`action: allow` does nothing without `effects`",
            )
            .help("write `effects: [flag_trajectory]`, or another action");
        }
        Self {
            action,
            verdict,
            reason: config.text("reason", d).map(str::to_owned),
            severity,
            effects,
            remediation: config.text("remediation", d).map(str::to_owned),
        }
    }

    /// The decision on what was found.
    pub(super) fn decide(&self, id: &RuleId, found: Found) -> Decision {
        let (id, reason) = (id.clone(), self.reason.clone().unwrap_or(found.reason));
        let mut decision = match &self.verdict {
            Some(verdict) => {
                let prompt = format!("{reason}. Continue?");
                let mut decision = verdict.decide(id, reason);
                if let Some(pause) = &mut decision.pause
                    && pause.prompt.is_empty()
                {
                    pause.prompt = prompt;
                }
                decision
            }
            None if self.action == Action::Redact => Decision::redact(id, reason, found.redactions),
            None => Decision::allow(id, reason),
        };
        decision.remediation = self.remediation.clone().map(Into::into);
        decision.confidence = found.score;
        decision.classifier_result = Some(Box::new(found.result));
        decision
            .with_severity(self.severity)
            .with_effects(self.effects.iter().copied())
    }
}

fn spelt(action: Action) -> &'static str {
    let known = ACTIONS.iter().find(|(_, known)| *known == action);
    known.map_or("", |(name, _)| name)
}
