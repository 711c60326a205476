//! Generic cell rate algorithm (GCRA): a bucket stored as a single number. Token bucket, leaky
//! bucket, minimum interval and pacer all run this code.
//!
//! A bucket holds `burst` units, and one unit refills every `period / count`. Instead of the level
//! we store the moment at which the bucket will be full again, which the literature calls the
//! theoretical arrival time. Spending moves that moment into the future, and time brings it nearer.
//! How far ahead that moment lies shows how much has been used.
//!
//! ```text
//! Settings   interval = period / count      fill = interval * burst      (exact fractions)
//! State      full_at, in a Cell: at = whole microseconds, a = the rest in units of 1/parts
//!            microseconds, where period / count = micros / parts in lowest terms; b = 1 once the
//!            key has called
//! Formula    ahead = max(full_at - now, 0)            what has been used, as time
//!            due   = ahead + interval * cost
//!            due <= fill    allow, and full_at becomes now + due
//!            otherwise      deny, retry_after = due - fill
//! Reports    remaining = floor(burst - ahead / interval)       reset_after = ahead
//!            (cost <= remaining is equivalent to due <= fill, since costs are whole; the code
//!            compares the former)
//! Promise    any stretch of length w admits at most burst + w / interval units.
//! Rounding   none in the decision; waits are rounded up to a whole microsecond, remaining is
//!            rounded down.
//! Clock      if the clock steps back, a bucket in use is stricter until the clock has caught up:
//!            `ahead` has grown by the size of the step.
//! Cost       a multiplication and one or two divisions; nothing runs in the background.
//!
//! Example    5 per second, burst 2: interval 200 ms, fill 400 ms. At t = 0 two calls are allowed
//!            (due 200 ms and 400 ms). The third, due 600 ms, is denied: retry_after 200 ms.
//! ```
//!
//! Why nothing overflows: `fill` is at most a century (2^52 µs), debt and borrowing at most
//! another; a time is at most 2^58 µs and `parts` is below 2^30, or the limit is rejected. Counts
//! and costs can have 64 bits. Products that can exceed 64 bits use 128.

use crate::algorithm::{Algorithm, Charged, Debt, NotCharged, Verb, Waiting, remaining_after};
use crate::bounds::{CENTURY, OutOfBounds, Rate, Ratio};
use crate::cell::Cell;
use crate::decision::Standing;
use crate::rescaling::{Adopted, Rescaling};
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{DAY, Exact, Span, Time};

/// Longer than any duration that matters, and short enough to add to any moment.
const LONGEST: u64 = 1 << 60;

/// The value of `b` once a key has called. It distinguishes a bucket that is full at the epoch from
/// an unseen key.
const SEEN: u32 = 1;

/// The wording of the error for a bucket that fills too slowly, in the terms of its limit.
pub(crate) struct FillTime {
    pub(crate) name: &'static str,
    pub(crate) advice: &'static str,
}

/// The arithmetic of a bucket that refills at `rate` and holds at most `burst`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gcra {
    ratio: Ratio,
    burst: u64,
    interval: Exact,
    fill: Exact,
    /// The furthest that `full_at` may lie ahead: a whole bucket and a century of debt.
    debt_max: Exact,
    share: ShareScale,
}

impl Ratio {
    /// Returns the duration of a number of 1/parts microseconds, at most [`LONGEST`].
    pub(crate) fn duration(self, number: u128) -> Exact {
        let parts = u128::from(self.parts);
        Exact {
            whole: u64::try_from(number / parts).unwrap_or(LONGEST).min(LONGEST),
            part: u32::try_from(number % parts).unwrap_or(u32::MAX),
        }
    }

    /// Returns the time of a number of units. Out of line: a cost of 2^32 is rare.
    #[cold]
    fn times(self, units: u64) -> Exact {
        self.duration(u128::from(units) * u128::from(self.micros))
    }
}

/// Precomputed, so that finding the share of a bucket that is used takes no division. Time is
/// measured in units so coarse that the fill time is less than 2^16 of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ShareScale {
    /// A unit is 2^shift microseconds.
    shift: u32,
    /// The share of the bucket that refills in one unit, where 2^32 is the whole bucket.
    unit: u32,
}

