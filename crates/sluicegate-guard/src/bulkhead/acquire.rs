//! Asking for a permit, and waiting for one: as a future, or blocking the thread.

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

/// Somebody who asks for a permit, and waits if there is none. Made by [`Bulkhead::acquire`] and its likes.
///
/// It is a future for any runtime: nothing happens until it is polled. Dropping it leaves the queue, and a permit that was held for it
/// goes to the next. [`AcquirePermit::blocking`] waits in the thread instead.
#[must_use = "it asks only when it is awaited, or by `.blocking()`"]
pub struct AcquirePermit {
    priority: Priority,
    patience: MaxWait,
    /// None once there is something to tell: then the permit has it.
    bulkhead: Option<Bulkhead>,
    /// Who it is in the queue, if it waits.
    waiter_id: Option<WaiterId>,
}

/// What came of asking for a permit.
///
/// ```
/// use sluicegate_guard::{Bulkhead, Denial};
///
/// let printer = Bulkhead::new("bulkhead 1")?;
/// let first = printer.acquire().blocking();
/// assert!(first.allowed());
/// let second = printer.acquire().blocking();
/// assert_eq!(second.denial(), Some(Denial::QueueFull)); // queue=0: nobody waits
/// drop(first);
/// assert!(printer.acquire().blocking().permit().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a call that was deny must not happen: ask `allowed()`"]
pub struct PermitGrant {
    permit: Result<Permit, Denial>,
    waited: Span,
}

impl PermitGrant {
    /// Whether there is a permit.
    pub fn allowed(&self) -> bool {
        self.permit.is_ok()
    }

    /// The permit, to be held for as long as the call takes.
    pub fn permit(self) -> Option<Permit> {
        self.permit.ok()
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Why it was refused: [`Denial::QueueFull`] or [`Denial::TooLong`].
    pub fn denial(&self) -> Option<Denial> {
        self.permit.as_ref().err().copied()
    }

    /// The permit, or why there is none.
    ///
    /// # Errors
    /// When it was refused.
    pub fn into_result(self) -> Result<Permit, Denial> {
        self.permit
    }
}

impl AcquirePermit {
    #[inline]
    pub(super) fn new(bulkhead: Bulkhead, patience: MaxWait) -> AcquirePermit {
        AcquirePermit { priority: Priority::Normal, patience, bulkhead: Some(bulkhead), waiter_id: None }
    }

    /// Before or after others: [`Priority::Normal`] unless said. It matters from the first poll on.
    pub fn priority(mut self, priority: Priority) -> AcquirePermit {
        self.priority = priority;
        self
    }

    /// Waits in this thread. Not for async code: use `.await` there.
    pub fn blocking(self) -> PermitGrant {
        block_on(self)
    }

    /// The way of most calls: a permit is free, and nobody waits for it. Otherwise nothing has happened, and it can still be awaited.
    #[doc(hidden)]
    #[inline]
    pub fn try_now(&mut self) -> Option<Permit> {
        // Whether a moment has passed is asked only of those who named one.
        let is_new = self.waiter_id.is_none() && !matches!(self.patience, MaxWait::Until(_));
        let is_taken = is_new && self.bulkhead.as_ref().is_some_and(|it| it.inner.permits.try_take());
        if is_taken {
            self.bulkhead.take().map(|bulkhead| Permit::in_use(bulkhead).start_timer())
        } else {
            None
        }
    }

    #[cold]
    fn ask(&mut self, waker: &Waker) -> Poll<PermitGrant> {
        // It stays there until there is something to tell: clocks and wakers may panic.
        let Some(bulkhead) = self.bulkhead.clone() else {
            panic!("an enter was polled again after it was ready");
        };
        if let Some(waiter_id) = self.waiter_id {
            return self.poll_result(bulkhead, waiter_id, waker);
        }
        let is_late = matches!(self.patience, MaxWait::Until(until) if until < bulkhead.now());
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
        // Before the lock: it is the caller's code.
        let waker = waker.clone();
        let inner = Arc::clone(&bulkhead.inner);
        let mut queue = LockedQueue::open(&inner);
        match queue.join(self.priority, self.patience, waker) {
            Enqueue::Acquired => {
                // It is held before a waker of somebody else's may panic.
                let permit = Permit::in_use(bulkhead);
                queue.close();
                self.allowed(permit, Span::ZERO)
            }
            Enqueue::Queued(waiter_id) => {
                self.waiter_id = Some(waiter_id);
                queue.close();
                Poll::Pending
            }
            Enqueue::Denied(denial) => {
                queue.close();
                self.deny(&bulkhead, denial, Span::ZERO)
            }
        }
    }

    fn poll_result(&mut self, bulkhead: Bulkhead, waiter_id: WaiterId, waker: &Waker) -> Poll<PermitGrant> {
        let waker = waker.clone();
        let inner = Arc::clone(&bulkhead.inner);
        let mut queue = LockedQueue::open(&inner);
        match queue.poll_result(waiter_id, waker) {
            None => {
                queue.close();
                Poll::Pending
            }
            Some(WaitResult::Granted(waited)) => {
                self.waiter_id = None;
                let permit = Permit::in_use(bulkhead);
                queue.close();
                self.allowed(permit, waited)
            }
            Some(WaitResult::Denied(denial, waited)) => {
                self.waiter_id = None;
                queue.close();
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
    /// When it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PermitGrant> {
        if let Some(permit) = self.try_now() {
            return Poll::Ready(PermitGrant { permit: Ok(permit), waited: Span::ZERO });
        }
        // Taken apart and put together again, so that the entry of most calls need not go through memory.
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
            let mut queue = LockedQueue::open(&bulkhead.inner);
            queue.cancel(waiter_id);
            queue.close();
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
