//! A running server: its sockets, its connections, and how it stops.

use crate::auth::Password;
use crate::client_limits::ClientLimits;
use crate::engine::{Engine, Keys, RequestError, RuleSpec, Settings};
use crate::metrics::Metrics;
use crate::net::Listener;
use crate::net::tls::Tls;
use crate::protocol::Protocol;
use crate::service::Service;
use sluicegate::clock::Clock;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a server is made of. Without anything said, it listens nowhere.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// Where to listen, and for which protocol; port 0 for any free one.
    pub listen: Vec<(Protocol, SocketAddr)>,
    /// What clients have to say first.
    pub password: Option<Password>,
    /// Names under which HTTP may ask for us, besides loopback and addresses.
    pub hosts: Vec<String>,
    /// Bounds on clients.
    pub limits: ClientLimits,
    /// What the engine is told.
    pub settings: Settings,
    /// Where keys live.
    pub keys: Keys,
    /// The rules.
    pub rules: Vec<RuleSpec>,
    /// What all of them are encrypted with.
    pub tls: Option<Arc<Tls>>,
}

/// A server that listens.
pub struct Server {
    service: Service,
    addresses: Vec<(Protocol, SocketAddr)>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
}

impl Server {
    /// Binds the sockets and begins to serve.
    ///
    /// # Errors
    /// When an address cannot be bound, or the rules are wrong.
    #[allow(clippy::unused_async, reason = "it has to be called where tasks can be started")]
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> io::Result<Server> {
        let wrong = |mistake: RequestError| io::Error::new(io::ErrorKind::InvalidInput, mistake);
        let engine = Engine::keeping(config.keys, config.settings, clock).map_err(wrong)?;
        engine.load(config.rules).map_err(wrong)?;
        let (stop, stopping) = watch::channel(false);
        let service = Service {
            engine: Arc::new(engine),
            limits: config.limits,
            password: config.password,
            hosts: config.hosts.into(),
            metrics: Arc::new(Metrics::default()),
            stopping,
        };
        let bind = |(protocol, address)| Listener::bind(protocol, address, config.tls.clone());
        // All are bound before any serves, so that a server that cannot start has answered nobody.
        let bound = config.listen.into_iter().map(bind).collect::<io::Result<Vec<_>>>()?;
        let addresses = bound.iter().map(|listener| (listener.protocol, listener.address)).collect();
        let mut listeners = JoinSet::new();
        for listener in bound {
            listener.protocol.accept(listener, service.clone(), &mut listeners);
        }
        Ok(Server { service, addresses, stop, listeners })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        &self.addresses
    }

    /// Where it listens for a protocol.
    pub fn address(&self, protocol: Protocol) -> Option<SocketAddr> {
        self.addresses.iter().find(|(known, _)| *known == protocol).map(|(_, address)| *address)
    }

    /// What connections share.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Stops accepting, answers what has arrived, closes.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        while self.listeners.join_next().await.is_some() {}
    }
}
