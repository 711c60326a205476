//! A concurrency limit for many processes: a semaphore whose leases are in the shared store.
//!
//! Acquiring a lease is one script call, releasing it another. The lease id is unguessable and
//! picked before the call is sent, so that a lease whose reply was lost can still be released. A
//! lease that is never released, because its process died, expires by the store's clock.
//!
//! Invariants:
//! - A lease id is used once, so a late call never renews or releases another lease.
//! - A lease that any call has seen as expired is gone, even if the clock steps back.
//! - Waiters poll within a budget per process ([`POLLS_PER_SECOND_MAX`]), and a queue entry
//!   outlasts two lost polls (`polling.rs`).
//! - Waiters and holders follow the limit of the scope's most recent semaphore (`scope.rs`).
//!
//! ```text
//! builder          builds a semaphore               reply            parses the scripts' replies
//! script_calls     the verbs as script calls        lease, grant     what callers receive
//! pending_lease    releases undelivered leases      acquire          waits; waiters, polling
//! scope            what the semaphores of one scope share
//! ```

mod acquire;
mod builder;
mod grant;
mod id;
mod lease;
mod pending_lease;
mod polling;
mod reply;
mod scope;
mod script_calls;
mod waiters;

pub use builder::RedisSemaphoreBuilder;
pub use lease::{LeaseLost, RedisLease};
pub use polling::{POLLS_PER_SECOND_MAX, WAITER_TTL, WAITER_TTL_MAX, WAITERS_MAX};
pub(crate) use scope::ScopeStates;

use crate::fallback::Fallback;
use crate::names::Names;
use crate::store::RedisStore;
use grant::{granted, without_lease};
use id::StoreId;
use pending_lease::PendingLease;
use scope::{LeaseLimit, ScopeMember};
use sluicegate::backend::{Answer, BackendError, Source, StoreFailure};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::semaphore::{Grant, LeaseId, Semaphore};
use sluicegate::{IntoLimits, Key, Limit, Time, Usage};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A concurrency limit for keys that several processes share.
///
/// ```no_run
/// use sluicegate_redis::{RedisSemaphore, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let exports = RedisSemaphore::builder("concurrency 10 ttl=30s").in_store(&store,
/// "exports").build()?;
/// let grant = exports.acquire("tenant:acme", 1).await?;
/// if let Some(lease) = grant.lease() {
///     // At most ten exports of this tenant at once, over all processes.
///     lease.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// **A lease expires** `ttl` after it was acquired or last renewed, by the store's clock, whatever
/// its holder does. So a process that dies frees its permits within `ttl`. A process that is slow
/// or stopped may keep acting without a permit: renew in time, and stop when
/// [`renew`](RedisLease::renew) returns `false` ([`renew_while`](RedisLease::renew_while) does
/// both).
///
/// **A changed limit.** Semaphores of one scope share their leases, in every process. If the new
/// limit is lower than what is held, no lease is granted until enough are released; held leases
/// stay. If a process has several semaphores of one scope, because its configuration was reloaded,
/// waiters and holders follow the newest one, and other calls the semaphore that they are made on.
///
/// It has the methods of [`sluicegate::semaphore::Semaphore`] with the same arguments; to move to
/// it, change the constructor and add `.await?`. The time is the store's; methods that end in `_at`
/// take it as an argument, for tests and replays. Clones share one semaphore.
#[derive(Clone)]
pub struct RedisSemaphore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    store: RedisStore,
    scope: String,
    names: Names,
    limit: Limit,
    member: ScopeMember,
    fallback: Fallback<Semaphore>,
    /// The most waiters per key, of all processes.
    max_queue: usize,
    /// The most waiters for all keys of the scope, of this process.
    max_waiters: usize,
}

impl RedisSemaphore {
    /// Builds a semaphore from one `concurrency` limit, which needs a `ttl`, in a store:
    /// [`RedisSemaphoreBuilder::in_store`].
    pub fn builder(limit: impl IntoLimits) -> RedisSemaphoreBuilder {
        RedisSemaphoreBuilder::new(limit.into_limits())
    }

