//! So many at once, over many processes: a semaphore whose leases are in the shared store.
//!
//! In plain words: whoever wants to act takes a lease, one script call, and gives it back after it, another one. A lease has an
//! id that nobody can guess, made here before the store is asked. So a lease whose answer was lost can still be given back, and one
//! that nobody gives back, because its process has died, lapses by the store's clock.
//!
//! Here are the verbs; `builder.rs` makes a semaphore, `ask.rs` asks the store and `told.rs` reads what it says, `claim.rs` gives back
//! what nobody came to hold, `lease.rs` and `grant.rs` are what callers get, `wait.rs` and `waiters.rs` let them wait and `pace.rs` says how often
//! they ask, `scope.rs` is what semaphores of one scope have in common, and `without.rs` answers when the store cannot.

mod ask;
mod builder;
mod claim;
mod grant;
mod id;
mod lease;
mod pace;
mod scope;
mod told;
mod wait;
mod waiters;
mod without;

pub use builder::RedisSemaphoreBuilder;
pub use grant::SharedGrant;
pub use id::{BadLeaseId, LeaseId};
pub use lease::{LeaseLost, SharedLease};
pub use pace::{ASKS_A_SECOND_MAX, TICKET_LIFE, TICKET_LIFE_MAX, WAITING_MAX};
pub(crate) use scope::Scopes;

use crate::answer::{Answer, Source};
use crate::failure::StoreFailure;
use crate::names::Names;
use crate::store::RedisStore;
use claim::Claim;
use id::Home;
use scope::{Member, Numbers};
use sluicegate::{IntoLimits, Limit, Time};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use without::Fallback;

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
/// when [`renew`](SharedLease::renew) says no ([`renew_while`](SharedLease::renew_while) does both).
///
/// **Other numbers**: semaphores of one scope share the leases, in whichever process they are. One with fewer places than are held gives out
/// none until enough are back; the leases that are out stay. Where there are several of one scope in a process, because numbers have changed, whoever waits and whoever
/// holds a lease goes by the newest one; whoever neither waits nor holds one is answered by the one that it asks.
///
/// `now` is `None` for the store's time, and a time of the caller's in tests and replays. Clones are the same semaphore.
#[derive(Clone)]
pub struct RedisSemaphore {
    inner: Arc<Inner>,
}

