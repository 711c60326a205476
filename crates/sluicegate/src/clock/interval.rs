//! A length of time that began at a moment of a clock that may be set meanwhile.
//!
//! ```text
//! Promise    whatever the clock is set back by, it begins anew when that is noticed, at the latest when its alarm rings:
//!            so it takes its length once more at the most, twice in all.
//!            Set forward, it ends sooner by as much: nothing tells that from time that has passed.
//! ```

use sluicegate_core::{Span, Time};

/// So long, from a moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    start: Time,
    length: Span,
}

impl Interval {
    /// So long, from this moment on.
    pub fn new(start: Time, length: Span) -> Interval {
        Interval { start, length }
    }

    /// When it began.
    pub fn start(&self) -> Time {
        self.start
    }

    /// When it ends, unless the clock is set.
    pub fn end(&self) -> Time {
        self.start.saturating_add(self.length)
    }

    /// Whether it seems to begin only later: the clock was set back.
    pub fn starts_after(&self, now: Time) -> bool {
        now < self.start
    }

    /// What would begin only later begins now. When it ends.
    pub fn end_as_of(&mut self, now: Time) -> Time {
        self.start = self.start.min(now);
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_step_back_it_takes_its_length_again_at_the_most() {
        let at = |micros| Time::from_micros(micros).unwrap();
        let mut stretch = Interval::new(at(100), Span::from_micros(20));
        assert_eq!(stretch.end_as_of(at(105)), at(120));
        assert_eq!(stretch.end_as_of(at(100)), at(120));
        assert!(stretch.starts_after(at(50)) && !stretch.starts_after(at(100)));
        assert_eq!(stretch.end_as_of(at(50)), at(70));
        assert_eq!((stretch.end_as_of(at(60)), stretch.start()), (at(70), at(50)));
    }
}
