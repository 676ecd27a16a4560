//! What a gateway does with the core, without deadlines, deep rules and effects.

use portcullis_core::pack::{self, Loaded, Pack};
use portcullis_core::rules::RuleInput;
use portcullis_core::{
    Context, ContextSnapshot, Decision, DecisionPolicy, DefaultDecisionPolicy, Event, Policy,
    Signals, nothing_triggered,
};

/// Loads a pack that must be fine.
pub(crate) fn load(text: &str) -> Policy {
    load_in(text, None)
}

/// Loads a pack that must be fine, in one of its environments.
pub(crate) fn load_in(text: &str, env: Option<&str>) -> Policy {
    try_load(text, env)
        .unwrap_or_else(|report| panic!("{report}\nin:\n{text}"))
        .policy
}

/// Loads a pack.
pub(crate) fn try_load(
    text: &str,
    env: Option<&str>,
) -> Result<Loaded, Box<pack::diagnostic::Report>> {
    pack::load(&Pack {
        file: "pack.yaml",
        text,
        env,
        ..Pack::default()
    })
    .map_err(Box::new)
}

/// A pack with a name, a version, and this.
pub(crate) fn with_head(rest: &str) -> String {
    format!("policy_pack: test\nversion: \"1.0.0\"\n{rest}")
}

/// The decision, or the first rule that fails and why.
pub(crate) fn judge(
    policy: &Policy,
    context: &Context,
    event: &Event,
) -> Result<Decision, (String, String)> {
    if let Some(decision) = policy.over_limits(event) {
        return Ok(decision);
    }
    let scan = policy.scan(event);
    let signals = policy.signals(event, &scan);
    let snapshot = ContextSnapshot::build(event, context, policy.tool_risks(), signals);
    let input = RuleInput {
        event,
        context,
        snapshot: &snapshot,
    };
    let subject = policy.subject(input, &scan);
    let mut decisions = Vec::new();
    for rule in policy.rules() {
        if rule.events().contains(&event.event_type) {
            let decided = rule.evaluate(&subject);
            decisions.extend(decided.map_err(|error| (rule.id().to_string(), error.to_string()))?);
        }
    }
    if decisions.is_empty() {
        return Ok(nothing_triggered());
    }
    Ok(DefaultDecisionPolicy::default().resolve(decisions, &input))
}

/// The decision on an event whose run has no past.
pub(crate) fn judge_fresh(policy: &Policy, event: &Event) -> Decision {
    judge(policy, &Context::new(&*event.run_id), event)
        .unwrap_or_else(|(rule, error)| panic!("{rule}: {error}"))
}

/// What the text asks for.
pub(crate) fn signals(policy: &Policy, event: &Event) -> Signals {
    policy.signals(event, &policy.scan(event))
}
