//! Smooth: Guava's `RateLimiter`, where the next caller pays.
//!
//! In plain words: there is one moment, `next`, at which the next call may go. A call goes at `next` whatever it costs,
//! and moves `next` on by the time that its cost takes at the rate: so a large call is never refused for its size, and
//! whoever comes after it waits. Time that passes unused is stored as permits, which later calls take first. For
//! `SmoothBursty` stored permits are free, and a second's worth of them is kept; for `SmoothWarmingUp` (`warmup=`) they mean
//! that what is behind the limit has gone cold, so they cost more than fresh ones, and a limiter left alone starts slowly:
//!
//! ```text
//! time a permit takes                      smooth 10/s warmup=4s
//!      cold 300 ms |                   /   the area under the line is time:
//!                  |                 /     from 40 down to 20 permits takes the warm-up, 4 s,
//!                  |               /       from 20 down to 0 half of that
//!    stable 100 ms |--------------'
//!                  0             20    40  permits stored
//!                            threshold max
//! ```
//!
//! ```text
//! Settings   rate = count * 1e6 / period (a second)   stable = 1e6 / rate   initial permits at `start`
//!            bursty    max = burst (one second's worth, so `rate`, unless said)   cool_down = stable   initial 0 unless said
//!            warming   cold = stable * cold factor   threshold = 0.5 * warmup / stable
//!                      max = threshold + 2 * warmup / (stable + cold)   slope = (cold - stable) / (max - threshold)
//!                      cool_down = warmup / max   initial max unless said
//! State      in a Cell: at = next + 1, so that zeros are a key that has never called; a and b = the low and the high half
//!            of the bits of `stored`
//! Formula    resync   if now > next: stored = min(max, stored + (now - next) / cool_down), next = now
//!            a check is allowed if next <= now; one that may wait if next - now is at most its patience, and is told that wait
//!            charge   take = min(cost, stored)   fresh = cost - take
//!                     next += time_of(stored, take) + trunc(fresh * stable)   stored -= take
//!            time_of  bursty: 0.   warming, where above = stored - threshold > 0 and high = min(above, take):
//!                     trunc(high * (at(above) + at(above - high)) / 2) + trunc(stable * (take - high)), at(x) = stable + x * slope
//! Reports    limit = floor(max)   remaining = floor(stored)   retry_after = next - now
//!            reset_after = max(next, now) - now + ceil((max - stored) * cool_down)
//! Never      no cost is too large. (So `cost <= remaining` does not decide here: see `Algorithm::admits`.)
//! Promise    the time between two allowed calls is at least what the first one cost beyond what was stored.
//! Rounding   Guava's own, in f64: what a call takes is cut to a whole microsecond, twice for a warm-up.
//! Clock      a step back leaves `next` where it is: calls are denied, or wait, until the clock is there again.
//! Cost       16 bytes a key; a handful of multiplications and divisions a decision.
//! Unseen     a key that has never called is as one that was made at `start`; before that, as one made now.
//!
//! Example    10/s: the first call goes at once, the second 100 ms later. After a second of nothing ten go at once.
//! Reference  com.google.common.util.concurrent.SmoothRateLimiter, Guava 31.1; the names are its own, shortened.
//! ```
//!
//! One thing is not Guava's: `next` is at most a century away, as a bucket's debt is, so that nothing overflows and
//! nobody is locked out for good by one huge cost. This is the only file of the core that uses floats.

#![allow(clippy::float_arithmetic, reason = "Guava's arithmetic is in doubles, and this is to be the same")]

use crate::algorithm::{Algorithm, Charged, NotCharged, Verb, Waiting};
use crate::bounds::{CENTURY, COUNT_MAX, OutOfBounds, Rate, checked_count, checked_period};
use crate::cell::Cell;
use crate::decision::Standing;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{DAY, Span, Time};
use core::fmt;

/// The smooth limiter. Pick it to replace Guava's `RateLimiter`, for callers that wait rather than come back, or for
/// something that has to warm up before it bears its full rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Smooth {
    /// How long a fresh permit takes, in microseconds.
    stable: f64,
    /// The most permits that are stored.
    max: f64,
    /// How long a permit takes to be stored, in microseconds.
    cool_down: f64,
    /// What stored permits cost, if they are not free.
    warm_up: Option<Slope>,
    /// What a key holds at the start.
    initial: f64,
    start: Time,
    /// The whole part of `max`.
    limit: u32,
}

