//! The store is killed, freezes, loses its data or its replies, while leases are held and waited
//! for.

use super::{KEY, WAIT_MAX, connect, leases, name, queued, semaphore, until};
use crate::support::{connect_with, panics, watch_for_panics};
use redis_testkit::{Options, Proxy, Server};
use sluicegate::backend::{Source, StoreFailure};
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use sluicegate_redis::{OnStoreFailure, RedisLease, RedisSemaphore, RedisStore};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const LIMIT: &str = "concurrency 2 ttl=1h";

type Waiting = JoinHandle<Result<Grant<RedisLease>, StoreFailure>>;

fn wait(jobs: &RedisSemaphore) -> Waiting {
    let jobs = jobs.clone();
    tokio::spawn(async move { jobs.acquire(KEY, 2).await })
}

async fn ended(waiting: Waiting) -> Result<Grant<RedisLease>, StoreFailure> {
    timeout(WAIT_MAX, waiting).await.expect("still waiting").unwrap()
}

async fn until_answered(jobs: &RedisSemaphore) {
    let answered = async {
        while !matches!(jobs.peek("is anybody there?", 1).await, Ok(answer) if answer.source() == Source::Store)
        {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(WAIT_MAX, answered).await.expect("the store is not back");
}

/// A store with a short deadline.
async fn hasty(url: &str) -> RedisStore {
    connect_with(RedisStore::builder(url).deadline(Duration::from_secs(1))).await
}

fn with(store: &RedisStore, policy: OnStoreFailure) -> RedisSemaphore {
    RedisSemaphore::builder(LIMIT).in_store(store, "jobs").on_store_failure(policy).build().unwrap()
}

#[tokio::test]
async fn a_killed_store_is_answered_for_by_the_fallback() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let [error, allow, deny] = [OnStoreFailure::Error, OnStoreFailure::Allow, OnStoreFailure::Deny]
        .map(|policy| with(&store, policy));
    let local = RedisSemaphore::builder(LIMIT).in_store(&store, "jobs").local_share(50);
    let local = local.on_store_failure(OnStoreFailure::Local).build().unwrap();
    let held = error.acquire(KEY, 1).await.unwrap().lease().unwrap();
    let (waits_error, waits_allow, waits_deny) = (wait(&error), wait(&allow), wait(&deny));
    until("all are queued", || queued(&server) == 3).await;
    server.kill();
    assert!(matches!(
        ended(waits_error).await,
        Err(StoreFailure::Unavailable(_) | StoreFailure::Rejected(_))
    ));
    let allowed = ended(waits_allow).await.unwrap();
    assert_eq!((allowed.allowed(), allowed.source()), (true, Source::Allowed));
    assert!(allowed.lease().is_none(), "there is nothing to release");
    assert!(error.try_acquire(KEY, 1).await.is_err() && error.peek(KEY, 1).await.is_err());
    assert!(held.renew().await.is_err());
    for (jobs, source) in [(&allow, Source::Allowed), (&deny, Source::Denied)] {
        let is_yes = source == Source::Allowed;
        let grant = jobs.try_acquire(KEY, 1).await.unwrap();
        assert_eq!((grant.allowed(), grant.source()), (is_yes, source));
        assert_eq!(jobs.peek(KEY, 1).await.unwrap().allowed(), is_yes);
        let free = jobs.try_acquire(KEY, 0).await.unwrap();
        assert_eq!((free.allowed(), free.source()), (is_yes, source));
    }
    let grants = [local.try_acquire(KEY, 1).await.unwrap(), local.try_acquire(KEY, 1).await.unwrap()];
    assert_eq!(
        grants.each_ref().map(|grant| (grant.allowed(), grant.source())),
        [(true, Source::Local), (false, Source::Local)]
    );
    let [Some(lease), None] = grants.map(Grant::lease) else { panic!("there is one place of the two here") };
    assert!(lease.renew().await.unwrap() && !local.peek(KEY, 1).await.unwrap().allowed());
    let id = lease.keep().to_string().parse().unwrap();
    assert!(local.renew(KEY, &id).await.unwrap());
    let waiting = {
        let local = local.clone();
        tokio::spawn(async move { local.acquire(KEY, 1).await })
    };
    assert!(local.release(KEY, &id).await.unwrap() && !local.release(KEY, &id).await.unwrap());
    assert_eq!(ended(waiting).await.unwrap().source(), Source::Local);
    let short = deny.acquire_within(KEY, 1, Duration::from_millis(50)).await.unwrap();
    assert_eq!((short.denial(), short.source()), (Some(Denial::TooLong), Source::Denied));
    assert!(!waits_deny.is_finished(), "it keeps waiting for the store");
    server.restart();
    let grant = ended(waits_deny).await.unwrap();
    assert_eq!((grant.allowed(), grant.source()), (true, Source::Store));
    assert!(!held.renew().await.unwrap(), "the store lost it");
}

#[tokio::test]
async fn a_waiter_survives_a_short_freeze_of_the_store() {
    let server = Server::start(&Options::redis());
    let store = hasty(&server.url()).await;
    let jobs = semaphore(&store, LIMIT);
    let held = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    let waiting = wait(&jobs);
    until("it is queued", || queued(&server) == 1).await;
    // Longer than the deadline of one poll, and shorter than five.
    server.stop();
    until("one poll has timed out", || store.health()[0].failures > 0).await;
    server.cont();
    until_answered(&jobs).await;
    assert!(held.release().await.unwrap());
    let grant = ended(waiting).await.unwrap();
    assert_eq!((grant.allowed(), leases(&server)), (true, 1), "{grant:?}");
    drop(grant);
    until("no key is left", || server.cli(&["DBSIZE"]).trim() == "0").await;
}

#[tokio::test]
async fn after_flushall_renewals_fail_and_waiters_are_granted() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, LIMIT);
    let held = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    let waiting = wait(&jobs);
    until("it is queued", || queued(&server) == 1).await;
    server.cli(&["FLUSHALL"]);
    let grant = ended(waiting).await.unwrap();
    assert!(grant.allowed());
    assert!(!held.renew().await.unwrap());
    assert!(!held.release().await.unwrap());
    assert_eq!(leases(&server), 1, "the other lease was not touched");
}

