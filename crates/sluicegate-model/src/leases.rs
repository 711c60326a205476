//! Leases of one key, as a plain list: what is live is added up anew for every question, and waits are found by trying each moment at
//! which something lapses.

use crate::answer::{Answer, RetryAfter};

/// So many at once, each for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// How many at once.
    pub count: u64,
    /// How long a lease is live, in microseconds; for ever if there is none.
    pub ttl: Option<u64>,
}

/// Everything that is known of one key.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    leases: Vec<Lease>,
    given: u64,
}

/// Names a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseNumber(u64);

#[derive(Debug, Clone, Copy)]
struct Lease {
    number: u64,
    cost: u64,
    /// Live before this; for ever if there is none.
    until: Option<u64>,
}

/// What is told of a moment that nobody knows: the longest there is.
const UNKNOWN: u64 = u64::MAX;

impl Leases {
    /// Asks for a lease.
    pub fn acquire(&mut self, rule: Concurrency, now: u64, cost: u64) -> (Answer, Option<LeaseNumber>) {
        self.forget_lapsed(now);
        if cost == 0 || !self.has_room(rule, now, cost) {
            return (self.peek(rule, now, cost), None);
        }
        let number = self.given;
        self.given += 1;
        self.leases.push(Lease { number, cost, until: rule.ttl.map(|ttl| now + ttl) });
        let answer = Answer { allowed: true, retry_after: None, denied_by: None, ..self.peek(rule, now, 0) };
        (answer, Some(LeaseNumber(number)))
    }

    /// Gives a lease a new time. Whether it was live.
    pub fn renew(&mut self, rule: Concurrency, now: u64, LeaseNumber(number): LeaseNumber) -> bool {
        self.forget_lapsed(now);
        match self.leases.iter_mut().find(|lease| lease.number == number) {
            Some(lease) => {
                lease.until = rule.ttl.map(|ttl| now + ttl);
                true
            }
            None => false,
        }
    }

    /// Returns a lease. Whether it was live.
    pub fn release(&mut self, now: u64, LeaseNumber(number): LeaseNumber) -> bool {
        self.forget_lapsed(now);
        let before = self.leases.len();
        self.leases.retain(|lease| lease.number != number);
        self.leases.len() < before
    }

    /// Would a lease of this cost be given?
    pub fn peek(&mut self, rule: Concurrency, now: u64, cost: u64) -> Answer {
        self.forget_lapsed(now);
        let allowed = cost == 0 || self.has_room(rule, now, cost);
        let remaining = (0..=rule.count).rev().find(|&cost| self.has_room(rule, now, cost)).unwrap_or(0);
        let retry_after = if allowed {
            None
        } else if cost > rule.count {
            Some(RetryAfter::Never)
        } else {
            Some(RetryAfter::After(self.first_moment(now, |at| self.has_room(rule, at, cost))))
        };
        Answer {
            allowed,
            limit: rule.count,
            remaining,
            retry_after,
            reset_after: self.first_moment(now, |at| self.sum(at) == 0),
            delay: 0,
            denied_by: (!allowed).then_some(0),
        }
    }

    /// Forgets the key.
    pub fn reset(&mut self) {
        self.leases.clear();
    }

    /// What was seen to have lapsed does not come back.
    fn forget_lapsed(&mut self, now: u64) {
        self.leases.retain(|lease| lease.is_live(now));
    }

    fn sum(&self, at: u64) -> u64 {
        self.leases.iter().filter(|lease| lease.is_live(at)).map(|lease| lease.cost).sum()
    }

    fn has_room(&self, rule: Concurrency, at: u64, cost: u64) -> bool {
        self.sum(at) + cost <= rule.count
    }

    /// How long until something holds: now, or when a lease lapses.
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
