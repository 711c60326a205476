//! A server as a process: from a configuration to the signal that ends it.

use crate::auth::Password;
use crate::clock_watch;
use crate::config::{self, Configuration, Layers, Log, LogLevel};
use crate::engine::{Keys, StoreTime};
use crate::exposure::{self, Protection};
use crate::log::{self, LevelHandle};
use crate::metrics;
use crate::net::tls::{CertFiles, Certs, Tls};
use crate::protocol::Protocol;
use crate::reload::Reload;
use crate::server::{self, Server};
use crate::signals::Signals;
use sluicegate::clock::SystemClock;
use sluicegate_redis::RedisStore;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tracing::{error, info, warn};

/// How long open connections may take to finish after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);
/// Files that a server opens besides its connections.
const FILES_RESERVED: u64 = 64;

/// Runs a server until a signal stops it. `insecure` allows an address other than loopback without
/// a password and TLS.
///
/// # Errors
/// If it cannot start: one line per reason.
pub fn run(layers: &Layers, insecure: bool) -> Result<(), String> {
    metrics::count_panics();
    // First of all: a signal during the start is then queued, and does not end the process. The
    // runtime that serves is not built yet, as the configuration says how many threads it has.
    let (first_runtime, mut signals) =
        signals().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let starting = first_runtime.spawn_blocking({
        let layers = layers.clone();
        move || Starting::read(&layers, insecure)
    });
    let started = first_runtime.block_on(async {
        tokio::select! {
            started = starting => Some(started),
            () = signals.stop() => None,
        }
    });
    // A pipe among the files can keep the start waiting.
    let Some(started) = started else {
        first_runtime.shutdown_background();
        return Ok(());
    };
    let Starting { configuration, config, level_handle, runtime } =
        started.map_err(|error| format!("the start failed: {error}"))??;
    let done = runtime.block_on(serve(configuration, config, layers, &level_handle, signals));
    // Connections that are still open have had their grace period.
    runtime.shutdown_background();
    done
}

/// What is there before the server listens.
struct Starting {
    configuration: Configuration,
    config: server::Config,
    level_handle: LevelHandle,
    runtime: Runtime,
}

impl Starting {
    /// Reads all files, and starts the log and the threads.
    fn read(layers: &Layers, insecure: bool) -> Result<Starting, String> {
        let configuration = layers.read().map_err(|errors| errors.to_string())?;
        let level_handle = log::start(configuration.log);
        let runtime =
            runtime(configuration.threads).map_err(|error| format!("cannot start threads: {error}"))?;
        let config = runtime.block_on(prepare(&configuration, insecure, layers, Files::Read))?;
        Ok(Starting { configuration, config, level_handle, runtime })
    }
}

/// What to do with the files that a configuration names: passwords and certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// Read them.
    Read,
    /// Trust that they will be there: for a machine that has no secrets.
    Skip,
}

/// Does what [`run`] does until it would listen, and returns the configuration. Warnings are logged
/// as by a server; a shared store is not contacted.
///
/// # Errors
/// Those of [`run`], except for an address that cannot be bound.
pub fn validate(layers: &Layers, insecure: bool, files: Files) -> Result<Configuration, String> {
    let configuration = layers.read().map_err(|errors| errors.to_string())?;
    log::start(Log { level: LogLevel::Warn, ..configuration.log });
    let runtime = runtime(Some(1)).map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(async {
        let config = prepare(&configuration, insecure, layers, files).await?;
        config.engine(Arc::new(SystemClock)).map_err(|error| error.to_string())
    })?;
    Ok(configuration)
}

/// Starts to listen for signals, in a runtime for this alone. Signals reach every runtime of the
/// process.
fn signals() -> io::Result<(Runtime, Signals)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new()?
    };
    Ok((runtime, signals))
}

/// Builds the runtime: one thread per core by default. A single thread has no others to share work
/// with, so it needs no work-stealing scheduler.
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

