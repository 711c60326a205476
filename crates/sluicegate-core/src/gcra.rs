//! The bucket's arithmetic: one moment says it all. Token bucket, leaky bucket, minimum interval and pacer are
//! this piece of code under four names.
//!
//! In plain words: a bucket holds `burst` units and a unit comes back every `period / count`. Instead of the
//! level we keep the moment at which the bucket will be full again. Spending moves that moment into the
//! future, waiting brings it nearer, and how far ahead it lies tells how much has been used. This is the
//! generic cell rate algorithm (GCRA); the moment is its "theoretical arrival time".
//!
//! ```text
//! Settings   interval = period / count        fill = interval * burst        (exact fractions of a microsecond)
//! State      full_at, in a Cell: at = whole microseconds, a = the rest as a number of 1/count microseconds,
//!            b = 1 once the key has called
//! Formula    ahead = max(full_at - now, 0)            what has been used, as time
//!            due   = ahead + interval * cost
//!            due <= fill    allow, and full_at becomes now + due
//!            otherwise      deny, and wait due - fill
//! Reports    remaining = floor(burst - ahead / interval)       reset_after = ahead
//!            (cost <= remaining says the same as due <= fill, as the cost is whole: the code asks the former)
//! Promise    any stretch of length w admits at most burst + w / interval units.
//! Rounding   none in the decision; waits are rounded up to a whole microsecond, remaining is rounded down.
//! Clock      a step back makes a bucket in use stricter by the step, until the clock has caught up.
//! Cost       a multiplication and a division or two; nothing runs in the background.
//!
//! Example    5 per second, burst 2: interval 200 ms, fill 400 ms. At t = 0 two calls pass (due 200 ms, 400 ms),
//!            the third would come to 600 ms and is told to wait 200 ms.
//! ```
//!
//! Why it cannot overflow: `fill` is at most a century (2^52 µs), debt and borrowing at most another, a time at
//! most 2^58 µs and a count below 2^30. Products that can exceed 64 bits are taken in 128.

use crate::algorithm::{Algorithm, Charged, Debt, NotCharged, Verb, Waiting, remaining_after};
use crate::bounds::{CENTURY, OutOfBounds, Rate};
use crate::cell::Cell;
use crate::decision::Standing;
use crate::pile::{Charge, Cut, Times};
use crate::time::{DAY, Exact, Span, Time};

/// Longer than any length that matters, and short enough to add to any moment.
const LONGEST: u64 = 1 << 60;

/// `b` of a cell whose key has called, so that a bucket full at the very epoch differs from an unseen one.
const SEEN: u32 = 1;

/// How a limit speaks of what it holds, for errors in the reader's language.
pub(crate) struct Holds {
    /// What takes too long.
    pub(crate) time: &'static str,
    /// What to do about it.
    pub(crate) advice: &'static str,
}

/// The arithmetic of a bucket that refills at `rate` and holds at most `burst`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gcra {
    rate: Rate,
    burst: u32,
    interval: Exact,
    fill: Exact,
    /// Full, and a century of debt.
    deepest: Exact,
    share: Share,
}

/// What it takes to tell shares of a bucket without a division: the time to fill it is some 2^16 units, or fewer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Share {
    /// A unit is 2^shift microseconds.
    shift: u32,
    /// What share of 2^32 a unit is.
    unit: u32,
}

impl Share {
    fn of(fill: Exact) -> Share {
        let shift = (u64::BITS - fill.whole.leading_zeros()).saturating_sub(16);
        // Cannot be cut: 2^32 / 2 at the most, as a bucket of a single unit is counted as two.
        Share { shift, unit: u32::try_from((1 << 32) / (fill.whole >> shift).max(2)).unwrap_or(u32::MAX) }
    }
}

impl Gcra {
    /// The arithmetic for a rate and a burst of at least 1, which `holds` names in the words of the limit.
    pub(crate) fn new(rate: Rate, burst: u32, holds: &Holds) -> Result<Gcra, OutOfBounds> {
        let (count, period) = (u64::from(rate.count()), rate.period().as_micros());
        // Cannot be cut: a remainder is below the count, which is below 2^30.
        let part = u32::try_from(period % count).unwrap_or(u32::MAX);
        let interval = Exact { whole: period / count, part };
        let mut gcra = Gcra {
            rate,
            burst,
            interval,
            fill: Exact::ZERO,
            deepest: Exact::ZERO,
            share: Share { shift: 0, unit: 0 },
        };
        gcra.fill = gcra.time_for(burst);
        gcra.share = Share::of(gcra.fill);
        gcra.deepest = gcra.add(gcra.fill, Exact::from_whole(CENTURY.as_micros()));
        if gcra.fill > Exact::from_whole(CENTURY.as_micros()) {
            // In whole days, rounded up: as microseconds it might not fit.
            let micros = (u128::from(burst) * u128::from(period)).div_ceil(u128::from(count));
            let days = u64::try_from(micros.div_ceil(u128::from(DAY))).unwrap_or(u64::MAX);
            return Err(
                OutOfBounds::above(holds.time, days, CENTURY.as_micros() / DAY, holds.advice).in_days()
            );
        }
        Ok(gcra)
    }

