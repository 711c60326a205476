//! Asking for a place, and waiting for one: as a future, or blocking the thread.

use super::queue::{Desk, Joined, Ticket, Told};
use super::{Bulkhead, Place};
use crate::wait::{Patience, Priority, Refusal, wait_here};
use sluicegate_core::Span;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Somebody who asks for a place, and waits if there is none. Made by [`Bulkhead::enter`] and its likes.
///
/// It is a future for any runtime: nothing happens until it is polled. Dropping it leaves the queue, and a place that was held for it
/// goes to the next. [`Enter::blocking`] waits in the thread instead.
#[must_use = "it asks only when it is awaited, or by `.blocking()`"]
pub struct Enter {
    priority: Priority,
    patience: Patience,
    state: State,
}

/// It holds the bulkhead until there is something to tell: then the place does.
enum State {
    New(Bulkhead),
    Waits(Bulkhead, Ticket),
    Done,
}

/// What came of asking for a place.
///
/// ```
/// use sluicegate::{Bulkhead, Refusal};
///
/// let printer = Bulkhead::new("bulkhead 1")?;
/// let first = printer.enter().blocking();
/// assert!(first.allowed());
/// let second = printer.enter().blocking();
/// assert_eq!(second.refusal(), Some(Refusal::LineFull)); // queue=0: nobody waits
/// drop(first);
/// assert!(printer.enter().blocking().place().is_some());
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a call that was refused must not happen: ask `allowed()`"]
pub struct Entry {
    place: Result<Place, Refusal>,
    waited: Span,
}

impl Entry {
    /// Whether there is a place.
    pub fn allowed(&self) -> bool {
        self.place.is_ok()
    }

    /// The place, to be held for as long as the call takes.
    pub fn place(self) -> Option<Place> {
        self.place.ok()
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Why it was refused: [`Refusal::LineFull`] or [`Refusal::TooLong`].
    pub fn refusal(&self) -> Option<Refusal> {
        self.place.as_ref().err().copied()
    }

    /// The place, or why there is none.
    ///
    /// # Errors
    /// When it was refused.
    pub fn into_result(self) -> Result<Place, Refusal> {
        self.place
    }
}

impl Enter {
    #[inline]
    pub(super) fn new(bulkhead: Bulkhead, patience: Patience) -> Enter {
        Enter { priority: Priority::Normal, patience, state: State::New(bulkhead) }
    }

    /// Before or after others: [`Priority::Normal`] unless said. It matters from the first poll on.
    pub fn priority(mut self, priority: Priority) -> Enter {
        self.priority = priority;
        self
    }

    /// Waits in this thread. Not for async code: use `.await` there.
    pub fn blocking(self) -> Entry {
        wait_here(self)
    }

    #[inline]
    fn ask(&mut self, bulkhead: Bulkhead, waker: &Waker) -> Poll<Entry> {
        let is_late = matches!(self.patience, Patience::Until(until) if until < bulkhead.now());
        if is_late {
            return refused(&bulkhead, Refusal::TooLong, Span::ZERO);
        }
        if bulkhead.shared.places.take_if_nobody_waits() {
            return allowed(Place::taken(bulkhead), Span::ZERO);
        }
        if bulkhead.shared.queue_max() == 0 {
            return refused(&bulkhead, Refusal::LineFull, Span::ZERO);
        }
        self.join(&bulkhead, waker)
    }

    #[cold]
    fn join(&mut self, bulkhead: &Bulkhead, waker: &Waker) -> Poll<Entry> {
        // Before the lock: it is the caller's code.
        let waker = waker.clone();
        let mut desk = Desk::open(&bulkhead.shared);
        match desk.join(self.priority, self.patience, waker) {
            Joined::Taken => {
                // It is held before a waker of somebody else's may panic.
                let place = Place::taken(bulkhead.clone());
                desk.close();
                allowed(place, Span::ZERO)
            }
            Joined::Waits(ticket) => {
                self.state = State::Waits(bulkhead.clone(), ticket);
                desk.close();
                Poll::Pending
            }
            Joined::Refused(refusal) => {
                desk.close();
                refused(bulkhead, refusal, Span::ZERO)
            }
        }
    }

    #[cold]
    fn look(&mut self, bulkhead: &Bulkhead, ticket: Ticket, waker: &Waker) -> Poll<Entry> {
        let waker = waker.clone();
        let mut desk = Desk::open(&bulkhead.shared);
        match desk.look(ticket, waker) {
            None => {
                desk.close();
                Poll::Pending
            }
            Some(Told::Called(waited)) => {
                self.state = State::Done;
                let place = Place::taken(bulkhead.clone());
                desk.close();
                allowed(place, waited)
            }
            Some(Told::Refused(refusal, waited)) => {
                self.state = State::Done;
                desk.close();
                refused(bulkhead, refusal, waited)
            }
        }
    }
}

#[inline]
fn allowed(place: Place, waited: Span) -> Poll<Entry> {
    Poll::Ready(Entry { place: Ok(place.begins()), waited })
}

#[cold]
fn refused(bulkhead: &Bulkhead, refusal: Refusal, waited: Span) -> Poll<Entry> {
    bulkhead.refused(refusal);
    Poll::Ready(Entry { place: Err(refusal), waited })
}

impl Future for Enter {
    type Output = Entry;

    /// # Panics
    /// When it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Entry> {
        if let State::Waits(bulkhead, ticket) = &self.state {
            let (bulkhead, ticket) = (bulkhead.clone(), *ticket);
            return self.look(&bulkhead, ticket, context.waker());
        }
        match mem::replace(&mut self.state, State::Done) {
            State::New(bulkhead) => self.ask(bulkhead, context.waker()),
            _ => panic!("an enter was polled again after it was ready"),
        }
    }
}

impl Drop for Enter {
    #[inline]
    fn drop(&mut self) {
        if let State::Waits(bulkhead, ticket) = &self.state {
            let mut desk = Desk::open(&bulkhead.shared);
            desk.leave(*ticket);
            desk.close();
        }
    }
}

impl fmt::Debug for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enter")
            .field("priority", &self.priority)
            .field("waits", &matches!(self.state, State::Waits(..)))
            .finish_non_exhaustive()
    }
}
