//! Whole calls: clock, key, store and decision, beside governor's and leaky-bucket's, and beside
//! what cannot be avoided (reading a clock, hashing a key, waiting for memory).

use crate::input::{Random, ask, governor, limiter, read};
use crate::measure::{Contender, Rounds, head, interleaved, nanos_each, row, verdict};
use crate::walk::walk;
use foldhash::quality::RandomState;
use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;
use sluicegate::{Gate, Key, Limiter};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// With a million keys; twice as many with one.
pub const ROUNDS: usize = 15;
/// Decisions on one key in a round.
const CALLS: u64 = 200_000;
const KEYS: u32 = 1_000_000;

const BUCKET: &str = "token-bucket 1000000000/s";
/// The other algorithms with a state of constant size. A `min-interval` cannot be so short that all
/// calls are allowed.
const CONSTANT: [&str; 5] = [
    "leaky-bucket 1000000000/s",
    "min-interval 1us",
    "pacer 1000000000/s queue=1000000",
    "fixed-window 1000000000/h",
    "sliding-window 1000000000/h",
];
const LIST: [&str; 2] = [BUCKET, "fixed-window 1000000000/h"];

const GATE: &str = "Gate, token-bucket";
const DIRECT: &str = "governor, direct";
const GOVERNOR: &str = "governor, 20 bytes";
const GOVERNOR_U64: &str = "governor, u64";
const BUCKET_U64: &str = "token-bucket 1000000000/s, u64";
const DENIED: &str = "token-bucket 1/h, denied";
const GOVERNOR_DENIED: &str = "governor, 20 bytes, denied";
const FLOOR: &str = "read and hash the key";

fn plenty() -> Quota {
    Quota::per_second(nonzero!(1_000_000_000_u32))
}

fn name(number: u32) -> String {
    format!("user:{number:015}")
}

/// Measures a call repeated on the spot.
fn again<'a, R>(name: &str, call: impl Fn() -> R + 'a) -> Contender<'a> {
    (
        name.to_owned(),
        Box::new(move || nanos_each(CALLS, || (0..CALLS).for_each(|_| drop(black_box(call()))))),
    )
}

pub fn run(rounds: usize) {
    let single = interleaved(single(), rounds * 2);
    println!("One limit without keys, and the floors, ns per call ({} interleaved rounds):\n", rounds * 2);
    print(&single, |_| DIRECT);

    let mut limiters = Vec::new();
    let hot = interleaved(hot(&mut limiters), rounds * 2);
    println!("\nOne hot key, one thread, ns per call ({} interleaved rounds of {CALLS}):\n", rounds * 2);
    print(&hot, rival);
    print_allowed(&limiters);

    let crowds = [1, 2].map(|threads| {
        let crowd = crowd(threads, rounds);
        let calls = u64::from(KEYS) * threads;
        println!(
            "\n{KEYS} keys in random order, threads: {threads}, ns per call: elapsed time × threads / calls \
             ({rounds} interleaved rounds of {calls}):\n"
        );
        head(["", "median", "lowest to highest", "million calls per second", "ratio to governor"]);
        for name in crowd.names() {
            let [median, spread] = crowd.spread(name);
            let rate = format!("{:.1}", 1e3 * threads as f64 / crowd.median(name));
            row([name.to_owned(), median, spread, rate, crowd.ratio_cell(name, rival(name))]);
        }
        crowd
    });
    bars(&single, &hot, &crowds);
}

/// Whom a contender is compared with: governor with the same keys, on the same path.
fn rival(name: &str) -> &'static str {
    match name {
        DENIED | GOVERNOR_DENIED => GOVERNOR_DENIED,
        _ if name.ends_with("u64") => GOVERNOR_U64,
        _ => GOVERNOR,
    }
}

