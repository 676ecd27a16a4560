//! A policy: settings, compiled once, judged by many times.
//!
//! [`PolicyBuilder`] is the way in from code; [`crate::pack::load`] fills one from YAML. Either way
//! [`PolicyBuilder::compile`] gives an immutable [`Policy`] with a digest over everything that can
//! change a verdict.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::{Value, json};

use crate::canonical;
use crate::decision::{Decision, RedactionSpec, Severity, StopSpec};
use crate::error_code::ErrorCode;
use crate::evaluation::{Parts, PolicyIdentity};
use crate::event::{Event, EventType};
use crate::history::Trigger;
use crate::ids::RuleId;
use crate::pack::diagnostic::{Diagnostics, Place, Report};
use crate::route::DefaultRiskRouter;
use crate::rules::{
    Answer, Body, CompiledRule, DeepRuleEntry, DeepRuleSettings, DeepSettings, DeepSpec, EventScan,
    Rule, RuleCompiler, RuleInput, RuleSettings, Subject,
};
use crate::scan::{Candidates, EventSet, PatternId, Prefixes, Scanner, ScannerBuilder};
use crate::signals::SignalPatterns;
use crate::snapshot::{Signals, ToolRiskTier, ToolRisks};
use crate::stream::MAX_HOLD_BYTES;
use crate::structured::{self, Measure};

/// Whether decisions bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Everything is judged and recorded, nothing is enforced.
    Shadow,
    /// Decisions bind.
    #[default]
    Enforce,
}

/// `GatewayConfig` (RFC-001 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GatewaySettings {
    /// Whether decisions bind.
    pub mode: Mode,
    /// What a fast rule may take.
    pub sync_timeout_ms: f64,
    /// Whether fenced fast rules run side by side.
    pub sync_parallel: bool,
    /// Whether a fast rule that fails is dropped instead of stopping the run.
    pub sync_fail_open: bool,
    /// Whether deep rules run at all.
    pub async_enabled: bool,
    /// Whether a deep rule that fails is dropped instead of stopping the run.
    pub async_fail_open: bool,
    /// When a deep rule that does not answer is no longer asked.
    pub async_breaker: BreakerSettings,
    /// Ask a deep rule once more when it has not answered after so long; the first answer counts. Off by default: it
    /// costs the service behind the rule twice the work just when it is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub async_hedge_after_ms: Option<f64>,
}

/// When a deep rule that does not answer is no longer asked, so that a dead classifier does not cost every
/// event its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BreakerSettings {
    /// So many failures and timeouts in a row open the circuit; 0: never.
    pub failures: u32,
    /// After so long, one event asks again.
    pub cool_down_ms: f64,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 5,
            cool_down_ms: 5_000.0,
        }
    }
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            sync_timeout_ms: 15.0,
            sync_parallel: true,
            sync_fail_open: false,
            async_enabled: true,
            async_fail_open: true,
            async_breaker: BreakerSettings::default(),
            async_hedge_after_ms: None,
        }
    }
}

/// What an event may measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// For `text_content`, and for the strings of the structured part together.
    pub max_text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_text_bytes: 1 << 20,
        }
    }
}

/// What the name of a run, an event type or a tool may measure. Names are kept between events.
const MAX_NAME_BYTES: usize = 1 << 10;

/// Settings on their way to a [`Policy`].
#[derive(Clone)]
pub struct PolicyBuilder {
    id: String,
    version: String,
    gateway: GatewaySettings,
    limits: Limits,
    tool_risks: Vec<(String, ToolRiskTier)>,
    risk_router: DefaultRiskRouter,
    rules: Vec<RuleEntry>,
    deep_rules: Vec<DeepRuleEntry>,
}

#[derive(Clone)]
struct RuleEntry {
    id: RuleId,
    events: Option<EventSet>,
    kind: RuleKind,
    place: Place,
}

#[derive(Clone)]
enum RuleKind {
    BuiltIn(RuleSettings),
    Custom(Arc<dyn Rule>),
}

