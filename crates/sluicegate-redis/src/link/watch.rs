//! Watches what no reply to a check shows: that a server evicts keys, each of which starts again
//! with its whole limit, and that a server which rejected writes accepts them again.
//!
//! The node's supervisor asks every few seconds. After a call was rejected, writes are tried with a
//! script that does nothing (`lua/probe.lua`), so that a server recovers without traffic.

use super::call_error::CallError;
use super::connection::{CONNECT_TIMEOUT, info, info_field};
use super::pipeline::{self, Channel, Outgoing};
use crate::script::ScriptCall;
use crate::scripts::PROBE;
use redis::Value;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// How often a server is asked.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// How often a write is tried while it rejects them.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two log lines about evicted keys.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The first words of errors that say that no call may write now.
const REJECTIONS: [&str; 4] = ["OOM", "MISCONF", "NOREPLICAS", "READONLY"];

/// Returns `true` for the message of an error that says that no call may write now.
pub(crate) fn rejects_writes(message: &str) -> bool {
    message.split(' ').next().is_some_and(|code| REJECTIONS.contains(&code))
}

/// What is known of one server.
pub(crate) struct Watch {
    /// The server's message, while it rejects writes.
    rejection: Mutex<Option<String>>,
    rejected: Notify,
    memory: Mutex<Observed>,
    /// Keys evicted by all servers of the store.
    evicted: Arc<AtomicU64>,
}

impl Watch {
    pub(crate) fn new(evicted: Arc<AtomicU64>) -> Watch {
        Watch { rejection: Mutex::default(), rejected: Notify::new(), memory: Mutex::default(), evicted }
    }

    /// The server's message, while it rejects writes.
    pub(crate) fn rejection(&self) -> Option<String> {
        lock(&self.rejection).clone()
    }

    /// Records an error of a call, if it says that the server rejects writes.
    pub(crate) fn record(&self, store: &str, message: &str) {
        if rejects_writes(message) {
            self.set_rejection(store, Some(message));
            self.rejected.notify_one();
        }
    }

    fn set_rejection(&self, store: &str, message: Option<&str>) {
        let mut rejection = lock(&self.rejection);
        match (&*rejection, message) {
            (None, Some(why)) => tracing::warn!(store, "store rejects writes: {why}"),
            (Some(_), None) => tracing::info!(store, "store accepts writes again"),
            _ => {}
        }
        *rejection = message.map(str::to_owned);
    }

    /// Watches the server over one connection, until the future is dropped.
    pub(crate) async fn run(&self, store: &str, mut channel: Channel) {
        lock(&self.memory).connected();
        loop {
            // Also a rejection that an earlier connection noticed.
            while self.rejection().is_some() {
                self.probe(store, &mut channel).await;
                if self.rejection().is_some() {
                    sleep(RETRY_EVERY).await;
                }
            }
            // What does not answer in time is left to the calls to notice.
            if let Ok(Some(info)) = timeout(CONNECT_TIMEOUT, info(channel.connection(), &SECTIONS)).await {
                self.observe(store, &info);
            }
            // Ask again either way: notified or not.
            let _ = timeout(WATCH_EVERY, self.rejected.notified()).await;
        }
    }

    fn observe(&self, store: &str, info: &str) {
        let Some(now) = Memory::read(info) else { return };
        let findings = lock(&self.memory).observe(now, Instant::now());
        self.evicted.fetch_add(findings.evicted, Relaxed);
        if let Some(policy) = findings.evicting_policy {
            tracing::warn!(
                store,
                "the store evicts keys when it is full: its maxmemory-policy is {policy}. An evicted key starts \
                 again with its whole limit; set maxmemory-policy noeviction"
            );
        }
        if let Some(keys) = findings.to_log {
            tracing::warn!(
                store,
                "the store evicted {keys} keys; limits among them start again. Raise maxmemory, and set \
                 maxmemory-policy noeviction"
            );
        }
    }

