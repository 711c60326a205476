//! Waiting for a lease: in order, within bounds, and leaving nothing behind.

use super::{KEY, WAIT_MAX, connect, lasts, leases, name, number, queued, semaphore, until};
use crate::support::connect_with;
use redis_testkit::{Options, Server};
use sluicegate::backend::Source;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use sluicegate_core::RetryAfter;
use sluicegate_redis::{RedisLease, RedisSemaphore, RedisStore, WAITER_TTL};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

fn wait(jobs: &RedisSemaphore, cost: u64) -> JoinHandle<Grant<RedisLease>> {
    let jobs = jobs.clone();
    tokio::spawn(async move { jobs.acquire(KEY, cost).await.unwrap() })
}

async fn granted(waiting: JoinHandle<Grant<RedisLease>>) -> Grant<RedisLease> {
    let grant = timeout(WAIT_MAX, waiting).await.expect("still waiting").unwrap();
    assert!(grant.allowed(), "{grant:?}");
    grant
}

#[tokio::test]
async fn waiters_are_granted_in_order_and_a_large_cost_is_not_overtaken() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=1h");
    let (one, two) = (jobs.try_acquire(KEY, 1).await.unwrap(), jobs.try_acquire(KEY, 2).await.unwrap());
    let large = wait(&jobs, 3);
    until("the large one is queued", || queued(&server) == 1).await;
    let small = wait(&jobs, 1);
    until("both are queued", || queued(&server) == 2).await;
    drop(one);
    until("a permit is free", || leases(&server) == 1).await;
    // Neither the small waiter nor a new call gets it.
    for _ in 0..50 {
        let passer_by = jobs.try_acquire(KEY, 1).await.unwrap();
        assert_eq!((passer_by.allowed(), passer_by.decision().remaining()), (false, 0));
        assert!(passer_by.decision().retry_after().is_some());
        sleep(Duration::from_millis(2)).await;
    }
    assert!(!jobs.peek(KEY, 1).await.unwrap().allowed());
    assert!(!large.is_finished() && !small.is_finished());
    drop(two);
    let large = granted(large).await;
    assert!(!small.is_finished());
    drop(large);
    drop(granted(small).await);
    until("no key is left", || server.cli(&["DBSIZE"]).trim() == "0").await;
}

/// Each waiter is granted a lease if it fits beside all that are ahead of it, whatever they cost
/// and whether or not some have left. Calls that do not wait stand behind all of them.
#[tokio::test]
async fn the_costs_of_any_part_of_the_queue_are_exact() {
    const COUNT: u64 = 600;
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..4 {
        let server = Server::start(&Options::redis());
        let store = connect(&server.url()).await;
        let full = semaphore(&store, &format!("concurrency {COUNT} ttl=1h"));
        let mut held = Vec::new();
        for _ in 0..COUNT {
            held.push(full.try_acquire(KEY, 1).await.unwrap().lease().unwrap());
        }
        let mut waiting = Vec::new();
        for place in 1..=24 {
            let cost = if random.bool() { 1 } else { random.u64(1..=40) };
            waiting.push((cost, wait(&full, cost)));
            until("it is queued", || queued(&server) == place).await;
        }
        for _ in 0..round * 3 {
            waiting.remove(random.usize(..waiting.len())).1.abort();
        }
        until("some have left", || queued(&server) == waiting.len() as u64).await;
        // The leases expire one after another, so the wait tells the cost of the queue. (A time
        // that is before the last poll would be that of a clock that was set back.)
        let all: u64 = waiting.iter().map(|(cost, _)| cost).sum();
        let later = SystemClock.now().saturating_add(Duration::from_secs(5).into());
        let behind_all = full.peek_at(KEY, 1, later).await.unwrap().decision().retry_after();
        let next = held[usize::try_from(all).unwrap()].until();
        assert_eq!(behind_all, Some(RetryAfter::After(next.since(later))), "{round}: a cost of {all}");

        let more = random.u64(..=all);
        let _higher = semaphore(&store, &format!("concurrency {} ttl=1h", COUNT + more));
        let mut left = more;
        let mut granted = 0;
        for (cost, _) in &waiting {
            let Some(rest) = left.checked_sub(*cost) else { break };
            (left, granted) = (rest, granted + 1);
        }
        until("those that fit are granted", || waiting[..granted].iter().all(|(_, one)| one.is_finished()))
            .await;
        assert_eq!(queued(&server), (waiting.len() - granted) as u64, "{round}: {more} more");
        assert!(waiting[granted..].iter().all(|(_, one)| !one.is_finished()), "{round}: {more} more");
    }
}

