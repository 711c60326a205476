//! The leases of one key as a plain list: the live ones are added up for every call, and waits are
//! found by trying each moment at which a lease expires.

use crate::algorithm::reported;
use crate::decision::{Decision, RetryAfter, Usage};
use crate::search::largest_cost;

/// A concurrency limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// The most that may be held at once.
    pub count: u64,
    /// The lifetime of a lease in microseconds; unlimited if absent.
    pub ttl: Option<u64>,
}

/// The leases of one key.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    leases: Vec<Lease>,
    granted: u64,
}

/// Identifies a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseNumber(u64);

#[derive(Debug, Clone, Copy)]
struct Lease {
    number: u64,
    cost: u64,
    /// The expiry; the lease is live before it.
    until: Option<u64>,
}

/// The wait that is reported if no expiry is known.
const UNKNOWN: u64 = u64::MAX;

impl Leases {
    /// Acquires a lease, if its cost fits.
    pub fn acquire(&mut self, rule: Concurrency, now: u64, cost: u64) -> (Decision, Option<LeaseNumber>) {
        self.drop_expired(now);
        if cost == 0 || !self.has_room(rule, now, cost) {
            return (self.peek(rule, now, cost), None);
        }
        let number = self.granted;
        self.granted += 1;
        self.leases.push(Lease { number, cost, until: rule.ttl.map(|ttl| now + ttl) });
        let decision =
            Decision { allowed: true, retry_after: None, denied_by: None, ..self.peek(rule, now, 0) };
        (decision, Some(LeaseNumber(number)))
    }

    /// Extends a lease. Returns `true` if it was live.
    pub fn renew(&mut self, rule: Concurrency, now: u64, LeaseNumber(number): LeaseNumber) -> bool {
        self.drop_expired(now);
        match self.leases.iter_mut().find(|lease| lease.number == number) {
            Some(lease) => {
                lease.until = rule.ttl.map(|ttl| now + ttl);
                true
            }
            None => false,
        }
    }

    /// Releases a lease. Returns `true` if it was live.
    pub fn release(&mut self, now: u64, LeaseNumber(number): LeaseNumber) -> bool {
        self.drop_expired(now);
        let before = self.leases.len();
        self.leases.retain(|lease| lease.number != number);
        self.leases.len() < before
    }

    /// Decides whether a lease of this cost would be granted.
    pub fn peek(&mut self, rule: Concurrency, now: u64, cost: u64) -> Decision {
        self.drop_expired(now);
        let allowed = cost == 0 || self.has_room(rule, now, cost);
        let remaining = largest_cost(rule.count.into(), |cost| self.has_room(rule, now, reported(cost)));
        let retry_after = if allowed {
            None
        } else if cost > rule.count {
            Some(RetryAfter::Never)
        } else {
            Some(RetryAfter::After(self.first_moment(now, |at| self.has_room(rule, at, cost))))
        };
        Decision {
            allowed,
            limit: rule.count,
            remaining: reported(remaining),
            retry_after,
            reset_after: self.first_moment(now, |at| self.sum(at) == 0),
            delay: 0,
            denied_by: (!allowed).then_some(0),
        }
    }

    /// Returns what is held, as the limit's usage.
    pub fn usage(&mut self, rule: Concurrency, now: u64) -> Usage {
        let Decision { limit, remaining, reset_after, .. } = self.peek(rule, now, 0);
        Usage { limit, used: self.sum(now), remaining, reset_after, window: None }
    }

    /// Deletes the key's leases.
    pub fn reset(&mut self) {
        self.leases.clear();
    }

    /// Drops expired leases: one observed as expired never comes back.
    fn drop_expired(&mut self, now: u64) {
        self.leases.retain(|lease| lease.is_live(now));
    }

    fn sum(&self, at: u64) -> u64 {
        self.leases.iter().filter(|lease| lease.is_live(at)).map(|lease| lease.cost).sum()
    }

    fn has_room(&self, rule: Concurrency, at: u64, cost: u64) -> bool {
        self.sum(at) + cost <= rule.count
    }

    /// Returns the time until a condition holds: now, or when a lease expires.
    fn first_moment(&self, now: u64, holds: impl Fn(u64) -> bool) -> u64 {
        let moments = self.leases.iter().filter_map(|lease| lease.until).chain([now]);
        moments.filter(|&at| at >= now && holds(at)).min().map_or(UNKNOWN, |at| at - now)
    }
}

impl Lease {
    fn is_live(&self, at: u64) -> bool {
        self.until.is_none_or(|until| at < until)
    }
}
