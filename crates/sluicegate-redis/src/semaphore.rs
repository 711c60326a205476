//! So many at once, over many processes: a semaphore whose leases are in the shared store.
//!
//! In plain words: whoever wants to act takes a lease, one script call, and gives it back after it, another one. A lease has an
//! id that nobody can guess, made here before the store is asked. So a lease whose answer was lost can still be given back, and one
//! that nobody gives back, because its process has died, lapses by the store's clock.
//!
//! Here are the verbs; `builder.rs` makes a semaphore, `ask.rs` makes script calls of verbs and `reply.rs` reads what scripts reply, `pending.rs` releases
//! leases that no caller came to hold, `lease.rs` and `grant.rs` are what callers get, `wait.rs` and `waiters.rs` let them wait and `rate.rs`
//! says how often they ask, and `scope.rs` is what semaphores of one scope have in common.

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
pub(crate) use scope::Scopes;

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
use sluicegate::{IntoLimits, Key, Limit, Time};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// At most so many at once for each key, over all processes that share the store.
///
/// ```no_run
/// use sluicegate_redis::{RedisSemaphore, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let exports = RedisSemaphore::builder("concurrency 10 ttl=30s").in_store(&store, "exports").build()?;
/// let grant = exports.acquire("acme", 1).await?;
/// if let Some(lease) = grant.lease() {
///     // At most ten of acme's at once, in whichever processes.
///     lease.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// **A lease lapses** `ttl` after it was taken or last renewed, by the store's clock, whatever its holder does. So a process that dies frees its
/// places within `ttl`. And a process that is slow, or stopped, may act without holding a place any more: renew in time, and stop
/// when [`renew`](RedisLease::renew) says no ([`renew_while`](RedisLease::renew_while) does both).
///
/// **Other limit**: semaphores of one scope share the leases, in whichever process they are. One with fewer places than are held gives out
/// none until enough are back; the leases that are out stay. Where there are several of one scope in a process, because limit have changed, whoever waits and whoever
/// holds a lease goes by the newest one; whoever neither waits nor holds one is answered by the one that it asks.
///
/// It has the methods of [`sluicegate::semaphore::Semaphore`] and takes the same arguments; to move to it, change the constructor and add
/// `.await?`. The time is the store's; the methods that end in `_at` take another one, for tests and replays. Clones are the same
/// semaphore.
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
    /// The most that may stand in line under one key, of all processes.
    max_queue: usize,
    /// The most that may wait under all keys of the scope, of this process.
    max_waiters: usize,
}

impl RedisSemaphore {
    /// A semaphore of one `concurrency` limit, which says its `ttl`. It needs a store: [`RedisSemaphoreBuilder::in_store`].
    pub fn builder(limit: impl IntoLimits) -> RedisSemaphoreBuilder {
        RedisSemaphoreBuilder::new(limit.into_limits())
    }