/// What stored permits cost: up to the threshold as much as fresh ones, above it more and more.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Slope {
    threshold: f64,
    /// How much longer each permit above the threshold takes than the one below it, in microseconds.
    slope: f64,
}

/// How a limiter that was left alone comes up to its rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WarmUp {
    /// How long it takes from cold to the full rate under load, and from there to cold without any.
    pub period: Span,
    /// How much longer a permit takes when it is cold.
    pub cold: ColdFactor,
}

/// How much longer a permit takes when the limiter is cold: 1 to 1000, to three places after the point, which are kept
/// exactly so that a limit can be written and compared. Guava's is 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColdFactor(u32);

impl ColdFactor {
    /// Guava's factor.
    pub const DEFAULT: ColdFactor = ColdFactor(3_000);

    /// A factor of so many thousandths; `None` below 1 or above 1000.
    pub const fn from_thousandths(thousandths: u32) -> Option<ColdFactor> {
        match thousandths {
            1_000..=1_000_000 => Some(ColdFactor(thousandths)),
            _ => None,
        }
    }

    /// The factor in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The nearest double, as it would be read from text: both numbers are exact, and a division is rounded once.
    fn double(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for ColdFactor {
    /// With as many places after the point as there are: `3`, `2.5`.
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

/// All numbers of a limiter, for scripts that decide elsewhere. Times are in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameters {
    /// How long a fresh permit takes.
    pub stable: f64,
    /// The most permits that are stored.
    pub max: f64,
    /// How long a permit takes to be stored.
    pub cool_down: f64,
    /// With a warm-up: the threshold, and the slope above it.
    pub warm_up: Option<(f64, f64)>,
    /// What a key holds at the start.
    pub initial: f64,
    /// When the limiter was made.
    pub start: Time,
}

/// What a key holds at a moment.
#[derive(Clone, Copy)]
struct Held {
    /// When the next call may go, in microseconds.
    next: u64,
    /// The permits that are stored.
    stored: f64,
}

impl Smooth {
    /// Guava's `SmoothBursty`: stores `burst` permits, a second's worth if not said, and gives them away at once. A key
    /// starts with none, at the epoch.
    ///
    /// # Errors
    /// When the burst is 0, or it or a second's worth is above [`COUNT_MAX`], or storing it would take more than a century.
    pub fn bursty(rate: Rate, burst: Option<u64>) -> Result<Smooth, OutOfBounds> {
        let a_second = permits_a_second(rate);
        let max = match burst {
            Some(burst) => f64::from(checked_burst(rate, burst)?),
            None => a_second,
        };
        let limit = whole_permits("a second's worth", max, "add burst=N with fewer, or use a slower rate")?;
        let stable = 1e6 / a_second;
        Ok(Smooth { stable, max, cool_down: stable, warm_up: None, initial: 0.0, start: Time::EPOCH, limit })
    }

    /// Guava's `SmoothWarmingUp`. A key starts cold, at the epoch.
    ///
    /// # Errors
    /// When the warm-up takes no time or more than [`crate::bounds::PERIOD_MAX`], or so long that it would store more than
    /// [`COUNT_MAX`] permits.
    pub fn warming_up(rate: Rate, WarmUp { period, cold }: WarmUp) -> Result<Smooth, OutOfBounds> {
        let micros = double(checked_period("warmup", period)?.as_micros());
        let stable = 1e6 / permits_a_second(rate);
        let cold = stable * cold.double();
        let threshold = 0.5 * micros / stable;
        let max = threshold + 2.0 * micros / (stable + cold);
        let limit =
            whole_permits("the number of permits stored", max, "use a shorter warmup, or a slower rate")?;
        let slope = (cold - stable) / (max - threshold);
        let (warm_up, cool_down) = (Some(Slope { threshold, slope }), micros / max);
        Ok(Smooth { stable, max, cool_down, warm_up, initial: max, start: Time::EPOCH, limit })
    }

    /// The same, but a key that has never called held `permits` at the start.
    ///
    /// # Errors
    /// When that is more than is ever stored.
    pub fn starting_with(self, permits: u64) -> Result<Smooth, OutOfBounds> {
        match u32::try_from(permits) {
            Ok(permits) if permits <= self.limit => Ok(Smooth { initial: f64::from(permits), ..self }),
            _ => {
                let advice = "no more than that is ever stored, use that or less";
                Err(OutOfBounds::above("initial", permits, u64::from(self.limit), advice))
            }
        }
    }

    /// The same, but made at a moment: Guava's clock starts there.
    #[must_use]
    pub const fn starting_at(self, start: Time) -> Smooth {
        Smooth { start, ..self }
    }

    /// All of its numbers.
    pub fn parameters(&self) -> Parameters {
        let Smooth { stable, max, cool_down, warm_up, initial, start, .. } = *self;
        let warm_up = warm_up.map(|Slope { threshold, slope }| (threshold, slope));
        Parameters { stable, max, cool_down, warm_up, initial, start }
    }

    /// The state of a key whose next call may go at a moment, and that has so many permits stored.
    pub fn state_of(next: Time, stored: f64) -> Cell {
        written(Held { next: next.as_micros(), stored })
    }

    /// When the next call of a key may go, in microseconds, and the permits that it has stored; `None` if it has never called.
    pub fn next_and_stored(state: &Cell) -> Option<(u64, f64)> {
        read(state).map(|Held { next, stored }| (next, stored))
    }

    /// What a key holds that has never called, and that is made at a moment.
    #[inline]
    fn made(&self, at: Time) -> Held {
        Held { next: at.as_micros(), stored: self.initial }
    }

    /// What the key holds now, whether or not it has called.
    #[inline]
    fn held(&self, state: &Cell, now: Time) -> Held {
        // Before the start it is as one made now: there is nothing that it would have to wait for.
        self.resync(read(state).unwrap_or_else(|| self.made(self.start.min(now))), now)
    }

    /// Stores what has come in since the next call might have gone.
    #[inline]
    fn resync(&self, Held { next, stored }: Held, now: Time) -> Held {
        match now.as_micros().checked_sub(next) {
            Some(unused) if unused > 0 => {
                Held { next: now.as_micros(), stored: self.max.min(stored + double(unused) / self.cool_down) }
            }
            _ => Held { next, stored },
        }
    }

    /// Moves `next` on by the time that a cost takes.
    #[inline]
    fn spend(&self, Held { next, stored }: Held, now: Time, cost: u32) -> Held {
        let take = stored.min(f64::from(cost));
        let fresh = f64::from(cost) - take;
        let wait = self.time_of(stored, take).saturating_add(truncated(fresh * self.stable));
        // Cannot wrap: a moment is below 2^58 and a century below 2^52. After a step back it may be further away already.
        let latest = next.max(now.as_micros() + CENTURY.as_micros());
        Held { next: next.saturating_add(wait).min(latest), stored: stored - take }
    }

    /// How long it takes to use up stored permits, in microseconds.
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

    /// How long until as much is stored as can be.
    #[inline]
    fn full_in(&self, Held { next, stored }: Held, now: Time) -> Span {
        let wait = next.saturating_sub(now.as_micros());
        Span::from_micros(wait.saturating_add(rounded_up((self.max - stored) * self.cool_down)))
    }

    /// The whole permits that are stored.
    #[inline]
    fn whole(&self, held: Held) -> u32 {
        // After a change of numbers there may be a last bit too much.
        whole(held.stored).min(self.limit)
    }

    fn is_full(&self, held: Held, now: Time) -> bool {
        held.stored >= self.max && held.next <= now.as_micros()
    }
}

/// The state that a key has left; `None` if it has never called.
#[inline]
fn read(state: &Cell) -> Option<Held> {
    let next = state.at.checked_sub(1)?;
    Some(Held { next, stored: f64::from_bits(u64::from(state.b) << 32 | u64::from(state.a)) })
}

#[inline]
fn written(Held { next, stored }: Held) -> Cell {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    // Cannot wrap: a moment and a century is below 2^59.
    Cell { at: next + 1, a: half(stored.to_bits()), b: half(stored.to_bits() >> 32) }
}

impl Algorithm for Smooth {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u32 {
        self.limit
    }

    /// Any cost, when the time has come; how much is stored says only how long whoever comes next will wait.
    #[inline]
    fn admits(&self, state: &Cell, now: Time, cost: u32, _remaining: u32) -> bool {
        cost == 0 || self.held(state, now).next <= now.as_micros()
    }

    #[inline]
    fn never_admits(&self, _cost: u32) -> bool {
        false
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Cell, now: Time, cost: u32) -> Result<Charged, NotCharged> {
        let held = self.held(state, now);
        if cost == 0 || held.next > now.as_micros() {
            return Err(NotCharged::UNKNOWN);
        }
        let held = self.spend(held, now, cost);
        *state = written(held);
        let (remaining, reset_after) = (self.whole(held), self.full_in(held, now));
        let standing = Standing { limit: self.limit, remaining, reset_after };
        Ok(Charged { standing, delay: Span::ZERO })
    }

    /// The permits that are stored, whole ones.
    #[inline]
    fn remaining(&self, state: &Cell, now: Time) -> u32 {
        self.whole(self.held(state, now))
    }

    /// Before its start an unseen key has the time until then before it as well.
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        let held = read(state).unwrap_or_else(|| self.made(self.start));
        self.full_in(self.resync(held, now), now)
    }

    fn retry_after(&self, state: &Cell, now: Time, _cost: u32) -> Span {
        Span::from_micros(self.held(state, now).next.saturating_sub(now.as_micros()))
    }

    fn waiting(&self) -> Waiting {
        Waiting::NextCallerPays
    }

    /// What was paid for permits that a warm-up had stored cannot be told afterwards, so they cannot be given back.
    fn supports(&self, verb: Verb) -> bool {
        match verb {
            Verb::CheckWithin => true,
            Verb::Refund => self.warm_up.is_none(),
            Verb::Take | Verb::Reserve => false,
        }
    }

    fn charge(&self, state: &mut Cell, now: Time, cost: u32) -> Span {
        let held = self.spend(self.held(state, now), now, cost);
        *state = written(held);
        self.full_in(held, now)
    }

    /// Stores permits. The wait of whoever comes next stays as it is.
    fn refund(&self, state: &mut Cell, now: Time, cost: u32) -> bool {
        let held = self.held(state, now);
        // Who has all that can be stored stays as it is: moving `next` up to now would make a later step back stricter.
        let gives = cost > 0 && held.stored < self.max;
        if gives {
            *state = written(Held { stored: self.max.min(held.stored + f64::from(cost)), ..held });
        }
        gives
    }

    /// What was stored before, and what `next` then was moved on to.
    fn charge_and_record(&self, state: &mut Cell, now: Time, cost: u32) -> Charge {
        let before = self.held(state, now);
        *state = written(self.spend(before, now, cost));
        Charge::on_stack(cost, before.stored.to_bits(), state.at)
    }

    /// There are no receipts: `reserve` is not offered.
    fn record(&self, _state: &Cell, cost: u32, _waited: bool) -> Charge {
        Charge::on_stack(cost, 0, 0)
    }

    /// A call that waited in line and is gone: as long as nobody went after it, all is as before. Of what others went on with
    /// it gives back the permits that it took, if they went at the same moment; whoever went later has waited for what it cost.
    fn roll_back(&self, state: &mut Cell, _times: Times, charge: &Charge, _most: u32) -> Option<Rollback> {
        let stored = f64::from_bits(charge.stack);
        let take = stored.min(f64::from(charge.cost));
        let fresh = f64::from(charge.cost) - take;
        let wait = self.time_of(stored, take).saturating_add(truncated(fresh * self.stable));
        let next = charge.height.whole.checked_sub(1)?;
        let is_last = *state == written(Held { next, stored: stored - take });
        // A debt that was cut to a century does not say what was before it.
        if is_last && wait < CENTURY.as_micros() {
            *state = written(Held { next: next.checked_sub(wait)?, stored });
        } else if state.at == charge.height.whole && wait == 0 {
            // Others went at the same moment. What has come in since then is not in the state yet, so it is not given twice.
            let now = read(state)?;
            *state = written(Held { stored: self.max.min(now.stored + take), ..now });
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
        // The second half matters while an unseen key would still hold less, or have to wait.
        let is_full = |held| self.is_full(self.resync(held, now), now);
        read(state).is_none_or(|held| is_full(held) && is_full(self.made(self.start)))
    }

    /// Guava's `setRate`, called with the key's next call: what has come in by then came in at the old rate, the permits
    /// stored keep their share of the most that can be, and the wait of whoever comes next stays. The same if one of
    /// the two warms up and the other does not. (No maximum is 0 or infinite here, which Guava looks at.)
    fn adopt(&self, old: &Self, state: &mut Cell, Times { now, .. }: Times) {
        if let Some(held) = read(state) {
            let held = old.resync(held, now);
            // In Guava's order, and as there perhaps above the new maximum by the last bit.
            *state = written(Held { stored: held.stored * self.max / old.max, ..held });
        }
    }
}

/// What comes in a second.
fn permits_a_second(rate: Rate) -> f64 {
    // Both are exact: at most 10^15, and a period of at most 2^49.
    f64::from(rate.count()) * 1e6 / double(rate.period().as_micros())
}

/// A burst that does not take longer than a century to store.
fn checked_burst(rate: Rate, burst: u64) -> Result<u32, OutOfBounds> {
    let burst = checked_count("burst", burst, 1)?;
    let micros =
        (u128::from(burst) * u128::from(rate.period().as_micros())).div_ceil(u128::from(rate.count()));
    if micros <= u128::from(CENTURY.as_micros()) {
        return Ok(burst);
    }
    let days = u64::try_from(micros.div_ceil(u128::from(DAY))).unwrap_or(u64::MAX);
    let advice = "use a smaller burst, or a faster rate";
    Err(OutOfBounds::above("time to store the burst", days, CENTURY.as_micros() / DAY, advice).in_days())
}

/// The whole part of a number of permits that may be stored.
fn whole_permits(what: &'static str, permits: f64, advice: &'static str) -> Result<u32, OutOfBounds> {
    if permits > f64::from(COUNT_MAX) {
        return Err(OutOfBounds::above(what, truncated(permits), u64::from(COUNT_MAX), advice));
    }
    Ok(whole(permits))
}

/// The whole part of a number of permits.
#[inline]
fn whole(permits: f64) -> u32 {
    // Cannot be cut: at most 10^9.
    u32::try_from(truncated(permits)).unwrap_or(u32::MAX)
}

/// To the next whole microsecond.
#[inline]
fn rounded_up(micros: f64) -> u64 {
    let rollback = truncated(micros);
    if double(rollback) < micros { rollback.saturating_add(1) } else { rollback }
}

/// A whole number as a double: the nearest one, as Java has it.
#[inline]
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "Java's conversion of a long")]
const fn double(number: u64) -> f64 {
    number as f64
}