struct Inner {
    store: RedisStore,
    scope: String,
    names: Names,
    limit: Limit,
    member: Member,
    fallback: Fallback,
    /// The most that may stand in line under one key, of all processes.
    max_line: usize,
    /// The most that may wait under all keys of the scope, of this process.
    max_waiting: usize,
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
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>, cost: u32) -> Result<SharedGrant, StoreFailure> {
        self.inner.try_acquire(key.as_ref(), cost, self.inner.member.numbers(), None).await
    }

    /// The same at a time of the caller's, for tests and replays.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn try_acquire_at(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        now: Time,
    ) -> Result<SharedGrant, StoreFailure> {
        self.inner.try_acquire(key.as_ref(), cost, self.inner.member.numbers(), Some(now)).await
    }

    /// Would a lease of this cost be given now? None is taken.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn peek(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        now: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let (inner, key) = (&self.inner, key.as_ref());
        match inner.ask_peek(key, cost, inner.member.numbers(), now).await {
            Ok(told) => Ok(Answer::new(told.decision, Source::Store)),
            Err(failure) => inner.fallback.peek(failure, key, cost),
        }
    }

    /// Gives a lease that has not lapsed a whole new ttl. `false` if it has lapsed, also if nobody else has come since, or was never
    /// there. Its holder must not go on then.
    ///
    /// # Errors
    /// When the store gives no answer. The lease may have been renewed all the same.
    pub async fn renew(
        &self,
        key: impl AsRef<[u8]>,
        lease: &LeaseId,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        let (inner, key) = (&self.inner, key.as_ref());
        match &lease.of {
            Home::Store(id) => Ok(inner.ask_renew(key, id, inner.member.numbers(), now).await?.0),
            Home::Local(id) => Ok(inner.fallback.renew(key, id)),
        }
    }

    /// Returns a lease. `false` if it has lapsed, or was never there.
    ///
    /// # Errors
    /// When the store gives no answer. The lease may have been returned all the same, and it is safe to ask again.
    pub async fn release(
        &self,
        key: impl AsRef<[u8]>,
        lease: &LeaseId,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        self.inner.release(key.as_ref(), lease, now).await
    }

    /// Forgets the key: its leases are gone, and can be renewed no more. Who waits stays in line.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreFailure> {
        self.reset_each(&[key.as_ref()]).await
    }

    /// Forgets several keys in one trip.
    ///
    /// # Errors
    /// When the store gives no answer. Some of the keys may then be forgotten.
    pub async fn reset_each(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        for key in keys {
            self.inner.fallback.forget(key);
        }
        self.inner.ask_reset(keys).await?;
        for key in keys {
            self.inner.member.waiters().wake_first(key);
        }
        Ok(())
    }

    /// Waits for a place and takes it. Only a cost above the limit, or too long a line, is refused. If the numbers are changed meanwhile, by another
    /// semaphore of the same scope, it goes on by the new ones.
    ///
    /// **Order.** Whoever waits has a ticket in the store, and a place that becomes free goes to the oldest ticket: callers of all
    /// processes go first come, first served, and a large cost is not overtaken by small ones. Whoever waits asks again and again, the first in
    /// line every 20 ms at least, so that a place that another process returns may stay empty for that long. All who wait in this process ask at most
    /// [`ASKS_A_SECOND_MAX`] times a second together: where more than twenty wait under keys of their own, each asks less often. A ticket
    /// that nobody asks for is good for [`TICKET_LIFE`], or up to [`TICKET_LIFE_MAX`] if very many wait: so long a process that has died can hold
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
    pub async fn acquire(&self, key: impl AsRef<[u8]>, cost: u32) -> Result<SharedGrant, StoreFailure> {
        self.inner.acquire(key.as_ref(), cost, None).await
    }

    /// The same for at most so long.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        max_wait: Duration,
    ) -> Result<SharedGrant, StoreFailure> {
        self.inner.acquire(key.as_ref(), cost, Instant::now().checked_add(max_wait)).await
    }

    /// The same until a moment of this process's clock.
    ///
    /// # Errors
    /// As [`RedisSemaphore::try_acquire`].
    pub async fn acquire_until(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        deadline: std::time::Instant,
    ) -> Result<SharedGrant, StoreFailure> {
        self.inner.acquire(key.as_ref(), cost, Some(Instant::from_std(deadline))).await
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.inner.limit
    }

    /// What its keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

impl Inner {
    async fn try_acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<SharedGrant, StoreFailure> {
        let began = Instant::now();
        if numbers.need_no_lease(cost) {
            return self.answer_without_lease(key, cost, numbers, (now, began)).await;
        }
        let claim = Claim::new(self, key, cost);
        match self.ask_acquire(key, (claim.id(), cost), None, numbers, now).await {
            Ok(told) if told.is_taken => Ok(SharedGrant::taken(&told, claim.held(&told, began), began)),
            Ok(told) => {
                claim.nothing_taken();
                Ok(SharedGrant::without_lease(Answer::new(told.decision, Source::Store), began))
            }
            Err(failure) => {
                claim.failed(&failure);
                self.grant_without(failure, key, cost, began)
            }
        }
    }

    /// The answer to one who asks for nothing, or for too much, and began to at a moment.
    async fn answer_without_lease(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        numbers: Numbers,
        (now, began): (Option<Time>, Instant),
    ) -> Result<SharedGrant, StoreFailure> {
        match self.ask_peek(key, cost, numbers, now).await {
            Ok(told) => Ok(SharedGrant::without_lease(Answer::new(told.decision, Source::Store), began)),
            Err(failure) => self.grant_without(failure, key, cost, began),
        }
    }

    /// Returns a lease, and lets the next one in this process know.
    async fn release(&self, key: &[u8], lease: &LeaseId, now: Option<Time>) -> Result<bool, StoreFailure> {
        let released = match &lease.of {
            Home::Store(id) => self.ask_release(key, id, None, now).await,
            Home::Local(id) => Ok(self.fallback.release(key, id)),
        };
        self.member.waiters().wake_first(key);
        released
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
