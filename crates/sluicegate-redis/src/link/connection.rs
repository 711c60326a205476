//! One connection to one server: connecting, and verifying that the server is usable.

use super::address::Endpoint;
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

/// How long one attempt to connect may take, including TLS, login and the first commands.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The first version whose scripts can declare that they write.
const VERSION_MIN: (u32, u32) = (7, 0);
/// Commands that may be queued for the connection's task. Beyond it, callers wait.
const COMMANDS_WAITING_MAX: usize = 1024;

/// Why a server cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeError {
    /// The server does not answer, or not yet.
    Unreachable(String),
    /// The server answers but is unusable: too old, a replica, or a wrong password.
    Unfit(String),
    /// The server is a cluster node, but was taken for a standalone server.
    IsCluster,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Unreachable(why) | NodeError::Unfit(why) => f.write_str(why),
            NodeError::IsCluster => {
                f.write_str("it is a cluster node, and the other nodes are being looked up")
            }
        }
    }
}

/// The role that a server must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A master outside any cluster.
    Standalone,
    /// A master, according to the sentinels, which may be a moment behind.
    Master,
    /// A cluster node; the slot table says which slots it owns.
    ClusterNode,
}

/// Everything needed to connect except the endpoint.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: Option<TlsConnector>,
}

/// A connection, closed on drop.
pub(crate) struct NodeConnection {
    pub(crate) connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Dialer {
    /// Connects. It sets no timeout of its own: [`CONNECT_TIMEOUT`] covers everything that the
    /// caller does.
    pub(crate) async fn dial(&self, endpoint: &Endpoint) -> Result<NodeConnection, NodeError> {
        let unreachable = |error: std::io::Error| NodeError::Unreachable(format!("{endpoint}: {error}"));
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
                // A call is one small write, and its caller waits for the reply.
                stream.set_nodelay(true).map_err(unreachable)?;
                let Some(tls) = &self.tls else { return self.open(endpoint, stream).await };
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| NodeError::Unfit(format!("{endpoint}: TLS cannot verify this host name")))?;
                let stream = tls.connect(name, stream).await;
                self.open(
                    endpoint,
                    stream.map_err(|error| NodeError::Unreachable(format!("{endpoint}: TLS: {error}")))?,
                )
                .await
            }
            #[cfg(unix)]
            Endpoint::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(unreachable)?;
                self.open(endpoint, stream).await
            }
            #[cfg(not(unix))]
            Endpoint::Unix(_) => {
                Err(NodeError::Unfit(format!("{endpoint}: Unix sockets are not supported on this system")))
            }
        }
    }

    async fn open<S>(&self, endpoint: &Endpoint, stream: S) -> Result<NodeConnection, NodeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Every use has a deadline of our own: the client's do not apply everywhere.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(COMMANDS_WAITING_MAX);
        let made = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (connection, driver) = made.map_err(|error| error_at(endpoint, &error))?;
        Ok(NodeConnection { connection, driver: tokio::spawn(driver) })
    }
}

impl NodeConnection {
    /// Waits until the connection has ended.
    pub(crate) async fn ended(&mut self) {
        // An error means that the task was aborted, which ends the connection too.
        let _ = (&mut self.driver).await;
    }

    /// A handle that tells whether the connection has ended.
    pub(crate) fn driver(&self) -> AbortHandle {
        self.driver.abort_handle()
    }

    /// Verifies that the server has this role and is new enough.
    pub(crate) async fn verify(&self, endpoint: &Endpoint, role: Role) -> Result<(), NodeError> {
        let mut commands = info_commands(&["server", "replication", "cluster"]);
        let replies = self.send(endpoint, &mut commands, role).await?;
        let mut info = String::new();
        for reply in &replies {
            match reply {
                Value::ServerError(error) => return Err(rejection(endpoint, error)),
                reply => info += &text(reply).unwrap_or_default(),
            }
        }
        verify_info(endpoint, &info, role)
    }

    /// Verifies that the server is serving calls.
    pub(crate) async fn probe(&self, endpoint: &Endpoint, role: Role) -> Result<(), NodeError> {
        self.send(endpoint, &mut Pipeline::new(), role).await.map(|_| ())
    }

    /// Sends commands, and verifies that the server is ready.
    async fn send(
        &self,
        endpoint: &Endpoint,
        commands: &mut Pipeline,
        role: Role,
    ) -> Result<Vec<Value>, NodeError> {
        let count = commands.len();
        commands.cmd("PING");
        if role == Role::ClusterNode {
            commands.cmd("CLUSTER").arg("INFO");
        }
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(commands, 0, commands.len()).await;
        let mut replies = replies.map_err(|error| error_at(endpoint, &error))?;
        let ready = replies.split_off(count.min(replies.len()));
        // Errors of the commands take precedence: "no permission" says more than "not ready".
        if let Some(Value::ServerError(error)) = replies.first() {
            return Err(rejection(endpoint, error));
        }
        for reply in &ready {
            if let Value::ServerError(error) = reply {
                return Err(rejection(endpoint, error));
            }
        }
        // PING succeeds even when the cluster is down, so its state is checked.
        let state = ready.get(1).and_then(text).unwrap_or_default();
        match info_field(&state, "cluster_state") {
            Some(state) if state != "ok" => {
                Err(NodeError::Unreachable(format!("{endpoint}: CLUSTERDOWN the cluster state is {state}")))
            }
            _ => Ok(replies),
        }
    }
}

