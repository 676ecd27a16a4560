//! Who hears of alerts: the section `alerts`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_core::pack::diagnostic::Diagnostics;
use portcullis_core::pack::yaml::{self, MapReader, Node};
use reqwest::Url;

use super::callbacks::{ATTEMPTS, RETRY, TIMEOUT, address, secret};
use super::read::seconds;
use crate::auth::Token;

/// RFC 5424 allows no longer name.
const MAX_APP_NAME: usize = 48;

/// Who hears of alerts, and how often.
#[derive(Debug, Clone)]
pub struct AlertSettings {
    /// How long the same alert is counted instead of sent again; not at all if it is zero.
    pub deduplicate: Duration,
    /// The most messages that one sink gets in a minute.
    pub per_minute: usize,
    /// The most messages that wait for one sink.
    pub queue: usize,
    /// Where they go.
    pub sinks: Vec<AlertSinkSettings>,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            deduplicate: Duration::from_mins(1),
            per_minute: 60,
            queue: 1_000,
            sinks: Vec::new(),
        }
    }
}

/// One of those who hear of alerts.
#[derive(Debug, Clone)]
pub struct AlertSinkSettings {
    /// What it is.
    pub kind: AlertSinkKind,
    /// How long one try may take.
    pub timeout: Duration,
    /// How often a message is tried before it is given up.
    pub attempts: u32,
    /// How long to wait before the second try; twice as long before each further one.
    pub retry: Duration,
}

impl AlertSinkSettings {
    /// With the defaults.
    pub fn new(kind: AlertSinkKind) -> Self {
        Self {
            kind,
            timeout: TIMEOUT,
            attempts: ATTEMPTS,
            retry: RETRY,
        }
    }
}

/// What a sink is.
#[derive(Debug, Clone)]
pub enum AlertSinkKind {
    /// The server's standard output, one line of JSON each.
    Stdout,
    /// A syslog receiver.
    Syslog(SyslogSettings),
    /// An address of HTTP, signed as callbacks are.
    Webhook {
        /// Where.
        url: Url,
        /// What it is signed with.
        secret: Token,
    },
}

impl AlertSinkKind {
    /// What they are called in a configuration and in metrics.
    pub const NAMES: [&'static str; 3] = ["stdout", "syslog", "webhook"];

    /// What it is called in a configuration and in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stdout => Self::NAMES[0],
            Self::Syslog(_) => Self::NAMES[1],
            Self::Webhook { .. } => Self::NAMES[2],
        }
    }
}

/// A syslog receiver, and what it is told of us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogSettings {
    /// Where.
    pub address: SyslogAddress,
    /// Which part of a system we count as.
    pub facility: Facility,
    /// What we are called.
    pub app_name: String,
}

impl SyslogSettings {
    /// With the defaults.
    pub fn new(address: SyslogAddress) -> Self {
        Self {
            address,
            facility: Facility(4),
            app_name: "portcullis".to_owned(),
        }
    }
}

/// Where a syslog receiver listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// Host and port.
    Udp(String),
    /// Host and port.
    Tcp(String),
    /// A socket for datagrams.
    Unix(PathBuf),
}

