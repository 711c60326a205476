//! What becomes of a key's charges when other limits adopt its state.
//!
//! The stack of a window or a log is a stack of units, which other parameters leave as it is. The
//! stack of a bucket is measured in time, and a unit takes another time at another rate. So its
//! heights are rescaled like the state itself, from the moment of the change on:
//!
//! ```text
//! 1/s, A and B of 2 each, changed to 4/s after 1 s:
//!   B ┐ full 4 s        B ┐ full 1.75 s     3 of 4 units have not leaked; they take 0.75 s now
//!   A ┘ full 2 s        A ┘ full 1.25 s     of A, 1 has not leaked
//! ```
//!
//! Heights are rounded up as the state is. Charges are whole units, which both rates express
//! exactly, so the distances between heights stay exact and no return creates credit.

use crate::bounds::Ratio;
use crate::rollback::Charge;
use crate::time::{Exact, Time};

/// What became of a state that other limits adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adopted {
    /// It starts fresh, and its charges are gone.
    Fresh,
    /// The key is unseen or has recovered: nothing is left to return, but a receipt can still be
    /// settled for more than was reserved.
    Unseen,
    /// The heights of its stack stay.
    Kept,
    /// The heights of its stack are converted.
    Rescaled(Rescaling),
}

impl Adopted {
    /// Converts a charge. One whose state starts fresh is void.
    pub(crate) fn convert(&self, charge: &mut Charge) {
        match self {
            Adopted::Kept => {}
            Adopted::Fresh => *charge = Charge::VOID,
            Adopted::Unseen => charge.height = Exact::ZERO,
            // A height of zero, which also a void charge has, stays zero.
            Adopted::Rescaled(rescaling) => charge.height = rescaling.height(charge.height),
        }
    }
}

/// The conversion of a bucket's moments from one rate to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rescaling {
    old: Ratio,
    new: Ratio,
    /// The moment of the change; `None` if all moments stay where they are, as in redis-cell.
    from: Option<Time>,
    /// The height of the converted stack, which no charge exceeds.
    top: Exact,
}

impl Rescaling {
    /// Converts the moment at which a bucket is full, and caps it at `most` after the change. What
    /// has leaked before the change is not converted.
    pub(crate) fn of_usage(old: Ratio, new: Ratio, from: Time, full_at: Exact, most: Exact) -> Rescaling {
        let mut rescaling =
            Rescaling { old, new, from: Some(from), top: Exact { whole: u64::MAX, part: u32::MAX } };
        let converted = rescaling.height(full_at.max(Exact::from_whole(from.as_micros())));
        let most = Exact { whole: from.as_micros() + most.whole, part: most.part };
        rescaling.top = converted.min(most);
        rescaling
    }

    /// Keeps the moment at which a bucket is full. Only its fraction of a microsecond is rounded up
    /// to the parts of the new rate.
    pub(crate) fn of_recovery_time(old: Ratio, new: Ratio, full_at: Exact) -> Rescaling {
        let mut rescaling =
            Rescaling { old, new, from: None, top: Exact { whole: u64::MAX, part: u32::MAX } };
        rescaling.top = rescaling.height(full_at);
        rescaling
    }

    /// Returns the moment at which the bucket is full after the conversion.
    pub(crate) fn full_at(&self) -> Exact {
        self.top
    }

    fn height(&self, height: Exact) -> Exact {
        let Some(from) = self.from.map(Time::as_micros) else {
            return self.rounded(height).min(self.top);
        };
        if height.whole < from {
            // It has leaked: a whole microsecond is as good as any fraction.
            return Exact::from_whole(height.whole);
        }
        let above = self.duration(Exact { whole: height.whole - from, part: height.part });
        // Cannot wrap: a moment is below 2^58 and a duration at most 2^60.
        Exact { whole: from + above.whole, part: above.part }.min(self.top)
    }

    /// Returns the time that the units of a duration take at the new rate; a very long one is
    /// capped.
    fn duration(&self, duration: Exact) -> Exact {
        let (old_micros, micros) = (u128::from(self.old.micros), u128::from(self.new.micros));
        // In parts of a microsecond this is also the units, times the old numerator. Cannot wrap:
        // 2^60 times less than 2^30 parts, plus less than one.
        let units = u128::from(duration.whole) * u128::from(self.old.parts) + u128::from(duration.part);
        let parts = (units / old_micros)
            .checked_mul(micros)
            // Cannot wrap: a remainder below 2^49 times a numerator below 2^49.
            .and_then(|parts| parts.checked_add((units % old_micros * micros).div_ceil(old_micros)));
        self.new.duration(parts.unwrap_or(u128::MAX))
    }

    /// Returns a moment with its fraction rounded up to the parts of the new rate.
    fn rounded(&self, moment: Exact) -> Exact {
        let (parts, old_parts) = (u64::from(self.new.parts), u64::from(self.old.parts));
        // Cannot wrap: both factors are below 2^30. A part is below its denominator, so the
        // quotient is at most the new one.
        let part = (u64::from(moment.part) * parts).div_ceil(old_parts);
        if part == parts {
            return Exact::from_whole(moment.whole + 1);
        }
        Exact { whole: moment.whole, part: u32::try_from(part).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Rate;
    use crate::time::{SECOND, Span};

    fn rate(count: u64, micros: u64) -> Ratio {
        Rate::new(count, Span::from_micros(micros)).unwrap().ratio().unwrap()
    }

    #[test]
    fn the_example_in_the_header() {
        let from = Time::from_micros(SECOND).unwrap();
        let seconds = |quarters: u64| Exact::from_whole(quarters * SECOND / 4);
        let rescaling =
            Rescaling::of_usage(rate(1, SECOND), rate(4, SECOND), from, seconds(16), seconds(1_000));
        assert_eq!(rescaling.full_at(), seconds(7));
        assert_eq!(rescaling.height(seconds(8)), seconds(5));
        assert_eq!(rescaling.height(seconds(2)), seconds(2), "it has leaked");
    }

    #[test]
    fn no_height_exceeds_the_capped_stack() {
        let (from, century) = (Time::MAX, Exact::from_whole(100 * crate::time::YEAR));
        let full_at = Exact::from_whole(Time::MAX.as_micros() + 100 * crate::time::YEAR);
        let rescaling = Rescaling::of_usage(
            rate(1_000_000_000, 1),
            rate(1, 10 * crate::time::YEAR),
            from,
            full_at,
            century,
        );
        assert_eq!(rescaling.full_at(), full_at);
        assert_eq!(rescaling.height(full_at), full_at);
    }
}
