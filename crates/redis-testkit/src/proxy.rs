//! A proxy that breaks connections in many ways.

use crate::ports;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A proxy in front of a server. Its behaviour can be changed at any time, also for open
/// connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch")]
struct State {
    target: u16,
    closed: bool,
    held: bool,
    refuses: bool,
    loses_replies: bool,
    delay: Duration,
    /// Forward this many more bytes of replies, then cut the connection that has the next one.
    cut_after: Option<u64>,
    cuts: u64,
    request_bytes: u64,
    reply_bytes: u64,
    accepted: u64,
    /// Both ends of each open connection.
    open: Vec<(u64, TcpStream, TcpStream)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

impl Proxy {
    /// Starts a proxy in front of a port on this machine. It forwards everything at first.
    pub fn start(target: u16) -> Proxy {
        let (port, listener) = ports::listen();
        let state = Mutex::new(State { target, ..State::default() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Proxy { port, shared }
    }

    /// The proxy's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL, for a server without a password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends new connections to another port.
    pub fn send_to(&self, target: u16) {
        self.set(|state| state.target = target);
    }

    /// Forwards `reply_bytes` more bytes of replies, then cuts the connection that has the next
    /// one, at both ends. After that everything is forwarded again.
    pub fn cut_after(&self, reply_bytes: u64) {
        self.set(|state| state.cut_after = Some(reply_bytes));
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.set(|state| {
            for (_, client, server) in state.open.drain(..) {
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            }
        });
    }

    /// Discards replies while set: the server has executed the command, but the client gets no
    /// reply. When it is unset, connections are cut, so that no stream continues with a gap.
    pub fn lose_replies(&self, loses: bool) {
        if !loses {
            self.cut();
        }
        self.set(|state| state.loses_replies = loses);
    }

    /// Delays replies.
    pub fn delay(&self, delay: Duration) {
        self.set(|state| state.delay = delay);
    }

    /// Forwards nothing in either direction while set; new connections are only accepted.
    pub fn hold(&self, held: bool) {
        self.set(|state| state.held = held);
    }

    /// Closes new connections at once while set.
    pub fn refuse(&self, refuses: bool) {
        self.set(|state| state.refuses = refuses);
    }

    /// The number of connections that [`Proxy::cut_after`] has cut.
    pub fn cuts(&self) -> u64 {
        self.shared.state().cuts
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// The number of request bytes received.
    pub fn request_bytes(&self) -> u64 {
        self.shared.state().request_bytes
    }

    /// The number of reply bytes received from the server, forwarded or not.
    pub fn reply_bytes(&self) -> u64 {
        self.shared.state().reply_bytes
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(|state| state.closed = true);
        self.cut();
        // The accepting thread sees `closed` after its next connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, once nothing is held.
    fn going(&self) -> MutexGuard<'_, State> {
        let held = |state: &mut State| state.held && !state.closed;
        self.changed.wait_while(self.state(), held).unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        let target = {
            let mut state = shared.state();
            if state.closed {
                return;
            }
            state.accepted += 1;
            if state.refuses {
                continue;
            }
            state.target
        };
        // If the server is down, the client's connection is closed.
        if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) {
            let _ = join(&client, &server, shared);
        }
    }
}

fn join(client: &TcpStream, server: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let number = {
        let mut state = shared.state();
        let number = state.accepted;
        state.open.push((number, client.try_clone()?, server.try_clone()?));
        number
    };
    for direction in [Direction::Request, Direction::Reply] {
        let (mut from, mut to) = match direction {
            Direction::Request => (client.try_clone()?, server.try_clone()?),
            Direction::Reply => (server.try_clone()?, client.try_clone()?),
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = pass(&mut from, &mut to, direction, &shared);
            // When one direction ends, so does the other.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            shared.state().open.retain(|(open, ..)| *open != number);
        });
    }
    Ok(())
}

/// Forwards bytes until the connection ends or is cut.
fn pass(from: &mut TcpStream, to: &mut TcpStream, direction: Direction, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = from.read(&mut buffer)?;
        let bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = shared.going();
        if direction == Direction::Request {
            state.request_bytes += as_u64(count);
            drop(state);
            to.write_all(bytes)?;
            continue;
        }
        state.reply_bytes += as_u64(count);
        if state.loses_replies {
            continue;
        }
        let delay = state.delay;
        let cut = state.cut_after.filter(|&left| left < as_u64(count));
        state.cut_after = state.cut_after.and_then(|left| left.checked_sub(as_u64(count)));
        state.cuts += u64::from(cut.is_some());
        drop(state);
        thread::sleep(delay);
        match cut.and_then(|left| usize::try_from(left).ok()) {
            None => to.write_all(bytes)?,
            Some(left) => return to.write_all(&bytes[..left]),
        }
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
