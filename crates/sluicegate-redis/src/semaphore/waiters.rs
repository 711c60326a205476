//! Who waits in this process, so that they are bounded and ask no more often than they may all together, and the first of them hears at once when a
//! place is returned here.

use super::pace::{Pace, WAITERS_MAX};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many wait for leases in one store. Relaxed is enough: these are counts, and guard nothing else.
#[derive(Default)]
pub(super) struct Crowd {
    waiting: AtomicUsize,
    /// How many lines there are: of so many keys somebody waits, and one of them is the first here.
    lines: AtomicUsize,
}

/// All who wait under the keys of a scope.
pub(super) struct Waiters {
    crowd: Arc<Crowd>,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// Never given out twice.
    next: u64,
    waiting: usize,
    /// Of each key those who wait. A line is there only while somebody is in it.
    lines: HashMap<Arc<[u8]>, Line>,
}

/// In the order of their tickets in the store; then those who have none yet, in the order in which they came.
type Line = BTreeMap<Place, Arc<Notify>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    ticket: u64,
    number: u64,
}

/// The ticket of one who has none yet: after all others.
const NO_TICKET: u64 = u64::MAX;

/// One who waits, until it is dropped.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: Arc<[u8]>,
    place: Place,
    woken: Arc<Notify>,
}

impl Waiters {
    pub(super) fn new(crowd: Arc<Crowd>) -> Waiters {
        Waiters { crowd, book: Mutex::default() }
    }

