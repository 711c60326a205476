//! A bulkhead: at most so many at once, and at most so many who wait for a permit.
//!
//! `permits.rs` is the one word that most calls touch, `queue.rs` those who wait, `enter.rs` the call that asks, `spec.rs` the line of text,
//! `adapt.rs` what moves the limit, and `adaptive.rs` the rules for that which are here.
//!
//! ```text
//! enter ──▶ a permit is free and nobody waits: taken, one compare-and-swap
//!       ──▶ else a place in the queue, if there is one; woken once, when called or when its patience ends
//! drop  ──▶ nobody waits: given back, one subtraction
//!       ──▶ else it goes to the first who waits
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
use sluicegate_core::bounds::COUNT_MAX;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// At most so many calls at once, so that one slow dependency does not take every thread, task or connection with it.
///
/// ```
/// use sluicegate_guard::Bulkhead;
///
/// let payments = Bulkhead::new("bulkhead 2 queue=5 wait=1s")?;
/// let permit = payments.try_acquire();      // does not wait
/// let other = payments.acquire().blocking(); // waits for a second at the most; in async code: .await
/// assert!(permit.is_some() && other.allowed());
/// assert!(payments.try_acquire().is_none());
/// drop(permit);                           // a permit is returned when it is dropped
/// assert!(payments.try_acquire().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// Its clones are the same bulkhead. First come, first served within a priority, and nobody overtakes those who wait.
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

/// A permit of a bulkhead. It is returned when this is dropped.
///
/// It belongs to nobody but its holder: it can be sent to another thread, or outlive the bulkhead it came from.
#[must_use = "a permit that is dropped is returned at once"]
pub struct Permit {
    bulkhead: Bulkhead,
    /// Known if a rule wants to know how calls go.
    start: Option<CallStart>,
}

/// How a call began.
#[derive(Clone, Copy)]
struct CallStart {
    at: Time,
    /// Its own permit included.
    in_use: u32,
}

impl CallStart {
    #[cold]
    fn now(bulkhead: &Bulkhead) -> CallStart {
        CallStart { at: bulkhead.now(), in_use: bulkhead.inner.permits.read().in_use }
    }
}

/// What a bulkhead has done since it was made, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct BulkheadStats {
    /// Permits that were given, those included that were held for somebody who left meanwhile.
    pub allowed: u64,
    /// Who asked and had none: as the queue was full, or the wait too long.
    pub denied: u64,
    /// Who waits now.
    pub waiting: usize,
    /// Permits taken now. More than `limit` after that was lowered.
    pub in_use: u32,
    /// Permits there are.
    pub limit: u32,
}

/// What a bulkhead is made of. Made by [`Bulkhead::builder`].
#[must_use]
pub struct BulkheadBuilder {
    config: Result<BulkheadConfig, LimitError>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
    adapt: Option<Box<dyn Adapt>>,
}

impl Bulkhead {
    /// A bulkhead as it is written, or as a spec says.
    ///
    /// # Errors
    /// When a text is not a bulkhead: one line that says why, and what to write.
    pub fn new(config: impl IntoConfig<BulkheadConfig>) -> Result<Bulkhead, BuildError> {
        Bulkhead::builder(config).build()
    }

    /// A bulkhead with settings.
    pub fn builder(config: impl IntoConfig<BulkheadConfig>) -> BulkheadBuilder {
        let (config, clock) = (config.into_config(), AnyClock::System);
        BulkheadBuilder { config, clock, observer: None, name: None, adapt: None }
    }

    /// A permit, if one is free and nobody waits for it.
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit> {
        if self.inner.permits.try_take() {
            return Some(Permit::in_use(self.clone()).start_timer());
        }
        self.deny_now();
        None
    }

