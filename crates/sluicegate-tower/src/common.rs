//! What the layers with a key share: settings, the methods that set them, and the path of a request
//! to its answer.
//!
//! A layer is a [`Shared`]: common settings, its own settings (which [`Admit`] requests), and a
//! writer of responses. An option for every layer is a field of [`Common`] and a method in
//! [`common_methods`].

use crate::future::{Admission, Parked};
use crate::key::{self, KeyExtractor, MissingKey, RequestKey};
use crate::rejection::{Reason, Rejection, Respond};
use crate::request_head::RequestHead;
use http::{Request, Response};
use sluicegate::backend::{Answer, BackendError, Pending, Source, StoreFailure};
use std::mem;
use std::sync::Arc;
use tower_service::Service;

/// What to do with a request whose client did not send a key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one key: none bypasses the limit, and none is rejected.
    #[default]
    Share,
    /// Rejected with 400.
    Reject,
    /// Admitted without a limit, for keys that only some requests have. A client that omits the key
    /// is not limited.
    Admit,
}

pub(crate) type OfHead<T> = Arc<dyn Fn(&RequestHead<'_>) -> T + Send + Sync>;

/// The settings of every layer.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) key: Arc<dyn KeyExtractor>,
    pub(crate) on_missing_key: OnMissingKey,
    pub(crate) cost: Option<OfHead<u64>>,
    pub(crate) skip: Option<OfHead<bool>>,
    pub(crate) name: Arc<str>,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            key: Arc::new(key::peer_ip()),
            on_missing_key: OnMissingKey::default(),
            cost: None,
            skip: None,
            name: "default".into(),
        }
    }
}

/// What all clones of a layer and its services share.
#[derive(Clone)]
pub(crate) struct Shared<M, R> {
    pub(crate) common: Common,
    pub(crate) settings: M,
    pub(crate) respond: R,
}

/// A request for which a backend is asked.
pub(crate) struct BackendCall<'a> {
    pub(crate) head: &'a RequestHead<'a>,
    /// `None` if the answer was not immediate; then the key is extracted again if needed.
    pub(crate) key: Option<&'a RequestKey<'a>>,
    pub(crate) cost: u64,
}

/// How a layer admits requests: its own settings, including the backend.
pub(crate) trait Admit<R>: Sized {
    /// The answer of the backend.
    type Answer;
    /// What an admitted request holds. The default is for a request that is not limited.
    type Admitted: Default;

    /// Asks the backend.
    fn ask_backend(&self, key: &RequestKey<'_>, cost: u64) -> Pending<Self::Answer>;

    /// Admits a request, or returns the response that its client gets instead.
    fn admit<B>(
        shared: &Arc<Shared<Self, R>>,
        answer: Self::Answer,
        call: &BackendCall<'_>,
    ) -> Result<Self::Admitted, Response<B>>
    where
        R: Respond<B>;

    /// Returns `true` if a request without a key is rejected, where it must have one.
    fn rejects(&self, _head: &RequestHead<'_>, _missing: MissingKey) -> bool {
        true
    }
}

/// The next step of a request.
enum Next<B, A, T> {
    Serve(A),
    Respond(Response<B>),
    /// The answer is not immediate.
    Wait(crate::future::Later<T>, u64),
}

impl<M, R> Shared<M, R> {
    pub(crate) fn new(settings: M, respond: R) -> Shared<M, R> {
        Shared { common: Common::default(), settings, respond }
    }

    /// Returns these settings with another writer of responses.
    pub(crate) fn responding<T>(&self, respond: T) -> Arc<Shared<M, T>>
    where
        M: Clone,
    {
        Arc::new(Shared { common: self.common.clone(), settings: self.settings.clone(), respond })
    }

    /// Returns the response to a request that is not served. `violated` is the quoted name of the
    /// policy.
    #[cold]
    pub(crate) fn reject<B>(&self, reason: Reason, violated: String, head: &RequestHead<'_>) -> Response<B>
    where
        R: Respond<B>,
    {
        Rejection::new(reason, violated, *head).answer(&self.respond)
    }
}

impl<M: Admit<R>, R> Shared<M, R> {
    /// Asks the backend, then calls the service or responds.
    #[inline]
    pub(crate) fn call<S, Q, B>(
        self: &Arc<Self>,
        service: &mut S,
        request: Request<Q>,
    ) -> Admission<S, Q, B, M, R>
    where
        S: Service<Request<Q>, Response = Response<B>> + Clone,
        R: Respond<B>,
    {
        // The service is called in one place only: requests and futures are large, and this copies
        // them less often.
        let admitted = match self.decide(&RequestHead::of(&request)) {
            Next::Serve(admitted) => admitted,
            Next::Respond(response) => return Admission::GuardDenial { response: Some(response) },
            Next::Wait(answer, cost) => {
                // The service that is ready is the one to call; its clone may not be.
                let clone = service.clone();
                let inner = mem::replace(service, clone);
                let parked = Parked { inner, request, shared: Arc::clone(self), cost };
                return Admission::Waiting { answer, parked: Some(Box::new(parked)) };
            }
        };
        Admission::Serving { inner: service.call(request), admitted }
    }

