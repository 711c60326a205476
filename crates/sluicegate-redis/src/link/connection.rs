//! One connection to one server: how it is made, and whether the server is one that can be used.

use super::address::Place;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, ServerError, Value,
};
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a try to connect may take, with TLS, login and the first questions.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The first version whose scripts can say beforehand that they write.
const VERSION_MIN: (u32, u32) = (7, 0);
/// Commands that may wait for the connection's task. Beyond it, callers wait for a place.
const COMMANDS_WAITING_MAX: usize = 1024;

/// Why a server is not in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// It does not answer, or not yet.
    Unreachable(String),
    /// It answers, and will not do: too old, a replica, a wrong password.
    Unfit(String),
    /// It is a node of a cluster, and was taken for a server of its own.
    IsCluster,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(why) | Trouble::Unfit(why) => f.write_str(why),
            Trouble::IsCluster => {
                f.write_str("it is a node of a cluster, whose other nodes are being looked up")
            }
        }
    }
}

/// What a server has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A master that is no part of a cluster.
    Alone,
    /// Likewise, and the sentinels say that it is one; they may be a moment behind.
    Master,
    /// A part of a cluster; the table of slots says what it has.
    OfCluster,
}

/// What is needed to connect, but for the place.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: Option<TlsConnector>,
}

/// A connection, which ends with this value.
pub(crate) struct Connection {
    pub(crate) connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Dialer {
    /// Connects. Bounded by nothing: [`CONNECT_TIMEOUT`] is for the whole of what the caller does.
    pub(crate) async fn dial(&self, place: &Place) -> Result<Connection, Trouble> {
        let unreachable = |error: std::io::Error| Trouble::Unreachable(format!("{place}: {error}"));
        match place {
            Place::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
                // A call is one small write that somebody waits for.
                stream.set_nodelay(true).map_err(unreachable)?;
                let Some(tls) = &self.tls else { return self.open(place, stream).await };
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    Trouble::Unfit(format!("{place}: the host is no name that TLS can check"))
                })?;
                let stream = tls.connect(name, stream).await;
                self.open(
                    place,
                    stream.map_err(|error| Trouble::Unreachable(format!("{place}: TLS: {error}")))?,
                )
                .await
            }
            #[cfg(unix)]
            Place::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(unreachable)?;
                self.open(place, stream).await
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(Trouble::Unfit(format!("{place}: this system has no Unix sockets"))),
        }
    }

    async fn open<S>(&self, place: &Place, stream: S) -> Result<Connection, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Deadlines are ours, around every use: the client's own do not hold everywhere.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(COMMANDS_WAITING_MAX);
        let made = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (connection, driver) = made.map_err(|error| trouble_at(place, &error))?;
        Ok(Connection { connection, driver: tokio::spawn(driver) })
    }
}

impl Connection {
    /// Comes back when the connection has ended.
    pub(crate) async fn ended(&mut self) {
        // An error says that the task was stopped, which is an end as well.
        let _ = (&mut self.driver).await;
    }

    /// Tells whether the connection has ended, for as long as anybody asks.
    pub(crate) fn pulse(&self) -> AbortHandle {
        self.driver.abort_handle()
    }

    /// Whether the server works as the part that it has to be, and is new enough.
    pub(crate) async fn examine(&self, place: &Place, part: Part) -> Result<(), Trouble> {
        let mut questions = Pipeline::new();
        for section in ["server", "replication", "cluster"] {
            questions.cmd("INFO").arg(section);
        }
        let replies = self.ask(place, &mut questions, part).await?;
        let mut facts = String::new();
        for reply in &replies {
            match reply {
                Value::ServerError(error) => return Err(denial(place, error)),
                reply => facts += &text(reply).unwrap_or_default(),
            }
        }
        judge(place, &facts, part)
    }

    /// Whether the server does its work at the moment.
    pub(crate) async fn probe(&self, place: &Place, part: Part) -> Result<(), Trouble> {
        self.ask(place, &mut Pipeline::new(), part).await.map(|_| ())
    }

