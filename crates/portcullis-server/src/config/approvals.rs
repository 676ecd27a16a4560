//! Where approvals are kept and who is told of them: the section `approvals`.

use std::path::PathBuf;
use std::time::Duration;

use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{MapReader, Node};
use reqwest::Url;

use super::callbacks::{ATTEMPTS, RETRY, TIMEOUT, address, secret};
use super::read::seconds;
use super::{APPROVALS_FILE, DEFAULT_DATA_DIRECTORY};
use crate::auth::Token;

/// Where approvals are kept, how many and how long, and who is told of them.
#[derive(Debug, Clone)]
pub struct ApprovalSettings {
    /// The database.
    pub path: PathBuf,
    /// The most that are kept at one time.
    pub most: usize,
    /// How many days one that is settled is kept.
    pub keep_days: usize,
    /// Who is told that a step waits, and what somebody said.
    pub webhook: Option<ApprovalWebhook>,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::from(DEFAULT_DATA_DIRECTORY).join(APPROVALS_FILE),
            most: 10_000,
            keep_days: 30,
            webhook: None,
        }
    }
}

/// Where notices of approvals go.
#[derive(Debug, Clone)]
pub struct ApprovalWebhook {
    /// Where.
    pub url: Url,
    /// What they are signed with.
    pub secret: Token,
    /// How long one try may take.
    pub timeout: Duration,
    /// How often a notice is tried before it is given up.
    pub attempts: u32,
    /// How long to wait before the second try; twice as long before each further one.
    pub retry: Duration,
}

impl ApprovalWebhook {
    /// With the defaults.
    pub fn new(url: Url, secret: Token) -> Self {
        Self {
            url,
            secret,
            timeout: TIMEOUT,
            attempts: ATTEMPTS,
            retry: RETRY,
        }
    }
}

/// Reads the section.
pub(super) fn approvals(node: &Node, d: &mut Diagnostics) -> ApprovalSettings {
    let mut settings = ApprovalSettings::default();
    let Some(mut map) = MapReader::open(node, "`approvals`", d) else {
        return settings;
    };
    if let Some(path) = map.text("path", d) {
        settings.path = PathBuf::from(path);
    }
    settings.most = map.count("most", d).unwrap_or(settings.most);
    settings.keep_days = map.count("keep_days", d).unwrap_or(settings.keep_days);
    settings.webhook = map.get("webhook").and_then(|node| webhook(node, d));
    map.finish(d);
    settings
}

fn webhook(node: &Node, d: &mut Diagnostics) -> Option<ApprovalWebhook> {
    let mut map = MapReader::open(node, "`approvals.webhook`", d)?;
    let url = map.require("url", d);
    let url = url.and_then(|node| address(node, false, d));
    let signs = map.get("secret");
    if signs.is_none() {
        d.error(
            map.place(),
            "a webhook needs `secret`, which signs what it gets",
        )
        .help("`portcullis token new AGENT` prints a good one");
    }
    let secret = signs.and_then(|node| secret(node, "secret", "the webhook", d));
    let attempts = map.count("attempts", d);
    let (mut timeout, mut retry) = (TIMEOUT, RETRY);
    seconds(&mut map, "timeout_seconds", &mut timeout, d);
    seconds(&mut map, "retry_seconds", &mut retry, d);
    map.finish(d);
    Some(ApprovalWebhook {
        timeout,
        attempts: attempts.map_or(ATTEMPTS, |count| u32::try_from(count).unwrap_or(u32::MAX)),
        retry,
        ..ApprovalWebhook::new(url?, secret?)
    })
}
