//! Accepts clients until the server stops.
//!
//! The loop only accepts. The TLS handshake and everything after it runs in a task of its own, so
//! that a slow client delays no other. No system error ends the loop, as it may be transient.

use super::connection_table::{Client, ClosedFor, ConnectionTable};
use super::tls::Tls;
use crate::log::LogThrottle;
use crate::metrics::Metrics;
use crate::protocol::{ConnectionHandler, Protocol};
use crate::service::Service;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout_at};
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};

/// The most connections waiting to be accepted. The system may allow fewer (`somaxconn`).
const BACKLOG: u32 = 4096;
/// A client that is silent for this long is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// The time between two probes. A client that leaves several unanswered is gone.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// The first wait after a failed accept, ...
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
/// ... which doubles each time up to this.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

static REJECTED_CLIENTS: LogThrottle = LogThrottle::new();
static CLOSED_UNESTABLISHED: LogThrottle = LogThrottle::new();

/// A socket that accepts clients of one protocol.
pub(crate) struct Listener {
    socket: TcpListener,
    pub(crate) protocol: Protocol,
    /// The bound address.
    pub(crate) address: SocketAddr,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Binds an address.
    pub(crate) fn bind(
        protocol: Protocol,
        address: SocketAddr,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<Listener> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // A restarted server can bind its port while old connections are in TIME_WAIT.
            #[cfg(unix)]
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = bind().map_err(|error: io::Error| {
            let flag = protocol.description().flag;
            let message = format!(
                "cannot listen for {protocol} on {address}: {error}; choose another address with {flag}"
            );
            io::Error::new(error.kind(), message)
        })?;
        Ok(Listener { socket, protocol, address, tls })
    }

    /// Accepts clients until the server stops. Returns when all of them are gone.
    pub(crate) async fn run<H: ConnectionHandler>(self, service: Service) {
        let mut acceptor = Acceptor {
            protocol: self.protocol,
            tls: self.tls,
            table: ConnectionTable::new(service.limits.connections_max, H::DESCRIPTION.has_probes),
            connections: JoinSet::new(),
            service,
        };
        let service = acceptor.service.clone();
        let mut stopped = pin!(service.stopped());
        let mut back_off = BackOff::default();
        loop {
            tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        back_off.reset();
                        if acceptor.accept::<H>(stream, peer) {
                            // The connection that made room closes before the next is accepted, so
                            // that a flood does not exceed the limit on open files.
                            yield_now().await;
                        }
                    }
                    // The client was gone before it was accepted.
                    Err(error) if concerns_one_client(&error) => {}
                    Err(error) => {
                        let wait = back_off.wait(self.protocol, &error);
                        tokio::select! {
                            () = sleep(wait) => {}
                            () = stopped.as_mut() => break,
                        }
                    }
                },
                Some(_) = acceptor.connections.join_next() => {}
                () = stopped.as_mut() => break,
            }
        }
        for (stream, peer) in backlog(self.socket) {
            acceptor.accept::<H>(stream, peer);
        }
        while acceptor.connections.join_next().await.is_some() {}
    }
}

