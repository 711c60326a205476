//! The library as a subject: a limiter on its store in memory.

use crate::subject::{Answer, Subject};
use crate::verbs::OneKey;
use sluicegate::core::verbs::NotOffered;
use sluicegate::core::{Decision, Span, Time};
use sluicegate::{Limit, Limiter, ManualClock, Receipt, ReserveError, SharedStore};

/// (Its verbs are compared under a clock that does not step back: what receipts give back after a step depends on the
/// latest time known, which the store keeps for a whole place.)
///
/// A limiter made at a time, with room for a few keys; as [`OneKey`], one key of it.
#[derive(Debug)]
pub struct InLibrary {
    limiter: Limiter,
}

/// The key that [`OneKey`] is about.
const KEY: &str = "Harry";
/// More than any case has.
const MAX_KEYS: usize = 64;

impl InLibrary {
    /// A limiter made at `start`.
    ///
    /// # Panics
    /// When the limits do not go together: the suite makes no such list.
    pub fn new(limits: &[Limit], start: Time) -> InLibrary {
        let builder = Limiter::builder(limits).clock(ManualClock::at(start)).max_keys(MAX_KEYS);
        match builder.build() {
            Ok(limiter) => InLibrary { limiter },
            Err(error) => panic!("{error}"),
        }
    }
}

impl InLibrary {
    /// A limiter of a scope in a store that others use too.
    ///
    /// # Panics
    /// When the limits do not go together.
    pub fn in_store(limits: &[Limit], store: &SharedStore, scope: u64) -> InLibrary {
        match Limiter::builder(limits).in_store(store, scope).build() {
            Ok(limiter) => InLibrary { limiter },
            Err(error) => panic!("{error}"),
        }
    }
}

impl Subject for InLibrary {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Answer {
        self.limiter.check_at(key, cost, at).into()
    }
}

impl OneKey for InLibrary {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, cost: u32) -> Decision {
        self.limiter.check_at(KEY, cost, now)
    }

    fn peek(&mut self, now: Time, cost: u32) -> Decision {
        self.limiter.peek_at(KEY, cost, now)
    }

    fn take(&mut self, now: Time, up_to: u32) -> Result<(Decision, u32), NotOffered> {
        self.limiter.take_at(KEY, up_to, now)
    }

    fn refund(&mut self, now: Time, cost: u32) -> Result<Decision, NotOffered> {
        self.limiter.refund_at(KEY, cost, now)
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), NotOffered> {
        match self.limiter.reserve_at(KEY, cost, max_wait, now) {
            Ok(reserved) => Ok((reserved.decision(), reserved.keep())),
            Err(ReserveError::NotOffered(refused)) => Err(refused),
            Err(error) => panic!("{error}"),
        }
    }

    fn check_within(&mut self, now: Time, cost: u32, max_wait: Span) -> Result<Decision, NotOffered> {
        self.limiter.check_within_at(KEY, cost, max_wait, now)
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.limiter.cancel_at(&receipt, now)
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: u32) -> bool {
        self.limiter.settle_at(&receipt, used, now)
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.limiter.next_window_at(KEY, now)
    }

    fn reset(&mut self) {
        self.limiter.reset(KEY);
    }
}
