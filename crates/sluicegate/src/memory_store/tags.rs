//! The tags of a store: which limits have one, and which give theirs up when tags run short.
//!
//! ```text
//! Trusted    Limits of rules keep their tag while a limiter holds it. Then they can be retired:
//!            the shards of their keys keep them, and nothing about the keys changes.
//! Untrusted  Limits that callers make up have three quarters of the tags. When seven eighths of
//!            these are in use, a pass over the store frees some: first those that nothing needs
//!            and those that can be retired, then those whose keys have the least debt. Their keys
//!            and receipts go with them.
//! Steps      A pass takes many short steps. Each new untrusted limit makes one, and the pass ends
//!            before tags run out. A trusted limit that finds no tag makes steps until the pass
//!            ends, and lets others take tags in between. So no call waits for a whole pass.
//! Trust      A flood of made-up limits evicts made-up limits only.
//! Deny       Under `OnFull::Deny` no debt is lost: no untrusted limits that a key needs are freed,
//!            and further ones are rejected.
//! ```

use crate::limit::Limit;
use crate::limiter::BuildError;
use crate::store::{AnySlot, Fate, LIMITS_MAX, LimitTable, OnFull, PoolStats, Preserve, Store, TagDebt};
use sluicegate_core::{Span, Time};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Limits from untrusted callers leave a quarter of the tags to others.
const UNTRUSTED_LIMITS_MAX: u16 = LIMITS_MAX / 4 * 3;

/// A pass starts when untrusted limits leave fewer tags than this.
const SHORT_OF: u16 = UNTRUSTED_LIMITS_MAX / 8;

/// A pass ends within this many new limits.
const STEPS_PER_PASS: usize = SHORT_OF as usize / 3 + 1;

/// How many tags a pass frees: more than are taken meanwhile, so that passes keep up.
const FREED_PER_PASS: usize = 2 * STEPS_PER_PASS;

/// How many tags a step visits: about 0.1 ms.
const TAGS_PER_STEP: usize = 1_024;

/// In how many steps a phase visits all shards: three phases do, in the steps that the four phases
/// over tags leave. (One under the model checker.)
const STEPS_OVER_SHARDS: usize =
    if cfg!(loom) { 1 } else { (STEPS_PER_PASS - 4 * (LIMITS_MAX as usize).div_ceil(TAGS_PER_STEP)) / 3 };

/// The minimum time between two passes for limits of rules, unless they free many tags. A pass
/// takes some 100 ms in a store of a million keys.
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

/// A tag and the limits that it is assigned to. If only this holds the tag, no limiter has it.
struct Assigned {
    key: Arc<TagKey>,
    tag: Arc<Tag>,
}

/// The tags that are assigned to limits.
pub(super) struct Tags {
    assigned: HashMap<Arc<TagKey>, u16>,
    /// By tag. Tags beyond the last one were never assigned.
    by_tag: Vec<Option<Assigned>>,
    free: Vec<u16>,
    pass: Pass,
    /// The earliest time of the next pass for limits of rules.
    whole_pass_at: Time,
    /// Limits that gave up their tag together with keys or receipts.
    evicted: u64,
    /// Limits for which there was no tag.
    rejected: u64,
}

/// What the caller is to do for a tag.
pub(super) enum Taken {
    /// This tag is the caller's.
    Tag(u16),
    /// None is free yet: unlock the tags and try again.
    Later,
}

/// A pass that frees tags.
#[derive(Default)]
struct Pass {
    phase: Phase,
    /// The tag or shard that the phase visits next.
    next: usize,
    /// By tag. Allocated by the first pass.
    debts: Box<[TagDebt]>,
    /// By tag.
    fates: Box<[Fate]>,
    /// The untrusted limits that can be freed.
    candidates: Vec<(TagDebt, u16)>,
    /// How many limits are to be retired.
    retiring: usize,
    /// Tags that no limiter can have any more, but shards may still know.
    freed: Vec<u16>,
    /// From `Copy` to `Switch` the table that is about to replace the store's, without the freed
    /// limits, while calls can read the old one. Otherwise the one that was replaced. Two tables of
    /// 2.6 MB take turns, and memory stays flat.
    table: Option<Arc<LimitTable>>,
}

/// The phases of a pass, in their order. Half of them visit all tags, and half all shards.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Idle,
    /// Find the tags that no limiter has.
    Find,
    /// Add up what the keys of each tag have used.
    Survey,
    /// Choose the tags to free.
    Choose,
    /// Take the keys and receipts from these tags.
    Leave,
    /// Copy all other limits to the next table.
    Copy,
    /// Give every shard the next table.
    Switch,
    /// Clear the previous table, for the next pass.
    Clear,
}

