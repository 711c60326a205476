//! Who is the master at the moment, by those who watch.

use super::address::Place;
use super::connection::{Dialer, Trouble, in_time, text};
use redis::{RedisConnectionInfo, Value};

/// Asks one sentinel after another, from a random one on, until one knows.
///
/// None needs a login: the store's is for the store, and sentinels rarely have one.
pub(crate) async fn master(dialer: &Dialer, sentinels: &[Place], name: &str) -> Result<Place, Trouble> {
    let dialer =
        Dialer { login: RedisConnectionInfo::default().set_skip_set_lib_name(), tls: dialer.tls.clone() };
    let mut troubles = Vec::new();
    let first = fastrand::usize(..sentinels.len().max(1));
    for sentinel in sentinels.iter().cycle().skip(first).take(sentinels.len()) {
        match in_time(sentinel, ask(&dialer, sentinel, name)).await {
            Ok(place) => return Ok(place),
            Err(trouble) => troubles.push(trouble.to_string()),
        }
    }
    Err(Trouble::Unreachable(format!("no sentinel knows the master {name:?}: {}", troubles.join("; "))))
}

async fn ask(dialer: &Dialer, sentinel: &Place, name: &str) -> Result<Place, Trouble> {
    let unknown = |why: &str| Trouble::Unreachable(format!("{sentinel}: {why}"));
    let connection = dialer.dial(sentinel).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let reply = connection.connection.clone().send_packed_command(&question).await;
    match reply.map_err(|error| unknown(&error.to_string()))? {
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => match (text(host), text(port).and_then(|port| port.parse().ok())) {
                (Some(host), Some(port)) => Ok(Place::Tcp { host, port }),
                _ => Err(unknown("its answer is no address")),
            },
            _ => Err(unknown("its answer is no address")),
        },
        Value::Nil => Err(unknown("it does not know this name")),
        Value::ServerError(error) => Err(unknown(&super::connection::words(&error))),
        _ => Err(unknown("its answer is no address")),
    }
}