    /// Takes a lease if there is a place, and does not wait for one. It does not go before those who wait in line, of whichever process.
    /// Cost 0 is always allowed and takes none.
    ///
    /// # Errors
    /// When the store gives no answer, and the semaphore is not to answer without it. A lease that may have been taken all the same
    /// is given back, as well as that can be.
    pub async fn try_acquire(&self, key: impl Key, cost: u32) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.try_acquire(&key.to_bytes(), cost, None).await
    }

    /// The same at a time of the caller's, for tests and replays.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn try_acquire_at(
        &self,
        key: impl Key,
        cost: u32,
        now: Time,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.try_acquire(&key.to_bytes(), cost, Some(now)).await
    }

    /// Decides whether a lease of this cost would be granted now. None is taken.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn peek(&self, key: impl Key, cost: u32) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn peek_at(&self, key: impl Key, cost: u32, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, Some(now)).await
    }

    /// Extends a live lease by a full TTL. `false` if it has expired, also if its permit is still free, or never was there. Its
    /// holder must stop then.
    ///
    /// # Errors
    /// When the id is not one of this crate, or the store gives no answer. The lease may have been renewed all the same.
    pub async fn renew(&self, key: impl Key, lease: &LeaseId) -> Result<bool, BackendError> {
        self.inner.renew(&key.to_bytes(), lease, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisSemaphore::renew`].
    pub async fn renew_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> Result<bool, BackendError> {
        self.inner.renew(&key.to_bytes(), lease, Some(now)).await
    }

    /// Releases a lease. `false` if it had expired, or never was there.
    ///
    /// # Errors
    /// When the id is not one of this crate, or the store gives no answer. The lease may have been released all the same, and it
    /// is safe to try again.
    pub async fn release(&self, key: impl Key, lease: &LeaseId) -> Result<bool, BackendError> {
        self.inner.release(&key.to_bytes(), lease, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisSemaphore::release`].
    pub async fn release_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> Result<bool, BackendError> {
        self.inner.release(&key.to_bytes(), lease, Some(now)).await
    }

    /// Deletes the key's leases, which can then not be renewed any more. Waiters stay in the queue.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn reset(&self, key: impl Key) -> Result<(), StoreFailure> {
        self.inner.reset(&[&key.to_bytes()]).await
    }

    /// Deletes the leases of several keys in one round trip.
    ///
    /// # Errors
    /// When the store gives no answer. The leases of some of the keys may then be deleted.
    pub async fn reset_each<K: Key>(&self, keys: &[K]) -> Result<(), StoreFailure> {
        let keys: Vec<Cow<'_, [u8]>> = keys.iter().map(Key::to_bytes).collect();
        self.inner.reset(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await
    }

    /// Waits for a place and takes it. Only a cost above the limit, or too long a line, is refused. If the limit are changed meanwhile, by another
    /// semaphore of the same scope, it goes on by the new ones.
    ///
    /// **Order.** Whoever waits has a ticket in the store, and a place that becomes free goes to the oldest ticket: callers of all
    /// processes go first come, first served, and a large cost is not overtaken by small ones. Whoever waits asks again and again, the first in
    /// line every 20 ms at least, so that a place that another process returns may stay empty for that long. All who wait in this process ask at most
    /// [`POLLS_PER_SECOND_MAX`] times a second together: where more than twenty wait under keys of their own, each asks less often. A ticket
    /// that nobody asks for is good for [`WAITER_TTL`], or up to [`WAITER_TTL_MAX`] if very many wait: so long a process that has died can hold
    /// up those behind it.
    ///
    /// **Dropped while it waits**, it leaves the line, and gives back what it may have been given, by a task on the runtime that it was polled
    /// on and as well as can be: what fails lapses.
    ///
    /// **When the store fails**: an answer that is lost is asked for again with the same ticket, which nothing is charged for twice. When the
    /// store is away, or refuses, the semaphore answers as for the other verbs; under [`OnStoreFailure::Deny`](crate::OnStoreFailure::Deny)
    /// callers wait and ask again.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire(&self, key: impl Key, cost: u32) -> Result<Grant<RedisLease>, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, None).await
    }

    /// The same for at most so long.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire_within(
        &self,
        key: impl Key,
        cost: u32,
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
        cost: u32,
        deadline: Time,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.acquire_within(key, cost, deadline.since(SystemClock.now()).into()).await
    }

    /// The limit.
    pub fn limit(&self) -> Limit {
        self.inner.limit.clone()
    }

    /// What its keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

/// The verbs, for keys as bytes. `at` is the time of the call; `None` is the store's.
impl Inner {
    pub(crate) async fn try_acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        at: Option<Time>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.counted(self.acquire_now(key, cost, self.member.limit(), at).await)
    }

    pub(crate) async fn acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        until: Option<Instant>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        self.counted(self.wait(key, cost, until).await)
    }

    pub(crate) async fn peek(&self, key: &[u8], cost: u32, at: Option<Time>) -> Result<Answer, StoreFailure> {
        let answer = match self.send_peek(key, cost, self.member.limit(), at).await {
            Ok(decided) => Ok(decided.answer()),
            Err(failure) => self.fallback.answer(|local| Some(local.peek(key, cost))).ok_or(failure),
        };
        self.count(answer.as_ref().ok().map(Answer::source));
        answer
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

    /// A lease, if a permit is free.
    async fn acquire_now(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
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

    /// The answer to a call that began at a moment, and costs nothing or more than the limit.
    async fn answer_without_lease(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        limit: LeaseLimit,
        (at, began): (Option<Time>, Instant),
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        match self.send_peek(key, cost, limit, at).await {
            Ok(decided) => Ok(without_lease(decided.answer(), began)),
            Err(failure) => self.fallback_grant(failure, key, cost, began),
        }
    }

    /// The answer without the store. A lease of this process's memory has a home here too.
    fn fallback_grant(
        self: &Arc<Inner>,
        failure: StoreFailure,
        key: &[u8],
        cost: u32,
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
