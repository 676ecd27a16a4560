//! Policy packs: YAML in, [`Policy`] or a report out (RFC-001 §10).
//!
//! Three steps: text → options with places ([`yaml`]) → settings ([`PolicyBuilder`]) → compiled
//! policy. Every problem of the file is reported at once, with its place and the nearest valid name.
//! A pack with an error in any environment is refused in all of them.

pub mod cases;
mod deep;
pub mod diagnostic;
pub mod yaml;

use std::sync::Arc;

use crate::detectors::{self, Entry, Kind};
use crate::event::EventType;
use crate::ids::RuleId;
use crate::policy::{GatewaySettings, Limits, Mode, Policy, PolicyBuilder};
use crate::route::{DefaultRiskRouter, OnTimeout};
use crate::rules::{BUILT_IN, KNOWN_DEEP, Rule, RuleSettings};
use crate::scan::EventSet;
use crate::snapshot::{ToolRiskTier, ToolRisks};
use diagnostic::{Diagnostic, Diagnostics, Place, Report};
use yaml::{MapReader, Node, Yaml};

/// The pack that a user gets with no flags.
pub const DEFAULT: &str = include_str!("../../../../policies/default.yaml");

/// A pack and what it is loaded with.
#[derive(Clone, Default)]
pub struct Pack<'p> {
    /// The file's name, for messages.
    pub file: &'p str,
    /// The file's text.
    pub text: &'p str,
    /// The environment whose overlay applies.
    pub env: Option<&'p str>,
    /// Fast rules of the embedder: the pack may configure them by id.
    pub custom_rules: &'p [Arc<dyn Rule>],
    /// Ids of the embedder's deep rules.
    pub deep_rules: &'p [&'p str],
}

/// A loaded pack.
#[derive(Debug)]
pub struct Loaded {
    /// Ready to judge by.
    pub policy: Policy,
    /// Findings that do not prevent its use.
    pub warnings: Report,
    /// The names of the pack's environments.
    pub environments: Vec<String>,
}

/// The file's name of the built-in pack.
pub const DEFAULT_FILE: &str = "policies/default.yaml";

/// Loads the built-in pack.
pub fn load_default() -> Result<Loaded, Report> {
    load_built_in(None)
}

/// Loads the built-in pack in an environment. The others are known to be good, so they cost nothing.
pub fn load_built_in(env: Option<&str>) -> Result<Loaded, Report> {
    let pack = Pack {
        file: DEFAULT_FILE,
        text: DEFAULT,
        env,
        ..Pack::default()
    };
    load_checked(&pack, Checked::OnlyAskedFor)
}

/// Loads a pack, or says everything that is wrong with it.
pub fn load(pack: &Pack<'_>) -> Result<Loaded, Report> {
    load_checked(pack, Checked::All)
}

/// Which environments of a pack are compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    All,
    OnlyAskedFor,
}

fn load_checked(pack: &Pack<'_>, checked: Checked) -> Result<Loaded, Report> {
    let mut diagnostics = Diagnostics::default();
    let root =
        yaml::parse(pack.text, &mut diagnostics).filter(|root| !is_empty(root, &mut diagnostics));
    let policy = root
        .as_ref()
        .and_then(|root| load_environments(root, pack, checked, &mut diagnostics));
    let environments = root.as_ref().and_then(overlays).unwrap_or_default();
    let report = |diagnostics| Report {
        file: pack.file.to_owned(),
        text: pack.text.to_owned(),
        diagnostics,
    };
    if let Some(policy) = &policy
        && !diagnostics.has_errors()
        && policy.rules().is_empty()
        && !policy.deep_rules().iter().any(|rule| rule.enabled)
    {
        let start = Place {
            line: 1,
            column: 1,
            width: 1,
        };
        diagnostics.warning(start, "this policy has no rules, so it allows everything");
    }
    match policy {
        Some(policy) if !diagnostics.has_errors() => Ok(Loaded {
            policy,
            warnings: report(diagnostics),
            environments: environments
                .iter()
                .map(|(key, _)| key.name.clone())
                .collect(),
        }),
        _ => Err(report(diagnostics)),
    }
}

