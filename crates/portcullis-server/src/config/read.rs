//! From a tree of YAML to [`Settings`], section by section.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{self, MapReader, Node, Yaml};
use portcullis_store::evidence::Durability;

use super::a2a::a2a;
use super::alerts::alerts;
use super::approvals::approvals;
use super::callbacks::callbacks;
use super::deep::deep;
use super::{LogFormat, Settings, TlsSettings, embedder};
use crate::auth::{Token, TokenError, Tokens};
use crate::limit::{Quota, RateLimits};
use crate::method::Operation;

/// Reads the whole file over the defaults.
pub(super) fn settings(root: &Node, d: &mut Diagnostics) -> Settings {
    let mut settings = Settings::default();
    let place = root.place;
    let Some(mut map) = MapReader::open_or_empty(Some(root), place, "the configuration", d) else {
        return settings;
    };
    let section = |map: &mut MapReader<'_>, name: &'static str| map.get(name).cloned();
    if let Some(node) = section(&mut map, "server") {
        server(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "agent") {
        agent(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "auth") {
        auth(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "policy") {
        policy(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "deep") {
        settings.deep = deep(&node, d);
    }
    if let Some(node) = section(&mut map, "rate_limits") {
        settings.rate_limits = rate_limits(&node, d);
    }
    if let Some(node) = section(&mut map, "evidence") {
        evidence(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "memory") {
        memory(&node, &mut settings, d);
    }
    if let Some(node) = section(&mut map, "callbacks") {
        settings.callbacks = callbacks(&node, d);
    }
    if let Some(node) = section(&mut map, "alerts") {
        settings.alerts = alerts(&node, d);
    }
    if let Some(node) = section(&mut map, "approvals") {
        settings.approvals = approvals(&node, d);
    }
    if let Some(node) = section(&mut map, "a2a") {
        settings.a2a = a2a(&node, d);
    }
    if let Some(node) = section(&mut map, "telemetry") {
        telemetry(&node, &mut settings, d);
    }
    map.finish(d);
    settings
}

fn server(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`server`", d) else {
        return;
    };
    let server = &mut settings.server;
    if let Some(node) = map.get("host")
        && let Some(host) = yaml::text(node, "host", d)
    {
        match super::parse_host(host) {
            Some(host) => server.host = host,
            None => d
                .error(node.place, format!("`{host}` is not an IP address"))
                .help("write the address to listen on, such as 127.0.0.1, or 0.0.0.0 for all"),
        }
    }
    if let Some(node) = map.get("port") {
        match node.yaml {
            Yaml::Int(port) if (0..=65535).contains(&port) => {
                server.port = u16::try_from(port).unwrap_or(server.port);
            }
            _ => d
                .error(node.place, "`port` must be a number from 0 to 65535")
                .help("0 takes any port that is free"),
        }
    }
    if let Some(origins) = map.placed_texts("cors_origins", d) {
        for (origin, place) in &origins {
            if origin != "*" && !is_origin(origin) {
                d.error(*place, format!("`{origin}` is not an origin"))
                    .help("write scheme and host, such as https://console.example.com");
            }
        }
        server.cors_origins = origins.into_iter().map(|(origin, _)| origin).collect();
    }
    if let Some(node) = map.get("tls") {
        server.tls = tls(node, d);
    }
    let count = |map: &mut MapReader<'_>, key, value: &mut usize, d: &mut Diagnostics| {
        *value = map.count(key, d).unwrap_or(*value);
    };
    count(&mut map, "max_body_bytes", &mut server.max_body_bytes, d);
    count(&mut map, "max_batch", &mut server.max_batch, d);
    count(&mut map, "max_connections", &mut server.max_connections, d);
    count(&mut map, "max_requests", &mut server.max_requests, d);
    seconds(
        &mut map,
        "read_timeout_seconds",
        &mut server.read_timeout,
        d,
    );
    seconds(
        &mut map,
        "shutdown_timeout_seconds",
        &mut server.shutdown_timeout,
        d,
    );
    map.finish(d);
}

fn tls(node: &Node, d: &mut Diagnostics) -> Option<TlsSettings> {
    let mut map = MapReader::open(node, "`server.tls`", d)?;
    let mut file = |key| {
        map.require(key, d)
            .and_then(|node| yaml::text(node, key, d))
            .map(PathBuf::from)
    };
    let (certificate, key) = (file("certificate"), file("key"));
    map.finish(d);
    Some(TlsSettings {
        certificate: certificate?,
        key: key?,
    })
}

fn agent(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`agent`", d) else {
        return;
    };
    let agent = &mut settings.agent;
    for (key, value) in [
        ("name", &mut agent.name),
        ("description", &mut agent.description),
        ("version", &mut agent.version),
    ] {
        let Some(node) = map.get(key) else { continue };
        match yaml::text(node, key, d) {
            Some(text) if text.trim().is_empty() => {
                d.error(node.place, format!("`{key}` is empty"))
                    .help("write one, or leave the key out");
            }
            Some(text) => text.clone_into(value),
            None => {}
        }
    }
    if let Some(node) = map.get("url")
        && let Some(url) = yaml::text(node, "url", d)
    {
        if is_origin(url.trim_end_matches('/')) || has_path(url) {
            agent.url = Some(url.trim_end_matches('/').to_owned());
        } else {
            d.error(node.place, format!("`{url}` is not a URL"))
                .help("write where clients reach this server, such as https://agent.example.com");
        }
    }
    map.finish(d);
}

fn auth(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`auth`", d) else {
        return;
    };
    let auth = &mut settings.auth;
    auth.enabled = map.boolean("enabled", d).unwrap_or(auth.enabled);
    let mut tokens = Tokens::default();
    for node in map.list("tokens", d).unwrap_or_default() {
        token(node, &mut tokens, d);
    }
    if auth.enabled && tokens.is_empty() && map.key_place("tokens").is_some() && !d.has_errors() {
        let place = map.key_place("tokens").unwrap_or_default();
        d.error(place, "no tokens, so nobody could come in")
            .help("`portcullis token new AGENT` prints a token and the lines for it");
    }
    // A token that is wrong has been reported, and is not among them.
    let all_known = !d.has_errors();
    for (name, place) in map.placed_texts("operators", d).unwrap_or_default() {
        if !auth.enabled {
            d.error(
                place,
                "`operators` needs tokens to know them by, and `enabled` is false",
            );
        } else if all_known && !tokens.agents().any(|agent| agent == name) {
            d.error(place, "an operator is none of the agents that have a token")
                .help("each of `operators` is the `agent` of one of `tokens`");
        }
        auth.operators.push(name);
    }
    if let Some(node) = map.get("roles") {
        roles(
            node,
            auth.enabled,
            all_known.then_some(&tokens),
            &mut auth.roles,
            d,
        );
    }
    auth.tokens = tokens;
    map.finish(d);
}

/// Who may decide on paused steps: each role with the agents that have it. Names are only looked up if all `tokens` are
/// known.
fn roles(
    node: &Node,
    enabled: bool,
    tokens: Option<&Tokens>,
    roles: &mut BTreeMap<String, Vec<String>>,
    d: &mut Diagnostics,
) {
    let Yaml::Map(entries) = &node.yaml else {
        d.error(
            node.place,
            "`roles` must map a role to the agents that have it",
        )
        .help("such as `finance: [alice, bob]`");
        return;
    };
    if !enabled && !entries.is_empty() {
        d.error(
            node.place,
            "`roles` needs tokens to know agents by, and `enabled` is false",
        );
        return;
    }
    for (key, node) in entries {
        let Yaml::List(names) = &node.yaml else {
            d.error(node.place, "a role must have a list of agents")
                .help("such as `finance: [alice, bob]`");
            continue;
        };
        if names.is_empty() {
            d.error(
                key.place,
                "a role that nobody has: what waits for it would never be decided",
            )
            .help("name agents of `tokens`, or leave the role out");
        }
        let mut known = Vec::with_capacity(names.len());
        for node in names {
            let Some(name) = yaml::text(node, "a role's agent", d) else {
                continue;
            };
            if tokens.is_some_and(|tokens| !tokens.agents().any(|agent| agent == name)) {
                d.error(
                    node.place,
                    "somebody with a role is none of the agents that have a token",
                )
                .help("each is the `agent` of one of `tokens`");
            }
            known.push(name.to_owned());
        }
        roles.insert(key.name.clone(), known);
    }
}

fn token(node: &Node, tokens: &mut Tokens, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "a token", d) else {
        return;
    };
    let agent = map
        .require("agent", d)
        .and_then(|n| yaml::text(n, "agent", d));
    let secret = map.require("token", d);
    let text = secret.and_then(|n| yaml::text(n, "token", d));
    // A variable that could not be filled in has been reported.
    let reported = secret.is_some_and(|node| d.has_error_at(node.place));
    let text = text.filter(|_| !reported);
    if let (Some(agent), Some(text), Some(secret)) = (agent, text, secret) {
        let added = Token::parse(text).and_then(|token| tokens.add(agent, &token));
        if let Err(error) = added {
            let place = match error {
                TokenError::Agent(_) => node.place,
                _ => secret.place,
            };
            d.error(place, format!("token of agent `{agent}`: {error}"))
                .help("`portcullis token new AGENT` prints a good one");
        }
    }
    map.finish(d);
}

