//! The tags of a store: which limits have one, and which give theirs up when tags run short.
//!
//! ```text
//! Trusted    Limits of rules keep their tag while a limiter holds it or a key or receipt needs it.
//! Untrusted  Limits that callers make up have three quarters of the tags. When seven eighths of
//!            these are in use, a pass over the store frees some: first those that nothing needs,
//!            then those whose keys have the least debt. Their keys and receipts go with them.
//! Steps      A pass visits all shards twice: to survey what the keys of each tag have used, and to
//!            remove the keys of the chosen tags. Each new limit takes one step of a few shards,
//!            so that no call waits for the whole pass, and the pass ends before tags run out.
//! Trust      A flood of made-up limits evicts made-up limits only.
//! Deny       Under `OnFull::Deny` no debt is lost: only tags that nothing needs are freed, and
//!            further untrusted limits are rejected.
//! ```

use crate::limit::Limit;
use crate::limiter::BuildError;
use crate::store::{AnySlot, LIMITS_MAX, LimitTable, OnFull, PoolStats, Preserve, Store, TagDebt};
use sluicegate_core::{Span, Time};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

/// Limits from untrusted callers leave a quarter of the tags to others.
const UNTRUSTED_LIMITS_MAX: u16 = LIMITS_MAX / 4 * 3;

/// A pass starts when untrusted limits leave fewer tags than this.
const SHORT_OF: u16 = UNTRUSTED_LIMITS_MAX / 8;

/// A pass ends within this many new limits. (More than zero under the model checker.)
const STEPS_PER_PASS: usize = SHORT_OF as usize / 3 + 1;

/// How many tags a pass frees: more than are taken meanwhile, so that passes keep up.
const FREED_PER_PASS: usize = 2 * STEPS_PER_PASS;

/// The minimum time between two whole passes in one call, which take some 100 ms in a store of a
/// million keys. Only limits of rules start one, when no tag is left.
const WHOLE_PASS_INTERVAL: Span = Span::from_micros(1_000_000);

/// Limits of one share that decide alike have one tag.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct TagKey {
    pub(super) limits: Vec<Limit>,
    pub(super) preserve: Preserve,
    /// For limits that count from a start; the epoch for others.
    pub(super) start: Time,
    /// The id of the scope's share. Its keys are counted by tag.
    pub(super) share: u64,
    pub(super) untrusted: bool,
}

/// A tag that is in use.
pub(crate) struct Tag(pub(crate) u16);

/// The tags that are assigned to limits.
#[derive(Default)]
pub(super) struct Tags {
    /// The holders of tags. A tag that only this map holds is free once no key needs it.
    assigned: HashMap<TagKey, Arc<Tag>>,
    free: Vec<u16>,
    /// Tags from this one on were never assigned.
    next: u16,
    pass: Pass,
    /// The earliest time of the next whole pass in one call.
    whole_pass_at: Time,
    /// Limits that gave up their tag while keys or receipts needed it.
    evicted: u64,
    /// Limits for which there was no tag.
    rejected: u64,
}

/// A pass that frees tags.
#[derive(Default)]
struct Pass {
    phase: Phase,
    next_shard: usize,
    /// By tag. Allocated by the first pass.
    debts: Box<[TagDebt]>,
    /// By tag: whether it can be freed, as no limiter has held it since the pass began; later
    /// whether it is to be freed.
    chosen: Box<[bool]>,
    /// A table without entries, for the next pass.
    spare: Option<Arc<LimitTable>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Idle,
    Survey,
    Remove,
}

impl Tags {
    /// The tag that these limits have.
    pub(super) fn get(&mut self, key: &TagKey) -> Option<Arc<Tag>> {
        let tag = Arc::clone(self.assigned.get(key)?);
        // In use again, so it stays.
        if let Some(chosen) = self.pass.chosen.get_mut(usize::from(tag.0)) {
            *chosen = false;
        }
        Some(tag)
    }

