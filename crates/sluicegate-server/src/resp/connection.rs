//! The loop of one connection: read what has arrived, answer all of it, write once.
//!
//! `buffer.rs` is its memory, `write.rs` its sending side, `lease_wait.rs` what happens while the
//! client waits for a lease, `execute.rs` what `EXEC` does.
//!
//! Everything is bounded. Input is bounded by the longest command, as nothing more is read before
//! the buffer has been answered; replies by `unread_replies_max` plus one reply, as nothing more is
//! answered before they are sent; the commands since `MULTI` by `command_len_max`. Memory that a
//! burst needed is freed when the client falls silent.

mod buffer;
mod execute;
mod lease_wait;
mod write;

use super::codec::{CommandBounds, Parser, Replies};
use super::handler::{self, Answered, NextAction};
use super::session::Session;
use crate::auth::PASSWORD_LEN_MAX;
use crate::log::LogThrottle;
use crate::net::{Client, ClosedFor, Peer, Stream, closed_unestablished};
use crate::protocol::Protocol;
use crate::service::Service;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tracing::debug;

/// Commands that are prepared before the first is decided: enough to hide cache misses, few enough
/// to stay in the processor's cache.
const BATCH_MAX: usize = 128;
/// A client that has been silent for this long has its buffers shrunk.
const QUIET: Duration = Duration::from_secs(1);
/// What a client may send before it is authenticated: a password and a name. No setting narrows
/// these bounds, so that every valid password can be sent.
const UNAUTHENTICATED_BOUNDS: CommandBounds =
    CommandBounds { arguments: 10, bulk_len: PASSWORD_LEN_MAX, command_len: 2 * 1024 };
const UNAUTHENTICATED_UNREAD_MAX: usize = 1024;
/// After this many wrong passwords the client is guessing, and its connection is closed.
const WRONG_PASSWORDS_MAX: u8 = 5;
/// How long the client may read the last reply. Closing a socket with unread input resets it, and
/// the client could lose that reply.
const LINGER: Duration = Duration::from_secs(1);
/// When the server stops, input that has arrived but was not read shows up within this time.
const ARRIVED: Duration = Duration::from_millis(20);
/// How long a client that never stops sending is answered after the server got the signal to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Stands for no deadline.
const FAR_FUTURE: Duration = Duration::from_secs(365 * 86_400);

static PROTOCOL_ERROR: LogThrottle = LogThrottle::new();

/// A client connection.
pub(super) struct Connection<'s, S> {
    stream: S,
    client: Client,
    service: &'s Service,
    session: Session,
    buffer: Vec<u8>,
    parser: Parser,
    replies: Replies,
    /// When the client last sent anything, or read replies that had been pending.
    active: Instant,
    /// When an incomplete command began to arrive.
    began: Option<Instant>,
    /// Since when the client has been connected without a complete command or, with a password,
    /// without authenticating.
    unestablished_since: Option<Instant>,
    /// The server is stopping, and sends replies until this time.
    sends_until: Option<Instant>,
    /// The timer and the stop signal are registered with the task's waker, and have not fired.
    wakers_registered: bool,
}

/// Why waiting ended.
enum Woken {
    Read,
    Stopping,
    TimedOut(Timeout),
    Gone,
}

/// Which timeout has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timeout {
    /// The client was silent for [`QUIET`]: its buffers are shrunk.
    Quiet,
    /// The client was silent for `idle_timeout`.
    Idle,
    /// A command was incomplete for `request_timeout`.
    Request,
    /// The client was not authenticated for `handshake_timeout`.
    Password,
    /// The client sent no command for `handshake_timeout`.
    FirstCommand,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Timeout::Quiet | Timeout::Idle => "the connection was idle for too long",
            Timeout::Request => "the rest of the command did not arrive in time",
            Timeout::Password => "the password did not arrive in time",
            Timeout::FirstCommand => "the first command did not arrive in time",
        })
    }
}

/// What to do with the connection next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Continue,
    /// Close it once the client has read the last reply.
    Close,
    /// The client is gone.
    Gone,
}

