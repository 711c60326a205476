//! What a limiter has done, for metrics.
//!
//! Counting costs a decision next to nothing: the counts lie beside the lock of the key's shard, on
//! a cache line that the decision has just written. The reader adds them up.

use crate::event::Event;
use crate::store::{PoolStats, SlotKind, Store, StoreCounts};
use sluicegate_core::Decision;

/// What a limiter has decided since it was created, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct StoreStats {
    /// Calls that were allowed: checks, takes and reservations. A [`check_all`](crate::check_all)
    /// counts for each of its limiters.
    pub allowed: u64,
    /// Calls that were denied. A denied `check_all` counts for each of its limiters, whichever
    /// of them denied it.
    pub denied: u64,
    /// Keys that were evicted: dropped before they had recovered. If this grows, raise `max_keys`.
    pub evicted: u64,
    /// Denials because there was no room for another key. They count as denied, too.
    pub no_room: u64,
    /// Keys held now, including fully recovered ones that have not been dropped yet.
    pub keys: usize,
    /// The most keys it can hold.
    pub max_keys: usize,
    /// Log entries for which memory is allocated, 16 bytes each.
    pub log_entries: usize,
    /// The most log entries it can hold.
    pub max_log_entries: usize,
    /// Log entries of keys that were evicted to make room for others; the keys count as evicted. If
    /// this grows, raise `max_log_entries`.
    pub log_entries_evicted: u64,
    /// Denials because there was no room for another log entry. They count as denied, too.
    pub no_log_room: u64,
    /// Open receipts.
    pub receipts: usize,
    /// The most receipts that can be open.
    pub max_receipts: usize,
    /// Receipts that were evicted: dropped before they had expired. If this grows, raise
    /// `max_receipts`.
    pub receipts_evicted: u64,
    /// Reservations for which there was no room for a receipt. They are errors, not denials.
    pub no_receipt_room: u64,
    /// Different limits in the table of a [`MemoryStore`](crate::MemoryStore).
    pub limits: usize,
    /// The largest number of different limits that the table can hold.
    pub max_limits: usize,
    /// Untrusted limits that were evicted with their keys, which had not recovered.
    pub limits_evicted: u64,
    /// Limits for which there was no room.
    pub no_limit_room: u64,
    /// Waiters now; in a [`MemoryStore`](crate::MemoryStore), those of all its limiters.
    pub waiting: usize,
}

impl StoreStats {
    pub(crate) fn of<S: SlotKind>(store: &Store<S>, waiting: usize, limits: PoolStats) -> StoreStats {
        let StoreCounts { allowed, denied, evicted, no_room } = store.counts();
        let (logs, receipts) = (store.log_stats(), store.receipt_stats());
        StoreStats {
            allowed,
            denied,
            evicted,
            no_room,
            keys: store.keys(),
            max_keys: store.max_keys(),
            log_entries: logs.used,
            max_log_entries: logs.max,
            log_entries_evicted: logs.evicted,
            no_log_room: logs.no_room,
            receipts: receipts.used,
            max_receipts: receipts.max,
            receipts_evicted: receipts.evicted,
            no_receipt_room: receipts.no_room,
            limits: limits.used,
            max_limits: limits.max,
            limits_evicted: limits.evicted,
            no_limit_room: limits.no_room,
            waiting,
        }
    }
}

/// Receives every decision that could charge a key: a hook for metrics.
///
/// It runs on the caller's thread after the decision, while no lock is held, and
/// the call returns when it is done. Never label a metric by key: there may be millions.
///
/// ```
/// use sluicegate::{Decision, Limiter, Observer};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
///
/// #[derive(Default)]
/// struct Denials(AtomicU64);
///
/// impl Observer for Denials {
///     fn decided(&self, decision: &Decision) {
///         if !decision.allowed() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let denials = Arc::new(Denials::default());
/// let orders = Limiter::builder("min-interval 30min").observer(Arc::clone(&denials)).build()?;
/// orders.check("shopper-1");
/// orders.check("shopper-1");
/// assert_eq!(denials.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
pub trait Observer: Send + Sync {
    /// Called after a check, a take, a reservation or a `check_all` was decided.
    fn decided(&self, decision: &Decision);

    /// Called for other events, such as an expired lease. The default does nothing.
    fn event(&self, event: &Event) {
        let _ = event;
    }
}

impl<O: Observer + ?Sized> Observer for std::sync::Arc<O> {
    fn decided(&self, decision: &Decision) {
        (**self).decided(decision);
    }

    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}
