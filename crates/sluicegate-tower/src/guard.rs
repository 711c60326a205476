//! A guard around a service: breaker, bulkhead, timeout and retries for requests.
//!
//! This file has the layer and its settings, `guard/attempts.rs` makes the attempts of a request,
//! `guard/classify.rs` classifies their responses, `guard/fallback.rs` is the fallback, and
//! `guard/service.rs` has the service and its response future.

mod attempts;
mod classify;
mod fallback;
mod service;

pub use attempts::{CloneRequest, NoRetry, RetryWith};
pub use fallback::{Fallback, NoFallback};
pub use service::{GuardFuture, GuardService};

use crate::rejection::{GrpcStatus, ProblemDetails, Rejection, RespondWith};
use classify::ResponseClassifier;
use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate_guard::{Guard, Outcome};
use std::fmt;
use std::sync::Arc;
use tower_layer::Layer;

/// Protects callers from a service that may fail or slow down: in clients, and in servers in front
/// of slow routes.
///
/// ```
/// use sluicegate_guard::Guard;
/// use sluicegate_tower::GuardLayer;
/// use std::time::Duration;
///
/// let guard = Guard::builder("search")
///     .breaker("breaker 50%/10s")
///     .bulkhead("bulkhead 50 queue=20 wait=500ms")
///     .timeout(Duration::from_secs(2))
///     .build()?;
/// let layer = GuardLayer::new(guard);
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
///
/// A request that is denied or times out gets a response: 503 with `Retry-After` from the breaker
/// and the bulkhead, 504 for a timeout. Errors of the service itself are passed on. The guard is
/// shared by all clones of the layer, all its routes and all connections.
///
/// A response with a status of 500 or more is a failure, and so is an error of the service; see
/// [`GuardLayer::classify`]. A permit is held until the head of the response is ready, not until
/// its body ends, as a lease of [`crate::ConcurrencyLayer`] is. Being ready takes no permit, and
/// neither does a future that has not been polled.
///
/// Requests are retried only if [`GuardLayer::retry_with`] can copy them.
///
/// It is for HTTP, including gRPC: other services have no response for a denial, and errors of
/// their own type. Call those with [`Guard::call`], which returns a
/// [`sluicegate_guard::guard::Failure`].
pub struct GuardLayer<R = ProblemDetails, C = NoRetry, F = NoFallback> {
    /// Behind one pointer, since axum makes a new service per request.
    shared: Arc<Shared<R, C, F>>,
}

/// What all clones of a layer and its services share.
#[derive(Clone)]
struct Shared<R, C, F> {
    guard: Guard,
    classify: ResponseClassifier,
    /// Writes the response to a request that was denied or timed out.
    respond: R,
    copy: C,
    fallback: F,
}

impl GuardLayer {
    /// Creates a layer that calls the service through a guard.
    pub fn new(guard: Guard) -> GuardLayer {
        let shared = Shared {
            guard,
            classify: ResponseClassifier::default(),
            respond: ProblemDetails,
            copy: NoRetry,
            fallback: NoFallback,
        };
        GuardLayer::of(shared)
    }
}

impl<R: Clone, C: Clone, F: Clone> GuardLayer<R, C, F> {
    /// Classifies a response by its status and header fields. By default a status of 500 or more is
    /// a failure, and so is a gRPC status in the header fields that corresponds to one: `UNKNOWN`,
    /// `DEADLINE_EXCEEDED`, `INTERNAL`, `UNAVAILABLE` and `DATA_LOSS`. An error of the service is
    /// always a failure.
    ///
    /// The breaker counts failures; retries and fallbacks apply to them. The closure must be fast.
    #[must_use]
    pub fn classify(
        self,
        classify: impl Fn(StatusCode, &HeaderMap) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        GuardLayer::of(Shared {
            classify: ResponseClassifier::of(classify),
            ..Arc::unwrap_or_clone(self.shared)
        })
    }