impl ShareScale {
    fn of(fill: Exact) -> ShareScale {
        let shift = (u64::BITS - fill.whole.leading_zeros()).saturating_sub(16);
        // Always fits: the divisor is at least 2 (a fill time of one unit counts as two), so the
        // quotient is at most 2^31.
        ShareScale {
            shift,
            unit: u32::try_from((1 << 32) / (fill.whole >> shift).max(2)).unwrap_or(u32::MAX),
        }
    }
}

impl Gcra {
    /// Creates the arithmetic for a rate and a burst of at least 1.
    pub(crate) fn new(rate: Rate, burst: u64, fill_time: &FillTime) -> Result<Gcra, OutOfBounds> {
        let (ratio, (count, period)) = (rate.ratio()?, (rate.count(), rate.period().as_micros()));
        let mut gcra = Gcra {
            ratio,
            burst,
            interval: ratio.times(1),
            fill: Exact::ZERO,
            debt_max: Exact::ZERO,
            share: ShareScale { shift: 0, unit: 0 },
        };
        gcra.fill = gcra.time_for(burst);
        gcra.share = ShareScale::of(gcra.fill);
        gcra.debt_max = gcra.add(gcra.fill, Exact::from_whole(CENTURY.as_micros()));
        if gcra.fill > Exact::from_whole(CENTURY.as_micros()) {
            // Reported in whole days, rounded up: the microseconds might not fit in 64 bits.
            let micros = (u128::from(burst) * u128::from(period)).div_ceil(u128::from(count));
            let days = u64::try_from(micros.div_ceil(u128::from(DAY))).unwrap_or(u64::MAX);
            return Err(OutOfBounds::above(
                fill_time.name,
                days,
                CENTURY.as_micros() / DAY,
                fill_time.advice,
            )
            .in_days());
        }
        Ok(gcra)
    }

    /// Returns the most that the bucket holds.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns `interval * units`, exact below [`LONGEST`] and capped there. Only refunds,
    /// settlements and limits that are about to be rejected reach the cap.
    #[inline]
    fn time_for(&self, units: u64) -> Exact {
        if units == 1 {
            return self.interval;
        }
        if u32::try_from(units).is_err() {
            return self.ratio.times(units);
        }
        let parts_each = u64::from(self.ratio.parts);
        // Cannot wrap: units < 2^32 and part < 2^30.
        let parts = units * u64::from(self.interval.part);
        let whole = self.interval.whole.saturating_mul(units).saturating_add(parts / parts_each).min(LONGEST);
        Exact { whole, part: u32::try_from(parts % parts_each).unwrap_or(u32::MAX) }
    }

    /// Adds two durations, or a duration to a moment.
    #[inline]
    fn add(&self, left: Exact, right: Exact) -> Exact {
        // Cannot wrap: durations are at most 2^60 and moments below 2^59; both parts are below
        // 2^30.
        let (whole, part) = (left.whole + right.whole, left.part + right.part);
        match part.checked_sub(self.ratio.parts) {
            Some(part) => Exact { whole: whole + 1, part },
            None => Exact { whole, part },
        }
    }

    /// Returns `left - right`, for two durations or two moments, or zero if that would be negative.
    #[inline]
    fn saturating_sub(&self, left: Exact, right: Exact) -> Exact {
        if left <= right {
            return Exact::ZERO;
        }
        // Cannot wrap: left > right, so if left's part is the smaller one, its whole is the larger
        // one and can lend 1.
        if left.part >= right.part {
            Exact { whole: left.whole - right.whole, part: left.part - right.part }
        } else {
            Exact { whole: left.whole - right.whole - 1, part: left.part + self.ratio.parts - right.part }
        }
    }

    /// Returns the time until the bucket is full: what has been used, as time.
    #[inline]
    fn ahead(cell: Cell, now: Time) -> Exact {
        match cell.at.checked_sub(now.as_micros()) {
            Some(whole) => Exact { whole, part: cell.a },
            None => Exact::ZERO,
        }
    }

