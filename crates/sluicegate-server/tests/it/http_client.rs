//! An HTTP server in the background of a test, and its clients: `ureq` for valid requests, plain
//! bytes for invalid ones.

use crate::running::{self, TEST_TIMEOUT};
use redis_testkit::until;
use serde_json::Value;
use sluicegate::clock::ManualClock;
use sluicegate_server::engine::Keys;
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::{Config, Server};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use tokio::runtime::Runtime;
use ureq::Agent;
use ureq::http::HeaderMap;

/// A server, and a client that keeps its connection.
pub(crate) struct Serving {
    runtime: Runtime,
    server: Server,
    pub(crate) clock: ManualClock,
    agent: Agent,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The message of an error.
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        body["error"].as_str().unwrap().to_owned()
    }
}

impl Serving {
    /// A server whose clock the test sets.
    pub(crate) fn start(config: Config) -> Serving {
        Serving::with_keys(config, async || Keys::InMemory)
    }

    /// A server whose keys live there.
    pub(crate) fn with_keys(config: Config, keys: impl AsyncFnOnce() -> Keys) -> Serving {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock = ManualClock::default();
        let start = async { running::start_at(Config { keys: keys().await, ..config }, &clock).await };
        let server = runtime.block_on(start);
        let settings = Agent::config_builder().http_status_as_error(false).timeout_global(Some(TEST_TIMEOUT));
        Serving { runtime, server, clock, agent: settings.build().into() }
    }

    /// A server with rules of one limit each.
    pub(crate) fn with_rules(rules: &[(&str, &str)]) -> Serving {
        let rules = rules.iter().map(|(name, limit)| running::rule(name, &[limit])).collect();
        Serving::start(Config { rules, ..running::config() })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address(Protocol::Http).unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        reply(self.agent.get(self.url(path)).call().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        reply(self.agent.post(self.url(path)).content_type("application/json").send(body).unwrap())
    }

    /// A raw connection.
    pub(crate) fn connect(&self) -> Raw {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream }
    }

    /// Everything the server sends for these bytes until it closes.
    pub(crate) fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut raw = self.connect();
        raw.send(bytes);
        raw.until_closed()
    }

    /// Waits until this many protocol errors are counted. A connection is counted when it has
    /// ended, which may be a little after its client saw it close.
    pub(crate) fn counts_protocol_errors(&self, expected: u64) {
        until("they are counted", || self.protocol_errors() >= expected);
        assert_eq!(self.protocol_errors(), expected);
    }

    fn protocol_errors(&self) -> u64 {
        let service = self.server.service();
        let text = service.metrics.render(&service.engine);
        let line = "sluice_protocol_errors_total{protocol=\"http\"} ";
        text.lines().find_map(|text| text.strip_prefix(line)).unwrap().parse().unwrap()
    }

    /// Stops the server, and returns a handle to wait for it.
    pub(crate) fn stop(self) -> Stopping {
        let stopped = self.runtime.spawn(self.server.stop());
        Stopping { runtime: self.runtime, stopped }
    }
}

/// A server that is stopping.
pub(crate) struct Stopping {
    runtime: Runtime,
    stopped: tokio::task::JoinHandle<()>,
}

impl Stopping {
    /// Waits until it has stopped.
    pub(crate) fn wait(self) {
        let waited = self.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, self.stopped).await });
        waited.expect("the server does not stop").unwrap();
    }
}

fn reply(mut response: ureq::http::Response<ureq::Body>) -> Reply {
    let text = response.body_mut().read_to_string().unwrap();
    Reply { status: response.status().as_u16(), headers: response.headers().clone(), text }
}

/// A socket.
pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The server may have closed the connection already.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Returns `true` if all bytes could be sent; not if the server has closed.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        self.stream.write_all(bytes).is_ok()
    }

    /// A second handle to the socket, to send while this one reads.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Everything until the server closes.
    pub(crate) fn until_closed(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => panic!("reset after {bytes:?}"),
            Err(error) => panic!("the server does not close: {error}"),
        }
        String::from_utf8(bytes).unwrap()
    }

    /// The next response, whose body has a length.
    pub(crate) fn answer(&mut self) -> (u16, String) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// A request with a JSON body, as bytes.
pub(crate) fn posted(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