/// Every entry of the families, in order. An unknown family is reported.
pub(crate) fn read_families(
    kind: Kind,
    families: &[(String, Place)],
    d: &mut Diagnostics,
) -> Vec<(Entry, Place)> {
    let mut entries = Vec::new();
    for (index, (name, place)) in families.iter().enumerate() {
        if families[..index].iter().any(|(known, _)| known == name) {
            d.error(*place, format!("family `{name}` is there twice"))
                .help("keep one of them");
            continue;
        }
        match detectors::family(kind, name) {
            Some(Ok(family)) => {
                entries.extend(family.entries.into_iter().map(|entry| (entry, *place)));
            }
            Some(Err(report)) => {
                d.error(*place, format!("family `{name}` is broken: {report}"));
            }
            None => d
                .error(*place, format!("unknown detector family `{name}`"))
                .suggest(name, detectors::names(kind)),
        }
    }
    entries
}

/// What a pattern rule's `families` says; these if it says nothing.
pub(crate) fn configured_families(
    config: &mut MapReader<'_>,
    default: &[&str],
    d: &mut Diagnostics,
) -> Vec<(String, Place)> {
    let families = config.placed_texts("families", d).unwrap_or_else(|| {
        let place = config.place();
        default
            .iter()
            .map(|name| ((*name).to_owned(), place))
            .collect()
    });
    if families.is_empty() && config.get("patterns").is_none() {
        let place = config.key_place("families").unwrap_or_default();
        d.warning(
            place,
            "no `families` and no `patterns`, so the rule looks for nothing",
        )
        .help("name a family, or set `enabled: false`");
    }
    families
}

fn is_empty(root: &Node, d: &mut Diagnostics) -> bool {
    let empty = root.yaml == Yaml::Null;
    if empty {
        let start = Place {
            line: 1,
            column: 1,
            width: 1,
        };
        d.error(start, "the file is empty")
            .help("a pack starts with `policy_pack: NAME` and `version: \"1.0.0\"`");
    }
    empty
}

fn overlays(root: &Node) -> Option<&[(yaml::Key, Node)]> {
    match &root.member("environments")?.yaml {
        Yaml::Map(overlays) => Some(overlays),
        _ => None,
    }
}

/// Compiles the pack as it is and under each of its environments; gives back the one asked for.
fn load_environments(
    root: &Node,
    pack: &Pack<'_>,
    checked: Checked,
    d: &mut Diagnostics,
) -> Option<Policy> {
    let wanted = |env: Option<&str>| checked == Checked::All || pack.env == env;
    let base = wanted(None).then(|| compile(root, pack, d)).flatten();
    let mut chosen = pack.env.is_none().then_some(base).flatten();
    let overlays = overlays(root).unwrap_or_default();
    for (name, overlay) in overlays {
        if !wanted(Some(&name.name)) {
            continue;
        }
        if let Yaml::Map(entries) = &overlay.yaml
            && let Some((key, _)) = entries.iter().find(|(key, _)| key.name == "environments")
        {
            d.error(
                key.place,
                "an environment cannot have environments of its own",
            );
            continue;
        }
        let mut own = Diagnostics::default();
        let overlay = match overlay.yaml {
            Yaml::Null => None,
            Yaml::Map(_) => Some(overlay),
            _ => {
                d.error(
                    overlay.place,
                    format!("environment `{}` must be a mapping", name.name),
                );
                continue;
            }
        };
        let merged = overlay.map_or_else(|| root.clone(), |overlay| root.overlaid(overlay));
        let policy = compile(&merged, pack, &mut own);
        d.absorb(own);
        if pack.env == Some(&name.name) {
            chosen = policy;
        }
    }
    let readable = root.member("environments").is_none() || !overlays.is_empty();
    if let Some(env) = pack.env
        && readable
        && !overlays.iter().any(|(key, _)| key.name == env)
    {
        let finding = d.error(
            environments_place(root),
            format!("this pack has no environment `{env}`"),
        );
        if overlays.is_empty() {
            finding.help("it has none at all: load it without one");
        } else {
            finding.suggest(env, overlays.iter().map(|(key, _)| &*key.name));
        }
    }
    chosen
}

