//! Waiting for a permit: ours beside `leaky-bucket`, whose waiters are fair too, and tokio's
//! semaphore.
//!
//! At once: no call has to wait, and the call is charged. A semaphore's permits are taken for good,
//! as a rate limiter's are. In the queue: tasks that all want the same key wait until they are
//! granted, 100 in each millisecond. Time is paused and jumps from grant to grant, so that what is
//! measured is work and nothing else, in one thread.

use crate::measure::{Contender, Rounds, each, head, interleaved, memory, nanos_each, row, verdict};
use leaky_bucket::RateLimiter;
use sluicegate::clock::TokioClock;
use sluicegate::wait::Acquire;
use sluicegate::{Gate, Limiter};
use std::future::Future as _;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub const ROUNDS: usize = 15;
const CALLS: u64 = 200_000;
const WAITERS: u64 = 20_000;
const A_MILLISECOND: u64 = 100;

const OURS: &str = "sluicegate, `Gate`";
const OURS_KEYED: &str = "sluicegate, one hot key";
const LEAKY: &str = "leaky-bucket";
const SEMAPHORE: &str = "tokio::sync::Semaphore";

pub fn run(rounds: usize) {
    at_once(rounds);
    println!();
    in_queue(rounds);
    println!();
    grows();
}

fn runtime(paused: bool) -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(paused).build();
    runtime.expect("a runtime of one thread")
}

fn at_once(rounds: usize) {
    let gate = Gate::new("token-bucket 1000000000/s").expect("a limit");
    let limiter = Limiter::new("token-bucket 1000000000/s").expect("a limit");
    let leaky = RateLimiter::builder().initial(usize::MAX / 4).max(usize::MAX / 4).refill(1).build();
    let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    let runtime = runtime(false);
    let contenders: Vec<Contender<'_>> = vec![
        (OURS.to_owned(), {
            let (runtime, gate) = (&runtime, &gate);
            Box::new(move || {
                nanos_each(CALLS, || {
                    runtime.block_on(async {
                        for _ in 0..CALLS {
                            assert!(black_box(gate).acquire(1).await.allowed());
                        }
                    });
                })
            })
        }),
        (OURS_KEYED.to_owned(), {
            let (runtime, limiter) = (&runtime, &limiter);
            Box::new(move || {
                nanos_each(CALLS, || {
                    runtime.block_on(async {
                        for _ in 0..CALLS {
                            assert!(black_box(limiter).acquire("Harry", 1).await.allowed());
                        }
                    });
                })
            })
        }),
        (LEAKY.to_owned(), {
            let (runtime, leaky) = (&runtime, &leaky);
            Box::new(move || {
                nanos_each(CALLS, || {
                    runtime.block_on(async {
                        for _ in 0..CALLS {
                            black_box(leaky).acquire_one().await;
                        }
                    });
                })
            })
        }),
        (SEMAPHORE.to_owned(), {
            let (runtime, semaphore) = (&runtime, &semaphore);
            Box::new(move || {
                let nanos = nanos_each(CALLS, || {
                    runtime.block_on(async {
                        for _ in 0..CALLS {
                            black_box(semaphore).acquire().await.expect("it is not closed").forget();
                        }
                    });
                });
                semaphore.add_permits(CALLS as usize);
                nanos
            })
        }),
    ];
    println!("An acquire that does not wait, in nanoseconds:\n");
    table(&interleaved(contenders, rounds));
}

fn in_queue(rounds: usize) {
    let contenders: Vec<Contender<'_>> = vec![
        ("tasks that do not wait".to_owned(), Box::new(|| tasks_alone(WAITERS))),
        (OURS.to_owned(), Box::new(|| ours(WAITERS))),
        (LEAKY.to_owned(), Box::new(|| leaky(WAITERS))),
        (SEMAPHORE.to_owned(), Box::new(|| semaphore(WAITERS))),
    ];
    println!(
        "An acquire by each of {WAITERS} tasks in one queue, in nanoseconds per task, including its spawn:\n"
    );
    table(&interleaved(contenders, rounds));
}

