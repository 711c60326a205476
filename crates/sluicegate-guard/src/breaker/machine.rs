//! The state machine of a circuit breaker. It is pure: no clock, lock or I/O; time is an argument.
//!
//! It counts how calls end. When too many recent calls have failed it denies all calls for a while,
//! then admits a few as probes. If they succeed it closes; otherwise it opens again.
//!
//! ```text
//!                 too many failed or slow                       `open` has elapsed, next call
//!     ┌────────┐ ─────────────────────────▶ ┌──────┐ ────────────────────────────────▶ ┌──────────┐
//!     │ Closed │                            │ Open │                                   │ HalfOpen │
//!     └────────┘                            └──────┘ ◀──────────────────────────────── └──────────┘
//!          ▲                                           too many probes failed or slow       │
//!          └────────────────────────────────────────────────────────────────────────────────┘
//!                                             enough probes succeeded
//!
//!     forced by an operator, from any state:  ForcedOpen   Disabled   MetricsOnly
//! ```
//!
//! ```text
//! Settings   window: the last N calls, or a duration cut into 20 slices; failure rate and slow
//!            rate in percent; min, open, probes, probe-ttl, slow
//! State      the phase, its generation, the counts of the window, the probes in flight
//! Formula    closed: after each outcome, open if total >= min and failed * 100 >= rate * total (or
//!            likewise for slow calls)
//!            open: at now >= opened + open the next call is a probe, and the breaker half-open
//!            half-open: exactly `probes` calls are admitted. When all have ended, open if
//!            failed * 100 >= rate * probes (or likewise for slow ones), otherwise close. Decided
//!            earlier only if the probes in flight cannot change the result.
//! Outcomes   success and failure count. An ignored call counts nothing, and frees a probe's slot.
//!            A dropped call counts nothing; a dropped probe has failed. A probe that has not ended
//!            `probe-ttl` after its admission failed at that moment, whenever that is noticed.
//! Late       a call knows the generation that admitted it. If it ends in a later one it changes
//!            nothing.
//! Promise    at most `probes` calls are admitted in one half-open phase, not counting ignored
//!            ones. While calls arrive, no state but a forced one lasts forever: open ends after
//!            `open`, half-open `probe-ttl` after its probes were admitted. If every probe is
//!            ignored the breaker stays half-open and admits `probes` calls at a time.
//! Window     time: exactly the outcomes of the current slice and the 19 before it, aligned to the
//!            epoch. Calls: exactly the last N outcomes.
//! Rounding   none: percentages are compared by multiplication. A slice is a twentieth of the
//!            window, rounded up to a microsecond.
//! Clock      a step forward is ordinary time. After a step back, what began in the future is taken
//!            to begin now: an open breaker is open for at most `open` longer, a probe lives at
//!            most `probe-ttl` longer, and the latest slice becomes the current one. A step of up
//!            to one slice is ignored: the clocks of two threads may differ a little.
//! Cost       a few additions per outcome. 2 bits per call, or 20 slices of 24 bytes; 16 bytes per
//!            probe in flight.
//!
//! Example    50%/10s min=20: 19 failures leave it closed. With 10 successes and 10 failures it
//!            opens.
//! Reference  Hystrix 1.5 (volume, rate, sleep window, one probe), resilience4j (count windows,
//!            slow calls, several probes, forced states).
//! ```
//!
//! ```
//! use sluicegate_guard::breaker::machine::Machine;
//! use sluicegate_guard::breaker::{BreakerConfig, Outcome, State, Window};
//! use sluicegate_guard::{Span, Time};
//!
//! let rules = BreakerConfig::new(50, Window::Calls(4))?;
//! let (mut breaker, now) = (Machine::new(rules), Time::EPOCH);
//! for outcome in [Outcome::Success, Outcome::Failure, Outcome::Success, Outcome::Failure] {
//!     let (Ok(id), _) = breaker.try_acquire(now) else { panic!("it is closed") };
//!     breaker.finish(id, outcome, Span::ZERO, || now);
//! }
//! assert_eq!(breaker.state(), State::Open);
//! # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
//! ```

