//! Events for the observer of a rate limit.

use crate::RequestHead;
use crate::key::RequestKey;
use sluicegate::Decision;
use sluicegate::backend::BackendError;

/// A request, and the decision about it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RateLimitEvent<'a> {
    /// The request.
    pub head: &'a RequestHead<'a>,
    /// Its key. Do not use it as a metric label: there may be millions.
    pub key: Option<&'a RequestKey<'a>>,
    /// What happened to the request.
    pub kind: EventKind<'a>,
}

/// What happened to the request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// It was admitted.
    Allowed(&'a Decision),
    /// It was denied.
    Denied(&'a Decision),
    /// It would have been denied; shadow mode admitted it.
    WouldDeny(&'a Decision),
    /// It had no key and was rejected, except in shadow mode.
    MissingKey,
    /// The backend failed, for example because its store is unavailable. In shadow mode the request
    /// was admitted.
    BackendFailed(&'a BackendError),
    /// The layer is misconfigured; the text says what to do. In shadow mode the request was
    /// admitted.
    Misconfigured(&'a str),
}
