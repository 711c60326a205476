//! Trying again: how often, how long after, and how much of it in all. Pure: no clock, no lock, no I/O.
//!
//! In plain words: a call that failed may be tried again a few times, after a rest that doubles. But when everything fails, trying again
//! is what keeps it failing: with two more tries each, a dependency that is down gets three times its load. So retries have a budget: of all
//! calls of the last ten seconds a share, and a few beside, as otherwise a quiet service could never try again.
//!
//! ```text
//! Settings   tries: further tries of one call       percent: of calls       floor: retries that are always allowed
//! State      calls and retries of each of the last 10 whole seconds of the clock
//! Formula    with r retries and c calls in these ten seconds, one more is allowed while  (r + 1 - floor) * 100 <= percent * c
//! Promise    of the ten whole seconds that end with the one of a retry: retries <= floor + percent of calls. (Calls of before are forgotten,
//!            the retries they allowed are not: of other ten seconds, as those in which calls stop, this is not promised.) Where the clock
//!            steps back, of the ten seconds that were counted last, in the order in which they were.
//! Rest       before the n-th retry: anything from nothing to min(backoff * 2^(n-1), max-backoff), all equally likely ("full jitter"), so that
//!            those who failed together do not come back together.
//! Rounding   none: the share is compared, not computed.
//! Clock      a step backwards: the seconds keep their order and the latest becomes the one in progress, so that what there was counts for at
//!            most ten seconds longer. By up to a second the latest just goes on: the clocks of two threads may differ a little. After a step
//!            forwards what is older than ten seconds is forgotten.
//! Cost       ten additions a retry, none a call.
//!
//! Example    10 % and a floor of 10: 200 calls a second fail, all of them. Of 2000 calls in ten seconds 210 are tried again.
//! Reference  Finagle's RetryBudget (20 %, 10 a second, 10 s); "Handling Overload" in Google's SRE book (10 %).
//! ```

#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]

use sluicegate_core::bounds::{OutOfBounds, PERIOD_MAX, checked_number, checked_span};
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// The most further tries of one call. More would only be patience.
pub const RETRIES_MAX: u32 = 100;
/// The largest share: ten retries for each call.
pub const PERCENT_MAX: u32 = 1_000;
/// The largest floor.
pub const FLOOR_MAX: u32 = 1_000_000;
/// The share unless told otherwise, in percent of calls.
pub const PERCENT_DEFAULT: u32 = 10;
/// Retries in ten seconds that are always allowed, unless told otherwise: one a second.
pub const FLOOR_DEFAULT: u32 = 10;
/// The longest rest before the first retry unless told otherwise.
pub const BACKOFF_DEFAULT: Span = Span::from_micros(50_000);
/// The longest rest of all unless told otherwise.
pub const MAX_BACKOFF_DEFAULT: Span = Span::from_micros(SECOND);

/// How many whole seconds are remembered.
const SECONDS: usize = 10;

/// How to try again, as data and as one line of text: `retry 2 budget=10% floor=10 backoff=50ms max-backoff=1s`.
///
/// ```
/// use sluicegate_guard::retry::RetryConfig;
///
/// let rules: RetryConfig = "retry 2 budget=10% backoff=100ms".parse()?;
/// assert_eq!(rules.to_string(), "retry 2 backoff=100ms");
/// assert_eq!((rules.max_retries(), rules.percent()), (2, 10));
///
/// let mistake = "retry 2 budget=10".parse::<RetryConfig>().unwrap_err();
/// assert_eq!(mistake.to_string(), r#"retry 2 budget=10: budget "10" has no %; write 10%"#);
/// # Ok::<(), sluicegate_guard::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetryConfig {
    max_retries: u32,
    percent: u32,
    floor: u32,
    backoff: Span,
    max_backoff: Span,
}

impl RetryConfig {
    /// So many further tries of one call, all else as it is by default.
    ///
    /// # Errors
    /// When there are none, or more than [`RETRIES_MAX`].
    pub fn new(max_retries: u64) -> Result<RetryConfig, OutOfBounds> {
        let max_retries = within("count", max_retries, 1, RETRIES_MAX)?;
        let (backoff, max_backoff) = (BACKOFF_DEFAULT, MAX_BACKOFF_DEFAULT);
        Ok(RetryConfig { max_retries, percent: PERCENT_DEFAULT, floor: FLOOR_DEFAULT, backoff, max_backoff })
    }

    /// The share of calls that may be tried again, and how many in ten seconds may in any case.
    ///
    /// # Errors
    /// When one is out of bounds.
    pub fn with_budget(self, percent: u64, floor: u64) -> Result<RetryConfig, OutOfBounds> {
        let percent = within("budget", percent, 0, PERCENT_MAX)?;
        Ok(RetryConfig { percent, floor: within("floor", floor, 0, FLOOR_MAX)?, ..self })
    }

