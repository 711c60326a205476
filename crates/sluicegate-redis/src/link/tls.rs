//! TLS connections to a store.

use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns a connector that trusts the given certificates, or else the system's. The crypto
/// provider is passed explicitly, so that a process-wide default does not matter.
pub(crate) fn connector(ca: Option<&[u8]>) -> Result<TlsConnector, String> {
    let roots = match ca {
        Some(pem) => roots_from_pem(pem)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS is unavailable: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots_from_pem(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("the TLS CA file is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the TLS CA file has an invalid certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the TLS CA file has no certificate; it must be PEM with `BEGIN CERTIFICATE`".to_owned());
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some system certificates may be outdated; the others still count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(
            "this system has no trusted TLS certificates; pass the store's CA with `tls_ca`".to_owned()
        );
    }
    Ok(roots)
}
