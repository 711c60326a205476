//! When a denial of a moment ago answers in the store's waiter, and what makes it be forgotten.

use super::Inner;
use crate::denial_cache::{Denial, DenialCache};
use crate::encode::EncodedLimit;
use crate::store::RedisStore;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::{Decision, Limit, Time};
use sluicegate_core::{Algorithm as _, AnyLimit};
use std::sync::Arc;
use tokio::time::Instant;

/// In whose name the denials of these limits are remembered, if they are at all. Where denied calls count, a call that is not
/// made at the store would be missing there.
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

/// InvalidateOnDrop a key when it goes: after the call that has to do so, however that ends.
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
    /// The denial of a call that need not be made. At a time of the caller's there is none.
    pub(super) fn cached_denial(&self, key: &[u8], cost: u32, at: Option<Time>) -> Option<Answer> {
        let (owner, denials) = self.denial_owner.as_ref().zip(self.store.inner.denials.as_ref())?;
        if at.is_some() {
            return None;
        }
        let most = self.compiled.iter().map(AnyLimit::limit).min().unwrap_or(0);
        let denied = denials.get(|| self.names.receipts(key), owner, cost, most, Instant::now())?;
        self.store.inner.counters.count(Some(Source::Remembered));
        Some(Answer::new(denied, Source::Remembered))
    }

    /// Remembers what the store said, if that was a denial. `began` is before it was asked.
    pub(super) fn cache_denial(
        &self,
        key: &[u8],
        cost: u32,
        at: Option<Time>,
        began: Instant,
        asked: &Result<Decision, StoreFailure>,
    ) {
        let (Some(owner), Some(denials)) = (&self.denial_owner, &self.store.inner.denials) else { return };
        let (Ok(decision), None) = (asked, at) else { return };
        if !decision.allowed() {
            let denial = Denial {
                owner: Arc::clone(owner),
                cost,
                decision: *decision,
                began,
                received: Instant::now(),
            };
            // ForeignState limits of the scope have the same receipts, and what is given back there counts here.
            denials.insert(self.names.receipts(key), denial);
        }
    }

    /// To be kept for as long as a call takes that may give something back.
    pub(super) fn invalidate_denials(&self, key: &[u8]) -> Option<InvalidateOnDrop<'_>> {
        let denials = self.store.inner.denials.as_ref()?;
        Some(InvalidateOnDrop { denials, name: self.names.receipts(key) })
    }
}
