//! What is done to the keys of a shard under its lock.
//!
//! A [`Desk`] is the book, open at one moment. The clock is asked only if something here depends on it.

use super::lease::Name;
use super::scope::View;
use super::shard::{After, Common, Given, Joined, Outcome, Taken, Waiter};
use super::slab::Slab;
use super::stats::SemaphoreStats;
use crate::key::{ByFingerprint, Fingerprint};
use crate::sync::{Guard, Ordering};
use crate::wait::{Priority, Refusal};
use sluicegate_core::concurrency::{Concurrency, Held, Leases, UNKNOWN};
use sluicegate_core::{Decision, RetryAfter, Time};
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

/// With every new lease so many are let lapse under keys that nobody asks about any more, so that what nobody returns is never more
/// than what is held and lapses; it is freed without a pause.
const SWEPT: usize = 2;

/// When there is no room so many are looked for at once.
const SWEPT_FOR_ROOM: usize = 64;

/// What the lock guards.
pub(super) struct Book {
    rule: Concurrency,
    /// Whether several semaphores share the room: then keys know by whose numbers they are judged.
    is_shared: bool,
    /// Those with a lease or somebody who waits.
    keys: HashMap<Fingerprint, KeyLeases, ByFingerprint>,
    leases: Slab<Out>,
    seats: Slab<Seat>,
    next_nonce: u64,
    /// Keys by a moment before which none of their leases lapses.
    lapses: BTreeSet<(Time, Fingerprint)>,
    /// What the clock has to ring for.
    due: BTreeSet<(Time, Due)>,
    /// When it is going to ring, the soonest last: each was set because it was sooner than all before it.
    rings_at: Vec<Time>,
    /// Room for leases that was taken from all shards' and is not used.
    room: usize,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    allowed: u64,
    denied: u64,
    released: u64,
    renewed: u64,
    lapsed: u64,
}

/// What is known of a key.
#[derive(Default)]
struct KeyLeases {
    leases: Leases<u32>,
    /// Where it is in `lapses`.
    listed: Option<Time>,
    line: Option<Box<Line>>,
    /// Where several semaphores share a room: by which one it was last asked about.
    of: Option<Arc<View>>,
}

/// Those who wait under a key. There is one only while somebody does.
#[derive(Default)]
struct Line {
    /// By priority, then by arrival: the seat and the cost.
    waiting: BTreeMap<(Priority, u64), (u32, u32)>,
    next: u64,
    /// What all of them cost.
    cost: u64,
    /// When the head's turn comes if nothing is returned. It is then in `due`.
    turn: Option<Time>,
}

/// A lease that is out.
#[derive(Clone, Copy)]
struct Out {
    key: Fingerprint,
    nonce: u64,
    held: Held,
}

/// Somebody who waits, and what came of it.
enum Seat {
    Waiting { waiter: Waiter, place: (Priority, u64), waker: Waker },
    Told(Outcome),
}

/// What the clock rings for. Of one moment what lapses comes first: then it is of use to those whose time is up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The head of a key's line may have its turn.
    Turn(Fingerprint),
    /// Somebody has waited for too long.
    Deadline(u32),
}

/// The book, open.
pub(super) struct Desk<'a> {
    book: Guard<'a, Book>,
    common: &'a Common,
    /// `None` until it is asked for.
    now: Cell<Option<Time>>,
    after: After,
    /// Where several semaphores share a room: which one asks, about one key.
    by: Option<&'a Arc<View>>,
}

