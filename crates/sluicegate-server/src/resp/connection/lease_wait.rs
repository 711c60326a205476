//! Waits for a lease. The connection is read ahead meanwhile, to detect that the client closes it.

use super::Connection;
use super::buffer::READ_LEN_MIN;
use crate::net::{PeerCloseWatch, Stream};
use crate::resp::handler;
use std::future::poll_fn;
use tokio::io::AsyncReadExt as _;

/// The most bytes read ahead while a client waits for a lease.
pub(super) const READ_AHEAD_MAX: usize = 64 * 1024;

impl<S: Stream> Connection<'_, S> {
    /// Answers a command that may wait for a lease. The commands behind it wait too, as with
    /// Redis's `BLPOP`. If the server stops, it is answered at once. Returns `true` if more input
    /// arrived meanwhile, and `None` if the client is gone.
    pub(super) async fn wait_for_lease(&mut self, index: usize) -> Option<bool> {
        let Connection { stream, service, session, buffer, parser, replies, .. } = self;
        let mut ahead = Vec::new();
        if let Some(command) = parser.commands(buffer).get(index) {
            let acquire = handler::wait_for_lease(command, session, replies, service);
            // Input that was read together with the command counts towards the bound.
            let most = (READ_AHEAD_MAX + parser.used()).saturating_sub(buffer.len());
            let is_answered = tokio::select! {
                biased;
                () = service.stopped() => false,
                // Polled before the lease: a client that is gone must not get a lease that has just
                // become free.
                () = closed(stream, &mut ahead, most) => return None,
                () = acquire => true,
            };
            if !is_answered {
                handler::answer_without_waiting(command, session, replies, service).await;
            }
        }
        let received = !ahead.is_empty();
        // Exactly that much, as the client controls the amount.
        buffer.reserve_exact(ahead.len());
        buffer.append(&mut ahead);
        Some(received)
    }
}

/// Returns when the client has closed the connection. Input before that is kept. Once `most` bytes
/// are read, the connection is polled for the close alone.
async fn closed(stream: &mut impl Stream, ahead: &mut Vec<u8>, most: usize) {
    while ahead.len() < most {
        let room = READ_LEN_MIN.min(most - ahead.len());
        ahead.reserve(room);
        if !matches!((&mut *stream).take(room as u64).read_buf(ahead).await, Ok(1..)) {
            return;
        }
    }
    let mut watch = PeerCloseWatch::default();
    poll_fn(|context| watch.poll(stream, context)).await;
}
