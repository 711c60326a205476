//! Leases of `concurrency` limits: acquire, renew and release, undelivered leases, and counters.

use super::call::{BLOCKED, RuleCall, UNLIMITED};
use super::decided::Decided;
use super::rule::KeyLimits;
use super::{Engine, RequestError, Target};
use sluicegate::backend::Answer;
use sluicegate::backend::HeldLease;
use sluicegate::semaphore::{LeaseId, SemaphoreStats};
use sluicegate::{Limit, Span, Time};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::futures::Notified;

/// The answer to a request for a lease.
#[must_use = "a lease that is dropped is released"]
pub struct Leased<'a> {
    call: RuleCall<'a>,
    answer: Answer,
    at: Time,
    /// The lease. `None` if the limit denied the call (a shadow rule may allow it all the same),
    /// the key is unlimited or blocked, or the cost is 0.
    pub lease: Option<UndeliveredLease>,
}

/// A granted lease whose reply has not reached its client. Dropping it releases it.
#[must_use = "a lease that is dropped is released"]
pub struct UndeliveredLease {
    text: String,
    held: Option<HeldLease>,
    tally: Arc<LeaseTally>,
}

/// Counts what this server did with the leases of a rule.
#[derive(Default, Debug)]
pub(super) struct LeaseTally {
    acquired: AtomicU64,
    renewed: AtomicU64,
    released: AtomicU64,
    waiting: AtomicUsize,
}

/// A call that waits for a lease at this server; counted until it is dropped.
struct CountedWaiter<'a>(&'a LeaseTally);

/// The counts of a rule's leases at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeaseStats {
    /// Leases granted by this server.
    pub acquired: u64,
    /// Renewals at this server.
    pub renewed: u64,
    /// Leases released at this server, including undelivered ones.
    pub released: u64,
    /// Waiters now: all of them in memory, those of this server in a shared store.
    pub waiting: usize,
    /// What only the memory store knows; `None` in a shared store.
    pub in_memory: Option<HeldLeases>,
}

/// The leases of a rule, in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HeldLeases {
    /// Leases held now, including those that have expired unobserved.
    pub held: usize,
    /// Leases that expired before they were released.
    pub expired: u64,
}

impl Leased<'_> {
    /// The answer under its rule: the newest one, if rules were loaded while the call waited.
    pub fn decided(&self) -> Decided<'_> {
        self.call.decided(self.answer, self.at)
    }

    /// The call that was decided.
    pub fn call(&self) -> &RuleCall<'_> {
        &self.call
    }
}

impl UndeliveredLease {
    fn new(held: HeldLease, tally: &Arc<LeaseTally>) -> UndeliveredLease {
        count(&tally.acquired);
        UndeliveredLease { text: held.id().to_string(), held: Some(held), tally: Arc::clone(tally) }
    }

    /// The lease's id, as a reply writes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Marks the reply as delivered: the lease now belongs to the client, until it is released or
    /// expires.
    pub fn delivered(mut self) {
        if let Some(held) = self.held.take() {
            held.keep();
        }
    }
}

impl Drop for UndeliveredLease {
    fn drop(&mut self) {
        if self.held.is_some() {
            count(&self.tally.released);
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl LeaseTally {
    /// Counts a waiter until it is dropped.
    fn waiter(&self) -> CountedWaiter<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        CountedWaiter(self)
    }

    /// The counts now. `memory` holds the statistics of leases in memory.
    pub(super) fn view(&self, memory: Option<SemaphoreStats>) -> LeaseStats {
        let [acquired, renewed, released] =
            [&self.acquired, &self.renewed, &self.released].map(|counter| counter.load(Ordering::Relaxed));
        // Memory counts the calls in a queue. This tally counts every call that may wait.
        let waiting = memory.map_or_else(|| self.waiting.load(Ordering::Relaxed), |stats| stats.waiting);
        let in_memory = memory.map(|stats| HeldLeases { held: stats.leases, expired: stats.expired });
        LeaseStats { acquired, renewed, released, waiting, in_memory }
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Acquires a lease, and waits in the key's queue for at most `max_wait` if the limit is
    /// reached. A call that is dropped while it waits leaves the queue. A shadow rule never makes a
    /// call wait.
    ///
    /// # Errors
    /// Those of [`Engine::call`], and if the rule decides checks or the shared store does not
    /// answer.
    pub async fn acquire<'a>(
        &self,
        target: Target<'a>,
        cost: u64,
        max_wait: Span,
        now: Time,
    ) -> Result<Leased<'a>, RequestError> {
        // Subscribed before the rule is looked up, so that no later load is missed.
        let loaded = self.loaded.notified();
        let mut call = self.call(target, cost)?;
        call.rule.grants_only_leases()?;
        let (answer, held) = match call.key_limits() {
            KeyLimits::Unlimited => (UNLIMITED.into(), None),
            KeyLimits::Blocked => (BLOCKED.into(), None),
            KeyLimits::Limits(limits) => {
                let max_wait = if call.rule.spec().shadow { Span::ZERO } else { max_wait };
                let leases = limits.backend.leases()?;
                if max_wait == Span::ZERO {
                    let grant = leases.backend.try_acquire(&call.key, cost, leases.time.at(now)).await?;
                    (grant.answer(), grant.lease())
                } else {
                    let waiter = call.rule.lease_tally().waiter();
                    let acquire = leases.backend.acquire(&call.key, cost, Some(max_wait.into()));
                    let (grant, newer) = self.follow_loads(target, cost, loaded, acquire).await;
                    let grant = grant?;
                    drop(waiter);
                    if let Some(newer) = newer {
                        call = newer;
                    }
                    (grant.answer(), grant.lease())
                }
            }
        };
        call.counted(answer, now);
        let lease = held.map(|held| UndeliveredLease::new(held, call.rule.lease_tally()));
        Ok(Leased { call, answer, at: now, lease })
    }

    /// Waits for a lease and applies each reload to the queue meanwhile: a queue in memory follows
    /// the limit of the latest call on its key, and only the engine knows the newest rule. Returns
    /// the call under that rule, if a reload changed it and it still has limits for the key.
    async fn follow_loads<'a, T>(
        &self,
        target: Target<'a>,
        cost: u64,
        loaded: Notified<'_>,
        acquire: impl IntoFuture<Output = T>,
    ) -> (T, Option<RuleCall<'a>>) {
        let (mut loaded, mut acquire, mut newer) = (pin!(loaded), pin!(acquire.into_future()), None);
        loop {
            tokio::select! {
                biased;
                granted = &mut acquire => return (granted, newer),
                () = &mut loaded => {
                    loaded.set(self.loaded.notified());
                    if let Ok(call) = self.call(target, cost) {
                        call.apply_to_waiters(self.now());
                        newer = matches!(call.key_limits(), KeyLimits::Limits(_)).then_some(call).or(newer);
                    }
                }
            }
        }
    }

