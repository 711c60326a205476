//! What a request is charged once its response is known.

use crate::backend::Used;
use http::{HeaderMap, StatusCode};

/// How a request ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// With a response, of which the head is known and the body may still be on its way.
    Response {
        /// Its status.
        status: StatusCode,
        /// Its header fields. The status of a gRPC call that failed is usually among them, as `grpc-status`.
        headers: &'a HeaderMap,
    },
    /// The service behind the layer failed and there is no response.
    Failed,
    /// Nobody waited for the response: the client is gone, a timeout struck, or the handler panicked.
    Dropped,
}

/// What stays of a request's charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// All of it.
    Keep,
    /// Nothing: it is as if the request had never come.
    Refund,
    /// So much instead; more than was charged becomes debt, as the response is on its way already.
    Exactly(u32),
    /// All of it and so much more, as debt.
    Extra(u32),
}

impl Charge {
    pub(crate) fn of(self, cost: u32) -> Used {
        match self {
            Charge::Keep | Charge::Extra(0) => Used::All,
            Charge::Refund => Used::Only(0),
            Charge::Exactly(used) if used == cost => Used::All,
            Charge::Exactly(used) => Used::Only(used),
            // So large a sum is above every limit as it is.
            Charge::Extra(more) => Used::Only(cost.saturating_add(more)),
        }
    }
}