impl<'s, S: Stream> Connection<'s, S> {
    /// A connection that has just been accepted.
    pub(super) fn new(stream: S, client: impl Into<Client>, service: &'s Service) -> Connection<'s, S> {
        let client = client.into();
        let address = client.address;
        let authenticated = service.password.is_none();
        Connection {
            stream,
            unestablished_since: Some(client.accepted),
            client,
            service,
            session: Session::new(Peer::of(address), authenticated),
            buffer: Vec::new(),
            parser: Parser::default(),
            replies: Replies::default(),
            active: Instant::now(),
            began: None,
            sends_until: None,
            wakers_registered: false,
        }
    }

    /// Serves the client until it leaves, breaks the protocol, times out, or the server stops.
    pub(super) async fn run(mut self) {
        let service = self.service;
        let mut stop = pin!(service.stopped());
        let mut timer = pin!(sleep(FAR_FUTURE));
        loop {
            // Checked here too: a client that sends without pause never lets `wait` look.
            let woken = if service.is_stopping() {
                Woken::Stopping
            } else {
                self.wait(stop.as_mut(), timer.as_mut()).await
            };
            let next = match woken {
                Woken::Read => self.answer_and_flush().await,
                Woken::Stopping => return self.stop().await,
                Woken::TimedOut(Timeout::Quiet) => {
                    self.shrink();
                    Flow::Continue
                }
                Woken::TimedOut(Timeout::Idle) | Woken::Gone => Flow::Gone,
                Woken::TimedOut(timeout) => self.timed_out(timeout).await,
            };
            match next {
                Flow::Continue => {}
                Flow::Close => return self.linger().await,
                Flow::Gone => return,
            }
        }
    }

    /// Waits for input, the stop signal or a timeout.
    async fn wait(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        mut timer: Pin<&mut Sleep>,
    ) -> Woken {
        self.make_room();
        // The timer is moved only if it would fire too late. If it fires too early, it is moved
        // then: a busy connection does not reset it for each command.
        let (deadline, _) = self.deadline();
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
            self.wakers_registered = false;
        }
        loop {
            // A timer that fired while we were busy will not wake us again. (The caller has checked
            // the stop signal.)
            let mut skip_others = self.wakers_registered && !timer.is_elapsed();
            let wakers_registered = &mut self.wakers_registered;
            let mut read = pin!(self.stream.read_buf(&mut self.buffer));
            let woken = poll_fn(|context| {
                if let Poll::Ready(read) = read.as_mut().poll(context) {
                    return Poll::Ready(Some(if matches!(read, Ok(1..)) {
                        Woken::Read
                    } else {
                        Woken::Gone
                    }));
                }
                // A busy client wakes us all the time, and the other wakers are already registered.
                // They are polled only when we are woken and there was nothing to read.
                if mem::take(&mut skip_others) {
                    return Poll::Pending;
                }
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Some(Woken::Stopping));
                }
                let fired = timer.as_mut().poll(context);
                *wakers_registered = fired.is_pending();
                fired.map(|()| None)
            });
            if let Some(woken) = woken.await {
                return woken;
            }
            let (deadline, timeout) = self.deadline();
            if deadline <= Instant::now() {
                return Woken::TimedOut(timeout);
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// The earliest timeout.
    fn deadline(&self) -> (Instant, Timeout) {
        let limits = &self.service.limits;
        let silence = match self.began {
            Some(began) => Some((began + limits.request_timeout, Timeout::Request)),
            None if self.holds_much() => Some((self.active + QUIET, Timeout::Quiet)),
            None => None,
        };
        let idle = limits.idle_timeout.map(|timeout| (self.active + timeout, Timeout::Idle));
        let handshake = self
            .unestablished_since
            .map(|since| (since + limits.handshake_timeout, self.handshake_timeout()));
        let first = [silence, idle, handshake].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        first.unwrap_or((self.active + FAR_FUTURE, Timeout::Idle))
    }

    /// The timeout of a connection that is not established.
    fn handshake_timeout(&self) -> Timeout {
        if self.session.authenticated { Timeout::FirstCommand } else { Timeout::Password }
    }

    /// Establishes the connection if the client has authenticated. Returns `false` if it has made
    /// room for another, and is being closed.
    fn establish(&mut self) -> bool {
        if self.unestablished_since.is_none() || !self.session.authenticated {
            return true;
        }
        self.unestablished_since = None;
        self.client.establish()
    }

    /// Answers all complete commands and sends the replies.
    async fn answer_and_flush(&mut self) -> Flow {
        let next = self.answer().await;
        if next == Flow::Gone || !self.flush().await {
            return Flow::Gone;
        }
        // `request_timeout` of an incomplete command starts once the replies before it are sent.
        if self.parser.used() < self.buffer.len() {
            self.began = self.began.or_else(|| Some(Instant::now()));
        }
        next
    }

    async fn answer(&mut self) -> Flow {
        let mut now = Instant::now();
        self.active = now;
        loop {
            let mut more_arrived = false;
            let (bounds, most, unread_max) = self.bounds();
            let error = self.parser.parse(&mut self.buffer, most, &bounds).err();
            let found = self.parser.len();
            if found > 0 && !self.establish() {
                return Flow::Gone;
            }
            let mut answered = 0;
            while answered < found && !self.session.leaving {
                let rest = (self.parser.commands(&self.buffer), answered);
                let Answered { commands: some, queued, then } =
                    handler::answer(rest, unread_max, &mut self.session, &mut self.replies, self.service)
                        .await;
                answered += some;
                let done = Instant::now();
                let requests = u64::try_from(some - queued).unwrap_or(u64::MAX);
                self.service.metrics.answered(Protocol::Resp, requests, done - now);
                now = done;
                // A client need not wait for the next round trip to get the replies of this one.
                let is_slow = matches!(then, NextAction::Wait) || self.service.engine.is_shared();
                if self.replies.bytes().len() >= unread_max || is_slow {
                    if !self.flush().await {
                        return Flow::Gone;
                    }
                    now = Instant::now();
                }
                match then {
                    NextAction::Continue => {}
                    NextAction::Wait => {
                        // Boxed because most connections never wait for a lease.
                        let received = Box::pin(self.wait_for_lease(answered)).await;
                        let Some(received) = received else { return Flow::Gone };
                        more_arrived |= received;
                        answered += 1;
                        // Time in the queue is not time spent by the server.
                        self.service.metrics.answered(Protocol::Resp, 1, Duration::ZERO);
                        now = Instant::now();
                        self.active = now;
                    }
                    NextAction::Execute(transaction) => {
                        // Boxed because most connections never send EXEC.
                        if !Box::pin(self.execute(&transaction)).await {
                            return Flow::Gone;
                        }
                        now = Instant::now();
                    }
                }
            }
            self.parser.clear_complete();
            if more_arrived {
                // Otherwise the buffer of a client that keeps sending while it waits would only
                // grow.
                self.drop_answered();
            }
            if !self.session.authenticated {
                self.unestablished_since.get_or_insert(now);
            } else if found > 0 && !self.establish() {
                return Flow::Gone;
            }
            if self.session.leaving {
                return Flow::Close;
            }
            // Checked here too: a client that sends without pause never lets `wait` look.
            let handshake_timeout = self.service.limits.handshake_timeout;
            if self.unestablished_since.is_some_and(|since| now >= since + handshake_timeout) {
                return self.timed_out(self.handshake_timeout()).await;
            }
            if self.session.wrong_passwords >= WRONG_PASSWORDS_MAX {
                return self.protocol_error("too many wrong passwords; reconnect with the right one").await;
            }
            if let Some(error) = error {
                return self.protocol_error(error).await;
            }
            if found > 0 || self.parser.used() == self.buffer.len() {
                self.began = None;
            }
            if found < most && !more_arrived {
                return Flow::Continue;
            }
        }
    }

    /// The bounds on input, the most commands per batch, and the most bytes of pending replies. A
    /// client that is not authenticated is answered command by command, as each may change the
    /// bounds.
    fn bounds(&self) -> (CommandBounds, usize, usize) {
        let limits = &self.service.limits;
        if !self.session.authenticated {
            return (UNAUTHENTICATED_BOUNDS, 1, UNAUTHENTICATED_UNREAD_MAX.min(limits.unread_replies_max));
        }
        let bounds = CommandBounds {
            arguments: limits.arguments_max,
            bulk_len: limits.bulk_len_max,
            command_len: limits.command_len_max,
        };
        (bounds, BATCH_MAX, limits.unread_replies_max)
    }

    /// Reports a timeout, and closes the connection.
    async fn timed_out(&mut self, timeout: Timeout) -> Flow {
        if matches!(timeout, Timeout::Password | Timeout::FirstCommand) {
            let (protocol, peer) = (Protocol::Resp, self.client.address.ip());
            closed_unestablished(self.service, protocol, peer, ClosedFor::HandshakeTimeout);
        }
        self.protocol_error(timeout).await
    }

    /// Reports a protocol error. The connection is closed: where the next command starts is
    /// unknown.
    async fn protocol_error(&mut self, error: impl fmt::Display) -> Flow {
        self.service.metrics.protocol_error(Protocol::Resp);
        if let Some(suppressed) = PROTOCOL_ERROR.allow() {
            debug!(peer = %self.client.address, suppressed, "closed a RESP connection after a protocol error: {error}");
        }
        self.replies.error(&format!("ERR Protocol error: {error}"));
        if self.flush().await { Flow::Close } else { Flow::Gone }
    }

    /// Answers what has arrived, because the server is stopping.
    async fn stop(mut self) {
        let now = Instant::now();
        self.sends_until.get_or_insert(now + self.service.limits.unread_timeout);
        let end = now + LAST_ANSWERS;
        while Instant::now() < end {
            self.make_room();
            let Ok(Ok(1..)) = timeout(ARRIVED, self.stream.read_buf(&mut self.buffer)).await else { break };
            match self.answer_and_flush().await {
                Flow::Continue => {}
                Flow::Close => return self.linger().await,
                Flow::Gone => return,
            }
        }
        if self.active.elapsed() < LINGER {
            return self.linger().await;
        }
        // The client has had more than that to read its replies.
        let _ = timeout(LINGER, self.stream.shutdown()).await;
    }
}

#[cfg(test)]
mod tests;