impl Book {
    pub(super) fn new(rule: Concurrency) -> Book {
        Book {
            rule,
            is_shared: false,
            keys: HashMap::default(),
            leases: Slab::default(),
            seats: Slab::default(),
            next_nonce: 0,
            lapses: BTreeSet::new(),
            due: BTreeSet::new(),
            rings_at: Vec::new(),
            room: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.rule.count()
    }

    pub(super) fn count_denied(&mut self) {
        self.counts.denied += 1;
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        let Counts { allowed, denied, released, renewed, lapsed } = self.counts;
        stats.allowed += allowed;
        stats.denied += denied;
        stats.released += released;
        stats.renewed += renewed;
        stats.lapsed += lapsed;
        stats.leases += self.leases.len();
        stats.keys += self.keys.len();
    }

    /// Whether anything depends on what time it is.
    #[inline]
    fn needs_time(&self) -> bool {
        self.rule.ttl().is_some() || !self.lapses.is_empty() || !self.due.is_empty()
    }

    /// The alarm for a time will not ring. How to wake everybody who waits: they look again, and so set another.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.forget_alarm(at);
        let waiting = |seat| match seat {
            // When it looks it says anew how to wake it.
            &mut Seat::Waiting { ref mut waker, .. } => Some(std::mem::replace(waker, Waker::noop().clone())),
            Seat::Told(_) => None,
        };
        self.seats.iter_mut().filter_map(waiting).collect()
    }

    fn forget_alarm(&mut self, at: Time) {
        if let Some(place) = self.rings_at.iter().rposition(|rings_at| *rings_at == at) {
            self.rings_at.remove(place);
        }
    }

    /// A lease of a key, for which there is room.
    #[inline]
    fn give(
        &mut self,
        key: Fingerprint,
        cost: u32,
        now: Time,
        by: Option<&Arc<View>>,
    ) -> (Decision, Option<Given>) {
        let Book { rule, keys, leases, lapses, next_nonce, counts, .. } = self;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::of(by));
        let rule = known.rule(*rule);
        let nonce = *next_nonce;
        *next_nonce += 1;
        // The place is known before the lease is, and the lease before its name.
        let place = leases.next();
        let (decision, held) = rule.acquire(&mut known.leases, now, cost, place);
        let Some(held) = held else { return (decision, None) };
        leases.insert(Out { key, nonce, held });
        known.list(lapses, key, held);
        known.tell(View::one_more_out);
        counts.allowed += 1;
        let name = Name { key: key.high, place, nonce };
        (decision, Some(Given { name, until: held.until() }))
    }
}

impl KeyLeases {
    /// A key that nothing is known of, and who asks about it.
    #[inline]
    fn of(by: Option<&Arc<View>>) -> KeyLeases {
        KeyLeases { of: by.cloned(), ..KeyLeases::default() }
    }

    /// The numbers that hold for it, if those of the semaphore are these.
    #[inline]
    fn rule(&self, of_all: Concurrency) -> Concurrency {
        self.of.as_ref().map_or(of_all, |of| of.rule)
    }

    /// Counts something of its scope, if it has one.
    #[inline]
    fn tell(&self, what: fn(&View)) {
        if let Some(of) = &self.of {
            what(of);
        }
    }

    /// Whether somebody waits.
    #[inline]
    fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// A lease lapses at that moment.
    #[inline]
    fn list(&mut self, lapses: &mut BTreeSet<(Time, Fingerprint)>, key: Fingerprint, held: Held) {
        if let Some(until) = held.until()
            && self.listed.is_none_or(|listed| until < listed)
        {
            if let Some(listed) = self.listed.replace(until) {
                lapses.remove(&(listed, key));
            }
            lapses.insert((until, key));
        }
    }

    /// Lists it anew: where it was is in the past.
    fn relist(&mut self, lapses: &mut BTreeSet<(Time, Fingerprint)>, key: Fingerprint) {
        if let Some(listed) = self.listed.take() {
            lapses.remove(&(listed, key));
        }
        self.listed = self.leases.lapses_at();
        lapses.extend(self.listed.map(|at| (at, key)));
    }
}

