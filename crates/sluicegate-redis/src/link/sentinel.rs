//! Finds the current master through Sentinel.

use super::address::Endpoint;
use super::connection::{Dialer, NodeError, in_time, text};
use redis::{RedisConnectionInfo, Value};

/// Queries the sentinels in turn, from a random one on, until one knows the master.
///
/// It does not log in: the address's login is for the store, and sentinels rarely have one.
pub(crate) async fn master(
    dialer: &Dialer,
    sentinels: &[Endpoint],
    name: &str,
) -> Result<Endpoint, NodeError> {
    let dialer =
        Dialer { login: RedisConnectionInfo::default().set_skip_set_lib_name(), tls: dialer.tls.clone() };
    let mut errors = Vec::new();
    let first = fastrand::usize(..sentinels.len().max(1));
    for sentinel in sentinels.iter().cycle().skip(first).take(sentinels.len()) {
        match in_time(sentinel, query(&dialer, sentinel, name)).await {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => errors.push(error.to_string()),
        }
    }
    Err(NodeError::Unreachable(format!("no sentinel knows the master {name:?}: {}", errors.join("; "))))
}

async fn query(dialer: &Dialer, sentinel: &Endpoint, name: &str) -> Result<Endpoint, NodeError> {
    let unknown = |why: &str| NodeError::Unreachable(format!("{sentinel}: {why}"));
    let connection = dialer.dial(sentinel).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let reply = connection.connection.clone().send_packed_command(&command).await;
    match reply.map_err(|error| unknown(&error.to_string()))? {
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => match (text(host), text(port).and_then(|port| port.parse().ok())) {
                (Some(host), Some(port)) => Ok(Endpoint::Tcp { host, port }),
                _ => Err(unknown("its reply is not an address")),
            },
            _ => Err(unknown("its reply is not an address")),
        },
        Value::Nil => Err(unknown("it does not know this master")),
        Value::ServerError(error) => Err(unknown(&super::connection::server_message(&error))),
        _ => Err(unknown("its reply is not an address")),
    }
}
