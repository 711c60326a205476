//! A shard: some 192 keys, their lock, and what can be done while it is held.

use super::ledger::Ledger;
use super::rules::Rulings as _;
use super::shape::{Kept, Shape, StateOf};
use super::table::{Strays, Table};
use super::{Full, NoMemory, Vacant};
use crate::key::Fingerprint;
use crate::sync::{Guard, Lock};
use sluicegate_core::algorithm::Charged;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Decision, Time};
use std::mem;
use std::sync::Arc;

/// A lock, and what it guards beside the shard's table.
#[repr(align(64))]
pub(super) struct Shard<S: Shape>(pub(super) Lock<GuardService<S>>);

/// What a check needs shares a cache line with the lock.
#[repr(C)]
pub(super) struct GuardService<S: Shape> {
    pub(super) rules: Arc<S::Rules>,
    /// The latest time that was seen here.
    pub(super) latest: Time,
    /// Nearly always there are no receipts.
    pub(super) ledger: Option<Box<Ledger>>,
    /// The homes of keys that may be in their other bucket.
    pub(super) strays: Strays,
    pub(super) counts: Counts,
    /// When somebody here may have recovered, at the earliest: before that nobody needs to look.
    pub(super) none_recovers_before: Time,
    pub(super) aside: S::Aside,
}

/// A shard whose lock is held. Its table is used through this only; as its words are atomics, the compiler does not check
/// that.
pub(super) struct Locked<'a, S: Shape> {
    pub(super) guarded: Guard<'a, GuardService<S>>,
    pub(super) table: Table<'a, S>,
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

impl<S: Shape> Shard<S> {
    pub(super) fn several(number: usize, rules: &Arc<S::Rules>) -> Result<Box<[Shard<S>]>, NoMemory> {
        let mut shards = Vec::new();
        shards.try_reserve_exact(number).map_err(|_| NoMemory)?;
        shards.extend((0..number).map(|_| Shard::new(rules)));
        Ok(shards.into_boxed_slice())
    }

    pub(super) fn new(rules: &Arc<S::Rules>) -> Shard<S> {
        Shard(Lock::new(GuardService {
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
    /// The short way of nearly every call: the key is up to date, its shard has no receipts, and it is allowed. Otherwise
    /// nothing is done.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    pub(super) fn try_charge(
        &mut self,
        slot: usize,
        key: Fingerprint,
        cost: u32,
        now: Time,
    ) -> Option<Charged> {
        let GuardService { rules, latest, ledger, counts, aside, .. } = &mut *self.guarded;
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
    pub(super) fn copy(&mut self, key: Fingerprint, now: Time) -> S::State {
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
    pub(super) fn on_slot<R>(
        &mut self,
        slot: usize,
        act: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let GuardService { rules, aside, .. } = &mut *self.guarded;
        let found = self.table.slot(slot);
        let limits = rules.limits(found.tag());
        let kept = Kept { words: found.state, aside, slot };
        S::update(kept, |state| act(limits, S::states(state, limits.len())))
    }

    /// The slot that holds the key.
    pub(super) fn find(&self, key: Fingerprint) -> Option<usize> {
        self.table.find(key, self.guarded.strays)
    }

    /// Writes a key into a slot that is free. Its state is the caller's to write.
    pub(super) fn put(&mut self, slot: usize, key: Fingerprint, tag: u16) {
        self.guarded.strays.note(slot, key);
        self.table.put(slot, key, tag);
    }

    /// The state of a slot.
    pub(super) fn kept(&mut self, slot: usize) -> Kept<'_, S> {
        Kept { words: self.table.slot(slot).state, aside: &mut self.guarded.aside, slot }
    }

    /// The answer to a call that found no room.
    pub(super) fn denial(&mut self, full: Full, key: Fingerprint) -> Decision {
        self.guarded.counts.no_room += 1;
        let rules = &self.guarded.rules;
        full.denial(rules.limits(rules.tag_for(key)))
    }

    /// Frees a slot.
    pub(super) fn clear(&mut self, slot: usize) {
        self.table.clear(slot);
        S::update(self.kept(slot), mem::take);
    }

    /// Whether a slot's state was written by limits that have changed since.
    #[inline]
    pub(super) fn is_old(&self, slot: usize) -> bool {
        self.guarded.rules.is_old(self.table.slot(slot).tag())
    }

    /// Lets the limits that are to judge the key read what others have left in its slot. Receipts of theirs are void, as
    /// they are written in other numbers.
    #[inline]
    pub(super) fn bring_up_to_date(&mut self, slot: usize, key: Fingerprint, now: Time, vacant: &Vacant) {
        self.guarded.latest = now.max(self.guarded.latest);
        let tag = self.guarded.rules.tag_for(key);
        if self.table.slot(slot).tag() != tag {
            Ledger::void(&mut self.guarded.ledger, key, &vacant.receipts);
            self.adopt(slot, tag, now);
        }
    }

    #[cold]
    pub(super) fn adopt(&mut self, slot: usize, tag: u16, now: Time) {
        let (times, from) = (Times { now, latest: self.guarded.latest }, self.table.slot(slot).tag());
        let rules = Arc::clone(&self.guarded.rules);
        S::update(self.kept(slot), |state| rules.adopt(state, from, tag, times));
        self.table.slot(slot).set_tag(tag);
        // Under other limits it may recover sooner.
        self.guarded.none_recovers_before = Time::EPOCH;
    }

    /// Brings all states to the last version there can be, and counts that as version 0.
    pub(super) fn start_versions_again(&mut self, last: u16) {
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
