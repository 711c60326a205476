//! Circuit breakers: stop calling what keeps failing, and try it again now and then.
//!
//! The state machine is pure: [`machine`]. Here are the lock, the clock and the value that reports how a call went.
//! The guide is [`crate::guide::breaker`].
//!
//! While a breaker is closed, asking reads one word and takes no lock: `gate` says the generation that calls belong to. It is written
//! under the lock by whoever changes the state. A call that read it just before the breaker opened passes, as one that asked
//! just before; its ticket is then of an earlier generation, and what it tells changes nothing. While it is open, a denial takes no lock either:
//! `open_until.rs`.

mod admission;
mod call;
mod keyed;
pub mod machine;
mod open_until;
mod settings;
mod spec;
mod stats;

pub use admission::{Admission, Admitted, Denied};
pub use call::CallError;
pub(crate) use call::by_result;
pub use keyed::{Breakers, BreakersBuilder, BreakersStats, MAX_BREAKERS_DEFAULT, MAX_BREAKERS_MAX};
pub use machine::{
    BreakerRules, Change, Counts, DURATION_MAX, Forced, Outcome, PROBES_MAX, State, Totals, WINDOW_CALLS_MAX,
    WINDOW_TIME_MIN, Window,
};
pub use settings::BreakerBuilder;
pub use stats::BreakerStats;

use crate::event::{Event, Observer};
use crate::text::IntoRules;
use machine::{Answer, Changes, Machine, Ticket};
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
/// match payments.ask() {
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
    gate: AtomicU64,
    open_until: OpenUntil,
    machine: Lock<Machine>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
}

/// Nobody is denied now.
const FREE: u64 = 1;
/// How long a call takes matters, so its beginning has to be known.
const TIMED: u64 = 2;

impl Breaker {
    /// A breaker with these rules, such as `breaker 50%/10s`, and the system's clock.
    ///
    /// # Errors
    /// When the text is no breaker.
    pub fn new(rules: impl IntoRules<BreakerRules>) -> Result<Breaker, BuildError> {
        Breaker::builder(rules).build()
    }

    /// The same with settings.
    pub fn builder(rules: impl IntoRules<BreakerRules>) -> BreakerBuilder {
        BreakerBuilder::new(rules)
    }

    /// May a call pass? If so, end the admitted call with how it went.
    #[inline]
    pub fn ask(&self) -> Admission<'_> {
        match self.admit() {
            Ok(admitted) => Admission::Allowed(admitted),
            Err(denied) => Admission::Denied(denied),
        }
    }

    #[inline]
    fn admit(&self) -> Result<Admitted<'_>, Denied> {
        let inner = &self.inner;
        // Acquire: whoever has seen a breaker closed has seen what closed it.
        let gate = inner.gate.load(Ordering::Acquire);
        if gate & FREE == 0 {
            return ask_in_full(inner);
        }
        let began = if gate & TIMED == 0 { None } else { Some(inner.time()) };
        Ok(Admitted::new(inner, Ticket::ordinary(gate >> 2), began))
    }

    /// The way of most calls: it is closed, and nobody asks how long they take. Otherwise nothing has happened.
    #[inline]
    fn admit_untimed(&self) -> Option<Admitted<'_>> {
        // Acquire: see `admit`.
        let gate = self.inner.gate.load(Ordering::Acquire);
        (gate & (FREE | TIMED) == FREE).then(|| Admitted::new(&self.inner, Ticket::ordinary(gate >> 2), None))
    }

    /// How a call would be answered now, without being one: `None` if it would pass.
    pub fn peek(&self) -> Option<Denied> {
        self.inner.look(|machine, now| {
            let retry_after = machine.denies_for(now)?;
            Some(Denied { state: machine.state(), retry_after })
        })
    }

    /// What it does now.
    pub fn state(&self) -> State {
        self.inner.look(|machine, _| machine.state())
    }

    /// What it has seen, and how it stands.
    pub fn stats(&self) -> BreakerStats {
        self.inner.look(|machine, now| BreakerStats {
            state: machine.state(),
            totals: self.inner.totals(machine),
            window: machine.counts(now),
        })
    }

    /// Its rules.
    pub fn rules(&self) -> BreakerRules {
        *self.inner.machine.lock().rules()
    }

    /// Forces it open, disabled or only counting, until [`Breaker::unforce`] or [`Breaker::reset`]. Calls that are out change nothing any
    /// more.
    pub fn force(&self, forced: Forced) {
        self.inner.by_hand(|machine| Some(machine.force(forced)));
    }

    /// If it is forced it no longer is: closed, or only counting if its rules say so, with fresh counts.
    pub fn unforce(&self) {
        self.inner.by_hand(Machine::unforce);
    }

    /// Closed, or only counting if its rules say so, with fresh counts, whatever it was. Calls that are out change nothing any more.
    /// What [`Breaker::stats`] has counted stays.
    pub fn reset(&self) {
        self.inner.by_hand(|machine| Some(machine.reset()));
    }

    /// Other rules from now on.
    ///
    /// What is forced stays forced, what is open stays open since when it was, for as long as the new rules say. The counts are kept if the
    /// window is the same, and begin anew otherwise. A half-open phase begins anew: probes that are out change nothing any more. A breaker
    /// that is told only to count is no longer open or half-open.
    ///
    /// # Errors
    /// When the text is no breaker; then nothing changes.
    pub fn change(&self, rules: impl IntoRules<BreakerRules>) -> Result<(), LimitError> {
        self.apply(rules.into_rules()?);
        Ok(())
    }

    fn apply(&self, rules: BreakerRules) {
        self.inner.by_hand(|machine| machine.change(rules));
    }
}

