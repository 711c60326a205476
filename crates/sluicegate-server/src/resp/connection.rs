//! The loop of one connection: read what there is, answer all of it, write once. `buffer.rs` is its memory, `write.rs` its
//! sending side, `lease_wait.rs` what happens while the client waits for a lease.
//!
//! Everything has a bound. What is read is bounded by the longest command, as nothing more is read before what is there has
//! been answered; replies by `unread_replies_max` and one reply, as nothing more is answered before they have been sent.
//! Memory that a burst needed is given back when the client falls silent.

mod buffer;
mod lease_wait;
mod write;

use super::codec::{Bounds, Parser, Replies};
use super::handler::{self, Answered};
use super::session::Session;
use crate::auth::PASSWORD_LEN_MAX;
use crate::log::Seldom;
use crate::net::Stream;
use crate::protocol::Protocol;
use crate::service::Service;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tracing::debug;

/// So many commands are prepared before the first is decided: enough to hide waits for memory, and what they hold stays in
/// the processor's cache.
const BATCH_MAX: usize = 128;
/// A client that has been silent for so long holds no more memory than it needs.
const QUIET: Duration = Duration::from_secs(1);
/// Before the password, a client may say a password and a name, and is sent the shortest of answers.
/// Settings do not narrow that: whoever knows the password can say it.
const UNKNOWN_BOUNDS: Bounds = Bounds { arguments: 10, bulk_len: PASSWORD_LEN_MAX, command_len: 2 * 1024 };
const UNKNOWN_UNREAD_MAX: usize = 1024;
/// Who has said so many wrong passwords is guessing, and has to connect anew for more.
const WRONG_PASSWORDS_MAX: u8 = 5;
/// Closing at once would make the system take back the last reply if the client has sent more. So it has so long to read it.
const LINGER: Duration = Duration::from_secs(1);
/// When the server stops, what has arrived but was not read yet shows up within this.
const ARRIVED: Duration = Duration::from_millis(20);
/// A client that never stops sending is not answered for longer than this after the server was to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// No deadline.
const FAR: Duration = Duration::from_secs(365 * 86_400);

static PROTOCOL_ERROR: Seldom = Seldom::new();

/// A client, and how far we are with it.
pub(super) struct Connection<'s, S> {
    stream: S,
    peer: SocketAddr,
    service: &'s Service,
    session: Session,
    buffer: Vec<u8>,
    parser: Parser,
    replies: Replies,
    /// When it last sent anything, or took replies that it was slow to take.
    active: Instant,
    /// When the command began that has not arrived in full.
    began: Option<Instant>,
    /// Since when it owes us the password.
    unknown: Option<Instant>,
    /// The server stops, and sends replies until then.
    sends_until: Option<Instant>,
    /// The alarm and the server's end have been asked to wake us, and have not.
    others_will_wake: bool,
}

/// Why waiting ended.
enum Woken {
    Read,
    Stopping,
    Late(Late),
    Gone,
}

/// What did not come in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Late {
    /// Anything, for so short a time that only memory is given back.
    Quiet,
    /// Anything at all.
    Idle,
    /// The rest of a command.
    Request,
    /// The password.
    Password,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Late::Quiet | Late::Idle => "nothing came for too long",
            Late::Request => "the rest of the command did not come in time",
            Late::Password => "the password did not come in time",
        })
    }
}

/// Whether the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    On,
    /// The last reply is written, or waits.
    Closing,
    /// There is nobody to write to.
    Gone,
}

