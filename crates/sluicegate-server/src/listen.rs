//! Listening: clients are accepted until the server stops, whatever they or the system do.
//!
//! The loop only accepts. A handshake and everything after it is a task of its own, so that one slow client keeps nobody
//! waiting; and no error of the system ends the loop, as it may be gone in a moment.

use crate::log::Seldom;
use crate::metrics::{Metrics, Protocol};
use crate::service::Service;
use crate::tls::Tls;
use crate::{http, resp};
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
use tracing::{debug, warn};

/// How many clients the system may hold for us until we accept them; it may itself hold fewer (`somaxconn`).
const BACKLOG: u32 = 4096;
/// A client that has sent nothing for so long is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// How long it may leave that unanswered until it is asked again. After some times it is taken for gone.
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(30);
/// When the system has no room for another client, it is tried again so soon ...
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
/// ... and then half as often each time, but at least this often.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

static REFUSED: Seldom = Seldom::new();

/// Where clients of one protocol arrive.
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    protocol: Protocol,
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
            // A server that was just stopped leaves the port waiting for old packets; ours may begin at once.
            #[cfg(unix)]
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = bind().map_err(|error: io::Error| {
            let (name, flag) = (protocol.name(), protocol.as_str());
            let says =
                format!("cannot listen for {name} on {address}: {error}; choose another with --{flag}");
            io::Error::new(error.kind(), says)
        })?;
        Ok(Listener { socket, address, protocol, tls })
    }

    /// Where it is bound.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts clients until the server stops, and returns when all of them are gone.
    pub(crate) async fn run(self, service: Service) {
        let mut door = Door {
            protocol: self.protocol,
            tls: self.tls,
            places: Arc::new(Semaphore::new(service.limits.connections_max.min(Semaphore::MAX_PERMITS))),
            connections: JoinSet::new(),
            service,
        };
        let service = door.service.clone();
        let mut stopped = pin!(service.stopped());
        let mut trouble = Trouble::default();
        loop {
            tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        trouble.is_over();
                        door.enter(stream, peer);
                    }
                    // The client was gone before it was accepted. The next may be there.
                    Err(error) if is_the_clients(&error) => {}
                    Err(error) => {
                        let wait = trouble.wait(self.protocol, &error);
                        tokio::select! {
                            () = sleep(wait) => {}
                            () = stopped.as_mut() => break,
                        }
                    }
                },
                Some(_) = door.connections.join_next() => {}
                () = stopped.as_mut() => break,
            }
        }
        waiting(self.socket).for_each(|(stream, peer)| door.enter(stream, peer));
        while door.connections.join_next().await.is_some() {}
    }
}

/// Whoever the system has accepted for us when we stop listening: they have arrived, and may have asked.
fn waiting(socket: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    // The runtime may not have heard of them yet; the system has, and does not wait for more.
    let accept = |socket: &std::net::TcpListener| {
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let socket = socket.into_std().ok();
    (0..BACKLOG).map_while(move |_| accept(socket.as_ref()?).ok())
}

/// Lets clients in, up to a number.
struct Door {
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    connections: JoinSet<()>,
    service: Service,
}

impl Door {
    fn enter(&mut self, stream: TcpStream, peer: SocketAddr) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.service.metrics.refused(self.protocol);
            if let Some(unsaid) = REFUSED.say() {
                let name = self.protocol.name();
                warn!(%peer, unsaid, "a client of {name} was turned away, as connections_max are connected; raise it, or find who connects so often");
            }
            if self.protocol == Protocol::Resp && self.tls.is_none() {
                turn_away(stream);
            }
            return;
        };
        // Answers are small and whole: waiting to send more of them together only makes them late.
        let _ = stream.set_nodelay(true);
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_AGAIN);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        let here = Here::new(Arc::clone(&self.service.metrics), self.protocol, place);
        let (service, tls) = (self.service.clone(), self.tls.clone());
        // A task of its own kind for each, as a task is as large as the largest of what it may have to do.
        match (tls, self.protocol) {
            (None, Protocol::Resp) => self.connections.spawn(here.until(resp::serve(stream, peer, service))),
            (None, Protocol::Http) => self.connections.spawn(here.until(http::serve(stream, service))),
            (Some(tls), protocol) => self.connections.spawn(here.until(async move {
                if let Some(stream) = handshake(&tls, stream, peer, &service, protocol).await {
                    match protocol {
                        Protocol::Resp => resp::serve(stream, peer, service).await,
                        Protocol::Http => http::serve(stream, service).await,
                    }
                }
            })),
        };
    }
}

/// A client that is connected: it is counted, and holds a place until it is gone, even by a panic.
struct Here {
    metrics: Arc<Metrics>,
    protocol: Protocol,
    _place: OwnedSemaphorePermit,
}

impl Here {
    /// Stays until that is over.
    async fn until(self, over: impl Future<Output = ()>) {
        over.await;
    }

    fn new(metrics: Arc<Metrics>, protocol: Protocol, place: OwnedSemaphorePermit) -> Here {
        metrics.connected(protocol);
        Here { metrics, protocol, _place: place }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.metrics.disconnected(self.protocol);
    }
}

/// The encrypted stream; `None` if the client did not come so far in time.
async fn handshake(
    tls: &Tls,
    stream: TcpStream,
    peer: SocketAddr,
    service: &Service,
    protocol: Protocol,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        shaken = timeout(service.limits.handshake_timeout, tls.accept(stream)) => shaken,
        // It has asked nothing yet.
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

/// Says that there are too many, if that can be said at once, and closes.
fn turn_away(stream: TcpStream) {
    // A fresh stream of the runtime does not know yet that it can be written to; the system's does.
    let Ok(mut stream) = stream.into_std() else { return };
    let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
    // What was sent to us and not read would make the system take back our words.
    let _ = stream.read(&mut [0; 4096]);
}

/// Whether it is over with this client only.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}

/// The system does not give us clients: how long to wait, and when to tell.
#[derive(Default)]
struct Trouble {
    wait: Duration,
    told: Seldom,
}

impl Trouble {
    fn is_over(&mut self) {
        self.wait = Duration::ZERO;
    }

    fn wait(&mut self, protocol: Protocol, error: &io::Error) -> Duration {
        if let Some(unsaid) = self.told.say() {
            let name = protocol.name();
            warn!(
                unsaid,
                "cannot accept clients for {name}: {error}; trying on (raise `ulimit -n` if files are too few)"
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
        let (mut trouble, error) = (Trouble::default(), io::Error::other("too many open files"));
        let waits: Vec<u128> = (0..9).map(|_| trouble.wait(Protocol::Resp, &error).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        trouble.is_over();
        assert_eq!(trouble.wait(Protocol::Resp, &error), BACK_OFF_MIN);
    }
}
