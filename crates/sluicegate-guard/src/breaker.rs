//! Circuit breakers: stop calling a dependency that keeps failing, and probe it from time to time.
//!
//! The state machine is pure: [`machine`]. This module adds the lock, the clock and the value that
//! reports how a call ended. The guide is [`crate::guide::breaker`].
//!
//! # Invariants
//!
//! - An admitted call carries the generation of the phase that admitted it. A call that ends in a
//!   later phase changes nothing, so no late result can open, close or block a breaker.
//! - While a breaker is closed, admission reads one atomic word, `state_word`, and takes no lock.
//!   The word holds the current generation and is written only under the lock. A call that reads it
//!   just before the breaker opens is admitted with the earlier generation.
//! - While a breaker is open, a denial takes no lock either: `open_until.rs`. Its two words are
//!   written only under the lock.

mod admission;
mod builder;
mod call;
mod keyed;
pub mod machine;
mod open_until;
mod parse;
mod stats;

pub use admission::{Admission, Admitted, Denied};
pub use builder::BreakerBuilder;
pub use call::CallError;
pub(crate) use call::by_result;
pub use keyed::{
    KeyedBreakers, KeyedBreakersBuilder, KeyedBreakersStats, MAX_BREAKERS_DEFAULT, MAX_BREAKERS_MAX,
};
pub use machine::{
    BreakerConfig, Change, Counts, DURATION_MAX, Forced, Outcome, PROBES_MAX, State, Totals,
    WINDOW_CALLS_MAX, WINDOW_TIME_MIN, Window,
};
pub use stats::BreakerStats;

use crate::event::{Event, Observer};
use crate::text::IntoConfig;
use machine::{CallId, Changes, Machine};
use open_until::OpenUntil;
use sluicegate::BuildError;
use sluicegate::LimitError;
use sluicegate::internal::AnyClock;
use sluicegate::internal::Callbacks;
use sluicegate::internal::sync::{AtomicU64, Guard, Lock, Ordering};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// A circuit breaker: denies calls to a dependency that keeps failing, then admits a few probes to
/// find out whether it has recovered. Clones share the same breaker.
///
/// ```
/// use sluicegate_guard::breaker::{Admission, Breaker};
///
/// let payments = Breaker::new("breaker 50%/10s")?;
/// match payments.try_acquire() {
///     Admission::Allowed(admitted) => {
///         // Make the call, then report `success`, `failure` or `ignore`.
///         admitted.success();
///     }
///     Admission::Denied(denied) => println!("{denied}"),
/// }
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// In one line, for blocking calls; [`Breaker::run`] does this for futures:
///
/// ```
/// use sluicegate_guard::breaker::{Breaker, CallError, State};
///
/// let payments = Breaker::new("breaker 50%/2calls")?;
/// for _ in 0..2 {
///     let answer = payments.call(|| Err::<(), _>("down"));
///     assert_eq!(answer, Err(CallError::Failed("down")));
/// }
/// assert_eq!(payments.state(), State::Open);
/// assert!(matches!(payments.call(|| Ok::<_, ()>(7)), Err(CallError::Denied(_))));
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Breaker {
    inner: Arc<Inner>,
}

struct Inner {
    /// `generation * 4`, plus the two flags below.
    state_word: AtomicU64,
    open_until: OpenUntil,
    machine: Lock<Machine>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
}

/// The breaker admits every call.
const ADMITS_ALL: u64 = 1;
/// Calls are timed, so their start time is needed.
const TIMED: u64 = 2;

impl Breaker {
    /// Creates a breaker such as `breaker 50%/10s` on the system clock.
    ///
    /// # Errors
    /// If the text is not a valid breaker.
    pub fn new(config: impl IntoConfig<BreakerConfig>) -> Result<Breaker, BuildError> {
        Breaker::builder(config).build()
    }

    /// Returns a builder, for a name, a clock or an observer.
    pub fn builder(config: impl IntoConfig<BreakerConfig>) -> BreakerBuilder {
        BreakerBuilder::new(config)
    }

