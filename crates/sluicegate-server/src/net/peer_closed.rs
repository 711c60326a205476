//! Detects that a peer closed the connection while some of its input is still unread.
//!
//! A read reports the end of input only after all bytes before it, and read-ahead is bounded. The
//! system knows earlier and tells the runtime, which this module asks. A peer that shuts down its
//! sending side counts as closed, as it does when it is read to the end.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// Poll interval while nothing is read: tokio sends no wake-up for read-closed alone.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A connection whose peer may close it.
pub(crate) trait PeerClosed {
    /// Returns `true` if the peer has closed the connection, as far as the runtime knows. Makes no
    /// system call.
    fn is_peer_closed(&self) -> bool;
}

impl PeerClosed for TcpStream {
    fn is_peer_closed(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let readiness = pin!(self.ready(Interest::READABLE)).poll(&mut context);
        matches!(readiness, Poll::Ready(Ok(readiness)) if readiness.is_read_closed())
    }
}

impl PeerClosed for TlsStream<TcpStream> {
    fn is_peer_closed(&self) -> bool {
        self.get_ref().0.is_peer_closed()
    }
}

/// Tests use a pipe, which reports the end only when it is read to the end.
#[cfg(test)]
impl PeerClosed for tokio::io::DuplexStream {
    fn is_peer_closed(&self) -> bool {
        false
    }
}

/// Waits until the peer has closed a connection that nothing is read from.
#[derive(Default)]
pub(crate) struct PeerCloseWatch(Option<Pin<Box<Sleep>>>);

impl PeerCloseWatch {
    /// Ready once the peer has closed the connection. Otherwise the task is woken to poll again.
    pub(crate) fn poll(&mut self, connection: &impl PeerClosed, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if connection.is_peer_closed() {
                return Poll::Ready(());
            }
            let pause = self.0.get_or_insert_with(|| Box::pin(sleep(POLL_INTERVAL)));
            ready!(pause.as_mut().poll(context));
            pause.as_mut().reset(Instant::now() + POLL_INTERVAL);
        }
    }
}
