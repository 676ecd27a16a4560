//! Who may connect, and how.

use std::path::Path;
use std::time::Duration;

use portcullis_runtime::{GuardInbox, RedisSettings, RedisSettingsError, TlsIdentity};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::server::{Server, free_port};
use super::{PATIENCE, hire, inbox, until, until_ready};
use crate::inbox::{assert_echo, echo, request};

/// An authority, and what it signed.
struct Certificates {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // A name of its own: OpenSSL takes a certificate whose issuer is called like itself for self-signed.
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let sign = || {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    Certificates {
        server: sign(),
        client: sign(),
        ca: ca.pem(),
    }
}

fn serve(certificates: &Certificates, directory: &TempDir) -> Server {
    let write = |name: &str, pem: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = &certificates.server;
    let port = free_port();
    Server::start_with(
        port,
        &[
            "--port",
            "0",
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &text(&write("server.pem", certificate)),
            "--tls-key-file",
            &text(&write("server.key", key)),
            "--tls-ca-cert-file",
            &text(&write("ca.pem", &certificates.ca)),
            "--tls-auth-clients",
            "yes",
            "--user",
            "default",
            "off",
            "--user",
            "guard",
            "on",
            ">s3cret-pass",
            "~{portcullis}:*",
            "+@all",
        ],
    )
}

fn settings(server: &Server, certificates: &Certificates, password: &str) -> RedisSettings {
    let (certificate, key) = &certificates.client;
    RedisSettings {
        ca: Some(certificates.ca.clone()),
        identity: Some(TlsIdentity {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        ..RedisSettings::new(format!(
            "rediss://guard:{password}@localhost:{}",
            server.port
        ))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_over_tls_with_certificates_and_a_password() {
    let (certificates, directory) = (certificates(), tempfile::tempdir().unwrap());
    let server = serve(&certificates, &directory);
    let good = settings(&server, &certificates, "s3cret-pass");
    let _hand = hire(&good, echo());
    let inside = inbox(&good);
    until_ready(&inside, "echo").await;
    let asked = inside.ask(request("r", "tls", 0), PATIENCE).await;
    assert_echo(&asked.unwrap(), "r", "tls");

    let trouble = async |settings: &RedisSettings| {
        let outside = inbox(settings);
        until("it has tried", async || {
            let why = outside.trouble();
            why.is_some_and(|why| why != "not connected yet")
        })
        .await;
        assert!(!outside.connected(Duration::from_millis(100)).await);
        outside.trouble().unwrap()
    };
    let why = trouble(&settings(&server, &certificates, "wr0ng-pass")).await;
    assert!(why.contains("refused the user or the password"), "{why}");
    assert!(!why.contains("wr0ng-pass"), "{why}");

    let stranger = RedisSettings {
        ca: Some(self::certificates().ca),
        ..good.clone()
    };
    let why = trouble(&stranger).await;
    assert!(why.contains("certificate"), "{why}");
    let plain = RedisSettings::new(format!(
        "redis://guard:s3cret-pass@localhost:{}",
        server.port
    ));
    assert!(!trouble(&plain).await.contains("s3cret-pass"));
}

#[test]
fn settings_keep_their_secrets() {
    let settings = RedisSettings {
        identity: Some(TlsIdentity {
            certificate: "certificate".to_owned(),
            key: "hush".to_owned(),
        }),
        ..RedisSettings::new("rediss://guard:s3cret@redis.example:6380/2")
    };
    let shown = format!("{settings:?}");
    assert!(shown.contains("redis.example:6380"), "{shown}");
    for secret in ["s3cret", "hush", "104"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_a_reason() {
    let start = |settings: &RedisSettings| {
        let limits = portcullis_runtime::InboxLimits::default();
        portcullis_runtime::RemoteInbox::over_redis(settings, limits).unwrap_err()
    };
    let error = start(&RedisSettings::new("http://guard:s3cret@localhost"));
    assert!(error.to_string().starts_with("url: "), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    let good = RedisSettings::new("redis://localhost");
    for name in ["", "a}b"] {
        let named = RedisSettings {
            name: name.to_owned(),
            ..good.clone()
        };
        assert_eq!(start(&named), RedisSettingsError::Name(name.to_owned()));
    }
    let ca = Some("PEM".to_owned());
    let error = start(&RedisSettings { ca, ..good });
    assert!(error.to_string().contains("rediss://"), "{error}");
}
