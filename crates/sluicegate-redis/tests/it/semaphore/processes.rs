//! Several processes share one semaphore, and some are killed or stopped.
//!
//! Each process is the test itself, run again with environment variables.

use super::{KEY, WAIT_MAX, connect, lasts, leases, name, number, queued, semaphore, until};
use crate::support::{alone, connect_with, every_key_expires};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, AsyncConnectionConfig};
use redis_testkit::{Options, Server};
use sluicegate::backend::StoreFailure;
use sluicegate::semaphore::Grant;
use sluicegate_redis::{RedisSemaphore, RedisStore, WAITER_TTL};
use std::cell::Cell;
use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The arguments of a process: its number and the store's URL.
const VARIABLES: [&str; 2] = ["SLUICE_SEMAPHORE_NUMBER", "SLUICE_SEMAPHORE_URL"];

/// The arguments of this process, if it is one of several.
fn process_arguments() -> Option<(u64, String)> {
    let [Ok(number), Ok(url)] = VARIABLES.map(env::var) else { return None };
    Some((number.parse().unwrap(), url))
}

/// The test of that name, run again. It is killed on drop, however the test ends.
struct Process(Child);

impl Process {
    fn start(test: &str, number: u64, server: &Server) -> Process {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &format!("semaphore::processes::{test}"), "--include-ignored"]);
        command.envs(VARIABLES.into_iter().zip([number.to_string(), server.url()])).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    async fn succeeds(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return assert!(status.success(), "{status}");
            }
            assert!(began.elapsed() < 5 * WAIT_MAX, "a process hangs");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection for the test's own commands.
async fn plain(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(WAIT_MAX))
        .set_response_timeout(Some(WAIT_MAX));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Holds a lease and renews it until a renewal returns `false`.
