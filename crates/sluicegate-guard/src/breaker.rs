//! Circuit breakers: stop calling what keeps failing, and try it again now and then.
//!
//! The state machine is pure: [`machine`]. Here are the lock, the clock and the value that reports how a call went.
//! The guide is [`crate::guide::breaker`].
//!
//! While a breaker is closed, asking reads one word and takes no lock: `state_word` says the generation that calls belong to. It is written
//! under the lock by whoever changes the state. A call that read it just before the breaker opened passes, as one that asked
//! just before; its ticket is then of an earlier generation, and what it tells changes nothing. While it is open, a denial takes no lock either:
//! `open_until.rs`.

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

/// A circuit breaker: calls to what keeps failing are denied for a while, then a few are let through to see. Its clones are the
/// same breaker.
///
/// ```
/// use sluicegate_guard::breaker::{Admission, Breaker};
///
/// let payments = Breaker::new("breaker 50%/10s")?;
/// match payments.try_acquire() {
///     Admission::Allowed(admitted) => {
///         // Call it, and say how it went: `success`, `failure` or `ignore`.
///         admitted.success();
///     }
///     Admission::Denied(denied) => println!("{denied}"),
/// }
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// In one line, for what blocks; [`Breaker::run`] is the same for futures:
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
    /// `generation * 4`, and the two bits below.
    state_word: AtomicU64,
    open_until: OpenUntil,
    machine: Lock<Machine>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
}

/// Nobody is denied now.
const ADMITS_ALL: u64 = 1;
/// How long a call takes matters, so its beginning has to be known.
const TIMED: u64 = 2;

impl Breaker {
    /// A breaker with these rules, such as `breaker 50%/10s`, and the system's clock.
    ///
    /// # Errors
    /// When the text is no breaker.
    pub fn new(config: impl IntoConfig<BreakerConfig>) -> Result<Breaker, BuildError> {
        Breaker::builder(config).build()
    }

    /// The same with settings.
    pub fn builder(config: impl IntoConfig<BreakerConfig>) -> BreakerBuilder {
        BreakerBuilder::new(config)
    }

    /// May a call pass? If so, end the admitted call with how it went.
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
        // Acquire: whoever has seen a breaker closed has seen what closed it.
        let state_word = inner.state_word.load(Ordering::Acquire);
        if state_word & ADMITS_ALL == 0 {
            return admit_slow_path(inner);
        }
        let began = if state_word & TIMED == 0 { None } else { Some(inner.time()) };
        Ok(Admitted::new(inner, CallId::ordinary(state_word >> 2), began))
    }

    /// The way of most calls: it is closed, and nobody asks how long they take. Otherwise nothing has happened.
    #[inline]
    fn admit_untimed(&self) -> Option<Admitted<'_>> {
        // Acquire: see `admit`.
        let state_word = self.inner.state_word.load(Ordering::Acquire);
        (state_word & (ADMITS_ALL | TIMED) == ADMITS_ALL)
            .then(|| Admitted::new(&self.inner, CallId::ordinary(state_word >> 2), None))
    }

    /// How a call would be answered now, without being one: `None` if it would pass.
    pub fn peek(&self) -> Option<Denied> {
        self.inner.inspect(|machine, now| {
            let retry_after = machine.denies_for(now)?;
            Some(Denied { state: machine.state(), retry_after })
        })
    }

    /// What it does now.
    pub fn state(&self) -> State {
        self.inner.inspect(|machine, _| machine.state())
    }

    /// What it has seen, and how it stands.
    pub fn stats(&self) -> BreakerStats {
        self.inner.inspect(|machine, now| BreakerStats {
            state: machine.state(),
            totals: self.inner.totals(machine),
            window: machine.counts(now),
        })
    }

    /// Its rules.
    pub fn config(&self) -> BreakerConfig {
        *self.inner.machine.lock().config()
    }

    /// Forces it open, disabled or only counting, until [`Breaker::unforce`] or [`Breaker::reset`]. Calls that are out change nothing any
    /// more.
    pub fn force(&self, forced: Forced) {
        self.inner.override_state(|machine| Some(machine.force(forced)));
    }

    /// If it is forced it no longer is: closed, or only counting if its rules say so, with fresh counts.
    pub fn unforce(&self) {
        self.inner.override_state(Machine::unforce);
    }

    /// Closed, or only counting if its rules say so, with fresh counts, whatever it was. Calls that are out change nothing any more.
    /// What [`Breaker::stats`] has counted stays.
    pub fn reset(&self) {
        self.inner.override_state(|machine| Some(machine.reset()));
    }

    /// Other rules from now on.
    ///
    /// What is forced stays forced, what is open stays open since when it was, for as long as the new rules say. The counts are kept if the
    /// window is the same, and begin anew otherwise. A half-open phase begins anew: probes that are out change nothing any more. A breaker
    /// that is told only to count is no longer open or half-open.
    ///
    /// # Errors
    /// When the text is no breaker; then nothing changes.
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

    /// The time. Apart, as is [`admit_slow_path`]: what most calls need is then short.
    #[cold]
    fn time(&self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn finish(&self, id: CallId, outcome: Outcome, began: Option<Time>) {
        let mut machine = self.machine.lock();
        let failed = outcome == Outcome::Failure;
        // The way of most calls.
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

    /// All that it has seen.
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

    /// Lets others in, then tells what has changed.
    fn publish(&self, machine: Guard<'_, Machine>, changes: Changes) {
        // Release: see `ask`. Written under the lock, so that the last one written is the last one true.
        self.state_word.store(state_word(&machine), Ordering::Release);
        self.open_until.set(machine.open_until());
        let state = machine.state();
        drop(machine);
        let Some(observer) = &self.observer else { return };
        let mut callbacks = Callbacks::default();
        for change in changes {
            // Of two at once the first is that it opened, or closed.
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

/// Asks the machine.
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
    // Before anybody is told: should the observer panic, a probe has failed instead of being lost.
    let admission = match admission {
        Ok(id) => Ok(Admitted::new(inner, id, timed.then_some(now))),
        Err(retry_after) => Err(Denied { state, retry_after }),
    };
    // After a step back of the clock it is open from another moment on, though that is no change to be told.
    if changes.is_empty() && machine.open_until() == before {
        drop(machine);
    } else {
        inner.publish(machine, changes);
    }
    admission
}

/// What those who ask need to know.
fn state_word(machine: &Machine) -> u64 {
    // Cannot wrap: it would take a breaker centuries to change 2^62 times.
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
