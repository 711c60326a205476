//! How long a client is waited for, and how its connection is closed.
//!
//! A connection is idle until the first byte of a request, then the client is asking until the last one, then it is being
//! answered. An idle client has `idle_timeout`, one that asks has `request_timeout` for head and body together however
//! often it sends a byte. One that reads nothing of its answer has `unread_timeout`, and one that reads slowly has
//! a few times that for all of it. One that waits in line for a lease is looked after: hyper sees that it leaves only if it has
//! sent nothing behind its request.

use crate::client_limits::ClientLimits;
use crate::engine::UndeliveredLease;
use crate::net::{PeerCloseWatch, PeerClosed};
use std::future::Future as _;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A client whose request was answered before all of it came is still listened to for so long, and so many bytes: if the
/// socket were closed on unread bytes, the system would reset it and the client could lose the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// How far the request of a connection has come. The socket and whoever answers share it.
#[derive(Clone)]
pub(in crate::http) struct Progress {
    phase: Arc<Mutex<Phase>>,
    /// Leases that are in answers which have not been sent yet. If the client goes before, they are given back.
    untold: Arc<Mutex<Vec<Waited>>>,
}

/// A lease, and whether its client has stood in line for it.
struct Waited {
    lease: UndeliveredLease,
    in_line: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    Idle(Instant),
    Asking(Instant),
    /// Since all of the request was here.
    Answering(Instant),
    /// The client waits in line for a lease.
    InLine,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { phase: Arc::new(Mutex::new(Phase::Idle(Instant::now()))), untold: Arc::default() }
    }
}

impl Progress {
    /// All of the request is here.
    pub(in crate::http) fn has_asked(&self) {
        *self.phase() = Phase::Answering(Instant::now());
    }

    /// All of the request is here, and its client waits in line for a lease. [`Progress::has_asked`] says that it is over.
    pub(in crate::http) fn stands_in_line(&self) {
        *self.phase() = Phase::InLine;
    }

    /// The answer is made. How long that took, if all of the request was here by then.
    pub(in crate::http) fn is_answered(&self) -> Option<Duration> {
        let mut phase = self.phase();
        let Phase::Answering(since) = *phase else { return None };
        let now = Instant::now();
        *phase = Phase::Idle(now);
        Some(now - since)
    }

    /// Some of a request is here. If it came with the request before, the socket has not seen it come: its time begins when
    /// that was answered. (Half a head of it is not noticed before more comes, and holds no more than an idle client does.)
    pub(in crate::http) fn is_begun(&self) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle(_)) {
            *phase = Phase::Asking(Instant::now());
        }
    }

    fn is_asking(&self) -> bool {
        matches!(*self.phase(), Phase::Asking(_))
    }

    /// An answer has this lease in it. It is written before anything is sent again: making and writing it is one step, and hyper
    /// makes the next only when it is sent.
    pub(in crate::http) fn owes(&self, lease: UndeliveredLease, in_line: bool) {
        self.untold().push(Waited { lease, in_line });
    }

    /// What was written is sent: whoever was answered knows its lease.
    fn is_sent(&self) {
        let told = mem::take(&mut *self.untold());
        for Waited { lease, .. } in told {
            lease.delivered();
        }
    }

    fn is_in_line(&self) -> bool {
        matches!(*self.phase(), Phase::InLine)
    }

    /// Whether an answer is to tell a client of a lease for which it stood in line.
    fn owes_one_who_waited(&self) -> bool {
        self.untold().iter().any(|waited| waited.in_line)
    }

    fn untold(&self) -> MutexGuard<'_, Vec<Waited>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that is not waited for without end.
pub(in crate::http) struct Patient<S> {
    stream: S,
    progress: Progress,
    limits: ClientLimits,
    reading: Alarm,
    writing: Alarm,
    /// Since when the client has taken nothing of what is to be sent.
    unread_since: Option<Instant>,
    /// Since when the client has not taken all of what is to be sent.
    behind_since: Option<Instant>,
    lingering: Option<Lingering>,
    peer_close: PeerCloseWatch,
}