impl<'s, S: Stream> Connection<'s, S> {
    /// A client that has just connected.
    pub(super) fn new(stream: S, peer: SocketAddr, service: &'s Service) -> Connection<'s, S> {
        let now = Instant::now();
        let is_known = service.password.is_none();
        Connection {
            stream,
            peer,
            service,
            session: Session::new(is_known),
            buffer: Vec::new(),
            parser: Parser::default(),
            replies: Replies::default(),
            active: now,
            began: None,
            unknown: (!is_known).then_some(now),
            sends_until: None,
            others_will_wake: false,
        }
    }

    /// Answers until there is a reason to stop.
    pub(super) async fn run(mut self) {
        let service = self.service;
        let mut stop = pin!(service.stopped());
        let mut alarm = pin!(sleep(FAR));
        loop {
            // Seen here too: a client that always has more to say would never let us wait.
            let woken = if service.is_stopping() {
                Woken::Stopping
            } else {
                self.wait(stop.as_mut(), alarm.as_mut()).await
            };
            let goes = match woken {
                Woken::Read => self.answer_and_flush().await,
                Woken::Stopping => return self.stop().await,
                Woken::Late(Late::Quiet) => {
                    self.shrink();
                    Goes::On
                }
                Woken::Late(Late::Idle) | Woken::Gone => Goes::Gone,
                Woken::Late(late) => self.protocol_error(late).await,
            };
            match goes {
                Goes::On => {}
                Goes::Closing => return self.linger().await,
                Goes::Gone => return,
            }
        }
    }

    /// Waits for the client, the server's end, or a deadline.
    async fn wait(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        mut alarm: Pin<&mut Sleep>,
    ) -> Woken {
        self.make_room();
        // The alarm is moved only if it would be late. If it is early it is moved when it rings, so that a busy
        // connection does not set a timer for each command.
        let (deadline, _) = self.deadline();
        if deadline < alarm.deadline() {
            alarm.as_mut().reset(deadline);
            self.others_will_wake = false;
        }
        loop {
            // If the alarm rang while we were busy, it will not wake us again. (For the server's end, our caller has looked.)
            let mut need_no_asking = self.others_will_wake && !alarm.is_elapsed();
            let others_will_wake = &mut self.others_will_wake;
            let mut read = pin!(self.stream.read_buf(&mut self.buffer));
            let woken = poll_fn(|context| {
                if let Poll::Ready(read) = read.as_mut().poll(context) {
                    return Poll::Ready(Some(if matches!(read, Ok(1..)) {
                        Woken::Read
                    } else {
                        Woken::Gone
                    }));
                }
                // A busy client wakes us again and again, and the others have been asked already to wake us too. Only when
                // we are woken by something else is it one of them.
                if mem::take(&mut need_no_asking) {
                    return Poll::Pending;
                }
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Some(Woken::Stopping));
                }
                let rings = alarm.as_mut().poll(context);
                *others_will_wake = rings.is_pending();
                rings.map(|()| None)
            });
            if let Some(woken) = woken.await {
                return woken;
            }
            let (deadline, late) = self.deadline();
            if deadline <= Instant::now() {
                return Woken::Late(late);
            }
            alarm.as_mut().reset(deadline);
        }
    }

    /// The next moment at which something will be late.
    fn deadline(&self) -> (Instant, Late) {
        let limits = &self.service.limits;
        let silence = match self.began {
            Some(began) => Some((began + limits.request_timeout, Late::Request)),
            None if self.holds_much() => Some((self.active + QUIET, Late::Quiet)),
            None => None,
        };
        let idle = limits.idle_timeout.map(|timeout| (self.active + timeout, Late::Idle));
        let password = self.unknown.map(|since| (since + limits.handshake_timeout, Late::Password));
        let first = [silence, idle, password].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        first.unwrap_or((self.active + FAR, Late::Idle))
    }

    /// Answers all that has arrived in full, and sends the answers.
    async fn answer_and_flush(&mut self) -> Goes {
        let goes = self.answer().await;
        if goes == Goes::Gone || !self.flush().await {
            return Goes::Gone;
        }
        // The time for the rest of a command begins when its client has the replies to those before.
        if self.parser.used() < self.buffer.len() {
            self.began = self.began.or_else(|| Some(Instant::now()));
        }
        goes
    }

    async fn answer(&mut self) -> Goes {
        let mut now = Instant::now();
        self.active = now;
        loop {
            let mut more_came = false;
            let (bounds, most, unread_max) = self.bounds();
            let error = self.parser.parse(&mut self.buffer, most, &bounds).err();
            let found = self.parser.len();
            let mut answered = 0;
            while answered < found && !self.session.leaving {
                let rest = (&self.parser, self.buffer.as_slice(), answered);
                let Answered { commands: some, next_waits } =
                    handler::answer(rest, unread_max, &mut self.session, &mut self.replies, self.service)
                        .await;
                answered += some;
                let done = Instant::now();
                let questions = u64::try_from(some).unwrap_or(u64::MAX);
                self.service.metrics.answered(Protocol::Resp, questions, done - now);
                now = done;
                // A client does not wait for the next trip to a shared store to have the answers of this one.
                let is_slow = next_waits || self.service.engine.is_shared();
                if self.replies.bytes().len() >= unread_max || is_slow {
                    if !self.flush().await {
                        return Goes::Gone;
                    }
                    now = Instant::now();
                }
                if next_waits {
                    // Most connections never wait like this, and hold no room for it.
                    let came = Box::pin(self.wait_for_lease(answered)).await;
                    let Some(came) = came else { return Goes::Gone };
                    more_came |= came;
                    answered += 1;
                    // Standing in line is no work of ours.
                    self.service.metrics.answered(Protocol::Resp, 1, Duration::ZERO);
                    now = Instant::now();
                    self.active = now;
                }
            }
            self.parser.forget();
            if more_came {
                // Else a client that sends on while it waits, again and again, would be held from its first byte on.
                self.drop_answered();
            }
            self.unknown = if self.session.authenticated { None } else { self.unknown.or(Some(now)) };
            if self.session.leaving {
                return Goes::Closing;
            }
            // Looked at here too: a client that always has more to say would never let us wait.
            if self.unknown.is_some_and(|since| now >= since + self.service.limits.handshake_timeout) {
                return self.protocol_error(Late::Password).await;
            }
            if self.session.wrong_passwords >= WRONG_PASSWORDS_MAX {
                return self
                    .protocol_error("too many wrong passwords; connect anew with the right one")
                    .await;
            }
            if let Some(error) = error {
                return self.protocol_error(error).await;
            }
            if found > 0 || self.parser.used() == self.buffer.len() {
                self.began = None;
            }
            if found < most && !more_came {
                return Goes::On;
            }
        }
    }

    /// What the client may send now, in all and at once, and how many bytes of replies may wait for it. Who has not said
    /// the password is answered one by one: the bounds may be others after each command.
    fn bounds(&self) -> (Bounds, usize, usize) {
        let limits = &self.service.limits;
        if !self.session.authenticated {
            return (UNKNOWN_BOUNDS, 1, UNKNOWN_UNREAD_MAX.min(limits.unread_replies_max));
        }
        let known = Bounds {
            arguments: limits.arguments_max,
            bulk_len: limits.bulk_len_max,
            command_len: limits.command_len_max,
        };
        (known, BATCH_MAX, limits.unread_replies_max)
    }

    /// Says what was wrong. Nobody knows where the next command would begin, so it was the last.
    async fn protocol_error(&mut self, error: impl fmt::Display) -> Goes {
        self.service.metrics.protocol_error(Protocol::Resp);
        if let Some(unsaid) = PROTOCOL_ERROR.say() {
            debug!(peer = %self.peer, unsaid, "a RESP client is closed for a protocol error: {error}");
        }
        self.replies.error(&format!("ERR Protocol error: {error}"));
        if self.flush().await { Goes::Closing } else { Goes::Gone }
    }

    /// The server stops: what has arrived is answered.
    async fn stop(mut self) {
        let now = Instant::now();
        self.sends_until.get_or_insert(now + self.service.limits.unread_timeout);
        let end = now + LAST_ANSWERS;
        while Instant::now() < end {
            self.make_room();
            let Ok(Ok(1..)) = timeout(ARRIVED, self.stream.read_buf(&mut self.buffer)).await else { break };
            match self.answer_and_flush().await {
                Goes::On => {}
                Goes::Closing => return self.linger().await,
                Goes::Gone => return,
            }
        }
        if self.active.elapsed() < LINGER {
            return self.linger().await;
        }
        // It has had longer than that to read its replies.
        let _ = timeout(LINGER, self.stream.shutdown()).await;
    }
}

#[cfg(test)]
mod tests;
