//! Connections to the store: a single server, a master under Sentinel, or a cluster.
//!
//! A script call is answered by its deadline or fails; the rest of the crate never sees a
//! connection.
//!
//! Invariant: **a script call that may have run is never retried.** Only replies that prove that
//! nothing ran lead to another attempt: NOSCRIPT, MOVED, ASK, TRYAGAIN and CLUSTERDOWN
//! (`call_error.rs`). The one exception is a waiter for a lease. It picks its lease id before the
//! first attempt, so a retry is granted the same lease, and a lease that may have been granted can
//! always be released.
//!
//! ```text
//! address      parses the URL of a store           connection   connects, and verifies the server
//! node         a server and its connection         breaker      when to stop calling a server
//! pipeline     calls over a connection, NOSCRIPT   call_error   why a call has no answer
//! sentinel     finds the current master            cluster      routes by slot; slot, slot_table
//! watch        evicted keys, rejected writes
//! ```
//!
//! **Permissions.** The store's user needs `evalsha`, `script|load`, `info`, `ping` and the
//! commands that the scripts call; `select` for a database other than 0; in a cluster also
//! `cluster|slots`, `cluster|info` and `asking`.
//!
//! **Promise.** A dropped call cannot mix up replies: the connection's own task matches them in
//! order, and discards a reply whose caller is gone.

mod address;
mod breaker;
mod call_error;
mod cluster;
mod connection;
mod node;
mod pipeline;
mod sentinel;
mod slot;
mod slot_table;
#[cfg(all(test, feature = "_testkit"))]
mod tests;
mod tls;
mod watch;

pub use address::without_password;
pub use node::NodeHealth;
pub(crate) use slot::slot;
pub(crate) use watch::rejects_writes;

use crate::failure::ConnectError;
use crate::script::ScriptCall;
use crate::store::StoreSettings;
use address::{Address, Endpoint, StoreAddress};
use cluster::Cluster;
use connection::{Dialer, NodeError, Role};
use node::{Node, NodeSettings, Route, TimeBudget};
use pipeline::Outgoing;
use redis::Value;
use sluicegate::backend::StoreFailure;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long [`Link::connect`] waits for a store that does not answer.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// The connections to a store.
pub(crate) struct Link {
    topology: Arc<Topology>,
    evicted_keys: Arc<AtomicU64>,
    /// Switches to the cluster once the server turns out to be one of its nodes.
    cluster_watcher: Option<JoinHandle<()>>,
}

/// Which servers hold the keys.
enum Topology {
    Server(Node),
    Cluster(Cluster),
    /// A single server, or a cluster known by one of its nodes: the server says which when it is
    /// connected.
    Undetermined {
        node: Node,
        endpoint: Endpoint,
        dialer: Dialer,
        deadline: Duration,
        evicted_keys: Arc<AtomicU64>,
        cluster: OnceLock<Cluster>,
    },
}

impl Link {
    /// Connects and returns once the store is usable, or at once under `connect_later`.
    pub(crate) async fn connect(settings: &StoreSettings) -> Result<Link, ConnectError> {
        let link = Link::start(settings)?;
        if settings.connect_later {
            return Ok(link);
        }
        match timeout(CONNECT_WAIT, link.ready()).await {
            Ok(Ok(())) => Ok(link),
            Ok(Err(error)) => Err(ConnectError::Unfit(error.to_string())),
            // A partly reachable cluster is usable; the other nodes may follow.
            Err(_) if link.is_usable() => Ok(link),
            Err(_) => Err(ConnectError::Unreachable(match link.error() {
                Some(error) => error.to_string(),
                None => format!("{}: no answer within {CONNECT_WAIT:?}", without_password(&settings.url)),
            })),
        }
    }

