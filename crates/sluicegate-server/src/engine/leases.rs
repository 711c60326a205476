//! Leases in memory: one room for those of all rules and limits, so that their number has one bound.
//!
//! A lease belongs to a scope and a key, whichever limit it was taken under: a rule that changes, or whose exceptions do,
//! goes on with the leases that are out. Those under limits that callers bring are counted together.

use super::Mistake;
use super::Settings;
use super::judge::Told;
use super::lender::{Held, HeldView};
use super::rule::Scope;
use sluicegate::{
    Clock, Decision, LeaseId, LeaseScope, Limit, Semaphore, SemaphoreStats, SharedLeases, Span, Time,
};
use std::sync::Arc;

/// The leases of an engine.
pub(super) struct LocalLeases {
    all: SharedLeases,
    /// What limits that callers bring are counted with.
    inline: LeaseScope,
}

/// A limit that gives leases, in memory.
pub(super) struct LocalLender {
    semaphore: Semaphore,
    scope: LeaseScope,
}

impl LocalLeases {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<LocalLeases, Mistake> {
        let all = SharedLeases::builder().max_leases(settings.max_leases).clock(Arc::clone(clock)).build()?;
        let inline = all.scope("inline");
        Ok(LocalLeases { all, inline })
    }

    /// Who lends under a limit to the keys of a scope.
    pub(super) fn lender(&self, scope: &Scope, limit: &Limit) -> Result<LocalLender, Mistake> {
        let scope = match scope {
            Scope::Rule(_) => self.all.scope(scope),
            Scope::Inline(_) | Scope::Throttle => self.inline.counting(scope),
        };
        let semaphore = scope.semaphore(limit)?;
        Ok(LocalLender { semaphore, scope })
    }

    /// What limits that callers bring have lent.
    pub(super) fn held_inline(&self) -> HeldView {
        view(self.inline.stats())
    }
}

impl LocalLender {
    pub(super) async fn acquire(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Told, Option<Held>), Mistake> {
        let grant = if max_wait == Span::ZERO {
            self.semaphore.try_acquire_at(key, cost, now)
        } else {
            self.semaphore.acquire_within(key, cost, max_wait.into()).await
        };
        Ok((grant.decision().into(), grant.lease().map(Held::Memory)))
    }

    pub(super) fn renew(&self, key: &[u8], lease: &LeaseId, now: Time) -> bool {
        self.semaphore.renew_at(key, lease, now)
    }

    pub(super) fn release(&self, key: &[u8], lease: &LeaseId, now: Time) -> bool {
        self.semaphore.release_at(key, lease, now)
    }

    pub(super) fn peek(&self, key: &[u8], cost: u32, now: Time) -> Decision {
        self.semaphore.peek_at(key, cost, now)
    }

    pub(super) fn reset(&self, key: &[u8]) {
        self.semaphore.reset(key);
    }

    pub(super) fn held(&self) -> HeldView {
        view(self.scope.stats())
    }
}

fn view(stats: SemaphoreStats) -> HeldView {
    let SemaphoreStats { leases, lapsed, waiting, .. } = stats;
    HeldView { held: leases, lapsed, waiting }
}