#[tokio::test]
async fn many_waiters_of_two_processes_are_served_within_the_limit() {
    let server = Server::start(&Options::redis());
    let processes = [connect(&server.url()).await, connect(&server.url()).await]
        .map(|store| semaphore(&store, "concurrency 4 ttl=1h"));
    let inside = Arc::new(Mutex::new((0_u64, 0_u64)));
    let mut waiters = JoinSet::new();
    for waiter in 0..60_u64 {
        let (jobs, inside) = (processes[usize::from(waiter % 2 == 1)].clone(), Arc::clone(&inside));
        waiters.spawn(async move {
            let cost = 1 + waiter % 3;
            let lease = jobs.acquire(KEY, cost).await.unwrap().lease().unwrap();
            {
                let mut inside = inside.lock().unwrap();
                inside.0 += cost;
                inside.1 = inside.1.max(inside.0);
            }
            sleep(Duration::from_millis(2)).await;
            inside.lock().unwrap().0 -= cost;
            assert!(lease.release().await.unwrap());
        });
    }
    timeout(2 * WAIT_MAX, waiters.join_all()).await.unwrap();
    assert_eq!(*inside.lock().unwrap(), (0, 4));
    assert_eq!(server.cli(&["DBSIZE"]).trim(), "0");
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_is_denied_and_leaves_the_queue() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1h");
    let held = jobs.try_acquire(KEY, 1).await.unwrap();
    let patience = Duration::from_millis(300);
    let grant = jobs.acquire_within(KEY, 1, patience).await.unwrap();
    assert_eq!((grant.denial(), grant.source()), (Some(Denial::TooLong), Source::Store));
    assert!(grant.waited() >= patience && grant.decision().retry_after().is_some(), "{grant:?}");
    until("it has left the queue", || queued(&server) == 0).await;
    let at_once = jobs.acquire_within(KEY, 1, Duration::ZERO).await.unwrap();
    assert_eq!(at_once.denial(), Some(Denial::TooLong));
    let deadline = SystemClock.now().saturating_add(patience.into());
    let grant = jobs.acquire_until(KEY, 1, deadline).await.unwrap();
    assert!(!grant.allowed() && SystemClock.now() >= deadline);
    // A permit that is released in time is granted.
    let waiting = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.acquire_within(KEY, 1, WAIT_MAX).await.unwrap() }
    });
    until("it is queued", || queued(&server) == 1).await;
    drop(held);
    drop(granted(waiting).await);
    until("no key is left", || server.cli(&["DBSIZE"]).trim() == "0").await;
}

#[tokio::test]
async fn queues_are_bounded_per_key_and_per_process() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let builder = || RedisSemaphore::builder("concurrency 1 ttl=1h").in_store(&store, "jobs");
    let short_line = builder().max_queue(2).build().unwrap();
    let few_waiters = builder().max_waiters(2).build().unwrap();
    let _held = short_line.try_acquire(KEY, 1).await.unwrap();
    let first = wait(&short_line, 1);
    until("one is queued", || queued(&server) == 1).await;
    // The other semaphore allows one more waiter in this process; both have one scope.
    let second = wait(&few_waiters, 1);
    until("two are queued", || queued(&server) == 2).await;
    let third = short_line.acquire(KEY, 1).await.unwrap();
    assert_eq!((third.denial(), third.source()), (Some(Denial::QueueFull), Source::Store));
    // A call that may not wait gets a permit that no other call waits for, as in memory.
    let of_sally = few_waiters.acquire("user:43", 1).await.unwrap();
    assert!(of_sally.allowed());
    let fourth = few_waiters.acquire("user:43", 1).await.unwrap();
    assert_eq!((fourth.denial(), fourth.source()), (Some(Denial::QueueFull), Source::Store));
    let too_much = few_waiters.acquire("user:43", 2).await.unwrap();
    assert_eq!(too_much.denial(), Some(Denial::Never));
    // Both kinds of a full queue are a denial by the limit, which reports how long its leases last.
    for full in [&third, &fourth] {
        assert_eq!((full.decision().denied_by(), full.decision().remaining()), (Some(0), 0), "{full:?}");
    }
    assert_eq!(queued(&server), 2);
    let waits = tokio::spawn({
        let few_waiters = few_waiters.clone();
        async move { few_waiters.acquire("user:43", 1).await.unwrap().denial() }
    });
    assert_eq!(waits.await.unwrap(), Some(Denial::QueueFull));
    second.abort();
    until("the second has left", || queued(&server) == 1).await;
    let waits = tokio::spawn({
        let few_waiters = few_waiters.clone();
        async move { few_waiters.acquire("user:43", 1).await.unwrap().allowed() }
    });
    until("there is room for one more", || number(&server, &["ZCARD", "sluice:1/jobs:0w|{user:43}"]) == 1)
        .await;
    drop(of_sally);
    assert!(waits.await.unwrap());
    first.abort();
}

