//! A lease, or a place in line, that somebody has asked for and may not have heard of.

use super::Inner;
use super::id::StoreId;
use super::lease::{Live, RedisLease};
use super::reply::LeaseDecision;
use sluicegate::backend::StoreFailure;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// What cannot be given back at once is tried again after these waits, and then left to lapse.
const GIVES_BACK_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1)];

/// What a caller may have in the store. Dropped before its caller has it in hand it is given back: by a task of its own, as nothing may
/// wait in a drop, and as well as can be. While the store is away, or once the runtime has ended, it lapses.
pub(super) struct Claim {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    id: StoreId,
    cost: u32,
    runtime: Option<Handle>,
    is_open: bool,
}

impl Claim {
    /// To be made before the store is asked: who goes away meanwhile does not know what it was given.
    pub(super) fn new(inner: &Arc<Inner>, key: &[u8], cost: u32) -> Claim {
        let runtime = Handle::try_current().ok();
        Claim {
            inner: Arc::clone(inner),
            key: key.into(),
            id: StoreId::random(),
            cost,
            runtime,
            is_open: true,
        }
    }

    pub(super) fn id(&self) -> &StoreId {
        &self.id
    }

    /// It is taken, and was asked for at that moment.
    pub(super) fn held(mut self, decided: &LeaseDecision, asked: Instant) -> RedisLease {
        self.is_open = false;
        let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
        RedisLease::new(inner, key, self.id, Live::from(decided.now, asked, decided.ttl), self.runtime.take())
    }

    /// There is nothing to give back.
    pub(super) fn nothing_taken(mut self) {
        self.is_open = false;
    }

    /// There may be something to give back, if the store was reached.
    pub(super) fn failed(mut self, failure: &StoreFailure) {
        self.is_open = failure.may_have_charged();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (true, Some(runtime)) = (self.is_open, self.runtime.take()) {
            let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
            runtime.spawn(inner.give_back(key, self.id, Some(self.cost)));
        }
    }
}

impl Inner {
    /// Returns a lease, and the place in line of one that cost so much, without anybody waiting for it.
    pub(super) async fn give_back(self: Arc<Inner>, key: Arc<[u8]>, id: StoreId, in_line: Option<u32>) {
        for wait in GIVES_BACK_AFTER {
            if wait > Duration::ZERO {
                sleep(wait).await;
            }
            if self.ask_release(&key, &id, in_line, None).await.is_ok() {
                break;
            }
        }
        self.member.waiters().wake_first(&key);
    }
}
