//! One decision: state in, decision out, no clock and no store; beside a bare compare-and-swap and governor's check.

use crate::median;
use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;
use sluicegate::Limit;
use sluicegate::core::fixed_window::FixedWindow;
use sluicegate::core::leaky_bucket::LeakyBucket;
use sluicegate::core::min_interval::MinInterval;
use sluicegate::core::pacer::Pacer;
use sluicegate::core::sliding_log::SlidingLog;
use sluicegate::core::sliding_window::SlidingWindow;
use sluicegate::core::token_bucket::TokenBucket;
use sluicegate::core::{Algorithm, Decision, Rate, RetryAfter, Span, Time};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 41;
const DECISIONS: u32 = 200_000;
/// 2026-11-11T12:00:00Z
const NOON: u64 = 1_794_398_400_000_000;

/// A name, and what does that many decisions in a row.
type Contender = (&'static str, Box<dyn FnMut(u32)>);

/// Decisions by a limit on one key, `step` microseconds apart.
fn decide<A: Algorithm + 'static>(limit: A, step: u64) -> Box<dyn FnMut(u32)>
where
    A::State: 'static,
{
    let (mut state, mut now) = (A::State::default(), NOON);
    Box::new(move |decisions| {
        for _ in 0..decisions {
            now += step;
            let at = Time::saturating_from_micros(now);
            let decision = black_box(&limit).check(black_box(&mut state), at, black_box(1));
            black_box(read(&decision));
        }
    })
}

/// Every field, as a caller would read them. (To hand the whole struct to `black_box` would copy it in pieces of
/// another size than it was written in, which stalls the processor for longer than the decision takes.)
fn read(decision: &Decision) -> u64 {
    let wait = match decision.retry_after() {
        None => decision.delay().as_micros(),
        Some(RetryAfter::After(wait)) => wait.as_micros(),
        Some(RetryAfter::Never) => 0,
    };
    u64::from(decision.limit()) ^ u64::from(decision.remaining()) ^ decision.reset_after().as_micros() ^ wait
}

fn per_second(count: u64) -> Rate {
    Rate::new(count, Span::from_micros(1_000_000)).expect("within bounds")
}

/// The limits allow 1000 a second: a call each 1000 µs is allowed, one each 10 µs is denied ninety-nine times in a hundred.
fn contenders(step: u64) -> Vec<Contender> {
    let calendar: Limit = "fixed-window 1000000000/day tz=Asia/Shanghai".parse().expect("a limit");
    let any: Limit = "token-bucket 1000/s".parse().expect("a limit");
    let window = FixedWindow::aligned(per_second(1_000), Time::EPOCH);
    let swap = AtomicU64::new(0);
    let clock = FakeRelativeClock::default();
    let still = RateLimiter::direct_with_clock(Quota::per_second(nonzero!(1_000_u32)), clock.clone());
    let ticking = RateLimiter::direct(Quota::per_second(nonzero!(1_000_u32)));
    assert!(clock.now() == clock.now(), "a clock that stands still");
    vec![
        (
            "bare compare-and-swap",
            Box::new(move |decisions| {
                for _ in 0..decisions {
                    let old = swap.load(Ordering::Acquire);
                    let new = black_box(old + 1);
                    let _ = black_box(swap.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire));
                }
            }),
        ),
        (
            "governor direct, its own clock",
            Box::new(move |decisions| {
                for _ in 0..decisions {
                    let _ = black_box(black_box(&ticking).check());
                }
            }),
        ),
        (
            "governor direct, a fake clock",
            Box::new(move |decisions| {
                for _ in 0..decisions {
                    clock.advance(Duration::from_micros(step));
                    let _ = black_box(black_box(&still).check());
                }
            }),
        ),
        ("token-bucket", decide(TokenBucket::new(per_second(1_000), 1_000).expect("a limit"), step)),
        (
            "token-bucket 7/s (remainders)",
            decide(TokenBucket::new(per_second(7), 7).expect("a limit"), step * 143),
        ),
        ("token-bucket, as any limit", decide(any.made_at(Time::EPOCH), step)),
        ("leaky-bucket", decide(LeakyBucket::new(per_second(1_000), 1_000).expect("a limit"), step)),
        ("min-interval", decide(MinInterval::new(Span::from_micros(1_000)).expect("a limit"), step)),
        ("pacer", decide(Pacer::new(per_second(1_000), 1_000).expect("a limit"), step)),
        ("fixed-window", decide(window, step)),
        ("fixed-window, a calendar day", decide(calendar.made_at(Time::EPOCH), step)),
        ("sliding-window", decide(SlidingWindow::new(per_second(1_000)), step)),
        ("sliding-log 1000/s", decide(SlidingLog::new(per_second(1_000)).expect("a limit"), step)),
    ]
}

pub fn run() {
    let mut columns = Vec::new();
    for step in [1_000, 10] {
        let mut contenders = contenders(step);
        let mut rounds = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            for ((_, decide), times) in contenders.iter_mut().zip(&mut rounds) {
                let began = Instant::now();
                decide(DECISIONS);
                times.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS));
            }
        }
        let names: Vec<&str> = contenders.iter().map(|(name, _)| *name).collect();
        columns.push((names, rounds.into_iter().map(median).collect::<Vec<f64>>()));
    }
    let [(names, allowed), (_, denied)] = columns.as_slice() else { return };
    println!("One decision on one hot key, ns (median of {ROUNDS} interleaved rounds of {DECISIONS}):\n");
    println!(
        "| | allowed | denied | of a compare-and-swap | of governor, its clock | of governor, fake clock |"
    );
    println!("|---|---|---|---|---|---|");
    for (place, name) in names.iter().enumerate() {
        let [ours, denied] = [allowed[place], denied[place]];
        let ratio = |rival: usize| format!("{:.2}", ours / allowed[rival]);
        println!("| {name} | {ours:.1} | {denied:.1} | {} | {} | {} |", ratio(0), ratio(1), ratio(2));
    }
}
