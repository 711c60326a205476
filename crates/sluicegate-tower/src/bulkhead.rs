//! So many calls of a service at once, whatever kind of service it is: the layer, its service and the future of its responses.

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

/// What services in tower fail with when layers have errors of their own.
type BoxError = Box<dyn Error + Send + Sync>;

/// Lets at most so many calls of a service be under way at once, and a bounded number wait for a place.
///
/// It is for any service, not only for HTTP: a database client, a gRPC channel, a queue. Where tower's `ConcurrencyLimit` lets as many wait
/// as come, this one has a bounded queue and a longest wait, and its limit may move ([`Bulkhead::adaptive`]). A call that finds no place
/// fails with [`BulkheadDenied`].
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
/// The bulkhead is shared: clone the layer, serve many connections, and there are still so many places. A place is held from when the call
/// begins until its future has ended or is dropped. Being ready takes none. For so many *of each key*, see [`crate::ConcurrencyLayer`]; for
/// a breaker, a timeout and retries as well, [`crate::GuardLayer`].
#[derive(Clone, Debug)]
pub struct BulkheadLayer {
    bulkhead: Bulkhead,
}

impl BulkheadLayer {
    /// A layer whose calls take the places of a bulkhead.
    pub fn new(bulkhead: Bulkhead) -> BulkheadLayer {
        BulkheadLayer { bulkhead }
    }

    /// Its bulkhead: for what it tells, and to move its limit.
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
    /// The service behind it.
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
        let mut enter = self.bulkhead.acquire();
        if let Some(permit) = enter.try_now() {
            let inner = self.inner.call(request);
            return BulkheadFuture { state: State::Calling { inner, permit: Some(permit) } };
        }
        // The service that was ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        BulkheadFuture { state: State::Entering { enter, parked: Some(Box::new((inner, request))) } }
    }
}

pin_project! {
    /// The response to come. Dropping it returns its place, or leaves the queue for one.
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
        // The request is in a box, as it would make the future of every other large.
        Entering { enter: AcquirePermit, parked: Option<Box<(S, Q)>> },
        // Dropped in this order: what the call holds is gone when its place is free.
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
            let (enter, parked) = match state.as_mut().project() {
                Now::Calling { inner, permit } => {
                    let result = ready!(inner.poll(context));
                    let outcome = if result.is_ok() { Outcome::Success } else { Outcome::Failure };
                    take_once(permit).finish(outcome);
                    return Poll::Ready(result.map_err(Into::into));
                }
                Now::Entering { enter, parked } => (enter, parked),
            };
            let entry = ready!(Pin::new(enter).poll(context));
            let (mut inner, request) = *take_once(parked);
            match entry.into_result() {
                Ok(permit) => state.set(State::Calling { inner: inner.call(request), permit: Some(permit) }),
                Err(denial) => return Poll::Ready(Err(Box::new(BulkheadDenied { denial }))),
            }
        }
    }
}

/// A call was not made, as there was no place for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkheadDenied {
    denial: Denial,
}

impl BulkheadDenied {
    /// Why: the queue was full, or the wait too long.
    pub fn denial(&self) -> Denial {
        self.denial
    }
}

impl fmt::Display for BulkheadDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no permit in the bulkhead: {}", self.denial)
    }
}

impl Error for BulkheadDenied {}
