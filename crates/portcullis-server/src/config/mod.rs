//! The server's configuration: F001's YAML, checked whole before anything starts.
//!
//! Text options with their places → validated [`Settings`]. Unknown keys, wrong types, unset variables
//! and tokens that could never authenticate are reported together, each with its line.

mod a2a;
mod alerts;
mod approvals;
mod callbacks;
mod cover;
mod deep;
#[cfg_attr(not(feature = "models"), path = "no_embedder.rs")]
mod embedder;
mod read;
mod variables;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use embedder::EmbedderSettings;
use portcullis_core::a2a::Limits;
use portcullis_core::pack::diagnostic::{Diagnostics, Report};
use portcullis_core::pack::yaml;
use portcullis_store::evidence::Durability;

pub use self::alerts::{
    AlertSettings, AlertSinkKind, AlertSinkSettings, Facility, SyslogAddress, SyslogSettings,
};
pub use self::approvals::{ApprovalSettings, ApprovalWebhook};
pub use self::callbacks::{CallbackKind, CallbackSettings, CallbackTarget, CallbackWhen};
pub use self::deep::{ClientTls, DeepPlace, DeepSettings};
use crate::auth::Tokens;
use crate::limit::RateLimits;

/// Everything the server goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How it listens.
    pub server: ServerSettings,
    /// Who it says it is.
    pub agent: AgentSettings,
    /// Who may come in.
    pub auth: AuthSettings,
    /// What it judges by.
    pub policy: PolicySettings,
    /// Where deep rules run.
    pub deep: DeepSettings,
    /// What `${…}` in a policy pack stands for: the keys of services that its deep rules ask.
    pub variables: Variables,
    /// How often each agent may call each method.
    pub rate_limits: RateLimits,
    /// Where and how evidence is kept.
    pub evidence: EvidenceSettings,
    /// Where decisions are remembered, and how they are found.
    pub memory: MemorySettings,
    /// Who hears of announced intents.
    pub callbacks: CallbackSettings,
    /// Who hears of alerts.
    pub alerts: AlertSettings,
    /// Where people's answers to paused steps are kept, and who is told of them.
    pub approvals: ApprovalSettings,
    /// How much of an A2A packet is read.
    pub a2a: Limits,
    /// Who watches.
    pub telemetry: TelemetrySettings,
}

/// How the server listens, and what it takes from one client.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 for any that is free.
    pub port: u16,
    /// Origins whose pages may call from a browser; none by default, `*` for all.
    pub cors_origins: Vec<String>,
    /// The certificate and its key, for TLS.
    pub tls: Option<TlsSettings>,
    /// The largest body that is read.
    pub max_body_bytes: usize,
    /// The most calls in a JSON-RPC batch.
    pub max_batch: usize,
    /// Connections at one time; more wait to be accepted.
    pub max_connections: usize,
    /// Requests at one time; more are turned away with 503.
    pub max_requests: usize,
    /// How long a client may take to send its headers, and how long to send its body.
    pub read_timeout: Duration,
    /// How long requests may go on once the server is told to stop.
    pub shutdown_timeout: Duration,
}

/// What `${…}` stands for. Values are looked up when they are needed, and not printed.
#[derive(Clone)]
pub struct Variables(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Variables {
    /// Looked up by `look_up`.
    pub fn new(look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// What a variable stands for.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// None.
impl Default for Variables {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Variables(..)")
    }
}

/// Files in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What the agent card says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// The name, which answers carry too.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Where it is reached from outside; by default, the address it listens on.
    pub url: Option<String>,
}

/// Who may come in.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Whether a token is asked for.
    pub enabled: bool,
    /// The tokens.
    pub tokens: Tokens,
    /// The agents that may quarantine runs, and let them out again.
    pub operators: Vec<String>,
    /// Who may decide on paused steps: the agents that have each role. Operators have [`ADMIN`] besides.
    pub roles: BTreeMap<String, Vec<String>>,
}

/// The role of operators.
pub const ADMIN: &str = "admin";

impl AuthSettings {
    /// The roles of an agent.
    pub fn roles_of(&self, agent: &str) -> Vec<String> {
        let has = |names: &[String]| names.iter().any(|name| name == agent);
        let named = self.roles.iter().filter(|(_, names)| has(names));
        let mut roles: Vec<String> = named.map(|(role, _)| role.clone()).collect();
        if has(&self.operators) && !roles.iter().any(|role| role == ADMIN) {
            roles.push(ADMIN.to_owned());
        }
        roles
    }
}

