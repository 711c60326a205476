//! A held lease.

use super::Inner;
use super::id::StoreId;
use sluicegate::backend::StoreFailure;
use sluicegate::backend::StoreLease;
use sluicegate::semaphore::LeaseId;
use sluicegate::{Span, Time};
use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A lease is renewed after this fraction of its ttl, so that two more attempts fit in if one
/// fails.
const RENEW_FRACTION: u32 = 3;
/// A failed renewal is retried after this fraction of the ttl.
const RETRY_FRACTION: u32 = 20;

/// A lease in the store, released on drop.
///
/// A drop cannot wait for the store: a task on the runtime that acquired the lease releases it, as
/// far as possible. If that fails, or the process dies, the lease expires after its ttl.
/// [`release`](RedisLease::release) waits and returns the result.
///
/// While the store is unavailable, [`OnStoreFailure::Local`](crate::OnStoreFailure::Local) grants
/// leases in this process's memory.
#[must_use = "a dropped lease is released"]
pub struct RedisLease {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    origin: Origin,
    validity: Mutex<Validity>,
}

/// What granted the lease.
enum Origin {
    Store(StoreId, Option<Handle>),
    Local(sluicegate::semaphore::Lease),
    /// The lease was released, or is to be kept.
    Released,
}

/// How long the lease is certainly live.
#[derive(Clone, Copy)]
pub(super) struct Validity {
    /// By the store's clock, or by this process's clock for a lease in its memory.
    until: Time,
    /// By this process's clock: one ttl from before the call was sent.
    local_until: Instant,
    ttl: Duration,
}

/// The lease has expired, or may have: another call may hold its permit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseLost {
    /// Why it was not renewed in time. `None` if no call failed: the store reported that it had
    /// expired, or this process was suspended until it had.
    pub failure: Option<StoreFailure>,
}

impl RedisLease {
    /// A lease in the store.
    pub(super) fn new(
        inner: Arc<Inner>,
        key: Arc<[u8]>,
        id: StoreId,
        validity: Validity,
        runtime: Option<Handle>,
    ) -> RedisLease {
        RedisLease { inner, key, origin: Origin::Store(id, runtime), validity: Mutex::new(validity) }
    }

    /// A lease in this process's memory, acquired at `sent`.
    pub(super) fn local(
        inner: &Arc<Inner>,
        key: &[u8],
        lease: sluicegate::semaphore::Lease,
        sent: Instant,
    ) -> RedisLease {
        let validity = Mutex::new(inner.local_validity(&lease, sent));
        RedisLease { inner: Arc::clone(inner), key: key.into(), origin: Origin::Local(lease), validity }
    }

    /// The lease id, by which any process can renew or release it: see
    /// [`RedisSemaphore::renew`](super::RedisSemaphore::renew).
    pub fn id(&self) -> LeaseId {
        match &self.origin {
            Origin::Store(id, _) => id.id(),
            Origin::Local(lease) => lease.id(),
            Origin::Released => unreachable!("only methods that consume the lease release it"),
        }
    }

    /// The key of the lease.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// When the lease expires unless it is renewed: by the store's clock, or by this process's
    /// clock for a lease in its memory.
    pub fn until(&self) -> Time {
        self.validity().until
    }

    /// Extends the lease by a full TTL. Returns `false` if it has expired: its holder must then
    /// stop, since another call may hold the permit.
    ///
    /// # Errors
    /// If the store gives no answer. The lease may have been renewed nevertheless; it is live until
    /// [`until`](RedisLease::until) at least.
    pub async fn renew(&self) -> Result<bool, StoreFailure> {
        let sent = Instant::now();
        let renewed = match &self.origin {
            Origin::Store(id, _) => {
                let limit = self.inner.member.current_limit(&self.key);
                let (is_live, now) = self.inner.send_renew(&self.key, id, limit, None).await?;
                is_live.then(|| Validity::new(now, sent, limit.ttl))
            }
            Origin::Local(lease) => lease.renew().then(|| self.inner.local_validity(lease, sent)),
            Origin::Released => None,
        };
        if let Some(live) = renewed {
            *self.validity() = live;
        }
        Ok(renewed.is_some())
    }

    /// Releases the lease. Returns `false` if it had expired.
    ///
    /// # Errors
    /// If the store gives no answer. The release is then retried in the background, as after a
    /// drop.
    pub async fn release(mut self) -> Result<bool, StoreFailure> {
        if let Origin::Store(id, _) = &self.origin {
            let released = self.inner.release_stored(&self.key, id, None).await?;
            self.origin = Origin::Released;
            return Ok(released);
        }
        Ok(match mem::replace(&mut self.origin, Origin::Released) {
            Origin::Local(lease) => {
                let released = lease.release();
                self.inner.member.waiters().wake_head(&self.key);
                released
            }
            _ => false,
        })
    }

