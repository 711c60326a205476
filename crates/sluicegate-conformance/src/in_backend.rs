//! A backend as a subject: a limiter in memory, or in a shared store.

use crate::subject::{Answer, Subject};
use crate::verbs::OneKey;
use sluicegate::MemoryStore;
use sluicegate::backend::{Backend, BackendError, Pending};
use sluicegate::clock::ManualClock;
use sluicegate::{Limit, Limiter, Receipt};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time};

/// A limiter, asked one call at a time and at the suite's times; as [`OneKey`], one key of it.
///
/// (The verbs of memory are compared under a clock that does not step back: what receipts return after a step depends on the
/// latest time known, which the store keeps for a whole shard.)
#[derive(Debug)]
pub struct InBackend<W = AtOnce> {
    backend: Box<dyn Backend>,
    wait: W,
}

/// Waits for answers of a backend.
pub trait Wait {
    /// Waits for one.
    fn wait<T>(&self, pending: Pending<T>) -> T;

    /// The latest time at which the backend can be asked.
    fn latest() -> Time {
        Time::MAX
    }
}

/// Takes answers that are there at once: those of memory.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce;

impl Wait for AtOnce {
    fn wait<T>(&self, pending: Pending<T>) -> T {
        pending.ready().unwrap_or_else(|| panic!("memory answers at once"))
    }
}

/// The key that [`OneKey`] is about.
const KEY: &str = "Harry";
/// More than any case has.
const MAX_KEYS: usize = 64;

impl InBackend {
    /// A limiter in memory made at `start`, with room for a few keys.
    ///
    /// # Panics
    /// When the limits do not go together: the suite makes no such list.
    pub fn memory(limits: &[Limit], start: Time) -> InBackend {
        let builder = Limiter::builder(limits).clock(ManualClock::at(start)).max_keys(MAX_KEYS);
        let limiter = builder.build().unwrap_or_else(|error| panic!("{error}"));
        InBackend::new(limiter, AtOnce)
    }

    /// A limiter of a scope in a store in memory that others use too.
    ///
    /// # Panics
    /// When the limits do not go together.
    pub fn shared_memory(limits: &[Limit], store: &MemoryStore, scope: u64) -> InBackend {
        let limiter = Limiter::builder(limits).in_store(store, scope).build();
        InBackend::new(limiter.unwrap_or_else(|error| panic!("{error}")), AtOnce)
    }
}

impl<W: Wait> InBackend<W> {
    /// Any backend.
    pub fn new(backend: impl Backend + 'static, wait: W) -> InBackend<W> {
        InBackend { backend: Box::new(backend), wait }
    }

    fn asked<T>(&self, pending: Pending<Result<T, BackendError>>) -> T {
        self.wait.wait(pending).unwrap_or_else(|error| panic!("{error}"))
    }

    fn offered<T>(&self, pending: Pending<Result<T, BackendError>>) -> Result<T, Unsupported> {
        match self.wait.wait(pending) {
            Ok(answered) => Ok(answered),
            Err(BackendError::Unsupported(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}

impl<W: Wait> Subject for InBackend<W> {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Answer {
        self.asked(self.backend.check(&key, cost.into(), Some(at))).decision().into()
    }

    fn latest() -> Time {
        W::latest()
    }
}

impl<W: Wait> OneKey for InBackend<W> {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, cost: u32) -> Decision {
        self.asked(self.backend.check(&KEY, cost.into(), Some(now))).decision()
    }

    fn peek(&mut self, now: Time, cost: u32) -> Decision {
        self.asked(self.backend.peek(&KEY, cost.into(), Some(now))).decision()
    }

    fn take(&mut self, now: Time, up_to: u32) -> Result<(Decision, u32), Unsupported> {
        let taken = self.offered(self.backend.take(&KEY, up_to.into(), Some(now)));
        taken.map(|(answer, taken)| (answer.decision(), saturating_count(taken)))
    }

    fn refund(&mut self, now: Time, cost: u32) -> Result<Decision, Unsupported> {
        self.offered(self.backend.refund(&KEY, cost.into(), Some(now))).map(|answer| answer.decision())
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), Unsupported> {
        let reserved = self.offered(self.backend.reserve(&KEY, cost.into(), max_wait.into(), Some(now)));
        reserved.map(|reserved| (reserved.answer.decision(), reserved.receipt))
    }

    fn check_within(&mut self, now: Time, cost: u32, max_wait: Span) -> Result<Decision, Unsupported> {
        let checked = self.offered(self.backend.check_within(&KEY, cost.into(), max_wait.into(), Some(now)));
        checked.map(|answer| answer.decision())
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.asked(self.backend.cancel(&receipt, Some(now)))
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: u32) -> bool {
        self.asked(self.backend.settle(&receipt, used.into(), Some(now)))
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.asked(self.backend.next_window(&KEY, Some(now)))
    }

    fn reset(&mut self) {
        self.asked(self.backend.reset(&KEY));
    }

    fn latest() -> Time {
        W::latest()
    }
}
