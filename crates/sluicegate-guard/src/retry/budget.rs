//! Retries: how many, after what delay, and within which budget. Pure: no clock, lock or I/O.
//!
//! A failed call may be retried a few times, after a delay that doubles. But when every call fails,
//! retries keep the dependency failing: with two retries each, a dependency that is down gets three
//! times its load. So retries have a budget: a share of all calls of the last ten seconds, plus a
//! few so that a quiet service can retry too.
//!
//! ```text
//! Settings   max_retries: per call     percent: of calls     floor: retries that are always
//!            allowed
//! State      calls and retries of each of the last 10 whole seconds of the clock
//! Formula    with r retries and c calls in these ten seconds, another retry is allowed while
//!            (r + 1 - floor) * 100 <= percent * c
//! Promise    in the ten whole seconds that end with that of a retry: retries <= floor + percent of
//!            calls. (Older calls have aged out, but the retries they allowed may not have: for
//!            other spans of ten seconds, such as those in which calls stop, this is not promised.)
//!            If the clock steps back, this holds for the ten seconds counted last, in the order of
//!            counting.
//! Delay      before the n-th retry: uniform in 0..=min(backoff * 2^(n-1), max-backoff) ("full
//!            jitter"), so that calls that failed together are not retried together.
//! Rounding   none: the share is compared, not computed.
//! Clock      after a step back the seconds keep their order and the latest becomes the current
//!            one, so that counts last at most ten seconds longer. A step of up to a second is
//!            ignored: the clocks of two threads may differ a little. After a step forward, counts
//!            older than ten seconds have aged out.
//! Cost       ten additions per retry, none per call.
//!
//! Example    10 % and a floor of 10: 200 calls per second, and all fail. Of 2000 calls in ten
//!            seconds, 210 are retried.
//! Reference  Finagle's RetryBudget (20 %, 10 per second, 10 s); "Handling Overload" in Google's
//!            SRE book (10 %).
//! ```

#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]

use sluicegate_core::bounds::{OutOfBounds, PERIOD_MAX, checked_number, checked_span};
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// Upper bound of retries per call. More would only be waiting.
pub const RETRIES_MAX: u32 = 100;
/// Upper bound of the budget: ten retries per call.
pub const PERCENT_MAX: u32 = 1_000;
/// Upper bound of the floor.
pub const FLOOR_MAX: u32 = 1_000_000;
/// Default budget, in percent of calls.
pub const PERCENT_DEFAULT: u32 = 10;
/// Default floor: retries that are always allowed in ten seconds, one per second.
pub const FLOOR_DEFAULT: u32 = 10;
/// Default of the longest delay before the first retry.
pub const BACKOFF_DEFAULT: Span = Span::from_micros(50_000);
/// Default of the longest delay before any retry.
pub const MAX_BACKOFF_DEFAULT: Span = Span::from_micros(SECOND);

/// The number of seconds counted.
const SECONDS: usize = 10;

/// The configuration of retries, as one line of text: `retry 2 budget=10% floor=10 backoff=50ms
/// max-backoff=1s`.
///
/// ```
/// use sluicegate_guard::retry::RetryConfig;
///
/// let rules: RetryConfig = "retry 2 budget=10% backoff=100ms".parse()?;
/// assert_eq!(rules.to_string(), "retry 2 backoff=100ms");
/// assert_eq!((rules.max_retries(), rules.percent()), (2, 10));
///
/// let error = "retry 2 budget=10".parse::<RetryConfig>().unwrap_err();
/// assert_eq!(error.to_string(), r#"retry 2 budget=10: budget "10" has no %; write 10%"#);
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
    /// Creates a configuration of up to this many retries per call, with the default budget and
    /// delays.
    ///
    /// # Errors
    /// If it is 0 or above [`RETRIES_MAX`].
    pub fn new(max_retries: u64) -> Result<RetryConfig, OutOfBounds> {
        let max_retries = within("count", max_retries, 1, RETRIES_MAX)?;
        let (backoff, max_backoff) = (BACKOFF_DEFAULT, MAX_BACKOFF_DEFAULT);
        Ok(RetryConfig { max_retries, percent: PERCENT_DEFAULT, floor: FLOOR_DEFAULT, backoff, max_backoff })
    }

    /// Sets the budget: a percentage of calls, and the retries always allowed in ten seconds.
    ///
    /// # Errors
    /// If one of them is out of bounds.
    pub fn with_budget(self, percent: u64, floor: u64) -> Result<RetryConfig, OutOfBounds> {
        let percent = within("budget", percent, 0, PERCENT_MAX)?;
        Ok(RetryConfig { percent, floor: within("floor", floor, 0, FLOOR_MAX)?, ..self })
    }

    /// Sets the longest delay before the first retry, and before any. A `first` above `max` is
    /// taken as `max`.
    ///
    /// # Errors
    /// If one of them is above ten years.
    pub fn with_backoff(self, first: Span, max: Span) -> Result<RetryConfig, OutOfBounds> {
        for span in [first, max] {
            checked_span("backoff", span, (Span::ZERO, PERIOD_MAX), ["", "use at most 3650d"])?;
        }
        Ok(RetryConfig { backoff: first.min(max), max_backoff: max, ..self })
    }

    /// Returns the maximum number of retries per call.
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// Returns the budget, in percent of calls.
    pub const fn percent(&self) -> u32 {
        self.percent
    }

    /// Returns the number of retries that are always allowed in ten seconds.
    pub const fn floor(&self) -> u32 {
        self.floor
    }

    /// Returns the longest delay before the first retry.
    pub const fn backoff(&self) -> Span {
        self.backoff
    }

    /// Returns the longest delay before any retry.
    pub const fn max_backoff(&self) -> Span {
        self.max_backoff
    }

    /// Returns the delay before the n-th retry, counted from 1, for a uniformly random number.
    pub fn delay(&self, nth: u32, random: u64) -> Span {
        let doubled = 1_u64.checked_shl(nth.saturating_sub(1)).unwrap_or(u64::MAX);
        let longest = self.backoff.as_micros().saturating_mul(doubled).min(self.max_backoff.as_micros());
        // Cannot overflow: 64 bits times at most 64 bits. The upper half is uniform in 0 to
        // `longest`.
        let scaled = u128::from(random) * (u128::from(longest) + 1);
        Span::from_micros(u64::try_from(scaled >> 64).unwrap_or(longest))
    }
}

