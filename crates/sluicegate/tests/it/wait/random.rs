//! Random calls that are enqueued, woken, polled, dropped and leaked in any order: what always
//! holds.

use super::caller::Caller;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::wait::Priority;
use sluicegate::{Limiter, Time};
use std::time::Duration;

/// A small random generator; equal seeds give equal runs.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Limits charged in whole microseconds, so that a plain check at the time of an admission leaves
/// the same state.
const LIMITS: [&str; 9] = [
    "token-bucket 4/1s burst=5",
    "leaky-bucket 1/2s capacity=3",
    "min-interval 500ms",
    "pacer 2/s queue=30",
    "fixed-window 5/3s",
    "fixed-window 5/3s start=first",
    "sliding-log 5/3s",
    "sliding-window 5/4s",
    "smooth 4/s burst=5",
];

const STEPS: usize = 60;

/// Order is kept, nothing is lost or gained, only admitted waiters are woken, and none waits that
/// could go.
#[test]
fn random_runs_lose_nothing_and_keep_the_order() {
    for number in 1..=250_u64 {
        for limit in LIMITS {
            let clock = ManualClock::default();
            let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
            let seed = number * 7_919;
            let mut run = Run {
                name: format!("{limit}, seed {seed}"),
                random: Random(seed | 1),
                limit,
                limiter: &limiter,
                clock,
                with_priorities: number % 3 == 0,
                prompt: number % 2 == 0,
                waiting: Vec::new(),
                charged: Vec::new(),
                left_late: false,
            };
            for number in 0..STEPS {
                run.step(number);
                run.assert_in_order();
            }
            run.assert_nothing_is_lost_or_gained();
        }
    }
}

/// A call.
struct Call<'a> {
    caller: Caller<'a>,
    number: usize,
    cost: u64,
    priority: Priority,
    /// When it was woken.
    woken: Option<Time>,
}

struct Run<'a> {
    name: String,
    random: Random,
    limit: &'static str,
    limiter: &'a Limiter,
    clock: ManualClock,
    with_priorities: bool,
    /// Woken waiters that are dropped are dropped immediately. Later part of the charge has leaked,
    /// which is not returned twice: then only the limit itself holds.
    prompt: bool,
    waiting: Vec<Call<'a>>,
    /// The calls that were woken and not dropped before their poll: when, which, and the cost.
    charged: Vec<(Time, usize, u64)>,
    left_late: bool,
}