impl Inner {
    fn new(
        rules: BreakerRules,
        clock: AnyClock,
        observer: Option<Arc<dyn Observer>>,
        name: Option<Arc<str>>,
    ) -> Inner {
        let machine = Machine::new(rules);
        let gate = AtomicU64::new(gate(&machine));
        Inner { gate, open_until: OpenUntil::new(), machine: Lock::new(machine), clock, observer, name }
    }

    /// The time. Apart, as is [`ask_in_full`]: what most calls need is then short.
    #[cold]
    fn time(&self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn finish(&self, ticket: Ticket, outcome: Outcome, began: Option<Time>) {
        let mut machine = self.machine.lock();
        let failed = outcome == Outcome::Failure;
        // The way of most calls.
        let is_short = began.is_none() && (failed || outcome == Outcome::Success);
        if !(is_short && machine.stays_closed(ticket, failed)) {
            self.finish_in_full(machine, ticket, outcome, began);
        }
    }

    #[inline(never)]
    fn finish_in_full(
        &self,
        mut machine: Guard<'_, Machine>,
        ticket: Ticket,
        outcome: Outcome,
        began: Option<Time>,
    ) {
        let took = began.map_or(Span::ZERO, |began| self.clock.now().since(began));
        let changes = machine.finish(ticket, outcome, took, || self.clock.now());
        if !changes.is_empty() {
            self.close(machine, changes);
        }
    }

    /// All that it has seen.
    fn totals(&self, machine: &Machine) -> Totals {
        let totals = machine.totals();
        Totals { denied: totals.denied + self.open_until.denied(), ..totals }
    }

    fn look<T>(&self, see: impl FnOnce(&mut Machine, Time) -> T) -> T {
        let mut machine = self.machine.lock();
        let now = self.clock.now();
        let changes = machine.look(now);
        let seen = see(&mut machine, now);
        self.close(machine, changes);
        seen
    }

    fn by_hand(&self, change: impl FnOnce(&mut Machine) -> Option<Change>) {
        let mut machine = self.machine.lock();
        let changes = change(&mut machine).map_or_else(Changes::default, Changes::from);
        self.close(machine, changes);
    }

    /// Lets others in, then tells what has changed.
    fn close(&self, machine: Guard<'_, Machine>, changes: Changes) {
        // Release: see `ask`. Written under the lock, so that the last one written is the last one true.
        self.gate.store(gate(&machine), Ordering::Release);
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
fn ask_in_full(inner: &Arc<Inner>) -> Result<Admitted<'_>, Denied> {
    if let Some(denied) = inner.open_until.deny(&inner.clock) {
        return Err(denied);
    }
    let mut machine = inner.machine.lock();
    let now = inner.clock.now();
    let before = machine.open_until();
    let (answer, changes) = machine.ask(now);
    let (state, timed) = (machine.state(), machine.rules().slow().is_some());
    // Before anybody is told: should the observer panic, a probe has failed instead of being lost.
    let admission = match answer {
        Answer::Allowed(ticket) => Ok(Admitted::new(inner, ticket, timed.then_some(now))),
        Answer::Denied(retry_after) => Err(Denied { state, retry_after }),
    };
    // After a step back of the clock it is open from another moment on, though that is no change to be told.
    if changes.is_empty() && machine.open_until() == before {
        drop(machine);
    } else {
        inner.close(machine, changes);
    }
    admission
}

/// What those who ask need to know.
fn gate(machine: &Machine) -> u64 {
    // Cannot wrap: it would take a breaker centuries to change 2^62 times.
    let (free, generation) = machine.free().map_or((0, 0), |ticket| (FREE, ticket.generation() << 2));
    let timed = if machine.rules().slow().is_some() { TIMED } else { 0 };
    generation | timed | free
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("rules", &self.rules().to_string())
            .field("state", &self.inner.machine.lock().state())
            .finish_non_exhaustive()
    }
}
