//! The state machine of a circuit breaker. It is pure: no clock, no lock, no I/O; the time is an argument.
//!
//! In plain words: count how calls end. When too many of the recent ones failed, let none through for a while; then let
//! a few through as probes. If they do well all is as before, otherwise the while begins again.
//!
//! ```text
//!                 too many failed or slow                       `open` has passed and somebody asks
//!     ┌────────┐ ─────────────────────────▶ ┌──────┐ ────────────────────────────────▶ ┌──────────┐
//!     │ Closed │                            │ Open │                                   │ HalfOpen │
//!     └────────┘                            └──────┘ ◀──────────────────────────────── └──────────┘
//!          ▲                                           too many probes failed or slow       │
//!          └────────────────────────────────────────────────────────────────────────────────┘
//!                                             enough probes did well
//!
//!     forced by hand, from any state:  ForcedOpen   Disabled   MetricsOnly
//! ```
//!
//! ```text
//! Settings   window: the last N calls, or a length of time cut into 20 slices; failure rate and slow rate in percent;
//!            min, open, probes, probe-ttl, slow
//! State      the phase, its generation, the counts of the window, the probes that are out
//! Formula    closed: after each outcome, open if total >= min and failed * 100 >= rate * total (or the same of slow calls)
//!            open: at now >= opened + open the next to ask is a probe, and the breaker half-open
//!            half-open: exactly `probes` are let through. With all of them ended, open if failed * 100 >= rate * probes (or the
//!            same of slow ones), close otherwise. It is decided sooner only when what is still out cannot change it.
//! Outcomes   success and failure count. An ignored call counts nothing, and a probe's place is free again. A dropped call counts
//!            nothing; a dropped probe is a failed one. A probe that has not ended `probe-ttl` after it was let through has failed, at
//!            that very moment, whoever finds out and when.
//! Late       a ticket knows the generation of the phase it is from. What ends in a later one changes nothing.
//! Promise    never more than `probes` calls pass in one half-open phase beside those that were ignored; no state lasts for ever unless
//!            it is forced or nobody asks: open ends after `open`, and half-open `probe-ttl` after its probes were let through. Only probes
//!            that are all ignored say nothing: then it stays half-open, and `probes` calls pass at a time.
//! Window     time: exactly the outcomes of the slice in progress and the 19 before it, slices counted from the epoch. Calls: exactly
//!            the last N outcomes.
//! Rounding   none: percentages are compared by multiplying. A slice is the window's twentieth, rounded up to a microsecond.
//! Clock      a step forward is ordinary time. A step back: what began in the future began now, so an open breaker is open for
//!            at most `open` longer and a probe lives at most `probe-ttl` longer; the slices keep their order and the latest becomes the
//!            one in progress. By up to one slice the latest just goes on: the clocks of two threads may differ a little.
//! Cost       a few additions an outcome. 2 bits a call, or 20 slices of 24 bytes; 16 bytes a probe that is out.
//!
//! Example    50%/10s min=20: 19 failures leave it closed. With 10 successes and 10 failures it opens.
//! Reference  Hystrix 1.5 (volume, rate, sleep window, one probe), resilience4j (count windows, slow calls, several probes, forced states).
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
//!     let (Ok(ticket), _) = breaker.try_acquire(now) else { panic!("it is closed") };
//!     breaker.finish(ticket, outcome, Span::ZERO, || now);
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

/// What a breaker does, for those who look.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Everybody passes, and is counted.
    Closed,
    /// Nobody passes, until `open` has passed and somebody asks.
    Open,
    /// Probes pass, and nobody else.
    HalfOpen,
    /// Nobody passes until it is no longer forced.
    ForcedOpen,
    /// Everybody passes, and nothing is counted.
    Disabled,
    /// Everybody passes and is counted; it is said when it would have opened.
    MetricsOnly,
}

/// What a breaker can be forced to, until it no longer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forced {
    /// To let nobody pass.
    Open,
    /// To let everybody pass and count nothing.
    Disabled,
    /// To let everybody pass, and count.
    MetricsOnly,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Well.
    Success,
    /// Badly, in a way that says something about what was called: an error, a timeout, a panic.
    Failure,
    /// In a way that says nothing about it: a bad request, a call that was never made.
    Ignored,
    /// Nobody knows: whoever asked has gone.
    Dropped,
}

/// Lets one call pass; to be given back with how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId {
    generation: u64,
    probe: Option<NonZero<u64>>,
}

impl CallId {
    /// The ticket of an ordinary call of that generation, for those who keep [`Machine::admits_all`]'s where they can read it without a lock.
    #[inline]
    pub const fn ordinary(generation: u64) -> CallId {
        CallId { generation, probe: None }
    }