    /// Takes a free tag.
    ///
    /// # Errors
    /// If all are in use.
    pub(super) fn take(
        &mut self,
        untrusted: bool,
        store: &Store<AnySlot>,
        now: Time,
    ) -> Result<u16, BuildError> {
        let most = usize::from(if untrusted { UNTRUSTED_LIMITS_MAX } else { LIMITS_MAX });
        let is_short = self.assigned.len() + usize::from(SHORT_OF) >= most;
        if untrusted && (is_short || self.pass.phase != Phase::Idle) {
            self.step(store, now);
        }
        if !untrusted && self.assigned.len() >= most {
            self.whole_pass(store, now);
        }
        if self.assigned.len() >= most {
            self.rejected += 1;
            return Err(BuildError::TooManyLimits { most });
        }
        // There is one, recycled or new: fewer tags are assigned than exist.
        Ok(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }

    pub(super) fn assign(&mut self, key: TagKey, tag: u16) -> Arc<Tag> {
        let tag = Arc::new(Tag(tag));
        self.assigned.insert(key, Arc::clone(&tag));
        tag
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            used: self.assigned.len(),
            max: LIMITS_MAX.into(),
            evicted: self.evicted,
            no_room: self.rejected,
        }
    }

    /// Ends the pass that has begun, or makes one.
    #[cold]
    fn whole_pass(&mut self, store: &Store<AnySlot>, now: Time) {
        // If the clock has stepped back, do not wait for longer than the interval.
        let is_due =
            now >= self.whole_pass_at || now.saturating_add(WHOLE_PASS_INTERVAL) < self.whole_pass_at;
        if !is_due {
            return;
        }
        let before = self.assigned.len();
        while self.step(store, now) {}
        // If many were freed the pass was worthwhile, and will be again once they are used up.
        let found_much = before - self.assigned.len() >= usize::from(LIMITS_MAX / 8);
        self.whole_pass_at = if found_much { now } else { now.saturating_add(WHOLE_PASS_INTERVAL) };
    }

    /// Makes the next step of a pass. Returns `false` if that was its last one.
    #[cold]
    fn step(&mut self, store: &Store<AnySlot>, now: Time) -> bool {
        let shards = store.shards();
        let Pass { phase, next_shard, debts, chosen, .. } = &mut self.pass;
        if *phase == Phase::Idle {
            (*phase, *next_shard) = (Phase::Survey, 0);
            if debts.is_empty() {
                *debts = vec![TagDebt::NONE; LIMITS_MAX.into()].into();
                *chosen = vec![false; LIMITS_MAX.into()].into();
            }
            debts.fill(TagDebt::NONE);
            chosen.fill(false);
            for tag in self.assigned.values().filter(|tag| Arc::strong_count(tag) == 1) {
                chosen[usize::from(tag.0)] = true;
            }
        }
        let end = shards.min(*next_shard + (2 * shards).div_ceil(STEPS_PER_PASS));
        for shard in *next_shard..end {
            match phase {
                Phase::Remove => store.remove_tags(shard, chosen),
                _ => store.survey_tags(shard, now, debts),
            }
        }
        *next_shard = end;
        if end < shards {
            return true;
        }
        *next_shard = 0;
        if *phase == Phase::Survey {
            *phase = Phase::Remove;
            self.choose(store.on_full());
            return true;
        }
        *phase = Phase::Idle;
        self.free(store);
        false
    }

    /// Chooses the tags to free: those that nothing needs, then, unless debts must not be lost,
    /// those of untrusted limits with the least debt.
    fn choose(&mut self, on_full: OnFull) {
        let Pass { debts, chosen, .. } = &mut self.pass;
        let mut candidates: Vec<(TagDebt, u16)> = Vec::new();
        for (key, tag) in &self.assigned {
            let index = usize::from(tag.0);
            let may_evict = key.untrusted && on_full == OnFull::Evict;
            if mem::take(&mut chosen[index]) && (may_evict || debts[index] == TagDebt::NONE) {
                candidates.push((debts[index], tag.0));
            }
        }
        let unneeded = candidates.iter().filter(|(debt, _)| *debt == TagDebt::NONE).count();
        let freed = candidates.len().min(unneeded.max(FREED_PER_PASS));
        if freed < candidates.len() {
            candidates.select_nth_unstable(freed);
        }
        for (debt, tag) in &candidates[..freed] {
            chosen[usize::from(*tag)] = true;
            self.evicted += u64::from(*debt != TagDebt::NONE);
        }
    }

    /// Frees the chosen tags, which no key or receipt needs any more.
    fn free(&mut self, store: &Store<AnySlot>) {
        let Pass { chosen, spare, .. } = &mut self.pass;
        store.free_limits(chosen, spare);
        let free = &mut self.free;
        self.assigned.retain(|_, tag| {
            let kept = !chosen[usize::from(tag.0)];
            if !kept {
                free.push(tag.0);
            }
            kept
        });
    }
}
