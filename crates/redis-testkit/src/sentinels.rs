//! A master and its replica under three sentinels.

use crate::options::Options;
use crate::replicated::Replicated;
use crate::server::Server;
use crate::wait;

/// A master, its replica, and three sentinels that promote the replica when the master fails.
#[derive(Debug)]
pub struct Sentinels {
    servers: Replicated,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// The master's name in Sentinel.
    pub const NAME: &'static str = "main";

    /// Starts all five, and returns once the sentinels know each other and the replica.
    pub fn start(options: &Options) -> Sentinels {
        // The replica first: a sentinel queries a master for its replicas only every ten seconds.
        let servers = Replicated::start(options);
        let name = Sentinels::NAME;
        let mut sentinel = options
            .clone()
            .sentinel()
            .with(&format!("sentinel monitor {name} 127.0.0.1 {} 2", servers.master().plain_port()))
            // On a busy machine a master may be silent for a second, and must not be taken for
            // dead.
            .with(&format!("sentinel down-after-milliseconds {name} 2000"))
            .with(&format!("sentinel failover-timeout {name} 6000"));
        if let Some(password) = sentinel.password.take() {
            sentinel = sentinel.with(&format!("sentinel auth-pass {name} {password}"));
        }
        let sentinels = (0..3).map(|_| Server::start(&sentinel)).collect();
        let all = Sentinels { servers, sentinels };
        wait::until("the sentinels know each other and the replica", || {
            all.sentinels.iter().all(|sentinel| {
                let line = sentinel.info("master0");
                line.contains("status=ok") && line.contains("slaves=1") && line.contains("sentinels=3")
            })
        });
        all
    }

    /// The sentinels' ports.
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Server::port).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The initial master and its replica.
    pub fn servers(&self) -> &Replicated {
        &self.servers
    }

    /// The URL: the sentinels, and the master's name.
    pub fn url(&self) -> String {
        let addresses: Vec<String> =
            self.ports().into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{}", addresses.join(","), Sentinels::NAME)
    }

    /// The port of the master, according to most sentinels.
    pub fn master_port(&self) -> u16 {
        let says = |sentinel: &Server, port: u16| {
            let address = sentinel.ask(&["SENTINEL", "get-master-addr-by-name", Sentinels::NAME]).to_string();
            address.ends_with(&format!("\n{port}"))
        };
        let (first, second) = (self.servers.master().plain_port(), self.servers.replica().plain_port());
        let votes = self.sentinels.iter().filter(|sentinel| says(sentinel, second)).count();
        if votes >= 2 { second } else { first }
    }

    /// Kills the initial master, and returns once the replica is promoted.
    pub fn failover(&self) {
        self.servers.master().kill();
        self.wait_for_failover();
    }

    /// Waits until the replica is the master and the sentinels report it.
    pub fn wait_for_failover(&self) {
        let replica = self.servers.replica();
        wait::until("the replica is the master", || {
            replica.info("role") == "master" && self.master_port() == replica.plain_port()
        });
    }
}
