//! Listening: `connections_max`, and what happens to clients when the server stops.

use crate::running::{TEST_TIMEOUT, config, start};
use redis_testkit::until;
use sluicegate::clock::SystemClock;
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::{Config, Server};
use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::Poll;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn ping(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut said = String::new();
    // A reset after the reply is an end too.
    let _ = stream.read_to_string(&mut said);
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_connections_max_clients_are_rejected() {
    let limits = ConnectionLimits { connections_max: 2, ..ConnectionLimits::default() };
    let server = start(Config { limits, ..config() }).await;
    let address = server.address(Protocol::Resp).unwrap();
    let in_threads = tokio::task::spawn_blocking(move || {
        let (mut first, mut second) = (connect(address), connect(address));
        assert_eq!(ping(&mut first).unwrap(), "+PONG\r\n");
        assert_eq!(ping(&mut second).unwrap(), "+PONG\r\n");
        for _ in 0..3 {
            assert_eq!(read_to_end(connect(address)), "-ERR max number of clients reached\r\n");
        }
        // Open connections stay.
        assert_eq!(ping(&mut first).unwrap(), "+PONG\r\n");
        drop(first);
        // The server notices a disconnect a little later.
        until("there is a place again", || ping(&mut connect(address)).is_ok());
        assert_eq!(ping(&mut second).unwrap(), "+PONG\r\n");
    });
    in_threads.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_max_is_per_protocol() {
    let limits = ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() };
    let server = start(Config { limits, ..config() }).await;
    let (resp, http) = (server.address(Protocol::Resp).unwrap(), server.address(Protocol::Http).unwrap());
    let in_threads = tokio::task::spawn_blocking(move || {
        let mut known = connect(http);
        known.write_all(b"GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        known.read_exact(&mut [0; 12]).unwrap();
        assert_eq!(ping(&mut connect(resp)).unwrap(), "+PONG\r\n");
        // A second HTTP client may only probe.
        let mut second = connect(http);
        second.write_all(b"GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let said = read_to_end(second);
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("connections_max"), "{said}");
    });
    in_threads.await.unwrap();
    server.stop().await;
}

/// On one thread nothing accepts between the client's bytes and the stop: they are in the backlog.
#[tokio::test]
async fn the_backlog_is_answered_when_the_server_stops() {
    let (mut clients, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let server = start(config()).await;
        let mut client = connect(server.address(Protocol::Resp).unwrap());
        client.write_all(b"PING\r\nPING\r\n").unwrap();
        clients.push(client);
        stops.push(Box::pin(server.stop()));
    }
    // All are notified before any of them continues.
    poll_fn(|context| {
        stops.retain_mut(|stop| stop.as_mut().poll(context).is_pending());
        if stops.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    for client in clients {
        assert_eq!(read_to_end(client), "+PONG\r\n+PONG\r\n");
    }
}

#[tokio::test]
async fn after_a_stop_the_port_is_free() {
    // Another process may take the freed port first, though not every time.
    for _ in 0..10 {
        let server = start(config()).await;
        let [resp, http] = Protocol::ALL.map(|protocol| server.address(protocol).unwrap());
        server.stop().await;
        let port_is_closed = TcpStream::connect(resp).is_err();
        let config = Config { listen: vec![(Protocol::Resp, resp), (Protocol::Http, http)], ..config() };
        if let Ok(again) = Server::start(config, Arc::new(SystemClock)).await {
            assert!(port_is_closed);
            assert_eq!(Protocol::ALL.map(|protocol| again.address(protocol)), [Some(resp), Some(http)]);
            return again.stop().await;
        }
    }
    panic!("the port cannot be bound again");
}

#[tokio::test]
async fn an_address_in_use_is_reported_with_its_flag() {
    let server = start(config()).await;
    let taken = server.address(Protocol::Http).unwrap();
    let config = Config { listen: vec![(Protocol::Http, taken)], ..config() };
    let error = Server::start(config, Arc::new(SystemClock)).await.map(|_| ()).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot listen for HTTP on {taken}: Address already in use")),
        "{error}"
    );
    assert!(error.ends_with("; choose another address with --http"), "{error}");
    server.stop().await;
}