fn environments_place(root: &Node) -> Place {
    let Yaml::Map(entries) = &root.yaml else {
        return root.place;
    };
    entries
        .iter()
        .find(|(key, _)| key.name == "environments")
        .map_or(root.place, |(key, _)| key.place)
}

fn compile(root: &Node, pack: &Pack<'_>, d: &mut Diagnostics) -> Option<Policy> {
    read_pack(root, pack, d)?.compile_into(d)
}

fn read_pack(root: &Node, pack: &Pack<'_>, d: &mut Diagnostics) -> Option<PolicyBuilder> {
    let mut map = MapReader::open(root, "a policy pack", d)?;
    let id = map
        .require("policy_pack", d)
        .and_then(|n| yaml::text(n, "policy_pack", d));
    let version = map
        .require("version", d)
        .and_then(|n| yaml::text(n, "version", d));
    let mut builder = PolicyBuilder::new(id.unwrap_or_default(), version.unwrap_or_default());
    if let Some(node) = map.get("gateway") {
        builder = builder.gateway(read_gateway(node, d));
    }
    if let Some(node) = map.get("limits") {
        builder = builder.limits(read_limits(node, d));
    }
    if let Some(node) = map.get("tool_risks") {
        builder = read_tool_risks(node, builder, d);
    }
    if let Some(node) = map.get("risk_router") {
        builder = builder.risk_router(read_router(node, d));
    }
    for node in map.list("sync_rules", d).unwrap_or_default() {
        builder = read_sync_rule(node, pack, builder, d);
    }
    for node in map.list("async_rules", d).unwrap_or_default() {
        builder = deep::read_rule(node, pack, builder, d);
    }
    if let Some(node) = root.member("risk_router") {
        check_suspicious_rules(node, pack, &builder, d);
    }
    if let Some(place) = map.key_place("async_rules") {
        check_default_suspicious_rules(root, pack, &builder, place, d);
    }
    if let Some(node) = map.get("environments")
        && !matches!(node.yaml, Yaml::Map(_))
    {
        d.error(node.place, "`environments` must map a name to an overlay");
    }
    map.finish(d);
    // A custom rule that the pack does not mention runs as its author meant it.
    for rule in pack.custom_rules {
        if !mentioned(root, rule.info().id.as_str()) {
            builder = builder.custom_rule(Arc::clone(rule), None, Place::default());
        }
    }
    Some(builder)
}

/// Whether one of the pack's rules is of this kind.
fn mentioned(root: &Node, kind: &str) -> bool {
    let Some(Yaml::List(rules)) = root.member("sync_rules").map(|node| &node.yaml) else {
        return false;
    };
    rules.iter().any(|rule| {
        let named = rule.member("rule").or_else(|| rule.member("id"));
        named.is_some_and(|node| node.yaml == Yaml::Text(kind.to_owned()))
    })
}