    /// Admits or denies a call. Finish an admitted call with its outcome.
    #[inline]
    pub fn try_acquire(&self) -> Admission<'_> {
        match self.admit() {
            Ok(admitted) => Admission::Allowed(admitted),
            Err(denied) => Admission::Denied(denied),
        }
    }

    #[inline]
    fn admit(&self) -> Result<Admitted<'_>, Denied> {
        let inner = &self.inner;
        // Acquire: a caller that sees the breaker closed also sees what closed it.
        let state_word = inner.state_word.load(Ordering::Acquire);
        if state_word & ADMITS_ALL == 0 {
            return admit_slow_path(inner);
        }
        let began = if state_word & TIMED == 0 { None } else { Some(inner.time()) };
        Ok(Admitted::new(inner, CallId::ordinary(state_word >> 2), began))
    }

    /// Fast path: the breaker is closed and does not time calls. Returns `None`, without side
    /// effects, otherwise.
    #[inline]
    fn admit_untimed(&self) -> Option<Admitted<'_>> {
        // Acquire: see `admit`.
        let state_word = self.inner.state_word.load(Ordering::Acquire);
        (state_word & (ADMITS_ALL | TIMED) == ADMITS_ALL)
            .then(|| Admitted::new(&self.inner, CallId::ordinary(state_word >> 2), None))
    }

    /// Returns the denial that a call would get now, or `None` if it would be admitted. Admits
    /// nothing.
    pub fn peek(&self) -> Option<Denied> {
        self.inner.inspect(|machine, now| {
            let retry_after = machine.denies_for(now)?;
            Some(Denied { state: machine.state(), retry_after })
        })
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.inner.inspect(|machine, _| machine.state())
    }

    /// Returns the state, the totals and the counts of the window.
    pub fn stats(&self) -> BreakerStats {
        self.inner.inspect(|machine, now| BreakerStats {
            state: machine.state(),
            totals: self.inner.totals(machine),
            window: machine.counts(now),
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> BreakerConfig {
        *self.inner.machine.lock().config()
    }

    /// Forces the breaker open, disabled or metrics-only until [`Breaker::unforce`] or
    /// [`Breaker::reset`]. Calls in flight no longer affect it.
    pub fn force(&self, forced: Forced) {
        self.inner.override_state(|machine| Some(machine.force(forced)));
    }

    /// Ends a forced state, if there is one. The breaker is then closed, or metrics-only if so
    /// configured, with empty counts.
    pub fn unforce(&self) {
        self.inner.override_state(Machine::unforce);
    }

    /// Closes the breaker from any state, or makes it metrics-only if so configured, with empty
    /// counts. Calls in flight no longer affect it. The totals of [`Breaker::stats`] are kept.
    pub fn reset(&self) {
        self.inner.override_state(|machine| Some(machine.reset()));
    }

    /// Replaces the configuration.
    ///
    /// A forced breaker stays forced. An open breaker stays open, from the time it opened and for
    /// as long as the new configuration says. Counts are kept if the window is the same; otherwise
    /// they start from zero. A half-open phase restarts: probes in flight no longer affect it. A
    /// breaker that becomes metrics-only is no longer open or half-open.
    ///
    /// # Errors
    /// If the text is not a valid breaker. Nothing changes then.
    pub fn change(&self, config: impl IntoConfig<BreakerConfig>) -> Result<(), LimitError> {
        self.apply(config.into_config()?);
        Ok(())
    }

    fn apply(&self, config: BreakerConfig) {
        self.inner.override_state(|machine| machine.change(config));
    }
}

impl Inner {
    fn new(
        config: BreakerConfig,
        clock: AnyClock,
        observer: Option<Arc<dyn Observer>>,
        name: Option<Arc<str>>,
    ) -> Inner {
        let machine = Machine::new(config);
        let state_word = AtomicU64::new(state_word(&machine));
        Inner { state_word, open_until: OpenUntil::new(), machine: Lock::new(machine), clock, observer, name }
    }

    /// Reads the clock. Out of line, like [`admit_slow_path`], to keep the fast path short.
    #[cold]
    fn time(&self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn finish(&self, id: CallId, outcome: Outcome, began: Option<Time>) {
        let mut machine = self.machine.lock();
        let failed = outcome == Outcome::Failure;
        // Fast path.
        let is_short = began.is_none() && (failed || outcome == Outcome::Success);
        if !(is_short && machine.record_if_closed(id, failed)) {
            self.finish_slow_path(machine, id, outcome, began);
        }
    }

    #[inline(never)]
    fn finish_slow_path(
        &self,
        mut machine: Guard<'_, Machine>,
        id: CallId,
        outcome: Outcome,
        began: Option<Time>,
    ) {
        let took = began.map_or(Span::ZERO, |began| self.clock.now().since(began));
        let changes = machine.finish(id, outcome, took, || self.clock.now());
        if !changes.is_empty() {
            self.publish(machine, changes);
        }
    }

    /// Returns all totals, including the denials made without the lock.
    fn totals(&self, machine: &Machine) -> Totals {
        let totals = machine.totals();
        Totals { denied: totals.denied + self.open_until.denied(), ..totals }
    }

    fn inspect<T>(&self, see: impl FnOnce(&mut Machine, Time) -> T) -> T {
        let mut machine = self.machine.lock();
        let now = self.clock.now();
        let changes = machine.advance(now);
        let seen = see(&mut machine, now);
        self.publish(machine, changes);
        seen
    }

    fn override_state(&self, change: impl FnOnce(&mut Machine) -> Option<Change>) {
        let mut machine = self.machine.lock();
        let changes = change(&mut machine).map_or_else(Changes::default, Changes::from);
        self.publish(machine, changes);
    }

    /// Publishes the state, releases the lock, then notifies the observer.
    fn publish(&self, machine: Guard<'_, Machine>, changes: Changes) {
        // Release: see `admit`. Written under the lock, so the last value written is the current
        // one.
        self.state_word.store(state_word(&machine), Ordering::Release);
        self.open_until.set(machine.open_until());
        let state = machine.state();
        drop(machine);
        let Some(observer) = &self.observer else { return };
        let mut callbacks = Callbacks::default();
        for change in changes {
            // If there are two changes, the first is that the breaker opened or closed.
            let state = match change {
                Change::Opened(_) => State::Open,
                Change::Closed(_) => State::Closed,
                _ => state,
            };
            callbacks.run(|| observer.event(&Event::Breaker { name: self.name.clone(), change, state }));
        }
        callbacks.end();
    }
}

/// Admits or denies a call under the lock.
#[cold]
fn admit_slow_path(inner: &Arc<Inner>) -> Result<Admitted<'_>, Denied> {
    if let Some(denied) = inner.open_until.deny(&inner.clock) {
        return Err(denied);
    }
    let mut machine = inner.machine.lock();
    let now = inner.clock.now();
    let before = machine.open_until();
    let (admission, changes) = machine.try_acquire(now);
    let (state, timed) = (machine.state(), machine.config().slow().is_some());
    // Before the observer is notified: if it panics, the probe fails instead of being lost.
    let admission = match admission {
        Ok(id) => Ok(Admitted::new(inner, id, timed.then_some(now))),
        Err(retry_after) => Err(Denied { state, retry_after }),
    };
    // After a backward clock step the breaker is open from another time on, although no event is
    // due.
    if changes.is_empty() && machine.open_until() == before {
        drop(machine);
    } else {
        inner.publish(machine, changes);
    }
    admission
}

/// The word that the fast path reads.
fn state_word(machine: &Machine) -> u64 {
    // Cannot overflow: a breaker would need centuries for 2^62 changes.
    let (admits_all, generation) =
        machine.admits_all().map_or((0, 0), |id| (ADMITS_ALL, id.generation() << 2));
    let timed = if machine.config().slow().is_some() { TIMED } else { 0 };
    generation | timed | admits_all
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("config", &self.config().to_string())
            .field("state", &self.inner.machine.lock().state())
            .finish_non_exhaustive()
    }
}
