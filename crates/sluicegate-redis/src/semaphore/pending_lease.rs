//! A lease, or a queue entry, that was requested and may not have reached its caller.

use super::Inner;
use super::id::StoreId;
use super::lease::{RedisLease, Validity};
use super::reply::LeaseDecision;
use sluicegate::backend::StoreFailure;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// The waits before each attempt to release a lease in the background. After the last one it
/// expires.
const RELEASE_WAITS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1)];

/// What a call may hold in the store: a lease or a queue entry. Dropped before its caller has the
/// lease, it is released by a task, since a drop cannot wait. That is best effort: while the store
/// is unavailable, or once the runtime has ended, it expires instead.
pub(super) struct PendingLease {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    id: StoreId,
    cost: u64,
    runtime: Option<Handle>,
    is_armed: bool,
}

impl PendingLease {
    /// Picks the lease id. It exists before the call is sent, since a call that is dropped in
    /// flight does not know what it was granted.
    pub(super) fn new(inner: &Arc<Inner>, key: &[u8], cost: u64) -> PendingLease {
        let runtime = Handle::try_current().ok();
        PendingLease {
            inner: Arc::clone(inner),
            key: key.into(),
            id: StoreId::random(),
            cost,
            runtime,
            is_armed: true,
        }
    }

    pub(super) fn id(&self) -> &StoreId {
        &self.id
    }

    /// Returns the granted lease, whose call was sent at `sent`.
    pub(super) fn granted(mut self, decided: &LeaseDecision, sent: Instant) -> RedisLease {
        self.is_armed = false;
        let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
        let validity = Validity::new(decided.now, sent, decided.ttl);
        RedisLease::new(inner, key, self.id, validity, self.runtime.take())
    }

    /// Nothing was granted, so nothing is released.
    pub(super) fn disarm(mut self) {
        self.is_armed = false;
    }

    /// Releases the lease if the failed call may have been granted one.
    pub(super) fn failed(mut self, failure: &StoreFailure) {
        self.is_armed = failure.may_have_charged();
    }
}

impl Drop for PendingLease {
    fn drop(&mut self) {
        if let (true, Some(runtime)) = (self.is_armed, self.runtime.take()) {
            let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
            runtime.spawn(inner.release_in_background(key, self.id, Some(self.cost)));
        }
    }
}

impl Inner {
    /// Releases a lease, and for a waiter of this cost its queue entry as well.
    pub(super) async fn release_in_background(
        self: Arc<Inner>,
        key: Arc<[u8]>,
        id: StoreId,
        queued_cost: Option<u64>,
    ) {
        for wait in RELEASE_WAITS {
            if wait > Duration::ZERO {
                sleep(wait).await;
            }
            if self.send_release(&key, &id, queued_cost, None).await.is_ok() {
                break;
            }
        }
        self.member.waiters().wake_head(&key);
    }
}
