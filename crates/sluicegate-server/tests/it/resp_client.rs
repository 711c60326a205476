//! A RESP client that sends and compares bytes, and its server.

use crate::running::{self, TEST_TIMEOUT};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate_server::engine::{Engine, Keys};
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::{Config, Server};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A server in the background of a test, which itself is a blocking client.
pub(crate) struct TestServer {
    runtime: Runtime,
    server: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
}

impl TestServer {
    pub(crate) fn start(config: Config) -> TestServer {
        TestServer::new(|runtime| runtime.block_on(running::start(config)))
    }

    pub(crate) fn start_at(config: Config, clock: &ManualClock) -> TestServer {
        TestServer::new(|runtime| runtime.block_on(running::start_at(config, clock)))
    }

    /// A server whose keys live there.
    pub(crate) fn with_keys(
        config: Config,
        clock: impl Clock + 'static,
        keys: impl AsyncFnOnce() -> Keys,
    ) -> TestServer {
        let start = async {
            let config = Config { keys: keys().await, ..config };
            Server::start(config, Arc::new(clock)).await.unwrap()
        };
        TestServer::new(|runtime| runtime.block_on(start))
    }

    fn new(start: impl FnOnce(&Runtime) -> Server) -> TestServer {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = start(&runtime);
        let (address, engine) =
            (server.address(Protocol::Resp).unwrap(), Arc::clone(&server.service().engine));
        TestServer { runtime, server: Some(server), address, engine }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn stop(mut self) {
        let server = self.server.take().unwrap();
        self.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, server.stop()).await.unwrap() });
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    arrived: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: impl ToSocketAddrs) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Client { stream, arrived: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// The next reply, as received.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(len) = reply_len(&self.arrived) {
                return self.arrived.drain(..len).collect();
            }
            let mut some = [0; 16 * 1024];
            match self.stream.read(&mut some).unwrap() {
                0 => panic!("closed after {}", self.arrived.escape_ascii()),
                read => self.arrived.extend_from_slice(&some[..read]),
            }
        }
    }

    /// The next reply with `|` for each line end.
    pub(crate) fn shown(&mut self) -> String {
        shown(&self.reply())
    }

    /// Sends an inline command and shows the reply.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.shown()
    }

    /// Sends the words of a line as an array, and shows the reply.
    pub(crate) fn ask_words(&mut self, line: &str) -> String {
        let words = words(line);
        self.send(array(&words.iter().map(String::as_bytes).collect::<Vec<_>>()));
        self.shown()
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.arrived);
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                rest.extend_from_slice(b"(reset)");
            }
            Err(error) => panic!("{error} after {}", rest.escape_ascii()),
        }
        shown(&rest)
    }
}

/// Bytes as tables write them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

/// A command as clients send it.
pub(crate) fn array(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The words of a line; a word with spaces is in double quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The length of the first reply in these bytes, if it is complete.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    let items = match bytes[0] {
        b'+' | b'-' | b':' | b'_' => 0,
        b'$' if number() < 0 => 0,
        b'$' => {
            let end = end + usize::try_from(number()).unwrap() + 2;
            return (bytes.len() >= end).then_some(end);
        }
        b'*' => number(),
        b'%' => number() * 2,
        _ => panic!("this is not a reply: {}", bytes.escape_ascii()),
    };
    (0..items).try_fold(end, |end, _| Some(end + reply_len(&bytes[end..])?))
}
