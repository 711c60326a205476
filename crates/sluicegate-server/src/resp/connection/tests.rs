//! A connection over a pipe, with a client that reads slowly, disconnects, or keeps sending.

use super::buffer::{READ_LEN_MAX, READ_LEN_MIN};
use super::lease_wait::READ_AHEAD_MAX;
use super::*;
use crate::auth::Password;
use crate::connection_limits::ConnectionLimits;
use crate::engine::Target;
use crate::service::testing::{leases, service, with_exports};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::io::AsyncWrite as _;

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const ACME: Target<'_> = Target { rule: "exports", key: b"acme" };

/// Sends a request and reads a byte every 10 ms until the connection is closed. Returns the number
/// of bytes read. `first` runs after the first byte.
async fn taken_slowly(service: &Service, question: &[u8], first: impl FnOnce()) -> usize {
    let (server, mut client) = tokio::io::duplex(16);
    let read = async {
        client.write_all(question).await.unwrap();
        client.read_u8().await.unwrap();
        first();
        let mut taken = 1;
        while taken < 1_000 && client.read_u8().await.is_ok() {
            taken += 1;
            sleep(Duration::from_millis(10)).await;
        }
        drop(client);
        taken
    };
    tokio::join!(read, Connection::new(server, PEER, service).run()).0
}

