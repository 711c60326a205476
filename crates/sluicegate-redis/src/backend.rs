//! The backend traits for a shared store: every answer takes a round trip.

use crate::limiter::RedisLimiter;
use crate::semaphore::{RedisLease, RedisSemaphore};
use sluicegate::backend::Answer;
use sluicegate::backend::{Backend, BackendError, HeldLease, LeaseBackend, Pending, Reserved};
use sluicegate::semaphore::{Grant, LeaseId};
use sluicegate::wait::Acquired;
use sluicegate::{Decision, Key, Limit, Receipt, ReserveOptions, Time, Usage};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::warn;

type Later<T> = Pending<Result<T, BackendError>>;

/// Runs a verb of `$this` in a future that owns the key.
macro_rules! later {
    ($this:ident, $key:ident, $inner:ident => $verb:expr) => {{
        let ($inner, $key) = (Arc::clone(&$this.inner), $key.to_bytes().into_owned());
        Pending::later(async move { $verb.await.map_err(BackendError::from) })
    }};
}

impl Backend for RedisLimiter {
    fn check(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        later!(self, key, inner => inner.check(&key, cost, at))
    }

    fn check_within(&self, key: &dyn Key, cost: u64, max_wait: Duration, at: Option<Time>) -> Later<Answer> {
        later!(self, key, inner => inner.check_within(&key, cost, max_wait.into(), at))
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        later!(self, key, inner => inner.peek(&key, cost, at))
    }

    fn take(&self, key: &dyn Key, up_to: u64, at: Option<Time>) -> Later<(Answer, u64)> {
        later!(self, key, inner => inner.take(&key, up_to, at))
    }

    fn refund(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        later!(self, key, inner => inner.refund(&key, cost, at))
    }

    fn reserve(
        &self,
        key: &dyn Key,
        cost: u64,
        options: &ReserveOptions,
        at: Option<Time>,
    ) -> Later<Reserved> {
        let options = *options;
        later!(self, key, inner => inner.reserve(&key, cost, options, at))
    }

    fn extend(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        at: Option<Time>,
    ) -> Later<Answer> {
        let (inner, receipt, costs) = (Arc::clone(&self.inner), receipt.clone(), costs.to_vec());
        Pending::later(async move { inner.extend(&receipt, &costs, ttl.map(Into::into), at).await })
    }

    fn cancel(&self, receipt: &Receipt, at: Option<Time>) -> Later<bool> {
        let (inner, receipt) = (Arc::clone(&self.inner), receipt.clone());
        Pending::later(async move { inner.cancel(&receipt, at).await })
    }

    fn settle(&self, receipt: &Receipt, used: &[u64], at: Option<Time>) -> Later<bool> {
        let (inner, receipt, used) = (Arc::clone(&self.inner), receipt.clone(), used.to_vec());
        Pending::later(async move { inner.settle(&receipt, &used, at).await })
    }

    fn settle_detached(&self, receipt: &Receipt, used: u64) {
        let Ok(runtime) = Handle::try_current() else {
            warn!("cannot settle a reservation outside a Tokio runtime; the charge stays");
            return;
        };
        let (inner, receipt) = (Arc::clone(&self.inner), receipt.clone());
        runtime.spawn(async move {
            let settled = match used {
                0 => inner.cancel(&receipt, None).await,
                _ => inner.settle(&receipt, &[used], None).await,
            };
            if let Err(error) = settled {
                warn!(%error, "cannot settle a reservation; the charge stays");
            }
        });
    }

    fn discard_receipt(&self, receipt: &Receipt) {
        self.inner.discard_detached(receipt);
    }

    fn standing(&self, _receipt: &Receipt) -> Option<Decision> {
        None
    }

    fn next_window(&self, key: &dyn Key, at: Option<Time>) -> Later<Time> {
        later!(self, key, inner => inner.next_window(&key, at))
    }

    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Later<Vec<(Limit, Usage)>> {
        later!(self, key, inner => inner.usage(&key, at))
    }

    fn reset(&self, key: &dyn Key) -> Later<()> {
        later!(self, key, inner => inner.reset(&[&key]))
    }

    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Later<Acquired> {
        later!(self, key, inner => inner.acquire(&key, cost, max_wait))
    }

    fn delay(&self, delay: Duration) -> Pending<()> {
        Pending::later(tokio::time::sleep(delay))
    }

    fn limits(&self) -> Arc<[Limit]> {
        self.inner.limits()
    }
}

impl LeaseBackend for RedisSemaphore {
    fn try_acquire(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Grant<HeldLease>> {
        later!(self, key, inner => async { inner.try_acquire(&key, cost, at).await.map(into_held) })
    }

    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Later<Grant<HeldLease>> {
        let until = max_wait.and_then(|max_wait| Instant::now().checked_add(max_wait));
        later!(self, key, inner => async { inner.acquire(&key, cost, until).await.map(into_held) })
    }

    fn renew(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Later<bool> {
        let lease = lease.clone();
        later!(self, key, inner => inner.renew(&key, &lease, at))
    }

    fn release(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Later<bool> {
        let lease = lease.clone();
        later!(self, key, inner => inner.release(&key, &lease, at))
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        later!(self, key, inner => inner.peek(&key, cost, at))
    }

    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Later<(Limit, Usage)> {
        later!(self, key, inner => inner.usage(&key, at))
    }

    fn reset(&self, key: &dyn Key) -> Later<()> {
        later!(self, key, inner => inner.reset(&[&key]))
    }

    fn limit(&self) -> Limit {
        self.inner.limit()
    }
}

/// Converts a grant to one of any backend.
fn into_held(grant: Grant<RedisLease>) -> Grant<HeldLease> {
    let (acquired, lease) = grant.into_parts();
    Grant::new(acquired, lease.map(|lease| HeldLease::Store(Box::new(lease))))
}
