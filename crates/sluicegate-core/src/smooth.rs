//! Smooth: Guava's `RateLimiter`, where the next caller pays.
//!
//! There is one moment, `next`, at which the next call may go. A call goes at `next` whatever it
//! costs, and moves `next` on by the time that its cost takes at the rate. So a large call is never
//! denied for its size, and the calls after it wait. Unused time is stored as permits, which later
//! calls take first. Under `SmoothBursty` stored permits are free, and one second's worth is stored
//! by default. Under `SmoothWarmingUp` (`warmup=`) stored permits mean that the dependency has gone
//! cold: they cost more than fresh ones, and an idle limiter starts slowly:
//!
//! ```text
//! time per permit                          smooth 10/s warmup=4s
//!      cold 300 ms |                   /   the area under the line is time:
//!                  |                 /     from 40 down to 20 permits takes the warm-up, 4 s,
//!                  |               /       from 20 down to 0 half of that
//!    stable 100 ms |--------------'
//!                  0             20    40  stored permits
//!                            threshold max
//! ```
//!
//! ```text
//! Settings   rate = count * 1e6 / period (per second)   stable = 1e6 / rate
//!            initial = the permits at `start`
//!            bursty    max = burst (default: one second's worth, `rate`)   cool_down = stable
//!                      initial defaults to 0
//!            warming   cold = stable * cold factor   threshold = 0.5 * warmup / stable
//!                      max = threshold + 2 * warmup / (stable + cold)
//!                      slope = (cold - stable) / (max - threshold)
//!                      cool_down = warmup / max   initial defaults to max
//! State      in a Cell: at = next + 1, so that zeros are an unseen key; a and b = the low and the
//!            high half of the bits of `stored`
//! Formula    resync   if now > next:
//!                     stored = min(max, stored + (now - next) / cool_down), next = now
//!            a check is allowed if next <= now; one with a maximum wait if next - now is at most
//!            that, which is then its delay
//!            charge   take = min(cost, stored)   fresh = cost - take
//!                     next += time_of(stored, take) + trunc(fresh * stable)   stored -= take
//!            time_of  bursty: 0.   warming, where above = stored - threshold > 0,
//!                     high = min(above, take) and at(x) = stable + x * slope:
//!                     trunc(high * (at(above) + at(above - high)) / 2)
//!                     + trunc(stable * (take - high))
//! Reports    limit = floor(max)   remaining = floor(stored)   retry_after = next - now
//!            reset_after = max(next, now) - now + ceil((max - stored) * cool_down)
//! Never      no cost is too large. (So `cost <= remaining` does not decide here: see
//!            `Algorithm::admits`.)
//! Promise    two allowed calls are at least as far apart as the time that the first one's fresh
//!            permits take.
//! Rounding   Guava's, in f64: the time of a call is truncated to whole microseconds, twice with a
//!            warm-up.
//! Clock      a step back leaves `next` where it is: calls are denied, or wait, until the clock is
//!            back there.
//! Cost       16 bytes per key; a handful of multiplications and divisions per decision.
//! Unseen     an unseen key behaves as if created at `start`; before `start`, as if created now.
//!
//! Example    10/s: the first call goes immediately, the second 100 ms later. After an idle second,
//!            ten go at once.
//! Reference  com.google.common.util.concurrent.SmoothRateLimiter, Guava 31.1; the names are its
//!            own, shortened.
//! ```
//!
//! One thing differs from Guava: `next` is at most a century away, like the debt of a bucket, so
//! that nothing overflows and one huge cost cannot lock a key out for good. This is the only file
//! of the core with floats.

#![allow(clippy::float_arithmetic, reason = "Guava's arithmetic is in doubles, and this must match it")]

use crate::algorithm::{Algorithm, Charged, NotCharged, Verb, Waiting};
use crate::bounds::{CENTURY, COUNT_ADVICE, OutOfBounds, Rate, STORED_MAX, checked_number, checked_period};
use crate::cell::Cell;
use crate::decision::Standing;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{DAY, Span, Time};
use core::fmt;

