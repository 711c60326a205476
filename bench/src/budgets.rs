//! Several calls under one receipt, beside the same calls without one.

use crate::measure::{Contender, each, head, interleaved, nanos_each, row, verdict};
use sluicegate::{Call, Limiter, MemoryStore, Reservation, ReserveOptions, Ttl, check_all, reserve_all};
use std::hint::black_box;
use std::time::{Duration, Instant};

pub const ROUNDS: usize = 15;
/// A round opens this many receipts, and a key can have 16,384.
const CALLS: u64 = 10_000;
const KEYS: [&str; 6] = ["user", "team", "model", "organization", "region", "site"];
const LIMIT: &str = "token-bucket 1000000000/s";
/// The bar: a reservation takes at most this many times as long as a check.
const BAR: f64 = 1.5;

const CHECK: &str = "`check_all`";
const RESERVE: &str = "`reserve_all`";
const RESERVE_TTL: &str = "`reserve_all`, THEN cancel";
const SETTLE: &str = "`settle_each`";

pub fn run(rounds: usize) {
    let store = MemoryStore::builder().max_receipts(1_000_000).build().expect("a store");
    let limiter =
        |scope: &'static str| Limiter::builder(LIMIT).in_store(&store, scope).build().expect("a limiter");
    let limiters = KEYS.map(limiter);
    let calls: Vec<Call<'_>> = limiters.iter().map(|limiter| limiter.call("user:42", 10)).collect();
    let cancelling = ReserveOptions::default().ttl(Ttl::cancel(Duration::from_secs(60)));
    let contenders: Vec<Contender<'_>> = vec![
        (
            CHECK.to_owned(),
            Box::new(|| {
                nanos_each(CALLS, || {
                    for _ in 0..CALLS {
                        assert!(check_all(black_box(&calls)).expect("a decision").allowed());
                    }
                })
            }),
        ),
        (RESERVE.to_owned(), Box::new(|| reserve(&calls, &ReserveOptions::default()).0)),
        (RESERVE_TTL.to_owned(), Box::new(|| reserve(&calls, &cancelling).0)),
        (SETTLE.to_owned(), Box::new(|| reserve(&calls, &ReserveOptions::default()).1)),
    ];
    let measured = interleaved(contenders, rounds);
    println!(
        "{} calls, each on a key of its own, ns for all of them ({rounds} interleaved rounds of {CALLS}):\n",
        KEYS.len()
    );
    head(["", "median", "lowest to highest", "ratio to `check_all`", "at most 1.5"]);
    for name in [CHECK, RESERVE, RESERVE_TTL, SETTLE] {
        let [median, spread] = measured.spread(name);
        let bar = match name {
            CHECK | SETTLE => String::new(),
            _ => verdict(measured.ratio(name, CHECK) <= BAR),
        };
        row([name.to_owned(), median, spread, measured.ratio_cell(name, CHECK), bar]);
    }
}

/// Reserves, and settles what was reserved. Returns the time of each in nanoseconds.
fn reserve(calls: &[Call<'_>], options: &ReserveOptions) -> (f64, f64) {
    let mut open: Vec<Reservation> = Vec::with_capacity(CALLS as usize);
    let began = Instant::now();
    open.extend((0..CALLS).map(|_| reserve_all(black_box(calls), options).expect("a decision")));
    let reserved = began.elapsed();
    assert!(open.iter().all(Reservation::allowed));
    let began = Instant::now();
    for mut reservation in open {
        assert!(reservation.settle_each(&[5]).expect("one number for all calls"));
    }
    (each(reserved, CALLS), each(began.elapsed(), CALLS))
}
