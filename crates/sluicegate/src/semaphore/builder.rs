//! Settings of a semaphore, each with a default and a bound.

use super::Semaphore;
use super::capacity::Capacity;
use super::shard::{Common, Shard};
use crate::clock::Clock;
use crate::clock::any::AnyClock;
use crate::key::Seeds;
use crate::limit::{Limit, LimitError};
use crate::limiter::{
    BuildError, IntoLimits, MAX_QUEUE_DEFAULT, MAX_WAITERS_DEFAULT, Observer, queue_bounds, within,
};
use crate::sync::AtomicUsize;
use sluicegate_core::Concurrency;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

/// The default maximum of leases, including those that waiters are waiting for.
pub const MAX_LEASES_DEFAULT: usize = 100_000;

/// The upper bound of the maximum of leases.
pub const MAX_LEASES_MAX: usize = 100_000_000;

/// The number of shards, each with its own lock: with 64, 16 threads rarely contend.
const SHARDS: u32 = if cfg!(loom) { 2 } else { 64 };

/// Settings of a semaphore. Created by [`Semaphore::builder`].
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let builder = Semaphore::builder("concurrency 2 ttl=30s");
/// let exports = builder.max_leases(10_000).max_queue(5).build()?;
/// assert_eq!(exports.peek("user:42", 1).limit(), 2);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[must_use]
pub struct SemaphoreBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    max_leases: usize,
    max_queue: usize,
    max_waiters: usize,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
}

impl SemaphoreBuilder {
    pub(super) fn new(limit: impl IntoLimits) -> SemaphoreBuilder {
        SemaphoreBuilder {
            limits: limit.into_limits(),
            max_leases: MAX_LEASES_DEFAULT,
            max_queue: MAX_QUEUE_DEFAULT,
            max_waiters: MAX_WAITERS_DEFAULT,
            clock: AnyClock::System,
            observer: None,
        }
    }

    /// The maximum number of leases held under all keys, including those that waiters are waiting
    /// for; the default is [`MAX_LEASES_DEFAULT`]. When it is reached, expired leases are removed;
    /// if there are none, a call is denied with [`Denial::NoRoom`](crate::wait::Denial::NoRoom).
    /// Calls that already wait are not.
    pub fn max_leases(mut self, max_leases: usize) -> SemaphoreBuilder {
        self.max_leases = max_leases;
        self
    }

    /// The maximum number of waiters per key; the default is [`MAX_QUEUE_DEFAULT`]. Further calls
    /// are denied immediately.
    pub fn max_queue(mut self, max_queue: usize) -> SemaphoreBuilder {
        self.max_queue = max_queue;
        self
    }

    /// The maximum number of waiters under all keys; the default is [`MAX_WAITERS_DEFAULT`].
    pub fn max_waiters(mut self, max_waiters: usize) -> SemaphoreBuilder {
        self.max_waiters = max_waiters;
        self
    }

    /// The clock. For tests: [`crate::clock::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> SemaphoreBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Sets an observer of every decision and of leases that expire.
    pub fn observer(mut self, observer: impl Observer + 'static) -> SemaphoreBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the semaphore.
    ///
    /// # Errors
    /// If the text is not one `concurrency` limit, or a setting is out of bounds.
    pub fn build(self) -> Result<Semaphore, BuildError> {
        let (limit, concurrency) = single(self.limits)?;
        let max_leases = within("max_leases", self.max_leases, 1, MAX_LEASES_MAX)?;
        // The first reading of the system clock measures the counter's rate: not in a call.
        self.clock.now();
        let shards = usize::try_from(SHARDS).unwrap_or(usize::MAX);
        let common = Arc::new(Common {
            clock: self.clock,
            observer: self.observer,
            capacity: Capacity::new(max_leases, shards),
            waiting: AtomicUsize::new(0),
            bounds: queue_bounds(self.max_queue, self.max_waiters)?,
            seal: crate::seal::Seal::default(),
            shards: OnceLock::new(),
        });
        let shards: Arc<[Arc<Shard>]> =
            (0..SHARDS).map(|number| Shard::new(concurrency, Arc::clone(&common), number)).collect();
        // Set here and nowhere else, so this succeeds.
        let _ = common.shards.set(shards.iter().map(Arc::downgrade).collect());
        Ok(Semaphore::from_parts(shards, common, Seeds::random(), max_leases, Mutex::new(limit)))
    }
}

/// The only limit, which must be a `concurrency` limit.
pub(super) fn single(limits: Result<Vec<Limit>, LimitError>) -> Result<(Limit, Concurrency), BuildError> {
    let limits = limits?;
    if limits.is_empty() {
        return Err(LimitError::no_limit().into());
    }
    let [limit] = <[Limit; 1]>::try_from(limits)
        .map_err(|limits| BuildError::GrantsNoLeases(Limit::list_text(&limits)))?;
    match limit.as_concurrency() {
        Some(concurrency) => Ok((limit, concurrency)),
        None => Err(BuildError::GrantsNoLeases(limit.to_string())),
    }
}

impl fmt::Debug for SemaphoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SemaphoreBuilder { limits, max_leases, max_queue, max_waiters, clock, .. } = self;
        f.debug_struct("SemaphoreBuilder")
            .field("limits", limits)
            .field("max_leases", max_leases)
            .field("max_queue", max_queue)
            .field("max_waiters", max_waiters)
            .field("clock", clock)
            .finish_non_exhaustive()
    }
}