/// The smooth limiter. Pick it to replace Guava's `RateLimiter`, for callers that wait rather than
/// retry, or for a dependency that has to warm up before it can take its full rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Smooth {
    /// The time of a fresh permit, in microseconds.
    stable: f64,
    /// The most permits that are stored.
    max: f64,
    /// The time that it takes to store a permit, in microseconds.
    cool_down: f64,
    /// The price of stored permits, if they are not free.
    warm_up: Option<Slope>,
    /// The permits that a key has stored at the start.
    initial: f64,
    start: Time,
    /// The whole part of `max`.
    limit: u64,
}

/// The price of stored permits: up to the threshold that of fresh ones, above it more and more.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Slope {
    threshold: f64,
    /// By how much the time of each permit above the threshold exceeds that of the previous one, in
    /// µs.
    slope: f64,
}

/// How an idle limiter comes up to its rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WarmUp {
    /// The time from cold to the full rate under load, and from there back to cold when idle.
    pub period: Span,
    /// How many times longer a permit takes when cold.
    pub cold: ColdFactor,
}

/// How many times longer a permit takes when the limiter is cold: 1 to 1000, with up to three
/// decimals. It is kept exactly, so that a limit can be printed and compared. Guava's is 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColdFactor(u32);

impl ColdFactor {
    /// Guava's factor, 3.
    pub const DEFAULT: ColdFactor = ColdFactor(3_000);

    /// Creates a factor from thousandths. Returns `None` below 1 or above 1000.
    pub const fn from_thousandths(thousandths: u32) -> Option<ColdFactor> {
        match thousandths {
            1_000..=1_000_000 => Some(ColdFactor(thousandths)),
            _ => None,
        }
    }

    /// Returns the factor in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns the nearest double, as if parsed from text: both operands are exact, so it is
    /// rounded once.
    fn double(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for ColdFactor {
    /// Writes only the decimals that are needed: `3`, `2.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut part, mut places) = (self.0 / 1_000, self.0 % 1_000, 3);
        if part == 0 {
            return write!(f, "{whole}");
        }
        while part.is_multiple_of(10) {
            (part, places) = (part / 10, places - 1);
        }
        write!(f, "{whole}.{part:0places$}")
    }
}

/// All parameters of a limiter, for scripts that decide elsewhere. Times are in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameters {
    /// The time of a fresh permit.
    pub stable: f64,
    /// The most permits that are stored.
    pub max: f64,
    /// The time that it takes to store a permit.
    pub cool_down: f64,
    /// With a warm-up: the threshold and the slope above it.
    pub warm_up: Option<(f64, f64)>,
    /// The permits that a key has stored at the start.
    pub initial: f64,
    /// When the limiter was created.
    pub start: Time,
}

/// A key's stored permits, and when its next call may go.
#[derive(Clone, Copy)]
struct Permits {
    /// When the next call may go, in microseconds.
    next: u64,
    /// The permits that are stored.
    stored: f64,
}

impl Smooth {
    /// Creates Guava's `SmoothBursty`: it stores `burst` permits (one second's worth by default),
    /// which cost nothing. A key starts with none, at the epoch.
    ///
    /// # Errors
    /// If the burst is 0, if it or one second's worth is above [`STORED_MAX`], or if storing it
    /// would take more than a century.
    pub fn bursty(rate: Rate, burst: Option<u64>) -> Result<Smooth, OutOfBounds> {
        let per_second = permits_per_second(rate);
        let max = match burst {
            Some(burst) => double(checked_burst(rate, burst)?),
            None => per_second,
        };
        let limit = whole_permits("a second's worth", max, "add burst=N with fewer, or use a slower rate")?;
        let stable = 1e6 / per_second;
        Ok(Smooth { stable, max, cool_down: stable, warm_up: None, initial: 0.0, start: Time::EPOCH, limit })
    }

    /// Creates Guava's `SmoothWarmingUp`. A key starts cold, at the epoch.
    ///
    /// # Errors
    /// If the warm-up is 0 or above [`crate::bounds::PERIOD_MAX`], or would store more than
    /// [`STORED_MAX`] permits.
    pub fn warming_up(rate: Rate, WarmUp { period, cold }: WarmUp) -> Result<Smooth, OutOfBounds> {
        let micros = double(checked_period("warmup", period)?.as_micros());
        let stable = 1e6 / permits_per_second(rate);
        let cold = stable * cold.double();
        let threshold = 0.5 * micros / stable;
        let max = threshold + 2.0 * micros / (stable + cold);
        let limit =
            whole_permits("the number of permits stored", max, "use a shorter warmup, or a slower rate")?;
        let slope = (cold - stable) / (max - threshold);
        let (warm_up, cool_down) = (Some(Slope { threshold, slope }), micros / max);
        Ok(Smooth { stable, max, cool_down, warm_up, initial: max, start: Time::EPOCH, limit })
    }

