//! A call that waits for a lease: as a future, or blocking its thread.

use super::grant::Grant;
use super::scope::ScopedLimit;
use super::shard::{Deferred, Joined, LeaseOutcome, LeaseRequest, Shard};
use crate::key::Fingerprint;
use crate::wait::park::block_on;
use crate::wait::{MaxWait, Priority};
use sluicegate_core::Time;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A call that waits for a lease. Created by [`Semaphore::acquire`](super::Semaphore::acquire) and
/// its variants.
///
/// It is a future for any runtime, and borrows nothing, so it can be spawned. The first poll
/// enqueues it. Dropping it removes it from the queue and passes whatever it was granted to the
/// next waiter. [`AcquireLease::blocking`] blocks the thread instead.
#[must_use = "a call does nothing unless it is awaited or `blocking()`"]
pub struct AcquireLease {
    shard: Arc<Shard>,
    caller: Option<Arc<ScopedLimit>>,
    key: Fingerprint,
    cost: u64,
    priority: Priority,
    max_wait: MaxWait,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    New,
    Enqueued { waiter: u32, since: Time },
    Done,
}

impl AcquireLease {
    #[inline]
    pub(super) fn new(
        shard: Arc<Shard>,
        caller: Option<Arc<ScopedLimit>>,
        key: Fingerprint,
        cost: u64,
        max_wait: MaxWait,
    ) -> AcquireLease {
        AcquireLease { shard, caller, key, cost, priority: Priority::Normal, max_wait, state: State::New }
    }

    /// The priority in the queue; the default is [`Priority::Normal`]. It takes effect at the first
    /// poll.
    pub fn priority(mut self, priority: Priority) -> AcquireLease {
        self.priority = priority;
        self
    }

    /// Blocks the thread until the lease is granted or denied. In async code use `.await`.
    pub fn blocking(mut self) -> Grant {
        match self.at_once() {
            Some(grant) => grant,
            None => block_on(self),
        }
    }

    /// The path of most calls: the queue is empty and enough permits are free. Otherwise nothing
    /// has happened, and the call can still be awaited.
    #[doc(hidden)]
    #[inline]
    pub fn at_once(&mut self) -> Option<Grant> {
        // Only a call with a deadline has to read the clock.
        if matches!(self.state, State::New) && !matches!(self.max_wait, MaxWait::Until(_)) {
            let grant = self.shard.at_once(self.caller.as_ref(), self.key, self.cost)?;
            self.state = State::Done;
            return Some(grant);
        }
        None
    }

    #[cold]
    fn join(&mut self, waker: &Waker) -> Poll<Grant> {
        let now = self.shard.now();
        let until = self.max_wait.deadline(now);
        let AcquireLease { key, cost, priority, .. } = *self;
        let (request, mut waker) =
            (LeaseRequest { key, cost, since: now, until, priority }, Some(waker.clone()));
        let (joined, deferred) = self.shard.join(self.caller.as_ref(), &request, now, &mut waker);
        match joined {
            Joined::Done(outcome) => {
                let grant = self.done(outcome, now, deferred);
                drop(waker);
                Poll::Ready(grant)
            }
            Joined::Enqueued(waiter) => {
                self.state = State::Enqueued { waiter, since: now };
                self.shard.run_deferred(deferred);
                Poll::Pending
            }
        }
    }

    /// The result. The waiter's entry may be reused from here on, and the grant owns the lease
    /// before any waker or observer runs, because those may panic.
    fn done(&mut self, outcome: LeaseOutcome, since: Time, deferred: Option<Deferred>) -> Grant {
        self.state = State::Done;
        let grant = self.shard.grant(outcome, since);
        self.shard.run_deferred(deferred);
        self.shard.observe(&grant);
        grant
    }
}

impl Future for AcquireLease {
    type Output = Grant;

    /// # Panics
    /// If it is polled after it has completed.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Grant> {
        match self.state {
            State::New => match self.at_once() {
                Some(grant) => Poll::Ready(grant),
                None => self.join(context.waker()),
            },
            State::Enqueued { waiter, since } => match self.shard.poll(waiter, context.waker()) {
                (Some(outcome), deferred) => Poll::Ready(self.done(outcome, since, deferred)),
                (None, deferred) => {
                    self.shard.run_deferred(deferred);
                    Poll::Pending
                }
            },
            State::Done => panic!("`AcquireLease` polled after completion"),
        }
    }
}

impl Drop for AcquireLease {
    #[inline]
    fn drop(&mut self) {
        if let State::Enqueued { waiter, .. } = self.state {
            self.shard.leave(waiter);
        }
    }
}

impl fmt::Debug for AcquireLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AcquireLease { cost, priority, .. } = self;
        let is_queued = matches!(self.state, State::Enqueued { .. });
        f.debug_struct("AcquireLease")
            .field("cost", cost)
            .field("priority", priority)
            .field("is_queued", &is_queued)
            .finish_non_exhaustive()
    }
}