    /// The longest rest before the first retry, and before any. A first that is above `max` is taken as `max`.
    ///
    /// # Errors
    /// When one is above ten years.
    pub fn with_backoff(self, first: Span, max: Span) -> Result<RetryConfig, OutOfBounds> {
        for span in [first, max] {
            checked_span("backoff", span, (Span::ZERO, PERIOD_MAX), ["", "use at most 3650d"])?;
        }
        Ok(RetryConfig { backoff: first.min(max), max_backoff: max, ..self })
    }

    /// Further tries of one call.
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// The share of calls, in percent.
    pub const fn percent(&self) -> u32 {
        self.percent
    }

    /// Retries in ten seconds that are always allowed.
    pub const fn floor(&self) -> u32 {
        self.floor
    }

    /// The longest rest before the first retry.
    pub const fn backoff(&self) -> Span {
        self.backoff
    }

    /// The longest rest before any.
    pub const fn max_backoff(&self) -> Span {
        self.max_backoff
    }

    /// The rest before the n-th retry, counted from 1, for a number drawn at random from all there are.
    pub fn delay(&self, nth: u32, random: u64) -> Span {
        let doubled = 1_u64.checked_shl(nth.saturating_sub(1)).unwrap_or(u64::MAX);
        let longest = self.backoff.as_micros().saturating_mul(doubled).min(self.max_backoff.as_micros());
        // Cannot wrap: 64 bits times at most 64 bits. The upper half is from 0 to `longest`, all equally likely.
        let scaled = u128::from(random) * (u128::from(longest) + 1);
        Span::from_micros(u64::try_from(scaled >> 64).unwrap_or(longest))
    }
}

fn within(what: &'static str, value: u64, least: u32, most: u32) -> Result<u32, OutOfBounds> {
    let advice = ["leave retry out to try once only", "use a smaller number"];
    checked_number(what, value, (least, most), advice)
}

/// What is left for retries, shared by all calls.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Budget {
    /// The second that the last of `counts` is about, counted from the epoch.
    second: u64,
    /// The oldest first.
    counts: [Counts; SECONDS],
}

/// Of one second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    calls: u64,
    retries: u64,
}

impl Budget {
    /// A call is made, for the first time.
    pub fn call(&mut self, now: Time) {
        let last = self.last(now);
        last.calls = last.calls.saturating_add(1);
    }

    /// Whether a call may be tried again; then it is counted.
    pub fn try_again(&mut self, config: &RetryConfig, now: Time) -> bool {
        let allowed = self.left(config, now) > 0;
        if allowed {
            let last = self.last(now);
            last.retries = last.retries.saturating_add(1);
        }
        allowed
    }

    /// How many calls may be tried again now.
    pub fn left(&mut self, config: &RetryConfig, now: Time) -> u64 {
        self.last(now);
        let sum = |of: fn(&Counts) -> u64| {
            self.counts.iter().fold(0_u64, |sum, counts| sum.saturating_add(of(counts)))
        };
        let (calls, retries) = (sum(|counts| counts.calls), sum(|counts| counts.retries));
        // Whole retries only: rounding down is what the formula says, as both sides are whole.
        let share = u128::from(calls) * u128::from(config.percent) / 100;
        let most = u64::try_from(share).unwrap_or(u64::MAX).saturating_add(u64::from(config.floor));
        most.saturating_sub(retries)
    }

