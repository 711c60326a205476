//! Checks of one key that wait at the same time, in one trip.
//!
//! In plain words: of each key one trip is under way. Checks that come meanwhile line up; when it is back they go together, in
//! the order in which they came, and so on until nobody is in line.
//!
//! ```text
//! check ──▶ nobody under way? ──▶ goes by itself ──▶ back: is anybody in line?
//!              │ else                                     │ then a task of its own serves the line
//!              └──▶ in line, until its deadline ◀─────────┘ trip by trip, until it is empty
//! ```
//!
//! Promise    Each check is decided by itself, as one after another. Where many wait and all cost 1, under limits whose states
//!            are cells, they are one script call, which takes as many units as there are checks, or as many as remain: the core
//!            decides the checks one after another on the state as it was, all at the same moment; the first ones get the units.
//! Promise    A check that is dropped takes nobody along: if it was alone under way, the line is served after it; if it was in
//!            line, it is left out. One that runs out of time in line is not sent any more.

use super::{Inner, not_understood, same};
use crate::failure::StoreFailure;
use crate::script::Trip;
use sluicegate::core::algorithm::Verb;
use sluicegate::core::several::check_list;
use sluicegate::core::{Algorithm as _, AnyLimit};
use sluicegate::{Decision, Time};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// So many checks go in one trip at most, so that the store does not stand still for others.
const TOGETHER_MAX: usize = 512;

/// So many checks are one script call at least: fewer take the store less time one by one, by the script that is made for it.
const AT_ONCE_MIN: usize = 8;

/// The keys that have a trip under way, and who is in line for the next one.
#[derive(Default)]
pub(super) struct Trips {
    lines: Mutex<Lines>,
}

type Lines = HashMap<Arc<[u8]>, Vec<Waiting>>;

/// A check in line.
struct Waiting {
    cost: u32,
    until: Instant,
    tell: oneshot::Sender<Result<Decision, StoreFailure>>,
}

