//! Where deep rules run: the section `deep`.

use std::path::PathBuf;

use portcullis_core::pack::diagnostic::{Diagnostics, Place};
use portcullis_core::pack::yaml::{self, MapReader, Node};
use portcullis_runtime::{BearerToken, GrpcSettings, InboxLimits, RedisSettings, TlsIdentity};

use super::read::seconds;

/// Where deep rules run, and how much of it at a time.
#[derive(Debug, Clone, Default)]
pub struct DeepSettings {
    /// Where.
    pub place: DeepPlace,
    /// What the inbox may keep.
    pub limits: InboxLimits,
}

/// Where deep rules run.
#[derive(Debug, Clone, Default)]
pub enum DeepPlace {
    /// In this process.
    #[default]
    Here,
    /// In the workers behind a Redis.
    Redis {
        /// Which Redis.
        settings: Box<RedisSettings>,
        /// For `rediss://`.
        tls: ClientTls,
    },
    /// In a sidecar.
    Sidecar {
        /// Which.
        settings: Box<GrpcSettings>,
        /// For `https://`.
        tls: ClientTls,
    },
}

/// Files in PEM form, for a connection by TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Who signed the other side's certificate, if the system does not know.
    pub ca: Option<PathBuf>,
    /// What to show to the other side: the certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTls {
    /// Reads the files.
    pub fn load(&self) -> Result<(Option<String>, Option<TlsIdentity>), String> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        let identity = match &self.identity {
            None => None,
            Some((certificate, key)) => Some(TlsIdentity {
                certificate: read(certificate)?,
                key: read(key)?,
            }),
        };
        Ok((ca, identity))
    }
}

/// Reads the section.
pub(super) fn deep(node: &Node, d: &mut Diagnostics) -> DeepSettings {
    let mut settings = DeepSettings::default();
    let Some(mut map) = MapReader::open(node, "`deep`", d) else {
        return settings;
    };
    let limits = &mut settings.limits;
    limits.in_flight = map.count("max_in_flight", d).unwrap_or(limits.in_flight);
    seconds(&mut map, "evaluation_seconds", &mut limits.evaluation, d);
    let (redis_node, sidecar_node) = (map.get("redis"), map.get("sidecar"));
    if let (Some(_), Some(sidecar)) = (redis_node, sidecar_node) {
        d.error(
            sidecar.place,
            "deep rules run in one place, and `redis` is given too",
        )
        .help("keep one of `redis` and `sidecar`; a worker or a sidecar can have all rules");
    }
    let place = match (redis_node, sidecar_node) {
        (Some(node), _) => redis(node, d),
        (None, Some(node)) => sidecar(node, d),
        (None, None) => None,
    };
    settings.place = place.unwrap_or_default();
    map.finish(d);
    settings
}

fn redis(node: &Node, d: &mut Diagnostics) -> Option<DeepPlace> {
    let mut map = MapReader::open(node, "`deep.redis`", d)?;
    let url = map.require("url", d);
    let mut settings = RedisSettings::new(
        url.and_then(|n| yaml::text(n, "url", d))
            .unwrap_or_default(),
    );
    if let Some(name) = map.text("name", d) {
        name.clone_into(&mut settings.name);
    }
    settings.max_queued = map.count("max_queued", d).unwrap_or(settings.max_queued);
    let tls = client_tls(&mut map, d);
    map.finish(d);
    let place = url.map(|node| node.place)?;
    if !d.has_error_at(place)
        && let Err(error) = settings.check()
    {
        d.error(place, format!("`deep.redis` cannot be used: {error}"));
    }
    let settings = Box::new(settings);
    Some(DeepPlace::Redis { settings, tls })
}

fn sidecar(node: &Node, d: &mut Diagnostics) -> Option<DeepPlace> {
    let mut map = MapReader::open(node, "`deep.sidecar`", d)?;
    let url = map.require("url", d);
    let mut settings = GrpcSettings::new(
        url.and_then(|n| yaml::text(n, "url", d))
            .unwrap_or_default(),
    );
    if let Some(node) = map.get("token") {
        settings.token = token(node, d);
    }
    settings.server_name = map.text("server_name", d).map(str::to_owned);
    seconds(
        &mut map,
        "connect_timeout_seconds",
        &mut settings.connect_timeout,
        d,
    );
    seconds(&mut map, "keep_alive_seconds", &mut settings.keep_alive, d);
    let tls = client_tls(&mut map, d);
    map.finish(d);
    let place = url.map(|node| node.place)?;
    if !d.has_error_at(place)
        && let Err(error) = settings.check()
    {
        d.error(place, format!("`deep.sidecar` cannot be used: {error}"));
    }
    let settings = Box::new(settings);
    Some(DeepPlace::Sidecar { settings, tls })
}

fn token(node: &Node, d: &mut Diagnostics) -> Option<BearerToken> {
    let text = yaml::text(node, "token", d)?;
    // A variable that could not be filled in has been reported.
    if d.has_error_at(node.place) {
        return None;
    }
    BearerToken::new(text)
        .map_err(|error| {
            d.error(node.place, error.to_string());
        })
        .ok()
}

fn client_tls(map: &mut MapReader<'_>, d: &mut Diagnostics) -> ClientTls {
    let file =
        |map: &mut MapReader<'_>, key, d: &mut Diagnostics| map.text(key, d).map(PathBuf::from);
    let ca = file(map, "ca", d);
    let (certificate, key) = (file(map, "certificate", d), file(map, "key", d));
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => half(map.key_place("certificate"), "certificate", "key", d),
        (None, Some(_)) => half(map.key_place("key"), "key", "certificate", d),
    };
    ClientTls { ca, identity }
}

fn half<T>(place: Option<Place>, there: &str, missing: &str, d: &mut Diagnostics) -> Option<T> {
    d.error(
        place.unwrap_or_default(),
        format!("`{there}` is of no use without `{missing}`"),
    )
    .help(format!("add `{missing}`, or leave both out"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_deep_rules_run_here() {
        let settings = DeepSettings::default();
        assert!(matches!(settings.place, DeepPlace::Here));
        assert_eq!(
            settings.limits.evaluation,
            std::time::Duration::from_secs(30)
        );
    }
}