impl PolicyBuilder {
    /// A policy without rules.
    pub fn new(id: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            version: version.into(),
            gateway: GatewaySettings::default(),
            limits: Limits::default(),
            tool_risks: Vec::new(),
            risk_router: DefaultRiskRouter::default(),
            rules: Vec::new(),
            deep_rules: Vec::new(),
        }
    }

    /// Replaces the gateway's settings.
    pub fn gateway(mut self, gateway: GatewaySettings) -> Self {
        self.gateway = gateway;
        self
    }

    /// Replaces the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the tier of a tool; `__default__` is the tier of unlisted tools.
    pub fn tool_risk(mut self, tool: impl Into<String>, tier: ToolRiskTier) -> Self {
        self.tool_risks.push((tool.into(), tier));
        self
    }

    /// Replaces the default router's settings.
    pub fn risk_router(mut self, router: DefaultRiskRouter) -> Self {
        self.risk_router = router;
        self
    }

    /// Adds a built-in rule under its own name.
    pub fn rule(self, settings: RuleSettings) -> Self {
        let id = RuleId::from_static(settings.spec().id);
        self.named_rule(id, settings, None, Place::default())
    }

    /// Adds a built-in rule under a name of yours, on events of yours.
    pub fn named_rule(
        mut self,
        id: impl Into<RuleId>,
        settings: RuleSettings,
        events: Option<EventSet>,
        place: Place,
    ) -> Self {
        let (given, own) = (id.into(), settings.spec().id);
        self.rules.push(RuleEntry {
            // Every evaluation copies the names of its rules, and its own name costs nothing to copy.
            id: if given.as_str() == own {
                RuleId::from_static(own)
            } else {
                given
            },
            events,
            kind: RuleKind::BuiltIn(settings),
            place,
        });
        self
    }

    /// Adds a rule of your own. `events` replace the ones it asks for.
    pub fn custom_rule(
        mut self,
        rule: Arc<dyn Rule>,
        events: Option<EventSet>,
        place: Place,
    ) -> Self {
        self.rules.push(RuleEntry {
            id: rule.info().id,
            events,
            kind: RuleKind::Custom(rule),
            place,
        });
        self
    }

    /// The deep rules that are named so far.
    pub(crate) fn deep_rule_ids(&self) -> impl Iterator<Item = &RuleId> {
        self.deep_rules.iter().map(|rule| &rule.id)
    }

    /// Those among them that are to run.
    pub(crate) fn enabled_deep_rule_ids(&self) -> impl Iterator<Item = &RuleId> {
        let enabled = self.deep_rules.iter().filter(|rule| rule.enabled);
        enabled.map(|rule| &rule.id)
    }

    /// Names a deep rule that the gateway is to run, and that somebody else builds.
    pub fn deep_rule(mut self, settings: DeepRuleSettings) -> Self {
        self.deep_rules.push(settings.into());
        self
    }

    /// Adds a deep rule of a known kind under a name of yours, on events of yours.
    pub fn named_deep_rule(
        mut self,
        id: impl Into<RuleId>,
        spec: &DeepSpec,
        settings: DeepSettings,
        events: Option<EventSet>,
        enabled: bool,
    ) -> Self {
        let entry = DeepRuleEntry::new(id.into(), spec, settings, events, enabled);
        self.deep_rules.push(entry);
        self
    }

    /// Whether a rule of this name is there.
    pub fn has_rule(&self, id: &str) -> bool {
        self.rules.iter().any(|rule| rule.id.as_str() == id)
            || self.deep_rules.iter().any(|rule| rule.id.as_str() == id)
    }

    /// A sequence that waits for a rule that is not there would wait for ever.
    fn check_sequences(&self, diagnostics: &mut Diagnostics) {
        for entry in &self.rules {
            let RuleKind::BuiltIn(RuleSettings::Sequence(sequence)) = &entry.kind else {
                continue;
            };
            for (rule, place) in sequence.after_rules.iter().zip(&sequence.places) {
                if !self.has_rule(rule.as_str()) {
                    let known = self.rules.iter().map(|rule| rule.id.as_str());
                    diagnostics
                        .error(*place, format!("no rule `{rule}` in this pack"))
                        .suggest(rule.as_str(), known);
                }
            }
        }
    }

    /// Compiles. The report names every problem.
    pub fn compile(self) -> Result<Policy, Report> {
        let mut diagnostics = Diagnostics::default();
        match self.compile_into(&mut diagnostics) {
            Some(policy) => Ok(policy),
            None => Err(Report {
                file: "policy".to_owned(),
                text: String::new(),
                diagnostics,
            }),
        }
    }

    pub(crate) fn compile_into(self, diagnostics: &mut Diagnostics) -> Option<Policy> {
        let tool_risks = self.tool_risks.iter().cloned().collect::<ToolRisks>();
        let mut scanner = ScannerBuilder::default();
        let signals = SignalPatterns::add(&mut scanner, diagnostics);
        let mut rules: Vec<CompiledRule> = Vec::new();
        let mut rules_json: Vec<Value> = Vec::new();
        let mut structured_events = EventSet::default();
        let (mut stream_patterns, mut triggers) = (Vec::new(), Vec::new());
        let mut evasive_events = EventSet::default();
        for entry in &self.rules {
            if rules.iter().any(|known| known.id == entry.id) {
                diagnostics
                    .error(entry.place, format!("rule `{}` is there twice", entry.id))
                    .help("give one of them another `id`, and name its kind with `rule:`");
                continue;
            }
            let rule = entry.compile(&mut RuleCompiler {
                id: entry.id.clone(),
                events: entry.events.clone(),
                scanner: &mut scanner,
                stream_patterns: &mut stream_patterns,
                triggers: &mut triggers,
                evasive_events: &mut evasive_events,
                evasive: false,
                diagnostics,
            });
            if rule.scans {
                structured_events.extend(&rule.events);
            }
            rules_json.push(entry.to_json(&rule));
            rules.push(rule);
        }
        self.check_sequences(diagnostics);
        let settings = json!({
            "id": self.id,
            "version": self.version,
            "gateway": self.gateway,
            "limits": self.limits,
            "tool_risks": tool_risks.listed().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "unlisted_tool_risk": tool_risks.unlisted(),
            "risk_router": self.risk_router,
            "rules": rules_json,
            "deep_rules": self.deep_rules,
            "signals": signals.sources,
        });
        let digest = match canonical::digest(&settings) {
            Ok(digest) => digest,
            Err(error) => {
                diagnostics.error(
                    Place::default(),
                    format!("cannot digest the policy: {error}"),
                );
                return None;
            }
        };
        if diagnostics.has_errors() {
            return None;
        }
        Some(Policy {
            identity: Arc::new(PolicyIdentity {
                id: self.id,
                version: self.version,
                digest,
            }),
            gateway: self.gateway,
            limits: self.limits,
            tool_risks,
            risk_router: self.risk_router,
            scanner: scanner.build(),
            signals,
            rules,
            structured_events,
            stream_patterns,
            prefixes: OnceLock::new(),
            triggers,
            evasive_events,
            deep_rules: self.deep_rules,
        })
    }
}

