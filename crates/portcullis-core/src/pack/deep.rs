//! A pack's `async_rules`.

use std::sync::Arc;

use super::diagnostic::Diagnostics;
use super::yaml::{self, MapReader, Node};
use super::{Pack, check_id, open_rule, read_events, suggest_kind};
use crate::event::EventType;
use crate::ids::RuleId;
use crate::policy::PolicyBuilder;
use crate::rules::{BUILT_IN, DeepRuleSettings, DeepSettings, KNOWN_DEEP, Rule};
use crate::scan::EventSet;

/// A rule as the pack has it, before it is known what its configuration means.
struct Entry<'n> {
    id: &'n str,
    id_node: &'n Node,
    kind: &'n str,
    kind_node: &'n Node,
    kind_is_given: bool,
    enabled: bool,
    events: Option<EventSet>,
    events_node: Option<&'n Node>,
    config: Option<&'n Node>,
}

pub(super) fn read_rule(
    node: &Node,
    pack: &Pack<'_>,
    builder: PolicyBuilder,
    d: &mut Diagnostics,
) -> PolicyBuilder {
    let Some(entry) = read_entry(node, d) else {
        return builder;
    };
    let kind = entry.kind;
    let custom = |rule: &Arc<dyn Rule>| rule.info().id.as_str() == kind;
    if BUILT_IN.iter().any(|spec| spec.id == kind) || pack.custom_rules.iter().any(custom) {
        d.error(entry.kind_node.place, format!("`{kind}` is a fast rule"))
            .help("move it to `sync_rules`");
        return builder;
    }
    if builder.has_rule(entry.id) {
        let message = format!("rule `{}` is there twice", entry.id);
        d.error(entry.id_node.place, message)
            .help("give one of them another `id`, and name its kind with `rule:`");
        return builder;
    }
    if pack.deep_rules.contains(&kind) {
        return read_code(&entry, builder, d);
    }
    let Some(spec) = KNOWN_DEEP.iter().find(|spec| spec.id == kind) else {
        let known = KNOWN_DEEP.iter().map(|deep| deep.id);
        let names = known.chain(pack.deep_rules.iter().copied());
        let finding = d.error(entry.kind_node.place, format!("unknown deep rule `{kind}`"));
        suggest_kind(finding, kind, entry.kind_is_given, names);
        return builder;
    };
    let what = "this rule's `config`";
    let Some(mut config) = MapReader::open_or_empty(entry.config, node.place, what, d) else {
        return builder;
    };
    // A disabled rule is checked all the same: it will be enabled one day.
    let settings = (spec.read)(&mut config, d);
    config.finish(d);
    if let Some(DeepSettings::HttpClassifier(rule)) = &settings
        && !d.has_errors()
    {
        let events = entry.events.clone().unwrap_or_else(spec.events);
        if events.contains(&EventType::ToolCallResult) && !rule.request.sends_result() {
            let place = entry.events_node.unwrap_or(entry.id_node).place;
            d.warning(place, "a structured result is not sent")
                .help("put `{result}` or `{event}` in `request`, or leave `tool_call_result` out of `events`");
        }
    }
    match settings {
        Some(settings) => builder.named_deep_rule(
            entry.id.to_owned(),
            spec,
            settings,
            entry.events,
            entry.enabled,
        ),
        None => builder,
    }
}

fn read_entry<'n>(node: &'n Node, d: &mut Diagnostics) -> Option<Entry<'n>> {
    let mut map = open_rule(node, d)?;
    let id_node = map.require("id", d);
    let id = id_node.and_then(|n| yaml::text(n, "id", d));
    let enabled = map.boolean("enabled", d).unwrap_or(true);
    let rule_node = map.get("rule");
    let kind = rule_node.map_or(id, |n| yaml::text(n, "rule", d));
    let events = read_events(&mut map, d);
    let events_node = map.get("events");
    let config = map.get("config");
    map.finish(d);
    let (id, id_node) = (id?, id_node?);
    check_id(id, id_node.place, d);
    Some(Entry {
        id,
        id_node,
        kind: kind?,
        kind_node: rule_node.unwrap_or(id_node),
        kind_is_given: rule_node.is_some(),
        enabled,
        events,
        events_node,
        config,
    })
}

/// A rule of the embedder's: its code knows what its settings mean, and what it judges.
fn read_code(entry: &Entry<'_>, builder: PolicyBuilder, d: &mut Diagnostics) -> PolicyBuilder {
    let kind = entry.kind;
    if entry.id != kind {
        d.error(
            entry.id_node.place,
            format!("rule `{kind}` is code, and goes by its own name"),
        )
        .help(format!("write `id: {kind}`"));
    }
    if let Some(events) = entry.events_node {
        d.error(
            events.place,
            format!("rule `{kind}` is code, and says itself what it judges"),
        )
        .help("leave `events` out");
    }
    let config = match entry.config.map(|config| (config, config.to_json())) {
        None => serde_json::Map::new(),
        Some((_, serde_json::Value::Object(config))) => config,
        Some((config, _)) => {
            d.error(
                config.place,
                format!(
                    "this rule's `config` must be a mapping, not {}",
                    config.kind()
                ),
            );
            return builder;
        }
    };
    builder.deep_rule(DeepRuleSettings {
        id: RuleId::from(entry.id.to_owned()),
        enabled: entry.enabled,
        config,
    })
}
