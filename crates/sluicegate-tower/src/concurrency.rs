//! At most so many requests at once for each key: the layer and its settings.
//!
//! `concurrency/places.rs` is where the places are kept, `concurrency/service.rs` the service and the future of its responses,
//! `concurrency/body.rs` the body that holds a place until it has ended.

mod body;
mod places;
#[cfg(feature = "redis")]
mod redis;
mod service;

pub use body::HeldBody;
pub use places::{Granted, MemoryAsking, Places};
pub use service::{Concurrency, ConcurrencyFuture};

use crate::head::Head;
use crate::key::{self, Extract};
use crate::layer::{NAME_DEFAULT, OfHead, WithoutKey};
use crate::refusal::{GrpcStatus, Problem, Refusal, RespondWith};
use http::Response;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;

/// Lets at most so many requests be under way at once for each key. A rate says how often a client may ask; this says how much of the service it
/// may have at one time, however long its requests take.
///
/// ```
/// use sluicegate::Semaphore;
/// use sluicegate_tower::{ConcurrencyLayer, key};
///
/// // Each customer: two exports at once.
/// let layer = ConcurrencyLayer::new(Semaphore::new("concurrency 2")?).key(key::header("x-customer")).name("exports");
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A request holds its place until the body of its response has ended or was dropped, so a download counts for as long as it goes on, and
/// a client that hangs up frees its place; see [`Hold`]. One too many is refused with 429, or waits: [`ConcurrencyLayer::wait`].
///
/// The semaphore is shared: clone a layer, add it to many routes, serve many connections, and there are still so many places. Being
/// ready takes none. Under a limit with `ttl` a place lapses after that time though its response goes on: nobody renews it. In one
/// process leave `ttl` out; what is dropped is returned.
pub struct ConcurrencyLayer<P, R = Problem> {
    /// All there is, as axum has a layer make its service anew with every request.
    shared: Arc<Shared<P, R>>,
}

/// How long a request holds its place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Hold {
    /// Until the body of the response has ended, or was dropped.
    #[default]
    UntilEnd,
    /// Until the head of the response is there: for services whose work is done by then, in front of clients that read slowly.
    UntilHead,
}

/// What all clones of a layer and its services share.
#[derive(Clone)]
struct Shared<P, R> {
    settings: Settings<P>,
    respond: R,
}

#[derive(Clone)]
struct Settings<P> {
    places: P,
    key: Arc<dyn Extract>,
    without_key: WithoutKey,
    cost: Option<OfHead<u32>>,
    skip: Option<OfHead<bool>>,
    max_wait: Option<Duration>,
    hold: Hold,
    is_ours: bool,
    name: Arc<str>,
}

impl<P: Places> ConcurrencyLayer<P> {
    /// A layer that refuses requests for which there is no place. Unless told otherwise the key is the peer's address:
    /// [`key::peer_ip`].
    pub fn new(places: P) -> ConcurrencyLayer<P> {
        let settings = Settings {
            places,
            key: Arc::new(key::peer_ip()),
            without_key: WithoutKey::default(),
            cost: None,
            skip: None,
            max_wait: None,
            hold: Hold::default(),
            is_ours: false,
            name: NAME_DEFAULT.into(),
        };
        ConcurrencyLayer { shared: Arc::new(Shared { settings, respond: Problem }) }
    }
}

impl<P: Places, R: Clone> ConcurrencyLayer<P, R> {
    /// Whose places a request takes: one of [`crate::key`], or two of them in a tuple.
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

    /// How many places a request takes: 1 unless told otherwise. 0 is admitted always and takes none.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.settings().cost = Some(Arc::new(cost));
        self
    }

    /// Requests that take no place, such as health checks.
    #[must_use]
    pub fn skip(mut self, is_skipped: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings().skip = Some(Arc::new(is_skipped));
        self
    }

    /// Lets a request wait for its place, first come, first served for each key, and refuses it if none came in so long. One that finds the line
    /// full (`max_line` of the semaphore) is refused at once.
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.settings().max_wait = Some(max_wait);
        self
    }

    /// How long a request holds its place: [`Hold::UntilEnd`] unless told otherwise.
    #[must_use]
    pub fn hold(mut self, hold: Hold) -> Self {
        self.settings().hold = hold;
        self
    }

    /// Refuses with 503 and not with 429: for a limit that is the service's own, with [`key::everyone`] or a route for a key, where the client
    /// has not asked for too much.
    #[must_use]
    pub fn unavailable(mut self) -> Self {
        self.settings().is_ours = true;
        self
    }

    /// What the limit is called in problems: `default` unless told otherwise.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.settings().name = name.into();
        self
    }

    /// Answers every refusal with a gRPC status. For tonic; services with other bodies answer gRPC calls so by themselves.
    #[must_use]
    pub fn grpc(self) -> ConcurrencyLayer<P, GrpcStatus> {
        self.answering(GrpcStatus)
    }

    /// Has a closure write the answer to a request that does not reach the service. `Retry-After` is added to it, if it is known.
    #[must_use]
    pub fn respond_with<B, F>(self, respond: F) -> ConcurrencyLayer<P, RespondWith<F>>
    where
        F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync,
    {
        self.answering(RespondWith::new(respond))
    }

    fn answering<T>(self, respond: T) -> ConcurrencyLayer<P, T> {
        ConcurrencyLayer { shared: Arc::new(Shared { settings: self.shared.settings.clone(), respond }) }
    }

    /// To be changed: of this layer alone, whatever was made from it before.
    fn settings(&mut self) -> &mut Settings<P> {
        &mut Arc::make_mut(&mut self.shared).settings
    }
}

impl<S, P, R> Layer<S> for ConcurrencyLayer<P, R> {
    type Service = Concurrency<S, P, R>;

    #[inline]
    fn layer(&self, inner: S) -> Concurrency<S, P, R> {
        Concurrency::new(inner, Arc::clone(&self.shared))
    }
}

impl<P, R> Clone for ConcurrencyLayer<P, R> {
    fn clone(&self) -> ConcurrencyLayer<P, R> {
        ConcurrencyLayer { shared: Arc::clone(&self.shared) }
    }
}

impl<P: fmt::Debug, R> fmt::Debug for ConcurrencyLayer<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { places, name, max_wait, hold, without_key, .. } = &self.shared.settings;
        f.debug_struct("ConcurrencyLayer")
            .field("name", name)
            .field("places", places)
            .field("max_wait", max_wait)
            .field("hold", hold)
            .field("without_key", without_key)
            .finish_non_exhaustive()
    }
}