    /// Sets the permits that an unseen key has stored at the start.
    ///
    /// # Errors
    /// If that is more than is ever stored.
    pub fn starting_with(self, permits: u64) -> Result<Smooth, OutOfBounds> {
        if permits > self.limit {
            let advice = "no more than that is ever stored, use that or less";
            return Err(OutOfBounds::above("initial", permits, self.limit, advice));
        }
        Ok(Smooth { initial: double(permits), ..self })
    }

    /// Sets the moment at which the limiter was created: Guava's clock starts there.
    #[must_use]
    pub const fn starting_at(self, start: Time) -> Smooth {
        Smooth { start, ..self }
    }

    /// Returns all parameters.
    pub fn parameters(&self) -> Parameters {
        let Smooth { stable, max, cool_down, warm_up, initial, start, .. } = *self;
        let warm_up = warm_up.map(|Slope { threshold, slope }| (threshold, slope));
        Parameters { stable, max, cool_down, warm_up, initial, start }
    }

    /// Returns the state of a key from the moment of its next call and its stored permits.
    pub fn state_of(next: Time, stored: f64) -> Cell {
        encode(Permits { next: next.as_micros(), stored })
    }

    /// Returns when the next call of a key may go, in microseconds, and its stored permits; `None`
    /// for an unseen key.
    pub fn next_and_stored(state: &Cell) -> Option<(u64, f64)> {
        decode(state).map(|Permits { next, stored }| (next, stored))
    }

    /// Returns the permits of a key created at a moment.
    #[inline]
    fn created(&self, at: Time) -> Permits {
        Permits { next: at.as_micros(), stored: self.initial }
    }

    /// Returns the key's permits as of now, whether or not it has called.
    #[inline]
    fn permits(&self, state: &Cell, now: Time) -> Permits {
        // Before the start an unseen key is as if created now: it has nothing to wait for.
        self.resync(decode(state).unwrap_or_else(|| self.created(self.start.min(now))), now)
    }

    /// Stores the permits of the time that has passed unused.
    #[inline]
    fn resync(&self, Permits { next, stored }: Permits, now: Time) -> Permits {
        match now.as_micros().checked_sub(next) {
            Some(unused) if unused > 0 => Permits {
                next: now.as_micros(),
                stored: self.max.min(stored + double(unused) / self.cool_down),
            },
            _ => Permits { next, stored },
        }
    }

    /// Moves `next` on by the time of a cost.
    #[inline]
    fn spend(&self, Permits { next, stored }: Permits, now: Time, cost: u64) -> Permits {
        let take = stored.min(double(cost));
        let fresh = double(cost) - take;
        let wait = self.time_of(stored, take).saturating_add(truncated(fresh * self.stable));
        // Cannot wrap: a moment is below 2^58 and a century below 2^52. After a step back `next`
        // may already be further away.
        let latest = next.max(now.as_micros() + CENTURY.as_micros());
        Permits { next: next.saturating_add(wait).min(latest), stored: stored - take }
    }

    /// Returns the time of taking stored permits, in microseconds.
    #[inline]
    fn time_of(&self, stored: f64, take: f64) -> u64 {
        let Some(Slope { threshold, slope }) = self.warm_up else { return 0 };
        let above = stored - threshold;
        if above <= 0.0 {
            return truncated(self.stable * take);
        }
        let at = |permits: f64| self.stable + permits * slope;
        let high = above.min(take);
        let length = at(above) + at(above - high);
        truncated(high * length / 2.0).saturating_add(truncated(self.stable * (take - high)))
    }

    /// Returns the time until as many permits are stored as can be.
    #[inline]
    fn full_in(&self, Permits { next, stored }: Permits, now: Time) -> Span {
        let wait = next.saturating_sub(now.as_micros());
        Span::from_micros(wait.saturating_add(rounded_up((self.max - stored) * self.cool_down)))
    }

