//! Keys and limits to measure with: the same in every run.

use governor::clock::DefaultClock;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use sluicegate::{Decision, Limiter};
use std::hash::Hash;
use std::hint::black_box;

/// governor's limiter with keys, as its users get it.
pub type Governor<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock>;

pub fn governor<K: Clone + Eq + Hash>(quota: Quota) -> Governor<K> {
    RateLimiter::keyed(quota)
}

pub fn limiter(limits: &[&str], max_keys: usize) -> Limiter {
    Limiter::builder(limits).max_keys(max_keys).build().expect("limits that go together")
}

/// Reads what a caller reads. (To hand the whole decision to `black_box` would copy it in pieces of
/// another size than it was written in, which stalls the processor for longer than the decision
/// takes.)
#[inline]
pub fn read(decision: &Decision) -> u64 {
    u64::from(decision.allowed()) ^ decision.remaining() ^ decision.reset_after().as_micros()
}

/// Asks governor, and reads what it answers: yes, or when to come back.
#[inline]
pub fn ask<K: Clone + Eq + Hash>(governor: &Governor<K>, key: &K) -> bool {
    let answer = governor.check_key(key);
    if let Err(denied) = &answer {
        black_box(denied.earliest_possible());
    }
    answer.is_ok()
}

/// A linear congruential generator: random enough to touch keys in no order, and next to no time of
/// its own.
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits are the random ones. The high half of a product is below the number
        // multiplied by.
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }

    /// The numbers below `end`, each once, in no order.
    pub fn order(&mut self, end: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..end).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.below(place as u64 + 1) as usize);
        }
        order
    }
}

/// A key that is written over again and again, so that the keys themselves take no memory: `user:`
/// and a number, filled up in front to its length.
pub struct Name(String);

impl Name {
    pub fn new(bytes: usize) -> Name {
        Name(format!("{:u<1$}", "user:", bytes - DIGITS) + &"0".repeat(DIGITS))
    }

    /// The key of that number.
    #[inline]
    pub fn of(&mut self, mut number: u64) -> &String {
        let mut digits = [b'0'; DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
        self.0.truncate(self.0.len() - DIGITS);
        self.0.push_str(std::str::from_utf8(&digits).expect("digits"));
        &self.0
    }
}

const DIGITS: usize = 15;
