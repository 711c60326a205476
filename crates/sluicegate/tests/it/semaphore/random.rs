//! Random runs in virtual time: calls acquire, poll, renew, release and are dropped at any point.

use super::caller::Caller;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{Lease, LeaseId, Semaphore};
use sluicegate::wait::{Denial, Priority};
use sluicegate::{Span, Time};
use std::time::Duration;

/// The TTL of leases, if they have one.
const TTL: Span = Span::from_micros(1_000);

/// With so little capacity, a waiter that leaks its reservation is noticed.
const SMALL_CAPACITY: usize = 8;

/// A small generator: the crate has no other need for one.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // xorshift*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }
}

struct Run {
    seed: u64,
    random: Random,
    semaphore: Semaphore,
    clock: ManualClock,
    count: u64,
    ttl: bool,
    /// Whether the clock steps back now and then.
    steps_back: bool,
    /// Calls that have not been seen to be done, in the order of their arrival.
    waiting: Vec<Waiting>,
    held: Vec<Held<Lease>>,
    kept: Vec<Held<LeaseId>>,
}

/// A call that has not been polled since it was enqueued.
struct Waiting {
    cost: u64,
    priority: Priority,
    since: Time,
    deadline: Option<Time>,
    caller: Caller,
    has_expired: bool,
}

/// A lease, and what is known of it from outside.
struct Held<L> {
    lease: L,
    cost: u64,
    until: Option<Time>,
    /// Once it was seen expired, a clock that steps back does not revive it.
    has_expired: bool,
}

impl Waiting {
    /// When it was granted a lease, if it was.
    fn granted_at(&mut self) -> Option<Time> {
        let woken_at = self.caller.woken_at();
        if !self.caller.is_done() {
            // A call that was woken at its deadline has to poll to learn why.
            let is_in_time = |at: Time| self.deadline.is_none_or(|deadline| at < deadline);
            if is_in_time(woken_at?) {
                return woken_at;
            }
            assert!(self.caller.poll(), "a woken call is done");
        }
        self.caller.allowed().then(|| woken_at.unwrap_or(self.since))
    }
}

impl<L> Held<L> {
    /// The cost that it holds now.
    fn live(&mut self, now: Time) -> u64 {
        self.has_expired |= self.until.is_some_and(|until| until <= now);
        if self.has_expired { 0 } else { self.cost }
    }
}

impl Run {
    fn new(seed: u64, ttl: bool, max_leases: Option<usize>) -> Run {
        let mut random = Random(seed * 2 + 1);
        let count = random.below(6) + 1;
        let limit = format!("concurrency {count}{}", if ttl { " ttl=1ms" } else { "" });
        let clock = ManualClock::default();
        let mut builder = Semaphore::builder(limit.as_str()).clock(clock.clone());
        if let Some(max_leases) = max_leases {
            builder = builder.max_leases(max_leases);
        }
        let (semaphore, steps_back) = (builder.build().unwrap(), seed.is_multiple_of(4));
        let (waiting, held, kept) = (Vec::new(), Vec::new(), Vec::new());
        Run { seed, random, semaphore, clock, count, ttl, steps_back, waiting, held, kept }
    }

    fn step(&mut self) {
        let cost = self.random.below(self.count) + 1;
        match self.random.below(20) {
            0..6 => self.ask(cost),
            6..8 => {
                if let Some(lease) = self.semaphore.try_acquire("k", cost).lease() {
                    assert_eq!(
                        self.semaphore.stats().waiting,
                        0,
                        "seed {}: no waiter is overtaken",
                        self.seed
                    );
                    self.hold(cost, lease, false);
                }
            }
            8..12 => self.drop_one_held(),
            12 => self.drop_one_waiting(),
            13 => self.keep_one(),
            14 => {
                if let Some(Held { lease, has_expired, .. }) = self.kept.pop() {
                    assert_eq!(self.semaphore.release("k", &lease), !has_expired, "seed {}", self.seed);
                }
            }
            15 => {
                for held in &mut self.held {
                    assert_eq!(held.lease.renew(), !held.has_expired, "seed {}", self.seed);
                    held.until = held.lease.until();
                }
            }
            16 => {
                if self.steps_back && self.random.below(4) == 0 {
                    self.clock.set(self.semaphore.now().saturating_sub(Span::from_micros(300)));
                } else {
                    self.clock.advance(Duration::from_micros(self.random.below(1_500)));
                }
            }
            _ => self.clock.advance(Duration::from_micros(self.random.below(300))),
        }
    }

    fn ask(&mut self, cost: u64) {
        let priority =
            [Priority::Normal, Priority::Normal, Priority::High, Priority::Low][self.pick(4).unwrap_or(0)];
        let since = self.semaphore.now();
        let deadline = (self.random.below(3) == 0)
            .then(|| since.saturating_add(Span::from_micros(self.random.below(800))));
        let acquire = match deadline {
            Some(deadline) => self.semaphore.acquire_within("k", cost, deadline.since(since).into()),
            None => self.semaphore.acquire("k", cost),
        };
        let caller = Caller::timed(acquire.priority(priority), &self.clock);
        self.waiting.push(Waiting { cost, priority, since, deadline, caller, has_expired: false });
    }