impl SyslogAddress {
    /// Reads `udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:/PATH`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return path.starts_with('/').then(|| Self::Unix(path.into()));
        }
        let url = Url::parse(text).ok()?;
        let rest = matches!(url.path(), "" | "/") && url.query().is_none();
        if !rest || url.fragment().is_some() || !url.username().is_empty() {
            return None;
        }
        let host = url.host_str().filter(|host| !host.is_empty())?;
        match url.scheme() {
            "udp" => Some(Self::Udp(format!("{host}:{}", url.port().unwrap_or(514)))),
            "tcp" => Some(Self::Tcp(format!("{host}:{}", url.port().unwrap_or(601)))),
            _ => None,
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(to) => write!(f, "udp://{to}"),
            Self::Tcp(to) => write!(f, "tcp://{to}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One of syslog's parts of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facility(u8);

/// By code; those between 11 and 16 have no common names.
const FACILITIES: [(&str, Facility); 20] = [
    ("kern", Facility(0)),
    ("user", Facility(1)),
    ("mail", Facility(2)),
    ("daemon", Facility(3)),
    ("auth", Facility(4)),
    ("syslog", Facility(5)),
    ("lpr", Facility(6)),
    ("news", Facility(7)),
    ("uucp", Facility(8)),
    ("cron", Facility(9)),
    ("authpriv", Facility(10)),
    ("ftp", Facility(11)),
    ("local0", Facility(16)),
    ("local1", Facility(17)),
    ("local2", Facility(18)),
    ("local3", Facility(19)),
    ("local4", Facility(20)),
    ("local5", Facility(21)),
    ("local6", Facility(22)),
    ("local7", Facility(23)),
];

impl Facility {
    /// By its name, such as `auth` or `local3`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = FACILITIES.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, facility)| *facility)
    }

    pub(crate) const fn code(self) -> u8 {
        self.0
    }
}

/// Reads the section.
pub(super) fn alerts(node: &Node, d: &mut Diagnostics) -> AlertSettings {
    let mut settings = AlertSettings::default();
    let Some(mut map) = MapReader::open(node, "`alerts`", d) else {
        return settings;
    };
    if let Some(amount) = map.amount("deduplicate_seconds", d) {
        match Duration::try_from_secs_f64(amount) {
            Ok(window) if amount <= 86_400.0 => settings.deduplicate = window,
            _ => {
                let place = map.key_place("deduplicate_seconds").unwrap_or_default();
                d.error(
                    place,
                    "`deduplicate_seconds` must be at least 0 and at most a day (86400)",
                )
                .help("0 sends the same alert again each time");
            }
        }
    }
    settings.per_minute = map.count("per_minute", d).unwrap_or(settings.per_minute);
    settings.queue = map.count("queue", d).unwrap_or(settings.queue);
    let sinks = map.list("sinks", d).unwrap_or_default();
    settings.sinks = sinks.iter().filter_map(|node| sink(node, d)).collect();
    map.finish(d);
    settings
}

fn sink(node: &Node, d: &mut Diagnostics) -> Option<AlertSinkSettings> {
    let mut map = MapReader::open(node, "a sink", d)?;
    let kinds = AlertSinkKind::NAMES.map(|name| (name, name));
    let kind = map.require("kind", d);
    let kind = kind.and_then(|node| yaml::one_of(node, "kind", &kinds, d));
    let kind = match kind {
        Some("stdout") => Some(AlertSinkKind::Stdout),
        Some("syslog") => syslog(&mut map, d).map(AlertSinkKind::Syslog),
        Some(_) => webhook(&mut map, d),
        None => {
            // Nobody knows which keys it should have.
            return None;
        }
    };
    let mut sink = kind.map(AlertSinkSettings::new);
    if !matches!(&sink, Some(sink) if matches!(sink.kind, AlertSinkKind::Stdout)) {
        let attempts = map.count("attempts", d);
        let (mut timeout, mut retry) = (TIMEOUT, RETRY);
        seconds(&mut map, "timeout_seconds", &mut timeout, d);
        seconds(&mut map, "retry_seconds", &mut retry, d);
        sink = sink.map(|sink| AlertSinkSettings {
            timeout,
            attempts: attempts.map_or(ATTEMPTS, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            retry,
            ..sink
        });
    }
    map.finish(d);
    sink
}

fn webhook(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<AlertSinkKind> {
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
    let secret = secret(signs?, "secret", "a sink", d);
    Some(AlertSinkKind::Webhook {
        url: url?,
        secret: secret?,
    })
}

fn syslog(map: &mut MapReader<'_>, d: &mut Diagnostics) -> Option<SyslogSettings> {
    let address = map.require("address", d).and_then(|node| {
        let text = yaml::text(node, "address", d)?;
        if d.has_error_at(node.place) {
            return None;
        }
        let address = SyslogAddress::parse(text);
        if address.is_none() {
            d.error(
                node.place,
                "`address` is not where a syslog receiver listens",
            )
            .help("write udp://HOST:PORT, tcp://HOST:PORT or unix:/PATH");
        }
        address
    });
    let facility = map.one_of("facility", &FACILITIES, d);
    let app_name = map.get("app_name").and_then(|node| {
        let name = yaml::text(node, "app_name", d)?;
        let fits = (1..=MAX_APP_NAME).contains(&name.len());
        if fits && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Some(name.to_owned());
        }
        d.error(
            node.place,
            format!("`app_name` must be 1 to {MAX_APP_NAME} characters of ASCII without blanks"),
        );
        None
    });
    let mut settings = SyslogSettings::new(address?);
    settings.facility = facility.unwrap_or(settings.facility);
    settings.app_name = app_name.unwrap_or(settings.app_name);
    Some(settings)
}
