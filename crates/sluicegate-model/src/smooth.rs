//! Guava's rate limiters, `SmoothBursty` and `SmoothWarmingUp`, as published: its own fields and
//! its own doubles, statement by statement. Only here nothing is found by search: Guava's rounding
//! is the promise.

use crate::algorithm::Algorithm;
use crate::bucket::CENTURY;
use crate::receipt::ChargeId;
use crate::rule::{Permits, Smooth as Rule};

/// One `RateLimiter` for one key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Smooth {
    stable_interval_micros: f64,
    max_permits: f64,
    stored_permits: f64,
    next_free_ticket_micros: i128,
    warming_up: Option<WarmingUp>,
    /// Whether the key was never charged or refunded, so that before its start it is as if created
    /// now.
    untouched: bool,
}

// No field is ever NaN.
impl Eq for Smooth {}

/// The fields that only `SmoothWarmingUp` has.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WarmingUp {
    warmup_period_micros: f64,
    slope: f64,
    threshold_permits: f64,
}

/// Java's `(long)`.
fn long(number: f64) -> i128 {
    #[allow(clippy::cast_possible_truncation, reason = "Java truncates and saturates in the same way")]
    let number = number as i64;
    i128::from(number)
}

/// Java's conversion of a `long` to a `double`.
#[allow(clippy::cast_precision_loss, reason = "Java rounds to the nearest double too")]
fn double(number: i128) -> f64 {
    number as f64
}

impl Smooth {
    /// Creates a limiter at its start.
    pub(crate) fn new(rule: &Rule) -> Self {
        let Rule { count, period, permits, initial, start } = rule;
        let permits_per_second = double(i128::from(*count)) * 1_000_000.0 / double(i128::from(*period));
        let stable_interval_micros = 1_000_000.0 / permits_per_second;
        let (max_permits, warming_up) = match permits {
            Permits::OneSecond => (1.0 * permits_per_second, None),
            Permits::Burst(burst) => (double(i128::from(*burst)), None),
            Permits::WarmUp { period, cold_thousandths } => {
                let warmup_period_micros = double(i128::from(*period));
                let cold_factor = double(i128::from(*cold_thousandths)) / 1_000.0;
                let cold_interval_micros = stable_interval_micros * cold_factor;
                let threshold_permits = 0.5 * warmup_period_micros / stable_interval_micros;
                let max_permits = threshold_permits
                    + 2.0 * warmup_period_micros / (stable_interval_micros + cold_interval_micros);
                let slope =
                    (cold_interval_micros - stable_interval_micros) / (max_permits - threshold_permits);
                (max_permits, Some(WarmingUp { warmup_period_micros, slope, threshold_permits }))
            }
        };
        let stored_permits = match (initial, warming_up) {
            (Some(initial), _) => double(i128::from(*initial)),
            (None, None) => 0.0,
            (None, Some(_)) => max_permits,
        };
        Self {
            stable_interval_micros,
            max_permits,
            stored_permits,
            next_free_ticket_micros: i128::from(*start),
            warming_up,
            untouched: true,
        }
    }

    /// Returns the limiter under other parameters: Guava's `setRate`, or a limiter created with
    /// them if the key was never charged.
    pub(crate) fn converted(&self, new: Self, now_micros: i128) -> Self {
        if self.untouched {
            return new;
        }
        if self.has_parameters_of(&new) {
            return self.clone();
        }
        let then = self.resynced(now_micros);
        let stored_permits = if then.max_permits == 0.0 {
            if new.warming_up.is_some() { new.max_permits } else { 0.0 }
        } else {
            then.stored_permits * new.max_permits / then.max_permits
        };
        Self {
            stored_permits,
            next_free_ticket_micros: then.next_free_ticket_micros,
            untouched: false,
            ..new
        }
    }

    #[allow(clippy::float_cmp, reason = "equal parameters give equal doubles")]
    fn has_parameters_of(&self, other: &Self) -> bool {
        self.stable_interval_micros == other.stable_interval_micros
            && self.max_permits == other.max_permits
            && self.warming_up == other.warming_up
    }

    fn cool_down_interval_micros(&self) -> f64 {
        match self.warming_up {
            Some(warming_up) => warming_up.warmup_period_micros / self.max_permits,
            None => self.stable_interval_micros,
        }
    }

    fn resync(&mut self, now_micros: i128) {
        if now_micros > self.next_free_ticket_micros {
            let new_permits =
                double(now_micros - self.next_free_ticket_micros) / self.cool_down_interval_micros();
            self.stored_permits = f64::min(self.max_permits, self.stored_permits + new_permits);
            self.next_free_ticket_micros = now_micros;
        }
    }

