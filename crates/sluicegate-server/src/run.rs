//! A server as a process: from a configuration to the signal that ends it.

use crate::auth::Password;
use crate::config::{self, Configuration, Layers, SETTINGS};
use crate::engine::{Keys, StoreTime};
use crate::log::{self, Volume};
use crate::net::tls::{CertFiles, Certs, Tls};
use crate::protocol::Protocol;
use crate::safety::{self, Protection};
use crate::server::{self, Server};
use crate::signals::{Signal, Signals};
use sluicegate::clock::SystemClock;
use sluicegate_redis::RedisStore;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tracing::{error, info, warn};

/// How long open connections may take to end after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);
/// Files that a server opens beside its connections.
const FILES_RESERVED: u64 = 64;

/// Runs a server until it is told to stop. `insecure`: others may reach it without password and TLS.
///
/// # Errors
/// When it cannot start: one line for each reason.
pub fn run(layers: &Layers, insecure: bool) -> Result<(), String> {
    let configuration = layers.read().map_err(|problems| problems.to_string())?;
    let volume = log::start(configuration.log);
    for name in layers.unknown_variables() {
        warn!("{name} is set, and is none of our variables; see `sluice serve --help`");
    }
    let parts = Parts::gather(&configuration, layers, insecure)?;
    look_at_file_limit(configuration.limits.connections_max, parts.listen.len());
    let runtime = runtime(configuration.threads).map_err(|error| format!("cannot start threads: {error}"))?;
    let done = runtime.block_on(serve(configuration, parts, layers, &volume));
    // What is still open has had its time.
    runtime.shutdown_background();
    done
}

/// A thread for each processor unless said. A single one has no others to hand work to, and need not look whether it should.
fn runtime(threads: Option<usize>) -> io::Result<Runtime> {
    let mut runtime = match threads {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Some(threads) = threads {
        runtime.worker_threads(threads);
    }
    runtime.enable_all().build()
}

/// What the configuration names, found and read.
struct Parts {
    listen: Vec<(Protocol, SocketAddr)>,
    password: Option<Password>,
    tls: Option<Arc<Tls>>,
}

impl Parts {
    fn gather(configuration: &Configuration, layers: &Layers, insecure: bool) -> Result<Parts, String> {
        let wanted = configuration.listen.iter().filter_map(|(protocol, at)| Some((protocol, at.as_ref()?)));
        let listen = wanted
            .map(|(protocol, address)| Ok((protocol, resolve(address)?)))
            .collect::<Result<Vec<_>, String>>()?;
        if listen.is_empty() {
            let ids = Protocol::ALL.map(|protocol| protocol.description().id).join(", ");
            return Err(format!("every protocol is off, and no client could connect; turn one on: {ids}"));
        }
        let password = password(configuration, layers)?;
        let certs = certs(configuration)?;
        let protection = Protection { password: password.is_some(), tls: certs.is_some(), insecure };
        for (protocol, address) in &listen {
            safety::may_listen(*protocol, *address, protection)?;
        }
        Ok(Parts { listen, password, tls: certs.map(|certs| Arc::new(Tls::new(certs))) })
    }
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
    let found =
        address.to_socket_addrs().map_err(|error| format!("cannot find the address {address}: {error}"))?;
    found
        .into_iter()
        .next()
        .ok_or_else(|| format!("the name in {address} has no address; write a number such as 127.0.0.1"))
}

/// The environment's password, or else the file's. Of one in the environment and one in a flag we do not choose.
fn password(configuration: &Configuration, layers: &Layers) -> Result<Option<Password>, String> {
    if let Some(said) = layers.password() {
        if layers.flags.iter().any(|(name, _)| *name == "--password-file") {
            return Err("SLUICE_PASSWORD: --password-file is set too; use one of them".into());
        }
        return Password::new(said.as_bytes()).map(Some).map_err(|unfit| format!("SLUICE_PASSWORD: {unfit}"));
    }
    let Some(path) = &configuration.password_file else { return Ok(None) };
    let (password, warning) = config::read_password(path)?;
    if let Some(warning) = warning {
        warn!("{warning}");
    }
    Password::new(&password).map(Some).map_err(|unfit| format!("{}: {unfit}", path.display()))
}

fn certs(configuration: &Configuration) -> Result<Option<Certs>, String> {
    match (&configuration.tls_cert, &configuration.tls_key) {
        (Some(cert), Some(key)) => CertFiles { cert: cert.clone(), key: key.clone() }.read().map(Some),
        _ => Ok(None),
    }
}

/// A connection is a file to the system, which limits how many a process may open.
fn look_at_file_limit(connections_max: usize, listeners: usize) {
    let wanted = (connections_max * listeners) as u64 + FILES_RESERVED;
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(allowed) if allowed < wanted => warn!(
            "connections_max is {connections_max}, for each protocol, which takes {wanted} open files, and the system \
             allows {allowed}: beyond that new clients wait until others leave. Raise the hard limit (LimitNOFILE of \
             the unit), or lower connections_max"
        ),
        Ok(_) => {}
        Err(error) => warn!("cannot find out how many files may be opened: {error}"),
    }
}

