//! A short timeline of leases, granted by the core: acquired, denied, released and expired.

use super::timeline::{HEADER, row};
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, Leases};
use sluicegate_core::{Decision, RetryAfter, Span, Time};
use sluicegate_sim::human::{count, span};

/// Without a ttl nothing expires, and any length shows the same.
const WITHOUT_TTL: Span = Span::from_micros(30_000_000);

/// A key under the limit, and the text so far.
struct Key {
    limit: Concurrency,
    leases: Leases<()>,
    text: String,
}

pub(super) fn of(limit: Concurrency) -> String {
    let mut key = Key { limit, leases: Leases::default(), text: HEADER.to_owned() };
    key.show();
    key.text
}

impl Key {
    /// One call takes a permit, others take the rest, and one is denied. Then the first releases
    /// its lease, another call takes the permit, and finally the rest expire.
    fn show(&mut self) {
        let all = self.limit.count();
        let third = Span::from_micros(self.limit.ttl().unwrap_or(WITHOUT_TTL).as_micros() / 3);
        let [begin, later] = [Time::EPOCH, Time::EPOCH.saturating_add(third)];
        let first = self.take(begin, 1);
        let _ = self.take(later, all.saturating_sub(1));
        let _ = self.take(later, 1);
        if let Some(first) = first {
            self.leases.release(later, first);
            let standing = self.limit.peek(&mut self.leases, later, 0);
            self.row(later, "-", "", &standing, "the first is released");
        }
        let last = self.take(later, 1);
        let expired = last.and_then(|held| held.until());
        let end = expired.unwrap_or(later);
        let standing = self.limit.peek(&mut self.leases, end, 0);
        let then = if expired.is_some() { "the rest have expired" } else { "held until they are released" };
        self.row(end, "-", "", &standing, then);
        let _ = self.take(end, all.saturating_add(1));
    }

    fn take(&mut self, now: Time, cost: u64) -> Option<LeaseHandle> {
        if cost == 0 {
            return None;
        }
        let (decision, held) = self.limit.acquire(&mut self.leases, now, cost, ());
        let then = match decision.retry_after() {
            None => String::new(),
            Some(RetryAfter::Never) => "never: above the limit".to_owned(),
            Some(RetryAfter::After(_)) if self.limit.ttl().is_none() => {
                "retry when one is released".to_owned()
            }
            Some(RetryAfter::After(wait)) => format!("retry in {}, or sooner", span(wait)),
        };
        let answer = if decision.allowed() { "yes" } else { "no" };
        self.row(now, &count(cost), answer, &decision, &then);
        held
    }

    fn row(&mut self, now: Time, cost: &str, answer: &str, decision: &Decision, then: &str) {
        row(&mut self.text, &span(now.since(Time::EPOCH)), (cost, answer), decision, then);
    }
}
