//! The in-memory backend: every answer is ready immediately, except for a call that waits in a
//! queue.

use super::{Backend, BackendError, HeldLease, LeaseBackend, Pending, Reserved};
use crate::answer::Answer;
use crate::ids::{LeaseId, Receipt};
use crate::key::Key;
use crate::limit::Limit;
use crate::limiter::{Limiter, ReserveOptions, VerbError};
use crate::semaphore::{Grant, Semaphore};
use crate::wait::{Acquire, Acquired, MaxWait};
use sluicegate_core::{Decision, Time, Usage};
use std::sync::Arc;
use std::time::Duration;

type Ready<T> = Pending<Result<T, BackendError>>;

fn ready<T, E: Into<BackendError>>(result: Result<T, E>) -> Ready<T> {
    Pending::Ready(result.map_err(Into::into))
}

impl Limiter {
    #[inline]
    fn time(&self, at: Option<Time>) -> Time {
        at.unwrap_or_else(|| self.now())
    }
}

impl Backend for Limiter {
    #[inline]
    fn check(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Answer> {
        Pending::Ready(Ok(self.check_at(key, cost, self.time(at)).into()))
    }

    fn check_within(&self, key: &dyn Key, cost: u64, max_wait: Duration, at: Option<Time>) -> Ready<Answer> {
        ready(self.check_within_at(key, cost, max_wait, self.time(at)).map(Answer::from))
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Answer> {
        Pending::Ready(Ok(self.peek_at(key, cost, self.time(at)).into()))
    }

    fn take(&self, key: &dyn Key, up_to: u64, at: Option<Time>) -> Ready<(Answer, u64)> {
        let taken = self.take_at(key, up_to, self.time(at));
        ready(taken.map(|(decision, taken)| (Answer::from(decision), taken)))
    }

    fn refund(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Answer> {
        ready(self.refund_at(key, cost, self.time(at)).map(Answer::from))
    }

    fn reserve(
        &self,
        key: &dyn Key,
        cost: u64,
        options: &ReserveOptions,
        at: Option<Time>,
    ) -> Ready<Reserved> {
        let reservation = self.reserve_at(key, cost, options, self.time(at));
        ready(reservation.map(|reservation| Reserved {
            answer: reservation.decision().into(),
            granted: reservation.granted(),
            receipt: reservation.keep(),
        }))
    }

    fn extend(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        at: Option<Time>,
    ) -> Ready<Answer> {
        ready(self.extend_each_at(receipt, costs, ttl, self.time(at)).map(Answer::from))
    }

    fn cancel(&self, receipt: &Receipt, at: Option<Time>) -> Ready<bool> {
        if !receipt.is_of_memory() {
            return ready(Err(VerbError::BadReceipt));
        }
        Pending::Ready(Ok(self.cancel_at(receipt, self.time(at))))
    }

    fn settle(&self, receipt: &Receipt, used: &[u64], at: Option<Time>) -> Ready<bool> {
        ready(self.settle_each_at(receipt, used, self.time(at)))
    }

    fn settle_detached(&self, receipt: &Receipt, used: u64) {
        if used == 0 {
            Limiter::cancel(self, receipt);
        } else {
            Limiter::settle(self, receipt, used);
        }
    }

    fn discard_receipt(&self, receipt: &Receipt) {
        Limiter::discard_receipt(self, receipt);
    }

    fn standing(&self, receipt: &Receipt) -> Option<Decision> {
        self.standing_at(receipt, self.now())
    }

    fn next_window(&self, key: &dyn Key, at: Option<Time>) -> Ready<Time> {
        Pending::Ready(Ok(self.next_window_at(key, self.time(at))))
    }

    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Ready<Vec<(Limit, Usage)>> {
        Pending::Ready(Ok(self.usage_at(key, self.time(at))))
    }

    fn reset(&self, key: &dyn Key) -> Ready<()> {
        Limiter::reset(self, key);
        Pending::Ready(Ok(()))
    }

    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Ready<Acquired> {
        let key = self.fingerprint(key);
        let mut acquire = Acquire::new(self, key, cost, MaxWait::from_option(max_wait));
        if let Some(acquired) = acquire.at_once(self.now()) {
            return Pending::Ready(Ok(acquired));
        }
        let limiter = self.clone();
        Pending::later(
            async move { Ok(Acquire::new(&limiter, key, cost, MaxWait::from_option(max_wait)).await) },
        )
    }

    fn delay(&self, delay: Duration) -> Pending<()> {
        Pending::later(Limiter::delay(self, delay))
    }

    fn limits(&self) -> Arc<[Limit]> {
        Limiter::limits(self)
    }

    #[inline]
    fn changes(&self) -> u64 {
        Limiter::changes(self)
    }
}

impl LeaseBackend for Semaphore {
    #[inline]
    fn try_acquire(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Grant<HeldLease>> {
        Pending::Ready(Ok(match at {
            Some(now) => self.try_acquire_at(key, cost, now).into(),
            None => Semaphore::try_acquire(self, key, cost).into(),
        }))
    }

    #[inline]
    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Ready<Grant<HeldLease>> {
        let mut acquire = match max_wait {
            Some(max_wait) => self.acquire_within(key, cost, max_wait),
            None => Semaphore::acquire(self, key, cost),
        };
        match acquire.at_once() {
            Some(grant) => Pending::Ready(Ok(grant.into())),
            None => Pending::later(async move { Ok(acquire.await.into()) }),
        }
    }

    fn renew(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Ready<bool> {
        if !lease.is_of_memory() {
            return ready(Err(VerbError::BadLeaseId));
        }
        Pending::Ready(Ok(match at {
            Some(now) => self.renew_at(key, lease, now),
            None => Semaphore::renew(self, key, lease),
        }))
    }

    fn release(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Ready<bool> {
        if !lease.is_of_memory() {
            return ready(Err(VerbError::BadLeaseId));
        }
        Pending::Ready(Ok(match at {
            Some(now) => self.release_at(key, lease, now),
            None => Semaphore::release(self, key, lease),
        }))
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Answer> {
        Pending::Ready(Ok(match at {
            Some(now) => self.peek_at(key, cost, now).into(),
            None => Semaphore::peek(self, key, cost).into(),
        }))
    }

    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Ready<(Limit, Usage)> {
        Pending::Ready(Ok(match at {
            Some(now) => self.usage_at(key, now),
            None => Semaphore::usage(self, key),
        }))
    }

    fn reset(&self, key: &dyn Key) -> Ready<()> {
        Semaphore::reset(self, key);
        Pending::Ready(Ok(()))
    }

    fn limit(&self) -> Limit {
        Semaphore::limit(self)
    }
}
