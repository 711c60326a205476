//! Listening: clients are accepted until the server stops, whatever they or the system do.
//!
//! The loop only accepts. A handshake and everything after it is a task of its own, so that a slow
//! client delays no other; and no error of the system ends the loop, as it may be over in a moment.

use super::tls::Tls;
use crate::log::Seldom;
use crate::metrics::Metrics;
use crate::protocol::{ConnectionHandler, Protocol};
use crate::service::Service;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

/// How many clients the system may hold until they are accepted; it may itself hold fewer
/// (`somaxconn`).
const BACKLOG: u32 = 4096;
/// A client that has sent nothing for this long is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Between two probes. A client that leaves several unanswered is taken for gone.
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(30);
/// First wait after the system had no room for another client, ...
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
/// ... which doubles each time up to this.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

static TURNED_AWAY: Seldom = Seldom::new();

/// A socket on which clients of one protocol arrive.
pub(crate) struct Listener {
    socket: TcpListener,
    pub(crate) protocol: Protocol,
    /// Where it is bound.
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
            // A server that was just stopped leaves the port waiting for old packets; ours may
            // begin at once.
            #[cfg(unix)]
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = bind().map_err(|error: io::Error| {
            let flag = protocol.description().flag;
            let says =
                format!("cannot listen for {protocol} on {address}: {error}; choose another with {flag}");
            io::Error::new(error.kind(), says)
        })?;
        Ok(Listener { socket, protocol, address, tls })
    }

    /// Accepts clients until the server stops, and returns when all of them are gone.
    pub(crate) async fn run<H: ConnectionHandler>(self, service: Service) {
        let mut acceptor = Acceptor {
            protocol: self.protocol,
            tls: self.tls,
            permits: Arc::new(Semaphore::new(service.limits.connections_max.min(Semaphore::MAX_PERMITS))),
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
                        acceptor.accept::<H>(stream, peer);
                    }
                    // The client was gone before it was accepted. The next may be there.
                    Err(error) if is_the_clients(&error) => {}
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
        backlog(self.socket).for_each(|(stream, peer)| acceptor.accept::<H>(stream, peer));
        while acceptor.connections.join_next().await.is_some() {}
    }
}

/// The clients that the system holds when the server stops: they have connected, and may have sent
/// commands.
fn backlog(socket: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    // The runtime may not have heard of them yet; the system has, and does not wait for more.
    let accept = |socket: &std::net::TcpListener| {
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let socket = socket.into_std().ok();
    (0..BACKLOG).map_while(move |_| accept(socket.as_ref()?).ok())
}

/// Starts a task for each client, up to `connections_max`.
struct Acceptor {
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    permits: Arc<Semaphore>,
    connections: JoinSet<()>,
    service: Service,
}

impl Acceptor {
    fn accept<H: ConnectionHandler>(&mut self, stream: TcpStream, peer: SocketAddr) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.service.metrics.refused(self.protocol);
            if let Some(unsaid) = TURNED_AWAY.say() {
                let protocol = self.protocol;
                warn!(%peer, unsaid, "a client of {protocol} was turned away, as connections_max are connected; raise it, or find who connects so often");
            }
            if self.tls.is_none() {
                turn_away(stream, H::DESCRIPTION.too_many_clients);
            }
            return;
        };
        // Answers are small and whole: waiting to send more of them together only makes them late.
        let _ = stream.set_nodelay(true);
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_AGAIN);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        let guard = ConnectionGuard::new(Arc::clone(&self.service.metrics), self.protocol, permit);
        let service = self.service.clone();
        // Different tasks with and without TLS, as a task is as large as the largest of what it may
        // have to do.
        match self.tls.clone() {
            None => self.connections.spawn(guard.hold_during(H::serve(stream, peer, service))),
            Some(tls) => {
                let protocol = self.protocol;
                self.connections.spawn(guard.hold_during(async move {
                    if let Some(stream) = handshake(&tls, stream, peer, &service, protocol).await {
                        H::serve(stream, peer, service).await;
                    }
                }))
            }
        };
    }
}

/// Counts a client as connected and holds its permit until it is gone, even by a panic.
struct ConnectionGuard {
    metrics: Arc<Metrics>,
    protocol: Protocol,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionGuard {
    fn new(metrics: Arc<Metrics>, protocol: Protocol, permit: OwnedSemaphorePermit) -> ConnectionGuard {
        metrics.connected(protocol);
        ConnectionGuard { metrics, protocol, _permit: permit }
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

/// The encrypted stream; `None` if the handshake failed or took too long, or the server stops.
async fn handshake(
    tls: &Tls,
    stream: TcpStream,
    peer: SocketAddr,
    service: &Service,
    protocol: Protocol,
) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        shaken = timeout(service.limits.handshake_timeout, tls.accept(protocol, stream)) => shaken,
        // The client cannot have sent a command yet.
        () = service.stopped() => return None,
    };
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => debug!(%peer, "the TLS handshake failed: {error}"),
        Err(_) => debug!(%peer, "the TLS handshake took too long"),
    }
    service.metrics.protocol_error(protocol);
    None
}

/// Sends the last words, if that is possible at once, and closes.
fn turn_away(stream: TcpStream, last_words: &[u8]) {
    if last_words.is_empty() {
        return;
    }
    // A fresh stream of the runtime does not know yet that it can be written to; the system's does.
    let Ok(mut stream) = stream.into_std() else { return };
    let _ = stream.write_all(last_words);
    // Closing with unread input would make the system discard what was just sent.
    let _ = stream.read(&mut [0; 4096]);
}

/// Whether an error of accepting concerns this client only.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}

/// How long to wait while the system accepts no clients, and when to log that.
#[derive(Default)]
struct BackOff {
    wait: Duration,
    logged: Seldom,
}

impl BackOff {
    fn reset(&mut self) {
        self.wait = Duration::ZERO;
    }

    fn wait(&mut self, protocol: Protocol, error: &io::Error) -> Duration {
        if let Some(unsaid) = self.logged.say() {
            warn!(
                unsaid,
                "cannot accept clients for {protocol}: {error}; trying on (raise `ulimit -n` if files are too few)"
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
    fn a_lasting_trouble_is_waited_for_longer_but_never_long() {
        let (mut back_off, error) = (BackOff::default(), io::Error::other("too many open files"));
        let waits: Vec<u128> = (0..9).map(|_| back_off.wait(Protocol::Resp, &error).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        back_off.reset();
        assert_eq!(back_off.wait(Protocol::Resp, &error), BACK_OFF_MIN);
    }
}