impl<'a> Desk<'a> {
    #[inline]
    pub(super) fn new(
        book: Guard<'a, Book>,
        common: &'a Common,
        now: Option<Time>,
        by: Option<&'a Arc<View>>,
    ) -> Desk<'a> {
        let mut book = book;
        book.is_shared |= by.is_some();
        Desk { book, common, now: Cell::new(now), after: After::default(), by }
    }

    /// The numbers that hold for a key. What is not known is asked about by whoever has opened the book.
    #[inline]
    fn rule_of(&self, key: Fingerprint) -> Concurrency {
        if !self.book.is_shared {
            return self.book.rule;
        }
        let of = self.book.keys.get(&key).and_then(|known| known.of.as_ref());
        of.or(self.by).map_or(self.book.rule, |of| of.rule)
    }

    /// A semaphore asks about a key: its numbers hold from now on, also for those who wait.
    #[inline]
    fn meet(&mut self, key: Fingerprint) {
        if let Some(by) = self.by {
            self.meet_by(key, by);
        }
    }

    fn meet_by(&mut self, key: Fingerprint, by: &Arc<View>) {
        let Some(known) = self.book.keys.get_mut(&key) else { return };
        if known.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, by)) {
            return;
        }
        known.of = Some(Arc::clone(by));
        if known.has_line() {
            self.line_goes_on(key);
        }
    }

    /// Closes the book. What is left to do, if anything is.
    #[inline]
    pub(super) fn close(self) -> Option<After> {
        let Desk { mut book, mut after, .. } = self;
        if let Some((next, _)) = book.due.first().copied()
            && book.rings_at.last().is_none_or(|rings_at| next < *rings_at)
        {
            book.rings_at.push(next);
            after.ring_at = Some(next);
        }
        drop(book);
        let After { wake, drop, lapsed, ring_at } = &after;
        let is_nothing = wake.is_empty() && drop.is_none() && lapsed.is_empty() && ring_at.is_none();
        (!is_nothing).then_some(after)
    }

    /// The time, if anything depends on it; else any will do.
    #[inline]
    fn now(&self) -> Time {
        if self.now.get().is_none() && !self.book.needs_time() { Time::EPOCH } else { self.clock_now() }
    }

    /// The time in any case.
    fn clock_now(&self) -> Time {
        let now = self.now.get().unwrap_or_else(|| self.common.clock.now());
        self.now.set(Some(now));
        now
    }

    /// The answer to somebody for whom there was none.
    pub(super) fn deny(&mut self, key: Fingerprint, cost: u32) -> Decision {
        self.book.counts.denied += 1;
        self.peek(key, cost)
    }

    /// A lease; if there is none, nothing is counted, and nothing reckoned that nobody may want to know.
    #[inline]
    pub(super) fn take(&mut self, key: Fingerprint, cost: u32) -> Taken {
        let now = self.now();
        self.lapse(key, now);
        self.meet(key);
        if cost == 0 {
            self.book.counts.allowed += 1;
            return Taken::Allowed(self.peek(key, cost), None);
        }
        let rule = self.rule_of(key);
        let Book { keys, room, .. } = &mut *self.book;
        let has_room = match keys.get(&key) {
            Some(known) => !known.has_line() && rule.fits(&known.leases, cost),
            None => cost <= rule.count(),
        };
        if !has_room {
            return Taken::Denied;
        }
        if *room == 0 {
            let Some(more) = self.common.room.take() else { return Taken::Full };
            self.book.room = more;
        } else {
            *room -= 1;
        }
        let (decision, given) = self.book.give(key, cost, now, self.by);
        self.sweep(now, SWEPT);
        Taken::Allowed(decision, given)
    }

    /// A lease, a place in line, or why neither. `None` if the semaphore holds as many leases as it may.
    pub(super) fn join(&mut self, waiter: &Waiter, waker: &mut Option<Waker>) -> Option<Joined> {
        let Waiter { key, cost, until, priority } = *waiter;
        let now = self.clock_now();
        if until.is_none_or(|until| now <= until) {
            match self.take(key, cost) {
                Taken::Allowed(decision, given) => {
                    return Some(Joined::Done(Outcome::Allowed { decision, given, at: now }));
                }
                Taken::Full => return None,
                Taken::Denied if cost > self.rule_of(key).count() => {
                    return Some(self.refused(Refusal::Never, key, cost));
                }
                Taken::Denied => {}
            }
        }
        if until.is_some_and(|until| until <= now) {
            return Some(self.refused(Refusal::TooLong, key, cost));
        }
        let bounds = self.common.bounds;
        let in_line = self.book.keys.get(&key).and_then(|known| known.line.as_ref());
        if in_line.map_or(0, |line| line.waiting.len()) >= bounds.under_a_key {
            return Some(self.refused(Refusal::LineFull, key, cost));
        }
        if self.book.room == 0 {
            self.book.room = self.common.room.take()? + 1;
        }
        if self.common.waiting.fetch_add(1, Ordering::Relaxed) >= bounds.in_all {
            self.common.waiting.fetch_sub(1, Ordering::Relaxed);
            return Some(self.refused(Refusal::LineFull, key, cost));
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
        due.extend(until.map(|until| (until, Due::Deadline(seat))));
        let is_head = line.waiting.first_key_value().is_some_and(|(head, _)| *head == place);
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

    #[inline]
    pub(super) fn release(&mut self, name: Name) -> bool {
        let Some(Out { key, .. }) = self.find(name) else { return false };
        let now = self.now();
        // What has lapsed under its key, itself perhaps, goes first.
        self.lapse(key, now);
        let Some(Out { held, .. }) = self.find(name) else { return false };
        let Book { keys, leases, lapses, counts, .. } = &mut *self.book;
        leases.remove(name.place);
        let Entry::Occupied(mut entry) = keys.entry(key) else { return false };
        let known = entry.get_mut();
        let was_live = known.leases.release(now, held);
        known.tell(View::one_less_out);
        counts.released += 1;
        let has_line = known.has_line();
        if !has_line && known.leases.is_empty() {
            if let Some(listed) = known.listed {
                lapses.remove(&(listed, key));
            }
            entry.remove();
        }
        self.one_back();
        if has_line {
            self.line_goes_on(key);
        }
        was_live
    }

    pub(super) fn renew(&mut self, name: Name) -> Option<Held> {
        let now = self.now();
        let key = self.find(name)?.key;
        // What has lapsed under its key, itself perhaps, goes first.
        self.lapse(key, now);
        self.meet(key);
        let out = self.find(name)?;
        let rule = self.rule_of(key);
        let Book { keys, leases, lapses, counts, .. } = &mut *self.book;
        let known = keys.get_mut(&key)?;
        let held = rule.renew(&mut known.leases, now, out.held)?;
        if let Some(out) = leases.get_mut(name.place) {
            out.held = held;
        }
        known.list(lapses, key, held);
        counts.renewed += 1;
        if known.has_line() {
            self.line_goes_on(key);
        }
        Some(held)
    }

    pub(super) fn peek(&mut self, key: Fingerprint, cost: u32) -> Decision {
        let now = self.now();
        self.lapse(key, now);
        self.meet(key);
        let rule = self.rule_of(key);
        let Book { keys, .. } = &mut *self.book;
        let known = keys.get_mut(&key);
        match known {
            Some(known) if cost > 0 && known.has_line() => {
                let waiting = known.line.as_ref().map_or(0, |line| line.cost);
                rule.denial_behind(&mut known.leases, now, cost, waiting)
            }
            known => peek(rule, known, now, cost),
        }
    }

    pub(super) fn reset(&mut self, key: Fingerprint) {
        let Book { keys, leases, lapses, .. } = &mut *self.book;
        let Some(known) = keys.get_mut(&key) else { return };
        let mut back = 0;
        for place in known.leases.reset() {
            leases.remove(place);
            known.tell(View::one_less_out);
            back += 1;
        }
        known.relist(lapses, key);
        (0..back).for_each(|_| self.one_back());
        self.line_goes_on(key);
    }

    pub(super) fn change(&mut self, rule: Concurrency) {
        self.book.rule = rule;
        let waiting = |seat: &mut Seat| match seat {
            Seat::Waiting { waiter, .. } => Some(waiter.key),
            Seat::Told(_) => None,
        };
        let keys: BTreeSet<Fingerprint> = self.book.seats.iter_mut().filter_map(waiting).collect();
        for key in keys {
            let line = self.book.keys.get(&key).and_then(|known| known.line.as_ref());
            let places = line.into_iter().flat_map(|line| &line.waiting);
            // What no wait helps any more, wherever in line it is.
            let never: Vec<u32> =
                places.filter(|(_, (_, cost))| *cost > rule.count()).map(|(_, (seat, _))| *seat).collect();
            let now = self.now();
            for seat in never {
                self.refuse(seat, Refusal::Never, now);
            }
            self.line_goes_on(key);
        }
    }

    /// Room for a lease, if there is any here: what was taken and is not used, or has lapsed.
    ///
    /// # Errors
    /// When there is none: when the next lease lapses, if any does.
    pub(super) fn make_room(&mut self) -> Result<(), Option<Time>> {
        let now = self.now();
        self.sweep(now, SWEPT_FOR_ROOM);
        if self.common.room.collect(&mut self.book.room) {
            return Ok(());
        }
        Err(self.book.lapses.first().map(|(at, _)| *at))
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.book.forget_alarm(at);
        self.call_due();
    }

    /// A lease by its name, if it is the one that is there.
    #[inline]
    fn find(&self, name: Name) -> Option<Out> {
        self.book.leases.get(name.place).copied().filter(|out| out.nonce == name.nonce)
    }

    /// Somebody asks about a key.
    pub(super) fn see(&mut self, key: Fingerprint) {
        let now = self.now();
        self.lapse(key, now);
    }

    /// Takes out what has lapsed under a key.
    #[inline]
    fn lapse(&mut self, key: Fingerprint, now: Time) {
        if self.book.lapses.first().is_some_and(|(soonest, _)| *soonest <= now) {
            self.lapse_all(key, now);
        }
    }

    fn lapse_all(&mut self, key: Fingerprint, now: Time) {
        if self.drain(key, now) {
            self.line_goes_on(key);
        }
    }

    /// Takes out what has lapsed under a key, and whether that was anything. The core would leave it out too, but only here is it known
    /// where each lease is: so this comes before the core is asked about a key.
    fn drain(&mut self, key: Fingerprint, now: Time) -> bool {
        let listed = self.book.keys.get(&key).and_then(|known| known.listed);
        if listed.is_none_or(|listed| listed > now) {
            return false;
        }
        let mut any = false;
        while let Some((place, cost)) = self.book.keys.get_mut(&key).and_then(|known| known.leases.lapse(now))
        {
            any = true;
            self.book.leases.remove(place);
            if let Some(known) = self.book.keys.get(&key) {
                known.tell(View::one_less_out);
                known.tell(View::one_lapsed);
            }
            self.one_lapsed(cost);
            self.one_back();
        }
        let Book { keys, lapses, .. } = &mut *self.book;
        if let Some(known) = keys.get_mut(&key) {
            known.relist(lapses, key);
        }
        any
    }

    /// Lets a few lapse whose time has come, under whichever key.
    #[inline]
    fn sweep(&mut self, now: Time, most: usize) {
        for _ in 0..most {
            let Some((_, key)) = self.book.lapses.first().copied().filter(|(at, _)| *at <= now) else {
                return;
            };
            self.lapse_all(key, now);
        }
    }

    fn one_lapsed(&mut self, cost: u32) {
        self.book.counts.lapsed += 1;
        if self.common.observer.is_some() {
            self.after.lapsed.push(cost);
        }
    }

    /// There is room for one lease more.
    #[inline]
    fn one_back(&mut self) {
        self.book.room += 1;
        self.common.room.trim(&mut self.book.room);
    }

    /// Something about a key has changed: whoever waits there may have its turn, or nobody is left.
    fn line_goes_on(&mut self, key: Fingerprint) {
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
        while let Some(first) = self.book.due.first().copied().filter(|(at, _)| *at <= now) {
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
                    if let Some(key) = self.refuse(seat, Refusal::TooLong, now) {
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
            let Some((_, &(seat, cost))) = line.waiting.first_key_value() else { return };
            let is_late = match seats.get(seat) {
                Some(Seat::Waiting { waiter, .. }) => waiter.until.is_some_and(|until| until < now),
                _ => false,
            };
            if is_late {
                // The machine slept, or the clock was set.
                self.refuse(seat, Refusal::TooLong, now);
                continue;
            }
            if rule.fits(&known.leases, cost) {
                self.give_to(seat, key, cost, now);
                continue;
            }
            if known.leases.lapses_at().is_none() && cost <= rule.count() {
                // Nobody knows when one is returned.
                return;
            }
            match rule.peek(&mut known.leases, now, cost).retry_after() {
                None => self.give_to(seat, key, cost, now),
                Some(RetryAfter::Never) => {
                    self.refuse(seat, Refusal::Never, now);
                }
                Some(RetryAfter::After(wait)) => {
                    if wait < UNKNOWN
                        && let Some(line) = &mut known.line
                    {
                        let turn = now.after(wait);
                        line.turn = Some(turn);
                        self.book.due.insert((turn, Due::Turn(key)));
                    }
                    return;
                }
            }
        }
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
    fn refuse(&mut self, seat: u32, refusal: Refusal, now: Time) -> Option<Fingerprint> {
        let Some(Seat::Waiting { waiter, place, .. }) = self.book.seats.get(seat) else { return None };
        let (waiter, place) = (*waiter, *place);
        self.out_of_line(seat, &waiter, place);
        self.one_back();
        self.drain(waiter.key, now);
        self.book.counts.denied += 1;
        let rule = self.rule_of(waiter.key);
        let known = self.book.keys.get_mut(&waiter.key);
        let decision = peek(rule, known, now, waiter.cost);
        let decision = match refusal {
            Refusal::Never => decision.denied_for_ever(),
            _ => denial_of(decision),
        };
        self.tell(seat, Outcome::Refused { refusal, decision, at: now });
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

    fn refused(&mut self, refusal: Refusal, key: Fingerprint, cost: u32) -> Joined {
        let decision = denial_of(self.deny(key, cost));
        Joined::Done(Outcome::Refused { refusal, decision, at: self.clock_now() })
    }

    fn forget_turn(&mut self, key: Fingerprint) {
        let Book { keys, due, .. } = &mut *self.book;
        let turn = keys.get_mut(&key).and_then(|known| known.line.as_mut()).and_then(|line| line.turn.take());
        if let Some(turn) = turn {
            due.remove(&(turn, Due::Turn(key)));
        }
    }

    fn forget_if_unused(&mut self, key: Fingerprint) {
        let Book { keys, lapses, .. } = &mut *self.book;
        if let Entry::Occupied(entry) = keys.entry(key)
            && entry.get().leases.is_empty()
            && !entry.get().has_line()
        {
            if let Some(listed) = entry.get().listed {
                lapses.remove(&(listed, key));
            }
            entry.remove();
        }
    }
}

/// How a key stands that may not be known.
fn peek(rule: Concurrency, known: Option<&mut KeyLeases>, now: Time, cost: u32) -> Decision {
    match known {
        Some(known) => rule.peek(&mut known.leases, now, cost),
        None => rule.peek(&mut Leases::<u32>::default(), now, cost),
    }
}

/// The same for somebody who is refused though there may be room: not at once.
fn denial_of(decision: Decision) -> Decision {
    const TICK: sluicegate_core::Span = sluicegate_core::Span::from_micros(1);
    if decision.allowed() { decision.denied_for(TICK) } else { decision }
}
