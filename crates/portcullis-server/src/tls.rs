//! TLS by rustls, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsSettings;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {} from {}: {error}", what, path.display())]
    Read {
        /// What should be in it.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        error: rustls::pki_types::pem::Error,
    },
    /// There is no certificate in the file.
    #[error("no certificate in {}: it needs a PEM block `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// The two do not go together.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Makes ring what this process encrypts with: clients are built with what the process has chosen, and fail
/// where it has not.
pub(crate) fn choose_provider() {
    // An error means that somebody has chosen before us, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What makes TLS of a connection.
pub(crate) fn acceptor(settings: &TlsSettings) -> Result<TlsAcceptor, TlsError> {
    let certificates = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&settings.key).map_err(|error| TlsError::Read {
        what: "a private key",
        path: settings.key.clone(),
        error,
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The certificates in a PEM file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrap = |error| TlsError::Read {
        what: "certificates",
        path: path.to_owned(),
        error,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(wrap)?
        .collect::<Result<_, _>>()
        .map_err(wrap)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(certificates)
}
