//! The way to the store: one server, a set with Sentinel, or a cluster.
//!
//! A script call is answered by its deadline, or fails; the rest of the crate never sees a connection. A call
//! that may have run is never sent again. Replies that prove that nothing ran are the exception: NOSCRIPT,
//! MOVED, ASK, TRYAGAIN and CLUSTERDOWN.
//!
//! ```text
//! address    how stores are written                    connection a connection, and whether its server will do
//! node       a server and its connection               breaker    when to leave a server alone
//! pipeline   calls over a connection, and NOSCRIPT     no_answer  why a call has no answer
//! sentinel   who is the master                         cluster    who has which slot; slot, table
//! ```
//!
//! Rights     What a user of the store must be allowed: `evalsha`, `script|load`, `info`, `ping`, and what the
//!            scripts call; `select` for a database that is not 0; in a cluster `cluster|slots`,
//!            `cluster|info` and `asking`.
//! Promise    A call that is dropped half-way cannot mix up replies: they are matched by the connection's own
//!            task, in order, and one whose caller is gone is dropped there.

mod address;
mod breaker;
mod cluster;
mod connection;
mod no_answer;
mod node;
mod pipeline;
mod sentinel;
mod slot;
mod table;
#[cfg(all(test, feature = "_testkit"))]
mod tests;
mod tls;

pub use address::without_password;
pub use node::NodeHealth;
pub(crate) use slot::slot;

use crate::failure::ConnectError;
use crate::script::ScriptCall;
use crate::store::Settings;
use address::{Address, Place, Shape};
use cluster::Cluster;
use connection::{Dialer, Part, Trouble};
use node::{Haste, Node, NodeSettings, Route};
use pipeline::Outgoing;
use redis::Value;
use sluicegate::backend::StoreFailure;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long [`Link::connect`] looks for a store that does not answer.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Connections to a store.
pub(crate) struct Link {
    topology: Arc<Topology>,
    /// Waits for the first server to say that it is a node of a cluster.
    turner: Option<JoinHandle<()>>,
}

/// Where the keys live.
enum Topology {
    Server(Node),
    Cluster(Cluster),
    /// A server; or a node of a cluster, and then that cluster as soon as it has said so.
    First {
        node: Node,
        place: Place,
        dialer: Dialer,
        deadline: Duration,
        cluster: OnceLock<Cluster>,
    },
}

impl Link {
    /// Connects, and comes back when the store can be used; or at once, if it was told to connect later.
    pub(crate) async fn connect(settings: &Settings) -> Result<Link, ConnectError> {
        let link = Link::start(settings)?;
        if settings.connect_later {
            return Ok(link);
        }
        match timeout(CONNECT_WAIT, link.settle()).await {
            Ok(Ok(())) => Ok(link),
            Ok(Err(trouble)) => Err(ConnectError::Unfit(trouble.to_string())),
            // A part of a cluster is better than nothing, and the others may come.
            Err(_) if link.is_usable() => Ok(link),
            Err(_) => Err(ConnectError::Unreachable(match link.trouble() {
                Some(trouble) => trouble.to_string(),
                None => format!("{}: no answer within {CONNECT_WAIT:?}", without_password(&settings.url)),
            })),
        }
    }

    fn start(settings: &Settings) -> Result<Link, ConnectError> {
        let address = Address::parse(&settings.url).map_err(ConnectError::BadUrl)?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConnectError::Unfit("there is no Tokio runtime here to run on".to_owned()));
        }
        let tls = if address.tls {
            Some(tls::connector(settings.tls_ca.as_deref()).map_err(ConnectError::Unfit)?)
        } else {
            None
        };
        let dialer = Dialer { login: address.login, tls };
        let deadline = settings.deadline;
        let node = |route, part| {
            let (dialer, when_away) = (dialer.clone(), Arc::new(Notify::new()));
            Node::start(NodeSettings { route, part, dialer, deadline, when_away })
        };
        let topology = match address.shape {
            Shape::Cluster(seeds) => Topology::Cluster(Cluster::start(seeds, dialer, deadline)),
            Shape::Sentinel { sentinels, master } => {
                Topology::Server(node(Route::Sentinel { sentinels, master }, Part::Master))
            }
            Shape::One(place) => {
                let first = node(Route::Fixed(place.clone()), Part::Alone);
                Topology::First { node: first, place, dialer, deadline, cluster: OnceLock::new() }
            }
        };
        let topology = Arc::new(topology);
        let turner = matches!(*topology, Topology::First { .. }).then(|| {
            let topology = Arc::clone(&topology);
            tokio::spawn(async move { topology.turn_into_cluster().await })
        });
        Ok(Link { topology, turner })
    }

    /// Sends script calls, on each server in this order, and is back by then. An answer for each.
    pub(crate) async fn send(
        &self,
        calls: &[ScriptCall],
        until: Instant,
    ) -> Vec<Result<Value, StoreFailure>> {
        match self.topology.now() {
            Now::Server(node) => {
                let outgoing: Vec<Outgoing<'_>> =
                    calls.iter().map(|call| Outgoing { call, asking: false }).collect();
                let answers = node.send(&outgoing, until, Haste::None).await;
                answers
                    .into_iter()
                    .map(|answer| answer.map_err(|none| none.failure(node.deadline())))
                    .collect()
            }
            Now::Cluster(cluster) => cluster.send(calls, until).await,
        }
    }

    /// Whether keys are spread over servers, so that those of one call have to share a slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology.now(), Now::Cluster(_))
    }

    /// How each server is doing.
    pub(crate) fn health(&self) -> Vec<NodeHealth> {
        match self.topology.now() {
            Now::Server(node) => vec![node.health()],
            Now::Cluster(cluster) => cluster.health(),
        }
    }

    /// Waits until calls can be made, or it is known that they cannot.
    async fn settle(&self) -> Result<(), Trouble> {
        if let Topology::First { node, .. } = &*self.topology {
            match node.settle().await {
                Err(Trouble::IsCluster) => self.topology.turn_into_cluster().await,
                settled => return settled,
            }
        }
        match self.topology.now() {
            Now::Cluster(cluster) => cluster.settle().await,
            Now::Server(node) => node.settle().await,
        }
    }

    fn is_usable(&self) -> bool {
        self.health().iter().any(NodeHealth::is_up)
    }

    fn trouble(&self) -> Option<Trouble> {
        match self.topology.now() {
            Now::Server(node) => node.trouble(),
            Now::Cluster(cluster) => cluster.trouble(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(turner) = &self.turner {
            turner.abort();
        }
    }
}

/// Where the keys live, as far as is known.
enum Now<'a> {
    Server(&'a Node),
    Cluster(&'a Cluster),
}

impl Topology {
    fn now(&self) -> Now<'_> {
        match self {
            Topology::Cluster(cluster) => Now::Cluster(cluster),
            Topology::Server(node) => Now::Server(node),
            Topology::First { node, cluster, .. } => match cluster.get() {
                Some(cluster) => Now::Cluster(cluster),
                None => Now::Server(node),
            },
        }
    }

    /// Waits for the first server to say that it is a node of a cluster, and goes on with that.
    async fn turn_into_cluster(&self) {
        if let Topology::First { node, place, dialer, deadline, cluster } = self {
            node.turned_out_to_be_of_a_cluster().await;
            cluster.get_or_init(|| Cluster::start(vec![place.clone()], dialer.clone(), *deadline));
        }
    }
}