#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]

mod config;
mod probes;
mod rolling;

pub use config::{
    BreakerConfig, DURATION_MAX, MIN_DEFAULT, OPEN_DEFAULT, PROBES_DEFAULT, PROBES_MAX, SLOW_RATE_DEFAULT,
    Slow, WINDOW_CALLS_MAX, WINDOW_TIME_MIN, Window,
};
pub use rolling::{Counts, SLICES};

use core::num::NonZero;
use core::ops::AddAssign;
use probes::{Probes, Transition};
use rolling::Rolling;
use sluicegate_core::{RetryAfter, Span, Time};

/// The state of a breaker, as reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Every call is admitted and counted.
    Closed,
    /// Every call is denied, until the first call after `open` has elapsed.
    Open,
    /// Only probes are admitted.
    HalfOpen,
    /// Every call is denied until the breaker is unforced.
    ForcedOpen,
    /// Every call is admitted, and nothing is counted.
    Disabled,
    /// Every call is admitted and counted; an event says when the breaker would have opened.
    MetricsOnly,
}

/// A state that an operator can force.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forced {
    /// Deny every call.
    Open,
    /// Admit every call and count nothing.
    Disabled,
    /// Admit and count every call.
    MetricsOnly,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The call succeeded.
    Success,
    /// The call failed in a way that says something about the dependency: an error, a timeout, a
    /// panic.
    Failure,
    /// The call says nothing about the dependency: a bad request, or a call that was not made.
    Ignored,
    /// Unknown: the caller dropped the call.
    Dropped,
}

/// Identifies an admitted call. It is returned to the machine with the call's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId {
    generation: u64,
    probe: Option<NonZero<u64>>,
}

impl CallId {
    /// Returns the id of an ordinary call of a generation, for callers that read
    /// [`Machine::admits_all`] without a lock.
    #[inline]
    pub const fn ordinary(generation: u64) -> CallId {
        CallId { generation, probe: None }
    }

    /// Returns the generation that admitted the call.
    #[inline]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns `true` if the call is a probe.
    #[inline]
    pub const fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// A change of a breaker's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Change {
    /// It opened, because of these outcomes of the window or the probes.
    Opened(Counts),
    /// It admits probes.
    HalfOpened,
    /// It closed, because of these outcomes of the probes.
    Closed(Counts),
    /// It is metrics-only, and would have opened.
    WouldHaveOpened(Counts),
    /// An operator forced it.
    Forced(Forced),
    /// It was unforced or reset.
    Reset,
}

/// Up to two changes, in order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Changes([Option<Change>; 2]);

impl Changes {
    /// Returns `true` if nothing changed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, [None, _])
    }

    #[inline]
    fn one(change: Option<Change>) -> Changes {
        Changes([change, None])
    }

    fn then(self, change: Change) -> Changes {
        match self.0 {
            [None, _] => Changes([Some(change), None]),
            [first, _] => Changes([first, Some(change)]),
        }
    }
}

impl From<Change> for Changes {
    fn from(change: Change) -> Changes {
        Changes([Some(change), None])
    }
}

impl IntoIterator for Changes {
    type Item = Change;
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Change>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

/// Totals of a breaker. Calls are counted when they end, late ones included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Totals {
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that succeeded.
    pub successes: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls that were slow, whether they succeeded or failed.
    pub slow: u64,
    /// Calls that were ignored.
    pub ignored: u64,
    /// Calls that were dropped.
    pub dropped: u64,
    /// Probes that exceeded `probe-ttl`. They are counted again when they end.
    pub expired: u64,
    /// Calls that ended in a later phase and changed nothing. They are also counted by their
    /// outcome.
    pub late: u64,
    /// Number of times it opened.
    pub opened: u64,
    /// Number of times it would have opened while metrics-only.
    pub would_have_opened: u64,
}