impl Default for Tags {
    fn default() -> Tags {
        Tags {
            // Allocated at once, as a map that grows makes one call wait until all entries have
            // moved.
            assigned: HashMap::with_capacity(LIMITS_MAX.into()),
            by_tag: Vec::with_capacity(LIMITS_MAX.into()),
            free: Vec::new(),
            pass: Pass::default(),
            whole_pass_at: Time::EPOCH,
            evicted: 0,
            rejected: 0,
        }
    }
}

impl Tags {
    /// The tag that these limits have.
    pub(super) fn get(&mut self, key: &TagKey) -> Option<Arc<Tag>> {
        let tag = usize::from(*self.assigned.get(key)?);
        // In use again, so it stays.
        if let Some(fate) = self.pass.fates.get_mut(tag) {
            *fate = Fate::Stays;
        }
        self.by_tag.get(tag)?.as_ref().map(|assigned| Arc::clone(&assigned.tag))
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
    ) -> Result<Taken, BuildError> {
        let most = usize::from(if untrusted { UNTRUSTED_LIMITS_MAX } else { LIMITS_MAX });
        let is_short = self.in_use() + usize::from(SHORT_OF) >= most;
        if untrusted && (is_short || self.pass.phase != Phase::Idle) {
            self.step(store, now);
        }
        if self.in_use() < most {
            // There is one, recycled or new: fewer are in use than exist.
            return Ok(Taken::Tag(self.free.pop().unwrap_or_else(|| {
                self.by_tag.push(None);
                u16::try_from(self.by_tag.len() - 1).unwrap_or(u16::MAX)
            })));
        }
        if !untrusted && (self.pass.phase != Phase::Idle || self.may_begin_whole_pass(now)) {
            self.step(store, now);
            return Ok(Taken::Later);
        }
        self.rejected += 1;
        Err(BuildError::TooManyLimits { most })
    }

    pub(super) fn assign(&mut self, key: TagKey, tag: u16) -> Arc<Tag> {
        let (key, assigned) = (Arc::new(key), Arc::new(Tag(tag)));
        self.assigned.insert(Arc::clone(&key), tag);
        if let Some(free) = self.by_tag.get_mut(usize::from(tag)) {
            *free = Some(Assigned { key, tag: Arc::clone(&assigned) });
        }
        assigned
    }

    /// The table that is about to replace the store's: new limits go into both.
    pub(super) fn next_table(&self) -> Option<&LimitTable> {
        let is_next = matches!(self.pass.phase, Phase::Copy | Phase::Switch);
        self.pass.table.as_deref().filter(|_| is_next)
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            used: self.assigned.len(),
            max: LIMITS_MAX.into(),
            evicted: self.evicted,
            no_room: self.rejected,
        }
    }

    fn in_use(&self) -> usize {
        self.assigned.len() + self.pass.freed.len()
    }

    /// Returns `true` if a pass for limits of rules is due.
    fn may_begin_whole_pass(&mut self, now: Time) -> bool {
        let next = now.saturating_add(WHOLE_PASS_INTERVAL);
        // If the clock has stepped back, do not wait for longer than the interval.
        let is_due = now >= self.whole_pass_at || next < self.whole_pass_at;
        if is_due {
            self.whole_pass_at = next;
        }
        is_due
    }

    /// Makes the next step of a pass.
    #[cold]
    fn step(&mut self, store: &Store<AnySlot>, now: Time) {
        let pass = &mut self.pass;
        if pass.phase == Phase::Idle {
            pass.begin();
        }
        let (end, per_step) = match pass.phase {
            Phase::Survey | Phase::Leave | Phase::Switch => {
                (store.shards(), store.shards().div_ceil(STEPS_OVER_SHARDS))
            }
            _ => (LIMITS_MAX.into(), TAGS_PER_STEP),
        };
        let range = pass.next..end.min(pass.next + per_step);
        match pass.phase {
            Phase::Idle => {}
            Phase::Find => pass.find(&self.by_tag, range.clone()),
            Phase::Survey => range.clone().for_each(|shard| store.survey_tags(shard, now, &mut pass.debts)),
            Phase::Choose => pass.examine(&self.by_tag, range.clone(), store.on_full()),
            Phase::Leave => range.clone().for_each(|shard| store.leave_tags(shard, &mut pass.fates)),
            Phase::Copy => self.copy(range.clone(), store),
            Phase::Switch => {
                if let Some(table) = &pass.table {
                    range.clone().for_each(|shard| store.replace_limits_in(shard, table));
                }
            }
            Phase::Clear => {
                let cleared = pass.table.as_mut().is_none_or(|table| table.clear(range.clone()));
                if !cleared {
                    // A call still reads it.
                    return;
                }
            }
        }
        self.pass.next = range.end;
        if range.end == end {
            self.end_phase(store);
        }
    }

    fn end_phase(&mut self, store: &Store<AnySlot>) {
        let pass = &mut self.pass;
        pass.next = 0;
        pass.phase = match pass.phase {
            Phase::Idle | Phase::Find => Phase::Survey,
            Phase::Survey => Phase::Choose,
            Phase::Choose => {
                pass.choose();
                Phase::Leave
            }
            Phase::Leave => {
                pass.table.get_or_insert_with(|| Arc::new(LimitTable::new()));
                Phase::Copy
            }
            Phase::Copy => Phase::Switch,
            Phase::Switch => {
                pass.table = pass.table.take().map(|table| store.replace_limits(table));
                // No shard knows these tags any more.
                if pass.freed.len() >= usize::from(LIMITS_MAX / 8) {
                    // The pass was worthwhile, and will be again once these are used up.
                    self.whole_pass_at = Time::EPOCH;
                }
                self.free.append(&mut pass.freed);
                Phase::Clear
            }
            Phase::Clear => Phase::Idle,
        };
    }

    /// Copies the limits of tags that stay to the next table. The others' tags can no longer be
    /// found from here on.
    fn copy(&mut self, tags: Range<usize>, store: &Store<AnySlot>) {
        let Tags { assigned, by_tag, pass, evicted, .. } = self;
        let Some(table) = &pass.table else { return };
        for tag in tags.clone() {
            let Some(entry) = by_tag.get_mut(tag).filter(|entry| entry.is_some()) else { continue };
            if !matches!(pass.fates[tag], Fate::Unneeded | Fate::Evicted | Fate::Retired) {
                continue;
            }
            if let Some(Assigned { key, tag }) = entry.take() {
                assigned.remove(&key);
                pass.freed.push(tag.0);
            }
            *evicted += u64::from(pass.fates[tag] == Fate::Evicted);
        }
        let stays = tags.filter(|tag| by_tag.get(*tag).is_some_and(Option::is_some));
        store.copy_limits(stays.filter_map(|tag| u16::try_from(tag).ok()), table);
    }
}

