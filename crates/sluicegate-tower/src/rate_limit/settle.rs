//! The final charge of a request, once its response is known.

use http::{HeaderMap, StatusCode};

/// How a request ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Completion<'a> {
    /// With a response, whose head is known; the body may still be in transit.
    Response {
        /// Its status.
        status: StatusCode,
        /// Its header fields. The status of a gRPC call that failed is usually among them, as
        /// `grpc-status`.
        headers: &'a HeaderMap,
    },
    /// The service failed without a response.
    Failed,
    /// The request was dropped: the client closed its connection, a timeout elapsed, or the handler
    /// panicked.
    Dropped,
}

/// What stays of a request's charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// All of it.
    Keep,
    /// Nothing, as if the request had not been made.
    Refund,
    /// This amount instead. An excess becomes debt, since the request has been served.
    Exactly(u64),
    /// All of it, plus this amount as debt.
    Extra(u64),
}

impl Charge {
    /// Returns what a request that was charged `cost` used, if that differs.
    pub(super) fn used(self, cost: u64) -> Option<u64> {
        match self {
            Charge::Keep | Charge::Extra(0) => None,
            Charge::Refund => Some(0),
            Charge::Exactly(used) => (used != cost).then_some(used),
            // Such a sum is above every limit.
            Charge::Extra(more) => Some(cost.saturating_add(more)),
        }
    }
}
