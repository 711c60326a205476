//! Clients that connect and send nothing, or nothing that counts, and the neighbours they leave
//! alone.

use crate::running::{TEST_TIMEOUT, config, start};
use redis_testkit::until;
use sluicegate_server::auth::Password;
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::{Config, Server};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const RULES: &str = "GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Short enough to wait for.
const SOON: Duration = Duration::from_millis(500);

fn with(connections_max: usize, handshake_timeout: Duration) -> Config {
    let limits = ConnectionLimits { connections_max, handshake_timeout, ..ConnectionLimits::default() };
    Config { limits, ..config() }
}

fn connect(address: SocketAddr) -> TcpStream {
    connect_from(Ipv4Addr::LOCALHOST, address)
}

/// Connects from one of the many addresses of loopback.
fn connect_from(peer: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::V4(peer), 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn send(stream: &mut TcpStream, bytes: &str) {
    // The server may have closed the connection.
    let _ = stream.write_all(bytes.as_bytes());
}

/// All that the server sends until it closes.
fn rest(mut stream: TcpStream) -> String {
    let mut said = String::new();
    // A reset is an end too.
    match stream.read_to_string(&mut said) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server does not close"),
        _ => said,
    }
}

/// The first bytes of a reply; empty if the server has closed.
fn reply(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 12];
    match stream.read(&mut bytes) {
        Ok(read) => String::from_utf8_lossy(&bytes[..read]).into_owned(),
        Err(_) => String::new(),
    }
}

fn asked(stream: &mut TcpStream, request: &str) -> String {
    send(stream, request);
    reply(stream)
}

/// Returns `true` if the server has closed the connection. Discards what it has sent.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let closed = loop {
        match (&*stream).read(&mut [0; 512]) {
            Ok(1..) => {}
            Ok(0) => break true,
            Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    stream.set_nonblocking(false).unwrap();
    closed
}

/// A client that has made a request.
fn established(address: SocketAddr, request: &str) -> TcpStream {
    let mut client = connect(address);
    assert_ne!(asked(&mut client, request), "");
    client
}

fn counted(server: &Server, line: &str) -> u64 {
    let service = server.service();
    let text = service.metrics.render(&service.engine);
    let value = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{line} is not in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_has_handshake_timeout() {
    let server = start(with(100, SOON)).await;
    tokio::task::block_in_place(|| {
        for (protocol, id) in [(Protocol::Resp, "resp"), (Protocol::Http, "http")] {
            let address = server.address(protocol).unwrap();
            let mut known = connect(address);
            let request = if protocol == Protocol::Http { RULES } else { "PING\r\n" };
            assert_ne!(asked(&mut known, request), "");
            let said = rest(connect(address));
            assert!(said.is_empty() || said.contains("the first command did not arrive in time"), "{said}");
            // Nor does a byte now and then help.
            let mut partial = connect(address);
            send(&mut partial, "P");
            rest(partial);
            let line = format!(
                "sluice_unestablished_closed_total{{protocol=\"{id}\",reason=\"handshake_timeout\"}}"
            );
            until("both are counted", || counted(&server, &line) == 2);
            // One that has made a request stays.
            assert!(!is_closed(&known), "{protocol}");
        }
    });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_password_has_handshake_timeout() {
    let password = Some(Password::new(b"open sesame").unwrap());
    let server = start(Config { password, ..with(100, SOON) }).await;
    tokio::task::block_in_place(|| {
        let http = server.address(Protocol::Http).unwrap();
        let mut known = connect(http);
        let authorized = RULES.replace("\r\n\r\n", "\r\nAuthorization: Bearer open sesame\r\n\r\n");
        assert_eq!(asked(&mut known, &authorized), "HTTP/1.1 200");
        for request in [RULES, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            let mut stranger = connect(http);
            send(&mut stranger, request);
            assert!(rest(stranger).starts_with("HTTP/1.1 "), "{request}");
            // Nor if it never stops asking.
            let stranger = connect(http);
            let mut writer = stranger.try_clone().unwrap();
            let writing = std::thread::spawn(move || while writer.write_all(request.as_bytes()).is_ok() {});
            rest(stranger);
            writing.join().unwrap();
        }
        assert!(!is_closed(&known));
    });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_make_room_and_probes_get_through() {
    let server = start(with(20, TEST_TIMEOUT)).await;
    tokio::task::block_in_place(|| {
        for protocol in [Protocol::Resp, Protocol::Http] {
            let address = server.address(protocol).unwrap();
            let request = if protocol == Protocol::Http { RULES } else { "PING\r\n" };
            // From several addresses, so that no address exceeds its share.
            let silent: Vec<TcpStream> =
                (2..22).map(|last| connect_from(Ipv4Addr::new(127, 0, 0, last), address)).collect();
            let established: Vec<TcpStream> = (0..20).map(|_| established(address, request)).collect();
            until("every silent one made room", || silent.iter().all(is_closed));
            let id = protocol.description().id;
            let line = format!("sluice_unestablished_closed_total{{protocol=\"{id}\",reason=\"full\"}}");
            assert_eq!(counted(&server, &line), 20);
            // Those that are established make no room, ...
            let mut newcomer = connect(address);
            let said = asked(&mut newcomer, request);
            assert!(said == "HTTP/1.1 503" || said == "-ERR max num", "{said}");
            assert!(!established.iter().any(is_closed));
        }
        // ... but probes get through, even past silent clients.
        let http = server.address(Protocol::Http).unwrap();
        let _silent: Vec<TcpStream> = (0..100).map(|_| connect(http)).collect();
        for _ in 0..50 {
            assert_eq!(asked(&mut connect(http), HEALTH), "HTTP/1.1 200");
        }
    });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_holds_a_tenth_of_the_unestablished() {
    let server = start(with(200, TEST_TIMEOUT)).await;
    tokio::task::block_in_place(|| {
        for protocol in [Protocol::Resp, Protocol::Http] {
            let address = server.address(protocol).unwrap();
            let request = if protocol == Protocol::Http { RULES } else { "PING\r\n" };
            let neighbour = connect_from(Ipv4Addr::new(127, 0, 0, 2), address);
            // A proxy is one address: clients that have made a request do not count.
            let established: Vec<TcpStream> = (0..60).map(|_| established(address, request)).collect();
            let silent: Vec<TcpStream> = (0..30).map(|_| connect(address)).collect();
            until("ten made room", || silent.iter().filter(|client| is_closed(client)).count() == 10);
            assert!(silent[..10].iter().all(is_closed), "the longest idle ones");
            assert!(!established.iter().any(is_closed) && !is_closed(&neighbour));
        }
    });
    server.stop().await;
}