    /// Acquires a lease if a permit is free, without waiting. It does not overtake waiters of any
    /// process. Cost 0 is always allowed and needs no lease.
    ///
    /// # Errors
    /// If the store gives no answer, and the semaphore has no fallback. A lease that may have been
    /// granted nevertheless is released in the background, as far as possible.
    pub async fn try_acquire(&self, key: impl Key, cost: u64) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.try_acquire(&key.to_bytes(), cost, None).await
    }

    /// Like [`RedisSemaphore::try_acquire`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn try_acquire_at(
        &self,
        key: impl Key,
        cost: u64,
        now: Time,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.try_acquire(&key.to_bytes(), cost, Some(now)).await
    }

    /// Decides whether a lease of this cost would be granted now, without acquiring it.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn peek(&self, key: impl Key, cost: u64) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, None).await
    }

    /// Like [`RedisSemaphore::peek`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, Some(now)).await
    }

    /// Returns the limit and what the key's leases use of it. Changes nothing.
    ///
    /// # Errors
    /// If the store gives no answer: only the store knows.
    pub async fn usage(&self, key: impl Key) -> Result<(Limit, Usage), StoreFailure> {
        self.inner.usage(&key.to_bytes(), None).await
    }

    /// Like [`RedisSemaphore::usage`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::usage`].
    pub async fn usage_at(&self, key: impl Key, now: Time) -> Result<(Limit, Usage), StoreFailure> {
        self.inner.usage(&key.to_bytes(), Some(now)).await
    }

    /// Extends a live lease by a full TTL. Returns `false` if it has expired (even if its permit is
    /// still free) or is unknown; its holder must then stop.
    ///
    /// # Errors
    /// If the id is malformed, or the store gives no answer. The lease may have been renewed
    /// nevertheless.
    pub async fn renew(&self, key: impl Key, lease: &LeaseId) -> Result<bool, BackendError> {
        self.inner.renew(&key.to_bytes(), lease, None).await
    }

    /// Like [`RedisSemaphore::renew`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::renew`].
    pub async fn renew_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> Result<bool, BackendError> {
        self.inner.renew(&key.to_bytes(), lease, Some(now)).await
    }

    /// Releases a lease. Returns `false` if it had expired or is unknown.
    ///
    /// # Errors
    /// If the id is malformed, or the store gives no answer. The lease may have been released
    /// nevertheless, and it is safe to try again.
    pub async fn release(&self, key: impl Key, lease: &LeaseId) -> Result<bool, BackendError> {
        self.inner.release(&key.to_bytes(), lease, None).await
    }

    /// Like [`RedisSemaphore::release`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::release`].
    pub async fn release_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> Result<bool, BackendError> {
        self.inner.release(&key.to_bytes(), lease, Some(now)).await
    }

    /// Deletes the key's leases, so that they cannot be renewed. Waiters stay in the queue.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn reset(&self, key: impl Key) -> Result<(), StoreFailure> {
        self.inner.reset(&[&key.to_bytes()]).await
    }

    /// Deletes the leases of several keys in one round trip.
    ///
    /// # Errors
    /// If the store gives no answer. The leases of some keys may have been deleted.
    pub async fn reset_each<K: Key>(&self, keys: &[K]) -> Result<(), StoreFailure> {
        let keys: Vec<Cow<'_, [u8]>> = keys.iter().map(Key::to_bytes).collect();
        self.inner.reset(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await
    }

    /// Waits for a permit and acquires a lease. Denied only if the cost exceeds the limit or the
    /// queue is full. A waiter follows the limit of another semaphore of the scope if one is
    /// created meanwhile.
    ///
    /// **Order.** Each waiter has an entry in the store's queue, and a free permit goes to the
    /// oldest one: first in, first out over all processes, and small costs do not overtake a large
    /// one. Waiters poll, the first one of a key in this process every 20 ms, so a permit that
    /// another process releases may stay free for that long. All waiters of a process poll at most
    /// [`POLLS_PER_SECOND_MAX`] times per second; with more than twenty keys that have waiters,
    /// each polls less often. An entry that is not polled for lives for [`WAITER_TTL`], or up to
    /// [`WAITER_TTL_MAX`] with very many waiters: a process that has died can hold up the waiters
    /// behind it for that long.
    ///
    /// **Dropped while it waits**, it leaves the queue, and a task on its runtime releases what it
    /// may have been granted, as far as possible. What cannot be released expires.
    ///
    /// **When the store fails**: after a lost reply the waiter polls again with the same lease id,
    /// so that it is never granted two leases. While the store is unavailable or rejects calls, the
    /// semaphore's fallback answers; under [`OnStoreFailure::Deny`](crate::OnStoreFailure::Deny)
    /// waiters keep polling.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire(&self, key: impl Key, cost: u64) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, None).await
    }

    /// Waits for at most `max_wait`.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire_within(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, Instant::now().checked_add(max_wait)).await
    }

    /// Waits until `deadline` at the latest, on this process's clock.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire_until(
        &self,
        key: impl Key,
        cost: u64,
        deadline: Time,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.acquire_within(key, cost, deadline.since(SystemClock.now()).into()).await
    }

    /// The limit.
    pub fn limit(&self) -> Limit {
        self.inner.limit.clone()
    }

    /// The scope that its keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