#[tokio::test]
async fn waiters_and_holders_dropped_at_any_point_leave_nothing() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=1h");
    let mut random = fastrand::Rng::with_seed(7);
    let mut came = 0;
    for _ in 0..60 {
        let mut callers = JoinSet::new();
        for _ in 0..random.usize(1..12) {
            let (jobs, cost) = (jobs.clone(), random.u64(1..=3));
            let (hurried, holds) = (Duration::from_micros(random.u64(..20_000)), random.u64(..3_000));
            // On a busy machine few others would be granted.
            let is_patient = random.u8(..4) == 0;
            let patience = if is_patient { WAIT_MAX } else { hurried };
            let waits = is_patient || random.bool();
            callers.spawn(async move {
                let work = async {
                    let tried =
                        if waits { jobs.acquire(KEY, cost).await } else { jobs.try_acquire(KEY, cost).await };
                    // Held while it sleeps.
                    let grant = tried.unwrap();
                    let allowed = grant.allowed();
                    sleep(Duration::from_micros(holds)).await;
                    allowed
                };
                timeout(patience, work).await.unwrap_or(false)
            });
        }
        came += callers.join_all().await.into_iter().filter(|came| *came).count();
    }
    assert!(came > 60, "{came}");
    until("no key is left", || server.cli(&["DBSIZE"]).trim() == "0").await;
    assert!(jobs.try_acquire(KEY, 3).await.unwrap().allowed());
}

#[tokio::test]
async fn a_call_dropped_in_flight_holds_nothing() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=1h");
    // The server has the scripts from here on.
    assert!(jobs.try_acquire("user:44", 1).await.unwrap().lease().unwrap().release().await.unwrap());
    server.stop();
    let moment = Duration::from_millis(20);
    assert!(timeout(moment, jobs.acquire(KEY, 1)).await.is_err());
    assert!(timeout(moment, jobs.try_acquire(KEY, 2)).await.is_err());
    server.cont();
    let ran = || server.cli(&["INFO", "commandstats"]).contains("cmdstat_hdel:");
    until("it was granted and released", || ran() && server.cli(&["DBSIZE"]).trim() == "0").await;
}

#[tokio::test]
async fn the_entry_of_a_dead_waiter_blocks_the_queue_for_its_ttl() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1h");
    let held = jobs.try_acquire(KEY, 1).await.unwrap();
    // A waiter whose runtime ends before it can leave the queue.
    let dies = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // An entry outlasts three deadlines, so this one is short.
            let store = RedisStore::builder(&server.url()).deadline(Duration::from_millis(150));
            let jobs = semaphore(&connect_with(store).await, "concurrency 1 ttl=1h");
            tokio::select! {
                grant = jobs.acquire(KEY, 1) => panic!("there is no place: {grant:?}"),
                () = until("it is queued", || queued(&server) == 1) => {}
            }
        });
        runtime.shutdown_background();
    };
    std::thread::scope(|scope| scope.spawn(dies).join()).unwrap();
    assert_eq!(queued(&server), 1, "its entry is still there");
    assert!(lasts(&server, 'u') <= WAITER_TTL);
    drop(held);
    let next = timeout(WAIT_MAX, jobs.acquire(KEY, 1)).await.unwrap().unwrap();
    assert!(next.allowed());
}

#[tokio::test]
async fn entries_from_before_the_clock_was_set_back_do_not_block() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1h");
    let ticket = "\\000".repeat(16) + "\\001\\000\\000\\000\\000\\000";
    let write = format!(
        "redis.call('ZADD', KEYS[1], 1, '{ticket}') return redis.call('ZADD', KEYS[2], '9000000000000000', '{ticket}')"
    );
    server.cli(&["EVAL", &write, "2", &name('w'), &name('u')]);
    assert_eq!(queued(&server), 1);
    assert!(jobs.peek(KEY, 1).await.unwrap().allowed());
    assert!(jobs.try_acquire(KEY, 1).await.unwrap().allowed());
    assert_eq!(queued(&server), 0);
}
