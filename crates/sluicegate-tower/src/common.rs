//! What layers with a key share: settings, the methods that set them, and a request's way to its
//! answer.
//!
//! A layer is a [`Shared`]: these settings, its own (which [`Admit`] requests), and what writes its
//! responses. An option for every layer is a field of [`Common`] and a method in
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

/// What to do with a request that has no key because the client did not send one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All of them share one key: none gets past the limit, and none is rejected.
    #[default]
    Share,
    /// Rejected with 400.
    Reject,
    /// Admitted without a limit: for keys that only some requests must have. A client that leaves
    /// the key out is not limited.
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

/// A request about which a backend is asked.
pub(crate) struct Call<'a> {
    pub(crate) head: &'a RequestHead<'a>,
    /// `None` if the answer took time: the key is extracted again by what needs it.
    pub(crate) key: Option<&'a RequestKey<'a>>,
    pub(crate) cost: u64,
}

/// How a layer admits requests: a layer's own settings, with the backend among them.
pub(crate) trait Admit<R>: Sized {
    /// What the backend answers.
    type Answer;
    /// What a request holds once it is admitted. The default is held by a request that is not
    /// limited.
    type Admitted: Default;

    /// Asks the backend.
    fn ask_backend(&self, key: &RequestKey<'_>, cost: u64) -> Pending<Self::Answer>;

    /// Admits a request, or returns the response that its client gets instead.
    fn admit<B>(
        shared: &Arc<Shared<Self, R>>,
        answer: Self::Answer,
        call: &Call<'_>,
    ) -> Result<Self::Admitted, Response<B>>
    where
        R: Respond<B>;

    /// Whether a request that must have a key, and has none, is rejected.
    fn rejects(&self, _head: &RequestHead<'_>, _missing: MissingKey) -> bool {
        true
    }
}

/// What becomes of a request.
enum Next<B, A, T> {
    Serve(A),
    Respond(Response<B>),
    /// The answer takes time.
    Wait(crate::future::Later<T>, u64),
}

impl<M, R> Shared<M, R> {
    pub(crate) fn new(settings: M, respond: R) -> Shared<M, R> {
        Shared { common: Common::default(), settings, respond }
    }

    /// The same settings with other responses.
    pub(crate) fn responding<T>(&self, respond: T) -> Arc<Shared<M, T>>
    where
        M: Clone,
    {
        Arc::new(Shared { common: self.common.clone(), settings: self.settings.clone(), respond })
    }

    /// The response to a request that does not reach the service. `violated` is the name of the
    /// policy, quoted.
    #[cold]
    pub(crate) fn reject<B>(&self, reason: Reason, violated: String, head: &RequestHead<'_>) -> Response<B>
    where
        R: Respond<B>,
    {
        Rejection::new(reason, violated, *head).answer(&self.respond)
    }
}

impl<M: Admit<R>, R> Shared<M, R> {
    /// Asks about a request, and calls the service or not.
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
        // The service is called in one place only: a request and a future are large, and are copied
        // less often so.
        let admitted = match self.decide(&RequestHead::of(&request)) {
            Next::Serve(admitted) => admitted,
            Next::Respond(response) => return Admission::GuardDenial { response: Some(response) },
            Next::Wait(answer, cost) => {
                // The service that was ready is the one to call; its clone may not be.
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
        // The key stays where it was written: to copy what was just written in small pieces takes
        // longer than to write it.
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
            Pending::Ready(answer) => match M::admit(self, answer, &Call { head, key: Some(key), cost }) {
                Ok(admitted) => Next::Serve(admitted),
                Err(response) => Next::Respond(response),
            },
            Pending::Later(answer) => Next::Wait(answer, cost),
        }
    }
}

/// A denial without the store is no denial of the limit: the limit is not used up.
pub(crate) fn require_backend(answer: &Answer) -> Result<(), BackendError> {
    if answer.source() == Source::Denied {
        return Err(StoreFailure::Unavailable("the limiter fails closed".to_owned()).into());
    }
    Ok(())
}

/// The methods of every layer and service. Both have their [`Shared`] in the field `shared`, with the
/// layer's own settings as `Settings<L>`.
macro_rules! common_methods {
    ($layer:ident, $backend:ident, $service:ident) => {
        impl<L: $backend + Clone + 'static, R: Clone> $layer<L, R> {
            /// The key of a request: one of [`crate::key`], or two of them in a tuple. The default
            /// is the peer's address, [`crate::key::peer_ip`].
            #[must_use]
            pub fn key(mut self, key: impl $crate::key::KeyExtractor + 'static) -> Self {
                self.shared_mut().common.key = Arc::new(key);
                self
            }

            /// What to do when the client did not send what the key is made of. The default is
            /// [`OnMissingKey::Share`](crate::OnMissingKey::Share).
            #[must_use]
            pub fn on_missing_key(mut self, what: $crate::OnMissingKey) -> Self {
                self.shared_mut().common.on_missing_key = what;
                self
            }

            /// The cost of a request; the default is 1. A request of cost 0 is always admitted, and
            /// charged nothing.
            #[must_use]
            pub fn cost(
                mut self,
                cost: impl Fn(&$crate::RequestHead<'_>) -> u64 + Send + Sync + 'static,
            ) -> Self {
                self.shared_mut().common.cost = Some(Arc::new(cost));
                self
            }

            /// Requests that are not limited, such as health checks: they are admitted, and no
            /// observer sees them.
            #[must_use]
            pub fn skip(
                mut self,
                is_skipped: impl Fn(&$crate::RequestHead<'_>) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.shared_mut().common.skip = Some(Arc::new(is_skipped));
                self
            }

            /// The name of the policy in header fields and problem details; the default is
            /// `default`. Layers that a request passes one after another should have different
            /// names.
            #[must_use]
            pub fn name(mut self, name: &str) -> Self {
                self.shared_mut().common.name = name.into();
                self
            }

            /// Writes every response of the layer's own as a gRPC status. For tonic; in front of
            /// services with other bodies gRPC calls get one without this.
            #[must_use]
            pub fn grpc(self) -> $layer<L, $crate::GrpcStatus> {
                $layer { shared: self.shared.responding($crate::GrpcStatus) }
            }

            /// Has a closure write the response to a request that does not reach the service; see
            /// [`RespondWith`](crate::RespondWith). The layer adds its header fields.
            #[must_use]
            pub fn respond_with<B, F>(self, respond: F) -> $layer<L, $crate::RespondWith<F>>
            where
                F: Fn(&$crate::Rejection<'_>) -> http::Response<B> + Send + Sync,
            {
                $layer { shared: self.shared.responding($crate::RespondWith::new(respond)) }
            }

            /// To change this layer alone, and none that was cloned or made a service before.
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
            /// The service behind it.
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
