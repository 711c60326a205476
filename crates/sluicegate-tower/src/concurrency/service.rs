//! The service behind a layer.

use super::body::LeasedBody;
use super::future::ConcurrencyLimitFuture;
use super::layer::Settings;
use crate::common::Shared;
use crate::rejection::Respond;
use http::{Request, Response};
use http_body::Body;
use sluicegate::backend::LeaseBackend;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a [`crate::ConcurrencyLayer`].
pub struct ConcurrencyLimit<S, L, R> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared<Settings<L>, R>>,
}

impl<S, L, R, Q, B> Service<Request<Q>> for ConcurrencyLimit<S, L, R>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    L: LeaseBackend,
    R: Respond<B>,
    B: Body,
{
    type Response = Response<LeasedBody<B>>;
    type Error = S::Error;
    type Future = ConcurrencyLimitFuture<S, Q, B, L, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        ConcurrencyLimitFuture::new(self.shared.call(&mut self.inner, request), self.shared.settings.hold)
    }
}