impl RuleEntry {
    fn compile(&self, compiler: &mut RuleCompiler<'_>) -> CompiledRule {
        match &self.kind {
            RuleKind::BuiltIn(settings) => {
                let compiled = settings.compile(compiler);
                let scans = matches!(
                    settings,
                    RuleSettings::SecretRedaction(_)
                        | RuleSettings::PiiRedaction(_)
                        | RuleSettings::InjectionPatterns(_)
                        | RuleSettings::SecretEgress(_)
                        | RuleSettings::ShellObfuscation(_)
                        | RuleSettings::ToolDefinitions(_)
                );
                let kind = settings.spec().id;
                CompiledRule {
                    // The name is part of every answer; copies of a shared one are counted by all threads.
                    id: if self.id.as_str() == kind {
                        RuleId::from_static(kind)
                    } else {
                        self.id.clone()
                    },
                    kind,
                    version: settings.spec().version.to_owned(),
                    events: compiled.events,
                    reads: compiled.reads,
                    scans,
                    evasive: compiler.evasive,
                    body: compiled.body,
                }
            }
            RuleKind::Custom(rule) => {
                let info = rule.info();
                CompiledRule {
                    id: self.id.clone(),
                    kind: "custom",
                    version: info.version.into_owned(),
                    events: self.events.clone().unwrap_or(info.events),
                    reads: Parts::ALL,
                    scans: false,
                    evasive: false,
                    body: Body::Fenced(Arc::clone(rule)),
                }
            }
        }
    }

