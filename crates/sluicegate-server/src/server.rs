//! A running server: its sockets, its connections, and how it stops.

use crate::auth::Password;
use crate::client_limits::ClientLimits;
use crate::engine::{Engine, Keys, Mistake, RuleSpec, Settings};
use crate::listen::Listener;
use crate::metrics::{Metrics, Protocol};
use crate::service::Service;
use crate::tls::Tls;
use sluicegate::Clock;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a server is made of. Without anything said, it listens nowhere.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// Where to listen for RESP; port 0 for any free one. `None`: nowhere.
    pub resp: Option<SocketAddr>,
    /// Where to listen for HTTP.
    pub http: Option<SocketAddr>,
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
    /// What both are encrypted with.
    pub tls: Option<Arc<Tls>>,
}

/// A server that listens.
pub struct Server {
    service: Service,
    resp: Option<SocketAddr>,
    http: Option<SocketAddr>,
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
        let wrong = |mistake: Mistake| io::Error::new(io::ErrorKind::InvalidInput, mistake);
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
        let bind = |protocol, address: Option<SocketAddr>| {
            address.map(|address| Listener::bind(protocol, address, config.tls.clone())).transpose()
        };
        // Both are bound before either serves, so that a server that cannot start has answered nobody.
        let resp = bind(Protocol::Resp, config.resp)?;
        let http = bind(Protocol::Http, config.http)?;
        let [resp_at, http_at] = [&resp, &http].map(|listener| listener.as_ref().map(Listener::address));
        let mut listeners = JoinSet::new();
        for listener in [resp, http].into_iter().flatten() {
            listeners.spawn(listener.run(service.clone()));
        }
        Ok(Server { service, resp: resp_at, http: http_at, stop, listeners })
    }

    /// Where it listens for RESP.
    pub fn resp(&self) -> Option<SocketAddr> {
        self.resp
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
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
