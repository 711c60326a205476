//! Free ports.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the ephemeral ports. Otherwise a client that tries to reach a server that is down could
/// get the server's port as its own and connect to itself, and the server could not restart.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;

/// Ports in use by servers of this process, which may be down at the moment.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// Returns a port that is free and that this process has not used before.
pub(crate) fn free() -> u16 {
    listen().0
}

/// Returns such a port with a listener, so that no other process can take it.
pub(crate) fn listen() -> (u16, TcpListener) {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let random = RandomState::new();
    let tries = (0..u32::from(COUNT)).map(|number| random.hash_one(number) % u64::from(COUNT));
    let port = tries
        .filter_map(|offset| u16::try_from(offset).ok())
        .map(|offset| FIRST + offset)
        .filter(|port| !taken.contains(port))
        .find_map(|port| Some((port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?)));
    let (port, listener) = port.expect("a free port on this machine");
    taken.insert(port);
    (port, listener)
}
