//! The waiters of this process: they are bounded, they poll within one budget, and the head of a
//! queue is woken as soon as a permit is released in this process.

use super::polling::{PollRate, WAITERS_MAX};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Counts the waiters for leases in one store. Relaxed ordering is enough: these are counts, and
/// guard nothing else.
#[derive(Default)]
pub(super) struct WaiterCounts {
    waiters: AtomicUsize,
    /// The number of queues, and so of waiters that are the head of one.
    queues: AtomicUsize,
}

/// The waiters for the keys of a scope.
pub(super) struct LeaseWaiters {
    counts: Arc<WaiterCounts>,
    queues: Mutex<LeaseQueues>,
}

#[derive(Default)]
struct LeaseQueues {
    /// Never reused.
    next_arrival: u64,
    waiters: usize,
    /// The queue of each key. It exists only while it has a waiter.
    by_key: HashMap<Arc<[u8]>, LeaseQueue>,
}

/// Waiters in the order of the store's queue, followed by those that are not in it yet.
type LeaseQueue = BTreeMap<Position, Arc<Notify>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    /// The sequence number in the store's queue.
    sequence: u64,
    /// The order of arrival in this process.
    arrival: u64,
}

/// The sequence number of a waiter that is not in the store's queue yet: after all others.
const NOT_QUEUED: u64 = u64::MAX;

/// A waiter; dropping it leaves the queue.
pub(super) struct LeaseWaiter<'a> {
    waiters: &'a LeaseWaiters,
    key: Arc<[u8]>,
    position: Position,
    woken: Arc<Notify>,
}

impl LeaseWaiters {
    pub(super) fn new(counts: Arc<WaiterCounts>) -> LeaseWaiters {
        LeaseWaiters { counts, queues: Mutex::default() }
    }

    /// Adds a waiter. `None` if the scope has `max_waiters`, or the store [`WAITERS_MAX`].
    pub(super) fn join(&self, key: &[u8], max_waiters: usize) -> Option<LeaseWaiter<'_>> {
        let mut queues = self.lock();
        if queues.waiters >= max_waiters || !self.counts.try_add() {
            return None;
        }
        let position = Position { sequence: NOT_QUEUED, arrival: queues.next_arrival };
        let (key, woken): (Arc<[u8]>, _) = (key.into(), Arc::new(Notify::new()));
        queues.next_arrival += 1;
        queues.waiters += 1;
        let queue = queues.by_key.entry(Arc::clone(&key)).or_default();
        if queue.is_empty() {
            self.counts.queues.fetch_add(1, Relaxed);
        }
        queue.insert(position, Arc::clone(&woken));
        Some(LeaseWaiter { waiters: self, key, position, woken })
    }

    /// Wakes the head of a key's queue, which polls at once.
    pub(super) fn wake_head(&self, key: &[u8]) {
        let head = self.lock().by_key.get(key).and_then(head_of);
        if let Some(woken) = head {
            woken.notify_one();
        }
    }

    /// The number of waiters and of queues.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        let queues = self.lock();
        (queues.waiters, queues.by_key.len())
    }

    fn lock(&self) -> MutexGuard<'_, LeaseQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn head_of(queue: &LeaseQueue) -> Option<Arc<Notify>> {
    queue.first_key_value().map(|(_, woken)| Arc::clone(woken))
}

impl WaiterCounts {
    /// Counts one more waiter, unless there are [`WAITERS_MAX`].
    fn try_add(&self) -> bool {
        let more = |waiters: usize| (waiters < WAITERS_MAX).then_some(waiters + 1);
        self.waiters.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn poll_rate(&self, is_head: bool) -> PollRate {
        let heads = self.queues.load(Relaxed);
        let others = || self.waiters.load(Relaxed).saturating_sub(heads);
        PollRate::new(is_head, if is_head { heads } else { others() })
    }
}

impl LeaseWaiter<'_> {
    /// How often it polls, given the current number of waiters.
    pub(super) fn poll_rate(&self) -> PollRate {
        let queues = self.waiters.lock();
        let head = queues.by_key.get(&self.key).and_then(|queue| queue.first_key_value());
        let is_head = head.is_some_and(|(head, _)| *head == self.position);
        drop(queues);
        self.waiters.counts.poll_rate(is_head)
    }

