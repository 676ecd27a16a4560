//! Who hears of announced intents: the section `callbacks`.

use std::time::Duration;

use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{self, MapReader, Node};
use reqwest::Url;

use super::read::seconds;
use crate::auth::Token;

pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const ATTEMPTS: u32 = 5;
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Who hears of announced intents.
#[derive(Debug, Clone)]
pub struct CallbackSettings {
    /// The most notices that wait for one target.
    pub queue: usize,
    /// Peers and webhooks.
    pub targets: Vec<CallbackTarget>,
}

impl Default for CallbackSettings {
    fn default() -> Self {
        Self {
            queue: 1_000,
            targets: Vec::new(),
        }
    }
}

/// One of those who hear of intents.
#[derive(Debug, Clone)]
pub struct CallbackTarget {
    /// Where a webhook is; where a peer is, without its `/cstp`.
    pub url: Url,
    /// How it is told, and how it knows that it is us.
    pub kind: CallbackKind,
    /// What it is told of.
    pub when: CallbackWhen,
    /// How long one try may take.
    pub timeout: Duration,
    /// How often a notice is tried before it is given up.
    pub attempts: u32,
    /// How long to wait before the second try; twice as long before each further one.
    pub retry: Duration,
}

impl CallbackTarget {
    /// With the defaults.
    pub fn new(url: Url, kind: CallbackKind) -> Self {
        Self {
            url,
            kind,
            when: CallbackWhen::All,
            timeout: TIMEOUT,
            attempts: ATTEMPTS,
            retry: RETRY,
        }
    }
}

/// How a target is told.
#[derive(Debug, Clone)]
pub enum CallbackKind {
    /// By a notice of our own form, signed.
    Webhook {
        /// What it is signed with.
        secret: Token,
    },
    /// By a call of `cstp.announceIntent`.
    Peer {
        /// The bearer token; none for a peer without authentication.
        token: Option<Token>,
    },
}

/// What a target is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallbackWhen {
    /// Every intent.
    #[default]
    All,
    /// Those that guardrails did not allow.
    Blocked,
}

/// Reads the section.
pub(super) fn callbacks(node: &Node, d: &mut Diagnostics) -> CallbackSettings {
    let mut settings = CallbackSettings::default();
    let Some(mut map) = MapReader::open(node, "`callbacks`", d) else {
        return settings;
    };
    settings.queue = map.count("queue", d).unwrap_or(settings.queue);
    let targets = map.list("targets", d).unwrap_or_default();
    settings.targets = targets.iter().filter_map(|node| target(node, d)).collect();
    map.finish(d);
    settings
}

fn target(node: &Node, d: &mut Diagnostics) -> Option<CallbackTarget> {
    let mut map = MapReader::open(node, "a target", d)?;
    let url = map.require("url", d);
    let kind = kind(&mut map, d);
    let url =
        url.and_then(|node| address(node, matches!(kind, Some(CallbackKind::Peer { .. })), d));
    let whens = [
        ("all", CallbackWhen::All),
        ("blocked", CallbackWhen::Blocked),
    ];
    let when = map.one_of("when", &whens, d);
    let attempts = map.count("attempts", d);
    let (mut timeout, mut retry) = (TIMEOUT, RETRY);
    seconds(&mut map, "timeout_seconds", &mut timeout, d);
    seconds(&mut map, "retry_seconds", &mut retry, d);
    map.finish(d);
    Some(CallbackTarget {
        url: url?,
        kind: kind?,
        when: when.unwrap_or_default(),
        timeout,
        attempts: attempts.map_or(ATTEMPTS, |count| u32::try_from(count).unwrap_or(u32::MAX)),
        retry,
    })
}

fn kind(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<CallbackKind> {
    let kinds = [("webhook", false), ("peer", true)];
    let is_peer = match map.get("kind") {
        None => Some(false),
        Some(node) => yaml::one_of(node, "kind", &kinds, d),
    };
    let (signs, shown) = (map.get("secret"), map.get("token"));
    if is_peer? {
        map.refuse(
            "secret",
            "`secret` is for webhooks: a peer knows us by `token`",
            d,
        );
        let token = match shown {
            None => None,
            Some(node) => Some(secret(node, "token", "a target", d)?),
        };
        return Some(CallbackKind::Peer { token });
    }
    map.refuse(
        "token",
        "`token` is for peers: a webhook knows us by what `secret` has signed",
        d,
    );
    if signs.is_none() {
        d.error(
            map.place(),
            "a webhook needs `secret`, which signs what it gets",
        )
        .help("`portcullis token new AGENT` prints a good one");
    }
    let secret = secret(signs?, "secret", "a target", d)?;
    Some(CallbackKind::Webhook { secret })
}

/// Says nothing of the value: it may hold what should be in `secret`.
pub(super) fn address(node: &Node, is_peer: bool, d: &mut Diagnostics) -> Option<Url> {
    let text = yaml::text(node, "url", d)?;
    if d.has_error_at(node.place) {
        return None;
    }
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        d.error(node.place, "`url` is not an address of HTTP")
            .help("write it whole, such as https://hooks.example.com/intents");
        return None;
    };
    let wrong = if !url.username().is_empty() || url.password().is_some() {
        "`url` may not carry a name or a password: `secret` or `token` says who we are"
    } else if url.fragment().is_some() {
        "`url` may not have a `#`: what follows it is never sent"
    } else if is_peer && url.query().is_some() {
        "`url` of a peer may not have a `?`: it is called at its `/cstp`"
    } else {
        return Some(url);
    };
    d.error(node.place, wrong);
    None
}

pub(super) fn secret(
    node: &Node,
    key: &'static str,
    whose: &str,
    d: &mut Diagnostics,
) -> Option<Token> {
    let text = yaml::text(node, key, d)?;
    // A variable that could not be filled in has been reported.
    if d.has_error_at(node.place) {
        return None;
    }
    let parsed = Token::parse(text).map_err(|error| {
        d.error(node.place, format!("`{key}` of {whose}: {error}"))
            .help("`portcullis token new AGENT` prints a good one");
    });
    parsed.ok()
}