    /// Extends a live lease by a full TTL. Returns `false` if it had expired.
    ///
    /// # Errors
    /// Those of [`Engine::acquire`], and if the text is not a lease.
    pub async fn renew(&self, target: Target<'_>, lease: &str, now: Time) -> Result<bool, RequestError> {
        let call = self.call(target, 0)?;
        let (leases, lease) = (call.limits().backend.leases()?, lease.parse::<LeaseId>()?);
        let renewed = leases.backend.renew(&call.key, &lease, leases.time.at(now)).await?;
        if renewed {
            count(&call.rule.lease_tally().renewed);
        }
        Ok(renewed)
    }

    /// Releases a lease. Returns `false` if it had expired.
    ///
    /// # Errors
    /// Those of [`Engine::renew`].
    pub async fn release(&self, target: Target<'_>, lease: &str, now: Time) -> Result<bool, RequestError> {
        let call = self.call(target, 0)?;
        let (leases, lease) = (call.limits().backend.leases()?, lease.parse::<LeaseId>()?);
        let released = leases.backend.release(&call.key, &lease, leases.time.at(now)).await?;
        if released {
            count(&call.rule.lease_tally().released);
        }
        Ok(released)
    }
}

impl RuleCall<'_> {
    /// Applies this call's limit to the waiters of its key, in memory.
    fn apply_to_waiters(&self, now: Time) {
        if let Ok(leases) = self.limits().backend.leases() {
            // Memory answers at once. A shared store has no such queue, and its future is dropped
            // before it sends anything.
            let _ = leases.backend.peek(&self.key, 0, Some(now)).ready();
        }
    }
}

/// Returns `true` if these limits grant leases.
///
/// # Errors
/// If a `concurrency` limit is part of a list, or has no `ttl`.
pub(crate) fn grants_leases(limits: &[Limit]) -> Result<bool, RequestError> {
    let Some((limit, concurrency)) = limits.iter().find_map(|limit| Some((limit, limit.as_concurrency()?)))
    else {
        return Ok(false);
    };
    if limits.len() > 1 {
        return Err(RequestError::new(format!(
            "{limit}: concurrency grants leases and cannot be part of a list; make it a rule of its own"
        )));
    }
    if concurrency.ttl().is_none() {
        return Err(RequestError::new(format!(
            "{limit}: a client that crashes would hold its lease forever; add a ttl, as in \"{limit} ttl=30s\""
        )));
    }
    Ok(true)
}

/// Returns the error if an exception grants leases and its rule decides checks, or the reverse:
/// clients would have to know which keys are exceptions.
pub(crate) fn exception_mismatch(rule: &[Limit], exception: &[Limit]) -> Option<RequestError> {
    let grants_leases = |limits: &[Limit]| limits.iter().any(|limit| limit.as_concurrency().is_some());
    let kind = match (grants_leases(rule), grants_leases(exception)) {
        (true, false) => "grants leases; use a concurrency limit",
        (false, true) => "decides checks; use a limit other than concurrency",
        _ => return None,
    };
    let limit = exception.first()?;
    Some(RequestError::new(format!(
        "exception {limit} does not fit: the rule {kind}, \"unlimited\" or \"blocked\""
    )))
}

/// The error for a check under a `concurrency` limit.
pub(super) fn use_acquire() -> RequestError {
    RequestError::new(
        "a concurrency limit grants leases, which a check cannot release; use RL.ACQUIRE or POST /v1/acquire",
    )
}

/// The error for an acquire under any other limit.
pub(super) fn use_check() -> RequestError {
    RequestError::new("only a concurrency limit grants leases; use RL.CHECK or POST /v1/check")
}