fn read_gateway(node: &Node, d: &mut Diagnostics) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    let Some(mut map) = MapReader::open(node, "`gateway`", d) else {
        return settings;
    };
    let modes = [("shadow", Mode::Shadow), ("enforce", Mode::Enforce)];
    settings.mode = map.one_of("mode", &modes, d).unwrap_or_default();
    if let Some(mut sync) = map
        .get("sync")
        .and_then(|n| MapReader::open(n, "`gateway.sync`", d))
    {
        settings.sync_timeout_ms = sync
            .amount("timeout_ms", d)
            .unwrap_or(settings.sync_timeout_ms);
        settings.sync_parallel = sync
            .boolean("parallel", d)
            .unwrap_or(settings.sync_parallel);
        settings.sync_fail_open = sync
            .boolean("fail_open", d)
            .unwrap_or(settings.sync_fail_open);
        if settings.sync_fail_open {
            d.warning(
                sync.key_place("fail_open").unwrap_or_default(),
                "`sync.fail_open: true` lets a step happen when a fast rule fails",
            );
        }
        sync.finish(d);
    }
    if let Some(mut deep) = map
        .get("async")
        .and_then(|n| MapReader::open(n, "`gateway.async`", d))
    {
        settings.async_enabled = deep.boolean("enabled", d).unwrap_or(settings.async_enabled);
        settings.async_fail_open = deep
            .boolean("fail_open", d)
            .unwrap_or(settings.async_fail_open);
        settings.async_hedge_after_ms = deep.amount("hedge_after_ms", d);
        if let Some(mut breaker) = deep
            .get("breaker")
            .and_then(|n| MapReader::open(n, "`gateway.async.breaker`", d))
        {
            let read = &mut settings.async_breaker;
            let failures = breaker.count("failures", d);
            read.failures =
                failures.map_or(read.failures, |n| u32::try_from(n).unwrap_or(u32::MAX));
            read.cool_down_ms = breaker
                .amount("cool_down_ms", d)
                .unwrap_or(read.cool_down_ms);
            if breaker.boolean("enabled", d) == Some(false) {
                read.failures = 0;
            }
            breaker.finish(d);
        }
        deep.finish(d);
    }
    map.finish(d);
    settings
}

fn read_limits(node: &Node, d: &mut Diagnostics) -> Limits {
    let mut limits = Limits::default();
    if let Some(mut map) = MapReader::open(node, "`limits`", d) {
        limits.max_text_bytes = map
            .count("max_text_bytes", d)
            .unwrap_or(limits.max_text_bytes);
        map.finish(d);
    }
    limits
}

fn read_tool_risks(node: &Node, mut builder: PolicyBuilder, d: &mut Diagnostics) -> PolicyBuilder {
    let Yaml::Map(entries) = &node.yaml else {
        d.error(node.place, "`tool_risks` must map a tool's name to a tier")
            .help(format!(
                "`{}` sets the tier of unlisted tools",
                ToolRisks::DEFAULT_KEY
            ));
        return builder;
    };
    let tiers = ToolRiskTier::ALL.map(|tier| (tier.as_str(), tier));
    for (tool, tier) in entries {
        if let Some(tier) = yaml::one_of(tier, "tier", &tiers, d) {
            builder = builder.tool_risk(&tool.name, tier);
        }
    }
    builder
}

fn read_router(node: &Node, d: &mut Diagnostics) -> DefaultRiskRouter {
    let mut router = DefaultRiskRouter::default();
    if let Some(mut map) = MapReader::open(node, "`risk_router`", d) {
        let high = map.amount("high_risk_wait_ms", d);
        let medium = map.amount("medium_risk_wait_ms", d);
        let least = map.amount("min_wait_ms", d);
        let closed = map.boolean("critical_fail_closed", d);
        let outcomes = OnTimeout::ALL.map(|outcome| (outcome.as_str(), outcome));
        let on_timeout = map.one_of("on_timeout", &outcomes, d);
        let suspicious = map.placed_texts("suspicious_rules", d);
        map.finish(d);
        router.high_risk_wait_ms = high.unwrap_or(router.high_risk_wait_ms);
        router.medium_risk_wait_ms = medium.unwrap_or(router.medium_risk_wait_ms);
        router.min_wait_ms = least.unwrap_or(router.min_wait_ms);
        router.critical_fail_closed = closed.unwrap_or(router.critical_fail_closed);
        router.on_timeout = on_timeout.unwrap_or(router.on_timeout);
        if let Some(rules) = suspicious {
            let ids = rules.iter().map(|(id, _)| RuleId::from(&**id));
            router.suspicious_rules = ids.collect();
        }
    }
    router
}