fn within(what: &'static str, value: u64, least: u32, most: u32) -> Result<u32, OutOfBounds> {
    let advice = ["omit retry to make one attempt", "use a smaller number"];
    checked_number(what, value, (least, most), advice)
}

/// The retry budget, shared by all calls.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Budget {
    /// The second of the last entry of `counts`, from the epoch.
    second: u64,
    /// Oldest first.
    counts: [Counts; SECONDS],
}

/// The counts of one second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    calls: u64,
    retries: u64,
}

impl Budget {
    /// Counts a call's first attempt.
    pub fn call(&mut self, now: Time) {
        let last = self.last(now);
        last.calls = last.calls.saturating_add(1);
    }

    /// Counts a retry if the budget allows it. Returns `false` if it does not.
    pub fn try_retry(&mut self, config: &RetryConfig, now: Time) -> bool {
        let allowed = self.left(config, now) > 0;
        if allowed {
            let last = self.last(now);
            last.retries = last.retries.saturating_add(1);
        }
        allowed
    }

    /// Returns the number of retries left now.
    pub fn left(&mut self, config: &RetryConfig, now: Time) -> u64 {
        self.last(now);
        let sum = |of: fn(&Counts) -> u64| {
            self.counts.iter().fold(0_u64, |sum, counts| sum.saturating_add(of(counts)))
        };
        let (calls, retries) = (sum(|counts| counts.calls), sum(|counts| counts.retries));
        // Whole retries only: rounding down matches the formula, since both sides are whole.
        let share = u128::from(calls) * u128::from(config.percent) / 100;
        let most = u64::try_from(share).unwrap_or(u64::MAX).saturating_add(u64::from(config.floor));
        most.saturating_sub(retries)
    }

    /// Returns the counts of the current second.
    fn last(&mut self, now: Time) -> &mut Counts {
        let second = now.as_micros() / SECOND;
        // The previous second counts as the current one: see the header. Cannot overflow: there are
        // fewer than 2^39 seconds.
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

    /// The model is the list of all calls and retries, and the formula of the header.
    #[test]
    fn it_matches_a_list_of_all_calls() {
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
                    // A clock that steps back moves everything recorded along.
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
                    budget.try_retry(&config, at(now)),
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
    fn in_an_outage_retries_are_the_share_plus_the_floor() {
        let config = RetryConfig::new(2).unwrap();
        let mut budget = Budget::default();
        let mut retries = 0;
        for call in 0..2_000 {
            let now = at(call * 5_000);
            budget.call(now);
            retries += u32::from(budget.try_retry(&config, now)) + u32::from(budget.try_retry(&config, now));
        }
        assert_eq!(retries, 210);
    }

    /// 1000 calls, all failed five seconds later: the budget is a share of them although no call
    /// begins any more.
    #[test]
    fn the_promise_holds_for_the_seconds_that_end_with_a_retry() {
        let config = RetryConfig::new(2).unwrap();
        let mut budget = Budget::default();
        for _ in 0..1_000 {
            budget.call(at(0));
        }
        let retries = |budget: &mut Budget, now: u64| {
            (0..1_000).filter(|_| budget.try_retry(&config, at(now * SECOND))).count()
        };
        assert_eq!([5, 9, 10, 14].map(|second| retries(&mut budget, second)), [110, 0, 0, 0]);
        assert_eq!(retries(&mut budget, 15), 10, "the floor, once those have aged out");
    }

    /// Ten minutes of calls without a failure, on a clock that was set back by an hour, are not
    /// saved up for a retry storm.
    #[test]
    fn after_a_step_back_calls_age_out_as_before() {
        let config = RetryConfig::new(2).unwrap();
        let (mut budget, hour) = (Budget::default(), 3_600 * SECOND);
        budget.call(at(hour));
        for call in 0..6_000 {
            budget.call(at(call * SECOND / 10));
        }
        assert_eq!(budget.left(&config, at(599 * SECOND)), 20, "the floor, and a tenth of a hundred");
    }

    #[test]
    fn clocks_that_differ_slightly_at_a_second_end_drop_nothing() {
        let config = RetryConfig::new(2).unwrap().with_budget(100, 0).unwrap();
        let mut budget = Budget::default();
        for _ in 0..50 {
            budget.call(at(SECOND));
            budget.call(at(SECOND - 1));
        }
        assert_eq!([10, 11].map(|second| budget.left(&config, at(second * SECOND))), [100, 0]);
    }

    #[test]
    fn delays_double_up_to_the_longest_and_are_uniform() {
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
    fn parameters_have_bounds() {
        assert!(
            RetryConfig::new(0).is_err() && RetryConfig::new(101).is_err() && RetryConfig::new(100).is_ok()
        );
        let config = RetryConfig::new(1).unwrap();
        assert!(config.with_budget(1_001, 0).is_err() && config.with_budget(1_000, 1_000_000).is_ok());
        assert!(config.with_budget(0, 1_000_001).is_err());
        assert!(config.with_backoff(PERIOD_MAX.saturating_add(Span::from_micros(1)), Span::ZERO).is_err());
    }
}