    fn hold(&mut self, cost: u64, lease: Lease, has_expired: bool) {
        let until = lease.until();
        self.held.push(Held { lease, cost, until, has_expired });
    }

    fn pick(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| usize::try_from(self.random.below(u64::try_from(len).unwrap())).unwrap())
    }

    fn drop_one_held(&mut self) {
        if let Some(index) = self.pick(self.held.len()) {
            drop(self.held.swap_remove(index));
        }
    }

    fn drop_one_waiting(&mut self) {
        if let Some(index) = self.pick(self.waiting.len()) {
            self.waiting.remove(index);
        }
    }

    fn keep_one(&mut self) {
        if let Some(index) = self.pick(self.held.len()) {
            let Held { lease, cost, until, has_expired } = self.held.swap_remove(index);
            self.kept.push(Held { lease: lease.keep(), cost, until, has_expired });
        }
    }

    /// Polls some of the calls. Within a priority none is done before one that came earlier.
    fn poll_some(&mut self) {
        let mut later: Vec<Waiting> = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            // Not all of them: some are woken and dropped without a poll.
            if self.random.below(4) == 0 || !waiting.caller.poll() {
                later.push(waiting);
                continue;
            }
            let Waiting { cost, priority, caller, has_expired, .. } = waiting;
            assert!(caller.woken() <= 1, "woken {} times", caller.woken());
            if caller.allowed() {
                let before = |earlier: &Waiting| earlier.priority == priority && earlier.caller.waits();
                assert!(!later.iter().any(before), "seed {}: overtaken within its priority", self.seed);
                let lease = caller.lease().unwrap();
                self.hold(cost, lease, has_expired);
            }
        }
        self.waiting = later;
    }

    /// What holds at any time.
    fn check(&mut self) {
        let now = self.semaphore.now();
        let mut live: u64 = self.held.iter_mut().map(|held| held.live(now)).sum();
        live += self.kept.iter_mut().map(|kept| kept.live(now)).sum::<u64>();
        for waiting in &mut self.waiting {
            if let Some(granted_at) = waiting.granted_at() {
                waiting.has_expired |= self.ttl && granted_at.saturating_add(TTL) <= now;
                live += if waiting.has_expired { 0 } else { waiting.cost };
            }
        }
        let remaining = self.semaphore.peek("k", 0).remaining();
        assert_eq!(live + remaining, self.count, "seed {}: live plus remaining", self.seed);
        // No call waits that could go: the head of the highest waiting priority does not fit.
        let waits = self.waiting.iter().filter(|waiting| waiting.caller.waits());
        if let Some(head) = waits.min_by_key(|waiting| waiting.priority) {
            let Run { seed, .. } = self;
            assert!(
                head.cost > remaining,
                "seed {seed}: a call waits for {}, and {remaining} remain",
                head.cost
            );
        }
    }

    /// All are dropped, in any order.
    fn end(&mut self) {
        while !(self.held.is_empty() && self.waiting.is_empty()) {
            if self.random.below(2) == 0 { self.drop_one_held() } else { self.drop_one_waiting() }
        }
        for Held { lease, .. } in self.kept.drain(..) {
            self.semaphore.release("k", &lease);
        }
        let all = self.semaphore.try_acquire("k", self.count);
        assert!(all.allowed(), "seed {}: {:?} of {}", self.seed, all.decision(), self.count);
        drop(all);
        let stats = self.semaphore.stats();
        assert_eq!((stats.leases, stats.keys, stats.waiting), (0, 0, 0), "seed {}", self.seed);
        assert_eq!(stats.allowed, stats.released + stats.expired, "seed {}", self.seed);
    }
}

fn run(seed: u64, max_leases: Option<usize>) -> Run {
    let mut run = Run::new(seed, seed.is_multiple_of(2), max_leases);
    for _ in 0..120 {
        run.step();
        run.check();
        if run.random.below(2) == 0 {
            run.poll_some();
        }
    }
    run.end();
    run
}

#[test]
fn random_runs_neither_lose_nor_gain_permits() {
    for seed in 1..=400 {
        run(seed, None);
    }
}

/// A waiter has reserved capacity for its lease. However its wait ends, that is returned.
#[test]
fn random_runs_lose_no_capacity() {
    for seed in 1..=200 {
        let semaphore = run(seed, Some(SMALL_CAPACITY)).semaphore;
        let leases: Vec<_> =
            (0..SMALL_CAPACITY).filter_map(|key| semaphore.try_acquire(key, 1).lease()).collect();
        assert_eq!(leases.len(), SMALL_CAPACITY, "seed {seed}");
        assert_eq!(semaphore.try_acquire("one more", 1).denial(), Some(Denial::NoRoom));
    }
}