    /// Returns the integer part of the stored permits.
    #[inline]
    fn whole(&self, permits: Permits) -> u64 {
        // After a change of parameters the last bit may be too high.
        whole(permits.stored).min(self.limit)
    }

    fn is_full(&self, permits: Permits, now: Time) -> bool {
        permits.stored >= self.max && permits.next <= now.as_micros()
    }
}

/// Decodes a state; `None` for an unseen key.
#[inline]
fn decode(state: &Cell) -> Option<Permits> {
    let next = state.at.checked_sub(1)?;
    Some(Permits { next, stored: f64::from_bits(state.number()) })
}

#[inline]
fn encode(Permits { next, stored }: Permits) -> Cell {
    // Cannot wrap: a moment plus a century is below 2^59.
    Cell::of_number(next + 1, stored.to_bits())
}

impl Algorithm for Smooth {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    /// Any cost is allowed once `next` has come. The stored permits only determine how long later
    /// calls wait.
    #[inline]
    fn admits(&self, state: &Cell, now: Time, cost: u64, _remaining: u64) -> bool {
        cost == 0 || self.permits(state, now).next <= now.as_micros()
    }

    #[inline]
    fn never_admits(&self, _cost: u64) -> bool {
        false
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Cell, now: Time, cost: u64) -> Result<Charged, NotCharged> {
        let permits = self.permits(state, now);
        if cost == 0 || permits.next > now.as_micros() {
            return Err(NotCharged::UNKNOWN);
        }
        let permits = self.spend(permits, now, cost);
        *state = encode(permits);
        let (remaining, reset_after) = (self.whole(permits), self.full_in(permits, now));
        let standing = Standing { limit: self.limit, remaining, reset_after };
        Ok(Charged { standing, delay: Span::ZERO })
    }

    /// Returns the integer part of the stored permits.
    #[inline]
    fn remaining(&self, state: &Cell, now: Time) -> u64 {
        self.whole(self.permits(state, now))
    }

    /// Returns the whole permits that are not stored.
    fn used(&self, state: &Cell, now: Time) -> u64 {
        self.limit.saturating_sub(self.remaining(state, now))
    }

