//! A plain client: one command, one reply, both complete before the next.

use super::replies::Replies;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection that waits for each reply.
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A reply, as far as the measurements look at it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Numbers(Vec<i64>),
    Error(String),
    Other(String),
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(Client { stream, read: Vec::new() })
    }

    pub fn call(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.stream.write_all(&command(words))?;
        self.read.clear();
        let mut replies = Replies::default();
        let mut chunk = [0; 4096];
        while replies.complete == 0 {
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(&chunk[..count]);
            replies.take(&chunk[..count]).map_err(io::Error::other)?;
        }
        Ok(understood(&self.read))
    }
}

/// A command as an array of strings.
pub fn command(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn understood(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    if let Some(error) = text.strip_prefix('-') {
        return Reply::Error(error.trim_end().to_owned());
    }
    let numbers = text.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok());
    match text.as_bytes().first() {
        Some(b'*' | b':') => Reply::Numbers(numbers.collect()),
        _ => Reply::Other(text.trim_end().to_owned()),
    }
}
