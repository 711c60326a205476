//! Speaks to a server: plain or in TLS, a question at a time.

use super::reply::{self, Reply};
use crate::Problem;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sluicegate_sim::human::printable;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the server may let us wait, for each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A server we are connected to.
pub(super) struct Server {
    stream: BufReader<Box<dyn Stream>>,
    address: String,
}

impl Server {
    /// Connects; in TLS if a certificate to trust is given. Without, what is `secret` does not
    /// leave this machine.
    pub(super) fn connect(address: &str, ca: Option<&Path>, secret: bool) -> Result<Server, Problem> {
        let cannot = |error: io::Error| {
            format!("cannot connect to {address}: {error}; is sluice serve running there? (--server ADDR)")
        };
        let places: Vec<SocketAddr> = address.to_socket_addrs().map_err(cannot)?.collect();
        let leaves = |place: &&SocketAddr| !place.ip().to_canonical().is_loopback();
        if let Some(place) = places.iter().find(leaves).filter(|_| secret && ca.is_none()) {
            return Err(format!(
                "the password would go to {place} unencrypted, for others to read; speak TLS with --ca FILE, or ask on \
                 the server's own machine"
            ));
        }
        let stream = tcp(&places).map_err(cannot)?;
        let stream: Box<dyn Stream> = match ca {
            None => Box::new(stream),
            Some(ca) => Box::new(tls(stream, address, ca)?),
        };
        Ok(Server { stream: BufReader::new(stream), address: address.to_owned() })
    }

    /// Asks one question.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Problem> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        let sent = self.stream.get_mut().write_all(&bytes).and_then(|()| self.stream.get_mut().flush());
        // A server that turns us away may have said why before it stopped reading.
        let said = reply::read(&mut self.stream).map_err(|error| sent.err().unwrap_or(error));
        match said {
            Ok(Reply::SyntaxError(says)) => {
                let advice = if says.starts_with("NOAUTH") || says.starts_with("WRONGPASS") {
                    " (set SLUICE_PASSWORD, or name a file with --password-file)"
                } else {
                    ""
                };
                Err(printable(says.strip_prefix("ERR ").unwrap_or(&says)) + advice)
            }
            Ok(reply) => Ok(reply),
            Err(error) => {
                let says = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("it did not answer for {} s", STEP_TIMEOUT.as_secs())
                    }
                    _ => error.to_string(),
                };
                Err(format!("cannot ask {}: {says}", self.address))
            }
        }
    }
}

/// The first of these places that can be connected to.
fn tcp(places: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for place in places {
        match TcpStream::connect_timeout(place, STEP_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STEP_TIMEOUT))?;
                stream.set_write_timeout(Some(STEP_TIMEOUT))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn tls(
    stream: TcpStream,
    address: &str,
    ca: &Path,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Problem> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: not a certificate: {error}", ca.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is none in it"));
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|error| format!("--server {address}: {error}"))?;
    let connection = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|config| config.with_root_certificates(roots).with_no_client_auth())
        .and_then(|config| ClientConnection::new(Arc::new(config), name))
        .map_err(|error| format!("cannot speak TLS: {error}"))?;
    Ok(StreamOwned::new(connection, stream))
}
