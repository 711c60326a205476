//! The limits of a store that many limiters share: each has a number, which is the tag of the states that it writes.
//!
//! A limit is entered when a limiter first brings it, and stays while a limiter or a key's state needs it. When all numbers
//! are taken, those that nobody needs are found by looking through the whole store, and given out again.

use super::mixed::{Mixed, Several};
use super::rules::Rulings;
use super::{Locked, Store, Vacant};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Algorithm as _, AnyLimit, Time};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// How many different lists of limits a store knows at once: all that a tag can name. Each takes 32 bytes, which are taken when
/// the store is made.
pub(crate) const LIMITS_MAX: u16 = if cfg!(loom) { 4 } else { 65_535 };

/// Limits by their tags.
pub(crate) struct Book {
    entries: Box<[OnceLock<Entry>]>,
}

/// What is known of a tag.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) limits: Arc<[AnyLimit]>,
    pub(crate) rereads: Rereads,
}

/// What a key keeps when other limits are to judge it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Rereads {
    /// What it has used: a bucket its tokens, a window or log its count.
    #[default]
    Used,
    /// The time until it is as good as new, as redis-cell does. For buckets.
    Time,
}

impl Book {
    pub(crate) fn new() -> Book {
        Book { entries: (0..LIMITS_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// The same book without the entries that are not to stay.
    pub(super) fn with_only(&self, stays: impl Fn(u16) -> bool) -> Book {
        let kept = |(tag, entry): (u16, &OnceLock<Entry>)| match entry.get() {
            Some(entry) if stays(tag) => OnceLock::from(entry.clone()),
            _ => OnceLock::new(),
        };
        Book { entries: (0..).zip(&self.entries).map(kept).collect() }
    }

    /// Enters limits under a tag that is free.
    fn enter(&self, tag: u16, entry: Entry) {
        if let Some(free) = self.entries.get(usize::from(tag)) {
            let _ = free.set(entry);
        }
    }

    #[inline]
    fn entry(&self, tag: u16) -> Option<&Entry> {
        self.entries.get(usize::from(tag))?.get()
    }
}

impl Store<Mixed> {
    /// Enters limits under a tag that is free.
    pub(crate) fn enter(&self, tag: u16, entry: Entry) {
        let current = self.current.lock();
        debug_assert!(current.entry(tag).is_none(), "the tag is free");
        current.enter(tag, entry);
    }

    /// Forgets the limits that nobody needs: not among the tags held, of no key that has not recovered, and of no receipt.
    /// Says which stay. Meanwhile nobody may enter limits, or ask by others than those held.
    pub(crate) fn keep_limits(&self, held: &[u16], now: Time) -> HashSet<u16> {
        let mut stays: HashSet<u16> = held.iter().copied().collect();
        let mut current = self.current.lock();
        for place in 0..self.shards.len() {
            self.lock(place).tags_in_use(&mut stays, now, &self.vacant);
        }
        let book = Arc::new(current.with_only(|tag| stays.contains(&tag)));
        for place in 0..self.shards.len() {
            self.lock(place).guarded.rules = Arc::clone(&book);
        }
        *current = book;
        stays
    }
}

impl Locked<'_, Mixed> {
    /// Adds the tags that keys and receipts here need. Keys that have recovered are let go.
    fn tags_in_use(&mut self, stays: &mut HashSet<u16>, now: Time, vacant: &Vacant) {
        self.sweep_receipts(now, vacant);
        for slot in self.table.held() {
            if self.debt(slot, now).is_some() {
                stays.insert(self.table.slot(slot).tag());
            } else {
                self.clear(slot);
                vacant.keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(ledger) = &self.guarded.ledger {
            stays.extend(ledger.tags());
        }
    }
}

impl Rulings<Mixed> for Book {
    #[inline]
    fn tag_for(&self, key: Fingerprint) -> u16 {
        key.tag()
    }

    #[inline]
    fn limits(&self, tag: u16) -> &[AnyLimit] {
        // There is one: a limiter holds its tag for as long as it can ask.
        self.entry(tag).map_or(&[], |entry| &entry.limits)
    }

    fn any(&self, tag: u16) -> Arc<[AnyLimit]> {
        self.entry(tag).map_or_else(|| Arc::from([]), |entry| Arc::clone(&entry.limits))
    }

    #[inline]
    fn is_old(&self, _tag: u16) -> bool {
        false
    }

    fn adopt(&self, state: &mut Several, from: u16, to: u16, times: Times) {
        let (Some(old), Some(new)) = (self.entry(from), self.entry(to)) else { return };
        for ((limit, old), state) in new.limits.iter().zip(&*old.limits).zip(state.fit(old.limits.len())) {
            match new.rereads {
                Rereads::Used => limit.adopt(old, state, times),
                Rereads::Time => limit.adopt_recovery_time(old, state),
            }
        }
        // A state for each limit; those of a longer list start afresh.
        state.fit(new.limits.len());
    }
}