    /// The most it holds.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// `interval * units`, exact up to [`LONGEST`], which only limits about to be refused and the huge costs of
    /// refunds and settlements reach.
    #[inline]
    fn time_for(&self, units: u32) -> Exact {
        if units == 1 {
            return self.interval;
        }
        let (units, count) = (u64::from(units), u64::from(self.rate.count()));
        // Cannot wrap: units < 2^32 and part < 2^30.
        let parts = units * u64::from(self.interval.part);
        let whole = self.interval.whole.saturating_mul(units).saturating_add(parts / count).min(LONGEST);
        Exact { whole, part: u32::try_from(parts % count).unwrap_or(u32::MAX) }
    }

    /// The sum of two lengths, or of a moment and a length.
    #[inline]
    fn add(&self, left: Exact, right: Exact) -> Exact {
        // Cannot wrap: lengths are at most 2^60 and moments below 2^59; both parts are below the count, below 2^30.
        let (whole, part) = (left.whole + right.whole, left.part + right.part);
        match part.checked_sub(self.rate.count()) {
            Some(part) => Exact { whole: whole + 1, part },
            None => Exact { whole, part },
        }
    }

    /// `left - right`, or zero.
    #[inline]
    fn less(&self, left: Exact, right: Exact) -> Exact {
        if left <= right {
            return Exact::ZERO;
        }
        // Cannot wrap: left > right, and a borrow is taken only when left's part is the smaller one.
        if left.part >= right.part {
            Exact { whole: left.whole - right.whole, part: left.part - right.part }
        } else {
            Exact { whole: left.whole - right.whole - 1, part: left.part + self.rate.count() - right.part }
        }
    }

    /// How far the bucket is from full, as time.
    #[inline]
    fn ahead(cell: Cell, now: Time) -> Exact {
        match cell.at.checked_sub(now.as_micros()) {
            Some(whole) => Exact { whole, part: cell.a },
            None => Exact::ZERO,
        }
    }

    /// The state whose bucket is full that long after `now`.
    #[inline]
    fn full_in(ahead: Exact, now: Time) -> Cell {
        // Cannot wrap: a moment below 2^58 and a length of at most 2^60.
        Cell { at: now.as_micros() + ahead.whole, a: ahead.part, b: SEEN }
    }

    /// What remains of the burst with that much of it used: `burst - ceil(ahead / interval)`.
    #[inline]
    fn remaining(&self, ahead: Exact) -> u32 {
        self.remaining_in_64_bits(ahead).unwrap_or_else(|| {
            let used = self.parts(ahead).div_ceil(u128::from(self.rate.period().as_micros()));
            u32::try_from(used).map_or(0, |used| self.burst.saturating_sub(used))
        })
    }

    /// The same in the common case: `None` if it takes more than 64 bits to tell.
    #[inline]
    fn remaining_in_64_bits(&self, ahead: Exact) -> Option<u32> {
        // A full bucket, as that of most callers is, needs no division.
        if ahead == Exact::ZERO {
            return Some(self.burst);
        }
        // Cannot wrap: below 2^33 µs (2.4 hours) ahead, times a count below 2^30, and a part below the count.
        if ahead.whole >= 1 << 33 {
            return None;
        }
        let parts = ahead.whole * u64::from(self.rate.count()) + u64::from(ahead.part);
        let used = parts.div_ceil(self.rate.period().as_micros());
        // Cannot be cut: it is at most the burst.
        u32::try_from(u64::from(self.burst).saturating_sub(used)).ok()
    }

    /// A length as a number of 1/count microseconds, which is also units used times the period.
    fn parts(&self, length: Exact) -> u128 {
        u128::from(length.whole) * u128::from(self.rate.count()) + u128::from(length.part)
    }

    /// How far the bucket is from full after spending `cost` in any case.
    #[inline]
    fn spend(&self, ahead: Exact, cost: u32) -> Exact {
        let due = self.add(ahead, self.time_for(cost));
        // No debt is added beyond a century; after a step back of the clock the bucket may already be deeper.
        if due > self.deepest { self.deepest.max(ahead) } else { due }
    }

    /// Brings the full moment `give` nearer, but not before now.
    fn bring_nearer(&self, cell: Cell, now: Time, give: Exact) -> Cell {
        Self::full_in(self.less(Self::ahead(cell, now), give), now)
    }