#[tokio::test]
async fn a_lease_whose_reply_is_cut_at_any_byte_is_released() {
    watch_for_panics();
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let store = connect(&proxy.url()).await;
    let jobs = semaphore(&store, LIMIT);
    let now = sluicegate::Time::from_micros(1_780_000_000_000_000).unwrap();
    // The scripts are loaded before bytes are counted.
    for _ in 0..2 {
        let warm = jobs.try_acquire_at(KEY, 1, now).await.unwrap().lease().unwrap().keep();
        assert!(jobs.release_at(KEY, &warm, now).await.unwrap());
    }
    let before = proxy.reply_bytes();
    let whole = jobs.try_acquire_at(KEY, 1, now).await.unwrap().lease().unwrap().keep();
    let length = proxy.reply_bytes() - before;
    assert!(jobs.release_at(KEY, &whole, now).await.unwrap() && length > 10);
    for byte in 0..length {
        proxy.cut_after(byte);
        let failure = jobs.try_acquire_at(KEY, 2, now).await.expect_err("no whole reply");
        assert!(matches!(failure, StoreFailure::Disconnected(_)), "byte {byte}: {failure:?}");
        until("it is released", || leases(&server) == 0).await;
        // The connection is back, and all earlier replies have arrived.
        until_answered(&jobs).await;
    }
    assert_eq!(panics(), Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_whose_reply_is_late_is_released() {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let store = hasty(&proxy.url()).await;
    let jobs = semaphore(&store, LIMIT);
    until_answered(&jobs).await;
    assert!(jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap().release().await.unwrap());
    for _ in 0..3 {
        until_answered(&jobs).await;
        proxy.lose_replies(true);
        let failure = jobs.try_acquire(KEY, 2).await.unwrap_err();
        assert!(failure.may_have_charged(), "{failure:?}");
        proxy.lose_replies(false);
        until("it is released", || leases(&server) == 0).await;
    }
}

#[tokio::test]
async fn a_waiter_whose_grant_was_lost_gets_the_same_lease() {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let store = hasty(&proxy.url()).await;
    let jobs = semaphore(&store, LIMIT);
    // Held over a working connection.
    let other = semaphore(&connect(&server.url()).await, LIMIT);
    let other_store = semaphore(&connect(&server.url()).await, "concurrency 5 ttl=1h");
    let mut held = other.acquire(KEY, 1).await.unwrap().lease().unwrap();
    for others in [0, 3] {
        let waiting = wait(&jobs);
        until("it is queued", || queued(&server) == 1).await;
        proxy.lose_replies(true);
        assert!(held.release().await.unwrap());
        until("it was granted", || leases(&server) == 1 && queued(&server) == 0).await;
        // A call under a higher limit arrives meanwhile.
        let more = other_store.try_acquire(KEY, others).await.unwrap();
        assert!(more.allowed());
        proxy.lose_replies(false);
        let grant = ended(waiting).await.unwrap();
        assert_eq!((grant.allowed(), queued(&server)), (true, 0), "{grant:?}");
        assert_eq!(leases(&server), 1 + u64::from(others > 0), "there is no second lease");
        assert_eq!(grant.decision().remaining(), 0);
        let lease = grant.lease().unwrap();
        // It reports the store's expiry, not one counted from the second reply.
        let last = server.cli(&["ZRANGE", &name('c'), "-1", "-1", "WITHSCORES"]);
        let expires: u64 = last.lines().last().unwrap().trim().parse().unwrap();
        assert_eq!(lease.until().as_micros(), expires);
        assert!(lease.release().await.unwrap());
        drop(more);
        until("all are released", || leases(&server) == 0).await;
        held = other.acquire(KEY, 1).await.unwrap().lease().unwrap();
    }
}

#[tokio::test]
async fn work_on_a_hanging_store_learns_that_its_lease_may_be_lost() {
    let server = Server::start(&Options::redis());
    // A deadline longer than the ttl: the lease may have expired before the call times out.
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=2s");
    let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    server.stop();
    let lost = lease.renew_while(std::future::pending::<()>()).await.unwrap_err();
    server.cont();
    assert!(matches!(lost.failure, Some(StoreFailure::TimedOut { .. })), "{lost:?}");
    assert!(lost.to_string().contains("may have expired"), "{lost}");
}

#[tokio::test]
async fn a_full_store_grants_nothing_but_renews_and_releases() {
    for options in [Some(Options::redis()), Options::valkey()].into_iter().flatten() {
        let server = Server::start(&options);
        let store = connect(&server.url()).await;
        let jobs = semaphore(&store, "concurrency 6 ttl=1h");
        let (one, two) = (jobs.acquire(KEY, 1).await.unwrap(), jobs.acquire(KEY, 2).await.unwrap());
        let (one, two) = (one.lease().unwrap(), two.lease().unwrap());
        let last = jobs.acquire(KEY, 3).await.unwrap().lease().unwrap();
        let (before, waiting) = (last.until(), wait(&jobs));
        until("it is queued", || queued(&server) == 1).await;
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        let refused = ended(waiting).await.expect_err("no memory");
        assert!(matches!(&refused, StoreFailure::Rejected(_)), "{refused:?}");
        until("the waiter has left the queue", || queued(&server) == 0).await;
        assert!(last.renew().await.unwrap() && last.until() > before);
        assert!(one.release().await.unwrap() && two.release().await.unwrap());
        assert!(matches!(jobs.try_acquire(KEY, 1).await, Err(StoreFailure::Rejected(_))));
        assert_eq!(leases(&server), 1);
        jobs.reset(KEY).await.unwrap();
        assert!(!last.renew().await.unwrap());
        assert_eq!(server.cli(&["DBSIZE"]).trim(), "0");
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        assert!(jobs.try_acquire(KEY, 6).await.unwrap().allowed());
    }
}