async fn hold_until_lost(jobs: &RedisSemaphore, every: Duration) {
    let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    loop {
        sleep(every).await;
        match lease.renew().await {
            Ok(false) => return,
            // Or the process was suspended with the call in flight.
            Ok(true) | Err(StoreFailure::TimedOut { .. }) => {}
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[tokio::test]
async fn a_killed_holder_frees_its_permit_within_ttl() {
    const TTL: Duration = Duration::from_secs(2);
    let limit = "concurrency 1 ttl=2s";
    if let Some((_, url)) = process_arguments() {
        return hold_until_lost(&semaphore(&connect(&url).await, limit), TTL / 4).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    let mut process = Process::start("a_killed_holder_frees_its_permit_within_ttl", 0, &server);
    until("the process holds the lease", || leases(&server) == 1).await;
    // It keeps the lease for longer than a ttl, because it is alive.
    let began = Instant::now();
    while began.elapsed() < 2 * TTL {
        assert!(!jobs.try_acquire(KEY, 1).await.unwrap().allowed());
        sleep(TTL / 20).await;
    }
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert!(lasts(&server, 'c') <= TTL);
    let grant = timeout(WAIT_MAX, jobs.acquire(KEY, 1)).await.unwrap().unwrap();
    assert!(grant.allowed());
}

#[tokio::test]
async fn a_paused_process_cannot_renew_its_expired_lease() {
    let limit = "concurrency 1 ttl=500ms";
    if let Some((_, url)) = process_arguments() {
        // It succeeds only if its renewal is denied.
        return hold_until_lost(&semaphore(&connect(&url).await, limit), Duration::from_millis(50)).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    for another_call_comes in [false, true] {
        let name = "a_paused_process_cannot_renew_its_expired_lease";
        let mut process = Process::start(name, 0, &server);
        until("the process holds the lease", || leases(&server) == 1).await;
        process.signal("STOP");
        let next = if another_call_comes {
            let next = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
            // Longer than the test, so that it can be disturbed.
            let long = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1h");
            assert!(long.renew(KEY, &next.id()).await.unwrap());
            Some(next)
        } else {
            // No other call touches it: only the clock shows that it has expired.
            sleep(Duration::from_millis(700)).await;
            None
        };
        process.signal("CONT");
        process.succeeds().await;
        if let Some(next) = next {
            assert_eq!(leases(&server), 1);
            assert!(next.release().await.unwrap(), "its lease was not touched");
        }
    }
}

#[tokio::test]
async fn work_does_not_continue_after_its_lease_expired() {
    const TTL: Duration = Duration::from_secs(1);
    let limit = "concurrency 1 ttl=1s";
    if let Some((_, url)) = process_arguments() {
        let jobs = semaphore(&connect(&url).await, limit);
        let mut redis = plain(&url).await;
        let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
        // The longest time between two steps.
        let longest = Cell::new(Duration::ZERO);
        let lost = lease.renew_while(async {
            let mut last = Instant::now();
            loop {
                let _: i64 = redis.incr("steps", 1).await.unwrap();
                sleep(Duration::from_millis(5)).await;
                longest.set(longest.get().max(last.elapsed()));
                last = Instant::now();
            }
        });
        let Err(lost) = lost.await;
        assert!(longest.get() < TTL, "it continued after it was stopped: {longest:?}");
        return assert_eq!(lost.failure, None, "nothing failed but the process itself");
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    let steps = || server.cli(&["GET", "steps"]).trim().parse().unwrap_or(0_u64);
    // Stopped at different points of its renewal cycle.
    for round in 0..4 {
        let test = "work_does_not_continue_after_its_lease_expired";
        let (before, mut process) = (steps(), Process::start(test, 0, &server));
        until("it is at work", || steps() > before + 10).await;
        sleep(TTL / 3 + TTL / 12 * round).await;
        assert_eq!(leases(&server), 1, "it is renewed");
        process.signal("STOP");
        let next = timeout(WAIT_MAX, jobs.acquire(KEY, 1)).await.unwrap().unwrap().lease().unwrap();
        let stopped_at = steps();
        // So that another step would be more than a ttl after the last one.
        sleep(TTL).await;
        process.signal("CONT");
        process.succeeds().await;
        assert_eq!(steps(), stopped_at, "no step was done after it was continued");
        drop(next);
        until("its lease is released", || leases(&server) == 0).await;
    }
}

const PROCESSES: u64 = 4;
const PERMITS: i64 = 5;
const TASKS: u64 = 4;

/// Acquires and releases leases, and counts the holders over another connection.
async fn acquire_and_release(
    jobs: RedisSemaphore,
    mut counter: MultiplexedConnection,
    times: u64,
    seed: u64,
) -> (u64, i64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut taken, mut most) = (0, 0);
    while taken < times {
        let cost = if random.u8(..8) == 0 { 2 } else { 1 };
        // Some try first, and then wait.
        let tried = if random.bool() { jobs.try_acquire(KEY, cost).await.unwrap().lease() } else { None };
        let lease = match tried {
            Some(lease) => lease,
            None => jobs.acquire(KEY, cost).await.unwrap().lease().unwrap(),
        };
        taken += 1;
        let inside: i64 = counter.incr("inside", cost).await.unwrap();
        most = most.max(inside);
        let _: i64 = counter.decr("inside", cost).await.unwrap();
        assert!(lease.release().await.unwrap(), "no lease expires within an hour");
    }
    (taken, most)
}

async fn never_more_than_n_live(test: &str, acquisitions: u64) {
    let limit = format!("concurrency {PERMITS} ttl=1h");
    if let Some((number, url)) = process_arguments() {
        let store = connect(&url).await;
        let counter = plain(&url).await;
        let jobs = semaphore(&store, &limit);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let times = acquisitions / PROCESSES / TASKS;
            tasks.spawn(acquire_and_release(jobs.clone(), counter.clone(), times, number * TASKS + task));
        }
        let mut counter = counter;
        for (taken, most) in tasks.join_all().await {
            let _: i64 = counter.incr("taken", taken).await.unwrap();
            let _: i64 = counter.rpush("most", most).await.unwrap();
        }
        return;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(test, number, &server)).collect();
    for process in &mut processes {
        process.succeeds().await;
    }
    let most: Vec<i64> =
        server.cli(&["LRANGE", "most", "0", "-1"]).lines().map(|most| most.trim().parse().unwrap()).collect();
    assert_eq!(u64::try_from(most.len()).unwrap(), PROCESSES * TASKS);
    assert!(most.iter().all(|most| *most <= PERMITS), "{most:?}");
    assert_eq!(most.iter().max(), Some(&PERMITS), "all permits were in use at some moment");
    assert_eq!(number(&server, &["GET", "taken"]), acquisitions);
    assert_eq!((number(&server, &["GET", "inside"]), leases(&server)), (0, 0));
    until("the queue is empty", || queued(&server) == 0).await;
    assert_eq!(server.cli(&["EXISTS", &name('k')]).trim(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_n_are_live_over_ten_thousand_acquisitions_by_four_processes() {
    let name = "never_more_than_n_are_live_over_ten_thousand_acquisitions_by_four_processes";
    never_more_than_n_live(name, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes on a busy machine; docs/shared.md says how to run it"]
async fn never_more_than_n_are_live_over_a_hundred_thousand_acquisitions_by_four_processes() {
    let name = "never_more_than_n_are_live_over_a_hundred_thousand_acquisitions_by_four_processes";
    never_more_than_n_live(name, 100_000).await;
}

#[tokio::test]
async fn four_processes_share_one_queue_in_order_of_arrival() {
    const WAITERS: u64 = 20;
    let limit = "concurrency 1 ttl=1h";
    if let Some((number, url)) = process_arguments() {
        let jobs = semaphore(&connect(&url).await, limit);
        let redis = plain(&url).await;
        let mut waiters = JoinSet::new();
        for waiter in (number..WAITERS).step_by(usize::try_from(PROCESSES).unwrap()) {
            let (jobs, mut redis) = (jobs.clone(), redis.clone());
            waiters.spawn(async move {
                // Joins once all before it are queued.
                while redis.zcard::<_, u64>(name('w')).await.unwrap() < waiter {
                    sleep(Duration::from_millis(3)).await;
                }
                let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
                let _: u64 = redis.rpush("order", waiter).await.unwrap();
                assert!(lease.release().await.unwrap());
            });
        }
        waiters.join_all().await;
        return;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    let first = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    let test = "four_processes_share_one_queue_in_order_of_arrival";
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(test, number, &server)).collect();
    until("all are queued", || queued(&server) == WAITERS).await;
    every_key_expires(&server);
    assert!(first.release().await.unwrap());
    for process in &mut processes {
        process.succeeds().await;
    }
    let order = server.cli(&["LRANGE", "order", "0", "-1"]);
    let order: Vec<u64> = order.lines().map(|waiter| waiter.trim().parse().unwrap()).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
}

/// The holders, as they record themselves: their costs by the expiry of their leases. Returns the
/// cost of all holders by the store's clock, and keeps the maximum.
const ENTER: &str = "
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local inside = 0
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  inside = inside + string.match(member, '^%d+')
end
redis.call('ZADD', KEYS[2], 'GT', inside, 'most')
redis.call('INCR', KEYS[3])
return inside";

/// Acquires leases, holds some for longer, renews some, and releases most, until it is killed.
async fn acquire_until_killed(jobs: RedisSemaphore, mut redis: MultiplexedConnection, seed: u64) {
    let (mut random, enter) = (fastrand::Rng::with_seed(seed), redis::Script::new(ENTER));
    let began = Instant::now();
    // It ends by itself if no process is left to kill it.
    while began.elapsed() < 3 * WAIT_MAX {
        let cost = random.u64(1..=2);
        let grant =
            if random.bool() { jobs.try_acquire(KEY, cost).await } else { jobs.acquire(KEY, cost).await };
        // The store may be slow while processes start.
        let Some(lease) = grant.ok().and_then(Grant::lease) else { continue };
        let name = format!("{cost} {}", lease.id());
        for _ in 0..random.u64(1..4) {
            let mut call = enter.key("inside");
            call.key("most").key("entered").arg(lease.until().as_micros()).arg(&name);
            let _: i64 = call.invoke_async(&mut redis).await.unwrap();
            sleep(Duration::from_micros(random.u64(..8_000))).await;
            if random.bool() && !lease.renew().await.unwrap_or(false) {
                break;
            }
        }
        let _: i64 = redis.zrem("inside", &name).await.unwrap();
        match random.u8(..3) {
            0 => drop(lease),
            1 => drop(lease.release().await),
            // Forgotten: it expires.
            _ if random.u8(..20) == 0 => drop(lease.keep()),
            _ => drop(lease.release().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_never_exceed_the_limit_or_lose_a_permit() {
    const ROUNDS: u64 = 4;
    const TTL: Duration = Duration::from_millis(400);
    let limit = format!("concurrency {PERMITS} ttl=400ms");
    // A ttl so short that the entries of killed waiters hold up the others no longer than
    // necessary.
    let deadline = Duration::from_millis(150);
    if let Some((number, url)) = process_arguments() {
        let store = connect_with(RedisStore::builder(&url).deadline(deadline)).await;
        let redis = plain(&url).await;
        let jobs = semaphore(&store, &limit);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(acquire_until_killed(jobs.clone(), redis.clone(), number * TASKS + task));
        }
        tasks.join_all().await;
        return;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let test = "killed_processes_never_exceed_the_limit_or_lose_a_permit";
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(test, number, &server)).collect();
    let entered = || server.cli(&["GET", "entered"]).trim().parse().unwrap_or(0_u64);
    let mut random = fastrand::Rng::with_seed(3);
    for round in 1..=ROUNDS {
        // Two of the four, each at a different moment.
        let before = entered();
        until("they are at work", || entered() >= before + 40).await;
        for _ in 0..2 {
            sleep(Duration::from_micros(random.u64(..20_000))).await;
            drop(processes.swap_remove(random.usize(..processes.len())));
        }
        processes.extend((0..2).map(|one| Process::start(test, PROCESSES * round + one, &server)));
    }
    let (before, jobs) = (entered(), semaphore(&connect(&server.url()).await, &limit));
    until("they are still at work", || entered() >= before + 40).await;
    drop(processes);
    // All holders and waiters are dead: their leases and queue entries expire.
    assert!(lasts(&server, 'c') <= TTL && lasts(&server, 'u') <= WAITER_TTL);
    let all = timeout(WAIT_MAX, jobs.acquire(KEY, u64::try_from(PERMITS).unwrap())).await.unwrap().unwrap();
    assert!(all.allowed());
    assert!(all.lease().unwrap().release().await.unwrap());
    assert_eq!(number(&server, &["ZSCORE", "most", "most"]), u64::try_from(PERMITS).unwrap());
    until("no lease or entry is left", || leases(&server) == 0 && queued(&server) == 0).await;
    assert_eq!(server.cli(&["EXISTS", &name('k')]).trim(), "0");
}
