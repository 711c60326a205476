//! A limit on the calls in flight of any service: the layer, its service and its response future.

use crate::future::take_once;
use pin_project_lite::pin_project;
use sluicegate_guard::bulkhead::{AcquirePermit, Permit};
use sluicegate_guard::{Bulkhead, Denial, Outcome};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// The error type of tower services whose layers have errors of their own.
type BoxError = Box<dyn Error + Send + Sync>;

/// Limits the calls in flight of a service, with a bounded queue of waiters.
///
/// It is for any service, not only HTTP: a database client, a gRPC channel, a queue. Unlike tower's
/// `ConcurrencyLimit` it has a bounded queue and a maximum wait, and its limit may adapt
/// ([`Bulkhead::adaptive`]). A call without a permit fails with [`BulkheadDenied`].
///
/// ```
/// use sluicegate_guard::Bulkhead;
/// use sluicegate_tower::{BulkheadLayer, BulkheadDenied};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let database = service_fn(async |query: &'static str| Ok::<_, std::io::Error>(query.len()));
/// let guarded = BulkheadLayer::new(Bulkhead::new("bulkhead 10 queue=50 wait=500ms")?).layer(database);
/// assert_eq!(guarded.clone().oneshot("select 1").await.unwrap(), 8);
///
/// let closed = BulkheadLayer::new(Bulkhead::new("bulkhead 1")?);
/// let _held = closed.bulkhead().try_acquire();
/// let error = closed.layer(guarded).oneshot("select 1").await.unwrap_err();
/// assert!(error.is::<BulkheadDenied>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The bulkhead is shared by all clones of the layer and all connections. A permit is held from
/// when the call begins until its future has ended or is dropped; being ready takes none. For a
/// limit *per key* see [`crate::ConcurrencyLayer`]; for a breaker, a timeout and retries as well,
/// [`crate::GuardLayer`].
#[derive(Clone, Debug)]
pub struct BulkheadLayer {
    bulkhead: Bulkhead,
}

impl BulkheadLayer {
    /// Creates a layer whose calls take permits of a bulkhead.
    pub fn new(bulkhead: Bulkhead) -> BulkheadLayer {
        BulkheadLayer { bulkhead }
    }

    /// Returns the bulkhead, for its statistics or to change its limit.
    pub fn bulkhead(&self) -> &Bulkhead {
        &self.bulkhead
    }
}

impl<S> Layer<S> for BulkheadLayer {
    type Service = BulkheadService<S>;

    fn layer(&self, inner: S) -> BulkheadService<S> {
        BulkheadService { inner, bulkhead: self.bulkhead.clone() }
    }
}

/// A service behind a [`BulkheadLayer`].
#[derive(Clone, Debug)]
pub struct BulkheadService<S> {
    inner: S,
    bulkhead: Bulkhead,
}

impl<S> BulkheadService<S> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, Q> Service<Q> for BulkheadService<S>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BulkheadFuture<S, Q>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Q) -> BulkheadFuture<S, Q> {
        let mut acquire = self.bulkhead.acquire();
        if let Some(permit) = acquire.try_now() {
            let inner = self.inner.call(request);
            return BulkheadFuture { state: State::Calling { inner, permit: Some(permit) } };
        }
        // The service that is ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        BulkheadFuture { state: State::Acquiring { acquire, parked: Some(Box::new((inner, request))) } }
    }
}

pin_project! {
    /// The future response. Dropping it releases its permit, or leaves the queue.
    #[must_use = "nothing more is done until this is awaited"]
    pub struct BulkheadFuture<S, Q>
    where
        S: Service<Q>,
    {
        #[pin]
        state: State<S, Q>,
    }
}

pin_project! {
    #[project = Now]
    enum State<S, Q>
    where
        S: Service<Q>,
    {
        // Boxed, since the request would make every future large.
        Acquiring { acquire: AcquirePermit, parked: Option<Box<(S, Q)>> },
        // Dropped in this order: the call's resources are gone when its permit is free.
        Calling { #[pin] inner: S::Future, permit: Option<Permit> },
    }
}

impl<S, Q> Future for BulkheadFuture<S, Q>
where
    S: Service<Q>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let (acquire, parked) = match state.as_mut().project() {
                Now::Calling { inner, permit } => {
                    let result = ready!(inner.poll(context));
                    let outcome = if result.is_ok() { Outcome::Success } else { Outcome::Failure };
                    take_once(permit).finish(outcome);
                    return Poll::Ready(result.map_err(Into::into));
                }
                Now::Acquiring { acquire, parked } => (acquire, parked),
            };
            let grant = ready!(Pin::new(acquire).poll(context));
            let (mut inner, request) = *take_once(parked);
            match grant.into_result() {
                Ok(permit) => state.set(State::Calling { inner: inner.call(request), permit: Some(permit) }),
                Err(denial) => return Poll::Ready(Err(Box::new(BulkheadDenied { denial }))),
            }
        }
    }
}

/// A call was denied by a bulkhead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkheadDenied {
    denial: Denial,
}

impl BulkheadDenied {
    /// Returns the reason: the queue was full, or the wait too long.
    pub fn denial(&self) -> Denial {
        self.denial
    }
}

impl fmt::Display for BulkheadDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "denied by the bulkhead: {}", self.denial)
    }
}

impl Error for BulkheadDenied {}
