//! The loop of one connection: read what there is, answer all of it, write once.
//!
//! Everything has a bound. What is read is bounded by the longest command, as nothing more is read before what is there has
//! been answered; replies by `unread_replies_max` and one reply, as nothing more is answered before they have been sent.
//! Memory that a burst needed is given back when the client falls silent.

use super::codec::{Bounds, Parser, Replies};
use super::handler::{self, Answered};
use super::session::Session;
use crate::auth::PASSWORD_LEN_MAX;
use crate::hang_up::{HangUp, Lookout};
use crate::log::Seldom;
use crate::metrics::Protocol;
use crate::service::Service;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use tracing::debug;

/// So much is held for a client that is silent: enough for what most send at once.
const READ_LEN_MIN: usize = 1024;
/// A client that fills what we read with is read in larger pieces, up to this.
const READ_LEN_MAX: usize = 64 * 1024;
/// While a client waits in line for a lease, it is read on until so much of it waits too, to notice at once that it leaves.
const READ_AHEAD_MAX: usize = 64 * 1024;
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

impl<'s, S: AsyncRead + AsyncWrite + HangUp + Unpin> Connection<'s, S> {
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
                    let came = Box::pin(self.wait_in_line(answered)).await;
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

    /// Answers a command that may wait in line for a lease. Those behind it wait too, as with Redis's `BLPOP`. When the
    /// server stops it is answered at once. Whether the client has sent more meanwhile; `None` if it has left.
    async fn wait_in_line(&mut self, place: usize) -> Option<bool> {
        let Connection { stream, service, session, buffer, parser, replies, .. } = self;
        let mut ahead = Vec::new();
        if let Some(command) = parser.get(buffer, place) {
            let line = handler::wait_in_line(command, session, replies, service);
            // What was read together with the command is bounded by itself.
            let most = (READ_AHEAD_MAX + parser.used()).saturating_sub(buffer.len());
            let is_answered = tokio::select! {
                biased;
                () = service.stopped() => false,
                // First: who has left has no use for a place that has just become free.
                () = gone(stream, &mut ahead, most) => return None,
                () = line => true,
            };
            if !is_answered {
                handler::answer_without_waiting(command, session, replies, service).await;
            }
        }
        let came = !ahead.is_empty();
        // Not twice as much as is needed: the client says how much that is.
        buffer.reserve_exact(ahead.len());
        buffer.append(&mut ahead);
        Some(came)
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

    /// Sends the replies that wait. Whether the client took them.
    async fn flush(&mut self) -> bool {
        let replies = self.replies.bytes();
        if replies.is_empty() {
            return true;
        }
        // Nearly always the system takes all of it at once; then no timer is set.
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
        self.session.owed.wrote(written);
        took_all
    }

    /// Sends the rest of the replies to a client that is slow to take them: it has to take some in `unread_timeout`, and
    /// all in a few times that. Who has not said the password has no longer than for the password; and when the server
    /// stops, everybody has `unread_timeout` from then on. `written`: how much the client has been sent.
    async fn flush_slowly(&mut self, written: &mut usize) -> bool {
        let (service, limits) = (self.service, &self.service.limits);
        let patience = limits.unread_timeout;
        let overall = limits.answer_timeout().min(FAR);
        let password = self.unknown.map(|since| since + limits.handshake_timeout);
        let mut end =
            [password, self.sends_until].into_iter().flatten().fold(Instant::now() + overall, Instant::min);
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
                taken = timeout_at(end.min(Instant::now() + patience), write) => match taken {
                    Ok(Ok(0)) => {
                        self.active = Instant::now();
                        return rest.is_empty();
                    }
                    Ok(Ok(some)) => *written += some,
                    _ => return false,
                },
                () = stop.as_mut(), if self.sends_until.is_none() => {
                    end = end.min(*self.sends_until.insert(Instant::now() + patience));
                }
            }
        }
    }

    /// Makes room to read into. The buffer grows with what has arrived, never with what was announced.
    fn make_room(&mut self) {
        let was_filled = self.buffer.len() == self.buffer.capacity();
        self.drop_answered();
        let wanted = match self.buffer.capacity() {
            0 => READ_LEN_MIN,
            held if was_filled && held < READ_LEN_MAX => held * 4,
            held if self.buffer.len() == held => held * 2,
            _ => return,
        };
        self.buffer.reserve_exact(wanted - self.buffer.len());
    }

    /// Lets go of the bytes of commands that are answered.
    fn drop_answered(&mut self) {
        self.buffer.drain(..self.parser.used());
        self.parser.removed();
    }

    /// Whether there is memory that a silent client does not need.
    fn holds_much(&self) -> bool {
        self.buffer.capacity().max(self.replies.held()).max(self.parser.held()) > READ_LEN_MIN
    }

    /// Gives back what a burst has needed. (Nothing is being read: a begun command has another deadline.)
    fn shrink(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(READ_LEN_MIN);
        self.parser.shrink();
        self.replies.shrink();
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

    /// Says that nothing more will come, and lets the client read to the end.
    async fn linger(mut self) {
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

/// Comes back when the client has left. What it sends before is kept; when that is `most`, the system is asked now and then.
async fn gone(stream: &mut (impl AsyncRead + HangUp + Unpin), ahead: &mut Vec<u8>, most: usize) {
    while ahead.len() < most {
        let room = READ_LEN_MIN.min(most - ahead.len());
        ahead.reserve(room);
        if !matches!((&mut *stream).take(room as u64).read_buf(ahead).await, Ok(1..)) {
            return;
        }
    }
    let mut lookout = Lookout::default();
    poll_fn(|context| lookout.poll(stream, context)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Password;
    use crate::client_limits::ClientLimits;
    use crate::engine::Target;
    use crate::service::testing::{leases, service, with_exports};
    use std::net::{IpAddr, Ipv4Addr};

    const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    const ACME: Target<'_> = Target { rule: "exports", key: b"acme" };

    /// How many bytes a client gets that asks this and takes a byte every 10 ms, until it is closed. `first`: what is done
    /// when it has taken one.
    async fn taken_slowly(service: &Service, question: &[u8], first: impl FnOnce()) -> usize {
        let (server, mut client) = tokio::io::duplex(16);
        let read = async {
            client.write_all(question).await.unwrap();
            client.read_u8().await.unwrap();
            first();
            let mut taken = 1;
            while taken < 1_000 && client.read_u8().await.is_ok() {
                taken += 1;
                sleep(Duration::from_millis(10)).await;
            }
            drop(client);
            taken
        };
        tokio::join!(read, Connection::new(server, NOBODY, service).run()).0
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_byte_now_and_then_holds_no_place() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, of_short) = service(short, None);
        let taken = taken_slowly(&of_short, b"COMMAND\r\n", || {}).await;
        assert!(taken < 100, "{taken} bytes in 6 times 100 ms");
        let short = ClientLimits { handshake_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, guarded) = service(short, Password::new(b"sesame").ok());
        let taken = taken_slowly(&guarded, b"HELLO 3\r\n", || {}).await;
        assert!(taken < 50, "{taken} bytes in 100 ms for the password");
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_byte_now_and_then_does_not_keep_the_server_from_stopping() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (stop, service) = service(short, None);
        let taken = taken_slowly(&service, b"COMMAND\r\n", || stop.send(true).unwrap()).await;
        assert!(taken < 50, "{taken} bytes in 100 ms after the stop");
    }

    #[tokio::test]
    async fn when_the_server_stops_nothing_that_is_sent_meanwhile_takes_back_the_last_replies() {
        let (stop, service) = service(ClientLimits::default(), None);
        let (server, mut client) = tokio::io::duplex(1024);
        let speak = async {
            client.write_all(b"PING\r\n").await.unwrap();
            client.read_u8().await.unwrap();
            stop.send(true).unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"PONG\r\n");
            // What nobody reads, or comes after the close, is answered by the system with a reset, which takes back
            // replies that are still on their way.
            client.write_all(b"PING\r\n").await.expect("it is read until the client leaves");
            drop(client);
        };
        tokio::join!(speak, Connection::new(server, NOBODY, &service).run());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_its_client_could_not_be_sent_is_given_back() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        // The reply does not fit into what the system would hold for the client.
        let (server, mut client) = tokio::io::duplex(16);
        let speak = async {
            for part in b"RL.ACQUIRE exports acme\r\n".chunks(8) {
                client.write_all(part).await.unwrap();
            }
            while leases(&service).0 == 0 {
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        tokio::join!(speak, Connection::new(server, NOBODY, &service).run());
        assert_eq!(leases(&service), (1, 1, 0, 0));
        // And that of one who reads none of it, and stays.
        let (server, mut client) = tokio::io::duplex(32);
        let speak = async {
            client.write_all(b"RL.ACQUIRE exports acme\r\n").await.unwrap();
            client
        };
        let (_client, ()) = tokio::join!(speak, Connection::new(server, NOBODY, &service).run());
        assert_eq!(leases(&service), (2, 2, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_reply_was_sent_is_its_clients_though_others_behind_it_could_not_be() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(256);
        let speak = async {
            // The reply in the middle is longer than what the system would hold for the client.
            let pipeline = b"RL.ACQUIRE exports acme\r\nCOMMAND\r\nRL.ACQUIRE exports other\r\n";
            client.write_all(pipeline).await.unwrap();
            let mut first = [0; 128];
            client.read_exact(&mut first).await.unwrap();
            client
        };
        let (_client, ()) = tokio::join!(speak, Connection::new(server, NOBODY, &service).run());
        assert_eq!(leases(&service), (2, 1, 1, 0));
        let now = service.engine.now();
        assert!(!service.engine.peek(ACME, 1, now).await.unwrap().allowed, "acme is at work");
    }

    #[tokio::test]
    async fn however_much_came_with_a_command_that_waits_it_is_noticed_that_its_client_leaves() {
        let (_stop, service) = service(ClientLimits::default(), None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(1024);
        let mut connection = Connection::new(server, NOBODY, &service);
        connection.buffer = b"PING\r\n".repeat(READ_LEN_MAX / 6);
        connection.buffer.extend(b"RL.ACQUIRE exports acme\r\nRL.ACQUIRE exports acme MAXWAIT 60000\r\n");
        let leave = async {
            let mut replies = vec![0; 1024];
            while leases(&service).3 == 0 {
                let _ = timeout(Duration::from_millis(1), client.read(&mut replies)).await;
            }
            drop(client);
        };
        let began = Instant::now();
        let ((), goes) = tokio::join!(leave, connection.answer_and_flush());
        assert_eq!((goes, leases(&service).3), (Goes::Gone, 0));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_client_that_sends_on_while_it_waits_again_and_again_is_not_held_from_its_first_byte_on() {
        const WAITS: &[u8] = b"RL.ACQUIRE exports acme MAXWAIT 60000\r\n";
        let (_stop, service) = service(ClientLimits::default(), None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(1024);
        let mut connection = Connection::new(server, NOBODY, &service);
        connection.buffer = [b"RL.ACQUIRE exports acme\r\n", WAITS].concat();
        let sends_on = async {
            for left in (0..100).rev() {
                while leases(&service).3 == 0 {
                    tokio::task::yield_now().await;
                }
                if left > 0 {
                    client.write_all(WAITS).await.unwrap();
                }
                // Its turn comes.
                service.engine.reset(ACME).await.unwrap();
                assert!(client.read(&mut [0; 1024]).await.unwrap() > 0, "it has its lease");
            }
        };
        let ((), goes) = tokio::join!(sends_on, connection.answer_and_flush());
        assert_eq!(goes, Goes::On);
        assert!(connection.buffer.len() <= 2 * WAITS.len(), "{} bytes are held", connection.buffer.len());
    }

    #[tokio::test]
    async fn while_a_client_waits_in_line_it_is_read_ahead_and_not_without_end() {
        let (_stop, service) = service(ClientLimits::default(), None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(1024);
        let mut connection = Connection::new(server, NOBODY, &service);
        client
            .write_all(b"RL.ACQUIRE exports acme\r\nRL.ACQUIRE exports acme MAXWAIT 60000\r\n")
            .await
            .unwrap();
        let flood = async {
            let mut sent = 0;
            while leases(&service).3 == 0 {
                tokio::task::yield_now().await;
            }
            // Nobody else runs on this thread, so that one who was let run so often and reads nothing has read enough.
            let mut refused = 0;
            while refused < 100 {
                let written =
                    poll_fn(|context| Poll::Ready(Pin::new(&mut client).poll_write(context, &[b'x'; 512])));
                match written.await {
                    Poll::Ready(some) => (sent, refused) = (sent + some.unwrap(), 0),
                    Poll::Pending => refused += 1,
                }
                tokio::task::yield_now().await;
            }
            // Its turn comes.
            service.engine.reset(ACME).await.unwrap();
            sent
        };
        let answer = async {
            connection.make_room();
            connection.stream.read_buf(&mut connection.buffer).await.unwrap();
            let goes = connection.answer_and_flush().await;
            (goes, connection.buffer.len())
        };
        let (sent, (goes, held)) = tokio::join!(flood, answer);
        assert_eq!(goes, Goes::On);
        assert!(sent >= READ_AHEAD_MAX / 2 && held <= READ_AHEAD_MAX, "{sent} sent, {held} held");
    }

    #[tokio::test]
    async fn a_client_that_falls_silent_after_a_burst_holds_little() {
        let (_stop, service) = service(ClientLimits::default(), None);
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let mut connection = Connection::new(server, NOBODY, &service);
        client.write_all(&b"PING\r\n".repeat(20_000)).await.unwrap();
        let (mut taken, mut most) = (0, 0);
        while taken < 120_000 {
            connection.make_room();
            taken += connection.stream.read_buf(&mut connection.buffer).await.unwrap();
            assert_eq!(connection.answer_and_flush().await, Goes::On);
            most = most.max(connection.buffer.capacity());
        }
        assert!(most > 8 * READ_LEN_MIN, "a busy client is read in large pieces, not of {most}");
        assert_eq!(connection.deadline(), (connection.active + QUIET, Late::Quiet));
        connection.shrink();
        assert!(!connection.holds_much());
        assert!(
            connection.buffer.capacity() + connection.replies.held() + connection.parser.held()
                <= READ_LEN_MIN
        );
        assert_eq!(connection.deadline(), (connection.active + Duration::from_secs(300), Late::Idle));
    }
}
