//! What an observer sees of each request.

use crate::RequestHead;
use crate::key::RequestKey;
use sluicegate::Decision;
use sluicegate::backend::BackendError;

/// A request, and what became of it at the layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RateLimitEvent<'a> {
    /// The request.
    pub head: &'a RequestHead<'a>,
    /// Its key. Never label a metric by it: there may be millions.
    pub key: Option<&'a RequestKey<'a>>,
    /// What became of it.
    pub kind: EventKind<'a>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// It was admitted.
    Allowed(&'a Decision),
    /// It was denied.
    Denied(&'a Decision),
    /// It would have been denied, and was admitted in shadow mode.
    WouldDeny(&'a Decision),
    /// It had no key. It was rejected, except in shadow mode.
    MissingKey,
    /// The limiter gave no answer, as when its store is unavailable. In shadow mode the request was
    /// admitted.
    BackendFailed(&'a BackendError),
    /// There is a mistake in the set-up: what to do about it. In shadow mode the request was
    /// admitted.
    Misconfigured(&'a str),
}
