//! TLS: certificates from files, which can be reloaded while the server runs.

use crate::protocol::{ByProtocol, Protocol};
use arc_swap::ArcSwap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// The files of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertFiles {
    /// The chain in PEM, the server's own certificate first.
    pub cert: PathBuf,
    /// The key of that certificate, in PEM.
    pub key: PathBuf,
}

/// Certificates that match their key.
#[derive(Clone)]
pub struct Certs(ServerConfig);

/// The TLS configuration of new connections, per protocol.
pub struct Tls(ByProtocol<ArcSwap<ServerConfig>>);

impl CertFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file is unreadable or invalid. The message names it.
    pub fn read(&self) -> Result<Certs, String> {
        let shown = |path: &Path| path.display().to_string();
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("{}: cannot read the certificate: {error}", shown(&self.cert)))?;
        if chain.is_empty() {
            let name = shown(&self.cert);
            return Err(format!(
                "{name}: the file holds no certificate; it must be PEM, with BEGIN CERTIFICATE"
            ));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            format!(
                "{}: cannot read the private key: {error}; it must be PEM, with BEGIN PRIVATE KEY",
                shown(&self.key)
            )
        })?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| format!("{} and {}: {error}", shown(&self.cert), shown(&self.key)))?;
        Ok(Certs(config))
    }
}

impl Certs {
    fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let mut config = self.0.clone();
        config.alpn_protocols = protocol.description().alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

impl Tls {
    /// Uses these certificates for all protocols.
    pub fn new(certs: Certs) -> Tls {
        Tls(ByProtocol::new(move |protocol| ArcSwap::new(certs.config(protocol))))
    }

    /// Replaces the certificates for new connections. Open connections keep theirs.
    pub fn replace(&self, certs: Certs) {
        self.0.iter().for_each(move |(protocol, config)| config.store(certs.config(protocol)));
    }

    /// Performs the handshake with one client.
    pub(crate) async fn accept(
        &self,
        protocol: Protocol,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.0[protocol].load_full()).accept(stream).await
    }
}

impl std::fmt::Debug for Tls {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}
