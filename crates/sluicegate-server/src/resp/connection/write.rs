//! The sending side of a connection: replies, slow readers, and the close.

use super::buffer::READ_LEN_MIN;
use super::{Connection, FAR_FUTURE, LINGER};
use crate::net::Stream;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

impl<S: Stream> Connection<'_, S> {
    /// Sends the pending replies. Returns `false` if the client did not take them.
    pub(super) async fn flush(&mut self) -> bool {
        let replies = self.replies.bytes();
        if replies.is_empty() {
            return true;
        }
        // The system nearly always takes everything at once. Then no timer is needed.
        let (mut written, is_sent) = poll_fn(|context| {
            let mut stream = Pin::new(&mut self.stream);
            Poll::Ready(match stream.as_mut().poll_write(context, replies) {
                Poll::Ready(Ok(written)) => {
                    (written, matches!(stream.poll_flush(context), Poll::Ready(Ok(()))))
                }
                _ => (0, false),
            })
        })
        .await;
        let took_all = (written == replies.len() && is_sent) || self.flush_slowly(&mut written).await;
        self.replies.clear();
        self.session.undelivered.wrote(written);
        took_all
    }

    /// Sends the remaining replies to a slow reader: it must take some of them within
    /// `unread_timeout`, and all within a few times that. An unestablished client has only its
    /// `handshake_timeout`. Once the server stops, every client has `unread_timeout` left.
    /// `written` is the number of bytes sent so far.
    async fn flush_slowly(&mut self, written: &mut usize) -> bool {
        let (service, limits) = (self.service, &self.service.limits);
        let unread_timeout = limits.unread_timeout;
        let overall = limits.answer_timeout().min(FAR_FUTURE);
        let handshake = self.unestablished_since.map(|since| since + limits.handshake_timeout);
        let mut end =
            [handshake, self.sends_until].into_iter().flatten().fold(Instant::now() + overall, Instant::min);
        let mut stop = pin!(service.stopped());
        loop {
            let rest = self.replies.bytes().get(*written..).unwrap_or_default();
            let write = async {
                if rest.is_empty() {
                    self.stream.flush().await.map(|()| 0)
                } else {
                    self.stream.write(rest).await
                }
            };
            tokio::select! {
                biased;
                taken = timeout_at(end.min(Instant::now() + unread_timeout), write) => match taken {
                    Ok(Ok(0)) => {
                        self.active = Instant::now();
                        return rest.is_empty();
                    }
                    Ok(Ok(some)) => *written += some,
                    _ => return false,
                },
                () = stop.as_mut(), if self.sends_until.is_none() => {
                    end = end.min(*self.sends_until.insert(Instant::now() + unread_timeout));
                }
            }
        }
    }

    /// Shuts down the sending side, and gives the client time to read to the end.
    pub(super) async fn linger(mut self) {
        let end = Instant::now() + LINGER;
        let _ = timeout_at(end, self.stream.shutdown()).await;
        self.buffer.clear();
        self.buffer.shrink_to(READ_LEN_MIN);
        self.buffer.reserve(READ_LEN_MIN);
        while let Ok(Ok(1..)) = timeout_at(end, self.stream.read_buf(&mut self.buffer)).await {
            self.buffer.clear();
        }
    }
}
