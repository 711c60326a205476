//! The future that acquires a permit; it can also block the thread.

use super::queue::{Enqueue, LockedQueue, WaitResult, WaiterId};
use super::{Bulkhead, Permit};
use sluicegate::internal::{MaxWait, block_on};
use sluicegate::wait::{Denial, Priority};
use sluicegate_core::Span;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Acquires a permit, waiting in the queue if none is free. Created by [`Bulkhead::acquire`] and
/// its variants.
///
/// It is a future for any runtime and does nothing until it is polled. Dropping it leaves the
/// queue; a permit already granted to it is passed on. [`AcquirePermit::blocking`] blocks the
/// thread instead.
#[must_use = "nothing is acquired until this is awaited, or by `.blocking()`"]
pub struct AcquirePermit {
    priority: Priority,
    max_wait: MaxWait,
    /// `None` once it is ready.
    bulkhead: Option<Bulkhead>,
    /// Its waiter, while it is in the queue.
    waiter_id: Option<WaiterId>,
}

/// The result of acquiring a permit.
///
/// ```
/// use sluicegate_guard::{Bulkhead, Denial};
///
/// let printer = Bulkhead::new("bulkhead 1")?;
/// let first = printer.acquire().blocking();
/// assert!(first.allowed());
/// let second = printer.acquire().blocking();
/// assert_eq!(second.denial(), Some(Denial::QueueFull)); // queue=0: no waiting
/// drop(first);
/// assert!(printer.acquire().blocking().permit().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a denied call must not be made: check `allowed()`"]
pub struct PermitGrant {
    permit: Result<Permit, Denial>,
    waited: Span,
}

impl PermitGrant {
    /// Returns `true` if a permit was granted.
    pub fn allowed(&self) -> bool {
        self.permit.is_ok()
    }

    /// Returns the permit, to be held for the duration of the call.
    pub fn permit(self) -> Option<Permit> {
        self.permit.ok()
    }

    /// Returns the time spent in the queue.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Returns the reason of a denial: [`Denial::QueueFull`] or [`Denial::TooLong`].
    pub fn denial(&self) -> Option<Denial> {
        self.permit.as_ref().err().copied()
    }

    /// Returns the permit, or the reason of the denial.
    ///
    /// # Errors
    /// If it was denied.
    pub fn into_result(self) -> Result<Permit, Denial> {
        self.permit
    }
}

impl AcquirePermit {
    #[inline]
    pub(super) fn new(bulkhead: Bulkhead, max_wait: MaxWait) -> AcquirePermit {
        AcquirePermit { priority: Priority::Normal, max_wait, bulkhead: Some(bulkhead), waiter_id: None }
    }

    /// Sets the priority; the default is [`Priority::Normal`]. It takes effect with the first poll.
    pub fn priority(mut self, priority: Priority) -> AcquirePermit {
        self.priority = priority;
        self
    }

    /// Blocks the thread until a permit is granted or denied. In async code use `.await`.
    pub fn blocking(self) -> PermitGrant {
        block_on(self)
    }

    /// Fast path: takes a free permit if there is no waiter. Otherwise nothing has happened, and
    /// the future can still be awaited.
    #[doc(hidden)]
    #[inline]
    pub fn try_now(&mut self) -> Option<Permit> {
        // The clock is read only for a deadline.
        let is_new = self.waiter_id.is_none() && !matches!(self.max_wait, MaxWait::Until(_));
        let is_taken = is_new && self.bulkhead.as_ref().is_some_and(|it| it.inner.permits.try_take());
        if is_taken {
            self.bulkhead.take().map(|bulkhead| Permit::in_use(bulkhead).start_timer())
        } else {
            None
        }
    }

