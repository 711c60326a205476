//! The slowest calls: ten million keys that come and go, each call timed by itself.
//!
//! governor's map grows as keys come, and moves all keys of a shard when it does; ours never moves
//! any. So both are timed while they fill, and then while one call in ten is of a new key.

use crate::histogram::Histogram;
use crate::input::{Name, Random, ask, governor, limiter, read};
use crate::measure::{head, row};
use governor::Quota;
use nonzero_ext::nonzero;
use std::hint::black_box;

pub const KEYS: u64 = 10_000_000;
/// Calls to one contender before the next one's batch.
const BATCH: u64 = 100_000;
/// A key recovers within a tenth of a second, so that there is always one that can make room.
const LIMIT: &str = "token-bucket 10/s burst=10";

/// Times calls with the processor's tick counter. Nothing is subtracted: the row of the clock alone
/// says what the timing itself takes, and what the machine holds up.
struct Stopwatch {
    clock: quanta::Clock,
    times: Histogram,
}

impl Stopwatch {
    fn new() -> Stopwatch {
        Stopwatch { clock: quanta::Clock::new(), times: Histogram::default() }
    }

    #[inline]
    fn time<R>(&mut self, call: impl FnOnce() -> R) {
        let began = self.clock.raw();
        black_box(call());
        let ended = self.clock.raw();
        self.times.note(self.clock.delta_as_nanos(began, ended));
    }
}

/// Chooses keys: new ones in a row, or one call in ten a new one and the rest of known ones.
struct Traffic {
    random: Random,
    /// A new key takes the place of a random one, which from then on is no longer called. The store
    /// may have let go another one instead; a call of that one, some 1 in 20, is one of a new key
    /// to it.
    known: Vec<u32>,
    next: u32,
}

impl Traffic {
    fn new() -> Traffic {
        Traffic { random: Random(1), known: Vec::new(), next: 0 }
    }

    fn new_key(&mut self) -> u64 {
        self.known.push(self.next);
        self.next += 1;
        u64::from(self.next - 1)
    }

    fn any_key(&mut self) -> u64 {
        let place = self.random.below(self.known.len() as u64) as usize;
        if self.random.below(10) == 0 {
            self.known[place] = self.next;
            self.next += 1;
        }
        u64::from(self.known[place])
    }
}

pub fn run(keys: u64) {
    let limiter = limiter(&[LIMIT], keys as usize);
    let governor = governor::<String>(Quota::per_second(nonzero!(10_u32)));
    let mut traffics = [Traffic::new(), Traffic::new(), Traffic::new()];
    let mut filling = [Stopwatch::new(), Stopwatch::new(), Stopwatch::new()];
    let mut steady = [Stopwatch::new(), Stopwatch::new(), Stopwatch::new()];
    let mut name = Name::new(20);
    for (watches, choose) in
        [(&mut filling, Traffic::new_key as fn(&mut Traffic) -> u64), (&mut steady, Traffic::any_key)]
    {
        let [ours, theirs, alone] = watches;
        let mut left = keys;
        while left > 0 {
            let batch = left.min(BATCH);
            for _ in 0..batch {
                let key = name.of(choose(&mut traffics[0]));
                ours.time(|| read(&limiter.check(key)));
            }
            for _ in 0..batch {
                let key = name.of(choose(&mut traffics[1]));
                theirs.time(|| ask(&governor, key));
            }
            for _ in 0..batch {
                name.of(choose(&mut traffics[2]));
                alone.time(|| ());
            }
            left -= batch;
        }
    }
    print(keys, filling, steady);
    let stats = limiter.stats();
    println!(
        "\nWe hold {} keys of at most {} and evicted {}; governor holds {}.",
        stats.keys,
        stats.max_keys,
        stats.evicted,
        governor.len()
    );
}

fn print(keys: u64, filling: [Stopwatch; 3], steady: [Stopwatch; 3]) {
    println!(
        "One call, ns, timed with the processor's tick counter and including the time to read it. Keys of 20 bytes, \
         one thread, {keys} calls per row in batches of {BATCH}.\n\
         While filling, every key is new; steady means {keys} keys and one call in ten with a new key:\n"
    );
    head(["", "median", "p99", "p99.9", "p99.99", "p99.999", "slowest"]);
    for (when, watches) in [("while filling", filling), ("steady", steady)] {
        for (who, mut watch) in [LIMIT, "governor", "the clock alone"].into_iter().zip(watches) {
            let times = watch.times.at_most([0.5, 0.99, 0.999, 0.9999, 0.99999, 1.0]);
            let [median, a, b, c, d, slowest] = times.map(|nanos| nanos.to_string());
            row([format!("{who}, {when}"), median, a, b, c, d, slowest]);
        }
    }
}
