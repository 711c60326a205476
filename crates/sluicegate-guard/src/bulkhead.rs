//! Bulkheads: a limit on the calls in flight, with a bounded queue of waiters.
//!
//! `permits.rs` is the atomic word that most calls touch, `queue.rs` the waiters, `acquire.rs` the
//! future that acquires a permit, `config.rs` the configuration and its parser, `adapt.rs` the hook
//! that changes the limit, `adaptive.rs` the algorithms for it.
//!
//! ```text
//! acquire ──▶ a permit is free and there is no waiter: taken, one compare-and-swap
//!         ──▶ otherwise enqueued, if the queue has room; woken once, with a permit or a denial
//! drop    ──▶ there is no waiter: released, one addition
//!         ──▶ otherwise passed to the first waiter
//! ```

mod acquire;
mod adapt;
mod adaptive;
mod config;
mod permits;
mod queue;

pub use acquire::{AcquirePermit, PermitGrant};
pub use adapt::{Adapt, CompletedCall};
pub use config::{BULKHEAD_QUEUE_MAX, BULKHEAD_WAIT_DEFAULT, BulkheadConfig};

use crate::Outcome;
use crate::event::{Event, Observer};
use crate::text::IntoConfig;
use permits::{Permits, Usage};
use queue::{LockedQueue, Queue};
use sluicegate::BuildError;
use sluicegate::LimitError;
use sluicegate::clock::Clock;
use sluicegate::internal::AnyClock;
use sluicegate::internal::MaxWait;
use sluicegate::internal::sync::{Mutex, MutexGuard};
use sluicegate::wait::Denial;
use sluicegate_core::Time;
use sluicegate_core::bounds::PERMITS_MAX;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Limits the calls in flight, so that one slow dependency cannot take every thread, task or
/// connection.
///
/// ```
/// use sluicegate_guard::Bulkhead;
///
/// let payments = Bulkhead::new("bulkhead 2 queue=5 wait=1s")?;
/// let permit = payments.try_acquire();      // does not wait
/// let other = payments.acquire().blocking(); // waits for up to a second; in async code: .await
/// assert!(permit.is_some() && other.allowed());
/// assert!(payments.try_acquire().is_none());
/// drop(permit);                           // dropping a permit releases it
/// assert!(payments.try_acquire().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// Clones share the same bulkhead. Waiters are served first in, first out within a priority, and a
/// call that does not wait never overtakes them.
#[derive(Clone)]
pub struct Bulkhead {
    inner: Arc<Inner>,
}

struct Inner {
    permits: Permits,
    queue: Mutex<Queue>,
    config: BulkheadConfig,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
    adapt: Option<std::sync::Mutex<Box<dyn Adapt>>>,
    denied: AtomicU64,
}

/// A permit of a bulkhead. Dropping it releases it.
///
/// It can be sent to another thread, and can outlive the bulkhead value it came from.
#[must_use = "a permit is released when it is dropped"]
pub struct Permit {
    bulkhead: Bulkhead,
    /// Set if an algorithm changes the limit.
    start: Option<CallStart>,
}

/// The start of a call.
#[derive(Clone, Copy)]
struct CallStart {
    at: Time,
    /// Permits in use, including its own.
    in_use: u32,
}

impl CallStart {
    #[cold]
    fn now(bulkhead: &Bulkhead) -> CallStart {
        CallStart { at: bulkhead.now(), in_use: bulkhead.inner.permits.read().in_use }
    }
}

/// Totals and usage of a bulkhead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct BulkheadStats {
    /// Permits granted, including those whose waiter was gone by then.
    pub allowed: u64,
    /// Calls denied because the queue was full or the wait too long.
    pub denied: u64,
    /// Waiters now.
    pub waiting: usize,
    /// Permits in use now. May exceed `limit` after it was lowered.
    pub in_use: u32,
    /// The current limit.
    pub limit: u32,
}

/// Builds a bulkhead. Created by [`Bulkhead::builder`].
#[must_use]
pub struct BulkheadBuilder {
    config: Result<BulkheadConfig, LimitError>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
    adapt: Option<Box<dyn Adapt>>,
}

impl Bulkhead {
    /// Creates a bulkhead from a line of text or a configuration.
    ///
    /// # Errors
    /// If the text is not a valid bulkhead.
    pub fn new(config: impl IntoConfig<BulkheadConfig>) -> Result<Bulkhead, BuildError> {
        Bulkhead::builder(config).build()
    }

    /// Returns a builder, for a name, a clock, an observer or an adaptive limit.
    pub fn builder(config: impl IntoConfig<BulkheadConfig>) -> BulkheadBuilder {
        let (config, clock) = (config.into_config(), AnyClock::System);
        BulkheadBuilder { config, clock, observer: None, name: None, adapt: None }
    }

    /// Acquires a permit if one is free and there is no waiter. Does not wait.
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit> {
        if self.inner.permits.try_take() {
            return Some(Permit::in_use(self.clone()).start_timer());
        }
        self.deny_now();
        None
    }

