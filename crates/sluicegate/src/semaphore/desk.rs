//! What is done to the keys of a shard under its lock: leases are given, renewed, returned and lapse. `line.rs` is those who wait.
//!
//! A [`Desk`] is the book, open at one moment. The clock is asked only if something here depends on it.

use super::book::{Book, KeyLeases, Lapses, Out, Seat};
use super::lease::Name;
use super::scope::View;
use super::shard::{After, Common, Taken};
use crate::key::Fingerprint;
use crate::sync::Guard;
use sluicegate_core::concurrency::{Concurrency, Held, Leases};
use sluicegate_core::{Decision, Time};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;

/// With every new lease so many are let lapse under keys that nobody asks about any more: faster than they come, so that what nobody returns
/// does not pile up, and without a pause, however many lapse together.
const SWEPT: usize = 2;

/// When there is no room so many are let lapse at once.
const SWEPT_FOR_ROOM: usize = 64;
/// The book, open.
pub(super) struct Desk<'a> {
    pub(super) book: Guard<'a, Book>,
    pub(super) common: &'a Common,
    /// `None` until it is asked for.
    pub(super) now: Cell<Option<Time>>,
    pub(super) after: After,
    /// Where several semaphores share a room: which one asks, about one key.
    pub(super) by: Option<&'a Arc<View>>,
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
    pub(super) fn rule_of(&self, key: Fingerprint) -> Concurrency {
        if !self.book.is_shared {
            return self.book.rule;
        }
        let of = self.book.keys.get(&key).and_then(|known| known.of.as_ref());
        of.or(self.by).map_or(self.book.rule, |of| of.rule)
    }

    /// A semaphore asks about a key: its numbers hold from now on, also for those who wait.
    #[inline]
    pub(super) fn meet(&mut self, key: Fingerprint) {
        if let Some(by) = self.by {
            self.meet_by(key, by);
        }
    }

    fn meet_by(&mut self, key: Fingerprint, by: &Arc<View>) {
        let Some(known) = self.book.keys.get_mut(&key) else { return };
        if known.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, by)) {
            return;
        }
        let waiting = known.line.as_ref().map_or(0, |line| line.waiting.len());
        by.takes_over(known.of.as_deref(), known.leases.len(), waiting);
        known.of = Some(Arc::clone(by));
        if known.has_line() {
            self.line_has_new_numbers(key);
        }
    }

    /// Closes the book. What is left to do, if anything is.
    #[inline]
    pub(super) fn close(self) -> Option<After> {
        let Desk { mut book, mut after, .. } = self;
        let next = book.due.first().map(|((time, _), ())| *time);
        after.ring_at = book.alarms.arm(next);
        drop(book);
        let After { wake, drop, expired, ring_at } = &after;
        let is_nothing = wake.is_empty() && drop.is_none() && expired.is_empty() && ring_at.is_none();
        (!is_nothing).then_some(after)
    }

    /// The time, if anything depends on it; else any will do.
    #[inline]
    pub(super) fn now(&self) -> Time {
        if self.now.get().is_none() && !self.book.needs_time() { Time::EPOCH } else { self.clock_now() }
    }

    /// The time in any case.
    pub(super) fn clock_now(&self) -> Time {
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
            let Some(more) = self.common.capacity.take() else { return Taken::Full };
            self.book.room = more;
        } else {
            *room -= 1;
        }
        let (decision, given) = self.book.give(key, cost, now, self.by);
        self.sweep(now, SWEPT);
        Taken::Allowed(decision, given)
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
        forget_if_unused(entry, lapses);
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
        self.meet(key);
        self.line_goes_on(key);
    }

    pub(super) fn change(&mut self, rule: Concurrency) {
        self.book.rule = rule;
        let waiting = |(_, seat): (u32, &mut Seat)| match seat {
            Seat::Waiting { waiter, .. } => Some(waiter.key),
            Seat::Told(_) => None,
        };
        let keys: BTreeSet<Fingerprint> = self.book.seats.iter_mut().filter_map(waiting).collect();
        for key in keys {
            self.line_has_new_numbers(key);
        }
    }

    /// Room for a lease, if there is any here: what was taken and is not used, or has lapsed.
    ///
    /// # Errors
    /// When there is none: when the next lease lapses, if any does.
    pub(super) fn make_room(&mut self) -> Result<(), Option<Time>> {
        let now = self.now();
        self.sweep(now, SWEPT_FOR_ROOM);
        if self.common.capacity.collect(&mut self.book.room) {
            return Ok(());
        }
        Err(self.book.lapses.first().map(|((at, _), ())| *at))
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
        self.meet(key);
    }

    /// Takes out what has lapsed under a key.
    #[inline]
    pub(super) fn lapse(&mut self, key: Fingerprint, now: Time) {
        if self.book.lapses.first().is_some_and(|((soonest, _), ())| *soonest <= now) {
            self.lapse_all(key, now);
        }
    }

    fn lapse_all(&mut self, key: Fingerprint, now: Time) {
        if self.drain(key, now) > 0 {
            self.line_goes_on(key);
        }
    }

    /// Takes out all that has lapsed under a key, and how many that were. The core would leave it out too, but only here is it known
    /// where each lease is: so this comes before the core is asked about a key.
    pub(super) fn drain(&mut self, key: Fingerprint, now: Time) -> usize {
        self.drain_some(key, now, usize::MAX)
    }

    /// The same for so many of them at the most. While some are left the key stays listed.
    fn drain_some(&mut self, key: Fingerprint, now: Time, most: usize) -> usize {
        let listed = self.book.keys.get(&key).and_then(|known| known.listed);
        if listed.is_none_or(|listed| listed > now) {
            return 0;
        }
        let mut drained = 0;
        while drained < most
            && let Some((place, cost)) =
                self.book.keys.get_mut(&key).and_then(|known| known.leases.lapse(now))
        {
            drained += 1;
            self.book.leases.remove(place);
            if let Some(known) = self.book.keys.get(&key) {
                known.tell(View::one_less_out);
                known.tell(View::one_expired);
            }
            self.one_expired(cost);
            self.one_back();
        }
        let Book { keys, lapses, .. } = &mut *self.book;
        if let Some(known) = keys.get_mut(&key) {
            known.relist(lapses, key);
        }
        drained
    }

    /// Lets a few lapse whose time has come, under whichever key.
    #[inline]
    fn sweep(&mut self, now: Time, most: usize) {
        let mut left = most;
        while left > 0
            && let Some((_, key)) =
                self.book.lapses.first().map(|(first, ())| *first).filter(|(at, _)| *at <= now)
        {
            left -= self.drain_some(key, now, left).clamp(1, left);
            let is_drained =
                self.book.keys.get(&key).is_none_or(|known| known.listed.is_none_or(|at| at > now));
            if is_drained {
                // (Else whoever waits there has its turn when the clock rings for it.)
                self.line_goes_on(key);
            }
        }
    }

    fn one_expired(&mut self, cost: u32) {
        self.book.counts.expired += 1;
        if self.common.observer.is_some() {
            self.after.expired.push(cost);
        }
    }

    /// There is room for one lease more.
    #[inline]
    pub(super) fn one_back(&mut self) {
        self.book.room += 1;
        self.common.capacity.trim(&mut self.book.room);
    }

    pub(super) fn forget_if_unused(&mut self, key: Fingerprint) {
        let Book { keys, lapses, .. } = &mut *self.book;
        if let Entry::Occupied(entry) = keys.entry(key) {
            forget_if_unused(entry, lapses);
        }
    }
}

/// Forgets a key with no lease and nobody who waits.
#[inline]
fn forget_if_unused(entry: OccupiedEntry<'_, Fingerprint, KeyLeases>, lapses: &mut Lapses) {
    let known = entry.get();
    if known.leases.is_empty() && !known.has_line() {
        if let Some(listed) = known.listed {
            lapses.remove(&(listed, *entry.key()));
        }
        entry.remove();
    }
}

/// How a key stands that may not be known.
pub(super) fn peek(rule: Concurrency, known: Option<&mut KeyLeases>, now: Time, cost: u32) -> Decision {
    match known {
        Some(known) => rule.peek(&mut known.leases, now, cost),
        None => rule.peek(&mut Leases::<u32>::default(), now, cost),
    }
}
