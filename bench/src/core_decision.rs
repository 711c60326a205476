//! One decision: state in, decision out, no clock and no store; beside a bare compare-and-swap and
//! governor's check.

use crate::measure::{Contender, head, interleaved, nanos_each, row};
use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;
use sluicegate::Limit;
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::sliding_log::SlidingLog;
use sluicegate_core::sliding_window::SlidingWindow;
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{Algorithm, Decision, Rate, RetryAfter, Span, Time};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const ROUNDS: usize = 41;
const DECISIONS: u64 = 200_000;
/// 2026-11-11T12:00:00Z
const NOON: u64 = 1_794_398_400_000_000;

const SWAP: &str = "bare compare-and-swap";
const TICKING: &str = "governor direct, its own clock";
const STILL: &str = "governor direct, a fake clock";

/// A decision, made that many times in a row.
fn contender(name: &str, mut decide: impl FnMut() + 'static) -> Contender<'static> {
    (name.to_owned(), Box::new(move || nanos_each(DECISIONS, || (0..DECISIONS).for_each(|_| decide()))))
}

/// Decisions by a limit on one key, `step` microseconds apart.
fn decide<A: Algorithm + 'static>(name: &str, limit: A, step: u64) -> Contender<'static>
where
    A::State: 'static,
{
    let (mut state, mut now) = (A::State::default(), NOON);
    contender(name, move || {
        now += step;
        let at = Time::saturating_from_micros(now);
        let decision = black_box(&limit).check(black_box(&mut state), at, black_box(1));
        black_box(read(&decision));
    })
}

/// Every field, as a caller would read them. (To hand the whole struct to `black_box` would copy it
/// in pieces of another size than it was written in, which stalls the processor for longer than the
/// decision takes.)
fn read(decision: &Decision) -> u64 {
    let wait = match decision.retry_after() {
        None => decision.delay().as_micros(),
        Some(RetryAfter::After(wait)) => wait.as_micros(),
        Some(RetryAfter::Never) => 0,
    };
    decision.limit() ^ decision.remaining() ^ decision.reset_after().as_micros() ^ wait
}

fn per_second(count: u64) -> Rate {
    Rate::new(count, Span::from_micros(1_000_000)).expect("within bounds")
}

/// The limits allow 1000 per second: one call per 1000 µs is allowed; of calls 10 µs apart, 99 in
/// 100 are denied.
fn contenders(step: u64) -> Vec<Contender<'static>> {
    let calendar: Limit = "fixed-window 1000000000/day tz=Asia/Shanghai".parse().expect("a limit");
    let any: Limit = "token-bucket 1000/s".parse().expect("a limit");
    let window = FixedWindow::aligned(per_second(1_000), Time::EPOCH);
    let swap = AtomicU64::new(0);
    let clock = FakeRelativeClock::default();
    let still = RateLimiter::direct_with_clock(Quota::per_second(nonzero!(1_000_u32)), clock.clone());
    let ticking = RateLimiter::direct(Quota::per_second(nonzero!(1_000_u32)));
    assert!(clock.now() == clock.now(), "a clock that stands still");
    let thousand = per_second(1_000);
    vec![
        contender(SWAP, move || {
            let old = swap.load(Ordering::Acquire);
            let new = black_box(old + 1);
            let _ = black_box(swap.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire));
        }),
        contender(TICKING, move || drop(black_box(black_box(&ticking).check()))),
        contender(STILL, move || {
            clock.advance(Duration::from_micros(step));
            let _ = black_box(black_box(&still).check());
        }),
        decide("token-bucket", TokenBucket::new(thousand, 1_000).expect("a limit"), step),
        decide(
            "token-bucket 7/s (remainders)",
            TokenBucket::new(per_second(7), 7).expect("a limit"),
            step * 143,
        ),
        decide("token-bucket, as any limit", any.made_at(Time::EPOCH).unwrap(), step),
        decide("leaky-bucket", LeakyBucket::new(thousand, 1_000).expect("a limit"), step),
        decide("min-interval", MinInterval::new(Span::from_micros(1_000)).expect("a limit"), step),
        decide("pacer", Pacer::new(thousand, 1_000).expect("a limit"), step),
        decide("fixed-window", window, step),
        decide("fixed-window, a calendar day", calendar.made_at(Time::EPOCH).unwrap(), step),
        decide("sliding-window", SlidingWindow::new(thousand).expect("a limit"), step),
        decide("sliding-log 1000/s", SlidingLog::new(thousand).expect("a limit"), step),
    ]
}

pub fn run(rounds: usize) {
    let [allowed, denied] = [1_000, 10].map(|step| interleaved(contenders(step), rounds));
    println!("One decision on one hot key, ns (median of {rounds} interleaved rounds of {DECISIONS}):\n");
    head([
        "",
        "allowed",
        "lowest to highest",
        "denied",
        "ratio to a compare-and-swap",
        "to governor, its clock",
        "to governor, fake clock",
    ]);
    for name in allowed.names() {
        let ([median, spread], denied) = (allowed.spread(name), format!("{:.1}", denied.median(name)));
        let [swap, ticking, still] = [SWAP, TICKING, STILL].map(|rival| allowed.ratio_cell(name, rival));
        row([name.to_owned(), median, spread, denied, swap, ticking, still]);
    }
}