impl Drop for NodeConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Runs a step of connecting within [`CONNECT_TIMEOUT`].
pub(crate) async fn in_time<T>(
    endpoint: &Endpoint,
    work: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    match timeout(CONNECT_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(NodeError::Unreachable(format!("{endpoint}: no answer within {CONNECT_TIMEOUT:?}"))),
    }
}

/// Verifies a server's INFO against the role that it must have.
fn verify_info(endpoint: &Endpoint, info: &str, role: Role) -> Result<(), NodeError> {
    let version = info_field(info, "redis_version").unwrap_or("unknown");
    let mut parts = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < VERSION_MIN {
        let (major, minor) = VERSION_MIN;
        return Err(NodeError::Unfit(format!(
            "{endpoint} runs Redis {version}; use Redis {major}.{minor} or later, or Valkey"
        )));
    }
    if role == Role::ClusterNode {
        return Ok(());
    }
    if info_field(info, "cluster_enabled") == Some("1") {
        return Err(NodeError::IsCluster);
    }
    match info_field(info, "role") {
        Some("master") => Ok(()),
        _ if role == Role::Master => Err(NodeError::Unreachable(format!(
            "{endpoint} is a replica, but the sentinels name it as the master"
        ))),
        _ => Err(NodeError::Unfit(format!(
            "{endpoint} is a replica and cannot be written to; connect to its master, or use redis+sentinel://"
        ))),
    }
}

/// Returns sections of INFO, or `None` if the server does not answer or may not.
pub(crate) async fn info(connection: &MultiplexedConnection, sections: &[&str]) -> Option<String> {
    let commands = info_commands(sections);
    let replies = connection.clone().send_packed_commands(&commands, 0, commands.len()).await.ok()?;
    replies.iter().map(text).collect()
}

fn info_commands(sections: &[&str]) -> Pipeline {
    let mut commands = Pipeline::new();
    for section in sections {
        commands.cmd("INFO").arg(section);
    }
    commands
}

/// Returns the value of a line `name:value`.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Returns the reply as text, if it is text.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn server_message(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// Returns an error reply as an error. Some pass by themselves; others need a change of settings.
pub(crate) fn rejection(endpoint: &Endpoint, error: &ServerError) -> NodeError {
    let message = format!("{endpoint}: {}", server_message(error));
    match error.code() {
        "LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" => NodeError::Unreachable(message),
        _ => NodeError::Unfit(message),
    }
}

fn error_at(endpoint: &Endpoint, error: &RedisError) -> NodeError {
    let message = format!("{endpoint}: {error}");
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::Parse => {
            // Redis rejects every login while it loads its data.
            if message.contains("LOADING") {
                NodeError::Unreachable(message)
            } else {
                NodeError::Unfit(message)
            }
        }
        _ => NodeError::Unreachable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, NodeError, Role, verify_info};

    fn verified(info: &str, role: Role) -> Result<(), NodeError> {
        verify_info(&Endpoint::Tcp { host: "h".to_owned(), port: 1 }, info, role)
    }

    #[test]
    fn an_old_server_is_unfit_and_the_error_names_both_versions() {
        for (version, fit) in
            [("6.2.14", false), ("7.0.0", true), ("7.2.4", true), ("10.0.0", true), ("", false)]
        {
            let info = format!("# Server\r\nredis_version:{version}\r\nrole:master\r\ncluster_enabled:0\r\n");
            assert_eq!(verified(&info, Role::Standalone).is_ok(), fit, "{version}");
        }
        let error = verified("redis_version:6.2.14\r\n", Role::Standalone).unwrap_err().to_string();
        assert!(error.contains("6.2.14") && error.contains("7.0"), "{error}");
    }

    #[test]
    fn replicas_and_cluster_nodes_are_not_standalone_servers() {
        let replica = "redis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:0\r\n";
        assert!(
            matches!(verified(replica, Role::Standalone), Err(NodeError::Unfit(why)) if why.contains("replica"))
        );
        let node = "redis_version:7.0.1\r\nrole:master\r\ncluster_enabled:1\r\n";
        assert_eq!(verified(node, Role::Standalone), Err(NodeError::IsCluster));
        assert_eq!(verified(node, Role::ClusterNode), Ok(()));
    }
}
