//! Leases in memory: one room for those of all rules and limits, so that their number has one bound.
//!
//! A lease belongs to a scope and a key, whichever limit it was taken under: a rule that changes, or whose exceptions do,
//! goes on with the leases that are out. Those under limits that callers bring are counted together, and leave some of the room to
//! the rules: callers that make up limits cannot keep rules from giving leases.

use super::Mistake;
use super::Settings;
use super::judge::Told;
use super::lender::Held;
use super::rule::Scope;
use sluicegate::{
    Clock, Decision, Grant, LeaseId, LeaseScope, Limit, RetryAfter, Semaphore, SemaphoreStats, SharedLeases,
    Span, Time,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One part in so many of the room is for rules alone, as it is with the room for limits.
const PARTS: usize = 4;
/// Nobody knows when a caller gives back one of the leases that fill their share. So they are told to come back after this.
const COME_BACK_AFTER: Span = Span::from_micros(1_000_000);

/// The leases of an engine.
pub(super) struct LocalLeases {
    all: SharedLeases,
    /// What limits that callers bring may use.
    inline: Arc<Share>,
}

/// What limits that callers bring are counted with, and how much room they may use.
struct Share {
    all: SharedLeases,
    scope: LeaseScope,
    most: usize,
    /// Those who wait in line: a place in line needs room too.
    waiting: AtomicUsize,
}

/// Somebody who waits in line under a limit that a caller brought.
struct InLine<'a>(&'a Share);

/// A limit that gives leases, in memory.
pub(super) struct LocalLender {
    semaphore: Semaphore,
    scope: LeaseScope,
    /// If a caller brought its limit.
    share: Option<Arc<Share>>,
}

impl LocalLeases {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<LocalLeases, Mistake> {
        let all = SharedLeases::builder().max_leases(settings.max_leases).clock(Arc::clone(clock)).build()?;
        let for_rules = settings.max_leases.div_ceil(PARTS);
        let inline = Share {
            all: all.clone(),
            scope: all.scope("inline"),
            most: (settings.max_leases - for_rules).max(1),
            waiting: AtomicUsize::new(0),
        };
        Ok(LocalLeases { all, inline: Arc::new(inline) })
    }

    /// Who lends under a limit to the keys of a scope.
    pub(super) fn lender(&self, scope: &Scope, limit: &Limit) -> Result<LocalLender, Mistake> {
        let (scope, share) = match scope {
            Scope::Rule(_) => (self.all.scope(scope), None),
            Scope::Inline(_) | Scope::Throttle => {
                (self.inline.scope.counting(scope), Some(Arc::clone(&self.inline)))
            }
        };
        let semaphore = scope.semaphore(limit)?;
        Ok(LocalLender { semaphore, scope, share })
    }

    /// What limits that callers bring have lent.
    pub(super) fn inline_stats(&self) -> SemaphoreStats {
        self.inline.scope.stats()
    }
}

impl Share {
    /// Whether no more is used than may be, by leases and by those who wait, perhaps after a look at what has lapsed.
    fn is_kept(&self, now: Time) -> bool {
        self.seems_kept() || {
            self.all.clear_lapsed(now);
            self.seems_kept()
        }
    }

    fn seems_kept(&self) -> bool {
        // One who waits is taken off only when its lease is counted, so that nobody is overlooked between the two.
        let waiting = self.waiting.load(Ordering::Acquire);
        self.scope.stats().leases + waiting <= self.most
    }

    /// A place in line, if there is room for it.
    fn join(&self, now: Time) -> Option<InLine<'_>> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Some(InLine(self)).filter(|_| self.is_kept(now))
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LocalLender {
    pub(super) fn try_acquire(&self, key: &[u8], cost: u32, now: Time) -> (Told, Option<Held>) {
        // Taken first, and given back if it is too much: so no two have the last of it.
        let grant = self.semaphore.try_acquire_at(key, cost, now);
        match &self.share {
            Some(share) if grant.allowed() && cost > 0 && !share.is_kept(now) => self.no_room(),
            _ => told(grant),
        }
    }

    /// The same, and waits in line for so long at the most.
    pub(super) async fn wait(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> (Told, Option<Held>) {
        let _in_line = match &self.share {
            None => None,
            Some(share) => {
                let at_once = self.try_acquire(key, cost, now);
                if at_once.0.decision.allowed() {
                    return at_once;
                }
                let Some(in_line) = share.join(now) else { return self.no_room() };
                Some(in_line)
            }
        };
        told(self.semaphore.acquire_within(key, cost, max_wait.into()).await)
    }

    fn no_room(&self) -> (Told, Option<Held>) {
        let limit = self.semaphore.limit().at_once();
        (Decision::no_room(limit, RetryAfter::After(COME_BACK_AFTER)).into(), None)
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

    pub(super) fn stats(&self) -> SemaphoreStats {
        self.scope.stats()
    }
}

fn told(grant: Grant) -> (Told, Option<Held>) {
    (grant.decision().into(), grant.lease().map(Held::Memory))
}
