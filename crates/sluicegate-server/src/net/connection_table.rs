//! The connections of one listener, and which of them makes room for a newcomer.
//!
//! A connection is *unestablished* until its client has sent a complete request and, with a
//! password, has authenticated. Until then anyone can hold it. So it has `handshake_timeout`, one
//! peer holds at most a tenth of `connections_max` in that state, and when the listener is full the
//! longest unestablished one makes room. Age is what counts, not the last byte: a byte now and then
//! does not keep a connection. Established connections are not capped per peer, as a proxy is one
//! peer, and never make room.
//!
//! Beyond `connections_max`, a protocol with health probes has [`RESERVE`] connections that serve
//! only those, so that a full server is not taken for a dead one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The part of `connections_max` that unestablished connections of one peer may hold: one in this
/// many.
const PEER_SHARE: usize = 10;
/// What a peer may hold at least, so that a pool of clients can start under a low
/// `connections_max`.
const PEER_SHARE_MIN: usize = 8;
/// Connections beyond `connections_max` that serve health probes.
const RESERVE: usize = 16;

/// Who a connection comes from: an IPv4 address, or the /64 of an IPv6 address, as one host usually
/// has all addresses of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub(crate) fn of(address: SocketAddr) -> Peer {
        Peer(match address.ip().to_canonical() {
            IpAddr::V4(ip) => IpAddr::V4(ip),
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        })
    }

    pub(crate) fn ip(self) -> IpAddr {
        self.0
    }
}

/// Why an unestablished connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClosedFor {
    /// It did not establish within `handshake_timeout`.
    HandshakeTimeout,
    /// Its peer held more than its share of unestablished connections.
    PeerShare,
    /// The listener was full, and no connection had been unestablished for longer.
    Full,
}

impl ClosedFor {
    /// All reasons, in the order in which they are listed.
    pub const ALL: [ClosedFor; 3] = [ClosedFor::HandshakeTimeout, ClosedFor::PeerShare, ClosedFor::Full];

    /// Its name in metrics and the log.
    pub const fn name(self) -> &'static str {
        match self {
            ClosedFor::HandshakeTimeout => "handshake_timeout",
            ClosedFor::PeerShare => "peer_share",
            ClosedFor::Full => "full",
        }
    }
}

/// The connections of one listener.
pub(crate) struct ConnectionTable {
    open_max: usize,
    peer_max: usize,
    reserve_max: usize,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    open: usize,
    reserve: usize,
    next_id: u64,
    /// By id, which is the order of arrival.
    unestablished: BTreeMap<u64, Unestablished>,
    by_peer: HashMap<Peer, BTreeSet<u64>>,
}

struct Unestablished {
    peer: Peer,
    in_reserve: bool,
    task: Option<AbortHandle>,
}

/// A connection that made room: its peer, and why.
pub(crate) type MadeRoom = (Peer, ClosedFor);

impl ConnectionTable {
    pub(crate) fn new(connections_max: usize, serves_probes: bool) -> Arc<ConnectionTable> {
        Arc::new(ConnectionTable {
            open_max: connections_max,
            peer_max: (connections_max / PEER_SHARE).max(PEER_SHARE_MIN),
            reserve_max: if serves_probes { RESERVE } else { 0 },
            state: Mutex::default(),
        })
    }

    /// Admits a newcomer, and closes those that make room for it. `None` if it is full of
    /// established connections.
    pub(crate) fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<(Client, Vec<MadeRoom>)> {
        let peer = Peer::of(address);
        let mut made_room = Vec::new();
        let mut state = self.state();
        let of_peer = state.by_peer.get(&peer);
        if let Some(first) = of_peer.filter(|ids| ids.len() >= self.peer_max).and_then(BTreeSet::first) {
            let first = *first;
            made_room.extend(state.close(first, ClosedFor::PeerShare));
        }
        if state.open >= self.open_max {
            made_room.extend(state.close_first(false));
        }
        let in_reserve = state.open >= self.open_max;
        if in_reserve && state.reserve >= self.reserve_max {
            made_room.extend(state.close_first(true));
        }
        let (held, most) = if in_reserve {
            (&mut state.reserve, self.reserve_max)
        } else {
            (&mut state.open, self.open_max)
        };
        if *held >= most {
            return None;
        }
        *held += 1;
        let id = state.next_id;
        state.next_id += 1;
        state.unestablished.insert(id, Unestablished { peer, in_reserve, task: None });
        state.by_peer.entry(peer).or_default().insert(id);
        let established = AtomicBool::new(false);
        let slot = ConnectionSlot { table: Arc::clone(self), id, in_reserve, established };
        Some((Client { slot: Some(Arc::new(slot)), ..Client::from(address) }, made_room))
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    /// Closes the connection that has been unestablished the longest, in the reserve or not.
    /// Connections in the reserve are few, so that skipping them is cheap; and there are some only
    /// if there are no others.
    fn close_first(&mut self, in_reserve: bool) -> Option<MadeRoom> {
        let (&id, _) = self.unestablished.iter().find(|(_, other)| other.in_reserve == in_reserve)?;
        self.close(id, ClosedFor::Full)
    }

    fn close(&mut self, id: u64, reason: ClosedFor) -> Option<MadeRoom> {
        let closed = self.remove(id)?;
        self.freed(closed.in_reserve);
        if let Some(task) = closed.task {
            task.abort();
        }
        Some((closed.peer, reason))
    }

    /// Removes an unestablished connection.
    fn remove(&mut self, id: u64) -> Option<Unestablished> {
        let removed = self.unestablished.remove(&id)?;
        if let Some(ids) = self.by_peer.get_mut(&removed.peer) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_peer.remove(&removed.peer);
            }
        }
        Some(removed)
    }

    fn freed(&mut self, in_reserve: bool) {
        let count = if in_reserve { &mut self.reserve } else { &mut self.open };
        *count = count.saturating_sub(1);
    }
}

