//! Many calls as one sample: for services that end so many calls a second that each alone says little.
//!
//! Calls are gathered for a while, and until there are [`SAMPLES_MIN`], and then count as one: their mean, the most that were at
//! work, and the part that was dropped. A call below [`SHORTEST_RTT`] was hardly a call and is passed over, unless it was dropped: a
//! denial can be that quick. Netflix's `WindowedLimit` does it like that with 1 s, but forgets a window that has too few calls at its end:
//! so a limit that lets few calls through, because they take seconds, would never move again.
//!
//! Clock      a step forwards ends a window early; after a step backwards it begins anew with what it holds.

use super::Sample;
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// A window with fewer calls goes on.
pub const SAMPLES_MIN: u32 = 10;
/// Calls that took less are not counted in windows.
pub const SHORTEST_RTT: Span = Span::from_micros(100);
/// The shortest window.
pub const SAMPLE_MIN: Span = Span::from_micros(SECOND / 10);
/// The longest window.
pub const SAMPLE_MAX: Span = Span::from_micros(3_600 * SECOND);

/// One sample, or a window of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gathered {
    /// The mean of those that were answered; nothing if none was.
    pub(super) rtt: Option<Span>,
    pub(super) in_flight: u32,
    /// The part that was dropped in per cent, rounded down: less than one in a hundred is noise.
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

/// Calls gathered since some moment.
#[derive(Clone, Default, Debug)]
pub(super) struct Window {
    since: Option<Time>,
    /// The sum of the answered ones, in microseconds.
    sum: u128,
    answered: u32,
    dropped: u32,
    in_flight: u32,
}

impl Window {
    /// Adds a call; what all of them say together if the window is over.
    pub(super) fn add(&mut self, now: Time, sample: Sample, length: Span) -> Option<Gathered> {
        if sample.rtt < SHORTEST_RTT && !sample.dropped {
            return None;
        }
        // Not after now: a clock that was put back must not hold the window open.
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
    fn a_window_with_too_few_calls_goes_on() {
        let mut window = Window::default();
        (0..9).for_each(|call| assert_eq!(window.add(at(call * 1_000), CALL, LENGTH), None));
        assert!(window.add(at(9_000), CALL, LENGTH).is_some(), "the tenth");
    }

    #[test]
    fn calls_too_short_to_be_calls_are_passed_over_unless_they_were_refused() {
        let mut window = Window::default();
        let short = Sample { rtt: Span::from_micros(99), ..CALL };
        (0..20).for_each(|call| assert_eq!(window.add(at(call * 1_000), short, LENGTH), None));
        let refused = Sample { dropped: true, ..short };
        (0..9).for_each(|_| assert_eq!(window.add(at(0), refused, LENGTH), None));
        let gathered = window.add(at(1_000), refused, LENGTH).unwrap();
        assert_eq!(gathered, Gathered { rtt: None, in_flight: 7, dropped: 100 });
    }

    #[test]
    fn a_clock_put_back_does_not_hold_a_window_open() {
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
