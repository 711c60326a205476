//! A lease: a place at work, returned when it is dropped.

use super::shard::Shard;
use crate::ids::LeaseId;
use crate::key::Fingerprint;
use crate::seal::Seal;
use sluicegate_core::Time;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place at work. Dropping it returns it; if the limit has a ttl and nobody renews it, it lapses before.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let exports = Semaphore::new("concurrency 2 ttl=30s")?;
/// if let Some(lease) = exports.try_acquire("Harry", 1).lease() {
///     // work, and if it takes longer than expected:
///     assert!(lease.renew());
///     // work
/// } // returned
/// assert_eq!(exports.peek("Harry", 1).remaining(), 2);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// It belongs to nobody: it can be sent to another thread or kept in a task. After it has lapsed, was returned by its id, or its key was
/// reset, dropping it does nothing: nobody else's place is ever returned.
#[must_use = "a lease that is dropped is returned"]
pub struct Lease {
    /// `None` once the lease is released or kept: then dropping this value does nothing. (There is no
    /// flag for that: a struct that ends in a byte is copied in pieces, which stalls the next load.)
    shard: Option<Arc<Shard>>,
    lease: LeaseRef,
    /// In microseconds; the last number there is without ttl.
    until: AtomicU64,
}

/// Where a lease is, and which of all that have been there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeaseRef {
    /// The first half of its key.
    pub(super) key: u64,
    pub(super) index: u32,
    /// Used once in its shard.
    pub(super) nonce: u64,
}

const NEVER: u64 = u64::MAX;

impl Lease {
    #[inline]
    pub(super) fn new(shard: Arc<Shard>, lease: LeaseRef, until: Option<Time>) -> Lease {
        Lease { shard: Some(shard), lease, until: AtomicU64::new(micros(until)) }
    }

    /// Gives it a new ttl from now on. `false` if it is not live any more: whoever works under it has to stop.
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew(&self) -> bool {
        match self.shard.as_ref().and_then(|shard| shard.renew(self.lease)) {
            Some(held) => {
                self.until.store(micros(held.until()), Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Returns it now. Whether it was live until then.
    pub fn release(mut self) -> bool {
        self.shard.take().is_some_and(|shard| shard.release(self.lease))
    }

    /// The moment at which it lapses unless it is renewed, on the semaphore's clock. `None` without ttl.
    pub fn until(&self) -> Option<Time> {
        match self.until.load(Ordering::Relaxed) {
            NEVER => None,
            micros => Some(Time::saturating_from_micros(micros)),
        }
    }

    /// Its name, for others.
    pub fn id(&self) -> LeaseId {
        let Some(shard) = &self.shard else { unreachable!("releasing or keeping a lease consumes it") };
        LeaseId::sealed_by(shard.seal(), shard.number(), self.lease)
    }

    /// Its name, and from here on dropping it does not return it: it lapses, or is returned by that name.
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
            shard.release(self.lease);
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

    /// The shard and the lease there, if it is one of this key; a made-up one comes out as nonsense.
    pub(super) fn opened(&self, seal: &Seal, key: Fingerprint) -> Option<(u32, LeaseRef)> {
        let [at, nonce, of_key] = seal.unseal(self.sealed());
        let (shard, index) = (u32::try_from(at >> 32).ok()?, u32::try_from(at & u64::from(u32::MAX)).ok()?);
        (of_key == key.high).then_some((shard, LeaseRef { key: of_key, index, nonce }))
    }
}