/// The client of a connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) accepted: Instant,
    slot: Option<Arc<ConnectionSlot>>,
}

/// What a connection holds of its table until it is dropped.
struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    id: u64,
    in_reserve: bool,
    established: AtomicBool,
}

impl From<SocketAddr> for Client {
    /// A client of a connection in no table: it is never closed for others.
    fn from(address: SocketAddr) -> Client {
        Client { address, accepted: Instant::now(), slot: None }
    }
}

impl Client {
    /// The connection is established: it no longer makes room for others. Returns `false` if it
    /// has made room already, and is being closed.
    pub(crate) fn establish(&self) -> bool {
        let Some(slot) = &self.slot else { return true };
        if slot.in_reserve || slot.established.load(Ordering::Relaxed) {
            return true;
        }
        let established = slot.table.state().remove(slot.id).is_some();
        slot.established.store(established, Ordering::Relaxed);
        established
    }

    /// Returns `true` if the connection is beyond `connections_max`, for health probes only.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.in_reserve)
    }

    /// Sets the task to abort if the connection must make room. One that has established or ended
    /// since it was spawned needs none.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let Some(slot) = &self.slot else { return };
        if let Some(unestablished) = slot.table.state().unestablished.get_mut(&slot.id) {
            unestablished.task = Some(task);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.table.state();
        // One that made room is neither.
        if *self.established.get_mut() || state.remove(self.id).is_some() {
            state.freed(self.in_reserve);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 1)
    }

    #[test]
    fn a_peer_is_an_ipv4_address_or_the_64_of_an_ipv6_address() {
        let same = |one, other| Peer::of(at(one)) == Peer::of(at(other));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3") && !same("2001:db8::1", "2001:db8:0:1::1"));
    }

    #[test]
    fn a_connection_frees_its_slot_once() {
        let table = ConnectionTable::new(2, false);
        let open = || table.state().open;
        let (first, _) = table.admit(at("192.0.2.1")).unwrap();
        let (second, _) = table.admit(at("192.0.2.1")).unwrap();
        // The first makes room, whenever it is dropped.
        let (third, made_room) = table.admit(at("192.0.2.2")).unwrap();
        assert_eq!(made_room, [(Peer::of(at("192.0.2.1")), ClosedFor::Full)]);
        assert!(!first.establish() && second.establish() && second.establish() && third.establish());
        assert_eq!(open(), 2);
        drop(first);
        assert_eq!(open(), 2);
        assert!(table.admit(at("192.0.2.3")).is_none(), "both are established");
        drop(second);
        assert_eq!(open(), 1);
        let (fourth, made_room) = table.admit(at("192.0.2.3")).unwrap();
        assert_eq!((made_room, open()), (Vec::new(), 2));
        drop((third, fourth));
        let state = table.state();
        assert!(state.open == 0 && state.unestablished.is_empty() && state.by_peer.is_empty());
    }

    #[test]
    fn only_unestablished_connections_count_against_a_peer() {
        let table = ConnectionTable::new(1_000, false);
        let admit = || table.admit(at("192.0.2.1")).unwrap();
        let established: Vec<Client> =
            (0..500).map(|_| admit().0).inspect(|it| assert!(it.establish())).collect();
        let silent: Vec<Client> =
            (0..100).map(|_| admit()).inspect(|it| assert!(it.1.is_empty())).map(|it| it.0).collect();
        let (newcomer, made_room) = admit();
        assert_eq!(made_room, [(Peer::of(at("192.0.2.1")), ClosedFor::PeerShare)]);
        assert!(!silent[0].establish() && silent[1].establish() && newcomer.establish());
        assert_eq!((established.len(), table.state().open), (500, 600));
    }

    #[test]
    fn the_reserve_takes_turns_and_is_bounded() {
        let table = ConnectionTable::new(1, true);
        let (only, _) = table.admit(at("192.0.2.1")).unwrap();
        assert!(only.establish() && !only.is_in_reserve());
        let peer = |last: u8| at(&format!("192.0.2.{last}"));
        let probes: Vec<Client> = (0..100).map(|last| table.admit(peer(last)).unwrap().0).collect();
        assert!(probes.iter().all(Client::is_in_reserve));
        let held = || {
            let state = table.state();
            (state.open, state.reserve)
        };
        assert_eq!(held(), (1, RESERVE));
        drop((only, probes));
        assert_eq!(held(), (0, 0));
    }
}