impl Run<'_> {
    fn step(&mut self, number: usize) {
        match self.random.below(10) {
            0..=4 => self.join(number),
            5 | 6 => self.leave(),
            7 => self.poll_one(),
            8 => self.check(number),
            _ => {
                for _ in 0..self.random.below(300) {
                    self.clock.advance(Duration::from_millis(10));
                    self.note_woken();
                }
            }
        }
    }

    fn join(&mut self, number: usize) {
        let limit = self.limiter.peek("k", 0).limit().max(1);
        let cost = (1 + self.random.below(3)).min(limit);
        let priority = match self.random.below(4) {
            0 if self.with_priorities => Priority::High,
            1 if self.with_priorities => Priority::Low,
            _ => Priority::Normal,
        };
        let caller = Caller::new(self.limiter.acquire("k", cost).priority(priority));
        match caller.acquired() {
            Some(acquired) if acquired.allowed() => {
                let alone = self.waiting.iter().all(|other| other.woken.is_some());
                assert!(alone, "{}: {number} overtook", self.name);
                self.charged.push((self.limiter.now(), number, cost));
            }
            Some(_) => {}
            None => self.waiting.push(Call { caller, number, cost, priority, woken: None }),
        }
        // With a high priority it may have been woken immediately, before other waiters.
        self.note_woken();
    }

    /// A call that does not wait.
    fn check(&mut self, number: usize) {
        let decision = self.limiter.check("k");
        if decision.allowed() && decision.delay().as_micros() == 0 {
            let alone = self.waiting.iter().all(|other| other.woken.is_some());
            assert!(alone, "{}: a check overtook a waiter", self.name);
            self.charged.push((self.limiter.now(), number, 1));
        } else if decision.allowed() {
            // A pacer's slot in the future: from here on the expected times differ.
            self.left_late = true;
            self.charged.push((self.limiter.now(), number, 1));
        }
    }

    /// Drops a call, wherever it is, woken or not.
    fn leave(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = usize::try_from(self.random.below(self.waiting.len() as u64)).unwrap();
        let woken = self.waiting[index].woken;
        let is_late = woken.is_some_and(|woken| woken < self.limiter.now());
        // A window that was opened by a dropped call stays open if others are in it, and so ends
        // sooner.
        if self.prompt && is_late || self.limit.ends_with("start=first") && woken.is_some() {
            return;
        }
        self.left_late |= is_late;
        let gone = self.waiting.swap_remove(index);
        self.charged.retain(|(_, number, _)| *number != gone.number);
        drop(gone);
        self.note_woken();
    }

    /// Polls a woken call.
    fn poll_one(&mut self) {
        if let Some(index) = self.waiting.iter().position(|call| call.woken.is_some()) {
            let mut polled = self.waiting.swap_remove(index);
            assert!(
                polled.caller.poll().is_some_and(|acquired| acquired.allowed()),
                "{}: not woken",
                self.name
            );
            assert_eq!(polled.caller.woken(), 1, "{}: woken once", self.name);
        }
    }

    /// Records the woken calls, in order.
    fn note_woken(&mut self) {
        let now = self.limiter.now();
        let is_new = |call: &&mut Call<'_>| call.woken.is_none() && call.caller.woken() > 0;
        let mut new: Vec<&mut Call<'_>> = self.waiting.iter_mut().filter(is_new).collect();
        new.sort_by_key(|call| (call.priority, call.number));
        for call in new {
            assert_eq!(call.caller.woken(), 1, "{}: woken once", self.name);
            call.woken = Some(now);
            self.charged.push((now, call.number, call.cost));
        }
    }

    /// No call of the same or a higher priority that came before a woken one still waits.
    fn assert_in_order(&self) {
        for woken in self.waiting.iter().filter(|call| call.woken.is_some()) {
            let overtaken = self.waiting.iter().find(|other| {
                other.woken.is_none() && other.priority <= woken.priority && other.number < woken.number
            });
            assert!(overtaken.is_none(), "{}: {} out of order", self.name, woken.number);
        }
    }

    fn assert_nothing_is_lost_or_gained(self) {
        // Plain checks at the times of the admissions, without a queue.
        let builder = Limiter::builder(self.limit).clock(self.clock.clone());
        let reference = builder.start(ManualClock::default().now()).build().unwrap();
        for (time, number, cost) in &self.charged {
            let decision = reference.check_at("k", *cost, *time);
            assert!(decision.allowed(), "{}: {number} at {time} exceeds the limit: {decision:?}", self.name);
        }
        let now = self.limiter.now();
        let waits = self.waiting.iter().filter(|call| call.woken.is_none());
        let head = waits.min_by_key(|call| (call.priority, call.number));
        if let Some(head) = head.filter(|_| !self.left_late) {
            let answer = reference.peek_at("k", head.cost, now);
            let could_go = answer.allowed() && answer.delay().as_micros() == 0;
            assert!(!could_go, "{}: {} could go and was not woken", self.name, head.number);
        }
        // All are dropped: only what was seen is charged.
        let unseen =
            |(_, number, _): &(Time, usize, u64)| self.waiting.iter().any(|call| call.number == *number);
        let given_back = self.charged.iter().any(unseen);
        drop(self.waiting);
        assert_eq!(self.limiter.stats().waiting, 0, "{}", self.name);
        if !given_back && !self.left_late {
            let (left, expected) = (self.limiter.peek_at("k", 0, now), reference.peek_at("k", 0, now));
            assert_eq!(left, expected, "{}", self.name);
        }
    }
}