    /// Before the start, an unseen key's time includes the time until then.
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        let permits = decode(state).unwrap_or_else(|| self.created(self.start));
        self.full_in(self.resync(permits, now), now)
    }

    fn retry_after(&self, state: &Cell, now: Time, _cost: u64) -> Span {
        Span::from_micros(self.permits(state, now).next.saturating_sub(now.as_micros()))
    }

    fn waiting(&self) -> Waiting {
        Waiting::NextCallerPays
    }

    /// The price of permits stored by a warm-up is not known afterwards, so they cannot be
    /// refunded.
    fn supports(&self, verb: Verb) -> bool {
        match verb {
            Verb::CheckWithin => true,
            Verb::Refund => self.warm_up.is_none(),
            Verb::Take | Verb::Reserve | Verb::ReserveAtLeast => false,
        }
    }

    fn charge(&self, state: &mut Cell, now: Time, cost: u64) -> Span {
        let permits = self.spend(self.permits(state, now), now, cost);
        *state = encode(permits);
        self.full_in(permits, now)
    }

    /// Stores permits. The wait of the next call is not shortened.
    fn refund(&self, state: &mut Cell, now: Time, cost: u64) -> bool {
        let permits = self.permits(state, now);
        // A full key is left alone: moving `next` up to now would make a later step back stricter.
        let returns = cost > 0 && permits.stored < self.max;
        if returns {
            *state = encode(Permits { stored: self.max.min(permits.stored + double(cost)), ..permits });
        }
        returns
    }

    /// Records what was stored before the charge, and the `next` after it.
    fn charge_and_record(&self, state: &mut Cell, now: Time, cost: u64) -> Charge {
        let before = self.permits(state, now);
        *state = encode(self.spend(before, now, cost));
        Charge::on_stack(cost, before.stored.to_bits(), state.at)
    }

    /// There are no receipts: `reserve` is not supported.
    fn record(&self, _state: &Cell, cost: u64, _waited: bool) -> Charge {
        Charge::on_stack(cost, 0, 0)
    }

    /// Rolls back a dequeued waiter that has gone away. If it was the last call, its charge is
    /// undone. If other calls went at the same moment, the permits that it took are stored again.
    /// If a call went later, that one has already waited for the cost, and nothing is returned.
    fn roll_back(&self, state: &mut Cell, _times: Times, charge: &Charge, _most: u64) -> Option<Rollback> {
        let stored = f64::from_bits(charge.stack);
        let take = stored.min(double(charge.cost));
        let fresh = double(charge.cost) - take;
        let wait = self.time_of(stored, take).saturating_add(truncated(fresh * self.stable));
        let next = charge.height.whole.checked_sub(1)?;
        let is_last = *state == encode(Permits { next, stored: stored - take });
        // A debt that was capped at a century does not tell what preceded it.
        if is_last && wait < CENTURY.as_micros() {
            *state = encode(Permits { next: next.checked_sub(wait)?, stored });
        } else if state.at == charge.height.whole && wait == 0 {
            // Permits stored since then are not in the state yet, so they are not returned twice.
            let now = decode(state)?;
            *state = encode(Permits { stored: self.max.min(now.stored + take), ..now });
        } else {
            return None;
        }
        Some(Rollback { stack: charge.stack, top: charge.height, bottom: charge.height })
    }

    fn shift_down(&self, _cut: &Rollback, _charge: &mut Charge) {}

    fn cap_height(&self, _state: &Cell, _charge: &mut Charge) {}

    fn next_window(&self, state: &Cell, now: Time) -> Time {
        now.saturating_add(self.retry_after(state, now, 1))
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        // The second half matters while an unseen key would hold less, or would have to wait.
        let is_full = |permits| self.is_full(self.resync(permits, now), now);
        decode(state).is_none_or(|permits| is_full(permits) && is_full(self.created(self.start)))
    }

    /// Guava's `setRate`, applied at the key's next call: permits until then are stored at the old
    /// rate, the stored permits keep their share of the maximum, and the wait of the next call
    /// stays. This also holds if only one of the two limits has a warm-up. (Guava's special cases,
    /// a maximum of 0 or infinity, do not occur here.)
    fn adopt(&self, old: &Self, state: &mut Cell, Times { now, .. }: Times) -> Adopted {
        // Even the last bit stays, as if the limits had not changed in between.
        if self != old
            && let Some(permits) = decode(state)
        {
            let permits = old.resync(permits, now);
            // In Guava's order of operations; the last bit may exceed the new maximum, as there.
            *state = encode(Permits { stored: permits.stored * self.max / old.max, ..permits });
        }
        Adopted::Kept
    }
}

/// Returns the permits per second.
fn permits_per_second(rate: Rate) -> f64 {
    // Both operands are exact below a count of 2^53 / 10^6; above that the product is rounded once.
    double(rate.count()) * 1e6 / double(rate.period().as_micros())
}

/// Checks that a burst does not take longer than a century to store.
fn checked_burst(rate: Rate, burst: u64) -> Result<u64, OutOfBounds> {
    let burst = checked_number("burst", burst, (1, STORED_MAX), COUNT_ADVICE)?;
    let micros =
        (u128::from(burst) * u128::from(rate.period().as_micros())).div_ceil(u128::from(rate.count()));
    if micros <= u128::from(CENTURY.as_micros()) {
        return Ok(burst);
    }
    let days = u64::try_from(micros.div_ceil(u128::from(DAY))).unwrap_or(u64::MAX);
    let advice = "use a smaller burst, or a faster rate";
    Err(OutOfBounds::above("time to store the burst", days, CENTURY.as_micros() / DAY, advice).in_days())
}

/// Returns the integer part of the most permits that can be stored.
fn whole_permits(what: &'static str, permits: f64, advice: &'static str) -> Result<u64, OutOfBounds> {
    if permits > double(STORED_MAX) {
        return Err(OutOfBounds::above(what, truncated(permits), STORED_MAX, advice));
    }
    Ok(whole(permits))
}

/// Returns the integer part of a number of permits.
#[inline]
fn whole(permits: f64) -> u64 {
    truncated(permits)
}

