//! Random callers who join, are called, look, leave and are forgotten, in any order: what holds whatever happens.

use super::line_up::Caller;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::wait::Priority;
use sluicegate::{Limiter, Time};
use std::time::Duration;

/// A small generator of numbers; the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What is charged in whole microseconds, so that a plain check at the time of a turn leaves the same as the turn.
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

/// Order is kept, nothing is lost or gained, nobody is woken but when called, and nobody waits who could go.
#[test]
fn whatever_happens_nothing_is_lost_and_nobody_overtaken() {
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

/// One who asked.
struct Asked<'a> {
    caller: Caller<'a>,
    number: usize,
    cost: u64,
    priority: Priority,
    /// When it was called.
    called: Option<Time>,
}

struct Run<'a> {
    name: String,
    random: Random,
    limit: &'static str,
    limiter: &'a Limiter,
    clock: ManualClock,
    with_priorities: bool,
    /// Whoever is called and leaves does so at once. Later on part of the charge has leaked, which is not given twice: then it is only
    /// never more than the limit.
    prompt: bool,
    waiting: Vec<Asked<'a>>,
    /// Whoever was called and did not leave before they saw it: when, who, and the cost.
    charged: Vec<(Time, usize, u64)>,
    left_late: bool,
}

impl Run<'_> {
    fn step(&mut self, number: usize) {
        match self.random.below(10) {
            0..=4 => self.join(number),
            5 | 6 => self.leave(),
            7 => self.look(),
            8 => self.check(number),
            _ => {
                for _ in 0..self.random.below(300) {
                    self.clock.advance(Duration::from_millis(10));
                    self.note_called();
                }
            }
        }
    }

    fn join(&mut self, number: usize) {
        let limit = self.limiter.peek("k", 0).limit().max(1);
        let cost = u64::try_from(1 + self.random.below(3)).unwrap().min(limit);
        let priority = match self.random.below(4) {
            0 if self.with_priorities => Priority::High,
            1 if self.with_priorities => Priority::Low,
            _ => Priority::Normal,
        };
        let caller = Caller::new(self.limiter.acquire("k", cost).priority(priority));
        match caller.turn() {
            Some(turn) if turn.allowed() => {
                let alone = self.waiting.iter().all(|other| other.called.is_some());
                assert!(alone, "{}: {number} overtook", self.name);
                self.charged.push((self.limiter.now(), number, cost));
            }
            Some(_) => {}
            None => self.waiting.push(Asked { caller, number, cost, priority, called: None }),
        }
        // Of a high priority it may have been called at once, before others who wait.
        self.note_called();
    }

    /// Somebody who does not wait.
    fn check(&mut self, number: usize) {
        let decision = self.limiter.check("k");
        if decision.allowed() && decision.delay().as_micros() == 0 {
            let alone = self.waiting.iter().all(|other| other.called.is_some());
            assert!(alone, "{}: a check overtook", self.name);
            self.charged.push((self.limiter.now(), number, 1));
        } else if decision.allowed() {
            // A pacer's slot that is still to come: from here on turns are told apart from it no longer.
            self.left_late = true;
            self.charged.push((self.limiter.now(), number, 1));
        }
    }

    /// Somebody leaves, wherever they stand, called or not.
    fn leave(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = usize::try_from(self.random.below(self.waiting.len() as u64)).unwrap();
        let called = self.waiting[index].called;
        let is_late = called.is_some_and(|called| called < self.limiter.now());
        // A window that was opened by one who is gone stays open if others are in it, and so ends sooner.
        if self.prompt && is_late || self.limit.ends_with("start=first") && called.is_some() {
            return;
        }
        self.left_late |= is_late;
        let gone = self.waiting.swap_remove(index);
        self.charged.retain(|(_, number, _)| *number != gone.number);
        drop(gone);
        self.note_called();
    }

    /// Somebody who was called looks.
    fn look(&mut self) {
        if let Some(index) = self.waiting.iter().position(|asked| asked.called.is_some()) {
            let mut looks = self.waiting.swap_remove(index);
            assert!(looks.caller.poll().is_some_and(|turn| turn.allowed()), "{}: not called", self.name);
            assert_eq!(looks.caller.woken(), 1, "{}: woken once", self.name);
        }
    }

    /// Notes who was called, in order.
    fn note_called(&mut self) {
        let now = self.limiter.now();
        let is_new = |asked: &&mut Asked<'_>| asked.called.is_none() && asked.caller.woken() > 0;
        let mut new: Vec<&mut Asked<'_>> = self.waiting.iter_mut().filter(is_new).collect();
        new.sort_by_key(|asked| (asked.priority, asked.number));
        for asked in new {
            assert_eq!(asked.caller.woken(), 1, "{}: woken once", self.name);
            asked.called = Some(now);
            self.charged.push((now, asked.number, asked.cost));
        }
    }

    /// Nobody of the same or a higher priority who came before one that was called waits still.
    fn assert_in_order(&self) {
        for called in self.waiting.iter().filter(|asked| asked.called.is_some()) {
            let overtaken = self.waiting.iter().find(|other| {
                other.called.is_none() && other.priority <= called.priority && other.number < called.number
            });
            assert!(overtaken.is_none(), "{}: {} out of order", self.name, called.number);
        }
    }

    fn assert_nothing_is_lost_or_gained(self) {
        // Plain checks at the times of the turns, where nobody waits.
        let builder = Limiter::builder(self.limit).clock(self.clock.clone());
        let reference = builder.start(ManualClock::default().now()).build().unwrap();
        for (time, number, cost) in &self.charged {
            let decision = reference.check_at("k", *cost, *time);
            assert!(decision.allowed(), "{}: {number} at {time} is too much: {decision:?}", self.name);
        }
        let now = self.limiter.now();
        let waits = self.waiting.iter().filter(|asked| asked.called.is_none());
        let head = waits.min_by_key(|asked| (asked.priority, asked.number));
        if let Some(head) = head.filter(|_| !self.left_late) {
            let answer = reference.peek_at("k", head.cost, now);
            let could_go = answer.allowed() && answer.delay().as_micros() == 0;
            assert!(!could_go, "{}: {} could go and was not called", self.name, head.number);
        }
        // All leave: what was seen is all that is charged.
        let unseen =
            |(_, number, _): &(Time, usize, u64)| self.waiting.iter().any(|asked| asked.number == *number);
        let given_back = self.charged.iter().any(unseen);
        drop(self.waiting);
        assert_eq!(self.limiter.stats().waiting, 0, "{}", self.name);
        if !given_back && !self.left_late {
            let (left, expected) = (self.limiter.peek_at("k", 0, now), reference.peek_at("k", 0, now));
            assert_eq!(left, expected, "{}", self.name);
        }
    }
}
