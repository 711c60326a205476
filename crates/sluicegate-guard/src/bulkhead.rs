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

mod adapt;
mod adaptive;
mod enter;
mod permits;
mod queue;
mod spec;

pub use adapt::{Adapt, EndedCall};
pub use enter::{Enter, Entry};
pub use spec::{BULKHEAD_QUEUE_MAX, BULKHEAD_WAIT_DEFAULT, BulkheadSpec};

use crate::Outcome;
use crate::event::{Event, Observer};
use crate::text::IntoRules;
use permits::{Permits, Seen};
use queue::{Desk, Queue};
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
/// let permit = payments.try_enter();      // does not wait
/// let other = payments.enter().blocking(); // waits for a second at the most; in async code: .await
/// assert!(permit.is_some() && other.allowed());
/// assert!(payments.try_enter().is_none());
/// drop(permit);                           // a permit is returned when it is dropped
/// assert!(payments.try_enter().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// Its clones are the same bulkhead. First come, first served within a priority, and nobody overtakes those who wait.
#[derive(Clone)]
pub struct Bulkhead {
    shared: Arc<Shared>,
}

struct Shared {
    permits: Permits,
    queue: Mutex<Queue>,
    spec: BulkheadSpec,
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
    began: Option<Began>,
}

/// How a call began.
#[derive(Clone, Copy)]
struct Began {
    at: Time,
    /// Its own permit included.
    in_use: u32,
}

