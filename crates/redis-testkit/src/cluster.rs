//! A cluster.

use crate::client::Reply;
use crate::options::Options;
use crate::server::Server;
use crate::wait;

/// The number of hash slots.
const SLOTS: usize = 16_384;

/// A cluster whose masters share the slots evenly, each with the same number of replicas.
#[derive(Debug)]
pub struct Cluster {
    /// First the masters, in the order of their slots, then the replicas.
    nodes: Vec<Server>,
    masters: usize,
}

impl Cluster {
    /// Starts masters, each with `replicas` replicas, and returns once all nodes agree that the
    /// cluster is up.
    pub fn start(options: &Options, masters: usize, replicas: usize) -> Cluster {
        // On a busy machine a node may be silent for seconds. Without a replica that could take
        // over, a dead node need not be noticed soon.
        let timeout_ms = if replicas == 0 { 15_000 } else { 4_000 };
        let options = options.clone().cluster().with(&format!("cluster-node-timeout {timeout_ms}"));
        let count = masters * (1 + replicas);
        let nodes: Vec<Server> = (0..count).map(|_| Server::start(&options)).collect();
        let cluster = Cluster { nodes, masters };
        cluster.introduce();
        cluster.share_slots();
        cluster.attach_replicas();
        wait::until("the cluster is well", || cluster.nodes.iter().all(|node| is_well(node, masters)));
        cluster
    }

    /// First the masters, in the order of their slots, then the replicas.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The initial masters.
    pub fn masters(&self) -> &[Server] {
        &self.nodes[..self.masters]
    }

    /// The URL: some of its nodes.
    pub fn url(&self) -> String {
        let urls: Vec<String> = self.masters().iter().map(Server::url).collect();
        let (scheme, first) = urls[0].split_once("://").unwrap_or_default();
        let rest = urls[1..].iter().filter_map(|url| url.rsplit(['/', '@']).next());
        let hosts: Vec<&str> = std::iter::once(first).chain(rest).collect();
        format!("{scheme}+cluster://{}", hosts.join(","))
    }

    /// The hash slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).parse().expect("a slot")
    }

    /// The index, in [`Cluster::nodes`], of the master that owns a slot, according to the first
    /// node.
    pub fn owner_of(&self, slot: u16) -> usize {
        let slots = self.nodes[0].ask(&["CLUSTER", "SLOTS"]);
        let has = |range: &&Reply| match range.parts() {
            [Reply::Number(first), Reply::Number(last), ..] => (*first..=*last).contains(&i64::from(slot)),
            _ => false,
        };
        let range = slots.parts().iter().find(has).expect("every slot has an owner");
        let Some(Reply::Number(port)) = range.parts().get(2).and_then(|node| node.parts().get(1)) else {
            panic!("no port in {range:?}");
        };
        let place = self.nodes.iter().position(|node| i64::from(node.plain_port()) == *port);
        place.expect("a node of this cluster")
    }

    /// Migrates a slot with all its keys, while clients use it.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    /// First step: keys that `from` does not have are redirected to `to` with `ASK`.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        assert_eq!(target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]), "OK");
        assert_eq!(source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]), "OK");
    }

    /// Second step: moves the keys, one by one.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let port = target.plain_port().to_string();
        loop {
            let keys = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "10"]);
            if keys.parts().is_empty() {
                return;
            }
            for key in keys.parts() {
                let moved = source.cli(&["MIGRATE", "127.0.0.1", &port, &key.to_string(), "0", "5000"]);
                assert!(["OK", "NOKEY"].contains(&moved.as_str()), "MIGRATE {key}: {moved}");
            }
        }
    }

    /// Last step: `to` owns the slot, and `from` replies `MOVED`.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let target = id(&self.nodes[to]);
        // The new owner first: otherwise it would send clients back, and they would be sent on
        // again.
        let rest = (0..self.masters).filter(|&place| place != from && place != to);
        for place in [to, from].into_iter().chain(rest) {
            assert_eq!(self.nodes[place].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]), "OK");
        }
    }

    fn introduce(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            // Nodes with the same epoch would have to resolve the conflict first.
            assert_eq!(node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]), "OK");
            let (port, bus) = (self.nodes[0].plain_port(), self.nodes[0].bus_port().unwrap_or_default());
            if place > 0 {
                let met = node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
                assert_eq!(met, "OK");
            }
        }
        let all = self.nodes.len().to_string();
        wait::until("the nodes know each other", || {
            self.nodes.iter().all(|node| state(node, "cluster_known_nodes") == all)
        });
    }

    fn share_slots(&self) {
        for (place, node) in self.masters().iter().enumerate() {
            let first = SLOTS * place / self.masters;
            let last = SLOTS * (place + 1) / self.masters - 1;
            let added = node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            assert_eq!(added, "OK");
        }
    }

    fn attach_replicas(&self) {
        let replicas = &self.nodes[self.masters..];
        for (place, node) in replicas.iter().enumerate() {
            let master = id(&self.nodes[place % self.masters]);
            // The node rejects this until it knows that the other is a master.
            wait::until("a replica follows", || node.cli(&["CLUSTER", "REPLICATE", &master]) == "OK");
        }
        wait::until("the replicas are in sync", || {
            replicas.iter().all(|node| node.info("master_link_status") == "up")
        });
    }
}

fn id(node: &Server) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

fn state(node: &Server, field: &str) -> String {
    let all = node.cli(&["CLUSTER", "INFO"]);
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

fn is_well(node: &Server, masters: usize) -> bool {
    state(node, "cluster_state") == "ok"
        && state(node, "cluster_slots_assigned") == SLOTS.to_string()
        && state(node, "cluster_size") == masters.to_string()
}
