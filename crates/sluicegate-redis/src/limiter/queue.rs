//! Who waits for a key in this process, where the store itself has no line: under windows and logs.
//!
//! In plain words: the first in line operations the store, and operations again when it was told to; all others wait behind. So of each
//! key one caller of a process operations at a time, and they go in the order in which they came. A line is there only while somebody
//! is in it.

use super::Inner;
use sluicegate::{Decision, Span};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The lines of a limiter.
pub(super) struct Queues {
    most: usize,
    queues: Mutex<ByKey>,
}

#[derive(Default)]
struct ByKey {
    /// Never given out twice, so that nobody takes another one's waiter for their own.
    next_id: u64,
    queues: HashMap<Arc<[u8]>, Queue>,
}

struct Queue {
    /// Who operations the store.
    first: u64,
    /// All others, in order.
    behind: BTreeMap<u64, Queued>,
    /// What the first one was told, unless it is asking.
    denied: Option<Denied>,
}

struct Queued {
    until: Option<Instant>,
    tell: oneshot::Sender<Result<(), Decision>>,
}

/// A denial, when it was told, and when the first one operations again.
#[derive(Clone, Copy)]
struct Denied {
    told: Instant,
    retries_at: Instant,
    decision: Decision,
}

impl Denied {
    /// As it is now.
    fn now(&self) -> Decision {
        let passed = u64::try_from(self.told.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.decision.aged_by(Span::from_micros(passed))
    }
}

/// A waiter in line, left when it is dropped.
pub(super) struct Waiter {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    id: u64,
}

/// Why somebody does not come to be the first.
#[derive(Clone, Copy)]
pub(super) enum QueueDenial {
    /// So many wait already.
    Full,
    /// Their time would be over. With the last denial, if one is known.
    TooLong(Option<Decision>),
}

impl Queues {
    pub(super) fn new(most: usize) -> Queues {
        Queues { most, queues: Mutex::default() }
    }

    /// Whether nobody waits for the key here.
    pub(super) fn is_idle(&self, key: &[u8]) -> bool {
        !self.lock().queues.contains_key(key)
    }

    fn lock(&self) -> MutexGuard<'_, ByKey> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Wakeup = oneshot::Receiver<Result<(), Decision>>;

impl Waiter {
    /// Joins the line of a key, and waits to be its first until then, if that can be.
    pub(super) async fn first(
        inner: &Arc<Inner>,
        key: &[u8],
        until: Option<Instant>,
    ) -> Result<Waiter, QueueDenial> {
        let (waiter, told) = Waiter::join(inner, key, until)?;
        let told = match (told, until) {
            (None, _) => return Ok(waiter),
            (Some(told), None) => told.await,
            (Some(told), Some(until)) => match timeout_at(until, told).await {
                Ok(told) => told,
                Err(_) => return Err(QueueDenial::TooLong(waiter.last_denial())),
            },
        };
        match told {
            Ok(Ok(())) => Ok(waiter),
            Ok(Err(denied)) => Err(QueueDenial::TooLong(Some(denied))),
            // Whoever leaves tells the next one, so this cannot be.
            Err(_) => Err(QueueDenial::TooLong(None)),
        }
    }

    /// A waiter, and where to hear when it is the first, unless it is.
    fn join(
        inner: &Arc<Inner>,
        key: &[u8],
        until: Option<Instant>,
    ) -> Result<(Waiter, Option<Wakeup>), QueueDenial> {
        let key: Arc<[u8]> = key.into();
        let mut queues = inner.queues.lock();
        let id = queues.next_id;
        let told = match queues.queues.get_mut(&key) {
            None => {
                let queue = Queue { first: id, behind: BTreeMap::new(), denied: None };
                queues.queues.insert(Arc::clone(&key), queue);
                None
            }
            Some(queue) => {
                if let (Some(until), Some(denied)) = (until, queue.denied)
                    && until < denied.retries_at
                {
                    return Err(QueueDenial::TooLong(Some(denied.now())));
                }
                if queue.behind.len() >= inner.queues.most {
                    return Err(QueueDenial::Full);
                }
                let (tell, told) = oneshot::channel();
                queue.behind.insert(id, Queued { until, tell });
                Some(told)
            }
        };
        queues.next_id += 1;
        Ok((Waiter { inner: Arc::clone(inner), key, id }, told))
    }

    /// Says when the first one operations again. Whoever has no time until then is told so now.
    pub(super) fn retry_at(&self, told: Instant, retries_at: Instant, decision: Decision) {
        let mut queues = self.inner.queues.lock();
        let Some(queue) = queues.queues.get_mut(&self.key) else { return };
        queue.denied = Some(Denied { told, retries_at, decision });
        let is_late = |behind: &Queued| behind.until.is_some_and(|until| until < retries_at);
        let late: Vec<u64> =
            queue.behind.iter().filter(|(_, behind)| is_late(behind)).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(behind) = queue.behind.remove(&id) {
                let _ = behind.tell.send(Err(decision));
            }
        }
    }

    fn last_denial(&self) -> Option<Decision> {
        let queues = self.inner.queues.lock();
        queues.queues.get(&self.key).and_then(|queue| queue.denied).map(|denied| denied.now())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut queues = self.inner.queues.lock();
        let Some(queue) = queues.queues.get_mut(&self.key) else { return };
        if queue.first != self.id {
            queue.behind.remove(&self.id);
            return;
        }
        queue.denied = None;
        while let Some((id, next)) = queue.behind.pop_first() {
            queue.first = id;
            // Who has gone meanwhile does not hear it; who goes after hearing it leaves the first waiter, as here.
            if next.tell.send(Ok(())).is_ok() {
                return;
            }
        }
        queues.queues.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use crate::{RedisLimiter, RedisStore};
    use redis_testkit::{Options, Server};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn no_line_stays_behind_whoever_is_dropped() {
        let server = Server::start(&Options::redis());
        let store =
            RedisStore::builder(&server.url()).deadline(Duration::from_secs(10)).connect().await.unwrap();
        let limiter = RedisLimiter::builder("sliding-log 20/10ms").in_store(&store, "api").build().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut came = 0;
        for _ in 0..100 {
            let callers: Vec<_> = (0..random.usize(1..30))
                .map(|_| {
                    let (limiter, patience) = (limiter.clone(), Duration::from_micros(random.u64(..40_000)));
                    tokio::spawn(async move {
                        let turn = timeout(patience, limiter.acquire("Harry", 7)).await;
                        turn.is_ok_and(|turn| turn.unwrap().allowed())
                    })
                })
                .collect();
            for caller in callers {
                came += u32::from(caller.await.unwrap());
            }
            assert!(limiter.inner.queues.is_idle(b"Harry"));
        }
        assert!(came > 100, "{came} turns came");
    }
}
