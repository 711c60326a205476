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
pub struct Stretch {
    began: Time,
    length: Span,
}

impl Stretch {
    /// So long, from this moment on.
    pub fn new(began: Time, length: Span) -> Stretch {
        Stretch { began, length }
    }

    /// When it began.
    pub fn began(&self) -> Time {
        self.began
    }

    /// When it ends, unless the clock is set.
    pub fn end(&self) -> Time {
        self.began.saturating_add(self.length)
    }

    /// Whether it seems to begin only later: the clock was set back.
    pub fn is_ahead(&self, now: Time) -> bool {
        now < self.began
    }

    /// What would begin only later begins now. When it ends.
    pub fn end_seen_at(&mut self, now: Time) -> Time {
        self.began = self.began.min(now);
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_step_back_it_takes_its_length_again_at_the_most() {
        let at = |micros| Time::from_micros(micros).unwrap();
        let mut stretch = Stretch::new(at(100), Span::from_micros(20));
        assert_eq!(stretch.end_seen_at(at(105)), at(120));
        assert_eq!(stretch.end_seen_at(at(100)), at(120));
        assert!(stretch.is_ahead(at(50)) && !stretch.is_ahead(at(100)));
        assert_eq!(stretch.end_seen_at(at(50)), at(70));
        assert_eq!((stretch.end_seen_at(at(60)), stretch.began()), (at(70), at(50)));
    }
}
