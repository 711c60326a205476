//! The layer and its settings.

use super::event::RateLimitEvent;
use super::fields::Policies;
use super::service::RateLimit;
use super::settle::{Charge, Completion};
use crate::common::{Common, Shared, common_methods};
use crate::rejection::ProblemDetails;
use http::StatusCode;
use sluicegate::backend::Backend;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Limits the rate of requests per key.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate_tower::{RateLimitLayer, key};
///
/// let layer = RateLimitLayer::new(Limiter::new("token-bucket 10/s burst=50")?)
///     .key(key::header("x-api-key"))
///     .cost(|head| if head.uri.path().starts_with("/export") { 10 } else { 1 })
///     .name("api");
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// The limiter is any [`Backend`]: [`sluicegate::Limiter`], or `sluicegate_redis::RedisLimiter`. It
/// is shared: clones of the layer, all its routes and all connections share one limit, and so do
/// layers made from clones of one limiter.
///
/// A later setting replaces an earlier one. `R` writes the layer's own responses; see
/// [`RateLimitLayer::grpc`] and [`RateLimitLayer::respond_with`].
pub struct RateLimitLayer<L, R = ProblemDetails> {
    /// Behind one pointer, since axum makes a new service per request.
    shared: Arc<Shared<Settings<L>, R>>,
}

common_methods!(RateLimitLayer, Backend, RateLimit);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Enforce,
    Wait(Duration),
    Shadow,
}

type After = Arc<dyn Fn(&Completion<'_>) -> Charge + Send + Sync>;
type Observe = Arc<dyn Fn(&RateLimitEvent<'_>) + Send + Sync>;

/// The settings of this layer alone.
#[derive(Clone)]
pub(crate) struct Settings<L> {
    pub(super) limiter: L,
    pub(super) mode: Mode,
    pub(super) after: Option<After>,
    pub(super) observe: Option<Observe>,
    headers: Option<bool>,
    pub(super) policies: Policies,
}

impl<L> Settings<L> {
    /// Returns `true` if responses carry the fields.
    #[inline]
    pub(super) fn sends_headers(&self) -> bool {
        self.headers.unwrap_or(self.mode != Mode::Shadow)
    }
}

impl<L: Backend + Clone + 'static> RateLimitLayer<L> {
    /// Creates a layer that denies what the limiter denies.
    pub fn new(limiter: L) -> RateLimitLayer<L> {
        let settings = Settings {
            limiter,
            mode: Mode::Enforce,
            after: None,
            observe: None,
            headers: None,
            policies: Policies::default(),
        };
        RateLimitLayer { shared: Arc::new(Shared::new(settings, ProblemDetails)) }
    }
}

impl<L: Backend + Clone + 'static, R: Clone> RateLimitLayer<L, R> {
    /// Denies what the limiter denies. This is the default. Under a `pacer`, which allows calls for
    /// later, an admitted request continues when it is due.
    #[must_use]
    pub fn enforce(mut self) -> Self {
        self.shared_mut().settings.mode = Mode::Enforce;
        self
    }

    /// Lets a request wait in the queue of its key. A request that would have to wait longer than
    /// `max_wait`, or finds the queue full (`max_queue` of the limiter), is denied immediately.
    ///
    /// Together with [`RateLimitLayer::settle`] a request is reserved: buckets and pacers let it
    /// wait, windows and logs decide as with [`RateLimitLayer::enforce`].
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.shared_mut().settings.mode = Mode::Wait(max_wait);
        self
    }

    /// Decides and charges, but denies nothing: to see what a limit would do before enforcing it.
    /// The observer sees [what would have been denied](crate::EventKind::WouldDeny); clients see
    /// nothing.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shared_mut().settings.mode = Mode::Shadow;
        self
    }

    /// Sets whether responses carry `RateLimit` and `RateLimit-Policy`. By default they do, except
    /// in shadow mode. A denial always has `Retry-After`.
    #[must_use]
    pub fn headers(mut self, enabled: bool) -> Self {
        self.shared_mut().settings.headers = Some(enabled);
        self
    }

    /// Calls a closure with the decision about each request that is not skipped. It delays the
    /// request.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&RateLimitEvent<'_>) + Send + Sync + 'static) -> Self {
        self.shared_mut().settings.observe = Some(Arc::new(observer));
        self
    }

    /// Adjusts the charge of a request once its response is ready. The cost is reserved before, so
    /// that concurrent requests count and cannot bypass the limit together; `charge` says how much
    /// of it stays.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// use sluicegate_tower::{Charge, Completion, RateLimitLayer};
    ///
    /// // Reserves 1000 tokens per request, then charges what the response reports.
    /// # let limiter = Limiter::new("token-bucket 1000/min burst=10000")?;
    /// let layer = RateLimitLayer::new(limiter).cost(|_| 1000).settle(|outcome| match outcome {
    ///     Completion::Response { headers, .. } => headers
    ///         .get("x-tokens-used")
    ///         .and_then(|value| value.to_str().ok()?.parse().ok())
    ///         .map_or(Charge::Keep, Charge::Exactly),
    ///     _ => Charge::Keep,
    /// });
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    #[must_use]
    pub fn settle(mut self, charge: impl Fn(&Completion<'_>) -> Charge + Send + Sync + 'static) -> Self {
        self.shared_mut().settings.after = Some(Arc::new(charge));
        self
    }

    /// Charges only requests whose response has a matching status, and returns the charge of
    /// others: to limit failed logins instead of logins. A request without a response, because the
    /// client closed its connection or the service failed, stays charged; otherwise a client could
    /// disconnect in time and never be charged.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// # use sluicegate_tower::{RateLimitLayer, key};
    /// use http::StatusCode;
    ///
    /// let failed_logins = RateLimitLayer::new(Limiter::new("sliding-log 5/15min")?)
    ///     .key(key::peer_ip())
    ///     .charge_if(|status| status == StatusCode::UNAUTHORIZED);
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    #[must_use]
    pub fn charge_if(self, is_charged: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.settle(move |outcome| match outcome {
            Completion::Response { status, .. } if !is_charged(*status) => Charge::Refund,
            _ => Charge::Keep,
        })
    }
}

impl<L: fmt::Debug, R> fmt::Debug for RateLimitLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { common: Common { name, on_missing_key, .. }, settings, .. } = &*self.shared;
        f.debug_struct("RateLimitLayer")
            .field("name", name)
            .field("limiter", &settings.limiter)
            .field("mode", &settings.mode)
            .field("on_missing_key", on_missing_key)
            .finish_non_exhaustive()
    }
}
