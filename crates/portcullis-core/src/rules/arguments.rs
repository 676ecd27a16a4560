//! The hosts in a tool's arguments, and the names that arguments go under.

use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::net::{self, Found, Host, HostList, Position};
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::MapReader;
pub(super) use crate::redact::Path;

use super::Subject;

type Visit<'v, B> = dyn FnMut(&Found<'_>, &Path<'_>) -> ControlFlow<B> + 'v;

/// Visits every host in the tool's arguments, their members' names included.
pub(super) fn hosts<B>(
    subject: &Subject<'_>,
    visit: &mut dyn FnMut(&Found<'_>, &Path<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match &subject.input.event.tool_args {
        Some(args) if any_hosts(subject) => members(args, &Path::Root, visit),
        _ => ControlFlow::Continue(()),
    }
}

/// Whether there is any. Several rules ask, and most calls name none.
pub(super) fn any_hosts(subject: &Subject<'_>) -> bool {
    let any = |args| {
        members_may_name_host(args)
            && members(args, &Path::Root, &mut |_, _| ControlFlow::Break(())).is_break()
    };
    let args = subject.input.event.tool_args.as_ref();
    let names_hosts = &subject.scan.names_hosts;
    names_hosts.get_or_find(|| args.is_some_and(any))
}

/// Whether there may be any, told at a glance.
fn members_may_name_host(members: &Map<String, Value>) -> bool {
    members
        .iter()
        .any(|(name, value)| net::may_hold_host(name, false) || may_name_host(value))
}

fn may_name_host(value: &Value) -> bool {
    match value {
        Value::String(text) => net::may_hold_host(text, true),
        Value::Number(number) => number.as_u64().is_some_and(|bits| !is_count(bits)),
        Value::Array(items) => items.iter().any(may_name_host),
        Value::Object(object) => members_may_name_host(object),
        Value::Null | Value::Bool(_) => false,
    }
}

/// Whether a number is too small to be an address that is written as one.
fn is_count(bits: u64) -> bool {
    bits >> 24 == 0
}

/// A rule's list of hosts.
pub(super) fn read_hosts(
    config: &mut MapReader<'_>,
    key: &'static str,
    d: &mut Diagnostics,
) -> Option<HostList> {
    let mut list = HostList::default();
    for (entry, place) in config.placed_texts(key, d)? {
        if let Err(error) = list.insert(&entry) {
            d.error(place, error.to_string());
        }
    }
    Some(list)
}

/// Whether one of the words of a name is on a list, in the singular or the plural.
pub(super) fn has_word(name: &str, list: &[&str]) -> bool {
    words(name).any(|word| {
        let singular = word.strip_suffix(['s', 'S']).unwrap_or(word);
        let is =
            |known: &&str| known.eq_ignore_ascii_case(word) || known.eq_ignore_ascii_case(singular);
        list.iter().any(is)
    })
}

/// The words of `webhook_url`, `webhook-url` and `webhookURL`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).flat_map(|part| {
        let mut rest = part;
        std::iter::from_fn(move || {
            let mut pairs = rest.char_indices().zip(rest.chars().skip(1));
            let bump = pairs.find(|((_, a), b)| a.is_lowercase() && b.is_uppercase());
            let end = bump.map_or(rest.len(), |((at, a), _)| at + a.len_utf8());
            let (word, tail) = rest.split_at(end);
            rest = tail;
            (!word.is_empty()).then_some(word)
        })
    })
}

/// Whether the value goes under a name for hosts.
pub(super) fn is_for_hosts(path: &Path<'_>) -> bool {
    match path {
        Path::Root => false,
        Path::Member(_, name) => is_host_name(name),
        Path::Item(parent, _) => is_for_hosts(parent),
    }
}

/// Whether the value goes under a name with one of these words in it.
pub(super) fn is_under(path: &Path<'_>, words: &[&str]) -> bool {
    match path {
        Path::Root => false,
        Path::Member(_, name) => has_word(name, words),
        Path::Item(parent, _) => is_under(parent, words),
    }
}