/// The rules that the router insists on must exist, or every suspicious request would count as late.
fn check_suspicious_rules(
    node: &Node,
    pack: &Pack<'_>,
    builder: &PolicyBuilder,
    d: &mut Diagnostics,
) {
    let Some(Yaml::List(ids)) = node.member("suspicious_rules").map(|node| &node.yaml) else {
        return;
    };
    let named = builder.deep_rule_ids().map(RuleId::as_str);
    let known: Vec<&str> = KNOWN_DEEP
        .iter()
        .map(|deep| deep.id)
        .chain(pack.deep_rules.iter().copied())
        .chain(named)
        .collect();
    for node in ids {
        if let Yaml::Text(id) = &node.yaml
            && !known.contains(&id.as_str())
        {
            d.error(node.place, format!("unknown deep rule `{id}`"))
                .suggest(id, known.iter().copied());
        }
    }
}

/// A pack with deep rules of its own that keeps the router's default is held to a classifier that it may
/// not have.
fn check_default_suspicious_rules(
    root: &Node,
    pack: &Pack<'_>,
    builder: &PolicyBuilder,
    place: Place,
    d: &mut Diagnostics,
) {
    let router = root.member("risk_router");
    // A pack that cannot be used has worse to hear.
    if d.has_errors() {
        return;
    }
    if router.is_some_and(|router| router.member("suspicious_rules").is_some()) {
        return;
    }
    let own: Vec<&str> = builder
        .enabled_deep_rule_ids()
        .map(RuleId::as_str)
        .collect();
    let Some(first) = own.first() else {
        return;
    };
    for id in DefaultRiskRouter::default().suspicious_rules {
        if !own.contains(&id.as_str()) && !pack.deep_rules.contains(&id.as_str()) {
            d.warning(
                place,
                format!("suspicious requests are held to `{id}`, which nobody runs"),
            )
            .help(format!(
                "say which rule is to judge them: `risk_router: {{suspicious_rules: [{first}]}}`, or `[]` for none"
            ));
        }
    }
}

fn open_rule<'n>(node: &'n Node, d: &mut Diagnostics) -> Option<MapReader<'n>> {
    if let Yaml::Text(name) = &node.yaml {
        d.error(node.place, "a rule must be a mapping, not text")
            .help(format!("write `- id: {name}`"));
        return None;
    }
    MapReader::open(node, "a rule", d)
}

fn read_sync_rule(
    node: &Node,
    pack: &Pack<'_>,
    builder: PolicyBuilder,
    d: &mut Diagnostics,
) -> PolicyBuilder {
    let Some(mut map) = open_rule(node, d) else {
        return builder;
    };
    let id_node = map.require("id", d);
    let id = id_node.and_then(|n| yaml::text(n, "id", d));
    let enabled = map.boolean("enabled", d).unwrap_or(true);
    let rule_node = map.get("rule");
    let kind = rule_node.map_or(id, |n| yaml::text(n, "rule", d));
    let kind_node = rule_node.or(id_node);
    let events = read_events(&mut map, d);
    let config = map.get("config");
    map.finish(d);
    let (Some(id), Some(id_node), Some(kind), Some(kind_node)) = (id, id_node, kind, kind_node)
    else {
        return builder;
    };
    check_id(id, id_node.place, d);
    if let Some(rule) = pack
        .custom_rules
        .iter()
        .find(|rule| rule.info().id.as_str() == kind)
    {
        if let Some(config) = config {
            d.error(
                config.place,
                format!("rule `{kind}` is code, and takes no `config` here"),
            );
        }
        if id != kind {
            d.error(
                id_node.place,
                format!("rule `{kind}` is code, and goes by its own name"),
            )
            .help(format!("write `id: {kind}`"));
        }
        return if enabled {
            builder.custom_rule(Arc::clone(rule), events, id_node.place)
        } else {
            builder
        };
    }
    let Some(spec) = BUILT_IN.iter().find(|spec| spec.id == kind) else {
        unknown_rule(kind, kind_node, rule_node.is_some(), pack, d);
        return builder;
    };
    let Some(mut config) = MapReader::open_or_empty(config, node.place, "this rule's `config`", d)
    else {
        return builder;
    };
    // A disabled rule is checked all the same: it will be enabled one day.
    let settings: Option<RuleSettings> = (spec.read)(&mut config, d);
    config.finish(d);
    match settings {
        Some(settings) if enabled => builder.named_rule(id, settings, events, id_node.place),
        Some(settings) => {
            check_disabled(id, settings, d);
            builder
        }
        None => builder,
    }
}

