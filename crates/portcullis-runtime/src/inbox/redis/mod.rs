//! Deep rules behind a Redis: gateways put requests there, workers take them and put the answers back.
//!
//! | key | what it is |
//! |---|---|
//! | `{name}:requests:RULE` | a stream per rule; the consumer group `workers` shares it out |
//! | `{name}:replies:GATEWAY` | a stream per gateway, which alone reads it |
//! | `{name}:workers`, `{name}:beats` | what each worker serves, and when it was last heard of |
//! | `{name}:changes` | wakes the gateways when a worker comes, goes or changes |
//! | `{name}:gateway:GATEWAY` | gone when the Redis has lost what it was given |
//!
//! All share a hash tag, so that a cluster keeps them in one place, and all expire when nobody uses them any more. A
//! request is in its stream until the answer is in the gateway's: both happen in one transaction. Whatever is sent
//! twice, because a connection broke or a worker was slow, the gateway's desk takes once.
//!
//! Needs Redis 6.2 or newer.

mod connection;
mod near;
mod wire;
mod worker;

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, TlsCertificates};

pub use self::worker::{Worker, WorkerCounts, WorkerLimits};
use super::InboxLimits;
use super::remote::{RemoteInbox, TlsIdentity};

/// Where the Redis is, and what of it is ours.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://` or `rediss://`, with user and password where it wants them.
    pub url: String,
    /// What all keys start with. Gateways and workers of the same name belong together.
    pub name: String,
    /// For `rediss://`: the authority that signed the server's certificate, as PEM, if the system does not know it.
    pub ca: Option<String>,
    /// For `rediss://`: the certificate to show to the server.
    pub identity: Option<TlsIdentity>,
    /// How many requests may wait for one rule, those being evaluated among them. Beyond that they are refused.
    pub max_queued: usize,
}

/// Why these settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisSettingsError {
    /// The address is none.
    #[error("url: {0}; write redis://[user:password@]host[:port][/database], or rediss:// for TLS")]
    Url(String),
    /// The name cannot be part of a key.
    #[error("name: {0:?} must not be empty, nor have braces in it")]
    Name(String),
    /// The certificates cannot be used.
    #[error("certificates: {0}")]
    Certificates(String),
}

impl RedisSettings {
    /// The Redis at this address, with everything else by default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: "portcullis".to_owned(),
            ca: None,
            identity: None,
            max_queued: 10_000,
        }
    }

    /// Whether it can be used: the address, the name, and what certificates there are.
    pub fn check(&self) -> Result<(), RedisSettingsError> {
        self.client().map(|_| ())
    }

    fn client(&self) -> Result<Client, RedisSettingsError> {
        if self.name.is_empty() || self.name.contains(['{', '}']) {
            return Err(RedisSettingsError::Name(self.name.clone()));
        }
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let info = self
            .url
            .as_str()
            .into_connection_info()
            .map_err(|error| RedisSettingsError::Url(error.to_string()))?
            .set_tcp_settings(tcp);
        let certificates =
            |error: redis::RedisError| RedisSettingsError::Certificates(error.to_string());
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            if self.ca.is_some() || self.identity.is_some() {
                let why = "they are for rediss://, and the url is not".to_owned();
                return Err(RedisSettingsError::Certificates(why));
            }
            return Client::open(info).map_err(|error| RedisSettingsError::Url(error.to_string()));
        }
        // An error means that the process has chosen before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = TlsCertificates {
            client_tls: self.identity.as_ref().map(|identity| ClientTlsConfig {
                client_cert: identity.certificate.clone().into_bytes(),
                client_key: identity.key.clone().into_bytes(),
            }),
            root_cert: self.ca.clone().map(String::into_bytes),
        };
        Client::build_with_tls(info, tls).map_err(certificates)
    }
}

impl RemoteInbox {
    /// An inbox whose rules are run by the [`Worker`]s at this Redis. Needs a tokio runtime with I/O and time.
    ///
    /// It connects in the background, and again whenever it has to.
    pub fn over_redis(
        settings: &RedisSettings,
        limits: InboxLimits,
    ) -> Result<Self, RedisSettingsError> {
        let client = settings.client()?;
        let (name, max_queued) = (settings.name.clone(), settings.max_queued);
        Ok(Self::start(limits, move |link| {
            near::carry(link, client, name, max_queued)
        }))
    }
}

/// Without the password.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.url.as_str().into_connection_info();
        let address =
            address.map_or_else(|_| "unreadable".to_owned(), |info| info.addr().to_string());
        f.debug_struct("RedisSettings")
            .field("address", &address)
            .field("name", &self.name)
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("max_queued", &self.max_queued)
            .finish()
    }
}