    fn to_json(&self, rule: &CompiledRule) -> Value {
        let config = match &self.kind {
            RuleKind::BuiltIn(settings) => serde_json::to_value(settings).unwrap_or_default(),
            RuleKind::Custom(_) => Value::Null,
        };
        json!({
            "id": self.id,
            "rule": rule.kind,
            "version": rule.version,
            "events": rule.events.names(),
            "config": config,
        })
    }
}

/// A compiled, immutable policy.
pub struct Policy {
    identity: Arc<PolicyIdentity>,
    gateway: GatewaySettings,
    limits: Limits,
    tool_risks: ToolRisks,
    risk_router: DefaultRiskRouter,
    scanner: Scanner,
    signals: SignalPatterns,
    rules: Vec<CompiledRule>,
    /// Events whose structured part some rule wants scanned.
    structured_events: EventSet,
    /// What a streamed answer is searched for.
    stream_patterns: Vec<PatternId>,
    /// Made when the first answer is streamed.
    prefixes: OnceLock<Prefixes>,
    /// What sequence rules wait for.
    triggers: Vec<Trigger>,
    /// Events whose texts some rule wants to see through disguises.
    evasive_events: EventSet,
    deep_rules: Vec<DeepRuleEntry>,
}

impl Policy {
    /// The policy of a gateway that has none. It allows everything, under a name of its own.
    pub fn absent() -> Self {
        Self {
            identity: Arc::new(PolicyIdentity {
                id: RuleId::NO_POLICY.as_str().to_owned(),
                version: String::new(),
                digest: String::new(),
            }),
            gateway: GatewaySettings::default(),
            limits: Limits::default(),
            tool_risks: ToolRisks::default(),
            risk_router: DefaultRiskRouter::default(),
            scanner: ScannerBuilder::default().build(),
            signals: SignalPatterns::default(),
            rules: Vec::new(),
            structured_events: EventSet::default(),
            stream_patterns: Vec::new(),
            prefixes: OnceLock::new(),
            triggers: Vec::new(),
            evasive_events: EventSet::default(),
            deep_rules: Vec::new(),
        }
    }

    /// Whether this is [`Policy::absent`].
    pub fn is_absent(&self) -> bool {
        self.identity.digest.is_empty()
    }

    /// Its name, version and digest.
    pub fn identity(&self) -> &Arc<PolicyIdentity> {
        &self.identity
    }

    /// How the gateway runs it.
    pub fn gateway(&self) -> &GatewaySettings {
        &self.gateway
    }

    /// What an event may measure.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The tiers of tools.
    pub fn tool_risks(&self) -> &ToolRisks {
        &self.tool_risks
    }

    /// The router, unless the embedder has its own.
    pub fn risk_router(&self) -> &DefaultRiskRouter {
        &self.risk_router
    }

    /// The deep rules it names.
    pub fn deep_rules(&self) -> &[DeepRuleEntry] {
        &self.deep_rules
    }

    /// All fast rules, in order.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// The one scanner.
    pub fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    /// Whether rules depend on the earlier steps of a run, so that somebody must remember them.
    pub fn has_sequences(&self) -> bool {
        !self.triggers.is_empty()
    }

