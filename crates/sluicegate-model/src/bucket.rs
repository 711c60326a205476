//! Token bucket, leaky bucket, minimum interval, and the pacer, which decides like a bucket one
//! larger than its queue.
//!
//! The state is the definition itself: the level at the last change, refilling at `count / period`.
//! The rate is in lowest terms, and two scales keep everything in integers. A *level* is tokens
//! times `period`, so that one microsecond refills exactly `count`. A *moment* is microseconds
//! times `count`, so that the level missing from a full bucket is also the time until it is full.

use std::collections::BTreeMap;

use crate::algorithm::{Algorithm, remaining};
use crate::receipt::ChargeId;
use crate::rollback::Rollback;
use crate::rule::Initial;
use crate::search::shortest_wait;

/// A hundred years of 365 days, in microseconds: the largest debt.
pub(crate) const CENTURY: i128 = 100 * 365 * 86_400 * 1_000_000;

/// The tokens of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bucket {
    count: i128,
    period: i128,
    burst: i128,
    initial: Option<Initial>,
    /// Whether this is a pacer: its calls wait for the bucket to fill before they act.
    paces: bool,
    /// Absent until the level changes for the first time.
    changed: Option<Changed>,
    /// The latest time of a charge or return. What had leaked by then stays leaked, even if the
    /// clock steps back afterwards.
    latest: i128,
    claims: BTreeMap<ChargeId, Claim>,
}

/// The level just after the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Changed {
    at: i128,
    level: i128,
}

/// What a receipt records of its charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// The moment at which the bucket was to be full just after the charge, less earlier rollbacks.
    full_at: i128,
    /// Whether the call had a time slot, which cannot be returned once later calls have slots.
    had_to_wait: bool,
}

impl Bucket {
    /// Creates a bucket that was never charged.
    pub(crate) fn new(count: u64, period: u64, burst: u64, initial: Option<Initial>) -> Self {
        let (count, period) = in_lowest_terms(i128::from(count), i128::from(period));
        Self {
            count,
            period,
            burst: i128::from(burst),
            initial,
            paces: false,
            changed: None,
            latest: 0,
            claims: BTreeMap::new(),
        }
    }

    /// Creates a pacer without waiting calls: one call acts immediately, and `queue` more may wait.
    pub(crate) fn pacer(count: u64, period: u64, queue: u64) -> Self {
        let mut bucket = Self::new(count, period, queue, None);
        bucket.burst += 1;
        bucket.paces = true;
        bucket
    }

    /// Returns the bucket under other parameters, as of a time.
    ///
    /// The tokens used, and those up to each receipt's charge, are rounded up to the new scale. The
    /// charges between them are whole tokens, which both scales express exactly, so the order of
    /// charges and the distances between them stay.
    pub(crate) fn converted(&self, mut new: Self, at: i128) -> Self {
        if self.changed.is_none() {
            return new;
        }
        if (self.count, self.period) == (new.count, new.period) {
            let more = new.full() - self.full();
            let changed = self.changed.map(|Changed { at, level }| Changed { at, level: level + more });
            return Self { burst: new.burst, initial: new.initial, changed, ..self.clone() };
        }
        // What had leaked by the latest charge or return stays leaked, and a step back since then
        // is not usage. A bucket that was full before that is converted as of when it was.
        let full_since = self.full_moment().map_or(at, |moment| -(-moment).div_euclid(self.count));
        let from = at.max(self.latest.min(full_since));
        let rescaled = |level: i128| scaled_up(level, new.period, self.period);
        let most_used = new.full() + CENTURY * new.count;
        let used = rescaled(self.full() - self.level(from)).min(most_used);
        new.claims = self.claims.clone();
        for claim in new.claims.values_mut() {
            claim.full_at = from * new.count + rescaled(claim.full_at - from * self.count).min(used);
        }
        new.latest = self.latest.max(at);
        new.changed = Some(Changed { at: from, level: new.full() - used });
        new
    }

    fn full(&self) -> i128 {
        self.burst * self.period
    }

    /// Returns the level. A step back of the clock lowers it by what the step would have refilled.
    fn level(&self, at: i128) -> i128 {
        let uncapped = match (self.changed, self.initial) {
            (Some(changed), _) => changed.level + (at - changed.at) * self.count,
            (None, Some(initial)) => {
                let since_start = (at - i128::from(initial.start)).max(0);
                i128::from(initial.tokens) * self.period + since_start * self.count
            }
            (None, None) => self.full(),
        };
        uncapped.min(self.full())
    }

    fn set_level(&mut self, at: i128, level: i128) {
        self.latest = self.latest.max(at);
        self.changed = Some(Changed { at, level });
    }

    /// Returns the moment at which the bucket is full after the last change, if there was one.
    fn full_moment(&self) -> Option<i128> {
        let changed = self.changed?;
        Some(changed.at * self.count + self.full() - changed.level)
    }