/// Every contender beside the two rivals, and whether ours keeps within the bar.
fn table(figures: &Rounds) {
    head(["", "median", "lowest to highest", "ratio to leaky-bucket", "ratio to the semaphore"]);
    for name in figures.names() {
        let [middle, spread] = figures.spread(name);
        row([
            name.into(),
            middle,
            spread,
            figures.ratio_cell(name, LEAKY),
            figures.ratio_cell(name, SEMAPHORE),
        ]);
    }
    let best = figures.ratio(OURS, LEAKY).max(figures.ratio(OURS, SEMAPHORE));
    println!("\nA ratio of at most 1.0 to the best rival: {}", verdict(best <= 1.0));
}

/// Runs tasks to their ends. What each took.
fn timed(waiters: u64, spawn: impl AsyncFnOnce(&mut JoinSet<()>)) -> f64 {
    runtime(true).block_on(async {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        spawn(&mut tasks).await;
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a task ends");
        }
        each(began.elapsed(), waiters)
    })
}

fn tasks_alone(waiters: u64) -> f64 {
    timed(waiters, async |tasks| {
        for _ in 0..waiters {
            tasks.spawn(tokio::task::yield_now());
        }
    })
}

fn ours(waiters: u64) -> f64 {
    timed(waiters, async |tasks| {
        let limit = format!("token-bucket {A_MILLISECOND}/ms burst=1");
        let builder = Limiter::builder(limit).clock(TokioClock::new()).max_queue(waiters as usize);
        let gate = Arc::new(builder.build_gate().expect("a limit"));
        for _ in 0..waiters {
            let gate = Arc::clone(&gate);
            tasks.spawn(async move { assert!(gate.acquire(1).await.allowed()) });
        }
    })
}

fn leaky(waiters: u64) -> f64 {
    timed(waiters, async |tasks| {
        let limiter = RateLimiter::builder()
            .initial(0)
            .max(A_MILLISECOND as usize)
            .refill(A_MILLISECOND as usize)
            .interval(Duration::from_millis(1))
            .build();
        let limiter = Arc::new(limiter);
        for _ in 0..waiters {
            let limiter = Arc::clone(&limiter);
            tasks.spawn(async move { limiter.acquire_one().await });
        }
    })
}

fn semaphore(waiters: u64) -> f64 {
    timed(waiters, async |tasks| {
        let semaphore = Arc::new(Semaphore::new(0));
        for _ in 0..waiters {
            let semaphore = Arc::clone(&semaphore);
            tasks.spawn(async move { semaphore.acquire().await.expect("it is not closed").forget() });
        }
        tasks.spawn(async move {
            for _ in 0..waiters.div_ceil(A_MILLISECOND) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                semaphore.add_permits(A_MILLISECOND as usize);
            }
        });
    })
}

/// Time and memory per waiter, as the queue of one key grows.
fn grows() {
    println!("Waiters for one key, without tasks of their own:\n");
    head([
        "waiters",
        "enqueue, ns each",
        "bytes each, including the future",
        "grant, ns each",
        "dequeue by drop, ns each",
    ]);
    for waiters in [1_000_u64, 10_000, 100_000, 1_000_000] {
        let clock = sluicegate::clock::ManualClock::default();
        let builder = Limiter::builder("token-bucket 1/ms burst=1").clock(clock.clone());
        let builder = builder.max_queue(waiters as usize).max_waiters(waiters as usize);
        let limiter = builder.build().expect("a limit");
        assert!(limiter.check("k").allowed());
        let mut context = Context::from_waker(Waker::noop());
        let before = memory("VmRSS");
        let mut queue: Vec<Acquire<'_>> = (0..waiters).map(|_| limiter.acquire("k", 1)).collect();
        let join = nanos_each(waiters, || {
            for waiter in &mut queue {
                assert!(Pin::new(waiter).poll(&mut context).is_pending());
            }
        });
        let bytes = (memory("VmRSS") - before) / waiters as f64;
        let half = queue.len() / 2;
        let grants = nanos_each(half as u64, || {
            for waiter in &mut queue[..half] {
                clock.advance(Duration::from_millis(1));
                assert!(matches!(Pin::new(waiter).poll(&mut context), Poll::Ready(grant) if grant.allowed()));
            }
        });
        let leave = nanos_each(waiters - half as u64, || drop(queue.split_off(half)));
        assert_eq!(limiter.stats().waiting, 0);
        row([
            waiters.to_string(),
            format!("{join:.0}"),
            format!("{bytes:.0}"),
            format!("{grants:.0}"),
            format!("{leave:.0}"),
        ]);
    }
}
