//! A backend as a subject: a limiter in memory or in a shared store.

use crate::subject::{Fields, Subject};
use crate::verbs::{KeySubject, Reserved};
use sluicegate::MemoryStore;
use sluicegate::backend::{Backend, BackendError, Pending};
use sluicegate::clock::ManualClock;
use sluicegate::{Limit, Limiter, Receipt, ReserveOptions, VerbError};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time, Usage};
use std::fmt;

/// A limiter that decides one call after another, at the suite's times; as [`KeySubject`], one key
/// of it.
///
/// (The verbs of memory are compared under a clock that does not step back: after a step, what a
/// receipt returns depends on the latest known time, which the store keeps per shard.)
pub struct BackendSubject<W = Ready> {
    backend: Box<dyn Backend>,
    wait: W,
    changed: Box<Changed>,
}

/// Returns the backend under other limits that start at a time; `None` if only another scope can
/// have them.
type Changed = dyn Fn(&[Limit], Time) -> Option<Box<dyn Backend>>;

/// Waits for the answers of a backend.
pub trait Wait {
    /// Waits for one answer.
    fn wait<T>(&self, pending: Pending<T>) -> T;

    /// Returns the latest time that the backend accepts.
    fn latest() -> Time {
        Time::MAX
    }

    /// Returns `true` if the backend extends, and reserves with a TTL or at least some cost.
    fn has_budgets() -> bool {
        true
    }
}

/// Takes answers that are ready immediately: those of memory.
#[derive(Clone, Copy, Debug)]
pub struct Ready;

impl Wait for Ready {
    fn wait<T>(&self, pending: Pending<T>) -> T {
        pending.ready().unwrap_or_else(|| panic!("memory answers immediately"))
    }
}

/// The key of [`KeySubject`].
const KEY: &str = "user:42";
/// More keys than any case has.
const MAX_KEYS: usize = 64;

impl BackendSubject {
    /// Creates a limiter in memory at `start`, with room for a few keys.
    ///
    /// # Panics
    /// If the limits cannot form a list: the suite creates no such list.
    pub fn memory(limits: &[Limit], start: Time) -> BackendSubject {
        let builder = Limiter::builder(limits).clock(ManualClock::at(start)).max_keys(MAX_KEYS);
        let limiter = builder.build().unwrap_or_else(|error| panic!("{error}"));
        BackendSubject::new(limiter.clone(), Ready).changed_by(move |limits, _| {
            limiter.change(limits).ok()?;
            Some(Box::new(limiter.clone()))
        })
    }

    /// Creates a limiter of a scope in a shared `MemoryStore`. A change is another limiter of that
    /// scope.
    ///
    /// # Panics
    /// If the limits cannot form a list.
    pub fn shared_memory(limits: &[Limit], store: &MemoryStore, scope: u64) -> BackendSubject {
        let store = store.clone();
        let limiter = move |limits: &[Limit]| {
            let limiter = Limiter::builder(limits).in_store(&store, scope).build();
            limiter.unwrap_or_else(|error| panic!("{error}"))
        };
        BackendSubject::new(limiter(limits), Ready)
            .changed_by(move |limits, _| Some(Box::new(limiter(limits))))
    }
}

impl<W: Wait> BackendSubject<W> {
    /// Wraps a backend.
    pub fn new(backend: impl Backend + 'static, wait: W) -> BackendSubject<W> {
        BackendSubject { backend: Box::new(backend), wait, changed: Box::new(|_, _| None) }
    }

    /// Sets how its limits change.
    #[must_use]
    pub fn changed_by(
        self,
        changed: impl Fn(&[Limit], Time) -> Option<Box<dyn Backend>> + 'static,
    ) -> BackendSubject<W> {
        BackendSubject { changed: Box::new(changed), ..self }
    }

    fn answer<T>(&self, pending: Pending<Result<T, BackendError>>) -> T {
        self.wait.wait(pending).unwrap_or_else(|error| panic!("{error}"))
    }

    fn supported<T>(&self, pending: Pending<Result<T, BackendError>>) -> Result<T, Unsupported> {
        match self.wait.wait(pending) {
            Ok(answered) => Ok(answered),
            Err(BackendError::Verb(VerbError::Unsupported(error))) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}

impl<W> fmt::Debug for BackendSubject<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendSubject").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl<W: Wait> Subject for BackendSubject<W> {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        self.answer(self.backend.check(&key, cost, Some(at))).decision().into()
    }

    fn latest() -> Time {
        W::latest()
    }
}

impl<W: Wait> KeySubject for BackendSubject<W> {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, cost: u64) -> Decision {
        self.answer(self.backend.check(&KEY, cost, Some(now))).decision()
    }

    fn peek(&mut self, now: Time, cost: u64) -> Decision {
        self.answer(self.backend.peek(&KEY, cost, Some(now))).decision()
    }

    fn take(&mut self, now: Time, up_to: u64) -> Result<(Decision, u64), Unsupported> {
        let taken = self.supported(self.backend.take(&KEY, up_to, Some(now)));
        taken.map(|(answer, taken)| (answer.decision(), taken))
    }

    fn refund(&mut self, now: Time, cost: u64) -> Result<Decision, Unsupported> {
        self.supported(self.backend.refund(&KEY, cost, Some(now))).map(|answer| answer.decision())
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        options: &ReserveOptions,
    ) -> Result<Reserved<Receipt>, Unsupported> {
        let reserved = self.supported(self.backend.reserve(&KEY, cost, options, Some(now)));
        reserved.map(|reserved| Reserved {
            decision: reserved.answer.decision(),
            receipt: reserved.receipt,
            granted: reserved.granted,
        })
    }

    fn extend(&mut self, now: Time, receipt: Receipt, cost: u64, ttl: Option<Span>) -> Option<Decision> {
        let ttl = ttl.map(Into::into);
        match self.wait.wait(self.backend.extend(&receipt, &[cost], ttl, Some(now))) {
            Err(BackendError::Verb(VerbError::NotOpen)) => None,
            extended => Some(extended.unwrap_or_else(|error| panic!("{error}")).decision()),
        }
    }

    fn check_within(&mut self, now: Time, cost: u64, max_wait: Span) -> Result<Decision, Unsupported> {
        let checked = self.supported(self.backend.check_within(&KEY, cost, max_wait.into(), Some(now)));
        checked.map(|answer| answer.decision())
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.answer(self.backend.cancel(&receipt, Some(now)))
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: u64) -> bool {
        self.answer(self.backend.settle(&receipt, &[used], Some(now)))
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.answer(self.backend.next_window(&KEY, Some(now)))
    }

    fn usage(&mut self, now: Time) -> Vec<Usage> {
        self.answer(self.backend.usage(&KEY, Some(now))).into_iter().map(|(_, usage)| usage).collect()
    }

    fn reset(&mut self) {
        self.answer(self.backend.reset(&KEY));
    }

    fn change(&mut self, limits: &[Limit], start: Time) -> bool {
        let Some(changed) = (self.changed)(limits, start) else { return false };
        self.backend = changed;
        true
    }

    fn latest() -> Time {
        W::latest()
    }

    fn has_budgets() -> bool {
        W::has_budgets()
    }
}
