//! The service behind a layer.

use super::future::RateLimitFuture;
use super::layer::Settings;
use crate::common::Shared;
use crate::rejection::Respond;
use http::{Request, Response};
use sluicegate::backend::Backend;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a [`crate::RateLimitLayer`].
pub struct RateLimit<S, L, R> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared<Settings<L>, R>>,
}

impl<S, L, R, Q, B> Service<Request<Q>> for RateLimit<S, L, R>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    L: Backend + Clone + 'static,
    R: Respond<B>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, Q, B, L, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        RateLimitFuture::new(self.shared.call(&mut self.inner, request))
    }
}
