//! The store in memory: keys and what they have used, in a table that cannot grow beyond its bound.
//!
//! ```text
//! fingerprint ──▶ one of many places, each behind a lock of its own ──▶ two of its 64 buckets ──▶ a slot
//! ```
//!
//! `table.rs` is one place's table and says why we have our own; `room.rs` chooses who makes room for a new key;
//! `shape.rs` says what a slot holds; `rules.rs` lets limits change under a running store, `book.rs` and `mixed.rs` let many
//! limiters share one; `reserve.rs` and
//! `ledger.rs` keep open receipts; `together.rs` locks several places at once for calls that are charged all or nothing; `turns.rs`
//! charges those who waited. This file finds the place.
//!
//! # How it is synchronised
//!
//! - A place is only looked at or changed under its lock, and a key has one place. So whatever is done to one key, or
//!   to one key under several limits, is atomic.
//! - A change of limits visits one place after another; `current` is held meanwhile, so that changes come one after
//!   another too. A key meets the new limits when its place has been visited.
//! - Several places are locked in the order of (store, place), and `current` is never taken while a place is locked.
//!   So there is no cycle, and no deadlock, in whatever order callers name their keys.
//!
//! # Where it lies in memory
//!
//! The locks, and what else every call needs, lie side by side, 128 bytes for 192 keys, so that those of a million keys can
//! stay in the caches. The tables, which cannot, are one piece: where to look follows from the fingerprint, with no
//! pointer to wait for.

mod book;
mod ledger;
mod mixed;
mod reserve;
mod room;
mod rules;
mod shape;
mod table;
mod together;
mod turns;

pub(crate) use book::{Book, Entry, LIMITS_MAX, Rereads};
pub(crate) use mixed::Mixed;
pub(crate) use reserve::{NotReserved, RECEIPTS_A_KEY_MAX};
pub use room::OnFull;
pub(crate) use rules::Rules;
pub(crate) use shape::{Lists, Logs, One, Shape};
pub(crate) use together::{AnyStore, Call, check_all, check_all_each};
pub(crate) use turns::{Called, NotTaken, Turns};

use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Guard, Lock, Ordering};
use ledger::Ledger;
use rules::Rulings as _;
use shape::{Kept, StateOf};
use sluicegate_core::algorithm::Charged;
use sluicegate_core::pile::Times;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::several::{check_list, check_within_list, peek_list, take_list};
use sluicegate_core::verbs::NotOffered;
use sluicegate_core::{Algorithm, AnyLimit, Decision, RetryAfter, Span, Time};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use table::{KEYS_A_PLACE, Strays, Table, Tables};

/// Keys of one limiter, or of several that share it.
pub(crate) struct Store<S: Shape> {
    /// Where this store stands in the order in which locks are taken.
    id: u64,
    /// A lock for each 192 keys.
    places: Box<[Place<S>]>,
    /// Their slots: a third more than `max_keys`, and 256 at the least.
    tables: Tables<S>,
    current: Lock<Arc<S::Rules>>,
    vacant: Vacant,
    max_keys: usize,
    on_full: OnFull,
    /// Where to look for forgotten receipts next.
    next_sweep: AtomicUsize,
}

/// What may still come. All places share it.
struct Vacant {
    /// How many more keys, without one making room.
    keys: AtomicUsize,
    /// How many more open receipts.
    receipts: AtomicUsize,
}

/// Takes one of what is left.
fn claim(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// A lock, and what it guards beside the place's table.
#[repr(align(64))]
struct Place<S: Shape>(Lock<Guarded<S>>);

/// What a check needs shares a cache line with the lock.
#[repr(C)]
struct Guarded<S: Shape> {
    rules: Arc<S::Rules>,
    /// The latest time that was seen here.
    latest: Time,
    /// Nearly always there are no receipts.
    ledger: Option<Box<Ledger>>,
    /// The homes of keys that may be in their other bucket.
    strays: Strays,
    counts: Counts,
    /// When somebody here may have recovered, at the earliest: before that nobody needs to look.
    none_recovers_before: Time,
    aside: S::Aside,
}

/// A place whose lock is held. Its table is used through this only; as its words are atomics, the compiler does not check
/// that.
struct Locked<'a, S: Shape> {
    guarded: Guard<'a, Guarded<S>>,
    table: Table<'a, S>,
}