    /// Moves it to its sequence number in the store's queue. A waiter that becomes the head is
    /// woken.
    pub(super) fn set_sequence(&mut self, sequence: u64) {
        if sequence == self.position.sequence {
            return;
        }
        let mut queues = self.waiters.lock();
        let Some(queue) = queues.by_key.get_mut(&self.key) else { return };
        let before = head_of(queue);
        queue.remove(&self.position);
        self.position.sequence = sequence;
        queue.insert(self.position, Arc::clone(&self.woken));
        let after = head_of(queue);
        drop(queues);
        if let (Some(before), Some(after)) = (before, after)
            && !Arc::ptr_eq(&before, &after)
            && !Arc::ptr_eq(&after, &self.woken)
        {
            after.notify_one();
        }
    }

    /// Waits until it is woken. Returns at once if it was woken since the last call.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for LeaseWaiter<'_> {
    /// Wakes the next waiter, which has moved up.
    fn drop(&mut self) {
        let counts = &self.waiters.counts;
        counts.waiters.fetch_sub(1, Relaxed);
        let mut queues = self.waiters.lock();
        queues.waiters -= 1;
        let Some(queue) = queues.by_key.get_mut(&self.key) else { return };
        queue.remove(&self.position);
        let next = head_of(queue);
        if next.is_none() {
            queues.by_key.remove(&self.key);
            counts.queues.fetch_sub(1, Relaxed);
        }
        drop(queues);
        if let Some(next) = next {
            next.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(waiters: &LeaseWaiters) -> (usize, usize) {
        (waiters.counts.waiters.load(Relaxed), waiters.counts.queues.load(Relaxed))
    }

    #[tokio::test]
    async fn the_head_is_woken_then_the_next_and_no_queue_is_left() {
        let waiters = LeaseWaiters::new(Arc::default());
        let (first, second) = (waiters.join(b"user:42", 3).unwrap(), waiters.join(b"user:42", 3).unwrap());
        let other = waiters.join(b"user:43", 3).unwrap();
        assert!(waiters.join(b"user:44", 3).is_none());
        assert_eq!((waiters.len(), counts(&waiters)), ((3, 2), (3, 2)));
        waiters.wake_head(b"user:42");
        first.woken().await;
        drop(first);
        second.woken().await;
        drop((second, other));
        waiters.wake_head(b"user:42");
        assert_eq!((waiters.len(), counts(&waiters)), ((0, 0), (0, 0)));
    }

    #[tokio::test]
    async fn the_head_is_the_waiter_with_the_lowest_sequence() {
        let waiters = LeaseWaiters::new(Arc::default());
        let join = || waiters.join(b"user:42", 9).unwrap();
        let (mut slow, mut quick, newcomer) = (join(), join(), join());
        let is_head = |waiter: &LeaseWaiter<'_>| {
            waiters.lock().by_key[&b"user:42"[..]].first_key_value().unwrap().0 == &waiter.position
        };
        assert!(is_head(&slow));
        quick.set_sequence(7);
        assert!(is_head(&quick), "it reached the store first");
        slow.set_sequence(8);
        assert!(is_head(&quick));
        waiters.wake_head(b"user:42");
        quick.woken().await;
        // Its entry in the store's queue had expired, and the new one is at the end.
        quick.set_sequence(9);
        assert!(is_head(&slow));
        slow.woken().await;
        drop(slow);
        assert!(is_head(&quick) && !is_head(&newcomer));
        quick.woken().await;
    }

    #[test]
    fn all_scopes_of_a_store_share_one_bound_and_one_budget() {
        let one = LeaseWaiters::new(Arc::default());
        let other = LeaseWaiters::new(Arc::clone(&one.counts));
        let deadline = std::time::Duration::ZERO;
        let ttl = |waiter: &LeaseWaiter<'_>| waiter.poll_rate().waiter_ttl(deadline);
        let alone = one.join(b"user:42", usize::MAX).unwrap();
        assert_eq!(ttl(&alone), PollRate::new(true, 1).waiter_ttl(deadline));
        let keys: Vec<String> = (0..4_000).map(|key: u32| key.to_string()).collect();
        let mut many: Vec<LeaseWaiter<'_>> =
            keys.iter().map(|key| other.join(key.as_bytes(), usize::MAX).unwrap()).collect();
        while let Some(waiter) = other.join(b"0", usize::MAX) {
            many.push(waiter);
        }
        assert_eq!(many.len() + 1, WAITERS_MAX);
        assert!(one.join(b"user:43", usize::MAX).is_none(), "all scopes share the bound");
        assert_eq!(ttl(&alone), PollRate::new(true, 4_001).waiter_ttl(deadline));
        assert_eq!(ttl(&many[4_000]), PollRate::new(false, WAITERS_MAX - 4_001).waiter_ttl(deadline));
        drop(many);
        assert_eq!(ttl(&alone), PollRate::new(true, 1).waiter_ttl(deadline));
        assert!(one.join(b"user:43", usize::MAX).is_some());
    }
}
