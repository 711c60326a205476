//! TLS for both protocols: handshakes that work, stall and fail, and renewed certificates.

use crate::config::Folder;
use crate::running::{TEST_TIMEOUT, config, start};
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::net::tls::{CertFiles, Tls};
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::Config;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A certificate in files, and its root for clients.
struct Made {
    files: CertFiles,
    trusted: CertificateDer<'static>,
}

fn made(folder: &Folder, name: &str) -> Made {
    let certified = rcgen::generate_simple_self_signed([String::from("localhost")]).unwrap();
    let cert = folder.write(&format!("{name}.pem"), &certified.cert.pem());
    let key = folder.write(&format!("{name}-key.pem"), &certified.signing_key.serialize_pem());
    let files = CertFiles { cert: cert.into(), key: key.into() };
    Made { files, trusted: certified.cert.der().clone() }
}

fn with(tls: &Arc<Tls>) -> Config {
    Config { tls: Some(Arc::clone(tls)), ..config() }
}

async fn connect(address: SocketAddr, trusted: &CertificateDer<'static>) -> io::Result<TlsStream<TcpStream>> {
    connect_for(address, trusted, &[]).await
}

/// Connects as a client that offers these protocols (ALPN).
async fn connect_for(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[&str],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn ping(address: SocketAddr, trusted: &CertificateDer<'static>) -> io::Result<String> {
    let mut stream = connect(address, trusted).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[tokio::test]
async fn resp_and_http_work_over_tls() {
    let folder = Folder::new("tls-both");
    let made = made(&folder, "one");
    let server = start(with(&Arc::new(Tls::new(made.files.read().unwrap())))).await;
    assert_eq!(ping(server.address(Protocol::Resp).unwrap(), &made.trusted).await.unwrap(), "+PONG\r\n");
    let mut http = connect(server.address(Protocol::Http).unwrap(), &made.trusted).await.unwrap();
    http.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    http.read_to_end(&mut said).await.unwrap();
    assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
    server.stop().await;
}

#[tokio::test]
async fn alpn_names_the_protocol() {
    let folder = Folder::new("tls-alpn");
    let made = made(&folder, "one");
    let server = start(with(&Arc::new(Tls::new(made.files.read().unwrap())))).await;
    let agreed = async |protocol, alpn: &[&str]| {
        let stream = connect_for(server.address(protocol).unwrap(), &made.trusted, alpn).await?;
        Ok::<_, io::Error>(stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(agreed(Protocol::Http, &["h2", "http/1.1"]).await.unwrap().unwrap(), b"http/1.1");
    assert!(agreed(Protocol::Http, &["h2"]).await.is_err(), "HTTP/2 is not spoken");
    assert_eq!(agreed(Protocol::Http, &[]).await.unwrap(), None);
    assert_eq!(agreed(Protocol::Resp, &["resp"]).await.unwrap(), None);
    server.stop().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_for_new_connections() {
    let folder = Folder::new("tls-renew");
    let (old, new) = (made(&folder, "old"), made(&folder, "new"));
    let tls = Arc::new(Tls::new(old.files.read().unwrap()));
    let server = start(with(&tls)).await;
    let address = server.address(Protocol::Resp).unwrap();
    let mut before = connect(address, &old.trusted).await.unwrap();
    tls.replace(new.files.read().unwrap());
    assert_eq!(ping(address, &new.trusted).await.unwrap(), "+PONG\r\n");
    assert!(ping(address, &old.trusted).await.is_err(), "the old certificate is still shown");
    before.write_all(b"PING\r\n").await.unwrap();
    let mut reply = [0; 7];
    before.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    drop(before);
    server.stop().await;
}

#[tokio::test]
async fn garbage_instead_of_a_handshake_affects_no_one_else() {
    let folder = Folder::new("tls-garbage");
    let made = made(&folder, "one");
    let server = start(with(&Arc::new(Tls::new(made.files.read().unwrap())))).await;
    for address in [server.address(Protocol::Resp).unwrap(), server.address(Protocol::Http).unwrap()] {
        for garbage in
            [&b"PING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 600], &[0x16, 3, 1, 0xff, 0xff], b""]
        {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(garbage).await.unwrap();
            stream.shutdown().await.unwrap();
            // The server closes the connection, perhaps after a TLS alert.
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            assert!(!said.starts_with(b"+") && !said.starts_with(b"HTTP"), "answered in the clear: {said:?}");
        }
    }
    assert_eq!(ping(server.address(Protocol::Resp).unwrap(), &made.trusted).await.unwrap(), "+PONG\r\n");
    server.stop().await;
}

#[tokio::test]
async fn a_stalled_handshake_times_out_and_blocks_no_one() {
    let folder = Folder::new("tls-slow");
    let made = made(&folder, "one");
    let limits =
        ConnectionLimits { handshake_timeout: Duration::from_secs(2), ..ConnectionLimits::default() };
    let server = start(Config { limits, ..with(&Arc::new(Tls::new(made.files.read().unwrap()))) }).await;
    let address = server.address(Protocol::Resp).unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(ping(address, &made.trusted).await.unwrap(), "+PONG\r\n");
    // The read returns: the server has closed the connection.
    let mut said = Vec::new();
    let _ = tokio::time::timeout(TEST_TIMEOUT, silent.read_to_end(&mut said)).await.unwrap();
    assert_eq!(said, b"");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_handshake() {
    let folder = Folder::new("tls-stop");
    let made = made(&folder, "one");
    let limits =
        ConnectionLimits { handshake_timeout: Duration::from_secs(3600), ..ConnectionLimits::default() };
    let server = start(Config { limits, ..with(&Arc::new(Tls::new(made.files.read().unwrap()))) }).await;
    let address = server.address(Protocol::Resp).unwrap();
    let _silent = TcpStream::connect(address).await.unwrap();
    // The silent client was accepted before this one, which was answered.
    assert_eq!(ping(address, &made.trusted).await.unwrap(), "+PONG\r\n");
    tokio::time::timeout(TEST_TIMEOUT, server.stop()).await.unwrap();
}

#[test]
fn an_invalid_certificate_file_is_named() {
    let folder = Folder::new("tls-files");
    let (one, other) = (made(&folder, "one").files, made(&folder, "other").files);
    let text = folder.write("text.pem", "no certificate\n");
    let read = |cert: &std::path::Path, key: &std::path::Path| {
        CertFiles { cert: cert.into(), key: key.into() }.read().map(|_| ()).unwrap_err()
    };
    let (text, missing) = (std::path::Path::new(&text), std::path::Path::new("no/such.pem"));
    for (said, begins) in [
        (read(missing, &one.key), "no/such.pem: cannot read the certificate: ".to_owned()),
        (read(&one.cert, missing), "no/such.pem: cannot read the private key: ".to_owned()),
        (read(text, &one.key), format!("{}: the file holds no certificate; ", text.display())),
        (read(&one.cert, text), format!("{}: cannot read the private key: ", text.display())),
        (read(&one.cert, &one.cert), format!("{}: cannot read the private key: ", one.cert.display())),
        (read(&one.cert, &other.key), format!("{} and {}: ", one.cert.display(), other.key.display())),
    ] {
        assert!(said.starts_with(&begins) && !said.contains('\n'), "{said}");
    }
}