fn print(rounds: &Rounds, rival: impl Fn(&str) -> &'static str) {
    head(["", "median", "lowest to highest", "ratio to governor"]);
    for name in rounds.names() {
        let [median, spread] = rounds.spread(name);
        row([name.to_owned(), median, spread, rounds.ratio_cell(name, rival(name))]);
    }
}

/// The share of calls that were allowed, so that a quick denial is not mistaken for a quick check.
fn print_allowed(limiters: &[(String, Limiter)]) {
    let shares = limiters.iter().filter_map(|(name, limiter)| {
        let stats = limiter.stats();
        let share = 100.0 * stats.allowed as f64 / (stats.allowed + stats.denied) as f64;
        (share < 99.95).then(|| format!("{name}, {share:.1} %"))
    });
    let shares = shares.collect::<Vec<_>>().join("; ");
    println!("\nAll calls were allowed, except in these rows (share allowed): {shares}.");
}

fn single() -> Vec<Contender<'static>> {
    let gate = Gate::new(BUCKET).expect("a limit");
    let direct = RateLimiter::direct(plenty());
    let leaky = leaky_bucket::RateLimiter::builder()
        .max(1_000_000_000)
        .initial(1_000_000_000)
        .refill(1_000_000_000)
        .interval(Duration::from_secs(1))
        .build();
    let (clock, swap, hasher) = (quanta::Clock::new(), AtomicU64::new(0), RandomState::default());
    let key = name(7);
    let one: HashMap<String, u64> = [(key.clone(), 7)].into();
    let mut contenders = vec![
        again(GATE, move || read(&black_box(&gate).check())),
        again(DIRECT, move || black_box(&direct).check().is_ok()),
        again("leaky-bucket, try_acquire", move || black_box(&leaky).try_acquire(1)),
        again("floor: Instant::now", Instant::now),
        again("floor: quanta's clock", move || black_box(&clock).now()),
        again("floor: compare-and-swap", move || {
            let old = swap.load(Ordering::Acquire);
            swap.compare_exchange(old, black_box(old + 1), Ordering::AcqRel, Ordering::Acquire)
        }),
        again("floor: hash of 20 bytes, foldhash", {
            let key = key.clone();
            move || hasher.hash_one(black_box(key.as_bytes()))
        }),
        again("floor: HashMap::get, 1 key", move || one.get(black_box(&key)).copied()),
    ];
    let names: Vec<String> = (0..KEYS).map(name).collect();
    let many: HashMap<String, u64> = names.iter().cloned().zip(0..).collect();
    let orders = [Random(1).order(KEYS)];
    let probe = move || walk(&names, &orders, |key| many.get(key).copied());
    contenders.push(("floor: HashMap::get, 1 M keys in random order".to_owned(), Box::new(probe)));
    contenders
}

/// Each limiter that takes part is handed out too, to ask it afterwards what it has allowed.
fn hot(limiters: &mut Vec<(String, Limiter)>) -> Vec<Contender<'static>> {
    let mut ours = |name: &str, limits: &[&str]| hot_ours(limiters, name, limits, self::name(7));
    let mut contenders = vec![hot_governor(GOVERNOR, plenty(), name(7)), ours(BUCKET, &[BUCKET])];
    contenders.extend(CONSTANT.map(|limit| ours(limit, &[limit])));
    contenders.push(ours("sliding-log 1000/10us", &["sliding-log 1000/10us"]));
    contenders.push(ours("sliding-log 5/60s", &["sliding-log 5/60s"]));
    contenders.push(ours("token-bucket and fixed-window", &LIST));
    contenders.push(ours(DENIED, &["token-bucket 1/h"]));
    contenders.push(hot_governor(GOVERNOR_DENIED, Quota::per_hour(nonzero!(1_u32)), name(7)));
    contenders.push(hot_ours(limiters, BUCKET_U64, &[BUCKET], 7_u64));
    contenders.push(hot_governor(GOVERNOR_U64, plenty(), 7_u64));
    contenders
}

