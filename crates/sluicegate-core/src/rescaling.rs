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

use crate::bounds::Rate;
use crate::rollback::Charge;
use crate::time::{Exact, Time};

/// Longer than any duration that matters, and short enough to add to any moment.
const LONGEST: u64 = 1 << 60;

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
    old: Rate,
    new: Rate,
    /// The moment of the change; `None` if all moments stay where they are, as in redis-cell.
    from: Option<Time>,
    /// The height of the converted stack, which no charge exceeds.
    top: Exact,
}

impl Rescaling {
    /// Converts the moment at which a bucket is full, and caps it at `most` after the change. What
    /// has leaked before the change is not converted.
    pub(crate) fn of_usage(old: Rate, new: Rate, from: Time, full_at: Exact, most: Exact) -> Rescaling {
        let mut rescaling =
            Rescaling { old, new, from: Some(from), top: Exact { whole: u64::MAX, part: u32::MAX } };
        let converted = rescaling.height(full_at.max(Exact::from_whole(from.as_micros())));
        let most = Exact { whole: from.as_micros() + most.whole, part: most.part };
        rescaling.top = converted.min(most);
        rescaling
    }

    /// Keeps the moment at which a bucket is full. Only its fraction of a microsecond is rounded up
    /// to the parts of the new rate.
    pub(crate) fn of_recovery_time(old: Rate, new: Rate, full_at: Exact) -> Rescaling {
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

    /// Returns the time that the units of a duration take at the new rate, at most [`LONGEST`].
    fn duration(&self, duration: Exact) -> Exact {
        let old_period = u128::from(self.old.period().as_micros());
        // In lowest terms, so that it does not matter how a rate is written.
        let divisor = divisor(self.new);
        let (count, period) =
            (self.new.count() / divisor, u128::from(self.new.period().as_micros() / u64::from(divisor)));
        // In units of 1/count microseconds this is also the units, times the old period. Cannot
        // wrap: 2^60 times a count below 2^30, plus a part below it.
        let units = u128::from(duration.whole) * u128::from(self.old.count()) + u128::from(duration.part);
        let parts = (units / old_period)
            .checked_mul(period)
            // Cannot wrap: a remainder below 2^49 times a period below 2^49.
            .and_then(|parts| parts.checked_add((units % old_period * period).div_ceil(old_period)))
            .unwrap_or(u128::MAX);
        match u64::try_from(parts / u128::from(count)) {
            Ok(whole) if whole < LONGEST => {
                let part = u32::try_from(parts % u128::from(count)).unwrap_or(0);
                Exact { whole, part: part * divisor }
            }
            _ => Exact::from_whole(LONGEST),
        }
    }

    /// Returns a moment with its fraction rounded up to the parts of the new rate.
    fn rounded(&self, moment: Exact) -> Exact {
        let (count, old_count) = (u64::from(self.new.count()), u64::from(self.old.count()));
        // Cannot wrap: both factors are below 2^30. A part is below its count, so the quotient is
        // at most the new count.
        let part = (u64::from(moment.part) * count).div_ceil(old_count);
        if part == count {
            return Exact::from_whole(moment.whole + 1);
        }
        Exact { whole: moment.whole, part: u32::try_from(part).unwrap_or(0) }
    }
}

/// Returns the greatest common divisor of a rate's count and period.
fn divisor(rate: Rate) -> u32 {
    let (mut divisor, mut rest) = (rate.period().as_micros(), u64::from(rate.count()));
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    // Always fits: it divides the count.
    u32::try_from(divisor).unwrap_or(1)
}

/// Returns `true` if two rates are equal, however they are written.
pub(crate) fn are_equal(left: Rate, right: Rate) -> bool {
    let across = |left: Rate, right: Rate| u128::from(left.count()) * u128::from(right.period().as_micros());
    across(left, right) == across(right, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{SECOND, Span};

    fn rate(count: u64, micros: u64) -> Rate {
        Rate::new(count, Span::from_micros(micros)).unwrap()
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