#[tokio::test(start_paused = true)]
async fn a_byte_now_and_then_does_not_keep_a_connection() {
    let short =
        ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
    let (_stop, of_short) = service(short, None);
    let taken = taken_slowly(&of_short, b"COMMAND\r\n", || {}).await;
    assert!(taken < 100, "{taken} bytes in 6 times 100 ms");
    let short =
        ConnectionLimits { handshake_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
    let (_stop, guarded) = service(short, Password::new(b"sesame").ok());
    let taken = taken_slowly(&guarded, b"HELLO 3\r\n", || {}).await;
    assert!(taken < 50, "{taken} bytes in 100 ms for the password");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_does_not_delay_the_stop() {
    let short =
        ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
    let (stop, service) = service(short, None);
    let taken = taken_slowly(&service, b"COMMAND\r\n", || stop.send(true).unwrap()).await;
    assert!(taken < 50, "{taken} bytes in 100 ms after the stop");
}

#[tokio::test]
async fn input_during_a_stop_does_not_lose_replies() {
    let (stop, service) = service(ConnectionLimits::default(), None);
    let (server, mut client) = tokio::io::duplex(1024);
    let speak = async {
        client.write_all(b"PING\r\n").await.unwrap();
        client.read_u8().await.unwrap();
        stop.send(true).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"PONG\r\n");
        // Input that is never read, or arrives after the close, makes the system reset the
        // connection, and replies in transit are lost.
        client.write_all(b"PING\r\n").await.expect("it is read until the client leaves");
        drop(client);
    };
    tokio::join!(speak, Connection::new(server, PEER, &service).run());
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_lease_is_released() {
    let short =
        ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
    let (_stop, service) = service(short, None);
    with_exports(&service);
    // The reply does not fit into the pipe.
    let (server, mut client) = tokio::io::duplex(16);
    let speak = async {
        for part in b"RL.ACQUIRE exports acme\r\n".chunks(8) {
            client.write_all(part).await.unwrap();
        }
        while leases(&service).0 == 0 {
            tokio::task::yield_now().await;
        }
        drop(client);
    };
    tokio::join!(speak, Connection::new(server, PEER, &service).run());
    assert_eq!(leases(&service), (1, 1, 0, 0));
    // A client that stays connected and reads nothing.
    let (server, mut client) = tokio::io::duplex(32);
    let speak = async {
        client.write_all(b"RL.ACQUIRE exports acme\r\n").await.unwrap();
        client
    };
    let (_client, ()) = tokio::join!(speak, Connection::new(server, PEER, &service).run());
    assert_eq!(leases(&service), (2, 2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_delivered_lease_survives_a_later_send_failure() {
    let short =
        ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
    let (_stop, service) = service(short, None);
    with_exports(&service);
    let (server, mut client) = tokio::io::duplex(256);
    let speak = async {
        // The reply in the middle does not fit into the pipe.
        let pipeline = b"RL.ACQUIRE exports acme\r\nCOMMAND\r\nRL.ACQUIRE exports other\r\n";
        client.write_all(pipeline).await.unwrap();
        let mut first = [0; 128];
        client.read_exact(&mut first).await.unwrap();
        client
    };
    let (_client, ()) = tokio::join!(speak, Connection::new(server, PEER, &service).run());
    assert_eq!(leases(&service), (2, 1, 1, 0));
    let now = service.engine.now();
    assert!(!service.engine.call(ACME, 1).unwrap().peek(now).await.unwrap().allowed(), "acme is at work");
}

#[tokio::test]
async fn a_disconnect_behind_much_input_is_detected() {
    let (_stop, service) = service(ConnectionLimits::default(), None);
    with_exports(&service);
    let (server, mut client) = tokio::io::duplex(1024);
    let mut connection = Connection::new(server, PEER, &service);
    connection.buffer = b"PING\r\n".repeat(READ_LEN_MAX / 6);
    connection.buffer.extend(b"RL.ACQUIRE exports acme\r\nRL.ACQUIRE exports acme MAXWAIT 60000\r\n");
    let leave = async {
        let mut replies = vec![0; 1024];
        while leases(&service).3 == 0 {
            let _ = timeout(Duration::from_millis(1), client.read(&mut replies)).await;
        }
        drop(client);
    };
    let began = Instant::now();
    let ((), next) = tokio::join!(leave, connection.answer_and_flush());
    assert_eq!((next, leases(&service).3), (Flow::Gone, 0));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_waiter_that_keeps_sending_does_not_grow_the_buffer() {
    const WAITS: &[u8] = b"RL.ACQUIRE exports acme MAXWAIT 60000\r\n";
    let (_stop, service) = service(ConnectionLimits::default(), None);
    with_exports(&service);
    let (server, mut client) = tokio::io::duplex(1024);
    let mut connection = Connection::new(server, PEER, &service);
    connection.buffer = [b"RL.ACQUIRE exports acme\r\n", WAITS].concat();
    let sends_on = async {
        for left in (0..100).rev() {
            while leases(&service).3 == 0 {
                tokio::task::yield_now().await;
            }
            if left > 0 {
                client.write_all(WAITS).await.unwrap();
            }
            // Its lease is granted.
            service.engine.call(ACME, 0).unwrap().reset().await.unwrap();
            assert!(client.read(&mut [0; 1024]).await.unwrap() > 0, "it has its lease");
        }
    };
    let ((), next) = tokio::join!(sends_on, connection.answer_and_flush());
    assert_eq!(next, Flow::Continue);
    assert!(connection.buffer.len() <= 2 * WAITS.len(), "{} bytes are held", connection.buffer.len());
}

#[tokio::test]
async fn read_ahead_during_a_wait_is_bounded() {
    let (_stop, service) = service(ConnectionLimits::default(), None);
    with_exports(&service);
    let (server, mut client) = tokio::io::duplex(1024);
    let mut connection = Connection::new(server, PEER, &service);
    client.write_all(b"RL.ACQUIRE exports acme\r\nRL.ACQUIRE exports acme MAXWAIT 60000\r\n").await.unwrap();
    let flood = async {
        let mut sent = 0;
        while leases(&service).3 == 0 {
            tokio::task::yield_now().await;
        }
        // Nothing else runs on this thread: a connection that was polled this often and reads no
        // more has read enough.
        let mut refused = 0;
        while refused < 100 {
            let written =
                poll_fn(|context| Poll::Ready(Pin::new(&mut client).poll_write(context, &[b'x'; 512])));
            match written.await {
                Poll::Ready(some) => (sent, refused) = (sent + some.unwrap(), 0),
                Poll::Pending => refused += 1,
            }
            tokio::task::yield_now().await;
        }
        // Its lease is granted.
        service.engine.call(ACME, 0).unwrap().reset().await.unwrap();
        sent
    };
    let answer = async {
        connection.make_room();
        connection.stream.read_buf(&mut connection.buffer).await.unwrap();
        let next = connection.answer_and_flush().await;
        (next, connection.buffer.len())
    };
    let (sent, (next, held)) = tokio::join!(flood, answer);
    assert_eq!(next, Flow::Continue);
    assert!(sent >= READ_AHEAD_MAX / 2 && held <= READ_AHEAD_MAX, "{sent} sent, {held} held");
}

#[tokio::test]
async fn a_silent_client_holds_little_memory() {
    let (_stop, service) = service(ConnectionLimits::default(), None);
    let (server, mut client) = tokio::io::duplex(1 << 20);
    let mut connection = Connection::new(server, PEER, &service);
    client.write_all(&b"PING\r\n".repeat(20_000)).await.unwrap();
    let (mut taken, mut most) = (0, 0);
    while taken < 120_000 {
        connection.make_room();
        taken += connection.stream.read_buf(&mut connection.buffer).await.unwrap();
        assert_eq!(connection.answer_and_flush().await, Flow::Continue);
        most = most.max(connection.buffer.capacity());
    }
    assert!(most > 8 * READ_LEN_MIN, "a busy client is read in large pieces, not of {most}");
    assert_eq!(connection.deadline(), (connection.active + QUIET, Timeout::Quiet));
    connection.shrink();
    assert!(!connection.holds_much());
    assert!(
        connection.buffer.capacity() + connection.replies.held() + connection.parser.held() <= READ_LEN_MIN
    );
    assert_eq!(connection.deadline(), (connection.active + Duration::from_secs(300), Timeout::Idle));
}
