//! Limits that can change while the store of one limiter is in use. The tag of a slot is a version.
//!
//! A slot's tag is the version of the limits that wrote its state. On the key's next call the state
//! and the open receipts are converted to the current version: a bucket keeps the tokens used, a
//! window or log its count, and a state whose algorithm has changed starts unseen. Versions in
//! between do not matter, since no call was decided under them.

use super::shares::Share;
use super::slot_kind::SlotKind;
use crate::key::Fingerprint;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Algorithm, AnyLimit};
use std::sync::Arc;

/// Versions are searched one by one for that of a state, so they restart after this one. Before
/// that all states are brought up to date: then no old version can be mistaken for a new one, and
/// the older versions can be freed. (Early under the model checker.)
const LAST_VERSION: u16 = if cfg!(loom) { 1 } else { 255 };

/// The limits of a store, as its shards see them. A slot's tag names those that wrote its state.
pub(crate) trait LimitsByTag<S: SlotKind>: Send + Sync {
    /// The tag of the limits that apply to this key.
    fn tag_for(&self, key: Fingerprint) -> u16;

    /// The limits for a slot that has this tag and is up to date.
    fn limits(&self, tag: u16) -> &[S::Limit];

    /// The limits of a tag that may be old.
    fn limits_of(&self, tag: u16) -> &[S::Limit];

    /// The limits of a tag as [`AnyLimit`], to be decided together with those of other stores.
    fn any_limits(&self, tag: u16) -> Arc<[AnyLimit]>;

    /// Returns `true` if a slot with this tag has to be converted before it is used.
    fn is_old(&self, tag: u16) -> bool;

    /// The tag under which receipts of the tag `written` are closed, by a limiter of another tag or
    /// by none.
    fn tag_to_close(&self, _written: u16, _limiter: Option<u16>) -> u16 {
        0
    }

    /// The share of the keys with this tag; `None` in the store of one limiter.
    fn share(&self, _tag: u16) -> Option<&Arc<Share>> {
        None
    }

    /// Converts a state, and the key's receipts, from the limits of one tag to those of another.
    fn adopt(&self, state: &mut S::State, receipts: &mut Receipts, from: u16, to: u16, times: Times);
}

impl<S: SlotKind> LimitsByTag<S> for LimitVersion<S::Limit> {
    #[inline]
    fn tag_for(&self, _key: Fingerprint) -> u16 {
        self.version
    }

    #[inline]
    fn limits(&self, _tag: u16) -> &[S::Limit] {
        &self.limits
    }

    fn limits_of(&self, tag: u16) -> &[S::Limit] {
        &self.find(tag).limits
    }

    fn any_limits(&self, _tag: u16) -> Arc<[AnyLimit]> {
        Arc::clone(&self.any_limits)
    }

    #[inline]
    fn is_old(&self, tag: u16) -> bool {
        self.version != tag
    }

    fn adopt(&self, state: &mut S::State, receipts: &mut Receipts, from: u16, _to: u16, times: Times) {
        let old = &self.find(from).limits;
        let states = S::states_mut(state, old.len());
        receipts.adopt((&self.limits, old), states, times, S::Limit::adopt);
        // One state per limit of this version.
        S::states_mut(state, self.limits.len());
    }
}

/// One version of a store's limits.
pub(crate) struct LimitVersion<A> {
    pub(super) limits: Box<[A]>,
    /// The limits as [`AnyLimit`], to be decided together with those of other stores.
    pub(super) any_limits: Arc<[AnyLimit]>,
    version: u16,
    /// The previous version, as long as states that it wrote may be left.
    older: Option<Arc<LimitVersion<A>>>,
}

impl<A: Algorithm + Clone> LimitVersion<A> {
    pub(crate) fn new(limits: Box<[A]>, any_limits: Arc<[AnyLimit]>) -> LimitVersion<A> {
        LimitVersion { limits, any_limits, version: 0, older: None }
    }

    pub(super) fn version(&self) -> u16 {
        self.version
    }

    /// Returns `true` if the next version restarts the count. Then all states have to be converted
    /// to this version, which counts as version 0 from then on.
    pub(super) fn is_last(&self) -> bool {
        self.version == LAST_VERSION
    }

    /// The next version.
    pub(super) fn changed(
        self: &Arc<Self>,
        limits: Box<[A]>,
        any_limits: Arc<[AnyLimit]>,
    ) -> LimitVersion<A> {
        let older = if self.is_last() {
            Arc::new(LimitVersion::new(self.limits.clone(), Arc::clone(&self.any_limits)))
        } else {
            Arc::clone(self)
        };
        LimitVersion { limits, any_limits, version: older.version + 1, older: Some(older) }
    }

    /// This version or an older one.
    fn find(&self, version: u16) -> &LimitVersion<A> {
        let mut found = self;
        while found.version != version {
            // A slot's version is never older than the oldest that is kept.
            let Some(older) = &found.older else { break };
            found = older;
        }
        found
    }
}
