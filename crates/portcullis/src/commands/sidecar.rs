//! `portcullis sidecar`

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use portcullis_runtime::{BearerToken, SidecarSettings, SidecarTls, TlsIdentity, serve_sidecar};
use portcullis_server::FarSide;
use tokio::net::TcpListener;

use super::{deep, serve};
use crate::cli::SidecarArgs;
use crate::output::{Answer, Failure};

pub(crate) fn run(args: &SidecarArgs) -> Result<Answer, Failure> {
    let settings = deep::settings(&args.rules)?;
    let sidecar = sidecar_settings(args)?;
    let address = SocketAddr::new(args.host, args.port);
    deep::run(&settings, &args.rules.log, async |side| {
        work(side, sidecar, address).await
    })
}

async fn work(
    side: FarSide,
    settings: SidecarSettings,
    address: SocketAddr,
) -> Result<Answer, Failure> {
    let stop = serve::stop_signal()?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
        .map_err(Failure::Unavailable)?;
    let address = listener.local_addr().unwrap_or(address);
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    if settings.token.is_none() && !address.ip().is_loopback() {
        tracing::warn!("NO TOKEN: anybody who reaches this address may ask");
    }
    let place = format!("Sidecar on {scheme}://{address}");
    deep::welcome(&place, &side).map_err(Failure::write)?;
    let host = side.host();
    tokio::select! {
        served = serve_sidecar(listener, settings, host, stop) => {
            served.map_err(|error| Failure::Unavailable(error.into()))?;
        }
        () = side.watch() => {}
    }
    Ok(Answer::Yes)
}

fn sidecar_settings(args: &SidecarArgs) -> Result<SidecarSettings, Failure> {
    let mut settings = SidecarSettings::default();
    if let Some(token) = &args.token {
        let token = BearerToken::new(token).map_err(|error| Failure::Input(error.into()))?;
        settings.token = Some(token);
    }
    if let Some(concurrency) = args.rules.concurrency {
        settings.in_flight = concurrency as usize;
        settings.in_flight_per_stream = settings.in_flight_per_stream.min(settings.in_flight);
    }
    if let (Some(certificate), Some(key)) = (&args.certificate, &args.key) {
        settings.tls = Some(SidecarTls {
            identity: TlsIdentity {
                certificate: file(certificate)?,
                key: file(key)?,
            },
            client_ca: args.client_ca.as_deref().map(file).transpose()?,
        });
    }
    Ok(settings)
}

fn file(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(Failure::Input)
}
