//! A single server.

use crate::client::{Client, Reply};
use crate::folder::Folder;
use crate::options::{Options, User};
use crate::watchdog::Watchdog;
use crate::{ports, wait};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

/// A Redis or Valkey server, stopped on drop.
#[derive(Debug)]
pub struct Server {
    options: Options,
    folder: Folder,
    ports: Ports,
    running: Mutex<Option<Running>>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    /// Without TLS. A server with TLS has this port too, for the test's own commands.
    plain: u16,
    tls: Option<u16>,
    /// The cluster bus.
    bus: Option<u16>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    _watchdog: Watchdog,
}

impl Server {
    /// Starts a server, and returns once it answers.
    pub fn start(options: &Options) -> Server {
        // Another process may take the port before the server listens on it.
        const TRIES: u32 = 5;
        let mut problem = String::new();
        for _ in 0..TRIES {
            let ports = Ports {
                plain: ports::free(),
                tls: options.tls.then(ports::free),
                bus: options.cluster.then(ports::free),
            };
            let server =
                Server { folder: Folder::new(), ports, running: Mutex::default(), options: options.clone() };
            server.configure();
            match server.run() {
                Ok(()) => return server,
                Err(why) => problem = why,
            }
        }
        panic!("cannot start {}: {problem}", options.program.display());
    }

    /// The URL, with user, password and `rediss` as in the options.
    pub fn url(&self) -> String {
        let who = match (&self.options.user, &self.options.password) {
            (Some(user), _) => format!("{}:{}@", user.name, user.password),
            (None, Some(password)) => format!(":{password}@"),
            (None, None) => String::new(),
        };
        let scheme = if self.options.tls { "rediss" } else { "redis" };
        format!("{scheme}://{who}127.0.0.1:{}", self.port())
    }

    /// The port of the URL.
    pub fn port(&self) -> u16 {
        self.ports.tls.unwrap_or(self.ports.plain)
    }

    /// The port without TLS.
    pub(crate) fn plain_port(&self) -> u16 {
        self.ports.plain
    }