/// The whole part of a double that is not negative, as Java cuts it; the largest number if it does not fit.
#[inline]
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Java's conversion to a long, which cuts and saturates too"
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
    fn the_example_of_the_header() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.check(&mut state, START, 1).allowed());
        let denied = smooth.check(&mut state, START, 1);
        assert_eq!(denied.retry_after(), Some(crate::RetryAfter::After(Span::from_micros(100_000))));
        assert!(!smooth.check(&mut state, after(99_999), 1).allowed());
        assert!(smooth.check(&mut state, after(100_000), 1).allowed());
        let allowed = (0..20).filter(|_| smooth.check(&mut state, after(1_200_000), 1).allowed()).count();
        assert_eq!(allowed, 11, "the ten stored, and the one that the next caller pays");
    }

    #[test]
    fn the_picture_of_the_header() {
        let Smooth { stable, max, cool_down, warm_up, .. } = warming(10, 4, 3_000);
        let Some(Slope { threshold, slope }) = warm_up else { unreachable!("it warms up") };
        let exactly = |numbers: [f64; 5]| numbers.map(f64::to_bits);
        let picture = [100_000.0, 20.0, 40.0, 10_000.0, 100_000.0];
        assert_eq!(exactly([stable, threshold, max, slope, cool_down]), exactly(picture));
    }

    #[test]
    fn twenty_permits_are_issued_in_the_warm_up_and_twenty_more_in_half_the_time() {
        let (smooth, mut state) = (warming(10, 4, 3_000), Cell::UNSEEN);
        smooth.charge(&mut state, START, 20);
        assert_eq!(smooth.next_window(&state, START), after(4_000_000));
        smooth.charge(&mut state, START, 20);
        assert_eq!(smooth.next_window(&state, START), after(6_000_000));
        smooth.charge(&mut state, START, 1);
        assert_eq!(smooth.next_window(&state, START), after(6_100_000));
    }

    #[test]
    fn no_cost_is_too_large_and_the_next_caller_pays_for_it() {
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
    fn a_debt_of_more_than_a_century_is_a_century() {
        let smooth = Smooth::bursty(rate(1, 3_650 * DAY), None).unwrap();
        let mut state = Cell::UNSEEN;
        for now in [Time::EPOCH, Time::MAX] {
            assert!(smooth.check(&mut state, now, u32::MAX).allowed());
            assert_eq!(smooth.retry_after(&state, now, 1), CENTURY);
            state = Cell::UNSEEN;
        }
        assert!(smooth.check_within(&mut state, Time::MAX, 1, Span::MAX).allowed());
    }

    #[test]
    fn a_step_back_moves_nothing_nearer_and_a_key_that_is_new_does_not_wait_for_the_start() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.check(&mut state, after(SECOND), 1).allowed());
        assert!(!smooth.check(&mut state, START, 1).allowed());
        assert_eq!(smooth.retry_after(&state, START, 1), Span::from_micros(SECOND));
        let early = Time::from_micros(5).unwrap();
        assert!(smooth.peek(&Cell::UNSEEN, early, 1).allowed());
        assert_eq!(smooth.reset_after(&Cell::UNSEEN, early), Span::from_micros(1_001 * SECOND - 5));
    }

    #[test]
    fn permits_can_be_given_back_up_to_the_most_that_is_stored() {
        let (smooth, mut state) = (bursty(10), Cell::UNSEEN);
        assert!(smooth.refund(&mut state, START, 4));
        assert_eq!(smooth.remaining(&state, START), 4);
        assert!(smooth.refund(&mut state, START, 40));
        assert_eq!(smooth.remaining(&state, START), 10);
        assert!(!smooth.refund(&mut state, START, 1) && !smooth.is_idle(&state, START));
        assert!(smooth.is_idle(&state, after(SECOND)), "when a new key has as much");
    }

    #[test]
    fn a_new_rate_keeps_the_share_that_is_stored_and_the_wait() {
        let (slow, fast) = (bursty(10), bursty(40));
        let mut state = Cell::UNSEEN;
        assert!(slow.check(&mut state, after(500_000), 1).allowed());
        let mut waiting = state;
        slow.charge(&mut waiting, after(500_000), 9);
        fast.adopt(&slow, &mut state, Times { now: after(600_000), latest: after(600_000) });
        assert_eq!(fast.remaining(&state, after(600_000)), 20, "four and one of ten are twenty of forty");
        let wait = slow.retry_after(&waiting, after(600_000), 1);
        fast.adopt(&slow, &mut waiting, Times { now: after(600_000), latest: after(600_000) });
        assert_eq!(fast.retry_after(&waiting, after(600_000), 1), wait);
        let mut unseen = Cell::UNSEEN;
        fast.adopt(&slow, &mut unseen, Times { now: START, latest: START });
        assert_eq!(unseen, Cell::UNSEEN);
    }

    #[test]
    fn cold_factors_are_exact_and_print_without_zeros_at_the_end() {
        let printed = |thousandths| ColdFactor::from_thousandths(thousandths).map(|cold| cold.to_string());
        assert_eq!(printed(3_000).as_deref(), Some("3"));
        assert_eq!(printed(2_500).as_deref(), Some("2.5"));
        assert_eq!(printed(1_001).as_deref(), Some("1.001"));
        assert_eq!(printed(12_340).as_deref(), Some("12.34"));
        assert_eq!((printed(999), printed(1_000_001)), (None, None));
    }

    #[test]
    fn what_lies_outside_the_bounds_is_refused_with_what_to_do() {
        let said = |made: Result<Smooth, OutOfBounds>| made.unwrap_err().to_string();
        assert_eq!(
            said(Smooth::bursty(rate(1_000_000_000, 1), None)),
            "a second's worth 1000000000000000 is above the most, 1000000000; add burst=N with fewer, or use a slower rate"
        );
        assert!(Smooth::bursty(rate(1_000_000_000, 1), Some(1_000_000_000)).is_ok());
        assert_eq!(
            said(Smooth::bursty(rate(1, 3_650 * DAY), Some(11))),
            "time to store the burst 40150d is above the most, 36500d; use a smaller burst, or a faster rate"
        );
        let long = WarmUp { period: Span::from_micros(3_650 * DAY), cold: ColdFactor::DEFAULT };
        assert_eq!(
            said(Smooth::warming_up(rate(1_000, SECOND), long)),
            "the number of permits stored 315360000000 is above the most, 1000000000; use a shorter warmup, or a slower rate"
        );
        assert!(said(bursty(10).starting_with(11)).starts_with("initial 11 is above the most, 10;"));
    }
}
