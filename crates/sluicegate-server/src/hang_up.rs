//! Whether a client has left of which not everything is read that it has sent.
//!
//! Reading tells that a client has left only when all is read that it sent before, and not everything is: what waits for its turn is
//! bounded. The system knows it sooner, and tells the runtime, which is asked here. A client that closes the side on which it
//! sends has left, as it has for whoever reads to the end.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// So often is it looked whether a client has left that nobody reads from: the runtime wakes nobody for that alone.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The connection to a client, which can be closed at the other end.
pub(crate) trait HangUp {
    /// Whether the client has left. This is a look at what the runtime knows, and asks the system nothing.
    fn is_hung_up(&self) -> bool;
}

impl HangUp for TcpStream {
    fn is_hung_up(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let known = pin!(self.ready(Interest::READABLE)).poll(&mut context);
        matches!(known, Poll::Ready(Ok(known)) if known.is_read_closed())
    }
}

impl HangUp for TlsStream<TcpStream> {
    fn is_hung_up(&self) -> bool {
        self.get_ref().0.is_hung_up()
    }
}

/// What tests use for a socket does not tell before it is read to the end.
#[cfg(test)]
impl HangUp for tokio::io::DuplexStream {
    fn is_hung_up(&self) -> bool {
        false
    }
}

/// Somebody who looks whether a client has left.
#[derive(Default)]
pub(crate) struct Lookout(Option<Pin<Box<Sleep>>>);

impl Lookout {
    /// Ready when the client has left. It is looked each time that this is asked, and the task is woken to ask again.
    pub(crate) fn poll(&mut self, client: &impl HangUp, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if client.is_hung_up() {
                return Poll::Ready(());
            }
            let pause = self.0.get_or_insert_with(|| Box::pin(sleep(LOOKS_EVERY)));
            ready!(pause.as_mut().poll(context));
            pause.as_mut().reset(Instant::now() + LOOKS_EVERY);
        }
    }
}