impl Totals {
    /// Calls that were allowed and have ended, whatever the outcome.
    pub const fn allowed(&self) -> u64 {
        self.successes + self.failures + self.ignored + self.dropped
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        let Totals {
            denied,
            successes,
            failures,
            slow,
            ignored,
            dropped,
            expired,
            late,
            opened,
            would_have_opened,
        } = other;
        self.denied += denied;
        self.successes += successes;
        self.failures += failures;
        self.slow += slow;
        self.ignored += ignored;
        self.dropped += dropped;
        self.expired += expired;
        self.late += late;
        self.opened += opened;
        self.would_have_opened += would_have_opened;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Closed,
    Open {
        since: Time,
    },
    HalfOpen,
    ForcedOpen,
    Disabled,
    /// `above`: the last outcome would have opened it.
    MetricsOnly {
        forced: bool,
        above: bool,
    },
}

/// A circuit breaker without a clock or a lock.
#[derive(Clone, Debug)]
pub struct Machine {
    config: BreakerConfig,
    phase: Phase,
    /// Incremented with each phase. A call of an earlier generation changes nothing.
    generation: u64,
    window: Rolling,
    probes: Probes,
    /// The id of the last probe.
    last_probe: NonZero<u64>,
    totals: Totals,
}

impl Machine {
    /// Creates a breaker: closed, or metrics-only if so configured.
    pub fn new(config: BreakerConfig) -> Machine {
        Machine {
            config,
            phase: initial_phase(&config),
            generation: 0,
            window: Rolling::new(config.window()),
            probes: Probes::default(),
            last_probe: NonZero::<u64>::MIN,
            totals: Totals::default(),
        }
    }

    /// Returns the id of every call while all calls are admitted; [`Machine::try_acquire`] is not
    /// needed then.
    #[inline]
    pub fn admits_all(&self) -> Option<CallId> {
        match self.phase {
            Phase::Closed | Phase::Disabled | Phase::MetricsOnly { .. } => {
                Some(CallId::ordinary(self.generation))
            }
            Phase::Open { .. } | Phase::HalfOpen | Phase::ForcedOpen => None,
        }
    }

    /// Returns when an open breaker opened and until when it denies every call.
    #[inline]
    pub fn open_until(&self) -> Option<(Time, Time)> {
        match self.phase {
            Phase::Open { since } => Some((since, since.saturating_add(self.config.open()))),
            _ => None,
        }
    }

    /// Admits or denies a call. `Err` has the exact wait until a call would be admitted, assuming
    /// that no other call is made and no probe in flight ends.
    #[must_use = "a call that is denied must not be made"]
    pub fn try_acquire(&mut self, now: Time) -> (Result<CallId, RetryAfter>, Changes) {
        let mut changes = self.advance(now);
        if let Some(id) = self.admits_all() {
            return (Ok(id), changes);
        }
        if let Phase::Open { since } = self.phase
            && since.saturating_add(self.config.open()) <= now
        {
            self.enter(Phase::HalfOpen);
            self.probes.clear();
            changes = changes.then(Change::HalfOpened);
        }
        // Cannot overflow: that would take centuries.
        let name = self.last_probe.saturating_add(1);
        if self.phase == Phase::HalfOpen && self.probes.admit(&self.config, name.get(), now) {
            self.last_probe = name;
            return (Ok(CallId { generation: self.generation, probe: Some(name) }), changes);
        }
        self.totals.denied += 1;
        (Err(self.retry_after(now)), changes)
    }

