use std::sync::Arc;

use serde::Serialize;

use super::{
    Body, Compiled, InlineRule, Rule, RuleCompiler, RuleError, RuleInfo, RuleInput, RuleSettings,
    RuleSpec, Subject, documented,
};
use crate::decision::{
    Action, Decision, Effect, PauseScope, PauseSpec, RetrySpec, RuleCost, Severity, StopSpec,
    TimeoutAnswer,
};
use crate::evaluation::Parts;
use crate::expr::{self, Predicate, Root};
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place};
use crate::pack::yaml::{self, MapReader};
use crate::scan::EventSet;

documented! {
    /// Your own policy as a CEL expression.
    ///
    /// When `when` is true the rule decides; when it is false the rule has nothing to say. An
    /// expression that fails, for a key that the event does not have or a wrong type, counts as a
    /// failed rule, and the gate fails closed: guard optional keys with `has(…)`.
    ///
    /// An expression sees
    ///
    /// - `event`: `event_type`, `run_id`, `text_content` (`""` if absent), `tool_name` (`""`),
    ///   `tool_args` (`{}`), `payload`, `timestamp`
    /// - `context`: `run_id`, `tenant_id`, `persona_id`, `tool_context`, `strike_counts`,
    ///   `policy_config`, and your own fields
    /// - `tool`: `name`, `risk_tier` (`""` if the event has no tool)
    /// - `snapshot`: RFC-001's context snapshot
    ///
    /// and has CEL's operators and macros, `size`, `contains`, `startsWith`, `endsWith`, `matches`
    /// and the conversions. One without a loop (`all`, `exists`, `map`, `filter`) runs inline; one
    /// with a loop runs behind the deadline of `gateway.sync.timeout_ms`. An expression is at most
    /// 8 KiB long and 64 levels deep, where `&&` and `||` hardly count; the pattern of `matches` is
    /// written out, never taken from the event.
    ///
    /// ## Configuration
    ///
    /// - `when`: the expression. Required.
    /// - `action`: `STOP` (default), `PAUSE` or `RETRY`.
    /// - `reason`: why, for people. Default: the expression.
    /// - `severity`: `low`, `medium` (default), `high` or `critical`.
    /// - `effects`: any of `flag_trajectory`, `increment_strike`, `emit_alert`, `quarantine_session`.
    /// - `user_message`: with STOP, what the user is told.
    /// - `corrective_message`, `max_attempts`: with RETRY.
    /// - `prompt`, `approver_roles`, `scope`, `timeout_s`, `on_timeout`: with PAUSE. `on_timeout: approve` lets the step happen if nobody
    ///   has said no within `timeout_s`; the default is `deny`.
    /// - `remediation`: what the agent should do instead.
    ///
    /// Give each its own `id`, and say `rule: expression`. Without `events` on the rule, every
    /// standard event is judged.
    ///
    /// ## Example
    ///
    /// ```yaml
    /// sync_rules:
    ///   - id: shell-outside-workspace
    ///     rule: expression
    ///     events: [tool_call_start]
    ///     config:
    ///       when: tool.name == 'shell.run' && !event.tool_args.cwd.startsWith('/workspace')
    ///       action: PAUSE
    ///       reason: Shell command outside the workspace
    ///       prompt: Allow this command outside the workspace?
    /// ```
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct Expression {
        /// The CEL expression: true means the rule decides.
        pub when: String,
        /// Why, for people.
        pub reason: Option<String>,
        /// What happens then.
        pub verdict: Verdict,
        /// How bad.
        pub severity: Severity,
        /// Side effects.
        pub effects: Vec<Effect>,
        /// What the agent should do instead.
        pub remediation: Option<String>,
        /// Where it was configured.
        #[serde(skip)]
        pub place: Place,
    }
}

/// What an expression rule does when its expression holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// End the run.
    Stop(StopSpec),
    /// Ask a person.
    Pause(PauseSpec),
    /// Have the step corrected.
    Retry(RetrySpec),
}

const ROOTS: &[Root] = &[
    (
        "event",
        Some(&[
            "event_type",
            "run_id",
            "text_content",
            "tool_name",
            "tool_args",
            "payload",
            "timestamp",
        ]),
    ),
    ("context", None),
    ("tool", Some(&["name", "risk_tier"])),
    (
        "snapshot",
        Some(&[
            "schema_version",
            "user_text",
            "primary_source",
            "contains_untrusted",
            "max_tool_risk",
            "current_tool",
            "requests_system_info",
            "requests_capability_change",
            "previous_violations",
        ]),
    ),
];

impl Expression {
    pub(super) const SPEC: RuleSpec = RuleSpec {
        id: "expression",
        version: "1.0.0",
        cost: RuleCost::Fast,
        events: EventSet::standard,
        doc: Self::DOC,
        read: Self::read,
    };