    /// Keeps the lease: dropping this value no longer releases it. Release it by its id, or let it
    /// expire.
    pub fn keep(mut self) -> LeaseId {
        let id = self.id();
        if let Origin::Local(lease) = mem::replace(&mut self.origin, Origin::Released) {
            lease.keep();
        }
        id
    }

    /// Runs `work` and renews the lease until it is done, each time a third of the ttl has passed.
    /// If the lease is lost, `work` is dropped where it is, since another call may hold the permit.
    ///
    /// ```no_run
    /// # async fn run(lease: sluicegate_redis::RedisLease) {
    /// # async fn export() -> u32 { 7 }
    /// match lease.renew_while(export()).await {
    ///     Ok(rows) => println!("{rows} rows"),
    ///     Err(lost) => eprintln!("stopped: {lost}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the lease is lost: the store reports that it has expired, or could not be reached for so
    /// long that it may have.
    pub async fn renew_while<W: Future>(&self, work: W) -> Result<W::Output, LeaseLost> {
        tokio::select! {
            // A process that was suspended for too long must learn of it before it continues the
            // work.
            biased;
            lost = self.renew_until_lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    async fn renew_until_lost(&self) -> LeaseLost {
        let mut failure = None;
        let mut next = self.validity().renew_at();
        loop {
            let Validity { local_until: expires, ttl, .. } = *self.validity();
            sleep_until(next.min(expires)).await;
            if Instant::now() >= expires {
                return LeaseLost { failure };
            }
            match timeout_at(expires, self.renew()).await {
                Ok(Ok(false)) => return LeaseLost { failure: None },
                Ok(Ok(true)) => {
                    failure = None;
                    next = self.validity().renew_at();
                }
                Ok(Err(failed)) => {
                    failure = Some(failed);
                    next = Instant::now() + ttl / RETRY_FRACTION;
                }
                // The renewal was sent, but the lease may expire before its reply arrives.
                Err(_) => {
                    let deadline = self.inner.store.inner.settings.deadline.min(ttl);
                    failure = Some(StoreFailure::TimedOut { deadline });
                }
            }
        }
    }

    fn validity(&self) -> MutexGuard<'_, Validity> {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Validity {
    /// The validity of a lease that the store granted at its time `now`, for a call sent at `sent`.
    pub(super) fn new(now: Time, sent: Instant, ttl: Span) -> Validity {
        let (until, ttl) = (now.saturating_add(ttl), Duration::from(ttl));
        Validity { until, local_until: sent + ttl, ttl }
    }

    /// When to renew the lease.
    fn renew_at(&self) -> Instant {
        self.local_until - self.ttl + self.ttl / RENEW_FRACTION
    }
}

impl Inner {
    /// The validity of a lease in this process's memory.
    fn local_validity(&self, lease: &sluicegate::semaphore::Lease, sent: Instant) -> Validity {
        let live = Validity::new(Time::EPOCH, sent, self.member.limit().ttl);
        Validity { until: lease.until().unwrap_or(live.until), ..live }
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        match mem::replace(&mut self.origin, Origin::Released) {
            Origin::Store(id, Some(runtime)) => {
                let (inner, key) = (Arc::clone(&self.inner), Arc::clone(&self.key));
                runtime.spawn(inner.release_in_background(key, id, None));
            }
            Origin::Local(lease) => {
                drop(lease);
                self.inner.member.waiters().wake_head(&self.key);
            }
            Origin::Store(_, None) | Origin::Released => {}
        }
    }
}

impl StoreLease for RedisLease {
    fn id(&self) -> LeaseId {
        RedisLease::id(self)
    }

    fn keep(self: Box<Self>) -> LeaseId {
        RedisLease::keep(*self)
    }
}

impl fmt::Debug for RedisLease {
    /// Omits the id, which is enough to release the lease.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLease")
            .field("scope", &self.inner.scope)
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("until", &self.until())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => f.write_str(
                "the lease has expired and another call may hold its permit; stop, and acquire a new one",
            ),
            Some(failure) => {
                write!(f, "the lease may have expired, because it could not be renewed in time: {failure}")
            }
        }
    }
}

impl std::error::Error for LeaseLost {}