    /// Fast path of [`Machine::finish`] for an untimed call of a closed breaker with a window of
    /// calls. Returns `true` if the call was recorded and the breaker stays closed; otherwise
    /// nothing has changed.
    #[inline]
    pub fn record_if_closed(&mut self, id: CallId, failed: bool) -> bool {
        let is_counted = id.generation == self.generation
            && self.phase == Phase::Closed
            && self.window.record_unless(failed, |counts| self.config.opens(counts));
        if is_counted {
            let total = if failed { &mut self.totals.failures } else { &mut self.totals.successes };
            *total += 1;
        }
        is_counted
    }

    /// Records the outcome of a call that took `took`. A window of calls reads the time only when
    /// it opens.
    #[inline]
    pub fn finish(&mut self, id: CallId, outcome: Outcome, took: Span, now: impl Fn() -> Time) -> Changes {
        let slow = self.count(outcome, took);
        let counts_in_window = matches!(outcome, Outcome::Success | Outcome::Failure);
        if id.generation != self.generation || self.phase != Phase::Closed || !counts_in_window {
            return self.finish_slow_path(id, outcome, slow, now);
        }
        let counts = self.window.record(outcome == Outcome::Failure, slow, &now);
        if !self.config.opens(counts) {
            return Changes::default();
        }
        let counts = *counts;
        Changes::from(self.open(counts, now()))
    }

    /// Every case but a counting call of a closed breaker.
    #[cold]
    fn finish_slow_path(
        &mut self,
        id: CallId,
        outcome: Outcome,
        slow: bool,
        now: impl Fn() -> Time,
    ) -> Changes {
        if id.generation != self.generation {
            self.totals.late += 1;
            return Changes::default();
        }
        match (self.phase, outcome) {
            (Phase::MetricsOnly { forced, above }, Outcome::Success | Outcome::Failure) => {
                let counts = *self.window.record(outcome == Outcome::Failure, slow, &now);
                self.would_open(counts, forced, above)
            }
            (Phase::HalfOpen, _) => self.finish_probe(id, outcome, slow, now()),
            _ => Changes::default(),
        }
    }

    /// Expires overdue probes, and applies the result. [`Machine::try_acquire`] does so too.
    pub fn advance(&mut self, now: Time) -> Changes {
        match &mut self.phase {
            Phase::Open { since } => {
                // The clock stepped back: as if it had opened now, so it is open for at most `open`
                // longer.
                *since = now.min(*since);
                Changes::default()
            }
            Phase::HalfOpen => {
                let in_flight = self.probes.in_flight();
                let transition = self.probes.expire(&self.config, now);
                self.totals.expired += u64::try_from(in_flight - self.probes.in_flight()).unwrap_or(u64::MAX);
                self.apply(transition)
            }
            _ => Changes::default(),
        }
    }

