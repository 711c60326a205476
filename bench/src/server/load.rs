//! The load generator: one thread, many connections, a closed loop. Each connection sends as many
//! commands as the pipeline is deep, in one write, and sends the next ones when all of those have
//! been answered.

use super::Outcome;
use super::replies::Replies;
use super::requests::Requests;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A server that has said nothing for so long has failed.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Connections to one server.
pub struct Load {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    read: Vec<u8>,
}

/// When to send no more.
#[derive(Clone, Copy)]
pub enum Until {
    Sent(u64),
    Passed(Duration),
}

/// The result of a run.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub replies: u64,
    pub errors: u64,
    /// Arrays whose first number is 1.
    pub ones: u64,
    pub took: Duration,
}

/// A connection, what it has yet to write and how far its replies are.
pub struct Connection {
    stream: TcpStream,
    pub replies: Replies,
    /// How many replies there are when nothing is under way.
    awaited: u64,
    out: Vec<u8>,
    written: usize,
}

impl Load {
    pub fn connect(address: SocketAddr, count: usize) -> Outcome<Load> {
        let broken = |error: io::Error| format!("{address}: {error}");
        let poll = Poll::new().map_err(broken)?;
        let mut connections = Vec::new();
        for place in 0..count {
            let mut connection = Connection::connect(address).map_err(broken)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut connection.stream, Token(place), interest).map_err(broken)?;
            connections.push(connection);
        }
        Ok(Load { poll, events: Events::with_capacity(1024), connections, read: vec![0; 64 * 1024] })
    }

    /// Sends until it is time to stop, and waits for the last reply.
    pub fn run(&mut self, requests: &mut dyn Requests, pipeline: usize, until: Until) -> Outcome<Tally> {
        let before = self.tally();
        let began = Instant::now();
        let mut sent = 0;
        let mut more = |connection: &mut Connection, now: Instant| {
            let count = match until {
                Until::Sent(most) => pipeline.min((most - sent) as usize),
                Until::Passed(time) if now - began < time => pipeline,
                Until::Passed(_) => 0,
            };
            sent += count as u64;
            connection.send(requests, count)
        };
        let mut open = 0;
        for connection in &mut self.connections {
            open += usize::from(more(connection, began).map_err(|error| error.to_string())?);
        }
        while open > 0 {
            self.poll.poll(&mut self.events, Some(SILENCE_MAX)).map_err(|error| error.to_string())?;
            if self.events.is_empty() {
                return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
            }
            let now = Instant::now();
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                if connection.idle() {
                    continue;
                }
                if event.is_writable() {
                    connection.write().map_err(|error| error.to_string())?;
                }
                if event.is_readable() {
                    connection.read(&mut self.read)?;
                }
                if connection.idle() && !more(connection, now).map_err(|error| error.to_string())? {
                    open -= 1;
                }
            }
        }
        let after = self.tally();
        Ok(Tally {
            replies: after.replies - before.replies,
            errors: after.errors - before.errors,
            ones: after.ones - before.ones,
            took: began.elapsed(),
        })
    }

    fn tally(&self) -> Tally {
        let replies = || self.connections.iter().map(|connection| &connection.replies);
        Tally {
            replies: replies().map(|replies| replies.complete).sum(),
            errors: replies().map(|replies| replies.errors).sum(),
            ones: replies().map(|replies| replies.ones).sum(),
            took: Duration::ZERO,
        }
    }

    /// What an open loop needs: it sends by the clock, not by the replies.
    pub fn parts(&mut self) -> (&mut Poll, &mut Events, &mut [Connection], &mut [u8]) {
        (&mut self.poll, &mut self.events, &mut self.connections, &mut self.read)
    }
}

impl Connection {
    fn connect(address: SocketAddr) -> io::Result<Connection> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Connection { stream, replies: Replies::default(), awaited: 0, out: Vec::new(), written: 0 })
    }

    /// Sends this many commands. Returns `true` if it sent any.
    pub fn send(&mut self, requests: &mut dyn Requests, count: usize) -> io::Result<bool> {
        if count == 0 {
            return Ok(false);
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        requests.next(count, &mut self.out);
        self.awaited += count as u64;
        self.write()?;
        Ok(true)
    }

    pub fn write(&mut self) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Outcome<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(count) => {
                    self.replies.take(&buffer[..count])?;
                    // Less than there was room for: there was no more, and asking would only cost.
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Returns `true` if everything that was sent has been answered.
    pub fn idle(&self) -> bool {
        self.replies.complete == self.awaited
    }
}
