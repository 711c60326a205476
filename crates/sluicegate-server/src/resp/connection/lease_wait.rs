//! A client that waits for a lease. Its connection is read ahead meanwhile, so that it is noticed
//! when the client leaves.

use super::Connection;
use super::buffer::READ_LEN_MIN;
use crate::net::{PeerCloseWatch, Stream};
use crate::resp::handler;
use std::future::poll_fn;
use tokio::io::AsyncReadExt as _;

/// How much is read ahead of a client that waits for a lease.
pub(super) const READ_AHEAD_MAX: usize = 64 * 1024;

impl<S: Stream> Connection<'_, S> {
    /// Answers a command that may wait for a lease. The commands behind it wait too, as with
    /// Redis's `BLPOP`. When the server stops, it is answered at once. Returns whether the client
    /// has sent more meanwhile; `None` if it has left.
    pub(super) async fn wait_for_lease(&mut self, place: usize) -> Option<bool> {
        let Connection { stream, service, session, buffer, parser, replies, .. } = self;
        let mut ahead = Vec::new();
        if let Some(command) = parser.get(buffer, place) {
            let acquire = handler::wait_in_line(command, session, replies, service);
            // What was read together with the command has a bound of its own.
            let most = (READ_AHEAD_MAX + parser.used()).saturating_sub(buffer.len());
            let is_answered = tokio::select! {
                biased;
                () = service.stopped() => false,
                // Before the lease: a client that has left has no use for one that has just become
                // free.
                () = closed(stream, &mut ahead, most) => return None,
                () = acquire => true,
            };
            if !is_answered {
                handler::answer_without_waiting(command, session, replies, service).await;
            }
        }
        let came = !ahead.is_empty();
        // Exactly, not twice as much: the client decides how much that is.
        buffer.reserve_exact(ahead.len());
        buffer.append(&mut ahead);
        Some(came)
    }
}

/// Returns when the client has closed the connection. What it sends before is kept; when that is
/// `most`, nothing more is read, and the runtime is asked from time to time.
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