    /// Acquires a permit, waiting in the queue for up to `wait=`.
    #[inline]
    pub fn acquire(&self) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::For(self.inner.config.wait()))
    }

    /// Acquires a permit, waiting in the queue for up to `max_wait`.
    pub fn acquire_within(&self, max_wait: Duration) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::For(max_wait.into()))
    }

    /// Acquires a permit, waiting in the queue until a time on the bulkhead's clock. A free permit
    /// is granted at the deadline, but not after it.
    pub fn acquire_until(&self, deadline: Time) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::Until(deadline))
    }

    /// Changes the limit. If it grows, waiters are woken. If it shrinks below the permits in use,
    /// no permit is revoked, and none is granted until enough are released. The limit is clamped to
    /// 1 to a billion.
    ///
    /// With an adaptive limit ([`BulkheadBuilder::adapt`], [`BulkheadBuilder::adaptive`]) this
    /// lasts until the next call ends, when the algorithm sets its own again.
    pub fn set_limit(&self, limit: u32) {
        self.inner.permits.set_limit(checked_limit(limit));
        self.inner.wake_waiters();
    }

    /// Returns the configuration. The limit may have changed since: see [`Bulkhead::stats`].
    pub fn config(&self) -> BulkheadConfig {
        self.inner.config
    }

    /// Returns totals and usage.
    pub fn stats(&self) -> BulkheadStats {
        let waiting = self.inner.waiting();
        let Usage { in_use, limit } = self.inner.permits.read();
        let (allowed, denied) = (self.inner.permits.granted(), self.inner.denied.load(Ordering::Relaxed));
        BulkheadStats { allowed, denied, waiting, in_use, limit }
    }

    fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Passes a free permit to the first waiter. Returns the panic of the clock or a waker, if
    /// there was one.
    #[cold]
    fn wake_waiters_catching(&self) -> Option<Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.inner.wake_waiters())).err()
    }

    /// Denies a call that does not wait.
    #[cold]
    fn deny_now(&self) {
        let may_wait = self.inner.waiting() < self.inner.queue_max();
        self.deny(if may_wait { Denial::TooLong } else { Denial::QueueFull });
    }

    #[cold]
    fn deny(&self, denial: Denial) {
        self.inner.denied.fetch_add(1, Ordering::Relaxed);
        if let Some(observer) = &self.inner.observer {
            observer.event(&Event::BulkheadDenied { name: self.inner.name.clone(), denial });
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of waiters. Takes the lock only if there are any.
    fn waiting(&self) -> usize {
        if self.permits.has_waiters() { self.lock().len() } else { 0 }
    }

    /// Returns the capacity of the queue.
    fn queue_max(&self) -> usize {
        usize::try_from(self.config.queue()).unwrap_or(usize::MAX)
    }

    /// Passes free permits to waiters.
    #[cold]
    fn wake_waiters(self: &Arc<Self>) {
        let mut queue = LockedQueue::lock(self);
        queue.dispatch();
        queue.unlock();
    }
}

/// Clamps a limit to its bounds.
fn checked_limit(limit: u32) -> u32 {
    limit.clamp(1, PERMITS_MAX)
}

impl Permit {
    /// Wraps a permit that was taken. From here on it is released even if something panics.
    #[inline]
    fn in_use(bulkhead: Bulkhead) -> Permit {
        Permit { bulkhead, start: None }
    }

    /// Records the start of the call. No lock is held: if the clock panics, the permit is released,
    /// which may take the queue's lock.
    #[inline]
    fn start_timer(mut self) -> Permit {
        if self.bulkhead.inner.adapt.is_some() {
            self.start = Some(CallStart::now(&self.bulkhead));
        }
        self
    }

    /// Releases the permit, and reports the outcome to an adaptive limit.
    pub fn finish(mut self, outcome: Outcome) {
        if let Some(start) = self.start.take() {
            self.bulkhead.adapt(outcome, start);
        }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        let panicked =
            self.start.take().and_then(|start| self.bulkhead.adapt_and_catch(Outcome::Dropped, start));
        // Even if the algorithm panicked.
        let passed_on = self.bulkhead.inner.permits.release().then(|| self.bulkhead.wake_waiters_catching());
        // A second panic would abort the process.
        if let Some(panic) = panicked.or(passed_on.flatten()).filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

impl BulkheadBuilder {
    /// Uses this clock for waiters instead of the system clock. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> BulkheadBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Notifies this observer of denials and of changes of an adaptive limit.
    pub fn observer(mut self, observer: impl Observer + 'static) -> BulkheadBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Uses the clock and the observer of the enclosing guard.
    pub(crate) fn inherit(
        mut self,
        clock: &AnyClock,
        observer: Option<&Arc<dyn Observer>>,
    ) -> BulkheadBuilder {
        (self.clock, self.observer) = (clock.clone(), observer.cloned());
        self
    }

    /// Sets the name in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> BulkheadBuilder {
        self.name = Some(name.into());
        self
    }

    /// Lets an algorithm change the limit after each call.
    pub fn adapt(mut self, algorithm: impl Adapt + 'static) -> BulkheadBuilder {
        self.adapt = Some(Box::new(algorithm));
        self
    }

    /// Builds the bulkhead.
    ///
    /// # Errors
    /// If the text is not a valid bulkhead.
    pub fn build(self) -> Result<Bulkhead, BuildError> {
        let BulkheadBuilder { config, clock, observer, name, adapt } = self;
        let config = config?;
        let inner = Inner {
            permits: Permits::new(config.limit()),
            queue: Mutex::new(Queue::default()),
            config,
            clock,
            observer,
            name,
            adapt: adapt.map(std::sync::Mutex::new),
            denied: AtomicU64::new(0),
        };
        Ok(Bulkhead { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { in_use, limit } = self.inner.permits.read();
        f.debug_struct("Bulkhead")
            .field("config", &self.inner.config.to_string())
            .field("in_use", &in_use)
            .field("limit", &limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("bulkhead", &self.bulkhead).finish_non_exhaustive()
    }
}

impl fmt::Debug for BulkheadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkheadBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}