/// What has been decided and done here.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Counts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) evicted: u64,
    pub(crate) no_room: u64,
}

/// There is not so much memory as the store would need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

/// The store has no room for a new key: how long until it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full(pub(crate) Span);

/// How a store is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) max_keys: usize,
    pub(crate) max_receipts: usize,
    pub(crate) on_full: OnFull,
}

impl<S: Shape> Store<S> {
    /// # Errors
    /// When there is not so much memory.
    pub(crate) fn new(rules: S::Rules, size: Size) -> Result<Store<S>, NoMemory> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let rules = Arc::new(rules);
        let places = size.max_keys.div_ceil(KEYS_A_PLACE);
        Ok(Store {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tables: Tables::new(places)?,
            places: Place::several(places, &rules)?,
            current: Lock::new(rules),
            vacant: Vacant {
                keys: AtomicUsize::new(size.max_keys),
                receipts: AtomicUsize::new(size.max_receipts),
            },
            max_keys: size.max_keys,
            on_full: size.on_full,
            next_sweep: AtomicUsize::new(0),
        })
    }

    /// May a call of this cost happen now? Here is only what nearly every call needs: nobody else has the lock, the key is
    /// in a favourite slot and up to date, its place has no receipts, and it is allowed. That calls nothing, so that all of it can
    /// stay in registers.
    #[inline(never)]
    pub(crate) fn check(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        let Some(mut place) = self.try_lock(self.place_of(key)) else {
            return self.lock_and_check(key, cost, now);
        };
        let Some(slot) = place.table.find_at_once(key) else {
            return self.find_and_check(place, key, cost, now);
        };
        match place.try_charge(slot, key, cost, now) {
            Some(charged) => charged.into(),
            None => self.check_slot(&mut place, slot, key, cost, now),
        }
    }

    #[cold]
    fn lock_and_check(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        self.find_and_check(self.lock(self.place_of(key)), key, cost, now)
    }

    #[inline(never)]
    fn find_and_check(&self, mut place: Locked<'_, S>, key: Fingerprint, cost: u32, now: Time) -> Decision {
        match place.find(key) {
            Some(slot) => self.check_slot(&mut place, slot, key, cost, now),
            None => self.check_new(&mut place, key, cost, now),
        }
    }

    /// The whole check of a key that is held: allowed, denied or free of cost.
    #[inline(never)]
    fn check_slot(
        &self,
        place: &mut Locked<'_, S>,
        slot: usize,
        key: Fingerprint,
        cost: u32,
        now: Time,
    ) -> Decision {
        if cost == 0 {
            // It changes nothing, not even the numbers that a state is written in.
            let decision = Self::look_in(place, key, now, |limits, states| peek_list(limits, states, now, 0));
            place.guarded.counts.decided(&decision);
            return decision;
        }
        place.bring_up_to_date(slot, key, now, &self.vacant);
        let Guarded { rules, ledger, counts, aside, .. } = &mut *place.guarded;
        let found = place.table.slot(slot);
        let kept = Kept { words: found.state, aside, slot };
        let decision = S::check_in_full(kept, rules.limits(found.tag()), now, cost);
        counts.decided(&decision);
        if let Some(ledger) = ledger
            && decision.allowed()
        {
            ledger.charged(key, now);
        }
        decision
    }

    #[cold]
    fn check_new(&self, place: &mut Locked<'_, S>, key: Fingerprint, cost: u32, now: Time) -> Decision {
        let checked = self.on_new(place, key, now, |limits, states, receipts| {
            let decision = check_list(limits, states, now, cost);
            if decision.allowed() && cost > 0 {
                receipts.charged(now);
            }
            decision
        });
        let decision = checked.unwrap_or_else(|full| place.denial(full, key));
        place.guarded.counts.decided(&decision);
        decision
    }

    /// Takes as much of `up_to` as remains, and says how much.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn take(
        &self,
        key: Fingerprint,
        now: Time,
        up_to: u32,
    ) -> Result<(Decision, u32), NotOffered> {
        let mut place = self.lock(self.place_of(key));
        let taken = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            let taken = take_list(limits, states, now, up_to)?;
            if taken.1 > 0 {
                receipts.charged(now);
            }
            Ok(taken)
        });
        let taken = taken.unwrap_or_else(|full| Ok((place.denial(full, key), 0)))?;
        place.guarded.counts.decided(&taken.0);
        Ok(taken)
    }

    /// Charges a key now, to act within the longest wait.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn check_within(
        &self,
        key: Fingerprint,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<Decision, NotOffered> {
        let mut place = self.lock(self.place_of(key));
        let decided = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            let decision = check_within_list(limits, states, now, cost, max_wait)?;
            if decision.allowed() && cost > 0 {
                receipts.charged(now);
            }
            Ok(decision)
        });
        let decision = decided.unwrap_or_else(|full| Ok(place.denial(full, key)))?;
        place.guarded.counts.decided(&decision);
        Ok(decision)
    }

    /// Looks at a key without changing it, so that a new one needs no room.
    pub(crate) fn look<R>(
        &self,
        key: Fingerprint,
        now: Time,
        look: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        Self::look_in(&mut self.lock(self.place_of(key)), key, now, look)
    }

    fn look_in<R>(
        place: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        look: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let rules = Arc::clone(&place.guarded.rules);
        let tag = rules.tag_for(key);
        if let Some(slot) = place.find(key)
            && place.table.slot(slot).tag() == tag
        {
            return place.on_slot(slot, look);
        }
        let limits = rules.limits(tag);
        look(limits, S::states(&mut place.copy(key, now), limits.len()))
    }

    /// Gives cost back: see [`Receipts::refund`]. A new key may need room (a bucket that is still filling is given
    /// something); without it nothing is given, and the answer is how the key stands.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn refund(&self, key: Fingerprint, now: Time, cost: u32) -> Result<Decision, NotOffered> {
        let refunded =
            self.on_key(key, now, |limits, states, receipts| receipts.refund(limits, states, now, cost));
        refunded.unwrap_or_else(|_full| {
            Ok(self.look(key, now, |limits, states| peek_list(limits, states, now, 0)))
        })
    }

    /// Does something with a key: the limits, its states and its receipts are handed in. A key that is not held is
    /// handed in as one that has never called, and is held afterwards if that changed.
    ///
    /// # Errors
    /// When the key is not held, has to be, and there is no room for another; then nothing was done.
    pub(crate) fn on_key<R>(&self, key: Fingerprint, now: Time, act: impl Act<S, R>) -> Result<R, Full> {
        self.on_key_in(&mut self.lock(self.place_of(key)), key, now, act)
    }

    fn on_key_in<R>(
        &self,
        place: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl Act<S, R>,
    ) -> Result<R, Full> {
        let Some(slot) = place.find(key) else { return self.on_new(place, key, now, act) };
        place.bring_up_to_date(slot, key, now, &self.vacant);
        let mut receipts = Ledger::take(&mut place.guarded.ledger, key, &self.vacant.receipts);
        let done = place.on_slot(slot, |limits, states| act(limits, states, &mut receipts));
        Ledger::put(&mut place.guarded.ledger, key, receipts);
        // What was given back may have made it recover sooner.
        place.guarded.none_recovers_before = Time::EPOCH;
        Ok(done)
    }

    /// The same for a key that is not held.
    fn on_new<R>(
        &self,
        place: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl Act<S, R>,
    ) -> Result<R, Full> {
        place.guarded.latest = now.max(place.guarded.latest);
        let mut receipts = Ledger::take(&mut place.guarded.ledger, key, &self.vacant.receipts);
        // Nearly always there are none: then there is nothing to copy.
        let before = (!receipts.is_empty()).then(|| receipts.clone());
        let mut state = S::State::default();
        let rules = &place.guarded.rules;
        let limits = rules.limits(rules.tag_for(key));
        let done = act(limits, S::states(&mut state, limits.len()), &mut receipts);
        let room = if S::is_unseen(&state) { None } else { Some(place.find_room(key, now, self, &[])) };
        if let Some(Err(full)) = room {
            Ledger::put(&mut place.guarded.ledger, key, before.unwrap_or_default());
            return Err(full);
        }
        if let Some(Ok(room)) = room {
            place.settle_in(&room, key, now, state, &self.vacant);
        }
        Ledger::put(&mut place.guarded.ledger, key, receipts);
        Ok(done)
    }

    /// Forgets a key. Its receipts are void.
    pub(crate) fn forget(&self, key: Fingerprint) {
        let mut place = self.lock(self.place_of(key));
        if let Some(slot) = place.find(key) {
            place.clear(slot);
            self.vacant.keys.fetch_add(1, Ordering::Relaxed);
        }
        Ledger::void(&mut place.guarded.ledger, key, &self.vacant.receipts);
    }

    pub(crate) fn holds(&self, key: Fingerprint) -> bool {
        self.lock(self.place_of(key)).find(key).is_some()
    }

    /// Reads what deciding on a key will read first. Of several keys all are touched before the first is decided on, so
    /// that their waits for memory overlap.
    #[inline]
    pub(crate) fn touch(&self, key: Fingerprint) {
        let place = self.place_of(key);
        std::hint::black_box((self.tables.of(place).touch(key), self.places[place].0.touch()));
    }

    /// How many keys are held, those that have recovered and not yet made room included.
    pub(crate) fn keys(&self) -> usize {
        self.max_keys - self.vacant.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Adds up what all places have counted. Each is locked for a moment, one after another.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for place in &self.places {
            let counts = place.0.lock().counts;
            sum.allowed += counts.allowed;
            sum.denied += counts.denied;
            sum.evicted += counts.evicted;
            sum.no_room += counts.no_room;
        }
        sum
    }

    #[inline]
    fn place_of(&self, key: Fingerprint) -> usize {
        // Below the number of places: the high half of a product with a number below 2^64.
        let scaled = (u128::from(key.high) * self.places.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    fn lock(&self, place: usize) -> Locked<'_, S> {
        Locked { table: self.tables.of(place), guarded: self.places[place].0.lock() }
    }

    /// Locks, if that needs no waiting.
    #[inline]
    fn try_lock(&self, place: usize) -> Option<Locked<'_, S>> {
        Some(Locked { table: self.tables.of(place), guarded: self.places[place].0.try_lock()? })
    }
}

