//! The layer and its settings.

use super::after::{Charge, Outcome};
use super::fields::Policies;
use super::observe::Seen;
use super::service::RateLimit;
use crate::common::{Common, Shared, common_methods};
use crate::refusal::Problem;
use http::StatusCode;
use sluicegate::Backend;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Limits requests before they reach a service.
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
/// The limiter is any [`Backend`]: [`sluicegate::Limiter`], or `sluicegate_redis::RedisLimiter`. It is shared: clone a
/// layer, add it to many routes, serve many connections, and there is still one limit. Two layers made from clones of
/// one limiter share it too.
///
/// A setting that is made twice has the later value. `R` writes the responses of the layer's own; see
/// [`RateLimitLayer::grpc`] and [`RateLimitLayer::respond_with`].
pub struct RateLimitLayer<L, R = Problem> {
    /// Behind one pointer, as axum has a layer make a new service for every request.
    shared: Arc<Shared<Settings<L>, R>>,
}

common_methods!(RateLimitLayer, Backend, RateLimit);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Enforce,
    Wait(Duration),
    Shadow,
}

type After = Arc<dyn Fn(&Outcome<'_>) -> Charge + Send + Sync>;
type Observe = Arc<dyn Fn(&Seen<'_>) + Send + Sync>;

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
    /// Whether responses carry the fields.
    #[inline]
    pub(super) fn tells(&self) -> bool {
        self.headers.unwrap_or(self.mode != Mode::Shadow)
    }
}

impl<L: Backend + Clone + 'static> RateLimitLayer<L> {
    /// A layer that denies what the limiter denies.
    pub fn new(limiter: L) -> RateLimitLayer<L> {
        let settings = Settings {
            limiter,
            mode: Mode::Enforce,
            after: None,
            observe: None,
            headers: None,
            policies: Policies::default(),
        };
        RateLimitLayer { shared: Arc::new(Shared::new(settings, Problem)) }
    }
}

impl<L: Backend + Clone + 'static, R: Clone> RateLimitLayer<L, R> {
    /// Refuses what the limiter denies. This is what a layer does unless told otherwise. Under a `pacer`, whose yes is one for
    /// later, a request that is admitted goes on when it is due.
    #[must_use]
    pub fn enforce(mut self) -> Self {
        self.shared_mut().own.mode = Mode::Enforce;
        self
    }

    /// Lets a request wait for its turn, first come, first served for each key. One that would have to wait longer than this
    /// is refused at once, without waiting at all; so is one that finds the line full (`max_line` of the limiter).
    ///
    /// Together with [`RateLimitLayer::after`] a request reserves its turn: buckets and pacers let it wait, windows and logs answer
    /// as in [`RateLimitLayer::enforce`].
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.shared_mut().own.mode = Mode::Wait(max_wait);
        self
    }

    /// Decides and charges, but refuses nothing: to see what a limit would do before it does. The observer is told
    /// [what would have been denied](crate::Verdict::WouldDeny), and clients are told nothing.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shared_mut().own.mode = Mode::Shadow;
        self
    }

    /// Whether responses carry `RateLimit` and `RateLimit-Policy`: yes unless told otherwise, but in shadow mode. A refusal has
    /// its `Retry-After` in any case.
    #[must_use]
    pub fn headers(mut self, told: bool) -> Self {
        self.shared_mut().own.headers = Some(told);
        self
    }

    /// Is told of every request that was not skipped, when its decision is made. What it takes, each request takes.
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(&Seen<'_>) + Send + Sync + 'static) -> Self {
        self.shared_mut().own.observe = Some(Arc::new(observer));
        self
    }

    /// What a request is charged once it is over. On the way in its cost is reserved, so that requests that are under way count
    /// and cannot slip through together; on the way out this says what stays of it.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// use sluicegate_tower::{Charge, Outcome, RateLimitLayer};
    ///
    /// // Ten at a time, and each costs as many tokens as its answer says.
    /// # let limiter = Limiter::new("token-bucket 1000/m burst=10000")?;
    /// let layer = RateLimitLayer::new(limiter).cost(|_| 1000).after(|outcome| match outcome {
    ///     Outcome::Response { headers, .. } => headers
    ///         .get("x-tokens-used")
    ///         .and_then(|value| value.to_str().ok()?.parse().ok())
    ///         .map_or(Charge::Keep, Charge::Exactly),
    ///     _ => Charge::Keep,
    /// });
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    #[must_use]
    pub fn after(mut self, charge: impl Fn(&Outcome<'_>) -> Charge + Send + Sync + 'static) -> Self {
        self.shared_mut().own.after = Some(Arc::new(charge));
        self
    }

    /// Charges only requests whose response has a status like this, and gives back what was reserved for others: limit
    /// failed logins, not logins. A request that ends without a response, because the client has gone or the service failed,
    /// stays charged: otherwise whoever hangs up in time would be free.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// # use sluicegate_tower::{RateLimitLayer, key};
    /// use http::StatusCode;
    ///
    /// let failed_logins = RateLimitLayer::new(Limiter::new("sliding-log 5/15m")?)
    ///     .key(key::peer_ip())
    ///     .charge_if(|status| status == StatusCode::UNAUTHORIZED);
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    #[must_use]
    pub fn charge_if(self, is_charged: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.after(move |outcome| match outcome {
            Outcome::Response { status, .. } if !is_charged(*status) => Charge::Refund,
            _ => Charge::Keep,
        })
    }
}

impl<L: fmt::Debug, R> fmt::Debug for RateLimitLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { common: Common { name, without_key, .. }, own, .. } = &*self.shared;
        f.debug_struct("RateLimitLayer")
            .field("name", name)
            .field("limiter", &own.limiter)
            .field("mode", &own.mode)
            .field("without_key", without_key)
            .finish_non_exhaustive()
    }
}