    fn start(settings: &StoreSettings) -> Result<Link, ConnectError> {
        let address = Address::parse(&settings.url).map_err(ConnectError::BadUrl)?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConnectError::Unfit("not inside a Tokio runtime; connect from one".to_owned()));
        }
        let tls = if address.tls {
            Some(tls::connector(settings.tls_ca.as_deref()).map_err(ConnectError::Unfit)?)
        } else {
            None
        };
        let dialer = Dialer { login: address.login, tls };
        let deadline = settings.deadline;
        let evicted_keys = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&evicted_keys);
        let node = |route, role| {
            let (dialer, on_down) = (dialer.clone(), Arc::new(Notify::new()));
            let evicted_keys = Arc::clone(&counter);
            Node::start(NodeSettings { route, role, dialer, deadline, on_down, evicted_keys })
        };
        let topology = match address.target {
            StoreAddress::Cluster(seeds) => {
                Topology::Cluster(Cluster::start(seeds, dialer, deadline, counter))
            }
            StoreAddress::Sentinel { sentinels, master } => {
                Topology::Server(node(Route::Sentinel { sentinels, master }, Role::Master))
            }
            StoreAddress::Server(endpoint) => {
                let first = node(Route::Fixed(endpoint.clone()), Role::Standalone);
                let cluster = OnceLock::new();
                Topology::Undetermined {
                    node: first,
                    endpoint,
                    dialer,
                    deadline,
                    evicted_keys: counter,
                    cluster,
                }
            }
        };
        let topology = Arc::new(topology);
        let cluster_watcher = matches!(*topology, Topology::Undetermined { .. }).then(|| {
            let topology = Arc::clone(&topology);
            tokio::spawn(async move { topology.switch_to_cluster().await })
        });
        Ok(Link { topology, evicted_keys, cluster_watcher })
    }

    /// Sends script calls, in order per server, and returns an answer for each by `until`.
    pub(crate) async fn send(
        &self,
        calls: &[ScriptCall],
        until: Instant,
    ) -> Vec<Result<Value, StoreFailure>> {
        match self.topology.active() {
            Active::Server(node) => {
                let outgoing: Vec<Outgoing<'_>> =
                    calls.iter().map(|call| Outgoing { call, asking: false }).collect();
                let answers = node.send(&outgoing, until, TimeBudget::Full).await;
                answers
                    .into_iter()
                    .map(|answer| answer.map_err(|none| none.into_failure(node.deadline())))
                    .collect()
            }
            Active::Cluster(cluster) => cluster.send(calls, until).await,
        }
    }

    /// Returns `true` if keys are spread over servers, so that the keys of one call must share a
    /// hash slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology.active(), Active::Cluster(_))
    }

    /// The health of each server.
    pub(crate) fn health(&self) -> Vec<NodeHealth> {
        match self.topology.active() {
            Active::Server(node) => vec![node.health()],
            Active::Cluster(cluster) => cluster.health(),
        }
    }

    /// Keys that the servers were seen to evict.
    pub(crate) fn evicted_keys(&self) -> u64 {
        self.evicted_keys.load(Relaxed)
    }

    /// Waits until calls can be made, or are known to be impossible.
    async fn ready(&self) -> Result<(), NodeError> {
        if let Topology::Undetermined { node, .. } = &*self.topology {
            match node.ready().await {
                Err(NodeError::IsCluster) => self.topology.switch_to_cluster().await,
                settled => return settled,
            }
        }
        match self.topology.active() {
            Active::Cluster(cluster) => cluster.ready().await,
            Active::Server(node) => node.ready().await,
        }
    }

    fn is_usable(&self) -> bool {
        self.health().iter().any(NodeHealth::is_up)
    }

    fn error(&self) -> Option<NodeError> {
        match self.topology.active() {
            Active::Server(node) => node.error(),
            Active::Cluster(cluster) => cluster.error(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(cluster_watcher) = &self.cluster_watcher {
            cluster_watcher.abort();
        }
    }
}

/// What calls are sent to at the moment.
enum Active<'a> {
    Server(&'a Node),
    Cluster(&'a Cluster),
}

impl Topology {
    fn active(&self) -> Active<'_> {
        match self {
            Topology::Cluster(cluster) => Active::Cluster(cluster),
            Topology::Server(node) => Active::Server(node),
            Topology::Undetermined { node, cluster, .. } => match cluster.get() {
                Some(cluster) => Active::Cluster(cluster),
                None => Active::Server(node),
            },
        }
    }

    /// Waits until the server turns out to be a cluster node, and then uses the whole cluster.
    async fn switch_to_cluster(&self) {
        if let Topology::Undetermined { node, endpoint, dialer, deadline, evicted_keys, cluster } = self {
            node.cluster_detected().await;
            let start = || {
                Cluster::start(vec![endpoint.clone()], dialer.clone(), *deadline, Arc::clone(evicted_keys))
            };
            cluster.get_or_init(start);
        }
    }
}