    /// Stops the run when this holds.
    pub fn new(when: impl Into<String>) -> Self {
        Self {
            when: when.into(),
            reason: None,
            verdict: Verdict::Stop(StopSpec::default()),
            severity: Severity::default(),
            effects: Vec::new(),
            remediation: None,
            place: Place::default(),
        }
    }

    fn read(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<RuleSettings> {
        let when = config.require("when", d);
        let verdict = read_verdict(config, d);
        let (severity, effects) = read_severity(config, d);
        let reason = config.text("reason", d).map(str::to_owned);
        let remediation = config.text("remediation", d).map(str::to_owned);
        let when_node = when?;
        Some(RuleSettings::Expression(Self {
            when: yaml::text(when_node, "when", d)?.to_owned(),
            reason,
            verdict: verdict?,
            severity,
            effects,
            remediation,
            place: when_node.place,
        }))
    }

    pub(super) fn compile(&self, compiler: &mut RuleCompiler<'_>) -> Compiled {
        let events = compiler.events_or(EventSet::standard);
        let predicate = match Predicate::compile(&self.when, ROOTS) {
            Ok(predicate) => Some(predicate),
            Err(error) => {
                let place = error.place(&self.when, self.place);
                compiler.diagnostics.error(place, error.message).help = error.help;
                None
            }
        };
        let loops = predicate
            .as_ref()
            .is_some_and(|predicate| predicate.loops().any);
        let reads = predicate.iter().flat_map(Predicate::reads);
        let reads = reads.map(part).fold(Parts::default(), Parts::and);
        let rule = CompiledExpression {
            id: compiler.id.clone(),
            predicate,
            settings: self.clone(),
        };
        let body = if loops {
            Body::Fenced(Arc::new(rule))
        } else {
            Body::Inline(Box::new(rule))
        };
        Compiled {
            events,
            reads,
            body,
        }
    }
}

/// The part of the event behind a name in an expression.
fn part(name: (&str, &str)) -> Parts {
    match name {
        ("event", "text_content") | ("snapshot", "user_text") => Parts::TEXT,
        ("event", "tool_name") | ("tool", _) | ("snapshot", "current_tool") => Parts::TOOL_NAME,
        ("event", "tool_args") => Parts::TOOL_ARGS,
        ("event", "payload") => Parts::PAYLOAD.and(Parts::RESULT),
        ("event" | "snapshot", "") => Parts::ALL,
        _ => Parts::default(),
    }
}

/// The keys that only one action has.
const OWN_KEYS: &[(Action, &[&str])] = &[
    (Action::Stop, &["user_message"]),
    (
        Action::Pause,
        &[
            "prompt",
            "approver_roles",
            "scope",
            "timeout_s",
            "on_timeout",
        ],
    ),
    (Action::Retry, &["corrective_message", "max_attempts"]),
];

fn read_verdict(config: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<Verdict> {
    let node = config.get("action");
    let actions = [
        ("STOP", Action::Stop),
        ("PAUSE", Action::Pause),
        ("RETRY", Action::Retry),
    ];
    let action = match node {
        Some(node) => yaml::one_of(node, "action", &actions, d)?,
        None => Action::Stop,
    };
    refuse_other_keys(config, action, Action::as_str, d);
    Verdict::read(config, action, d)
}

/// Reports the keys that only another action has. `spelt` is how the rule writes actions.
pub(super) fn refuse_other_keys(
    config: &mut MapReader<'_>,
    action: Action,
    spelt: fn(Action) -> &'static str,
    d: &mut Diagnostics,
) {
    for (owner, keys) in OWN_KEYS {
        for key in keys.iter().filter(|_| *owner != action) {
            let (owner, action) = (spelt(*owner), spelt(action));
            let message = format!("`{key}` goes with `action: {owner}`, and this is {action}");
            config.refuse(key, &message, d);
        }
    }
}

impl Verdict {
    /// The keys of an action that has some.
    pub(super) fn read(
        config: &mut MapReader<'_>,
        action: Action,
        d: &mut Diagnostics,
    ) -> Option<Self> {
        match action {
            Action::Allow | Action::Redact => None,
            Action::Pause => Some(Self::Pause(read_pause(config, d))),
            Action::Retry => Some(Self::Retry(read_retry(config, d))),
            Action::Stop => {
                let mut stop = StopSpec::default();
                if let Some(message) = config.text("user_message", d) {
                    stop.user_message = message.to_owned().into();
                }
                Some(Self::Stop(stop))
            }
        }
    }

    /// The decision.
    pub(super) fn decide(&self, rule: RuleId, reason: String) -> Decision {
        match self {
            Self::Stop(stop) => Decision::stop(rule, reason, stop.clone()),
            Self::Pause(pause) => Decision::pause(rule, reason, pause.clone()),
            Self::Retry(retry) => Decision::retry(rule, reason, retry.clone()),
        }
    }
}

fn read_pause(config: &mut MapReader<'_>, d: &mut Diagnostics) -> PauseSpec {
    let scopes = PauseScope::ALL.map(|scope| (scope.as_str(), scope));
    let answers = TimeoutAnswer::ALL.map(|answer| (answer.as_str(), answer));
    let default = PauseSpec::default();
    PauseSpec {
        scope: config.one_of("scope", &scopes, d).unwrap_or(default.scope),
        approver_roles: config
            .texts("approver_roles", d)
            .unwrap_or(default.approver_roles),
        prompt: config.text("prompt", d).unwrap_or_default().to_owned(),
        timeout_s: config.amount("timeout_s", d).or(default.timeout_s),
        on_timeout: config.one_of("on_timeout", &answers, d).unwrap_or_default(),
    }
}

fn read_retry(config: &mut MapReader<'_>, d: &mut Diagnostics) -> RetrySpec {
    let attempts = config.count("max_attempts", d);
    RetrySpec {
        max_attempts: attempts.map_or(RetrySpec::default().max_attempts, |n| {
            u32::try_from(n).unwrap_or(u32::MAX)
        }),
        corrective_message: config
            .text("corrective_message", d)
            .unwrap_or_default()
            .to_owned(),
    }
}

/// The `severity` and `effects` of a rule's configuration.
pub(super) fn read_severity(
    config: &mut MapReader<'_>,
    d: &mut Diagnostics,
) -> (Severity, Vec<Effect>) {
    let severities = Severity::ALL.map(|severity| (severity.as_str(), severity));
    let severity = config.one_of("severity", &severities, d);
    let names = Effect::ALL.map(|effect| (effect.as_str(), effect));
    let effects = config.list("effects", d).unwrap_or_default().iter();
    let effects = effects.filter_map(|node| yaml::one_of(node, "effect", &names, d));
    let effects = effects.collect();
    (severity.unwrap_or_default(), effects)
}

struct CompiledExpression {
    id: RuleId,
    /// `None` only while diagnostics are collected; such a policy is never built.
    predicate: Option<Predicate>,
    settings: Expression,
}

impl CompiledExpression {
    fn judge(&self, input: &RuleInput<'_>) -> Result<Option<Decision>, RuleError> {
        let Some(predicate) = &self.predicate else {
            return Err(RuleError("the expression did not compile".to_owned()));
        };
        let holds = predicate.holds(variables(input)).map_err(RuleError)?;
        Ok(holds.then(|| self.decide()))
    }

    fn decide(&self) -> Decision {
        let settings = &self.settings;
        let id = self.id.clone();
        let reason = settings
            .reason
            .clone()
            .unwrap_or_else(|| format!("`{}` holds", settings.when));
        let mut decision = settings.verdict.decide(id, reason);
        decision.remediation = settings.remediation.clone().map(Into::into);
        decision
            .with_severity(settings.severity)
            .with_effects(settings.effects.iter().copied())
    }
}

impl InlineRule for CompiledExpression {
    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<Decision>, RuleError> {
        self.judge(&subject.input)
    }
}

impl Rule for CompiledExpression {
    fn info(&self) -> RuleInfo {
        RuleInfo {
            id: self.id.clone(),
            version: Expression::SPEC.version.into(),
            events: EventSet::standard(),
            severity: self.settings.severity,
        }
    }

    fn evaluate(&self, input: &RuleInput<'_>) -> Result<Option<Decision>, RuleError> {
        self.judge(input)
    }
}

fn variables(input: &RuleInput<'_>) -> [(&'static str, cel::Value); 4] {
    let RuleInput {
        event,
        context,
        snapshot,
    } = input;
    let object = |members: &serde_json::Map<String, serde_json::Value>| {
        expr::map(members.iter().map(|(k, v)| (k.as_str(), expr::to_cel(v))))
    };
    let event_value = expr::map([
        ("event_type", event.event_type.as_str().into()),
        ("run_id", event.run_id.as_str().into()),
        ("text_content", event.text().into()),
        (
            "tool_name",
            event.tool_name.as_deref().unwrap_or_default().into(),
        ),
        (
            "tool_args",
            event
                .tool_args
                .as_ref()
                .map_or_else(|| expr::map([]), object),
        ),
        ("payload", object(&event.payload)),
        (
            "timestamp",
            event.timestamp.map_or(cel::Value::Null, cel::Value::Float),
        ),
    ]);
    let context_value = serde_json::to_value(context).unwrap_or_default();
    let snapshot_value = serde_json::to_value(snapshot.to_wire()).unwrap_or_default();
    let tool = snapshot.current_tool.as_ref();
    let tool_value = expr::map([
        ("name", tool.map_or("", |tool| &*tool.name).into()),
        (
            "risk_tier",
            tool.map_or("", |tool| tool.risk_tier.as_str()).into(),
        ),
    ]);
    [
        ("event", event_value),
        ("context", expr::to_cel(&context_value)),
        ("tool", tool_value),
        ("snapshot", expr::to_cel(&snapshot_value)),
    ]
}