/// What the server judges by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// The policy pack; the built-in one if there is none.
    pub pack: Option<PathBuf>,
    /// The pack's environment.
    pub env: Option<String>,
    /// A folder of guardrail files, or one such file; the built-in five if there is none.
    pub guardrails: Option<PathBuf>,
    /// How often the files are looked at for changes.
    pub reload_interval: Duration,
    /// Whether the server may start with nothing to judge by.
    pub allow_none: bool,
}

/// Where and how evidence is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceSettings {
    /// The folder.
    pub directory: PathBuf,
    /// What "acknowledged" survives.
    pub durability: Durability,
    /// A file is closed and the next begun at this size.
    pub segment_bytes: u64,
    /// Entries between signed checkpoints.
    pub checkpoint_every: u64,
    /// The Ed25519 key in a file; by default one is made in the folder.
    pub signing_key: Option<PathBuf>,
}

/// Where decisions are remembered, and how they are found.
#[derive(Debug, Clone)]
pub struct MemorySettings {
    /// The database.
    pub path: PathBuf,
    /// What finds them by their meaning.
    pub embedder: EmbedderSettings,
}

/// Who watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Where spans are sent (OTLP over HTTP), such as `http://localhost:4318`.
    pub otlp_endpoint: Option<String>,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// The name of the memory's database.
pub const MEMORY_FILE: &str = "memory.db";

/// The name of the approvals' database.
pub const APPROVALS_FILE: &str = "approvals.db";

/// Where evidence, memory and approvals go if nobody says.
pub const DEFAULT_DATA_DIRECTORY: &str = "portcullis-data";

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                host: IpAddr::from([127, 0, 0, 1]),
                port: 8100,
                cors_origins: Vec::new(),
                tls: None,
                max_body_bytes: 2 << 20,
                max_batch: 100,
                max_connections: 10_000,
                max_requests: 1_024,
                read_timeout: Duration::from_secs(10),
                shutdown_timeout: Duration::from_secs(10),
            },
            agent: AgentSettings {
                name: "portcullis".to_owned(),
                description: "Decision intelligence for AI agents".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                url: None,
            },
            auth: AuthSettings {
                enabled: true,
                tokens: Tokens::default(),
                operators: Vec::new(),
                roles: BTreeMap::new(),
            },
            policy: PolicySettings {
                pack: None,
                env: None,
                guardrails: None,
                reload_interval: Duration::from_secs(2),
                allow_none: false,
            },
            deep: DeepSettings::default(),
            variables: Variables::default(),
            rate_limits: RateLimits::default(),
            evidence: EvidenceSettings {
                directory: PathBuf::from(DEFAULT_DATA_DIRECTORY).join("evidence"),
                durability: Durability::Fsync,
                segment_bytes: 64 << 20,
                checkpoint_every: 1_000,
                signing_key: None,
            },
            memory: MemorySettings {
                path: PathBuf::from(DEFAULT_DATA_DIRECTORY).join(MEMORY_FILE),
                embedder: EmbedderSettings::default(),
            },
            callbacks: CallbackSettings::default(),
            alerts: AlertSettings::default(),
            approvals: ApprovalSettings::default(),
            a2a: Limits::default(),
            telemetry: TelemetrySettings {
                otlp_endpoint: None,
                log_format: LogFormat::Text,
            },
        }
    }
}

/// An address to listen on; `localhost` is one.
pub fn parse_host(text: &str) -> Option<IpAddr> {
    match text {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        _ => text.parse().ok(),
    }
}

/// Reads a configuration file's text. `variable` looks up `${…}`.
pub fn load(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, Box<Report>> {
    let mut diagnostics = Diagnostics::default();
    let settings = yaml::parse(text, &mut diagnostics).map(|mut root| {
        variables::substitute(&mut root, variable, &mut diagnostics);
        read::settings(&root, &mut diagnostics)
    });
    match settings {
        Some(settings) if !diagnostics.has_errors() => Ok(settings),
        _ => Err(Box::new(Report {
            file: file.to_owned(),
            text: cover::cover(text),
            diagnostics,
        })),
    }
}
