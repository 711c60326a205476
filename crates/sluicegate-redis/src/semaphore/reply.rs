//! What the scripts of a semaphore say, read with suspicion, and what the core makes of it.

use super::scope::Numbers;
use crate::failure::bad_state;
use redis::Value;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::{Decision, Span, Time};
use sluicegate_core::concurrency::Leases;

/// The store's decision about a lease.
pub(super) struct LeaseDecision {
    pub(super) is_taken: bool,
    /// Not taken, and no room in line either.
    pub(super) is_full: bool,
    pub(super) decision: Decision,
    /// The store's time, or the caller's.
    pub(super) now: Time,
    /// How long from then on the lease is live, if it was taken.
    pub(super) ttl: Span,
    /// How many stand in line before it.
    pub(super) place: u64,
    /// The number of its ticket: whoever has a smaller one goes before it. 0 if it has none.
    pub(super) ticket: u64,
}

/// What a script of a semaphore replies.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum LeaseReply {
    Done(Done),
    /// Nothing was done: there are more lapsed leases to be cleared away first.
    More,
    /// Nothing was done: what is there is not ours.
    NotOurs,
}

/// A sign, and the numbers after it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Done {
    pub(super) sign: u8,
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
            b"m" => Some(LeaseReply::More),
            b"x" => Some(LeaseReply::NotOurs),
            [sign, rest @ ..] => {
                let numbers = rest.split(|byte| *byte == b' ');
                let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
                Some(LeaseReply::Done(Done {
                    sign: *sign,
                    numbers: numbers.map(number).collect::<Option<_>>()?,
                }))
            }
            [] => None,
        }
    }
}

impl Done {
    /// Whether it was done, and when.
    pub(super) fn yes(&self) -> Option<(bool, Time)> {
        let [now] = *self.numbers.as_slice() else { return None };
        let yes = match self.sign {
            b'1' => true,
            b'0' => false,
            _ => return None,
        };
        Some((yes, Time::from_micros(now)?))
    }
}

impl Numbers {
    /// What a reply says of a lease of this cost. Of the leases it tells as much as this one decision needs: those that have to lapse
    /// for it are as one, and so are all others.
    pub(super) fn decided(&self, done: &Done, cost: u32, takes: bool) -> Result<LeaseDecision, StoreFailure> {
        self.read_decided(done, cost, takes).ok_or_else(bad_state)
    }

    fn read_decided(&self, done: &Done, cost: u32, takes: bool) -> Option<LeaseDecision> {
        let [now, sum, ahead, enough_at, last_at, place, ticket] = *done.numbers.as_slice() else {
            return None;
        };
        let (count, now) = (u64::from(self.rule.count()), Time::from_micros(now)?);
        let missing = count.min(ahead.checked_add(cost.into())?).checked_add(sum)?.saturating_sub(count);
        let (sooner, later) =
            if enough_at == 0 { (0, sum) } else { (missing.min(sum), sum.checked_sub(missing)?) };
        let mut leases = Leases::default();
        for (cost, until) in [(sooner, enough_at), (later, last_at)] {
            if cost > 0 {
                leases.hold(Time::from_micros(until)?, u32::try_from(cost).ok()?, ());
            }
        }
        let decision = match (done.sign, takes) {
            // It has its lease already, also if there are more by now than these numbers allow.
            (b'h', true) => self.rule.peek(&mut leases, now, 0),
            (b'0' | b'f', _) if ahead > 0 => self.rule.denial_behind(&mut leases, now, cost, ahead),
            (b'0' | b'1' | b'f', true) => self.rule.acquire(&mut leases, now, cost, ()).0,
            (b'0' | b'1', false) => self.rule.peek(&mut leases, now, cost),
            _ => return None,
        };
        let is_taken = matches!(done.sign, b'1' | b'h');
        (decision.allowed() == is_taken).then_some(LeaseDecision {
            is_taken,
            is_full: done.sign == b'f',
            decision,
            now,
            ttl: self.ttl,
            place,
            ticket,
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
    fn only_texts_of_ours_are_replies() {
        assert_eq!(read("12 3"), Some(LeaseReply::Done(Done { sign: b'1', numbers: vec![2, 3] })));
        assert_eq!((read("m"), read("x")), (Some(LeaseReply::More), Some(LeaseReply::NotOurs)));
        for other in ["", "1", "1 ", "1-5", "1inf", "1nan 7", "0 1 2", "118446744073709551616"] {
            let reply = read(other);
            let numbers = matches!(&reply, Some(LeaseReply::Done(done)) if !done.numbers.is_empty());
            assert!(!numbers, "{other:?}: {reply:?}");
        }
        assert_eq!(LeaseReply::read(&Value::Int(1)), None);
    }
}
