//! Leases under `concurrency` limits: their verbs, the lease that its client does not know of yet, and what is counted.

use super::call::{BLOCKED, Call, UNLIMITED};
use super::decided::Decided;
use super::rule::Policy;
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
    call: Call<'a>,
    answer: Answer,
    at: Time,
    /// The lease. `None` if the call was denied, even if by a shadow rule, has no limits, or costs nothing.
    pub lease: Option<UndeliveredLease>,
}

/// A granted lease whose reply has not reached its client. Dropping it releases it.
#[must_use = "a lease that is dropped is released"]
pub struct UndeliveredLease {
    text: String,
    held: Option<HeldLease>,
    tally: Arc<LeaseTally>,
}

/// What this server has done with the leases of a rule.
#[derive(Default, Debug)]
pub(super) struct LeaseTally {
    acquired: AtomicU64,
    renewed: AtomicU64,
    released: AtomicU64,
    waiting: AtomicUsize,
}

/// A waiter for a lease at this server.
struct Waiting<'a>(&'a LeaseTally);

/// What has become of the leases of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeasesView {
    /// Leases that this server has granted.
    pub acquired: u64,
    /// How often a lease was renewed here.
    pub renewed: u64,
    /// Leases that were released here, also for clients that left before they were told.
    pub released: u64,
    /// Waiters now: in memory, or at this server for leases in a shared store.
    pub waiting: usize,
    /// What is known only if leases live in memory.
    pub here: Option<HeldView>,
}

/// The leases of a rule, in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HeldView {
    /// Leases that are held now.
    pub held: usize,
    /// Leases that expired.
    pub lapsed: u64,
}

impl Leased<'_> {
    /// The answer under its rule. If rules were loaded while the call waited, this is the newer one.
    pub fn decided(&self) -> Decided<'_> {
        self.call.decided(self.answer, self.at)
    }

    /// The call, under the rule that decided it.
    pub fn call(&self) -> &Call<'_> {
        &self.call
    }
}

impl UndeliveredLease {
    fn new(held: HeldLease, tally: &Arc<LeaseTally>) -> UndeliveredLease {
        count(&tally.acquired);
        UndeliveredLease { text: held.id().to_string(), held: Some(held), tally: Arc::clone(tally) }
    }

    /// Its id, as the reply writes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The reply was delivered: the lease is the client's now, until it releases it or lets it expire.
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
    fn waiter(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// `memory`: what is known of leases that live there.
    pub(super) fn view(&self, memory: Option<SemaphoreStats>) -> LeasesView {
        let [acquired, renewed, released] =
            [&self.acquired, &self.renewed, &self.released].map(|counter| counter.load(Ordering::Relaxed));
        // Memory knows which calls are in a queue, and not just which would be.
        let waiting = memory.map_or_else(|| self.waiting.load(Ordering::Relaxed), |stats| stats.waiting);
        let here = memory.map(|stats| HeldView { held: stats.leases, lapsed: stats.expired });
        LeasesView { acquired, renewed, released, waiting, here }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Takes a lease if there is a permit for its cost, and waits in the key's queue for one for at most `max_wait`.
    /// Dropped while it waits, it leaves the queue. A shadow rule lets no call wait.
    ///
    /// # Errors
    /// As [`Engine::call`], and when the limit grants no leases or a shared store gives no answer.
    pub async fn acquire<'a>(
        &self,
        target: Target<'a>,
        cost: u64,
        max_wait: Span,
        now: Time,
    ) -> Result<Leased<'a>, RequestError> {
        // From before the rule is looked up, so that no later load is missed.
        let loaded = self.loaded.notified();
        let mut call = self.call(target, cost)?;
        call.rule.grants_only_leases()?;
        let (answer, held) = match call.policy() {
            Policy::Unlimited => (UNLIMITED.into(), None),
            Policy::Blocked => (BLOCKED.into(), None),
            Policy::Limits(limits) => {
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

    /// Waits for a lease, and makes rules that are loaded meanwhile hold for it: a queue in memory goes by the limit that
    /// its key was last asked about with, and only here is it known which that is. Returns the call under the newest
    /// rule, if that is not the first and still has limits for the key.
    async fn follow_loads<'a, T>(
        &self,
        target: Target<'a>,
        cost: u64,
        loaded: Notified<'_>,
        acquire: impl IntoFuture<Output = T>,
    ) -> (T, Option<Call<'a>>) {
        let (mut loaded, mut acquire, mut newer) = (pin!(loaded), pin!(acquire.into_future()), None);
        loop {
            tokio::select! {
                biased;
                granted = &mut acquire => return (granted, newer),
                () = &mut loaded => {
                    loaded.set(self.loaded.notified());
                    if let Ok(call) = self.call(target, cost) {
                        call.apply_to_waiters(self.now());
                        newer = matches!(call.policy(), Policy::Limits(_)).then_some(call).or(newer);
                    }
                }
            }
        }
    }

    /// Extends a live lease by a full TTL. Returns `false` if it had expired.
    ///
    /// # Errors
    /// As [`Engine::acquire`], and when the text is no lease.
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
    /// As [`Engine::renew`].
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

impl Call<'_> {
    /// Makes the waiters of a key in memory go by this call's limit from now on.
    fn apply_to_waiters(&self, now: Time) {
        if let Ok(leases) = self.limits().backend.leases() {
            // Memory has answered at this point. A shared store has no such queue, and is not asked.
            let _ = leases.backend.peek(&self.key, 0, Some(now)).ready();
        }
    }
}

/// Returns `true` if leases are granted under these limits, which form a list.
///
/// # Errors
/// When a limit that gives leases is not alone, or does not say when they lapse.
pub(crate) fn grants_leases(limits: &[Limit]) -> Result<bool, RequestError> {
    let Some((limit, concurrency)) = limits.iter().find_map(|limit| Some((limit, limit.as_concurrency()?)))
    else {
        return Ok(false);
    };
    if limits.len() > 1 {
        return Err(RequestError::new(format!(
            "{limit}: concurrency gives leases, and does not go with other limits; make a rule of it alone"
        )));
    }
    if concurrency.ttl().is_none() {
        return Err(RequestError::new(format!(
            "{limit}: a client that crashes would hold its place for ever; say after how long a lease lapses that is not renewed, as in \"{limit} ttl=30s\""
        )));
    }
    Ok(true)
}

/// Why limits of a key cannot be an exception to those of its rule, if they cannot: leases and checks do not know of each
/// other, and callers would have to know which keys are exceptions.
pub(crate) fn of_another_kind(rule: &[Limit], exception: &[Limit]) -> Option<RequestError> {
    let gives_leases = |limits: &[Limit]| limits.iter().any(|limit| limit.as_concurrency().is_some());
    let kind = match (gives_leases(rule), gives_leases(exception)) {
        (true, false) => "gives leases; use another concurrency limit",
        (false, true) => "decides checks; use a limit that does",
        _ => return None,
    };
    let limit = exception.first()?;
    Some(RequestError::new(format!(
        "{limit} is for one key of a rule that {kind}, \"unlimited\" or \"blocked\""
    )))
}

/// The mistake of checking where leases are given.
pub(super) fn use_acquire() -> RequestError {
    RequestError::new(
        "a concurrency limit gives leases, which a check could not return; use RL.ACQUIRE or POST /v1/acquire",
    )
}

/// The mistake of asking for a lease where there are none.
pub(super) fn use_check() -> RequestError {
    RequestError::new("only a concurrency limit gives leases; use RL.CHECK or POST /v1/check")
}
