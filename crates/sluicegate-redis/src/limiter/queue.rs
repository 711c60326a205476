//! The waiters of this process for a key, where the store has no queue: under windows and logs.
//!
//! The head of a queue calls the store, and retries when its denial says so; the others wait behind
//! it. So per key one waiter of a process calls the store at a time, first in, first out. A queue
//! exists only while it has a waiter.

use super::Inner;
use sluicegate::{Decision, Span};
use sluicegate_core::decision::store::StoreDecision as _;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The queues of a limiter.
pub(super) struct LocalQueues {
    max_queue: usize,
    state: Mutex<LocalQueueState>,
}

#[derive(Default)]
struct LocalQueueState {
    /// Never reused, so that a waiter cannot be mistaken for another.
    next_id: u64,
    queues: HashMap<Arc<[u8]>, LocalQueue>,
}

struct LocalQueue {
    /// The waiter that calls the store.
    head: u64,
    /// All others, in order.
    behind: BTreeMap<u64, Queued>,
    /// The head's last denial, unless its call is in flight.
    denied: Option<LastDenial>,
}

struct Queued {
    until: Option<Instant>,
    wake: oneshot::Sender<Result<(), Decision>>,
}

/// A denial, when it was received, and when the head retries.
#[derive(Clone, Copy)]
struct LastDenial {
    received: Instant,
    retries_at: Instant,
    decision: Decision,
}

impl LastDenial {
    /// The denial as of now.
    fn now(&self) -> Decision {
        let passed = u64::try_from(self.received.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.decision.aged_by(Span::from_micros(passed))
    }
}

/// A waiter; dropping it leaves the queue.
pub(super) struct LocalWaiter {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    id: u64,
}

/// Why a waiter cannot become the head.
#[derive(Clone, Copy)]
pub(super) enum QueueDenial {
    /// The queue is full.
    Full,
    /// The waiter's time runs out first. Holds the head's last denial, if there is one.
    TooLong(Option<Decision>),
}

impl LocalQueues {
    pub(super) fn new(max_queue: usize) -> LocalQueues {
        LocalQueues { max_queue, state: Mutex::default() }
    }

    /// Returns `true` if the key has no waiter in this process.
    pub(super) fn is_idle(&self, key: &[u8]) -> bool {
        !self.lock().queues.contains_key(key)
    }

    fn lock(&self) -> MutexGuard<'_, LocalQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Wakeup = oneshot::Receiver<Result<(), Decision>>;

impl LocalWaiter {
    /// Joins a key's queue and waits to become its head, until `until`.
    pub(super) async fn become_head(
        inner: &Arc<Inner>,
        key: &[u8],
        until: Option<Instant>,
    ) -> Result<LocalWaiter, QueueDenial> {
        let (waiter, wakeup) = LocalWaiter::join(inner, key, until)?;
        let woken = match (wakeup, until) {
            (None, _) => return Ok(waiter),
            (Some(wakeup), None) => wakeup.await,
            (Some(wakeup), Some(until)) => match timeout_at(until, wakeup).await {
                Ok(woken) => woken,
                Err(_) => return Err(QueueDenial::TooLong(waiter.last_denial())),
            },
        };
        match woken {
            Ok(Ok(())) => Ok(waiter),
            Ok(Err(denied)) => Err(QueueDenial::TooLong(Some(denied))),
            // A head that leaves wakes the next waiter, so the sender is never just dropped.
            Err(_) => Err(QueueDenial::TooLong(None)),
        }
    }

    /// Joins a key's queue. Without a wakeup, the waiter is the head.
    fn join(
        inner: &Arc<Inner>,
        key: &[u8],
        until: Option<Instant>,
    ) -> Result<(LocalWaiter, Option<Wakeup>), QueueDenial> {
        let key: Arc<[u8]> = key.into();
        let mut state = inner.queues.lock();
        let id = state.next_id;
        let wakeup = match state.queues.get_mut(&key) {
            None => {
                let queue = LocalQueue { head: id, behind: BTreeMap::new(), denied: None };
                state.queues.insert(Arc::clone(&key), queue);
                None
            }
            Some(queue) => {
                if let (Some(until), Some(denied)) = (until, queue.denied)
                    && until < denied.retries_at
                {
                    return Err(QueueDenial::TooLong(Some(denied.now())));
                }
                if queue.behind.len() >= inner.queues.max_queue {
                    return Err(QueueDenial::Full);
                }
                let (wake, wakeup) = oneshot::channel();
                queue.behind.insert(id, Queued { until, wake });
                Some(wakeup)
            }
        };
        state.next_id += 1;
        Ok((LocalWaiter { inner: Arc::clone(inner), key, id }, wakeup))
    }

    /// Records the head's denial and when it retries. Waiters whose time runs out before that are
    /// denied now.
    pub(super) fn denied_until(&self, received: Instant, retries_at: Instant, decision: Decision) {
        let mut state = self.inner.queues.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return };
        queue.denied = Some(LastDenial { received, retries_at, decision });
        let is_late = |queued: &Queued| queued.until.is_some_and(|until| until < retries_at);
        let late: Vec<u64> =
            queue.behind.iter().filter(|(_, queued)| is_late(queued)).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(queued) = queue.behind.remove(&id) {
                let _ = queued.wake.send(Err(decision));
            }
        }
    }

    fn last_denial(&self) -> Option<Decision> {
        let state = self.inner.queues.lock();
        state.queues.get(&self.key).and_then(|queue| queue.denied).map(|denied| denied.now())
    }
}

impl Drop for LocalWaiter {
    fn drop(&mut self) {
        let mut state = self.inner.queues.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return };
        if queue.head != self.id {
            queue.behind.remove(&self.id);
            return;
        }
        queue.denied = None;
        while let Some((id, next)) = queue.behind.pop_first() {
            queue.head = id;
            // A waiter that was dropped is skipped; a waiter that is dropped after it was woken
            // leaves as the head.
            if next.wake.send(Ok(())).is_ok() {
                return;
            }
        }
        state.queues.remove(&self.key);
    }
}

#[cfg(all(test, feature = "_testkit"))]
mod tests {
    use crate::{RedisLimiter, RedisStore};
    use redis_testkit::{Options, Server};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn dropped_waiters_leave_no_queue_behind() {
        let server = Server::start(&Options::redis());
        let store =
            RedisStore::builder(&server.url()).deadline(Duration::from_secs(10)).connect().await.unwrap();
        let limiter = RedisLimiter::builder("sliding-log 20/10ms").in_store(&store, "api").build().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut admitted = 0;
        for _ in 0..100 {
            let callers: Vec<_> = (0..random.usize(1..30))
                .map(|_| {
                    let (limiter, max_wait) = (limiter.clone(), Duration::from_micros(random.u64(..40_000)));
                    tokio::spawn(async move {
                        let acquired = timeout(max_wait, limiter.acquire("user:42", 7)).await;
                        acquired.is_ok_and(|acquired| acquired.unwrap().allowed())
                    })
                })
                .collect();
            for caller in callers {
                admitted += u32::from(caller.await.unwrap());
            }
            assert!(limiter.inner.queues.is_idle(b"user:42"));
        }
        assert!(admitted > 100, "{admitted} were admitted");
    }
}
