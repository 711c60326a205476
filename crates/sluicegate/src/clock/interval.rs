//! An interval on a clock that may be set while it lasts.
//!
//! ```text
//! Promise    If the clock is set back, by any amount, the interval restarts when that is noticed,
//!            at the latest when its alarm rings. So it lasts at most twice its length.
//!            If the clock is set forward, it ends sooner by as much: that looks like elapsed time.
//! ```

use sluicegate_core::{Span, Time};

/// A start and a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    start: Time,
    length: Span,
}

impl Interval {
    /// An interval that starts now and has this length.
    pub fn new(start: Time, length: Span) -> Interval {
        Interval { start, length }
    }

    /// When it started.
    pub fn start(&self) -> Time {
        self.start
    }

    /// When it ends, unless the clock is set.
    pub fn end(&self) -> Time {
        self.start.saturating_add(self.length)
    }

    /// Returns `true` if it starts after `now`: the clock was set back.
    pub fn starts_after(&self, now: Time) -> bool {
        now < self.start
    }

    /// Restarts the interval at `now` if it would start later. Returns its end.
    pub fn end_as_of(&mut self, now: Time) -> Time {
        self.start = self.start.min(now);
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_step_back_an_interval_restarts_once() {
        let at = |micros| Time::from_micros(micros).unwrap();
        let mut interval = Interval::new(at(100), Span::from_micros(20));
        assert_eq!(interval.end_as_of(at(105)), at(120));
        assert_eq!(interval.end_as_of(at(100)), at(120));
        assert!(interval.starts_after(at(50)) && !interval.starts_after(at(100)));
        assert_eq!(interval.end_as_of(at(50)), at(70));
        assert_eq!((interval.end_as_of(at(60)), interval.start()), (at(70), at(50)));
    }
}