fn hot_ours(
    limiters: &mut Vec<(String, Limiter)>,
    name: &str,
    limits: &[&str],
    key: impl Key + 'static,
) -> Contender<'static> {
    let limiter = Limiter::new(limits).expect("limits that go together");
    limiters.push((name.to_owned(), limiter.clone()));
    again(name, move || read(&limiter.check(black_box(&key))))
}

fn hot_governor<K: Clone + Eq + Hash + 'static>(name: &str, quota: Quota, key: K) -> Contender<'static> {
    let governor = governor::<K>(quota);
    again(name, move || ask(&governor, black_box(&key)))
}

/// A million keys, all of them there beforehand. The limiters have their default settings, so they
/// are full.
fn crowd(threads: u64, rounds: usize) -> Rounds {
    let names: Vec<String> = (0..KEYS).map(name).collect();
    let numbers: Vec<u64> = (0..KEYS).map(u64::from).collect();
    let orders: Vec<Vec<u32>> = (0..threads).map(|thread| Random(thread + 1).order(KEYS)).collect();
    let hasher = RandomState::default();
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    contenders
        .push((FLOOR.to_owned(), Box::new(|| walk(&names, &orders, |key| hasher.hash_one(key.as_bytes())))));
    contenders.push(crowd_governor(GOVERNOR, &names, &orders));
    for limit in [BUCKET, "fixed-window 1000000000/h", "sliding-window 1000000000/h", "sliding-log 5/60s"] {
        contenders.push(crowd_ours(limit, &[limit], &names, &orders));
    }
    contenders.push(crowd_ours("token-bucket and fixed-window", &LIST, &names, &orders));
    contenders.push(crowd_ours(BUCKET_U64, &[BUCKET], &numbers, &orders));
    contenders.push(crowd_governor(GOVERNOR_U64, &numbers, &orders));
    interleaved(contenders, rounds)
}

fn crowd_ours<'a, K: Key + Sync>(
    name: &str,
    limits: &[&str],
    keys: &'a [K],
    orders: &'a [Vec<u32>],
) -> Contender<'a> {
    let limiter = limiter(limits, KEYS as usize);
    assert!(keys.iter().all(|key| limiter.check(key).allowed()), "there is plenty");
    (name.to_owned(), Box::new(move || walk(keys, orders, |key| read(&limiter.check(key)))))
}

fn crowd_governor<'a, K: Clone + Eq + Hash + Send + Sync>(
    name: &str,
    keys: &'a [K],
    orders: &'a [Vec<u32>],
) -> Contender<'a> {
    let governor = governor::<K>(plenty());
    assert!(keys.iter().all(|key| ask(&governor, key)), "there is plenty");
    (name.to_owned(), Box::new(move || walk(keys, orders, |key| ask(&governor, key))))
}

fn bars(single: &Rounds, hot: &Rounds, [one, two]: &[Rounds; 2]) {
    let others = CONSTANT.map(|limit| (hot.ratio(limit, BUCKET), limit));
    let worst = others.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are others");
    println!("\nBars:\n");
    head(["what", "compared with", "ratio", "bar", ""]);
    for (what, rival, ratio, bar) in [
        ("token bucket, one hot key", "governor with keys of 20 bytes", hot.ratio(BUCKET, GOVERNOR), 0.75),
        ("token bucket, 1 M keys, 1 thread", "the same", one.ratio(BUCKET, GOVERNOR), 0.5),
        ("token bucket, 1 M keys, 2 threads", "the same", two.ratio(BUCKET, GOVERNOR), 0.6),
        ("Gate, token bucket", DIRECT, single.ratio(GATE, DIRECT), 1.5),
        (worst.1, "the token bucket, one hot key", worst.0, 1.5),
    ] {
        row([what.into(), rival.into(), format!("{ratio:.2}"), bar.to_string(), verdict(ratio <= bar)]);
    }
}
