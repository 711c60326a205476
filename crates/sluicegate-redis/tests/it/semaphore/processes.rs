//! Several processes at one semaphore, some of which are killed or stopped.
//!
//! Each process is the test itself once more, told by a variable what to do.

use super::{KEY, PATIENCE, connect, leases, line, name, number, semaphore, until};
use crate::support::{alone, every_key_expires};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use sluicegate_redis::{RedisSemaphore, StoreFailure};
use sluicegate_servers::{Options, Server};
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
            assert!(began.elapsed() < 15 * PATIENCE, "a process hangs");
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

/// A place held by a process that renews its lease until it is told that it is lost.
async fn hold_until_refused(jobs: &RedisSemaphore, every: Duration) {
    let lease = jobs.acquire(KEY, 1).await.unwrap().lease().unwrap();
    loop {
        sleep(every).await;
        match lease.renew().await {
            Ok(false) => return,
            // Or the process stood still while it asked.
            Ok(true) | Err(StoreFailure::Late { .. }) => {}
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[tokio::test]
async fn a_holder_killed_with_9_frees_its_place_within_ttl() {
    const TTL: Duration = Duration::from_secs(1);
    let limit = "concurrency 1 ttl=1s";
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
    let killed = Instant::now();
    process.0.wait().unwrap();
    let grant = timeout(PATIENCE, jobs.acquire(KEY, 1)).await.unwrap().unwrap();
    let took = killed.elapsed();
    assert!(grant.allowed());
    // The first in line asks every 20 ms; the rest is for a machine that others use as well.
    assert!(took < TTL + Duration::from_millis(500), "{took:?}");
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
            assert!(long.renew(KEY, &next.id(), None).await.unwrap());
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
        let counter = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
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
        let redis = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
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
