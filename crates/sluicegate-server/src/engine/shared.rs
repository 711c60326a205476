//! Keys in a store that many servers share: its limiters, and what is counted of its answers.
//!
//! The futures of the store's client are large. They are put on the heap here, so that a connection that only waits does
//! not hold room for them.

use super::Mistake;
use super::home::WhoseTime;
use super::judge::Told;
use super::lender::Held;
use super::turns::Turns;
use crate::log::Seldom;
use crate::metrics::{Latency, LatencyView};
use sluicegate::{Decision, Span, Time};
use sluicegate_redis::{
    AskError, Call, Failures, LeaseId, NodeHealth, Receipt, RedisLimiter, RedisSemaphore, RedisStore,
    SharedGrant, Source, StoreFailure, TogetherError, check_all, check_each,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;
use tracing::info;

/// A store and what it has answered.
pub(super) struct Shared {
    store: RedisStore,
    time: WhoseTime,
    turns: Turns,
    answers: [AtomicU64; SOURCES.len()],
    latency: Latency,
    /// How many calls were not sent, as there was no turn for them in time.
    not_sent: AtomicU64,
    /// How many calls it has not answered since it last did.
    without: AtomicU64,
}

/// A limiter whose keys are there.
pub(super) struct SharedLimiter {
    limiter: RedisLimiter,
    of: Arc<Shared>,
}

/// A limit that gives leases, which are there.
pub(super) struct SharedLender {
    semaphore: RedisSemaphore,
    of: Arc<Shared>,
}

/// Who may answer, in the order of the metrics.
const SOURCES: [Source; 5] =
    [Source::Store, Source::Remembered, Source::Local, Source::Allowed, Source::Denied];

/// How a store fails, in the words of the metrics.
const FAILURES: [&str; 4] = ["away", "late", "lost", "refused"];

static BACK: Seldom = Seldom::new();

/// What a shared store has answered so far.
#[derive(Debug)]
pub struct StoreView {
    /// How many answers came from whom, in the words of the metrics.
    pub answers: Vec<(&'static str, u64)>,
    /// How often it has failed, by what went wrong, also where a rule answered without it.
    pub failures: Vec<(&'static str, u64)>,
    /// Whether it can be asked; of a cluster, all of it.
    pub is_up: bool,
    pub(crate) latency: LatencyView,
}

/// Why a call has no answer.
enum NoAnswer {
    Failed(StoreFailure),
    Wrong(Mistake),
}

impl From<StoreFailure> for NoAnswer {
    fn from(failure: StoreFailure) -> NoAnswer {
        NoAnswer::Failed(failure)
    }
}

impl From<AskError> for NoAnswer {
    fn from(error: AskError) -> NoAnswer {
        match error {
            AskError::Store(failure) => NoAnswer::Failed(failure),
            other => NoAnswer::Wrong(other.into()),
        }
    }
}

impl From<TogetherError> for NoAnswer {
    fn from(error: TogetherError) -> NoAnswer {
        match error {
            TogetherError::Store(failure) => NoAnswer::Failed(failure),
            other => NoAnswer::Wrong(other.into()),
        }
    }
}

impl Shared {
    pub(super) fn new(store: RedisStore, time: WhoseTime, deadline: Duration) -> Shared {
        Shared {
            store,
            time,
            turns: Turns::new(deadline),
            answers: Default::default(),
            latency: Latency::default(),
            not_sent: AtomicU64::new(0),
            without: AtomicU64::new(0),
        }
    }

    pub(super) fn store(&self) -> &RedisStore {
        &self.store
    }

    pub(super) fn goes_by_our_time(&self) -> bool {
        self.time == WhoseTime::TheEngines
    }

    /// The time to decide at; `None` for the store's.
    fn time(&self, now: Time) -> Option<Time> {
        self.goes_by_our_time().then_some(now)
    }

    pub(super) fn view(&self) -> StoreView {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Failures { away, late, lost, refused } = self.store.failures();
        let away = away + count(&self.not_sent);
        StoreView {
            answers: SOURCES
                .iter()
                .map(|source| source.as_str())
                .zip(self.answers.iter().map(count))
                .collect(),
            failures: FAILURES.into_iter().zip([away, late, lost, refused]).collect(),
            is_up: self.is_up(),
            latency: self.latency.view(),
        }
    }

    /// Whether all of it can be asked: in a cluster, all servers.
    pub(super) fn is_up(&self) -> bool {
        let health = self.store.health();
        // A cluster that was never reached has no servers that we know of.
        !health.is_empty() && health.iter().all(is_well)
    }

    /// Whether any of it can be asked. One server of a cluster that is away is no reason to turn to nobody.
    pub(super) fn is_partly_up(&self) -> bool {
        self.store.health().iter().any(is_well)
    }

    /// Independent checks in one trip; an answer for each.
    pub(super) async fn check_each(&self, calls: &[Call<'_>]) -> Vec<Result<Told, Mistake>> {
        let (began, _turn, answers) = match self.turn(calls.len()).await {
            Ok(turn) => (Instant::now(), turn, Box::pin(check_each(calls)).await),
            Err(failure) => {
                let without = |call: &Call<'_>| call.without_store(failure.clone());
                (Instant::now(), None, calls.iter().map(without).collect())
            }
        };
        let mut counted = Counted::default();
        let told = answers
            .into_iter()
            .map(|answer| match answer {
                Ok(answer) => {
                    counted.answered(answer.source());
                    Ok(Told::by(answer.decision(), answer.source()))
                }
                Err(failure) => {
                    counted.failed += 1;
                    Err(failure.into())
                }
            })
            .collect();
        self.count(&counted, began);
        told
    }

    /// All or nothing. The answer for all, and for each.
    pub(super) async fn check_all(
        &self,
        calls: &[Call<'_>],
        now: Time,
    ) -> Result<(Told, Vec<Decision>), Mistake> {
        let trip = Box::pin(check_all(calls, self.time(now)));
        let (answer, each) = match self.turn(1).await {
            Ok(turn) => self.asked_in(turn, trip, |(answer, _)| answer.source()).await?,
            Err(failure) => {
                add(&self.without, 1);
                return Err(failure.into());
            }
        };
        Ok((Told::by(answer.decision(), answer.source()), each))
    }

    /// Counts an answer that somebody else gave. That the store gave none is counted already.
    pub(super) fn answered_instead(&self, source: Source) {
        let mut counted = Counted::default();
        counted.answered(source);
        self.count(&counted, Instant::now());
    }

    /// A turn for so many calls: `None` if there is nothing to wait for, as a store that is away gives no answer at once.
    /// A failure if none was free in time; nothing was sent then.
    async fn turn(&self, calls: usize) -> Result<Option<SemaphorePermit<'_>>, StoreFailure> {
        if let Some(turn) = self.turns.free(calls) {
            return Ok(Some(turn));
        }
        if !self.is_partly_up() {
            return Ok(None);
        }
        let turn = self.turns.wait(calls).await;
        if turn.is_err() {
            add(&self.not_sent, u64::try_from(calls).unwrap_or(u64::MAX));
        }
        turn.map(Some)
    }

    /// Waits for an answer, and counts it. It goes without a turn rather than wait too long for one: the limiter knows what to
    /// answer without the store only once it has asked.
    async fn asked<T, E: Into<NoAnswer>>(
        &self,
        trip: Pin<Box<impl Future<Output = Result<T, E>>>>,
        source: impl FnOnce(&T) -> Source,
    ) -> Result<T, Mistake> {
        let turn = match self.turns.free(1) {
            None if self.is_partly_up() => self.turns.wait(1).await.ok(),
            turn => turn,
        };
        self.asked_in(turn, trip, source).await
    }

    /// Waits for an answer in a turn, and counts it.
    async fn asked_in<T, E: Into<NoAnswer>>(
        &self,
        _turn: Option<SemaphorePermit<'_>>,
        trip: Pin<Box<impl Future<Output = Result<T, E>>>>,
        source: impl FnOnce(&T) -> Source,
    ) -> Result<T, Mistake> {
        let began = Instant::now();
        let answer = trip.await.map_err(Into::into);
        let mut counted = Counted::default();
        match &answer {
            Ok(answer) => counted.answered(source(answer)),
            Err(NoAnswer::Failed(_)) => counted.failed += 1,
            // The store was not asked.
            Err(NoAnswer::Wrong(_)) => {}
        }
        self.count(&counted, began);
        answer.map_err(|error| match error {
            NoAnswer::Failed(failure) => failure.into(),
            NoAnswer::Wrong(mistake) => mistake,
        })
    }

    /// Waits for the answer to somebody who stands in line. How long that takes says nothing of the store.
    async fn waited(
        &self,
        trip: Pin<Box<impl Future<Output = Result<SharedGrant, StoreFailure>>>>,
    ) -> Result<SharedGrant, Mistake> {
        let grant = trip.await;
        match &grant {
            Ok(grant) => add(&self.answers[place_of(grant.source())], 1),
            Err(_) => add(&self.without, 1),
        }
        Ok(grant?)
    }

    fn count(&self, counted: &Counted, began: Instant) {
        for (counter, more) in self.answers.iter().zip(counted.answers) {
            add(counter, more);
        }
        let took = began.elapsed();
        if counted.by_store() > 0 {
            self.latency.add(counted.by_store(), took);
            self.turns.took(took);
        } else if counted.without_store() > 0 {
            self.turns.failed_after(took);
        }
        add(&self.without, counted.without_store());
        if counted.without_store() == 0 && counted.by_store() > 0 && self.without.load(Ordering::Relaxed) > 0
        {
            let without = self.without.swap(0, Ordering::Relaxed);
            if without > 0
                && let Some(unsaid) = BACK.say()
            {
                info!(unsaid, "the store answers again; it did not answer {without} calls before");
            }
        }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

fn is_well(node: &NodeHealth) -> bool {
    node.connected && !node.breaker_open
}

/// Where the answers of somebody are counted.
fn place_of(source: Source) -> usize {
    match source {
        Source::Store => 0,
        Source::Remembered => 1,
        Source::Local => 2,
        Source::Allowed => 3,
        Source::Denied => 4,
    }
}

/// What came of one trip.
#[derive(Default)]
struct Counted {
    answers: [u64; SOURCES.len()],
    failed: u64,
}

impl Counted {
    fn answered(&mut self, source: Source) {
        self.answers[place_of(source)] += 1;
    }

    fn by_store(&self) -> u64 {
        self.answers[0]
    }

    fn without_store(&self) -> u64 {
        self.answers[2..].iter().sum::<u64>() + self.failed
    }
}

impl SharedLimiter {
    pub(super) fn new(limiter: RedisLimiter, of: Arc<Shared>) -> SharedLimiter {
        SharedLimiter { limiter, of }
    }

    /// The store of its keys.
    pub(super) fn shared(&self) -> &Shared {
        &self.of
    }

    /// One call of several that are charged all or nothing.
    pub(super) fn on<'a>(&'a self, key: &'a [u8], cost: u32) -> Call<'a> {
        self.limiter.on(key, cost)
    }

    /// One call of several that take one trip.
    pub(super) fn on_at<'a>(&'a self, key: &'a [u8], cost: u32, now: Time) -> Call<'a> {
        let call = self.limiter.on(key, cost);
        match self.of.time(now) {
            Some(now) => call.at(now),
            None => call,
        }
    }

    pub(super) async fn peek(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        let trip = Box::pin(self.limiter.peek(key, cost, self.of.time(now)));
        let answer = self.of.asked(trip, sluicegate_redis::Answer::source).await?;
        Ok(Told::by(answer.decision(), answer.source()))
    }

    pub(super) async fn refund(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        let trip = Box::pin(self.limiter.refund(key, cost, self.of.time(now)));
        let answer = self.of.asked(trip, sluicegate_redis::Answer::source).await?;
        Ok(Told::by(answer.decision(), answer.source()))
    }

    pub(super) async fn take(&self, key: &[u8], up_to: u32, now: Time) -> Result<(Told, u32), Mistake> {
        let trip = Box::pin(self.limiter.take(key, up_to, self.of.time(now)));
        let (answer, taken) = self.of.asked(trip, |(answer, _)| answer.source()).await?;
        Ok((Told::by(answer.decision(), answer.source()), taken))
    }

    pub(super) async fn reserve(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Told, Option<String>), Mistake> {
        let trip = Box::pin(self.limiter.reserve(key, cost, max_wait, self.of.time(now)));
        let reservation = self.of.asked(trip, |reservation| reservation.answer.source()).await?;
        let told = Told::by(reservation.answer.decision(), reservation.answer.source());
        Ok((told, reservation.receipt.map(|receipt| receipt.to_string())))
    }

    pub(super) async fn check_within(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<Told, Mistake> {
        let trip = Box::pin(self.limiter.check_within(key, cost, max_wait, self.of.time(now)));
        let answer = self.of.asked(trip, sluicegate_redis::Answer::source).await?;
        Ok(Told::by(answer.decision(), answer.source()))
    }

    pub(super) async fn cancel(&self, receipt: &Receipt, now: Time) -> Result<bool, Mistake> {
        self.of.asked(Box::pin(self.limiter.cancel(receipt, self.of.time(now))), |_| Source::Store).await
    }

    pub(super) async fn settle(&self, receipt: &Receipt, used: u32, now: Time) -> Result<bool, Mistake> {
        self.of
            .asked(Box::pin(self.limiter.settle(receipt, used, self.of.time(now))), |_| Source::Store)
            .await
    }

    pub(super) async fn next_window(&self, key: &[u8], now: Time) -> Result<Time, Mistake> {
        self.of.asked(Box::pin(self.limiter.next_window(key, self.of.time(now))), |_| Source::Store).await
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Result<(), Mistake> {
        self.of.asked(Box::pin(self.limiter.reset(key)), |()| Source::Store).await
    }
}

impl SharedLender {
    pub(super) fn new(semaphore: RedisSemaphore, of: Arc<Shared>) -> SharedLender {
        SharedLender { semaphore, of }
    }

    pub(super) async fn try_acquire(
        &self,
        key: &[u8],
        cost: u32,
        now: Time,
    ) -> Result<(Told, Option<Held>), Mistake> {
        let trip = Box::pin(async {
            match self.of.time(now) {
                Some(now) => self.semaphore.try_acquire_at(key, cost, now).await,
                None => self.semaphore.try_acquire(key, cost).await,
            }
        });
        self.of.asked(trip, SharedGrant::source).await.map(granted)
    }

    /// The same, and waits in line for so long at the most. Who waits asks the store again and again, and takes no turn: a
    /// connection has one who waits, and the semaphore sees to it how often all of them ask.
    pub(super) async fn wait(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
    ) -> Result<(Told, Option<Held>), Mistake> {
        let trip = Box::pin(self.semaphore.acquire_within(key, cost, max_wait.into()));
        self.of.waited(trip).await.map(granted)
    }

    pub(super) async fn renew(&self, key: &[u8], lease: &LeaseId, now: Time) -> Result<bool, Mistake> {
        let trip = Box::pin(self.semaphore.renew(key, lease, self.of.time(now)));
        self.of.asked(trip, |_| Source::Store).await
    }

    pub(super) async fn release(&self, key: &[u8], lease: &LeaseId, now: Time) -> Result<bool, Mistake> {
        let trip = Box::pin(self.semaphore.release(key, lease, self.of.time(now)));
        self.of.asked(trip, |_| Source::Store).await
    }

    pub(super) async fn peek(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        let trip = Box::pin(self.semaphore.peek(key, cost, self.of.time(now)));
        let answer = self.of.asked(trip, sluicegate_redis::Answer::source).await?;
        Ok(Told::by(answer.decision(), answer.source()))
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Result<(), Mistake> {
        self.of.asked(Box::pin(self.semaphore.reset(key)), |()| Source::Store).await
    }
}

fn granted(grant: SharedGrant) -> (Told, Option<Held>) {
    (Told::by(grant.decision(), grant.source()), grant.lease().map(Held::Shared))
}

#[cfg(test)]
mod tests {
    use super::super::turns::{AT_FIRST, LEAST};
    use super::*;
    use redis_testkit::{Options, Server};
    use sluicegate_redis::{OnStoreFailure, RedisStoreBuilder};
    use std::net::TcpListener;

    /// Longer than any answer takes.
    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    /// Where nobody listens.
    fn nowhere(scheme: &str) -> RedisStoreBuilder {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        RedisStore::builder(&format!("{scheme}://127.0.0.1:{port}")).connect_later()
    }

    async fn shared(store: RedisStoreBuilder, deadline: Duration) -> Arc<Shared> {
        let store = store.deadline(deadline).connect().await.unwrap();
        Arc::new(Shared::new(store, WhoseTime::TheStores, deadline))
    }

    fn limiter(of: &Arc<Shared>, says: OnStoreFailure) -> SharedLimiter {
        let builder = RedisLimiter::builder("fixed-window 1000/day").in_store(of.store(), "api");
        SharedLimiter::new(builder.on_store_failure(says).build().unwrap(), Arc::clone(of))
    }

    async fn all_turns(of: &Shared) -> Vec<SemaphorePermit<'_>> {
        let mut turns = Vec::new();
        for _ in 0..AT_FIRST / LEAST {
            turns.push(of.turns.wait(LEAST).await.unwrap());
        }
        turns
    }

    #[tokio::test]
    async fn a_store_that_was_never_reached_is_not_up() {
        for scheme in ["redis", "redis+cluster"] {
            let shared = shared(nowhere(scheme), SHORT).await;
            assert!(!shared.is_up() && !shared.is_partly_up(), "{scheme}: {:?}", shared.store.health());
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_the_turn_to_a_store_that_is_away() {
        let shared = shared(nowhere("redis"), LONG).await;
        let allows = limiter(&shared, OnStoreFailure::Allow);
        let _all = all_turns(&shared).await;
        let began = Instant::now();
        let told = shared.check_each(&[allows.on(b"Harry", 1)]).await;
        assert_eq!(told[0].as_ref().unwrap().instead, Some(Source::Allowed));
        assert_eq!(allows.peek(b"Harry", 1, Time::EPOCH).await.unwrap().instead, Some(Source::Allowed));
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn who_waits_too_long_for_a_turn_is_answered_without_the_store() {
        let redis = Server::start(&Options::redis());
        let shared = shared(RedisStore::builder(&redis.url()), SHORT).await;
        let [allows, fails] =
            [OnStoreFailure::Allow, OnStoreFailure::Error].map(|says| limiter(&shared, says));
        let all = all_turns(&shared).await;
        let told = shared.check_each(&[allows.on(b"Harry", 1), fails.on(b"Harry", 1)]).await;
        assert_eq!(told[0].as_ref().unwrap().instead, Some(Source::Allowed));
        let said = told[1].as_ref().unwrap_err();
        assert!(said.is_of_store() && said.to_string().contains("was not sent"), "{said}");
        let said = shared.check_all(&[allows.on(b"Harry", 1)], Time::EPOCH).await.unwrap_err();
        assert!(said.is_of_store(), "{said}");
        assert_eq!(shared.view().failures[0], ("away", 3));
        drop(all);
        let peeked = allows.peek(b"Harry", 1, Time::EPOCH).await.unwrap();
        assert_eq!((peeked.decision.remaining(), peeked.instead), (1000, None), "nothing was charged");
    }

    #[tokio::test]
    async fn answers_that_never_come_leave_fewer_turns() {
        let redis = Server::start(&Options::redis());
        let shared = shared(RedisStore::builder(&redis.url()), SHORT).await;
        let allows = limiter(&shared, OnStoreFailure::Allow);
        redis.stop();
        let told = shared.check_each(&[allows.on(b"Harry", 1)]).await;
        redis.cont();
        assert_eq!(told[0].as_ref().unwrap().instead, Some(Source::Allowed));
        assert!(shared.turns.how_many() < AT_FIRST, "{}", shared.turns.how_many());
    }
}