    /// Keeps the moment at which a bucket of other numbers is full. The part of a microsecond is rounded up to 1/count of one.
    pub(crate) fn adopt_time(&self, old: &Gcra, state: &mut Cell) {
        let (count, old_count) = (u64::from(self.rate.count()), u64::from(old.rate.count()));
        // Cannot wrap: both factors are below 2^30. A part is below its count, so the quotient is at most the new count.
        let part = (u64::from(state.a) * count).div_ceil(old_count);
        let carried = part == count;
        state.at += u64::from(carried);
        state.a = if carried { 0 } else { u32::try_from(part).unwrap_or(u32::MAX) };
    }

    /// The state of a key that has used `units` by now.
    pub(crate) fn with_used(&self, units: u32, now: Time) -> Cell {
        Self::full_in(self.time_for(units), now)
    }
}

/// A limit that is a bucket. Implementing this gives it all of [`Algorithm`].
pub trait Bucket {
    /// Whether allowed calls leave one after another instead of at once.
    const PACED: bool = false;

    /// The arithmetic.
    fn gcra(&self) -> &Gcra;

    /// The state of a key that has never called: a full bucket, unless the limit says otherwise.
    fn unseen(&self, _now: Time) -> Cell {
        Cell::UNSEEN
    }

    /// The same for telling waits. It differs before a bucket's start: what it holds it holds already, but what it
    /// is going to hold comes only after the start.
    fn unseen_for_waits(&self, now: Time) -> Cell {
        self.unseen(now)
    }

    /// The key's state, whether or not it has called. (Field by field: a copy of the whole would have to wait for its
    /// fields if they were just written.)
    #[inline]
    fn current(&self, state: &Cell, now: Time) -> Cell {
        if state.b == SEEN { Cell { at: state.at, a: state.a, b: SEEN } } else { self.unseen(now) }
    }

    /// The key's state for telling waits.
    #[inline]
    fn for_waits(&self, state: &Cell, now: Time) -> Cell {
        if state.b == SEEN { Cell { at: state.at, a: state.a, b: SEEN } } else { self.unseen_for_waits(now) }
    }
}

impl<B: Bucket> Algorithm for B {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u32 {
        self.gcra().burst
    }

    /// Works out only once how far the bucket is from full, for a key that has called and in 64 bits.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Cell, now: Time, cost: u32) -> Result<Charged, NotCharged> {
        if state.b != SEEN {
            return Err(NotCharged::UNKNOWN);
        }
        let gcra = self.gcra();
        let ahead = Gcra::ahead(*state, now);
        let remaining = gcra.remaining_in_64_bits(ahead).ok_or(NotCharged::UNKNOWN)?;
        let remaining = remaining_after(remaining, cost)?;
        let delay = if Self::PACED { Span::from_micros(ahead.up()) } else { Span::ZERO };
        // At most `fill`, as that much remains: there is no debt to bound.
        let due = gcra.add(ahead, gcra.time_for(cost));
        *state = Gcra::full_in(due, now);
        let reset_after = Span::from_micros(due.up());
        Ok(Charged { standing: Standing { limit: gcra.burst, remaining, reset_after }, delay })
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn remaining(&self, state: &Cell, now: Time) -> u32 {
        self.gcra().remaining(Gcra::ahead(self.current(state, now), now))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        Span::from_micros(Gcra::ahead(self.for_waits(state, now), now).up())
    }

    #[inline]
    fn retry_after(&self, state: &Cell, now: Time, cost: u32) -> Span {
        let gcra = self.gcra();
        let due = gcra.add(Gcra::ahead(self.for_waits(state, now), now), gcra.time_for(cost));
        Span::from_micros(gcra.less(due, gcra.fill).up())
    }

    #[inline]
    fn delay(&self, state: &Cell, now: Time) -> Span {
        // A paced call waits for its slot: the moment at which the bucket was full before it came.
        if Self::PACED { self.reset_after(state, now) } else { Span::ZERO }
    }

    fn waiting(&self) -> Waiting {
        if Self::PACED { Waiting::Queue } else { Waiting::Borrow }
    }