/// Resolves the addresses and reads the files that the configuration names, and checks that the
/// server may listen with them.
async fn prepare(
    configuration: &Configuration,
    insecure: bool,
    layers: &Layers,
    files: Files,
) -> Result<server::Config, String> {
    for name in layers.unknown_variables() {
        warn!("ignoring unknown environment variable {name}; `sluice serve --help` lists the known ones");
    }
    let wanted = configuration.listen.iter().filter_map(|(protocol, at)| Some((protocol, at.as_ref()?)));
    let listen = wanted
        .map(|(protocol, address)| Ok((protocol, resolve(address)?)))
        .collect::<Result<Vec<_>, String>>()?;
    if listen.is_empty() {
        let ids = Protocol::ALL.map(|protocol| protocol.description().id).join(", ");
        return Err(format!("every protocol is off, so no client could connect; turn one on: {ids}"));
    }
    let password = password(configuration, layers, files)?;
    let certs = if files == Files::Read { certs(configuration)? } else { None };
    // By what is configured, as files may be skipped.
    let protection = Protection {
        password: password.is_some() || configuration.password_file.is_some(),
        tls: configuration.tls_cert.is_some() && configuration.tls_key.is_some(),
        insecure,
    };
    for (protocol, address) in &listen {
        exposure::check(*protocol, *address, protection)?;
        if let Some(password) = &password {
            exposure::check_password(*protocol, *address, password, insecure)?;
        }
    }
    Ok(server::Config {
        listen,
        password,
        tls: certs.map(|certs| Arc::new(Tls::new(certs))),
        hosts: configuration.hosts.clone(),
        limits: configuration.limits,
        settings: configuration.engine,
        keys: keys(configuration, files).await?,
        rules: configuration.rules.clone(),
    })
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
    let found = address.to_socket_addrs().map_err(|error| format!("cannot resolve {address}: {error}"))?;
    found.into_iter().next().ok_or_else(|| {
        format!("cannot resolve {address}: the name has no address; use an IP address such as 127.0.0.1")
    })
}

/// The password from the environment or, if there is none, from the file. One in the environment
/// and one in a flag is an error, as neither is the obvious choice.
fn password(
    configuration: &Configuration,
    layers: &Layers,
    files: Files,
) -> Result<Option<Password>, String> {
    if let Some(password) = layers.password() {
        if layers.flags.iter().any(|(name, _)| *name == "--password-file") {
            return Err("SLUICE_PASSWORD: --password-file is set too; use one of them".into());
        }
        return Password::new(password.as_bytes())
            .map(Some)
            .map_err(|unfit| format!("SLUICE_PASSWORD: {unfit}"));
    }
    let Some(path) = configuration.password_file.as_ref().filter(|_| files == Files::Read) else {
        return Ok(None);
    };
    let (password, warning) = config::read_password(path)?;
    if let Some(warning) = warning {
        warn!("{warning}");
    }
    Password::new(&password).map(Some).map_err(|unfit| format!("{}: {unfit}", path.display()))
}

pub(crate) fn certs(configuration: &Configuration) -> Result<Option<Certs>, String> {
    match (&configuration.tls_cert, &configuration.tls_key) {
        (Some(cert), Some(key)) => CertFiles { cert: cert.clone(), key: key.clone() }.read().map(Some),
        _ => Ok(None),
    }
}

/// Raises the soft limit on open files as far as the system allows. Returns the connections per
/// listener that fit: at most `connections_max`, less if the hard limit is too low. Beyond the
/// limit every accept would fail, for all listeners; with a lower `connections_max` clients get an
/// error.
fn fit_open_files(connections_max: usize, listeners: usize) -> usize {
    let allowed = match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(allowed) => allowed,
        Err(error) => {
            warn!("cannot read the limit on open files: {error}; connections_max stays {connections_max}");
            return connections_max;
        }
    };
    let fits = connections_within(allowed, listeners);
    if fits >= connections_max {
        return connections_max;
    }
    info!(
        "connections_max lowered from {connections_max} to {fits} per protocol: the system allows {allowed} open \
         files; raise the hard limit (ulimit -Hn, or LimitNOFILE in the unit) for more"
    );
    fits
}

/// The connections per listener that this many open files allow; at least one.
fn connections_within(files: u64, listeners: usize) -> usize {
    let for_connections = usize::try_from(files.saturating_sub(FILES_RESERVED)).unwrap_or(usize::MAX);
    (for_connections / listeners.max(1)).max(1)
}

