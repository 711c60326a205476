//! The socket of a connection: its timeouts, its undelivered leases and its close.
//!
//! A connection is idle until the first byte of a request, receives it until the last byte, and
//! then processes it. An idle client has `idle_timeout`. Until a client has sent its first complete
//! request and, with a password, has authenticated, it has `handshake_timeout` in all. A request
//! has `request_timeout` for head and body together, however often a byte arrives. A client that
//! reads nothing of its response has `unread_timeout`, and a slow reader a few times that for the
//! whole response. While a client waits for a lease its connection is watched: hyper notices a
//! close only if nothing was sent after the request.

use super::heads::Heads;
use crate::connection_limits::ConnectionLimits;
use crate::engine::UndeliveredLease;
use crate::net::{Client, PeerCloseWatch, PeerClosed};
use std::future::Future as _;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long, and how many bytes, a client is read whose request was answered before it was
/// complete. Closing a socket with unread input resets it, and the client could lose the response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// The progress of a connection's request, shared by the socket and the handler.
#[derive(Clone)]
pub(in crate::http) struct Progress {
    client: Client,
    /// When an unestablished connection is closed.
    handshake_ends: Instant,
    established: Arc<AtomicBool>,
    phase: Arc<Mutex<Phase>>,
    /// The length of the body of the head that hyper has just parsed, until the socket knows it.
    body_len: Arc<AtomicU64>,
    /// Leases in responses that are not sent yet. If the client disconnects, they are released.
    undelivered: Arc<Mutex<Vec<Undelivered>>>,
}

/// An undelivered lease.
struct Undelivered {
    lease: UndeliveredLease,
    /// `true` if its call waited in a queue.
    waited: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    Idle(Instant),
    Receiving(Instant),
    Processing(Instant),
    /// The call waits for a lease.
    Queued,
}

impl Progress {
    pub(in crate::http) fn new(client: Client, handshake_timeout: Duration) -> Progress {
        let handshake_ends = client.accepted + handshake_timeout;
        let phase = Arc::new(Mutex::new(Phase::Idle(Instant::now())));
        let (established, body_len, undelivered) = (Arc::default(), Arc::default(), Arc::default());
        Progress { client, handshake_ends, established, phase, body_len, undelivered }
    }

    pub(in crate::http) fn client(&self) -> &Client {
        &self.client
    }

    /// The client has sent a complete request, with the password if there is one.
    pub(in crate::http) fn establish(&self) {
        // Relaxed: the connection is one task. If it has made room for another, that task is being
        // aborted.
        if !self.established.load(Ordering::Relaxed) && self.client.establish() {
            self.established.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if an unestablished connection has had its time.
    pub(in crate::http) fn is_handshake_over(&self) -> bool {
        !self.established.load(Ordering::Relaxed) && Instant::now() >= self.handshake_ends
    }

    /// hyper has parsed a head, and will read a body of this length.
    pub(super) fn body_follows(&self, len: u64) {
        // Relaxed: the connection is one task.
        self.body_len.store(len, Ordering::Relaxed);
    }

    /// When a silent or slow client is closed.
    fn read_deadline(&self, limits: &ConnectionLimits) -> Option<Instant> {
        let own = match *self.phase() {
            Phase::Idle(since) => limits.idle_timeout.and_then(|idle| since.checked_add(idle)),
            Phase::Receiving(since) => since.checked_add(limits.request_timeout),
            Phase::Processing(_) | Phase::Queued => return None,
        };
        let established = self.established.load(Ordering::Relaxed);
        let handshake = (!established).then_some(self.handshake_ends);
        [own, handshake].into_iter().flatten().min()
    }

    /// The request has arrived completely; or its call no longer waits for a lease.
    pub(in crate::http) fn request_received(&self) {
        *self.phase() = Phase::Processing(Instant::now());
    }

    /// The request's call waits for a lease, until [`Progress::request_received`].
    pub(in crate::http) fn waits_for_lease(&self) {
        *self.phase() = Phase::Queued;
    }

    /// The response is ready. Returns how long that took, if the request had arrived completely.
    pub(in crate::http) fn answered(&self) -> Option<Duration> {
        let mut phase = self.phase();
        let Phase::Processing(since) = *phase else { return None };
        let now = Instant::now();
        *phase = Phase::Idle(now);
        Some(now - since)
    }

    /// Some of a request has arrived. If it was read together with the previous request, the socket
    /// did not see it arrive: its time starts when that one was answered. (An incomplete head goes
    /// unnoticed until more arrives, and costs no more than an idle client.)
    pub(in crate::http) fn request_started(&self) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle(_)) {
            *phase = Phase::Receiving(Instant::now());
        }
    }

    fn is_receiving(&self) -> bool {
        matches!(*self.phase(), Phase::Receiving(_))
    }

    /// Adds the lease of the next response. hyper writes a response as soon as it is ready, and
    /// asks for the next one only once that is sent: a flush always covers all leases here.
    pub(in crate::http) fn add_undelivered(&self, lease: UndeliveredLease, waited: bool) {
        self.undelivered().push(Undelivered { lease, waited });
    }

    /// All responses are sent: marks their leases as delivered.
    fn sent(&self) {
        let sent = mem::take(&mut *self.undelivered());
        for Undelivered { lease, .. } in sent {
            lease.delivered();
        }
    }

    fn is_queued(&self) -> bool {
        matches!(*self.phase(), Phase::Queued)
    }

