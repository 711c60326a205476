//! Verbs as script calls: one for each, and another one only if the first was spent on clearing away expired leases.

use super::Inner;
use super::id::StoreId;
use super::pace::WAITER_TTL_MAX;
use super::reply::{Done, LeaseDecision, LeaseReply};
use super::scope::Numbers;
use super::wait::Ticket;
use crate::failure::{bad_state, unreadable_state};
use crate::round_trip::RoundTrip;
use crate::script::ScriptCall;
use crate::scripts;
use sluicegate::backend::StoreFailure;
use sluicegate::{Span, Time};
use sluicegate_core::concurrency::LOOKED_AT_MAX;

/// Every whole number below this is exact in a script.
const EXACT: u64 = 1 << 53;

impl Inner {
    /// Takes a lease, or a ticket if that is wanted.
    pub(super) async fn ask_acquire(
        &self,
        key: &[u8],
        (id, cost): (&StoreId, u32),
        ticket: Option<Ticket>,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<LeaseDecision, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::ACQUIRE, &self.names.of_semaphore(key)).at(now);
        call.arg(&id.to_bytes()[..]).arg(cost).arg(numbers.rule.count()).arg(numbers.ttl.as_micros());
        call.arg(LOOKED_AT_MAX).arg(Span::from(WAITER_TTL_MAX).as_micros());
        if let Some(Ticket { life, max_queue }) = ticket {
            call.arg(Span::from(life).as_micros()).arg(max_queue);
        }
        let round_trip = match ticket {
            // A waiter asks again and again.
            Some(_) => self.store.inner.poll(),
            None => self.store.inner.admit(1).await?,
        };
        numbers.decided(&ask(round_trip, &call, numbers, now).await?, cost, true)
    }

    pub(super) async fn ask_peek(
        &self,
        key: &[u8],
        cost: u32,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<LeaseDecision, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::PEEK, &self.names.of_semaphore(key)).at(now);
        call.arg(cost).arg(numbers.rule.count());
        call.arg(LOOKED_AT_MAX).arg(Span::from(WAITER_TTL_MAX).as_micros());
        let round_trip = self.store.inner.admit(1).await?;
        numbers.decided(&ask(round_trip, &call, numbers, now).await?, cost, false)
    }

    /// Whether it was live, and the store's time.
    pub(super) async fn ask_renew(
        &self,
        key: &[u8],
        id: &StoreId,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<(bool, Time), StoreFailure> {
        let [leases, costs, ..] = self.names.of_semaphore(key);
        let mut call = ScriptCall::new(&scripts::RENEW, &[leases, costs]).at(now);
        call.arg(&id.to_bytes()[..]).arg(numbers.ttl.as_micros());
        self.ask_return(&call, numbers, now).await?.yes().ok_or_else(bad_state)
    }

    /// Whether it was live. Of one who may stand in line as well, its cost.
    pub(super) async fn ask_release(
        &self,
        key: &[u8],
        id: &StoreId,
        in_line: Option<u32>,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        let mut call = ScriptCall::new(&scripts::RELEASE, &self.names.of_semaphore(key)).at(now);
        call.arg(&id.to_bytes()[..]);
        match in_line {
            Some(cost) => call.arg(cost),
            None => call.arg(""),
        };
        Ok(self.ask_return(&call, self.member.numbers(), now).await?.yes().ok_or_else(bad_state)?.0)
    }

    pub(super) async fn ask_reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let reset = |key: &&[u8]| {
            let [leases, costs, ..] = self.names.of_semaphore(key);
            ScriptCall::new(&scripts::RESET, &[leases, costs]).at(None)
        };
        let calls: Vec<ScriptCall> = keys.iter().map(reset).collect();
        let answers = self.store.inner.admit_return(calls.len()).await.send(&calls).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// Renews or releases.
    async fn ask_return(
        &self,
        call: &ScriptCall,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<Done, StoreFailure> {
        ask(self.store.inner.admit_return(1).await, call, numbers, now).await
    }
}

/// Makes a script call, and again while all it did was to clear away leases that had expired.
async fn ask(
    mut round_trip: RoundTrip<'_>,
    call: &ScriptCall,
    numbers: Numbers,
    now: Option<Time>,
) -> Result<Done, StoreFailure> {
    numbers.bounded(now)?;
    loop {
        let value = round_trip.send_one(call).await?;
        match LeaseReply::read(&value).ok_or_else(bad_state)? {
            LeaseReply::Done(done) => return Ok(done),
            // Each time there are fewer, and the deadline is the same.
            LeaseReply::More => {}
            LeaseReply::NotOurs => return Err(unreadable_state()),
        }
    }
}

impl Numbers {
    /// An error for a time beyond what the scripts can reckon with.
    fn bounded(&self, now: Option<Time>) -> Result<(), StoreFailure> {
        let latest = EXACT - 1 - self.ttl.as_micros();
        match now {
            Some(now) if now.as_micros() > latest => Err(StoreFailure::Rejected(format!(
                "the time {} is too late for it, whose scripts reckon in 53 bits; use at most {latest} with this limit, or the semaphore in memory",
                now.as_micros(),
            ))),
            _ => Ok(()),
        }
    }
}