fn check_disabled(id: &str, settings: RuleSettings, d: &mut Diagnostics) {
    let mut own = Diagnostics::default();
    let _ = PolicyBuilder::new("disabled", "0")
        .named_rule(id, settings, None, Place::default())
        .compile_into(&mut own);
    d.absorb(own);
}

fn unknown_rule(
    kind: &str,
    node: &Node,
    kind_is_given: bool,
    pack: &Pack<'_>,
    d: &mut Diagnostics,
) {
    if KNOWN_DEEP.iter().any(|deep| deep.id == kind) || pack.deep_rules.contains(&kind) {
        d.error(node.place, format!("`{kind}` is a deep rule"))
            .help("move it to `async_rules`");
        return;
    }
    let custom: Vec<RuleId> = pack
        .custom_rules
        .iter()
        .map(|rule| rule.info().id)
        .collect();
    let names = BUILT_IN
        .iter()
        .map(|spec| spec.id)
        .chain(custom.iter().map(RuleId::as_str));
    let finding = d.error(node.place, format!("unknown rule `{kind}`"));
    suggest_kind(finding, kind, kind_is_given, names);
}

/// The nearest kind of rule. A name that is near none is likely meant to be just a name.
fn suggest_kind<'n>(
    finding: &mut Diagnostic,
    kind: &str,
    kind_is_given: bool,
    names: impl IntoIterator<Item = &'n str>,
) {
    finding.suggest(kind, names);
    if let Some(help) = finding.help.take() {
        let named = !kind_is_given && !help.starts_with("did you mean");
        let prefix = if named {
            "say what kind it is with `rule:`; "
        } else {
            ""
        };
        finding.help(format!("{prefix}{help}"));
    }
}

fn read_events(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<EventSet> {
    let node = map.get("events")?;
    let Yaml::List(items) = &node.yaml else {
        d.error(node.place, "`events` must be a list of event types");
        return None;
    };
    let mut types = Vec::new();
    for item in items {
        let Some(name) = yaml::text(item, "events", d) else {
            continue;
        };
        let event_type = EventType::from(name);
        // The set is open, so a name of the embedder's own is fine; a near miss is not.
        if matches!(event_type, EventType::Other(_)) {
            let near = EventType::NAMED
                .iter()
                .find(|known| strsim::damerau_levenshtein(known.as_str(), name) <= 2);
            if let Some(near) = near {
                d.error(item.place, format!("unknown event type `{name}`"))
                    .help(format!("did you mean `{near}`?"));
            }
        }
        types.push(event_type);
    }
    if types.is_empty() {
        d.error(
            node.place,
            "`events` is empty, so the rule would judge nothing",
        )
        .help("leave it out, or set `enabled: false`");
    }
    Some(types.into_iter().collect())
}

fn check_id(id: &str, place: Place, d: &mut Diagnostics) {
    let fine = id
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if id.is_empty() || !fine {
        d.error(
            place,
            format!("rule id `{id}` must be letters, digits, `-`, `_` and `.`"),
        );
    } else if id.starts_with("__") {
        d.error(
            place,
            format!("rule id `{id}`: names in `__` belong to the gate"),
        );
    }
}
