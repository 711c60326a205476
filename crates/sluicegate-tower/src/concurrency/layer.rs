//! The layer, its settings, and how it admits requests.

use super::service::ConcurrencyLimit;
use crate::common::{Admit, BackendCall, Common, Shared, common_methods, require_backend};
use crate::key::RequestKey;
use crate::rejection::{ProblemDetails, Reason, Respond};
use http::Response;
use sluicegate::backend::HeldLease;
use sluicegate::backend::{BackendError, LeaseBackend, Pending};
use sluicegate::http_fields::quoted;
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Limits the requests in flight per key. A rate limit bounds how often a client may call; this
/// bounds how much of the service it may use at one time, however long its requests take.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
/// use sluicegate_tower::{ConcurrencyLayer, key};
///
/// // Per customer: two exports at once.
/// let layer = ConcurrencyLayer::new(Semaphore::new("concurrency 2")?)
///     .key(key::header("x-customer"))
///     .name("exports");
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A request holds a lease until the body of its response has ended or was dropped, so a download
/// counts for its whole duration, and a client that disconnects releases its lease; see
/// [`HoldUntil`]. A request beyond the limit is denied with 429, or waits:
/// [`ConcurrencyLayer::wait`]. The cost of a request is the number of permits of its lease.
///
/// The semaphore is any [`LeaseBackend`]: [`sluicegate::semaphore::Semaphore`], or
/// `sluicegate_redis::RedisSemaphore`. It is shared by all clones of the layer, all its routes and
/// all connections. Being ready takes no permit. Under a limit with `ttl` a lease expires after
/// that time even if its response continues, since nothing renews it. Within one process omit
/// `ttl`: a dropped response is released.
pub struct ConcurrencyLayer<L, R = ProblemDetails> {
    /// Behind one pointer, since axum makes a new service per request.
    shared: Arc<Shared<Settings<L>, R>>,
}

common_methods!(ConcurrencyLayer, LeaseBackend, ConcurrencyLimit);

/// How long a request holds its lease.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the body of the response has ended, or was dropped.
    #[default]
    BodyEnd,
    /// Until the head of the response is ready: for services whose work is done by then, in front
    /// of slow readers.
    ResponseHead,
}

/// The settings of this layer alone.
#[derive(Clone)]
pub(crate) struct Settings<L> {
    semaphore: L,
    max_wait: Option<Duration>,
    pub(super) hold: HoldUntil,
    unavailable: bool,
}

impl<L: LeaseBackend + Clone + 'static> ConcurrencyLayer<L> {
    /// Creates a layer that denies requests without a free permit.
    pub fn new(semaphore: L) -> ConcurrencyLayer<L> {
        let settings = Settings { semaphore, max_wait: None, hold: HoldUntil::default(), unavailable: false };
        ConcurrencyLayer { shared: Arc::new(Shared::new(settings, ProblemDetails)) }
    }
}

impl<L: LeaseBackend + Clone + 'static, R: Clone> ConcurrencyLayer<L, R> {
    /// Lets a request wait for a permit in the queue of its key, for up to `max_wait`. A request
    /// that finds the queue full (`max_queue` of the semaphore) is denied immediately.
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.shared_mut().settings.max_wait = Some(max_wait);
        self
    }

    /// Sets how long a request holds its lease. The default is [`HoldUntil::BodyEnd`].
    #[must_use]
    pub fn hold_until(mut self, hold: HoldUntil) -> Self {
        self.shared_mut().settings.hold = hold;
        self
    }

    /// Denies with 503 instead of 429: for a limit of the service as a whole, with
    /// [`crate::key::everyone`] or a route as its key, where the client has not asked for too much.
    #[must_use]
    pub fn unavailable(mut self) -> Self {
        self.shared_mut().settings.unavailable = true;
        self
    }
}

impl<L: LeaseBackend, R> Admit<R> for Settings<L> {
    type Answer = Result<Grant<HeldLease>, BackendError>;
    /// `None` if the request cost nothing, or was admitted without the store.
    type Admitted = Option<HeldLease>;

    #[inline]
    fn ask_backend(&self, key: &RequestKey<'_>, cost: u64) -> Pending<Self::Answer> {
        match self.max_wait {
            None => self.semaphore.try_acquire(key, cost, None),
            max_wait => self.semaphore.acquire(key, cost, max_wait),
        }
    }

    #[inline]
    fn admit<B>(
        shared: &Arc<Shared<Self, R>>,
        answer: Self::Answer,
        call: &BackendCall<'_>,
    ) -> Result<Option<HeldLease>, Response<B>>
    where
        R: Respond<B>,
    {
        match answer {
            Ok(grant) if grant.allowed() => Ok(grant.lease()),
            answer => {
                let reason = shared.settings.reason(answer);
                Err(shared.reject(reason, quoted(&shared.common.name), call.head))
            }
        }
    }
}

impl<L> Settings<L> {
    /// Returns why a request is not admitted.
    #[cold]
    fn reason(&self, answer: Result<Grant<HeldLease>, BackendError>) -> Reason {
        let grant = match answer {
            Ok(grant) => grant,
            Err(error) => return Reason::BackendFailed(error),
        };
        match (require_backend(&grant.answer()), grant.denial()) {
            (Err(error), _) => Reason::BackendFailed(error),
            // The semaphore is full with leases of all keys, which is not this client's fault.
            (_, Some(Denial::NoRoom)) => Reason::AtCapacity,
            (_, denial) if self.unavailable && denial != Some(Denial::Never) => Reason::AtCapacity,
            _ => Reason::TooManyInFlight(grant.decision()),
        }
    }
}

impl<L: fmt::Debug, R> fmt::Debug for ConcurrencyLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { common: Common { name, on_missing_key, .. }, settings, .. } = &*self.shared;
        f.debug_struct("ConcurrencyLayer")
            .field("name", name)
            .field("semaphore", &settings.semaphore)
            .field("max_wait", &settings.max_wait)
            .field("hold", &settings.hold)
            .field("on_missing_key", on_missing_key)
            .finish_non_exhaustive()
    }
}
