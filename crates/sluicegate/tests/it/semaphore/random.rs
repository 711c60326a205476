//! Random runs in virtual time: holders and waiters come, look, renew, return and are dropped at any point.

use super::line_up::Caller;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{Lease, LeaseId, Semaphore};
use sluicegate::wait::{Denial, Priority};
use sluicegate::{Span, Time};
use std::time::Duration;

/// How long leases live, if they lapse.
const TTL: Span = Span::from_micros(1_000);

/// With so little room, whoever leaves without giving it back is noticed.
const LITTLE_ROOM: usize = 8;

/// A small generator of our own: the crate has no other need for one.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // xorshift*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        u64::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % most
    }
}

struct Run {
    seed: u64,
    random: Random,
    semaphore: Semaphore,
    clock: ManualClock,
    count: u64,
    ttl: bool,
    /// Whether the clock does now and then.
    steps_back: bool,
    /// Those who have not been seen to be through, in the order of their arrival.
    waiting: Vec<Waiting>,
    held: Vec<Held<Lease>>,
    kept: Vec<Held<LeaseId>>,
}

/// Somebody who has asked and not looked since.
struct Waiting {
    cost: u64,
    priority: Priority,
    since: Time,
    deadline: Option<Time>,
    caller: Caller,
    has_lapsed: bool,
}

/// A lease, and what is known of it from outside.
struct Held<L> {
    lease: L,
    cost: u64,
    until: Option<Time>,
    /// Once it was seen to have: a clock that steps back does not bring it back.
    has_lapsed: bool,
}

impl Waiting {
    /// When it was given a lease, if it was.
    fn given_at(&mut self) -> Option<Time> {
        let woken_at = self.caller.woken_at();
        if !self.caller.is_told() {
            // Whoever was woken at its deadline has to look to know why.
            let is_in_time = |at: Time| self.deadline.is_none_or(|deadline| at < deadline);
            if is_in_time(woken_at?) {
                return woken_at;
            }
            assert!(self.caller.poll(), "who is woken is told");
        }
        self.caller.allowed().then(|| woken_at.unwrap_or(self.since))
    }
}

impl<L> Held<L> {
    /// What it takes now, which somebody sees.
    fn live(&mut self, now: Time) -> u64 {
        self.has_lapsed |= self.until.is_some_and(|until| until <= now);
        if self.has_lapsed { 0 } else { self.cost }
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
                    assert_eq!(self.semaphore.stats().waiting, 0, "seed {}: nobody overtakes", self.seed);
                    self.hold(cost, lease, false);
                }
            }
            8..12 => self.drop_one_held(),
            12 => self.drop_one_waiting(),
            13 => self.keep_one(),
            14 => {
                if let Some(Held { lease, has_lapsed, .. }) = self.kept.pop() {
                    assert_eq!(self.semaphore.release("k", &lease), !has_lapsed, "seed {}", self.seed);
                }
            }
            15 => {
                for held in &mut self.held {
                    assert_eq!(held.lease.renew(), !held.has_lapsed, "seed {}", self.seed);
                    held.until = held.lease.until();
                }
            }
            16 => {
                if self.steps_back && self.random.below(4) == 0 {
                    self.clock.set(self.semaphore.now().saturating_sub(Span::from_micros(300)));
                } else {
                    self.clock.advance(Duration::from_micros(u64::from(self.random.below(1_500))));
                }
            }
            _ => self.clock.advance(Duration::from_micros(u64::from(self.random.below(300)))),
        }
    }

    fn ask(&mut self, cost: u64) {
        let priority = [Priority::Normal, Priority::Normal, Priority::High, Priority::Low]
            [self.random.below(4) as usize];
        let since = self.semaphore.now();
        let deadline = (self.random.below(3) == 0)
            .then(|| since.saturating_add(Span::from_micros(u64::from(self.random.below(800)))));
        let acquire = match deadline {
            Some(deadline) => self.semaphore.acquire_within("k", cost, deadline.since(since).into()),
            None => self.semaphore.acquire("k", cost),
        };
        let caller = Caller::timed(acquire.priority(priority), &self.clock);
        self.waiting.push(Waiting { cost, priority, since, deadline, caller, has_lapsed: false });
    }

    fn hold(&mut self, cost: u64, lease: Lease, has_lapsed: bool) {
        let until = lease.until();
        self.held.push(Held { lease, cost, until, has_lapsed });
    }

    fn pick(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(u64::try_from(len).unwrap()) as usize)
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
            let Held { lease, cost, until, has_lapsed } = self.held.swap_remove(place);
            self.kept.push(Held { lease: lease.keep(), cost, until, has_lapsed });
        }
    }

    /// Some look at what has come of their waiting. Within a priority none is through before one that came earlier.
    fn look(&mut self) {
        let mut later: Vec<Waiting> = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            // Not all of them look: some are woken and dropped before.
            if self.random.below(4) == 0 || !waiting.caller.poll() {
                later.push(waiting);
                continue;
            }
            let Waiting { cost, priority, caller, has_lapsed, .. } = waiting;
            assert!(caller.woken() <= 1, "woken {} times", caller.woken());
            if caller.allowed() {
                let before = |earlier: &Waiting| earlier.priority == priority && earlier.caller.waits();
                assert!(!later.iter().any(before), "seed {}: overtaken by one of its priority", self.seed);
                let lease = caller.lease().unwrap();
                self.hold(cost, lease, has_lapsed);
            }
        }
        self.waiting = later;
    }

    /// What holds at every moment.
    fn check(&mut self) {
        let now = self.semaphore.now();
        let mut live: u64 = self.held.iter_mut().map(|held| held.live(now)).sum();
        live += self.kept.iter_mut().map(|kept| kept.live(now)).sum::<u64>();
        for waiting in &mut self.waiting {
            if let Some(given_at) = waiting.given_at() {
                waiting.has_lapsed |= self.ttl && given_at.saturating_add(TTL) <= now;
                live += if waiting.has_lapsed { 0 } else { waiting.cost };
            }
        }
        let remaining = self.semaphore.peek("k", 0).remaining();
        assert_eq!(live + remaining, self.count, "seed {}: what is live, and what remains", self.seed);
        // Nobody waits who could go: the head of the highest priority that waits does not fit.
        let waits = self.waiting.iter().filter(|waiting| waiting.caller.waits());
        if let Some(head) = waits.min_by_key(|waiting| waiting.priority) {
            let Run { seed, .. } = self;
            assert!(
                head.cost > remaining,
                "seed {seed}: one waits for {}, and {remaining} remain",
                head.cost
            );
        }
    }

    /// All are gone, in any order.
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
            run.look();
        }
    }
    run.end();
    run
}

#[test]
fn nothing_is_lost_or_gained_however_holders_and_waiters_come_and_go() {
    for seed in 1..=400 {
        run(seed, None);
    }
}

/// Whoever waits has kept room for its lease. However its waiting ends, that comes back.
#[test]
fn no_room_is_lost_however_holders_and_waiters_come_and_go() {
    for seed in 1..=200 {
        let semaphore = run(seed, Some(LITTLE_ROOM)).semaphore;
        let leases: Vec<_> =
            (0..LITTLE_ROOM).filter_map(|key| semaphore.try_acquire(key, 1).lease()).collect();
        assert_eq!(leases.len(), LITTLE_ROOM, "seed {seed}");
        assert_eq!(semaphore.try_acquire("one more", 1).denial(), Some(Denial::NoRoom));
    }
}
