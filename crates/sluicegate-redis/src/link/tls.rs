//! TLS to a store.

use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What connects with TLS, and trusts those whom the given certificates vouch for, or else those whom the
/// machine trusts. The crypto provider is passed, so that it does not matter what else is in the process.
pub(crate) fn connector(ca: Option<&[u8]>) -> Result<TlsConnector, String> {
    let roots = match ca {
        Some(pem) => given(pem)?,
        None => of_the_machine()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn given(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("the TLS CA file is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("the TLS CA file has a bad certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the TLS CA file has no certificate; it must be PEM with `BEGIN CERTIFICATE`".to_owned());
    }
    Ok(roots)
}

fn of_the_machine() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Old certificates of a machine may be ones that nobody accepts any more; the others still count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(
            "this machine has no TLS certificates to trust; pass the store's own with `tls_ca`".to_owned()
        );
    }
    Ok(roots)
}