/// Whether an address may be a version: no other private one begins with a number as small.
fn may_be_version(host: &Host<'_>) -> bool {
    matches!(host, Host::V4 { address, .. } if address.octets()[0] == 10)
}

fn is_host_name(name: &str) -> bool {
    const HOST: [&str; 34] = [
        "url",
        "uri",
        "href",
        "host",
        "hostname",
        "endpoint",
        "address",
        "addr",
        "ip",
        "ipv4",
        "ipv6",
        "server",
        "domain",
        "proxy",
        "origin",
        "webhook",
        "callback",
        "upstream",
        "remote",
        "destination",
        "dest",
        "peer",
        "nameserver",
        "resolver",
        "target",
        "fqdn",
        "link",
        "website",
        "site",
        "broker",
        "gateway",
        "registry",
        "dst",
        "dns",
    ];
    const OTHER: [&str; 10] = [
        "version", "count", "id", "port", "email", "mail", "size", "type", "timeout", "ttl",
    ];
    has_word(name, &HOST) && !has_word(name, &OTHER)
}

fn members<B>(
    members: &Map<String, Value>,
    path: &Path<'_>,
    visit: &mut Visit<'_, B>,
) -> ControlFlow<B> {
    let mut texts = members.values().filter_map(Value::as_str);
    let command = texts.find(|text| net::is_network_command(text));
    for (name, value) in members {
        let path = Path::Member(path, name);
        net::hosts(name, false, &mut |found| visit(found, &path))?;
        if let (Some(command), Value::Array(items)) = (command, value) {
            argv(Some(command), items, &path, visit)?;
        }
        self::value(value, &path, visit)?;
    }
    ControlFlow::Continue(())
}

fn value<B>(value: &Value, path: &Path<'_>, visit: &mut Visit<'_, B>) -> ControlFlow<B> {
    match value {
        Value::String(text) => {
            let is_host = || !text.contains(char::is_whitespace) && is_for_hosts(path);
            net::hosts_if(text, &is_host, &mut |found| {
                // Four numbers and nothing else.
                let quad = found.position == Position::Quad && found.span == (0..text.len());
                if quad && may_be_version(&found.host) && is_under(path, &["version"]) {
                    return ControlFlow::Continue(());
                }
                visit(found, path)
            })
        }
        Value::Number(number) => match number.as_u64().and_then(|bits| u32::try_from(bits).ok()) {
            Some(bits) if !is_count(bits.into()) && is_for_hosts(path) => {
                let found = Found {
                    host: Host::V4 {
                        address: bits.into(),
                        decimal: None,
                    },
                    span: 0..0,
                    position: Position::Key,
                };
                visit(&found, path)
            }
            _ => ControlFlow::Continue(()),
        },
        Value::Array(items) => {
            let first = items.first().and_then(Value::as_str);
            if first.is_some_and(net::is_network_command) {
                argv(None, items, path, visit)?;
            }
            for (index, item) in items.iter().enumerate() {
                self::value(item, &Path::Item(path, index), visit)?;
            }
            ControlFlow::Continue(())
        }
        Value::Object(object) => members(object, path, visit),
        Value::Null | Value::Bool(_) => ControlFlow::Continue(()),
    }
}

/// A command whose arguments are the items of a list.
fn argv<B>(
    command: Option<&str>,
    items: &[Value],
    path: &Path<'_>,
    visit: &mut Visit<'_, B>,
) -> ControlFlow<B> {
    let words = items.iter().filter_map(Value::as_str);
    let plain = words.filter(|word| !word.contains(|c: char| c.is_whitespace() || c == '\''));
    let line: Vec<&str> = command.into_iter().chain(plain).collect();
    net::hosts(&line.join(" "), false, &mut |found| visit(found, path))
}