    /// Returns the limiter as of a time.
    fn resynced(&self, now_micros: i128) -> Self {
        let mut resynced = self.clone();
        if self.untouched {
            resynced.next_free_ticket_micros = self.next_free_ticket_micros.min(now_micros);
        }
        resynced.resync(now_micros);
        resynced
    }

    fn stored_permits_to_wait_time(&self, stored_permits: f64, permits_to_take: f64) -> i128 {
        let Some(WarmingUp { slope, threshold_permits, .. }) = self.warming_up else { return 0 };
        let permits_to_time = |permits: f64| self.stable_interval_micros + permits * slope;
        let mut permits_to_take = permits_to_take;
        let available_permits_above_threshold = stored_permits - threshold_permits;
        let mut micros = 0;
        if available_permits_above_threshold > 0.0 {
            let permits_above_threshold_to_take =
                f64::min(available_permits_above_threshold, permits_to_take);
            let length = permits_to_time(available_permits_above_threshold)
                + permits_to_time(available_permits_above_threshold - permits_above_threshold_to_take);
            micros = long(permits_above_threshold_to_take * length / 2.0);
            permits_to_take -= permits_above_threshold_to_take;
        }
        micros + long(self.stable_interval_micros * permits_to_take)
    }

    fn reserve_earliest_available(&mut self, required_permits: f64, now_micros: i128) {
        let stored_permits_to_spend = f64::min(required_permits, self.stored_permits);
        let fresh_permits = required_permits - stored_permits_to_spend;
        let wait_micros = self.stored_permits_to_wait_time(self.stored_permits, stored_permits_to_spend)
            + long(fresh_permits * self.stable_interval_micros);
        // Guava's ticket saturates at the largest `long`; ours is at most a century away.
        let latest = self.next_free_ticket_micros.max(now_micros + CENTURY);
        self.next_free_ticket_micros = (self.next_free_ticket_micros + wait_micros).min(latest);
        self.stored_permits -= stored_permits_to_spend;
    }
}

impl Algorithm for Smooth {
    fn limit(&self) -> i128 {
        long(self.max_permits)
    }

    fn has_no_largest_cost(&self) -> bool {
        true
    }

    fn allows(&self, at: i128, _cost: i128) -> bool {
        self.resynced(at).next_free_ticket_micros <= at
    }

    fn allows_reserve(&self, at: i128, _cost: i128, max_wait: i128) -> bool {
        self.resynced(at).next_free_ticket_micros - max_wait <= at
    }

    fn reported_remaining(&self, at: i128) -> Option<i128> {
        Some(long(self.resynced(at).stored_permits))
    }

    fn reported_reset_after(&self, at: i128) -> Option<i128> {
        let mut then = self.clone();
        then.resync(at);
        let missing = then.max_permits - then.stored_permits;
        let until_full = long((missing * then.cool_down_interval_micros()).ceil());
        Some(then.next_free_ticket_micros.max(at) - at + until_full)
    }

    fn is_recovered(&self, at: i128) -> bool {
        self.reported_reset_after(at) == Some(0)
    }

    fn reserve_delay(&self, at: i128, _cost: i128) -> i128 {
        (self.resynced(at).next_free_ticket_micros - at).max(0)
    }

    fn charge(&mut self, at: i128, cost: i128) {
        *self = self.resynced(at);
        self.untouched = false;
        self.reserve_earliest_available(double(cost), at);
    }

    fn used(&self, at: i128) -> i128 {
        self.limit() - long(self.resynced(at).stored_permits)
    }

    fn supports_refund(&self) -> bool {
        self.warming_up.is_none()
    }

    fn refund(&mut self, at: i128, cost: i128) {
        let then = self.resynced(at);
        if cost > 0 && then.stored_permits < then.max_permits {
            *self = then;
            self.untouched = false;
            self.stored_permits = f64::min(self.max_permits, self.stored_permits + double(cost));
        }
    }

    // There are no receipts: reserve is not supported.
    fn remember(&mut self, _charge: ChargeId, _at: i128, _delay: i128) {}

    fn roll_back(&mut self, _charge: ChargeId, _at: i128, _cost: i128) -> bool {
        false
    }

    fn discard(&mut self, _charge: ChargeId) {}

    fn next_window(&self, at: i128) -> i128 {
        self.resynced(at).next_free_ticket_micros
    }
}