/// Rounds up to a whole microsecond.
#[inline]
fn rounded_up(micros: f64) -> u64 {
    let rollback = truncated(micros);
    if double(rollback) < micros { rollback.saturating_add(1) } else { rollback }
}

/// Converts to the nearest double, as Java does.
#[inline]
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "Java's conversion of a long")]
const fn double(number: u64) -> f64 {
    number as f64
}

/// Truncates a nonnegative double, as Java does; saturates at the largest integer.
#[inline]
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Java's conversion to a long truncates and saturates too"
)]
const fn truncated(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;
    use crate::verbs::Verbs as _;
    use alloc::string::ToString as _;

    const START: Time = Time::saturating_from_micros(1_000 * SECOND);

    fn rate(count: u64, micros: u64) -> Rate {
        Rate::new(count, Span::from_micros(micros)).unwrap()
    }

    fn bursty(count: u64) -> Smooth {
        Smooth::bursty(rate(count, SECOND), None).unwrap().starting_at(START)
    }

    fn warming(count: u64, seconds: u64, thousandths: u32) -> Smooth {
        let cold = ColdFactor::from_thousandths(thousandths).unwrap();
        let warm_up = WarmUp { period: Span::from_micros(seconds * SECOND), cold };
        Smooth::warming_up(rate(count, SECOND), warm_up).unwrap().starting_at(START)
    }

    fn after(micros: u64) -> Time {
        START.saturating_add(Span::from_micros(micros))
    }

    #[test]
    fn the_example_in_the_header() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.check(&mut state, START, 1).allowed());
        let denied = smooth.check(&mut state, START, 1);
        assert_eq!(denied.retry_after(), Some(crate::RetryAfter::After(Span::from_micros(100_000))));
        assert!(!smooth.check(&mut state, after(99_999), 1).allowed());
        assert!(smooth.check(&mut state, after(100_000), 1).allowed());
        let allowed = (0..20).filter(|_| smooth.check(&mut state, after(1_200_000), 1).allowed()).count();
        assert_eq!(allowed, 11, "the ten stored, and one that the next caller pays for");
    }

    #[test]
    fn the_figure_in_the_header() {
        let Smooth { stable, max, cool_down, warm_up, .. } = warming(10, 4, 3_000);
        let Some(Slope { threshold, slope }) = warm_up else { unreachable!("the limit has a warm-up") };
        let exactly = |numbers: [f64; 5]| numbers.map(f64::to_bits);
        let picture = [100_000.0, 20.0, 40.0, 10_000.0, 100_000.0];
        assert_eq!(exactly([stable, threshold, max, slope, cool_down]), exactly(picture));
    }

    #[test]
    fn a_warm_up_issues_half_its_permits_in_its_period() {
        let (smooth, mut state) = (warming(10, 4, 3_000), Cell::UNSEEN);
        smooth.charge(&mut state, START, 20);
        assert_eq!(smooth.next_window(&state, START), after(4_000_000));
        smooth.charge(&mut state, START, 20);
        assert_eq!(smooth.next_window(&state, START), after(6_000_000));
        smooth.charge(&mut state, START, 1);
        assert_eq!(smooth.next_window(&state, START), after(6_100_000));
    }

    #[test]
    fn no_cost_is_too_large_and_the_next_caller_pays() {
        let (smooth, mut state) = (bursty(5), Cell::UNSEEN);
        let huge = smooth.check(&mut state, START, 5_000);
        assert_eq!((huge.allowed(), huge.limit(), huge.remaining()), (true, 5, 0));
        let patient = smooth.check_within(&mut state, START, 1, Span::from_micros(1_000 * SECOND));
        assert_eq!((patient.allowed(), patient.delay()), (true, Span::from_micros(1_000 * SECOND)));
        let hasty = smooth.check_within(&mut state, START, 1, Span::from_micros(SECOND));
        let left = Span::from_micros(999 * SECOND + 200_000);
        assert_eq!(hasty.retry_after(), Some(crate::RetryAfter::After(left)));
    }

    #[test]
    fn debt_is_capped_at_a_century() {
        let smooth = Smooth::bursty(rate(1, 3_650 * DAY), None).unwrap();
        let mut state = Cell::UNSEEN;
        for now in [Time::EPOCH, Time::MAX] {
            assert!(smooth.check(&mut state, now, u64::MAX).allowed());
            assert_eq!(smooth.retry_after(&state, now, 1), CENTURY);
            state = Cell::UNSEEN;
        }
        assert!(smooth.check_within(&mut state, Time::MAX, 1, Span::MAX).allowed());
    }

    #[test]
    fn a_step_back_keeps_next_and_unseen_keys_need_no_start() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.check(&mut state, after(SECOND), 1).allowed());
        assert!(!smooth.check(&mut state, START, 1).allowed());
        assert_eq!(smooth.retry_after(&state, START, 1), Span::from_micros(SECOND));
        let early = Time::from_micros(5).unwrap();
        assert!(smooth.peek(&Cell::UNSEEN, early, 1).allowed());
        assert_eq!(smooth.reset_after(&Cell::UNSEEN, early), Span::from_micros(1_001 * SECOND - 5));
    }

    #[test]
    fn refunds_are_stored_up_to_the_maximum() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.refund(&mut state, START, 4));
        assert_eq!(smooth.remaining(&state, START), 4);
        assert!(smooth.refund(&mut state, START, 40));
        assert_eq!(smooth.remaining(&state, START), 10);
        assert!(!smooth.refund(&mut state, START, 1) && !smooth.is_idle(&state, START));
        assert!(smooth.is_idle(&state, after(SECOND)), "once an unseen key has as much");
    }

    #[test]
    fn a_new_rate_keeps_the_stored_share_and_the_wait() {
        let (slow, fast) = (bursty(10), bursty(40));
        let mut state = Cell::UNSEEN;
        assert!(slow.check(&mut state, after(500_000), 1).allowed());
        let mut waiting = state;
        slow.charge(&mut waiting, after(500_000), 9);
        fast.adopt(&slow, &mut state, Times { now: after(600_000), latest: after(600_000) });
        assert_eq!(fast.remaining(&state, after(600_000)), 20, "4 + 1 of 10 are 20 of 40");
        let wait = slow.retry_after(&waiting, after(600_000), 1);
        fast.adopt(&slow, &mut waiting, Times { now: after(600_000), latest: after(600_000) });
        assert_eq!(fast.retry_after(&waiting, after(600_000), 1), wait);
        let mut unseen = Cell::UNSEEN;
        fast.adopt(&slow, &mut unseen, Times { now: START, latest: START });
        assert_eq!(unseen, Cell::UNSEEN);
    }

    #[test]
    fn cold_factors_print_without_trailing_zeros() {
        let printed = |thousandths| ColdFactor::from_thousandths(thousandths).map(|cold| cold.to_string());
        assert_eq!(printed(3_000).as_deref(), Some("3"));
        assert_eq!(printed(2_500).as_deref(), Some("2.5"));
        assert_eq!(printed(1_001).as_deref(), Some("1.001"));
        assert_eq!(printed(12_340).as_deref(), Some("12.34"));
        assert_eq!((printed(999), printed(1_000_001)), (None, None));
    }

    #[test]
    fn errors_name_the_value_the_bound_and_the_remedy() {
        let message = |made: Result<Smooth, OutOfBounds>| made.unwrap_err().to_string();
        assert_eq!(
            message(Smooth::bursty(rate(1_000_000_000, 1), None)),
            "a second's worth 1000000000000000 is above the maximum, 1000000000; add burst=N with fewer, or use a slower rate"
        );
        assert!(Smooth::bursty(rate(1_000_000_000, 1), Some(1_000_000_000)).is_ok());
        assert_eq!(
            message(Smooth::bursty(rate(1, 3_650 * DAY), Some(11))),
            "time to store the burst 40150d is above the maximum, 36500d; use a smaller burst, or a faster rate"
        );
        let long = WarmUp { period: Span::from_micros(3_650 * DAY), cold: ColdFactor::DEFAULT };
        assert_eq!(
            message(Smooth::warming_up(rate(1_000, SECOND), long)),
            "the number of permits stored 315360000000 is above the maximum, 1000000000; use a shorter warmup, or a slower rate"
        );
        assert!(message(bursty(10).starting_with(11)).starts_with("initial 11 is above the maximum, 10;"));
    }
}
