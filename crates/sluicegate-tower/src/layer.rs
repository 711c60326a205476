//! The layer and its settings.

use crate::after::{Charge, Outcome};
use crate::backend::{Ask, Backend};
use crate::fields::Policies;
use crate::head::Head;
use crate::key::{self, Extract, NoKey};
use crate::observe::Seen;
use crate::refusal::{GrpcStatus, Problem, Reason, Refusal, RespondWith};
use crate::service::RateLimit;
use http::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;

/// What policies are called in header fields unless told otherwise.
pub(crate) const NAME_DEFAULT: &str = "default";

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
/// The limiter is shared: clone a layer, add it to many routes, serve many connections, and there is still one limit. Two
/// layers made from clones of one limiter share it too.
///
/// Settings that are said twice are what was said last. `R` writes the answers of the layer's own; see
/// [`RateLimitLayer::grpc`] and [`RateLimitLayer::respond_with`].
pub struct RateLimitLayer<L, R = Problem> {
    /// All there is, as axum has a layer make its service anew with every request.
    shared: Arc<Shared<L, R>>,
}

/// What to do with a request that has no key because the client did not send one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum WithoutKey {
    /// All of them share one key. Nothing gets past the limit, and nobody is turned away who would have been welcome.
    #[default]
    Share,
    /// Refused with 400.
    Refuse,
    /// Admitted without being limited: for keys that only some requests have to have. Whoever leaves the key out is free.
    Pass,
}

/// What is done with a request without a key.
pub(crate) enum WithoutKeyThen {
    Share,
    Pass,
    Refuse(Reason),
}

impl WithoutKey {
    pub(crate) fn then(self, missing: NoKey) -> WithoutKeyThen {
        match (missing, self) {
            (NoKey::Absent, WithoutKey::Share) => WithoutKeyThen::Share,
            (NoKey::Absent, WithoutKey::Pass) => WithoutKeyThen::Pass,
            (NoKey::Absent, WithoutKey::Refuse) => WithoutKeyThen::Refuse(Reason::NoKey),
            (NoKey::NotProvided(what), _) => WithoutKeyThen::Refuse(Reason::SetUp(what.into())),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Enforce,
    Wait(Duration),
    Shadow,
}

pub(crate) type OfHead<T> = Arc<dyn Fn(&Head<'_>) -> T + Send + Sync>;
type After = Arc<dyn Fn(&Outcome<'_>) -> Charge + Send + Sync>;
type Observe = Arc<dyn Fn(&Seen<'_>) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings<L> {
    pub(crate) limiter: L,
    pub(crate) key: Arc<dyn Extract>,
    pub(crate) without_key: WithoutKey,
    pub(crate) cost: Option<OfHead<u32>>,
    pub(crate) skip: Option<OfHead<bool>>,
    pub(crate) after: Option<After>,
    pub(crate) observe: Option<Observe>,
    pub(crate) mode: Mode,
    headers: Option<bool>,
    pub(crate) name: Arc<str>,
}

/// What all clones of a layer and its services share.
pub(crate) struct Shared<L, R> {
    pub(crate) settings: Settings<L>,
    pub(crate) respond: R,
    pub(crate) policies: Policies,
}

impl<L: Backend> RateLimitLayer<L> {
    /// A layer that refuses what the limiter denies. Unless told otherwise the key is the peer's address:
    /// [`key::peer_ip`].
    pub fn new(limiter: L) -> RateLimitLayer<L> {
        let settings = Settings {
            limiter,
            key: Arc::new(key::peer_ip()),
            without_key: WithoutKey::default(),
            cost: None,
            skip: None,
            after: None,
            observe: None,
            mode: Mode::Enforce,
            headers: None,
            name: NAME_DEFAULT.into(),
        };
        RateLimitLayer::from_parts(settings, Problem)
    }
}

impl<L: Backend, R: Clone> RateLimitLayer<L, R> {
    /// Whom a request is charged to: one of [`crate::key`], or two of them in a tuple.
    #[must_use]
    pub fn key(mut self, key: impl Extract + 'static) -> Self {
        self.settings().key = Arc::new(key);
        self
    }

    /// What to do when the client did not send what the key is made of: [`WithoutKey::Share`] unless told otherwise.
    #[must_use]
    pub fn without_key(mut self, what: WithoutKey) -> Self {
        self.settings().without_key = what;
        self
    }

    /// What a request is worth: 1 unless told otherwise. 0 is admitted always and changes nothing.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.settings().cost = Some(Arc::new(cost));
        self
    }

    /// Requests that are none of the limiter's business, such as health checks: they are admitted, and nobody is told.
    #[must_use]
    pub fn skip(mut self, is_skipped: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings().skip = Some(Arc::new(is_skipped));
        self
    }

    /// Refuses what the limiter denies. This is what a layer does unless told otherwise. Under a `pacer`, whose yes is one for
    /// later, a request that is admitted goes on when it is due.
    #[must_use]
    pub fn enforce(mut self) -> Self {
        self.settings().mode = Mode::Enforce;
        self
    }

    /// Lets a request wait for its turn, first come, first served for each key. One that would have to wait longer than this
    /// is refused at once, without waiting at all; so is one that finds the line full (`max_line` of the limiter).
    ///
    /// Together with [`RateLimitLayer::after`] a request reserves its turn: buckets and pacers let it wait, windows and logs answer
    /// as in [`RateLimitLayer::enforce`].
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.settings().mode = Mode::Wait(max_wait);
        self
    }

    /// Decides and charges, but refuses nothing: to see what a limit would do before it does. The observer is told
    /// [what would have been denied](crate::Verdict::WouldDeny), and clients are told nothing.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.settings().mode = Mode::Shadow;
        self
    }

    /// What the policy is called in header fields and problems: `default` unless told otherwise. Layers that a request passes
    /// one after another should have names of their own.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.settings().name = name.into();
        self
    }

