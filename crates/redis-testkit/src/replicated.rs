//! A master and its replica.

use crate::options::Options;
use crate::server::Server;
use crate::wait;

/// A master and a replica that has all its data.
#[derive(Debug)]
pub struct Replicated {
    master: Server,
    replica: Server,
}

impl Replicated {
    /// Starts both, and returns once the replica is in sync.
    pub fn start(options: &Options) -> Replicated {
        let master = Server::start(options);
        let follow = format!("replicaof 127.0.0.1 {}", master.plain_port());
        let replica = Server::start(&options.clone().with(&follow));
        let both = Replicated { master, replica };
        both.wait_for_sync();
        both
    }

    /// The initial master.
    pub fn master(&self) -> &Server {
        &self.master
    }

    /// The initial replica.
    pub fn replica(&self) -> &Server {
        &self.replica
    }

    /// Waits until the replica is in sync.
    pub fn wait_for_sync(&self) {
        wait::until("the replica is in sync", || {
            self.replica.info("master_link_status") == "up"
                && self.replica.info("slave_repl_offset") == self.master.info("master_repl_offset")
        });
    }

    /// Promotes the replica, and makes the master its replica.
    pub fn promote(&self) {
        assert_eq!(self.replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        let port = self.replica.plain_port().to_string();
        assert_eq!(self.master.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    }
}
