//! The way to the store: one server, a set with Sentinel, or a cluster.
//!
//! In plain words: a trip goes out and comes back by its deadline, whatever happens; the rest of the crate
//! never sees a connection. A trip that may have reached a server is never made again. The exceptions are
//! replies that prove that nothing ran: NOSCRIPT, MOVED, ASK, TRYAGAIN and CLUSTERDOWN.
//!
//! address    how stores are written                    line       one connection, and whether a server will do
//! node       a server, and who looks after its line    breaker    when to leave a server alone
//! scripts    calls over a line, and NOSCRIPT           reply      what servers say
//! sentinel   who is the master                         cluster    who has which slot; slot, table
//!
//! Rights     What a user of the store must be allowed: `evalsha`, `script|load`, `info`, `ping`, and what the
//!            scripts call; `select` for a database that is not 0; in a cluster `cluster|slots`,
//!            `cluster|info` and `asking`.
//! Promise    A trip that is dropped half-way cannot mix up replies: they are matched by the connection's own
//!            task, in order, and one that nobody waits for is thrown away there.

mod address;
mod breaker;
mod cluster;
mod line;
mod node;
mod reply;
mod scripts;
mod sentinel;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod tls;

pub use address::without_password;
pub use node::NodeHealth;
pub(crate) use slot::slot;

use crate::failure::{ConnectError, StoreFailure};
use crate::script::Trip;
use crate::store::Settings;
use address::{Address, Place, Shape};
use cluster::Cluster;
use line::{Dialer, Part, Trouble};
use node::{Haste, Node, NodeSettings, Route};
use redis::Value;
use scripts::Parcel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long [`Link::connect`] looks for a store that does not answer.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Connections to a store.
pub(crate) struct Link {
    home: Arc<Home>,
    /// Waits for the first server to say that it is a node of a cluster.
    turner: Option<JoinHandle<()>>,
}

/// Where the keys live.
enum Home {
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
        let home = match address.shape {
            Shape::Cluster(seeds) => Home::Cluster(Cluster::start(seeds, dialer, deadline)),
            Shape::Sentinel { sentinels, master } => {
                Home::Server(node(Route::Sentinel { sentinels, master }, Part::Master))
            }
            Shape::One(place) => {
                let first = node(Route::Fixed(place.clone()), Part::Alone);
                Home::First { node: first, place, dialer, deadline, cluster: OnceLock::new() }
            }
        };
        let home = Arc::new(home);
        let turner = matches!(*home, Home::First { .. }).then(|| {
            let home = Arc::clone(&home);
            tokio::spawn(async move { home.turn_into_cluster().await })
        });
        Ok(Link { home, turner })
    }

    /// Makes a trip, and is back by then.
    pub(crate) async fn go(&self, trip: &Trip, until: Instant) -> Result<Value, StoreFailure> {
        match self.home.now() {
            Now::Server(node) => node.send(Parcel { trip, asking: false }, until).await?.finish(),
            Now::Cluster(cluster) => cluster.go(trip, until).await,
        }
    }

    /// Makes several trips at once, on each server in this order, and is back by then. An answer for each.
    pub(crate) async fn go_each(&self, trips: &[Trip], until: Instant) -> Vec<Result<Value, StoreFailure>> {
        match self.home.now() {
            Now::Server(node) => {
                let parcels: Vec<Parcel<'_>> =
                    trips.iter().map(|trip| Parcel { trip, asking: false }).collect();
                let replies = node.send_each(&parcels, until, Haste::None).await;
                replies.into_iter().map(|reply| reply?.finish()).collect()
            }
            Now::Cluster(cluster) => cluster.go_each(trips, until).await,
        }
    }

    /// Whether keys are spread over servers, so that those of one call have to share a slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.home.now(), Now::Cluster(_))
    }

    /// How each server is doing.
    pub(crate) fn health(&self) -> Vec<NodeHealth> {
        match self.home.now() {
            Now::Server(node) => vec![node.health()],
            Now::Cluster(cluster) => cluster.health(),
        }
    }

    /// Waits until calls can be made, or it is known that they cannot.
    async fn settle(&self) -> Result<(), Trouble> {
        if let Home::First { node, .. } = &*self.home {
            match node.settle().await {
                Err(Trouble::IsCluster) => self.home.turn_into_cluster().await,
                settled => return settled,
            }
        }
        match self.home.now() {
            Now::Cluster(cluster) => cluster.settle().await,
            Now::Server(node) => node.settle().await,
        }
    }

    fn is_usable(&self) -> bool {
        self.health().iter().any(|node| node.connected && !node.breaker_open)
    }

    fn trouble(&self) -> Option<Trouble> {
        match self.home.now() {
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

impl Home {
    fn now(&self) -> Now<'_> {
        match self {
            Home::Cluster(cluster) => Now::Cluster(cluster),
            Home::Server(node) => Now::Server(node),
            Home::First { node, cluster, .. } => match cluster.get() {
                Some(cluster) => Now::Cluster(cluster),
                None => Now::Server(node),
            },
        }
    }

    /// Waits for the first server to say that it is a node of a cluster, and goes on with that.
    async fn turn_into_cluster(&self) {
        if let Home::First { node, place, dialer, deadline, cluster } = self {
            node.turned_out_to_be_of_a_cluster().await;
            cluster.get_or_init(|| Cluster::start(vec![place.clone()], dialer.clone(), *deadline));
        }
    }
}