fn policy(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`policy`", d) else {
        return;
    };
    let policy = &mut settings.policy;
    policy.pack = map.text("pack", d).map(PathBuf::from);
    policy.env = map.text("env", d).map(str::to_owned);
    policy.guardrails = map.text("guardrails", d).map(PathBuf::from);
    policy.allow_none = map.boolean("allow_none", d).unwrap_or(false);
    seconds(
        &mut map,
        "reload_interval_seconds",
        &mut policy.reload_interval,
        d,
    );
    map.finish(d);
}

fn rate_limits(node: &Node, d: &mut Diagnostics) -> RateLimits {
    let mut limits = RateLimits::default();
    let Some(mut map) = MapReader::open(node, "`rate_limits`", d) else {
        return limits;
    };
    limits.enabled = map.boolean("enabled", d).unwrap_or(true);
    if let Some(node) = map.get("default") {
        limits.default = quota(node, "`rate_limits.default`", limits.default, d);
    }
    if let Some(node) = map.get("methods") {
        match &node.yaml {
            Yaml::Map(entries) => {
                for (key, node) in entries {
                    match Operation::parse(&key.name) {
                        Some(operation) => {
                            let quota = quota(node, "a method's limit", limits.default, d);
                            limits.methods.insert(operation, quota);
                        }
                        None => d
                            .error(key.place, format!("unknown method `{}`", key.name))
                            .suggest(&key.name, Operation::all().map(Operation::name)),
                    }
                }
            }
            _ => {
                d.error(node.place, "`methods` must map a method to its limit");
            }
        }
    }
    map.finish(d);
    limits
}

