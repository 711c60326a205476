//! What an observer sees of each request.

use crate::Head;
use crate::key::RequestKey;
use sluicegate::Decision;
use sluicegate::backend::BackendError;

/// A request, and what became of it at the layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// The request.
    pub head: &'a Head<'a>,
    /// Its key. Never label a metric by it: there may be millions.
    pub key: Option<&'a RequestKey<'a>>,
    /// What became of it.
    pub verdict: Verdict<'a>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Verdict<'a> {
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
    NoAnswer(&'a BackendError),
    /// There is a mistake in the set-up: what to do about it. In shadow mode the request was
    /// admitted.
    SetUp(&'a str),
}