    /// Returns the state of a bucket that is full `ahead` from now.
    #[inline]
    fn full_in(ahead: Exact, now: Time) -> Cell {
        // Cannot wrap: a moment is below 2^58 and a duration at most 2^60.
        Cell { at: now.as_micros() + ahead.whole, a: ahead.part, b: SEEN }
    }

    /// Returns what remains: `burst - ceil(ahead / interval)`.
    #[inline]
    fn remaining(&self, ahead: Exact) -> u64 {
        self.remaining_in_64_bits(ahead).unwrap_or_else(|| self.burst.saturating_sub(self.used(ahead)))
    }

    /// Returns what has been used, rounded up. A century of debt at the fastest rate is more than
    /// 64 bits hold; then it is the largest number.
    fn used(&self, ahead: Exact) -> u64 {
        let used = self.parts(ahead).div_ceil(u128::from(self.ratio.micros));
        u64::try_from(used).unwrap_or(u64::MAX)
    }

    /// Returns what remains if 64 bits are enough to compute it, as they usually are.
    #[inline]
    fn remaining_in_64_bits(&self, ahead: Exact) -> Option<u64> {
        // Most callers have a full bucket, which needs no division.
        if ahead == Exact::ZERO {
            return Some(self.burst);
        }
        // Cannot wrap: less than 2^33 µs (2.4 hours), times less than 2^30 parts, plus less than
        // one.
        if ahead.whole >= 1 << 33 {
            return None;
        }
        let parts = ahead.whole * u64::from(self.ratio.parts) + u64::from(ahead.part);
        Some(self.burst.saturating_sub(parts.div_ceil(self.ratio.micros)))
    }

    /// Returns a duration in units of 1/parts microseconds. For a time ahead, the same number is
    /// the units used times `micros`.
    fn parts(&self, duration: Exact) -> u128 {
        u128::from(duration.whole) * u128::from(self.ratio.parts) + u128::from(duration.part)
    }

    /// Returns the time until the bucket is full after spending `cost`, whatever remains.
    #[inline]
    fn spend(&self, ahead: Exact, cost: u64) -> Exact {
        let due = self.add(ahead, self.time_for(cost));
        // Debt is capped at a century. After a step back of the clock it may already be above the
        // cap; then it stays as it is.
        if due > self.debt_max { self.debt_max.max(ahead) } else { due }
    }

    /// Undoes a charge, given as time: the bucket is full that much earlier, but not before now.
    fn return_time(&self, cell: Cell, now: Time, returned: Exact) -> Cell {
        Self::full_in(self.saturating_sub(Self::ahead(cell, now), returned), now)
    }

    /// Converts the state of a bucket with other parameters, keeping the moment at which it is
    /// full. The fraction of a microsecond is rounded up to a multiple of 1/parts.
    pub(crate) fn adopt_recovery_time(&self, old: &Gcra, state: &mut Cell) -> Adopted {
        let full_at = Exact { whole: state.at, part: state.a };
        Self::rescale(state, Rescaling::of_recovery_time(old.ratio, self.ratio, full_at))
    }

    /// Writes the converted state.
    fn rescale(state: &mut Cell, rescaling: Rescaling) -> Adopted {
        let Exact { whole, part } = rescaling.full_at();
        *state = Cell { at: whole, a: part, b: state.b };
        Adopted::Rescaled(rescaling)
    }

    /// Returns the state of a key that has used `units` by now.
    pub(crate) fn with_used(&self, units: u64, now: Time) -> Cell {
        Self::full_in(self.time_for(units), now)
    }
}

/// A limit that is a bucket. Implementing this trait implements [`Algorithm`].
pub trait Bucket {
    /// `true` if allowed calls act at evenly spaced times instead of immediately.
    const PACED: bool = false;

    /// Returns the arithmetic.
    fn gcra(&self) -> &Gcra;

    /// Returns the state of an unseen key: a full bucket by default.
    fn unseen(&self, _now: Time) -> Cell {
        Cell::UNSEEN
    }

    /// Returns the state of an unseen key for computing waits. It differs from [`Bucket::unseen`]
    /// only before a bucket's `start`, when the bucket already holds `initial` but does not refill
    /// yet.
    fn unseen_for_waits(&self, now: Time) -> Cell {
        self.unseen(now)
    }

