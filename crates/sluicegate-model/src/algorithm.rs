//! What each algorithm defines, and the fields of a decision that follow from it for all of them.
//!
//! Times, costs and durations are `i128`, so that no sum or product of valid numbers overflows.

use std::ops::Range;

use crate::decision::RetryAfter;
use crate::receipt::ChargeId;
use crate::search::{largest_cost, shortest_wait};

/// Whether a call acts now, or may wait.
#[derive(Clone, Copy)]
pub(crate) enum CallKind {
    /// A plain check.
    Check,
    /// A reservation that accepts a delay of up to `max_wait`.
    Reserve { max_wait: i128 },
}

/// The state of one key under one rule.
///
/// `at` is always the caller's clock, which may step back; each algorithm defines what that means.
pub(crate) trait Algorithm {
    /// Returns the highest cost admitted at once for an idle key.
    fn limit(&self) -> i128;

    /// Returns `true` if any cost can be allowed, even above the limit.
    fn has_no_largest_cost(&self) -> bool {
        false
    }

    /// Returns what remains, if that is not the largest cost that would be allowed.
    fn reported_remaining(&self, _at: i128) -> Option<i128> {
        None
    }

    /// Returns the time until the key is fully recovered, if that is not the first moment at which
    /// it is.
    fn reported_reset_after(&self, _at: i128) -> Option<i128> {
        None
    }

    /// Returns `true` if a check of a cost from 1 to `limit` would be allowed.
    fn allows(&self, at: i128, cost: i128) -> bool;

    /// Returns `true` if a reservation of a cost from 1 to `limit` would be allowed.
    fn allows_reserve(&self, at: i128, cost: i128, _max_wait: i128) -> bool {
        self.allows(at, cost)
    }

    /// Returns `true` if the key is fully recovered.
    fn is_recovered(&self, at: i128) -> bool;

    /// Returns the time until the limit opens; all waits are at least that.
    fn closed_for(&self, _at: i128) -> i128 {
        0
    }

    /// Returns the delay of an allowed check.
    fn check_delay(&self, _at: i128) -> i128 {
        0
    }

    /// Returns the delay of an allowed reservation.
    fn reserve_delay(&self, at: i128, _cost: i128) -> i128 {
        self.check_delay(at)
    }

    /// Charges a call that was allowed.
    fn charge(&mut self, at: i128, cost: i128);

    /// Charges a cost that was not checked first, up to the bound on debt.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        self.charge(at, cost);
    }

    /// Returns `true` if cost can be refunded.
    fn supports_refund(&self) -> bool {
        true
    }

    /// Returns cost without a receipt.
    fn refund(&mut self, at: i128, cost: i128);

    /// Records the charge just made, so that it can be returned later.
    fn remember(&mut self, charge: ChargeId, at: i128, delay: i128);

    /// Returns the part of a recorded charge that still counts, at most `cost`, and drops the
    /// record. The result is `true` if any cost was returned.
    fn roll_back(&mut self, charge: ChargeId, at: i128, cost: i128) -> bool;

    /// Drops the record of a charge, which stays charged.
    fn discard(&mut self, charge: ChargeId);

    /// Returns what is charged now, rounded up. It may exceed the limit.
    fn used(&self, at: i128) -> i128;

    /// Returns the window that the time is in, for the algorithms with windows.
    fn current_window(&self, _at: i128) -> Option<Range<i128>> {
        None
    }

    /// Returns when the next window starts, or what comes closest to it.
    fn next_window(&self, at: i128) -> i128;
}

/// Returns `true` if the call would be allowed, for any cost.
pub(crate) fn admits(algorithm: &dyn Algorithm, at: i128, cost: i128, kind: CallKind) -> bool {
    if cost == 0 {
        return true;
    }
    if cost > algorithm.limit() && !algorithm.has_no_largest_cost() {
        return false;
    }
    match kind {
        CallKind::Check => algorithm.allows(at, cost),
        CallKind::Reserve { max_wait } => algorithm.allows_reserve(at, cost, max_wait),
    }
}

/// Returns the delay of the call, if it is allowed.
pub(crate) fn delay(algorithm: &dyn Algorithm, at: i128, cost: i128, kind: CallKind) -> i128 {
    if cost == 0 {
        return 0;
    }
    match kind {
        CallKind::Check => algorithm.check_delay(at),
        CallKind::Reserve { .. } => algorithm.reserve_delay(at, cost),
    }
}

/// Returns the largest cost that would be allowed now.
pub(crate) fn remaining(algorithm: &dyn Algorithm, at: i128) -> i128 {
    algorithm
        .reported_remaining(at)
        .unwrap_or_else(|| largest_cost(algorithm.limit(), |cost| algorithm.allows(at, cost)))
}

/// Returns the shortest wait after which the same call would be allowed.
pub(crate) fn retry_after(algorithm: &dyn Algorithm, at: i128, cost: i128, kind: CallKind) -> RetryAfter {
    if cost > algorithm.limit() && !algorithm.has_no_largest_cost() {
        return RetryAfter::Never;
    }
    if algorithm.closed_for(at) > 0 {
        return RetryAfter::After(reported(algorithm.closed_for(at)));
    }
    match shortest_wait(|wait| admits(algorithm, at + wait, cost, kind)) {
        Some(wait) => RetryAfter::After(reported(wait)),
        None => RetryAfter::Never,
    }
}

/// Returns the time until the key is fully recovered.
pub(crate) fn reset_after(algorithm: &dyn Algorithm, at: i128) -> i128 {
    if let Some(reported) = algorithm.reported_reset_after(at) {
        return reported;
    }
    match algorithm.closed_for(at) {
        0 => shortest_wait(|wait| algorithm.is_recovered(at + wait)).unwrap_or(i128::MAX),
        closed_for => closed_for,
    }
}

/// Converts a number to a reported one: at least 0, and the largest integer for what has no end.
pub(crate) fn reported(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}
