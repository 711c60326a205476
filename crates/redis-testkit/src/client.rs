//! A minimal client for tests.

use crate::wait::WAIT_MAX;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// A connection to a server, one command at a time.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// A server's reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A simple or bulk string.
    Text(String),
    /// An error: `-ERR ...`.
    Error(String),
    /// An integer: `:1`.
    Number(i64),
    /// Null.
    Nil,
    /// An array.
    Many(Vec<Reply>),
}

impl Client {
    /// Connects to a port on this machine.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), WAIT_MAX)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a command and waits for the reply, which may be an error of the server.
    ///
    /// # Errors
    /// If the connection breaks, or no reply arrives.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.stream.get_mut().write_all(&bytes)?;
        self.read()
    }

    /// Sends commands in one pipeline and waits for all replies.
    ///
    /// # Errors
    /// If the connection breaks, or a reply does not arrive.
    pub fn ask_all(&mut self, commands: &[impl AsRef<[String]>]) -> io::Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        for words in commands {
            encode(words.as_ref(), &mut bytes);
        }
        self.stream.get_mut().write_all(&bytes)?;
        commands.iter().map(|_| self.read()).collect()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        let number = || rest.parse::<i64>().map_err(|_| io::Error::other(format!("no number: {line}")));
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(count) => Reply::Many((0..count).map(|_| self.read()).collect::<io::Result<_>>()?),
            },
            _ => return Err(io::Error::other(format!("not an answer: {line}"))),
        })
    }
}

/// Appends a command as an array of bulk strings.
fn encode(words: &[impl AsRef<[u8]>], to: &mut Vec<u8>) {
    to.extend(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        to.extend(format!("${}\r\n", word.len()).as_bytes());
        to.extend(word);
        to.extend(b"\r\n");
    }
}

impl Reply {
    /// The items of an array; empty for other replies.
    pub fn parts(&self) -> &[Reply] {
        match self {
            Reply::Many(parts) => parts,
            _ => &[],
        }
    }
}

/// As `redis-cli` prints it into a pipe: one line per item.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Text(text) | Reply::Error(text) => f.write_str(text),
            Reply::Number(number) => number.fmt(f),
            Reply::Nil => Ok(()),
            Reply::Many(parts) => {
                for (place, part) in parts.iter().enumerate() {
                    let between = if place == 0 { "" } else { "\n" };
                    write!(f, "{between}{part}")?;
                }
                Ok(())
            }
        }
    }
}
