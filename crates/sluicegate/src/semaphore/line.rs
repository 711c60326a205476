//! Those who wait for a lease: what is done to lines under their shard's lock.

use super::book::{Book, Due, KeyLeases, Seat};
use super::desk::{Desk, peek};
use super::scope::View;
use super::shard::{Joined, Outcome, TICK, Taken, Waiter};
use crate::clock::interval::Interval;
use crate::key::Fingerprint;
use crate::sync::Ordering;
use crate::wait::{Denial, Priority};
use sluicegate_core::{Decision, Time};
use std::task::Waker;

impl Desk<'_> {
    /// A lease, a place in line, or why neither. `None` if the semaphore holds as many leases as it may.
    pub(super) fn join(&mut self, waiter: &Waiter, waker: &mut Option<Waker>) -> Option<Joined> {
        let Waiter { key, cost, until, priority, .. } = *waiter;
        let now = self.clock_now();
        if until.is_none_or(|until| now <= until) {
            match self.take(key, cost) {
                Taken::Allowed(decision, given) => {
                    return Some(Joined::Done(Outcome::Allowed { decision, given, at: now }));
                }
                Taken::Full => return None,
                Taken::Denied if cost > self.rule_of(key).count() => {
                    return Some(self.refused(Denial::Never, key, cost));
                }
                Taken::Denied => {}
            }
        }
        if until.is_some_and(|until| until <= now) {
            return Some(self.refused(Denial::TooLong, key, cost));
        }
        let bounds = self.common.bounds;
        let in_line = self.book.keys.get(&key).and_then(|known| known.line.as_ref());
        if in_line.map_or(0, |line| line.waiting.len()) >= bounds.per_key {
            return Some(self.refused(Denial::QueueFull, key, cost));
        }
        if self.book.room == 0 {
            self.book.room = self.common.capacity.take()? + 1;
        }
        if self.common.waiting.fetch_add(1, Ordering::Relaxed) >= bounds.total {
            self.common.waiting.fetch_sub(1, Ordering::Relaxed);
            return Some(self.refused(Denial::QueueFull, key, cost));
        }
        // Whoever waits has room for its lease, so that it is not refused when its turn has come.
        self.book.room -= 1;
        let Book { keys, seats, due, .. } = &mut *self.book;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::of(self.by));
        known.tell(View::one_more_waits);
        let line = known.line.get_or_insert_default();
        let place = (priority, line.next);
        line.next += 1;
        line.cost += u64::from(cost);
        // Nobody needs waking yet: its turn may come right here.
        let seat = seats.insert(Seat::Waiting { waiter: *waiter, place, waker: Waker::noop().clone() });
        line.waiting.insert(place, (seat, cost));
        if let Some(until) = until {
            due.insert((until, Due::Deadline(seat)), ());
        }
        let is_head = line.waiting.first().is_some_and(|(head, _)| *head == place);
        if is_head {
            self.go_on(key, now);
            self.forget_if_unused(key);
        }
        if let Some(outcome) = self.told(seat) {
            return Some(Joined::Done(outcome));
        }
        self.after.drop = waker.take().map(|waker| self.wake_by(seat, waker));
        Some(Joined::Seated(seat))
    }

    pub(super) fn look(&mut self, seat: u32, waker: Waker) -> Option<Outcome> {
        if matches!(self.book.seats.get(seat), Some(Seat::Waiting { .. })) {
            // Whoever looks helps itself, should the clock not have rung.
            self.call_due();
        }
        let told = self.told(seat);
        self.after.drop = Some(if told.is_some() { waker } else { self.wake_by(seat, waker) });
        told
    }

    pub(super) fn leave(&mut self, seat: u32) {
        match self.book.seats.remove(seat) {
            Some(Seat::Told(Outcome::Allowed { given: Some(given), .. })) => {
                self.release(given.name);
            }
            Some(Seat::Waiting { waiter, place, waker }) => {
                self.after.drop = Some(waker);
                self.out_of_line(seat, &waiter, place);
                self.one_back();
                self.line_goes_on(waiter.key);
            }
            Some(Seat::Told(_)) | None => {}
        }
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.book.alarms.disarm(at);
        if self.clock_now() < at {
            self.begin_again();
        }
        self.call_due();
    }

    /// The clock was set back, or has rung too early: those who would come only later have come now, so that they wait as long again and
    /// not until the clock shows that time once more.
    fn begin_again(&mut self) {
        let now = self.clock_now();
        let Book { seats, due, .. } = &mut *self.book;
        for (number, seat) in seats.iter_mut() {
            if let Seat::Waiting { waiter, .. } = seat
                && let Some(until) = waiter.until
                && now < waiter.since
            {
                due.remove(&(until, Due::Deadline(number)));
                let until = Interval::new(waiter.since, until.since(waiter.since)).end_as_of(now);
                (waiter.since, waiter.until) = (now, Some(until));
                due.insert((until, Due::Deadline(number)), ());
            }
        }
    }

    /// Something about a key has changed: whoever waits there may have its turn, or nobody is left.
    pub(super) fn line_goes_on(&mut self, key: Fingerprint) {
        if self.book.keys.get(&key).is_some_and(KeyLeases::has_line) {
            self.go_on(key, self.now());
        }
        self.forget_if_unused(key);
    }

    /// What the clock has rung for, or should have.
    fn call_due(&mut self) {
        if self.book.due.is_empty() {
            return;
        }
        let now = self.clock_now();
        while let Some(first) = self.book.due.first().map(|(first, ())| *first).filter(|(at, _)| *at <= now) {
            self.book.due.remove(&first);
            match first.1 {
                Due::Turn(key) => {
                    if let Some(line) = self.book.keys.get_mut(&key).and_then(|known| known.line.as_mut()) {
                        line.turn = None;
                    }
                    self.lapse(key, now);
                    self.line_goes_on(key);
                }
                Due::Deadline(seat) => {
                    if let Some(key) = self.refuse(seat, Denial::TooLong, now) {
                        self.line_goes_on(key);
                    }
                }
            }
        }
    }

    /// Gives leases to those at the head of a line for whom there is room, and plans when the next one's turn comes.
    fn go_on(&mut self, key: Fingerprint, now: Time) {
        self.forget_turn(key);
        self.drain(key, now);
        loop {
            let rule = self.rule_of(key);
            let Book { keys, seats, .. } = &mut *self.book;
            let Some(known) = keys.get_mut(&key) else { return };
            let Some(line) = &known.line else { return };
            let Some((_, &(seat, cost))) = line.waiting.first() else { return };
            let is_late = match seats.get(seat) {
                Some(Seat::Waiting { waiter, .. }) => waiter.until.is_some_and(|until| until < now),
                _ => false,
            };
            if is_late {
                // The machine slept, or the clock was set.
                self.refuse(seat, Denial::TooLong, now);
                continue;
            }
            if rule.fits(&known.leases, cost) {
                self.give_to(seat, key, cost, now);
                continue;
            }
            if cost > rule.count() {
                self.refuse(seat, Denial::Never, now);
                continue;
            }
            // If nobody knows, the line goes on when one is returned.
            if let Some(turn) = rule.look_again_at(&known.leases, cost)
                && let Some(line) = &mut known.line
            {
                line.turn = Some(turn);
                self.book.due.insert((turn, Due::Turn(key)), ());
            }
            return;
        }
    }

    /// Other numbers hold for a key under which somebody waits: those are refused for whom no wait helps any more, wherever in line they are,
    /// and the others go on.
    pub(super) fn line_has_new_numbers(&mut self, key: Fingerprint) {
        let (count, now) = (self.rule_of(key).count(), self.now());
        let line = self.book.keys.get(&key).and_then(|known| known.line.as_ref());
        let places = line.into_iter().flat_map(|line| line.waiting.iter());
        let never: Vec<u32> =
            places.filter(|(_, (_, cost))| *cost > count).map(|(_, (seat, _))| *seat).collect();
        for seat in never {
            self.refuse(seat, Denial::Never, now);
        }
        self.line_goes_on(key);
    }

    /// Gives a lease to somebody who waits.
    fn give_to(&mut self, seat: u32, key: Fingerprint, cost: u32, now: Time) {
        let Some(Seat::Waiting { waiter, place, .. }) = self.book.seats.get(seat) else { return };
        let (waiter, place) = (*waiter, *place);
        self.out_of_line(seat, &waiter, place);
        // There is room: whoever waits has kept it.
        let (decision, given) = self.book.give(key, cost, now, None);
        self.tell(seat, Outcome::Allowed { decision, given, at: now });
    }

    /// Tells somebody who waits that it is of no use any more. Whose line it was.
    fn refuse(&mut self, seat: u32, denial: Denial, now: Time) -> Option<Fingerprint> {
        let Some(Seat::Waiting { waiter, place, .. }) = self.book.seats.get(seat) else { return None };
        let (waiter, place) = (*waiter, *place);
        self.out_of_line(seat, &waiter, place);
        self.one_back();
        self.drain(waiter.key, now);
        self.book.counts.denied += 1;
        let rule = self.rule_of(waiter.key);
        let known = self.book.keys.get_mut(&waiter.key);
        let decision = peek(rule, known, now, waiter.cost);
        let decision = match denial {
            Denial::Never => decision.denied_forever(),
            _ => denial_of(decision),
        };
        self.tell(seat, Outcome::Refused { denial, decision, at: now });
        Some(waiter.key)
    }

    /// Takes somebody out of its line; the line is dropped with the last.
    fn out_of_line(&mut self, seat: u32, waiter: &Waiter, place: (Priority, u64)) {
        let Book { keys, due, .. } = &mut *self.book;
        if let Some(until) = waiter.until {
            due.remove(&(until, Due::Deadline(seat)));
        }
        let Some(known) = keys.get_mut(&waiter.key) else { return };
        let Some(line) = &mut known.line else { return };
        if line.waiting.remove(&place).is_some() {
            line.cost -= u64::from(waiter.cost);
            // (Not by `tell`: the line is borrowed from the same.)
            if let Some(of) = &known.of {
                of.one_less_waits();
            }
            self.common.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if line.waiting.is_empty() {
            if let Some(turn) = line.turn {
                due.remove(&(turn, Due::Turn(waiter.key)));
            }
            known.line = None;
        }
    }

    fn tell(&mut self, seat: u32, outcome: Outcome) {
        if let Some(place) = self.book.seats.get_mut(seat)
            && let Seat::Waiting { waker, .. } = std::mem::replace(place, Seat::Told(outcome))
        {
            self.after.wake.push(waker);
        }
    }

    /// What has come of a seat, which is then given up.
    fn told(&mut self, seat: u32) -> Option<Outcome> {
        if !matches!(self.book.seats.get(seat), Some(Seat::Told(_))) {
            return None;
        }
        match self.book.seats.remove(seat)? {
            Seat::Told(outcome) => Some(outcome),
            Seat::Waiting { .. } => None,
        }
    }

    /// Whoever waits there is to be woken by this one from now on. The waker that was there.
    fn wake_by(&mut self, seat: u32, by: Waker) -> Waker {
        match self.book.seats.get_mut(seat) {
            Some(Seat::Waiting { waker, .. }) => std::mem::replace(waker, by),
            _ => by,
        }
    }

    fn refused(&mut self, denial: Denial, key: Fingerprint, cost: u32) -> Joined {
        let decision = denial_of(self.deny(key, cost));
        Joined::Done(Outcome::Refused { denial, decision, at: self.clock_now() })
    }

    fn forget_turn(&mut self, key: Fingerprint) {
        let Book { keys, due, .. } = &mut *self.book;
        let turn = keys.get_mut(&key).and_then(|known| known.line.as_mut()).and_then(|line| line.turn.take());
        if let Some(turn) = turn {
            due.remove(&(turn, Due::Turn(key)));
        }
    }
}

/// The answer to somebody who is refused though there may be room: not at once.
fn denial_of(decision: Decision) -> Decision {
    if decision.allowed() { decision.denied_for(TICK) } else { decision }
}