async fn serve(
    configuration: Configuration,
    mut config: server::Config,
    layers: &Layers,
    level_handle: &LevelHandle,
    mut signals: Signals,
) -> Result<(), String> {
    let tls = config.tls.clone();
    config.limits.connections_max = fit_open_files(config.limits.connections_max, config.listen.len());
    let mut server = Server::start(config, Arc::new(SystemClock)).await.map_err(|error| error.to_string())?;
    let with_tls = if tls.is_some() { ", with TLS" } else { "" };
    for (protocol, address) in server.addresses() {
        info!("listening for {protocol} on {address}{with_tls}");
    }
    info!("{} loaded", rule_count(configuration.rules.len()));
    let service = server.service().clone();
    let reload = Reload::new(&service, &configuration, tls.as_ref(), layers, level_handle);
    let ended = until_end(&mut server, reload.until_stop(&mut signals)).await;
    info!(
        "stopping: answering pending requests for at most {} s; a second signal stops at once",
        GRACE.as_secs()
    );
    tokio::select! {
        () = server.stop() => info!("stopped"),
        () = tokio::time::sleep(GRACE) => warn!("stopped with clients still connected"),
        () = signals.stop() => warn!("stopped by a second signal"),
    }
    ended
}

/// Waits until the server is to stop, or a listener fails: the process then ends with an error, so
/// that its supervisor restarts it.
async fn until_end(server: &mut Server, stop: impl Future<Output = ()>) -> Result<(), String> {
    tokio::select! {
        () = stop => Ok(()),
        () = clock_watch::log_steps() => Ok(()),
        failure = server.listener_failed() => {
            error!("{failure}");
            Err(failure)
        }
    }
}

/// Where keys live. The server starts even if the shared store is unavailable: it connects later.
async fn keys(configuration: &Configuration, files: Files) -> Result<Keys, String> {
    let config::Store { url, tls_ca, deadline, key_prefix, remember_denials } = &configuration.store;
    let Some(url) = url else { return Ok(Keys::InMemory) };
    let mut store = RedisStore::builder(url.with_password())
        .deadline(*deadline)
        .key_prefix(key_prefix)
        .remember_denials(*remember_denials);
    if let Some(path) = tls_ca.as_ref().filter(|_| files == Files::Read) {
        let pem = std::fs::read(path);
        store = store.tls_ca(
            pem.map_err(|error| format!("{}: cannot read the certificates: {error}", path.display()))?,
        );
    }
    let keys = Keys::connect(store.connect_later(), StoreTime::Store).await;
    let keys = keys.map_err(|error| format!("[store] url: {error}"))?;
    info!("using the shared store at {url}");
    Ok(keys)
}

pub(crate) fn rule_count(rules: usize) -> String {
    match rules {
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_panics_ends_the_server_with_an_error() {
        for protocol in Protocol::ALL {
            let listen = Protocol::ALL.map(|protocol| (protocol, ([127, 0, 0, 1], 0).into())).into();
            let config = server::Config { listen, ..server::Config::default() };
            let mut server = Server::start(config, Arc::new(SystemClock)).await.unwrap();
            let address = server.address(protocol).unwrap();
            let stop = tokio::task::yield_now();
            assert_eq!(until_end(&mut server, stop).await, Ok(()), "a server that works ends by its signal");
            server.break_listener(protocol);
            let failure = until_end(&mut server, std::future::pending()).await.unwrap_err();
            assert!(
                failure.starts_with(&format!("the {protocol} listener on {address} failed: "))
                    && failure.contains("a bug in the listener"),
                "{failure}"
            );
        }
    }

    #[test]
    fn connections_fit_the_open_files_of_all_listeners() {
        for (files, listeners, connections) in
            [(20_000, 2, 9_968), (1_024, 1, 960), (10, 2, 1), (1_024, 0, 960)]
        {
            assert_eq!(
                connections_within(files, listeners),
                connections,
                "{files} files, {listeners} listeners"
            );
        }
    }
}