    /// One more; `None` if there are as many as may be, of this scope or of all.
    pub(super) fn join(&self, key: &[u8], most: usize) -> Option<Waiter<'_>> {
        let mut book = self.lock();
        if book.waiting >= most || !self.crowd.has_one_more() {
            return None;
        }
        let place = Place { ticket: NO_TICKET, number: book.next };
        let (key, woken): (Arc<[u8]>, _) = (key.into(), Arc::new(Notify::new()));
        book.next += 1;
        book.waiting += 1;
        let line = book.lines.entry(Arc::clone(&key)).or_default();
        if line.is_empty() {
            self.crowd.lines.fetch_add(1, Relaxed);
        }
        line.insert(place, Arc::clone(&woken));
        Some(Waiter { waiters: self, key, place, woken })
    }

    /// Lets the first who waits for a key ask again at once.
    pub(super) fn wake_first(&self, key: &[u8]) {
        let first = self
            .lock()
            .lines
            .get(key)
            .and_then(|line| line.first_key_value())
            .map(|(_, woken)| Arc::clone(woken));
        if let Some(woken) = first {
            woken.notify_one();
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        let book = self.lock();
        (book.waiting, book.lines.len())
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd {
    /// Counts one more, if there may be.
    fn has_one_more(&self) -> bool {
        let more = |waiting: usize| (waiting < WAITERS_MAX).then_some(waiting + 1);
        self.waiting.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// By what one of them goes.
    fn pace(&self, is_first: bool) -> Pace {
        let firsts = self.lines.load(Relaxed);
        let others = || self.waiting.load(Relaxed).saturating_sub(firsts);
        Pace::new(is_first, if is_first { firsts } else { others() })
    }
}

impl Waiter<'_> {
    /// By what it goes until it has asked again, with as many as wait now.
    pub(super) fn pace(&self) -> Pace {
        let book = self.waiters.lock();
        let first = book.lines.get(&self.key).and_then(|line| line.first_key_value());
        let is_first = first.is_some_and(|(first, _)| *first == self.place);
        drop(book);
        self.waiters.crowd.pace(is_first)
    }

    /// The store has given it this ticket. Who is the first here because of that, asks.
    pub(super) fn has_ticket(&mut self, ticket: u64) {
        if ticket == self.place.ticket {
            return;
        }
        let mut book = self.waiters.lock();
        let Some(line) = book.lines.get_mut(&self.key) else { return };
        let first = |line: &Line| line.first_key_value().map(|(_, woken)| Arc::clone(woken));
        let was_first = first(line);
        line.remove(&self.place);
        self.place.ticket = ticket;
        line.insert(self.place, Arc::clone(&self.woken));
        let is_first = first(line);
        drop(book);
        if let (Some(was), Some(is)) = (was_first, is_first)
            && !Arc::ptr_eq(&was, &is)
            && !Arc::ptr_eq(&is, &self.woken)
        {
            is.notify_one();
        }
    }

    /// Is back when somebody has returned a place here. If that was before, at once.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter<'_> {
    /// Whoever comes after it has moved up, and asks.
    fn drop(&mut self) {
        let crowd = &self.waiters.crowd;
        crowd.waiting.fetch_sub(1, Relaxed);
        let mut book = self.waiters.lock();
        book.waiting -= 1;
        let Some(line) = book.lines.get_mut(&self.key) else { return };
        line.remove(&self.place);
        let next = line.first_key_value().map(|(_, woken)| Arc::clone(woken));
        if next.is_none() {
            book.lines.remove(&self.key);
            crowd.lines.fetch_sub(1, Relaxed);
        }
        drop(book);
        if let Some(next) = next {
            next.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(waiters: &Waiters) -> (usize, usize) {
        (waiters.crowd.waiting.load(Relaxed), waiters.crowd.lines.load(Relaxed))
    }

    #[tokio::test]
    async fn the_first_is_woken_and_then_whoever_moves_up_and_no_line_stays_behind() {
        let waiters = Waiters::new(Arc::default());
        let (first, second) = (waiters.join(b"Harry", 3).unwrap(), waiters.join(b"Harry", 3).unwrap());
        let other = waiters.join(b"Sally", 3).unwrap();
        assert!(waiters.join(b"Ron", 3).is_none());
        assert_eq!((waiters.waiting(), crowd(&waiters)), ((3, 2), (3, 2)));
        waiters.wake_first(b"Harry");
        first.woken().await;
        drop(first);
        second.woken().await;
        drop((second, other));
        waiters.wake_first(b"Harry");
        assert_eq!((waiters.waiting(), crowd(&waiters)), ((0, 0), (0, 0)));
    }

    #[tokio::test]
    async fn the_first_here_is_the_one_whose_ticket_is_the_oldest() {
        let waiters = Waiters::new(Arc::default());
        let join = || waiters.join(b"Harry", 9).unwrap();
        let (mut slow, mut quick, newcomer) = (join(), join(), join());
        let is_first = |waiter: &Waiter<'_>| {
            waiters.lock().lines[&b"Harry"[..]].first_key_value().unwrap().0 == &waiter.place
        };
        assert!(is_first(&slow));
        quick.has_ticket(7);
        assert!(is_first(&quick), "the store has heard of it first");
        slow.has_ticket(8);
        assert!(is_first(&quick));
        waiters.wake_first(b"Harry");
        quick.woken().await;
        // A ticket that was good no more, so that it has another one now: it stands behind.
        quick.has_ticket(9);
        assert!(is_first(&slow));
        slow.woken().await;
        drop(slow);
        assert!(is_first(&quick) && !is_first(&newcomer));
        quick.woken().await;
    }

    #[test]
    fn all_scopes_of_a_store_share_one_bound_and_one_pace() {
        let one = Waiters::new(Arc::default());
        let other = Waiters::new(Arc::clone(&one.crowd));
        let deadline = std::time::Duration::ZERO;
        let life = |waiter: &Waiter<'_>| waiter.pace().ticket_life(deadline);
        let alone = one.join(b"Harry", usize::MAX).unwrap();
        assert_eq!(life(&alone), Pace::new(true, 1).ticket_life(deadline));
        let keys: Vec<String> = (0..4_000).map(|key: u32| key.to_string()).collect();
        let mut crowd: Vec<Waiter<'_>> =
            keys.iter().map(|key| other.join(key.as_bytes(), usize::MAX).unwrap()).collect();
        while let Some(behind) = other.join(b"0", usize::MAX) {
            crowd.push(behind);
        }
        assert_eq!(crowd.len() + 1, WAITERS_MAX);
        assert!(one.join(b"Sally", usize::MAX).is_none(), "it is one bound for all");
        assert_eq!(life(&alone), Pace::new(true, 4_001).ticket_life(deadline));
        assert_eq!(life(&crowd[4_000]), Pace::new(false, WAITERS_MAX - 4_001).ticket_life(deadline));
        drop(crowd);
        assert_eq!(life(&alone), Pace::new(true, 1).ticket_life(deadline));
        assert!(one.join(b"Sally", usize::MAX).is_some());
    }
}
