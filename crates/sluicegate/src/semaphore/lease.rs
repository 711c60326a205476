//! A lease: permits held until it is released or expires.

use super::shard::Shard;
use crate::ids::LeaseId;
use crate::key::Fingerprint;
use crate::seal::Seal;
use sluicegate_core::Time;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Permits of a concurrency limit. Dropping the lease releases it; if the limit has a `ttl` and the
/// lease is not renewed, it expires.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let exports = Semaphore::new("concurrency 2 ttl=30s")?;
/// if let Some(lease) = exports.try_acquire("user:42", 1).lease() {
///     // work, and if it takes longer than expected:
///     assert!(lease.renew());
///     // work
/// } // released
/// assert_eq!(exports.peek("user:42", 1).remaining(), 2);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A lease can be sent to another thread or stored in a task. After it has expired, was released by
/// its id, or its key was reset, dropping it does nothing: it never releases another lease's
/// permits.
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    /// `None` once the lease is released or kept: then dropping this value does nothing. (There is
    /// no flag for that: a struct that ends in a byte is copied in pieces, which stalls the next
    /// load.)
    shard: Option<Arc<Shard>>,
    reference: LeaseRef,
    /// In microseconds; the largest number if there is no `ttl`.
    until: AtomicU64,
}

/// Identifies a lease: an index, and a nonce that tells apart the leases that have used the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeaseRef {
    /// The first half of its key's fingerprint.
    pub(super) key: u64,
    pub(super) index: u32,
    /// Unique in its shard.
    pub(super) nonce: u64,
}

const NEVER: u64 = u64::MAX;

impl Lease {
    #[inline]
    pub(super) fn new(shard: Arc<Shard>, reference: LeaseRef, until: Option<Time>) -> Lease {
        Lease { shard: Some(shard), reference, until: AtomicU64::new(micros(until)) }
    }

    /// Extends the lease by a full TTL. Returns `false` if it is not live any more: then the work
    /// under it must stop.
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew(&self) -> bool {
        match self.shard.as_ref().and_then(|shard| shard.renew(self.reference)) {
            Some(held) => {
                self.until.store(micros(held.until()), Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Releases the lease now. Returns `true` if it was live.
    pub fn release(mut self) -> bool {
        self.shard.take().is_some_and(|shard| shard.release(self.reference))
    }

    /// When the lease expires unless it is renewed, on the semaphore's clock. `None` without a
    /// `ttl`.
    pub fn until(&self) -> Option<Time> {
        match self.until.load(Ordering::Relaxed) {
            NEVER => None,
            micros => Some(Time::saturating_from_micros(micros)),
        }
    }

    /// The id of the lease, for programs that cannot hold it.
    pub fn id(&self) -> LeaseId {
        let Some(shard) = &self.shard else { unreachable!("releasing or keeping a lease consumes it") };
        LeaseId::sealed_by(shard.seal(), shard.number(), self.reference)
    }

    /// Returns the id and keeps the lease: it is released by its id, or expires.
    pub fn keep(mut self) -> LeaseId {
        let id = self.id();
        self.shard = None;
        id
    }
}

fn micros(until: Option<Time>) -> u64 {
    until.map_or(NEVER, Time::as_micros)
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(shard) = &self.shard {
            shard.release(self.reference);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("until", &self.until()).finish_non_exhaustive()
    }
}

impl LeaseId {
    fn sealed_by(seal: &Seal, shard: u32, lease: LeaseRef) -> LeaseId {
        let LeaseRef { key, index, nonce } = lease;
        LeaseId::of_memory(seal.seal([u64::from(shard) << 32 | u64::from(index), nonce, key]))
    }

    /// The shard of the lease and the lease in it, if the id belongs to this key. A forged id
    /// decodes to nonsense.
    pub(super) fn opened(&self, seal: &Seal, key: Fingerprint) -> Option<(u32, LeaseRef)> {
        let [at, nonce, of_key] = seal.unseal(self.sealed());
        let (shard, index) = (u32::try_from(at >> 32).ok()?, u32::try_from(at & u64::from(u32::MAX)).ok()?);
        (of_key == key.high).then_some((shard, LeaseRef { key: of_key, index, nonce }))
    }
}
