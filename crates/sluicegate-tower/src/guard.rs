//! A guard around a service: breaker, bulkhead, timeout and retries for requests.
//!
//! This is the layer and its settings; `guard/tries.rs` makes the tries of a request, `guard/judge.rs` says how they went,
//! `guard/fallback.rs` is what is given instead, and `guard/service.rs` is the service and the future of its responses.

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

/// Stands between requests and a service that may fail: for clients, and for servers in front of what is slow.
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
/// A request that is refused or takes too long gets an answer: 503 with `Retry-After` from the breaker and the bulkhead, 504 when the time
/// was up. Errors of the service itself stay what they are. The guard is shared: clone a layer, add it to many routes, serve
/// many connections, and there is still one breaker and one bulkhead.
///
/// A response with a status of 500 or more is a failure, and so is an error of the service; see [`GuardLayer::classify`]. A place is held until
/// the head of the response is there, not until its body has ended: [`crate::ConcurrencyLayer`] holds its own for so long. Being ready takes
/// no place, and neither does a future that nobody has polled.
///
/// Requests are not tried again unless [`GuardLayer::retry_with`] says how to make a copy of one.
///
/// It is for HTTP, gRPC included: a service of something else has no response that could say no, and its errors are its own. Around such
/// a one put [`Guard::call`] itself, which gives a [`sluicegate_guard::guard::Failure`].
pub struct GuardLayer<R = ProblemDetails, C = NoRetry, F = NoFallback> {
    /// All there is, as axum has a layer make its service anew with every request.
    shared: Arc<Shared<R, C, F>>,
}

/// What all clones of a layer and its services share.
#[derive(Clone)]
struct Shared<R, C, F> {
    guard: Guard,
    classify: ResponseClassifier,
    /// Writes the answer to a request that was refused or took too long.
    respond: R,
    copy: C,
    fallback: F,
}

impl GuardLayer {
    /// A layer that calls the service through a guard.
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
    /// How a response counts, by its status and header fields. Unless told otherwise a status of 500 or more is a failure, and so is a gRPC
    /// status in the header fields that stands for one: `UNKNOWN`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNAVAILABLE` and `DATA_LOSS`. An
    /// error of the service is always one.
    ///
    /// Failures are what the breaker counts and retries and fallbacks are for. It must not take long.
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

    /// How to make a copy of a request, so that the guard's retries hold for it. `None` for one that must not be made twice, such as an
    /// order.
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
    /// It is asked for a copy before each try, as a request is gone once it was sent. Each further try asks the service whether it is ready.
    #[must_use]
    pub fn retry_with<Q, K>(self, copy: K) -> GuardLayer<R, RetryWith<K>, F>
    where
        K: Fn(&Request<Q>) -> Option<Request<Q>> + Send + Sync,
    {
        let Shared { guard, classify, respond, fallback, .. } = Arc::unwrap_or_clone(self.shared);
        GuardLayer::of(Shared { guard, classify, respond, copy: RetryWith::new(copy), fallback })
    }

    /// Has a closure write the answer to a request that was refused or took too long. `Retry-After` is added to it. Of a request that took
    /// too long it sees the method, the target and the content type.
    #[must_use]
    pub fn respond_with<B, K>(self, respond: K) -> GuardLayer<RespondWith<K>, C, F>
    where
        K: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
    {
        self.answering(RespondWith::new(respond))
    }

    /// Has a closure give a response instead when all tries have failed, took too long or were refused: yesterday's prices, an empty
    /// list. It is given as it is, without `Retry-After`. Of a request that was sent it sees the method, the target and the content type.
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
    /// The guard counts and tells of it as of its own fallbacks, and at most
    /// [`max_fallbacks`](sluicegate_guard::guard::GuardBuilder::max_fallbacks) are under way at once: when even they hang, the rest is answered as without
    /// a fallback. What it has to look up elsewhere and wait for is better a service of its own.
    #[must_use]
    pub fn fallback<B, K>(self, respond: K) -> GuardLayer<R, C, RespondWith<K>>
    where
        K: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
    {
        let Shared { guard, classify, respond: reject, copy, .. } = Arc::unwrap_or_clone(self.shared);
        let fallback = RespondWith::new(respond);
        GuardLayer::of(Shared { guard, classify, respond: reject, copy, fallback })
    }

    /// Answers with a gRPC status. For tonic; services with other bodies answer gRPC calls so by themselves.
    #[must_use]
    pub fn grpc(self) -> GuardLayer<GrpcStatus, C, F> {
        self.answering(GrpcStatus)
    }

    fn answering<T>(self, respond: T) -> GuardLayer<T, C, F> {
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
