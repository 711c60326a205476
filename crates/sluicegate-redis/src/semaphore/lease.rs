//! A place that somebody holds.

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

/// A lease is renewed when this part of its ttl has passed, so that two more tries fit in if one fails.
const RENEW_FRACTION: u32 = 3;
/// A renewal that failed is tried again after this part of the ttl.
const RETRY_FRACTION: u32 = 20;

/// A place held in the store, returned when it is dropped.
///
/// In a drop nothing can wait for the store: the lease is returned by a task on the runtime that it was taken on, as well as can be. Where that
/// fails, or the process dies, it lapses after its ttl. [`release`](RedisLease::release) waits, and tells what came of it.
///
/// While the store is away and [`OnStoreFailure::Local`](crate::OnStoreFailure::Local) was said, it is a place in this process's memory.
#[must_use = "a lease that is dropped is returned"]
pub struct RedisLease {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    origin: Origin,
    validity: Mutex<Validity>,
}

/// Where the place is.
enum Origin {
    Store(StoreId, Option<Handle>),
    Local(sluicegate::semaphore::Lease),
    /// It was released, or is to be kept.
    Released,
}

/// How long it is live for sure.
#[derive(Clone, Copy)]
pub(super) struct Validity {
    /// By the store's clock, or by this process's if the lease is in its memory.
    until: Time,
    /// By this process's clock: a ttl from before the store was sent.
    local_until: Instant,
    ttl: Duration,
}

/// The lease has lapsed, or may have by now: somebody else may have its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseLost {
    /// Why it was not renewed in time. `None` if nothing failed: the store said that it had lapsed, or this process stood still until it had.
    pub failure: Option<StoreFailure>,
}

impl RedisLease {
    /// A lease that was taken.
    pub(super) fn new(
        inner: Arc<Inner>,
        key: Arc<[u8]>,
        id: StoreId,
        validity: Validity,
        runtime: Option<Handle>,
    ) -> RedisLease {
        RedisLease { inner, key, origin: Origin::Store(id, runtime), validity: Mutex::new(validity) }
    }

    /// One that was taken in this process's memory, at a moment.
    pub(super) fn local(
        inner: &Arc<Inner>,
        key: &[u8],
        lease: sluicegate::semaphore::Lease,
        sent: Instant,
    ) -> RedisLease {
        let validity = Mutex::new(inner.local_validity(&lease, sent));
        RedisLease { inner: Arc::clone(inner), key: key.into(), origin: Origin::Local(lease), validity }
    }

    /// Names the lease, wherever it is renewed or released: see [`RedisSemaphore::renew`](super::RedisSemaphore::renew).
    pub fn id(&self) -> LeaseId {
        match &self.origin {
            Origin::Store(id, _) => id.id(),
            Origin::Local(lease) => lease.id(),
            Origin::Released => unreachable!("only a method that consumes the lease says so"),
        }
    }

    /// Whose place it is.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// When it lapses unless it is renewed: by the store's clock, or by this process's if the lease was given by its memory.
    pub fn until(&self) -> Time {
        self.validity().until
    }

    /// Gives it a whole new ttl. `false` if it has lapsed: then its holder must stop, as somebody else may have the place.
    ///
    /// # Errors
    /// When the store gives no answer. The lease may have been renewed all the same; it is live until [`until`](RedisLease::until) at least.
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

    /// Returns it. `false` if it had lapsed.
    ///
    /// # Errors
    /// When the store gives no answer. It is then tried again in the background, as when the lease is dropped.
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

    /// Keeps the place when this is dropped: it is returned by its id, or lapses.
    pub fn keep(mut self) -> LeaseId {
        let id = self.id();
        if let Origin::Local(lease) = mem::replace(&mut self.origin, Origin::Released) {
            lease.keep();
        }
        id
    }

    /// Does some work, and renews the lease until it is done: each time a third of the ttl has passed. If the lease is lost, the work is dropped
    /// where it is, as somebody else may have the place by then.
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
    /// When the lease is lost: the store says that it has lapsed, or could not be reached for so long that it may have.
    pub async fn renew_while<W: Future>(&self, work: W) -> Result<W::Output, LeaseLost> {
        tokio::select! {
            // A process that was stopped for too long learns of it before it goes on with the work.
            biased;
            lost = self.renew_until_lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    async fn renew_until_lost(&self) -> LeaseLost {
        let mut failure = None;
        let mut next = self.validity().renew_at();
        loop {
            let Validity { local_until: lapses, ttl, .. } = *self.validity();
            sleep_until(next.min(lapses)).await;
            if Instant::now() >= lapses {
                return LeaseLost { failure };
            }
            match timeout_at(lapses, self.renew()).await {
                Ok(Ok(false)) => return LeaseLost { failure: None },
                Ok(Ok(true)) => {
                    failure = None;
                    next = self.validity().renew_at();
                }
                Ok(Err(failed)) => {
                    failure = Some(failed);
                    next = Instant::now() + ttl / RETRY_FRACTION;
                }
                // It was sent, and there is no time left to wait for its answer.
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
    /// Of a lease that was given by the store at its time `now`, sent for at a moment of ours.
    pub(super) fn new(now: Time, sent: Instant, ttl: Span) -> Validity {
        let (until, ttl) = (now.after(ttl), Duration::from(ttl));
        Validity { until, local_until: sent + ttl, ttl }
    }

    /// When it is to be renewed.
    fn renew_at(&self) -> Instant {
        self.local_until - self.ttl + self.ttl / RENEW_FRACTION
    }
}

impl Inner {
    /// Of a lease in this process's memory.
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
    /// Without the id: who knows it can return the lease.
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
                "the lease has lapsed; somebody else may have its place, so stop and take another one",
            ),
            Some(failure) => {
                write!(f, "the lease may have lapsed, as it could not be renewed in time: {failure}")
            }
        }
    }
}

impl std::error::Error for LeaseLost {}