    #[cold]
    fn ask(&mut self, waker: &Waker) -> Poll<PermitGrant> {
        // It stays set until there is a result: clocks and wakers may panic.
        let Some(bulkhead) = self.bulkhead.clone() else {
            panic!("`AcquirePermit` polled after completion");
        };
        if let Some(waiter_id) = self.waiter_id {
            return self.poll_result(bulkhead, waiter_id, waker);
        }
        let is_late = matches!(self.max_wait, MaxWait::Until(until) if until < bulkhead.now());
        if is_late {
            return self.deny(&bulkhead, Denial::TooLong, Span::ZERO);
        }
        if bulkhead.inner.permits.try_take() {
            return self.allowed(Permit::in_use(bulkhead), Span::ZERO);
        }
        if bulkhead.inner.queue_max() == 0 {
            return self.deny(&bulkhead, Denial::QueueFull, Span::ZERO);
        }
        self.join(bulkhead, waker)
    }

    fn join(&mut self, bulkhead: Bulkhead, waker: &Waker) -> Poll<PermitGrant> {
        // Before the lock is taken: this is the caller's code.
        let waker = waker.clone();
        let inner = Arc::clone(&bulkhead.inner);
        let mut queue = LockedQueue::lock(&inner);
        match queue.join(self.priority, self.max_wait, waker) {
            Enqueue::Acquired => {
                // The permit has an owner before another task's waker may panic.
                let permit = Permit::in_use(bulkhead);
                queue.unlock();
                self.allowed(permit, Span::ZERO)
            }
            Enqueue::Queued(waiter_id) => {
                self.waiter_id = Some(waiter_id);
                queue.unlock();
                Poll::Pending
            }
            Enqueue::Denied(denial) => {
                queue.unlock();
                self.deny(&bulkhead, denial, Span::ZERO)
            }
        }
    }

    fn poll_result(&mut self, bulkhead: Bulkhead, waiter_id: WaiterId, waker: &Waker) -> Poll<PermitGrant> {
        let waker = waker.clone();
        let inner = Arc::clone(&bulkhead.inner);
        let mut queue = LockedQueue::lock(&inner);
        match queue.poll_result(waiter_id, waker) {
            None => {
                queue.unlock();
                Poll::Pending
            }
            Some(WaitResult::Granted(waited)) => {
                self.waiter_id = None;
                let permit = Permit::in_use(bulkhead);
                queue.unlock();
                self.allowed(permit, waited)
            }
            Some(WaitResult::Denied(denial, waited)) => {
                self.waiter_id = None;
                queue.unlock();
                self.deny(&bulkhead, denial, waited)
            }
        }
    }

    fn allowed(&mut self, permit: Permit, waited: Span) -> Poll<PermitGrant> {
        self.bulkhead = None;
        Poll::Ready(PermitGrant { permit: Ok(permit.start_timer()), waited })
    }

    fn deny(&mut self, bulkhead: &Bulkhead, denial: Denial, waited: Span) -> Poll<PermitGrant> {
        self.bulkhead = None;
        bulkhead.deny(denial);
        Poll::Ready(PermitGrant { permit: Err(denial), waited })
    }
}

impl Future for AcquirePermit {
    type Output = PermitGrant;

    /// # Panics
    /// If it is polled after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PermitGrant> {
        if let Some(permit) = self.try_now() {
            return Poll::Ready(PermitGrant { permit: Ok(permit), waited: Span::ZERO });
        }
        // Rebuilt, so that the result of the fast path need not go through memory.
        match self.ask(context.waker()) {
            Poll::Ready(PermitGrant { permit, waited }) => Poll::Ready(PermitGrant { permit, waited }),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for AcquirePermit {
    #[inline]
    fn drop(&mut self) {
        if let (Some(bulkhead), Some(waiter_id)) = (&self.bulkhead, self.waiter_id) {
            let mut queue = LockedQueue::lock(&bulkhead.inner);
            queue.cancel(waiter_id);
            queue.unlock();
        }
    }
}

impl fmt::Debug for AcquirePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquirePermit")
            .field("priority", &self.priority)
            .field("waits", &self.waiter_id.is_some())
            .finish_non_exhaustive()
    }
}
