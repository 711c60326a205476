//! A connection that can be broken in many ways.

use crate::ports;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A proxy in front of a server. What it does to connections can be changed at any time, for those that are open too.
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
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct State {
    target: u16,
    closed: bool,
    held: bool,
    refuses: bool,
    loses_replies: bool,
    delay: Duration,
    /// Hand on so many bytes of replies, then cut the connection that has more.
    cut_after: Option<u64>,
    cuts: u64,
    request_bytes: u64,
    reply_bytes: u64,
    accepted: u64,
    /// Both ends of each open connection, to be cut.
    open: Vec<(u64, TcpStream, TcpStream)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

impl Proxy {
    /// A proxy in front of a port of this machine, which does nothing to connections yet.
    pub fn start(target: u16) -> Proxy {
        let (port, listener) = ports::listen();
        let state = Mutex::new(State { target, ..State::default() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Proxy { port, shared }
    }

    /// Where clients find it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a server without a password behind it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// New connections go to another port.
    pub fn send_to(&self, target: u16) {
        self.set(|state| state.target = target);
    }

    /// From now on so many bytes of replies get through. The connection that has the next one is cut, at both ends, and all is well again.
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

    /// While this is set replies are thrown away: the server has done what it was asked, and nobody hears of it. When it ends,
    /// connections are cut: the rest of a stream never comes through without what was before it.
    pub fn lose_replies(&self, loses: bool) {
        if !loses {
            self.cut();
        }
        self.set(|state| state.loses_replies = loses);
    }

    /// Replies come so much later.
    pub fn delay(&self, delay: Duration) {
        self.set(|state| state.delay = delay);
    }

    /// While this is set nothing is handed on either way; new connections are accepted, and that is all.
    pub fn hold(&self, held: bool) {
        self.set(|state| state.held = held);
    }

    /// While this is set new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.set(|state| state.refuses = refuses);
    }

    /// How many connections [`Proxy::cut_after`] has cut.
    pub fn cuts(&self) -> u64 {
        self.shared.state().cuts
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// The bytes of requests that have come in.
    pub fn request_bytes(&self) -> u64 {
        self.shared.state().request_bytes
    }

    /// The bytes of replies that have come from the server, whether or not they were handed on.
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
        // The thread that accepts sees `closed` when it has accepted somebody.
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
        // If the server is down the client sees its connection close.
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
    for way in [Way::Request, Way::Reply] {
        let (mut from, mut to) = match way {
            Way::Request => (client.try_clone()?, server.try_clone()?),
            Way::Reply => (server.try_clone()?, client.try_clone()?),
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = pass(&mut from, &mut to, way, &shared);
            // Whichever way ends first ends the other.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            shared.state().open.retain(|(open, ..)| *open != number);
        });
    }
    Ok(())
}

/// Hands bytes on until the connection ends or is to be cut.
fn pass(from: &mut TcpStream, to: &mut TcpStream, way: Way, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = from.read(&mut buffer)?;
        let bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = shared.going();
        if way == Way::Request {
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
