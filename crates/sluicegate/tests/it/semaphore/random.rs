//! Random runs in virtual time: holders and waiters come, look, renew, return and are dropped at any point.

use super::line_up::Caller;
use sluicegate::{Lease, LeaseId, ManualClock, Priority, Semaphore, Span};
use std::collections::VecDeque;
use std::time::Duration;

/// A small generator of our own: the crate has no other need for one.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        // xorshift*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        u32::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % most
    }
}

struct Run {
    random: Random,
    semaphore: Semaphore,
    clock: ManualClock,
    count: u32,
    /// Whether the clock does now and then.
    steps_back: bool,
    /// Costs, priorities and callers that have not been seen to be through, in the order of their arrival.
    waiting: VecDeque<(u32, Priority, Caller)>,
    held: Vec<(u32, Lease)>,
    kept: Vec<(u32, LeaseId)>,
}

impl Run {
    fn new(seed: u64, ttl: bool) -> Run {
        let mut random = Random(seed * 2 + 1);
        let count = random.below(6) + 1;
        let limit = format!("concurrency {count}{}", if ttl { " ttl=1ms" } else { "" });
        let clock = ManualClock::default();
        let semaphore = Semaphore::builder(limit.as_str()).clock(clock.clone()).build().unwrap();
        let steps_back = seed.is_multiple_of(4);
        Run {
            random,
            semaphore,
            clock,
            count,
            steps_back,
            waiting: VecDeque::new(),
            held: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn step(&mut self, ttl: bool) {
        let cost = self.random.below(self.count) + 1;
        match self.random.below(20) {
            0..6 => {
                let priority = [Priority::Normal, Priority::Normal, Priority::High, Priority::Low]
                    [self.random.below(4) as usize];
                let acquire = if self.random.below(3) == 0 {
                    let wait = Duration::from_micros(u64::from(self.random.below(800)));
                    self.semaphore.acquire_within("k", cost, wait)
                } else {
                    self.semaphore.acquire("k", cost)
                };
                let caller = Caller::new(acquire.priority(priority));
                self.waiting.push_back((cost, priority, caller));
            }
            6..8 => {
                if let Some(lease) = self.semaphore.try_acquire("k", cost).lease() {
                    assert!(!self.anybody_waits(), "nobody overtakes");
                    self.held.push((cost, lease));
                }
            }
            8..12 => self.drop_one_held(),
            12 => self.drop_one_waiting(),
            13 => self.keep_one(),
            14 => {
                if let Some((_, id)) = self.kept.pop() {
                    self.semaphore.release("k", &id);
                }
            }
            15 => {
                for (_, lease) in &self.held {
                    assert!(lease.renew() || ttl);
                }
            }
            16 => {
                if self.steps_back && self.random.below(4) == 0 {
                    self.clock.set(self.semaphore.now().before(Span::from_micros(300)));
                } else {
                    self.clock.advance(Duration::from_micros(u64::from(self.random.below(1_500))));
                }
            }
            _ => self.clock.advance(Duration::from_micros(u64::from(self.random.below(300)))),
        }
    }

    fn pick(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(u32::try_from(len).unwrap()) as usize)
    }

    fn drop_one_held(&mut self) {
        if let Some(place) = self.pick(self.held.len()) {
            drop(self.held.swap_remove(place));
        }
    }

    fn drop_one_waiting(&mut self) {
        if let Some(place) = self.pick(self.waiting.len()) {
            self.waiting.remove(place);
        }
    }

    fn keep_one(&mut self) {
        if let Some(place) = self.pick(self.held.len()) {
            let (cost, lease) = self.held.swap_remove(place);
            self.kept.push((cost, lease.keep()));
        }
    }

    fn anybody_waits(&self) -> bool {
        self.semaphore.stats().waiting > 0
    }

    /// Some look at what has come of their waiting. Within a priority none is through before one that came earlier.
    fn look(&mut self) {
        let mut later = VecDeque::new();
        for (cost, priority, mut caller) in self.waiting.drain(..) {
            // Not all of them look: some are woken and dropped before.
            if self.random.below(4) == 0 || !caller.poll() {
                later.push_back((cost, priority, caller));
                continue;
            }
            assert!(caller.woken() <= 1, "woken {} times", caller.woken());
            if caller.allowed() {
                let before =
                    |(_, other, earlier): &(u32, Priority, Caller)| *other == priority && earlier.waits();
                assert!(!later.iter().any(before), "overtaken by one of the same priority");
                self.held.extend(caller.lease().map(|lease| (cost, lease)));
            }
        }
        self.waiting = later;
    }

    /// What holds at every moment.
    fn check(&mut self) {
        let now = self.semaphore.now();
        let live: u32 = self
            .held
            .iter()
            .filter(|(_, lease)| lease.until().is_none_or(|until| now < until))
            .map(|(cost, _)| cost)
            .sum();
        // A clock that went back makes those look live that have been seen to have lapsed.
        assert!(self.steps_back || live <= self.count, "{live} of {}", self.count);
        let remaining = self.semaphore.peek("k", 0).remaining();
        // Nobody waits who could go: the head of the highest priority that waits does not fit.
        let waits = self.waiting.iter().filter(|(_, _, caller)| caller.waits());
        let head = waits.min_by_key(|(_, priority, _)| *priority);
        if let Some((cost, _, _)) = head.filter(|_| self.semaphore.stats().waiting > 0) {
            assert!(*cost > remaining, "one waits for {cost}, and {remaining} remain");
        }
    }
}

#[test]
fn nothing_is_lost_or_gained_however_holders_and_waiters_come_and_go() {
    for seed in 1..=400 {
        let ttl = seed % 2 == 0;
        let mut run = Run::new(seed, ttl);
        for _ in 0..120 {
            run.step(ttl);
            run.check();
            if run.random.below(2) == 0 {
                run.look();
            }
        }
        // In any order.
        while !(run.held.is_empty() && run.waiting.is_empty()) {
            if run.random.below(2) == 0 { run.drop_one_held() } else { run.drop_one_waiting() }
        }
        for (_, id) in std::mem::take(&mut run.kept) {
            run.semaphore.release("k", &id);
        }
        let all = run.semaphore.try_acquire("k", run.count);
        assert!(all.allowed(), "seed {seed}: {:?} of {}", all.decision(), run.count);
        drop(all);
        let stats = run.semaphore.stats();
        assert_eq!((stats.leases, stats.keys, stats.waiting), (0, 0, 0), "seed {seed}");
        assert_eq!(stats.allowed, stats.released + stats.lapsed, "seed {seed}");
    }
}
