//! The verbs of a semaphore as script calls: one per verb, repeated only while a call was spent on
//! removing expired leases and waiters.

use super::Inner;
use super::acquire::QueueEntry;
use super::id::StoreId;
use super::polling::WAITER_TTL_MAX;
use super::reply::{LeaseDecision, LeaseReply, StatusReply};
use super::scope::LeaseLimit;
use crate::failure::{bad_state, unreadable_state};
use crate::round_trip::RoundTrip;
use crate::script::ScriptCall;
use crate::scripts;
use sluicegate::backend::StoreFailure;
use sluicegate::{Span, Time, Usage};
use sluicegate_core::concurrency::SCAN_MAX;

/// Every whole number below this is exact in a script.
const EXACT: u64 = 1 << 53;

impl Inner {
    /// Acquires a lease, or enters the queue if `entry` is given.
    pub(super) async fn send_acquire(
        &self,
        round_trip: RoundTrip<'_>,
        key: &[u8],
        (id, cost): (&StoreId, u64),
        entry: Option<QueueEntry>,
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<LeaseDecision, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::ACQUIRE, &self.names.of_semaphore(key)).at(now);
        call.arg(&id.to_bytes()[..]).arg(cost).arg(limit.concurrency.count()).arg(limit.ttl.as_micros());
        call.arg(SCAN_MAX).arg(Span::from(WAITER_TTL_MAX).as_micros());
        if let Some(QueueEntry { ttl, max_queue }) = entry {
            call.arg(Span::from(ttl).as_micros()).arg(max_queue);
        }
        limit.decided(&send(round_trip, &call, limit, now).await?, cost, true)
    }

    pub(super) async fn send_peek(
        &self,
        key: &[u8],
        cost: u64,
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<LeaseDecision, StoreFailure> {
        limit.decided(&self.peeked(key, cost, limit, now).await?, cost, false)
    }

    /// Returns what the key's leases use.
    pub(super) async fn send_usage(
        &self,
        key: &[u8],
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<Usage, StoreFailure> {
        limit.usage(&self.peeked(key, 0, limit, now).await?)
    }

    async fn peeked(
        &self,
        key: &[u8],
        cost: u64,
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<StatusReply, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::PEEK, &self.names.of_semaphore(key)).at(now);
        call.arg(cost).arg(limit.concurrency.count());
        call.arg(SCAN_MAX).arg(Span::from(WAITER_TTL_MAX).as_micros());
        send(self.store.inner.admit(1).await?, &call, limit, now).await
    }

    /// Returns whether the lease was live, and the store's time.
    pub(super) async fn send_renew(
        &self,
        key: &[u8],
        id: &StoreId,
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<(bool, Time), StoreFailure> {
        let [leases, costs, ..] = self.names.of_semaphore(key);
        let mut call = ScriptCall::new(&scripts::RENEW, &[leases, costs]).at(now);
        call.arg(&id.to_bytes()[..]).arg(limit.ttl.as_micros());
        self.send_return(&call, limit, now).await?.done_at().ok_or_else(bad_state)
    }

    /// Returns whether the lease was live. `queued_cost` is the cost of a call that may be in the
    /// queue.
    pub(super) async fn send_release(
        &self,
        key: &[u8],
        id: &StoreId,
        queued_cost: Option<u64>,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::RELEASE, &self.names.of_semaphore(key)).at(now);
        call.arg(&id.to_bytes()[..]);
        match queued_cost {
            Some(cost) => call.arg(cost),
            None => call.arg(""),
        };
        let outcome = self.send_return(&call, self.member.limit(), now).await?;
        let (released, _) = outcome.done_at().ok_or_else(bad_state)?;
        Ok(released)
    }

    pub(super) async fn send_reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let reset = |key: &&[u8]| {
            let [leases, costs, ..] = self.names.of_semaphore(key);
            ScriptCall::new(&scripts::RESET, &[leases, costs]).at(None)
        };
        let calls: Vec<ScriptCall> = keys.iter().map(reset).collect();
        let answers = self.store.inner.admit_return(calls.len()).await.send(&calls).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// Sends a renewal or a release.
    async fn send_return(
        &self,
        call: &ScriptCall,
        limit: LeaseLimit,
        now: Option<Time>,
    ) -> Result<StatusReply, StoreFailure> {
        send(self.store.inner.admit_return(1).await, call, limit, now).await
    }
}

/// Sends a script call, and repeats it while it has only removed expired leases or waiters.
async fn send(
    mut round_trip: RoundTrip<'_>,
    call: &ScriptCall,
    limit: LeaseLimit,
    now: Option<Time>,
) -> Result<StatusReply, StoreFailure> {
    limit.check_time(now)?;
    loop {
        let value = round_trip.send_one(call).await?;
        match LeaseReply::read(&value).ok_or_else(bad_state)? {
            LeaseReply::Done(outcome) => return Ok(outcome),
            // Each time fewer are left, and the deadline stays the same.
            LeaseReply::MoreExpired => {}
            LeaseReply::Unreadable => return Err(unreadable_state()),
        }
    }
}

impl LeaseLimit {
    /// Rejects a time that the scripts cannot compute with.
    fn check_time(&self, now: Option<Time>) -> Result<(), StoreFailure> {
        let latest = EXACT - 1 - self.ttl.as_micros();
        match now {
            Some(now) if now.as_micros() > latest => Err(StoreFailure::Rejected(format!(
                "the time {} is too late for the store's scripts, which compute in 53 bits; use at most {latest} with this limit, or a semaphore in memory",
                now.as_micros(),
            ))),
            _ => Ok(()),
        }
    }
}
