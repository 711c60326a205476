//! Several processes at one semaphore, some of which are killed or stopped.
//!
//! Each process is the test itself once more, told by a variable what to do.

use super::{KEY, PATIENCE, connect, lasts, leases, line, name, number, semaphore, until};
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

/// What a process is told: its number and the store's address.
const TOLD: [&str; 2] = ["SLUICE_SEMAPHORE_NUMBER", "SLUICE_SEMAPHORE_URL"];

/// What this process was told, if it is one of several.
fn told() -> Option<(u64, String)> {
    let [Ok(number), Ok(url)] = TOLD.map(env::var) else { return None };
    Some((number.parse().unwrap(), url))
}

/// The test of that name once more. It is killed when this is dropped, however the test ends.
struct Process(Child);

impl Process {
    fn start(test: &str, number: u64, server: &Server) -> Process {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &format!("semaphore::processes::{test}"), "--include-ignored"]);
        command.envs(TOLD.into_iter().zip([number.to_string(), server.url()])).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    async fn ends_well(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return assert!(status.success(), "{status}");
            }
            assert!(began.elapsed() < 5 * PATIENCE, "a process hangs");
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

/// A connection for what a test itself asks.
async fn plain(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// A place held by a process that renews its lease until it is told that it is lost.
async fn hold_until_refused(jobs: &RedisSemaphore, every: Duration) {
    let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    loop {
        sleep(every).await;
        match lease.renew().await {
            Ok(false) => return,
            // Or the process stood still while it asked.
            Ok(true) | Err(StoreFailure::TimedOut { .. }) => {}
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[tokio::test]
async fn a_holder_killed_with_9_frees_its_place_within_ttl() {
    const TTL: Duration = Duration::from_secs(2);
    let limit = "concurrency 1 ttl=2s";
    if let Some((_, url)) = told() {
        return hold_until_refused(&semaphore(&connect(&url).await, limit), TTL / 4).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    let mut process = Process::start("a_holder_killed_with_9_frees_its_place_within_ttl", 0, &server);
    until("the process has the place", || leases(&server) == 1).await;
    // It keeps it for longer than a ttl, as it is alive.
    let began = Instant::now();
    while began.elapsed() < 2 * TTL {
        assert!(!jobs.try_acquire(KEY, 1).await.unwrap().allowed());
        sleep(TTL / 20).await;
    }
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert!(lasts(&server, 'c') <= TTL);
    let grant = timeout(PATIENCE, jobs.acquire(KEY, 1)).await.unwrap().unwrap();
    assert!(grant.allowed());
}

#[tokio::test]
async fn a_lease_renewed_by_a_paused_process_after_it_lapsed_is_refused() {
    let limit = "concurrency 1 ttl=500ms";
    if let Some((_, url)) = told() {
        // It ends well only when it is refused.
        return hold_until_refused(&semaphore(&connect(&url).await, limit), Duration::from_millis(50)).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    for somebody_comes in [false, true] {
        let name = "a_lease_renewed_by_a_paused_process_after_it_lapsed_is_refused";
        let mut process = Process::start(name, 0, &server);
        until("the process has the place", || leases(&server) == 1).await;
        process.signal("STOP");
        let next = if somebody_comes {
            let next = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
            // Longer than the test lasts, so that it is there to be disturbed.
            let long = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1h");
            assert!(long.renew(KEY, &next.id()).await.unwrap());
            Some(next)
        } else {
            // Not looked at by anybody: that it has lapsed is known from the clock alone.
            sleep(Duration::from_millis(700)).await;
            None
        };
        process.signal("CONT");
        process.ends_well().await;
        if let Some(next) = next {
            assert_eq!(leases(&server), 1);
            assert!(next.release().await.unwrap(), "its place was not touched");
        }
    }
}

#[tokio::test]
async fn work_in_a_process_that_was_stopped_until_its_lease_lapsed_does_not_go_on() {
    const TTL: Duration = Duration::from_secs(1);
    let limit = "concurrency 1 ttl=1s";
    if let Some((_, url)) = told() {
        let jobs = semaphore(&connect(&url).await, limit);
        let mut redis = plain(&url).await;
        let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
        // The longest time from one of its steps to the next.
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
        assert!(longest.get() < TTL, "it went on after it had been stopped: {longest:?}");
        return assert_eq!(lost.failure, None, "nothing failed but the process itself");
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, limit);
    let steps = || server.cli(&["GET", "steps"]).trim().parse().unwrap_or(0_u64);
    // Stopped at different points of its round of renewals.
    for round in 0..4 {
        let test = "work_in_a_process_that_was_stopped_until_its_lease_lapsed_does_not_go_on";
        let (before, mut process) = (steps(), Process::start(test, 0, &server));
        until("it is at work", || steps() > before + 10).await;
        sleep(TTL / 3 + TTL / 12 * round).await;
        assert_eq!(leases(&server), 1, "it is renewed");
        process.signal("STOP");
        let next = timeout(PATIENCE, jobs.acquire(KEY, 1)).await.unwrap().unwrap().lease().unwrap();
        let stopped_at = steps();
        // So that a step after it would be a ttl after the last one, whenever that was.
        sleep(TTL).await;
        process.signal("CONT");
        process.ends_well().await;
        assert_eq!(steps(), stopped_at, "not one step was done after it was continued");
        drop(next);
        until("its place is returned", || leases(&server) == 0).await;
    }
}

const PROCESSES: u64 = 4;
const PLACES: i64 = 5;
const TASKS: u64 = 4;

/// Takes leases and returns them, and counts by another connection who is inside.
async fn take_and_return(
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
        assert!(lease.release().await.unwrap(), "none lapses within an hour");
    }
    (taken, most)
}

async fn never_more_than_n_live(test: &str, acquisitions: u64) {
    let limit = format!("concurrency {PLACES} ttl=1h");
    if let Some((number, url)) = told() {
        let store = connect(&url).await;
        let counter = plain(&url).await;
        let jobs = semaphore(&store, &limit);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let times = acquisitions / PROCESSES / TASKS;
            tasks.spawn(take_and_return(jobs.clone(), counter.clone(), times, number * TASKS + task));
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
        process.ends_well().await;
    }
    let most: Vec<i64> =
        server.cli(&["LRANGE", "most", "0", "-1"]).lines().map(|most| most.trim().parse().unwrap()).collect();
    assert_eq!(u64::try_from(most.len()).unwrap(), PROCESSES * TASKS);
    assert!(most.iter().all(|most| *most <= PLACES), "{most:?}");
    assert_eq!(most.iter().max(), Some(&PLACES), "all places were in use at some moment");
    assert_eq!(number(&server, &["GET", "taken"]), acquisitions);
    assert_eq!((number(&server, &["GET", "inside"]), leases(&server)), (0, 0));
    until("nobody is in line", || line(&server) == 0).await;
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
async fn four_processes_stand_in_one_line_and_go_in_the_order_in_which_they_came() {
    const WAITERS: u64 = 20;
    let limit = "concurrency 1 ttl=1h";
    if let Some((number, url)) = told() {
        let jobs = semaphore(&connect(&url).await, limit);
        let redis = plain(&url).await;
        let mut waiters = JoinSet::new();
        for waiter in (number..WAITERS).step_by(usize::try_from(PROCESSES).unwrap()) {
            let (jobs, mut redis) = (jobs.clone(), redis.clone());
            waiters.spawn(async move {
                // Joins when all before it are in line.
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
    let test = "four_processes_stand_in_one_line_and_go_in_the_order_in_which_they_came";
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(test, number, &server)).collect();
    until("all are in line", || line(&server) == WAITERS).await;
    every_key_expires(&server);
    assert!(first.release().await.unwrap());
    for process in &mut processes {
        process.ends_well().await;
    }
    let order = server.cli(&["LRANGE", "order", "0", "-1"]);
    let order: Vec<u64> = order.lines().map(|waiter| waiter.trim().parse().unwrap()).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
}

/// Who is inside, written down by themselves: their costs by the moment until which their leases are live. Tells what all who are inside by the
/// store's clock cost together, and remembers the most that this ever was.
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

/// Takes leases, keeps some for longer, renews some, and returns most. Until it is killed.
async fn come_and_go(jobs: RedisSemaphore, mut redis: MultiplexedConnection, seed: u64) {
    let (mut random, enter) = (fastrand::Rng::with_seed(seed), redis::Script::new(ENTER));
    let began = Instant::now();
    // It ends by itself if nobody is left who would kill it.
    while began.elapsed() < 3 * PATIENCE {
        let cost = random.u64(1..=2);
        let grant =
            if random.bool() { jobs.try_acquire(KEY, cost).await } else { jobs.acquire(KEY, cost).await };
        // The store may be slow while processes are started.
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
            // Forgotten: it lapses.
            _ if random.u8(..20) == 0 => drop(lease.keep()),
            _ => drop(lease.release().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_n_are_inside_and_no_place_is_lost_when_processes_are_killed_at_any_step() {
    const ROUNDS: u64 = 4;
    const TTL: Duration = Duration::from_millis(400);
    let limit = format!("concurrency {PLACES} ttl=400ms");
    // So short that tickets of those who were killed hold up the others for no longer than they must.
    let deadline = Duration::from_millis(150);
    if let Some((number, url)) = told() {
        let store = connect_with(RedisStore::builder(&url).deadline(deadline)).await;
        let redis = plain(&url).await;
        let jobs = semaphore(&store, &limit);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(come_and_go(jobs.clone(), redis.clone(), number * TASKS + task));
        }
        tasks.join_all().await;
        return;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let test = "never_more_than_n_are_inside_and_no_place_is_lost_when_processes_are_killed_at_any_step";
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::start(test, number, &server)).collect();
    let entered = || server.cli(&["GET", "entered"]).trim().parse().unwrap_or(0_u64);
    let mut random = fastrand::Rng::with_seed(3);
    for round in 1..=ROUNDS {
        // Two of the four, each at another moment of its work.
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
    // All who held or waited are dead: what they held lapses, and what they waited with is good no more.
    assert!(lasts(&server, 'c') <= TTL && lasts(&server, 'u') <= WAITER_TTL);
    let all = timeout(PATIENCE, jobs.acquire(KEY, u64::try_from(PLACES).unwrap())).await.unwrap().unwrap();
    assert!(all.allowed());
    assert!(all.lease().unwrap().release().await.unwrap());
    assert_eq!(number(&server, &["ZSCORE", "most", "most"]), u64::try_from(PLACES).unwrap());
    until("nothing is left", || leases(&server) == 0 && line(&server) == 0).await;
    assert_eq!(server.cli(&["EXISTS", &name('k')]).trim(), "0");
}