async fn serve(
    configuration: Configuration,
    parts: Parts,
    layers: &Layers,
    volume: &Volume,
) -> Result<(), String> {
    // Before anything listens: whoever has seen the address may send a signal.
    let mut signals = Signals::new().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let config = server::Config {
        listen: parts.listen,
        password: parts.password,
        tls: parts.tls.clone(),
        hosts: configuration.hosts.clone(),
        limits: configuration.limits,
        settings: configuration.engine,
        keys: keys(&configuration).await?,
        rules: configuration.rules.clone(),
    };
    let server = Server::start(config, Arc::new(SystemClock)).await.map_err(|error| error.to_string())?;
    let with_tls = if parts.tls.is_some() { ", with TLS" } else { "" };
    for (protocol, address) in server.addresses() {
        info!("listening for {protocol} on {address}{with_tls}");
    }
    info!("{}", rules_in_words(&configuration));
    let reload =
        Reload { server: &server, started: &configuration, tls: parts.tls.as_deref(), layers, volume };
    while signals.next().await == Signal::Reload {
        reload.again();
    }
    info!(
        "stopping: answering what has arrived, for at most {} s; a second signal ends it at once",
        GRACE.as_secs()
    );
    tokio::select! {
        () = server.stop() => info!("stopped"),
        () = tokio::time::sleep(GRACE) => warn!("stopped, though clients were still connected"),
        () = signals.stop() => warn!("stopped at once by a second signal"),
    }
    Ok(())
}

/// Where keys are to live. A shared store that is away is no reason not to start: it may be back before we are.
async fn keys(configuration: &Configuration) -> Result<Keys, String> {
    let config::Store { url, tls_ca, deadline, key_prefix, remember_denials } = &configuration.store;
    let Some(url) = url else { return Ok(Keys::InMemory) };
    let mut store = RedisStore::builder(url.with_password())
        .deadline(*deadline)
        .key_prefix(key_prefix)
        .remember_denials(*remember_denials);
    if let Some(path) = tls_ca {
        let pem = std::fs::read(path);
        store = store.tls_ca(pem.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?);
    }
    let keys = Keys::connect(store.connect_later(), StoreTime::Store).await;
    let keys = keys.map_err(|error| format!("[store] url: {error}"))?;
    info!("keys live in the store at {url}");
    Ok(keys)
}

fn rules_in_words(configuration: &Configuration) -> String {
    match configuration.rules.len() {
        0 => "no rules: callers bring their own limits".to_owned(),
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    }
}

/// What takes up a changed configuration.
struct Reload<'a> {
    server: &'a Server,
    started: &'a Configuration,
    tls: Option<&'a Tls>,
    layers: &'a Layers,
    volume: &'a Volume,
}

impl Reload<'_> {
    /// Takes up all that can be, or nothing.
    fn again(&self) {
        let taken_up = self.taken_up();
        self.server.service().metrics.reloaded(taken_up.is_ok());
        match taken_up {
            Ok(configuration) => {
                info!("configuration taken up: {}", rules_in_words(&configuration));
                let waiting = self.needs_restart(&configuration);
                if !waiting.is_empty() {
                    warn!("changed, but needs a restart: {}", waiting.join(", "));
                }
            }
            Err(reasons) => {
                for reason in reasons.lines() {
                    error!("configuration refused, the old one goes on: {reason}");
                }
            }
        }
    }

    fn taken_up(&self) -> Result<Configuration, String> {
        let configuration = self.layers.read().map_err(|problems| problems.to_string())?;
        let certs = if self.tls.is_some() { certs(&configuration)? } else { None };
        let engine = &self.server.service().engine;
        engine.load(configuration.rules.clone()).map_err(|mistake| mistake.to_string())?;
        // Nothing can fail any more.
        if let (Some(tls), Some(certs)) = (self.tls, certs) {
            tls.renew(certs);
        }
        self.volume.set(configuration.log.level);
        Ok(configuration)
    }

    fn needs_restart(&self, now: &Configuration) -> Vec<&'static str> {
        let tls_switched = now.tls_cert.is_some() != self.started.tls_cert.is_some();
        let waits = |name: &str, live: bool| !live || (name.starts_with("tls_") && tls_switched);
        SETTINGS
            .iter()
            .filter(|setting| waits(setting.name, setting.live))
            .filter(|setting| setting.differs(self.started, now))
            .map(|setting| setting.name)
            .collect()
    }
}
