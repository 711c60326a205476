//! Who gives leases: a semaphore in memory, or one in a shared store. Both offer the same verbs; the one in memory answers
//! without waiting, unless somebody wants to wait in line.

use super::Mistake;
use super::judge::Told;
use super::leases::LocalLender;
use super::shared::SharedLender;
use sluicegate::{Lease, Limit, SemaphoreStats, Span, Time};
use sluicegate_redis::SharedLease;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a `concurrency` limit is asked.
pub(super) enum Lender {
    Memory(LocalLender),
    Shared(SharedLender),
}

/// A lease that is taken, and whose caller has not been told of it. Dropped, it is given back.
#[must_use = "a lease that is dropped is given back"]
pub struct Untold {
    text: String,
    held: Option<Held>,
    tally: Arc<LeaseTally>,
}

/// A lease, wherever it is.
pub(super) enum Held {
    Memory(Lease),
    Shared(SharedLease),
}

/// What this server has done with the leases of a rule.
#[derive(Default, Debug)]
pub(super) struct LeaseTally {
    pub(super) acquired: AtomicU64,
    pub(super) renewed: AtomicU64,
    pub(super) released: AtomicU64,
    waiting: AtomicUsize,
}

/// Somebody who waits for a lease at this server.
pub(super) struct Waits<'a>(&'a LeaseTally);

/// What has become of the leases of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeasesView {
    /// Leases that this server has given out.
    pub acquired: u64,
    /// Times that a lease was renewed here.
    pub renewed: u64,
    /// Leases that were returned here, also for clients that left before they were told.
    pub released: u64,
    /// Callers that wait in line now: in memory, or at this server for leases in a shared store.
    pub waiting: usize,
    /// What only a server knows whose leases live in memory.
    pub here: Option<HeldView>,
}

/// The leases of a rule, in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HeldView {
    /// Leases that are out now.
    pub held: usize,
    /// Leases that were neither returned nor renewed in time.
    pub lapsed: u64,
}

impl Untold {
    pub(super) fn new(held: Held, tally: &Arc<LeaseTally>) -> Untold {
        let text = match &held {
            Held::Memory(lease) => lease.id().to_string(),
            Held::Shared(lease) => lease.id().to_string(),
        };
        count(&tally.acquired);
        Untold { text, held: Some(held), tally: Arc::clone(tally) }
    }

    /// As its caller names it from now on.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its caller has been told: it is the caller's now, until it returns it or lets it lapse.
    pub fn told(mut self) {
        match self.held.take() {
            Some(Held::Memory(lease)) => drop(lease.keep()),
            Some(Held::Shared(lease)) => drop(lease.keep()),
            None => {}
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if self.held.is_some() {
            count(&self.tally.released);
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl LeaseTally {
    /// Somebody waits until that is dropped.
    pub(super) fn one_waits(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(self)
    }

    /// `memory`: what is known of leases that live there.
    pub(super) fn view(&self, memory: Option<SemaphoreStats>) -> LeasesView {
        let [acquired, renewed, released] =
            [&self.acquired, &self.renewed, &self.released].map(|counter| counter.load(Ordering::Relaxed));
        // Memory knows who stands in line, and not just who would.
        let waiting = memory.map_or_else(|| self.waiting.load(Ordering::Relaxed), |stats| stats.waiting);
        let here = memory.map(|stats| HeldView { held: stats.leases, lapsed: stats.lapsed });
        LeasesView { acquired, renewed, released, waiting, here }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lender {
    /// The decision, and the lease if one was taken.
    pub(super) async fn acquire(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Told, Option<Held>), Mistake> {
        let waits = max_wait > Span::ZERO;
        match self {
            Lender::Memory(lender) if waits => Ok(lender.wait(key, cost, max_wait, now).await),
            Lender::Memory(lender) => Ok(lender.try_acquire(key, cost, now)),
            Lender::Shared(lender) if waits => lender.wait(key, cost, max_wait).await,
            Lender::Shared(lender) => lender.try_acquire(key, cost, now).await,
        }
    }

    pub(super) async fn renew(&self, key: &[u8], lease: &str, now: Time) -> Result<bool, Mistake> {
        match self {
            Lender::Memory(lender) => Ok(lender.renew(key, &lease.parse()?, now)),
            Lender::Shared(lender) => lender.renew(key, &lease.parse()?, now).await,
        }
    }

    pub(super) async fn release(&self, key: &[u8], lease: &str, now: Time) -> Result<bool, Mistake> {
        match self {
            Lender::Memory(lender) => Ok(lender.release(key, &lease.parse()?, now)),
            Lender::Shared(lender) => lender.release(key, &lease.parse()?, now).await,
        }
    }

    pub(super) async fn peek(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        match self {
            Lender::Memory(lender) => Ok(lender.peek(key, cost, now).into()),
            Lender::Shared(lender) => lender.peek(key, cost, now).await,
        }
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Result<(), Mistake> {
        match self {
            Lender::Memory(lender) => {
                lender.reset(key);
                Ok(())
            }
            Lender::Shared(lender) => lender.reset(key).await,
        }
    }
}

impl Lender {
    /// What only memory knows.
    pub(super) fn stats(&self) -> Option<SemaphoreStats> {
        match self {
            Lender::Memory(lender) => Some(lender.stats()),
            Lender::Shared(_) => None,
        }
    }
}

/// Whether leases are given under these limits, which stand together.
///
/// # Errors
/// When a limit that gives leases is not alone, or does not say when they lapse.
pub(crate) fn lends(limits: &[Limit]) -> Result<bool, Mistake> {
    let Some((limit, concurrency)) = limits.iter().find_map(|limit| Some((limit, limit.concurrency()?)))
    else {
        return Ok(false);
    };
    if limits.len() > 1 {
        return Err(Mistake::new(format!(
            "{limit}: concurrency gives leases, and does not go with other limits; make a rule of it alone"
        )));
    }
    if concurrency.ttl().is_none() {
        return Err(Mistake::new(format!(
            "{limit}: a client that crashes would hold its place for ever; say after how long a lease lapses that is not renewed, as in \"{limit} ttl=30s\""
        )));
    }
    Ok(true)
}

/// Why limits of a key cannot be an exception to those of its rule, if they cannot: leases and checks do not know of each
/// other, and callers would have to know which keys are exceptions.
pub(crate) fn of_another_kind(rule: &[Limit], exception: &[Limit]) -> Option<Mistake> {
    let gives_leases = |limits: &[Limit]| limits.iter().any(|limit| limit.concurrency().is_some());
    let kind = match (gives_leases(rule), gives_leases(exception)) {
        (true, false) => "gives leases; use another concurrency limit",
        (false, true) => "decides checks; use a limit that does",
        _ => return None,
    };
    let limit = exception.first()?;
    Some(Mistake::new(format!("{limit} is for one key of a rule that {kind}, \"unlimited\" or \"blocked\"")))
}

/// The mistake of checking where leases are given.
pub(super) fn use_acquire() -> Mistake {
    Mistake::new(
        "a concurrency limit gives leases, which a check could not return; use RL.ACQUIRE or POST /v1/acquire",
    )
}

/// The mistake of asking for a lease where there are none.
pub(super) fn use_check() -> Mistake {
    Mistake::new("only a concurrency limit gives leases; use RL.CHECK or POST /v1/check")
}
