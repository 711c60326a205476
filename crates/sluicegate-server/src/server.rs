//! A running server: its listeners, its connections and its shutdown.

use crate::auth::{AuthFailures, Password};
use crate::connection_limits::ConnectionLimits;
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
use tokio::task::{Id, JoinSet};

/// What a server is built from. By default it listens nowhere.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// Where to listen for which protocol; port 0 for any free port.
    pub listen: Vec<(Protocol, SocketAddr)>,
    /// The password that clients must send.
    pub password: Option<Password>,
    /// The host names that HTTP is served under, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Limits on connections.
    pub limits: ConnectionLimits,
    /// Settings of the engine.
    pub settings: Settings,
    /// Where keys live.
    pub keys: Keys,
    /// The rules.
    pub rules: Vec<RuleSpec>,
    /// TLS, for all protocols.
    pub tls: Option<Arc<Tls>>,
}

impl Config {
    /// Builds the engine with the rules.
    ///
    /// # Errors
    /// Those of [`Engine::with_keys`] and [`Engine::load`].
    pub(crate) fn engine(&self, clock: Arc<dyn Clock>) -> Result<Engine, RequestError> {
        let engine = Engine::with_keys(self.keys.clone(), self.settings, clock)?;
        engine.load(self.rules.clone())?;
        Ok(engine)
    }
}

/// A server that listens.
pub struct Server {
    service: Service,
    addresses: Vec<(Protocol, SocketAddr)>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
    /// The tasks in `listeners`, in the order of `addresses`.
    listener_ids: Vec<Id>,
}

impl Server {
    /// Binds all addresses and starts to serve.
    ///
    /// # Errors
    /// If an address cannot be bound, or a rule is invalid.
    #[allow(clippy::unused_async, reason = "must be called within a runtime")]
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> io::Result<Server> {
        let invalid = |error: RequestError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let engine = config.engine(clock).map_err(invalid)?;
        let auth_failures =
            AuthFailures::new().map_err(|error| invalid(RequestError::new(error.to_string())))?;
        let (stop, stopping) = watch::channel(false);
        let service = Service {
            engine: Arc::new(engine),
            limits: config.limits,
            password: config.password,
            auth_failures: Arc::new(auth_failures),
            hosts: config.hosts.into(),
            metrics: Arc::new(Metrics::default()),
            stopping,
        };
        let bind = |(protocol, address)| Listener::bind(protocol, address, config.tls.clone());
        // Bind all before serving any, so that a server that fails to start has answered no client.
        let bound = config.listen.into_iter().map(bind).collect::<io::Result<Vec<_>>>()?;
        let addresses = bound.iter().map(|listener| (listener.protocol, listener.address)).collect();
        let mut listeners = JoinSet::new();
        let listener_ids = bound
            .into_iter()
            .map(|listener| listener.protocol.accept(listener, service.clone(), &mut listeners).id())
            .collect();
        Ok(Server { service, addresses, stop, listeners, listener_ids })
    }

    /// The bound addresses.
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        &self.addresses
    }

    /// The bound address of a protocol.
    pub fn address(&self, protocol: Protocol) -> Option<SocketAddr> {
        self.addresses.iter().find(|(known, _)| *known == protocol).map(|(_, address)| *address)
    }

    /// The state that connections share.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Waits until a listener ends although the server is not stopping, and returns what to log:
    /// clients cannot connect any more. Does not return if there is no listener.
    pub async fn listener_failed(&mut self) -> String {
        let (id, why) = match self.listeners.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => (id, "it ended".to_owned()),
            Some(Err(error)) => (error.id(), error.to_string()),
        };
        match self.listener_ids.iter().zip(&self.addresses).find(|(known, _)| **known == id) {
            Some((_, (protocol, address))) => format!("the {protocol} listener on {address} failed: {why}"),
            None => format!("a listener failed: {why}"),
        }
    }

    /// Stops accepting connections, answers what has arrived, and closes.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        while self.listeners.join_next().await.is_some() {}
    }
}

#[cfg(test)]
impl Server {
    /// Makes the listener of a protocol a task that panics, as a bug would.
    pub(crate) fn break_listener(&mut self, protocol: Protocol) {
        let index = self.addresses.iter().position(|(known, _)| *known == protocol);
        let index = index.expect("a listener for the protocol");
        self.listener_ids[index] = self.listeners.spawn(async { panic!("a bug in the listener") }).id();
    }
}
