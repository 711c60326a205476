//! Settings of a semaphore, each with a default and a bound.

use super::Semaphore;
use super::capacity::Capacity;
use super::shard::{Common, Shard};
use crate::clock::Clock;
use crate::clock::any::AnyClock;
use crate::key::Seeds;
use crate::limit::{Limit, LimitError, ListError};
use crate::limiter::{
    BuildError, IntoLimits, MAX_QUEUE_DEFAULT, MAX_WAITERS_DEFAULT, Observer, queue_bounds, within,
};
use crate::sync::AtomicUsize;
use sluicegate_core::Concurrency;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

/// How many leases a semaphore holds unless told otherwise, those included for which somebody waits.
pub const MAX_LEASES_DEFAULT: usize = 100_000;

/// The most leases that a semaphore can be told to hold.
pub const MAX_LEASES_MAX: usize = 100_000_000;

/// So many parts of a semaphore's keys are locked each for itself: 16 threads rarely meet.
const SHARDS: u32 = if cfg!(loom) { 2 } else { 64 };

/// What a semaphore is made of. Made by [`Semaphore::builder`].
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let exports = Semaphore::builder("concurrency 2 ttl=30s").max_leases(10_000).max_queue(5).build()?;
/// assert_eq!(exports.peek("Harry", 1).limit(), 2);
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

    /// The most leases that are held at once under all keys, together with those who wait for one: [`MAX_LEASES_DEFAULT`] unless said.
    /// When there is no room, leases that have lapsed make some; else a call is refused with
    /// [`Denial::NoRoom`](crate::wait::Denial::NoRoom). Nobody who waits is.
    pub fn max_leases(mut self, max_leases: usize) -> SemaphoreBuilder {
        self.max_leases = max_leases;
        self
    }

    /// The most callers that may wait in line under one key, [`MAX_QUEUE_DEFAULT`] unless said. Further ones are refused at
    /// once.
    pub fn max_queue(mut self, max_queue: usize) -> SemaphoreBuilder {
        self.max_queue = max_queue;
        self
    }

    /// The most callers that may wait in line under all keys, [`MAX_WAITERS_DEFAULT`] unless said.
    pub fn max_waiters(mut self, max_waiters: usize) -> SemaphoreBuilder {
        self.max_waiters = max_waiters;
        self
    }

    /// A clock of your own. For tests: [`crate::clock::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> SemaphoreBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Is told of every decision, and of leases that lapse.
    pub fn observer(mut self, observer: impl Observer + 'static) -> SemaphoreBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Makes the semaphore.
    ///
    /// # Errors
    /// When the text is not one limit of `concurrency`, or a number is out of bounds.
    pub fn build(self) -> Result<Semaphore, BuildError> {
        let (limit, concurrency) = single(self.limits)?;
        let max_leases = within("max_leases", self.max_leases, 1, MAX_LEASES_MAX)?;
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
        // The first and only time, so it is not set yet.
        let _ = common.shards.set(shards.iter().map(Arc::downgrade).collect());
        Ok(Semaphore::from_parts(shards, common, Seeds::random(), max_leases, Mutex::new(limit)))
    }
}

/// The one limit, which gives leases.
pub(super) fn single(limits: Result<Vec<Limit>, LimitError>) -> Result<(Limit, Concurrency), BuildError> {
    let mut limits = limits?;
    if let Some(other) = limits.iter().find(|limit| limit.as_concurrency().is_none()) {
        return Err(BuildError::GivesNoLeases(other.to_string()));
    }
    let Some(limit) = limits.pop() else { return Err(ListError::Empty.into()) };
    match limit.as_concurrency() {
        Some(concurrency) if limits.is_empty() => Ok((limit, concurrency)),
        _ => Err(ListError::GivesLeases(limit.to_string()).into()),
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
