//! Asking for a permit, and waiting for one: as a future, or blocking the thread.

use super::queue::{Desk, Joined, Ticket, Told};
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

/// Somebody who asks for a permit, and waits if there is none. Made by [`Bulkhead::enter`] and its likes.
///
/// It is a future for any runtime: nothing happens until it is polled. Dropping it leaves the queue, and a permit that was held for it
/// goes to the next. [`Enter::blocking`] waits in the thread instead.
#[must_use = "it asks only when it is awaited, or by `.blocking()`"]
pub struct Enter {
    priority: Priority,
    patience: MaxWait,
    /// None once there is something to tell: then the permit has it.
    bulkhead: Option<Bulkhead>,
    /// Who it is in the queue, if it waits.
    ticket: Option<Ticket>,
}

/// What came of asking for a permit.
///
/// ```
/// use sluicegate_guard::{Bulkhead, Denial};
///
/// let printer = Bulkhead::new("bulkhead 1")?;
/// let first = printer.enter().blocking();
/// assert!(first.allowed());
/// let second = printer.enter().blocking();
/// assert_eq!(second.denial(), Some(Denial::QueueFull)); // queue=0: nobody waits
/// drop(first);
/// assert!(printer.enter().blocking().permit().is_some());
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a call that was refused must not happen: ask `allowed()`"]
pub struct Entry {
    permit: Result<Permit, Denial>,
    waited: Span,
}

impl Entry {
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

impl Enter {
    #[inline]
    pub(super) fn new(bulkhead: Bulkhead, patience: MaxWait) -> Enter {
        Enter { priority: Priority::Normal, patience, bulkhead: Some(bulkhead), ticket: None }
    }

    /// Before or after others: [`Priority::Normal`] unless said. It matters from the first poll on.
    pub fn priority(mut self, priority: Priority) -> Enter {
        self.priority = priority;
        self
    }

    /// Waits in this thread. Not for async code: use `.await` there.
    pub fn blocking(self) -> Entry {
        block_on(self)
    }

    /// The way of most calls: a permit is free, and nobody waits for it. Otherwise nothing has happened, and it can still be awaited.
    #[doc(hidden)]
    #[inline]
    pub fn at_once(&mut self) -> Option<Permit> {
        // Whether a moment has passed is asked only of those who named one.
        let is_new = self.ticket.is_none() && !matches!(self.patience, MaxWait::Until(_));
        let is_taken =
            is_new && self.bulkhead.as_ref().is_some_and(|it| it.shared.permits.take_if_nobody_waits());
        if is_taken { self.bulkhead.take().map(|bulkhead| Permit::taken(bulkhead).begins()) } else { None }
    }

    #[cold]
    fn ask(&mut self, waker: &Waker) -> Poll<Entry> {
        // It stays there until there is something to tell: clocks and wakers may panic.
        let Some(bulkhead) = self.bulkhead.clone() else {
            panic!("an enter was polled again after it was ready");
        };
        if let Some(ticket) = self.ticket {
            return self.look(bulkhead, ticket, waker);
        }
        let is_late = matches!(self.patience, MaxWait::Until(until) if until < bulkhead.now());
        if is_late {
            return self.refused(&bulkhead, Denial::TooLong, Span::ZERO);
        }
        if bulkhead.shared.permits.take_if_nobody_waits() {
            return self.allowed(Permit::taken(bulkhead), Span::ZERO);
        }
        if bulkhead.shared.queue_max() == 0 {
            return self.refused(&bulkhead, Denial::QueueFull, Span::ZERO);
        }
        self.join(bulkhead, waker)
    }

    fn join(&mut self, bulkhead: Bulkhead, waker: &Waker) -> Poll<Entry> {
        // Before the lock: it is the caller's code.
        let waker = waker.clone();
        let shared = Arc::clone(&bulkhead.shared);
        let mut desk = Desk::open(&shared);
        match desk.join(self.priority, self.patience, waker) {
            Joined::Taken => {
                // It is held before a waker of somebody else's may panic.
                let permit = Permit::taken(bulkhead);
                desk.close();
                self.allowed(permit, Span::ZERO)
            }
            Joined::Waits(ticket) => {
                self.ticket = Some(ticket);
                desk.close();
                Poll::Pending
            }
            Joined::Refused(denial) => {
                desk.close();
                self.refused(&bulkhead, denial, Span::ZERO)
            }
        }
    }

    fn look(&mut self, bulkhead: Bulkhead, ticket: Ticket, waker: &Waker) -> Poll<Entry> {
        let waker = waker.clone();
        let shared = Arc::clone(&bulkhead.shared);
        let mut desk = Desk::open(&shared);
        match desk.look(ticket, waker) {
            None => {
                desk.close();
                Poll::Pending
            }
            Some(Told::Called(waited)) => {
                self.ticket = None;
                let permit = Permit::taken(bulkhead);
                desk.close();
                self.allowed(permit, waited)
            }
            Some(Told::Refused(denial, waited)) => {
                self.ticket = None;
                desk.close();
                self.refused(&bulkhead, denial, waited)
            }
        }
    }

    fn allowed(&mut self, permit: Permit, waited: Span) -> Poll<Entry> {
        self.bulkhead = None;
        Poll::Ready(Entry { permit: Ok(permit.begins()), waited })
    }

    fn refused(&mut self, bulkhead: &Bulkhead, denial: Denial, waited: Span) -> Poll<Entry> {
        self.bulkhead = None;
        bulkhead.refused(denial);
        Poll::Ready(Entry { permit: Err(denial), waited })
    }
}

impl Future for Enter {
    type Output = Entry;

    /// # Panics
    /// When it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Entry> {
        if let Some(permit) = self.at_once() {
            return Poll::Ready(Entry { permit: Ok(permit), waited: Span::ZERO });
        }
        // Taken apart and put together again, so that the entry of most calls need not go through memory.
        match self.ask(context.waker()) {
            Poll::Ready(Entry { permit, waited }) => Poll::Ready(Entry { permit, waited }),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Enter {
    #[inline]
    fn drop(&mut self) {
        if let (Some(bulkhead), Some(ticket)) = (&self.bulkhead, self.ticket) {
            let mut desk = Desk::open(&bulkhead.shared);
            desk.leave(ticket);
            desk.close();
        }
    }
}

impl fmt::Debug for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enter")
            .field("priority", &self.priority)
            .field("waits", &self.ticket.is_some())
            .finish_non_exhaustive()
    }
}