    /// Sets how to copy a request, so that the guard's retries apply to it. Return `None` for a
    /// request that must not be made twice, such as an order.
    ///
    /// ```
    /// use http::{Method, Request};
    /// use sluicegate_guard::Guard;
    /// use sluicegate_tower::GuardLayer;
    ///
    /// let guard = Guard::builder("search").retry("retry 2 budget=10%").build()?;
    /// let layer = GuardLayer::new(guard)
    ///     .retry_with(|request: &Request<String>| (request.method() == Method::GET).then(|| request.clone()));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// ```
    ///
    /// The closure runs before each attempt, since a request is consumed when it is sent. A retry
    /// waits until the service is ready.
    #[must_use]
    pub fn retry_with<Q, K>(self, copy: K) -> GuardLayer<R, RetryWith<K>, F>
    where
        K: Fn(&Request<Q>) -> Option<Request<Q>> + Send + Sync,
    {
        let Shared { guard, classify, respond, fallback, .. } = Arc::unwrap_or_clone(self.shared);
        GuardLayer::of(Shared { guard, classify, respond, copy: RetryWith::new(copy), fallback })
    }

    /// Uses a closure to write the response to a request that was denied or timed out;
    /// `Retry-After` is added. Of a request that timed out, the closure sees the method, the target
    /// and the content type.
    #[must_use]
    pub fn respond_with<B, K>(self, respond: K) -> GuardLayer<RespondWith<K>, C, F>
    where
        K: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
    {
        self.responding(RespondWith::new(respond))
    }

    /// Uses a closure to respond when all attempts failed, timed out or were denied: yesterday's
    /// prices, an empty list. The response is sent as it is, without `Retry-After`. Of a request
    /// that was sent, the closure sees the method, the target and the content type.
    ///
    /// ```
    /// use http::Response;
    /// use sluicegate_guard::Guard;
    /// use sluicegate_tower::GuardLayer;
    ///
    /// let guard = Guard::builder("recommendations").breaker("breaker 50%/10s").build()?;
    /// let layer = GuardLayer::new(guard).fallback(|_why| Response::new(String::from("[]")));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// ```
    ///
    /// The guard counts and reports it as one of its own fallbacks. At most
    /// [`max_fallbacks`](sluicegate_guard::guard::GuardBuilder::max_fallbacks) run at once; a
    /// request beyond that gets the response it would get without a fallback. A fallback that has
    /// to wait for other services is better a service of its own.
    #[must_use]
    pub fn fallback<B, K>(self, respond: K) -> GuardLayer<R, C, RespondWith<K>>
    where
        K: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
    {
        let Shared { guard, classify, respond: reject, copy, .. } = Arc::unwrap_or_clone(self.shared);
        let fallback = RespondWith::new(respond);
        GuardLayer::of(Shared { guard, classify, respond: reject, copy, fallback })
    }

    /// Responds with a gRPC status. Needed for tonic; with other body types gRPC calls get one
    /// anyway.
    #[must_use]
    pub fn grpc(self) -> GuardLayer<GrpcStatus, C, F> {
        self.responding(GrpcStatus)
    }

    fn responding<T>(self, respond: T) -> GuardLayer<T, C, F> {
        let Shared { guard, classify, copy, fallback, .. } = Arc::unwrap_or_clone(self.shared);
        GuardLayer::of(Shared { guard, classify, respond, copy, fallback })
    }
}

impl<R, C, F> GuardLayer<R, C, F> {
    fn of(shared: Shared<R, C, F>) -> GuardLayer<R, C, F> {
        GuardLayer { shared: Arc::new(shared) }
    }
}

impl<S, R, C, F> Layer<S> for GuardLayer<R, C, F> {
    type Service = GuardService<S, R, C, F>;

    #[inline]
    fn layer(&self, inner: S) -> GuardService<S, R, C, F> {
        GuardService::new(inner, Arc::clone(&self.shared))
    }
}

impl<R, C, F> Clone for GuardLayer<R, C, F> {
    fn clone(&self) -> Self {
        GuardLayer { shared: Arc::clone(&self.shared) }
    }
}

impl<R, C, F> fmt::Debug for GuardLayer<R, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardLayer").field("guard", &self.shared.guard).finish_non_exhaustive()
    }
}