    /// Returns the state as of the last [`Machine::advance`].
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen => State::HalfOpen,
            Phase::ForcedOpen => State::ForcedOpen,
            Phase::Disabled => State::Disabled,
            Phase::MetricsOnly { .. } => State::MetricsOnly,
        }
    }

    /// Returns the counts of the window or, when half-open, of the probes that have ended. Empty
    /// when open.
    pub fn counts(&mut self, now: Time) -> Counts {
        if self.phase == Phase::HalfOpen { self.probes.ended() } else { self.window.counts(now) }
    }

    /// Returns the totals.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the configuration.
    pub fn config(&self) -> &BreakerConfig {
        &self.config
    }

    /// Returns how long calls are denied from now on if no probe in flight ends, or `None` if a
    /// call would be admitted. As of the last [`Machine::advance`].
    pub fn denies_for(&self, now: Time) -> Option<RetryAfter> {
        let passes = self.admits_all().is_some()
            || self.phase == Phase::HalfOpen && self.probes.has_capacity(&self.config);
        let wait = Some(self.retry_after(now)).filter(|wait| *wait != RetryAfter::After(Span::ZERO));
        if passes { None } else { wait }
    }

    /// Returns `true` if it is half-open and a probe in flight has not expired. As of the last
    /// [`Machine::advance`].
    pub fn has_live_probes(&self, now: Time) -> bool {
        self.phase == Phase::HalfOpen && self.probes.any_live(&self.config, now)
    }

    /// Returns `true` if it is closed and counts nothing, so that it equals a new breaker.
    pub fn is_idle(&mut self, now: Time) -> bool {
        let initial_phase = self.phase == initial_phase(&self.config);
        initial_phase && self.window.counts(now) == Counts::default()
    }

    /// Forces a state. Calls in flight no longer affect it.
    pub fn force(&mut self, forced: Forced) -> Change {
        self.enter(match forced {
            Forced::Open => Phase::ForcedOpen,
            Forced::Disabled => Phase::Disabled,
            Forced::MetricsOnly => Phase::MetricsOnly { forced: true, above: false },
        });
        self.window.clear();
        Change::Forced(forced)
    }

    /// Ends a forced state, if there is one, as [`Machine::reset`] does.
    pub fn unforce(&mut self) -> Option<Change> {
        let is_forced = matches!(
            self.phase,
            Phase::ForcedOpen | Phase::Disabled | Phase::MetricsOnly { forced: true, .. }
        );
        is_forced.then(|| self.reset())
    }

    /// Returns to the initial phase, from any state; the totals are kept. Calls in flight no longer
    /// affect it.
    pub fn reset(&mut self) -> Change {
        self.enter(initial_phase(&self.config));
        self.window.clear();
        Change::Reset
    }

    /// Replaces the configuration. A forced breaker stays forced. An open breaker stays open, from
    /// the time it opened and for as long as the new configuration says. Counts are kept if the
    /// window is the same; otherwise they start from zero. A half-open phase restarts: probes in
    /// flight no longer affect it. A breaker that becomes metrics-only is no longer open or
    /// half-open.
    pub fn change(&mut self, config: BreakerConfig) -> Option<Change> {
        let same_window = config.window() == self.config.window();
        self.config = config;
        if !same_window {
            self.window = Rolling::new(config.window());
        }
        match self.phase {
            Phase::Closed | Phase::MetricsOnly { forced: false, .. } => {
                if self.phase == Phase::Closed || !config.metrics_only() {
                    // The same calls keep being counted, so this is not a new phase.
                    self.phase = initial_phase(&config);
                }
            }
            Phase::Open { .. } | Phase::HalfOpen if config.metrics_only() => return Some(self.reset()),
            Phase::HalfOpen => {
                self.enter(Phase::HalfOpen);
                self.probes.clear();
            }
            Phase::Open { .. } | Phase::ForcedOpen | Phase::Disabled | Phase::MetricsOnly { .. } => {}
        }
        None
    }

    /// Adds a call to the totals. Returns `true` if it was slow.
    #[inline]
    fn count(&mut self, outcome: Outcome, took: Span) -> bool {
        let totals = &mut self.totals;
        match outcome {
            Outcome::Success => totals.successes += 1,
            Outcome::Failure => totals.failures += 1,
            Outcome::Ignored => totals.ignored += 1,
            Outcome::Dropped => totals.dropped += 1,
        }
        let slow = matches!(outcome, Outcome::Success | Outcome::Failure) && self.config.is_slow(took);
        totals.slow += u64::from(slow);
        slow
    }

    fn finish_probe(&mut self, id: CallId, outcome: Outcome, slow: bool, now: Time) -> Changes {
        let changes = self.advance(now);
        let number = id.probe.map_or(0, NonZero::get);
        if self.phase != Phase::HalfOpen || !self.probes.is_in_flight(number) {
            self.totals.late += 1;
            return changes;
        }
        let counted = match outcome {
            Outcome::Success => Some((false, slow)),
            Outcome::Failure | Outcome::Dropped => Some((true, slow)),
            Outcome::Ignored => None,
        };
        let transition = self.probes.end(&self.config, number, counted, now);
        self.apply(transition)
    }

    fn apply(&mut self, transition: Option<Transition>) -> Changes {
        let counts = self.probes.ended();
        Changes::one(match transition {
            None => None,
            Some(Transition::Open(at)) => Some(self.open(counts, at)),
            Some(Transition::Close) => {
                self.enter(Phase::Closed);
                self.window.clear();
                Some(Change::Closed(counts))
            }
        })
    }

    #[cold]
    fn open(&mut self, counts: Counts, now: Time) -> Change {
        self.enter(Phase::Open { since: now });
        self.window.clear();
        self.totals.opened += 1;
        Change::Opened(counts)
    }

    fn would_open(&mut self, counts: Counts, forced: bool, was_above: bool) -> Changes {
        let above = self.config.opens(&counts);
        self.phase = Phase::MetricsOnly { forced, above };
        let is_new = above && !was_above;
        self.totals.would_have_opened += u64::from(is_new);
        Changes::one(is_new.then_some(Change::WouldHaveOpened(counts)))
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation += 1;
    }

    fn retry_after(&self, now: Time) -> RetryAfter {
        let open_until = |since: Time| since.saturating_add(self.config.open());
        let until = match self.phase {
            Phase::Open { since } => open_until(since),
            Phase::HalfOpen => match self.probes.if_all_expire(&self.config, now) {
                (Some(Transition::Open(at)), _) => open_until(at),
                (_, at) => at,
            },
            _ => return RetryAfter::Never,
        };
        RetryAfter::After(until.since(now))
    }
}

