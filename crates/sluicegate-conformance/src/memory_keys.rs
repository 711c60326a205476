//! Keys in memory as a subject: in a `MemoryStore`, or in the store of one limiter.

use crate::verbs::Reserved;
use crate::verbs_of_several::{KeyCall, KeysSubject, NotDone};
use sluicegate::clock::ManualClock;
use sluicegate::{
    Call, Limit, Limiter, MemoryStore, Receipt, ReserveOptions, VerbError, check_all_at, reserve_all_at,
};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time, Usage};

/// Several keys in memory.
#[derive(Debug)]
pub struct MemoryKeys {
    /// The limiter of each key; `None` for an unlimited key.
    limiters: Vec<Option<Limiter>>,
}

/// More keys than any case has.
const MAX_KEYS: usize = 64;

impl MemoryKeys {
    /// Creates a limiter for each key, in one `MemoryStore`.
    ///
    /// # Panics
    /// If the limits of a key cannot form a list.
    pub fn in_store(limits: &[Vec<Limit>], start: Time) -> MemoryKeys {
        let store = MemoryStore::builder().clock(ManualClock::at(start)).max_keys(MAX_KEYS).build();
        let store = store.unwrap_or_else(|error| panic!("{error}"));
        let limiter = |(scope, limits): (u64, &Vec<Limit>)| {
            let limiter = || Limiter::builder(limits.as_slice()).in_store(&store, scope).start(start).build();
            (!limits.is_empty()).then(|| limiter().unwrap_or_else(|error| panic!("{error}")))
        };
        MemoryKeys { limiters: (0..).zip(limits).map(limiter).collect() }
    }

    /// Creates one limiter for all keys, whose limits are the same.
    ///
    /// # Panics
    /// If the limits cannot form a list.
    pub fn of_one_limiter(limits: &[Vec<Limit>], start: Time) -> MemoryKeys {
        let builder = Limiter::builder(limits[0].as_slice()).clock(ManualClock::at(start)).max_keys(MAX_KEYS);
        let limiter = builder.build().unwrap_or_else(|error| panic!("{error}"));
        MemoryKeys { limiters: vec![Some(limiter); limits.len()] }
    }

    fn limiter(&self, key: usize) -> &Limiter {
        self.limiters[key].as_ref().unwrap_or_else(|| panic!("key {key} has no limits"))
    }

    fn calls(&self, calls: &[KeyCall]) -> Vec<Call<'_>> {
        let call = |&KeyCall { key, cost }: &KeyCall| match &self.limiters[key] {
            Some(limiter) => limiter.call(key as u64, cost),
            None => Call::unlimited(cost),
        };
        calls.iter().map(call).collect()
    }

    /// A limiter of the store.
    fn any(&self) -> &Limiter {
        self.limiters.iter().flatten().next().unwrap_or_else(|| panic!("no key has limits"))
    }
}

fn done<T>(result: Result<T, VerbError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn or_rejected<T>(result: Result<T, VerbError>) -> Result<T, NotDone> {
    match result {
        Err(VerbError::NotOpen) => Err(NotDone::NotOpen),
        Err(VerbError::WrongCount { .. }) => Err(NotDone::WrongCount),
        result => Ok(done(result)),
    }
}

fn supported<T>(result: Result<T, VerbError>) -> Result<T, Unsupported> {
    match result {
        Err(VerbError::Unsupported(error)) => Err(error),
        result => Ok(done(result)),
    }
}

impl KeysSubject for MemoryKeys {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Decision {
        self.limiter(key).check_at(key as u64, cost, now)
    }

    fn peek(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Decision {
        self.limiter(key).peek_at(key as u64, cost, now)
    }

    fn refund(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Result<Decision, Unsupported> {
        supported(self.limiter(key).refund_at(key as u64, cost, now))
    }

    fn usage(&mut self, now: Time, key: usize) -> Vec<Usage> {
        self.limiter(key).usage_at(key as u64, now).into_iter().map(|(_, usage)| usage).collect()
    }

    fn reset(&mut self, key: usize) {
        self.limiter(key).reset(key as u64);
    }

    fn check_all(&mut self, now: Time, calls: &[KeyCall]) -> Decision {
        done(check_all_at(&self.calls(calls), now))
    }

    fn reserve(
        &mut self,
        now: Time,
        KeyCall { key, cost }: KeyCall,
        options: &ReserveOptions,
    ) -> Result<Reserved<Receipt>, Unsupported> {
        let reserved = supported(self.limiter(key).reserve_at(key as u64, cost, options, now))?;
        let (decision, granted) = (reserved.decision(), reserved.granted());
        Ok(Reserved { decision, receipt: reserved.keep(), granted })
    }

    fn reserve_all(
        &mut self,
        now: Time,
        calls: &[KeyCall],
        options: &ReserveOptions,
    ) -> (Decision, Option<Receipt>) {
        let reserved = done(reserve_all_at(&self.calls(calls), options, now));
        (reserved.decision(), reserved.keep())
    }

    fn extend(
        &mut self,
        now: Time,
        receipt: Receipt,
        costs: &[u64],
        ttl: Option<Span>,
    ) -> Result<Decision, NotDone> {
        or_rejected(self.any().extend_each_at(&receipt, costs, ttl.map(Into::into), now))
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: &[u64]) -> Result<bool, NotDone> {
        or_rejected(self.any().settle_each_at(&receipt, used, now))
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.any().cancel_at(&receipt, now)
    }
}