    /// Returns `true` if a response delivers a lease that its call waited for.
    fn delivers_after_wait(&self) -> bool {
        self.undelivered().iter().any(|undelivered| undelivered.waited)
    }

    fn undelivered(&self) -> MutexGuard<'_, Vec<Undelivered>> {
        self.undelivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket with timeouts.
pub(in crate::http) struct TimedStream<S> {
    stream: S,
    progress: Progress,
    limits: ConnectionLimits,
    heads: Heads,
    reading: Timer,
    writing: Timer,
    /// Since when the client has read nothing of a pending response.
    unread_since: Option<Instant>,
    /// Since when a response has been pending.
    behind_since: Option<Instant>,
    lingering: Option<Lingering>,
    peer_close: PeerCloseWatch,
}

struct Lingering {
    until: Instant,
    discarded: usize,
}

impl<S: PeerClosed> TimedStream<S> {
    pub(in crate::http) fn new(stream: S, progress: Progress, limits: ConnectionLimits) -> TimedStream<S> {
        let (reading, writing) = (Timer::default(), Timer::default());
        let (unread_since, behind_since, lingering) = (None, None, None);
        let peer_close = PeerCloseWatch::default();
        TimedStream {
            stream,
            progress,
            limits,
            heads: Heads::default(),
            reading,
            writing,
            unread_since,
            behind_since,
            lingering,
            peer_close,
        }
    }

    /// Fails if a client that waits for a lease has closed the connection. Otherwise the task is
    /// woken to look again: hyper writes or flushes each time it is woken.
    fn check_waiting_client(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let TimedStream { stream, progress, peer_close, .. } = self;
        let is_closed = progress.is_queued() && peer_close.poll(stream, cx).is_ready();
        if is_closed { Err(peer_closed()) } else { Ok(()) }
    }

    /// Fails before a write if a client that waited for its lease has closed the connection since
    /// the lease was granted. After the write it is too late: the client may have its lease, and
    /// close the connection because of that.
    fn check_before_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.progress.delivers_after_wait() && self.stream.is_peer_closed() {
            return Err(peer_closed());
        }
        self.check_waiting_client(cx)
    }

    /// Passes on the result of a write; fails if it is pending for too long.
    fn check_write<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread_since = None;
            return written;
        }
        let unread = *self.unread_since.get_or_insert_with(Instant::now);
        let behind = *self.behind_since.get_or_insert(unread);
        let deadlines = [
            unread.checked_add(self.limits.unread_timeout),
            behind.checked_add(self.limits.answer_timeout()),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        if deadline.is_some_and(|deadline| self.writing.poll_expired(deadline, cx)) {
            return Poll::Ready(Err(timed_out("the client does not read its response")));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let TimedStream { stream, progress, heads, .. } = &mut *self;
        match progress.body_len.swap(0, Ordering::Relaxed) {
            0 => {}
            len => heads.body_follows(len),
        }
        let read = if heads.take_held(buffer) {
            Poll::Ready(Ok(()))
        } else {
            let read = Pin::new(stream).poll_read(cx, buffer);
            heads.hold_back(buffer, before);
            read
        };
        if read.is_ready() {
            if buffer.filled().len() > before {
                self.progress.request_started();
            }
            return read;
        }
        let deadline = self.progress.read_deadline(&self.limits);
        if !deadline.is_some_and(|deadline| self.reading.poll_expired(deadline, cx)) {
            return Poll::Pending;
        }
        Poll::Ready(if self.progress.is_receiving() {
            Err(timed_out("the request did not arrive in time"))
        } else {
            // Not an error: as if the client had closed the connection.
            Ok(())
        })
    }
}

impl<S: AsyncRead + AsyncWrite + PeerClosed + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_before_write(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_before_write(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_waiting_client(cx)?;
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            // hyper flushes once it has written everything.
            self.behind_since = None;
            if matches!(flushed, Poll::Ready(Ok(()))) {
                self.progress.sent();
            }
        }
        self.check_write(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let TimedStream { stream, progress, lingering, reading, .. } = &mut *self;
        let Some(lingering) = lingering else {
            let closed = ready!(Pin::new(stream).poll_shutdown(cx));
            if closed.is_err() || !progress.is_receiving() {
                return Poll::Ready(closed);
            }
            *lingering = Some(Lingering { until: Instant::now() + LINGER, discarded: 0 });
            return self.poll_shutdown(cx);
        };
        let mut bytes = [0; 4096];
        while lingering.discarded < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.discarded += buffer.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending if reading.poll_expired(lingering.until, cx) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn peer_closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the client closed the connection while it waited")
}

fn timed_out(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// A timer, created on first use.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Returns `true` if the deadline has passed. Otherwise the task is woken when it does.
    fn poll_expired(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_times_out() {
        let unread_timeout = Duration::from_millis(300);
        let limits = ConnectionLimits { unread_timeout, ..ConnectionLimits::default() };
        let (mut client, server) = tokio::io::duplex(16);
        let reading = tokio::spawn(async move {
            // Always in time, and never much.
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(unread_timeout / 30).await;
            }
        });
        let began = Instant::now();
        let client = Client::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let progress = Progress::new(client, limits.handshake_timeout);
        let mut server = TimedStream::new(server, progress, limits);
        let written =
            tokio::time::timeout(Duration::from_secs(20), server.write_all(&vec![0; 1_000_000])).await;
        let error = written.expect("the server waits forever").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limits.answer_timeout(), "{:?}", began.elapsed());
        drop(server);
        reading.await.unwrap();
    }
}