    /// Returns what was charged up to `end`, a moment at which the bucket was or is to be full.
    /// Returns `false`, and changes nothing, if that was nothing.
    fn return_level(&mut self, at: i128, end: i128, wanted: i128) -> bool {
        let level = self.level(at);
        let returned = wanted.min(self.full() - level);
        if returned <= 0 {
            return false;
        }
        self.set_level(at, level + returned);
        let rollback = Rollback { end, length: returned };
        for claim in self.claims.values_mut() {
            claim.full_at = rollback.shifted(claim.full_at);
        }
        true
    }

    fn wait_until_full(&self, at: i128) -> i128 {
        shortest_wait(|wait| self.is_recovered(at + wait)).unwrap_or(i128::MAX)
    }
}

/// Returns `level * numerator / denominator`, rounded up.
///
/// The product may be larger than an integer can hold, so whole denominators are multiplied apart
/// from the rest. A result that saturates is far beyond any time and any debt: both are below
/// 2^100.
fn scaled_up(level: i128, numerator: i128, denominator: i128) -> i128 {
    const FAR: i128 = 1 << 120;
    let (whole, rest) = (level.div_euclid(denominator), level.rem_euclid(denominator));
    let rest_rounded_up = (rest * numerator + denominator - 1) / denominator;
    whole.saturating_mul(numerator).saturating_add(rest_rounded_up).clamp(-FAR, FAR)
}

/// Returns a fraction in lowest terms.
fn in_lowest_terms(numerator: i128, denominator: i128) -> (i128, i128) {
    let (mut divisor, mut rest) = (numerator, denominator);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (numerator / divisor, denominator / divisor)
}

impl Algorithm for Bucket {
    fn limit(&self) -> i128 {
        self.burst
    }

    fn allows(&self, at: i128, cost: i128) -> bool {
        self.level(at) >= cost * self.period
    }

    /// A bucket lends what it will hold at the end of the wait. A pacer lends nothing, but its
    /// delay must fit.
    fn allows_reserve(&self, at: i128, cost: i128, max_wait: i128) -> bool {
        if self.paces {
            self.allows(at, cost) && self.wait_until_full(at) <= max_wait
        } else {
            self.allows(at + max_wait, cost)
        }
    }

    fn is_recovered(&self, at: i128) -> bool {
        self.level(at) == self.full()
    }

    fn check_delay(&self, at: i128) -> i128 {
        if self.paces { self.wait_until_full(at) } else { 0 }
    }

    fn reserve_delay(&self, at: i128, cost: i128) -> i128 {
        if self.paces {
            self.wait_until_full(at)
        } else {
            shortest_wait(|wait| self.allows(at + wait, cost)).unwrap_or(i128::MAX)
        }
    }

    fn charge(&mut self, at: i128, cost: i128) {
        self.set_level(at, self.level(at) - cost * self.period);
    }

    /// Debt stops at a century, so that no settle locks a key out for good.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        let deepest = -CENTURY * self.count;
        let level = self.level(at);
        self.latest = self.latest.max(at);
        if level >= deepest {
            self.set_level(at, (level - cost * self.period).max(deepest));
        }
    }

    fn used(&self, at: i128) -> i128 {
        let missing = self.full() - self.level(at);
        (missing + self.period - 1) / self.period
    }

    fn supports_refund(&self) -> bool {
        !self.paces
    }

    fn refund(&mut self, at: i128, cost: i128) {
        let full_moment = at * self.count + self.full() - self.level(at);
        self.return_level(at, full_moment, cost * self.period);
    }

    fn remember(&mut self, charge: ChargeId, _at: i128, delay: i128) {
        if let Some(full_at) = self.full_moment() {
            let had_to_wait = self.paces || delay > 0;
            self.claims.insert(charge, Claim { full_at, had_to_wait });
        }
    }

    fn roll_back(&mut self, charge: ChargeId, at: i128, cost: i128) -> bool {
        let Some(claim) = self.claims.remove(&charge) else {
            return false;
        };
        let later_call_charged = self.full_moment().is_some_and(|full_moment| full_moment > claim.full_at);
        if claim.had_to_wait && later_call_charged {
            return false;
        }
        let not_leaked_yet = claim.full_at - at.max(self.latest) * self.count;
        let wanted = not_leaked_yet.min(cost * self.period);
        self.return_level(at, claim.full_at, wanted)
    }

    fn discard(&mut self, charge: ChargeId) {
        self.claims.remove(&charge);
    }

    fn next_window(&self, at: i128) -> i128 {
        if self.paces {
            return at + self.wait_until_full(at);
        }
        let one_more = remaining(self, at) + 1;
        if one_more > self.burst {
            return at;
        }
        at + shortest_wait(|wait| self.allows(at + wait, one_more)).unwrap_or(0)
    }
}