fn quota(node: &Node, what: &'static str, default: Quota, d: &mut Diagnostics) -> Quota {
    let Some(mut map) = MapReader::open(node, what, d) else {
        return default;
    };
    let number = |map: &mut MapReader<'_>, key, d: &mut Diagnostics| {
        map.count(key, d)
            .map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    let per_minute = number(&mut map, "per_minute", d).unwrap_or(default.per_minute);
    let burst = number(&mut map, "burst", d).unwrap_or(per_minute.min(default.burst).max(1));
    map.finish(d);
    Quota { per_minute, burst }
}

fn evidence(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`evidence`", d) else {
        return;
    };
    let evidence = &mut settings.evidence;
    if let Some(directory) = map.text("directory", d) {
        evidence.directory = PathBuf::from(directory);
    }
    let durabilities = [("fsync", Durability::Fsync), ("os", Durability::Os)];
    if let Some(durability) = map.one_of("durability", &durabilities, d) {
        evidence.durability = durability;
    }
    if let Some(bytes) = map.count("segment_bytes", d) {
        evidence.segment_bytes = bytes as u64;
    }
    if let Some(every) = map.count("checkpoint_every", d) {
        evidence.checkpoint_every = every as u64;
    }
    evidence.signing_key = map.text("signing_key", d).map(PathBuf::from);
    map.finish(d);
}

fn memory(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`memory`", d) else {
        return;
    };
    if let Some(path) = map.text("path", d) {
        settings.memory.path = PathBuf::from(path);
    }
    if let Some(node) = map.get("embedder")
        && let Some(embedder) = embedder::read(node, d)
    {
        settings.memory.embedder = embedder;
    }
    map.finish(d);
}

fn telemetry(node: &Node, settings: &mut Settings, d: &mut Diagnostics) {
    let Some(mut map) = MapReader::open(node, "`telemetry`", d) else {
        return;
    };
    let telemetry = &mut settings.telemetry;
    if let Some(node) = map.get("otlp_endpoint")
        && let Some(url) = yaml::text(node, "otlp_endpoint", d)
    {
        if is_origin(url.trim_end_matches('/')) || has_path(url) {
            telemetry.otlp_endpoint = Some(url.trim_end_matches('/').to_owned());
        } else {
            d.error(node.place, format!("`{url}` is not a URL"))
                .help("write where the collector listens, such as http://localhost:4318");
        }
    }
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    if let Some(format) = map.one_of("log_format", &formats, d) {
        telemetry.log_format = format;
    }
    map.finish(d);
}

pub(super) fn seconds(
    map: &mut MapReader<'_>,
    key: &'static str,
    value: &mut Duration,
    d: &mut Diagnostics,
) {
    let Some(amount) = map.amount(key, d) else {
        return;
    };
    match Duration::try_from_secs_f64(amount) {
        Ok(duration) if !duration.is_zero() && amount <= 86_400.0 => *value = duration,
        _ => {
            let place = map.key_place(key).unwrap_or_default();
            d.error(
                place,
                format!("`{key}` must be more than 0 and at most a day (86400)"),
            );
        }
    }
}

/// `scheme://host[:port]`.
fn is_origin(text: &str) -> bool {
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']) && host.is_ascii()
    })
}

/// An origin with a path behind it.
pub(super) fn has_path(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    is_origin(&format!("{scheme}://{host}")) && !path.contains([' ', '#', '?'])
}