    async fn probe(&self, store: &str, channel: &mut Channel) {
        let call = ScriptCall::new(&PROBE, &[] as &[&[u8]]);
        let calls = [Outgoing { call: &call, asking: false }];
        let answers = pipeline::send(channel, &calls, Instant::now() + CONNECT_TIMEOUT).await;
        match answers.into_iter().next() {
            Some(Ok(Value::Int(_))) => self.set_rejection(store, None),
            Some(Err(CallError::Rejected(why) | CallError::ReadOnly(why))) if rejects_writes(&why) => {
                self.set_rejection(store, Some(&why));
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks, and the values are always valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sections of INFO with the fields of [`Memory`].
const SECTIONS: [&str; 3] = ["server", "memory", "stats"];

/// What a server says about its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Memory {
    /// Names the process: its counters begin with it.
    run_id: String,
    /// 0: no limit.
    limit: u64,
    policy: String,
    evicted: u64,
}

impl Memory {
    /// Reads INFO. `None` if the server does not say.
    fn read(info: &str) -> Option<Memory> {
        Some(Memory {
            run_id: info_field(info, "run_id")?.to_owned(),
            limit: info_field(info, "maxmemory")?.parse().ok()?,
            policy: info_field(info, "maxmemory_policy")?.to_owned(),
            evicted: info_field(info, "evicted_keys")?.parse().ok()?,
        })
    }

    /// Every key expires, so the `volatile-` policies evict limits like the others.
    fn evicts(&self) -> bool {
        self.limit > 0 && self.policy != "noeviction"
    }

    /// The keys evicted since an earlier look at the same process.
    fn evicted_since(&self, earlier: &Memory) -> u64 {
        match self.evicted.checked_sub(earlier.evicted) {
            _ if self.run_id != earlier.run_id => 0,
            Some(evicted) => evicted,
            // The counter was reset.
            None => self.evicted,
        }
    }
}

/// What was observed so far.
#[derive(Default)]
struct Observed {
    last: Option<Memory>,
    /// The policy was logged since the connection was made, or since it changed.
    is_logged: bool,
    unlogged: u64,
    logged: Option<Instant>,
}

/// What a look at the server found.
#[derive(PartialEq, Eq, Debug)]
struct Findings {
    /// The policy, if it is to be logged.
    evicting_policy: Option<String>,
    evicted: u64,
    /// Evicted keys, if they are to be logged.
    to_log: Option<u64>,
}

impl Observed {
    /// A new connection logs the policy again.
    fn connected(&mut self) {
        self.is_logged = false;
    }

    fn observe(&mut self, now: Memory, at: Instant) -> Findings {
        let evicted = self.last.as_ref().map_or(0, |last| now.evicted_since(last));
        self.unlogged = self.unlogged.saturating_add(evicted);
        let is_due = self.logged.is_none_or(|logged| at.duration_since(logged) >= LOG_INTERVAL);
        let to_log = (self.unlogged > 0 && is_due).then(|| std::mem::take(&mut self.unlogged));
        if to_log.is_some() {
            self.logged = Some(at);
        }
        let evicting_policy = (now.evicts() && !self.is_logged).then(|| now.policy.clone());
        self.is_logged = now.evicts();
        self.last = Some(now);
        Findings { evicting_policy, evicted, to_log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(run_id: &str, limit: u64, policy: &str, evicted: u64) -> Memory {
        let info = format!(
            "# Server\r\nrun_id:{run_id}\r\n# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:1B\r\n\
             maxmemory_policy:{policy}\r\n# Stats\r\nevicted_keys:{evicted}\r\n"
        );
        Memory::read(&info).unwrap()
    }

    #[test]
    fn only_errors_that_forbid_every_write_are_rejections() {
        for (message, rejects) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", true),
            ("MISCONF Redis is configured to save RDB snapshots", true),
            ("NOREPLICAS Not enough good replicas to write.", true),
            ("READONLY You can't write against a read only replica.", true),
            ("NOPERM this user has no permissions", false),
            ("OOMPH", false),
            ("", false),
        ] {
            assert_eq!(rejects_writes(message), rejects, "{message}");
        }
    }

    #[test]
    fn an_evicting_policy_is_logged_once_per_connection_and_change() {
        let (mut observed, at) = (Observed::default(), Instant::now());
        let mut logged = |limit, policy| observed.observe(memory("a", limit, policy, 0), at).evicting_policy;
        assert_eq!(logged(0, "allkeys-lru"), None, "without a limit nothing is evicted");
        assert_eq!(logged(1, "noeviction"), None);
        assert_eq!(logged(1, "volatile-ttl").as_deref(), Some("volatile-ttl"));
        assert_eq!(logged(1, "volatile-ttl"), None);
        assert_eq!(logged(1, "noeviction"), None);
        assert_eq!(logged(1, "allkeys-lru").as_deref(), Some("allkeys-lru"));
        observed.connected();
        let again = observed.observe(memory("a", 1, "allkeys-lru", 0), at);
        assert_eq!(again.evicting_policy.as_deref(), Some("allkeys-lru"));
    }

    #[test]
    fn evicted_keys_are_counted_from_the_first_look_at_a_process() {
        let (mut observed, at) = (Observed::default(), Instant::now());
        let mut evicted =
            |run_id, count| observed.observe(memory(run_id, 1, "noeviction", count), at).evicted;
        assert_eq!([evicted("a", 100), evicted("a", 107), evicted("a", 107)], [0, 7, 0]);
        assert_eq!(evicted("a", 3), 3, "after CONFIG RESETSTAT");
        assert_eq!([evicted("b", 50), evicted("b", 51)], [0, 1], "after a failover");
    }

    #[test]
    fn evicted_keys_are_logged_once_per_minute() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        let mut to_log = |seconds, count| {
            let at = start + Duration::from_secs(seconds);
            observed.observe(memory("a", 1, "allkeys-lru", count), at).to_log
        };
        assert_eq!([to_log(0, 5), to_log(1, 7), to_log(2, 10)], [None, Some(2), None]);
        assert_eq!([to_log(60, 11), to_log(61, 11), to_log(200, 11)], [None, Some(4), None]);
    }
}