/// The phase of a new breaker.
fn initial_phase(config: &BreakerConfig) -> Phase {
    if config.metrics_only() { Phase::MetricsOnly { forced: false, above: false } } else { Phase::Closed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the fast path, where it applies, with the slow path alone.
    #[test]
    fn the_fast_path_equals_the_slow_path() {
        for window in [Window::Calls(7), Window::Time(Span::from_micros(1_000_000))] {
            let config = BreakerConfig::new(50, window).unwrap();
            let (mut fast, mut slow_only, now) = (Machine::new(config), Machine::new(config), || Time::EPOCH);
            let (mut fast_calls, mut opened) = (0, 0);
            for number in 0..400_u32 {
                // Failures are rare, then frequent enough to open the breaker.
                let failed = number % 23 == 5 || number % 100 > 90;
                let outcome = if failed { Outcome::Failure } else { Outcome::Success };
                let id = fast.admits_all().unwrap();
                if fast.record_if_closed(id, failed) {
                    fast_calls += 1;
                } else {
                    fast.finish(id, outcome, Span::ZERO, now);
                }
                slow_only.finish(slow_only.admits_all().unwrap(), outcome, Span::ZERO, now);
                assert_eq!(fast.counts(now()), slow_only.counts(now()), "call {number}");
                assert_eq!((fast.totals(), fast.state()), (slow_only.totals(), slow_only.state()));
                if slow_only.state() == State::Open {
                    opened += 1;
                    fast.reset();
                    slow_only.reset();
                }
            }
            let of_calls = matches!(window, Window::Calls(_));
            assert_eq!([fast_calls > 300, opened > 0], [of_calls; 2], "{fast_calls} {opened} of {window:?}");
        }
    }

    #[test]
    fn the_fast_path_declines_a_call_of_an_earlier_phase() {
        let mut machine = Machine::new(BreakerConfig::new(50, Window::Calls(7)).unwrap());
        let early = machine.admits_all().unwrap();
        machine.reset();
        assert!(!machine.record_if_closed(early, false));
        assert!(machine.record_if_closed(machine.admits_all().unwrap(), false));
        assert_eq!(machine.totals().successes, 1);
        machine.force(Forced::MetricsOnly);
        assert!(
            !machine.record_if_closed(machine.admits_all().unwrap(), false),
            "metrics-only needs the slow path"
        );
    }
}
