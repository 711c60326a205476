//! Parses the replies of the semaphore scripts, and recomputes their decisions.
//!
//! A reply is not trusted: anything may be listening at the store's address.

use super::scope::LeaseLimit;
use crate::failure::bad_state;
use redis::Value;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::{Decision, Span, Time, Usage};
use sluicegate_core::concurrency::Leases;
use std::num::NonZeroU64;

/// The store's decision about a lease.
pub(super) struct LeaseDecision {
    pub(super) is_granted: bool,
    /// The lease was not granted, and the queue is full.
    pub(super) is_queue_full: bool,
    pub(super) decision: Decision,
    /// The store's time, or the caller's.
    pub(super) now: Time,
    /// How long a granted lease is live from `now` on.
    pub(super) ttl: Span,
    /// The number of waiters ahead in the queue.
    pub(super) ahead: u64,
    /// The sequence number in the queue: a lower one goes first. 0 for a call that is not in it.
    pub(super) sequence: u64,
}

/// The reply of a semaphore script.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum LeaseReply {
    Done(StatusReply),
    /// Nothing was done yet: more expired leases or waiters have to be removed first.
    MoreExpired,
    /// Nothing was done: the key's data is not ours.
    Unreadable,
}

/// A status, followed by numbers.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct StatusReply {
    pub(super) status: u8,
    pub(super) numbers: Vec<u64>,
}

impl LeaseDecision {
    pub(super) fn answer(&self) -> Answer {
        Answer::new(self.decision, Source::Store)
    }
}

impl LeaseReply {
    pub(super) fn read(value: &Value) -> Option<LeaseReply> {
        let Value::BulkString(text) = value else { return None };
        match text.as_slice() {
            b"m" => Some(LeaseReply::MoreExpired),
            b"x" => Some(LeaseReply::Unreadable),
            [status, rest @ ..] => {
                let numbers = rest.split(|byte| *byte == b' ');
                let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
                let numbers = numbers.map(number).collect::<Option<_>>()?;
                Some(LeaseReply::Done(StatusReply { status: *status, numbers }))
            }
            [] => None,
        }
    }
}

impl StatusReply {
    /// Whether a lease was renewed or released, and when.
    pub(super) fn done_at(&self) -> Option<(bool, Time)> {
        let [now] = *self.numbers.as_slice() else { return None };
        let done = match self.status {
            b'1' => true,
            b'0' => false,
            _ => return None,
        };
        Some((done, Time::from_micros(now)?))
    }
}

impl LeaseLimit {
    /// Recomputes the decision about a lease of this cost. The reply tells of the key's leases only
    /// what this decision needs: those that must expire first count as one lease, and all others as
    /// another.
    pub(super) fn decided(
        &self,
        outcome: &StatusReply,
        cost: u64,
        acquires: bool,
    ) -> Result<LeaseDecision, StoreFailure> {
        self.recomputed(outcome, cost, acquires).ok_or_else(bad_state)
    }

    /// Computes what the key's leases use. Their sum and the last expiry are all that matters.
    pub(super) fn usage(&self, outcome: &StatusReply) -> Result<Usage, StoreFailure> {
        let used = || {
            let [now, sum, _, _, last_at, ..] = *outcome.numbers.as_slice() else { return None };
            let mut leases = Leases::default();
            if let Some(sum) = NonZeroU64::new(sum) {
                leases.restore(Time::from_micros(last_at)?, sum, ());
            }
            Some(self.concurrency.usage(&mut leases, Time::from_micros(now)?))
        };
        used().ok_or_else(bad_state)
    }

    fn recomputed(&self, outcome: &StatusReply, cost: u64, acquires: bool) -> Option<LeaseDecision> {
        let [now, sum, ahead_cost, enough_at, last_at, ahead, sequence] = *outcome.numbers.as_slice() else {
            return None;
        };
        let (count, now) = (self.concurrency.count(), Time::from_micros(now)?);
        let missing = count.min(ahead_cost.checked_add(cost)?).checked_add(sum)?.saturating_sub(count);
        let (sooner, later) =
            if enough_at == 0 { (0, sum) } else { (missing.min(sum), sum.checked_sub(missing)?) };
        let mut leases = Leases::default();
        for (cost, until) in [(sooner, enough_at), (later, last_at)] {
            if let Some(cost) = NonZeroU64::new(cost) {
                leases.restore(Time::from_micros(until)?, cost, ());
            }
        }
        let concurrency = &self.concurrency;
        let decision = match (outcome.status, acquires) {
            // It holds its lease already, even if the limit is lower by now.
            (b'h', true) => concurrency.peek(&mut leases, now, 0),
            (b'0' | b'f', _) if ahead_cost > 0 => {
                concurrency.denial_behind(&mut leases, now, cost, ahead_cost)
            }
            (b'0' | b'1' | b'f', true) => concurrency.acquire(&mut leases, now, cost, ()).0,
            (b'0' | b'1', false) => concurrency.peek(&mut leases, now, cost),
            _ => return None,
        };
        let is_granted = matches!(outcome.status, b'1' | b'h');
        (decision.allowed() == is_granted).then_some(LeaseDecision {
            is_granted,
            is_queue_full: outcome.status == b'f',
            decision,
            now,
            ttl: self.ttl,
            ahead,
            sequence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<LeaseReply> {
        LeaseReply::read(&Value::BulkString(text.as_bytes().to_vec()))
    }

    #[test]
    fn only_our_replies_are_parsed() {
        let outcome = StatusReply { status: b'1', numbers: vec![2, 3] };
        assert_eq!(read("12 3"), Some(LeaseReply::Done(outcome)));
        assert_eq!((read("m"), read("x")), (Some(LeaseReply::MoreExpired), Some(LeaseReply::Unreadable)));
        for other in ["", "1", "1 ", "1-5", "1inf", "1nan 7", "0 1 2", "118446744073709551616"] {
            let reply = read(other);
            let is_done = matches!(&reply, Some(LeaseReply::Done(outcome)) if !outcome.numbers.is_empty());
            assert!(!is_done, "{other:?}: {reply:?}");
        }
        assert_eq!(LeaseReply::read(&Value::Int(1)), None);
    }
}
