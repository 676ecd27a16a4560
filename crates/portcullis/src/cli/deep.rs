//! What can be typed to run deep rules for gateways elsewhere.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::server::host;

/// Which rules, and how they are logged.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// The server's configuration file: its sections `policy`, `deep` and `telemetry` count here too.
    #[arg(short, long, value_name = "FILE", env = "PORTCULLIS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The policy pack whose `async_rules` are run.
    #[arg(short, long, value_name = "FILE", env = "PORTCULLIS_POLICY")]
    pub(crate) policy: Option<PathBuf>,
    /// The pack's environment to apply, such as `dev`.
    #[arg(short, long, value_name = "NAME", env = "PORTCULLIS_ENV")]
    pub(crate) env: Option<String>,
    /// How many evaluations at one time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrency: Option<u32>,
    /// What to log: a level, or levels by module.
    #[arg(
        long,
        value_name = "FILTER",
        env = "PORTCULLIS_LOG",
        default_value = "info"
    )]
    pub(crate) log: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Start as many as the work needs: they share it out, and take over what one of them leaves undone. \
                  Gateways find them by the Redis (`deep.redis` in the server's configuration).\n\n\
                  Examples:\n  \
                  portcullis worker --redis redis://127.0.0.1 --policy pack.yaml\n  \
                  portcullis worker --config server.yaml --concurrency 8"
)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// The Redis, such as `redis://127.0.0.1`. One with a password is better in the environment or the file: arguments are
    /// seen by others on the machine.
    #[arg(
        long,
        value_name = "URL",
        env = "PORTCULLIS_REDIS",
        hide_env_values = true
    )]
    pub(crate) redis: Option<String>,
    /// What the keys in the Redis begin with; gateways and workers of the same name belong together.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It answers grpc.health.v1 as well, for readiness probes. Gateways ask it where their configuration has \
                  `deep.sidecar`.\n\n\
                  Examples:\n  \
                  portcullis sidecar --policy pack.yaml\n  \
                  portcullis sidecar --policy pack.yaml --host 0.0.0.0 --certificate tls.pem --key tls.key"
)]
pub(crate) struct SidecarArgs {
    #[command(flatten)]
    pub(crate) rules: HostArgs,
    /// The address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) host: IpAddr,
    /// The port to listen on; 0 for any that is free.
    #[arg(long, value_name = "N", default_value_t = 50_051)]
    pub(crate) port: u16,
    /// What gateways must show. Better in the environment: arguments are seen by others on the machine.
    #[arg(long, env = "PORTCULLIS_SIDECAR_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The certificate for TLS, in PEM form.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Let in only those whose certificate this authority signed.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) client_ca: Option<PathBuf>,
}