    /// The counts of the second it is.
    fn last(&mut self, now: Time) -> &mut Counts {
        let second = now.as_micros() / SECOND;
        // The second before is taken for the one in progress: see the header. Cannot wrap: there are fewer than 2^39 seconds.
        if second > self.second || second + 1 < self.second {
            let passed = second.saturating_sub(self.second);
            let gone = usize::try_from(passed).unwrap_or(SECONDS).min(SECONDS);
            self.counts.rotate_left(gone);
            self.counts.iter_mut().rev().take(gone).for_each(|counts| *counts = Counts::default());
            self.second = second;
        }
        let [.., last] = &mut self.counts;
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_micros(1_700_000_000_000_000 + micros).unwrap()
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    /// The model is the list of all that ever happened, and the sentence of the header.
    #[test]
    fn it_answers_as_the_list_of_all_calls_does() {
        for seed in 1..=300 {
            let mut random = Random(seed * 7_919);
            let config =
                RetryConfig::new(2).unwrap().with_budget(random.below(150), random.below(6)).unwrap();
            let (mut budget, mut now, mut last) = (Budget::default(), 0_u64, 0_u64);
            let (mut calls, mut retries): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for _ in 0..400 {
                match random.below(20) {
                    0 => now += random.below(12 * SECOND),
                    1 => now = now.saturating_sub(random.below(3 * SECOND)),
                    2 => now = now.saturating_sub(random.below(60 * SECOND)),
                    _ => now += random.below(SECOND / 3),
                }
                let second = at(now).as_micros() / SECOND;
                if second + 1 < last {
                    // A clock that steps back takes all that happened along.
                    let by = last - second;
                    calls.iter_mut().chain(&mut retries).for_each(|happened| *happened -= by);
                    last = second;
                }
                last = last.max(second);
                if random.below(3) > 0 {
                    budget.call(at(now));
                    calls.push(last);
                    continue;
                }
                let recent =
                    |list: &[u64]| list.iter().map(|second| u64::from(*second + 10 > last)).sum::<u64>();
                let (c, r) = (recent(&calls), recent(&retries));
                let expected = (r + 1).saturating_sub(u64::from(config.floor())) * 100
                    <= u64::from(config.percent()) * c;
                assert_eq!(
                    budget.try_again(&config, at(now)),
                    expected,
                    "seed {seed}: {r} retries of {c} calls"
                );
                if expected {
                    retries.push(last);
                }
            }
        }
    }

    #[test]
    fn in_an_outage_retries_are_a_share_and_the_floor() {
        let config = RetryConfig::new(2).unwrap();
        let mut budget = Budget::default();
        let mut retries = 0;
        for call in 0..2_000 {
            let now = at(call * 5_000);
            budget.call(now);
            retries += u32::from(budget.try_again(&config, now)) + u32::from(budget.try_again(&config, now));
        }
        assert_eq!(retries, 210);
    }

    /// 1000 calls, and five seconds later all have failed: the share is of them, though none begins any more.
    #[test]
    fn the_promise_is_about_the_seconds_that_end_with_a_retry() {
        let config = RetryConfig::new(2).unwrap();
        let mut budget = Budget::default();
        for _ in 0..1_000 {
            budget.call(at(0));
        }
        let retries = |budget: &mut Budget, now: u64| {
            (0..1_000).filter(|_| budget.try_again(&config, at(now * SECOND))).count()
        };
        assert_eq!([5, 9, 10, 14].map(|second| retries(&mut budget, second)), [110, 0, 0, 0]);
        assert_eq!(retries(&mut budget, 15), 10, "the floor, once those are forgotten");
    }

    /// Calls of ten minutes in which nothing failed, on a clock that was set back by an hour: they are not saved up for a storm.
    #[test]
    fn after_a_step_back_calls_are_forgotten_as_before() {
        let config = RetryConfig::new(2).unwrap();
        let (mut budget, hour) = (Budget::default(), 3_600 * SECOND);
        budget.call(at(hour));
        for call in 0..6_000 {
            budget.call(at(call * SECOND / 10));
        }
        assert_eq!(budget.left(&config, at(599 * SECOND)), 20, "the floor, and a tenth of a hundred");
    }

    #[test]
    fn two_clocks_that_differ_a_little_at_the_end_of_a_second_drop_nothing() {
        let config = RetryConfig::new(2).unwrap().with_budget(100, 0).unwrap();
        let mut budget = Budget::default();
        for _ in 0..50 {
            budget.call(at(SECOND));
            budget.call(at(SECOND - 1));
        }
        assert_eq!([10, 11].map(|second| budget.left(&config, at(second * SECOND))), [100, 0]);
    }

    #[test]
    fn rests_double_up_to_the_longest_and_are_spread_over_all_of_it() {
        let config = RetryConfig::new(9).unwrap();
        let longest = |nth| config.delay(nth, u64::MAX).as_micros();
        assert_eq!(
            [1, 2, 5, 6, 7, 100].map(longest),
            [50_000, 100_000, 800_000, 1_000_000, 1_000_000, 1_000_000]
        );
        assert_eq!(config.delay(3, 0), Span::ZERO);
        assert_eq!(config.delay(1, u64::MAX / 2).as_micros(), 25_000);
        let first_above = config.with_backoff(MAX_BACKOFF_DEFAULT, BACKOFF_DEFAULT).unwrap();
        assert_eq!((first_above.backoff(), first_above.max_backoff()), (BACKOFF_DEFAULT, BACKOFF_DEFAULT));
        let at_once = config.with_backoff(Span::ZERO, Span::ZERO).unwrap();
        assert_eq!(at_once.delay(5, u64::MAX), Span::ZERO);
        let widest = config.with_backoff(PERIOD_MAX, PERIOD_MAX).unwrap();
        assert_eq!(widest.delay(64, u64::MAX), PERIOD_MAX);
    }

    #[test]
    fn numbers_have_bounds() {
        assert!(
            RetryConfig::new(0).is_err() && RetryConfig::new(101).is_err() && RetryConfig::new(100).is_ok()
        );
        let config = RetryConfig::new(1).unwrap();
        assert!(config.with_budget(1_001, 0).is_err() && config.with_budget(1_000, 1_000_000).is_ok());
        assert!(config.with_budget(0, 1_000_001).is_err());
        assert!(config.with_backoff(PERIOD_MAX.saturating_add(Span::from_micros(1)), Span::ZERO).is_err());
    }
}
