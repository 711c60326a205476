//! Limits that can change under a running store.
//!
//! A slot remembers which version of the limits wrote its state. When the key next calls, the current limits read the
//! state through all versions since: a bucket keeps the tokens used, a window or log its count, and what changed
//! its algorithm in between starts afresh.

use super::shape::Shape;
use sluicegate_core::pile::Times;
use sluicegate_core::{Algorithm, AnyLimit};
use std::sync::Arc;

/// A slot has a byte for its version, so the count starts again after this one. Before that every state is brought up
/// to date: an old version is never taken for a new one, and what was before can be let go. (Soon under the model checker.)
const LAST_VERSION: u8 = if cfg!(loom) { 1 } else { u8::MAX };

/// One version of a store's limits.
pub(crate) struct Rules<A> {
    pub(super) limits: Box<[A]>,
    /// The same, to be decided on together with those of other shapes.
    pub(super) any: Arc<[AnyLimit]>,
    version: u8,
    /// What was before, while states may be left from then.
    older: Option<Arc<Rules<A>>>,
}

impl<A: Algorithm + Clone> Rules<A> {
    pub(crate) fn new(limits: Box<[A]>, any: Arc<[AnyLimit]>) -> Rules<A> {
        Rules { limits, any, version: 0, older: None }
    }

    #[inline]
    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// Whether the count of versions starts again with the next one, and all states have to be brought to this one
    /// and then counted as version 0.
    pub(super) fn is_last(&self) -> bool {
        self.version == LAST_VERSION
    }

    /// The next version.
    pub(super) fn changed(self: &Arc<Self>, limits: Box<[A]>, any: Arc<[AnyLimit]>) -> Rules<A> {
        let older = if self.is_last() {
            Arc::new(Rules::new(self.limits.clone(), Arc::clone(&self.any)))
        } else {
            Arc::clone(self)
        };
        Rules { limits, any, version: older.version + 1, older: Some(older) }
    }

    /// Reads a state that a version left, through all versions up to this one.
    pub(super) fn adopt<S: Shape<Limit = A>>(&self, state: &mut S::State, version: u8, times: Times) {
        let Some(older) = self.older.as_ref().filter(|_| self.version != version) else { return };
        older.adopt::<S>(state, version, times);
        let states = S::states(state, older.limits.len());
        for ((limit, old), state) in self.limits.iter().zip(&older.limits).zip(states) {
            limit.adopt(old, state, times);
        }
        // A state for each limit of this version.
        S::states(state, self.limits.len());
    }
}
