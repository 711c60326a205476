//! The service behind a layer.

use super::body::HeldBody;
use super::future::ConcurrencyFuture;
use super::layer::Settings;
use crate::common::Shared;
use crate::refusal::Respond;
use http::{Request, Response};
use http_body::Body;
use sluicegate::LeaseBackend;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a [`crate::ConcurrencyLayer`].
pub struct Concurrency<S, L, R> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared<Settings<L>, R>>,
}

impl<S, L, R, Q, B> Service<Request<Q>> for Concurrency<S, L, R>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    L: LeaseBackend,
    R: Respond<B>,
    B: Body,
{
    type Response = Response<HeldBody<B>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, Q, B, L, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        ConcurrencyFuture::new(self.shared.call(&mut self.inner, request), self.shared.own.hold)
    }
}
