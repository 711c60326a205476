//! Helpers for tests of leases, under a rule named exports.

use crate::resp_client::Client;
use redis_testkit::until;
use sluicegate_server::engine::Engine;

/// Longer than any test takes, in milliseconds.
pub(crate) const LONG_MS: u64 = 60_000;

/// Waits until this many calls wait for a lease.
pub(crate) fn wait_for_waiters(engine: &Engine, len: usize) {
    let waiting = || engine.rules().find("exports").unwrap().leases().unwrap().waiting;
    until(&format!("{len} are in line"), || waiting() == len);
}

/// The lease in a RESP reply, as shown.
pub(crate) fn lease_in(reply: &str) -> Option<String> {
    let (_, lease) = reply.strip_prefix("*8|:1|")?.split_once("|$-1|$")?;
    let (_length, lease) = lease.trim_end_matches('|').split_once('|')?;
    Some(lease.to_owned())
}

/// Acquires the key's only lease.
pub(crate) fn hold(client: &mut Client, key: &str) -> String {
    let reply = client.ask(&format!("RL.ACQUIRE exports {key}"));
    lease_in(&reply).unwrap_or_else(|| panic!("no lease in {reply}"))
}

/// Releases a lease.
pub(crate) fn release(client: &mut Client, key: &str, lease: &str) {
    assert_eq!(client.ask(&format!("RL.RELEASE exports {key} {lease}")), ":1|");
}

pub(crate) fn is_free(client: &mut Client, key: &str) -> bool {
    client.ask(&format!("RL.PEEK exports {key}")).starts_with("*7|:1|")
}