impl Began {
    #[cold]
    fn now(bulkhead: &Bulkhead) -> Began {
        Began { at: bulkhead.now(), in_use: bulkhead.shared.permits.read().taken }
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
    spec: Result<BulkheadSpec, LimitError>,
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
    pub fn new(spec: impl IntoRules<BulkheadSpec>) -> Result<Bulkhead, BuildError> {
        Bulkhead::builder(spec).build()
    }

    /// A bulkhead with settings.
    pub fn builder(spec: impl IntoRules<BulkheadSpec>) -> BulkheadBuilder {
        let (spec, clock) = (spec.into_rules(), AnyClock::System);
        BulkheadBuilder { spec, clock, observer: None, name: None, adapt: None }
    }

    /// A permit, if one is free and nobody waits for it.
    #[inline]
    pub fn try_enter(&self) -> Option<Permit> {
        if self.shared.permits.take_if_nobody_waits() {
            return Some(Permit::taken(self.clone()).begins());
        }
        self.refused_at_once();
        None
    }

    /// A permit, waiting in the queue for it if there is one, for as long as `wait=` says.
    #[inline]
    pub fn enter(&self) -> Enter {
        Enter::new(self.clone(), MaxWait::For(self.shared.spec.wait()))
    }

    /// The same, waiting for so long at the most.
    pub fn enter_within(&self, max_wait: Duration) -> Enter {
        Enter::new(self.clone(), MaxWait::For(max_wait.into()))
    }

    /// The same, waiting until a time on its clock at the most. If that is now, a permit that is free is taken; if it has passed, none is.
    pub fn enter_until(&self, deadline: Time) -> Enter {
        Enter::new(self.clone(), MaxWait::Until(deadline))
    }

    /// Another limit. Those who wait are called if there are more permits now; if more are taken than there are now, nobody is thrown
    /// out, and nobody comes in until enough have left. It is from 1 to a billion: what is not is taken as the nearest that is.
    ///
    /// Where a rule moves the limit ([`BulkheadBuilder::adapt`], [`BulkheadBuilder::adaptive`]) it holds until the next call ends: then the
    /// rule sets its own again.
    pub fn set_limit(&self, limit: u32) {
        self.shared.permits.set_limit(checked_limit(limit));
        self.shared.pass_on();
    }

    /// What it was made of. Its limit may have moved since: see [`Bulkhead::stats`].
    pub fn spec(&self) -> BulkheadSpec {
        self.shared.spec
    }

    /// What it has done, and what it holds.
    pub fn stats(&self) -> BulkheadStats {
        let waiting = self.shared.waiting();
        let Seen { taken, limit } = self.shared.permits.read();
        let (allowed, denied) = (self.shared.permits.given(), self.shared.denied.load(Ordering::Relaxed));
        BulkheadStats { allowed, denied, waiting, in_use: taken, limit }
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Gives a permit that is free to the first who waits. What panicked meanwhile, if something did: the clock, or somebody's waker.
    #[cold]
    fn pass_on_and_catch(&self) -> Option<Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.shared.pass_on())).err()
    }

    /// There is no permit for somebody who does not wait.
    #[cold]
    fn refused_at_once(&self) {
        let may_wait = self.shared.waiting() < self.shared.queue_max();
        self.refused(if may_wait { Denial::TooLong } else { Denial::QueueFull });
    }

    #[cold]
    fn refused(&self, denial: Denial) {
        self.shared.denied.fetch_add(1, Ordering::Relaxed);
        if let Some(observer) = &self.shared.observer {
            observer.event(&Event::BulkheadRefused { name: self.shared.name.clone(), denial });
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait. The lock is only taken if somebody does.
    fn waiting(&self) -> usize {
        if self.permits.somebody_waits() { self.lock().len() } else { 0 }
    }

    /// How many may wait.
    fn queue_max(&self) -> usize {
        usize::try_from(self.spec.queue()).unwrap_or(usize::MAX)
    }

    /// A permit may be free, and somebody may wait for it.
    #[cold]
    fn pass_on(self: &Arc<Self>) {
        let mut desk = Desk::open(self);
        desk.go_on();
        desk.close();
    }
}

/// The nearest limit that there can be.
fn checked_limit(limit: u32) -> u32 {
    limit.clamp(1, COUNT_MAX)
}

impl Permit {
    /// One that was taken. From here on it is given back, whatever panics.
    #[inline]
    fn taken(bulkhead: Bulkhead) -> Permit {
        Permit { bulkhead, began: None }
    }

    /// The call begins. No lock is held: a clock that panics gives the permit back, which may take the queue's.
    #[inline]
    fn begins(mut self) -> Permit {
        if self.bulkhead.shared.adapt.is_some() {
            self.began = Some(Began::now(&self.bulkhead));
        }
        self
    }

    /// Returns it, and says how the call ended, for a rule that moves the limit.
    pub fn finish(mut self, outcome: Outcome) {
        if let Some(began) = self.began.take() {
            self.bulkhead.adapt(outcome, began);
        }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        let panicked =
            self.began.take().and_then(|began| self.bulkhead.adapt_and_catch(Outcome::Dropped, began));
        // Whatever the rule did.
        let passed_on = self.bulkhead.shared.permits.give_back().then(|| self.bulkhead.pass_on_and_catch());
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
    pub(crate) fn watched(
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
    pub fn adapt(mut self, rule: impl Adapt + 'static) -> BulkheadBuilder {
        self.adapt = Some(Box::new(rule));
        self
    }

    /// The bulkhead.
    ///
    /// # Errors
    /// When the text is not a bulkhead.
    pub fn build(self) -> Result<Bulkhead, BuildError> {
        let BulkheadBuilder { spec, clock, observer, name, adapt } = self;
        let spec = spec?;
        let shared = Shared {
            permits: Permits::new(spec.limit()),
            queue: Mutex::new(Queue::default()),
            spec,
            clock,
            observer,
            name,
            adapt: adapt.map(std::sync::Mutex::new),
            denied: AtomicU64::new(0),
        };
        Ok(Bulkhead { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { taken, limit } = self.shared.permits.read();
        f.debug_struct("Bulkhead")
            .field("spec", &self.shared.spec.to_string())
            .field("in_use", &taken)
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
        f.debug_struct("BulkheadBuilder").field("spec", &self.spec).finish_non_exhaustive()
    }
}