impl Pass {
    fn begin(&mut self) {
        (self.phase, self.next, self.retiring) = (Phase::Find, 0, 0);
        if self.debts.is_empty() {
            self.debts = vec![TagDebt::NONE; LIMITS_MAX.into()].into();
            self.fates = vec![Fate::Stays; LIMITS_MAX.into()].into();
        }
        self.fates.fill(Fate::Stays);
    }

    /// Finds the tags that no limiter holds.
    fn find(&mut self, by_tag: &[Option<Assigned>], tags: Range<usize>) {
        for tag in tags {
            self.debts[tag] = TagDebt::NONE;
            let is_unheld = |assigned: &Assigned| Arc::strong_count(&assigned.tag) == 1;
            if by_tag.get(tag).and_then(Option::as_ref).is_some_and(is_unheld) {
                self.fates[tag] = Fate::Unheld;
            }
        }
    }

    /// Examines tags that no limiter has held since the pass began. Trusted ones are retired if
    /// keys need them. Untrusted ones can be freed if nothing needs them, or if debts may be lost.
    fn examine(&mut self, by_tag: &[Option<Assigned>], tags: Range<usize>, on_full: OnFull) {
        for tag in tags {
            let (Some(Some(Assigned { key, tag: assigned })), Fate::Unheld) =
                (by_tag.get(tag), self.fates[tag])
            else {
                continue;
            };
            if !key.untrusted {
                self.fates[tag] = Fate::Retired;
                self.retiring += 1;
            } else if on_full == OnFull::Evict || self.debts[tag] == TagDebt::NONE {
                self.candidates.push((self.debts[tag], assigned.0));
            }
        }
    }

    /// Chooses the untrusted limits to free: those that nothing needs, then those with the least
    /// debt.
    fn choose(&mut self) {
        let Pass { candidates, fates, retiring, .. } = self;
        // Some may be in use again.
        candidates.retain(|(_, tag)| fates[usize::from(*tag)] == Fate::Unheld);
        let unneeded = candidates.iter().filter(|(debt, _)| *debt == TagDebt::NONE).count();
        let freed = unneeded.max(FREED_PER_PASS.saturating_sub(*retiring)).min(candidates.len());
        if freed < candidates.len() {
            candidates.select_nth_unstable(freed);
        }
        for (debt, tag) in candidates.drain(..).take(freed) {
            let is_unneeded = debt == TagDebt::NONE;
            fates[usize::from(tag)] = if is_unneeded { Fate::Unneeded } else { Fate::Evicted };
        }
    }
}
