//! The floor: a server in one thread that finds out where each command ends and answers all of them
//! alike. What takes longer than this is the work of the limiter; what this takes is the kernel's,
//! and reading RESP.

use super::Outcome;
use super::process::{Process, free_address};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// The argument that makes the program this server.
pub const CHILD: &str = "floor-at";

const REPLY: &[u8] = b"*5\r\n:0\r\n:10001\r\n:9900\r\n:-1\r\n:8640\r\n";
const LISTENER: Token = Token(usize::MAX);

pub fn start(core: Option<usize>) -> Outcome<Process> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let address = free_address();
    let arguments =
        [program.to_string_lossy().into_owned(), "server".to_owned(), CHILD.to_owned(), address.to_string()];
    Process::start("fixed reply", &arguments, address, core)
}

/// Serves until it is killed.
pub fn serve(address: SocketAddr) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::bind(address)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(connections.len()), interest)?;
                    connections.push(Some(Connection {
                        stream,
                        begun: Vec::new(),
                        out: Vec::new(),
                        written: 0,
                    }));
                }
                continue;
            }
            let place = &mut connections[event.token().0];
            if place.as_mut().is_some_and(|connection| connection.serve(&mut buffer).is_err()) {
                *place = None;
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// The beginning of a command whose end has not come yet.
    begun: Vec<u8>,
    out: Vec<u8>,
    written: usize,
}

impl Connection {
    fn serve(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.answer(&buffer[..count]);
                    if count < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    fn answer(&mut self, bytes: &[u8]) {
        if self.begun.is_empty() {
            let used = answered(bytes, &mut self.out);
            self.begun.extend_from_slice(&bytes[used..]);
        } else {
            self.begun.extend_from_slice(bytes);
            let used = answered(&self.begun, &mut self.out);
            self.begun.drain(..used);
        }
    }
}

/// Answers all whole commands, and says how many bytes those were.
fn answered(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut used = 0;
    while let Some(length) = command_length(&bytes[used..]) {
        out.extend_from_slice(REPLY);
        used += length;
    }
    used
}

fn command_length(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number_line(bytes, 0)?;
    for _ in 0..words {
        let (length, after) = number_line(bytes, at)?;
        at = after + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number of a line like `*5` or `$20`, and where the next line begins.
fn number_line(bytes: &[u8], begins: usize) -> Option<(usize, usize)> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().skip(begins + 1) {
        match byte {
            b'\r' => return Some((number, place + 2)),
            digit => number = number * 10 + usize::from(digit.wrapping_sub(b'0')),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{REPLY, answered};
    use crate::server::client::command;

    #[test]
    fn only_whole_commands_are_answered() {
        let one = command(&["CL.THROTTLE", "key", "15", "30", "60"]);
        let two = [one.clone(), one.clone()].concat();
        for cut in 0..=two.len() {
            let mut out = Vec::new();
            assert_eq!(answered(&two[..cut], &mut out), cut / one.len() * one.len());
            assert_eq!(out.len(), cut / one.len() * REPLY.len());
        }
    }
}