    /// Asks something, and whether the server is ready.
    async fn ask(&self, place: &Place, questions: &mut Pipeline, part: Part) -> Result<Vec<Value>, Trouble> {
        let count = questions.len();
        questions.cmd("PING");
        if part == Part::OfCluster {
            questions.cmd("CLUSTER").arg("INFO");
        }
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(questions, 0, questions.len()).await;
        let mut replies = replies.map_err(|error| trouble_at(place, &error))?;
        let ready = replies.split_off(count.min(replies.len()));
        // An answer to the questions comes first: that there is no permission is more than not ready.
        if let Some(Value::ServerError(error)) = replies.first() {
            return Err(denial(place, error));
        }
        for reply in &ready {
            if let Value::ServerError(error) = reply {
                return Err(denial(place, error));
            }
        }
        // PING answers in a cluster that serves nobody, so the state is asked for.
        let state = ready.get(1).and_then(text).unwrap_or_default();
        match fact(&state, "cluster_state") {
            Some(state) if state != "ok" => {
                Err(Trouble::Unreachable(format!("{place}: CLUSTERDOWN the cluster's state is {state}")))
            }
            _ => Ok(replies),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Does something to connect, within the time for it.
pub(crate) async fn in_time<T>(
    place: &Place,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    match timeout(CONNECT_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(Trouble::Unreachable(format!("{place}: no answer within {CONNECT_TIMEOUT:?}"))),
    }
}

/// Compares what a server says of itself with what it has to be.
fn judge(place: &Place, facts: &str, part: Part) -> Result<(), Trouble> {
    let version = fact(facts, "redis_version").unwrap_or("unknown");
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < VERSION_MIN {
        let (major, minor) = VERSION_MIN;
        return Err(Trouble::Unfit(format!(
            "{place} is version {version} of Redis; needed is {major}.{minor} or later, or Valkey"
        )));
    }
    if part == Part::OfCluster {
        return Ok(());
    }
    if fact(facts, "cluster_enabled") == Some("1") {
        return Err(Trouble::IsCluster);
    }
    match fact(facts, "role") {
        Some("master") => Ok(()),
        _ if part == Part::Master => Err(Trouble::Unreachable(format!(
            "{place} is a replica, though the sentinels call it the master"
        ))),
        _ => Err(Trouble::Unfit(format!(
            "{place} is a replica, which cannot count; connect to its master, or by redis+sentinel://"
        ))),
    }
}

/// The value in a line `name:value`.
fn fact<'a>(facts: &'a str, name: &str) -> Option<&'a str> {
    facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The text of a reply that is one.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// What the server said, as it said it.
pub(crate) fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// A denial that passes by itself is not one that a change of settings would cure.
pub(crate) fn denial(place: &Place, error: &ServerError) -> Trouble {
    let said = format!("{place}: {}", words(error));
    match error.code() {
        "LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" => Trouble::Unreachable(said),
        _ => Trouble::Unfit(said),
    }
}

fn trouble_at(place: &Place, error: &RedisError) -> Trouble {
    let said = format!("{place}: {error}");
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::Parse => {
            // Redis logs nobody in while it loads its data.
            if said.contains("LOADING") { Trouble::Unreachable(said) } else { Trouble::Unfit(said) }
        }
        _ => Trouble::Unreachable(said),
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Place, Trouble, judge};

    fn judged(facts: &str, part: Part) -> Result<(), Trouble> {
        judge(&Place::Tcp { host: "h".to_owned(), port: 1 }, facts, part)
    }

    #[test]
    fn an_old_server_is_unfit_and_the_message_has_both_versions() {
        for (version, fit) in
            [("6.2.14", false), ("7.0.0", true), ("7.2.4", true), ("10.0.0", true), ("", false)]
        {
            let facts =
                format!("# Server\r\nredis_version:{version}\r\nrole:master\r\ncluster_enabled:0\r\n");
            assert_eq!(judged(&facts, Part::Alone).is_ok(), fit, "{version}");
        }
        let error = judged("redis_version:6.2.14\r\n", Part::Alone).unwrap_err().to_string();
        assert!(error.contains("6.2.14") && error.contains("7.0"), "{error}");
    }

    #[test]
    fn a_replica_and_a_node_of_a_cluster_are_no_servers_of_their_own() {
        let replica = "redis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:0\r\n";
        assert!(matches!(judged(replica, Part::Alone), Err(Trouble::Unfit(why)) if why.contains("replica")));
        let node = "redis_version:7.0.1\r\nrole:master\r\ncluster_enabled:1\r\n";
        assert_eq!(judged(node, Part::Alone), Err(Trouble::IsCluster));
        assert_eq!(judged(node, Part::OfCluster), Ok(()));
    }
}
