//! Limits that can change under a running store of one limiter. Their tag is a version.
//!
//! A slot remembers which version of the limits wrote its state. When the key next calls, the current limits read the
//! state through all versions since: a bucket keeps the tokens used, a window or log its count, and what changed
//! its algorithm in between starts afresh.

use super::slot_kind::SlotKind;
use crate::key::Fingerprint;
use sluicegate_core::pile::Times;
use sluicegate_core::{Algorithm, AnyLimit};
use std::sync::Arc;

/// A state is read through all versions since its own, so the count starts again after this one. Before that every state is brought up
/// to date: an old version is never taken for a new one, and what was before can be let go. (Soon under the model checker.)
const LAST_VERSION: u16 = if cfg!(loom) { 1 } else { 255 };

/// The limits of a store, as its places see them. A slot's tag says which of them wrote its state.
pub(crate) trait LimitsByTag<S: SlotKind>: Send + Sync {
    /// The tag of the limits that are to judge this key.
    fn tag_for(&self, key: Fingerprint) -> u16;

    /// The limits that judge a slot which has this tag and is not old.
    fn limits(&self, tag: u16) -> &[S::Limit];

    /// The same, to be decided on together with those of other shapes.
    fn any_limits(&self, tag: u16) -> Arc<[AnyLimit]>;

    /// Whether a slot with this tag has yet to meet the limits that judge it.
    fn is_old(&self, tag: u16) -> bool;

    /// Reads a state that the limits of one tag left, as those of another do.
    fn adopt(&self, state: &mut S::State, from: u16, to: u16, times: Times);
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

    fn any_limits(&self, _tag: u16) -> Arc<[AnyLimit]> {
        Arc::clone(&self.any_limits)
    }

    #[inline]
    fn is_old(&self, tag: u16) -> bool {
        self.version != tag
    }

    fn adopt(&self, state: &mut S::State, from: u16, _to: u16, times: Times) {
        self.adopt_since::<S>(state, from, times);
    }
}

/// One version of a store's limits.
pub(crate) struct LimitVersion<A> {
    pub(super) limits: Box<[A]>,
    /// The same, to be decided on together with those of other shapes.
    pub(super) any_limits: Arc<[AnyLimit]>,
    version: u16,
    /// What was before, while states may be left from then.
    older: Option<Arc<LimitVersion<A>>>,
}

impl<A: Algorithm + Clone> LimitVersion<A> {
    pub(crate) fn new(limits: Box<[A]>, any_limits: Arc<[AnyLimit]>) -> LimitVersion<A> {
        LimitVersion { limits, any_limits, version: 0, older: None }
    }

    pub(super) fn version(&self) -> u16 {
        self.version
    }

    /// Whether the count of versions starts again with the next one, and all states have to be brought to this one
    /// and then counted as version 0.
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

    /// Reads a state that a version left, through all versions up to this one.
    fn adopt_since<S: SlotKind<Limit = A>>(&self, state: &mut S::State, version: u16, times: Times) {
        let Some(older) = self.older.as_ref().filter(|_| self.version != version) else { return };
        older.adopt_since::<S>(state, version, times);
        let states = S::states_mut(state, older.limits.len());
        for ((limit, old), state) in self.limits.iter().zip(&older.limits).zip(states) {
            limit.adopt(old, state, times);
        }
        // A state for each limit of this version.
        S::states_mut(state, self.limits.len());
    }
}
