//! What an observer is told of each request.

use crate::Head;
use crate::key::RequestKey;
use sluicegate::{BackendError, Decision};

/// A request, and what became of it at the layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// The request.
    pub head: &'a Head<'a>,
    /// Whom it was charged to. Never label a metric by it: there may be millions.
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
    /// It was refused.
    Denied(&'a Decision),
    /// It would have been refused, and was admitted as the layer only watches.
    WouldDeny(&'a Decision),
    /// It had no key and was refused.
    NoKey,
    /// The limiter gave no answer, as when its store is unavailable. In shadow mode the request was admitted.
    NoAnswer(&'a BackendError),
    /// It could not be decided on because of a mistake in the set-up.
    SetUp(&'a str),
}
