//! Who may ask, and whom one asks: tokens and certificates.

use portcullis_runtime::{
    BearerToken, GrpcSettings, GuardInbox, SidecarSettings, SidecarTls, TlsIdentity,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};

use super::process::{PythonSidecar, file};
use super::support::{PATIENCE, Served, inbox, trouble};
use crate::fixtures::{deep_rules, unready};
use crate::inbox::{assert_echo, echo, request};

/// An authority of one test's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn identity(&self, name: &str) -> TlsIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = named(name);
        TlsIdentity {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Who bears the name of their own issuer has signed themselves, to some.
fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

async fn works(settings: &GrpcSettings) {
    let inbox = inbox(settings);
    assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
    let answered = inbox.ask(request("r", "id", 0), PATIENCE).await.unwrap();
    assert_echo(&answered, "r", "id");
}

#[tokio::test]
async fn a_sidecar_with_a_token_answers_those_who_show_it() {
    let right = BearerToken::new("right").unwrap();
    let served = Served::start(
        SidecarSettings {
            token: Some(right.clone()),
            ..SidecarSettings::default()
        },
        echo(),
    )
    .await;
    let showing = |token: Option<BearerToken>| GrpcSettings {
        token,
        ..GrpcSettings::new(served.url())
    };
    works(&showing(Some(right))).await;
    for wrong in [None, Some(BearerToken::new("wrong").unwrap())] {
        let why = trouble(&showing(wrong)).await;
        assert!(why.contains("does not take the token"), "{why}");
    }
}

#[tokio::test]
async fn a_gateway_asks_only_a_sidecar_whose_certificate_it_trusts() {
    let authority = Authority::new();
    let served = Served::start(
        SidecarSettings {
            tls: Some(SidecarTls {
                identity: authority.identity("localhost"),
                client_ca: None,
            }),
            ..SidecarSettings::default()
        },
        echo(),
    )
    .await;
    let port = served.address.port();
    let trusting = |ca: &Authority, host: &str| GrpcSettings {
        ca: Some(ca.pem()),
        ..GrpcSettings::new(format!("https://{host}:{port}"))
    };
    works(&trusting(&authority, "localhost")).await;
    works(&GrpcSettings {
        server_name: Some("localhost".to_owned()),
        ..trusting(&authority, "127.0.0.1")
    })
    .await;
    let why = trouble(&trusting(&authority, "127.0.0.1")).await;
    assert!(why.contains("certificate"), "another name: {why}");
    let why = trouble(&trusting(&Authority::new(), "localhost")).await;
    assert!(why.contains("certificate"), "another authority: {why}");
    let of_the_system = GrpcSettings::new(format!("https://localhost:{port}"));
    let why = trouble(&of_the_system).await;
    assert!(why.contains("certificate"), "nobody's authority: {why}");
    let plain = GrpcSettings::new(format!("http://localhost:{port}"));
    assert!(!trouble(&plain).await.is_empty());
}

#[tokio::test]
async fn a_sidecar_can_want_a_certificate_of_its_gateways() {
    let (authority, gateways) = (Authority::new(), Authority::new());
    let served = Served::start(
        SidecarSettings {
            tls: Some(SidecarTls {
                identity: authority.identity("localhost"),
                client_ca: Some(gateways.pem()),
            }),
            ..SidecarSettings::default()
        },
        echo(),
    )
    .await;
    let with = |identity: Option<TlsIdentity>| GrpcSettings {
        ca: Some(authority.pem()),
        identity,
        ..GrpcSettings::new(format!("https://localhost:{}", served.address.port()))
    };
    works(&with(Some(gateways.identity("gateway")))).await;
    for wrong in [None, Some(Authority::new().identity("gateway"))] {
        let why = trouble(&with(wrong)).await;
        assert!(!why.is_empty());
    }
}

#[tokio::test]
async fn a_sidecar_with_a_broken_certificate_does_not_start() {
    let identity = TlsIdentity {
        certificate: "none".to_owned(),
        key: "none".to_owned(),
    };
    let settings = SidecarSettings {
        tls: Some(SidecarTls {
            identity,
            client_ca: None,
        }),
        ..SidecarSettings::default()
    };
    let served = Served::start(settings, deep_rules([unready("echo")])).await;
    let error = served.failed().await.to_string();
    assert!(error.starts_with("tls: "), "{error}");
}

/// The sidecar of examples/, with all of it.
#[tokio::test]
async fn a_sidecar_in_python_has_tokens_and_certificates_too() {
    let (authority, gateways) = (Authority::new(), Authority::new());
    let identity = authority.identity("localhost");
    let folder = tempfile::tempdir().unwrap();
    let sidecar = PythonSidecar::start(&[
        "--token-file",
        &file(&folder, "token", "right\n"),
        "--tls-cert",
        &file(&folder, "cert.pem", &identity.certificate),
        "--tls-key",
        &file(&folder, "key.pem", &identity.key),
        "--tls-client-ca",
        &file(&folder, "ca.pem", &gateways.pem()),
    ]);
    let settings = |token: &str| GrpcSettings {
        ca: Some(authority.pem()),
        identity: Some(gateways.identity("gateway")),
        token: Some(BearerToken::new(token).unwrap()),
        ..GrpcSettings::new(format!("https://localhost:{}", sidecar.port))
    };
    let inbox = inbox(&settings("right"));
    assert!(inbox.connected(PATIENCE).await, "{:?}", inbox.trouble());
    let why = trouble(&settings("wrong")).await;
    assert!(why.contains("does not take the token"), "{why}");
}
