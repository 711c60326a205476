//! Who waits in this process, so that they are bounded, and the first of them hears at once when a place is returned here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All who wait under a semaphore.
pub(super) struct Waiters {
    most: usize,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// Never given out twice.
    next: u64,
    waiting: usize,
    /// Of each key those who wait, in the order in which they came. A line is there only while somebody is in it.
    lines: HashMap<Arc<[u8]>, BTreeMap<u64, Arc<Notify>>>,
}

/// One who waits, until it is dropped.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: Arc<[u8]>,
    number: u64,
    woken: Arc<Notify>,
}

impl Waiters {
    pub(super) fn new(most: usize) -> Waiters {
        Waiters { most, book: Mutex::default() }
    }

    /// One more; `None` if there are as many as may be.
    pub(super) fn join(&self, key: &[u8]) -> Option<Waiter<'_>> {
        let mut book = self.lock();
        if book.waiting >= self.most {
            return None;
        }
        let (key, number, woken): (Arc<[u8]>, _, _) = (key.into(), book.next, Arc::new(Notify::new()));
        book.next += 1;
        book.waiting += 1;
        book.lines.entry(Arc::clone(&key)).or_default().insert(number, Arc::clone(&woken));
        Some(Waiter { waiters: self, key, number, woken })
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

impl Waiter<'_> {
    /// Is back when somebody has returned a place here. If that was before, at once.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter<'_> {
    /// Whoever comes after it has moved up, and asks.
    fn drop(&mut self) {
        let mut book = self.waiters.lock();
        book.waiting -= 1;
        let Some(line) = book.lines.get_mut(&self.key) else { return };
        line.remove(&self.number);
        let next = line.first_key_value().map(|(_, woken)| Arc::clone(woken));
        if next.is_none() {
            book.lines.remove(&self.key);
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

    #[tokio::test]
    async fn the_first_is_woken_and_then_whoever_moves_up_and_no_line_stays_behind() {
        let waiters = Waiters::new(3);
        let (first, second) = (waiters.join(b"Harry").unwrap(), waiters.join(b"Harry").unwrap());
        let other = waiters.join(b"Sally").unwrap();
        assert!(waiters.join(b"Ron").is_none());
        assert_eq!(waiters.waiting(), (3, 2));
        waiters.wake_first(b"Harry");
        first.woken().await;
        drop(first);
        second.woken().await;
        drop((second, other));
        waiters.wake_first(b"Harry");
        assert_eq!(waiters.waiting(), (0, 0));
    }
}
