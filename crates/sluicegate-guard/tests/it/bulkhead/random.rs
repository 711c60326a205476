//! Random callers acquire, wait, poll, leave and finish in any order, beside a model that says what
//! should happen.

use super::support::Asker;
use sluicegate_guard::bulkhead::{Bulkhead, Permit, PermitGrant};
use sluicegate_guard::{Clock as _, Denial, ManualClock, Priority, Time};
use std::time::Duration;

/// A small generator of numbers; the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// The expected result of a waiter.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Waits,
    Called,
    Denied,
}

struct Waiting {
    asker: Asker,
    number: usize,
    priority: Priority,
    until: Time,
    fate: Fate,
}

/// The bulkhead, and beside it the permits in use and the waiters as plain lists.
struct Run {
    name: String,
    random: Random,
    bulkhead: Bulkhead,
    clock: ManualClock,
    limit: usize,
    queue: usize,
    permits: Vec<Permit>,
    waiting: Vec<Waiting>,
}

/// No permit is lost or gained, no waiter is overtaken, each is woken once, and none waits while a
/// permit is free.
#[test]
fn random_operations_match_the_model() {
    for seed in 1..=3_000_u64 {
        let mut random = Random((seed * 7_919) | 1);
        let (limit, queue) = (1 + random.below(3), random.below(5));
        let queue_text = if queue > 0 { format!("queue={queue} wait=1s") } else { String::new() };
        let clock = ManualClock::default();
        let text = format!("bulkhead {limit} {queue_text}");
        let bulkhead = Bulkhead::builder(&text).clock(clock.clone()).build().unwrap();
        let name = format!("{text}, seed {seed}");
        let mut run = Run { name, random, bulkhead, clock, limit, queue, permits: vec![], waiting: vec![] };
        for number in 0..80 {
            run.step(number);
            run.compare();
        }
        run.all_leave();
    }
}

impl Run {
    fn step(&mut self, number: usize) {
        match self.random.below(12) {
            0..=3 => self.enter(number),
            4 => self.try_acquire(),
            5 | 6 => self.end_one(),
            7 => self.leave(),
            8 | 9 => self.look(),
            10 => self.move_limit(),
            _ => {
                let by = [1, 400, 999, 1_000, 1_001][self.random.below(5)];
                self.clock.advance(Duration::from_millis(by));
                self.deny_overdue();
            }
        }
    }

    /// Permits in use by the model: those held by callers, and those held for waiters.
    fn taken(&self) -> usize {
        self.permits.len() + self.waiting.iter().filter(|waiting| waiting.fate == Fate::Called).count()
    }

    fn waits(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.fate == Fate::Waits).count()
    }

    fn deny_overdue(&mut self) {
        let now = self.clock.now();
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.fate == Fate::Waits) {
            if waiting.until <= now {
                waiting.fate = Fate::Denied;
            }
        }
    }

    /// Calls the first, for as long as permits are free.
    fn call(&mut self) {
        while self.taken() < self.limit {
            let waits = self.waiting.iter_mut().filter(|waiting| waiting.fate == Fate::Waits);
            let Some(first) = waits.min_by_key(|waiting| (waiting.priority, waiting.number)) else { return };
            first.fate = Fate::Called;
        }
    }

    fn enter(&mut self, number: usize) {
        let priority =
            [Priority::High, Priority::Normal, Priority::Normal, Priority::Low][self.random.below(4)];
        let mut enter = self.bulkhead.acquire();
        let mut until = self.clock.now().saturating_add(Duration::from_secs(1).into());
        if self.random.below(3) == 0 {
            let wait = Duration::from_millis(1 + u64::try_from(self.random.below(1_500)).unwrap());
            enter = self.bulkhead.acquire_within(wait);
            until = self.clock.now().saturating_add(wait.into());
        }
        let (asker, entry) = Asker::new(enter.priority(priority));
        let (is_free, has_room) = (self.waits() == 0 && self.taken() < self.limit, self.waits() < self.queue);
        match entry.map(PermitGrant::into_result) {
            Some(Ok(permit)) => {
                assert!(is_free, "{}: {number} had a permit that was not free", self.name);
                self.permits.push(permit);
            }
            Some(Err(denial)) => {
                assert!(!is_free && !has_room, "{}: {number} was denied", self.name);
                assert_eq!(denial, Denial::QueueFull);
            }
            None => {
                assert!(!is_free && has_room, "{}: {number} waits", self.name);
                self.waiting.push(Waiting { asker, number, priority, until, fate: Fate::Waits });
            }
        }
    }

    fn try_acquire(&mut self) {
        let is_free = self.waits() == 0 && self.taken() < self.limit;
        let permit = self.bulkhead.try_acquire();
        assert_eq!(permit.is_some(), is_free, "{}: who does not wait", self.name);
        self.permits.extend(permit);
    }

    fn end_one(&mut self) {
        if !self.permits.is_empty() {
            let index = self.random.below(self.permits.len());
            drop(self.permits.swap_remove(index));
            self.call();
        }
    }

    /// A waiter leaves, with or without a permit.
    fn leave(&mut self) {
        if !self.waiting.is_empty() {
            let index = self.random.below(self.waiting.len());
            drop(self.waiting.remove(index));
            self.call();
        }
    }

    /// A waiter polls, with or without a result.
    fn look(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.random.below(self.waiting.len());
        let entry = self.waiting[index].asker.poll();
        let fate = self.waiting[index].fate;
        match (fate, entry.map(PermitGrant::into_result)) {
            (Fate::Waits, None) => return,
            (Fate::Called, Some(Ok(permit))) => self.permits.push(permit),
            (Fate::Denied, Some(Err(Denial::TooLong))) => {}
            (fate, result) => panic!("{}: {fate:?}, but got {result:?}", self.name),
        }
        self.waiting.remove(index);
    }

    fn move_limit(&mut self) {
        self.limit = 1 + self.random.below(4);
        self.bulkhead.set_limit(u32::try_from(self.limit).unwrap());
        self.call();
    }

    fn compare(&self) {
        for waiting in &self.waiting {
            let woken = usize::from(waiting.fate != Fate::Waits);
            assert_eq!(
                waiting.asker.woken(),
                woken,
                "{}: {} is {:?}",
                self.name,
                waiting.number,
                waiting.fate
            );
        }
        let stats = self.bulkhead.stats();
        let (in_use, limit) = (usize::try_from(stats.in_use).unwrap(), usize::try_from(stats.limit).unwrap());
        assert_eq!((in_use, limit, stats.waiting), (self.taken(), self.limit, self.waits()), "{}", self.name);
    }

    fn all_leave(self) {
        drop((self.waiting, self.permits));
        let stats = self.bulkhead.stats();
        assert_eq!((stats.in_use, stats.waiting), (0, 0), "{}", self.name);
        let all = (0..self.limit).map_while(|_| self.bulkhead.try_acquire()).collect::<Vec<_>>();
        assert_eq!(all.len(), self.limit, "{}: the short way is open again", self.name);
    }
}