    /// Returns the state of a key, which may be unseen. The state is copied field by field, because
    /// copying the whole struct at once would stall if a field was just written.
    #[inline]
    fn current(&self, state: &Cell, now: Time) -> Cell {
        if state.b == SEEN { Cell { at: state.at, a: state.a, b: SEEN } } else { self.unseen(now) }
    }

    /// Returns the key's state for computing waits.
    #[inline]
    fn for_waits(&self, state: &Cell, now: Time) -> Cell {
        if state.b == SEEN { Cell { at: state.at, a: state.a, b: SEEN } } else { self.unseen_for_waits(now) }
    }
}

impl<B: Bucket> Algorithm for B {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u64 {
        self.gcra().burst
    }

    /// Handles only keys that have called, and only if 64 bits are enough. Computes `ahead` once.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Cell, now: Time, cost: u64) -> Result<Charged, NotCharged> {
        if state.b != SEEN {
            return Err(NotCharged::UNKNOWN);
        }
        let gcra = self.gcra();
        let ahead = Gcra::ahead(*state, now);
        let remaining = gcra.remaining_in_64_bits(ahead).ok_or(NotCharged::UNKNOWN)?;
        let remaining = remaining_after(remaining, cost)?;
        let delay = if Self::PACED { Span::from_micros(ahead.ceil()) } else { Span::ZERO };
        // At most `fill`, since no more than what remained is charged: there is no debt to cap.
        let due = gcra.add(ahead, gcra.time_for(cost));
        *state = Gcra::full_in(due, now);
        let reset_after = Span::from_micros(due.ceil());
        Ok(Charged { standing: Standing { limit: gcra.burst, remaining, reset_after }, delay })
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn remaining(&self, state: &Cell, now: Time) -> u64 {
        self.gcra().remaining(Gcra::ahead(self.current(state, now), now))
    }

    fn used(&self, state: &Cell, now: Time) -> u64 {
        self.gcra().used(Gcra::ahead(self.current(state, now), now))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        Span::from_micros(Gcra::ahead(self.for_waits(state, now), now).ceil())
    }

    #[inline]
    fn retry_after(&self, state: &Cell, now: Time, cost: u64) -> Span {
        let gcra = self.gcra();
        let due = gcra.add(Gcra::ahead(self.for_waits(state, now), now), gcra.time_for(cost));
        Span::from_micros(gcra.saturating_sub(due, gcra.fill).ceil())
    }

    #[inline]
    fn delay(&self, state: &Cell, now: Time) -> Span {
        // A paced call waits for its time slot: the moment at which the bucket would have been
        // full.
        if Self::PACED { self.reset_after(state, now) } else { Span::ZERO }
    }

    fn waiting(&self) -> Waiting {
        if Self::PACED { Waiting::Queue } else { Waiting::Borrow }
    }

    fn supports(&self, verb: Verb) -> bool {
        !(Self::PACED && matches!(verb, Verb::Refund | Verb::ReserveAtLeast))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn charge(&self, state: &mut Cell, now: Time, cost: u64) -> Span {
        let due = self.gcra().spend(Gcra::ahead(self.current(state, now), now), cost);
        *state = Gcra::full_in(due, now);
        Span::from_micros(due.ceil())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u64) -> bool {
        let (gcra, cell) = (self.gcra(), self.current(state, now));
        // A full bucket is left alone: moving `full_at` forward to now would make the bucket
        // stricter after a later step back.
        let returns = cost > 0 && Gcra::ahead(cell, now) > Exact::ZERO;
        if returns {
            *state = gcra.return_time(cell, now, gcra.time_for(cost));
        }
        returns
    }

    /// The stack is measured in time: its height is the moment at which the bucket is full.
    fn record(&self, state: &Cell, cost: u64, waited: bool) -> Charge {
        let height = Exact { whole: state.at, part: state.a };
        Charge { cost, stack: 0, height, waited: waited || Self::PACED }
    }

    /// The charge's height is the moment at which the bucket would have been full after the charge.
    /// At most the time from now until then is returned, because what has refilled since the charge
    /// must not be returned as well. A call that had to wait holds a time slot. Once a later call
    /// holds the next slot, returning this one would let two calls act at once, so nothing is
    /// returned.
    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        let Times { now, latest } = times;
        let (gcra, cell) = (self.gcra(), self.current(state, now));
        let later_is_charged = Exact { whole: cell.at, part: cell.a } > charge.height;
        if charge.waited && later_is_charged {
            return None;
        }
        let left = gcra.saturating_sub(charge.height, Exact::from_whole(now.max(latest).as_micros()));
        let returned = gcra.time_for(most).min(left).min(Gcra::ahead(cell, now));
        if returned == Exact::ZERO {
            return None;
        }
        *state = gcra.return_time(cell, now, returned);
        Some(Rollback { stack: 0, top: charge.height, bottom: gcra.saturating_sub(charge.height, returned) })
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        let gcra = self.gcra();
        let size = gcra.saturating_sub(rollback.top, rollback.bottom);
        charge.height = rollback.shift(charge.height, |height| gcra.saturating_sub(height, size));
    }