    /// Which phase of the breaker it is from.
    #[inline]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the call is a probe.
    #[inline]
    pub const fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// What has become of a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Change {
    /// It opened, since the calls of the window, or the probes, ended like this.
    Opened(Counts),
    /// It lets probes pass.
    HalfOpened,
    /// It closed, since the probes ended like this.
    Closed(Counts),
    /// It only counts, and would have opened.
    WouldHaveOpened(Counts),
    /// It was forced.
    Forced(Forced),
    /// It is no longer forced, or was reset: as new.
    Reset,
}

/// What has become of a breaker at once: nothing, one thing, or two, the first one first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Changes([Option<Change>; 2]);

impl Changes {
    /// Whether nothing has changed.
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

/// All that a breaker has seen. Calls are counted when they end, those included that ended too late to matter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Totals {
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that ended well.
    pub successes: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls that were slow, whether they succeeded or failed.
    pub slow: u64,
    /// Calls that were ignored.
    pub ignored: u64,
    /// Calls that were dropped.
    pub dropped: u64,
    /// Probes that had not ended in time. They are counted again when they end.
    pub expired: u64,
    /// Calls that ended in a later phase than theirs, and changed nothing. They are among the others.
    pub late: u64,
    /// How often it opened.
    pub opened: u64,
    /// How often it would have opened, only counting.
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
    /// `above` is whether the last outcome would have opened it.
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
    /// Counts phases. A call of an earlier one changes nothing.
    generation: u64,
    window: Rolling,
    probes: Probes,
    /// How many probes there have been: a name for each.
    last_probe: NonZero<u64>,
    totals: Totals,
}

impl Machine {
    /// A breaker that has seen nothing: closed, or only counting if the rules say so.
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

    /// The ticket of every call, while nobody is denied: then there is no need to [`Machine::ask`].
    #[inline]
    pub fn admits_all(&self) -> Option<CallId> {
        match self.phase {
            Phase::Closed | Phase::Disabled | Phase::MetricsOnly { .. } => {
                Some(CallId::ordinary(self.generation))
            }
            Phase::Open { .. } | Phase::HalfOpen | Phase::ForcedOpen => None,
        }
    }

    /// From when until when every call is denied, while it is open: then there is no need to [`Machine::ask`] either.
    #[inline]
    pub fn open_until(&self) -> Option<(Time, Time)> {
        match self.phase {
            Phase::Open { since } => Some((since, since.saturating_add(self.config.open()))),
            _ => None,
        }
    }