    /// The sequence rules that a step is what they wait for. `decided` are the rules that had something
    /// to say of it, `stopped` says that it did not happen.
    pub fn satisfied<'p>(
        &'p self,
        event: &'p Event,
        decided: &'p [&RuleId],
        stopped: bool,
    ) -> impl Iterator<Item = &'p RuleId> {
        self.triggers
            .iter()
            .filter(move |trigger| trigger.fires(event, decided, stopped))
            .map(|trigger| &trigger.rule)
    }

    /// The patterns that a streamed answer is searched for.
    pub(crate) fn stream_patterns(&self) -> &[PatternId] {
        &self.stream_patterns
    }

    /// The rules that search a streamed answer for patterns.
    pub(crate) fn stream_rules(&self) -> impl Iterator<Item = &CompiledRule> {
        let streamed = |rule: &&CompiledRule| rule.events.contains(&EventType::LlmStreamChunk);
        self.rules.iter().filter(|rule| rule.scans).filter(streamed)
    }

    pub(crate) fn prefixes(&self) -> &Prefixes {
        self.prefixes
            .get_or_init(|| self.scanner.prefixes(&self.stream_patterns))
    }

    /// Compiles every pattern now. Built-in patterns are otherwise compiled when a text first needs
    /// them, which costs that text a millisecond or more each; something that serves for long does this
    /// once, on a thread of its own.
    pub fn warm(&self) {
        self.scanner.warm();
        self.rules.iter().for_each(CompiledRule::warm);
    }

    /// How much of a streamed answer can be held back at most, in bytes.
    pub fn max_hold(&self) -> usize {
        let longest = self.prefixes().max_len();
        longest.unwrap_or(MAX_HOLD_BYTES).min(MAX_HOLD_BYTES)
    }

    /// STOP if the event is larger than the limits.
    pub fn over_limits(&self, event: &Event) -> Option<Decision> {
        let max = self.limits.max_text_bytes;
        let text = event.text().len();
        let measured = Measure::of(event);
        let max_paths = structured::max_paths(max);
        let names = [
            &*event.run_id,
            event.event_type.as_str(),
            event.tool_name.as_deref().unwrap_or_default(),
        ];
        let (reason, remediation) = if names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
            (
                format!("run_id, event_type or tool_name is longer than {MAX_NAME_BYTES} bytes"),
                "use shorter names".to_owned(),
            )
        } else if text > max {
            (
                format!("text_content is {text} bytes; the limit is {max}"),
                format!("send at most {max} bytes of text in one event"),
            )
        } else if measured.text > max {
            let bytes = measured.text;
            (
                format!("the structured part is {bytes} bytes; the limit is {max}"),
                format!("send at most {max} bytes of text in one event"),
            )
        } else if measured.paths > max_paths {
            (
                format!("the paths of the structured part are more than {max_paths} bytes"),
                "use shorter member names, or nest less deeply".to_owned(),
            )
        } else {
            return None;
        };
        let stop = StopSpec::code(ErrorCode::TextTooLarge);
        Some(
            Decision::stop(RuleId::LIMITS, reason, stop)
                .with_severity(Severity::High)
                .with_remediation(remediation),
        )
    }

    /// Scans the event for the patterns of all rules. One pass over its text.
    pub fn scan<'e>(&self, event: &'e Event) -> EventScan<'e> {
        let event_type = &event.event_type;
        let scan = structured::Scan {
            scanner: &self.scanner,
            event_type,
            evasive: self.evasive_events.contains(event_type),
        };
        // Put together where it is: it is large.
        let mut found = EventScan {
            text: Candidates::none(),
            window: 0..event.text().len(),
            leaves: Vec::new(),
            complete: true,
            names_hosts: Answer::default(),
        };
        let path = || Cow::Borrowed(RedactionSpec::TEXT);
        found.complete = scan.text(event.text(), path, &mut found.text, &mut found.leaves);
        if self.structured_events.contains(event_type)
            && let Some(structured) = event.structured()
        {
            found.complete &= scan.structured(structured, &mut found.leaves);
        }
        found
    }

    /// Whether some rule wants to see a streamed answer through disguises.
    pub(crate) fn folds_stream(&self) -> bool {
        self.evasive_events.contains(&EventType::LlmStreamChunk)
    }

    /// What the text asks for, as the scan saw it.
    pub fn signals(&self, event: &Event, scan: &EventScan<'_>) -> Signals {
        let any = |ids: &[PatternId]| {
            ids.iter().any(|id| {
                let text = &scan.text;
                text.contains(*id) && self.scanner.finds(*id, event.text(), text)
            })
        };
        if scan.text.is_empty() {
            return Signals::default();
        }
        Signals {
            requests_system_info: any(&self.signals.system_info),
            requests_capability_change: any(&self.signals.capability_change),
        }
    }

    /// What the rules judge.
    pub fn subject<'e>(&'e self, input: RuleInput<'e>, scan: &'e EventScan<'e>) -> Subject<'e> {
        Subject {
            input,
            scanner: &self.scanner,
            scan,
        }
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
