//! Windows: many calls as one sample, for services whose single calls say little.
//!
//! Calls are gathered for a period, and until there are [`SAMPLES_MIN`]. Then they count as one
//! sample: their mean duration, the most calls in flight, and the share of drops. A call below
//! [`SHORTEST_RTT`] is skipped unless it was dropped, since a denial can be that quick. Netflix's
//! `WindowedLimit` does this with 1 s, but discards a window with too few calls: a limit that
//! admits few calls, because they take seconds, would never change again.
//!
//! A forward clock step ends a window early. After a backward step the window restarts with the
//! calls it has.

use super::Sample;
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// A window with fewer calls continues.
pub const SAMPLES_MIN: u32 = 10;
/// Shorter calls are not counted in windows.
pub const SHORTEST_RTT: Span = Span::from_micros(100);
/// The shortest window.
pub const SAMPLE_MIN: Span = Span::from_micros(SECOND / 10);
/// The longest window.
pub const SAMPLE_MAX: Span = Span::from_micros(3_600 * SECOND);

/// One call, or a window of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gathered {
    /// The mean duration of answered calls; `None` if there were none.
    pub(super) rtt: Option<Span>,
    pub(super) in_flight: u32,
    /// The share of drops in percent, rounded down: less than one in a hundred is noise.
    pub(super) dropped: u32,
}

impl From<Sample> for Gathered {
    fn from(sample: Sample) -> Gathered {
        match sample {
            Sample { dropped: true, in_flight, .. } => Gathered { rtt: None, in_flight, dropped: 100 },
            Sample { rtt, in_flight, .. } => Gathered { rtt: Some(rtt), in_flight, dropped: 0 },
        }
    }
}

/// The calls gathered so far.
#[derive(Clone, Default, Debug)]
pub(super) struct Window {
    since: Option<Time>,
    /// The total duration of answered calls, in microseconds.
    sum: u128,
    answered: u32,
    dropped: u32,
    in_flight: u32,
}

impl Window {
    /// Adds a call. Returns the sample if the window is over.
    pub(super) fn add(&mut self, now: Time, sample: Sample, length: Span) -> Option<Gathered> {
        if sample.rtt < SHORTEST_RTT && !sample.dropped {
            return None;
        }
        // At most `now`: a clock that was set back must not hold the window open.
        let since = self.since.unwrap_or(now).min(now);
        self.since = Some(since);
        self.in_flight = self.in_flight.max(sample.in_flight);
        if sample.dropped {
            self.dropped = self.dropped.saturating_add(1);
        } else {
            self.answered = self.answered.saturating_add(1);
            self.sum += u128::from(sample.rtt.as_micros());
        }
        let all = u64::from(self.answered) + u64::from(self.dropped);
        if now.since(since) < length || all < u64::from(SAMPLES_MIN) {
            return None;
        }
        Some(core::mem::take(self).gathered(all))
    }

    fn gathered(&self, all: u64) -> Gathered {
        let rtt = self.sum.checked_div(self.answered.into()).and_then(|mean| u64::try_from(mean).ok());
        let dropped = u32::try_from(u64::from(self.dropped) * 100 / all).unwrap_or(100);
        Gathered { rtt: rtt.map(Span::from_micros), in_flight: self.in_flight, dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Span = Span::from_micros(SECOND);
    const CALL: Sample = Sample { rtt: Span::from_micros(30_000), in_flight: 7, dropped: false };

    fn at(millis: u64) -> Time {
        Time::saturating_from_micros(millis * 1_000)
    }

    #[test]
    fn a_window_is_the_mean_of_its_calls() {
        let mut window = Window::default();
        for call in 0..9 {
            let sample = Sample { in_flight: if call == 4 { 12 } else { 7 }, ..CALL };
            assert_eq!(window.add(at(call * 100), sample, LENGTH), None);
        }
        let slow = Sample { rtt: Span::from_micros(130_000), ..CALL };
        let gathered = window.add(at(1_000), slow, LENGTH).unwrap();
        assert_eq!(gathered, Gathered { rtt: Some(Span::from_micros(40_000)), in_flight: 12, dropped: 0 });
        assert_eq!(window.add(at(1_100), CALL, LENGTH), None, "the next one is empty again");
    }

    #[test]
    fn a_window_with_too_few_calls_continues() {
        let mut window = Window::default();
        (0..9).for_each(|call| assert_eq!(window.add(at(call * 1_000), CALL, LENGTH), None));
        assert!(window.add(at(9_000), CALL, LENGTH).is_some(), "the tenth");
    }

    #[test]
    fn very_short_calls_are_skipped_unless_dropped() {
        let mut window = Window::default();
        let short = Sample { rtt: Span::from_micros(99), ..CALL };
        (0..20).for_each(|call| assert_eq!(window.add(at(call * 1_000), short, LENGTH), None));
        let denied = Sample { dropped: true, ..short };
        (0..9).for_each(|_| assert_eq!(window.add(at(0), denied, LENGTH), None));
        let gathered = window.add(at(1_000), denied, LENGTH).unwrap();
        assert_eq!(gathered, Gathered { rtt: None, in_flight: 7, dropped: 100 });
    }

    #[test]
    fn a_clock_set_back_does_not_hold_a_window_open() {
        let mut window = Window::default();
        (0..10).for_each(|_| assert_eq!(window.add(at(3_600_000), CALL, LENGTH), None));
        assert_eq!(window.add(at(0), CALL, LENGTH), None);
        assert!(window.add(at(1_000), CALL, LENGTH).is_some());
    }

    #[test]
    fn less_than_one_drop_in_a_hundred_is_noise() {
        let dropped_of = |dropped: u64, all: u64| {
            let mut window = Window::default();
            for call in 1..all {
                window.add(at(0), Sample { dropped: call <= dropped, ..CALL }, LENGTH);
            }
            window.add(at(1_000), CALL, LENGTH).unwrap().dropped
        };
        assert_eq!((dropped_of(1, 101), dropped_of(1, 100), dropped_of(30, 100)), (0, 1, 30));
    }
}