/// A store of one limiter.
impl<S: Shape<Rules = Rules<<S as Shape>::Limit>>> Store<S> {
    /// Changes the limits: every key keeps what it has used, and meets them with its next call.
    pub(crate) fn change(&self, limits: Box<[S::Limit]>, any: Arc<[AnyLimit]>) {
        let mut current = self.current.lock();
        let rules = Arc::new(current.changed(limits, any));
        for place in 0..self.places.len() {
            let mut place = self.lock(place);
            if current.is_last() {
                place.start_versions_again(current.version());
            }
            let guarded = &mut place.guarded;
            guarded.rules = Arc::clone(&rules);
            guarded.none_recovers_before = Time::EPOCH;
            // What receipts hold is written in the old numbers.
            Ledger::void_all(&mut guarded.ledger, &self.vacant.receipts);
        }
        *current = rules;
    }
}

/// What can be done with a key.
pub(crate) trait Act<S: Shape, R>: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R {}

impl<S: Shape, R, F: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R> Act<S, R> for F {}

impl<S: Shape> Place<S> {
    fn several(number: usize, rules: &Arc<S::Rules>) -> Result<Box<[Place<S>]>, NoMemory> {
        let mut places = Vec::new();
        places.try_reserve_exact(number).map_err(|_| NoMemory)?;
        places.extend((0..number).map(|_| Place::new(rules)));
        Ok(places.into_boxed_slice())
    }