    /// A permit, waiting in the queue for it if there is one, for as long as `wait=` says.
    #[inline]
    pub fn acquire(&self) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::For(self.inner.config.wait()))
    }

    /// The same, waiting for so long at the most.
    pub fn acquire_within(&self, max_wait: Duration) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::For(max_wait.into()))
    }

    /// The same, waiting until a time on its clock at the most. If that is now, a permit that is free is taken; if it has passed, none is.
    pub fn acquire_until(&self, deadline: Time) -> AcquirePermit {
        AcquirePermit::new(self.clone(), MaxWait::Until(deadline))
    }

    /// Another limit. Those who wait are called if there are more permits now; if more are taken than there are now, nobody is thrown
    /// out, and nobody comes in until enough have left. It is from 1 to a billion: what is not is taken as the nearest that is.
    ///
    /// Where a rule moves the limit ([`BulkheadBuilder::adapt`], [`BulkheadBuilder::adaptive`]) it holds until the next call ends: then the
    /// rule sets its own again.
    pub fn set_limit(&self, limit: u32) {
        self.inner.permits.set_limit(checked_limit(limit));
        self.inner.wake_waiters();
    }

    /// What it was made of. Its limit may have moved since: see [`Bulkhead::stats`].
    pub fn config(&self) -> BulkheadConfig {
        self.inner.config
    }

    /// What it has done, and what it holds.
    pub fn stats(&self) -> BulkheadStats {
        let waiting = self.inner.waiting();
        let Usage { in_use, limit } = self.inner.permits.read();
        let (allowed, denied) = (self.inner.permits.granted(), self.inner.denied.load(Ordering::Relaxed));
        BulkheadStats { allowed, denied, waiting, in_use: in_use, limit }
    }

    fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Gives a permit that is free to the first who waits. What panicked meanwhile, if something did: the clock, or somebody's waker.
    #[cold]
    fn wake_waiters_catching(&self) -> Option<Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.inner.wake_waiters())).err()
    }

    /// There is no permit for somebody who does not wait.
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

    /// How many wait. The lock is only taken if somebody does.
    fn waiting(&self) -> usize {
        if self.permits.has_waiters() { self.lock().len() } else { 0 }
    }

    /// How many may wait.
    fn queue_max(&self) -> usize {
        usize::try_from(self.config.queue()).unwrap_or(usize::MAX)
    }

    /// A permit may be free, and somebody may wait for it.
    #[cold]
    fn wake_waiters(self: &Arc<Self>) {
        let mut queue = LockedQueue::open(self);
        queue.dispatch();
        queue.close();
    }
}

/// The nearest limit that there can be.
fn checked_limit(limit: u32) -> u32 {
    limit.clamp(1, COUNT_MAX)
}

impl Permit {
    /// One that was taken. From here on it is given back, whatever panics.
    #[inline]
    fn in_use(bulkhead: Bulkhead) -> Permit {
        Permit { bulkhead, start: None }
    }

    /// The call begins. No lock is held: a clock that panics gives the permit back, which may take the queue's.
    #[inline]
    fn start_timer(mut self) -> Permit {
        if self.bulkhead.inner.adapt.is_some() {
            self.start = Some(CallStart::now(&self.bulkhead));
        }
        self
    }

    /// Returns it, and says how the call ended, for a rule that moves the limit.
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
        // Whatever the rule did.
        let passed_on = self.bulkhead.inner.permits.release().then(|| self.bulkhead.wake_waiters_catching());
        // A second panic while the first goes on would end the process.
        if let Some(panic) = panicked.or(passed_on.flatten()).filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

impl BulkheadBuilder {
    /// A clock of your own, for those who wait. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> BulkheadBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Is told of every denial, and of every move of the limit by a rule.
    pub fn observer(mut self, observer: impl Observer + 'static) -> BulkheadBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The clock and the observer of what it is a part of.
    pub(crate) fn inherit(
        mut self,
        clock: &AnyClock,
        observer: Option<&Arc<dyn Observer>>,
    ) -> BulkheadBuilder {
        (self.clock, self.observer) = (clock.clone(), observer.cloned());
        self
    }

    /// What it is called in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> BulkheadBuilder {
        self.name = Some(name.into());
        self
    }

    /// A rule that moves the limit by how calls end.
    pub fn adapt(mut self, algorithm: impl Adapt + 'static) -> BulkheadBuilder {
        self.adapt = Some(Box::new(algorithm));
        self
    }

    /// The bulkhead.
    ///
    /// # Errors
    /// When the text is not a bulkhead.
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