    fn cap_height(&self, state: &Cell, charge: &mut Charge) {
        charge.height = charge.height.min(Exact { whole: state.at, part: state.a });
    }

    /// Returns when a pacer's next time slot is free or, for other buckets, when the next whole
    /// unit is available.
    fn next_window(&self, state: &Cell, now: Time) -> Time {
        if Self::PACED {
            return now.saturating_add(self.reset_after(state, now));
        }
        let remaining = self.remaining(state, now);
        if remaining == self.limit() {
            now
        } else {
            now.saturating_add(self.retry_after(state, now, remaining + 1))
        }
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        // The last condition is for a bucket with `initial`: a key that was refunded until full
        // must not be dropped while an unseen key would hold less.
        let is_full = |cell| Gcra::ahead(cell, now) == Exact::ZERO;
        state.b != SEEN || is_full(*state) && is_full(self.unseen_for_waits(now))
    }

    #[inline]
    fn debt(&self, state: &Cell, now: Time) -> Option<Debt> {
        if self.is_idle(state, now) {
            return None;
        }
        let (ahead, ShareScale { shift, unit }) =
            (Gcra::ahead(self.for_waits(state, now), now), self.gcra().share);
        // Exact to 1 in 2^15, or to a microsecond; `recovers_in` breaks ties.
        let share = (ahead.whole >> shift).saturating_mul(u64::from(unit));
        // Rounded to the nearest, without a division: exact up to a burst of 2^14. At most 2^32
        // times a burst below 2^40 needs 128 bits. Always fits: at most the burst.
        let used = (u128::from(share.min(1 << 32)) * u128::from(self.gcra().burst) + (1 << 31)) >> 32;
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        // As in `is_idle`: a refunded key cannot be dropped before an unseen key would be full.
        let recovered = ahead.max(Gcra::ahead(self.unseen_for_waits(now), now));
        Some(Debt { share, used, recovers_in: Span::from_micros(recovered.ceil()) })
    }

    /// Keeps the units that are still used now, after refilling at the old rate. Their time is
    /// rounded up to a multiple of 1/parts microseconds. This changes no decision, because both
    /// sides of every comparison are such multiples.
    fn adopt(&self, old: &Self, state: &mut Cell, times: Times) -> Adopted {
        let (gcra, before) = (self.gcra(), old.gcra());
        if gcra.ratio == before.ratio {
            return Adopted::Kept;
        }
        if state.b != SEEN {
            return Adopted::Unseen;
        }
        let full_at = Exact { whole: state.at, part: state.a };
        // After a step back of the clock, `full_at` lies further ahead by the size of the step,
        // which must not count as usage. So usage is measured at the latest known time. That may
        // come from another key, so it is capped at `full_at`: no charge of this key is later.
        let at = times.now.max(times.latest.min(Time::saturating_from_micros(full_at.ceil())));
        Gcra::rescale(state, Rescaling::of_usage(before.ratio, gcra.ratio, at, full_at, gcra.debt_max))
    }
}
