//! When a cached denial answers instead of the store, and when it is invalidated.

use super::Inner;
use crate::denial_cache::{CachedDenial, DenialCache};
use crate::encode::EncodedLimit;
use crate::store::RedisStore;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::{Decision, Limit, Time};
use sluicegate_core::{Algorithm as _, AnyLimit};
use std::sync::Arc;
use tokio::time::Instant;

/// Returns the owner of the cached denials of these limits, or `None` if they are not cached. With
/// `count=all` every denied call must reach the store.
pub(super) fn owner(
    store: &RedisStore,
    limits: &[Limit],
    encoded: &[EncodedLimit],
    start: Option<Time>,
) -> Option<Arc<str>> {
    store.inner.denials.as_ref()?;
    let limits: Vec<String> = limits.iter().map(Limit::to_string).collect();
    let is_fit = !encoded.iter().any(EncodedLimit::counts_denied);
    is_fit.then(|| format!("{} {:?}", limits.join(", "), start.map(Time::as_micros)).into())
}

/// Invalidates a key's cached denial on drop: after the call, however it ends.
pub(super) struct InvalidateOnDrop<'a> {
    denials: &'a DenialCache,
    name: Vec<u8>,
}

impl Drop for InvalidateOnDrop<'_> {
    fn drop(&mut self) {
        self.denials.invalidate(&self.name, Instant::now());
    }
}

impl Inner {
    /// Returns the cached denial of a call. A call at a given time has none.
    pub(super) fn cached_denial(&self, key: &[u8], cost: u64, at: Option<Time>) -> Option<Answer> {
        let (owner, denials) = self.denial_owner.as_ref().zip(self.store.inner.denials.as_ref())?;
        if at.is_some() {
            return None;
        }
        let most = self.compiled.iter().map(AnyLimit::limit).min().unwrap_or(0);
        let denied = denials.get(|| self.names.receipts(key), owner, cost, most, Instant::now())?;
        self.store.inner.counters.count(Some(Source::Remembered));
        Some(Answer::new(denied, Source::Remembered))
    }

    /// Caches the store's decision if it is a denial. `began` is a time before the call was sent.
    pub(super) fn cache_denial(
        &self,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
        began: Instant,
        decided: &Result<Decision, StoreFailure>,
    ) {
        let (Some(owner), Some(denials)) = (&self.denial_owner, &self.store.inner.denials) else { return };
        let (Ok(decision), None) = (decided, at) else { return };
        if !decision.allowed() {
            let denial = CachedDenial {
                owner: Arc::clone(owner),
                cost,
                decision: *decision,
                began,
                received: Instant::now(),
            };
            // Keyed by the name of the receipts, which all limits of the scope share: a return
            // under one of them counts for all.
            denials.insert(self.names.receipts(key), denial);
        }
    }

    /// Returns a guard that must be kept for the duration of a call that may return cost.
    pub(super) fn invalidate_denials(&self, key: &[u8]) -> Option<InvalidateOnDrop<'_>> {
        let denials = self.store.inner.denials.as_ref()?;
        Some(InvalidateOnDrop { denials, name: self.names.receipts(key) })
    }
}