impl Trips {
    /// Checks a key at the store's time, alone or with others.
    pub(super) async fn ask_check(
        &self,
        inner: &Arc<Inner>,
        key: &[u8],
        cost: u32,
    ) -> Result<Decision, StoreFailure> {
        let until = inner.until();
        let answer = {
            let mut lines = self.lines();
            if let Some(line) = lines.get_mut(key) {
                let (tell, answer) = oneshot::channel();
                line.push(Waiting { cost, until, tell });
                Ok(answer)
            } else {
                let key: Arc<[u8]> = key.into();
                lines.insert(Arc::clone(&key), Vec::new());
                Err(First { inner: Arc::clone(inner), key, runtime: Handle::try_current().ok() })
            }
        };
        match answer {
            Err(_first) => inner.ask_check(key, cost, None).await,
            Ok(answer) => {
                let decided = match timeout_at(until, answer).await {
                    Ok(Ok(decided)) => decided,
                    Ok(Err(_)) => {
                        Err(StoreFailure::Lost(String::from("the runtime that shared the trip has ended")))
                    }
                    Err(_) => Err(StoreFailure::Late { deadline: inner.store.inner.settings.deadline }),
                };
                // It is each one's own failure, though the trip was shared.
                inner.store.inner.count(&decided);
                decided
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who goes next: not those who have gone, or for whom it is too late. If there is nobody, no trip of the key is under way
    /// any more.
    fn next(&self, key: &[u8]) -> Option<Vec<Waiting>> {
        let mut lines = self.lines();
        let line = lines.get_mut(key)?;
        let now = Instant::now();
        line.retain(|waiting| !waiting.tell.is_closed());
        for late in line.extract_if(.., |waiting| waiting.until <= now) {
            let why = String::from("the trip before took too long, so that there was no time for this one");
            let _ = late.tell.send(Err(StoreFailure::Away(why)));
        }
        if line.is_empty() {
            lines.remove(key);
            return None;
        }
        Some(line.drain(..line.len().min(TOGETHER_MAX)).collect())
    }
}

/// A check that is under way alone. When it is back, or dropped, those in line are served.
struct First {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    runtime: Option<Handle>,
}

impl Drop for First {
    fn drop(&mut self) {
        let Some(trips) = &self.inner.trips else { return };
        let Some(waiting) = trips.next(&self.key) else { return };
        let server = Server { inner: Arc::clone(&self.inner), key: Arc::clone(&self.key), is_done: false };
        if let Some(runtime) = &self.runtime {
            runtime.spawn(server.serve(waiting));
        }
    }
}

/// Serves a line until it is empty.
struct Server {
    inner: Arc<Inner>,
    key: Arc<[u8]>,
    is_done: bool,
}

impl Server {
    async fn serve(mut self, first: Vec<Waiting>) {
        let mut next = Some(first);
        while let Some(waiting) = next {
            self.inner.ask_together(&self.key, waiting).await;
            next = self.inner.trips.as_ref().and_then(|trips| trips.next(&self.key));
        }
        self.is_done = true;
    }
}

impl Drop for Server {
    /// Only if the runtime ended: whoever is in line is told so, and the next one starts anew.
    fn drop(&mut self) {
        if let (false, Some(trips)) = (self.is_done, &self.inner.trips) {
            trips.lines().remove(&self.key);
        }
    }
}

impl Inner {
    /// Makes a trip for all of these, and tells each what came of it.
    async fn ask_together(&self, key: &[u8], waiting: Vec<Waiting>) {
        // Each has its own deadline as well.
        let until = waiting.iter().map(|waiting| waiting.until).max().unwrap_or_else(|| self.until());
        // A log tells only as much of itself as one decision needs, and of `smooth` nobody takes units.
        let are_cells =
            self.made.iter().all(|limit| matches!(limit, AnyLimit::Cell(_)) && limit.offers(Verb::Take));
        if are_cells && waiting.len() >= AT_ONCE_MIN && waiting.iter().all(|waiting| waiting.cost == 1) {
            self.ask_at_once(key, waiting, until).await;
        } else {
            self.ask_in_order(key, waiting, until).await;
        }
    }

    /// Each by a script call of its own. It is the same script for all, so that they stay in order even where it has to be
    /// loaded first.
    async fn ask_in_order(&self, key: &[u8], waiting: Vec<Waiting>, until: Instant) {
        let trips: Vec<Trip> =
            waiting.iter().map(|waiting| self.check_trip(key, waiting.cost, None)).collect();
        let replies = self.store.inner.link.go_each(&trips, until).await;
        for (Waiting { cost, tell, .. }, reply) in waiting.into_iter().zip(replies) {
            let decided = async {
                let trip = || self.check_trip(key, cost, None);
                self.decided(self.ask_on(key, None, reply?, trip, until).await?, cost)
            };
            // Whoever has gone meanwhile is not told.
            let _ = tell.send(decided.await);
        }
    }

    /// All by one script call. Each costs 1.
    async fn ask_at_once(&self, key: &[u8], waiting: Vec<Waiting>, until: Instant) {
        let mut decided = self.units_at_once(key, waiting.len(), None, until).await.map(Vec::into_iter);
        for Waiting { tell, .. } in waiting {
            let own = match &mut decided {
                Ok(decisions) => decisions.next().ok_or_else(not_understood),
                Err(failure) => Err(failure.clone()),
            };
            let _ = tell.send(own);
        }
    }

    /// Takes a unit for each of these checks, or as many as remain, and decides them one after another.
    async fn units_at_once(
        &self,
        key: &[u8],
        checks: usize,
        now: Option<Time>,
        until: Instant,
    ) -> Result<Vec<Decision>, StoreFailure> {
        let units = u32::try_from(checks).unwrap_or(u32::MAX);
        let trip = || self.take_trip(key, units, now);
        let first = self.store.inner.link.go(&trip(), until).await?;
        let (yes, now, mut states) = self.done(self.ask_on(key, now, first, trip, until).await?)?;
        let decisions: Vec<Decision> =
            (0..units).map(|_| check_list(&self.made, &mut states, now, 1)).collect();
        same(yes, decisions.first().is_some_and(Decision::allowed))?;
        Ok(decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisLimiter, RedisStore};
    use redis_testkit::{Options, Server};
    use sluicegate::core::several::peek_list;
    use std::time::Duration;

    async fn standing(inner: &Inner, key: &[u8], now: Time) -> Decision {
        let (now, states) = inner.ask_states(key, 1, Some(now)).await.unwrap();
        peek_list(&inner.made, &states, now, 1)
    }

    #[tokio::test]
    async fn checks_in_one_script_call_are_those_one_after_another() {
        let server = Server::start(&Options::redis());
        let store =
            RedisStore::builder(&server.url()).deadline(Duration::from_secs(10)).connect().await.unwrap();
        let mut denied = 0;
        for limits in [
            &["token-bucket 7/3s burst=9"][..],
            &["token-bucket 5/s burst=20 initial=3 start=2026-01-01T00:00:00Z"],
            &["leaky-bucket 3/s capacity=5"],
            &["min-interval 1s"],
            &["pacer 3/s queue=6"],
            &["fixed-window 10/s"],
            &["fixed-window 10/d tz=Europe/Berlin"],
            &["sliding-window 10/s"],
            &["token-bucket 7/3s burst=9", "fixed-window 13/4s", "sliding-window 30/10s"],
        ] {
            let limiter = RedisLimiter::builder(limits).in_store(&store, limits[0]).build();
            let limiter = limiter.unwrap_or_else(|error| panic!("{limits:?}: {error}"));
            let inner = &*limiter.inner;
            let mut random = fastrand::Rng::with_seed(7);
            let mut now = Time::from_micros(1_780_000_000_000_000).unwrap();
            for _ in 0..150 {
                now = now.after(sluicegate::Span::from_micros(random.u64(0..2_000_000)));
                let checks = random.usize(2..12);
                let together = inner.units_at_once(b"together", checks, Some(now), inner.until());
                let together = together.await.unwrap();
                assert_eq!(together.len(), checks);
                for (place, decision) in together.iter().enumerate() {
                    let alone = inner.ask_check(b"alone", 1, Some(now)).await.unwrap();
                    assert_eq!(*decision, alone, "{limits:?}, {place} of {checks}");
                    denied += u32::from(!alone.allowed());
                }
                let later = now.after(sluicegate::Span::from_micros(random.u64(0..500_000)));
                let (one, other) =
                    (standing(inner, b"together", later).await, standing(inner, b"alone", later).await);
                assert_eq!(one, other, "{limits:?}");
            }
        }
        assert!(denied > 1000, "{denied}");
    }

    #[tokio::test]
    async fn no_line_stays_behind() {
        let server = Server::start(&Options::redis());
        let store = RedisStore::builder(&server.url()).deadline(Duration::from_secs(10)).share_trips(true);
        let store = store.connect().await.unwrap();
        let limiter = RedisLimiter::builder("token-bucket 1000/s").in_store(&store, "api").build().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let checks: Vec<_> = (0..random.usize(1..20))
                .map(|_| {
                    let (limiter, patience) = (limiter.clone(), Duration::from_micros(random.u64(0..3000)));
                    tokio::spawn(async move {
                        let check = limiter.check_cost("Harry", 1 + u32::from(patience.as_micros() % 2 == 0));
                        // Whoever loses patience drops the call.
                        let _ = tokio::time::timeout(patience, check).await;
                    })
                })
                .collect();
            for check in checks {
                check.await.unwrap();
            }
            let _ = limiter.check("Harry").await.unwrap();
        }
        let trips = limiter.inner.trips.as_ref().unwrap();
        let is_empty = async {
            while !trips.lines().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_empty).await.unwrap();
    }
}
