//! A call that waits until it is allowed: as a future, or blocking its thread.

use super::park::block_on;
use super::queues::{Joined, WaitRequest};
use super::waiters::{WaitOutcome, WaiterIndex};
use super::{Acquired, Denial, Priority};
use crate::key::{Fingerprint, Key};
use crate::limiter::Limiter;
use crate::store::NotAdmitted;
use sluicegate_core::{Span, Time};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A call that waits until it is allowed. Created by [`Limiter::acquire`] and its variants.
///
/// It is a future for any runtime. The first poll enqueues it. Dropping it removes it from the
/// queue and rolls back whatever it was charged. [`Acquire::blocking`] blocks the thread instead.
#[must_use = "a call does nothing unless it is awaited or `blocking()`"]
pub struct Acquire<'a> {
    limiter: &'a Limiter,
    key: Fingerprint,
    cost: u64,
    priority: Priority,
    max_wait: MaxWait,
    state: State,
}

/// How long a call waits.
#[derive(Clone, Copy)]
pub enum MaxWait {
    /// Without a bound.
    Forever,
    /// For at most this long.
    For(Span),
    /// Until this time.
    Until(Time),
}

impl MaxWait {
    /// For at most `max_wait`, or without a bound.
    #[inline]
    pub(crate) fn from_option(max_wait: Option<Duration>) -> MaxWait {
        max_wait.map_or(MaxWait::Forever, |wait| MaxWait::For(wait.into()))
    }

    /// The deadline of a call that starts to wait now, if there is one.
    pub fn deadline(self, now: Time) -> Option<Time> {
        match self {
            MaxWait::Forever => None,
            MaxWait::For(wait) => Some(now.saturating_add(wait)),
            MaxWait::Until(deadline) => Some(deadline),
        }
    }
}

#[derive(Clone, Copy)]
enum State {
    New,
    Enqueued { waiter: WaiterIndex, since: Time },
    Done,
}

impl Limiter {
    /// Waits until the call is allowed, first in, first out per key, and charges it then.
    ///
    /// ```
    /// use sluicegate::Limiter;
    ///
    /// let mails = Limiter::new("token-bucket 1000/s burst=1")?;
    /// for _ in 0..3 {
    ///     assert!(mails.acquire("user:42", 1).blocking().allowed()); // in async code: .await
    /// }
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    ///
    /// It is denied only if no wait would help or the queue is full. While calls wait for a key, a
    /// plain check on the key is denied, so no waiter is overtaken.
    #[inline]
    pub fn acquire(&self, key: impl Key, cost: u64) -> Acquire<'_> {
        Acquire::new(self, self.fingerprint(key), cost, MaxWait::Forever)
    }

    /// Waits like [`Limiter::acquire`], for at most `max_wait`. If that cannot suffice, the call is
    /// denied immediately.
    #[inline]
    pub fn acquire_within(&self, key: impl Key, cost: u64, max_wait: Duration) -> Acquire<'_> {
        Acquire::new(self, self.fingerprint(key), cost, MaxWait::For(max_wait.into()))
    }

    /// Waits like [`Limiter::acquire`], until a time on the limiter's clock.
    #[inline]
    pub fn acquire_until(&self, key: impl Key, cost: u64, deadline: Time) -> Acquire<'_> {
        Acquire::new(self, self.fingerprint(key), cost, MaxWait::Until(deadline))
    }
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(crate) fn new(limiter: &'a Limiter, key: Fingerprint, cost: u64, max_wait: MaxWait) -> Acquire<'a> {
        Acquire { limiter, key, cost, priority: Priority::Normal, max_wait, state: State::New }
    }

    /// The priority in the queue; the default is [`Priority::Normal`]. It takes effect at the first
    /// poll.
    pub fn priority(mut self, priority: Priority) -> Acquire<'a> {
        self.priority = priority;
        self
    }

    /// Blocks the thread until the call is allowed or denied. In async code use `.await`.
    pub fn blocking(mut self) -> Acquired {
        if let Some(acquired) = self.at_once(self.limiter.now()) {
            return acquired;
        }
        block_on(self)
    }

    /// The path of most calls: the queue is empty and the call is allowed. Otherwise nothing has
    /// happened, and the call can still be awaited.
    #[doc(hidden)]
    #[inline]
    pub fn at_once(&mut self, now: Time) -> Option<Acquired> {
        let Acquire { key, cost, .. } = *self;
        let is_late = matches!(self.max_wait, MaxWait::Until(deadline) if deadline < now);
        if !matches!(self.state, State::New)
            || is_late
            || cost > 0 && self.limiter.queues().may_have_waiters(key)
        {
            return None;
        }
        let acquired = match self.limiter.try_admit(key, cost, now) {
            Ok(decision) => Acquired::after(decision, Span::ZERO),
            Err(NotAdmitted::NoRoom(denial)) => Acquired::denied(Denial::NoRoom, denial, Span::ZERO),
            Err(NotAdmitted::Wait) => return None,
        };
        Some(self.done(acquired))
    }

    #[cold]
    fn join(&mut self, now: Time, waker: &Waker) -> Poll<Acquired> {
        let until = self.max_wait.deadline(now);
        let Acquire { key, cost, priority, .. } = *self;
        let waiter = WaitRequest { key, scope: self.limiter.scope_name(), cost, until, priority };
        match self.limiter.queues().join(self.limiter.host(), &waiter, now, waker.clone()) {
            Joined::Admitted(decision) => Poll::Ready(self.done(Acquired::after(decision, Span::ZERO))),
            Joined::Denied(denial, decision) => {
                Poll::Ready(self.done(Acquired::denied(denial, decision, Span::ZERO)))
            }
            Joined::Enqueued(waiter) => {
                self.state = State::Enqueued { waiter, since: now };
                Poll::Pending
            }
        }
    }

    #[inline(never)]
    fn poll_enqueued(&mut self, waiter: WaiterIndex, since: Time, waker: &Waker) -> Poll<Acquired> {
        let Some(outcome) = self.limiter.queues().poll(self.limiter.host(), waiter, waker) else {
            return Poll::Pending;
        };
        let acquired = match outcome {
            WaitOutcome::Admitted(decision, at) => Acquired::after(decision, at.since(since)),
            WaitOutcome::Denied(denial, decision, at) => Acquired::denied(denial, decision, at.since(since)),
        };
        Poll::Ready(self.done(acquired))
    }

    #[cold]
    fn leave(&self, waiter: WaiterIndex) {
        self.limiter.queues().leave(self.limiter.host(), waiter);
    }

    #[inline]
    fn done(&mut self, acquired: Acquired) -> Acquired {
        self.state = State::Done;
        self.limiter.observe(&acquired.decision());
        acquired
    }
}

impl Future for Acquire<'_> {
    type Output = Acquired;

    /// # Panics
    /// If it is polled after it has completed.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Acquired> {
        match self.state {
            State::New => {
                let now = self.limiter.now();
                match self.at_once(now) {
                    Some(acquired) => Poll::Ready(acquired),
                    None => self.join(now, context.waker()),
                }
            }
            State::Enqueued { waiter, since } => self.poll_enqueued(waiter, since, context.waker()),
            State::Done => panic!("`Acquire` polled after completion"),
        }
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if let State::Enqueued { waiter, .. } = self.state {
            self.leave(waiter);
        }
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Acquire { cost, priority, .. } = self;
        let is_queued = matches!(self.state, State::Enqueued { .. });
        f.debug_struct("Acquire")
            .field("cost", cost)
            .field("priority", priority)
            .field("is_queued", &is_queued)
            .finish_non_exhaustive()
    }
}