    fn offers(&self, verb: Verb) -> bool {
        !(Self::PACED && verb == Verb::Refund)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn charge(&self, state: &mut Cell, now: Time, cost: u32) -> Span {
        let due = self.gcra().spend(Gcra::ahead(self.current(state, now), now), cost);
        *state = Gcra::full_in(due, now);
        Span::from_micros(due.up())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u32) -> bool {
        let (gcra, cell) = (self.gcra(), self.current(state, now));
        // A full bucket stays as it is: moving its full moment up to now would make a later step back stricter.
        let gives = cost > 0 && Gcra::ahead(cell, now) > Exact::ZERO;
        if gives {
            *state = gcra.bring_nearer(cell, now, gcra.time_for(cost));
        }
        gives
    }

    /// The pile is measured in time: its height is the moment at which the bucket is full.
    fn record(&self, state: &Cell, cost: u32, waited: bool) -> Charge {
        let height = Exact { whole: state.at, part: state.a };
        Charge { cost, pile: 0, height, waited: waited || Self::PACED }
    }

    /// What has leaked since the charge is not given twice: at most what lies between now and the moment that
    /// the charge made the bucket full at. A call that had to wait holds a place in line: once a later one
    /// stands behind it, giving the place back would let two act at once, so nothing is returned.
    fn give_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u32) -> Option<Cut> {
        let Times { now, latest } = times;
        let (gcra, cell) = (self.gcra(), self.current(state, now));
        let later_is_charged = Exact { whole: cell.at, part: cell.a } > charge.height;
        if charge.waited && later_is_charged {
            return None;
        }
        let left = gcra.less(charge.height, Exact::from_whole(now.max(latest).as_micros()));
        let give = gcra.time_for(most).min(left).min(Gcra::ahead(cell, now));
        if give == Exact::ZERO {
            return None;
        }
        *state = gcra.bring_nearer(cell, now, give);
        Some(Cut { pile: 0, top: charge.height, bottom: gcra.less(charge.height, give) })
    }

    fn close_gap(&self, cut: &Cut, charge: &mut Charge) {
        let gcra = self.gcra();
        let size = gcra.less(cut.top, cut.bottom);
        charge.height = cut.lower(charge.height, |height| gcra.less(height, size));
    }

    fn lower_to(&self, state: &Cell, charge: &mut Charge) {
        charge.height = charge.height.min(Exact { whole: state.at, part: state.a });
    }

    /// A pacer's next free slot; otherwise when the next whole usable unit is there.
    fn next_window(&self, state: &Cell, now: Time) -> Time {
        if Self::PACED {
            return now.after(self.reset_after(state, now));
        }
        let remaining = self.remaining(state, now);
        if remaining == self.limit() { now } else { now.after(self.retry_after(state, now, remaining + 1)) }
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        // The second half matters to a bucket that starts empty: a key refunded to full must not be forgotten
        // while an unseen one would still hold less.
        let is_full = |cell| Gcra::ahead(cell, now) == Exact::ZERO;
        state.b != SEEN || is_full(*state) && is_full(self.unseen_for_waits(now))
    }

    #[inline]
    fn debt(&self, state: &Cell, now: Time) -> Option<Debt> {
        if self.is_idle(state, now) {
            return None;
        }
        let (ahead, Share { shift, unit }) =
            (Gcra::ahead(self.for_waits(state, now), now), self.gcra().share);
        // Good to a 2^15th, or to a microsecond; the time to recover tells the rest.
        let share = (ahead.whole >> shift).saturating_mul(u64::from(unit));
        // As for `is_idle`: one that was given something back while others are still filling waits for them.
        let recovered = ahead.max(Gcra::ahead(self.unseen_for_waits(now), now));
        Some(Debt { share, recovers_in: Span::from_micros(recovered.up()) })
    }

    /// Keeps the units used, leaked at the old rate until now. The debt is rounded up to 1/count of a microsecond, which
    /// no decision can tell: both sides of its comparisons are whole numbers of those.
    fn adopt(&self, old: &Self, state: &mut Cell, times: Times) {
        let (gcra, before) = (self.gcra(), old.gcra());
        if gcra.rate == before.rate || state.b != SEEN {
            return;
        }
        // After a step back `full_at` lies further ahead by the step, which is no use at the old rate. The latest time known
        // may be another key's; this key was charged no later than it is full.
        let at = times.now.max(times.latest.min(Time::saturating_from_micros(state.at)));
        let used_periods = before.parts(Gcra::ahead(*state, at));
        let old_period = u128::from(before.rate.period().as_micros());
        let period = u128::from(gcra.rate.period().as_micros());
        // units used = used_periods / old_period; as parts of a microsecond at the new rate: units * period.
        let most = gcra.parts(gcra.deepest);
        let parts = (used_periods / old_period)
            .checked_mul(period)
            // Cannot wrap: a remainder below 2^49 times a period below 2^49.
            .and_then(|parts| parts.checked_add((used_periods % old_period * period).div_ceil(old_period)))
            .map_or(most, |parts| parts.min(most));
        let count = u128::from(gcra.rate.count());
        let ahead = Exact {
            whole: u64::try_from(parts / count).unwrap_or(u64::MAX),
            part: u32::try_from(parts % count).unwrap_or(u32::MAX),
        };
        *state = Gcra::full_in(ahead, at);
    }
}