    fn new(rules: &Arc<S::Rules>) -> Place<S> {
        Place(Lock::new(Guarded {
            rules: Arc::clone(rules),
            latest: Time::EPOCH,
            ledger: None,
            strays: Strays::default(),
            counts: Counts::default(),
            none_recovers_before: Time::EPOCH,
            aside: S::Aside::default(),
        }))
    }
}

impl<S: Shape> Locked<'_, S> {
    /// The short way of nearly every call: the key is up to date, its place has no receipts, and it is allowed. Otherwise
    /// nothing is done.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&mut self, slot: usize, key: Fingerprint, cost: u32, now: Time) -> Option<Charged> {
        let Guarded { rules, latest, ledger, counts, aside, .. } = &mut *self.guarded;
        let found = self.table.slot(slot);
        let tag = rules.tag_for(key);
        if found.tag() == tag
            && ledger.is_none()
            && let Ok(charged) =
                S::try_charge(Kept { words: found.state, aside, slot }, rules.limits(tag), now, cost)
        {
            *latest = now.max(*latest);
            counts.allowed += 1;
            return Some(charged);
        }
        None
    }

    /// A copy of a key's state, as the limits that are to judge it read it. Only a call that is decided brings the state itself
    /// up to date.
    fn copy(&mut self, key: Fingerprint, now: Time) -> S::State {
        let Some(slot) = self.find(key) else { return S::State::default() };
        let mut copy = S::read(self.kept(slot), Clone::clone);
        let rules = &self.guarded.rules;
        let (from, tag) = (self.table.slot(slot).tag(), rules.tag_for(key));
        if from != tag {
            rules.adopt(&mut copy, from, tag, Times { now, latest: self.guarded.latest });
        }
        copy
    }

    /// Does something with the states of a slot, which must be up to date.
    #[inline]
    fn on_slot<R>(&mut self, slot: usize, act: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R) -> R {
        let Guarded { rules, aside, .. } = &mut *self.guarded;
        let found = self.table.slot(slot);
        let limits = rules.limits(found.tag());
        let kept = Kept { words: found.state, aside, slot };
        S::update(kept, |state| act(limits, S::states(state, limits.len())))
    }

    /// The slot that holds the key.
    fn find(&self, key: Fingerprint) -> Option<usize> {
        self.table.find(key, self.guarded.strays)
    }

    /// Writes a key into a slot that is free. Its state is the caller's to write.
    fn put(&mut self, slot: usize, key: Fingerprint, tag: u16) {
        self.guarded.strays.note(slot, key);
        self.table.put(slot, key, tag);
    }

    /// The state of a slot.
    fn kept(&mut self, slot: usize) -> Kept<'_, S> {
        Kept { words: self.table.slot(slot).state, aside: &mut self.guarded.aside, slot }
    }

    /// The answer to a call that found no room.
    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision {
        self.guarded.counts.no_room += 1;
        let rules = &self.guarded.rules;
        full.denial(rules.limits(rules.tag_for(key)))
    }

    /// Frees a slot.
    fn clear(&mut self, slot: usize) {
        self.table.clear(slot);
        S::update(self.kept(slot), mem::take);
    }

    /// Whether a slot's state was written by limits that have changed since.
    #[inline]
    fn is_old(&self, slot: usize) -> bool {
        self.guarded.rules.is_old(self.table.slot(slot).tag())
    }

    /// Lets the limits that are to judge the key read what others have left in its slot. Receipts of theirs are void, as
    /// they are written in other numbers.
    #[inline]
    fn bring_up_to_date(&mut self, slot: usize, key: Fingerprint, now: Time, vacant: &Vacant) {
        self.guarded.latest = now.max(self.guarded.latest);
        let tag = self.guarded.rules.tag_for(key);
        if self.table.slot(slot).tag() != tag {
            Ledger::void(&mut self.guarded.ledger, key, &vacant.receipts);
            self.adopt(slot, tag, now);
        }
    }

    #[cold]
    fn adopt(&mut self, slot: usize, tag: u16, now: Time) {
        let (times, from) = (Times { now, latest: self.guarded.latest }, self.table.slot(slot).tag());
        let rules = Arc::clone(&self.guarded.rules);
        S::update(self.kept(slot), |state| rules.adopt(state, from, tag, times));
        self.table.slot(slot).set_tag(tag);
        // Under other limits it may recover sooner.
        self.guarded.none_recovers_before = Time::EPOCH;
    }

    /// Brings all states to the last version there can be, and counts that as version 0.
    fn start_versions_again(&mut self, last: u16) {
        for slot in self.table.held() {
            self.adopt(slot, last, self.guarded.latest);
            self.table.slot(slot).set_tag(0);
        }
    }
}

impl Counts {
    #[inline]
    pub(crate) fn decided(&mut self, decision: &Decision) {
        if decision.allowed() {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
    }
}

impl Full {
    /// The answer to a call that found no room.
    fn denial<A: Algorithm>(self, limits: &[A]) -> Decision {
        let limit = limits.iter().map(Algorithm::limit).min().unwrap_or_default();
        let wait = match self.0 {
            // Nobody can make room: all of it is taken by the call's own other keys.
            Span::MAX => RetryAfter::Never,
            // Who is as good as new and yet not forgotten (a bucket that was still filling when it was given something
            // back) has no wait to tell, and none at all would have the caller come back at once and fail.
            Span::ZERO => RetryAfter::After(Span::from_micros(1_000_000)),
            wait => RetryAfter::After(wait),
        };
        Decision::no_room(limit, wait)
    }
}
