//! What decides: a limiter in memory, one in a shared store, or your own.

mod memory;
#[cfg(feature = "redis")]
mod redis;

pub use memory::MemoryHeld;

use crate::key::RequestKey;
use sluicegate::{Decision, Limit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a layer asks for its decisions. [`sluicegate::Limiter`] is one and, with the feature `redis`,
/// `sluicegate_redis::RedisLimiter`.
///
/// Clones must be the same limiter: a layer makes one for each route, and all of them share what was charged.
pub trait Backend: Clone + Send + Sync + 'static {
    /// A charge that can still be changed.
    type Held: Send + 'static;
    /// A decision that is not made at once.
    type Asking: Future<Output = Answer<Self::Held>> + Send + 'static;
    /// A charge that is not changed at once. It comes to how the key stands then, if that is known.
    type Closing: Future<Output = Option<Decision>> + Send + 'static;

    /// Decides, and charges if the answer is yes.
    fn ask(&self, key: &RequestKey<'_>, ask: Ask) -> Step<Self::Asking>;

    /// Changes a charge to what was really used. With [`Used::All`] it only lets go of it.
    fn close(&self, held: Self::Held, used: Used) -> Step<Self::Closing>;

    /// The same when nobody waits for it any more: the caller is gone. A back-end whose `close` takes time has to see to it
    /// that somebody does it.
    fn close_unwatched(&self, held: Self::Held, used: Used);

    /// The limits, to be told to clients. If there are none, clients are told nothing.
    fn limits(&self) -> Arc<[Limit]>;

    /// Another number when the limits are others.
    fn changes(&self) -> u64 {
        0
    }
}

/// An answer now, or later. What is known at once costs neither a future nor a clone of the service behind the layer.
pub enum Step<F: Future> {
    /// Now.
    Now(F::Output),
    /// Later.
    Later(F),
}

/// What a layer wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// What the request is worth.
    pub cost: u32,
    /// How long it may wait for a yes.
    pub max_wait: Option<Duration>,
    /// Whether the charge is to be changed after the response.
    pub hold: bool,
    /// Whether an allowed request goes on only after its delay, as under a pacer. A shadow only watches.
    pub keep_back: bool,
}

/// A decision, or nobody could decide.
pub type Answer<H> = Result<Decided<H>, Undecided>;

/// A decision, and the charge if it is to be changed later.
#[derive(Debug)]
pub struct Decided<H> {
    /// The decision.
    pub decision: Decision,
    /// What can be changed of its charge. `None` if nothing was charged or was asked for.
    pub held: Option<H>,
}

/// How much of a charge stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Used {
    /// All of it.
    All,
    /// So much; more than was charged is debt, 0 is as if nothing had been asked.
    Only(u32),
}

/// Why there is no decision. It is never a 429: nobody's limit is used up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undecided {
    message: String,
    set_up: bool,
}

impl Undecided {
    /// Nobody can decide just now, for example because a store is away. The client gets a 503; what went wrong is told to
    /// the observer only.
    pub fn for_now(message: impl Into<String>) -> Undecided {
        Undecided { message: message.into(), set_up: false }
    }

    /// This cannot be decided ever: a mistake in the set-up. The client gets a 500.
    pub fn for_ever(message: impl Into<String>) -> Undecided {
        Undecided { message: message.into(), set_up: true }
    }

    /// Whether it is a mistake in the set-up.
    pub fn is_set_up(&self) -> bool {
        self.set_up
    }
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Undecided {}