    /// The port of the cluster bus.
    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.ports.bus
    }

    /// The certificate of a server with TLS, in PEM, for clients to trust.
    pub fn certificate(&self) -> String {
        fs::read_to_string(self.folder.path().join("cert.pem")).expect("a server with TLS")
    }

    /// Runs a command as an all-powerful user, and returns the reply as `redis-cli` prints it. An
    /// error is its text.
    ///
    /// A sentinel that promotes or demotes a server closes all its connections, including this one.
    /// The command is then sent again on a new connection, and may run twice; use a [`Client`] for
    /// commands that must not.
    pub fn cli(&self, words: &[&str]) -> String {
        self.ask(words).to_string()
    }

    /// Runs a command like [`Server::cli`], and returns the reply.
    pub fn ask(&self, words: &[&str]) -> Reply {
        let asked = again_if_broken(|| self.client()?.ask(words));
        asked.unwrap_or_else(|error| panic!("{} on the server at {}: {error}", words.join(" "), self.port()))
    }

    /// Opens a connection for the test's own commands, as an all-powerful user.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn client(&self) -> io::Result<Client> {
        let mut client = Client::connect(self.ports.plain)?;
        if let Some(password) = &self.options.password {
            client.ask(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// Returns a field of `INFO`, as in `info("role")`.
    pub fn info(&self, field: &str) -> String {
        let found = again_if_broken(|| info(&mut self.client()?, field));
        found.unwrap_or_else(|error| panic!("INFO {field} on the server at {}: {error}", self.port()))
    }

    /// Sends SIGKILL: the server cannot clean up, and its connections break.
    pub fn kill(&self) {
        if let Some(mut running) = self.running().take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Restarts the server on the same port with its data on disk. Kills it first if it is running.
    pub fn restart(&self) {
        self.kill();
        self.run().unwrap_or_else(|why| panic!("cannot restart the server at {}: {why}", self.port()));
    }

    /// Sends SIGSTOP: the server is frozen, and its connections stay open.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Sends SIGCONT: the server continues.
    pub fn cont(&self) {
        self.signal("CONT");
    }

    /// The CPU time that the server has used since it started.
    pub fn cpu_time(&self) -> Duration {
        // From getrusage, in microseconds; /proc/<pid>/stat counts in hundredths of a second.
        let seconds = |field| self.info(field).parse::<f64>().expect("seconds of processor time");
        Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
    }

    /// The memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        self.info("used_memory").parse().expect("bytes of memory")
    }

    /// The process id, unless it was killed.
    pub fn process(&self) -> Option<u32> {
        self.running().as_ref().map(|running| running.child.id())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, name: &str) {
        let process = self.process().expect("a running server");
        // The shell's built-in `kill`: the program is not installed everywhere.
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name} to process {process}");
    }

    /// Writes the configuration: to a file, because a sentinel rewrites it.
    fn configure(&self) {
        let Options { password, user, tls, sentinel, cluster, lines, .. } = &self.options;
        let mut text = format!("bind 127.0.0.1\nport {}\ndaemonize no\n", self.ports.plain);
        text += &format!("dir {}\nlogfile server.log\n", self.folder.path().display());
        if !sentinel {
            // Replicas sync at once instead of after 5 s; nothing is persisted by default.
            text += "save \"\"\nrepl-diskless-sync-delay 0\nenable-debug-command yes\n";
        }
        if let Some(password) = password {
            text += &format!("requirepass {password}\nmasterauth {password}\n");
        }
        if let Some(User { name, password, rules }) = user {
            text += &format!("user {name} on >{password} {rules}\n");
        }
        if *tls {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
            let made = made.expect("a certificate");
            let certificate = self.folder.write("cert.pem", &made.cert.pem());
            let key = self.folder.write("key.pem", &made.signing_key.serialize_pem());
            text += &format!("tls-port {}\ntls-auth-clients no\n", self.port());
            text += &format!("tls-cert-file {}\ntls-key-file {}\n", certificate.display(), key.display());
            text += &format!("tls-ca-cert-file {}\n", certificate.display());
        }
        if *cluster {
            let bus = self.ports.bus.unwrap_or_default();
            text += &format!("cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port {bus}\n");
        }
        for line in lines {
            text += &format!("{line}\n");
        }
        self.folder.write("server.conf", &text);
    }

    fn run(&self) -> Result<(), String> {
        let mut command = Command::new(&self.options.program);
        command.arg(self.folder.path().join("server.conf"));
        if self.options.sentinel {
            command.arg("--sentinel");
        }
        // A process that waits for the end of the test's output must not wait for the server.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let watchdog = Watchdog::over(child.id(), self.folder.path());
        let process = child.id().to_string();
        *self.running() = Some(Running { child, _watchdog: watchdog });
        let mut ended = false;
        wait::until("the server answers", || {
            let exited =
                |running: &mut Running| running.child.try_wait().is_ok_and(|status| status.is_some());
            ended = self.running().as_mut().is_some_and(exited);
            // Another process may own the port by now: only our own process counts.
            let answers = || -> io::Result<bool> {
                let mut client = self.client()?;
                let is_ours = info(&mut client, "process_id")? == process;
                Ok(is_ours && client.ask(&["PING"])? == Reply::Text("PONG".to_owned()))
            };
            ended || answers().unwrap_or(false)
        });
        if ended {
            self.kill();
            return Err(fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Retries while connections break. Fails at once if the server does not accept connections.
fn again_if_broken<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    const TRIES: u32 = 10;
    for _ in 1..TRIES {
        match ask() {
            Err(error)
                if [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof]
                    .contains(&error.kind()) => {}
            asked => return asked,
        }
    }
    ask()
}

fn info(client: &mut Client, field: &str) -> io::Result<String> {
    let all = client.ask(&["INFO"])?.to_string();
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no such field: {all}")))
}