    /// Whether a call may pass now.
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
        // Cannot wrap: it would take centuries to name so many.
        let name = self.last_probe.saturating_add(1);
        if self.phase == Phase::HalfOpen && self.probes.admit(&self.config, name.get(), now) {
            self.last_probe = name;
            return (Ok(CallId { generation: self.generation, probe: Some(name) }), changes);
        }
        self.totals.denied += 1;
        (Err(self.retry_after(now)), changes)
    }

    /// The short way of [`Machine::finish`] for a call that was not timed, while the breaker is closed and has a window of calls: when it
    /// stays closed. Whether it was that, and is counted; else nothing has happened.
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

    /// A call has ended, having taken so long. A window of calls asks for the time only when it opens.
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

    /// Whatever is not a call that counts while it is closed.
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

    /// Finds out which probes should have ended by now, and what that comes to. Asking does so too.
    pub fn advance(&mut self, now: Time) -> Changes {
        match &mut self.phase {
            Phase::Open { since } => {
                // The clock stepped back: it opened now, and is open for at most `open` longer.
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

    /// What it does now. See [`Machine::advance`] for what is only found out by looking.
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

    /// What counts at this time: the calls of the window, or when half-open the probes that have ended. Nothing when open.
    pub fn counts(&mut self, now: Time) -> Counts {
        if self.phase == Phase::HalfOpen { self.probes.ended() } else { self.window.counts(now) }
    }

    /// All that it has seen.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Its rules.
    pub fn config(&self) -> &BreakerConfig {
        &self.config
    }

    /// How long a call would be denied from now on, if nothing more is heard of the probes that are out. `None` when one would pass. See
    /// [`Machine::advance`] for what is only found out by looking.
    pub fn denies_for(&self, now: Time) -> Option<RetryAfter> {
        let passes = self.admits_all().is_some()
            || self.phase == Phase::HalfOpen && self.probes.has_capacity(&self.config);
        let wait = Some(self.retry_after(now)).filter(|wait| *wait != RetryAfter::After(Span::ZERO));
        if passes { None } else { wait }
    }

    /// Whether it is half-open and waits for probes that are out and have not expired. See [`Machine::advance`] for what is only found out by
    /// looking.
    pub fn has_live_probes(&self, now: Time) -> bool {
        self.phase == Phase::HalfOpen && self.probes.any_live(&self.config, now)
    }

    /// Whether it is closed and counts nothing: as good as new.
    pub fn is_idle(&mut self, now: Time) -> bool {
        let initial_phase = self.phase == initial_phase(&self.config);
        initial_phase && self.window.counts(now) == Counts::default()
    }

    /// Forces it. What is out changes nothing any more.
    pub fn force(&mut self, forced: Forced) -> Change {
        self.enter(match forced {
            Forced::Open => Phase::ForcedOpen,
            Forced::Disabled => Phase::Disabled,
            Forced::MetricsOnly => Phase::MetricsOnly { forced: true, above: false },
        });
        self.window.clear();
        Change::Forced(forced)
    }

    /// If it is forced it no longer is, and is as new but for its totals.
    pub fn unforce(&mut self) -> Option<Change> {
        let is_forced = matches!(
            self.phase,
            Phase::ForcedOpen | Phase::Disabled | Phase::MetricsOnly { forced: true, .. }
        );
        is_forced.then(|| self.reset())
    }

    /// As new but for its totals, whatever it was. What is out changes nothing any more.
    pub fn reset(&mut self) -> Change {
        self.enter(initial_phase(&self.config));
        self.window.clear();
        Change::Reset
    }

    /// Other rules from now on. What is forced stays forced, what is open stays open since when it was, for as long as the new rules
    /// say. The counts are kept if the window is the same, and begin anew otherwise. A half-open phase begins anew: the probes that
    /// are out change nothing any more. A breaker that is told only to count is no longer open or half-open.
    pub fn change(&mut self, config: BreakerConfig) -> Option<Change> {
        let same_window = config.window() == self.config.window();
        self.config = config;
        if !same_window {
            self.window = Rolling::new(config.window());
        }
        match self.phase {
            Phase::Closed | Phase::MetricsOnly { forced: false, .. } => {
                if self.phase == Phase::Closed || !config.metrics_only() {
                    // The same calls go on being counted, so this is no new phase.
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

    /// Counts a call that has ended, and says whether it was slow.
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

/// What a breaker does when nothing is wrong.
fn initial_phase(config: &BreakerConfig) -> Phase {
    if config.metrics_only() { Phase::MetricsOnly { forced: false, above: false } } else { Phase::Closed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Successes and failures: once by the short way where it is one, once by the long way only.
    #[test]
    fn the_short_way_comes_to_the_same_as_the_long_one() {
        for window in [Window::Calls(7), Window::Time(Span::from_micros(1_000_000))] {
            let config = BreakerConfig::new(50, window).unwrap();
            let (mut short, mut long, now) = (Machine::new(config), Machine::new(config), || Time::EPOCH);
            let (mut short_ones, mut opened) = (0, 0);
            for number in 0..400_u32 {
                // Seldom, and then so often that it opens.
                let failed = number % 23 == 5 || number % 100 > 90;
                let outcome = if failed { Outcome::Failure } else { Outcome::Success };
                let id = short.admits_all().unwrap();
                if short.record_if_closed(id, failed) {
                    short_ones += 1;
                } else {
                    short.finish(id, outcome, Span::ZERO, now);
                }
                long.finish(long.admits_all().unwrap(), outcome, Span::ZERO, now);
                assert_eq!(short.counts(now()), long.counts(now()), "call {number}");
                assert_eq!((short.totals(), short.state()), (long.totals(), long.state()));
                if long.state() == State::Open {
                    opened += 1;
                    short.reset();
                    long.reset();
                }
            }
            let of_calls = matches!(window, Window::Calls(_));
            assert_eq!([short_ones > 300, opened > 0], [of_calls; 2], "{short_ones} {opened} of {window:?}");
        }
    }

    #[test]
    fn the_short_way_is_not_for_a_call_of_an_earlier_phase() {
        let mut machine = Machine::new(BreakerConfig::new(50, Window::Calls(7)).unwrap());
        let early = machine.admits_all().unwrap();
        machine.reset();
        assert!(!machine.record_if_closed(early, false));
        assert!(machine.record_if_closed(machine.admits_all().unwrap(), false));
        assert_eq!(machine.totals().successes, 1);
        machine.force(Forced::MetricsOnly);
        assert!(!machine.record_if_closed(machine.admits_all().unwrap(), false), "it has more to say");
    }
}
