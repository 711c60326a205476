//! What a request is charged once its response is known.

use http::{HeaderMap, StatusCode};

/// How a request ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Completion<'a> {
    /// With a response, of which the head is known and the body may still be on its way.
    Response {
        /// Its status.
        status: StatusCode,
        /// Its header fields. The status of a gRPC call that failed is usually among them, as
        /// `grpc-status`.
        headers: &'a HeaderMap,
    },
    /// The service behind the layer failed and there is no response.
    Failed,
    /// The response was not waited for: the client closed its connection, a timeout struck, or the
    /// handler panicked.
    Dropped,
}

/// What stays of a request's charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// All of it.
    Keep,
    /// Nothing, as if there had been no request.
    Refund,
    /// This instead. More than was charged becomes debt, as the response is on its way already.
    Exactly(u64),
    /// All of it and this as debt.
    Extra(u64),
}

impl Charge {
    /// What a request that was charged `cost` used, if that is something else.
    pub(super) fn used(self, cost: u64) -> Option<u64> {
        match self {
            Charge::Keep | Charge::Extra(0) => None,
            Charge::Refund => Some(0),
            Charge::Exactly(used) => (used != cost).then_some(used),
            // A sum of that size is above every limit.
            Charge::Extra(more) => Some(cost.saturating_add(more)),
        }
    }
}