/// The verbs, for keys as bytes. `at` is the time of the call; `None` is the store's time.
impl Inner {
    pub(crate) async fn try_acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.counted(self.acquire_now(key, cost, self.member.limit(), at).await)
    }

    pub(crate) async fn acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        until: Option<Instant>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.counted(self.wait(key, cost, until).await)
    }

    pub(crate) async fn peek(&self, key: &[u8], cost: u64, at: Option<Time>) -> Result<Answer, StoreFailure> {
        let answer = match self.send_peek(key, cost, self.member.limit(), at).await {
            Ok(decided) => Ok(decided.answer()),
            Err(failure) => self.fallback.answer(|local| Some(local.peek(key, cost))).ok_or(failure),
        };
        self.count(answer.as_ref().ok().map(Answer::source));
        answer
    }

    pub(crate) async fn usage(&self, key: &[u8], at: Option<Time>) -> Result<(Limit, Usage), StoreFailure> {
        let usage = self.send_usage(key, self.member.limit(), at).await;
        self.count(usage.is_ok().then_some(Source::Store));
        Ok((self.limit.clone(), usage?))
    }

    pub(crate) async fn renew(
        &self,
        key: &[u8],
        lease: &LeaseId,
        at: Option<Time>,
    ) -> Result<bool, BackendError> {
        let Some(id) = StoreId::read(lease)? else {
            return Ok(self.fallback.local().is_some_and(|local| local.renew(key, lease)));
        };
        let renewed = self.send_renew(key, &id, self.member.limit(), at).await;
        self.count(renewed.is_ok().then_some(Source::Store));
        Ok(renewed?.0)
    }

    pub(crate) async fn release(
        &self,
        key: &[u8],
        lease: &LeaseId,
        at: Option<Time>,
    ) -> Result<bool, BackendError> {
        if let Some(id) = StoreId::read(lease)? {
            return Ok(self.release_stored(key, &id, at).await?);
        }
        let released = self.fallback.local().is_some_and(|local| local.release(key, lease));
        self.member.waiters().wake_head(key);
        Ok(released)
    }

    /// Releases a lease in the store, and wakes the next waiter of this process.
    async fn release_stored(&self, key: &[u8], id: &StoreId, at: Option<Time>) -> Result<bool, StoreFailure> {
        let released = self.send_release(key, id, None, at).await;
        self.count(released.is_ok().then_some(Source::Store));
        self.member.waiters().wake_head(key);
        released
    }

    pub(crate) async fn reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        if let Some(local) = self.fallback.local() {
            for key in keys {
                local.reset(key);
            }
        }
        let reset = self.send_reset(keys).await;
        self.count(reset.is_ok().then_some(Source::Store));
        reset?;
        for key in keys {
            self.member.waiters().wake_head(key);
        }
        Ok(())
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit.clone()
    }

    /// Acquires a lease if a permit is free.
    async fn acquire_now(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        limit: LeaseLimit,
        at: Option<Time>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        let began = Instant::now();
        if limit.needs_no_lease(cost) {
            return self.answer_without_lease(key, cost, limit, (at, began)).await;
        }
        let round_trip = match self.store.inner.admit(1).await {
            Ok(round_trip) => round_trip,
            Err(failure) => return self.fallback_grant(failure, key, cost, began),
        };
        // Made once the call may be sent: a lease that was never requested need not be released.
        let pending = PendingLease::new(self, key, cost);
        match self.send_acquire(round_trip, key, (pending.id(), cost), None, limit, at).await {
            Ok(decided) if decided.is_granted => {
                Ok(granted(decided.answer(), Some(pending.granted(&decided, began)), began))
            }
            Ok(decided) => {
                pending.disarm();
                Ok(without_lease(decided.answer(), began))
            }
            Err(failure) => {
                pending.failed(&failure);
                self.fallback_grant(failure, key, cost, began)
            }
        }
    }

    /// Answers a call that needs no lease: its cost is 0 or exceeds the limit.
    async fn answer_without_lease(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        limit: LeaseLimit,
        (at, began): (Option<Time>, Instant),
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        match self.send_peek(key, cost, limit, at).await {
            Ok(decided) => Ok(without_lease(decided.answer(), began)),
            Err(failure) => self.fallback_grant(failure, key, cost, began),
        }
    }

    /// Answers without the store, if the semaphore has a fallback.
    fn fallback_grant(
        self: &Arc<Inner>,
        failure: StoreFailure,
        key: &[u8],
        cost: u64,
        began: Instant,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        let mut lease = None;
        let answer = self.fallback.answer(|local| {
            let grant = local.try_acquire(key, cost);
            let decision = grant.decision();
            lease = grant.lease();
            Some(decision)
        });
        let answer = answer.ok_or(failure)?;
        if !answer.allowed() {
            return Ok(without_lease(answer, began));
        }
        let lease = lease.map(|lease| RedisLease::local(self, key, lease, Instant::now()));
        Ok(granted(answer, lease, began))
    }

    fn counted(
        &self,
        grant: Result<Grant<RedisLease>, StoreFailure>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.count(grant.as_ref().ok().map(Grant::source));
        grant
    }

    fn count(&self, source: Option<Source>) {
        self.store.inner.counters.count(source);
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("scope", &self.inner.scope)
            .field("limit", &self.inner.limit.to_string())
            .finish_non_exhaustive()
    }
}