    /// Whether responses carry `RateLimit` and `RateLimit-Policy`: yes unless told otherwise, but in shadow mode. A refusal has
    /// its `Retry-After` in any case.
    #[must_use]
    pub fn headers(mut self, told: bool) -> Self {
        self.settings().headers = Some(told);
        self
    }

    /// Is told of every request that was not skipped, when its decision is made. What it takes, each request takes.
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(&Seen<'_>) + Send + Sync + 'static) -> Self {
        self.settings().observe = Some(Arc::new(observer));
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
        self.settings().after = Some(Arc::new(charge));
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

    /// Answers every refusal with a gRPC status. For tonic; services with other bodies answer gRPC calls so by themselves.
    #[must_use]
    pub fn grpc(self) -> RateLimitLayer<L, GrpcStatus> {
        RateLimitLayer::from_parts(self.shared.settings.clone(), GrpcStatus)
    }

    /// Has a closure write the answer to a request that does not reach the service. `Retry-After` and the `RateLimit` fields
    /// are added to it.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// # use sluicegate_tower::RateLimitLayer;
    /// # use http::Response;
    /// # let limiter = Limiter::new("token-bucket 10/s")?;
    /// let layer = RateLimitLayer::new(limiter).respond_with(|refusal| {
    ///     let mut response = Response::new(String::from("slow down"));
    ///     *response.status_mut() = refusal.status();
    ///     response
    /// });
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    #[must_use]
    pub fn respond_with<B, F>(self, respond: F) -> RateLimitLayer<L, RespondWith<F>>
    where
        F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync,
    {
        RateLimitLayer::from_parts(self.shared.settings.clone(), RespondWith::new(respond))
    }
}

impl<L, R> RateLimitLayer<L, R> {
    fn from_parts(settings: Settings<L>, respond: R) -> RateLimitLayer<L, R> {
        RateLimitLayer { shared: Arc::new(Shared { settings, respond, policies: Policies::default() }) }
    }

    /// To be changed: of this layer alone, whatever was made from it before.
    fn settings(&mut self) -> &mut Settings<L>
    where
        L: Clone,
        R: Clone,
    {
        &mut Arc::make_mut(&mut self.shared).settings
    }
}

impl<L> Settings<L> {
    /// Whether clients are told how they stand.
    #[inline]
    pub(crate) fn tells(&self) -> bool {
        self.headers.unwrap_or(self.mode != Mode::Shadow)
    }

    pub(crate) fn ask(&self, head: &Head<'_>) -> Ask {
        let max_wait = match self.mode {
            Mode::Wait(max_wait) => Some(max_wait),
            Mode::Enforce | Mode::Shadow => None,
        };
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        Ask { cost, max_wait, hold: self.after.is_some(), keep_back: self.mode != Mode::Shadow }
    }
}

impl<S, L, R> Layer<S> for RateLimitLayer<L, R> {
    type Service = RateLimit<S, L, R>;

    #[inline]
    fn layer(&self, inner: S) -> RateLimit<S, L, R> {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl<L, R> Clone for RateLimitLayer<L, R> {
    fn clone(&self) -> RateLimitLayer<L, R> {
        RateLimitLayer { shared: Arc::clone(&self.shared) }
    }
}

/// Settings that are about to be changed; what is told of them is worked out anew.
impl<L: Clone, R: Clone> Clone for Shared<L, R> {
    fn clone(&self) -> Shared<L, R> {
        let Shared { settings, respond, .. } = self;
        Shared { settings: settings.clone(), respond: respond.clone(), policies: Policies::default() }
    }
}

impl<L: fmt::Debug, R> fmt::Debug for RateLimitLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { limiter, name, mode, without_key, .. } = &self.shared.settings;
        f.debug_struct("RateLimitLayer")
            .field("name", name)
            .field("limiter", limiter)
            .field("mode", mode)
            .field("without_key", without_key)
            .finish_non_exhaustive()
    }
}