    #[inline]
    fn decide<B>(self: &Arc<Self>, head: &RequestHead<'_>) -> Next<B, M::Admitted, M::Answer>
    where
        R: Respond<B>,
    {
        let Common { key, on_missing_key, cost, skip, .. } = &self.common;
        if skip.as_ref().is_some_and(|is_skipped| is_skipped(head)) {
            return Next::Serve(M::Admitted::default());
        }
        // The key stays in place: copying a value just written in small pieces is slower than
        // writing it.
        let extracted = key.extract(head);
        let key = match &extracted {
            Ok(key) => key,
            Err(missing) => match (*missing, on_missing_key) {
                (MissingKey::Absent, OnMissingKey::Share) => &RequestKey::SHARED,
                (MissingKey::Absent, OnMissingKey::Admit) => return Next::Serve(M::Admitted::default()),
                (missing, _) if !self.settings.rejects(head, missing) => {
                    return Next::Serve(M::Admitted::default());
                }
                (MissingKey::Absent, OnMissingKey::Reject) => {
                    return Next::Respond(self.reject(Reason::MissingKey, String::new(), head));
                }
                (MissingKey::NotProvided(what), _) => {
                    return Next::Respond(self.reject(
                        Reason::Misconfigured(what.into()),
                        String::new(),
                        head,
                    ));
                }
            },
        };
        let cost = cost.as_ref().map_or(1, |cost| cost(head));
        match self.settings.ask_backend(key, cost) {
            Pending::Ready(answer) => {
                match M::admit(self, answer, &BackendCall { head, key: Some(key), cost }) {
                    Ok(admitted) => Next::Serve(admitted),
                    Err(response) => Next::Respond(response),
                }
            }
            Pending::Later(answer) => Next::Wait(answer, cost),
        }
    }
}

/// Returns an error for a denial made without the store: the limit itself is not exhausted.
pub(crate) fn require_backend(answer: &Answer) -> Result<(), BackendError> {
    if answer.source() == Source::Denied {
        return Err(StoreFailure::Unavailable("the limiter fails closed".to_owned()).into());
    }
    Ok(())
}

/// The methods of every layer and service. Both have their [`Shared`] in the field `shared`, with
/// the layer's own settings as `Settings<L>`.
macro_rules! common_methods {
    ($layer:ident, $backend:ident, $service:ident) => {
        impl<L: $backend + Clone + 'static, R: Clone> $layer<L, R> {
            /// Sets the key of a request: one of [`crate::key`], or a tuple of two. The default is
            /// the peer's address, [`crate::key::peer_ip`].
            #[must_use]
            pub fn key(mut self, key: impl $crate::key::KeyExtractor + 'static) -> Self {
                self.shared_mut().common.key = Arc::new(key);
                self
            }

            /// Sets what happens if the client did not send the key. The default is
            /// [`OnMissingKey::Share`](crate::OnMissingKey::Share).
            #[must_use]
            pub fn on_missing_key(mut self, what: $crate::OnMissingKey) -> Self {
                self.shared_mut().common.on_missing_key = what;
                self
            }

            /// Sets the cost of a request; the default is 1. A request of cost 0 is always admitted
            /// and charged nothing.
            #[must_use]
            pub fn cost(
                mut self,
                cost: impl Fn(&$crate::RequestHead<'_>) -> u64 + Send + Sync + 'static,
            ) -> Self {
                self.shared_mut().common.cost = Some(Arc::new(cost));
                self
            }

            /// Exempts requests, such as health checks, from the limit. They are not reported to
            /// the observer.
            #[must_use]
            pub fn skip(
                mut self,
                is_skipped: impl Fn(&$crate::RequestHead<'_>) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.shared_mut().common.skip = Some(Arc::new(is_skipped));
                self
            }

            /// Sets the name of the policy in header fields and problem details; the default is
            /// `default`. Layers that a request passes one after another should have different
            /// names.
            #[must_use]
            pub fn name(mut self, name: &str) -> Self {
                self.shared_mut().common.name = name.into();
                self
            }

            /// Writes the layer's own responses as gRPC statuses. Needed for tonic; with other body
            /// types gRPC calls get them anyway.
            #[must_use]
            pub fn grpc(self) -> $layer<L, $crate::GrpcStatus> {
                $layer { shared: self.shared.responding($crate::GrpcStatus) }
            }

            /// Uses a closure to write the responses to requests that are not served; see
            /// [`RespondWith`](crate::RespondWith). The layer adds its header fields.
            #[must_use]
            pub fn respond_with<B, F>(self, respond: F) -> $layer<L, $crate::RespondWith<F>>
            where
                F: Fn(&$crate::Rejection<'_>) -> http::Response<B> + Send + Sync,
            {
                $layer { shared: self.shared.responding($crate::RespondWith::new(respond)) }
            }

            /// For changes to this layer only, not to its clones or to services it has made.
            fn shared_mut(&mut self) -> &mut Shared<Settings<L>, R> {
                Arc::make_mut(&mut self.shared)
            }
        }

        impl<S, L, R> tower_layer::Layer<S> for $layer<L, R> {
            type Service = $service<S, L, R>;

            #[inline]
            fn layer(&self, inner: S) -> $service<S, L, R> {
                $service { inner, shared: Arc::clone(&self.shared) }
            }
        }

        impl<L, R> Clone for $layer<L, R> {
            fn clone(&self) -> $layer<L, R> {
                $layer { shared: Arc::clone(&self.shared) }
            }
        }

        impl<S, L, R> $service<S, L, R> {
            /// Returns the inner service.
            pub fn get_ref(&self) -> &S {
                &self.inner
            }
        }

        impl<S: Clone, L, R> Clone for $service<S, L, R> {
            fn clone(&self) -> Self {
                $service { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
            }
        }

        impl<S: std::fmt::Debug, L, R> std::fmt::Debug for $service<S, L, R> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($service)).field("inner", &self.inner).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use common_methods;