/// The connections in the backlog when the server stops: their clients may have sent commands.
fn backlog(socket: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    // The runtime may not know of them yet. The system does, and a nonblocking accept does not wait
    // for more.
    let accept = |socket: &std::net::TcpListener| {
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let socket = socket.into_std().ok();
    (0..BACKLOG).map_while(move |_| accept(socket.as_ref()?).ok())
}

/// Starts a task for each client that the table admits.
struct Acceptor {
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    table: Arc<ConnectionTable>,
    connections: JoinSet<()>,
    service: Service,
}

impl Acceptor {
    /// Starts a task for a client, or rejects it. Returns `true` if another connection made room.
    fn accept<H: ConnectionHandler>(&mut self, stream: TcpStream, peer: SocketAddr) -> bool {
        let Some((client, made_room)) = self.table.admit(peer) else {
            self.service.metrics.rejected(self.protocol);
            if let Some(suppressed) = REJECTED_CLIENTS.allow() {
                let (protocol, most) = (self.protocol, self.service.limits.connections_max);
                warn!(%peer, suppressed, "rejected a {protocol} client: connections_max ({most}) is reached; raise it, or find the client that opens too many connections");
            }
            if self.tls.is_none() {
                reject(stream, H::DESCRIPTION.too_many_clients);
            }
            return false;
        };
        for (peer, reason) in &made_room {
            closed_unestablished(&self.service, self.protocol, peer.ip(), *reason);
        }
        // Replies are small and complete: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_INTERVAL);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        let guard = ConnectionGuard::new(Arc::clone(&self.service.metrics), self.protocol);
        let service = self.service.clone();
        let connected = client.clone();
        // Separate tasks with and without TLS: a task is as large as its largest state.
        let task = match self.tls.clone() {
            None => self.connections.spawn(guard.hold_during(H::serve(stream, client, service))),
            Some(tls) => {
                let protocol = self.protocol;
                self.connections.spawn(guard.hold_during(async move {
                    if let Some(stream) = handshake(&tls, stream, &client, &service, protocol).await {
                        H::serve(stream, client, service).await;
                    }
                }))
            }
        };
        connected.set_task(task);
        !made_room.is_empty()
    }
}

/// Counts and logs that an unestablished connection was closed.
pub(crate) fn closed_unestablished(service: &Service, protocol: Protocol, peer: IpAddr, reason: ClosedFor) {
    service.metrics.closed_unestablished(protocol, reason);
    if let Some(suppressed) = CLOSED_UNESTABLISHED.allow() {
        let why = match reason {
            ClosedFor::HandshakeTimeout => {
                "it did not send a request, with the password, in handshake_timeout"
            }
            ClosedFor::PeerShare => "its address has more than a tenth of connections_max without a request",
            ClosedFor::Full => "connections_max is reached, and it had sent no request",
        };
        info!(%peer, suppressed, "closed a {protocol} connection: {why}");
    }
}

/// Counts a connection until it ends, even by a panic.
struct ConnectionGuard {
    metrics: Arc<Metrics>,
    protocol: Protocol,
}

impl ConnectionGuard {
    fn new(metrics: Arc<Metrics>, protocol: Protocol) -> ConnectionGuard {
        metrics.connected(protocol);
        ConnectionGuard { metrics, protocol }
    }

    async fn hold_during(self, connection: impl Future<Output = ()>) {
        connection.await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.metrics.disconnected(self.protocol);
    }
}

/// Performs the TLS handshake. Returns `None` if it fails or times out, or the server stops.
async fn handshake(
    tls: &Tls,
    stream: TcpStream,
    client: &Client,
    service: &Service,
    protocol: Protocol,
) -> Option<TlsStream<TcpStream>> {
    let peer = client.address;
    let deadline = client.accepted + service.limits.handshake_timeout;
    let handshake = tokio::select! {
        handshake = timeout_at(deadline, tls.accept(protocol, stream)) => handshake,
        // Before the handshake the client cannot have sent a command.
        () = service.stopped() => return None,
    };
    match handshake {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => debug!(%peer, "TLS handshake failed: {error}"),
        Err(_) => {
            debug!(%peer, "TLS handshake timed out");
            closed_unestablished(service, protocol, peer.ip(), ClosedFor::HandshakeTimeout);
        }
    }
    service.metrics.protocol_error(protocol);
    None
}

/// Sends a final message, if the system takes it at once, and closes.
fn reject(stream: TcpStream, message: &[u8]) {
    if message.is_empty() {
        return;
    }
    // The runtime does not know yet that a fresh stream is writable. The system does.
    let Ok(mut stream) = stream.into_std() else { return };
    let _ = stream.write_all(message);
    // Closing a socket with unread input would discard the message.
    let _ = stream.read(&mut [0; 4096]);
}

/// Returns `true` if a failed accept concerns a single client only.
fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}

/// The wait after a failed accept.
#[derive(Default)]
struct BackOff {
    wait: Duration,
    logged: LogThrottle,
}

impl BackOff {
    fn reset(&mut self) {
        self.wait = Duration::ZERO;
    }

    fn wait(&mut self, protocol: Protocol, error: &io::Error) -> Duration {
        if let Some(suppressed) = self.logged.allow() {
            warn!(
                suppressed,
                "cannot accept {protocol} clients: {error}; retrying (raise `ulimit -n` if there are too many open files)"
            );
        }
        self.wait = (self.wait * 2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_half_a_second() {
        let (mut back_off, error) = (BackOff::default(), io::Error::other("too many open files"));
        let waits: Vec<u128> = (0..9).map(|_| back_off.wait(Protocol::Resp, &error).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        back_off.reset();
        assert_eq!(back_off.wait(Protocol::Resp, &error), BACK_OFF_MIN);
    }
}