struct Lingering {
    until: Instant,
    discarded: usize,
}

impl<S: PeerClosed> Patient<S> {
    pub(in crate::http) fn new(stream: S, progress: Progress, limits: ClientLimits) -> Patient<S> {
        let (reading, writing) = (Alarm::default(), Alarm::default());
        let (unread_since, behind_since, lingering) = (None, None, None);
        let peer_close = PeerCloseWatch::default();
        Patient {
            stream,
            progress,
            limits,
            reading,
            writing,
            unread_since,
            behind_since,
            lingering,
            peer_close,
        }
    }

    /// An error if the client has left that waits in line. If not, it is looked again in a while. (hyper writes or flushes each
    /// time that it is woken.)
    fn sees_who_waits(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Patient { stream, progress, peer_close, .. } = self;
        let has_left = progress.is_in_line() && peer_close.poll(stream, cx).is_ready();
        if has_left { Err(gone()) } else { Ok(()) }
    }

    /// The same before something is written: a client that has left since its turn came is not told of its lease. When all is
    /// written it is too late to look: the client may know it, and close because it does.
    fn sees_who_is_told(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.progress.owes_one_who_waited() && self.stream.is_peer_closed() {
            return Err(gone());
        }
        self.sees_who_waits(cx)
    }

    /// What a write came to, unless the client has not read for too long.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
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
        if deadline.is_some_and(|deadline| self.writing.rings(deadline, cx)) {
            return Poll::Ready(Err(too_slow("the client does not read its answer")));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            if buffer.filled().len() > before {
                self.progress.is_begun();
            }
            return read;
        }
        let phase = *self.progress.phase();
        let deadline = match phase {
            Phase::Idle(since) => self.limits.idle_timeout.and_then(|idle| since.checked_add(idle)),
            Phase::Asking(since) => since.checked_add(self.limits.request_timeout),
            Phase::Answering(_) | Phase::InLine => None,
        };
        match (deadline, phase) {
            (Some(deadline), Phase::Idle(_)) if self.reading.rings(deadline, cx) => {
                // Nothing is wrong: as if the client had closed.
                Poll::Ready(Ok(()))
            }
            (Some(deadline), Phase::Asking(_)) if self.reading.rings(deadline, cx) => {
                Poll::Ready(Err(too_slow("the client takes too long over its request")))
            }
            _ => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + PeerClosed + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sees_who_is_told(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sees_who_is_told(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sees_who_waits(cx)?;
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            // hyper flushes when it has written all it has.
            self.behind_since = None;
            if matches!(flushed, Poll::Ready(Ok(()))) {
                self.progress.is_sent();
            }
        }
        self.wrote(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Patient { stream, progress, lingering, reading, .. } = &mut *self;
        let Some(lingering) = lingering else {
            let closed = ready!(Pin::new(stream).poll_shutdown(cx));
            if closed.is_err() || !progress.is_asking() {
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
                Poll::Pending if reading.rings(lingering.until, cx) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left the line")
}

fn too_slow(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// A timer, made when it is first needed.
#[derive(Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Whether the deadline has come. If not, the task is woken when it does.
    fn rings(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
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
    async fn a_client_that_reads_an_answer_too_slowly_is_given_up() {
        let unread_timeout = Duration::from_millis(300);
        let limits = ClientLimits { unread_timeout, ..ClientLimits::default() };
        let (mut client, server) = tokio::io::duplex(16);
        let reading = tokio::spawn(async move {
            // Always something, in time, and never much.
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(unread_timeout / 30).await;
            }
        });
        let began = Instant::now();
        let mut server = Patient::new(server, Progress::default(), limits);
        let answer =
            tokio::time::timeout(Duration::from_secs(20), server.write_all(&vec![0; 1_000_000])).await;
        let error = answer.expect("the server waits for ever").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limits.answer_timeout(), "{:?}", began.elapsed());
        drop(server);
        reading.await.unwrap();
    }
}
